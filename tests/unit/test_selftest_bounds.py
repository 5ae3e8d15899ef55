"""The numbers that conditions are made of: what holds at a bound itself, and what holds next to it."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

import pytest

from neuca_tools.selftest.conditions import datagrams, figures, thresholds, udp
from neuca_tools.selftest.conditions.base import Session
from neuca_tools.selftest.evidence import (
    Cpu,
    Evidence,
    Host,
    Latency,
    Link,
    PathMtu,
    Phase,
    Sample,
    Socket,
    derive,
    load,
    look,
    run,
)
from neuca_tools.selftest.evidence.load import Load
from neuca_tools.selftest.evidence.look import Look, Windows
from neuca_tools.selftest.evidence.run import Connection, Flow, Interval, Run, Total

UNKNOWN = Windows(None, None, None, None, None, None, None, False)
LAN = (Connection("10.0.0.1", 40000, "10.0.0.2", 5201),)
WAN = (Connection("10.0.0.1", 40000, "192.0.2.2", 5201),)


def looked(protocol="tcp", *, rates=(), evidence=None, phase=None, run=None, held=None, **values):
    """A phase of one stream, of which nothing is known but what is given here."""
    own = {"protocol": protocol, "streams": 1, "connections": WAN, **(run or {})}
    one = Phase(**{"name": protocol, "run": Run("iperf3", **own), **(phase or {})})
    intervals = tuple(Interval(at, at + 1, rate=rate) for at, rate in enumerate(rates))
    usual = {"steady": intervals, "rate": None, "rates": tuple(rates), "loss": None, "acked": ()}
    usual |= {"rtt": None, "shortest_rtt": None, "low_rtt": None}
    seen = UNKNOWN._replace(**(held or {}))
    return Look(Evidence(**(evidence or {})), one, windows=seen, **{**usual, **values})


def flows(*rates):
    return {"flows": tuple(Flow("forward", received=Total(rate=rate)) for rate in rates)}


def counted(*rows):
    """Intervals of a second with so many bytes, segments sent again and a window each."""
    return tuple(
        Interval(at, at + 1, size, size * 8, again, cwnd)
        for at, (size, again, cwnd) in enumerate(rows)
    )


def of_run(*rows, **values):
    """A TCP test with these intervals, and what they say after the first."""
    every = counted(*rows)
    rates = tuple(each.rate for each in every)
    sent = Total(len(every), sum(row[0] for row in rows), retransmits=sum(row[1] for row in rows))
    flow = Flow("forward", every, sent)
    values = {"run": {"flows": (flow,), **values.pop("run", {})}, **values}
    return looked(**{"steady": every, "rates": rates, "rate": rates[-1], **values})


EXPECTED = {"expect": 1e9}
AT_MOST = {"phase": {"target": 1e8}}
BOTH = {"name": "tcp-bidir"}
PASSED = [
    ("90% of what is expected of TCP", {"rate": 9e8, "evidence": EXPECTED}, True),
    ("less", {"rate": 8.99e8, "evidence": EXPECTED}, False),
    ("80% of the datagrams", {"protocol": "udp", "loss": 0.2, "rate": 8e7, **AT_MOST}, True),
    ("fewer", {"protocol": "udp", "loss": 0.2, "rate": 7.9e7, **AT_MOST}, False),
    (
        "more datagrams than any link has",
        {"protocol": "udp", "loss": 0.9, "rate": 1e9, "phase": {"target": 50e9}},
        None,
    ),
    (
        "70% both ways",
        {"rate": 1e8, "phase": BOTH, "run": flows(6e8, 8e8), "evidence": EXPECTED},
        True,
    ),
    ("less", {"rate": 1e8, "phase": BOTH, "run": flows(6e8, 7.9e8), "evidence": EXPECTED}, False),
    (
        "one way of both",
        {"rate": 7e8, "phase": BOTH, "run": flows(1e8), "evidence": EXPECTED},
        True,
    ),
    ("as fast as it was to be", {"rate": 9e7, **AT_MOST}, True),
    ("slower", {"rate": 8.9e7, **AT_MOST}, None),
    ("half as fast again", {"rate": 1.5e8, **AT_MOST}, True),
    ("faster", {"rate": 1.51e8, **AT_MOST}, None),
    ("nothing known", {"rate": 1e8}, None),
    ("no rate", {"evidence": EXPECTED}, None),
    ("a search", {"rate": 1e8, "evidence": EXPECTED, "phase": {"search": True}}, None),
    ("an error", {"rate": 1e9, "evidence": EXPECTED, "run": {"error": "refused"}}, False),
    ("datagrams of which nobody tells", {"protocol": "udp", "rate": 1e8, **AT_MOST}, None),
    (
        "a sender held below it",
        {"rate": 7.2e8, "evidence": EXPECTED, "phase": {"target": 8e8}},
        None,
    ),
    (
        "and not reaching that",
        {"rate": 7.1e8, "evidence": EXPECTED, "phase": {"target": 8e8}},
        False,
    ),
    ("one not held", {"rate": 8.9e8, "evidence": EXPECTED, "phase": {"target": 9e8}}, False),
]


@pytest.mark.parametrize(("words", "values", "passed"), PASSED)
def test_a_test_has_passed_at_its_threshold_itself(words, values, passed):
    assert thresholds.has_passed(looked(**values)) is passed, words


def traced(*rates):
    """Bit/s acknowledged in each second."""
    sums = accumulate(rates, initial=0)
    samples = (Sample(at, (Socket(bytes_acked=int(total / 8)),)) for at, total in enumerate(sums))
    return {"phase": {"sender": tuple(samples)}, "evidence": EXPECTED}


QUEUED = {"rate": 1e9, "rtt": 1.5, "shortest_rtt": 1.0}
IDLE = {"shortest_rtt": 0.25, "rtt": 0.5}
CROWDED = {"shortest_rtt": 1.0, "run": {"streams": 2}}
LATE = {"rate": 8e6, "shortest_rtt": 0.25, "held": {"in_flight": 1e6}}
EMPTY = {"rate": 8e6, "shortest_rtt": 1.0}


def at_idle(usual, loaded):
    return {"idle": Latency(p50=usual), "loaded": Latency(p50=loaded)}


# A function; what is looked at; the rest of its arguments; its answer.
BOUNDS = [
    (thresholds.carries_expected, traced(0, 1e9, 0), (), True),
    (thresholds.carries_expected, traced(1e9), (), True),
    (thresholds.carries_expected, traced(0, 1e9 - 8, 0.9e9), (), False),
    (thresholds.carries_expected, {"rate": 2e9}, (), False),
    (thresholds.has_grown, QUEUED, (1.5,), True),
    (thresholds.has_grown, {**QUEUED, "shortest_rtt": 1 / 64, "rtt": 1.5 / 64}, (1.5,), False),
    (thresholds.has_grown, {**QUEUED, "shortest_rtt": 1 / 64, "rtt": 1.51 / 64}, (1.5,), True),
    (thresholds.has_grown, {**QUEUED, "rtt": 1.0155}, (1.5,), False),
    (thresholds.has_grown, {**QUEUED, "rtt": 1.0165}, (1.5,), True),
    (thresholds.has_grown, {"rtt": 1.0}, (1.5,), False),
    (thresholds.has_grown, {"shortest_rtt": 1.0}, (1.5,), False),
    (thresholds.is_only_a_pair, {**QUEUED, "rtt": 2.0, "rate": 2 * 1514 * 8}, (), True),
    (thresholds.is_only_a_pair, {**QUEUED, "rtt": 2.0, "rate": 2 * 1515 * 8}, (), False),
    (thresholds.is_noisy, {**IDLE, "evidence": at_idle(0.29, None)}, (), False),
    (thresholds.is_noisy, {**IDLE, "evidence": at_idle(0.31, None)}, (), True),
    (thresholds.is_noisy, {**IDLE, "rtt": 0.3, "evidence": at_idle(0.31, None)}, (), False),
    (thresholds.is_noisy, {**IDLE, "rtt": None, "evidence": at_idle(0.31, None)}, (), False),
    (
        thresholds.is_noisy,
        {"shortest_rtt": 1 / 1024, "rtt": 1.0, "evidence": at_idle(1 / 1024 + 0.0009, None)},
        (),
        False,
    ),
    (
        thresholds.is_noisy,
        {"shortest_rtt": 1 / 1024, "rtt": 1.0, "evidence": at_idle(1 / 1024 + 0.0011, None)},
        (),
        True,
    ),
    (thresholds.has_standing_queue, {"low_rtt": 1.5 / 64, "shortest_rtt": 1 / 64}, (), False),
    (thresholds.has_standing_queue, {"low_rtt": 1.51 / 64, "shortest_rtt": 1 / 64}, (), True),
    (thresholds.has_standing_queue, {"low_rtt": 1.0165, "shortest_rtt": 1.0}, (), True),
    (thresholds.has_standing_queue, {"low_rtt": 1.0155, "shortest_rtt": 1.0}, (), False),
    (thresholds.has_standing_queue, {"low_rtt": 2.0}, (), False),
    (thresholds.has_standing_queue, {"shortest_rtt": 2.0}, (), False),
    (thresholds.delays_only_itself, {"evidence": at_idle(0.25, 0.265)}, (), True),
    (thresholds.delays_only_itself, {"evidence": at_idle(0.25, 0.267)}, (), False),
    (thresholds.delays_only_itself, {"evidence": at_idle(0.01, 0.0119)}, (), True),
    (thresholds.delays_only_itself, {"evidence": at_idle(0.01, 0.0121)}, (), False),
    (thresholds.delays_only_itself, {"evidence": at_idle(None, 0.01)}, (), False),
    (thresholds.delays_only_itself, {"evidence": at_idle(0.01, None)}, (), False),
    (
        thresholds.delays_only_itself,
        {"evidence": at_idle(0.25, 0.25), "phase": {"direction": "reverse"}},
        (),
        False,
    ),
    (thresholds.is_crowded, {**CROWDED, "rate": 8 * 1448 * 8 - 1}, (), True),
    (thresholds.is_crowded, {**CROWDED, "rate": 8 * 1448 * 8}, (), False),
    (thresholds.is_crowded, {**CROWDED, "rate": 1e4, "run": {}}, (), False),
    (thresholds.is_crowded, CROWDED, (), False),
    (thresholds.is_crowded, {**CROWDED, "rate": 1e4, "shortest_rtt": None}, (), False),
    (
        thresholds.is_mostly_idle,
        {**EMPTY, "held": {"in_flight": 2.49e6, "cwnd": 1e7, "snd_wnd": 2e7}},
        (),
        True,
    ),
    (
        thresholds.is_mostly_idle,
        {**EMPTY, "held": {"in_flight": 2.5e6, "cwnd": 1e7, "snd_wnd": 2e7}},
        (),
        False,
    ),
    (
        thresholds.is_mostly_idle,
        {**EMPTY, "held": {"in_flight": 2.49e6, "cwnd": 2e7, "snd_wnd": 1e6}},
        (),
        False,
    ),
    (
        thresholds.is_mostly_idle,
        {
            **EMPTY,
            "held": {"in_flight": 0.49e6, "cwnd": 1e7, "snd_wnd": 2e7},
            "phase": {"sender": (Sample(0.0, (Socket(congestion="bbr"),)),)},
        },
        (),
        True,
    ),
    (
        thresholds.is_mostly_idle,
        {
            **EMPTY,
            "held": {"in_flight": 0.5e6, "cwnd": 1e7, "snd_wnd": 2e7},
            "phase": {"sender": (Sample(0.0, (Socket(congestion="bbr"),)),)},
        },
        (),
        False,
    ),
    (thresholds.is_queued, {**QUEUED, "rtt": 2.0}, (), True),
    (thresholds.is_queued, {**QUEUED, "rtt": 1.01}, (), False),
    (thresholds.is_queued, {**QUEUED, "rtt": 2.0, "rate": 2 * 1514 * 8}, (), False),
    (thresholds.is_queued, {**QUEUED, "rtt": 2.0, "evidence": at_idle(1.0, 1.0)}, (), False),
    (
        thresholds.is_queued,
        {**QUEUED, "rtt": 2.0, "held": {"in_flight": 1e6, "cwnd": 1e7, "snd_wnd": 1e7}},
        (),
        False,
    ),
    (thresholds.is_read_late, {**LATE, "held": {}}, (0.5,), False),
    (thresholds.is_read_late, {**LATE, "shortest_rtt": None}, (0.5,), False),
    (thresholds.is_read_late, LATE, (0.5,), True),
    (thresholds.is_read_late, LATE, (0.49,), False),
    (thresholds.is_read_late, {**LATE, "rate": 16e6}, (0.25,), True),
    (thresholds.is_read_late, {**LATE, "rate": 1e9}, (0.24,), False),
    (thresholds.is_read_late, {**LATE, "rate": 1e10, "shortest_rtt": 0.001}, (0.0091,), True),
    (thresholds.is_read_late, {**LATE, "rate": 1e10, "shortest_rtt": 0.001}, (0.0089,), False),
]


@pytest.mark.parametrize(("function", "values", "arguments", "answer"), BOUNDS)
def test_a_queue_begins_at_its_bound(function, values, arguments, answer):
    assert function(looked(**values), *arguments) is answer


@pytest.mark.parametrize(("values", "median"), [((), 0.0), ((1, 2), 2), ((3, 1, 2), 2)])
def test_the_upper_median_is_one_of_the_values(values, median):
    assert thresholds.upper_median(values) == median


# A rate; the rate that a provider sells above it.
CAPS = [
    (0.0, None),
    (-1.0, None),
    (94.9e6, None),
    (95.5e6, 100e6),
    (100.5e6, 100e6),
    (100.6e6, None),
    (191e6, 200e6),
    (500e6, 500e6),
    (1.01e9, None),
    (10.05e9, 10e9),
    (10.1e9, None),
]


@pytest.mark.parametrize(("rate", "cap"), CAPS)
def test_a_cap_is_a_rate_that_providers_sell(rate, cap):
    assert figures.cap_above(rate) == cap


# A rate in bit/s; what else is known; the speed of the Ethernet that it fills.
LINES = [
    (89.5e6, {}, 100e6),
    (89.4e6, {}, None),
    (95.5e6, {}, 100e6),
    (95.6e6, {}, None),
    (98.5e6, {"run": {"mss": 8948}}, 100e6),
    (99.2e6, {"run": {"mss": 8948}}, 100e6),
    (98.4e6, {"run": {"mss": 8948}}, None),
    (99.3e6, {"run": {"mss": 8948}}, None),
    (98.8e6, {"run": {"mss": 8000}}, None),
    (98.8e6, {"run": {"mss": 8001}}, 100e6),
    (98.8e6, {"run": {"connections": LAN}}, 100e6),
    (98.8e6, {}, None),
    (8.95e9, {}, 10e9),
    (8.94e9, {}, None),
    (10.05e9, {}, 10e9),
    (10.06e9, {}, None),
    (2.3e9, {}, 2.5e9),
    (4.6e9, {}, 5e9),
    (95e6, {"rates": (91.3e6, 98.7e6) * 2}, 100e6),
    (95e6, {"rates": (91.2e6, 98.8e6) * 2}, None),
]


@pytest.mark.parametrize(("rate", "values", "speed"), LINES)
def test_a_mean_fills_an_ethernet(rate, values, speed):
    assert figures.filled_link_speed(looked(rate=rate, **values)) == speed


@pytest.mark.parametrize(
    ("rate", "expect", "target"),
    [(9e8, 3e9, 3e9), (8e8, None, 1e9), (9e8, None, 10e9), (1e9, None, 10e9), (4e11, None, 8e11)],
)
def test_room_is_made_for_the_next_speed(rate, expect, target):
    assert figures.target_rate(rate, expect) == target


@pytest.mark.parametrize(
    ("rate", "rtt", "size"),
    [(1e9, 0.1, 24), (8 * 2**19, 1.0, 1), (8 * 2**19 + 8, 1.0, 2), (1, 1, 1)],
)
def test_a_buffer_is_twice_what_the_path_holds_in_whole_mib(rate, rtt, size):
    assert figures.buffer_for(rate, rtt) == size * 2**20


def test_ethernet_carries_what_its_frames_leave():
    assert figures.goodput(1e9, 1500) == pytest.approx(941.5e6, rel=1e-4)
    assert figures.goodput(1e9, 9000) == pytest.approx(990.0e6, rel=1e-4)
    assert figures.link_speed_for(941.5e6 * 1.0049) == 1e9
    assert figures.link_speed_for(941.5e6 * 1.0055) is None
    assert figures.link_speed_for(941.5e6 * 0.9945) is None
    assert figures.link_speed_for(990e6, 9000) == 1e9


def test_loss_leaves_what_mathis_says():
    assert figures.mathis_rate(1448, 0.1, 0.01) == pytest.approx(1_158_400)
    assert figures.window_left_by(0.01, looked()) == pytest.approx(12.2 * 1448)
    assert figures.window_left_by(0.01, looked(run={"streams": 2})) == pytest.approx(24.4 * 1448)


@pytest.mark.parametrize(
    ("rate", "peer", "is_inside"),
    [(0.5e9, "127.0.0.1", True), (0.499e9, "127.0.0.1", False), (1e9, "192.0.2.1", False)],
)
def test_a_shaped_loopback_is_a_path(rate, peer, is_inside):
    assert figures.is_in_host(looked(rate=rate, run={"peer": peer})) is is_inside


# What -b asked for, what was reached, in how many seconds; whether that is no capacity.
REQUESTED = [
    (None, 1e6, 5, False),
    (1e8, None, 5, False),
    (1e8, 0.9e8, 5, True),
    (1e8, 0.899e8, 5, False),
    (2**21, 2**20, 1, True),
    (2**21, 2**20 - 8, 1, False),
    (2**21, 2**20, 0, False),
]


@pytest.mark.parametrize(("target", "rate", "seconds", "is_so"), REQUESTED)
def test_a_requested_rate_is_no_capacity(target, rate, seconds, is_so):
    steady = tuple(Interval(at, at + 1) for at in range(seconds))
    asked = looked(rate=rate, steady=steady, phase={"target": target})
    assert figures.is_as_requested(asked) is is_so


@pytest.mark.parametrize(
    ("again", "size", "loss", "share"),
    [
        ((1, 3), 1448 * 100, 0.5, 0.02),
        ((1, None), 1448, 0.5, 0.5),
        ((9, 9), 1448, 0.5, 1.0),
        ((1, 1), 0, 0.5, 0.5),
        ((1, 1), 0, None, 0.0),
    ],
)
def test_late_loss_is_that_after_slow_start(again, size, loss, share):
    late = tuple(Interval(at, at + 1, size, None, each) for at, each in enumerate(again))
    assert figures.late_loss(looked(steady=late, loss=loss)) == share


@pytest.mark.parametrize(
    ("rates", "limit", "is_constant"),
    [((31.0, 33.0), 1 / 32, False), ((31.0, 33.0), 0.032, True), ((32.0,), 0.5, False)],
)
def test_a_constant_rate_varies_less_than_its_bound(rates, limit, is_constant):
    assert figures.is_constant(looked(rates=rates * 2), limit) is is_constant


PACED = [
    (100e6, None, 0.0, True),
    (100.3e6, None, 0.0, True),
    (100.5e6, None, 0.0, False),
    (99.7e6, None, 0.0, True),
    (99.5e6, None, 0.0, False),
    (1e9, None, 0.0, False),
    (100e6, None, 0.0045, False),
    (100e6, None, 0.0044, True),
    (150e6, 100e6, 0.0, True),
    (150e6, None, 0.0, False),
]


@pytest.mark.parametrize(("rate", "received", "loss", "is_paced"), PACED)
def test_a_round_rate_is_one_that_was_asked_for(rate, received, loss, is_paced):
    own = {"flows": (Flow("forward", received=Total(rate=received)),)}
    assert figures.is_paced(looked(rate=rate, rates=[rate] * 4, loss=loss, run=own)) is is_paced


# --- What was derived of a phase ----------------------------------------------------------------------------------------


LOADS = [
    ("is_full", {"full": 0.5}, True),
    ("is_full", {"full": 0.49}, False),
    ("is_full", {}, False),
    ("is_full", {"full": 1.0, "own": 0.25, "softirq": 0.125}, False),
    ("is_full", {"full": 1.0, "own": 0.25, "softirq": 0.16}, True),
    ("is_busy_with_others", {"own": 0.4}, False),
    ("is_busy_with_others", {"own": 0.39}, True),
    ("is_busy_with_others", {"softirq": 0.1}, False),
    ("used", {"busy": 0.7}, 0.7),
    ("used", {}, 0.0),
    ("used", {"busy": 0.9, "own": 0.3}, 0.3),
    ("used", {"busy": 0.9, "own": 0.5, "softirq": 0.25}, 0.75),
    ("used", {"busy": 0.6, "own": 0.5, "softirq": 0.25}, 0.6),
    ("used", {"own": 0.5}, 0.0),
    ("may_need_stolen_time", {"steal": 0.1}, True),
    ("may_need_stolen_time", {"own": 0.25, "steal": 0.15}, True),
    ("may_need_stolen_time", {"own": 0.2, "softirq": 0.1, "steal": 0.1}, True),
    ("may_need_stolen_time", {"own": 0.2, "softirq": 0.1, "steal": 0.09}, False),
    ("dominant_use", {"user": 0.1, "system": 0.2, "softirq": 0.3}, "softirq"),
    ("dominant_use", {"user": 0.1, "system": 0.2}, "system"),
    ("dominant_use", {"user": 0.3, "system": 0.2, "softirq": 0.1}, "user"),
]


@pytest.mark.parametrize(("name", "values", "answer"), LOADS)
def test_a_load_tells_whose_the_time_was(name, values, answer):
    assert getattr(Load(**values), name) == answer


def test_the_busiest_cpu_is_the_one_that_was_full_most_often():
    idle, mixed = Cpu(), Cpu(1, 2, 4, 1, 0)
    full = (Cpu(1, 1, 1, 1, 1), Cpu(2, 4, 5, 2, 2), Cpu(3, 13, 5, 2, 2))
    samples = [
        Sample(float(at), cpus=(cpu, first))
        for at, (cpu, first) in enumerate(zip(full, (idle, mixed, mixed)))
    ]
    busiest = load.busiest_load(samples)
    assert busiest == Load(0, 0.5, pytest.approx(0.95), 0.1, 0.6, 0.2, 0.05)
    assert load.busiest_load(samples[:1]) == Load()
    assert load.busiest_load([Sample(0.0), Sample(1.0)]) == Load()
    twice = [Sample(float(at), cpus=(idle, mixed)) for at in range(2)]
    assert load.busiest_load(twice) == Load(0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("after", "share"),
    [
        (Cpu(idle=1.0), 0.0),
        (Cpu(1, 1, 1, 1, 0), 0.75),
        (Cpu(steal=2.0, idle=2.0), 0.5),
        (Cpu(), 0.0),
        (Cpu(user=1.0, idle=-1.0), 0.0),
        (Cpu(user=3.0, idle=-1.0), 1.0),
    ],
)
def test_a_cpu_is_busy_while_it_is_not_idle(after, share):
    assert load.busy_share(Cpu(), after) == share


@pytest.mark.parametrize(
    ("share", "busy", "of_busy"),
    [(0.1, 0.4, 0.25), (0.5, 0.4, 1.0), (None, 0.4, None), (0.1, None, None), (0.1, 0.0, None)],
)
def test_a_share_of_the_busy_time_is_known_only_if_both_are(share, busy, of_busy):
    assert derive._share_of_busy(share, busy) == of_busy


@pytest.mark.parametrize(("idle", "full"), [(5, 1.0), (5.1, 0.0)])
def test_a_cpu_is_full_at_95_per_cent(idle, full):
    samples = [
        Sample(float(at), cpus=(Cpu(user=at * (100 - idle), idle=at * idle),)) for at in range(2)
    ]
    assert load.busiest_load(samples).full == full


CUBIC = {"sender": tuple(Sample(float(at), (Socket(congestion="cubic"),)) for at in range(2))}
AGAIN = of_run((1e6, 4, None), (1e6, 0, None)).flow
SHORT = [
    ((Total(0.9, 1e9), Total(0.9, 1e9)), True),
    ((Total(1.0, 1e6), Total()), False),
    ((Total(0.9, 1e9), Total(1.0, 1e6)), False),
    ((Total(4.9, 0.9e6), Total()), True),
    ((Total(5.0, 0.9e6), Total()), False),
    ((Total(4.9, None), Total()), False),
    ((Total(None, 9.0), Total()), False),
]


@pytest.mark.parametrize(("totals", "is_short"), SHORT)
def test_a_test_is_too_short_without_a_second_or_without_data(totals, is_short):
    sent, received = totals
    flow = Flow("forward", sent=sent, received=received)
    assert looked(run={"flows": (flow,)}).is_too_short is is_short


BUSY = {"held": {"rwnd_limited": 0.25, "sndbuf_limited": 0.5}}
# A property of a Look; the look; its value.
PROPERTIES = [
    ("known_network_share", BUSY, 0.25),
    ("known_network_share", {"held": {"rwnd_limited": 0.75, "sndbuf_limited": 0.5}}, 0.0),
    ("known_network_share", {"held": {"rwnd_limited": 0.25}}, 1.0),
    ("known_network_share", {"held": {"sndbuf_limited": 0.25}}, 1.0),
    ("known_network_share", {}, 1.0),
    ("mss", {}, 1448),
    ("mss", {"held": {"mss": 9000}}, 9000),
    ("protocol", {"run": {"protocol": None}, "phase": {"name": "udp-ladder"}}, "udp"),
    ("protocol", {"run": {"protocol": None}, "phase": {"name": "tcp"}}, "tcp"),
    ("protocol", {"run": {"protocol": "tcp"}, "phase": {"name": "udp"}}, "tcp"),
    ("target", {"run": {"target": 3.0}}, 3.0),
    ("target", {"run": {"target": 3.0}, "phase": {"target": 4.0}}, 4.0),
    ("is_unsampled", {"rate": 1.0, "run": flows(1.0)}, True),
    ("is_unsampled", {"rate": 1.0}, False),
    ("is_unsampled", {"run": flows(1.0)}, False),
    ("is_unsampled", {"rate": 1.0, "run": flows(1.0), "phase": CUBIC}, False),
    ("is_unsampled_tcp", {"rate": 1.0, "run": flows(1.0)}, True),
    ("is_unsampled_tcp", {"rate": 1.0, "run": flows(1.0), "protocol": "udp"}, False),
    ("is_unanswered", {"protocol": "udp"}, True),
    ("is_unanswered", {"protocol": "udp", "loss": 0.0}, False),
    ("is_unanswered", {}, False),
    ("is_unused", {"held": {"flat": True}}, False),
    (
        "is_unused",
        {"held": {"flat": True}, "run": {"flows": (Flow(sent=Total(retransmits=0)),)}},
        True,
    ),
    (
        "is_unused",
        {"held": {"flat": True}, "run": {"flows": (Flow(sent=Total(retransmits=1)),)}},
        False,
    ),
    ("is_unused", {"run": {"flows": (Flow(sent=Total(retransmits=0)),)}}, False),
    ("implied_rtt", {"held": {"cwnd": 1e6}, "rate": 16e6}, 0.5),
    ("implied_rtt", {"held": {"cwnd": 1e6}}, 0.0),
    ("implied_rtt", {"rate": 16e6}, 0.0),
    ("spread", {"rates": (1.0, 3.0)}, None),
    ("spread", {"rates": (1.0, 3.0, 1.0, 3.0)}, 0.5),
    ("spread", {"rates": (1.0, 3.0), "phase": CUBIC}, 0.5),
    ("spread", {"rates": (1.0,), "phase": CUBIC}, None),
    ("spread", {"rates": (0.0, 0.0, 0.0)}, None),
    ("known_spread", {}, 0.0),
    ("acked_spread", {"acked": (1.0, 3.0)}, 0.5),
    ("queueing", {"rtt": 3.0, "shortest_rtt": 2.0}, 1.5),
    ("queueing", {"rtt": 1.0, "shortest_rtt": 2.0}, 1.0),
    ("queueing", {"rtt": 1.0}, None),
    ("queueing", {"shortest_rtt": 1.0}, None),
    ("queueing", {"rtt": 3.0, "shortest_rtt": 2.0, "low_rtt": 9.0}, 1.5),
    ("noise", {"shortest_rtt": 0.25, "evidence": at_idle(0.75, None)}, 0.5),
    ("noise", {"shortest_rtt": 0.25, "evidence": at_idle(0.125, None)}, 0.0),
    ("noise", {"evidence": at_idle(0.75, None), "phase": CUBIC}, 0.0),
    (
        "duplicated",
        {
            "protocol": "udp",
            "run": {"flows": (Flow(sent=Total(bytes=8), received=Total(bytes=10)),)},
        },
        0.25,
    ),
    (
        "duplicated",
        {
            "protocol": "udp",
            "run": {"flows": (Flow(sent=Total(bytes=8), received=Total(bytes=6)),)},
        },
        0.0,
    ),
    ("duplicated", {"protocol": "udp", "run": {"flows": (Flow(sent=Total(bytes=8)),)}}, 0.0),
    ("duplicated", {"run": {"flows": (Flow(sent=Total(bytes=8), received=Total(bytes=10)),)}}, 0.0),
    ("duplicated", {"protocol": "udp"}, 0.0),
    (
        "is_even_despite_loss",
        {"run": {"flows": (AGAIN,)}, "rates": (0.983, 1.017), "phase": CUBIC},
        True,
    ),
    (
        "is_even_despite_loss",
        {"run": {"flows": (AGAIN,)}, "rates": (0.982, 1.018), "phase": CUBIC},
        False,
    ),
    ("is_even_despite_loss", {"run": {"flows": (AGAIN,)}, "rates": (1.0, 1.0, 1.0)}, False),
    ("is_even_despite_loss", {"rates": (1.0, 1.0), "phase": CUBIC}, False),
    ("lossy_intervals", {"run": {"flows": (AGAIN,)}}, 1),
]


@pytest.mark.parametrize(("name", "values", "value"), PROPERTIES)
def test_a_look_says_what_a_phase_shows(name, values, value):
    assert getattr(looked(**values), name) == value


def test_other_guests_disturb_a_test_that_loses_more_than_a_twentieth_of_a_cpu():
    def sampled(steal):
        cpus = [Cpu(user=at * (100 - steal), steal=at * steal) for at in range(2)]
        samples = tuple(Sample(float(at), cpus=(cpu,)) for at, cpu in enumerate(cpus))
        return {"phase": {"sender": samples}, "run": {"cpu_local": 90.0}}

    slow = {"rtt": 0.5, "shortest_rtt": 0.25, "low_rtt": 0.3765}
    assert not looked(**sampled(5)).is_disturbed
    assert looked(**sampled(5), **slow).queueing == 2.0
    assert looked(**sampled(6)).is_disturbed
    assert looked(**sampled(6)).noise == pytest.approx(0.009)
    assert looked(**sampled(6), **slow).queueing == pytest.approx(1.964)
    assert looked(**sampled(6), **{**slow, "rtt": 0.25}).queueing == pytest.approx(1.5)
    assert looked(**sampled(6)).sender_load.own == 0.9
    assert looked(**sampled(6)).receiver_load.own is None


@pytest.mark.parametrize(
    ("fact", "growth"),
    [
        (None, 0.0),
        (look.Fact("drops", 1, 4), 3),
        (look.Fact("drops", 4, 1), 0),
        (look.Fact("drops", None, 4), 0.0),
        (look.Fact("drops", 4), 0.0),
        (look.Fact("drops", "1", 4), 0.0),
        (look.Fact("drops", 1, "4"), 0.0),
    ],
)
def test_a_counter_grew_by_what_is_known(fact, growth):
    assert look.growth_of_fact(fact) == growth


@pytest.mark.parametrize(
    ("values", "fact"), [((3, 3), None), ((4, 3), None), ((), None), ((3, 5, 4), (3, 4))]
)
def test_a_counter_that_did_not_grow_is_no_fact(values, fact):
    samples = [Sample(0.0), *(Sample(1.0, counters={"drops": value}) for value in values)]
    assert look.counter_growth(samples, "drops") == (fact and look.Fact("drops", *fact))


@pytest.mark.parametrize(
    ("times", "rtt", "late"),
    [
        ((), None, ()),
        ((0,), None, (0,)),
        ((0, 9), None, (0, 9)),
        ((0, 1, 2, 3), None, (2, 3)),
        ((0, 1, 2), None, (1, 2)),
        ((0, 1, 1.5, 1.6), None, (1, 1.5, 1.6)),
        ((5, 6, 7, 8, 9), 0.1, (7, 8, 9)),
        ((5, 6, 7, 8, 9), 0.125, (8, 9)),
        ((5, 6, 7, 8, 9), 0.2, (7, 8, 9)),
    ],
)
def test_slow_start_is_left_out(times, rtt, late):
    samples = tuple(Sample(float(time)) for time in times)
    assert tuple(each.time for each in look.steady_samples(samples, rtt)) == late


def test_only_the_connections_of_iperf_are_looked_at():
    sockets = (Socket(40000, 5201), Socket(40000, 22), Socket(None, 5201), Socket(22, 5201))
    phase = looked().phase
    assert look.data_sockets(Sample(0.0, sockets), phase) == (sockets[0], sockets[2])
    assert look.data_sockets(Sample(0.0, sockets), replace(phase, run=None)) == sockets


# The ends of intervals; the round trip; which of them are steady.
STEADY = [
    ((1, 2, 3, 4, 5), None, (3, 4, 5)),
    ((1, 2, 3, 4, 5, 5.8), None, (3, 4, 5, 5.8)),
    ((1, 2, 3), None, (2, 3)),
    ((1, 2), None, (1, 2)),
    ((2, 4, 6), None, (4, 6)),
    ((3, 6, 9), 1.0, (6, 9)),
    ((1, 2, 3, 4, 5), 0.15, (4, 5)),
    ((1, 2, 3, 4, 5), 0.2, (2, 3, 4, 5)),
]


@pytest.mark.parametrize(("ends", "rtt", "late"), STEADY)
def test_intervals_of_slow_start_are_left_out(ends, rtt, late):
    intervals = [Interval(start, end) for start, end in zip((0, *ends), ends)]
    assert tuple(each.end for each in run.steady_intervals(intervals, rtt)) == late


def test_what_was_omitted_is_the_slow_start():
    intervals = [Interval(at, at + 1, omitted=at < 1) for at in range(4)]
    assert run.steady_intervals(intervals, None) == tuple(intervals[1:])


@pytest.mark.parametrize(("last", "count"), [(9, 3), (8.9, 2), (10, 3)])
def test_a_short_last_interval_is_left_out(last, count):
    intervals = [Interval(0, 10), Interval(10, 20), Interval(20, 20 + last)]
    assert len(run.whole_intervals(intervals)) == count


# The rates of ten intervals, the first two of them in slow start; how many are of the rise.
RISES = [
    ((1, 2, 4.9, 6, 8.9, 9.1, 10, 10, 10, 10), 5),
    ((1, 2, 5.1, 6, 8.9, 9.1, 10, 10, 10, 10), 2),
    ((1, 2, 4, 3, 8.9, 9.1, 10, 10, 10, 10), 2),
    ((1, 2, 4, 5, 6, 7, 8, 10, 10, 10), 2),
    ((1, 2, 4, 9, 10, 10, 10, 10, 10, 10), 3),
]


@pytest.mark.parametrize(("rates", "left_out"), RISES)
def test_a_long_rise_is_left_out(rates, left_out):
    intervals = [Interval(at, at + 1, rate=rate) for at, rate in enumerate(rates)]
    assert run.usual_intervals(intervals, None) == tuple(intervals[left_out:])


@pytest.mark.parametrize(
    ("values", "is_flat"),
    [((98, 100), True), ((97.9, 100), False), ((100,), False), ((0, 0), False)],
)
def test_a_window_is_flat_within_two_per_cent(values, is_flat):
    assert run.is_flat(values) is is_flat


@pytest.mark.parametrize(
    ("values", "size"),
    [({}, 4), ({"streams": 3}, 12), ({"buffer": 4 * 2**20}, 8), ({"buffer": 2**20}, 4)],
)
def test_a_send_buffer_holds_what_the_kernel_allows(values, size):
    assert run.send_buffer(Run("iperf3", **values)) == size * 2**20


# An address and another; whether they are in one local network, and within one host.
ENDS = [
    ("10.0.0.1", "10.0.0.255", True, False),
    ("10.0.0.1", "10.0.1.1", False, False),
    ("2001:db8::1", "2001:db8::ffff:0:0:1", True, False),
    ("2001:db8::1", "2001:db8:0:1::1", False, False),
    ("10.0.0.1", "2001:db8::1", False, False),
    ("10.0.0.1", "peer", False, False),
    ("fe80::1%eth0", "fe80::2%eth0", True, False),
    ("::ffff:10.0.0.1", "10.0.0.2", True, False),
    ("127.0.0.1", "127.0.0.2", True, True),
    ("10.0.0.1", "10.0.0.1", True, True),
    ("::1", "::1", True, True),
    ("10.0.0.1", "localhost", False, True),
]


@pytest.mark.parametrize(("local", "remote", "is_near", "is_inside"), ENDS)
def test_addresses_tell_how_far_the_hosts_are(local, remote, is_near, is_inside):
    own = Run("iperf3", connections=(Connection(local, 40000, remote, 5201),))
    assert (own.is_local_network, own.is_loopback) == (is_near, is_inside)


@pytest.mark.parametrize(("mss", "is_inside"), [(None, False), (9216, False), (9217, True)])
def test_no_frame_is_as_large_as_a_loopback_segment(mss, is_inside):
    assert Run("iperf3", mss=mss).is_loopback is is_inside


@pytest.mark.parametrize(
    ("version", "numbers", "is_threaded"),
    [
        ("3.16", (3, 16), True),
        ("3.15", (3, 15), False),
        ("3.17.1+", (3, 17, 1), True),
        (None, (), False),
        ("3.12-beta", (3, 12), False),
        ("4.0", (4, 0), True),
        ("git", (), False),
    ],
)
def test_iperf3_has_threads_since_3_16(version, numbers, is_threaded):
    own = Run("iperf3", version, streams=4, cpu_local=200.0, cpu_remote=100.0, **flows(1.0))
    assert (run.version_of(own), own.is_threaded) == (numbers, is_threaded)
    assert own.cpus == ((0.5, 0.25) if is_threaded else (2.0, 1.0))


@pytest.mark.parametrize(
    ("peer", "remote", "version"),
    [
        ("10.0.0.1", None, 4),
        ("::1", None, 6),
        ("::1", "10.0.0.1", 4),
        (None, None, 4),
        ("host", "::1", 6),
    ],
)
def test_the_version_of_ip_is_that_of_the_peer(peer, remote, version):
    ends = (Connection("host", 1, remote, 2),) if remote else ()
    assert Run("iperf3", peer=peer, connections=ends).ip_version == version


RESENT = [
    ((None, None), None, 0, None),
    ((1, None), None, 0, 1),
    ((1, 2), 2, 0, 3),
    ((1, 2), 5, 0, 5),
    ((), 1000, 0, 1000),
    ((), 1001, 0, None),
    ((), 2000, 2000 * 536, 2000),
    ((), 2001, 2000 * 536, None),
]


@pytest.mark.parametrize(("each", "total", "size", "count"), RESENT)
def test_no_run_sends_again_more_than_it_had(each, total, size, count):
    intervals = tuple(Interval(at, at + 1, retransmits=one) for at, one in enumerate(each))
    assert Flow("forward", intervals, Total(bytes=size, retransmits=total)).retransmits == count


LOST = [
    ((10, 10, None), True, 0.0),
    ((9, 10, None), False, 5.0),
    ((10, 10, 8), False, 5.0),
    ((0, 0, None), False, 5.0),
    ((None, 10, None), False, 5.0),
]


@pytest.mark.parametrize(("counts", "is_lost", "rate"), LOST)
def test_nothing_arrived_if_every_datagram_was_lost(counts, is_lost, rate):
    lost, datagrams, size = counts
    flow = Flow(sent=Total(rate=5.0), received=Total(bytes=size, lost=lost, datagrams=datagrams))
    assert (flow.is_lost, flow.rate) == (is_lost, rate)


@pytest.mark.parametrize(
    ("mtus", "smallest"),
    [((1500, 1400), 1400), ((None, 1400), 1400), ((1500, None), 1500), ((None, None), None)],
)
def test_the_smallest_path_mtu_is_that_of_both_directions(mtus, smallest):
    assert PathMtu(*mtus).smallest == smallest


def test_a_virtual_link_has_no_speed_of_its_own():
    assert Link("eth0", "physical", speed=1e9).real_speed == 1e9
    kinds = ("veth", "tun", "tap", "bridge", "vxlan", "geneve", "macvlan", "ipvlan")
    assert [Link("x", kind, speed=1e10).real_speed for kind in kinds] == [None] * len(kinds)


@pytest.mark.parametrize(
    ("value", "largest"),
    [
        ("4096 131072 6291456", 6291456),
        ("x", None),
        ("", None),
        ("9" * 19, int("9" * 19)),
        ("9" * 20, None),
    ],
)
def test_the_maximum_of_a_sysctl_is_its_last_number(value, largest):
    assert Host(sysctls={"tcp_rmem": value}).sysctl_max("tcp_rmem") == largest
    assert Host().sysctl_max("tcp_rmem") is None


def test_a_socket_of_unknown_segments_has_no_window():
    socket = Socket(mss=1000, snd_cwnd=2, unacked=1)
    assert (socket.cwnd, socket.in_flight) == (2000.0, 1000.0)
    assert replace(socket, mss=None).cwnd is None
    assert replace(socket, unacked=None).in_flight is None


# --- Datagrams ----------------------------------------------------------------------------------------------------------


def of_udp(lost, count=10_000, *, losses=(), size=1000, target=None, missed=0.0, **values):
    """Datagrams in ten seconds, of which so many were lost, in all and in each interval."""
    sent, arrived = count * size, (count - lost) * size
    flow = Flow(
        "forward",
        tuple(Interval(at, at + 1, lost=each, datagrams=1000) for at, each in enumerate(losses)),
        Total(10.0, sent, sent * 0.8, datagrams=count),
        Total(10.0 - missed, arrived, arrived * 0.8, datagrams=count, lost=lost),
    )
    asked = {"phase": {"target": target, **values.pop("phase", {})}}
    asked["run"] = {"flows": (flow,), "datagram": size, **values.pop("run", {})}
    return looked("udp", **{"rate": arrived * 0.8, "loss": lost / count, **asked, **values})


LOSING = [
    ({"lost": 1}, False),
    ({"lost": 2}, True),
    ({"lost": 9, "losses": (9, 0, 0)}, False),
    ({"lost": 9, "losses": (9, 0)}, True),
    ({"lost": 9, "losses": (8, 1, 0)}, True),
    ({"lost": 9, "losses": (0, 9, 0)}, True),
]


@pytest.mark.parametrize(("values", "is_losing"), LOSING)
def test_datagrams_lost_at_an_end_are_none_of_the_path(values, is_losing):
    assert udp.is_losing(of_udp(**values)) is is_losing


def test_tcp_loses_no_datagrams():
    flow = Flow("forward", received=Total(lost=5, datagrams=9))
    assert udp.lost_datagrams(looked(run={"flows": (flow,)}, loss=0.5)) == 0
    assert not udp.is_losing(looked(run={"flows": (flow,)}, loss=0.5))


# The sizes and the IP version of datagrams; whether each takes one packet.
SIZES = [
    (1472, "10.0.0.1", True),
    (1473, "10.0.0.1", False),
    (1452, "::1", True),
    (1453, "::1", False),
]


@pytest.mark.parametrize(("size", "peer", "is_one"), SIZES)
def test_a_datagram_of_a_packet_is_not_fragmented(size, peer, is_one):
    own = of_udp(0, size=size, run={"connections": (), "peer": peer})
    assert udp.is_unfragmented(own) is is_one


@pytest.mark.parametrize(
    ("rate", "size", "is_gentle"),
    [(160e6, 1000, True), (161e6, 1000, False), (1e6, 1500, False), (None, 1000, False)],
)
def test_any_receiver_takes_20000_packets_a_second(rate, size, is_gentle):
    assert udp.is_gentle(of_udp(0, size=size, rate=rate)) is is_gentle
    assert not udp.is_gentle(of_udp(1000, 1000, size=size, rate=rate))


def test_the_size_of_a_datagram_is_that_of_the_best_source():
    told = of_udp(10, 100, size=1000)
    assert udp.datagram_size(told) == 1000
    silent = of_udp(10, 100, size=900, run={"datagram": None})
    assert udp.datagram_size(silent) == 900
    (flow,) = silent.run.flows
    server = replace(flow, sent=Total())
    assert udp.datagram_size(looked("udp", run={"flows": (server,)})) == 900
    rows = (Interval(0, 1, 1600, datagrams=3, lost=1), Interval(1, 2, 800, datagrams=1))
    rows = replace(server, intervals=rows, received=Total())
    assert udp.datagram_size(looked("udp", run={"flows": (rows,)})) == 800
    assert udp.datagram_size(looked("udp")) == 0


def grown(**counters):
    names = {name.replace("__", "."): value for name, value in counters.items()}
    start = Sample(0.0, counters=dict.fromkeys(names, 0))
    return (start, Sample(1.0, counters=names))


def received(**counters):
    return {"phase": {"receiver": grown(**counters)}}


FAST = {"rate": 880e6}  # more than any receiver keeps up with
# What was lost and counted; the share that an overflow of the socket's buffer explains.
OVERFLOWN = [
    (2, received(Udp__RcvbufErrors=1), 0.5),
    (100, received(Udp__RcvbufErrors=50), 0.5),
    (100, received(Udp__RcvbufErrors=49), None),
    (100, received(Udp__RcvbufErrors=200), 1.0),
    (0, received(Udp__RcvbufErrors=5), 1.0),
    (100, received(Udp__MemErrors=25), 0.25),
    (0, received(Udp__MemErrors=25), 1.0),
    (100, received(Udp__InDatagrams=5), None),
    (5000, FAST, 0.6),
    (5000, {}, None),
    (99, FAST, 0.2),
    (100, FAST, 0.6),
    (100, {"rate": None}, None),
]


@pytest.mark.parametrize(("lost", "values", "share"), OVERFLOWN)
def test_an_overflow_explains_what_it_dropped(lost, values, share):
    hit = udp.receive_buffer(of_udp(lost, **values))
    assert (hit and hit.share) == share
    assert hit is None or hit.end == "receiver"
    is_socket = hit is not None and "memory" not in hit.text
    larger = {"net.core.rmem_default": "4194304", "net.core.rmem_max": "16777216"}
    assert hit is None or hit.sysctls == (larger if is_socket else {})


# Datagrams lost in all and in each interval; how grave it is.
USUAL = [
    (100, (), None),
    (99, (), "info"),
    (99, (20, 20, 20, 20, 19), None),
    (99, (20, 20, 20, 39, 0), "info"),
    (99, (20, 20, 20, 39), "info"),
]


@pytest.mark.parametrize(("lost", "losses", "severity"), USUAL)
def test_a_moment_is_no_lasting_overflow(lost, losses, severity):
    hit = udp.receive_buffer(of_udp(lost, losses=losses, rate=800e6 * (1 - lost / 10_000)))
    assert (hit.confidence, hit.severity) == ("medium", severity)


@pytest.mark.parametrize(
    ("counters", "count", "version"),
    [
        ({"Ip__ReasmFails": 40}, 0.4, "-l 1472"),
        ({"Ip__ReasmFails": 1}, 0.01, "-l 1472"),
        ({"Ip6__Ip6ReasmFails": 200}, 1.0, "-l 1452"),
        ({"Ip__ReasmFails": 5, "Ip6__Ip6ReasmFails": 10}, 0.1, "-l 1452"),
    ],
)
def test_fragments_that_are_lost_lose_their_datagrams(counters, count, version):
    hit = udp.lost_fragments(of_udp(100, **received(**counters)))
    assert hit.share == count
    assert version in hit.advice
    assert udp.lost_fragments(of_udp(1, **received(**counters))) is None
    assert udp.lost_fragments(of_udp(100)) is None


# What was asked for of 8 Mbit/s that were sent; what was lost; the share that is missing, and how grave it is.
OFFERS = [
    (8.42e6, 0, None, None),
    (8.5e6, 0, 1 - 8 / 8.5, "limit"),
    (8.5e6, 99, 1 - 8 / 8.5, "limit"),
    (8.5e6, 100, 1 - 8 / 8.5, "info"),
    (50e9, 0, 1 - 8 / 50e3, "info"),
    (49e9, 0, 1 - 8 / 49e3, "limit"),
    (None, 0, None, None),
]


@pytest.mark.parametrize(("target", "lost", "share", "severity"), OFFERS)
def test_a_sender_is_too_slow_below_95_per_cent(target, lost, share, severity):
    hit = udp.sender_too_slow(of_udp(lost, target=target))
    assert (hit and (hit.share, hit.severity)) == (share and (pytest.approx(share), severity))


@pytest.mark.parametrize(
    ("size", "mtu", "words"),
    [
        (736, None, "larger datagrams (-l 1472), more streams"),
        (737, None, "more streams"),
        (4486, 9000, "larger datagrams (-l 8972), more streams"),
        (4487, 9000, "more streams"),
    ],
)
def test_larger_datagrams_are_advised_if_they_hold_twice_as_much(size, mtu, words):
    slow = of_udp(0, size=size, target=8e8, evidence={"path_mtu": PathMtu(mtu, 1400)})
    assert udp.sender_too_slow(slow).advice.startswith(words)
    back = {"phase": {"direction": "reverse"}, "evidence": {"path_mtu": PathMtu(1400, mtu)}}
    assert udp.sender_too_slow(of_udp(0, size=size, target=8e8, **back)).advice.startswith(words)


def test_another_rate_of_datagrams_tells_more():
    first, same, more = (of_udp(0, count).phase for count in (1000, 1020, 1021))
    for other, is_so in ((same, False), (more, True), (replace(more, direction="reverse"), False)):
        own = of_udp(0, 1000, evidence={"phases": (first, other)})
        assert udp.is_one_of_several(replace(own, phase=first)) is is_so
    assert not udp.is_one_of_several(replace(own, phase=first, evidence=Evidence(phases=(first,))))


def test_all_counters_of_lost_datagrams_count():
    names = ("Udp.RcvbufErrors", "Udp.MemErrors", "Ip.ReasmFails", "Ip6.Ip6ReasmFails")
    each = {name.replace(".", "__"): 2**at for at, name in enumerate((*names, "softnet.dropped"))}
    own = of_udp(0, phase={"receiver": grown(**each), "sender": grown(softnet__dropped=32)})
    assert udp.counted_losses(own) == 63


# --- Datagrams and TCP --------------------------------------------------------------------------------------------------


def session_of(*looks, **evidence):
    every = Evidence(phases=tuple(each.phase for each in looks), **evidence)
    return Session(every, tuple(replace(each, evidence=every) for each in looks))


@pytest.mark.parametrize(
    ("lost", "count", "loss", "is_so"),
    [
        (2, 200, 0.005, True),
        (1, 200, 0.005, False),
        (2, 4, 0.005, False),
        (2, 5, 0.005, True),
        (2, 200, 0.0049, False),
        (None, 200, 0.5, False),
    ],
)
def test_probes_that_are_lost_before_a_test_wait_in_no_queue(lost, count, loss, is_so):
    idle = Latency(count, lost)
    assert datagrams.lost_while_idle(session_of(looked(loss=loss, rate=1e6), idle=idle)) is is_so


# Datagrams in each interval that were lost at half of TCP's rate; whether TCP and they are lost at random.
RANDOM = [
    ([2] * 10, 20e6, 0.0006, True),
    ([2] * 10, 20e6, 0.00059, False),
    ([1, 1, 1] + [0] * 7, 20e6, 0.01, False),
    ([3, 3, 2] + [0] * 7, 20e6, 0.01, False),
    ([2, 2, 2, 2] + [0] * 6, 20e6, 0.01, True),
    ([4] * 5 + [0] * 5, 20e6, 0.01, False),
    ([3] * 6 + [0] * 4, 20e6, 0.01, True),
    ([2] * 10, 15e6, 0.01, False),
]


@pytest.mark.parametrize(("losses", "rate", "loss", "is_so"), RANDOM)
def test_gentle_datagrams_tell_what_is_lost_at_random(losses, rate, loss, is_so):
    few = of_udp(0, 100)  # which lose none by chance
    gentle = of_udp(sum(losses), 500 * sum(losses) - 100, losses=losses)
    tested = session_of(looked(loss=loss, rate=rate), gentle, few)
    hit = datagrams.random_loss(tested)
    assert (hit is not None) is is_so


# A single test: its rate, what is expected, what is lost in each interval, and by how much more was counted.
CERTAIN = [
    (9.99e6, None, [1, 2, 1, 2, 2, 3, 1, 4, 2, 2], 0.0, True),
    (10e6, None, [1, 2, 1, 2, 2, 3, 1, 4, 2, 2], 0.0, True),
    (10.1e6, None, [1, 2, 1, 2, 2, 3, 1, 4, 2, 2], 0.0, False),
    (15e6, 100e6, [1, 2, 1, 2, 2, 3, 1, 4, 2, 2], 0.0, True),
    (15.1e6, 100e6, [1, 2, 1, 2, 2, 3, 1, 4, 2, 2], 0.0, False),
    (10e6, None, [1, 0, 1, 0, 1, 0, 0, 2], 0.0, True),
    (10e6, None, [1, 0, 1, 0, 1, 0, 0, 1], 0.0, False),
    (10e6, None, [2] * 10, 0.0, False),
    (10e6, None, [0, 2, 2, 2], 0.0, True),
    (10e6, None, [0, 2, 2, 2, 2], 0.0, False),
    (10e6, None, [1, 2, 1, 2, 2, 3, 1, 4, 2, 2], -0.24, True),
    (10e6, None, [1, 2, 1, 2, 2, 3, 1, 4, 2, 2], -0.25, False),
]


@pytest.mark.parametrize(("rate", "expect", "losses", "missed", "is_so"), CERTAIN)
def test_a_single_slow_test_may_be_certain(rate, expect, losses, missed, is_so):
    share = 0.01
    only = of_udp(sum(losses), losses=losses, rate=rate, missed=missed, loss=share)
    tested = session_of(only, expect=expect)
    slow = replace(tested.looks[0], phase=replace(only.phase, receiver=grown(drops=0)))
    assert (datagrams.random_loss(tested._replace(looks=(slow,))) is not None) is is_so


def test_no_link_on_which_iperf_works_loses_more_than_a_fifth():
    for loss, is_so in ((0.2, True), (0.21, False)):
        only = of_udp(round(loss * 1000), 1000, losses=(0, 9, 90, 101), rate=1e6)
        assert (datagrams.random_loss(session_of(only)) is not None) is is_so


@pytest.mark.parametrize(
    ("lost", "count", "is_so"),
    [(20, 10_000, True), (19, 10_000, False), (20, 1000, True), (19, 950, True), (18, 950, False)],
)
def test_iperf_alone_has_to_count_enough(lost, count, is_so):
    only = of_udp(lost, count, losses=(0, lost // 2, lost - lost // 2), rate=1e6)
    assert (datagrams.random_loss(session_of(only)) is not None) is is_so


CONTRAST = [
    (0.005, 4000, 5, True),
    (0.005, 3999, 4, False),
    (0.0049, 40_000, 0, False),
    (0.008, 4000, 8, True),
    (0.008, 4000, 9, False),
]


@pytest.mark.parametrize(("loss", "count", "lost", "is_so"), CONTRAST)
def test_what_tcp_alone_loses_is_lost_in_bursts(loss, count, lost, is_so):
    tcp = looked(loss=loss, rate=1e9)
    found = datagrams.rarely_lost_datagrams(tcp, session_of(tcp, of_udp(lost, count)))
    assert (found is not None) is is_so
    assert found is None or (found.lost, found.sent) == (lost, count)


# What arrives in each second in Mbit/s, of datagrams of which so much is lost, of this size; whether it is a limit.
ARRIVALS = [
    ([8] * 5, 0.02, 1000, True),
    ([8] * 5, 0.019, 1000, False),
    ([8, 8], 0.5, 1000, False),
    ([7.8, 8.2, 8], 0.5, 1000, True),
    ([7.7, 8.3, 7.6], 0.5, 1000, False),
    ([799] * 5, 0.5, 1000, True),
    ([800] * 5, 0.5, 1000, False),
    ([81] * 5, 0.5, 511, True),
    ([82] * 5, 0.5, 511, False),
    ([82] * 5, 0.5, 512, True),
]


@pytest.mark.parametrize(("rates", "loss", "size", "is_so"), ARRIVALS)
def test_a_path_lets_pass_the_same_in_each_second(rates, loss, size, is_so):
    steady = tuple(Interval(at, at + 1, rate=rate * 1e6, lost=9) for at, rate in enumerate(rates))
    mean = sum(rates) / len(rates) * 1e6
    own = of_udp(
        round(10_000 * loss),
        size=size,
        rate=mean,
        loss=loss,
        steady=steady,
        run={"connections": LAN},
    )
    hit = datagrams.limited_arrival(own)
    assert (hit is not None and hit.share == 0.8) is is_so


# The share of few unfragmented datagrams that is lost; whether the path is slower than they are.
@pytest.mark.parametrize(
    ("lost", "is_so"), [(500, True), (499, False), (9000, True), (9001, False)]
)
def test_few_datagrams_are_lost_on_a_slow_path(lost, is_so):
    hit = datagrams.limited_arrival(of_udp(lost, rate=7e6))
    assert (hit is not None and hit.share == 0.76) is is_so
    inside = of_udp(lost, rate=7e6, run={"connections": (), "peer": "::1"})
    assert datagrams.limited_arrival(inside) is None


@pytest.mark.parametrize(
    ("rate", "lost", "is_so"),
    [
        (8.8e6, 0, True),
        (8.9e6, 0, False),
        (7.3e6, 200, True),
        (7.2e6, 200, False),
        (7.2e6, 199, True),
    ],
)
def test_another_test_may_contradict_a_limit(rate, lost, is_so):
    steady = tuple(Interval(at, at + 1, rate=8e6, lost=9) for at in range(5))
    own = of_udp(1000, rate=8e6, steady=steady)
    (flow,) = of_udp(lost).run.flows
    flow = replace(flow, received=replace(flow.received, rate=rate), intervals=())
    other = replace(own.phase, run=replace(own.run, flows=(flow,)))
    own = replace(own, evidence=Evidence(phases=(own.phase, other)))
    assert (datagrams.limited_arrival(own) is not None) is is_so


# --- What is derived of samples, traces and totals ----------------------------------------------------------------------


def derived(run=None, evidence=None, **phase):
    one = Phase(
        "tcp", None if run is None else Run("iperf3", **{"protocol": "tcp", **run}), **phase
    )
    return derive.look_at_phase(Evidence(**(evidence or {})), one)


@pytest.mark.parametrize(("count", "low"), [(9, 0.01), (10, 0.02), (19, 0.02), (20, 0.03)])
def test_the_lowest_round_trip_is_a_decile_after_slow_start(count, low):
    times = (0.0, 1.9, *(2.0 + at for at in range(count)))
    trips = (1_000, 1_000, *(10_000 * (at + 1) for at in range(count)))
    samples = (Sample(time, (Socket(rtt=rtt),)) for time, rtt in zip(times, trips))
    assert derived(sender=tuple(samples)).low_rtt == low


@pytest.mark.parametrize(("count", "low", "rates"), [(2, None, 0), (3, 0.01, 0), (4, 0.01, 3)])
def test_the_least_of_the_samples_needs_three_and_so_do_their_rates(count, low, rates):
    samples = tuple(
        Sample(2.0 * at, (Socket(rtt=10_000 + at, mss=1448, bytes_acked=at),))
        for at in range(count)
    )
    own = derived(sender=(Sample(-2.0, samples[0].sockets), *samples))
    assert own.low_rtt == low
    assert len(own.acked) == rates


SIDES = [
    (5201, 40000, True),
    (5001, 40000, True),
    (40000, 5201, False),
    (40000, 5001, False),
    (5000, 6000, True),
    (6000, 5000, False),
    (6000, 6000, False),
    (5201, 5001, False),
]


@pytest.mark.parametrize(("local", "remote", "is_server"), SIDES)
def test_a_server_has_the_default_or_the_lower_port(local, remote, is_server):
    ends = Connection("10.0.0.1", local, "10.0.0.2", remote)
    assert derive.is_server_end(ends) is is_server
    assert derive.is_server(Run("iperf3", connections=(ends,))) is is_server


def run_of(*rates, sent=None, received=None, **totals):
    intervals = tuple(Interval(at, at + 1, rate=rate) for at, rate in enumerate(rates))
    flow = Flow("forward", intervals, Total(rate=sent), Total(rate=received, **totals))
    return {"flows": (flow,)}


# A run; the rate of its steady part.
STEADY_RATES = [
    (run_of(9.0, 6.0, 4.0, 5.0, sent=4.0, received=3.0), 5.0),
    (run_of(9.0, 6.0, 4.0, 5.0, sent=4.1, received=3.0), 3.0),
    (run_of(9.0, 6.0, 4.0, 5.0, received=3.0, lost=0), 3.0),
    (run_of(9.0, received=3.0), 3.0),
    (run_of(9.0), 9.0),
    (run_of(sent=7.0), 7.0),
    (run_of(sent=7.0, lost=5, datagrams=5), 0.0),
    ({}, None),
]


@pytest.mark.parametrize(("run", "rate"), STEADY_RATES)
def test_the_steady_rate_is_that_of_the_best_source(run, rate):
    assert derived(run).rate == rate


def test_a_run_that_failed_has_no_rate_of_zero():
    lost = run_of(sent=7.0, lost=5, datagrams=5)
    assert derived({**lost, "error": "refused"}).rate is None


@pytest.mark.parametrize(
    ("values", "loss"),
    [
        ({"retransmits": 10, "bytes": 14_480}, 1.0),
        ({"retransmits": 5, "bytes": 14_480}, 0.5),
        ({"retransmits": 0, "bytes": 14_480}, 0.0),
        ({"bytes": 14_480}, None),
    ],
)
def test_the_share_that_was_sent_again(values, loss):
    flow = Flow("forward", sent=Total(**values))
    assert derived({"flows": (flow,)}).loss == loss


def test_windows_are_sums_and_shares_of_what_the_kernel_counted():
    def sockets(time):
        one = Socket(mss=1000, snd_cwnd=10, snd_wnd=20_000, unacked=4, bytes_acked=time * 1000)
        return (
            replace(one, busy_time=time * 500_000, rwnd_limited=time * 125_000, sndbuf_limited=0),
        ) * 2

    own = derived(sender=tuple(Sample(float(time), sockets(time)) for time in range(7)))
    assert own.windows == Windows(1000, 20_000, 40_000, 8_000, 0.25, 0.0, 0.5, True)
    assert own.acked == (16_000.0,) * 4
