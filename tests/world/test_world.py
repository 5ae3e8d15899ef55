"""The world tier: the draw is as announced, the scorer counts as described, and a whole world reaches its aims."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from calibration import AIMS, KNOWN, Judged, published, recorded, shares, table
from effect import Seen, missing
from guests import case_of
from limited import Limits, limits
from middlebox import Bucket, Tally, Way
from play import play
from score import FALSE_ALARM, PAIR, SINGLE, confidences, is_right, read, scores, summary
from setups import BOXED, FASTEST, NEAREST, SLOWEST, draw

SEED = int(os.environ.get("NEUCA_SEED") or time.strftime("%G%V"))
COUNT = int(os.environ.get("NEUCA_SETUPS") or 60)

# --- The draw ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2, SEED])
def test_a_quarter_has_two_faults_a_tenth_none_and_half_have_busy_neighbours(seed):
    drawn = draw(seed, 60)
    assert Counter(len(one.wanted) for one in drawn) == {0: 6, 1: 39, 2: 15}
    assert sum(one.busy for one in drawn) == 30
    assert {one.number for one in drawn} == set(range(60))


def test_the_same_seed_draws_the_same_and_another_draws_others():
    assert draw(1, 20) == draw(1, 60)[:20]
    assert draw(1, 20) != draw(2, 20)


@pytest.mark.parametrize("seed", [1, SEED])
def test_the_parameters_are_far_apart(seed):
    drawn = draw(seed, 60)
    boxed = [one for one in drawn if one.is_for_namespaces]
    for one in drawn:
        assert 0.2 * SLOWEST <= one.there.rate <= FASTEST
        assert NEAREST <= one.rtt <= 0.31
        assert 1 <= one.streams <= 128
    assert 48 <= len(boxed) < 52  # a shaper may make a fast path slow enough for the box
    assert max(one.rate for one in drawn) > 1e9 > BOXED >= max(one.rate for one in boxed)
    assert max(one.rtt for one in boxed) > 0.1 > 0.001 > min(one.rtt for one in boxed)


def test_hosts_are_tuned_for_the_path_except_where_that_is_the_fault():
    one = next(one for one in draw(1, 60) if one.name == "receive-window")
    near, far = one.sysctls
    common = [text for text in near if text in far]
    assert common[0] == f"net.ipv4.tcp_congestion_control={one.congestion}"
    size = one.rate * one.rtt / 8
    assert all(int(text.split()[-1]) >= 4 * size for text in common[1:])
    assert all(0.05 * one.rate < allowed < 0.45 * one.rate for allowed in one.allowed.values())


FOR_GUESTS = [one for seed in (1, 2, 3) for one in draw(seed, 60) if not one.is_for_namespaces]


@pytest.mark.parametrize("one", FOR_GUESTS, ids=lambda one: f"{one.seed}-{one.number}-{one.name}")
def test_a_case_for_a_guest_is_a_script(one):
    case = case_of(one)
    for script in (case.setup, case.beside, case.tally):
        assert subprocess.run(["sh", "-n", "-c", script], check=False).returncode == 0


# --- What the box does ---------------------------------------------------------------------------------------------------


def passed(way: Way, seconds: float, rate: float, size: int = 1500) -> list[float]:
    """The delays in seconds of those frames of a steady flow of `rate` bit/s that got through."""
    bucket = Bucket(way, random.Random(1))
    times = [at * size * 8 / rate for at in range(int(seconds * rate / size / 8))]
    outs = ((at, bucket.due(1000 + at, size)) for at in times)
    return [out - 1000 - at for at, out in outs if out is not None]


def test_a_shaper_delays_and_then_drops_and_a_policer_only_drops():
    shaped = passed(Way(rate=10e6, delay=0.01, queue=50_000), 10, 20e6)
    assert len(shaped) * 1500 * 8 / 10 == pytest.approx(10e6, rel=0.02)
    assert (shaped[0], max(shaped)) == (pytest.approx(0.0112), pytest.approx(0.05, rel=0.05))
    policed = passed(Way(police=10e6, delay=0.01), 10, 20e6)
    assert len(policed) * 1500 * 8 / 10 == pytest.approx(10e6, rel=0.02)
    assert max(policed) == pytest.approx(0.01)


def test_loss_is_a_share_and_large_frames_vanish():
    assert len(passed(Way(loss=0.1), 10, 12e6)) == pytest.approx(9000, rel=0.03)
    assert passed(Way(largest=1400), 1, 12e6) == []
    assert len(passed(Way(largest=1500), 1, 12e6)) == 1000


# --- The scorer ----------------------------------------------------------------------------------------------------------


def result(number, wanted, *found, confidence="high", **more):
    findings = [{"id": one, "severity": "limit", "confidence": confidence} for one in found]
    base = {"seed": 1, "number": number, "name": "x", "what": "y", "wanted": wanted}
    return {**base, "findings": findings, **more}


@pytest.mark.parametrize(
    ("wanted", "found", "right"),
    [
        ([["D18"]], ["D18"], True),
        ([["D18", "D27"]], ["D27", "D18"], True),
        ([["D18"]], ["D05", "D18"], False),  # not first
        ([["D18"]], [], False),
        ([["D18"], ["D01"]], ["D05", "D01", "D18"], True),
        ([["D18"], ["D01"]], ["D18"], False),
        ([["D17"], ["D17", "D05"]], ["D17"], False),  # one condition names one fault
        ([], [], True),
        ([], ["D14"], False),
    ],
)
def test_a_single_fault_comes_first_of_a_pair_both_are_named_of_none_nothing(wanted, found, right):
    assert is_right(result(0, wanted, *found)) is right


def test_information_counts_for_nothing():
    one = result(0, [], "D09")
    one["findings"][0]["severity"] = "info"
    assert is_right(one)


@pytest.mark.parametrize(("verdict", "right"), [("pass", True), ("fault found", False)])
def test_a_healthy_set_up_that_does_not_pass_is_a_false_alarm(verdict, right):
    assert is_right(result(0, [], verdict=verdict)) is right


def test_a_set_up_that_gave_no_report_is_wrong():
    assert not is_right(result(0, [], error="no report"))


def test_a_set_up_that_was_not_played_does_not_count():
    rows = [result(0, [["D18"]], "D05", unplayed="the box was late"), result(1, [["D18"]], "D18")]
    assert scores(rows)["single"] == (1, 1)
    assert summary(rows).endswith("not played: 1 of 2")


SHAPED = next(one for one in draw(1, 60) if one.name == "shaper-both")
FULL = Tally(frames=1000, overflowed=20, passed=SHAPED.there.rate, offered=SHAPED.there.rate)


@pytest.mark.parametrize(
    ("back", "reason"),
    [
        (FULL, ""),
        (replace(FULL, passed=SHAPED.there.rate / 2), "passed a shaper back"),
        (replace(FULL, late=200), "the box was late with 200 of 1000 frames back"),
    ],
)
def test_a_fault_was_in_effect_by_what_the_box_saw(back, reason):
    found = missing(SHAPED, Seen({"there": FULL, "back": back}))
    assert found.endswith(reason)
    assert bool(found) is bool(reason)


def sockets(acked: int, clocks: str, app_limited: bool = False, port: int = 5201) -> str:
    """A line of `ss -tinOH`."""
    waits = "app_limited " if app_limited else ""
    return (
        f"ESTAB 0      90000  172.16.0.1:40666   172.16.0.2:{port}  reno wscale:10,10 rto:304 rtt:101.2/3.1 mss:1448 cwnd:90 "
        f"bytes_sent:{acked + 60000} bytes_acked:{acked} send 10301977bps delivered:900 {waits}{clocks} unacked:41 snd_wnd:61440\n"
    )


def flow(clocks: str, app_limited: bool = False) -> str:
    """Four samples of one flow beside a control connection that never carries much; the listening socket is not shown."""
    data = (sockets(acked, clocks, app_limited) for acked in (1000, 700_000, 1_400_000, 2_100_000))
    return "".join(
        sockets(900, "busy:50ms rwnd_limited:50ms(100.0%)", True, 443) + one for one in data
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", Limits()),
        (flow("busy:4000ms rwnd_limited:3000ms(75.0%)"), Limits(window=0.75)),
        (flow("busy:4000ms sndbuf_limited:1000ms(25.0%)"), Limits(buffer=0.25)),
        (flow("busy:4000ms", app_limited=True), Limits(buffer=1.0)),
        (flow("busy:4000ms"), Limits()),
        (sockets(9, "busy:4ms", True), Limits()),  # one sample
    ],
    ids=["no socket", "window", "buffer", "nothing to send", "the path", "short"],
)
def test_the_kernel_says_what_limited_the_flow_that_carried_most(text, found):
    assert limits(text) == found


WINDOW = next(one for one in draw(1, 60) if one.name == "receive-window" and one.is_for_namespaces)
BUFFER = next(one for one in draw(1, 60) if one.name == "send-buffer" and one.is_for_namespaces)


@pytest.mark.parametrize(
    ("setup", "limited", "is_played"),
    [
        (WINDOW, Limits(window=0.3), True),
        (WINDOW, Limits(window=0.1, buffer=1.0), False),  # a short queue overflows first
        (BUFFER, Limits(buffer=0.9), True),
        (BUFFER, Limits(window=0.9), False),
    ],
)
def test_a_window_was_in_effect_if_it_limited_the_flow(setup, limited, is_played):
    (direction,) = setup.buffers
    seen = Seen({"there": FULL, "back": FULL}, limits={direction: limited})
    assert missing(setup, seen) == (
        "" if is_played else f"no window limited a flow {direction}, by the sender's kernel"
    )


def test_only_the_first_run_counts():
    rows = [result(0, [["D18"]], "D05"), result(0, [["D18"]], "D18"), result(1, [], "D14")]
    found = read("\n".join(map(json.dumps, rows)))
    assert [one["number"] for one in found] == [0, 1]
    assert scores(found)["single"].right == 0


def test_the_summary_has_the_figures_and_the_aims():
    rows = [result(0, [["D18"]], "D18"), result(1, [["D18"], ["D01"]], "D18", confidence="medium")]
    assert summary(rows) == (
        "single faults named first: 1 of 1 (100%) (aim 90%)\n"
        "pairs with both named: 0 of 1 (0%) (aim 80%)\n"
        "healthy without a finding: 0 of 0 (0%) (aim 95%)\n"
        "right of confidence high: 1 of 1 (100%)\n"
        "right of confidence medium: 1 of 1 (100%)"
    )
    assert confidences(rows)["low"].of == 0


# --- Confidence ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", AIMS)
def test_a_level_of_confidence_keeps_its_promise_over_what_was_recorded_and_published(level):
    found = [*recorded(), *published(KNOWN)]
    right, of = shares(found)[level]
    assert of > 5
    assert right >= AIMS[level] * of, table({"recorded": recorded(), "published": published(KNOWN)})


def test_the_table_has_a_row_for_each_corpus_and_names_what_is_wrong():
    some = [Judged("a", "high", True), Judged("b", "medium", False)]
    assert table({"x": some}).splitlines() == [
        "| corpus | high | medium | low |",
        "|---|---|---|---|",
        "| x | 1 of 1 | 0 of 1 | 0 of 0 |",
        "| all | 1 of 1 | 0 of 1 | 0 of 0 |",
        "",
        "wrong: b (medium)",
    ]


# --- The world -----------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_world(tmp_path):
    """Every set-up of a seed that is for namespaces, each once; the results stay in build/world."""
    kept = Path(__file__).parents[2] / "build" / "world"
    kept.mkdir(parents=True, exist_ok=True)
    found = []
    with (kept / f"{SEED}.jsonl").open("w") as results:
        for setup in draw(SEED, COUNT):
            if not setup.is_for_namespaces:
                continue  # `run` plays those in a guest
            one = play(setup, tmp_path)
            one.pop("report", None)
            found.append(one)
            results.write(json.dumps(one) + "\n")
            results.flush()
    rows = scores(found)
    assert rows["single"].share >= SINGLE, summary(found)
    assert rows["pair"].share >= PAIR, summary(found)
    assert rows["healthy"].share >= 1 - FALSE_ALARM, summary(found)
