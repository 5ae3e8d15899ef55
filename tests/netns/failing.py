"""`neuca` or `neucad` in which one operation fails: `failing.py WHICH PROGRAM ARGUMENT...`.

WHICH is the number of the operation, or how its text begins ("THIS|THAT"); then each such one fails. With the word "kill" before
it, the process is killed instead. All this holds while the file of the variable UNTIL_GONE exists, if that is set.
The error is number 5 (EIO), or that of the variable ERRNO.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import importlib
import itertools
import os
import signal
import sys
from pathlib import Path

from neuca_tools.apply import execute
from neuca_tools.errors import ApplyError

INJECTED = "injected: "
KILL = "kill "


def main():
    which, program, *words = sys.argv[1:]
    is_killed, which = which.startswith(KILL), which.removeprefix(KILL)
    numbers, attempt = itertools.count(1), execute._try_batch

    def failing(batch, writer):
        number, text = next(numbers), " and ".join(one.text for one in batch)
        meant = (
            str(number) == which if which.isdecimal() else text.startswith(tuple(which.split("|")))
        )
        if meant and Path(os.environ.get("UNTIL_GONE", "/")).exists():
            print(f"{INJECTED}{text}", file=sys.stderr, flush=True)
            if is_killed:
                os.kill(os.getpid(), signal.SIGKILL)
            return ApplyError("injected failure", int(os.environ.get("ERRNO", "5")))
        return attempt(batch, writer)

    execute._try_batch = failing
    sys.argv = [program, *words]
    sys.exit(importlib.import_module(f"neuca_tools.commands.{program}").main())


if __name__ == "__main__":
    main()
