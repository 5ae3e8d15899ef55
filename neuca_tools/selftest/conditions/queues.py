"""D11 to D14, D39: queues of the hosts and the path that drop or delay packets, and reordering."""

# SPDX-License-Identifier: MIT

import math
import re
from collections.abc import Iterator
from typing import Optional

from neuca_tools.model.printable import counted
from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.application import NEGLIGIBLE_LOSS, loss_ceiling
from neuca_tools.selftest.conditions.base import Hit, single_fact
from neuca_tools.selftest.conditions.figures import HEAVY_LOSS, late_loss
from neuca_tools.selftest.conditions.thresholds import has_passed
from neuca_tools.selftest.conditions.udp import USUAL_MTU, is_losing, lost_datagrams
from neuca_tools.selftest.evidence import Host, Sample
from neuca_tools.selftest.evidence.look import Fact, Look, counter_growth, growth_of_fact

DROPS, BLOAT = "queue drops", "bufferbloat"  # both are D14
# What a NIC dropped for lack of buffers (rtnl_link_stats64 in linux/if_link.h).
NIC_DROPS = re.compile(r"\.rx_missed_errors$")
QDISC_DROPS = re.compile(r"\.qdisc\.drops$")
BLOATED, BLOATED_BY = 5, 0.020  # times the idle round trip, and seconds on top of it (D14)
# Seconds: a shaper usually holds less (50 ms is common); from here on people notice (ITU-T G.114).
DEEP_SECONDS = 0.1
FAR_TOO_SLOW = 0.5  # of the expected rate
SECONDARY_SHARE = 0.3  # of the lost time: less than what limits the rate
INITIAL_SEGMENTS = 10  # of the first window (RFC 6928)
OVERTAKEN_SHARE = 0.001  # of the packets (D39)
MIN_OVERTAKEN = 20  # datagrams, where iperf alone counted
RESENT_FOR_EACH = 3  # segments that are sent again for one that overtook others
HEAVY_REORDERING = 0.05  # of the packets: the window cannot grow between them
PACE = 0.95  # of the rate of a path: what is sent more slowly neither queues nor is lost
PACING = "or pace on the sender below the rate of the path (maxrate of tc-fq(8))"
UNIMPORTANT_SHARE = 0.05  # the share of a drop that costs nothing noticeable


def _grown_counters(
    host: Host, samples: tuple[Sample, ...], pattern: re.Pattern[str]
) -> tuple[str, list[Fact]]:
    """The counters with matching names that grew, and the device of the one that grew most.

    `pattern` matches what follows the name of a device. Devices beside the path are left out.
    """
    names = sorted(filter(pattern.search, samples[-1].counters)) if samples else []
    own = (name for name in names if host.may_carry(pattern.sub("", name)))
    counters = list(filter(None, (counter_growth(samples, name) for name in own)))
    most = max(counters, key=growth_of_fact, default=Fact(""))
    return pattern.sub("", most.field), counters


def _explained_share(look: Look, count: float) -> float:
    """The share of the losses, or of the time lost to the network, that `count` drops explain."""
    if look.protocol == "udp" and is_losing(look):
        return min(1.0, count / max(1, lost_datagrams(look)))
    again = growth_of_fact(look.sender_fact("Tcp.RetransSegs")) or float(look.retransmits or 0)
    is_small = look.loss is not None and look.loss <= NEGLIGIBLE_LOSS
    if look.protocol == "udp" or not again or has_passed(look) or is_small:
        # A path that is full drops now and then; otherwise nothing holds the rate back.
        return UNIMPORTANT_SHARE
    return look.known_network_share * min(1.0, count / again)


def _slowed_by(look: Look, count: float) -> float:
    """The share of the rate that `count` drops in the sender's own queue explain.

    The kernel reports such a drop to TCP at once: TCP slows down and retransmits nothing, so
    `_explained_share` does not see it.
    """
    segments = growth_of_fact(look.sender_fact("Tcp.OutSegs"))
    if look.protocol != "tcp" or has_passed(look) is not False or not segments:
        return 0.0
    ceiling = loss_ceiling(look, look.rtt or look.shortest_rtt, min(1.0, count / segments))
    # As for D05: a loss rate that would allow twice this rate does not limit it.
    is_limit = ceiling is not None and look.known_rate >= ceiling / 2
    return look.known_network_share if is_limit else 0.0


def nic_ring(look: Look) -> Optional[Hit]:
    device, counters = _grown_counters(look.receiver, look.phase.receiver, NIC_DROPS)
    if not counters:
        return None
    count = max(map(growth_of_fact, counters))
    warning = "which resets the link on many drivers"
    larger = f"a larger receive ring, if ethtool -g {device} shows one (ethtool -G, {warning})"
    rings = next((link.rings for link in look.receiver.links if link.name == device), {})
    if rings.get("rx", math.inf) < rings.get("rx_max", 0):
        larger = f"ethtool -G {device} rx {rings['rx_max']}, {warning}"
    return Hit(
        _explained_share(look, count),
        f"the receive ring of the receiver's NIC {device} overflowed: "
        f"{counted(round(count), 'packet')}",
        tuple(counters),
        f"{larger}; spread its interrupts over CPUs",
        "receiver",
    )


def backlog_drops(look: Look) -> Optional[Hit]:
    for end, samples, _ in look.ends:
        dropped = counter_growth(samples, "softnet.dropped")
        if dropped is None:
            continue
        return Hit(
            _explained_share(look, growth_of_fact(dropped)),
            f"the {end}'s backlog queue overflowed: "
            f"{counted(round(growth_of_fact(dropped)), 'packet')}",
            (dropped,),
            "use a smaller layer 2 domain if the packets are broadcasts",
            end,
            sysctls={"net.core.netdev_max_backlog": "30000"},
        )
    return None


def queue_drops_or_delay(look: Look) -> Optional[Hit]:
    """A queue drops packets, or delays them: what costs more."""
    hits = list(filter(None, (qdisc_drops(look), deep_queue(look))))
    return max(hits, key=lambda hit: (hit.severity != "info", hit.share), default=None)


def qdisc_drops(look: Look) -> Optional[Hit]:
    """Packets dropped by a queue of the sender itself."""
    device, counters = _grown_counters(look.sender, look.phase.sender, QDISC_DROPS)
    if not counters:
        return None
    count = sum(map(growth_of_fact, counters))
    return Hit(
        max(_explained_share(look, count), _slowed_by(look, count)),
        f"the queue of the sender's {device} dropped {counted(round(count), 'packet')}",
        tuple(counters),
        f"tc qdisc replace dev {device} root fq, whose queue is longer; {PACING}",
        "sender",
    )


def deep_queue(look: Look) -> Optional[Hit]:
    """A queue on the path delays everything that passes through it."""
    if look.protocol != "tcp":
        return None
    pairs = _idle_and_loaded(look)
    idle, loaded = min(pairs, key=lambda times: times[1] - times[0], default=(0.0, 0.0))
    if not idle or _loses_throughout(look) or not _is_bloated(look, idle, loaded):
        return None
    added = loaded - idle
    hit = Hit(
        added / (added + BLOATED_BY),
        f"the round trip grows from {amounts.time(idle)} to {amounts.time(loaded)} under load: "
        "a deep queue on the path",
        (Fact("rtt", idle, loaded),),
        "fq_codel as the queue (tc-fq_codel(8)) of the host or router that the packets wait in, or "
        f"a smaller limit of that queue; {PACING}",
        title=BLOAT,
    )
    if look.is_full:
        # Packets may wait for that CPU as well.
        return hit._replace(confidence="low", severity="info")
    if look.is_unsampled:
        # Nothing but the kernel's round trips of one flow.
        hit = hit._replace(confidence="medium")
    if added >= DEEP_SECONDS and look.known_rate >= FAR_TOO_SLOW * (look.evidence.expect or 0.0):
        return hit
    # A full path has a queue: it is not what makes the path slow.
    return hit._replace(severity="limit", share=min(hit.share, SECONDARY_SHARE))


def _loses_throughout(look: Look) -> bool:
    """Whether iperf's figures show more loss than that of a queue, which overflows at times."""
    is_frequent = 2 * look.lossy_intervals >= len(look.all_intervals)
    return look.is_unsampled and is_frequent and late_loss(look) >= HEAVY_LOSS


def _idle_and_loaded(look: Look) -> Iterator[tuple[float, float]]:
    """Round trips in seconds: by requests, which programs answer, and by the kernel's own."""
    idle, loaded = look.evidence.idle.p50, look.evidence.loaded.p50
    shortest = look.shortest_rtt
    if idle and loaded and (look.phase.name, look.phase.direction) == ("tcp", "forward"):
        yield idle, loaded
    if shortest and look.rtt:
        yield shortest, look.rtt - look.noise


def _is_bloated(look: Look, idle: float, loaded: float) -> bool:
    """Whether a queue adds much to the round trip, in seconds; on a long path, what people notice.

    Every queue has to hold what a connection begins with (RFC 6928), however slow the path is.
    """
    added = loaded - idle
    if look.rate and added * look.rate / 8 <= 1.5 * INITIAL_SEGMENTS * USUAL_MTU:
        return False
    return added >= DEEP_SECONDS or (added >= BLOATED_BY and loaded >= BLOATED * idle)


def reordered_packets(look: Look) -> Optional[Hit]:
    if look.protocol == "udp":
        (share, facts), cost = _udp_reordering(look), 0.3
    else:
        (share, facts), cost = _tcp_reordering(look), UNIMPORTANT_SHARE
        # What is taken for loss need not be sent again before the sender notices that it was none.
        # Much more than that is lost for another reason.
        is_taken_for_loss = NEGLIGIBLE_LOSS < look.known_loss <= RESENT_FOR_EACH * share
        if (is_taken_for_loss or share > HEAVY_REORDERING) and not has_passed(look):
            cost = 0.9 * look.known_network_share
    if share <= OVERTAKEN_SHARE:
        return None
    doubt = "" if look.is_sampled else ", or arrived twice, which iperf counts alike"
    return Hit(
        cost,
        f"{amounts.percent(share)} of the packets overtook others{doubt}",
        facts,
        "look for a link aggregation or several paths that distribute packets instead of flows: "
        "bonding mode balance-rr, per-packet ECMP",
        confidence="high" if look.is_sampled else "low",
    )


def _udp_reordering(look: Look) -> tuple[float, tuple[Fact, ...]]:
    """The share of the datagrams that were overtaken, and the evidence."""
    received = look.flow.received
    if look.is_unsampled and (received.out_of_order or 0) < MIN_OVERTAKEN:
        return 0.0, ()
    share = (received.out_of_order or 0) / (received.datagrams or math.inf) - look.duplicated
    return share, (single_fact("out_of_order / datagrams", share),)


def _tcp_reordering(look: Look) -> tuple[float, tuple[Fact, ...]]:
    """The share of the segments that were overtaken, and the evidence."""
    names = ("TcpExt.TCPSACKReorder", "TcpExt.TCPTSReorder")
    counters = tuple(filter(None, map(look.sender_fact, names)))
    segments = growth_of_fact(look.sender_fact("Tcp.OutSegs"))
    return max(map(growth_of_fact, counters), default=0.0) / (segments or math.inf), counters
