"""D07, D08, D15, D19, D20: datagrams that were sent and never came, and those that were never sent."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.base import (
    FAULT,
    HIGH,
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

LOSSY = 1e-4  # of the datagrams; below it a receiver is taken to be loss-free (facts, thresholds)
HALF = 0.5  # of the losses: a counter that explains so much is the cause (D07)
HOPELESS = 0.5  # of the datagrams lost: the receiver does not keep up on average, and no buffer makes up for that
SENT = 0.95  # of the rate that was asked for (D20)
HEADERS = 28  # bytes: IPv4 and UDP
EXPECTED = (
    3  # datagrams lost, if as many are as elsewhere: that none is has a chance of 5% then (exp(-3))
)
LARGER_RECEIVE_BUFFERS = {"net.core.rmem_default": "4194304", "net.core.rmem_max": "16777216"}
DELIBERATE = 10e6  # bit/s; a slower test is well below what any path here carries


def lost(look: Look) -> int:
    received = look.flow.received if look.flow else None
    return received.lost or 0 if received and look.protocol == "udp" else 0


def losing(look: Look) -> bool:
    return look.protocol == "udp" and (look.loss or 0) > LOSSY and not lost_at_an_end(look)


def lost_at_an_end(look: Look) -> bool:
    """What was sent while the receiver did not listen yet, or any more: it counts a shorter time, and misses just that."""
    if look.flow is None or not look.flow.sent.datagrams:
        return False
    sent, received = look.flow.sent.seconds, look.flow.received.seconds
    if not sent or not received or sent - received < 0.1:
        return False
    return lost(look) <= 1.1 * (sent - received) * look.flow.sent.datagrams / sent


def receive_buffer(look: Look) -> Optional[Hit]:
    counted = growth(look.receiver_fact("Udp.RcvbufErrors"))
    if look.protocol != "udp" or not (counted or losing(look)):
        return None
    share = min(1.0, counted / lost(look)) if lost(look) else 1.0
    if counted and share < HALF:
        return None
    advice = "or iperf3 -w 4M"
    if counted:
        text = (
            f"the receiver's socket buffer overflowed: {counted:.0f} of {lost(look)} lost datagrams"
        )
        return Hit(
            share,
            text,
            _facts(look, "Udp.RcvbufErrors"),
            advice,
            "receiver",
            sysctls=LARGER_RECEIVE_BUFFERS,
        )
    if look.phase.receiver or _plateau_elsewhere(look):
        return None  # there are counters, and this one did not move
    share = 0.6 if (look.loss or 0) <= HOPELESS else 0.2
    text = (
        f"{amounts.percent(look.loss or 0)} of the datagrams were lost; without the receiver's counters a socket buffer that "
        f"overflows at {amounts.rate(look.rate or 0)} is the usual cause"
    )
    return Hit(
        share,
        text + _fragments(look),
        (fact("lost / datagrams", look.loss),),
        advice,
        "receiver",
        LOW,
        sysctls=LARGER_RECEIVE_BUFFERS,
    )


def _plateau_elsewhere(look: Look) -> bool:
    others = [
        one
        for one in look.evidence.phases
        if one is not look.phase and one.run and one.run.protocol == "udp"
    ]
    return bool(others)


def _fragments(look: Look) -> str:
    payload = _payload(look)
    count = -(-(payload + 8) // 1480) if payload else 1  # the IP header takes 20 of 1500
    return (
        f"; each datagram of {payload:.0f} bytes goes as {count:.0f} fragments at MTU 1500, and one lost fragment loses all"
        if count > 1
        else ""
    )


def _payload(look: Look) -> float:
    """Bytes of a datagram; iperf3 of before 3.1.5 sends 8 KiB without saying so."""
    if look.phase.run and look.phase.run.datagram:
        return look.phase.run.datagram
    sent = look.flow.sent if look.flow else None
    return round(sent.bytes / sent.datagrams) if sent and sent.bytes and sent.datagrams else 0


def _facts(look: Look, *names: str) -> tuple[Fact, ...]:
    found = [one for name in names if (one := look.receiver_fact(name)) is not None]
    return (*found, fact("lost / datagrams", look.loss)) if look.loss is not None else tuple(found)


def udp_memory(look: Look) -> Optional[Hit]:
    counted = growth(look.receiver_fact("Udp.MemErrors"))
    if not counted:
        return None
    share = min(1.0, counted / lost(look)) if lost(look) else 0.5
    return Hit(
        share,
        f"the receiver's memory for UDP ran out: {counted:.0f} datagrams",
        _facts(look, "Udp.MemErrors"),
        "raise net.ipv4.udp_mem, or use fewer and smaller sockets",
        "receiver",
    )


def too_fast_for_the_receiver(look: Look) -> Optional[Hit]:
    """Without counters: more than half was lost, so that on average the receiver does not keep up."""
    if (
        not losing(look)
        or (look.loss or 0) <= HOPELESS
        or look.phase.receiver
        or look.receiver_load.full is not None
    ):
        return None
    if _plateau_elsewhere(look):
        return None
    text = (
        f"the receiver takes {amounts.rate(look.rate or 0)} of what is offered: it does not keep up with the packets "
        "(D09 its CPU, D11 its NIC's rings, or D12 its softirq budget); the loss-free rate is not known: search for it"
    )
    return Hit(
        0.7,
        text + _fragments(look),
        (fact("lost / datagrams", look.loss),),
        "nstat UdpRcvbufErrors, /proc/net/softnet_stat and ethtool -S of the receiver tell which; offer less until "
        "nothing is lost",
        "receiver",
        LOW,
    )


def fragments(look: Look) -> Optional[Hit]:
    failed = growth(look.receiver_fact("Ip.ReasmFails")) + growth(
        look.receiver_fact("Ip6.Ip6ReasmFails")
    )
    if not failed or not losing(look):
        return None
    share = min(1.0, failed / max(1, lost(look)))
    return Hit(
        share,
        f"{failed:.0f} datagrams could not be put together from their fragments" + _fragments(look),
        _facts(look, "Ip.ReasmFails", "Ip6.Ip6ReasmFails", "Ip.ReasmReqds"),
        f"send at most MTU - {HEADERS} bytes (iperf3 -l 1472); sysctl -w net.ipv4.ipfrag_high_thresh=16777216",
        "receiver",
    )


def offered_too_little(look: Look) -> Optional[Hit]:
    asked = look.asked
    sent = look.flow.sent.rate if look.flow else None
    if look.protocol != "udp" or not asked or sent is None or sent >= SENT * asked:
        return None
    full = look.sender_load.is_full
    text = (
        f"the sender offered {amounts.rate(sent)} of the {amounts.rate(asked)} that were asked for"
        + (f": its CPU {look.sender_load.cpu} is full" if full else "")
    )
    return Hit(
        1 - sent / asked,
        text,
        (fact("sent bit/s", round(sent)), fact("-b", round(asked))),
        "larger datagrams (-l 8948 with jumbo frames), more streams (-P), or iperf3 3.16 and later",
        "sender",
        severity=LIMIT,
        confidence=HIGH,
    )


def lost_while_not_listening(look: Look) -> Optional[Hit]:
    if look.protocol != "udp" or (look.loss or 0) <= LOSSY or not lost_at_an_end(look):
        return None
    sent, received = (
        (look.flow.sent.seconds or 0, look.flow.received.seconds or 0) if look.flow else (0, 0)
    )
    text = f"{lost(look)} datagrams were sent in the {amounts.time(sent - received)} in which the receiver did not count"
    return Hit(0.0, text, (fact("lost / datagrams", look.loss),), "", "tool", severity=INFO)


def random_loss(session: Session) -> Optional[Hit]:
    """Also the slowest test loses, so that it is no queue that overflows."""
    telling = tests_that_tell(session.looks)
    slowest = lowest(session.looks)
    if slowest is None or not losing(slowest) or counted_losses(slowest) >= HALF * lost(slowest):
        return None
    others = [one for one in telling if one is not slowest and one.rate]
    slow = slowest.evidence.expect and (slowest.rate or 0) <= 0.15 * slowest.evidence.expect
    if not others and not slow and (slowest.rate or 0) > DELIBERATE:
        return None  # one fast test says nothing about slow ones
    if not all(losing(one) for one in others):
        return None  # what gets through at a higher rate is not lost at random
    text = (
        f"{amounts.percent(slowest.loss or 0)} is lost already at {amounts.rate(slowest.rate or 0)}: not a queue that "
        "overflows, but a bad cable, optic, duplex or radio"
    )
    return Hit(
        0.95,
        text,
        (fact("lost / datagrams", slowest.loss),),
        "ethtool -S DEV | grep -iE 'crc|err|align'; ethtool DEV; change the cable or the optic",
        "path",
    )


def tests_that_tell(looks: Sequence[Look]) -> list[Look]:
    """UDP's tests with datagrams enough: of a slow one that lost nothing chance may be the reason, and it does not count."""
    udp = [
        one
        for one in looks
        if one.protocol == "udp" and one.flow is not None and one.loss is not None
    ]
    lossy = [one for one in udp if losing(one)]
    share = sum(map(lost, lossy)) / max(1, sum(map(_sent, lossy)))
    return [one for one in udp if not share or _sent(one) * share >= EXPECTED]


def lowest(looks: Sequence[Look]) -> Optional[Look]:
    return min(
        tests_that_tell(looks),
        key=lambda one: (one.flow.sent.rate or 0) if one.flow else 0,
        default=None,
    )


def _sent(look: Look) -> int:
    return (look.flow.received.datagrams or 0) if look.flow else 0


def counted_losses(look: Look) -> float:
    """What the hosts' own counters explain."""
    names = ("Udp.RcvbufErrors", "Udp.MemErrors", "Ip.ReasmFails", "softnet.dropped")
    return sum(growth(look.receiver_fact(name)) for name in names) + growth(
        look.sender_fact("softnet.dropped")
    )


UDP = (
    PhaseRule("D07", "UDP receive buffer overflow", FAULT, receive_buffer),
    PhaseRule("D08", "UDP memory pressure", FAULT, udp_memory),
    PhaseRule("D09", "receiver does not keep up with UDP", LIMIT, too_fast_for_the_receiver),
    PhaseRule("D15", "fragments lost", FAULT, fragments),
    PhaseRule("D20", "sender cannot offer the UDP rate", LIMIT, offered_too_little),
    PhaseRule("D19", "lost while the receiver was not listening", INFO, lost_while_not_listening),
)
UDP_SESSION = (SessionRule("D19", "random loss", FAULT, random_loss),)
