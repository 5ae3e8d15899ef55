"""Broadcasts: who is heard, who is answered, and what is made of it."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from selftest_runs import flow_of, tcp

from neuca_tools.selftest.codes import ExitCode
from neuca_tools.selftest.diagnosis import diagnose
from neuca_tools.selftest.evidence import Broadcast, Latency
from neuca_tools.selftest.running.broadcast import (
    ANSWER,
    ANSWERS,
    FORM,
    REQUEST,
    WARM,
    Responder,
    _message,
    _read,
    judged,
)

SECRET, NONCE = b"a secret that both ends share", bytes(range(16))
SENT = {number: float(number) for number in range(1, WARM + 5)}  # four of them count


def came(*times: float) -> dict[int, float]:
    """Answers to each request, so much later."""
    return {
        number: sent + time
        for (number, sent), time in zip(SENT.items(), [1.0] * WARM + list(times))
    }


def test_the_times_of_all_answers():
    found = judged(
        SENT,
        {
            "10.0.0.2": came(0.001, 0.002, 0.003, 0.004),
            "10.0.0.3": came(0.005, 0.006, 0.007, 0.009),
        },
        2,
    )
    assert found == Broadcast(
        2, 2, Latency(8, 0, pytest.approx(0.005), pytest.approx(0.009), pytest.approx(0.009))
    )


@pytest.mark.parametrize(("expected", "lost", "count"), [(None, 1, 4), (1, 1, 4), (3, 9, 12)])
def test_what_is_lost_is_what_each_of_those_expected_did_not_answer(expected, lost, count):
    found = judged(SENT, {"10.0.0.2": came(0.001, 0.002, 0.003)}, expected)
    assert (found.expected, found.answered, found.times.lost, found.times.count) == (
        expected,
        1,
        lost,
        count,
    )


def test_nobody_answers():
    assert judged(SENT, {}, 3) == Broadcast(3, 0, Latency(12, 12))
    assert judged(SENT, {}, None) == Broadcast(None, 0, Latency())


@pytest.mark.parametrize(
    "datagram",
    [
        b"",
        b"x",
        _message(REQUEST, NONCE, 7, b"another secret, as long as it"),
        _message(ANSWER, NONCE, 7, SECRET),
        _message(REQUEST, NONCE, 7, SECRET) + b"x",
        _message(REQUEST, NONCE, 7, SECRET)[:-1],
        bytes(FORM.size),
        _message(REQUEST, NONCE, 7, SECRET).replace(NONCE, NONCE[::-1]),
    ],
)
def test_what_is_not_heard(datagram):
    assert _read(datagram, REQUEST, SECRET) is None


def test_what_is_heard():
    assert _read(_message(REQUEST, NONCE, 7, SECRET), REQUEST, SECRET) == (NONCE, 7)


class Socket:
    """Stands for the one that answers: who may be sent to on a real one is the kernel's."""

    def __init__(self):
        self.sent = []

    def sendto(self, datagram, address):
        self.sent.append((datagram, address))


def test_a_responder_answers_the_asker_alone_and_only_so_often():
    responder, sender = Responder({}, 45680, SECRET), Socket()
    for number in range(2 * ANSWERS):
        responder._answer(sender, _message(REQUEST, NONCE, number, SECRET), ("10.0.0.1", 9))
    responder._answer(sender, b"something else", ("10.0.0.1", 9))
    assert sender.sent == [
        (_message(ANSWER, NONCE, number, SECRET), ("10.0.0.1", 9)) for number in range(ANSWERS)
    ]
    assert {len(datagram) for datagram, _ in sender.sent} == {FORM.size}


HEALTHY = {"rtt": 400, "min_rtt": 300, "snd_cwnd": 100, "unacked": 30, "snd_wnd": 3_000_000}


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (Broadcast(), None),
        (Broadcast(3, 3, Latency(150, 0, 1e-3, 2e-3, 3e-3)), None),
        (Broadcast(3, 3, Latency(150, 1, 1e-3, 2e-3, 3e-3)), None),  # one of 150
        (
            Broadcast(3, 2, Latency(150, 50, 1e-3, 2e-3, 3e-3)),
            "1 of 3 hosts never answered a broadcast",
        ),
        (Broadcast(3, 0, Latency(150, 150)), "3 of 3 hosts never answered a broadcast"),
        (
            Broadcast(1000, 1000, Latency(50_000, 8_300, 1e-3, 2e-3, 3e-3)),
            "17% of the answers to broadcasts never came",
        ),
    ],
)
def test_broadcasts_that_are_lost_are_a_finding(found, told):
    diagnosis = diagnose(tcp(flow_of(940e6, **HEALTHY), expect=1e9, broadcast=found))
    assert [one.text for one in diagnosis.findings if one.id == "D47"] == ([told] if told else [])
    assert diagnosis.exit_code is (ExitCode.BELOW if told else ExitCode.PASS)
