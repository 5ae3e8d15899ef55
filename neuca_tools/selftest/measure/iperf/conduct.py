"""One run of an iperf3 client while both ends are looked at: `conduct` gives the phase that `diagnose` takes.

    test = Test(peer, 45678, seconds=10, source=our_address)
    phases = conduct("tcp", test)              # a plain `iperf3 -s -p 45678` at the other end: one end's evidence
    helper = peer.connect(address, 45679, secret, our_address)
    phases = conduct("tcp", test, helper)      # it starts the server, and looks at its end every second too
    diagnose(Evidence(local=facts.host(way), peer=helper.facts(), phases=tuple(phases), expect=1e9))

It never raises for what iperf3 or the other end does: that is the run's error. It takes `test.seconds` and some more.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import select
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Optional, Protocol

from neuca_tools.selftest.evidence import Phase, Sample
from neuca_tools.selftest.evidence.run import Run
from neuca_tools.selftest.measure.confine import confined
from neuca_tools.selftest.measure.host import counters
from neuca_tools.selftest.measure.iperf import command as iperf
from neuca_tools.selftest.measure.iperf.command import Test
from neuca_tools.selftest.measure.program import Ended, Program

EVERY = 1.0  # seconds between two looks
GRACE = 10.0  # seconds that a run may take beyond its time: connecting, and the exchange of results over a long path
SHORT = 0.3  # seconds: a last look that comes sooner is no interval of its own


class FarEnd(Protocol):
    """What the other end does for a run, if somebody is there."""

    def begin(self, test: Test) -> Optional[str]:
        """Start a server and its looks; the reason where that was not done."""

    def finish(self) -> tuple[Sample, ...]:
        """End what is left of it, and its looks."""


class Probe(Protocol):
    """Round trips that are measured meanwhile."""

    def fileno(self) -> int:
        """What answers come in at."""

    def due(self) -> float:
        """When the next request goes out, by the monotonic clock."""

    def turn(self) -> None:
        """Take the answers that are there, send the request that is due."""


def conduct(
    name: str,
    test: Test,
    far: Optional[FarEnd] = None,
    devices: Sequence[str] = (),
    probe: Optional[Probe] = None,
    grace: float = GRACE,
) -> list[Phase]:
    """The phase of one run; two for a run in both directions at once. `devices`: whose drivers' counters are read too."""
    refused = far.begin(test) if far else None
    if refused is not None:
        return phases(
            name,
            test,
            Run("iperf3", protocol="udp" if test.udp else "tcp", error=refused),
            None,
            (),
            (),
        )
    try:
        ended, ours = watch(iperf.client(test), test, devices, probe, test.seconds + grace)
    except OSError as error:
        ended, ours = (
            Ended(
                1, b"", f"start {'numactl' if test.cpus else 'iperf3'}: {error.strerror}".encode()
            ),
            (),
        )
    theirs = far.finish() if far else ()
    return phases(
        name, test, iperf.outcome(test, ended), ended.out.decode("utf-8", "replace"), ours, theirs
    )


def phases(
    name: str,
    test: Test,
    run: Run,
    raw: Optional[str],
    ours: Sequence[Sample],
    theirs: Sequence[Sample],
) -> list[Phase]:
    """Each direction as a phase of its own, the samples by their part in it."""
    found: list[Phase] = []
    for direction in ("forward", "reverse") if test.direction == "both" else (test.direction,):
        sender, receiver = (ours, theirs) if direction == "forward" else (theirs, ours)
        found.append(
            Phase(
                name,
                run,
                direction,
                test.rate,
                tuple(sender),
                tuple(receiver),
                None if found else raw,
            )
        )
    return found


def watch(
    command: Sequence[str],
    test: Test,
    devices: Sequence[str],
    probe: Optional[Probe],
    seconds: float,
) -> tuple[Ended, tuple[Sample, ...]]:
    """Run a client until it ends or its time is over, and look at this end every second. Raises OSError."""
    series = SampleSeries(
        test.peer.version, remote_port=0 if test.udp else test.port, devices=devices
    )
    program = Program(command, confined())
    try:
        deadline = time.monotonic() + seconds
        while program.waiting and time.monotonic() < deadline:
            wake = min(deadline, series.due(), *((probe.due(),) if probe else ()))
            sources = [*program.waiting, *((probe.fileno(),) if probe else ())]
            ready, _, _ = select.select(sources, [], [], max(0.0, wake - time.monotonic()))
            for descriptor in program.waiting:
                if descriptor in ready:
                    program.take(descriptor)
            if probe:
                probe.turn()
            series.turn()
    finally:
        ended = program.end()
    return ended, series.end()


class SampleSeries:
    """Looks at this end, one each second from now on. Of the devices named the drivers' own counters are read too."""

    def __init__(
        self, version: int, local_port: int = 0, remote_port: int = 0, devices: Sequence[str] = ()
    ) -> None:
        self._what = version, local_port, remote_port, tuple(devices)
        self._samples = [counters.sample(*self._what)]

    def due(self) -> float:
        return self._samples[-1].time + EVERY

    def turn(self) -> None:
        """Look, if it is time to."""
        if time.monotonic() >= self.due():
            # An hour of looks is kept: what they have in common only once.
            self._samples.append(
                counters.thinned([self._samples[0], counters.sample(*self._what)])[1]
            )

    def end(self) -> tuple[Sample, ...]:
        """All looks, with a last one. The test's connections are gone by then: what the last second said of them stays."""
        last, before = counters.sample(*self._what), self._samples[-1]
        if last.time - before.time < SHORT and len(self._samples) > 1:
            self._samples[-1] = replace(before, counters=last.counters)
        else:
            self._samples.append(last)
        return counters.thinned(self._samples)
