"""What one end sees of a test: samples for the diagnosis, and a trace for the charts."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from neuca_tools.selftest.evidence import Cpu, Sample, Socket
from neuca_tools.selftest.evidence.trace import Connection, Point, Trace, trace_of
from neuca_tools.selftest.measure.host import counters, tcp_info

# Seconds between two samples.
SAMPLE_SECONDS = 1.0
# A last sample sooner than this, in seconds, after the one before is merged with that.
SHORTEST_SECONDS = 0.3

# Seconds between two points, and the most points of a test: a longer one has them further apart.
POINT_SECONDS, MOST_POINTS = 0.1, 600
# A point is followed by a pause of this many times the CPU time that it took, so that a host with
# many CPUs or a test with many connections spends at most 5% of a CPU on it. The elapsed time does
# not count, because a busy host spends most of it waiting for a CPU.
PAUSE_FACTOR = 20


class EndObservations(NamedTuple):
    """What one end saw of a test."""

    samples: tuple[Sample, ...] = ()
    trace: Trace = Trace()


class SampleSeries:
    """What this end sees of a test of `seconds`, from now on.

    Samples, one each second, have the driver counters of `devices` too; for the ports see
    `counters.take_sample`. Points are more frequent; without a port they have the CPUs alone.
    """

    def __init__(
        self,
        version: int,
        seconds: float,
        local_port: int = 0,
        remote_port: int = 0,
        devices: Sequence[str] = (),
    ) -> None:
        self._version, self._ports = version, (local_port, remote_port)
        self._sample = partial(
            counters.take_sample, version, local_port, remote_port, devices=tuple(devices)
        )
        self._every = max(POINT_SECONDS, seconds / MOST_POINTS)
        self._points: list[Point] = []
        self._take_point()
        self._samples = [self._sample()]

    def due(self) -> float:
        """When the next `turn` is needed, by the monotonic clock in seconds."""
        return min(self._point_due, self._sample_due())

    def _sample_due(self) -> float:
        return self._samples[-1].time + SAMPLE_SECONDS

    def turn(self) -> None:
        """Look at this end if that is due."""
        if time.monotonic() >= self._point_due:
            self._take_point()
        if time.monotonic() >= self._sample_due():
            # Thinned at once, because an hour of samples is kept.
            self._samples.append(counters.without_unchanged([self._samples[0], self._sample()])[1])

    def end(self) -> EndObservations:
        """Take a last sample and return everything.

        The connections of the test no longer exist then, so a merged sample keeps those before.
        """
        last, before = self._sample(), self._samples[-1]
        if last.time - before.time < SHORTEST_SECONDS and len(self._samples) > 1:
            self._samples[-1] = replace(before, counters=last.counters)
        else:
            self._samples.append(last)
        return EndObservations(counters.without_unchanged(self._samples), trace_of(self._points))

    def _take_point(self) -> None:
        began, used = time.monotonic(), time.thread_time()
        cpus = [_busy_and_whole(cpu) for cpu in counters.read_cpus()]
        self._points.append(Point(began, self._connections(), cpus))
        pause = PAUSE_FACTOR * (time.thread_time() - used)
        self._point_due = max(began + self._every, time.monotonic() + pause)
        if len(self._points) >= 2 * MOST_POINTS:
            self._point_due = math.inf

    def _connections(self) -> list[Connection]:
        if not any(self._ports):
            return []
        try:
            return [
                _connection(connection)
                for connection in tcp_info.read_sockets(self._version, *self._ports)
            ]
        except OSError:
            # A kernel without inet_diag has its CPUs all the same. It is not asked again, because
            # it runs modprobe for each request.
            self._ports = (0, 0)
            return []


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
