"""One run of an iperf3 client with both ends sampled: `conduct` returns the phases for `diagnose`.

    test = Test(peer, 45678, seconds=10, source=our_address)
    phases = conduct("tcp", test)              # the peer runs `iperf3 -s -p 45678`, unsampled
    helper = peer.connect(address, 45679, secret, our_address)
    phases = conduct("tcp", test, helper)      # the helper starts the server and samples its end
    diagnose(Evidence(local=facts.host(way), peer=helper.facts(), phases=tuple(phases), expect=1e9))

A failure of iperf3 or of the peer is not raised: it is the error of the run. A run takes
`test.seconds` and up to GRACE more.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Optional

from neuca_tools.selftest.evidence import Phase, Sample
from neuca_tools.selftest.evidence.run import Run
from neuca_tools.selftest.measure.confine import confined
from neuca_tools.selftest.measure.helper.peer import Helper
from neuca_tools.selftest.measure.host import counters
from neuca_tools.selftest.measure.iperf import command as iperf
from neuca_tools.selftest.measure.iperf.command import Test
from neuca_tools.selftest.measure.probes.roundtrip import RoundTrips
from neuca_tools.selftest.measure.program import Ended, Program
from neuca_tools.selftest.measure.wait import readable

# Seconds between two samples.
EVERY = 1.0
# Seconds that a run may take beyond its test, to connect and to exchange results over a long path.
GRACE = 10.0
# A last sample sooner than this, in seconds, after the one before is merged with that.
SHORT = 0.3


def conduct(
    name: str,
    test: Test,
    far: Optional[Helper] = None,
    devices: Sequence[str] = (),
    probe: Optional[RoundTrips] = None,
    grace: float = GRACE,
) -> list[Phase]:
    """The phases of one run: one, or two for a run in both directions at once.

    `devices`: those whose driver counters are sampled too. `grace`: seconds beyond the test.
    """
    refused = far.begin(test) if far else None
    if refused is not None:
        return phases(name, test, Run("iperf3", protocol=iperf.protocol(test), error=refused))
    ours: tuple[Sample, ...] = ()
    try:
        ended, ours = watch(iperf.client(test), test, devices, probe, test.seconds + grace)
    except OSError as error:
        program = "numactl" if test.cpus else "iperf3"
        ended = Ended(1, b"", f"start {program}: {error.strerror}".encode())
    theirs = far.finish() if far else ()
    found = phases(name, test, iperf.outcome(test, ended), ours, theirs)
    found[0] = replace(found[0], raw=ended.out.decode("utf-8", "replace"))
    return found


def phases(
    name: str,
    test: Test,
    run: Run,
    ours: Sequence[Sample] = (),
    theirs: Sequence[Sample] = (),
) -> list[Phase]:
    """A phase for each direction, with the samples of its sender and of its receiver."""
    here, there = tuple(ours), tuple(theirs)
    forward = Phase(name, run, "forward", test.rate, sender=here, receiver=there)
    reverse = Phase(name, run, "reverse", test.rate, sender=there, receiver=here)
    return {"forward": [forward], "reverse": [reverse], "both": [forward, reverse]}[test.direction]


def watch(
    command: Sequence[str],
    test: Test,
    devices: Sequence[str],
    probe: Optional[RoundTrips],
    seconds: float,
) -> tuple[Ended, tuple[Sample, ...]]:
    """Run a client until it ends, but at most `seconds`, and sample this end every second.

    Raises OSError if it cannot be started.
    """
    series = SampleSeries(
        test.peer.version, remote_port=0 if test.udp else test.port, devices=devices
    )
    program = Program(command, confined())
    try:
        deadline = time.monotonic() + seconds
        while program.waiting and time.monotonic() < deadline:
            wake = min(deadline, series.due())
            sources = list(program.waiting)
            if probe:
                wake = min(wake, probe.due())
                sources.append(probe.fileno())
            for descriptor in set(readable(sources, wake)).intersection(program.waiting):
                program.take(descriptor)
            if probe:
                probe.turn()
            series.turn()
    finally:
        ended = program.end()
    return ended, series.end()


class SampleSeries:
    """Samples of this end, one each second from now on, with the driver counters of `devices`.

    For the ports see `counters.sample`.
    """

    def __init__(
        self, version: int, local_port: int = 0, remote_port: int = 0, devices: Sequence[str] = ()
    ) -> None:
        self._sample = partial(
            counters.sample, version, local_port, remote_port, devices=tuple(devices)
        )
        self._samples = [self._sample()]

    def due(self) -> float:
        """When the next sample has to be taken, by the monotonic clock in seconds."""
        return self._samples[-1].time + EVERY

    def turn(self) -> None:
        """Take a sample if it is due."""
        if time.monotonic() >= self.due():
            # Thinned at once, because an hour of samples is kept.
            self._samples.append(counters.thinned([self._samples[0], self._sample()])[1])

    def end(self) -> tuple[Sample, ...]:
        """Take a last sample and return all.

        The connections of the test no longer exist then, so a merged sample keeps those before.
        """
        last, before = self._sample(), self._samples[-1]
        if last.time - before.time < SHORT and len(self._samples) > 1:
            self._samples[-1] = replace(before, counters=last.counters)
        else:
            self._samples.append(last)
        return counters.thinned(self._samples)
