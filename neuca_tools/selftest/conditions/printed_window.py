"""D01, D18: windows held by buffers or queues, where iperf's own figures are all that is known."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import replace
from statistics import mean, median, pstdev
from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.base import BUFFERS, MEDIUM, Hit, fact
from neuca_tools.selftest.conditions.printed import (
    APART,
    HEAVY,
    as_asked,
    cap_of,
    differs_by_blocks,
    is_constant,
    is_window_left_by_loss,
    link_filled,
    tcp_printed,
)
from neuca_tools.selftest.conditions.printed_hosts import (
    CORE,
    LAN_RTT,
    LONG,
    NEARLY_FULL,
    ROOM,
)
from neuca_tools.selftest.conditions.thresholds import TOGETHER
from neuca_tools.selftest.evidence.look import Look
from neuca_tools.selftest.evidence.printed import ROUNDED, UNSHAPED, Printed

# Seconds of a path between networks: a geostationary satellite takes 0.6. If the window is known
# not to grow, it may be much smaller than what -w asked for.
OF_PATHS = {False: (LAN_RTT, 1.0), True: (LAN_RTT, 30.0)}
# Bytes of -w that limit in a local network too, and seconds of its round trips.
SMALL, LOCAL_TRIPS = 64 * 1024, (0.0001, 0.01)
STAYS = 5  # intervals
QUANTUM = 0.2  # of the data in flight: iperf3 counts in blocks of 128 KiB
# Of what -w asks for: the kernel doubles it, and uses up to half for its own structures (tcp(7)).
OF_STATED = (0.4, 2.2)
BBR = "bbr"  # keeps as much in flight as the path holds, of a window of twice that
# Bytes: what Linux lets a receiver advertise of 6 MiB (tcp_rmem): half of it (tcp(7)),
# and since 6.6 up to a seventh more, by how full its buffers are.
USUAL_WINDOW = (2.9e6, 3.7e6)
# Bytes: the largest window without scaling (RFC 7323), which blocks of some hosts do not fill.
UNSCALED = (0.9 * 65_535, 65_536)
BESIDE_CAP = 0.8  # where the rate is one that providers sell as well
SLOWEST_PATH = 30e6  # bit/s: every host of today sends and receives faster
LAN_TRIP = 0.04  # seconds: more than any local network has without a queue
BLOCKS = 4.1  # by which intervals may differ: a radio varies more


def stated_window(look: Look) -> Optional[Hit]:
    """The buffer that was requested (-w) is what is in flight, or the window never grew past it."""
    one = tcp_printed(look)
    if one is None or not one.run.buffer or one.retransmits or as_asked(look):
        return None
    if not _is_stated(one, one.run.buffer) or (look.phase.name == TOGETHER and not one.rtt):
        return None
    return Hit(
        0.95,
        f"-w fixed the buffers at {amounts.size(one.run.buffer)} and switched off their growth:"
        f" the window stays at {amounts.size(one.cwnd or one.run.buffer)}",
        (fact("-w", one.run.buffer), fact("cwnd", one.cwnd), fact("rtt", one.rtt)),
        "test without -w: Linux then sizes the buffers itself, up to tcp_rmem and tcp_wmem",
        "both",
        confidence=MEDIUM,
        title=BUFFERS,
    )


def _is_stated(one: Printed, asked: float) -> bool:
    """Whether `asked` bytes are in flight; without a round trip, whether the window never grew."""
    if one.is_inside or link_filled(one) is not None:
        return False
    if not one.rtt:
        return _is_stated_at_any_trip(one, asked)
    lowest, highest = OF_STATED
    flight = one.rate * one.rtt / 8 / one.streams
    return lowest <= flight / asked <= highest


def _is_stated_at_any_trip(one: Printed, asked: float) -> bool:
    """Whether a window that never grew may be `asked` bytes, at a round trip that paths have."""
    if one.is_loopback or one.rate >= CORE:
        return False
    lowest, highest = OF_PATHS[bool(one.cwnds)]
    if one.is_local_network and one.rate >= SLOWEST_PATH:
        lowest, highest = LOCAL_TRIPS if asked <= SMALL else (1.0, 0.0)
    trip = asked * 8 * one.streams / one.rate  # if the window is what limits
    is_larger = (one.cwnd or 0.0) > OF_STATED[1] * asked * one.streams
    return lowest < trip < highest and (one.is_flat or is_larger or not one.cwnds)


def window_by_round_trip(look: Look) -> Optional[Hit]:
    """The same amount is in flight in every round trip, whatever the congestion window allows."""
    one = tcp_printed(look)
    if one is None or not _has_constant_flight(one) or as_asked(look):
        return None
    rtt, room = one.rtt or 0.0, look.windows.snd_wnd
    flight = one.rate * rtt / 8
    end, whose = "both", "limits, usually the receiver's"
    if room is not None and flight < ROOM * room:
        end, whose = "sender", "of the sender limits"
    lost = "whatever was lost" if one.retransmits else "without any loss"
    return Hit(
        BESIDE_CAP if _is_like_a_cap(one) else 0.92,
        f"{amounts.size(flight)} are in flight in each round trip of {amounts.time(rtt)}, "
        f"of a congestion window of {amounts.size(one.cwnd or 0)}, {lost}: a buffer {whose}",
        (
            fact("rate × rtt, bytes", round(flight)),
            fact("cwnd", one.cwnd),
            fact("snd_wnd", room),
            fact("rtt", one.rtt),
        ),
        "raise the maximum of net.ipv4.tcp_rmem on the receiver and of net.ipv4.tcp_wmem on the "
        "sender to twice the wanted rate times the round trip",
        end,
        confidence=MEDIUM,
        title=BUFFERS,
    )


def _is_like_a_cap(one: Printed) -> bool:
    return cap_of(one.rate) is not None and is_constant(one) and one.rate >= UNSHAPED


def usual_window(look: Look) -> Optional[Hit]:
    """At the round trip of a ping, a rate that nothing varies is a window of a usual size."""
    one = tcp_printed(look)
    if one is None or one.trips or not one.rtt or one.rtt < LONG or as_asked(look):
        return None
    flight = one.rate * one.rtt / 8
    if not _is_usual(flight / one.streams) and not _is_unscaled(flight / one.streams):
        return None
    if one.retransmits or not _is_of_no_link(one):
        return None
    return Hit(
        0.92,
        f"{amounts.size(flight)} are in flight in each round trip of {amounts.time(one.rtt)}, as "
        "much as a window of the usual size allows: that of the receiver, most likely",
        (fact("rate × rtt, bytes", round(flight)), fact("rtt", one.rtt)),
        "raise the maximum of net.ipv4.tcp_rmem on the receiver to twice the wanted rate times the "
        "round trip",
        "both",
        confidence=MEDIUM,
        title=BUFFERS,
    )


def _is_of_no_link(one: Printed) -> bool:
    return is_constant(one) and link_filled(one) is None


def _is_unscaled(window: float) -> bool:
    lowest, highest = UNSCALED
    return lowest <= window <= highest


def _has_constant_flight(one: Printed) -> bool:
    """Whether each round trip carries the same, without a queue, below the congestion window.

    Or as much as that allows, if it stays the same: no loss made it so, whatever was lost.
    """
    settled = _settled(one)
    flights = settled.flights
    if len(flights) < 3 or not settled.is_unqueued or min(settled.trips) < LONG:
        return False
    if link_filled(one) is not None or _is_of_cpu_or_bbr(one, median(flights)):
        return False
    is_even = pstdev(flights) <= QUANTUM * mean(flights)
    return is_even and (settled.is_flat or median(flights) <= ROOM * (settled.cwnd or 0))


def _is_of_cpu_or_bbr(one: Printed, flight: float) -> bool:
    """Whether a CPU is full, or BBR keeps as much in flight as the path holds."""
    is_of_bbr = one.run.congestion == BBR and not _is_usual(flight / one.streams)
    return is_of_bbr or max(one.cpus) >= NEARLY_FULL


def _is_usual(window: float) -> bool:
    lowest, highest = USUAL_WINDOW
    return lowest <= window <= highest


def _settled(one: Printed) -> Printed:
    """The same run since the window is what it was at the end, if that is half of it or more."""
    count = min(len(one.level), len(one.late))
    if count < max(STAYS, len(one.late) / 2):
        return one
    return replace(one, late=one.late[-count:])


def is_window(one: Printed) -> bool:
    """Whether a window explains a constant rate, or may explain it."""
    is_idle = one.is_unused or _is_mostly_level(one)
    return is_idle or _has_constant_flight(one) or is_window_left_by_loss(one)


def _is_mostly_level(one: Printed) -> bool:
    """Whether the congestion window seldom changes without any loss: it is not what limits.

    Behind a limiter it would grow until a queue overflows (RFC 7661: only if it is used).
    """
    cwnds = [each.cwnd for each in one.every if each.cwnd]
    if one.retransmits or len(cwnds) < STAYS:
        return False
    level = sum(abs(now - before) <= ROUNDED * before for before, now in zip(cwnds, cwnds[1:]))
    return 4 * level >= 3 * (len(cwnds) - 1)


def queue_in_subnet(one: Printed) -> Optional[Hit]:
    """What is under way takes far longer than the network, at a rate that only blocks vary."""
    if not one.is_local_network or one.rate >= SLOWEST_PATH or one.share >= HEAVY:
        return None
    # Frequent loss, and not a queue, may be what the window depends on.
    if one.implied_rtt < LAN_TRIP or 2 * one.events >= len(one.every):
        return None
    # Several blocks in a second and none in the next are a link that stops.
    stops = any(each.bytes == 0 for each in one.late)
    if not differs_by_blocks(one, APART if stops else BLOCKS):
        return None
    return Hit(
        0.85,
        f"in a local network {amounts.size(one.cwnd or 0)} under way take "
        f"{amounts.time(one.implied_rtt)} at {amounts.rate(one.rate)}: they wait in a queue, "
        "before something that lets no more through",
        (
            fact("rate, bit/s", round(one.rate)),
            fact("cwnd", one.cwnd),
            fact("cwnd / rate, seconds", round(one.implied_rtt, 5)),
        ),
        "look for a limiter (tc -s qdisc; a switch's port; a quota), or a link that fell back to "
        "10 Mbit/s (ethtool)",
        confidence=MEDIUM,
    )
