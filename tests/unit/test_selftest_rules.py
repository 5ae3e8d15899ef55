"""The rules of the self-test at their bounds: queues, processors, applications, windows, and the path itself."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import replace

import pytest
from test_selftest_bounds import LAN, flows, grown, looked, of_run, of_udp, session_of

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions import (
    application,
    capacity,
    cpu,
    figures,
    overflow,
    path,
    policer,
    queues,
    window,
)
from neuca_tools.selftest.evidence import (
    Cpu,
    Evidence,
    Host,
    Latency,
    Link,
    PathMtu,
    Sample,
    Socket,
)
from neuca_tools.selftest.evidence.run import Flow, Interval, Total

EXPECTED = {"expect": 1e9}


# --- Queues -------------------------------------------------------------------------------------------------------------


def at_receiver(again=100, **counters):
    """A slow TCP test, of which so many segments were sent again, with counters of its receiver."""
    sender = {"Tcp__RetransSegs": again, "Tcp__OutSegs": 100_000}
    return {
        "rate": 5e8,
        "loss": 0.001,
        "phase": {"sender": grown(**sender), "receiver": grown(**counters)},
        "evidence": EXPECTED,
    }


RINGS = [
    (at_receiver(eth1__rx_missed_errors=25), 0.25),
    (at_receiver(eth1__rx_missed_errors=900), 1.0),
    (at_receiver(again=0, eth1__rx_missed_errors=25), 0.05),
    ({**at_receiver(eth1__rx_missed_errors=25), "rate": 9e8}, 0.05),
    ({**at_receiver(eth1__rx_missed_errors=25), "loss": 1e-5}, 0.05),
    ({**at_receiver(eth1__rx_missed_errors=25), "loss": 1.1e-5}, 0.25),
    ({**at_receiver(eth1__rx_missed_errors=25), "loss": None}, 0.25),
    (at_receiver(eth1__tx_dropped=25), None),
]


@pytest.mark.parametrize(("values", "share"), RINGS)
def test_a_ring_that_overflows_explains_its_part(values, share):
    hit = queues.nic_ring(looked(**values))
    assert (hit and hit.share) == share
    assert hit is None or (hit.end, "NIC eth1 overflowed" in hit.text) == ("receiver", True)


def test_a_ring_of_datagrams_explains_the_lost_ones():
    counters = {"phase": {"receiver": grown(eth1__rx_missed_errors=25)}}
    assert queues.nic_ring(of_udp(100, **counters)).share == 0.25
    assert queues.nic_ring(of_udp(10, **counters)).share == 1.0
    assert queues.nic_ring(of_udp(0, **counters)).share == 0.05


@pytest.mark.parametrize(
    ("rings", "advice"),
    [
        ({"rx": 256, "rx_max": 4096}, "ethtool -G eth1 rx 4096, which resets the link"),
        ({"rx": 4096, "rx_max": 4096}, "a larger receive ring, if ethtool -g eth1 shows one"),
        ({"rx_max": 4096}, "a larger receive ring, if ethtool -g eth1 shows one"),
        ({}, "a larger receive ring, if ethtool -g eth1 shows one"),
    ],
)
def test_a_larger_ring_is_advised_if_there_is_one(rings, advice):
    links = (Link("eth0", rings={"rx": 1, "rx_max": 2}), Link("eth1", rings=rings))
    values = at_receiver(eth1__rx_missed_errors=25)
    own = looked(**{**values, "evidence": {**EXPECTED, "peer": Host(links=links)}})
    assert queues.nic_ring(own).advice.startswith(advice)


def test_the_queue_of_a_host_is_that_of_its_end():
    receiver = looked(**at_receiver(softnet__dropped=25))
    assert (queues.backlog_drops(receiver).end, queues.backlog_drops(receiver).share) == (
        "receiver",
        0.25,
    )
    sender = replace(receiver, phase=replace(receiver.phase, receiver=()))
    own = {"Tcp__RetransSegs": 100, "softnet__dropped": 50}
    sender = replace(sender, phase=replace(sender.phase, sender=grown(**own)))
    assert (queues.backlog_drops(sender).end, queues.backlog_drops(sender).share) == ("sender", 0.5)
    assert queues.backlog_drops(looked()) is None


# Drops of the sender's queue of 100,000 segments; the round trip in seconds; the share of the rate.
SLOWED = [
    (10, 0.0581, 1.0),
    (10, 0.0578, 0.05),
    (10, None, 0.05),
]


@pytest.mark.parametrize(("drops", "rtt", "share"), SLOWED)
def test_a_queue_of_the_sender_slows_it_down_without_a_retransmission(drops, rtt, share):
    counters = {"Tcp__OutSegs": 100_000, "eth1__qdisc__drops": drops}
    own = looked(rate=1e7, rtt=rtt, phase={"sender": grown(**counters)}, evidence={"expect": 1e9})
    assert queues.qdisc_drops(own).share == share
    assert queues.queue_drops_or_delay(own).share == share
    passed = replace(own, rate=9.5e8)
    assert queues.qdisc_drops(passed).share == 0.05


FULL_CPU = tuple(Sample(float(at), cpus=(Cpu(user=at * 100),)) for at in range(2))


def test_drops_count_more_than_a_delay_that_may_be_that_of_a_full_cpu():
    counters = grown(Tcp__OutSegs=100_000, eth1__qdisc__drops=10)
    full = tuple(replace(sample, cpus=full.cpus) for sample, full in zip(counters, FULL_CPU))
    for samples, share in ((counters, pytest.approx(0.25 / 0.27)), (full, 0.05)):
        delayed = deep(0.25, 0.5, phase={"sender": samples}, evidence={"expect": 1e9})
        assert queues.queue_drops_or_delay(delayed).share == share


def deep(idle, loaded, rate=1e9, **values):
    return looked(rate=rate, rtt=loaded, shortest_rtt=idle, **values)


# Idle and loaded round trips in seconds; the share of a deep queue, and how grave it is.
DEEP = [
    (deep(1 / 64, 5 / 64), (pytest.approx(0.0625 / 0.0825), 0.3, "limit")),
    (deep(1 / 64, 4.9 / 64), None),
    (deep(1 / 1024, 0.0209), None),
    (deep(1 / 1024, 0.0211), (0, 0.3, "limit")),
    (deep(0.5, 0.599), None),
    (deep(0.5, 0.601), (0, pytest.approx(0.101 / 0.121), None)),
    (deep(0.5, 0.601, evidence={"expect": 2.1e9}), (0, 0.3, "limit")),
    (deep(0.5, 0.601, evidence={"expect": 2e9}), (0, pytest.approx(0.101 / 0.121), None)),
    (deep(0.25, 0.5, 720e3), None),
    (deep(0.25, 0.5, 721e3), (0, pytest.approx(0.25 / 0.27), None)),
]


@pytest.mark.parametrize(("own", "wanted"), DEEP)
def test_a_deep_queue_delays_what_people_notice(own, wanted):
    hit = queues.deep_queue(own)
    assert (hit is None) is (wanted is None)
    assert hit is None or (hit.share, hit.severity) == wanted[1:]


def test_a_deep_queue_is_surest_by_requests():
    requests = {"idle": Latency(p50=0.25), "loaded": Latency(p50=0.25)}
    slow = deep(0.25, 0.5)
    assert queues.deep_queue(slow) is not None
    assert queues.deep_queue(replace(slow, evidence=Evidence(**requests))) is None
    back = replace(
        slow, evidence=Evidence(**requests), phase=replace(slow.phase, direction="reverse")
    )
    assert queues.deep_queue(back) is not None
    assert queues.deep_queue(of_udp(0, rtt=0.5, shortest_rtt=0.25)) is None
    again = of_run(*[(10**6, 4, None)] * 4, rate=1e9, rtt=0.5, shortest_rtt=0.25, loss=0.0058)
    assert queues.deep_queue(again) is None
    (flow,) = again.run.flows
    rare = replace(flow, intervals=tuple(replace(each, retransmits=0) for each in flow.intervals))
    rare = looked(run={"flows": (rare,)}, rate=1e9, rtt=0.5, shortest_rtt=0.25)
    assert queues.deep_queue(rare).confidence == "medium"


# What overtook others of 100,000 segments, and the share that was sent again; what that costs.
OVERTAKEN = [
    (100, 0.001, None),
    (101, 0.001, 0.9),
    (101, 0.00303, 0.9),
    (101, 0.0031, 0.05),
    (101, 1e-5, 0.05),
    (5000, 0.5, 0.05),
    (5001, 0.5, 0.9),
]


@pytest.mark.parametrize(("count", "loss", "share"), OVERTAKEN)
def test_packets_that_overtake_others_are_taken_for_lost(count, loss, share):
    counters = {"Tcp__OutSegs": 100_000, "TcpExt__TCPSACKReorder": count, "TcpExt__TCPTSReorder": 1}
    own = looked(rate=5e8, loss=loss, phase={"sender": grown(**counters)}, evidence=EXPECTED)
    hit = queues.reordered_packets(own)
    assert (hit and hit.share) == share
    fast = queues.reordered_packets(replace(own, rate=9e8))
    assert (fast and fast.share) == (share and 0.05)


@pytest.mark.parametrize(
    ("out_of_order", "count", "is_sampled", "is_said"),
    [
        (20, 10_000, False, True),
        (19, 10_000, False, False),
        (11, 10_000, True, True),
        (10, 10_000, True, False),
    ],
)
def test_datagrams_that_overtake_others_are_counted(out_of_order, count, is_sampled, is_said):
    own = of_udp(0, count)
    (flow,) = own.run.flows
    flow = replace(flow, received=replace(flow.received, out_of_order=out_of_order))
    samples = grown(drops=0) if is_sampled else ()
    own = looked("udp", rate=1e7, loss=0.0, run={"flows": (flow,)}, phase={"receiver": samples})
    hit = queues.reordered_packets(own)
    assert (hit and hit.share) == (0.3 if is_said else None)


# --- Processors ---------------------------------------------------------------------------------------------------------


def used(local, remote, rate=3e8, protocol="tcp", **values):
    """An iperf that used so much of a CPU at each end, in per cent."""
    run = {"cpu_local": local, "cpu_remote": remote, **flows(rate), **values.pop("run", {})}
    return looked(
        protocol, **{"rate": rate, "rates": (rate, 0.9 * rate, 1.1 * rate), "run": run, **values}
    )


# The CPU of both ends; what else is known; the share of the cause, its end, and how sure it is.
PROCESSES = [
    (used(98, 10), (0.95, "sender", "high")),
    (used(97.9, 10), (0.85, "sender", "medium")),
    (used(70, 10), (0.85, "sender", "medium")),
    (used(69.9, 10), None),
    (used(10, 98), (0.95, "receiver", "high")),
    (used(98, 10, phase={"direction": "reverse"}), (0.95, "receiver", "high")),
    (used(10, 98, phase={"direction": "reverse"}), (0.95, "sender", "high")),
    (used(97, 10, run={"peer": "::1", "connections": ()}), None),
    (used(98, 10, run={"peer": "::1", "connections": ()}), (0.95, "sender", "high")),
    (used(98, 10, phase={"target": 3e8}), None),
    (used(97, 10, rate=9.3e8, rates=(9.3e8,) * 3), None),
    (used(98, 10, rate=9.3e8, rates=(9.3e8,) * 3), (0.95, "sender", "high")),
    (used(98, 10, protocol="udp", loss=0.001), None),
]


@pytest.mark.parametrize(("own", "wanted"), PROCESSES)
def test_an_iperf_that_uses_all_of_a_cpu(own, wanted):
    hit = cpu.limited_by_cpu(own)
    assert (hit and (hit.share, hit.end, hit.confidence)) == wanted


def unused(rate=3e8, cwnd=3e5, spread=0.0, **values):
    """A TCP test that lost nothing, whose congestion window never grew."""
    rates = (rate * (1 - spread), rate * (1 + spread)) * 2
    flow = Flow("forward", sent=Total(10.0, rate * 1.25, rate, retransmits=0))
    run = {"flows": (flow,), **values.pop("run", {})}
    return looked(rate=rate, rates=rates, held={"cwnd": cwnd, "flat": True}, run=run, **values)


SLOW_SENDERS = [
    (unused(), 0.85),
    (unused(cwnd=2**20, rate=8.5e8), 0.85),
    (unused(cwnd=2**20 + 1, rate=8.5e8), None),
    (unused(rate=30e6, cwnd=6e4 / 1.6), 0.85),
    (unused(rate=29.9e6, cwnd=3e4), None),
    (unused(cwnd=3.75e4), None),
    (unused(cwnd=3.76e4), 0.85),
    (unused(cwnd=3.75e5), 0.85),
    (unused(cwnd=3.76e5), None),
    (unused(cwnd=3e5, spread=0.049), 0.85),
    (unused(cwnd=3e5, spread=0.051), None),
    (unused(run={"buffer": 2**20}), None),
    (unused(phase={"name": "tcp-bidir"}), None),
    (unused(run={"peer": "localhost"}), None),
]


@pytest.mark.parametrize(("own", "share"), SLOW_SENDERS)
def test_a_sender_that_never_needs_a_larger_window_is_slow(own, share):
    hit = cpu.limited_by_cpu(own)
    assert (hit and hit.share) == share
    assert hit is None or (hit.end, hit.confidence) == ("sender", "medium")


# A TCP test with intervals: (bytes, segments sent again, window); its loss; whether the loss explains the rate.
def losing(*again, size=1448 * 1000, spread=0.0, **values):
    """A test whose intervals sent so many segments again, and whose rate varies by this share."""
    rows = [
        (size * (1 + (spread if at % 2 else -spread)), each, 10**6 - 9 * at)
        for at, each in enumerate(again)
    ]
    loss = sum(again) / 1000 / len(again)
    held = {"cwnd": 10**6}
    return of_run(*rows, loss=loss, held=held, **values)


LIMITED = [
    (losing(1, 1, 1, 1), True),
    (losing(1, 0, 1, 0), True),
    (losing(1, 0, 0, 0), False),
    (losing(9, 9, 9, 9, spread=0.014), True),
    (losing(9, 9, 9, 9, spread=0.016), False),
]


@pytest.mark.parametrize(("own", "is_limited"), LIMITED)
def test_a_rate_that_losses_do_not_vary_is_limited(own, is_limited):
    assert figures.is_limited(own) is is_limited


def many(rate, streams, **values):
    """Streams at a rate that only hosts limit, of which 0.5 % are lost."""
    size = rate / 8
    rows = [(size * (1.1 if at % 2 else 0.9), size / 1448 * 0.005, 10**6) for at in range(4)]
    return of_run(*rows, loss=0.005, rate=rate, run={"streams": streams}, **values)


EXPLAINED = [
    (losing(5, 5, 5, 5, spread=0.2), True),
    (losing(4, 4, 4, 4, spread=0.2), False),
    (losing(0, 0, 0, 0, spread=0.2), False),
    (losing(5, 5, 5, 5), False),
    (losing(20, 0, 0, 0, size=1448 * 5000, spread=0.16), True),
    (losing(19, 0, 0, 0, size=1448 * 5000, spread=0.16), False),
    (losing(20, 0, 0, 0, size=1448 * 5000, spread=0.14), False),
    (many(9.9e9, 4), True),
    (many(12e9, 3), True),
    (many(12e9, 4), False),
    (
        replace(
            many(1e9, 1),
            phase=replace(many(1e9, 1).phase, run=replace(many(1e9, 1).run, peer="::1")),
        ),
        False,
    ),
]


@pytest.mark.parametrize(("own", "is_explained"), EXPLAINED)
def test_loss_explains_a_rate_that_it_holds_back(own, is_explained):
    assert figures.loss_explains(own) is is_explained


def test_what_hosts_hold_has_passed_no_path():
    assert figures.buffered_bytes(looked(run={"streams": 2})) == 2 * (8 + 12) * 2**20
    assert figures.buffered_bytes(looked(run={"buffer": 4 * 2**20})) == 2 * (8 + 6) * 2**20


# --- Applications and windows -------------------------------------------------------------------------------------------

SLOW_RTT = {"rtt": 0.25, "shortest_rtt": 0.25}


def windowed(rwnd=0.0, sndbuf=0.0, rate=8e6, **held):
    """A sampled test whose kernel counted how long which window was full."""
    values = {
        key: held.pop(key)
        for key in ("phase", "evidence", "run", "rtt", "shortest_rtt")
        if key in held
    }
    seen = {"rwnd_limited": rwnd, "sndbuf_limited": sndbuf, **held}
    return looked(rate=rate, held=seen, **{**SLOW_RTT, **values})


RECEIVERS = [
    (windowed(0.4), 0.4),
    (windowed(0.39), None),
    (windowed(0.4, in_flight=9e5, snd_wnd=1e6), 0.4),
    (windowed(0.4, in_flight=8.99e5, snd_wnd=1e6), None),
    (windowed(0.4, in_flight=3000, snd_wnd=4000, mss=1000), None),
    (windowed(0.4, in_flight=3001, snd_wnd=4000, mss=1000), 0.4),
    (windowed(0.15, in_flight=7.5e5, snd_wnd=1e6, cwnd=1.2e6), 0.8),
    (windowed(0.149, in_flight=7.5e5, snd_wnd=1e6, cwnd=1.2e6), None),
    (windowed(0.15, in_flight=7.49e5, snd_wnd=1e6, cwnd=1.2e6), None),
    (windowed(0.15, in_flight=7.5e5, snd_wnd=1e6, cwnd=1.19e6), None),
    (windowed(0.5, rate=None), None),
]


@pytest.mark.parametrize(("own", "share"), RECEIVERS)
def test_a_receivers_window_limits_while_it_is_full(own, share):
    hit = window.full_window(own)
    assert (hit and hit.share) == share
    assert hit is None or (hit.end, hit.title) == ("receiver", None)


def test_the_room_for_the_next_rate_is_advised():
    hit = window.full_window(windowed(0.5, snd_wnd=2.5e5))
    assert hit.sysctls == {"net.ipv4.tcp_rmem": f"4096 131072 {60 * 2**20}"}
    assert hit.text == (
        "the receiver's window of 244 KiB allows 8.00 Mbit/s at a round trip of 250 ms"
    )
    wanted = window.full_window(windowed(0.5, snd_wnd=2.5e5, evidence={"expect": 4e6}))
    assert wanted.sysctls == {"net.ipv4.tcp_rmem": f"4096 131072 {2**20}"}
    unknown = window.full_window(windowed(0.5, cwnd=5e5, rtt=None))
    assert "of 488 KiB allows 8.00 Mbit/s at a round trip of 500 ms" in unknown.text


def queue(**values):
    return {"phase": {"sender": (Sample(0.0), Sample(5.0, (Socket(mss=1000, **values),)))}}


FULL = {"sndbuf": 900_000, "wmem_queued": 600_000, "unacked": 225}
ROOMY = {"in_flight": 8e5, "cwnd": 1e6, "snd_wnd": 1e6}
SENDERS = [
    (windowed(sndbuf=0.2), 0.2),
    (windowed(sndbuf=0.19), None),
    (windowed(**ROOMY, **queue(**FULL)), 1.0),
    (windowed(**ROOMY, **queue(**{**FULL, "wmem_queued": 599_999})), None),
    (windowed(**ROOMY, **queue(**{**FULL, "unacked": 224})), None),
    (windowed(**{**ROOMY, "in_flight": 9e5}, **queue(**FULL)), None),
    (windowed(**{**ROOMY, "in_flight": 9e5}, **queue(**FULL, app_limited=True)), 1.0),
    (windowed(**{**ROOMY, "in_flight": None}, **queue(**FULL)), None),
    (windowed(rwnd=0.25, **ROOMY, **queue(**FULL)), 0.75),
    (windowed(sndbuf=0.5, rate=None), None),
    (
        windowed(
            sndbuf=0.5,
            evidence={"local": Host(sysctls={"net.ipv4.tcp_wmem": "1 2 1000000"})},
            **queue(sndbuf=900_000),
        ),
        0.5,
    ),
    (
        windowed(
            sndbuf=0.5,
            evidence={"local": Host(sysctls={"net.ipv4.tcp_wmem": "1 2 1000000"})},
            **queue(sndbuf=899_999),
        ),
        None,
    ),
]


@pytest.mark.parametrize(("own", "share"), SENDERS)
def test_a_send_buffer_limits_while_it_is_full(own, share):
    hit = application.sender_buffer(own)
    assert (hit and hit.share) == share
    assert hit is None or hit.sysctls == {"net.ipv4.tcp_wmem": f"4096 16384 {60 * 2**20}"}


def read(recv_q, rcvbuf=1_000_000):
    socket = Socket(recv_q=recv_q, rcvbuf=rcvbuf)
    return {
        "phase": {"receiver": (Sample(0.0, (replace(socket, recv_q=0),)), Sample(1.0, (socket,)))}
    }


READERS = [
    (windowed(0.4, **read(500_001)), 1.0),
    (windowed(0.4, rate=8e8, **read(500_001)), 0.4),
    (windowed(0.39, rate=8e8, **read(500_001)), None),
    (windowed(0.4, rate=8e8, **read(500_000)), None),
    (windowed(0.4, rate=2e9, **read(500_001)), 0.4),
    (windowed(0.4, rate=2.001e9, **read(500_250)), 0.4),
    (windowed(0.4, rate=2.01e9, **read(500_001)), None),
    (windowed(0.15, rate=8e6, **read(100_000)), 1.0),
    (windowed(0.15, rate=8e6, **read(99_999)), None),
    (windowed(0.149, rate=8e6, **read(100_000)), None),
    (windowed(None, rate=8e6, **read(900_000)), None),
    (windowed(0.0, rate=8e6, in_flight=5e5, shortest_rtt=0.25, **read(250_000)), 1.0),
    (windowed(0.0, rate=8e6, in_flight=5.1e5, shortest_rtt=0.25, **read(250_000)), None),
]


@pytest.mark.parametrize(("own", "share"), READERS)
def test_a_slow_reader_lets_data_wait(own, share):
    hit = application.slow_reader(own)
    assert (hit and hit.share) == share
    assert hit is None or (hit.end, hit.severity) == ("receiver", None)


STARVED = {"cwnd": 1e6, "snd_wnd": 2e6, "idle_share": 0.0}
HUNGRY = {"sndbuf": 900_000, "wmem_queued": 0, "app_limited": True}
IDLERS = [
    (windowed(idle_share=0.5), (0.5, None)),
    (windowed(idle_share=0.49), None),
    (windowed(idle_share=0.5, phase={"target": 8e6 / 0.94}), (0.5, None)),
    (windowed(idle_share=0.5, phase={"target": 8e6 / 0.96}), (0.5, "info")),
    (windowed(idle_share=0.5, rate=None), None),
    (windowed(in_flight=5e5, **STARVED, **queue(**HUNGRY)), (1.0, None)),
    (windowed(in_flight=5.01e5, **STARVED, **queue(**HUNGRY)), None),
    (windowed(in_flight=5e5, **STARVED, **queue(**{**HUNGRY, "app_limited": False})), None),
    (windowed(in_flight=5e5, **STARVED, **queue(**{**HUNGRY, "wmem_queued": 600_000})), None),
    (windowed(0.1, 0.1, in_flight=5e5, **STARVED, **queue(**HUNGRY)), (0.8, None)),
    (windowed(0.2, 0.1, in_flight=5e5, **STARVED, **queue(**HUNGRY)), None),
    (windowed(in_flight=5e5, **STARVED), None),
]


@pytest.mark.parametrize(("own", "wanted"), IDLERS)
def test_a_sender_without_data_is_idle(own, wanted):
    hit = application.idle_application(own)
    assert (hit and (pytest.approx(hit.share), hit.severity)) == wanted
    assert hit is None or hit.end == "sender"


BLOCK = 128 * 1024
LOWEST = 10 * 8 * BLOCK
BLOCKS = [
    (looked(rate=LOWEST, run=flows(1.0), phase={"target": 1e6}), 0.9),
    (looked(rate=1.5 * LOWEST, run=flows(1.0), phase={"target": 1e6}), 0.9),
    (looked(rate=1.51 * LOWEST, run=flows(1.0), phase={"target": 1e6}), None),
    (looked(rate=3.01 * LOWEST, run={**flows(1.0), "streams": 2}, phase={"target": 1e6}), None),
    (looked(rate=2.9 * LOWEST, run={**flows(1.0), "streams": 2}, phase={"target": 1e6}), 0.9),
    (looked(rate=1.5e6, run={**flows(1.0), "datagram": 12_500}, phase={"target": 1e6}), 0.9),
    (looked(rate=1.51e6, run={**flows(1.0), "datagram": 12_500}, phase={"target": 1e6}), None),
    (looked(rate=1.49e6, run={**flows(1.0), "datagram": 12_500}, phase={"target": 1e6}), None),
    (of_run(*[(10 * BLOCK, 1, None)] * 4), 0.9),
    (of_run(*[(10 * BLOCK, 2, None)] * 4), None),
    (of_run(*[(10 * BLOCK, 0, None)] * 3), None),
    (of_run(*[(11 * BLOCK, 0, None)] * 4), None),
    (of_run(*[(10 * BLOCK, 1, None)] * 4, phase={"name": "tcp-bidir"}), None),
    (looked(rate=LOWEST, phase={"target": 1e6}), None),
]


@pytest.mark.parametrize(("own", "share"), BLOCKS)
def test_iperf3_sends_whole_blocks(own, share):
    hit = application.idle_application(own)
    assert (hit and hit.share) == share
    assert hit is None or hit.title == "-b below what iperf3 can send"


LOSSES = [
    (windowed(), 1e-5, False),
    (windowed(), 1.1e-5, True),
    (windowed(0.125, 0.07), 0.01, True),
    (windowed(0.125, 0.08), 0.01, False),
    (windowed(sndbuf=0.2), 0.01, False),
    (windowed(rate=1e4, run={"streams": 2}), 0.01, False),
]


@pytest.mark.parametrize(("own", "loss", "is_lossy"), LOSSES)
def test_loss_counts_where_the_network_has_the_time(own, loss, is_lossy):
    assert application.is_lossy(replace(own, loss=loss)) is is_lossy


@pytest.mark.parametrize(
    ("rwnd", "sndbuf", "is_unbounded"),
    [(0.39, 0.19, True), (0.4, 0.0, False), (0.0, 0.2, False), (None, None, True)],
)
def test_a_flow_is_bounded_by_a_window_or_a_buffer(rwnd, sndbuf, is_unbounded):
    assert application.is_unbounded(windowed(rwnd, sndbuf)) is is_unbounded


# What -w asked for, what is in flight, in how many streams; whether that is the limit.
def stated(flight, buffer=1e6, **values):
    rate = flight * 8 / 0.25
    run = {"buffer": buffer, **flows(rate), **values.pop("run", {})}
    return looked(**{"rate": rate, "rates": (rate,) * 4, "rtt": 0.25, "run": run, **values})


STATED = [
    (stated(0.4e6), True),
    (stated(0.39e6), False),
    (stated(2.2e6), True),
    (stated(2.21e6), False),
    (stated(4.4e6, run={"streams": 2}), True),
    (stated(0.79e6, run={"streams": 2}), False),
    (stated(1e6, loss=0.001), False),
    (stated(1e6, phase={"target": 32e6}), False),
    (stated(1e6, run={"buffer": None}), False),
    (stated(2.9e6, buffer=2e6, rtt=0.25), False),
    (stated(1e6, rtt=None), True),
    (stated(1e6, rtt=None, phase={"name": "tcp-bidir"}), False),
    (stated(1e6, rtt=None, run={"peer": "::1"}), False),
    (stated(1e9, buffer=1e9, rtt=None), False),
    (stated(0.249e6, buffer=1e6, rtt=None), False),
    (stated(0.251e6, buffer=1e6, rtt=None), True),
    (stated(0.25e6, buffer=1e6, rtt=None, held={"cwnd": 2.2e6}), False),
    (stated(0.25e6, buffer=1e6, rtt=None, held={"cwnd": 2.3e6}), True),
    (stated(0.25e6, buffer=1e6, rtt=None, held={"cwnd": 1e5, "flat": True}), True),
    (stated(0.499e6, buffer=1e6, rtt=None, run={"streams": 2}), False),
    (stated(0.502e6, buffer=1e6, rtt=None, run={"streams": 2}), True),
    (stated(1.9e6, buffer=65536, rtt=None, run={"connections": LAN}), True),
    (stated(1.9e6, buffer=65537, rtt=None, run={"connections": LAN}), False),
]


@pytest.mark.parametrize(("own", "is_limit"), STATED)
def test_a_buffer_that_was_asked_for_is_the_limit_if_it_is_in_flight(own, is_limit):
    hit = window.stated_window(own)
    assert (hit is not None) is is_limit
    assert hit is None or (hit.share, hit.end, hit.confidence) == (0.95, "both", "medium")


FLIGHT = 100_000  # bytes in each round trip of 250 ms


def in_flight(*sizes, rtt=0.25, **values):
    steady = tuple(
        Interval(at, at + 1, rate=size * 8 / rtt, rtt=rtt, cwnd=values.pop("cwnds", 10**6))
        for at, size in enumerate(sizes)
    )
    rate = sum(sizes) / len(sizes) * 8 / rtt
    run = {**flows(rate), **values.pop("run", {})}
    rates = tuple(each.rate for each in steady)
    own = {"rate": rate, "rates": rates, "rtt": rtt, "steady": steady, "run": run}
    return looked(**{**own, "held": {"cwnd": 10**6}, **values})


TRIPS = [
    (in_flight(*[FLIGHT] * 3), True),
    (in_flight(*[FLIGHT] * 2), False),
    (in_flight(*[FLIGHT] * 3, rtt=0.002), True),
    (in_flight(*[FLIGHT] * 3, rtt=0.0019), False),
    (in_flight(80_000, 120_000, 80_000, 120_000), True),
    (in_flight(79_000, 121_000, 79_000, 121_000), False),
    (in_flight(*[30 * 1024] * 3), True),
    (in_flight(*[30 * 1024 - 1] * 3), False),
    (in_flight(*[30 * 1024 - 1] * 3, run={"buffer": 9}), True),
    (in_flight(*[60 * 1024 - 1] * 3, run={"streams": 2}), False),
    (in_flight(*[FLIGHT] * 3, run={"congestion": "bbr"}), True),
    (in_flight(*[350_000] * 3, run={"congestion": "bbr"}), True),
    (in_flight(*[351_000] * 3, run={"congestion": "bbr"}), False),
    (
        in_flight(
            *[FLIGHT] * 3, run={"congestion": "bbr"}, held={"cwnd": 10**6, "snd_wnd": 110_000}
        ),
        True,
    ),
    (
        in_flight(
            *[FLIGHT] * 3, run={"congestion": "bbr"}, held={"cwnd": 10**6, "snd_wnd": 120_000}
        ),
        False,
    ),
    (in_flight(*[FLIGHT] * 3, phase={"target": 3.2e6}), False),
]


@pytest.mark.parametrize(("own", "is_window"), TRIPS)
def test_a_constant_amount_in_each_round_trip_is_a_window(own, is_window):
    hit = window.full_window(own)
    assert (hit is not None) is is_window
    assert hit is None or (hit.share, hit.title) == (0.8, "receive or send buffer too small")
    assert window.is_window(own) is (is_window or own.target is not None)


@pytest.mark.parametrize(("room", "end"), [(None, "both"), (117_640, "both"), (117_660, "sender")])
def test_a_window_below_that_of_the_receiver_is_of_the_sender(room, end):
    hit = window.full_window(in_flight(*[FLIGHT] * 3, held={"cwnd": 10**6, "snd_wnd": room}))
    assert hit.end == end


def flat(rate=8e6, cwnd=2e6, **values):
    """A window that stays, of a test that lost nothing."""
    flow = Flow("forward", sent=Total(10.0, rate, rate, retransmits=0))
    held = {"cwnd": cwnd, "flat": True, **values.pop("held", {})}
    run = {"flows": (flow,), **values.pop("run", {})}
    return looked(**{"rate": rate, "rates": (rate,) * 3, "held": held, "run": run, **values})


FLAT = [
    (flat(), 0.8),
    (flat(rates=(8e6, 8e6)), None),
    (flat(held={"flat": False}), None),
    (flat(held={"cwnd": None}), None),
    (flat(run={"flows": (Flow(sent=Total(retransmits=1)),)}), None),
    (flat(rate=94.1e6), None),
    (flat(cwnd=60 * 1024), 0.8),
    (flat(cwnd=60 * 1024 - 1), None),
    (flat(cwnd=60 * 1024 - 1, run={"buffer": 9}), 0.8),
    (flat(cwnd=60 * 1024 - 1, rtt=0.0625), 0.8),
    (flat(rtt=1.6), 0.8),
    (flat(rtt=1.59), None),
    (flat(run={"connections": LAN}), None),
    (flat(phase={"name": "tcp-bidir"}), None),
]


@pytest.mark.parametrize(("own", "share"), FLAT)
def test_a_window_that_stays_is_capped_by_a_buffer(own, share):
    hit = window.full_window(own)
    assert (hit and hit.share) == share
    assert hit is None or (hit.end, hit.confidence) == ("both", "medium")


# --- The path -----------------------------------------------------------------------------------------------------------


def path_look(rate, **values):
    """An unsampled TCP test of four intervals at a constant rate."""
    return looked(
        **{
            "rate": rate,
            "rates": (rate,) * 4,
            "run": {**flows(rate), **values.pop("run", {})},
            **values,
        }
    )


FULL_LINKS = [
    (
        path_look(9.41e8),
        ("high", "info", "941 Mbit/s is all that TCP can carry over 1.00 Gbit/s Ethernet"),
    ),
    (path_look(9.41e8, evidence=EXPECTED), ("high", None, None)),
    (path_look(9.41e8, phase={"target": 1e9}), None),
    (path_look(9.41e8, phase={"target": 2e9}), ("high", None, None)),
    (path_look(9.41e7), ("high", "info", None)),
    (path_look(9.41e8, run={"peer": "::1"}), None),
]


@pytest.mark.parametrize(("own", "wanted"), FULL_LINKS)
def test_a_full_link_is_all_that_tcp_can_carry(own, wanted):
    hit = capacity.path_rate(own)
    assert (hit is None) is (wanted is None)
    if hit is not None:
        assert (hit.share, hit.confidence, hit.severity) == (1.0, *wanted[:2])
        assert wanted[2] in (None, hit.text)


def shaped(*rates, again=0, seconds=1, **values):
    """Rates in Mbit/s of intervals of so many seconds."""
    every = tuple(
        Interval(at * seconds, (at + 1) * seconds, rate * 125e3 * seconds, rate * 1e6, again)
        for at, rate in enumerate(rates)
    )
    flow = Flow("forward", every, Total(len(every), 1e9, retransmits=again))
    mean = sum(rates) / len(rates) * 1e6
    own = {"rate": mean, "rates": tuple(rate * 1e6 for rate in rates[1:]), "steady": every[1:]}
    run = {"flows": (flow,), **values.pop("run", {})}
    return looked(**{**own, "run": run, **values})


BUCKETS = [
    (shaped(600, 200, 200, 200, 200), 0.93),
    (shaped(599, 200, 200, 200, 200), None),
    (shaped(600, 600, 200, 200, 200), 0.93),
    (shaped(320, 70, 70, 70, 70), 0.93),
    (shaped(237.772160, 70, 70, 70, 70), None),  # 20 MiB more, which the buffers hold
    (shaped(237.772161, 70, 70, 70, 70), 0.93),
    (shaped(600, 200), 0.93),
    (shaped(600, 200, 200), 0.93),
    (shaped(900, 200, 200, 200, 401), None),
    (shaped(900, 200, 200, 200, 301), None),
    (shaped(900, 200, 200, 200, 299), 0.93),
    (shaped(900, 200, 700, 200, 200, 200), None),
    (shaped(900, 0, 0, 0, 0, again=1), None),
    (shaped(900, 250, 190, 250, 190, again=9, loss=0.001), 0.93),
    (shaped(900, 290, 150, 290, 150, again=99, loss=0.001), None),
    (shaped(900, 290, 150, 290, 150), 0.93),
]


@pytest.mark.parametrize(("own", "share"), BUCKETS)
def test_a_bucket_is_what_went_out_first(own, share):
    hit = capacity.path_rate(own)
    assert (hit and hit.share) == share
    assert ("a token bucket of that size and rate" in (hit.text if hit else "")) is (share == 0.93)


def steady(rate, spread=0.0, count=4, **values):
    rates = [rate * (1 + spread * (-1) ** at) for at in range(count + 1)]
    return shaped(*(each / 1e6 for each in rates), **{"rate": rate, **values})


CONSTANT = [
    (steady(73e6), 0.75),
    (steady(73e6, count=3), 0.75),
    (steady(73e6, count=2), None),
    (steady(73e6, spread=0.014), 0.75),
    (steady(73e6, spread=0.016), None),
    (steady(0.49e9, spread=0.014), 0.9),
    (steady(87e6, spread=0.014), 0.75),
    (steady(107e6, spread=0.014), None),
    (steady(73e6, run={"connections": LAN}), None),
    (steady(29e6, run={"connections": LAN}), None),
    (steady(29e6, run={"connections": LAN}, held={"cwnd": 1e5}), 0.75),
    (steady(97e6), 0.9),
    (steady(97e6, spread=0.029), 0.9),
    (steady(97e6, spread=0.031), None),
    (steady(19.6e9), None),
    (steady(97e6, again=99, loss=0.001), 0.9),
    (steady(97e6, spread=0.02, again=1, loss=0.001), 0.9),
    (steady(97e6, run={"connections": LAN}, held={"cwnd": 1e4, "flat": True}), None),
    (steady(97e6, held={"cwnd": 1e5, "flat": True}), 0.9),
]


@pytest.mark.parametrize(("own", "share"), CONSTANT)
def test_a_rate_that_nothing_varies_is_limited_on_the_path(own, share):
    hit = capacity.path_rate(own)
    assert (hit and hit.share) == share
    assert hit is None or hit.confidence == "medium"


@pytest.mark.parametrize(("cwnd", "is_long"), [(1.2e6, False), (1.21e6, True)])
def test_what_takes_longer_than_any_path_waits_in_a_queue(cwnd, is_long):
    own = shaped(8, 5, 9, 6, 10, rate=8e6, held={"cwnd": cwnd})
    assert (capacity.path_rate(own) is not None) is is_long


SAMPLED = {"phase": {"sender": (Sample(0.0), Sample(1.0))}}
SHAPER = {"rtt": 0.5, "shortest_rtt": 0.25, **SAMPLED}


def even(rate, spread, **values):
    return looked(
        **{"rate": rate, "rates": (rate * (1 - spread), rate * (1 + spread)), **SHAPER, **values}
    )


QUEUED = [
    (even(7e7, 0.029), (1.0, "high")),
    (even(7e7, 0.031), None),
    (even(7e7, 0.099, low_rtt=0.4), (1.0, "high")),
    (even(7e7, 0.101, low_rtt=0.4), (1.0, "medium")),
    (even(7e7, 0.349, low_rtt=0.4), (1.0, "medium")),
    (even(7e7, 0.351, low_rtt=0.4), None),
    (even(7e7, 0.029, rtt=0.25), None),
    (even(7e7, 0.0, held={"rwnd_limited": 0.25, "sndbuf_limited": 0.0}), (0.75, "high")),
    (even(7e7, 0.0, held={"rwnd_limited": 0.4, "sndbuf_limited": 0.0}), None),
    (even(7e7, 0.0, evidence={"idle": Latency(p50=0.5)}), (1.0, "medium")),
]


@pytest.mark.parametrize(("own", "wanted"), QUEUED)
def test_a_rate_with_a_queue_is_that_of_the_path(own, wanted):
    hit = capacity.path_capacity(own)
    assert (hit and (hit.share, hit.confidence)) == wanted


def linked(rate, speed, spread=0.0, mtu=1500, **values):
    links = (Link("eth0", "physical", mtu=mtu, speed=speed),)
    own = {"evidence": {"local": Host(links=links), **values.pop("evidence", {})}}
    rates = (rate * (1 - spread), rate * (1 + spread))
    return looked(**{"rate": rate, "rates": rates, **SAMPLED, **own, **values})


LINKS = [
    (linked(9.227e8, 1e9), ("high", "info")),
    (linked(9.226e8, 1e9), None),
    (linked(9.41e8, None), ("medium", "info")),
    (linked(9.41e8, None, spread=0.029), ("medium", "info")),
    (linked(9.41e8, None, spread=0.031), None),
    (linked(9.41e8, 1e9, evidence=EXPECTED), ("high", None)),
    (linked(9.5e8, 1e9, mtu=9000), None),
    (linked(9.71e8, 1e9, mtu=9000), ("high", "info")),
]


@pytest.mark.parametrize(("own", "wanted"), LINKS)
def test_a_known_link_is_full_at_98_per_cent(own, wanted):
    hit = capacity.path_capacity(own)
    assert (hit and (hit.confidence, hit.severity)) == wanted
    assert hit is None or hit.share == 1.0


# --- What was lost, and where -------------------------------------------------------------------------------------------


def lost_at(losses, shortest=0.1, rate=1e8, busy=0, **values):
    """A test of ten seconds: {time: (round trip, bytes in flight, segments lost)}; else nothing was lost."""
    samples, again = [], 0
    for time in (at / 10 for at in range(101)):
        rtt, in_flight, lost = losses.get(time, (shortest, 1e6, 0))
        again += int(lost)
        # With segments of one byte.
        socket = Socket(
            mss=1, rtt=round((rtt or 0.0) * 1e6), unacked=int(in_flight), total_retrans=again
        )
        cpus = (Cpu(user=busy * time, idle=(1 - busy) * time),)
        samples.append(Sample(time, (socket,), cpus))
    values["phase"] = {"sender": tuple(samples), **values.get("phase", {})}
    return looked(**{"rate": rate, "shortest_rtt": shortest, **values})


OVERFLOWING = [
    (lost_at({1.0: (0.113, 1e6, 9)}), True),
    (lost_at({1.0: (0.112, 1e6, 9)}), False),
    (lost_at({1.0: (0.0141, 1e6, 9)}, shortest=0.01), True),
    (lost_at({1.0: (0.0139, 1e6, 9)}, shortest=0.01), False),
    (lost_at({1.0: (0.2165, 1e6, 9)}, shortest=0.2), True),
    (lost_at({1.0: (0.2155, 1e6, 9)}, shortest=0.2), False),
    (lost_at({1.0: (0.34, 1e6, 9)}, rate=1e5), False),
    (lost_at({1.0: (0.35, 1e6, 9)}, rate=1e5), True),
    (lost_at({1.0: (0.2, 1e6, 9), 5.0: (0.1, 1e6, 9)}), True),
    (lost_at({1.0: (0.2, 1e6, 9), 5.0: (0.1, 1e6, 9), 8.0: (0.1, 1e6, 9)}), False),
    (lost_at({}), False),
    (lost_at({1.0: (0.2, 1e6, 9)}, shortest=None), False),
]


@pytest.mark.parametrize(("own", "is_full"), OVERFLOWING)
def test_a_queue_overflows_where_round_trips_had_grown(own, is_full):
    if own.shortest_rtt is None:
        own = replace(own, phase=replace(own.phase, sender=lost_at({}).phase.sender))
    assert overflow.overflows(own) is is_full


def test_what_is_lost_within_four_round_trips_is_one_loss():
    every = {1.0: (0.1, 2e6, 5.0), 1.2: (0.1, 1e6, 3.0), 1.3: (0.1, 1e6, 1.0), 1.5: (0.2, 3e6, 7.0)}
    assert overflow.observed_losses(lost_at(every)) == [(0.1, 2e6), (0.2, 3e6)]


@pytest.mark.parametrize(("busy", "confidence"), [(0, "medium"), (1, "low")])
def test_a_queue_that_overflows_is_less_certain_beside_a_full_cpu(busy, confidence):
    held = {"in_flight": 8e5, "cwnd": 1e6}
    own = lost_at({0.5: (0.2, 2e6, 5.0)}, held=held, busy=busy, evidence=EXPECTED, loss=0.001)
    assert overflow.overflowing_queue(own).confidence == confidence


def in_bursts(lost=10, cwnd=1448 * 25, spread=0.0, **values):
    """A test of which each interval of a thousand segments sent so many again."""
    rows = [(1_448_000 * (1 + (spread if at % 2 else -spread)), lost, cwnd) for at in range(4)]
    held = {"cwnd": cwnd}
    return of_run(*rows, loss=lost / 1000, held=held, **values)


BURSTS = [
    (in_bursts(), True),
    (in_bursts(cwnd=1448 * 24), False),
    (in_bursts(lost=9, cwnd=1448 * 99), False),
    (in_bursts(lost=400, cwnd=1448 * 4), True),
    (in_bursts(lost=400, cwnd=1448 * 4 - 1), False),
    (in_bursts(spread=0.149), True),
    (in_bursts(spread=0.151), False),
    (in_bursts(cwnd=1448 * 50, run={"streams": 2}), True),
    (in_bursts(cwnd=1448 * 48, run={"streams": 2}), False),
    (in_bursts(run={"peer": "::1"}), False),
]


@pytest.mark.parametrize(("own", "is_said"), BURSTS)
def test_a_policer_drops_many_together(own, is_said):
    hit = policer.dropped_in_bursts(own)
    assert (hit is not None) is is_said
    assert hit is None or (hit.share, hit.confidence) == (0.89, "medium")


# Rates that were offered and that arrived; the rate of TCP; the plateau of a policer.
PLATEAUS = [
    ([(10, 0), (100, 10)], 0, 90e6),
    ([(10, 0), (100, 2)], 0, 98e6),
    ([(10, 0), (100, 1.9)], 0, None),
    ([(10, 0), (100, 50), (200, 75)], 0, 50e6),
    ([(10, 0), (100, 50), (200, 77.6)], 0, None),
    ([(55, 0), (100, 50)], 0, 50e6),
    ([(56, 0), (100, 50)], 0, None),
    ([(10, 0), (100, 10)], 99e6, 90e6),
    ([(10, 0), (100, 10)], 101e6, None),
    ([(100, 10)], 0, None),
    ([(10, 0)], 0, None),
]


@pytest.mark.parametrize(("ladder", "tcp", "plateau"), PLATEAUS)
def test_datagrams_have_a_plateau(ladder, tcp, plateau):
    tests = [of_udp(round(lost * 100), rate=rate * 1e6 * (1 - lost / 100)) for rate, lost in ladder]
    tests = [offered(test, rate * 1e6) for test, (rate, _) in zip(tests, ladder)]
    faster = [looked(rate=tcp)] if tcp else []
    hit = policer.policed_path(session_of(*faster, *tests))
    assert (hit and hit.share) == (plateau and 0.97)
    assert hit is None or f"never more than {amounts.rate(plateau)}:" in hit.text


def offered(test, rate):
    (flow,) = test.run.flows
    flow = replace(flow, sent=replace(flow.sent, rate=rate))
    return replace(test, phase=replace(test.phase, run=replace(test.phase.run, flows=(flow,))))


def stuck(backoff, acked, **evidence):
    socket = Socket(backoff=backoff, bytes_acked=acked)
    own = looked(rate=1e5, phase={"sender": (Sample(0.0), Sample(1.0, (socket,)))})
    return session_of(own, local=Host(links=(Link("eth0", mtu=9000),)), **evidence)


HOLES = [
    (stuck(2, 999_999), "medium"),
    (stuck(1, 999_999), None),
    (stuck(2, 1_000_000), None),
    (stuck(2, 9, path_mtu=PathMtu(9000)), None),
    (stuck(2, 9, path_mtu=PathMtu(8999)), "high"),
    (stuck(2, 9, path_mtu=PathMtu(8999, None, True)), "medium"),
    (stuck(0, 9, path_mtu=PathMtu(8999)), "high"),
    (stuck(0, 9, path_mtu=PathMtu(8999, None, True)), None),
]


@pytest.mark.parametrize(("session", "confidence"), HOLES)
def test_a_black_hole_holds_large_packets(session, confidence):
    hit = path.black_hole(session)
    assert (hit and hit.confidence) == confidence
    assert hit is None or (hit.share, hit.sysctls) == (1.0, {"net.ipv4.tcp_mtu_probing": "1"})


@pytest.mark.parametrize(("rate", "is_through"), [(8e6, False), (8.1e6, True)])
def test_tcp_may_get_through_a_narrow_path(rate, is_through):
    for direction, sizes in (("forward", (1400, 1500)), ("reverse", (1500, 1400))):
        own = looked(rate=rate, phase={"direction": direction})
        assert path.gets_through(session_of(own, path_mtu=PathMtu(*sizes))) is is_through
        other = looked(
            rate=rate, phase={"direction": "forward" if direction == "reverse" else "reverse"}
        )
        assert not path.gets_through(session_of(other, path_mtu=PathMtu(*sizes)))


# The intervals of a test that stalled, (bytes, segments sent again, window) of each; whether it did.
STALLS = [
    ([(8e4, 2, 1448), (0, 1, 1448), (0, 1, 1448)], True),
    ([(8e4, 0, 1448), (0, 0, 1448), (0, 0, 1448)], False),
    ([(8e4, 2, 1448), (0, 1, 1448), (9, 1, 1448)], False),
    ([(8e4, 2, 9216), (0, 0, 9216), (0, 0, 9216)], True),
    ([(8e4, 2, 9217), (0, 0, 9217), (0, 1, 9217)], True),
    ([(8e4, 2, 9217), (0, 1, 9217), (0, 1, 9217)], True),
    ([(8e4, 2, None), (0, 0, None), (0, 0, None)], True),
    ([(8e4, 2, 1448), (0, 1, 1448)], False),
    ([(8e4, 2, 1448)], False),
]


@pytest.mark.parametrize(("rows", "is_stalled"), STALLS)
def test_a_test_stalls_after_its_first_window(rows, is_stalled):
    hit = path.black_hole(session_of(of_run(*rows, rate=1e5)))
    assert (hit is not None) is is_stalled
    assert hit is None or hit.text.startswith("nothing arrives after the first window")
