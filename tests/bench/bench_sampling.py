"""What the self-test's looks cost beside a real iperf3, and what they cost its throughput.

One process looks at one end each second, as `neuca-selftest` does; its own processor time is counted, iperf3's is not. The
throughput is that of runs with looks and without, in turns, over loopback, where a processor is the limit: any other shows less.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

import bench_host as host
from bench_speed import Unmeasured

sys.path.insert(0, str(host.CHECKOUT))

from neuca_tools.selftest.measure.host.tcp_info import is_listening
from neuca_tools.selftest.measure.iperf.command import Test, client_command, server_command
from neuca_tools.selftest.measure.iperf.conduct import run_test

ADDRESS, PORT = ip_address("127.0.0.1"), 45678
SECONDS = 5
STREAMS = (1, 8, 128)
PATIENCE, MOMENT = 10.0, 0.02  # seconds


class Sampling(NamedTuple):
    """`cost`: shares of a processor, by the number of streams. `rate`: with looks over without; `reported` over iperf3's own."""

    cost: dict[int, float]
    rate: float
    reported: float


def measure(rounds: int, directory: Path) -> Sampling:  # noqa: ARG001 - as the other parts
    host.run_ip("link", "set", "lo", "up")
    cost = {streams: _looked_at(streams)[0] for streams in STREAMS}
    pairs = [(_looked_at(1), _plain()) for _ in range(rounds)]
    return Sampling(
        cost,
        statistics.median(seen[1] / plain for seen, plain in pairs),
        statistics.median(seen[2] for seen, _ in pairs),
    )


def _looked_at(streams: int) -> tuple[float, float, float]:
    """The share of a processor, the rate in bit/s, and how it compares with what iperf3 itself says of the same run."""
    with _server():
        began, busy = time.monotonic(), time.process_time()
        (phase,) = run_test("tcp", Test(ADDRESS, PORT, SECONDS, ADDRESS, streams))
        busy, took = time.process_time() - busy, time.monotonic() - began
    flow = phase.run.flow("forward") if phase.run and not phase.run.error else None
    if flow is None or not flow.received.rate or len(phase.sender) < SECONDS:
        raise Unmeasured(
            f"iperf3 with {streams} streams: {phase.run.error if phase.run else 'no run'}"
        )
    own = json.loads(phase.raw or "{}")["end"]["sum_received"]["bits_per_second"]
    return busy / took, own, flow.received.rate / own


def _plain() -> float:
    with _server():
        done = subprocess.run(
            client_command(Test(ADDRESS, PORT, SECONDS, ADDRESS)), capture_output=True, check=False
        )
    try:
        return float(json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"])
    except (ValueError, KeyError) as error:
        raise Unmeasured(f"plain iperf3: {done.stdout[-200:]!r}") from error


@contextlib.contextmanager
def _server() -> Iterator[None]:
    """It ends after one test; and with the block, if there was none."""
    started = subprocess.Popen(
        server_command(ADDRESS, PORT), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + PATIENCE
        while not is_listening(4, PORT):
            if started.poll() is not None or time.monotonic() > deadline:
                raise Unmeasured("iperf3's server did not start")
            time.sleep(MOMENT)
        yield
    finally:
        started.terminate()
        started.wait()
