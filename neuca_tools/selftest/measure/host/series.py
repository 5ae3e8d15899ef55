"""What one end sees of a test: samples for the diagnosis, and a trace for the charts."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from neuca_tools.selftest.evidence import Sample
from neuca_tools.selftest.evidence.trace import Trace
from neuca_tools.selftest.measure.host import counters
from neuca_tools.selftest.measure.host.tracing import Recorder

# Seconds between two samples.
SAMPLE_SECONDS = 1.0
# A last sample sooner than this, in seconds, after the one before is merged with that.
SHORTEST_SECONDS = 0.3


class Seen(NamedTuple):
    """What one end saw of a test."""

    samples: tuple[Sample, ...] = ()
    trace: Trace = Trace()


class SampleSeries:
    """What this end sees of a test of `seconds`, from now on.

    Samples, one each second, have the driver counters of `devices` too; for the ports see
    `counters.sample`.
    """

    def __init__(
        self,
        version: int,
        seconds: float,
        local_port: int = 0,
        remote_port: int = 0,
        devices: Sequence[str] = (),
    ) -> None:
        self._recorder = Recorder(version, seconds, local_port, remote_port)
        self._sample = partial(
            counters.sample, version, local_port, remote_port, devices=tuple(devices)
        )
        self._samples = [self._sample()]

    def due(self) -> float:
        """When the next `turn` is needed, by the monotonic clock in seconds."""
        return min(self._recorder.due(), self._sample_due())

    def _sample_due(self) -> float:
        return self._samples[-1].time + SAMPLE_SECONDS

    def turn(self) -> None:
        """Look at this end if that is due."""
        self._recorder.turn()
        if time.monotonic() >= self._sample_due():
            # Thinned at once, because an hour of samples is kept.
            self._samples.append(counters.thinned([self._samples[0], self._sample()])[1])

    def end(self) -> Seen:
        """Take a last sample and return everything.

        The connections of the test no longer exist then, so a merged sample keeps those before.
        """
        last, before = self._sample(), self._samples[-1]
        if last.time - before.time < SHORTEST_SECONDS and len(self._samples) > 1:
            self._samples[-1] = replace(before, counters=last.counters)
        else:
            self._samples.append(last)
        return Seen(counters.thinned(self._samples), self._recorder.end())
