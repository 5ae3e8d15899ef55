"""D07, D08, D15, D19, D20: datagrams that were lost, and datagrams that could not be sent."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.base import (
    FAULT,
    INFO,
    LIMIT,
    LOW,
    Hit,
    PhaseRule,
    Session,
    SessionRule,
    fact,
)
from neuca_tools.selftest.evidence.look import Fact, Look, growth

# Of the datagrams; below it a receiver counts as free of loss (facts, thresholds).
LOSSY = 1e-4
# Of the losses: a counter that explains so much is the cause (D07).
HALF = 0.5
# Of the datagrams lost: the receiver is too slow on average, which no buffer makes up for.
HOPELESS = 0.5
# Of the rate that was asked for (D20).
SENT = 0.95
# Bytes: IPv4 and UDP.
HEADERS = 28
# Datagrams that should be lost, at the loss rate of the other tests: that none is lost then has a
# probability of 5 % (exp(-3)).
EXPECTED = 3
LARGER_RECEIVE_BUFFERS = {"net.core.rmem_default": "4194304", "net.core.rmem_max": "16777216"}
# bit/s; a slower test is well below what any path here carries.
DELIBERATE = 10e6


def lost(look: Look) -> int:
    """How many datagrams were lost; 0 if that is not known."""
    if look.protocol != "udp" or look.flow is None:
        return 0
    return look.flow.received.lost or 0


def losing(look: Look) -> bool:
    """Whether this UDP test lost datagrams while the receiver was counting."""
    return look.protocol == "udp" and (look.loss or 0) > LOSSY and not lost_at_an_end(look)


def lost_at_an_end(look: Look) -> bool:
    """Whether what was lost was sent before the receiver started to count or after it stopped.

    The receiver then counts for a shorter time, and misses what was sent in the rest.
    """
    if look.flow is None or not look.flow.sent.datagrams:
        return False
    sent, received = look.flow.sent.seconds, look.flow.received.seconds
    if not sent or not received or sent - received < 0.1:
        return False
    return lost(look) <= 1.1 * (sent - received) * look.flow.sent.datagrams / sent


def _share_of_losses(look: Look, count: float, unknown: float) -> float:
    """The share of the lost datagrams that `count` explains; `unknown` if none is known to be lost."""
    return min(1.0, count / lost(look)) if lost(look) else unknown


def receive_buffer(look: Look) -> Optional[Hit]:
    """The receiver's socket buffer overflowed, by its counter or by the lack of other causes."""
    counted = growth(look.receiver_fact("Udp.RcvbufErrors"))
    if look.protocol != "udp":
        return None
    if not counted:
        return _usual_cause(look)
    share = _share_of_losses(look, counted, unknown=1.0)
    if share < HALF:
        return None
    return Hit(
        share,
        f"the receiver's socket buffer overflowed: {counted:.0f} of {lost(look)} lost datagrams",
        _facts(look, "Udp.RcvbufErrors"),
        "or iperf3 -w 4M",
        "receiver",
        sysctls=LARGER_RECEIVE_BUFFERS,
    )


def _usual_cause(look: Look) -> Optional[Hit]:
    """Datagrams were lost, and no counter of the receiver says why."""
    if not losing(look) or look.phase.receiver or _is_one_of_several(look):
        return None
    loss, rate = look.loss or 0, look.rate or 0
    return Hit(
        0.6 if loss <= HOPELESS else 0.2,
        f"{amounts.percent(loss)} of the datagrams were lost; without the receiver's counters, a "
        f"socket buffer that overflows at {amounts.rate(rate)} is the usual cause{_fragments(look)}",
        (fact("lost / datagrams", look.loss),),
        "or iperf3 -w 4M",
        "receiver",
        LOW,
        sysctls=LARGER_RECEIVE_BUFFERS,
    )


def _is_one_of_several(look: Look) -> bool:
    """Whether there are other UDP tests, which tell more when compared."""
    others = (one.run for one in look.evidence.phases if one is not look.phase)
    return any(run is not None and run.protocol == "udp" for run in others)


def _fragments(look: Look) -> str:
    """A clause that says how many fragments a datagram takes; empty if it takes one."""
    payload = _payload(look)
    # The IP header takes 20 bytes of 1500, the UDP header 8 bytes of the first fragment.
    count = -(-(payload + 8) // 1480) if payload else 1
    if count <= 1:
        return ""
    return (
        f"; each datagram of {payload:.0f} bytes takes {count:.0f} fragments at MTU 1500, and losing "
        "one fragment loses the datagram"
    )


def _payload(look: Look) -> float:
    """Bytes in a datagram, 0 if not known; iperf3 before 3.1.5 sends 8 KiB without saying so."""
    if look.phase.run and look.phase.run.datagram:
        return look.phase.run.datagram
    if look.flow is None or not look.flow.sent.bytes or not look.flow.sent.datagrams:
        return 0
    return round(look.flow.sent.bytes / look.flow.sent.datagrams)


def _facts(look: Look, *names: str) -> tuple[Fact, ...]:
    found = [one for name in names if (one := look.receiver_fact(name)) is not None]
    return (*found, fact("lost / datagrams", look.loss)) if look.loss is not None else tuple(found)


def udp_memory(look: Look) -> Optional[Hit]:
    counted = growth(look.receiver_fact("Udp.MemErrors"))
    if not counted:
        return None
    return Hit(
        _share_of_losses(look, counted, unknown=0.5),
        f"the receiver ran out of memory for UDP: {counted:.0f} datagrams",
        _facts(look, "Udp.MemErrors"),
        "raise net.ipv4.udp_mem, or use fewer and smaller sockets",
        "receiver",
    )


def too_fast_for_the_receiver(look: Look) -> Optional[Hit]:
    """Without counters: more than half was lost, so that on average the receiver does not keep up."""
    if not losing(look) or (look.loss or 0) <= HOPELESS or _is_one_of_several(look):
        return None
    if look.phase.receiver or look.receiver_load.full is not None:
        return None
    return Hit(
        0.7,
        f"the receiver takes {amounts.rate(look.rate or 0)} of what is offered: it does not keep up "
        "with the packets (because of D09 its CPU, D11 its NIC's rings, or D12 its softirq budget); "
        f"the loss-free rate is not known: search for it{_fragments(look)}",
        (fact("lost / datagrams", look.loss),),
        "nstat UdpRcvbufErrors, /proc/net/softnet_stat and ethtool -S on the receiver tell which; "
        "offer less until nothing is lost",
        "receiver",
        LOW,
    )


def fragments(look: Look) -> Optional[Hit]:
    failed = growth(look.receiver_fact("Ip.ReasmFails"))
    failed += growth(look.receiver_fact("Ip6.Ip6ReasmFails"))
    if not failed or not losing(look):
        return None
    return Hit(
        min(1.0, failed / max(1, lost(look))),
        f"{failed:.0f} datagrams could not be reassembled from their fragments{_fragments(look)}",
        _facts(look, "Ip.ReasmFails", "Ip6.Ip6ReasmFails", "Ip.ReasmReqds"),
        f"send at most MTU - {HEADERS} bytes (iperf3 -l 1472); "
        "sysctl -w net.ipv4.ipfrag_high_thresh=16777216",
        "receiver",
    )


def offered_too_little(look: Look) -> Optional[Hit]:
    sent = look.flow.sent.rate if look.flow else None
    if look.protocol != "udp" or not look.asked or sent is None or sent >= SENT * look.asked:
        return None
    load = look.sender_load
    full = f": its CPU {load.cpu} is full" if load.is_full else ""
    return Hit(
        1 - sent / look.asked,
        f"the sender offered {amounts.rate(sent)} of the {amounts.rate(look.asked)} that were asked "
        f"for{full}",
        (fact("sent bit/s", round(sent)), fact("-b", round(look.asked))),
        "larger datagrams (-l 8948 with jumbo frames), more streams (-P), or iperf3 3.16 or later",
        "sender",
        severity=LIMIT,
    )


def lost_while_not_listening(look: Look) -> Optional[Hit]:
    if look.protocol != "udp" or (look.loss or 0) <= LOSSY or not lost_at_an_end(look):
        return None
    if look.flow is None:
        return None
    missed = (look.flow.sent.seconds or 0) - (look.flow.received.seconds or 0)
    return Hit(
        0.0,
        f"{lost(look)} datagrams were sent in the {amounts.time(missed)} in which the receiver did "
        "not count",
        (fact("lost / datagrams", look.loss),),
        end="tool",
        severity=INFO,
    )


def random_loss(session: Session) -> Optional[Hit]:
    """Even the slowest test loses datagrams, so that no queue overflows."""
    slowest = lowest(session.looks)
    if slowest is None or not losing(slowest) or counted_losses(slowest) >= HALF * lost(slowest):
        return None
    others = [one for one in tests_that_tell(session.looks) if one is not slowest and one.rate]
    if not all(map(losing, others)):
        # What gets through at a higher rate is not lost at random.
        return None
    if not others and not _is_slow(slowest):
        # One fast test says nothing about slow ones.
        return None
    return Hit(
        0.95,
        f"{amounts.percent(slowest.loss or 0)} is lost even at {amounts.rate(slowest.rate or 0)}: not "
        "a queue that overflows, but a bad cable, optic, duplex setting or radio link",
        (fact("lost / datagrams", slowest.loss),),
        "ethtool -S DEV | grep -iE 'crc|err|align'; ethtool DEV; change the cable or the optic",
    )


def _is_slow(look: Look) -> bool:
    """Whether a test is far below what the path should carry."""
    rate, expect = look.rate or 0, look.evidence.expect
    return rate <= DELIBERATE or bool(expect and rate <= 0.15 * expect)


def tests_that_tell(looks: Sequence[Look]) -> list[Look]:
    """The UDP tests with enough datagrams: that a short slow one lost none may be chance."""
    udp = [one for one in looks if one.protocol == "udp" and one.flow and one.loss is not None]
    lossy = [one for one in udp if losing(one)]
    share = sum(map(lost, lossy)) / max(1, sum(map(_sent, lossy)))
    return [one for one in udp if not share or _sent(one) * share >= EXPECTED]


def lowest(looks: Sequence[Look]) -> Optional[Look]:
    """The test that offered the lowest rate, of those that tell something."""
    return min(tests_that_tell(looks), key=_offered, default=None)


def _offered(look: Look) -> float:
    return (look.flow.sent.rate or 0) if look.flow else 0


def _sent(look: Look) -> int:
    return (look.flow.received.datagrams or 0) if look.flow else 0


def counted_losses(look: Look) -> float:
    """How many datagrams the hosts' own counters say were dropped."""
    names = ("Udp.RcvbufErrors", "Udp.MemErrors", "Ip.ReasmFails", "softnet.dropped")
    counted = [look.receiver_fact(name) for name in names]
    return sum(map(growth, [*counted, look.sender_fact("softnet.dropped")]))


UDP = (
    PhaseRule("D07", "UDP receive buffer overflow", FAULT, receive_buffer),
    PhaseRule("D08", "UDP memory pressure", FAULT, udp_memory),
    PhaseRule("D09", "receiver does not keep up with UDP", LIMIT, too_fast_for_the_receiver),
    PhaseRule("D15", "fragments lost", FAULT, fragments),
    PhaseRule("D20", "sender cannot offer the UDP rate", LIMIT, offered_too_little),
    PhaseRule("D19", "lost while the receiver was not listening", INFO, lost_while_not_listening),
)
UDP_SESSION = (SessionRule("D19", "random loss", FAULT, random_loss),)
