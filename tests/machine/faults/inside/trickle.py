"""`trickle.py read|write FILE RATE`: a disk that takes, or gives, no more than so many bytes a second; FILE is a FIFO."""

# SPDX-License-Identifier: MIT

import sys
import time
from pathlib import Path

BLOCK = 4096  # what a FIFO takes in one piece
mode, name, rate = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
while True:
    with name.open("rb" if mode == "read" else "wb", buffering=0) as stream:
        due = time.monotonic()
        try:
            while stream.read(BLOCK) if mode == "read" else stream.write(bytes(BLOCK)):
                due = max(due + BLOCK / rate, time.monotonic() - 0.02)
                time.sleep(max(0.0, due - time.monotonic()))
        except BrokenPipeError:
            pass
