"""The guest in which the experiments run: one virtual processor whose clock counts instructions, and nothing else that runs."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "machine"))

from counted import counted
from two_hosts import TwoHosts

MEMORY = 2048  # MiB: a sixteenth of it is the most that bdp gives to a buffer


@contextlib.contextmanager
def laboratory(folder: Path) -> Iterator[TwoHosts]:
    """Boot a guest that has its disk in `folder`; it ends with the block."""
    with counted(folder, MEMORY) as guest:
        yield TwoHosts(guest)
