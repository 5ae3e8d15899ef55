"""iperf3's command lines, and the Run that its output describes, with an error if it failed.

Neither the exit code (3.12 exits with 0 if the connection is refused) nor the JSON (3.9 does not
mention that) is enough to tell. A run is good only if the program ended by itself, with 0, printed
complete JSON without an error, and something arrived.
"""

# SPDX-License-Identifier: MIT

import math
import re
from dataclasses import replace
from typing import NamedTuple, Optional

from neuca_tools.model import Host as Address
from neuca_tools.selftest.evidence.run import Run
from neuca_tools.selftest.measure.program import ProgramResult
from neuca_tools.selftest.readers.documents import read_run

PROGRAM = "iperf3"
CONNECT_MILLISECONDS = 3000
MAX_STREAMS = 128  # the limit of iperf3 (src/iperf.h)
# The most intervals of all streams together, so that the output is shorter than program.MAX_OUTPUT:
# in 3.12, a client prints about 400 bytes of JSON for each, and a server 85 bytes of text.
MAX_JSON_INTERVALS, MAX_TEXT_INTERVALS = 50_000, 250_000
NO_RESULT = "iperf3 ended without a result or an error message"
# iperf3 3.22 waits forever if another program listens on the port; 3.12 ends with an error.
NOT_ENDED = (
    "iperf3 did not end in time and was terminated: the peer may have stopped responding, or "
    "another program listens on the port"
)
DIRECTIONS: dict[str, list[str]] = {"forward": [], "reverse": ["-R"], "both": ["--bidir"]}


class Test(NamedTuple):
    """One run of a client.

    `rate` in bit/s, of all streams together: what UDP offers, or a limit for TCP. `direction` is
    forward, reverse or both. `numa_nodes` are the nodes to run on, as numactl takes them. `length`
    is the size of a datagram in bytes, 0 for that of whole packets.
    """

    peer: Address
    port: int
    seconds: float
    source: Optional[Address] = None
    streams: int = 1
    direction: str = "forward"
    udp: bool = False
    rate: Optional[float] = None
    numa_nodes: Optional[str] = None
    length: int = 0

    @property
    def protocol(self) -> str:
        return "udp" if self.udp else "tcp"


def client_command(test: Test) -> list[str]:
    command = []
    if test.numa_nodes is not None:
        command += ["numactl", f"--cpunodebind={test.numa_nodes}", f"--membind={test.numa_nodes}"]
    seconds = max(1, round(test.seconds))
    command += [PROGRAM, "-c", str(test.peer), "-p", str(test.port), "-t", f"{seconds}"]
    flows = 2 * test.streams if test.direction == "both" else test.streams
    command += ["-i", _interval(test.seconds, flows, MAX_JSON_INTERVALS)]
    command += f"-J --connect-timeout {CONNECT_MILLISECONDS} --get-server-output".split()
    if test.source:
        command += ["-B", str(test.source)]
    if test.streams > 1:
        command += ["-P", str(test.streams)]
    command += DIRECTIONS[test.direction]
    if test.udp:
        command.append("-u")
    if test.length:
        command += ["-l", str(test.length)]
    if test.rate:
        command += ["-b", str(max(1, int(test.rate / test.streams)))]
    return command


def server_command(address: Address, port: int, seconds: float = 0.0) -> list[str]:
    """The command line of a server that listens on one address, and ends after one test."""
    interval = _interval(seconds, 2 * MAX_STREAMS, MAX_TEXT_INTERVALS)
    return [PROGRAM, "-s", "-1", "-i", interval, "-B", str(address), "-p", str(port)]


def _interval(seconds: float, flows: int, max_intervals: int) -> str:
    """The seconds of an interval, of which all flows together have at most `max_intervals`."""
    return str(max(1, math.ceil(seconds * flows / max_intervals)))


def parse_version(text: bytes) -> Optional[str]:
    """The version in the output of `iperf3 --version`, such as `iperf 3.12 (cJSON 1.7.15)`."""
    match = re.match(rb"iperf (\d[\w.+-]{0,30})", text)
    return match[1].decode() if match else None


def run_of(test: Test, result: ProgramResult) -> Run:
    """The run that the output describes, or a Run with an error.

    What iperf3 did not print is taken from the requested test.
    """
    run = read_run(result.out) if result.out.strip() else Run("iperf3", error=NO_RESULT)
    run = replace(
        run,
        protocol=run.protocol or test.protocol,
        streams=run.streams or test.streams,
        duration=run.duration or test.seconds,
    )
    return replace(run, error=_failure_of(run, result))


def _failure_of(run: Run, result: ProgramResult) -> Optional[str]:
    """Why the run failed; None if it did not."""
    if result.was_killed:
        return NOT_ENDED
    if result.code < 0:
        return f"iperf3 was terminated by signal {-result.code}"
    last = result.error.decode("utf-8", "replace").strip().rpartition("\n")[2]
    last = last.replace("iperf3: error - ", "")
    if run.error == NO_RESULT:
        return last or NO_RESULT
    if run.error or result.code:
        return run.error or last or f"iperf3 exited with {result.code} without an error message"
    return None if _has_arrived(run) else "iperf3 reported success, but nothing arrived"


def _has_arrived(run: Run) -> bool:
    return any(flow.received.bytes or flow.sent.bytes for flow in run.flows)
