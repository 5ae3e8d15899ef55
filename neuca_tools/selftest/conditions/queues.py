"""D11 to D14, D17, D18, D39: queues of hosts and paths that drop, delay or limit, and packets that overtake each other."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.base import (
    FAULT,
    HIGH,
    INFO,
    LIMIT,
    LOW,
    MEDIUM,
    Hit,
    PhaseRule,
    Session,
    SessionRule,
    fact,
    links_of,
)
from neuca_tools.selftest.conditions.causes import BLOAT, DROPS
from neuca_tools.selftest.conditions.predict import goodput, line_of, mathis, round_rate
from neuca_tools.selftest.conditions.thresholds import TOGETHER, passed
from neuca_tools.selftest.conditions.udp import counted_losses, losing, lost, lowest
from neuca_tools.selftest.conditions.window import LOSSY, NETWORK, sender_buffer
from neuca_tools.selftest.evidence import Sample
from neuca_tools.selftest.evidence.look import Fact, Look, delta, growth, steady_sockets

NIC_DROPS = re.compile(
    r"\.(rx_missed_errors|ethtool\.(rx_no_buffer_count|rx_out_of_buffer|rx_missed_errors|rx_\w*_drops|"
    r"rx_\w*discards\w*|rx_queue_\d+_drops))$"
)
SQUEEZED = 0.01  # of the packets: softnet_stat does not count polls (D12)
BUSY = 0.8  # of a CPU's time (D12)
BLOATED, BLOATED_BY = 5, 0.020  # times the idle round trip, and seconds more (D14)
STEADY = 0.03  # coefficient of variation (D18)
IN_PIECES = 0.10  # the same, of seconds that iperf3 counts in pieces of its buffer
QUEUED = 1.5  # times the idle round trip (D18)
FLAT_RTT = 1.2  # times the shortest: no queue grows before the drops (D17)
CLEARLY = 0.02  # of the datagrams: more is lost than a hiccup of a host would (D17)
LEVEL = 0.9  # of the plateau (D17)
OVERTAKEN = 0.001  # of the packets (D39)
LARGER_SOFTIRQ_BUDGET = {
    "net.core.netdev_budget": "600",
    "net.core.netdev_budget_usecs": "16000",
}


def _grown(samples: tuple[Sample, ...], names: Iterable[str]) -> list[Fact]:
    return [one for name in names if (one := delta(samples, name)) is not None]


def _names(samples: tuple[Sample, ...]) -> list[str]:
    return sorted(samples[-1].counters) if samples else []


def _explained(look: Look, count: float) -> float:
    """The share of the losses that so many drops explain, of the time that windows and buffers leave."""
    if look.protocol == "udp":
        return min(1.0, count / max(1, lost(look))) if losing(look) else 0.05
    again = growth(look.sender_fact("Tcp.RetransSegs")) or float(look.throughput.retransmits or 0)
    if not again or passed(look) or (look.loss is not None and look.loss <= LOSSY):
        return 0.05  # a full path drops now and then, or it is not full
    return look.left * min(1.0, count / again)


def _slowed_by(look: Look, count: float) -> float:
    """As `_explained`, of the sender's own queue: the kernel tells its TCP at once, which slows down and sends nothing twice."""
    segments, rtt = growth(look.sender_fact("Tcp.OutSegs")), look.rtt or look.round_trip.shortest
    if (
        look.protocol != "tcp"
        or passed(look) is not False
        or not segments
        or not rtt
        or not look.rate
    ):
        return 0.0
    ceiling = mathis(look.windows.mss or 1448, rtt, min(1.0, count / segments))
    return (
        look.left if look.rate >= ceiling / 2 else 0.0
    )  # so few could not hold it back so much (as D05)


def nic_ring(look: Look) -> Optional[Hit]:
    found = _grown(
        look.phase.receiver,
        [name for name in _names(look.phase.receiver) if NIC_DROPS.search(name)],
    )
    count = max((growth(one) for one in found), default=0.0)  # two names may count the same packets
    if not count:
        return None
    device = found[0].field.partition(".")[0]
    return Hit(
        _explained(look, count),
        f"the ring of the receiver's NIC {device} overflowed: {count:.0f} packets",
        tuple(found),
        f"ethtool -G {device} rx MAX (see ethtool -g {device}; resets the link on many drivers); spread its interrupts",
        "receiver",
    )


def softirq_budget(look: Look) -> Optional[Hit]:
    for end, samples, load in (
        ("receiver", look.phase.receiver, look.receiver_load),
        ("sender", look.phase.sender, look.sender_load),
    ):
        squeezed, polls = (
            delta(samples, "softnet.time_squeeze"),
            growth(delta(samples, "softnet.processed")),
        )
        if (
            squeezed
            and growth(squeezed) > SQUEEZED * polls
            and (load.busy or 0) >= BUSY
            and load.what == "softirq"
        ):
            return Hit(
                0.3 * look.left,
                f"softirq ran out of its budget {growth(squeezed):.0f} times on a busy CPU",
                (squeezed,),
                "spread the interrupts over CPUs (ethtool -L)",
                end,
                MEDIUM,
                sysctls=LARGER_SOFTIRQ_BUDGET,
            )
    return None


def backlog(look: Look) -> Optional[Hit]:
    for end, samples in (("receiver", look.phase.receiver), ("sender", look.phase.sender)):
        dropped = delta(samples, "softnet.dropped")
        if dropped is not None:
            text = f"the {end}'s backlog queue overflowed: {growth(dropped):.0f} packets"
            return Hit(
                _explained(look, growth(dropped)),
                text,
                (dropped,),
                "use a smaller layer 2 domain if the packets are broadcasts",
                end,
                sysctls={"net.core.netdev_max_backlog": "30000"},
            )
    return None


def qdisc(look: Look) -> Optional[Hit]:
    """A queue of the sender's own drops."""
    names = [name for name in _names(look.phase.sender) if name.endswith(".qdisc.drops")]
    found = _grown(look.phase.sender, names)
    if not found:
        return None
    count = sum(map(growth, found))
    device = found[0].field.partition(".")[0]
    share = max(_explained(look, count), _slowed_by(look, count))
    return Hit(
        share,
        f"the queue of the sender's {device} dropped {count:.0f} packets",
        tuple(found),
        f"tc qdisc replace dev {device} root fq; pace below the path's rate (fq maxrate RATE)",
        "sender",
    )


def bloat(look: Look) -> Optional[Hit]:
    """A queue makes the path slow for everybody."""
    idle = look.evidence.idle.p50 or look.round_trip.shortest
    # A host that is busy answers late, and no queue is to blame: the kernel's own round trips do not wait for a process.
    loaded = min((value for value in (look.evidence.loaded.p50, look.rtt) if value), default=None)
    if (
        look.protocol != "tcp"
        or not idle
        or not loaded
        or loaded < BLOATED * idle
        or loaded - idle < BLOATED_BY
    ):
        return None
    if look.is_full:  # what waits, waits for that processor
        return None
    text = f"the round trip grows from {amounts.time(idle)} to {amounts.time(loaded)} under load: a deep queue on the way"
    advice = (
        "tc qdisc replace dev DEV root fq_codel where the queue is; a smaller txqueuelen with pfifo; pace below the path's "
        "rate"
    )
    return Hit(1 - idle / loaded, text, (Fact("rtt", idle, loaded),), advice, "path")


def policed(session: Session) -> Optional[Hit]:
    """UDP is loss-free up to a rate and never gets beyond it; TCP loses without any queue before the loss."""
    ladder = sorted(
        (one for one in session.looks if one.protocol == "udp" and one.rate and one.flow),
        key=_offered,
    )
    clean = [one for one in ladder if not losing(one)]
    over = [
        one
        for one in ladder
        if (one.loss or 0) >= CLEARLY and counted_losses(one) < 0.5 * lost(one) and not one.is_full
    ]
    if clean and over:
        return _plateau(clean, over, ladder)
    slowest = lowest(ladder)
    tcp = next(
        (
            one
            for one in session.tcp
            if _flat_with_loss(one) and not passed(one) and one.phase.name != TOGETHER
        ),
        None,
    )
    if tcp is None or (slowest is not None and (not over or losing(slowest))):
        return None  # it loses at any rate (D19), or UDP gets through at every rate
    seen = bool(tcp.phase.sender)  # the kernel's round trips, not only retransmits
    near = round_rate(max(tcp.throughput.rates, default=0.0))
    where = f", near {amounts.rate(near)}" if near else ""
    text = (
        f"loss without a queue before it{where}: a policer or random loss; a UDP ladder tells which"
    )
    facts = (
        fact("bytes_retrans / bytes_sent", tcp.loss),
        Fact("rtt / min_rtt", after=tcp.queueing),
    )
    advice = "iperf3 -u -b 10M, 100M … : what is the loss-free rate? Then pace just below it"
    return Hit(
        (0.95 if seen else 0.5) * tcp.left, text, facts, advice, "path", MEDIUM if seen else LOW
    )


def _plateau(clean: list[Look], over: list[Look], ladder: list[Look]) -> Optional[Hit]:
    """Whatever is offered above, the same arrives; and what is offered below arrives whole."""
    arrived = [one.rate or 0.0 for one in over]
    plateau, free = max(arrived), max(map(_offered, clean))
    expect = over[0].evidence.expect
    if (
        min(arrived) < LEVEL * plateau
        or free > plateau / LEVEL
        or (expect and plateau >= LEVEL * expect)
    ):
        return None  # the last: all that is expected, and no more, is what the path itself has
    text = f"loss-free at {amounts.rate(free)}, and never more than {amounts.rate(plateau)}: a policer drops what is above"
    facts = tuple(
        Fact(f"of {amounts.rate(_offered(one))}, bit/s", after=one.rate) for one in ladder
    )
    pace = plateau * 0.95
    advice = (
        f"ask for a shaper; iperf3 --fq-rate {pace / 1e6:.0f}M, or tc qdisc replace dev DEV root fq maxrate "
        f"{pace / 1e6:.0f}mbit"
    )
    return Hit(0.97, text, facts, advice, "path", HIGH, pace)


def _offered(look: Look) -> float:
    return (look.flow.sent.rate if look.flow else None) or look.rate or 0.0


def _flat_with_loss(look: Look) -> bool:
    if (
        look.left < NETWORK
        or not look.loss
        or look.loss <= LOSSY
        or sender_buffer(look) is not None
    ):
        return False
    if not look.queueing or not look.phase.sender:
        return not look.windows.flat and bool(look.throughput.retransmits)
    if look.queueing <= FLAT_RTT:
        return True
    return (
        _alone_late(look) and (look.spread or 0.0) >= STEADY
    )  # its own bursts wait, behind what let them through


def path_capacity(look: Look) -> Optional[Hit]:
    """A rate that does not move while a queue stands before it, or all that a known link can carry."""
    if (
        look.protocol != "tcp"
        or not look.rate
        or (look.windows.rwnd_limited or 0) >= 0.4
        or (look.windows.sndbuf_limited or 0) >= 0.2
    ):
        return None
    speed = _line(look)
    if speed is not None:
        text = f"{amounts.rate(look.rate)} is all that TCP can carry over {amounts.rate(speed)} Ethernet"
        return Hit(
            look.left,
            text,
            (fact("rate, bit/s", round(look.rate)),),
            "",
            "path",
            HIGH,
            look.rate,
            severity=None if look.evidence.expect else INFO,
        )
    if look.is_full:
        return None
    if look.spread is None or not look.queueing or look.queueing <= QUEUED or _alone_late(look):
        return None
    if look.spread >= (IN_PIECES if _stands(look) else STEADY):
        return None
    text = (
        f"the rate stays within {amounts.percent(look.spread)} of {amounts.rate(look.rate)}, and a queue stands before it: "
        "this is the path's capacity"
    )
    return Hit(
        look.left,
        text,
        (fact("rate, bit/s", round(look.rate)), Fact("rtt / min_rtt", after=look.queueing)),
        "compare it with what was ordered; nothing at the ends makes it faster",
        "path",
        HIGH,
        look.rate,
    )


def _stands(look: Look) -> bool:
    """Whether the queue was there at every look: then the path was never idle, and what varies is when iperf3 counts."""
    known = [one.rtt / 1e6 for one in steady_sockets(look) if one.rtt]
    return (
        len(known) > 1
        and look.round_trip.shortest is not None
        and min(known) > QUEUED * look.round_trip.shortest
    )


def _alone_late(look: Look) -> bool:
    """Whether requests beside the test came back as if nothing stood before them: then it is its receiver that answers late."""
    idle, loaded = look.evidence.idle.p50, look.evidence.loaded.p50
    return bool(
        look.phase.name == "tcp"
        and look.phase.direction == "forward"
        and idle
        and loaded
        and loaded <= FLAT_RTT * idle
    )


def _line(look: Look) -> Optional[float]:
    speeds = [
        link.speed for host in (look.sender, look.receiver) for link in links_of(host) if link.speed
    ]
    mtus = [link.mtu for link in links_of(look.sender) if link.mtu]
    if not look.rate:
        return None
    if speeds:
        return (
            min(speeds)
            if look.rate >= 0.98 * goodput(min(speeds), min(mtus, default=1500))
            else None
        )
    guessed = not look.phase.sender or (
        look.spread is not None and look.spread < STEADY
    )  # a line's own rate does not vary
    return line_of(look.rate, min(mtus, default=None)) if guessed else None


def reordering(look: Look) -> Optional[Hit]:
    received = look.flow.received if look.flow else None
    if look.protocol == "udp":
        if not received or not received.out_of_order or not received.datagrams:
            return None
        share = received.out_of_order / received.datagrams
        facts: tuple[Fact, ...] = (fact("out_of_order / datagrams", share),)
    else:
        found = _grown(look.phase.sender, ("TcpExt.TCPSACKReorder", "TcpExt.TCPTSReorder"))
        segments = growth(look.sender_fact("Tcp.OutSegs"))
        if not found or not segments:
            return None
        share, facts = max(map(growth, found)) / segments, tuple(found)
    if share <= OVERTAKEN:
        return None
    text = f"{amounts.percent(share)} of the packets overtook others"
    costly = look.protocol == "tcp" and (look.loss or 0) > LOSSY and not passed(look)
    weight = 0.9 * look.left if costly else 0.3 if look.protocol == "udp" else 0.05
    return Hit(
        weight,
        text,
        facts,
        "a link aggregation or several paths that spread packets instead of flows: bonding mode "
        "balance-rr, per-packet ECMP",
        "path",
    )


QUEUES = (
    PhaseRule("D11", "NIC ring overflow", FAULT, nic_ring),
    PhaseRule("D12", "softirq budget exhausted", LIMIT, softirq_budget),
    PhaseRule("D13", "backlog drops", FAULT, backlog),
    PhaseRule("D14", DROPS, FAULT, qdisc),
    PhaseRule("D14", BLOAT, FAULT, bloat),
    PhaseRule("D39", "reordering", FAULT, reordering),
    PhaseRule("D18", "path capacity reached", LIMIT, path_capacity),
)
QUEUES_SESSION = (SessionRule("D17", "policed", LIMIT, policed),)
