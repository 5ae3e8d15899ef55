"""How soon a NIC that appears is configured: from the kernel's first word of it to its address, by the kernel's own messages.

Beside it, what the same costs without an agent: an interpreter that imports pyroute2 and sets an address. Each NIC appears on a
host where nothing has happened for longer than the daemon keeps two passes apart.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import bench_host as host
import bench_idle
import bench_speed

QUIET = 1.0  # seconds; more than SECONDS_BETWEEN_PASSES of neuca_tools/agent/daemon.py
BARE = 'from pyroute2 import IPRoute; IPRoute().addr("add", index=1, address="127.9.9.{}", prefixlen=32)'
SETTLED = ("STATUS=ok", "STATUS=degraded")  # with the NICs, and without them


class Plug(NamedTuple):
    """Seconds, the longest of all rounds, but for the interpreter's, which is a median."""

    one: float
    four: float
    bare: float


def measure(rounds: int, directory: Path) -> Plug:
    """Raises Unmeasured."""
    host.forget(directory)
    host.make_taps(0)
    host.run_ip("link", "set", "lo", "up")
    (directory / "document").write_text(host.document(5))
    host.configure(directory, bench_idle.SELDOM)
    daemon = bench_idle.Daemon(directory)
    daemon.wait_for_pass(SETTLED[1])
    one = max(_appear(daemon, directory, [0]) for _ in range(rounds))
    host.run_ip(
        "link", "add", "nic0", "address", host.mac(0), "type", "veth", "peer", "name", "peer0"
    )
    daemon.wait_for_pass(SETTLED[1])
    four = max(_appear(daemon, directory, [1, 2, 3, 4]) for _ in range(rounds))
    daemon.stop()
    host.run_ip("link", "delete", "nic0")
    bare = [
        bench_speed.timed([host.PYTHON, "-c", BARE.format(number + 2)], directory)
        for number in range(rounds)
    ]
    return Plug(one, four, statistics.median(bare))


def _appear(daemon: bench_idle.Daemon, directory: Path, numbers: Sequence[int]) -> float:
    """Seconds until the last of these has its address; they are gone again in the end."""
    words = "".join(
        f"link add nic{one} address {host.mac(one)} type veth peer name peer{one}\n"
        for one in numbers
    )
    file = directory / "monitor"
    watch = ["ip", "-ts", "monitor", "link", "address"]
    with (
        file.open("w") as out,
        subprocess.Popen(watch, stdout=out, stderr=subprocess.DEVNULL) as monitor,
    ):
        try:
            _until(lambda: _listens(monitor.pid))
            time.sleep(QUIET)
            host.run_ip("-batch", "-", stdin=words)
            daemon.wait_for_pass(SETTLED[len(numbers) == 1])
            _until(lambda: all(_set(file, one) for one in numbers))
        finally:
            monitor.terminate()
    lines = file.read_text().splitlines()
    came = {one: min(_clock(line) for line in lines if f" nic{one}@" in line) for one in numbers}
    took = max(_clock(_set(file, one)) - came[one] for one in numbers)
    host.run_ip("-batch", "-", stdin="".join(f"link delete nic{one}\n" for one in numbers))
    daemon.wait_for_pass(SETTLED[1])
    return took


def _set(file: Path, number: int) -> str:
    """The line of its address, or nothing as yet."""
    return next(
        (line for line in file.read_text().splitlines() if f" {host.address(number)} " in line), ""
    )


def _listens(process: int) -> bool:
    """Whether it has a netlink socket that is bound, by the kernel's list of them."""
    lines = Path("/proc/net/netlink").read_text().splitlines()[1:]
    return any(int(line.split()[2]) == process for line in lines)


def _until(condition) -> None:
    deadline = time.monotonic() + bench_idle.PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise bench_speed.Unmeasured(f"nothing came within {bench_idle.PATIENCE:g} s")
        time.sleep(0.01)


def _clock(line: str) -> float:
    """The seconds of `ip -ts`: [2026-11-20T19:00:00.123456] …"""
    return datetime.fromisoformat(line[1 : line.index("]")]).timestamp()
