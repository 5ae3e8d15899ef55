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
    differs_by_blocks,
    is_constant,
    link_filled,
    tcp_printed,
)
from neuca_tools.selftest.conditions.printed_hosts import (
    CORE,
    LAN_RTT,
    LONG,
    ROOM,
)
from neuca_tools.selftest.conditions.thresholds import TOGETHER
from neuca_tools.selftest.evidence.look import Look
from neuca_tools.selftest.evidence.printed import Printed

# Seconds of a path between networks: a geostationary satellite takes 0.6. If the window is known
# not to grow, it may be much smaller than what -w asked for.
OF_PATHS = {False: (LAN_RTT, 1.0), True: (LAN_RTT, 30.0)}
# Bytes of -w that limit in a local network too, and seconds of its round trips.
SMALL, LOCAL_TRIPS = 64 * 1024, (0.0001, 0.01)
STAYS = 5  # intervals
QUANTUM = 0.2  # of the data in flight: iperf3 counts in blocks of 128 KiB
# Of what -w asks for: the kernel doubles it, and uses up to half for its own structures (tcp(7)).
OF_STATED = (0.4, 2.2)
# Bytes: what Linux lets a receiver advertise of 6 MiB (tcp_rmem): half of it (tcp(7)),
# and since 6.6 up to a seventh more, by how full its buffers are.
USUAL_WINDOW = (2.9e6, 3.7e6)
SLOWEST_PATH = 30e6  # bit/s: every host of today sends and receives faster
LAN_TRIP = 0.04  # seconds: more than any local network has without a queue


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
    if one is None or as_asked(look) or not (_has_constant_flight(one) or _is_usual(one)):
        return None
    rtt, room = one.rtt or 0.0, look.windows.snd_wnd
    flight = one.rate * rtt / 8
    end, whose = "both", "limits, usually the receiver's"
    if room is not None and flight < ROOM * room:
        end, whose = "sender", "of the sender limits"
    lost = "whatever was lost" if one.retransmits else "without any loss"
    return Hit(
        0.8,
        f"{amounts.size(flight)} are in flight in each round trip of {amounts.time(rtt)}, {lost}: "
        f"a buffer {whose}",
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


def _is_usual(one: Printed) -> bool:
    """Whether, at the round trip of a ping, an even rate is a window of the usual size."""
    if one.trips or not one.rtt or one.rtt < LONG or one.retransmits or not is_constant(one):
        return False
    lowest, highest = USUAL_WINDOW
    flight = one.rate * one.rtt / 8 / one.streams
    return lowest <= flight <= highest and link_filled(one) is None


def _has_constant_flight(one: Printed) -> bool:
    """Whether each round trip carries the same, without a queue, below the congestion window.

    Or as much as that allows, if it stays the same: no loss made it so, whatever was lost.
    """
    settled = _settled(one)
    flights = settled.flights
    if len(flights) < 3 or not settled.is_unqueued or min(settled.trips) < LONG:
        return False
    if link_filled(one) is not None:
        return False
    is_even = pstdev(flights) <= QUANTUM * mean(flights)
    return is_even and (settled.is_flat or median(flights) <= ROOM * (settled.cwnd or 0))


def _settled(one: Printed) -> Printed:
    """The same run since the window is what it was at the end, if that is half of it or more."""
    count = min(len(one.level), len(one.late))
    if count < max(STAYS, len(one.late) / 2):
        return one
    return replace(one, late=one.late[-count:])


def is_window(one: Printed) -> bool:
    """Whether a window explains a constant rate, or may explain it."""
    return one.is_unused or _has_constant_flight(one)


def queue_in_subnet(one: Printed) -> Optional[Hit]:
    """What is under way takes far longer than the network, at a rate that only blocks vary."""
    if not one.is_local_network or one.rate >= SLOWEST_PATH or one.share >= HEAVY:
        return None
    # Frequent loss, and not a queue, may be what the window depends on.
    if one.implied_rtt < LAN_TRIP or 2 * one.events >= len(one.every):
        return None
    if not differs_by_blocks(one, APART):
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
