"""One run of an iperf3 client, with both ends sampled if there is a helper.

A failure of iperf3 or of the peer is not raised: it is the error of the run. A run takes
`test.seconds` and up to GRACE_SECONDS more.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Optional, Protocol

from neuca_tools.selftest.evidence import Phase
from neuca_tools.selftest.evidence.run import Run
from neuca_tools.selftest.measure.confine import confine_process
from neuca_tools.selftest.measure.helper.peer import Helper
from neuca_tools.selftest.measure.host.series import EndObservations, SampleSeries
from neuca_tools.selftest.measure.iperf import command as iperf
from neuca_tools.selftest.measure.iperf.command import Test
from neuca_tools.selftest.measure.program import Program, ProgramResult
from neuca_tools.selftest.measure.wait import wait_readable

# Seconds that a run may take beyond its test, to connect and to exchange results over a long path.
GRACE_SECONDS = 10.0


class ConcurrentProbe(Protocol):
    """What is measured during a run.

    `turn` is called when it is due or its descriptor ready, and `stop` once the run has ended.
    """

    def fileno(self) -> int: ...

    def due(self) -> float: ...

    def turn(self) -> None: ...

    def stop(self) -> None: ...


def run_test(
    name: str,
    test: Test,
    far: Optional[Helper] = None,
    devices: Sequence[str] = (),
    probe: Optional[ConcurrentProbe] = None,
    grace: float = GRACE_SECONDS,
) -> list[Phase]:
    """The phases of one run: one, or two for a run in both directions at once.

    `devices`: those whose driver counters are sampled too. `grace`: seconds beyond the test.
    """
    refused = far.begin(test) if far else None
    if refused is not None:
        run = Run("iperf3", protocol=iperf.protocol_of(test), error=refused)
        return phases_of(name, test, run, EndObservations(), EndObservations())
    ours = EndObservations()
    try:
        ended, ours = watch_program(
            iperf.client_command(test), test, devices, probe, test.seconds + grace
        )
    except OSError as error:
        program = "numactl" if test.cpus else "iperf3"
        ended = ProgramResult(1, b"", f"start {program}: {error.strerror}".encode())
    theirs = far.finish() if far else EndObservations()
    measured = phases_of(name, test, iperf.run_of(test, ended), ours, theirs)
    measured[0] = replace(measured[0], raw=ended.out.decode("utf-8", "replace"))
    return measured


def phases_of(
    name: str,
    test: Test,
    run: Run,
    ours: EndObservations,
    theirs: EndObservations,
) -> list[Phase]:
    """A phase for each direction, with what its sender and its receiver saw."""
    forward = _with_samples(Phase(name, run, "forward", test.rate), ours, theirs)
    reverse = _with_samples(Phase(name, run, "reverse", test.rate), theirs, ours)
    return {"forward": [forward], "reverse": [reverse], "both": [forward, reverse]}[test.direction]


def _with_samples(phase: Phase, sender: EndObservations, receiver: EndObservations) -> Phase:
    return replace(
        phase,
        sender=sender.samples,
        receiver=receiver.samples,
        sender_trace=sender.trace,
        receiver_trace=receiver.trace,
    )


def watch_program(
    command: Sequence[str],
    test: Test,
    devices: Sequence[str],
    probe: Optional[ConcurrentProbe],
    seconds: float,
) -> tuple[ProgramResult, EndObservations]:
    """Run a client until it ends, but at most `seconds`, and sample this end meanwhile.

    Raises OSError if it cannot be started.
    """
    port = 0 if test.udp else test.port
    series = SampleSeries(test.peer.version, test.seconds, remote_port=port, devices=devices)
    program = Program(command, confine_process())
    sources = [program, probe] if probe else [program]
    try:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            wake = min([deadline, series.due(), *([probe.due()] if probe else [])])
            if program in wait_readable(sources, wake):
                break
            if probe:
                probe.turn()
            series.turn()
    finally:
        result = program.end()
    if probe:
        probe.stop()
    return result, series.end()
