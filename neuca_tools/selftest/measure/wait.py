"""Waiting for what can be read, until a deadline at most."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import select
import time
from collections.abc import Sequence
from typing import Any


def readable(sources: Sequence[Any], deadline: float) -> list[Any]:
    """The sources that can be read; empty if none can by the monotonic time `deadline`, in seconds.

    A source is a descriptor or an object with `fileno`.
    """
    return select.select(sources, [], [], max(0.0, deadline - time.monotonic()))[0]
