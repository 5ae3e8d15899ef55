"""Round trips, while idle or during a test: by UDP or TCP to the helper's echo, or by ping."""

# SPDX-License-Identifier: MIT

import socket
import time
from collections.abc import Sequence
from contextlib import suppress

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
