"""Responsiveness: the draft's formula on given samples, its grades and its confidence, and probes of a real echo."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import select
import socket
from dataclasses import replace
from ipaddress import ip_address

import pytest
from selftest_pages import large

from neuca_tools.selftest.diagnosis.diagnose import diagnose
from neuca_tools.selftest.evidence import Phase
from neuca_tools.selftest.evidence.responsiveness import (
    Probes,
    confidence,
    grade,
    responsiveness,
    trimmed_mean,
)
from neuca_tools.selftest.evidence.trace import Trace
from neuca_tools.selftest.measure.iperf.phases import probes_of
from neuca_tools.selftest.measure.probes import roundtrip
from neuca_tools.selftest.measure.probes.echo import Echo
from neuca_tools.selftest.measure.probes.roundtrip import (
    PROBE_SECONDS,
    ForeignProbes,
    ProbeTimes,
    probe_interval,
)
from neuca_tools.selftest.readers.documents import evidence_of
from neuca_tools.selftest.report.record import report_json
from neuca_tools.selftest.report.text import rpm_words

LOCAL = ip_address("127.0.0.1")


def given(seconds=8.0, connected=0.04, answered=0.08, own=0.1, **facts):
    """20 foreign probes and 10 round trips a second, all alike."""
    begun = tuple(place / 20 for place in range(int(seconds * 20)))
    times = tuple(place / 10 for place in range(int(seconds * 10)))
    return Probes(
        begun=begun,
        connected=(connected,) * len(begun),
        answered=(answered,) * len(begun),
        own_times=times,
        own=(own,) * len(times),
        **facts,
    )


def test_the_score_is_the_drafts_formula_for_connections_without_tls():
    """60000 / ((40 + 80) / 2) = 1000 and 60000 / 100 = 600: 800 on average."""
    found = responsiveness(given(idle=0.005, rate=47e6, streams=8))
    assert (found.foreign_rpm, found.own_rpm, found.rpm) == pytest.approx((1000, 600, 800))
    assert (found.handshake, found.answer, found.own) == pytest.approx((0.04, 0.08, 0.1))
    assert (found.grade, found.confidence, found.increase) == ("fair", "high", pytest.approx(0.075))
    assert rpm_words(found) == (
        "800 RPM (fair, high confidence), 75.0 ms more than idle, at 47.0 Mbit/s"
    )


def test_without_the_kernels_round_trip_only_foreign_probes_count():
    found = responsiveness(replace(given(), own=(), own_times=()))
    assert (found.rpm, found.own_rpm) == (pytest.approx(1000), None)


def test_the_worst_twentieth_is_left_out():
    assert trimmed_mean([1.0] * 95 + [100.0] * 5) == 1.0
    assert trimmed_mean([3.0]) == 3.0
    assert trimmed_mean([]) is None


def test_only_the_last_four_intervals_count():
    """While the queue fills, the path is still responsive."""
    filling = given(4.0, connected=0.001, answered=0.001, own=0.001)
    full = given(4.1)
    found = Probes(
        begun=filling.begun + tuple(one + 4 for one in full.begun),
        connected=filling.connected + full.connected,
        answered=filling.answered + full.answered,
        own_times=filling.own_times + tuple(one + 4 for one in full.own_times),
        own=filling.own + full.own,
    )
    assert responsiveness(found).rpm == pytest.approx(800)


@pytest.mark.parametrize(
    ("rpm", "word"),
    [
        (0.0, "poor"),
        (299.9, "poor"),
        (300, "fair"),
        (999, "fair"),
        (1000, "good"),
        (5999, "good"),
        (6000, "excellent"),
        (1e9, "excellent"),
    ],
)
def test_the_grades_are_the_drafts(rpm, word):
    assert grade(rpm) == word


def test_confidence_is_that_of_the_moving_averages():
    assert [confidence(given(seconds)) for seconds in (3.0, 5.0, 8.0)] == ["low", "medium", "high"]
    steady = given(8.0)
    growing = tuple(0.05 * 2**begun for begun in steady.begun)
    assert confidence(replace(steady, answered=growing)) == "medium"
    assert confidence(Probes()) == "low"


def test_nothing_answered_is_not_a_score():
    assert responsiveness(Probes(failed=9)) is None
    assert responsiveness(Probes(begun=(1.0,), connected=(0.0,), answered=(0.0,))) is None


@pytest.mark.parametrize(
    ("connected", "answered"), [(-0.1, 0.1), (0.1, -0.1), (5e-324, 5e-324), (1e-320, 1.0)]
)
def test_times_that_cannot_be_are_not_a_score(connected, answered):
    """`explain` reads reports, which anyone may have edited."""
    assert responsiveness(given(connected=connected, answered=answered)) is None


def test_round_trips_that_a_peer_makes_up_do_no_harm():
    assert responsiveness(replace(given(), own=(5e-324,) * 80)).own_rpm is None
    assert responsiveness(replace(given(), own=(-1.0,) * 80)).own_rpm is None


def test_probes_use_at_most_a_twentieth_of_a_slow_path():
    assert probe_interval(None) == probe_interval(1e9) == PROBE_SECONDS
    assert probe_interval(100e3) == pytest.approx(1.12)
    assert 700 * 8 / probe_interval(1e6) <= 0.05 * 1e6


def test_times_are_counted_from_when_the_load_began():
    trace = Trace((10.0, 11.0), *[(0.02, 0.02)] * 8)
    phase = Phase("rpm", direction="forward", sender_trace=trace)
    found = probes_of(phase, ProbeTimes((10.5,), (0.1,), (0.2,), 1), idle=0.01)
    assert (found.begun, found.own_times, found.own) == ((0.5,), (0.0, 1.0), (0.02, 0.02))
    assert (found.failed, found.idle) == (1, 0.01)


def test_the_report_has_the_scores_of_each_direction():
    evidence = replace(
        large(), responsiveness=(given(idle=0.005), given(direction="reverse", own=0.01))
    )
    document = json.loads(report_json(evidence, diagnose(evidence)))
    assert [one["grade"] for one in document["responsiveness"]] == ["fair", "good"]
    assert evidence_of(json.dumps(document).encode()) == evidence


# --- Real probes ----------------------------------------------------------------------------------


def run(probes, condition, echo=None):
    """Turn both until the condition holds."""
    for _ in range(100_000):
        if condition():
            return
        waiting = [probes.fileno(), *(echo.waiting if echo else ())]
        ready = set(select.select(waiting, [], [], 0.01)[0])
        probes.turn()
        if echo:
            echo.turn(ready)
    raise AssertionError("it did not happen")


@pytest.fixture
def port():
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as _:
        return one.getsockname()[1]


def echo_at(port):
    for number in range(port, port + 400, 2):
        try:
            return Echo(LOCAL, LOCAL, number, b"t" * 16), number + 1
        except OSError:
            continue
    raise AssertionError("no free port")


def test_a_probe_is_a_handshake_and_an_answer(port):
    echo, number = echo_at(port)
    probes = ForeignProbes(LOCAL, number, LOCAL, interval=0.001)
    run(probes, lambda: len(probes._rows) >= 5, echo)
    found = probes.end()
    echo.close()
    assert len(found.begun) == len(found.connected) == len(found.answered) >= 5
    assert found.failed == 0
    assert min(found.connected + found.answered) > 0


def test_refused_probes_have_failed_and_are_no_error(port):
    probes = ForeignProbes(LOCAL, port, LOCAL, interval=0.001)
    run(probes, lambda: probes._failed >= 3)
    assert probes.end().begun == ()


def test_probes_are_an_interval_apart(port):
    probes = ForeignProbes(LOCAL, port, LOCAL, interval=1000.0)
    first = probes.due()
    probes.turn()
    assert probes.due() == first + 1000.0
    probes.end()


def test_unanswered_probes_are_bounded_and_have_failed_when_they_are_late(monkeypatch):
    """Nobody accepts: the kernel makes the connection, and no answer comes."""
    monkeypatch.setattr(roundtrip, "MAX_OPEN", 3)
    monkeypatch.setattr(roundtrip, "MAX_PROBES", 4)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        probes = ForeignProbes(LOCAL, silent.getsockname()[1], LOCAL, interval=0.0)
        run(probes, lambda: len(probes._open) == 3)
        probes.turn()
        assert len(probes._open) == 3
        monkeypatch.setattr(roundtrip, "FAILED_SECONDS", 0.0)
        run(probes, lambda: probes._failed == 4)
        found = probes.end()
    assert (found.begun, found.failed) == ((), 4)


def test_probes_under_way_are_reset_at_the_end_and_do_not_count():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        probes = ForeignProbes(LOCAL, silent.getsockname()[1], LOCAL, interval=0.0)
        run(probes, lambda: len(probes._open) == 3)
        connection = silent.accept()[0]
        assert probes.end().failed == 0
    with connection:
        connection.settimeout(60)
        with pytest.raises(ConnectionResetError):
            list(iter(lambda: connection.recv(1), b""))
