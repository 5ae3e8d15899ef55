"""What set-ups of tests/world taught the rules: classes of evidence, with figures of this file's own."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import replace

import pytest
from selftest_runs import diagnose, flow_of, observed, receiver, tcp, udp_phase

from neuca_tools.selftest.evidence import Cpu, Evidence, Latency, Phase
from neuca_tools.selftest.evidence.derive import look_at_phase
from neuca_tools.selftest.evidence.route import OneWay
from neuca_tools.selftest.evidence.run import Connection, Flow, Interval, Run, Total
from neuca_tools.selftest.readers.documents import evidence_of

ROOMY = {"snd_cwnd": 300, "unacked": 200, "snd_wnd": 3_000_000}


def flow(rates, name="tcp", direction="forward", streams=1, **socket) -> Evidence:
    """A test that was sampled, with the rates of each second in Mbit/s; 100 Mbit/s are expected."""
    one = tcp(flow_of(1e6 * sum(rates) / len(rates), **{**ROOMY, **socket}))
    intervals = tuple(Interval(at, at + 1, rate=rate * 1e6) for at, rate in enumerate(rates))
    run = Run("iperf3", protocol="tcp", flows=(Flow(direction, intervals),), streams=streams)
    phase = replace(one.phases[0], name=name, direction=direction, run=run)
    return replace(one, phases=(phase,), expect=100e6)


def beside_others(one: Evidence) -> Evidence:
    """The same while other programs fill the CPU of the sender: iperf uses 2% of it."""
    (phase,) = one.phases
    samples = tuple(
        replace(sample, cpus=(Cpu(user=float(at)),)) for at, sample in enumerate(phase.sender)
    )
    return replace(
        one, phases=(replace(phase, sender=samples, run=replace(phase.run, cpu_local=2.0)),)
    )


def traced(one: Evidence, *round_trips: float) -> Evidence:
    """With round trips in milliseconds, after slow start, ten times a second."""
    begin = one.phases[0].sender[0].time
    values = tuple(value / 1e3 for value in round_trips) * 10
    times = tuple(begin + 3 + at / 10 for at in range(len(values)))
    return observed(one, (begin, *times), rtt=(values[0], *values))


def told(evidence: Evidence) -> list[str]:
    """Of findings and of what is merely possible."""
    found = diagnose(evidence)
    claims = [one for one in found.findings if one.severity != "info"]
    return [one.id for one in (*claims, *found.possible)]


# --- Round trips of busy hosts -------------------------------------------------------------------------------------------


def test_a_queue_delays_the_shortest_round_trips_and_a_busy_host_only_some():
    steady = flow([40, 40.4] * 5, rtt=9_500, min_rtt=2_000, retrans=0.02)
    noisy = beside_others(steady)
    assert told(traced(noisy, 7, 8, 9, 11, 14))[0] == "D18"
    assert told(traced(noisy, 2.4, 2.9, 9, 11, 14))[0] == "D17"


# --- Loss that says nothing ----------------------------------------------------------------------------------------------


def test_loss_of_many_streams_on_a_short_path_is_their_own():
    few = flow(
        [9, 9.5] * 5, name="tcp-parallel", streams=2, rtt=21_000, min_rtt=20_000, retrans=0.2
    )
    assert set(told(few)) & {"D05", "D17"}
    many = replace(few.phases[0], run=replace(few.phases[0].run, streams=64))
    assert not set(told(replace(few, phases=(many,)))) & {"D05", "D17"}


@pytest.mark.parametrize(("unacked", "named"), [(430, False), (1100, True)])
def test_a_send_buffer_is_too_small_if_what_is_in_flight_fills_it(unacked, named):
    """What a paced sender has queued and not sent yet needs no larger one."""
    full = {"sndbuf": 4_000_000, "wmem_queued": 3_900_000, "snd_wnd": 9_000_000}
    one = flow([17, 19] * 5, rtt=153_000, min_rtt=153_000, unacked=unacked, snd_cwnd=1400, **full)
    assert ("D03" in told(one)) is named


@pytest.mark.parametrize(
    ("algorithm", "loss", "named"), [("reno", 0.02, True), ("bbr", 0.02, False), ("bbr", 0.2, True)]
)
def test_bbr_does_not_slow_down_for_a_little_loss(algorithm, loss, named):
    one = flow([5, 9] * 5, rtt=21_000, min_rtt=20_000, retrans=loss, congestion=algorithm)
    assert ("D05" in [each.id for each in diagnose(one).findings]) is named


def test_loss_in_one_direction_does_not_explain_the_other():
    there = flow([30, 30.2] * 5, rtt=40_000, min_rtt=10_000, retrans=0.01)
    back = flow([29, 26] * 5, direction="reverse", rtt=10_500, min_rtt=10_000, retrans=0.01)
    found = diagnose(replace(there, phases=(*there.phases, *back.phases))).findings
    named = {(one.id, one.direction) for one in found if one.severity != "info"}
    assert {("D18", "forward"), ("D17", "reverse")} <= named


def test_bbr_knows_the_rate_of_a_path_whose_queue_it_does_not_fill():
    bbr = {"congestion": "bbr", "rtt": 112_000, "min_rtt": 110_000}
    (found,) = [
        one for one in diagnose(flow([47, 45, 49] * 3, **bbr)).findings if one.severity != "info"
    ]
    assert (found.id, found.confidence) == ("D18", "medium")
    assert found.text == (
        "BBR, which sends what the path delivers, stays within 0.001% of 47.3 Mbit/s without any loss, and nothing of "
        "the hosts limits it: this is the capacity of the path"
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"congestion": "cubic"},  # its window may still grow
        {"retrans": 0.02},  # a policer
        {"rwnd": 0.3},
        {"sndbuf_limited": 0.3},
        {"idle": 0.6},
        {"cpus": (0.99,)},
    ],
)
def test_bbr_says_nothing_if_something_else_may_limit_it(changes):
    bbr = {"congestion": "bbr", "rtt": 112_000, "min_rtt": 110_000, **changes}
    assert "D18" not in told(flow([47, 45, 49] * 3, **bbr))


def test_bbr_whose_rate_varies_waits_for_something_else():
    bbr = {"congestion": "bbr", "rtt": 112_000, "min_rtt": 110_000}
    in_pieces = flow([2.4, 3.6, 3.6, 3.6, 2.4] * 2, **bbr)  # iperf's; the kernel's are the same
    assert told(in_pieces) == ["D18"]
    (phase,) = in_pieces.phases
    counted = (int(450e3 * (at + at % 3)) for at in range(len(phase.sender)))
    samples = tuple(
        replace(sample, sockets=(replace(sample.sockets[0], bytes_acked=count),))
        for sample, count in zip(phase.sender, counted)
    )
    assert told(replace(in_pieces, phases=(replace(phase, sender=samples),))) == []


def bbr_after_loss(share: float, *round_trips: float) -> Evidence:
    """BBR at one rate, which lost this share in its first second, with these round trips in ms while it did."""
    one = flow([47, 46, 47, 46] * 3, congestion="bbr", rtt=112_000, min_rtt=110_000)
    (phase,) = one.phases
    begin = phase.sender[0].time
    extra = round(share * 7e6)
    samples = (phase.sender[0], *(_with_lost(sample, extra) for sample in phase.sender[1:]))
    later = [0.112] * 20
    rtt = [value / 1e3 for value in round_trips] + later
    lost = [50.0] * len(round_trips) + [0.0] * len(later)
    one = replace(one, phases=(replace(phase, sender=samples),))
    times = [begin + at / 20 for at in range(len(rtt))] + [begin + at for at in range(2, 11)]
    more = len(times) - len(rtt)
    return observed(
        one, times, rtt + [0.112] * more, (900_000.0,) * len(times), lost + [0.0] * more
    )


def _with_lost(sample, extra):
    (one,) = sample.sockets
    lost = replace(one, bytes_retrans=extra, bytes_sent=one.bytes_sent + extra)
    return replace(sample, sockets=(lost,))


def test_bbr_that_lost_much_at_first_measured_no_path_unless_a_queue_overflowed():
    assert told(bbr_after_loss(0.7, 111, 114, 113)) == []  # a policer
    assert told(bbr_after_loss(0.7, 111, 165, 168)) == ["D18"]


def test_bbr_measures_no_path_while_it_competes_for_a_cpu():
    one = beside_others(flow([47, 45, 49] * 3, congestion="bbr", rtt=112_000, min_rtt=110_000))
    assert told(one) == ["D18"]
    (phase,) = one.phases
    short = replace(phase, run=replace(phase.run, cpu_local=24.0))
    assert told(replace(one, phases=(short,))) == []


# --- Datagrams in both directions ----------------------------------------------------------------------------------------


def one_way(direction: str, *losses: int, sent: int = 600) -> OneWay:
    return OneWay(direction, 1e6, sent, sent, sum(losses), 0, losses)


def reverse_loss() -> Evidence:
    there = flow([95] * 10, rtt=10_500, min_rtt=10_000)
    back = flow([20, 30] * 5, direction="reverse", rtt=10_500, min_rtt=10_000, retrans=0.03)
    return replace(there, phases=(*there.phases, *back.phases))


def test_loss_at_random_is_seen_by_gentle_datagrams_in_either_direction():
    ways = (one_way("forward", 0, 0, 0, 0, 0), one_way("reverse", 4, 3, 5, 3, 4))
    first = diagnose(replace(reverse_loss(), one_way=ways)).findings[0]
    assert (first.id, first.direction, first.confidence) == ("D19", "reverse", "medium")
    assert first.text.startswith("3.2% is lost even at 1.00 Mbit/s: not a queue that overflows")


def loss_both_ways() -> Evidence:
    there = flow([20, 30] * 5, rtt=10_500, min_rtt=10_000, retrans=0.03)
    return replace(there, phases=(*there.phases, *reverse_loss().phases[-1:]))


def test_what_is_dropped_in_both_directions_is_one_cause_of_both():
    policed = diagnose(loss_both_ways())
    assert told(loss_both_ways()) == ["D17"], policed.findings
    assert policed.limit.direction is None
    assert policed.limit.text.endswith("likewise in the other direction")
    ways = (one_way("forward", 4, 3, 5, 3, 4), one_way("reverse", 4, 3, 5, 3, 4))
    assert told(replace(loss_both_ways(), one_way=ways)) == ["D19"]


def test_what_only_tcp_loses_is_dropped_from_its_bursts():
    ways = (one_way("reverse", 0, 0, 0, 0, 0, sent=4000),)
    first = diagnose(replace(reverse_loss(), one_way=ways)).findings[0]
    assert (first.id, first.direction) == ("D17", "reverse")


@pytest.mark.parametrize(
    ("rates", "algorithm", "is_noise"),
    [([18.6, 18.65], "reno", False), ([18.6, 18.65], "bbr", True), ([15, 21], "reno", True)],
)
def test_a_busy_host_does_not_hide_the_queue_of_a_rate_that_losses_do_not_vary(
    rates, algorithm, is_noise
):
    lossy = flow(rates * 5, rtt=20_000, min_rtt=11_000, retrans=0.003, congestion=algorithm)
    (phase,) = beside_others(lossy).phases
    (there,) = phase.run.flows
    run = replace(phase.run, flows=(replace(there, sent=Total(retransmits=50)),))
    assert bool(look_at_phase(lossy, replace(phase, run=run)).noise) is is_noise


def test_what_a_full_queue_drops_is_not_dropped_from_bursts():
    full = flow([20, 20.1] * 5, direction="reverse", rtt=25_000, min_rtt=10_000, retrans=0.03)
    ways = (one_way("reverse", 0, 0, 0, 0, 0, sent=4000),)
    assert told(replace(full, one_way=ways)) == ["D18"]


def test_a_short_queue_that_drops_fast_datagrams_too_is_no_loss_at_random():
    sent = Total(5.0, bytes=15e6, rate=24e6, datagrams=10_000)
    flow_back = Flow("reverse", (), sent, replace(sent, rate=23e6, lost=300))
    udp = Phase("udp", Run("iperf3", protocol="udp", flows=(flow_back,)), "reverse")
    evidence = replace(reverse_loss(), one_way=(one_way("reverse", *[0] * 5, sent=4000),))
    first = diagnose(replace(evidence, phases=(*evidence.phases, udp))).findings[0]
    assert first.id == "D17"
    assert "evenly sent datagrams 0%: bursts are dropped" in first.text


@pytest.mark.parametrize(
    ("losses", "named"),
    [
        ((1, 1, 0, 1, 1), True),
        ((0, 3, 3, 4, 0), True),  # one of twenty such losses is in so few intervals
        ((0, 4, 0, 0, 0), False),
        ((1, 1, 0, 1), False),
    ],
)
def test_a_few_datagrams_lost_one_by_one_are_enough(losses, named):
    ways = (one_way("forward", 0, 0, 0, 0, 0), one_way("reverse", *losses, sent=300))
    assert ("D19" in told(replace(reverse_loss(), one_way=ways))) is named


def test_more_datagrams_that_arrived_late_than_were_lost_are_no_error():
    ways = (OneWay("reverse", 1e6, 600, 600, 20, 0, (-3000, 5)),)
    assert told(replace(reverse_loss(), one_way=ways))


def test_one_datagram_lost_at_the_start_does_not_speak_against_loss_at_random():
    losses = ((1, 0, 0, 0, 0), (3, 2, 1, 9, 0))
    ladder = []
    for rate, lost in zip((1e6, 5e6), losses):
        phase = udp_phase(rate, rate, rate * (1 - sum(lost) / rate * 11_600 / 5))
        one = phase.run.flows[0]
        each = tuple(Interval(at, at + 1, lost=count) for at, count in enumerate(lost))
        changed = replace(one, intervals=each, received=replace(one.received, lost=sum(lost)))
        ladder.append(replace(phase, run=replace(phase.run, flows=(changed,))))
    there = flow([7, 9] * 5, rtt=10_300, min_rtt=10_000, retrans=0.004)
    ways = (one_way("forward", 1, 0, 2, 0, 3, sent=250),)
    found = replace(there, phases=(*there.phases, *ladder), one_way=ways)
    assert told(found)[0] == "D19"


def test_a_full_queue_beside_it_does_not_hide_loss_at_random():
    """Several streams overflow a queue: they lose far more than the datagrams, but not in bursts."""
    there = flow([20, 30] * 5, rtt=10_300, min_rtt=10_000, retrans=0.01)
    many = traced(
        flow([90, 91] * 5, name="tcp-parallel", streams=2, rtt=30_000, min_rtt=10_000, retrans=0.2),
        *[30] * 10,
    )
    (phase,) = many.phases
    full = losing(many, *[5.0] * len(phase.sender)).phases[0]
    ladder = (udp_phase(1e6, 1e6, 0.99e6), udp_phase(10e6, 10e6, 9.9e6))
    found = diagnose(replace(there, phases=(*there.phases, full, *ladder))).findings[0]
    assert (found.id, found.confidence) == ("D19", "high")


def test_datagrams_lost_in_one_burst_are_those_of_a_busy_sender():
    ways = (one_way("reverse", 0, 19, 0, 0, 0),)
    assert "D19" not in told(replace(reverse_loss(), one_way=ways))


def test_a_policer_below_the_lowest_rate_is_no_loss_at_random():
    slow = replace(flow([0.2, 0.25] * 5, rtt=5_100, min_rtt=5_000, retrans=0.3), expect=2e6)
    ladder = (udp_phase(1e6, 1e6, 0.3e6), udp_phase(0.15e6, 0.15e6, 0.15e6))
    assert told(replace(slow, phases=(*slow.phases, *ladder)))[0] == "D17"


# --- Slow start ----------------------------------------------------------------------------------------------------------


def lossy(*round_trips: float, in_flight: float = 60, **changes) -> Evidence:
    """A long path that is hardly filled between losses; a round trip in ms for each of these, and KiB in flight."""
    socket = {"rtt": 155_000, "min_rtt": 150_000, "retrans": 0.02, **changes}
    one = flow([2.6, 2.7] * 5, **socket)
    each = [(rtt / 1e3, in_flight * 1024, 3) for rtt in round_trips]
    rows = [row for high in each for row in (high, *[(0.151, 50 * 1024, 0)] * 9)]
    rtt, in_flight, retransmits = zip(*rows)
    times = tuple(at / 10 for at in range(len(rows)))
    return observed(one, times, rtt, in_flight, retransmits)


def test_packets_that_waited_before_they_were_lost_overflowed_a_queue():
    found = diagnose(lossy(190, 152, 195, 200)).findings
    named = [one for one in found if one.severity != "info"]
    assert [(one.id, one.confidence) for one in named] == [("D18", "medium")]
    assert named[0].text == (
        "packets are lost after they waited 45.0 ms in a queue, at about 2.66 Mbit/s: this is about the capacity of the path"
    )
    assert told(lossy(152, 153, 195, 151)) == ["D17"]
    assert "D18" not in told(lossy(190, 152, 195, 200, in_flight=2500))  # it carried 100 Mbit/s


def test_heavy_loss_is_not_explained_by_a_few_packets_that_overtook_others():
    counters = {"TcpExt.TCPSACKReorder": (0, 20), "Tcp.OutSegs": (0, 10_000)}
    heavy = flow([20, 24] * 5, rtt=10_300, min_rtt=10_000, retrans=0.3, counters=counters)
    assert told(heavy)[0] != "D39"
    little = flow([20, 24] * 5, rtt=10_300, min_rtt=10_000, retrans=0.004, counters=counters)
    assert told(little)[0] == "D39"


# --- Ends that are slower than the path ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("queued", "named"), [(26_000, "D02"), (3_000, "D18")])
def test_a_slow_reader_with_a_large_buffer_acknowledges_late(queued, named):
    """Most of what is in flight waits for it; its bursts of acknowledgements overflow a short queue."""
    socket = {"rtt": 23_000, "min_rtt": 6_000, "snd_cwnd": 20, "unacked": 20, "retrans": 0.004}
    one = replace(flow([8.1, 8] * 5, **socket), expect=20e6)
    reader = receiver(recv_q=queued, rcvbuf=525_000, bytes_received=1_000_000)
    one = replace(one, phases=(replace(one.phases[0], receiver=reader),))
    assert told(one)[0] == named


@pytest.mark.parametrize(("unacked", "named"), [(50, "D09"), (205, "D18")])
def test_a_sender_that_leaves_its_window_empty_waits_for_its_cpu(unacked, named):
    socket = {"rtt": 12_000, "min_rtt": 1_000, "snd_cwnd": 210, "unacked": unacked}
    one = traced(beside_others(flow([139, 140] * 5, **socket)), *[11] * 10)
    assert told(replace(one, expect=400e6)) == [named]


# --- Queues --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "rtt", "min_rtt", "named"),
    [
        (20, 450_000, 200_000, True),  # 250 ms more on a long path: people notice
        (20, 230_000, 200_000, False),
        (1, 101_000, 1_000, False),  # the ten packets that every queue has to hold
        (100, 101_000, 1_000, True),
    ],
)
def test_a_queue_is_deep_by_what_it_adds_beyond_a_few_packets(rate, rtt, min_rtt, named):
    one = replace(flow([rate] * 10, rtt=rtt, min_rtt=min_rtt), expect=rate * 1e6)
    assert ("D14" in told(one)) is named


def test_a_full_path_is_slow_and_its_queue_comes_second():
    one = flow([30, 30.2] * 5, rtt=70_000, min_rtt=10_000)
    assert told(one) == ["D18", "D14"]


def test_two_packets_of_a_slow_link_are_no_queue():
    """At 5.6 Mbit/s, an acknowledgement of two packets comes 2.2 ms after that of one."""
    policed = flow([5.5, 5.6] * 5, rtt=12_500, min_rtt=10_000, retrans=0.05)
    assert told(policed)[0] == "D17"
    queued = flow([5.5, 5.6] * 5, rtt=16_500, min_rtt=10_000, retrans=0.05)
    assert told(queued)[0] == "D18"
    slow = traced(flow([0.85, 0.86] * 5, rtt=41_000, min_rtt=26_000, retrans=0.04), *[41] * 10)
    assert told(losing(slow, *[1] * len(slow.phases[0].sender)))[0] == "D17"


@pytest.mark.parametrize(("rtt", "named"), [(170_000, "D18"), (162_000, "D17")])
def test_a_queue_on_a_long_path_is_less_than_half_of_a_round_trip(rtt, named):
    assert told(flow([20, 20.4] * 5, rtt=rtt, min_rtt=150_000, retrans=0.01))[0] == named


def test_a_path_whose_queue_is_never_empty_is_never_idle():
    """However much the rate varies by what iperf counts: a slow path carries few of its buffers."""
    slow = replace(flow([0.9, 1.2, 1.0] * 3, rtt=110_000, min_rtt=10_000), expect=1.7e6)
    (found,) = [one for one in diagnose(slow).findings if one.severity != "info"]
    assert (found.id, found.confidence) == ("D18", "medium")
    assert found.text == (
        "packets wait at 1.03 Mbit/s: a queue on the path is never empty, so that this is about its capacity"
    )


def test_on_a_long_path_a_fifth_more_is_a_queue():
    slow = flow([3.6, 2.4, 3.6] * 3, rtt=140_000, min_rtt=114_000)
    probed = replace(slow, idle=Latency(100, 0, 0.114), loaded=Latency(100, 0, 0.135))
    assert told(probed) == ["D18"]
    assert told(replace(probed, loaded=Latency(100, 0, 0.116))) == []  # its own bursts waited


def test_a_deep_queue_costs_no_rate():
    deep = flow([5, 4.9] * 5, direction="reverse", rtt=137_000, min_rtt=20_000)
    there = flow([96, 95] * 5, rtt=21_000, min_rtt=20_000)
    both = diagnose(replace(there, phases=(*there.phases, *deep.phases)))
    assert [one.id for one in both.findings if one.severity != "info"][:2] == ["D18", "D14"]


# --- One direction and the other, one stream and several -----------------------------------------------------------------


def test_what_several_streams_carry_says_nothing_of_the_other_direction():
    window = {"rtt": 62_000, "min_rtt": 62_000, "rwnd": 0.9, "snd_wnd": 3712, "unacked": 2}
    one = flow([0.4] * 10, **window)
    many = flow([90, 91] * 5, name="tcp-parallel", streams=8, rtt=63_000, min_rtt=62_000)
    back = flow([37, 36.8] * 5, direction="reverse", rtt=96_000, min_rtt=62_000)
    all_three = replace(one, phases=(*one.phases, *back.phases, *many.phases))
    assert told(all_three) == ["D01", "D18"]


def test_several_streams_that_fill_a_queue_are_not_policed():
    one = replace(flow([4, 5] * 5, rtt=16_000, min_rtt=14_600, retrans=0.02), expect=26e6)
    assert told(one) == ["D17"]
    many = flow(
        [6.3, 6.2] * 5, name="tcp-parallel", streams=8, rtt=35_000, min_rtt=14_600, retrans=0.14
    )
    assert told(replace(one, phases=(*one.phases, *many.phases)))[0] == "D18"


def test_round_trips_of_packets_that_overtake_others_are_no_queue():
    counters = {"TcpExt.TCPSACKReorder": (0, 9000), "Tcp.OutSegs": (0, 12_000)}
    there = flow([23, 21] * 5, rtt=286_000, min_rtt=200_000, counters=counters)
    back = flow([15, 17] * 5, direction="reverse", rtt=281_000, min_rtt=202_000, retrans=0.005)
    assert told(replace(there, phases=(*there.phases, *back.phases)))[0] == "D39"


def test_packets_that_overtake_others_cost_both_directions():
    counters = {"TcpExt.TCPSACKReorder": (0, 9000), "Tcp.OutSegs": (0, 12_000)}
    there = flow([23, 21] * 5, rtt=286_000, min_rtt=281_000, counters=counters)
    back = flow([15, 17] * 5, direction="reverse", rtt=284_000, min_rtt=281_000, retrans=0.005)
    assert told(replace(there, phases=(*there.phases, *back.phases)))[0] == "D39"


# --- Moments of busy hosts -----------------------------------------------------------------------------------------------


def sent(one: Evidence, *rates: float) -> Evidence:
    """With what was acknowledged in each second after the first two, in Mbit/s."""
    return observed(one, range(len(rates) + 3), sent=(*[30e6] * 3, *[rate * 1e6 for rate in rates]))


def test_a_path_that_had_the_rate_for_a_second_does_not_hold_a_busy_host_back():
    lossy = flow([30, 70] * 5, rtt=10_300, min_rtt=10_000, retrans=0.01)
    moments = (60, 101, 100, 102, 101, 100, 103, 60)
    assert told(sent(beside_others(lossy), *moments)) == []
    assert told(sent(lossy, *moments)) == told(lossy) == ["D17"]
    assert told(sent(beside_others(lossy), 60, 99, 60, 99, 60, 98, 99, 60)) == ["D17"]


def test_a_sender_that_waits_for_a_cpu_has_hardly_anything_in_flight():
    late = {"rtt": 6_700, "min_rtt": 1_000, "snd_cwnd": 208, "snd_wnd": 890_000}
    idle = replace(beside_others(flow([121, 120.8] * 5, unacked=1, **late)), expect=400e6)
    assert told(idle) == ["D09"]
    full = replace(beside_others(flow([121, 120.8] * 5, unacked=70, **late)), expect=400e6)
    assert told(full) == ["D18"]


def test_one_stream_of_a_busy_host_that_had_the_rate_is_not_limited_by_the_path():
    one = sent(beside_others(flow([30, 70] * 5)), *[101] * 7)
    many = flow([95, 96] * 5, name="tcp-parallel", streams=8)
    assert told(replace(one, phases=(*one.phases, *many.phases))) == []
    slow = beside_others(flow([30, 70] * 5))
    assert told(replace(slow, phases=(*slow.phases, *many.phases))) == ["D26"]


def test_a_path_that_had_the_rate_in_slow_start_is_not_slower_for_one_stream_or_direction():
    """Reno's window needs longer than the test to grow back after slow start has filled the queue."""
    slow = flow([58, 60] * 5, rtt=151_000, min_rtt=150_000)
    other = flow([95, 96] * 5, direction="reverse", rtt=151_000, min_rtt=150_000)
    many = flow([95, 96] * 5, name="tcp-parallel", streams=8, rtt=160_000, min_rtt=150_000)
    both = (*other.phases, *many.phases)
    assert told(replace(slow, phases=(*slow.phases, *both))) == ["D27", "D26"]
    grown = observed(slow, range(11), sent=(0, 101e6, *[59e6] * 9))
    assert told(replace(slow, phases=(*grown.phases, *both))) == []


def test_what_a_full_queue_drops_at_the_expected_rate_is_no_fault():
    lossy = traced(flow([60, 80] * 5, rtt=70_000, min_rtt=50_000, retrans=0.004), 52, 80, 79, 81)
    assert told(losing(lossy, 0, 0, 9)) == ["D05"]
    assert told(losing(lossy, 0, 0, 9, sent=101e6)) == []


@pytest.mark.parametrize(
    ("rates", "rtt", "named"), [(95, 80, False), (95, 52, True), (60, 80, True)]
)
def test_what_a_full_queue_drops_is_a_failure_only_below_the_expected_rate(rates, rtt, named):
    lossy = traced(
        flow([rates, rates + 1] * 5, rtt=rtt * 1000, min_rtt=50_000, retrans=0.14), 52, rtt, rtt
    )
    diagnosis = diagnose(losing(lossy, 0, 0, 9))
    assert bool(diagnosis.failures or diagnosis.limit) is named


def test_a_busy_host_makes_no_failure_of_what_a_full_path_drops():
    full = beside_others(flow([95, 95.5] * 5, rtt=30_000, min_rtt=11_000, retrans=0.2))
    diagnosis = diagnose(losing(full, 0, 0, 0, 9))
    assert [one.id for one in diagnosis.findings if one.id == "D18"] == ["D18"]
    assert diagnosis.failures == ()


def losing(one: Evidence, *segments: float, sent=None) -> Evidence:
    """With what was sent again since the sample before, 1.1 MB in flight, and bit/s acknowledged."""
    times = [sample.time for sample in one.phases[0].sender]
    again = (*segments, *[0] * (len(times) - len(segments)))
    rates = [sent] * len(times) if sent else None
    return observed(one, times, None, [1.1e6] * len(times), again, rates)


def test_directions_that_differ_in_a_few_intervals_alone_are_the_same():
    there, back = flow([30, 10]), flow([30, 31], direction="reverse")
    alone = replace(there, phases=(*there.phases, *back.phases))
    assert "D27" in told(alone)
    whole = [
        replace(
            one, run=replace(one.run, flows=(replace(one.run.flows[0], sent=Total(rate=rate)),))
        )
        for one, rate in zip(alone.phases, (29e6, 30e6))
    ]
    assert "D27" not in told(replace(alone, phases=tuple(whole)))


def test_a_test_that_did_not_end_beside_a_full_cpu_proves_no_loss():
    lossy = flow([30, 70] * 5, rtt=30_000, min_rtt=10_000, retrans=0.05, cpus=(0.99,))
    (phase,) = lossy.phases
    assert "D05" in told(lossy)
    late = replace(lossy, phases=(replace(phase, run=replace(phase.run, error="late")),))
    assert "D05" not in told(late)


# --- What is printed -----------------------------------------------------------------------------------------------------


def rows(*cells: str, command: str = "") -> bytes:
    head = [f"$ {command}"] if command else []
    head += ["Connecting to host 192.0.2.9, port 5201"]
    head += ["[ ID] Interval           Transfer     Bandwidth       Retr  Cwnd"]
    lines = [f"[  4]   {at}.00-{at + 1}.00   sec  {cell}" for at, cell in enumerate(cells)]
    return ("\n".join([*head, *lines]) + "\n").encode()


@pytest.mark.parametrize(
    ("local", "remote", "is_local_network", "is_loopback"),
    [
        ("198.51.100.7", "203.0.113.20", False, False),
        ("10.20.0.8", "10.20.0.9", True, False),
        ("127.0.0.1", "127.0.0.2", True, True),
    ],
)
@pytest.mark.parametrize("prefix", ["", "::ffff:"])
def test_an_address_of_ipv4_may_be_written_as_one_of_ipv6(
    prefix, local, remote, is_local_network, is_loopback
):
    """A server that listens on :: prints mapped addresses (RFC 4291, section 2.5.5.2)."""
    ends = (Connection(prefix + local, 41000, prefix + remote, 5201),)
    run = Run("iperf3", connections=ends)
    assert (run.is_local_network, run.is_loopback) == (is_local_network, is_loopback)


def test_a_block_less_than_what_was_asked_for_is_as_asked():
    cells = ["256 KBytes  2.10 Mbits/sec    0   64.0 KBytes"] * 5
    cells += ["128 KBytes  1.05 Mbits/sec    0   64.0 KBytes"]
    assert told(evidence_of(rows(*cells, command="iperf3 -c 192.0.2.9 -b 2m"))) == []


def test_a_sender_without_a_summary_tells_what_it_offered():
    head = "$ iperf3 -u -l8K -b8G -c 192.0.2.9\n[ ID] Interval           Transfer     Bandwidth       Total Datagrams\n"
    text = head + "".join(
        f"[  4]   {at}.00-{at + 1}.00   sec   477 MBytes  4.00 Gbits/sec  6105{at}\n"
        for at in range(6)
    )
    assert told(evidence_of(text.encode())) == ["D20"]


def test_rows_with_lost_datagrams_are_those_of_udp():
    text = "".join(
        f"[  5] {at}.00-{at + 10}.00 sec  596 MBytes  500 Mbits/sec  0.005 ms  {at // 7}/431000 (0%)\n"
        for at in range(100, 150, 10)
    )
    (phase,) = evidence_of(text.encode()).phases
    assert phase.run.protocol == "udp"
    assert told(evidence_of(text.encode())) == []


def test_a_rate_that_is_exceeded_now_and_then_is_no_shapers():
    text = "Client connecting to 192.0.2.9, TCP port 5001\n" + "".join(
        f"[  3]  {at}.0- {at + 1}.0 sec  {rate / 8.59:.2f} GBytes  {rate} Gbits/sec\n"
        for at, rate in enumerate((19.3, 20.4, 19.5, 20.2, 19.2, 20.3, 19.6))
    )
    assert told(evidence_of(text.encode())) == []


# --- Readers -------------------------------------------------------------------------------------------------------------


def test_a_connection_that_is_being_closed_does_not_hide_the_others_figures():
    one = flow([20] * 10, rtt=50_000, min_rtt=50_000, rwnd=0.9, snd_wnd=125_000, unacked=86)
    (phase,) = one.phases
    last = phase.sender[-1]
    closing = replace(
        last.sockets[0], mss=None, busy_time=None, rwnd_limited=None, bytes_acked=None
    )
    late = replace(last, time=last.time + 1, sockets=(closing,))
    ended = replace(one, phases=(replace(phase, sender=(*phase.sender, late)),))
    assert told(ended)[0] == told(one)[0] == "D01"


def test_late_answers_of_programs_are_no_queue_of_the_path():
    one = replace(
        flow([95] * 10, rtt=10_300, min_rtt=10_000),
        idle=Latency(100, 0, 0.060),
        loaded=Latency(100, 0, 0.400),
    )
    assert told(one) == []
