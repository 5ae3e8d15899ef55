"""Records the trace of this end: the test's connections and the CPUs, several times a second."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import math
import time
from pathlib import Path

from neuca_tools.selftest.evidence import Cpu, Socket
from neuca_tools.selftest.evidence.trace import Connection, Point, Trace, trace_of
from neuca_tools.selftest.measure.host import counters, kernel, tcp_info

# Seconds between two points, and the most points of a test: a longer one has them further apart.
POINT_SECONDS, MOST_POINTS = 0.1, 600
# A point is followed by a pause of this many times the CPU time that it took, so that a host with
# many CPUs or a test with many connections spends at most 5% of a CPU on it. Not of the time that
# passed: on a busy host most of that is spent waiting for a CPU.
PAUSE_FACTOR = 20
# Bytes of /proc/stat.
STAT_BYTES = 1024 * 1024


class Recorder:
    """The points of a test of `seconds`; for the ports see `counters.sample`.

    Without a port only the CPUs are recorded.
    """

    def __init__(
        self, version: int, seconds: float, local_port: int = 0, remote_port: int = 0
    ) -> None:
        self._version, self._ports = version, (local_port, remote_port)
        self._every = max(POINT_SECONDS, seconds / MOST_POINTS)
        self._points: list[Point] = []
        self._due = time.monotonic()
        self.turn()

    def due(self) -> float:
        """When the next point has to be taken, by the monotonic clock in seconds."""
        return self._due

    def turn(self) -> None:
        """Take a point if it is due."""
        began, used = time.monotonic(), time.thread_time()
        if began < self._due:
            return
        self._points.append(Point(began, self._connections(), self._cpus()))
        pause = PAUSE_FACTOR * (time.thread_time() - used)
        self._due = max(began + self._every, time.monotonic() + pause)
        if len(self._points) >= 2 * MOST_POINTS:
            self._due = math.inf

    def end(self) -> Trace:
        return trace_of(self._points)

    def _connections(self) -> list[Connection]:
        if not any(self._ports):
            return []
        try:
            return [
                _connection(connection)
                for connection in tcp_info.sockets(self._version, *self._ports)
            ]
        except OSError:
            # A kernel without inet_diag has its CPUs all the same. It is not asked again, because
            # it runs modprobe for each request.
            self._ports = (0, 0)
            return []

    def _cpus(self) -> list[tuple[float, float]]:
        text = kernel.text_of(Path("/proc/stat"), STAT_BYTES)
        return [_busy_and_whole(cpu) for cpu in counters.cpus(text)]


def _connection(connection: Socket) -> Connection:
    return Connection(
        (connection.local_port, connection.remote_port),
        connection.bytes_acked,
        connection.bytes_received,
        connection.total_retrans,
        connection.rtt / 1e6 if connection.rtt else None,
        connection.cwnd,
        connection.snd_wnd,
        connection.in_flight,
    )


def _busy_and_whole(cpu: Cpu) -> tuple[float, float]:
    busy = cpu.user + cpu.system + cpu.softirq + cpu.steal
    return busy, busy + cpu.idle
