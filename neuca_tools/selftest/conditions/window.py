"""D01: what is in flight is what a window allows, by the kernel's clocks or by iperf's figures."""

# SPDX-License-Identifier: MIT

import math
from statistics import mean, median, pstdev
from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions import application, cpu, figures
from neuca_tools.selftest.conditions.base import Hit, single_fact
from neuca_tools.selftest.conditions.thresholds import BIDIRECTIONAL, is_bbr
from neuca_tools.selftest.evidence import Phase
from neuca_tools.selftest.evidence.look import Fact, Look, Windows
from neuca_tools.selftest.evidence.run import (
    EMBEDDED,
    Flow,
    Run,
    in_flight,
    is_flat,
    known_rates,
    known_round_trips,
    known_windows,
)

BUFFERS = "receive or send buffer too small"  # the other title of the condition
# Seconds of a path between networks: a geostationary satellite takes 0.6. If the window is known
# not to grow, it may be much smaller than what -w asked for.
LONGEST_USUAL_TRIP, LONGEST_TRIP = 1.0, 30.0
# Bytes of -w that limit in a local network too, and seconds of its round trips.
SMALL_BUFFER, LOCAL_TRIPS = 64 * 1024, (0.0001, 0.01)
FLIGHT_SPREAD = 0.2  # of the data in flight: iperf3 counts in blocks of 128 KiB
# Of what -w asks for: the kernel doubles it, and uses up to half for its own structures (tcp(7)).
OF_STATED = (0.4, 2.2)
SAME_RATE = (0.9, 1.1)  # of a test without -w, over that with it: -w does not limit
# Bytes of one stream, less headers: no system has smaller buffers by default (32 KiB: FreeBSD's
# net.inet.tcp.sendspace; Linux: tcp(7)) but those of devices.
SMALLEST_BUFFER = 30 * 1024
# Bytes of one stream, less headers: no receiver begins with a smaller window (64 KiB: tcp(7)).
SMALLEST_WINDOW = 60 * 1024
HELD_SHARE = 0.8  # of the lost time
PACED_FLIGHT = 0.75  # of snd_wnd in flight: a paced sender waits for its turn as well
UNPROVEN_RATE = 5e9  # bit/s: above it the path may be slower than larger buffers would allow (D01)
# Of the window of BBR, which is twice what the path holds, and some segments: a full path has more
# in flight, unless it holds just a few segments.
BBR_FLIGHT = 0.35
MIN_INTERVALS = 3  # in which a window has not changed; in two, it may just have grown
NO_ROUND_TRIP = 0.8  # the measured round trip over the one that window and rate imply


def full_window(look: Look) -> Optional[Hit]:
    """What is in flight is a window, by the kernel's clocks or, without them, by iperf's figures.

    A stated size says more than one that is derived, and a round trip more than none.
    """
    return (
        _receiver_window(look)
        or stated_window(look)
        or _window_by_round_trip(look)
        or _flat_window(look)
    )


def stated_window(look: Look) -> Optional[Hit]:
    """The buffer that was requested (-w) is what is in flight, or the window never grew past it."""
    if not look.is_unsampled_tcp or not look.run.buffer:
        return None
    if figures.late_loss(look) or figures.is_as_requested(look) or figures.writes_often(look):
        return None
    if not _is_stated(look, look.run.buffer) or (look.phase.name == BIDIRECTIONAL and not look.rtt):
        return None
    return Hit(
        0.95,
        f"-w fixed the buffers at {amounts.size(look.run.buffer)} and switched off their growth:"
        f" the window stays at {amounts.size(look.cwnd or look.run.buffer)}",
        (
            single_fact("-w", look.run.buffer),
            single_fact("cwnd", look.cwnd),
            single_fact("rtt", look.rtt),
        ),
        "test without -w: Linux then sizes the buffers itself, up to tcp_rmem and tcp_wmem",
        "both",
        confidence="medium",
        title=BUFFERS,
    )


def _is_stated(look: Look, asked: float) -> bool:
    """Whether `asked` bytes are in flight; without a round trip, whether the window never grew."""
    if figures.is_in_host(look) or figures.filled_link_speed(look) is not None:
        return False
    if not look.rtt:
        return _is_stated_at_any_trip(look, asked)
    lowest, highest = OF_STATED
    flight = look.known_rate * look.rtt / 8 / look.streams
    return lowest <= flight / asked <= highest


def _is_stated_at_any_trip(look: Look, asked: float) -> bool:
    """Whether a window that never grew may be `asked` bytes, at a round trip that paths have."""
    if look.run.is_loopback or look.known_rate >= cpu.CORE_RATE:
        return False
    if any(_contradicts_buffer(phase, look) for phase in look.evidence.phases):
        return False
    lowest, highest = _possible_trips(look, asked)
    trip = asked * 8 * look.streams / look.known_rate  # if the window is what limits
    is_larger = (look.cwnd or 0.0) > OF_STATED[1] * asked * look.streams
    return lowest < trip < highest and (look.windows.flat or is_larger or not look.cwnd)


def _possible_trips(look: Look, asked: float) -> tuple[float, float]:
    """The shortest and the longest round trip in seconds that the path may have; (0, 0) if none."""
    is_local, longest = look.run.is_local_network, LONGEST_TRIP if look.cwnd else LONGEST_USUAL_TRIP
    if not is_local or look.known_rate < cpu.SLOWEST_HOST:
        return LOCAL_TRIPS[0] if is_local else cpu.LAN_RTT, longest
    return LOCAL_TRIPS if asked <= SMALL_BUFFER else (0.0, 0.0)


def _contradicts_buffer(phase: Phase, look: Look) -> bool:
    """Whether a stream to the same host had much more with the same -w, or no more without."""
    run, flow = phase.run, phase.flow
    if run is None or flow is None or not _has_same_peer(run, flow, look):
        return False
    rates = known_rates(flow.intervals) or [flow.rate or 0.0]
    ratio = median(rates) / run.stream_count * look.streams / look.known_rate
    if run.buffer == look.run.buffer:
        return ratio > OF_STATED[1]
    return _is_without_it(run, look) and SAME_RATE[0] <= ratio <= SAME_RATE[1]


def _has_same_peer(run: Run, flow: Flow, look: Look) -> bool:
    """Whether it is a test to the same host; without a name, it may be the server's own output."""
    return run.peer == look.run.peer or (run.peer is None and flow.retransmits is not None)


def _is_without_it(run: Run, look: Look) -> bool:
    """Whether TCP had no -w, nor another limit: neither -b, nor more streams that share a link."""
    is_free = run.buffer is None and not run.target and run.protocol != "udp"
    return is_free and run.stream_count <= look.streams


def _window_by_round_trip(look: Look) -> Optional[Hit]:
    """A constant amount is in flight in each round trip, whatever the congestion window allows."""
    if not look.is_unsampled_tcp or figures.is_as_requested(look) or not _has_constant_flight(look):
        return None
    rtt, room = look.rtt or 0.0, look.windows.snd_wnd
    flight = look.known_rate * rtt / 8
    end, whose = "both", "limits, usually the receiver's"
    settings = "net.ipv4.tcp_rmem on the receiver and of net.ipv4.tcp_wmem on the sender"
    if room is not None and flight < cpu.FILLED_WINDOW * room:
        end, whose, settings = "sender", "of the sender limits", "net.ipv4.tcp_wmem"
    lost = "whatever was lost" if look.retransmits else "without any loss"
    return Hit(
        0.8,
        f"{amounts.size(flight)} are in flight in each round trip of {amounts.time(rtt)}, {lost}: "
        f"a buffer {whose}",
        (
            single_fact("rate × rtt, bytes", round(flight)),
            single_fact("cwnd", look.cwnd),
            single_fact("snd_wnd", room),
            single_fact("rtt", look.rtt),
        ),
        f"raise the maximum of {settings} to twice the wanted rate times the round trip",
        end,
        confidence="medium",
        title=BUFFERS,
    )


def _has_constant_flight(look: Look) -> bool:
    """Whether each round trip carries the same, below the congestion window.

    Or as much as that allows, if it stays the same: no loss made it so, whatever was lost.
    """
    flights = in_flight(look.steady)
    if len(flights) < 3 or pstdev(flights) > FLIGHT_SPREAD * mean(flights):
        return False
    if min(known_round_trips(look.steady)) < cpu.LONG_RTT or figures.filled_link_speed(look):
        return False
    flight, window = median(flights), look.cwnd or 0.0
    if not _may_be_buffer(look, flight):
        return False
    if not is_bbr(look):
        return is_flat(known_windows(look.steady)) or flight <= cpu.FILLED_WINDOW * window
    room = look.windows.snd_wnd
    return flight >= cpu.FILLED_WINDOW * room if room else flight <= BBR_FLIGHT * window


def is_window(look: Look) -> bool:
    """Whether a window explains a constant rate, or may explain it."""
    is_possible = look.is_unused and not _is_below_receivers(look)
    return is_possible or _has_constant_flight(look)


def _is_chosen(look: Look) -> bool:
    """Whether somebody chose a buffer, which may be smaller than any usual one."""
    return look.run.buffer is not None or look.run.system == EMBEDDED


def _may_be_buffer(look: Look, size: float) -> bool:
    """Whether so many bytes may be all that a buffer of a host allows its streams."""
    if figures.late_loss(look) >= figures.HEAVY_LOSS:
        return False  # the window is smaller than any buffer, but for BBR's
    return _is_chosen(look) or size >= SMALLEST_BUFFER * look.streams


def _is_below_receivers(look: Look) -> bool:
    """Whether it is smaller than any receiver's, on a path between networks of unknown length."""
    if _is_chosen(look) or look.rtt or look.run.is_local_network:
        return False
    return (look.cwnd or math.inf) < SMALLEST_WINDOW * look.streams


def _receiver_window(look: Look) -> Optional[Hit]:
    """The sender has as much in flight as the receiver's window allows."""
    if look.protocol != "tcp" or not look.rate or application.slow_reader(look) is not None:
        return None
    windows, share = look.windows, _share_of_receiver(look.windows)
    if not share:
        return None
    window = windows.snd_wnd or windows.cwnd or look.rate * (look.rtt or 0) / 8
    rtt = look.rtt or window * 8 / look.rate
    room = application.room_for(look, look.rate, rtt)
    return Hit(
        share,
        f"the receiver's window of {amounts.size(window)} allows {amounts.rate(window * 8 / rtt)} "
        f"at a round trip of {amounts.time(rtt)}",
        _window_facts(look),
        end="receiver",
        sysctls={application.RMEM: f"4096 131072 {room}"},
    )


def _share_of_receiver(windows: Windows) -> float:
    """The share of the time in which the receiver's window was full; 0 if it does not limit."""
    limited, in_flight, room = windows.rwnd_limited or 0.0, windows.in_flight, windows.snd_wnd
    if limited >= application.RECEIVER_LIMITED:
        if in_flight is None or room is None or in_flight >= application.AT_WINDOW * room:
            return limited
        if in_flight + (windows.mss or 0.0) > room:
            return limited  # TCP sends whole segments: another one does not fit
    return HELD_SHARE if _holds_paced_flow(windows, limited) else 0.0


def _holds_paced_flow(windows: Windows, limited: float) -> bool:
    """Whether the window is full, and the congestion window much larger.

    The kernel's clock stands still while a paced sender (BBR, fq) waits for its next turn.
    """
    in_flight, room = windows.in_flight, windows.snd_wnd
    if in_flight is None or not room or limited < application.PACED_LIMITED:
        return False
    is_larger = (windows.cwnd or 0.0) >= application.PACED_WINDOW * room
    return is_larger and in_flight >= PACED_FLIGHT * room


def _flat_window(look: Look) -> Optional[Hit]:
    """Without the kernel's clocks: a constant window, no loss, and one window per round trip."""
    window, rate = look.windows.cwnd, look.rate
    if not look.windows.flat or not window or not rate or len(look.rates) < MIN_INTERVALS:
        return None
    if look.windows.rwnd_limited is not None or look.retransmits:
        return None
    if figures.link_speed_for(rate) or not _may_be_limit(look, window):
        return None
    return _flat_window_hit(look, rate, window)


def _may_be_limit(look: Look, window: float) -> bool:
    """Whether nothing else keeps the window constant, and it is in flight, as far as is known."""
    if not _may_be_buffer(look, window) or cpu.is_flat_for_another_reason(look):
        return False
    if _is_below_receivers(look):
        return False
    return look.rtt is None or look.implied_rtt <= look.rtt / NO_ROUND_TRIP


def _flat_window_hit(look: Look, rate: float, window: float) -> Hit:
    """It is not known whose buffer limits the window."""
    rtt = look.rtt or window * 8 / rate
    room, doubt = application.room_for(look, rate, rtt), ""
    is_short = look.rtt is None and look.run.is_local_network
    if rate > UNPROVEN_RATE or is_short:
        doubt = (
            f"; the capacity of the path is not proven: run again with buffers of "
            f"{amounts.size(room)}, and only if the rate stays the same is the link the limit"
        )
    return Hit(
        0.8,
        f"the window stays at {amounts.size(window)} without any loss: it is capped by a buffer, "
        f"at a round trip of {amounts.time(rtt)} if that is the path's{doubt}",
        _window_facts(look),
        end="both",
        confidence="medium",
        sysctls={application.RMEM: f"4096 131072 {room}", application.WMEM: f"4096 16384 {room}"},
        title=BUFFERS,
    )


def _window_facts(look: Look) -> tuple[Fact, ...]:
    return (
        single_fact("rwnd_limited / busy_time", look.windows.rwnd_limited),
        single_fact("snd_wnd", look.windows.snd_wnd),
        single_fact("snd_cwnd", look.windows.cwnd),
        single_fact("unacked × mss", look.windows.in_flight),
        single_fact("rtt", look.rtt),
    )
