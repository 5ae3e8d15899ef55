"""Probes of a real UDP or TCP peer on the loopback device: what they send, and which of its answers count."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import select
import socket
import threading
from ipaddress import ip_address

import pytest

from neuca_tools.selftest.evidence import PathMtu
from neuca_tools.selftest.measure.probes import path_mtu, roundtrip
from neuca_tools.selftest.measure.probes.echo import HEADER, IP_AND_UDP_BYTES, echo_requests
from neuca_tools.selftest.measure.probes.path_mtu import measure_path_mtu
from neuca_tools.selftest.measure.probes.roundtrip import RoundTrips, measure_latency, over_tcp

HOST, SOURCE, TOKEN = "127.0.0.1", "127.0.0.5", bytes(range(16))
HERE, SOURCE_ADDRESS = ip_address(HOST), ip_address(SOURCE)
HEADERS = IP_AND_UDP_BYTES[4]


class Peer(threading.Thread):
    """A UDP peer: it keeps the datagrams that arrive, and sends what `answers` makes of each."""

    def __init__(self, answers):
        super().__init__()
        self.answers, self.received, self.senders = answers, [], set()
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((HOST, 0))
        self.port = self.socket.getsockname()[1]

    def run(self):
        while True:
            datagram, sender = self.socket.recvfrom(65536)
            if sender[1] == self.port:
                return
            self.received.append(datagram)
            self.senders.add(sender[0])
            for answer in self.answers(datagram):
                self.socket.sendto(answer, sender)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.socket.sendto(b"", (HOST, self.port))
        self.join()
        self.socket.close()
        assert self.senders == {SOURCE}

    def requests(self):
        return echo_requests(HERE, self.port, TOKEN, SOURCE_ADDRESS)

    @property
    def sizes(self):
        return [len(datagram) + HEADERS for datagram in self.received]


def fields(datagram):
    """The number of a request, and the size of the answer that it asks for."""
    return HEADER.unpack_from(datagram)[1:]


def answer_of(number, size=0):
    return HEADER.pack(TOKEN, number, size).ljust(size, b"\0")


def whole(datagram):
    return [answer_of(*fields(datagram))]


def silent(_):
    return []


# --- Round trips --------------------------------------------------------------------------------------------------------

# Seven requests, of which the first three are not counted: what answers them, the answers and the losses.
ANSWERED = {
    "every one": (whole, 4, 0),
    "none": (silent, 4, 4),
    "every other one": (lambda datagram: whole(datagram) if fields(datagram)[0] % 2 else [], 4, 2),
    "each of them twice": (lambda datagram: whole(datagram) * 2, 4, 0),
    "with numbers of no request": (lambda datagram: [answer_of(fields(datagram)[0] + 90)], 4, 4),
    "with less than a header": (lambda datagram: [datagram[: HEADER.size - 1]], 4, 4),
}


@pytest.mark.parametrize("name", ANSWERED)
def test_an_answer_counts_once_for_its_request(name):
    answers, count, lost = ANSWERED[name]
    with Peer(answers) as peer:
        latency = measure_latency(RoundTrips(peer.requests(), 0.001), 7, 60.0)
    assert (latency.count, latency.lost) == (count, lost)
    assert (latency.p50 is None) is (lost == count)
    assert peer.received == [HEADER.pack(TOKEN, number, HEADER.size) for number in range(1, 8)]


def test_the_seconds_of_a_measurement_are_a_limit():
    with Peer(whole) as peer:
        measure_latency(RoundTrips(peer.requests(), 0.05), 1000, 0.3)
    assert 1 <= len(peer.received) <= 7


def test_a_pause_is_not_made_up_for_by_a_burst_of_requests():
    with Peer(whole) as peer:
        probe = RoundTrips(peer.requests(), 0.2)
        probe.turn()
        select.select([], [], [], 0.7)  # a busy host; two requests of four were due
        for _ in range(4):
            probe.turn()
        probe.end()
    assert 2 <= len(peer.received) <= 3


def test_a_request_without_an_answer_is_lost_when_its_time_is_over(monkeypatch):
    monkeypatch.setattr(roundtrip, "LONGEST_WAIT", 0.2)
    with Peer(lambda datagram: whole(datagram) if fields(datagram)[0] < 5 else []) as peer:
        probe = RoundTrips(peer.requests(), 0.0)
        for _ in range(5):
            probe.turn()
        select.select([], [], [], 0.3)
        probe.stop()
        latency = probe.end()
    assert (latency.count, latency.lost, probe.answer_count) == (2, 1, 4)


def serve(listener, pieces):
    """Answer so many requests of one connection, and then close it; with None, answer none and keep it open."""
    connection, sender = listener.accept()
    with connection:
        if sender[0] != SOURCE:
            return
        for _ in range(pieces or 0):
            connection.sendall(connection.recv(1))
        if pieces is None:
            connection.recv(1)
            connection.recv(1)


@pytest.mark.parametrize(
    ("pieces", "count", "lost"), [(8, 5, 0), (4, 1, 0), (3, None, None), (None, 1, 1)]
)
def test_round_trips_over_tcp_follow_each_other(pieces, count, lost):
    """Five are asked for, after three that do not count; a peer may close before, or never answer."""
    with socket.create_server((HOST, 0)) as listener:
        peer = threading.Thread(target=serve, args=(listener, pieces))
        peer.start()
        seconds = 60.0 if pieces else 0.3
        latency = over_tcp(HERE, listener.getsockname()[1], SOURCE_ADDRESS, 5, seconds)
        peer.join()
    assert (latency.count, latency.lost) == (count, lost)
    assert (latency.p50 is not None) is (count is not None and not lost)


def test_round_trips_over_tcp_need_a_listener():
    with socket.create_server((HOST, 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ConnectionRefusedError):
        over_tcp(HERE, port, SOURCE_ADDRESS, 5, 60.0)


# --- The path MTU -------------------------------------------------------------------------------------------------------


def limited(out, back):
    """A path that carries packets up to these sizes in bytes, out and back."""

    def answers(datagram):
        arrives = len(datagram) + HEADERS <= out and fields(datagram)[1] + HEADERS <= back
        return whole(datagram) if arrives else []

    return answers


# The answers, the largest size to try, and the path MTU out and back.
PATHS = {
    "all sizes": (whole, 1500, (1500, 1500)),
    "not the largest": (limited(578, 579), 580, (578, 579)),
    "one direction": (limited(9000, 100), 576, (576, None)),
    "none": (silent, 576, (None, None)),
    "a device with less than every path carries": (whole, 500, (576, 576)),
    "one datagram in three": (
        lambda datagram: whole(datagram) if fields(datagram)[0] % 3 == 0 else [],
        576,
        (576, 576),
    ),
    "answers to the first request alone": (lambda _: [answer_of(1, 548)], 576, (576, None)),
}


@pytest.mark.parametrize("name", PATHS)
def test_the_path_mtu_of_each_direction_is_what_gets_there(name):
    answers, mtu, sizes = PATHS[name]
    with Peer(answers) as peer:
        assert measure_path_mtu(peer.requests(), mtu, 0.0) == PathMtu(*sizes, False)
    assert max(peer.sizes) == max(mtu, path_mtu.SMALLEST[4])
    assert min(peer.sizes) == HEADER.size + HEADERS
    assert {HEADER.unpack_from(datagram)[0] for datagram in peer.received} == {TOKEN}
