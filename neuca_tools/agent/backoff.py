"""Which failed parts of a pass are not tried again yet: each has intervals of its own that grow.

A pass for an event leaves these alone, so what a failing NIC changes never causes an attempt.
"""

# SPDX-License-Identifier: MIT

from collections.abc import Collection, Mapping
from typing import NamedTuple, Optional

LONGEST_BACKOFF = 600.0  # seconds between attempts
WHOLE_PASS = "*"  # a pass that failed as a whole; nothing is left out because of it


class _Failure(NamedTuple):
    """`ifindex` of the interface, 0 for none; `due` is on the monotonic clock, in seconds."""

    ifindex: int
    attempts: int
    due: float


class Backoff:
    """The failed parts, by their names in the scope of a pass (`state.changes`)."""

    def __init__(self) -> None:
        self._failures: dict[str, _Failure] = {}

    def __bool__(self) -> bool:
        return bool(self._failures)

    def update(
        self, failed: Mapping[str, int], left_out: Collection[str], now: float, interval: float
    ) -> None:
        """Count what failed in a pass that has just ended; what it tried with success is dropped.

        `failed` has the index of each interface; a device that has reappeared begins anew.
        """
        failures = {name: entry for name, entry in self._failures.items() if name in left_out}
        for name, index in failed.items():
            before = self._failures.get(name)
            attempts = before.attempts + 1 if before and before.ifindex == index else 1
            delay = min(LONGEST_BACKOFF, interval * float(2 ** min(attempts, 16)))
            failures[name] = _Failure(index, attempts, now + delay)
        self._failures = failures

    def due(self) -> Optional[float]:
        """When the next attempt at the first part is due; None if nothing failed."""
        return min((entry.due for entry in self._failures.values()), default=None)

    def left_out(self, now: float) -> dict[str, int]:
        """The parts that a pass leaves out now, each with the index of its interface."""
        waiting = {name: entry for name, entry in self._failures.items() if entry.due > now}
        return {name: entry.ifindex for name, entry in waiting.items() if name != WHOLE_PASS}
