"""The two ends' messages: who has the secret is heard, what was changed, repeated or cut on the way is not."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import fcntl
import hmac
import json
import os
import resource
import select
import socket
import threading
import time
from ipaddress import ip_address

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from test_fuzz import FUZZ

from neuca_tools.selftest.measure.helper import channel as channels
from neuca_tools.selftest.measure.helper.channel import (
    CLIENT,
    SERVER,
    Channel,
    ChannelError,
    small_segments,
)
from neuca_tools.selftest.measure.helper.handshake import (
    BusyError,
    ImpostorError,
    ServerHandshake,
    client_handshake,
)
from neuca_tools.selftest.measure.helper.peer import Helper
from neuca_tools.selftest.measure.iperf import command
from neuca_tools.selftest.measure.wait import wait_readable

SECRET = b"a secret that both ends share"


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    yield ours, theirs
    ours.close()
    theirs.close()


def ends(pair):
    return tuple(
        Channel(one.fileno(), one.fileno(), role) for one, role in zip(pair, (CLIENT, SERVER))
    )


def handshake(pair, secret=SECRET, busy=False):
    """Both sides of it: the client's channel, and what became of the server's part."""
    outcome = []

    def server():
        try:
            greeting, channel = ServerHandshake(pair[1], ip_address("127.0.0.1")), None
            while channel is None:
                select.select([pair[1]], [], [], 10)
                channel = greeting.turn(SECRET, busy)
            outcome.append(channel)
        except ChannelError as error:
            outcome.append(str(error))

    beside = threading.Thread(target=server)
    beside.start()
    try:
        client = client_handshake(pair[0], secret, 10)
    finally:
        beside.join()
    return client, outcome[0]


def test_two_with_the_same_secret_understand_each_other(pair):
    client, server = handshake(pair)
    for number in range(3):
        client.send({"ask": number})
        assert server.receive(60) == {"ask": number}
        answer = "x" * 1_000_000 if number == 2 else number
        beside = threading.Thread(target=server.send, args=[{"answer": answer}])
        beside.start()
        assert client.receive(60) == {"answer": answer}
        beside.join()


def test_another_secret_is_told_from_another_end(pair):
    with pytest.raises(ImpostorError) as raised:
        handshake(pair, secret=b"a secret of somebody else's")
    assert raised.value.text == "the host at the peer's address has a different secret"


def test_who_is_busy_says_so_to_whom_it_knows(pair):
    with pytest.raises(BusyError):
        handshake(pair, busy=True)


HEX = b"0" * 64
OLD = (
    "greet the peer: it speaks protocol 1 of neuca-selftest, this host protocol 2:"
    " install the same version of neuca-guest-tools on both"
)
NOT_OURS = "greet the peer: what listens there is not neuca-selftest --serve"


@pytest.mark.parametrize(
    ("hello", "reason"),
    [
        (b'{"SSH": 2}\n', NOT_OURS),
        (b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n", NOT_OURS),
        (b'{"neuca-selftest":2,"nonce":"\\ud800"}\n', NOT_OURS),
        (b'{"neuca-selftest":2,"nonce":"%s"}\n' % (b"A" * 64), NOT_OURS),
        (b'{"neuca-selftest":2,"nonce":"%s"}\n{' % HEX, NOT_OURS),
        (b"x" * 5000, NOT_OURS),
        (b"\n", NOT_OURS),
        (
            b'{"neuca-selftest":1,"nonce":"%s"}\n' % HEX,
            OLD,
        ),
    ],
)
def test_a_server_that_is_none_or_of_another_version(pair, hello, reason):
    pair[1].send(hello)
    with pytest.raises(ChannelError) as raised:
        client_handshake(pair[0], SECRET, 1)
    assert raised.value.text == reason


@pytest.mark.parametrize(
    ("answer", "kind", "reason"),
    [
        (
            b'{"proof":"\\ud800"}\n',
            ChannelError,
            "greet the peer: its response is not one of neuca-selftest --serve",
        ),
        (
            b'{"proof":"%s"}\n' % HEX,
            ImpostorError,
            "the host at the peer's address has a different secret",
        ),
        (
            b'{"busy":true,"proof":"%s"}\n' % HEX,  # only who knows the secret may say so
            ImpostorError,
            "the host at the peer's address has a different secret",
        ),
        (b"", ChannelError, "greet the peer: it closed the connection"),
    ],
)
def test_a_server_that_cannot_prove_itself(pair, answer, kind, reason):
    pair[1].send(b'{"neuca-selftest":2,"nonce":"%s"}\n' % HEX)
    threading.Thread(target=answer_and_close, args=[pair[1], answer]).start()
    with pytest.raises(ChannelError) as raised:
        client_handshake(pair[0], SECRET, 10)
    assert (type(raised.value), raised.value.text) == (kind, reason)


def answer_and_close(connection, answer):
    connection.recv(4096)
    connection.sendall(answer)
    connection.shutdown(socket.SHUT_WR)


HELLO = b'{"neuca-selftest":2,"nonce":"%s"}\n' % HEX


@FUZZ
@given(said=st.binary(max_size=400) | st.binary(max_size=200).map(lambda end: HELLO + end))
@example(said=HELLO)
@example(said=b'{"neuca-selftest":9999,"nonce":"%s"}\n' % HEX)
def test_no_bytes_of_a_server_raise_anything_but_a_reason(said):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(said)
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(ChannelError):
            client_handshake(ours, SECRET, 10)


def test_a_server_that_says_nothing(pair):
    with pytest.raises(ChannelError) as raised:
        client_handshake(pair[0], SECRET, 0.01)
    assert raised.value.text == "greet the peer: no response within 0.01 s"


CLAIM = b'{"nonce":"%s","proof":"%s"}\n'
NOT_THE_PROTOCOL = "it does not speak the protocol of neuca-selftest"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"nonce":"\\ud800","proof":"x"}\n', NOT_THE_PROTOCOL),
        (b"[" * 193, NOT_THE_PROTOCOL),
        (b"[" * 4000, NOT_THE_PROTOCOL),
        (b"\n", NOT_THE_PROTOCOL),
        (CLAIM % (HEX, HEX) + b"{}\n", NOT_THE_PROTOCOL),
        (CLAIM % (HEX, HEX[1:]), NOT_THE_PROTOCOL),
        (CLAIM % (HEX, HEX[1:] + b"\xff"), NOT_THE_PROTOCOL),
        (CLAIM % (HEX, HEX), "a different secret"),
    ],
)
def test_what_a_stranger_sends_is_refused_by_its_form(pair, line, reason):
    greeting = ServerHandshake(pair[1], ip_address("127.0.0.1"))
    pair[0].send(line)
    with pytest.raises(ChannelError) as raised:
        greeting.turn(SECRET, False)
    assert raised.value.text == reason


@pytest.mark.parametrize("piece", [b'{"nonce":', b"[" * 192])
def test_a_line_in_pieces_is_waited_for(pair, piece):
    greeting = ServerHandshake(pair[1], ip_address("127.0.0.1"))
    pair[0].send(piece)
    assert greeting.turn(SECRET, False) is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda line: line.replace(b"one", b"two"), "a message has a wrong signature"),
        (lambda line: line[1:], "a message has a wrong signature"),
        (lambda line: line + line, "a message has a wrong signature"),
        (lambda line: b"x" * 70 + b"\n", "a message has a wrong signature"),  # noqa: ARG005
        (lambda line: b"\n", "a message has a wrong signature"),  # noqa: ARG005
    ],
)
def test_what_was_changed_or_repeated_on_the_way_is_not_heard(pair, change, reason):
    client, server = handshake(pair)
    line = client._signature_of(CLIENT, client._sent, b'{"ask":"one"}') + b'{"ask":"one"}\n'
    pair[0].send(change(line))
    if change(line).startswith(line):
        assert server.receive(60) == {"ask": "one"}
    with pytest.raises(ChannelError) as raised:
        server.receive(60)
    assert raised.value.text == f"query the peer: {reason}"


@pytest.mark.parametrize("line", [b"{", b"[1]", b"nothing", b"[" * 100_000, b"\xff\xfe"])
def test_what_is_no_message(pair, line):
    client = ends(pair)[0]
    threading.Thread(target=pair[1].sendall, args=[line + b"\n"]).start()
    with pytest.raises(ChannelError) as raised:
        client.receive(5)
    assert raised.value.text == "query the peer: its response is not a message of neuca-selftest"


def test_silence_and_an_end(pair):
    client = ends(pair)[0]
    with pytest.raises(ChannelError) as raised:
        client.receive(0.01)
    assert raised.value.text == "query the peer: no response in 0.01 s"
    pair[1].close()
    with pytest.raises(ChannelError) as raised:
        client.receive(1)
    assert raised.value.text == "query the peer: it closed the connection"


def test_a_message_without_an_end(pair, monkeypatch):
    monkeypatch.setattr(channels, "PIECE", 4096)
    client = ends(pair)[0]
    client.max_bytes = 5000
    pair[1].sendall(b"x" * 20_000)
    with pytest.raises(ChannelError) as raised:
        client.receive(1)
    assert raised.value.text == "query the peer: its message is longer than 5000 bytes"


def test_an_end_that_takes_nothing(pair):
    client = ends(pair)[0]
    with pytest.raises(ChannelError) as raised:
        client.send({"much": "x" * 4_000_000}, 0.05)
    assert raised.value.text == "send to the peer: it accepted nothing for 0.05 s"


def test_small_messages_come_as_one_line(pair):
    ends(pair)[0].send({"ask": "bye"})
    assert json.loads(pair[1].recv(100)) == {"ask": "bye"}


def test_nothing_larger_than_what_every_path_takes_is_sent():
    with socket.socket() as connection:
        small_segments(connection)
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG) == 536


def test_descriptors_beyond_those_of_select_are_waited_for():
    """A host that serves at 1,600 addresses has as many."""
    reading, writing = os.pipe()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limit[0], 2048), limit[1]))
    high = fcntl.fcntl(reading, fcntl.F_DUPFD, 1500)
    try:
        assert wait_readable([high], time.monotonic() + 0.01) == []
        os.write(writing, b"!")
        assert wait_readable([high], time.monotonic() + 1) == [high]
    finally:
        for descriptor in (reading, writing, high):
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)


@pytest.mark.parametrize(("seconds", "is_accepted"), [(10, False), (60, True)])
def test_a_longer_test_may_have_a_longer_answer(pair, seconds, is_accepted):
    client, server = ends(pair)

    def answer_twice():
        with contextlib.suppress(ChannelError):
            for answer in ({"clock": 1}, {"samples": [], "padding": "x" * 8 * 2**20}):
                server.receive(10)
                server.send(answer)

    beside = threading.Thread(target=answer_twice)
    beside.start()
    helper = Helper(client, ip_address("192.0.2.1"), pair[0].close)
    assert helper.begin(command.Test(ip_address("192.0.2.2"), 5201, seconds)) is None
    helper.finish()
    helper.close()
    beside.join()
    assert (helper.failure == "") == is_accepted


def test_the_messages_of_each_side_are_numbered_from_zero_in_their_signatures():
    one, two = socket.socketpair()
    with one, two:
        sender, receiver = (
            Channel(one.fileno(), one.fileno(), CLIENT, b"key"),
            Channel(two.fileno(), two.fileno(), SERVER, b"key"),
        )
        for number in range(2):
            signed = hmac.new(
                b"key", f'client {number} {{"ask":"bye"}}'.encode(), "sha256"
            ).hexdigest()
            sender.send({"ask": "bye"})
            assert two.recv(1024, socket.MSG_PEEK).decode() == f'{signed} {{"ask":"bye"}}\n'
            assert receiver.receive(5) == {"ask": "bye"}
