"""Two values around each threshold of the self-test: those that its manual pages publish, and those of what hosts counted."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest
from selftest_runs import (
    HELD,
    bbr_flow,
    beside_others,
    diagnose,
    flow_of,
    lossy_datagrams,
    receiver,
    tcp,
    traced,
    udp_phase,
)
from test_selftest_printed import (
    EVEN,
    LAN,
    ONE_THREAD,
    STEADY_RATES,
    UNEVEN,
    WAN,
    document,
    of_bbr,
    of_streams,
    text,
    totals_of_datagrams,
    udp,
)

from neuca_tools.selftest.codes import ExitCode
from neuca_tools.selftest.diagnosis.compare import compare
from neuca_tools.selftest.evidence import Cpu, Evidence, Host, Link, Phase, Sample
from neuca_tools.selftest.evidence.route import OneWay
from neuca_tools.selftest.evidence.run import Flow, Interval, Run, Total
from neuca_tools.selftest.mesh.model import MeshHost, MeshPlan, Row
from neuca_tools.selftest.mesh.observe import observe_tests
from neuca_tools.selftest.mesh.schedule import make_plan
from neuca_tools.selftest.readers.documents import evidence_of

PAGES = Path(__file__).parents[2] / "docs" / "man"
LOOPBACK = ("127.0.0.1", "127.0.0.1")
NO_TOTAL = Total()
QUIET = {"rtt": 1_000, "min_rtt": 900, "snd_cwnd": 300, "unacked": 200, "snd_wnd": 3_000_000}
GROWING = [2000 + 90 * at for at in range(10)]


def said(evidence) -> str:
    """The findings, the guesses and the failures, and whether the first test passed."""
    if isinstance(evidence, str):
        evidence = evidence_of(evidence.encode())
    found = diagnose(evidence)
    ids = [f"{one.id} {one.severity}" for one in found.findings]
    ids += [f"{one.id} possible" for one in found.possible]
    passed = [f"passed {phase.passed}" for phase in found.phases[:1]]
    return "; ".join([*ids, *found.failures, *passed])


def expected(rate, content):
    return replace(evidence_of(content.encode()), expect=rate)


def both_at_once(rate):
    flows = tuple(Flow(way, received=Total(10.0, rate=rate)) for way in ("forward", "reverse"))
    phase = Phase("tcp-bidir", Run("iperf3", protocol="tcp", flows=flows))
    return Evidence(phases=(phase,), expect=100e6)


def one_flow(*intervals, sent=NO_TOTAL, received=NO_TOTAL, protocol="tcp"):
    flow = Flow("forward", intervals, sent, received)
    return Evidence(phases=(Phase(protocol, Run("iperf3", protocol=protocol, flows=(flow,))),))


def stalled(first):
    return text([first, 0, 0, 0, 0], [1.43] * 5, [2, 2, 0, 1, 0], WAN, summary=False)


def paused(seconds):
    ends = (0, 1, 1 + seconds, 2 + seconds)
    rates = (640e6, 0.0, 640e6)
    return one_flow(*(Interval(*at, rate=rate) for *at, rate in zip(ends, ends[1:], rates)))


def sent_again(share, rate, count):
    """Retransmits in each of `count` seconds at this rate in Mbit/s."""
    return [round(share * rate * 1e6 / 8 / 1448)] * count


def varied(rate, part, **more):
    return text([rate * (1 - part), rate * (1 + part)] * 5, **more)


def window_of(seconds, rate):
    """KBytes of a window that takes so long at this rate in Mbit/s."""
    return round(seconds * rate * 1e6 / 8 / 1024, 2)


def policed(loss=0.02, part=0.02, window=60):
    return varied(15, part, cwnds=[window] * 10, retransmits=sent_again(loss, 15, 10), ends=WAN)


def slow_datagrams(rate):
    return (
        totals_of_datagrams(0.12, 0.04)
        .replace("0.9 Mb", f"{rate:.2f} Mb")
        .replace("1.0 Mb", f"{rate / 0.88:.2f} Mb")
    )


def busy(own):
    """A slow test while a CPU is full, of which iperf used so much, as it counts itself."""
    return beside_others(tcp(flow_of(95e6, **QUIET)), own / 100)


def overlay(rate):
    """A VXLAN without offloads over a path that carries 6 Gbit/s."""
    over, under = (
        tcp(flow_of(each, **QUIET), path=name)
        for each, name in ((rate, "overlay"), (6e9, "underlay"))
    )
    offloads = {"tx-udp_tnl-segmentation": False}
    links = (
        Link("eth1", "physical", mtu=9000),
        Link("vx0", "vxlan", "eth1", 8950, offloads=offloads),
    )
    return replace(over, phases=(*over.phases, *under.phases), local=Host(links=links))


def bbr_window(flights):
    content = document(STEADY_RATES, [36.6] * 8, cwnd=int(flights * 217.8e3))
    return of_bbr(content)


def bbr_loss(share):
    rates = [47.9, 44.2, 48.6, 46.1, 49.4, 45.8, 48.1, 46.7]
    return of_bbr(text(rates, [420] * 8, sent_again(share, 47.1, 8), WAN))


def duplicated(share):
    sent = Total(10.0, 1.25e7, 1e7, datagrams=8633)
    received = replace(sent, bytes=1.25e7 * (1 + share), rate=1e7 * (1 + share), lost=0)
    return one_flow(sent=sent, received=received, protocol="udp")


def fast(rate, part=0.2):
    rates = [rate * (1 - part), rate * (1 + part)] * 5
    return text(rates, GROWING, [3, 0] * 5, ("a", "b"))


def lost_slowly(share):
    return Evidence(one_way=(OneWay("forward", 1e6, 10_000, 10_000, round(share * 10_000), 0, ()),))


def steady(rate, window=None, **more):
    return text([rate] * 8, [window] * 8 if window else None, **more)


def even(rate):
    return steady(rate, 300)


def sent_and_received(share):
    return Evidence(phases=(udp_phase(1e8, share * 1e8, share * 1e8),))


def datagrams(share):
    return Evidence(phases=(udp_phase(1e8, 1e8, share * 1e8),))


def lost(share):
    return text(UNEVEN, ends=WAN, total=sum(sent_again(share, 300, 10)))


def loopback(rate):
    again = sent_again(0.03, rate, 10)
    return varied(rate, 0.2, cwnds=[300] * 10, retransmits=again, ends=LOOPBACK)


def streams(count, rate):
    rates = [each * rate for each in EVEN]
    return of_streams(rates, count, 3, sent_again(0.01, rate, 10))


def one_thread(rate):
    return ONE_THREAD.replace("34.1", f"{rate:.1f}")


def queued_for(seconds, rate, ends=LAN):
    return steady(rate, window_of(seconds, rate), ends=ends)


def bucket(rate):
    windows = [400 + 60 * at for at in range(11)]
    return text([950] + [rate * each for each in EVEN], windows, ends=WAN)


def long_queue(seconds):
    windows = [window_of(seconds, 3.25) + at for at in range(8)]
    return text([3, 4, 3.5, 2.5] * 2, windows, ends=WAN)


def slow_sender(loss):
    return "$ iperf3 -u -c x -b 100M\n" + udp([11.2 * (1 - loss)] * 6, [11.2] * 6)


# What the page says; what is judged, by a value; two values, and what is said of the second alone.
THRESHOLDS = [
    ("TCP passes with 90% of it", lambda v: expected(1e8, even(v)), 89.5, 90.1, "passed True"),
    ("both directions at once with 70% of twice", both_at_once, 69.5e6, 70.1e6, "passed True"),
    ("UDP with 80% of the rate", sent_and_received, 0.795, 0.801, "passed True"),
    ("2% of the datagrams,", datagrams, 0.981, 0.979, "2.1% of the datagrams"),
    ("1% of those sent slowly", lost_slowly, 0.0099, 0.0101, "1.0% of slowly sent datagrams"),
    ("2% of the segments of TCP", bbr_loss, 0.0195, 0.0205, "of the segments to the peer were"),
    ("2% of datagrams that arrived twice", duplicated, 0.0198, 0.0202, "arrived twice"),
    ("the first window of at most 4 MiB", stalled, 34, 33, "D21 fault"),
    ("two seconds or more without data", paused, 1.95, 2.0, "for 2.00 s nothing was transferred"),
    ("iperf and the softirqs used at least 40% of it", busy, 39.5, 40.1, "D09 limit"),
    ("a rate of 90 to 95% of an Ethernet speed", even, 893, 897, "D18 info"),
    ("a rate of 90 to 95% of an Ethernet speed", even, 957, 953, "D18 info"),
    ("(up to 100% from 10 Gbit/s on)", even, 10_100, 10_000, "D18 info"),
    ("0.45% of the segments were lost", lost, 0.0044, 0.0046, "D05 limit"),
    ("a loopback at more than 500 Mbit/s", loopback, 510, 490, "D05 limit"),
    ("four or more streams at more", lambda v: streams(4, v), 10_100, 9_700, "D05 limit"),
    ("four or more streams at more", lambda v: streams(v, 10_100), 4, 3, "D05 limit"),
    ("Policer (D17): at least 1%", lambda v: policed(loss=v), 0.0095, 0.0105, "D17 limit"),
    ("varies by less than 15%", lambda v: policed(part=v), 0.154, 0.148, "D17 limit"),
    ("at least twice the average", lambda v: policed(window=v), 24, 25.5, "D17 limit"),
    ("below 30 Mbit/s", lambda v: steady(v, 610, command="-w 2M -c x"), 30.1, 29.8, "D01 limit"),
    ("a window below 2 MiB", lambda v: steady(170, v), 2000, 2060, "D01 limit"),
    ("varies by 5%", lambda v: varied(170, v, cwnds=[3000] * 10), 0.053, 0.048, "D01 limit"),
    ("at more than 10 Gbit/s", lambda v: steady(v, 9000, ends=WAN), 10_100, 8_900, "D01 limit"),
    ("less than 60 KiB", lambda v: steady(14, v, ends=WAN), 59, 61, "D01 limit"),
    ("unless it is three times the data in flight", bbr_window, 2.8, 3.0, "D01 limit"),
    ("Losses of less than 10% do not limit it", bbr_loss, 0.098, 0.102, "D05 limit"),
    ("98% of a CPU", lambda v: text(UNEVEN, cpu=(9, v), ends=LOOPBACK), 97.5, 98.1, "D09 limit"),
    ("70% next to the softirqs", lambda v: text(UNEVEN, cpu=(9, v)), 69.5, 70.1, "D09 limit"),
    ("of more than 30 Mbit/s", lambda v: queued_for(0.004, v), 29.5, 30.2, "D09 limit"),
    ("holds 1 ms at least", lambda v: queued_for(v, 412), 0.00095, 0.00105, "D09 limit"),
    ("and less than 10 ms", lambda v: queued_for(v, 412), 0.0105, 0.0099, "D09 limit"),
    ("a rate of more than 10 Gbit/s that varies by 5%", fast, 9_800, 10_150, "D09 limit"),
    ("that varies by 5%", lambda v: fast(15_000, v), 0.048, 0.052, "D09 limit"),
    ("that carry 25 to 60 Gbit/s", one_thread, 24.7, 25.6, "D09 limit"),
    ("that carry 25 to 60 Gbit/s", one_thread, 60.4, 59.5, "D09 limit"),
    ("varies by less than 1.5%", lambda v: varied(33.5, v, ends=WAN), 0.018, 0.012, "D18 limit"),
    ("below 100 Mbit/s", lambda v: steady(v, ends=WAN), 107, 87, "D18 limit"),
    ("by less than 3%", lambda v: varied(48.9, v, ends=WAN), 0.033, 0.028, "D18 limit"),
    ("at least 1 ms of it", lambda v: queued_for(v, 48.9), 0.00095, 0.00105, "D18 limit"),
    ("falls to a third or less", bucket, 270, 260, "D18 limit"),
    ("more than 1.2 seconds of the rate", long_queue, 1.15, 1.22, "D18 limit"),
    ("of at most 10 Mbit/s and of one direction", slow_datagrams, 10.2, 9.9, "D19 fault"),
    ("up to 20%", lambda v: totals_of_datagrams(v, 0.04), 0.204, 0.197, "D19 fault"),
    ("a quarter of a second", lambda v: totals_of_datagrams(0.12, v), 0.26, 0.24, "D19 fault"),
    ("If 1% or more of them are lost", slow_sender, 0.011, 0.0098, "D20 limit"),
    ("reaches less than 70% of the baseline", overlay, 4.25e9, 4.15e9, "D24 limit"),
]


def page(name) -> str:
    lines = (PAGES / name).read_text(encoding="utf-8").splitlines()
    return " ".join(line for line in lines if not re.match(r"\.\w", line))


@pytest.mark.parametrize(("words", "judged", "without", "value", "wanted"), THRESHOLDS)
def test_a_verdict_changes_where_the_manual_says(words, judged, without, value, wanted):
    assert words in page("neuca-selftest.1")
    assert wanted not in said(judged(without))
    assert wanted in said(judged(value))


# --- Thresholds of what the hosts counted -------------------------------------------------------------------------------

LONG = {"rtt": 100_000, "min_rtt": 100_000, "snd_wnd": 3_144_960, "snd_cwnd": 2300}
PACED = {"rtt": 101_000, "min_rtt": 100_000, "snd_wnd": 162_000}


def received(limited, flight=0.99):
    sender = flow_of(250e6, rwnd=limited, unacked=round(flight * 2171), **LONG)
    return tcp(sender, receiver(recv_q=0, rcvbuf=6_291_456))


def paced(limited=0.28, window=1.6, flight=0.95):
    sizes = {"unacked": round(flight * 112), "snd_cwnd": round(window * 112)}
    sender = flow_of(12.8e6, rwnd=limited, **PACED, **sizes)
    return tcp(sender, receiver(recv_q=0, rcvbuf=262_144))


def read_late(seconds, fill=0.7):
    size = round(seconds * 125e6)
    window = {"rtt": 50_000, "min_rtt": 50_000, "snd_wnd": 200_000, "snd_cwnd": 130, "unacked": 130}
    sender = flow_of(1e9, rwnd=0.6, **window)
    return tcp(sender, receiver(recv_q=size, rcvbuf=round(size / fill)))


def read_slowly(seconds):
    """Most of what is in flight waits to be read, in a buffer that is far from full."""
    times = {"rtt": 5_000, "min_rtt": 5_000}
    sender = flow_of(1e9, snd_cwnd=2000, unacked=1000, snd_wnd=8_000_000, **times)
    return tcp(sender, receiver(recv_q=round(seconds * 125e6), rcvbuf=20_000_000))


def lossy(loss=0.001, limited=0.0):
    window = {"rtt": 64_000, "min_rtt": 50_000, "snd_cwnd": 100, "unacked": 90}
    return tcp(flow_of(45e6, rwnd=limited, retrans=loss, snd_wnd=3_000_000, **window))


def queue(rtt, shortest, rate=95.4e6, loss=0.0):
    times = {"rtt": round(rtt * 1e6), "min_rtt": round(shortest * 1e6)}
    window = {"snd_cwnd": 1600, "unacked": 1500, "snd_wnd": 30_000_000}
    return tcp(flow_of(rate, retrans=loss, **times, **window))


def counted(at_receiver=True, **counters):
    grown = {name.replace("__", "."): (0, round(count)) for name, count in counters.items()}
    own = {"Tcp.RetransSegs": (0, 100), **({} if at_receiver else grown)}
    sender = flow_of(900e6, retrans=0.01, counters=own, **QUIET)
    return tcp(sender, receiver(grown if at_receiver else None))


def beside(share):
    """Of 60 MB, the part that another device than the planned one sent."""
    grown = {
        "eth0.tx_bytes": (0, round(share * 6e7)),
        "eth1.tx_bytes": (0, round(6e7 - share * 6e7)),
    }
    links = (Link("eth0", "physical", mtu=1500), Link("eth1", "physical", mtu=1500))
    return tcp(flow_of(47.8e6, counters=grown, **QUIET), local=Host(links=links, planned="eth1"))


def two(rate, other, **what):
    first, second = tcp(flow_of(rate, **QUIET)), tcp(flow_of(other, **QUIET), **what)
    return replace(first, phases=(*first.phases, *second.phases))


def together(share):
    alone, both = tcp(flow_of(940e6, **QUIET)), both_at_once(share * 940e6)
    return replace(alone, phases=(*alone.phases, *both.phases))


def stolen(share):
    cpus = [Cpu(user=at / 2, idle=at / 2 - share * at, steal=share * at) for at in range(11)]
    return tcp(tuple(Sample(float(at), cpus=(cpu,)) for at, cpu in enumerate(cpus)))


def udp_drops(share):
    drops = {"Udp.RcvbufErrors": (0, round(share * 8632))}
    return Evidence(phases=(udp_phase(1e8, 1e8, 9e7, drops),))


def sent(share):
    return Evidence(phases=(udp_phase(1e8, share * 1e8, share * 1e8),))


def ladder(level):
    rates = ((50e6, 50e6), (200e6, 96.7e6), (300e6, level * 96.7e6))
    return Evidence(phases=tuple(udp_phase(asked, asked, got) for asked, got in rates))


def lost_over(trip, grown):
    """Packets were lost whose round trip had grown by so many seconds."""
    usual = {"rtt": round(trip * 1e6), "min_rtt": round(trip * 1e6)}
    slow = tcp(flow_of(160e6, retrans=0.001, **{**HELD, **usual}), expect=1e10)
    return traced(slow, {0.5: (trip + grown, 4e6, 300.0)})


def some_queued(count):
    """Of nine times at which packets were lost, so many with a queue."""
    losses = {at + 0.0: (0.13 if at <= count else 0.1, 2.2e6, 40.0) for at in range(1, 10)}
    return traced(tcp(flow_of(160e6, retrans=0.001, **HELD), expect=1e9), losses)


def waiting(share):
    """So much of the congestion window in flight, while other programs fill the CPU."""
    window = {**QUIET, "unacked": round(share * 300)}
    return beside_others(tcp(flow_of(95e6, **window), expect=1e9), 0.05)


def queued(share, in_flight=0.5, full=11):
    """So much of the send buffer is in use, so much of it in flight, in the first samples."""
    buffer = 4_194_304
    window = {**LONG, "snd_wnd": 30_000_000, "snd_cwnd": 9000, "sndbuf": buffer}
    window.update(unacked=round(in_flight * buffer / 1448), app_limited=True)
    first = tcp(flow_of(160e6, wmem_queued=round(share * buffer), **window)).phases[0].sender
    others = tcp(flow_of(160e6, wmem_queued=0, **window)).phases[0].sender
    return tcp((*first[:full], *others[full:]))


def starved(share):
    """Little in flight, and nothing queued."""
    queue = {"app_limited": True, "wmem_queued": 0, "sndbuf": 4_194_304}
    return tcp(flow_of(95e6, **{**QUIET, **queue, "unacked": round(share * 300)}))


def lost_back(losses, by_tcp=0.02):
    """Datagrams from the peer are lost, so many in each second, and this share of the segments."""
    alone = tcp(flow_of(45e6, retrans=by_tcp, **QUIET), direction="reverse")
    datagrams = (lossy_datagrams([0] * 10), lossy_datagrams(losses, "reverse"))
    return replace(alone, phases=(*alone.phases, *datagrams))


def in_seconds(count):
    """Some twenty datagrams lost within so many of ten seconds."""
    return lost_back([20 // count] * count + [0] * (10 - count))


# Which bound of a rule; what is judged, by a value; two values, and what is said of the second alone.
COUNTED = [
    (
        "the share of the time that the receiver's window was full",
        received,
        0.39,
        0.41,
        "D01 limit",
    ),
    ("what fills the receiver's window", lambda v: received(0.8, v), 0.89, 0.905, "D01 limit"),
    ("the same of a paced sender", paced, 0.145, 0.155, "D01 limit"),
    ("how much larger its own window is", lambda v: paced(window=v), 1.18, 1.22, "D01 limit"),
    ("what such a sender has in flight", lambda v: paced(flight=v), 0.73, 0.76, "D01 limit"),
    (
        "the share of the time that the send buffer was full",
        lambda v: tcp(
            flow_of(
                301e6,
                sndbuf_limited=v,
                sndbuf=4_194_304,
                unacked=2600,
                snd_cwnd=9000,
                rtt=100_000,
                min_rtt=100_000,
                snd_wnd=30_000_000,
            )
        ),
        0.19,
        0.21,
        "D03 limit",
    ),
    (
        "the share of the time without data",
        lambda v: tcp(flow_of(4e7, idle=v, **QUIET)),
        0.49,
        0.51,
        "D04 limit",
    ),
    ("how long data waits for its reader", read_late, 0.0019, 0.0021, "D02"),
    ("how much of the buffer does", lambda v: read_late(0.015, v), 0.49, 0.51, "D02"),
    ("how long a busy host may be late", read_slowly, 0.0088, 0.0092, "D02"),
    ("the loss that slows no sender down", lossy, 0.95e-5, 1.1e-5, "D05 limit"),
    ("the time that is left to the network", lambda v: lossy(limited=v), 0.21, 0.19, "D05 limit"),
    ("the round trip of a queue", lambda v: queue(v * 0.009, 0.009), 1.49, 1.52, "D18 limit"),
    ("the same on a long path", lambda v: queue(0.1 + v, 0.1, 75e6), 0.0155, 0.0165, "D18 limit"),
    ("that of a policer", lambda v: queue(v * 0.02, 0.02, 51e6, 0.003), 1.22, 1.19, "D17 limit"),
    ("a bloated queue by its part", lambda v: queue(v * 0.009, 0.009), 4.95, 5.05, "D14"),
    ("and by its time", lambda v: queue(v + 0.0005, 0.0005), 0.0195, 0.0205, "D14 limit"),
    ("and a deep one", lambda v: queue(v + 0.0005, 0.0005), 0.0995, 0.1005, "D14 fault"),
    (
        "the use of a CPU that is full",
        lambda v: tcp(flow_of(2e9, cpus=(0.1, v), **QUIET)),
        0.94,
        0.955,
        "D09 limit",
    ),
    ("the time that a hypervisor takes", stolen, 0.048, 0.053, "D10"),
    ("the drops that cost the rate", lambda v: counted(softnet__dropped=v), 8, 12, "D13 fault"),
    (
        "the packets that overtake others",
        lambda v: counted(False, Tcp__OutSegs=1e5, TcpExt__TCPSACKReorder=v),
        97,
        103,
        "D39",
    ),
    ("the bytes that leave elsewhere", beside, 0.498, 0.505, "D29 fault"),
    (
        "the gain of several streams",
        lambda v: two(224e6, v * 224e6, name="tcp-parallel"),
        1.48,
        1.52,
        "D26 limit",
    ),
    (
        "the difference of the directions",
        lambda v: two(940e6, 940e6 / v, direction="reverse"),
        1.28,
        1.32,
        "D27 limit",
    ),
    ("the sum of both directions", together, 0.705, 0.695, "D28 limit"),
    ("the losses that a counter explains", udp_drops, 0.49, 0.51, "D07 fault"),
    ("the rate that a sender of datagrams offers", sent, 0.955, 0.945, "D20"),
    ("the plateau of a policer", ladder, 0.89, 0.91, "D17 limit"),
    ("how full the send buffer has to be", queued, 0.65, 0.68, "D03 limit"),
    ("how much of it in flight", lambda v: queued(0.8, v), 0.24, 0.26, "D03 limit"),
    ("in how many samples", lambda v: queued(0.8, full=v), 6, 7, "D03 limit"),
    ("what a starved sender has in flight", starved, 0.51, 0.49, "D04 limit"),
    ("the loss of segments by chance", lambda v: lost_back([3] * 10, v), 9.5e-4, 1.2e-3, "D19"),
    ("that of datagrams", lambda v: lost_back([2] * 7 + [1] * v), 3, 4, "D19"),
    ("in how many seconds", in_seconds, 5, 6, "D19"),
    ("the queue of a loss, by its part", lambda v: lost_over(0.1, v), 0.012, 0.013, "D18 limit"),
    ("the least of it", lambda v: lost_over(0.01, v), 0.0038, 0.0042, "D18 limit"),
    ("the most of it", lambda v: lost_over(0.2, v), 0.0155, 0.0165, "D18 limit"),
    ("how often there has to be one", some_queued, 4, 5, "D18 limit"),
    ("what BBR may lose", lambda v: bbr_flow(retrans=v), 1.1e-4, 0.9e-4, "D18 limit"),
    ("how long a window limits BBR", lambda v: bbr_flow(rwnd=v), 0.155, 0.145, "D18 limit"),
    ("what BBR has in flight", lambda v: bbr_flow(unacked=v), 685, 695, "D18 limit"),
    (
        "how much of its window",
        lambda v: bbr_flow(snd_cwnd=2000, unacked=v),
        490,
        505,
        "D18 limit",
    ),
    ("a CPU shared with others", lambda v: beside_others(bbr_flow(), v), 0.11, 0.09, "D18 limit"),
    ("what waits for a CPU", waiting, 0.26, 0.24, "D09 limit"),
]


@pytest.mark.parametrize(("bound", "judged", "without", "value", "wanted"), COUNTED)
def test_a_verdict_changes_at_a_bound_of_its_rule(bound, judged, without, value, wanted):
    assert wanted not in said(judged(without)), bound
    assert wanted in said(judged(value)), bound


# --- What is compared with other tests ----------------------------------------------------------------------------------


def rate(value) -> Evidence:
    return tcp(flow_of(value * 1e6))


@pytest.mark.parametrize(
    ("words", "before", "alike", "worse"),
    [
        ("more than 10% below that median", [*map(rate, (999, 1000, 1001))], rate(905), rate(895)),
        ("(20% for fewer than three tests)", [rate(1000)] * 2, rate(805), rate(795)),
        (
            "three times the median absolute deviation",
            [*map(rate, (900, 1000, 1100))],
            rate(705),
            rate(695),
        ),
        (
            "more than one percentage point above",
            [datagrams(0.995)],
            datagrams(0.986),
            datagrams(0.984),
        ),
    ],
)
def test_a_test_is_worse_than_earlier_ones_where_the_manual_says(words, before, alike, worse):
    assert words in page("neuca-selftest.1")
    assert compare(before, alike).exit_code == ExitCode.PASS
    assert compare(before, worse).exit_code == ExitCode.WORSE


@pytest.mark.parametrize(
    ("words", "usual", "good", "bad"),
    [
        ("three times that and 1%", {"loss_out": 0.01}, {"loss_out": 0.039}, {"loss_out": 0.041}),
        ("2 ms", {"rtt": 0.001}, {"rtt": 0.0049}, {"rtt": 0.0051}),
        ("10 ms", {"jitter": 0.01}, {"jitter": 0.039}, {"jitter": 0.041}),
        ("below 80%", {"rate_out": 1e9}, {"rate_out": 0.81e9}, {"rate_out": 0.79e9}),
    ],
)
def test_a_test_of_a_mesh_is_bad_where_the_manual_says(words, usual, good, bad):
    assert words in page("neuca-selftest-mesh.1")
    hosts = [MeshHost(name, f"10.0.0.{at}", {}) for at, name in enumerate("abc", 1)]
    plan = make_plan(MeshPlan(hosts, (), 1e9))
    for values, is_bad in ((good, False), (bad, True)):
        rows = [Row(0, "a", "b", **usual)] * 4 + [Row(0, "a", "c", **values)]
        observed = chain(*observe_tests(plan, rows).values())
        assert [each.test for each in observed if each.is_bad] == [4] * is_bad
