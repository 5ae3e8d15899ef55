"""Broadcasts: who is heard, who is answered, and what is made of it."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from selftest_runs import flow_of, tcp

from neuca_tools.selftest.codes import ExitCode
from neuca_tools.selftest.diagnosis.diagnose import diagnose
from neuca_tools.selftest.evidence import Broadcast, Latency
from neuca_tools.selftest.measure.helper.answering import (
    ANSWER,
    ANSWERS,
    CHALLENGE,
    MOST_ASKERS,
    QUERY,
    REQUEST,
    RETURN,
    SIZE,
    Answering,
    Endpoints,
    endpoint,
    message,
    read,
)
from neuca_tools.selftest.measure.probes.broadcast import WARM, result_of

SECRET, NONCE = b"a secret that both sides share", bytes(range(16))
ASKER, EVERYBODY = endpoint(("10.0.0.1", 9)), endpoint(("255.255.255.255", 45680))
THIRD = endpoint(("10.0.0.99", 9))
OWN = endpoint(("10.0.0.2", 40000))
OUT = Endpoints(ASKER, EVERYBODY)
SENT = {number: float(number) for number in range(1, WARM + 5)}  # four of them count


def came(*times: float) -> dict[int, float]:
    """Answers to each request, so much later."""
    return {
        number: sent + time
        for (number, sent), time in zip(SENT.items(), [1.0] * WARM + list(times))
    }


def test_the_times_of_all_answers():
    found = result_of(
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
    found = result_of(SENT, {"10.0.0.2": came(0.001, 0.002, 0.003)}, expected)
    assert (found.expected, found.answered, found.times.lost, found.times.count) == (
        expected,
        1,
        lost,
        count,
    )


def test_nobody_answers():
    assert result_of(SENT, {}, 3) == Broadcast(3, 0, Latency(12, 12))
    assert result_of(SENT, {}, None) == Broadcast(None, 0, Latency())


def query(number=1, nonce=NONCE, route=OUT, secret=SECRET):
    return message(QUERY, nonce, number, route, secret)


def request(number, nonce=NONCE, route=OUT):
    return message(REQUEST, nonce, number, route, SECRET)


@pytest.mark.parametrize(
    "datagram",
    [
        b"",
        b"x",
        query(secret=b"another secret, as long as it"),
        message(ANSWER, NONCE, 1, OUT, SECRET),
        query() + b"x",
        query()[:-1],
        bytes(SIZE),
        query().replace(NONCE, NONCE[::-1]),
        query(route=Endpoints(THIRD, EVERYBODY)),
        query(route=Endpoints(ASKER, endpoint(("255.255.255.255", 45681)))),
    ],
)
def test_what_is_not_heard(datagram):
    assert read(datagram, QUERY, OUT, SECRET) is None
    assert Answering(SECRET).reply(datagram, OUT, OWN, 0.0) is None


def test_what_is_heard():
    assert read(query(7), QUERY, OUT, SECRET) == (NONCE, 7)


def prove(answering, nonce=NONCE, now=0.0):
    """The asker's first three messages: its query, and the challenge that it returns."""
    challenge = answering.reply(query(1, nonce), OUT, OWN, now)
    found, number = read(challenge, CHALLENGE, Endpoints(OWN, ASKER), SECRET, nonce)
    back = message(RETURN, nonce, number, Endpoints(ASKER, OWN), SECRET, found)
    assert answering.reply(back, Endpoints(ASKER, OWN), OWN, now) is None
    return challenge, back


def test_only_who_has_returned_the_challenge_is_answered_and_once():
    answering = Answering(SECRET)
    assert answering.reply(request(4), OUT, OWN, 0.0) is None
    prove(answering)
    answer = answering.reply(request(4), OUT, OWN, 0.0)
    assert answer == message(ANSWER, NONCE, 4, Endpoints(OWN, ASKER), SECRET)
    assert len(answer) == SIZE
    for again in (request(4), request(3), query(1)):
        assert answering.reply(again, OUT, OWN, 0.0) is None
    assert answering.reply(request(6), OUT, OWN, 0.0) is not None


def test_a_captured_run_is_not_answered_again_by_a_responder_that_starts_later():
    answering = Answering(SECRET)
    _, back = prove(answering)
    later = Answering(SECRET)
    said = [
        later.reply(datagram, route, OWN, 0.0)
        for datagram, route in ((query(), OUT), (back, Endpoints(ASKER, OWN)), (request(4), OUT))
    ]
    # Of a query there is one challenge, to the address that it was made for, of the same size.
    assert [one and len(one) for one in said] == [SIZE, None, None]


def test_what_is_captured_is_nothing_from_another_address():
    answering = Answering(SECRET)
    _, back = prove(answering)
    for datagram, route in ((query(2), EVERYBODY), (back, OWN), (request(5), EVERYBODY)):
        assert answering.reply(datagram, Endpoints(THIRD, route), OWN, 0.0) is None


def test_a_responder_says_only_so_much_in_a_second():
    answering = Answering(SECRET)
    prove(answering)
    said = [answering.reply(request(number), OUT, OWN, 0.5) for number in range(1, 2 * ANSWERS)]
    assert [one is not None for one in said].count(True) == ANSWERS
    assert answering.reply(request(999), OUT, OWN, 1.5) is not None


def test_what_it_remembers_is_bounded_and_a_proven_asker_is_kept():
    answering = Answering(SECRET)
    prove(answering)
    for number in range(3 * MOST_ASKERS):
        answering.reply(query(1, number.to_bytes(16, "big")), OUT, OWN, float(number))
    assert len(answering._askers) == MOST_ASKERS
    assert answering.reply(request(9), OUT, OWN, 1e6) is not None


HEALTHY = {"rtt": 400, "min_rtt": 300, "snd_cwnd": 100, "unacked": 30, "snd_wnd": 3_000_000}


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (Broadcast(), None),
        (Broadcast(3, 3, Latency(150, 0, 1e-3, 2e-3, 3e-3)), None),
        (Broadcast(3, 3, Latency(150, 1, 1e-3, 2e-3, 3e-3)), None),  # one of 150
        (
            Broadcast(3, 2, Latency(150, 50, 1e-3, 2e-3, 3e-3)),
            "1 of 3 hosts never responded to a broadcast",
        ),
        (Broadcast(3, 0, Latency(150, 150)), "3 of 3 hosts never responded to a broadcast"),
        (
            Broadcast(1000, 1000, Latency(50_000, 8_300, 1e-3, 2e-3, 3e-3)),
            "17% of the responses to broadcasts were lost",
        ),
    ],
)
def test_broadcasts_that_are_lost_are_a_finding(found, told):
    diagnosis = diagnose(tcp(flow_of(940e6, **HEALTHY), expect=1e9, broadcast=found))
    assert [one.text for one in diagnosis.findings if one.id == "D47"] == ([told] if told else [])
    assert diagnosis.exit_code is (ExitCode.BELOW if told else ExitCode.PASS)
