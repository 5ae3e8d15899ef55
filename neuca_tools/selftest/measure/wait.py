"""Waits for descriptors, however many this process has open (poll(2))."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import math
import os
import select
import time
from collections.abc import Sequence
from typing import Any

PIECE = 65536


def wait_readable(sources: Sequence[Any], deadline: float) -> list[Any]:
    """The sources that can be read; empty if none can by the monotonic time `deadline`, in seconds.

    A source is a descriptor or an object with `fileno`.
    """
    waiting = select.poll()
    by_descriptor = {
        source if isinstance(source, int) else source.fileno(): source for source in sources
    }
    for descriptor in by_descriptor:
        waiting.register(descriptor, select.POLLIN)
    return [by_descriptor[descriptor] for descriptor, _ in waiting.poll(_milliseconds(deadline))]


def write_all(descriptor: int, content: bytes, seconds: float) -> None:
    """Write to a descriptor that does not block. Raises OSError, as after `seconds`."""
    deadline, waiting = time.monotonic() + seconds, select.poll()
    waiting.register(descriptor, select.POLLOUT)
    while content:
        if not waiting.poll(_milliseconds(deadline)):
            raise TimeoutError(0, f"it accepted nothing for {seconds:g} s")
        try:
            content = content[os.write(descriptor, content[:PIECE]) :]
        except BlockingIOError:
            continue


def _milliseconds(deadline: float) -> int:
    return math.ceil(max(0.0, deadline - time.monotonic()) * 1000)
