"""D05, D09, D18: what is likeliest if no rule finds a cause, by what the other causes would show.

Loss would have made the congestion window smaller, a window would have a constant round trip of
its own, and a limiter would make a queue. Otherwise, the hosts are left, and what forwards packets.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.base import LIMIT, LOW, ORDERED, Hit, fact
from neuca_tools.selftest.conditions.printed import (
    FAST,
    LOSSY,
    OF_LINE,
    RARE,
    UNEVEN,
    VERY_STEADY,
    as_asked,
    is_at_cap,
    is_constant,
    is_paced,
    varies_little,
    window_at_loss,
)
from neuca_tools.selftest.conditions.printed_around import said
from neuca_tools.selftest.conditions.printed_datagrams import LOST
from neuca_tools.selftest.conditions.printed_hosts import (
    CORE,
    LOSSLESS,
    RADIO,
    SLOWEST_HOST,
    calls_of,
    is_given,
)
from neuca_tools.selftest.conditions.printed_path import NEAR_LINE
from neuca_tools.selftest.conditions.printed_window import BBR, LAN_TRIP, SLOWEST_PATH
from neuca_tools.selftest.conditions.session import Rule, Session, first
from neuca_tools.selftest.conditions.thresholds import TOGETHER
from neuca_tools.selftest.evidence.look import Fact, Look
from neuca_tools.selftest.evidence.moves import FALLS, QUEUES
from neuca_tools.selftest.evidence.printed import Printed, printed
from neuca_tools.selftest.evidence.run import known_rates

# A rule about one run of a text that has several.
Judge = Callable[[Session, Look, Printed], Optional[Hit]]
SHARE = 0.3  # of the lost time: it is a guess
ROOM = 2  # times the window: so much less than the loss would leave is held by something else
SLOW_HOST = 100e6  # bit/s: hosts that are slower are older, and a rate so low is rather given
# Bytes that any host allows in flight; coefficients of variation of what loss leaves, and of
# datagrams, which are sent evenly.
ALLOWED, VARIED, WAITING = 256 * 1024, 0.25, 0.15
# Seconds: what waits at the end of the test, without loss, and with so much of it.
HELD, HELD_LONG, FEW_LOST = 0.3, 2.0, 0.01
SMOOTH = 0.08  # by which a rate changes from one interval to the next: a radio's changes more
QUEUED, FASTER = 5, 1.1  # intervals; times the rate at first
BONDED = 4  # links
SLOW_CALLS = 80_000  # system calls in a second
USUAL = (10e6, 100e6, 1e9, 10e9)  # bit/s
FAR_SLOWER = 3  # times: between the same hosts, no load and no chance makes such a difference
# The hosts of networks that a program emulates: of QEMU and VirtualBox (slirp), of slirp4netns,
# of Docker Desktop (vpnkit), of Podman's and Lima's machines (gvisor-tap-vsock).
EMULATED = frozenset(
    {"10.0.2.2", "10.0.2.15", "10.0.2.100", "192.168.65.2", "192.168.127.1", "192.168.127.254"}
)


def _likely(text: str, facts: tuple[Fact, ...], advice: str, end: str = "path") -> Hit:
    return Hit(SHARE, text, facts, advice, end, confidence=LOW)


def _rate_facts(one: Printed) -> tuple[Fact, ...]:
    return fact("rate, bit/s", round(one.rate)), fact("retransmits", one.retransmits)


def of_any(judge: Judge, protocol: str = "tcp") -> Callable[[Session], Optional[Hit]]:
    """Apply a rule to each run, until it hits."""

    def hit(session: Session) -> Optional[Hit]:
        looks = (look for look in session.looks if look.protocol == protocol)
        return first(_judged(judge, session, look) for look in looks)

    return hit


def _judged(judge: Judge, session: Session, look: Look) -> Optional[Hit]:
    one = printed(look)
    found = judge(session, look, one) if one else None
    return replace(found, direction=look.phase.direction) if found else None


def of_unexplained(judge: Judge) -> Callable[[Session], Optional[Hit]]:
    """Apply a rule to each run that filled no link, and was not limited by what is known."""
    return of_any(
        lambda session, look, one: judge(session, look, one) if _is_open(look, one) else None
    )


def _is_open(look: Look, one: Printed) -> bool:
    return not (is_given(look, one) or is_paced(one) or _is_near_line(one))


def _is_near_line(one: Printed) -> bool:
    """Whether load, encapsulation or a virtual NIC may be all that is missing to a full link.

    Or to the links of a bond.
    """
    if one.share >= LOSSY and (one.spread or 0.0) >= VARIED:
        return False
    if is_constant(one) and _is_bond(one.rate / FAST):
        return True
    parts = ((NEAR_LINE, USUAL), (OF_LINE[0], RARE))
    return any(part * speed <= one.rate <= speed for part, speeds in parts for speed in speeds)


def _is_bond(links: float) -> bool:
    return 1 < links <= BONDED and links >= OF_LINE[0] * math.ceil(links)


def idle_path(_session: Session, _look: Look, one: Printed) -> Optional[Hit]:
    """Nothing was lost, nothing waits, and no link is full: the hosts are as fast as they can."""
    is_unhurried = one.rate < SLOW_HOST and is_constant(one, VERY_STEADY)
    if is_unhurried or not SLOWEST_HOST <= one.rate < CORE * one.streams or not _is_idle(one):
        return None
    return _likely(
        f"{amounts.rate(one.rate)} fill no link, little was lost, and no queue is on the path: "
        "what is left is a CPU (of a host, or of what forwards in between), its interrupts, or a "
        "NIC that is slower than its link",
        (*_rate_facts(one), fact("cwnd / rate, seconds", round(one.implied_rtt, 5))),
        "check the CPUs of both hosts during a test (mpstat -P ALL 1), offloads (ethtool -k), and "
        "lspci -vv (LnkSta, ASPM); several streams (-P)",
        "both",
    )


def _is_idle(one: Printed) -> bool:
    """Whether loss and queues are not what limits, as far as the congestion window tells."""
    if one.cwnd is None or one.retransmits is None or one.share > LOSSLESS:
        return False
    if one.retransmits and ROOM * one.cwnd > window_at_loss(one):
        return False
    # Radios are slower, and paths with longer round trips leave the local network.
    is_near = one.implied_rtt <= RADIO or (one.rate >= FAST and one.is_local_network)
    return is_near or _is_shrinking(one)


def _is_shrinking(one: Printed) -> bool:
    """Whether the congestion window became smaller without loss: it was not used (RFC 7661)."""
    if one.run.congestion == BBR or one.retransmits:
        return False
    cwnds = [each.cwnd or 0.0 for each in one.every[1:]]
    return any(0 < now < FALLS * before for before, now in zip(cwnds, cwnds[1:]))


def queue_somewhere(_session: Session, _look: Look, one: Printed) -> Optional[Hit]:
    """A queue that no host of today makes: something on the path limits."""
    is_long = one.implied_rtt >= LAN_TRIP and (_is_constant_nearby(one) or _is_growing_queue(one))
    if not is_long and not _is_held(one):
        return None
    return _likely(
        f"{amounts.size(max(one.cwnd or 0.0, one.held))} are under way at {amounts.rate(one.rate)}"
        ", and a larger window makes it no faster: they wait before something that lets no more "
        "through",
        (*_rate_facts(one), fact("cwnd / rate, seconds", round(one.implied_rtt, 5))),
        ORDERED,
    )


def _is_held(one: Printed) -> bool:
    """Whether much had not arrived at the end of a slow and even test, or the rate is sold."""
    if one.rate >= SLOWEST_PATH or not varies_little(one, UNEVEN):
        return False
    waits = one.held * 8 / one.rate
    if one.late_share < LOSSLESS:
        return waits >= HELD or is_at_cap(one)
    return one.share < FEW_LOST and waits >= HELD_LONG


def _is_constant_nearby(one: Printed) -> bool:
    """Whether the rate stays in a local network, while the window does not."""
    is_known = len(one.rates) >= QUEUED and not one.is_flat
    return is_known and one.is_local_network and is_constant(one)


def _is_growing_queue(one: Printed) -> bool:
    """Whether the window grows and grows, nothing is lost, and the rate is no higher."""
    cwnds, rates = [each.cwnd for each in one.every if each.cwnd], known_rates(one.every)
    if one.rate >= SLOWEST_PATH or len(cwnds) < 3 or len(cwnds) != len(rates):
        return False
    is_growing = cwnds == sorted(cwnds) and cwnds[-1] >= QUEUES * cwnds[1]
    if not is_growing or any(each.retransmits for each in one.every):
        return False
    return rates[-1] <= rates[1] * FASTER and _is_smooth(rates[1:])


def _is_smooth(rates: Sequence[float]) -> bool:
    changes = [abs(now - before) / (before or 1.0) for before, now in zip(rates, rates[1:])]
    return median(changes) <= SMOOTH


def some_loss(_session: Session, _look: Look, one: Printed) -> Optional[Hit]:
    """Something is lost all the time, at a rate that nothing gives."""
    if one.share < LOSSY or 2 * one.events < len(one.every) or one.rate >= CORE:
        return None
    if (one.spread or 0.0) < UNEVEN:
        return None
    return _likely(
        f"{one.retransmits} segments, {amounts.percent(one.share)} of what was sent, were lost "
        f"and retransmitted, in {one.events} of {len(one.every)} intervals, and nothing else "
        "explains the rate",
        (*_rate_facts(one), fact("intervals with loss", one.events)),
        "find where it is lost: nstat, tc -s qdisc and ethtool -S on both hosts",
    )


def small_flight(_session: Session, _look: Look, one: Printed) -> Optional[Hit]:
    """So little is in flight, and so unevenly, over such a round trip, that loss makes it so."""
    trip = one.rtt or 0.0
    flight = one.rate * trip / 8 / one.streams
    if one.retransmits == 0 or trip < LAN_TRIP or flight >= ALLOWED:
        return None
    if (one.spread or 0.0) < VARIED or len(one.rates) < QUEUED:
        return None
    return _likely(
        f"only {amounts.size(flight)} are in flight in each round trip of {amounts.time(trip)}, "
        "and the rate varies: loss keeps the window small",
        (fact("rate × rtt, bytes", round(flight)), fact("variation", one.spread)),
        "iperf3 shows retransmits; nstat, tc -s qdisc and ethtool -S tell where it is lost",
    )


def waiting_datagrams(_session: Session, look: Look, one: Printed) -> Optional[Hit]:
    """UDP, which is sent evenly, arrives unevenly without loss: it waits on the path."""
    if one.is_loopback or (look.loss or 0.0) >= LOST or len(one.rates) < QUEUED:
        return None
    is_known = all(each.lost is not None for each in one.every) and min(one.rates) > 0
    if not is_known or (one.spread or 0.0) < WAITING:
        return None
    return _likely(
        "datagrams, which are sent evenly, arrive unevenly, and hardly any is lost: they wait in a "
        "queue, before something that lets no more through",
        (fact("variation", one.spread), fact("lost / datagrams", look.loss)),
        ORDERED,
    )


def emulated_network(_session: Session, _look: Look, one: Printed) -> Optional[Hit]:
    """The addresses are those of a network that a program emulates, packet by packet."""
    hosts = {one.run.peer, *(ends.local for ends in one.run.connections)}
    if one.retransmits or not EMULATED & hosts:
        return None
    return _likely(
        f"{amounts.rate(one.rate)} pass a network that a program emulates (by its addresses: "
        "slirp, vpnkit, gvisor-tap-vsock): its CPU usually limits",
        _rate_facts(one),
        "a tap device or a bridge instead of the emulated network, or a larger MTU of it",
    )


def another_network(session: Session, look: Look, one: Printed) -> Optional[Hit]:
    """The same text has a test over another network that was several times as fast."""
    others = [other for other in session.tcp if _is_elsewhere(look, other)]
    best = max((other.rate or 0.0 for other in others), default=0.0)
    if best < FAR_SLOWER * one.rate:
        return None
    return _likely(
        f"over another network, the same text has {amounts.rate(best)}; here it is "
        f"{amounts.rate(one.rate)}: a tunnel, a relay or an emulated device in between takes CPU "
        "time for each packet",
        (*_rate_facts(one), fact("over the other, bit/s", round(best))),
        "check the CPU of what forwards (top -H); a kernel's own tunnel instead of a program; "
        "offloads of the virtual device (ethtool -k)",
    )


def _is_elsewhere(one: Look, other: Look) -> bool:
    """Whether the other test had a different peer and the same direction."""
    here, there = _peer(one), _peer(other)
    is_same_way = one.phase.direction == other.phase.direction
    return is_same_way and here is not None and there not in (None, here)


def _peer(look: Look) -> Optional[str]:
    run = look.phase.run
    remote = next((one.remote for one in run.connections), None) if run else None
    return remote or (run.peer if run else None)


def loopback(_session: Session, look: Look, one: Printed) -> Optional[Hit]:
    """Within a host nothing but CPUs limits, and one core copies faster than this."""
    if not one.is_inside or one.rate >= CORE or one.share > LOSSLESS:
        return None
    if look.phase.name == TOGETHER or as_asked(look):
        return None
    return _likely(
        f"{amounts.rate(one.rate)} within one host, where only CPUs limit: it is busy, or a relay, "
        "a tunnel or small blocks take their time",
        _rate_facts(one),
        "see which process fills its CPU during a test (top -H)",
        "both",
    )


def many_calls(_session: Session, look: Look, one: Printed) -> Optional[Hit]:
    """Small blocks (-l), and as many system calls as slower hosts can do."""
    calls = calls_of(one)
    if calls < SLOW_CALLS or one.share > LOSSLESS or as_asked(look):
        return None
    return _likely(
        f"blocks of {one.run.datagram} bytes (-l) take {calls:.0f} system calls in a second: on a "
        "slow or virtual host these limit",
        (fact("-l", one.run.datagram), fact("calls in a second", round(calls))),
        "larger blocks: iperf3 -l 128K is the default for TCP",
        "sender",
    )


def tunnel(session: Session, _look: Look, one: Printed) -> Optional[Hit]:
    """The text names a tunnel or a relay that is a program, and nothing else is known."""
    name = said(session).tunnel
    if name is None or one.rate >= CORE or one.retransmits:
        return None
    return _likely(
        f"the text names {name}, little is lost, and {amounts.rate(one.rate)} fill no link: the "
        "CPU of what encrypts or forwards is the usual limit",
        _rate_facts(one),
        "check its CPU during a test (top -H); a kernel's own tunnel instead of a program",
    )


REST_SESSION = (
    Rule("D09", "CPU full", LIMIT, of_any(emulated_network)),
    Rule("D09", "CPU full", LIMIT, of_unexplained(another_network)),
    Rule("D09", "CPU full", LIMIT, of_any(loopback)),
    Rule("D09", "CPU full", LIMIT, of_any(many_calls)),
    Rule("D09", "CPU full", LIMIT, of_unexplained(idle_path)),
    Rule("D09", "CPU full", LIMIT, of_unexplained(tunnel)),
    Rule("D18", "path capacity reached", LIMIT, of_unexplained(queue_somewhere)),
    Rule("D18", "path capacity reached", LIMIT, of_any(waiting_datagrams, "udp")),
    Rule("D05", "limited by loss", LIMIT, of_unexplained(some_loss)),
    Rule("D05", "limited by loss", LIMIT, of_unexplained(small_flight)),
)
"""The first that hits is the likeliest: they are asked in this order."""
