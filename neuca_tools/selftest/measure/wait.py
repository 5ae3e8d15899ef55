"""Waiting for what can be read or written, until a deadline at most."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import math
import select
import time
from collections.abc import Sequence
from typing import Any

FD_SETSIZE = 1024  # FD_SETSIZE: descriptors from there on are not for select(2)


def wait_readable(sources: Sequence[Any], deadline: float) -> list[Any]:
    """The sources that can be read; empty if none can by the monotonic time `deadline`, in seconds.

    A source is a descriptor or an object with `fileno`.
    """
    left = max(0.0, deadline - time.monotonic())
    by_descriptor = {
        source if isinstance(source, int) else source.fileno(): source for source in sources
    }
    if max(by_descriptor, default=0) < FD_SETSIZE:
        return select.select(sources, [], [], left)[0]
    waiting = select.poll()  # which waits for whole milliseconds
    for descriptor in by_descriptor:
        waiting.register(descriptor, select.POLLIN)
    return [by_descriptor[descriptor] for descriptor, _ in waiting.poll(math.ceil(left * 1000))]


def is_writable(descriptor: int, deadline: float) -> bool:
    """Whether something can be written by the monotonic time `deadline`, in seconds."""
    waiting = select.poll()
    waiting.register(descriptor, select.POLLOUT)
    return bool(waiting.poll(math.ceil(max(0.0, deadline - time.monotonic()) * 1000)))
