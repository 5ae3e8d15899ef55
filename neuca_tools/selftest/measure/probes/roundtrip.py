"""Round trips, while idle or during a test: by UDP or TCP to the helper's echo, or by ping."""

# SPDX-License-Identifier: MIT

import select
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, Optional

from neuca_tools.backends.routing import FAMILIES
from neuca_tools.model import Host as Address
from neuca_tools.selftest.evidence import Latency
from neuca_tools.selftest.measure.probes.echo import Requests
from neuca_tools.selftest.measure.wait import wait_readable

REQUEST_SECONDS = 0.01  # between requests
# Seconds for the last answers: four times the longest round trip, within bounds of our own.
SHORTEST_WAIT, LONGEST_WAIT = 0.2, 2.0
UNKNOWN_ROUND_TRIP = 0.25  # seconds assumed for a round trip while none is known
UNCOUNTED = 3  # round trips that are not counted: they resolve addresses and wake CPUs
MAX_REQUESTS = 0xFFFF  # the most requests of one probe: the number of a ping has 16 bits


class RoundTrips:
    """Small requests, one every `interval` seconds, independent of the answers.

    `answer_count` includes the answers to the first ones, whose times are not counted.
    """

    def __init__(self, requests: Requests, interval: float = REQUEST_SECONDS) -> None:
        self._requests, self._socket, self._interval = requests, requests.socket, interval
        self._socket.setblocking(False)
        self._sent_at_by_number: dict[int, float] = {}
        self._times: list[float] = []
        self._next_due, self._number = time.monotonic(), 0
        self.answer_count = self._lost = 0

    def fileno(self) -> int:
        return self._socket.fileno()

    def due(self) -> float:
        """When the next request has to be sent, by the monotonic clock in seconds."""
        return self._next_due

    def turn(self) -> None:
        """Read the answers that have arrived, and send a request if it is due."""
        self._read_answers()
        if time.monotonic() >= self._next_due and self._number < MAX_REQUESTS:
            self._next_due = max(self._next_due + self._interval, time.monotonic())
            self._number += 1
            self._sent_at_by_number[self._number] = time.monotonic()
            # A full queue or a missing route loses the request like any other.
            with suppress(OSError):
                self._socket.send(self._requests.make(self._number, 0, 0))

    def _read_answers(self) -> None:
        # No more answers for now, or an ICMP error for an earlier request.
        with suppress(OSError):
            while True:
                number = self._requests.number_of(self._socket.recv(65536))
                sent_at = self._sent_at_by_number.pop(number, None)
                if sent_at is None:
                    continue
                self.answer_count += 1
                if number > UNCOUNTED:
                    self._times.append(time.monotonic() - sent_at)

    def stop(self) -> None:
        """Read what has arrived. Requests that may still be answered do not count."""
        self._read_answers()
        latest = time.monotonic() - self._patience()
        self._lost += sum(
            number > UNCOUNTED and sent_at <= latest
            for number, sent_at in self._sent_at_by_number.items()
        )
        self._sent_at_by_number.clear()

    def end(self) -> Latency:
        """Wait for the last answers, unless it was stopped, and close."""
        deadline = time.monotonic() + self._patience()
        while self._sent_at_by_number and time.monotonic() < deadline:
            if wait_readable([self._socket], deadline):
                self._read_answers()
        self._socket.close()
        lost = self._lost + sum(number > UNCOUNTED for number in self._sent_at_by_number)
        return latency_of(self._times, lost)

    def _patience(self) -> float:
        """Seconds after which a request without an answer is lost."""
        longest = max(self._times, default=UNKNOWN_ROUND_TRIP)
        return min(LONGEST_WAIT, max(SHORTEST_WAIT, 4 * longest))


def measure_latency(probe: RoundTrips, count: int, seconds: float) -> Latency:
    """Measure `count` round trips, or as many as fit in `seconds`."""
    deadline, sent = time.monotonic() + seconds, 0
    while sent < count and time.monotonic() < deadline:
        wait_readable([probe], min(probe.due(), deadline))
        before = probe.due()
        probe.turn()
        sent += probe.due() != before
    return probe.end()


def over_tcp(peer: Address, port: int, source: Address, count: int, seconds: float) -> Latency:
    """Requests over one connection, each after the answer to the one before.

    Raises OSError if it cannot connect.
    """
    times: list[float] = []
    deadline = time.monotonic() + seconds
    with socket.create_connection((str(peer), port), seconds, (str(source), 0)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(count + UNCOUNTED):
            began = time.monotonic()
            if began >= deadline:
                break
            connection.settimeout(deadline - began)
            try:
                connection.sendall(b"?")
                answer = connection.recv(1)
            except OSError:
                # No answer in time, or the connection was reset.
                return latency_of(times[UNCOUNTED:], 1)
            if not answer:
                break
            times.append(time.monotonic() - began)
    return latency_of(times[UNCOUNTED:], 0)


def latency_of(times: Sequence[float], lost: int) -> Latency:
    """The median, the 99th percentile and the maximum; only the counts without any answer."""
    ordered = sorted(times)
    count = len(ordered) + lost
    if not ordered:
        return Latency(count, lost) if count else Latency()
    median, high = (ordered[int(part * len(ordered))] for part in (0.5, 0.99))
    return Latency(count, lost, median, high, ordered[-1])


# --- Foreign probes: a connection to the echo, and a byte there and back, beside a test ---------

# Seconds between probes, so that at most 20 begin in a second. The draft allows 100 (MPS).
PROBE_SECONDS = 0.05
# Bytes of a probe on the wire, there or back, and the part of the capacity that the probes may
# use: the draft's PTC.
PROBE_BYTES, CAPACITY_SHARE = 700, 0.05
# Probes at the same time, fewer than the connections that an echo accepts; probes of one test.
MAX_OPEN, MAX_PROBES = 32, 1000
FAILED_SECONDS = 5.0  # after which a probe has failed


class ProbeTimes(NamedTuple):
    """When each answered probe began, by the monotonic clock, and how long its parts took.

    All in seconds. `failed` probes had no answer in time, or were refused.
    """

    begun: tuple[float, ...]
    connected: tuple[float, ...]
    answered: tuple[float, ...]
    failed: int


@dataclass
class _Probe:
    socket: socket.socket
    begun: float
    connected: Optional[float] = None


def probe_interval(rate: Optional[float]) -> float:
    """Seconds between probes on a path of `rate` bit/s; None if that is not known."""
    if not rate:
        return PROBE_SECONDS
    return max(PROBE_SECONDS, PROBE_BYTES * 8 / (CAPACITY_SHARE * rate))


class ForeignProbes:
    """A probe every `interval` seconds, independent of the answers; see `RoundTrips` for its use.

    The constructor raises OSError.
    """

    def __init__(self, peer: Address, port: int, source: Address, interval: float) -> None:
        self._peer, self._source, self._interval = (str(peer), port), str(source), interval
        self._family = FAMILIES[peer.version]
        self._poll = select.epoll()
        self._open: dict[int, _Probe] = {}
        self._rows: list[tuple[float, float, float]] = []
        self._failed = self._begun_count = 0
        self._next_due = time.monotonic()

    def fileno(self) -> int:
        return self._poll.fileno()

    def due(self) -> float:
        """When `turn` is needed in any case, by the monotonic clock in seconds."""
        return self._next_due

    def turn(self) -> None:
        """Handle what has happened, and begin a probe if that is due."""
        for descriptor, _ in self._poll.poll(0):
            self._advance_probe(descriptor)
        now = time.monotonic()
        late = [key for key, probe in self._open.items() if now > probe.begun + FAILED_SECONDS]
        for descriptor in late:
            self._close(descriptor)
            self._failed += 1
        if now >= self._next_due:
            self._next_due = max(self._next_due + self._interval, now)
            if len(self._open) < MAX_OPEN and self._begun_count < MAX_PROBES:
                self._begin(now)

    def stop(self) -> None:
        """Close the probes under way, which do not count."""
        for descriptor in list(self._open):
            self._close(descriptor)

    def end(self) -> ProbeTimes:
        self.stop()
        self._poll.close()
        begun, connected, answered = zip(*self._rows) if self._rows else ((), (), ())
        return ProbeTimes(begun, connected, answered, self._failed)

    def _begin(self, now: float) -> None:
        self._begun_count += 1
        connection = socket.socket(self._family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        # Closed by a reset, so that its port does not stay in TIME_WAIT.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            connection.bind((self._source, 0))
            with suppress(BlockingIOError):
                connection.connect(self._peer)
        except OSError:
            connection.close()
            self._failed += 1
            return
        self._open[connection.fileno()] = _Probe(connection, now)
        self._poll.register(connection.fileno(), select.EPOLLOUT)

    def _advance_probe(self, descriptor: int) -> None:
        """The connection is there, or the answer, or neither."""
        probe, now = self._open[descriptor], time.monotonic()
        try:
            if probe.connected is None:
                # Raises the error of the connection, if it has failed.
                probe.socket.send(b"?")
                probe.connected = now
                self._poll.modify(descriptor, select.EPOLLIN)
                return
            if probe.socket.recv(1):
                taken = (probe.connected - probe.begun, now - probe.connected)
                self._rows.append((probe.begun, *taken))
            else:
                self._failed += 1
        except OSError:
            self._failed += 1
        self._close(descriptor)

    def _close(self, descriptor: int) -> None:
        """Which the kernel stops polling then (epoll(7))."""
        self._open.pop(descriptor).socket.close()
