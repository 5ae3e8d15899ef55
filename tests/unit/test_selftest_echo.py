"""The echo of a session, over real sockets: what it sends back, and to whom."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
from ipaddress import ip_address

import pytest
from test_selftest_server import free_ports

from neuca_tools.selftest.evidence import PathMtu
from neuca_tools.selftest.measure.probes.echo import (
    HEADER,
    LARGEST_PAYLOAD,
    MAX_CONNECTIONS,
    MAX_GROWTH,
    Echo,
    echo_requests,
)
from neuca_tools.selftest.measure.probes.path_mtu import measure_path_mtu
from neuca_tools.selftest.measure.probes.roundtrip import UNCOUNTED, RoundTrips

HOST, TOKEN = "127.0.0.1", bytes(range(16))


@pytest.fixture
def echo():
    base = free_ports()
    made = Echo(ip_address(HOST), ip_address(HOST), base, TOKEN)
    yield made, base
    made.close()


def answers(echo, requests, source=HOST):
    """The sizes of what comes back, each request after the answer to the one before."""
    made, port = echo
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.bind((source, 0))
        client.setblocking(False)
        for request in requests:
            client.sendto(request, (HOST, port))
            made.turn(set(made.waiting))
            with contextlib.suppress(BlockingIOError):
                found.append(len(client.recv(65536)))
    return found


def test_the_peer_gets_the_size_that_it_asks_for(echo):
    asked = [HEADER.pack(TOKEN, 1, size) for size in (0, 1500, 9000, 2**32 - 1)]
    assert answers(echo, asked) == [HEADER.size, 1500, 9000, LARGEST_PAYLOAD]


def test_nobody_else_is_answered(echo):
    assert answers(echo, [HEADER.pack(TOKEN, 1, 100)], source="127.0.0.2") == []
    assert answers(echo, [HEADER.pack(TOKEN[::-1], 1, 100), b"", b"x" * 23]) == []


def test_a_listener_with_the_token_gets_no_amplifier(echo):
    """200 small requests in the name of the peer ask for 13 MB."""
    came = answers(echo, [HEADER.pack(TOKEN, 1, LARGEST_PAYLOAD)] * 200)
    assert came == [LARGEST_PAYLOAD] * len(came)
    assert len(came) <= 2 * MAX_GROWTH // LARGEST_PAYLOAD  # should a second end in between


def turn(made):
    """Let the echo handle whatever has arrived, until nothing more does."""
    while ready := select.select(made.waiting, [], [], 0.2)[0]:
        made.turn(set(ready))


def test_the_peers_connections_are_echoed_up_to_their_number(echo):
    made, port = echo
    sources = [HOST, "127.0.0.2", *[HOST] * MAX_CONNECTIONS]
    with contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(socket.create_connection((HOST, port + 1), 5, (source, 0)))
            for source in sources
        ]
        turn(made)
        stranger, surplus = clients.pop(1), clients.pop()
        assert (stranger.recv(1), surplus.recv(1)) == (b"", b"")
        for client in clients:
            client.sendall(b"ping")
        turn(made)
        assert [client.recv(5) for client in clients] == [b"ping"] * MAX_CONNECTIONS
        clients[0].close()
        clients[1].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        clients[1].close()  # by a reset
        turn(made)
        assert len(made.waiting) == 2 + MAX_CONNECTIONS - 2
        made.close()
        assert clients[-1].recv(1) == b""


def test_a_peer_that_does_not_read_its_answers_does_not_stop_the_echo(echo):
    made, port = echo
    sent = 0
    with socket.create_connection((HOST, port + 1), 5, (HOST, 0)) as client:
        client.setblocking(False)
        while sent < 2**24:  # more than the buffers of both ends hold
            with contextlib.suppress(BlockingIOError):
                sent += client.send(bytes(2**16))
            made.turn(set(made.waiting))


def test_a_second_later_large_answers_are_sent_again(echo):
    requests = [HEADER.pack(TOKEN, 1, LARGEST_PAYLOAD)] * 20
    assert len(answers(echo, requests)) < 20
    select.select([], [], [], 1)
    assert len(answers(echo, requests[:1])) == 1


@pytest.fixture
def trips(echo):
    made, port = echo
    return RoundTrips(echo_requests(ip_address(HOST), port, TOKEN, ip_address(HOST)), 0.0), made


def answer(trips, echo, times):
    """The request of each turn is answered at once."""
    for _ in range(times):
        trips.turn()
        echo.turn(set(echo.waiting))
        select.select([trips], [], [], 5)


def test_what_happens_after_a_run_is_no_part_of_a_round_trip(trips):
    """The helper takes its time to end a run, during which the last answer is not read."""
    probe, echo = trips
    answer(probe, echo, UNCOUNTED + 2)
    probe.stop()
    select.select([], [], [], 0.3)
    latency = probe.end()
    assert (latency.count, latency.lost) == (2, 0)
    assert latency.maximum < 0.3


def test_a_request_of_the_last_moment_is_neither_answered_nor_lost(trips):
    probe, echo = trips
    answer(probe, echo, UNCOUNTED + 2)
    probe.turn()
    probe.stop()
    assert (probe.end().count, probe.answer_count) == (2, UNCOUNTED + 2)


def test_a_peer_that_answers_its_first_requests_only_does_answer(trips):
    """Packet filters limit the rate of pings, often to one a second after the first few."""
    probe, echo = trips
    answer(probe, echo, 2)
    for _ in range(3):
        probe.turn()
    assert (probe.end().lost, probe.answer_count) == (2, 2)


def test_the_path_mtu_is_known_even_if_the_round_trip_is_longer_than_expected():
    """With --only path-mtu, no step before has measured it."""
    host = ip_address(HOST)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((HOST, 0))
        requests = echo_requests(host, server.getsockname()[1], TOKEN, host)

        def answer_late():
            timers = []
            request, client = server.recvfrom(65536)
            while request:
                timers.append(threading.Timer(0.4, server.sendto, [request[: HEADER.size], client]))
                timers[-1].start()
                request, client = server.recvfrom(65536)
            for timer in timers:
                timer.join()

        slow_peer = threading.Thread(target=answer_late)
        slow_peer.start()
        assert measure_path_mtu(requests, 1500, 0.0) == PathMtu(1500, 1500, False)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.sendto(b"", server.getsockname())
        slow_peer.join()
