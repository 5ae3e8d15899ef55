"""iperf3's command lines, and what an ended iperf3 has to say: a Run, with an error wherever it did not do what was asked.

An exit code says little (3.12 exits 0 when the connection is refused) and so does the JSON (3.9 has no word for it): a run
counts only if the program ended by itself, with 0, with JSON that is whole and without an error, and something arrived.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from dataclasses import replace
from signal import Signals
from typing import NamedTuple, Optional

from neuca_tools.model import Host as Address
from neuca_tools.selftest.evidence.run import Run
from neuca_tools.selftest.measure.program import Ended
from neuca_tools.selftest.readers import read

PROGRAM = "iperf3"
CONNECT = 3000  # ms
MOST_STREAMS = 128  # MAX_STREAMS of iperf3's src/iperf.h
SILENT = "iperf3 ended without a result, and without saying why"
LATE = "iperf3 had not ended in time, and was ended: the other end may have stopped answering"


class Test(NamedTuple):
    """One run of a client. `rate` in bit/s: what UDP offers, what TCP may not exceed; of all streams together."""

    peer: Address
    port: int
    seconds: float
    source: Optional[Address] = None
    streams: int = 1
    direction: str = "forward"  # forward, reverse, both
    udp: bool = False
    rate: Optional[float] = None
    cpus: Optional[str] = None  # numactl's word for them


def client(test: Test) -> list[str]:
    """The command line of the client."""
    command = (
        ["numactl", f"--cpunodebind={test.cpus}", f"--membind={test.cpus}"]
        if test.cpus is not None
        else []
    )
    command += [
        PROGRAM,
        "-c",
        str(test.peer),
        "-p",
        str(test.port),
        "-t",
        f"{max(1, round(test.seconds))}",
        "-i",
        "1",
        "-J",
        "--connect-timeout",
        str(CONNECT),
        "--get-server-output",
    ]
    command += ["-B", str(test.source)] if test.source else []
    command += ["-P", str(test.streams)] if test.streams > 1 else []
    command += {"forward": [], "reverse": ["-R"], "both": ["--bidir"]}[test.direction]
    command += ["-u"] if test.udp else []
    return command + (["-b", str(max(1, int(test.rate / test.streams)))] if test.rate else [])


def server(address: Address, port: int) -> list[str]:
    """The command line of a server for one test alone, on one address."""
    return [PROGRAM, "-s", "-1", "-i", "1", "-B", str(address), "-p", str(port)]


def version(text: bytes) -> Optional[str]:
    """What `iperf3 --version` says first: `iperf 3.12 (cJSON 1.7.15)`."""
    found = re.match(rb"iperf (\d[\w.+-]{0,30})", text)
    return found[1].decode() if found else None


def outcome(test: Test, ended: Ended) -> Run:
    """What the run says, or why it says nothing. What is missing in the document is filled in from what was asked."""
    run = read(ended.out) if ended.out.strip() else Run("iperf3", error=SILENT)
    run = replace(
        run,
        protocol=run.protocol or ("udp" if test.udp else "tcp"),
        streams=run.streams or test.streams,
        duration=run.duration or test.seconds,
    )
    return replace(run, error=_error(run, ended))


def _error(run: Run, ended: Ended) -> Optional[str]:
    said = ended.error.decode("utf-8", "replace").strip().splitlines()
    last = said[-1].replace("iperf3: error - ", "") if said else ""
    if ended.late:
        return LATE
    if ended.code < 0:
        return f"iperf3 was ended by {_signal(-ended.code)}"
    if run.error == SILENT and last:
        return last
    if run.error or ended.code == 0:
        return run.error or (
            None if _arrived(run) else "iperf3 says that all went well, and nothing arrived"
        )
    return last or f"iperf3 ended with {ended.code}, and without saying why"


def _arrived(run: Run) -> bool:
    totals = [total for flow in run.flows for total in (flow.received, flow.sent)]
    return any(total.bytes for total in totals)


def _signal(number: int) -> str:
    try:
        return Signals(number).name
    except ValueError:
        return f"signal {number}"
