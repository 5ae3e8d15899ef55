"""D07, D15, D20: datagrams that were lost, and datagrams that could not be sent."""

# SPDX-License-Identifier: MIT

import math
from typing import Optional, Union

from neuca_tools.model.printable import counted
from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.base import Hit, Severity, single_fact, smallest_mtu
from neuca_tools.selftest.conditions.thresholds import UNLIMITED_RATE, has_passed, has_small_buffer
from neuca_tools.selftest.evidence.look import Fact, Look, growth_of_fact
from neuca_tools.selftest.evidence.run import Flow, Interval, Total

LOSS_FREE_SHARE = 1e-4  # of the datagrams: who loses less counts as free of loss; our own bound
OVERLOADED = "path or receiver overloaded"  # the other title of D07
SLIGHT_LOSS = 0.01  # of the datagrams: a host was busy for a moment
CLEAR_LOSS, ENOUGH_LOST = 0.02, 20  # share and count: neither a busy host nor chance loses these
LASTING_INTERVALS = 5  # each with losses: longer than a moment
EQUAL_COUNTS = 0.02  # of the datagrams
COUNTED_SHARE = 0.5  # of the losses: a counter that explains so much is the cause (D07)
# Bytes of the headers of IP and UDP and, at MTU 1500, of each fragment with its UDP header.
# Fragments of IPv6 have a header of 8 bytes more (RFC 8200, section 4.5).
HEADERS, FRAGMENT = {4: 28, 6: 48}, {4: 1480, 6: 1448}
USUAL_MTU = 1500  # bytes
VERY_FEW_PER_SECOND = 20_000  # datagrams: the default socket buffer holds 5 ms of them at least
MANY_PER_SECOND = 100_000  # packets: a host with its default settings receives fewer
SENT_SHARE = 0.95  # of the rate that was asked for: a sender below it is too slow (D20)
# The counters of reassembly, with the IP version and the sysctl of the memory for fragments.
REASSEMBLY = {
    "Ip.Reasm": (4, "net.ipv4.ipfrag_high_thresh"),
    "Ip6.Ip6Reasm": (6, "net.ipv6.ip6frag_high_thresh"),
}
LARGER_RECEIVE_BUFFERS = {"net.core.rmem_default": "4194304", "net.core.rmem_max": "16777216"}


def lost_datagrams(look: Look) -> int:
    """How many datagrams were lost; 0 if that is not known."""
    if look.protocol != "udp":
        return 0
    return look.flow.received.lost or 0


def is_losing(look: Look) -> bool:
    """Whether this UDP test lost datagrams while the receiver was counting."""
    if look.protocol != "udp" or look.known_loss <= LOSS_FREE_SHARE:
        return False
    losses = losses_by_interval(look)
    # Address resolution, or a cold receiver, loses some in the first interval.
    return len(losses) < 3 or any(losses[1:])


def losses_by_interval(look: Look) -> tuple[int, ...]:
    """How many datagrams were lost in each interval for which that is known."""
    return tuple(interval.lost for interval in look.flow.intervals if interval.lost is not None)


def seconds_missed(look: Look) -> float:
    """By how much the receiver counted for a shorter time than the sender sent; 0 if not known."""
    sent, received = look.flow.sent.seconds, look.flow.received.seconds
    if not sent or not received:
        return 0.0
    return sent - received


def receive_buffer(look: Look) -> Optional[Hit]:
    """The receiver's memory is too small, by its counters or by the lack of other causes."""
    memory, dropped = _udp_memory(look), look.receiver_fact("Udp.RcvbufErrors")
    if memory is not None or look.protocol != "udp":
        return memory
    if dropped is None:
        return _usual_cause(look)
    share = _share_of_losses(look, dropped)
    if share < COUNTED_SHARE:
        return None
    is_busy = share_lost_by_busy_receiver(look) > 0
    return Hit(
        share,
        "the receiver's socket buffer overflowed and dropped "
        f"{counted(round(growth_of_fact(dropped)), 'datagram')}; "
        f"iperf counts {lost_datagrams(look)} as lost",
        (dropped, look.loss_fact),
        "for iperf3 alone, -w 4M",
        "receiver",
        confidence="low" if is_busy else "high",
        severity="info" if is_busy else None,
        sysctls=LARGER_RECEIVE_BUFFERS,
    )


def share_lost_by_busy_receiver(look: Look) -> float:
    """The share of the losses that its socket dropped because other programs had its CPU.

    Otherwise, any receiver keeps up with so few datagrams.
    """
    is_busy = lost_datagrams(look) and look.is_disturbed and is_gentle(look)
    share = _share_of_losses(look, look.receiver_fact("Udp.RcvbufErrors")) if is_busy else 0.0
    return share if share >= COUNTED_SHARE else 0.0


def _share_of_losses(look: Look, dropped: Optional[Fact]) -> float:
    """The share of the losses that a counter of the receiver explains."""
    return min(1.0, growth_of_fact(dropped) / max(1, lost_datagrams(look)))


def _usual_cause(look: Look) -> Optional[Hit]:
    """Datagrams were lost, and no counter of the receiver says why."""
    if not is_losing(look) or look.phase.receiver or is_one_of_several(look) or not look.rate:
        return None
    if not are_many(look) and not has_small_buffer(look) and not _is_clearly_too_fast(look):
        return None
    return Hit(
        # Of less, what was never sent (D20) takes more.
        0.6 if look.known_loss >= SLIGHT_LOSS else 0.2,
        f"{amounts.percent(look.known_loss)} of the datagrams were lost, and "
        f"{amounts.rate(look.known_rate)} arrived: the path or the receiver takes no more"
        f"{_fragments_clause(look)}",
        (look.loss_fact,),
        "or offer less (-b); nstat (UdpRcvbufErrors), /proc/net/softnet_stat and ethtool -S tell "
        "whether it is the receiver",
        "receiver",
        confidence="medium",
        severity=_severity_of_moment(look),
        sysctls=LARGER_RECEIVE_BUFFERS,
        title=OVERLOADED,
    )


def _is_clearly_too_fast(look: Look) -> bool:
    """Whether neither a busy host nor chance loses so many, and not every receiver keeps up."""
    lost = look.known_loss * expected_datagrams(look.flow)
    return look.known_loss >= CLEAR_LOSS and lost >= ENOUGH_LOST and not is_gentle(look)


def _severity_of_moment(look: Look) -> Optional[Severity]:
    """Information if so little was lost, and not all the time: a host was busy for a moment."""
    losses = losses_by_interval(look)
    is_lasting = len(losses) >= LASTING_INTERVALS and all(losses)
    if is_lasting or look.known_loss >= SLIGHT_LOSS or has_passed(look) is False:
        return None
    return "info"


def is_one_of_several(look: Look) -> bool:
    """Whether tests of other rates tell more than that few receivers keep up.

    The other end of this test, or a repeated one, has as many datagrams.
    """
    if look.is_unsampled and are_many(look):
        return False
    mine = expected_datagrams(look.flow)
    others = [
        expected_datagrams(phase.flow or Flow())
        for phase in look.evidence.phases
        if phase is not look.phase and phase.direction == look.phase.direction
        if phase.run is not None and phase.run.protocol == "udp"
    ]
    return any(abs(mine - count) > EQUAL_COUNTS * max(mine, count) for count in others)


def expected_datagrams(flow: Flow) -> int:
    """How many datagrams the receiver expected, by its total or by its intervals."""
    return flow.received.datagrams or sum(interval.datagrams or 0 for interval in flow.intervals)


def is_gentle(look: Look) -> bool:
    """Whether so few datagrams were sent, unfragmented, that any receiver keeps up with them."""
    return is_unfragmented(look) and _frames_offered(look) <= VERY_FEW_PER_SECOND


def are_many(look: Look) -> bool:
    """Whether so many packets were sent, or may have been, that few receivers keep up with them."""
    return _frames_offered(look) >= MANY_PER_SECOND


def is_unfragmented(look: Look) -> bool:
    """Whether each datagram takes one packet at MTU 1500, as far as its size is known."""
    return datagram_size(look) > 0 and _packets_per_datagram(look) == 1


def _frames_offered(look: Look) -> float:
    """Packets that were sent in a second; infinite if that is not known."""
    size, loss = datagram_size(look), look.known_loss
    if not size or not look.rate or loss >= 1:
        return math.inf
    return look.rate / (1 - loss) / 8 / size * _packets_per_datagram(look)


def _packets_per_datagram(look: Look) -> float:
    """How many packets a datagram takes at MTU 1500."""
    size, version = datagram_size(look), look.run.ip_version
    return 1 if size <= USUAL_MTU - HEADERS[version] else -(-(size + 8) // FRAGMENT[version])


def _fragments_clause(look: Look) -> str:
    """A clause that says how many fragments a datagram takes; empty if it takes one."""
    count, size = _packets_per_datagram(look), datagram_size(look)
    if count <= 1:
        return ""
    return f"; each datagram of {size:.0f} bytes takes {count:.0f} fragments at MTU 1500"


def datagram_size(look: Look) -> float:
    """Bytes in a datagram, 0 if not known; iperf3 before 3.1.5 sends 8 KiB without saying so."""
    if look.run.datagram:
        return look.run.datagram
    flow = look.flow
    if flow.sent.datagrams:
        return round((flow.sent.bytes or 0) / flow.sent.datagrams)
    # The receiver's rows count the bytes that arrived, and the datagrams that were sent.
    size, arrived = 0.0, 0
    rows: tuple[Union[Interval, Total], ...] = (*flow.intervals, flow.received)
    for row in rows:
        if row.bytes and row.datagrams:
            size += row.bytes
            arrived += row.datagrams - (row.lost or 0)
    return round(size / arrived) if arrived else 0


def _udp_memory(look: Look) -> Optional[Hit]:
    dropped = look.receiver_fact("Udp.MemErrors")
    if dropped is None:
        return None
    return Hit(
        _share_of_losses(look, dropped),
        "the receiver ran out of memory for UDP: "
        f"{counted(round(growth_of_fact(dropped)), 'datagram')}",
        (dropped, look.loss_fact),
        "raise net.ipv4.udp_mem, or use fewer and smaller sockets",
        "receiver",
        title="UDP memory pressure",
    )


def lost_fragments(look: Look) -> Optional[Hit]:
    failures = {name: look.receiver_fact(f"{name}Fails") for name in REASSEMBLY}
    name = max(failures, key=lambda name: growth_of_fact(failures[name]))
    failed, (version, sysctl) = growth_of_fact(failures[name]), REASSEMBLY[name]
    headers = HEADERS[version if failed else look.run.ip_version]
    advice = f"send at most MTU - {headers} bytes (iperf3 -l {_path_mtu(look) - headers})"
    if not failed or not is_losing(look):
        return _vanished_fragments(look, advice)
    return Hit(
        min(1.0, failed / max(1, lost_datagrams(look))),
        f"{counted(round(failed), 'datagram')} could not be reassembled from their fragments"
        f"{_fragments_clause(look)}",
        (failures[name], look.receiver_fact(f"{name}Reqds"), look.loss_fact),
        advice,
        "receiver",
        sysctls={sysctl: "16777216"},
    )


def _vanished_fragments(look: Look, advice: str) -> Optional[Hit]:
    """By iperf's figures alone: some datagrams of the first interval arrived, and none later."""
    clause = _fragments_clause(look) if look.protocol == "udp" and not look.is_sampled else ""
    if look.rate != 0 or look.known_loss < SLIGHT_LOSS or not clause:
        return None
    text = f"after the first datagrams none arrived{clause}"
    return Hit(0.9, text, (look.loss_fact,), advice, "sender", confidence="medium")


def sender_too_slow(look: Look) -> Optional[Hit]:
    sent = _sent_rate(look)
    if look.protocol != "udp" or not look.target or sent is None:
        return None
    if sent >= SENT_SHARE * look.target:
        return None
    is_enough = is_losing(look) and look.known_loss >= SLIGHT_LOSS
    is_unheard = look.is_unanswered and look.run.error
    load = look.sender_load
    full = f": its CPU {load.cpu} is full" if load.is_full else ""
    return Hit(
        1 - sent / look.target,
        f"the sender offered {amounts.rate(sent)} of the requested {amounts.rate(look.target)}"
        f"{full}",
        (single_fact("sent bit/s", round(sent)), single_fact("-b", round(look.target))),
        f"{_larger_datagrams(look)}more streams (-P), or iperf3 3.16 or later",
        "sender",
        confidence="high" if not look.is_unsampled else "medium",
        # More than arrives is enough, whatever was asked for, and so is what no one responds to.
        severity="info" if any((is_enough, is_unheard, look.target >= UNLIMITED_RATE)) else "limit",
    )


def _larger_datagrams(look: Look) -> str:
    """Those that fill a packet, if they hold twice as much."""
    size, largest = datagram_size(look), _path_mtu(look) - HEADERS[look.run.ip_version]
    return f"larger datagrams (-l {largest}), " if 0 < 2 * size <= largest else ""


def _path_mtu(look: Look) -> int:
    """Bytes: of the path, if it was measured, else of the links; 1500 if neither is known."""
    measured, is_forward = look.evidence.path_mtu, look.phase.direction == "forward"
    of_links = smallest_mtu(look.evidence.links)
    return (measured.forward if is_forward else measured.backward) or of_links or USUAL_MTU


def _sent_rate(look: Look) -> Optional[float]:
    """bit/s; by the rows of either end, where these are all that is known."""
    flow, loss = look.flow, look.known_loss
    # An interval in which nothing arrived does not say what was sent.
    is_silent = any(interval.datagrams == 0 for interval in look.steady)
    if flow.sent.rate is not None or not look.rate or is_silent or loss >= 1:
        return flow.sent.rate
    return look.rate / (1 - loss)


def offered_rate(look: Look) -> float:
    """bit/s that were sent; 0 if that is not known."""
    return look.flow.sent.rate or 0


def counted_losses(look: Look) -> float:
    """How many datagrams the hosts' own counters say were dropped."""
    reassembly = (f"{name}Fails" for name in REASSEMBLY)
    names = ("Udp.RcvbufErrors", "Udp.MemErrors", *reassembly, "softnet.dropped")
    facts = [look.receiver_fact(name) for name in names]
    return sum(map(growth_of_fact, [*facts, look.sender_fact("softnet.dropped")]))
