"""D01: windows and buffers, where iperf's own figures are all that is known."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterable
from statistics import mean, median, pstdev
from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.base import LIMIT, MEDIUM, Hit, fact
from neuca_tools.selftest.conditions.printed import as_asked, link_filled, tcp_printed
from neuca_tools.selftest.conditions.printed_hosts import (
    CORE,
    LAN_RTT,
    LONG,
    NEARLY_FULL,
    ROOM,
    VARIED,
    is_given,
)
from neuca_tools.selftest.conditions.session import Rule
from neuca_tools.selftest.evidence.look import Look
from neuca_tools.selftest.evidence.printed import Printed
from neuca_tools.selftest.evidence.run import Interval

LONGEST = 30.0  # seconds: no path is longer, even if -w asked for more than it got
# Bytes of -w that limit in a local network too, and seconds of its round trips.
SMALL, LOCAL_TRIPS = 64 * 1024, (0.0001, 0.01)
STAYS, LONG_TRIP = 5, 0.01  # intervals; seconds, more than hosts and their queues add
QUANTUM = 0.15  # of the data in flight: iperf3 counts in blocks of 128 KiB
STRETCH = 1.25  # the longest round trip over the shortest: no queue forms
# Of what -w asks for: the kernel doubles it, and uses up to half for its own structures (tcp(7)).
OF_STATED = (0.4, 2.2)


def stated_window(look: Look) -> Optional[Hit]:
    """The buffer that was requested (-w) is what is in flight, or the window never grew past it."""
    one = tcp_printed(look)
    if one is None or not one.run.buffer or one.retransmits or as_asked(look):
        return None
    if not _is_stated(one, one.run.buffer):
        return None
    return Hit(
        0.95,
        f"-w fixed the buffers at {amounts.size(one.run.buffer)} and switched off their growth:"
        f" the window stays at {amounts.size(one.cwnd or one.run.buffer)}",
        (fact("-w", one.run.buffer), fact("cwnd", one.cwnd), fact("rtt", one.rtt)),
        "test without -w: Linux then sizes the buffers itself, up to tcp_rmem and tcp_wmem",
        "both",
        confidence=MEDIUM,
    )


def _is_stated(one: Printed, asked: float) -> bool:
    """Whether `asked` bytes are in flight; without a round trip, whether the window never grew."""
    if not one.rtt:
        trip = asked * 8 * one.streams / one.rate  # if the window is what limits
        lowest, highest = LAN_RTT, LONGEST
        if one.is_local_network:
            lowest, highest = LOCAL_TRIPS if asked <= SMALL else (1.0, 0.0)
        if one.is_loopback or one.rate >= CORE or link_filled(one) is not None:
            return False
        return lowest < trip < highest and (one.is_flat or not one.cwnds)
    lowest, highest = OF_STATED
    flight = one.rate * one.rtt / 8 / one.streams
    return link_filled(one) is None and lowest <= flight / asked <= highest


def window_by_round_trip(look: Look) -> Optional[Hit]:
    """The same amount is in flight in every round trip, whatever the congestion window allows."""
    one = tcp_printed(look)
    if one is None or not _has_constant_flight(one) or as_asked(look):
        return None
    flight = one.rate * (one.rtt or 0) / 8
    room = look.windows.snd_wnd
    end, whose = "both", "limits, usually the receiver's"
    if room is not None and flight < ROOM * room:
        end, whose = "sender", "of the sender limits"
    return Hit(
        0.92,
        f"{amounts.size(flight)} are in flight in each round trip of {amounts.time(one.rtt or 0)}, "
        f"of a congestion window of {amounts.size(one.cwnd or 0)}, without any loss: a buffer "
        f"{whose}",
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
    )


def _has_constant_flight(one: Printed) -> bool:
    """Whether each round trip carries the same, without a queue, below the congestion window."""
    flights, trips = one.flights, one.trips
    if len(flights) < 3 or any(each.retransmits for each in one.late):
        return False
    if min(trips) < LONG or max(trips) > STRETCH * min(trips):
        return False
    if link_filled(one) is not None or max(one.cpus) >= NEARLY_FULL:
        return False
    is_even = pstdev(flights) <= QUANTUM * mean(flights)
    return is_even and median(flights) <= ROOM * (one.cwnd or 0)


def window_that_stopped(look: Look) -> Optional[Hit]:
    """On a long path, the congestion window grew, and then stayed where it was without loss."""
    one = tcp_printed(look)
    if one is None or look.windows.flat or one.rtt or one.run.buffer or is_given(look, one):
        return None
    if one.is_local_network or not _has_even_tail(one):
        return None
    window, rate = one.tail[-1].cwnd or 0.0, mean(_rates(one.tail))
    if window * 8 / rate < LONG_TRIP:
        return None
    return Hit(
        0.8,
        f"the congestion window grew to {amounts.size(window)} and stayed there without any loss, "
        f"at {amounts.rate(rate)}: a buffer of one end limits, if the round trip is "
        f"{amounts.time(window * 8 / rate)}",
        (fact("cwnd", window), fact("cwnd / rate, seconds", round(window * 8 / rate, 5))),
        "raise the maximum of net.ipv4.tcp_rmem on the receiver and of net.ipv4.tcp_wmem on the "
        "sender to twice the wanted rate times the round trip",
        "both",
        confidence=MEDIUM,
    )


def _has_even_tail(one: Printed) -> bool:
    """Whether the window stayed for half of the run, at a rate that hardly varied either."""
    rates = _rates(one.tail)
    if len(rates) < max(STAYS, len(one.every) / 2):
        return False
    return pstdev(rates) <= VARIED * mean(rates) and mean(rates) < CORE


def _rates(intervals: Iterable[Interval]) -> list[float]:
    return [each.rate for each in intervals if each.rate]


def is_window(one: Printed) -> bool:
    """Whether a window explains a constant rate, or may explain it."""
    return one.is_unused or _has_constant_flight(one)


PRINTED_WINDOW = (
    Rule("D01", "receive or send buffer too small", LIMIT, stated_window),
    Rule("D01", "receive or send buffer too small", LIMIT, window_by_round_trip),
    Rule("D01", "receive or send buffer too small", LIMIT, window_that_stopped),
)
