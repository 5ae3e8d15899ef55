"""The command line: thin modules that parse arguments, call a stage and print its result."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import atexit
import gc


def collect_rarely() -> None:
    """Spend less of a short process on the search for cyclic garbage.

    Loading some 200 modules makes many objects and no garbage. The default threshold, 700 objects,
    has each of them visited again and again, and once more at exit.
    """
    gc.set_threshold(100_000)
    atexit.register(gc.freeze)
