"""The entry point of `neucad`."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import sys
from typing import Optional

from neuca_tools.commands import collect_rarely, with_output


def main(arguments: Optional[list[str]] = None) -> int:
    """Run the agent, or one step of it. The exit code of `--once` is that of `neuca status`."""
    if arguments is None:
        collect_rarely()
    # After collect_rarely(), so that the import does not search for garbage.
    from neuca_tools.commands.agent import main as run

    if arguments is None:
        return with_output(lambda: run(sys.argv[1:]), "neucad")
    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
