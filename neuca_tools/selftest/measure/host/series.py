"""What one end sees of a test: samples, twice a second or, in a long test, once."""

# SPDX-License-Identifier: MIT

import time
from collections.abc import Mapping
from dataclasses import replace

from neuca_tools.selftest.evidence import Sample, Socket
from neuca_tools.selftest.measure.host import counters, tcp_info

# Seconds between two samples of a test of up to a minute, which needs enough to tell a queue from
# waits for a CPU, and of a longer one.
SHORT_TEST, SHORT_TEST_SECONDS, SAMPLE_SECONDS = 60, 0.5, 1.0
# The most connections in all samples of a test, beyond which they are further apart: one has about
# 550 bytes in a message, which has LONGEST_MESSAGE at most.
MAX_CONNECTIONS = 40_000
# A last sample sooner than this, in seconds, after the one before is merged with that.
SHORTEST_SECONDS = 0.3


class SampleSeries:
    """The samples of this end of a test of `seconds`, from now on.

    Each has the CPUs, the counters, and the sockets with this local or remote port; none if both
    are 0. With many connections, a long test has fewer.
    """

    def __init__(
        self, version: int, seconds: float, local_port: int = 0, remote_port: int = 0
    ) -> None:
        self._version, self._ports = version, (local_port, remote_port)
        self._has_sockets = any(self._ports)
        self._seconds = seconds
        self._samples: list[Sample] = []
        self._due = time.monotonic()
        self.turn()

    def due(self) -> float:
        """When the next `turn` is needed, by the monotonic clock in seconds."""
        return self._due

    def turn(self) -> None:
        """Take a sample if that is due."""
        if time.monotonic() >= self._due:
            self._take_sample()
            spread = self._seconds * len(self._samples[-1].sockets) / MAX_CONNECTIONS
            usual = SHORT_TEST_SECONDS if self._seconds <= SHORT_TEST else SAMPLE_SECONDS
            self._due = self._samples[-1].time + max(usual, spread)

    def end(self) -> tuple[Sample, ...]:
        """Take a last sample and return all.

        The connections of the test no longer exist then, so a merged sample keeps those before.
        """
        self._take_sample()
        *earlier, before, last = self._samples
        if last.time - before.time < SHORTEST_SECONDS and earlier:
            return (*earlier, replace(before, counters=last.counters))
        return tuple(self._samples)

    def _take_sample(self) -> None:
        """Without counters that are the same as in the first sample: an hour of them is kept."""
        first = self._samples[0].counters if self._samples else {}
        now, sockets, cpus = time.monotonic(), self._read_sockets(), counters.read_cpus()
        values = _changed_counters(first, counters.read_counters())
        self._samples.append(Sample(now, sockets, cpus, values))

    def _read_sockets(self) -> tuple[Socket, ...]:
        try:
            if self._has_sockets:
                return tcp_info.read_sockets(self._version, *self._ports)
        except OSError:
            # A kernel without inet_diag still has everything else. It is not asked again, because
            # it runs modprobe for each request.
            self._has_sockets = False
        return ()


def _changed_counters(first: Mapping[str, int], values: Mapping[str, int]) -> dict[str, int]:
    return {name: value for name, value in values.items() if first.get(name) != value}
