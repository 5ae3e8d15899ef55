"""The two ends' messages: who has the secret is heard, what was changed, repeated or cut on the way is not."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import os
import socket
import threading

import pytest

from neuca_tools.selftest.running import channel as channels
from neuca_tools.selftest.running.channel import (
    CLIENT,
    SERVER,
    BusyError,
    Channel,
    ChannelError,
    ImpostorError,
    greet,
    small_segments,
)
from neuca_tools.selftest.running.serve import Greeting

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
    client = Channel(pair[0].fileno(), pair[0].fileno(), CLIENT)
    outcome = []

    def server():
        greeting = Greeting(pair[1])
        try:
            while not greeting.proven(SECRET, busy):
                os.set_blocking(pair[1].fileno(), True)
                pair[1].recv(1, socket.MSG_PEEK)
                os.set_blocking(pair[1].fileno(), False)
            outcome.append(greeting.channel)
        except ChannelError as error:
            outcome.append(str(error))

    beside = threading.Thread(target=server)
    beside.start()
    try:
        greet(client, secret, 10)
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
    assert raised.value.text == "who answers at the peer's address has another secret"


def test_who_is_busy_says_so_to_whom_it_knows(pair):
    with pytest.raises(BusyError):
        handshake(pair, busy=True)


def test_something_else_that_listens_there_is_no_helper(pair):
    client = ends(pair)[0]
    pair[1].send(b'{"SSH": 2}\n')
    with pytest.raises(ChannelError) as raised:
        greet(client, SECRET, 1)
    assert (
        raised.value.text
        == "ask the other end: it is no neuca-selftest --serve that this one understands"
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda line: line.replace(b"one", b"two"), "a message is not signed as it should be"),
        (lambda line: line[1:], "a message is not signed as it should be"),
        (lambda line: line + line, "a message is not signed as it should be"),
        (lambda line: b"x" * 70 + b"\n", "a message is not signed as it should be"),  # noqa: ARG005
        (lambda line: b"\n", "a message is not signed as it should be"),  # noqa: ARG005
    ],
)
def test_what_was_changed_or_repeated_on_the_way_is_not_heard(pair, change, reason):
    client, server = handshake(pair)
    line = client._signature(CLIENT, client._sent, b'{"ask":"one"}') + b'{"ask":"one"}\n'
    pair[0].send(change(line))
    if change(line).startswith(line):
        assert server.receive(60) == {"ask": "one"}
    with pytest.raises(ChannelError) as raised:
        server.receive(60)
    assert raised.value.text == f"ask the other end: {reason}"


@pytest.mark.parametrize("line", [b"{", b"[1]", b"nothing", b"[" * 100_000, b"\xff\xfe"])
def test_what_is_no_message(pair, line):
    client = ends(pair)[0]
    threading.Thread(target=pair[1].sendall, args=[line + b"\n"]).start()
    with pytest.raises(ChannelError) as raised:
        client.receive(5)
    assert raised.value.text == "ask the other end: what it says is no message of neuca-selftest"


def test_silence_and_an_end(pair):
    client = ends(pair)[0]
    with pytest.raises(ChannelError) as raised:
        client.receive(0.01)
    assert raised.value.text == "ask the other end: no answer in 0.01 s"
    pair[1].close()
    with pytest.raises(ChannelError) as raised:
        client.receive(1)
    assert raised.value.text == "ask the other end: it has closed the connection"


def test_a_message_without_an_end(pair, monkeypatch):
    monkeypatch.setattr(channels, "PIECE", 4096)
    client = ends(pair)[0]
    client.longest = 5000
    pair[1].sendall(b"x" * 20_000)
    with pytest.raises(ChannelError) as raised:
        client.receive(1)
    assert raised.value.text == "ask the other end: its message is longer than 5000 bytes"


def test_an_end_that_takes_nothing(pair):
    client = ends(pair)[0]
    with pytest.raises(ChannelError) as raised:
        client.send({"much": "x" * 4_000_000}, 0.05)
    assert raised.value.text == "tell the other end: it took nothing for 0.05 s"


def test_small_messages_come_as_one_line(pair):
    ends(pair)[0].send({"ask": "bye"})
    assert json.loads(pair[1].recv(100)) == {"ask": "bye"}


def test_nothing_larger_than_what_every_path_takes_is_sent():
    with socket.socket() as connection:
        small_segments(connection)
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG) == 536
