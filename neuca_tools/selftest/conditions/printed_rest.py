"""D09, D18: what is likeliest where no rule finds a cause, by what the other causes would show.

Loss would have made the congestion window smaller, a window would have a constant round trip of
its own, and a limiter would make a queue. What is left are the hosts, and what forwards in between.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import math
from collections.abc import Iterator
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
    tcp_printed,
    varies_little,
    window_at_loss,
)
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
from neuca_tools.selftest.conditions.session import Rule, Session
from neuca_tools.selftest.conditions.thresholds import TOGETHER
from neuca_tools.selftest.evidence.around import around
from neuca_tools.selftest.evidence.look import Look
from neuca_tools.selftest.evidence.moves import FALLS, QUEUES
from neuca_tools.selftest.evidence.printed import Printed, printed
from neuca_tools.selftest.evidence.run import known_rates

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


def idle_path(session: Session) -> Optional[Hit]:
    """Nothing was lost, nothing waits, and no link is full: the hosts are as fast as they can."""
    for look, one in _unexplained(session):
        if _is_idle(one):
            return Hit(
                0.3,
                f"{amounts.rate(one.rate)} fill no link, little was lost, and no queue is on the "
                "path: what is left is a CPU (of a host, or of what forwards in between), its "
                "interrupts, or a NIC that is slower than its link",
                (
                    fact("rate, bit/s", round(one.rate)),
                    fact("cwnd / rate, seconds", round(one.implied_rtt, 5)),
                    fact("retransmits", one.retransmits),
                ),
                "check the CPUs of both hosts during a test (mpstat -P ALL 1), offloads "
                "(ethtool -k), and lspci -vv (LnkSta, ASPM); several streams (-P)",
                "both",
                confidence=LOW,
                direction=look.phase.direction,
            )
    return None


def _unexplained(session: Session) -> Iterator[tuple[Look, Printed]]:
    """The runs that filled no link, and were not limited by what is known otherwise."""
    for look in session.looks:
        one = tcp_printed(look)
        if one is None or is_given(look, one) or is_paced(one):
            continue
        if not _is_near_line(one):
            yield look, one


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


def _is_idle(one: Printed) -> bool:
    """Whether loss and queues are not what limits, as far as the congestion window tells."""
    if not SLOWEST_HOST <= one.rate < CORE * one.streams or (
        one.rate < SLOW_HOST and is_constant(one, VERY_STEADY)
    ):
        return False
    if one.cwnd is None or one.retransmits is None:
        return False
    if one.share > LOSSLESS or (one.retransmits and ROOM * one.cwnd > window_at_loss(one)):
        return False
    # Radios are slower, and paths with longer round trips leave the local network.
    is_near = one.implied_rtt <= RADIO or (one.rate >= FAST and one.is_local_network)
    return is_near or _is_shrinking(one)


def _is_shrinking(one: Printed) -> bool:
    """Whether the congestion window became smaller without loss: it was not used (RFC 7661)."""
    pairs = zip(one.every[1:], one.every[2:])
    return (
        one.run.congestion != BBR
        and not one.retransmits
        and any((now.cwnd or math.inf) < FALLS * (before.cwnd or 0.0) for before, now in pairs)
    )


def queue_somewhere(session: Session) -> Optional[Hit]:
    """A queue that no host of today makes: something on the path limits."""
    for look, one in _unexplained(session):
        if _is_queue(one):
            return Hit(
                0.35,
                f"{amounts.size(one.cwnd or 0)} under way take {amounts.time(one.implied_rtt)} at "
                f"{amounts.rate(one.rate)}, and a larger window makes it no faster: they wait "
                "before something that lets no more through",
                (
                    fact("rate, bit/s", round(one.rate)),
                    fact("cwnd / rate, seconds", round(one.implied_rtt, 5)),
                ),
                ORDERED,
                confidence=LOW,
                direction=look.phase.direction,
            )
    return None


def _is_queue(one: Printed) -> bool:
    """Whether what is under way waits: in a local network, or ever longer while nothing is lost."""
    is_slow = one.rate < SLOWEST_PATH and varies_little(one, UNEVEN)
    waits = one.held * 8 / one.rate
    if is_slow and one.late_share < LOSSLESS and (waits >= HELD or is_at_cap(one)):
        return True
    if is_slow and one.share < FEW_LOST and waits >= HELD_LONG:
        return True
    if one.implied_rtt < LAN_TRIP:
        return False
    is_constant_lan = one.is_local_network and len(one.rates) >= QUEUED and is_constant(one)
    return (is_constant_lan and not one.is_flat) or (
        one.rate < SLOWEST_PATH and _is_growing_queue(one)
    )


def _is_growing_queue(one: Printed) -> bool:
    """Whether the window grows and grows, nothing is lost, and the rate is no higher."""
    cwnds, rates = [each.cwnd for each in one.every if each.cwnd], known_rates(one.every)
    if any(each.retransmits for each in one.every) or len(cwnds) < 3 or len(cwnds) != len(rates):
        return False
    is_grown = cwnds == sorted(cwnds) and cwnds[-1] >= QUEUES * cwnds[1]
    changes = [abs(now - before) / (before or 1.0) for before, now in zip(rates[1:], rates[2:])]
    return is_grown and rates[-1] <= rates[1] * FASTER and median(changes) <= SMOOTH


def some_loss(session: Session) -> Optional[Hit]:
    """Something is lost all the time, at a rate that nothing gives."""
    for look, one in _unexplained(session):
        if one.share < LOSSY or 2 * one.events < len(one.every) or one.rate >= CORE:
            continue
        if (one.spread or 0.0) < UNEVEN:
            continue
        return Hit(
            0.3,
            f"{one.retransmits} segments, {amounts.percent(one.share)} of what was sent, were lost "
            f"and retransmitted, in {one.events} of {len(one.every)} intervals, and nothing else "
            "explains the rate",
            (fact("retransmits", one.retransmits), fact("intervals with loss", one.events)),
            "find where it is lost: nstat, tc -s qdisc and ethtool -S on both hosts",
            confidence=LOW,
            direction=look.phase.direction,
        )
    return None


def small_flight(session: Session) -> Optional[Hit]:
    """So little is in flight, and so unevenly, over such a round trip, that loss makes it so."""
    for look, one in _unexplained(session):
        flight = one.rate * (one.rtt or 0.0) / 8 / one.streams
        if one.retransmits == 0 or (one.rtt or 0.0) < LAN_TRIP or not 0 < flight < ALLOWED:
            continue
        if one.spread is None or one.spread < VARIED or len(one.rates) < QUEUED:
            continue
        return Hit(
            0.3,
            f"only {amounts.size(flight)} are in flight in each round trip of "
            f"{amounts.time(one.rtt or 0.0)}, and the rate varies: loss keeps the window small",
            (fact("rate × rtt, bytes", round(flight)), fact("variation", one.spread)),
            "iperf3 shows retransmits; nstat, tc -s qdisc and ethtool -S tell where it is lost",
            confidence=LOW,
            direction=look.phase.direction,
        )
    return None


def waiting_datagrams(session: Session) -> Optional[Hit]:
    """UDP, which is sent evenly, arrives unevenly without loss: it waits on the path."""
    for look in session.looks:
        one = printed(look) if look.protocol == "udp" else None
        if one is None or one.is_loopback or (look.loss or 0.0) >= LOST or one.spread is None:
            continue
        known = all(each.lost is not None for each in one.every)
        if known and len(one.rates) >= QUEUED and one.spread >= WAITING and min(one.rates) > 0:
            return Hit(
                0.3,
                "datagrams, which are sent evenly, arrive unevenly, and hardly any is lost: they "
                "wait in a queue, before something that lets no more through",
                (fact("variation", round(one.spread, 3)), fact("lost / datagrams", look.loss)),
                ORDERED,
                confidence=LOW,
                direction=look.phase.direction,
            )
    return None


def emulated_network(session: Session) -> Optional[Hit]:
    """The addresses are those of a network that a program emulates, packet by packet."""
    for look in session.looks:
        one = tcp_printed(look)
        if one is None or one.retransmits or not _is_emulated(one):
            continue
        return Hit(
            0.4,
            f"{amounts.rate(one.rate)} pass a network that a program emulates (by its addresses: "
            "slirp, vpnkit, gvisor-tap-vsock): its CPU usually limits",
            (fact("rate, bit/s", round(one.rate)), fact("retransmits", one.retransmits)),
            "a tap device or a bridge instead of the emulated network, or a larger MTU of it",
            confidence=LOW,
            direction=look.phase.direction,
        )
    return None


def _is_emulated(one: Printed) -> bool:
    return bool(EMULATED & {one.run.peer, *(ends.local for ends in one.run.connections)})


def another_network(session: Session) -> Optional[Hit]:
    """The same text has a test over another network that was several times as fast."""
    runs = list(_unexplained(session))
    for look, one in runs:
        others = [other for other in session.tcp if _is_elsewhere(look, other)]
        best = max((other.rate or 0.0 for other in others), default=0.0)
        if best < FAR_SLOWER * one.rate:
            continue
        return Hit(
            0.35,
            f"over another network, the same text has {amounts.rate(best)}; here it is "
            f"{amounts.rate(one.rate)}: a tunnel, a relay or an emulated device in between takes "
            "CPU time for each packet",
            (fact("rates, bit/s", f"{one.rate:.0f}, {best:.0f}"),),
            "check the CPU of what forwards (top -H); a kernel's own tunnel instead of a program; "
            "offloads of the virtual device (ethtool -k)",
            confidence=LOW,
            direction=look.phase.direction,
        )
    return None


def _is_elsewhere(one: Look, other: Look) -> bool:
    """Whether the other test had a different peer and the same direction."""
    here, there = _peer(one), _peer(other)
    is_same_way = one.phase.direction == other.phase.direction
    return is_same_way and here is not None and there not in (None, here)


def _peer(look: Look) -> Optional[str]:
    run = look.phase.run
    remote = next((one.remote for one in run.connections), None) if run else None
    return remote or (run.peer if run else None)


def loopback(session: Session) -> Optional[Hit]:
    """Within a host nothing but CPUs limits, and one core copies faster than this."""
    for look in session.looks:
        one = tcp_printed(look)
        if one is None or not one.is_inside or one.rate >= CORE or one.share > LOSSLESS:
            continue
        if look.phase.name != TOGETHER and not as_asked(look):
            return Hit(
                0.3,
                f"{amounts.rate(one.rate)} within one host, where only CPUs limit: it is busy, or "
                "a relay, a tunnel or small blocks take their time",
                (fact("rate, bit/s", round(one.rate)), fact("retransmits", one.retransmits)),
                "see which process fills its CPU during a test (top -H)",
                "both",
                confidence=LOW,
                direction=look.phase.direction,
            )
    return None


def many_calls(session: Session) -> Optional[Hit]:
    """Small blocks (-l), and as many system calls as slower hosts can do."""
    for look in session.looks:
        one = tcp_printed(look)
        if one is None or as_asked(look) or one.share > LOSSLESS or calls_of(one) < SLOW_CALLS:
            continue
        return Hit(
            0.3,
            f"blocks of {one.run.datagram} bytes (-l) take {calls_of(one):.0f} system calls in a "
            "second: on a slow or virtual host these limit",
            (fact("-l", one.run.datagram), fact("calls in a second", round(calls_of(one)))),
            "larger blocks: iperf3 -l 128K is the default for TCP",
            "sender",
            confidence=LOW,
            direction=look.phase.direction,
        )
    return None


def tunnel(session: Session) -> Optional[Hit]:
    """The text names a tunnel or a relay that is a program, and nothing else is known."""
    raw = next((one.raw for one in session.evidence.phases if one.raw), "")
    name = around(raw).tunnel
    if name is None:
        return None
    for look, one in _unexplained(session):
        if one.rate < CORE and not one.retransmits:
            return Hit(
                0.25,
                f"the text names {name}, little is lost, and {amounts.rate(one.rate)} fill no "
                "link: the CPU of what encrypts or forwards is the usual limit",
                (fact("rate, bit/s", round(one.rate)), fact("retransmits", one.retransmits)),
                "check its CPU during a test (top -H); a kernel's own tunnel instead of a program",
                confidence=LOW,
                direction=look.phase.direction,
            )
    return None


REST_SESSION = (
    Rule("D09", "CPU full", LIMIT, emulated_network),
    Rule("D09", "CPU full", LIMIT, another_network),
    Rule("D09", "CPU full", LIMIT, loopback),
    Rule("D09", "CPU full", LIMIT, many_calls),
    Rule("D09", "CPU full", LIMIT, idle_path),
    Rule("D09", "CPU full", LIMIT, tunnel),
    Rule("D18", "path capacity reached", LIMIT, queue_somewhere),
    Rule("D18", "path capacity reached", LIMIT, waiting_datagrams),
    Rule("D05", "limited by loss", LIMIT, some_loss),
    Rule("D05", "limited by loss", LIMIT, small_flight),
)
