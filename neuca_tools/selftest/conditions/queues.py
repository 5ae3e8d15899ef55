"""D11 to D14, D39: queues of the hosts and the path that drop or delay packets, and reordering."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.base import (
    FAULT,
    LIMIT,
    MEDIUM,
    Hit,
    PhaseRule,
    fact,
)
from neuca_tools.selftest.conditions.causes import BLOAT, DROPS
from neuca_tools.selftest.conditions.predict import mathis
from neuca_tools.selftest.conditions.thresholds import passed
from neuca_tools.selftest.conditions.udp import losing, lost
from neuca_tools.selftest.conditions.window import (
    DEFAULT_MSS,
    LOSSY,
)
from neuca_tools.selftest.evidence import Sample
from neuca_tools.selftest.evidence.look import Fact, Look, delta, growth

NIC_DROPS = re.compile(
    r"\.(rx_missed_errors|ethtool\.(rx_no_buffer_count|rx_out_of_buffer|rx_missed_errors|rx_\w*_drops|"
    r"rx_\w*discards\w*|rx_queue_\d+_drops))$"
)
# Of the packets: softnet_stat does not count polls (D12).
SQUEEZED = 0.01
# Of a CPU's time (D12).
BUSY = 0.8
# Times the idle round trip, and seconds on top of it (D14).
BLOATED, BLOATED_BY = 5, 0.020
# Of the packets (D39).
OVERTAKEN = 0.001
# The share of a drop that costs nothing noticeable.
UNIMPORTANT = 0.05
LARGER_SOFTIRQ_BUDGET = {
    "net.core.netdev_budget": "600",
    "net.core.netdev_budget_usecs": "16000",
}


def _grown(samples: tuple[Sample, ...], names: Iterable[str]) -> list[Fact]:
    return [one for name in names if (one := delta(samples, name)) is not None]


def _names(samples: tuple[Sample, ...]) -> list[str]:
    return sorted(samples[-1].counters) if samples else []


def _explained(look: Look, count: float) -> float:
    """The share of the losses that `count` drops explain, of the time not lost to windows and buffers."""
    if look.protocol == "udp":
        return min(1.0, count / max(1, lost(look))) if losing(look) else UNIMPORTANT
    again = growth(look.sender_fact("Tcp.RetransSegs")) or float(look.throughput.retransmits or 0)
    if not again or passed(look) or (look.loss is not None and look.loss <= LOSSY):
        # A path that is full drops now and then; otherwise nothing holds the rate back.
        return UNIMPORTANT
    return look.left * min(1.0, count / again)


def _slowed_by(look: Look, count: float) -> float:
    """As `_explained`, for the sender's own queue.

    The kernel reports such a drop to TCP at once: TCP slows down and retransmits nothing.
    """
    segments = growth(look.sender_fact("Tcp.OutSegs"))
    rtt = look.rtt or look.round_trip.shortest
    if look.protocol != "tcp" or passed(look) is not False:
        return 0.0
    if not segments or not rtt or not look.rate:
        return 0.0
    ceiling = mathis(look.windows.mss or DEFAULT_MSS, rtt, min(1.0, count / segments))
    # As for D05: a loss rate that would allow twice this rate does not limit it.
    return look.left if look.rate >= ceiling / 2 else 0.0


def nic_ring(look: Look) -> Optional[Hit]:
    names = [name for name in _names(look.phase.receiver) if NIC_DROPS.search(name)]
    found = _grown(look.phase.receiver, names)
    # Not the sum: several counters may count the same packets.
    count = max(map(growth, found), default=0.0)
    if not count:
        return None
    device = found[0].field.partition(".")[0]
    return Hit(
        _explained(look, count),
        f"the receive ring of the receiver's NIC {device} overflowed: {count:.0f} packets",
        tuple(found),
        f"ethtool -G {device} rx MAX (see ethtool -g {device}; resets the link on many drivers); "
        "spread its interrupts over CPUs",
        "receiver",
    )


def softirq_budget(look: Look) -> Optional[Hit]:
    ends = (
        ("receiver", look.phase.receiver, look.receiver_load),
        ("sender", look.phase.sender, look.sender_load),
    )
    for end, samples, load in ends:
        squeezed = delta(samples, "softnet.time_squeeze")
        processed = growth(delta(samples, "softnet.processed"))
        if squeezed is None or growth(squeezed) <= SQUEEZED * processed:
            continue
        if (load.busy or 0) < BUSY or load.what != "softirq":
            continue
        return Hit(
            0.3 * look.left,
            f"softirq processing ran out of budget {growth(squeezed):.0f} times on a busy CPU",
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
    """Packets dropped by a queue of the sender itself."""
    names = [name for name in _names(look.phase.sender) if name.endswith(".qdisc.drops")]
    found = _grown(look.phase.sender, names)
    if not found:
        return None
    count = sum(map(growth, found))
    device = found[0].field.partition(".")[0]
    return Hit(
        max(_explained(look, count), _slowed_by(look, count)),
        f"the queue of the sender's {device} dropped {count:.0f} packets",
        tuple(found),
        f"tc qdisc replace dev {device} root fq; pace below the rate of the path (fq maxrate RATE)",
        "sender",
    )


def bloat(look: Look) -> Optional[Hit]:
    """A queue on the path delays everything that passes through it."""
    if look.protocol != "tcp" or look.is_full:
        # With a CPU that is full, packets wait for the CPU.
        return None
    idle = look.evidence.idle.p50 or look.round_trip.shortest
    # A busy process answers late without any queue; the kernel's own round trips do not wait for it.
    known = [value for value in (look.evidence.loaded.p50, look.rtt) if value]
    loaded = min(known, default=None)
    if not idle or not loaded:
        return None
    if loaded < BLOATED * idle or loaded - idle < BLOATED_BY:
        return None
    return Hit(
        1 - idle / loaded,
        f"the round trip grows from {amounts.time(idle)} to {amounts.time(loaded)} under load: "
        "a deep queue on the path",
        (Fact("rtt", idle, loaded),),
        "tc qdisc replace dev DEV root fq_codel on the host with the queue; "
        "a smaller txqueuelen with pfifo; pace below the rate of the path",
    )


def reordering(look: Look) -> Optional[Hit]:
    share, facts = _udp_reordered(look) if look.protocol == "udp" else _tcp_reordered(look)
    if share <= OVERTAKEN:
        return None
    return Hit(
        _cost_of_reordering(look),
        f"{amounts.percent(share)} of the packets overtook others",
        facts,
        "look for a link aggregation or several paths that distribute packets instead of flows: "
        "bonding mode balance-rr, per-packet ECMP",
    )


def _udp_reordered(look: Look) -> tuple[float, tuple[Fact, ...]]:
    """The share of the datagrams that were overtaken, and the evidence."""
    received = look.flow.received if look.flow else None
    if received is None or not received.out_of_order or not received.datagrams:
        return 0.0, ()
    share = received.out_of_order / received.datagrams
    return share, (fact("out_of_order / datagrams", share),)


def _tcp_reordered(look: Look) -> tuple[float, tuple[Fact, ...]]:
    """The share of the segments that were overtaken, and the evidence."""
    found = _grown(look.phase.sender, ("TcpExt.TCPSACKReorder", "TcpExt.TCPTSReorder"))
    segments = growth(look.sender_fact("Tcp.OutSegs"))
    if not found or not segments:
        return 0.0, ()
    return max(map(growth, found)) / segments, tuple(found)


def _cost_of_reordering(look: Look) -> float:
    if look.protocol == "udp":
        return 0.3
    if (look.loss or 0) > LOSSY and not passed(look):
        return 0.9 * look.left
    return UNIMPORTANT


QUEUES = (
    PhaseRule("D11", "NIC ring overflow", FAULT, nic_ring),
    PhaseRule("D12", "softirq budget exhausted", LIMIT, softirq_budget),
    PhaseRule("D13", "backlog drops", FAULT, backlog),
    PhaseRule("D14", DROPS, FAULT, qdisc),
    PhaseRule("D14", BLOAT, FAULT, bloat),
    PhaseRule("D39", "reordering", FAULT, reordering),
)
