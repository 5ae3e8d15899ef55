"""One run of an iperf3 client, with both ends sampled if there is a helper.

A failure of iperf3 or of the peer is not raised: it is the error of the run. A run takes
`test.seconds` and up to GRACE_SECONDS more.
"""

# SPDX-License-Identifier: MIT

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Optional

from neuca_tools.selftest.evidence import Phase, Sample
from neuca_tools.selftest.evidence.run import Direction, Run
from neuca_tools.selftest.measure.helper.peer import Helper
from neuca_tools.selftest.measure.host.series import SampleSeries
from neuca_tools.selftest.measure.iperf.command import Test, client_command, run_of
from neuca_tools.selftest.measure.probes.roundtrip import RoundTrips
from neuca_tools.selftest.measure.program import Program, ProgramResult, confine_process
from neuca_tools.selftest.measure.wait import wait_readable

# Seconds that a run may take beyond its test, to connect and to exchange results over a long path.
GRACE_SECONDS = 10.0
Samples = tuple[Sample, ...]  # of one end


def run_test(
    name: str,
    test: Test,
    helper: Optional[Helper] = None,
    probe: Optional[RoundTrips] = None,
    grace: float = GRACE_SECONDS,
) -> list[Phase]:
    """The phases of one run: one, or two for a run in both directions at once.

    `grace`: seconds beyond the test.
    """
    local: Samples = ()
    peer: Samples = ()
    refusal = helper.begin(test) if helper else None
    if refusal is not None:
        run = Run("iperf3", protocol=test.protocol, error=refusal)
        return _phases_of(name, test, run, local, peer)
    try:
        result, local = _watch_client(test, probe, grace)
    except OSError as error:
        program = "numactl" if test.numa_nodes else "iperf3"
        result = ProgramResult(1, b"", f"start {program}: {error.strerror}".encode())
    if helper:
        peer = helper.finish()
    first, *others = _phases_of(name, test, run_of(test, result), local, peer)
    return [replace(first, raw=result.out.decode("utf-8", "replace")), *others]


def _phases_of(name: str, test: Test, run: Run, local: Samples, peer: Samples) -> list[Phase]:
    """A phase for each direction, with what its sender and its receiver saw."""
    ends: Mapping[Direction, tuple[Samples, Samples]] = {
        "forward": (local, peer),
        "reverse": (peer, local),
    }
    return [
        Phase(
            name,
            run,
            direction,
            test.rate,
            sender=sender,
            receiver=receiver,
        )
        for direction, (sender, receiver) in ends.items()
        if test.direction in (direction, "both")
    ]


def _watch_client(
    test: Test, probe: Optional[RoundTrips], grace: float
) -> tuple[ProgramResult, Samples]:
    """Run a client until it ends, but at most `grace` seconds more, and sample this end meanwhile.

    Raises OSError if it cannot be started.
    """
    port = 0 if test.udp else test.port
    series = SampleSeries(test.peer.version, test.seconds, remote_port=port)
    program = Program(client_command(test), confine_process())
    probes = [probe] if probe else []
    try:
        deadline = time.monotonic() + test.seconds + grace
        while time.monotonic() < deadline:
            wake = min([deadline, series.due(), *(probe.due() for probe in probes)])
            if program in wait_readable([program, *probes], wake):
                break
            for probe in probes:
                probe.turn()
            series.turn()
    finally:
        result = program.end()
    for probe in probes:
        probe.stop()
    return result, series.end()
