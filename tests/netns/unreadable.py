"""`neuca` or `neucad` without a descriptor for one file: `unreadable.py END PROGRAM ARGUMENT...`.

Each attempt to open a file whose path ends with END fails with EMFILE.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
import importlib
import os
import sys


def main():
    end, program, *words = sys.argv[1:]

    def refuse(event, arguments):
        if event == "open" and str(arguments[0]).endswith(end):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    sys.addaudithook(refuse)
    sys.argv = [program, *words]
    sys.exit(importlib.import_module(f"neuca_tools.commands.{program}").main())


if __name__ == "__main__":
    main()
