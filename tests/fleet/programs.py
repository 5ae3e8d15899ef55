"""A script that runs a program of this checkout, as hosts find it in their PATH."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = """#!/bin/sh
PYTHONPATH={root} exec {python} -c "import sys
from neuca_tools.commands.{module} import main
sys.exit(main(sys.argv[1:]))" "$@"
"""


def script(module: str) -> str:
    """The text of one that runs `main` of a module of neuca_tools.commands."""
    return SCRIPT.format(root=ROOT, python=sys.executable, module=module)
