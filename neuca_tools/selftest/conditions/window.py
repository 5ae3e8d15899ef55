"""D01: what is in flight is what a window allows, by the kernel's clocks or by iperf's figures."""

# SPDX-License-Identifier: MIT

import math
from statistics import mean, median, pstdev
from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions import application, cpu, figures
from neuca_tools.selftest.conditions.base import Hit, single_fact
from neuca_tools.selftest.conditions.thresholds import is_bbr
from neuca_tools.selftest.evidence.look import Fact, Look, Windows
from neuca_tools.selftest.evidence.run import (
    in_flight,
    is_flat,
    known_round_trips,
    known_windows,
)

BUFFERS = "receive or send buffer too small"  # the other title of the condition
# Seconds of a path between networks: a geostationary satellite takes 0.6. If the window is known
# not to grow, it may be much smaller than what -w asked for.
LONGEST_USUAL_TRIP, LONGEST_TRIP = 1.0, 30.0
# Bytes of -w that limit in a local network too, and seconds of the shortest round trip.
SMALL_BUFFER, SHORTEST_TRIP = 64 * 1024, 0.0001
FLIGHT_SPREAD = 0.2  # of the data in flight: iperf3 counts in blocks of 128 KiB
# Of what -w asks for: the kernel doubles it, and uses up to half for its own structures (tcp(7)).
OF_STATED = (0.4, 2.2)
# Bytes of one stream, less headers: no system has smaller buffers by default (32 KiB: FreeBSD's
# net.inet.tcp.sendspace; Linux: tcp(7)) but those of devices.
SMALLEST_BUFFER = 30 * 1024
# Bytes of one stream, less headers: no receiver begins with a smaller window (64 KiB: tcp(7)).
SMALLEST_WINDOW = 60 * 1024
HELD_SHARE = 0.8  # of the lost time
PACED_FLIGHT = 0.75  # of snd_wnd in flight: a paced sender waits for its turn as well
# Of the window of BBR, which is twice what the path holds, and some segments: a full path has more
# in flight, unless it holds just a few segments.
BBR_FLIGHT = 0.35
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
    if not look.is_unsampled_tcp or not look.run.buffer or not _is_stated(look, look.run.buffer):
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
    """Whether nothing else limits, and a path may carry `asked` bytes in each round trip."""
    if cpu.is_given(look) or figures.late_loss(look) or figures.writes_often(look):
        return False
    if look.known_rate >= cpu.CORE_RATE or _is_exceeded(look):
        return False
    is_larger = (look.cwnd or math.inf) > OF_STATED[1] * asked * look.streams
    lowest, highest = _possible_trips(look, asked)
    is_possible = lowest <= asked * 8 * look.streams / look.known_rate <= highest
    return is_possible and bool(look.rtt or look.windows.flat or is_larger)


def _is_exceeded(look: Look) -> bool:
    """Whether a stream of another test had much more with the same -w."""
    rates = (
        (phase.flow.rate or 0.0) / phase.run.stream_count
        for phase in look.evidence.phases
        if phase.run and phase.flow and phase.run.buffer == look.run.buffer
    )
    return max(rates, default=0.0) * look.streams > OF_STATED[1] * look.known_rate


def _possible_trips(look: Look, asked: float) -> tuple[float, float]:
    """The shortest and the longest round trip in seconds that the path may have; (0, 0) if none."""
    if look.rtt:
        return look.rtt / OF_STATED[1], look.rtt / OF_STATED[0]
    if not look.run.is_local_network or look.known_rate < cpu.SLOWEST_HOST:
        return SHORTEST_TRIP, LONGEST_TRIP if look.cwnd else LONGEST_USUAL_TRIP
    return (SHORTEST_TRIP, cpu.RADIO_SECONDS) if asked <= SMALL_BUFFER else (0.0, 0.0)


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
    # After heavy loss, the window is smaller than any buffer.
    flight = median(flights)
    if figures.late_loss(look) >= figures.HEAVY_LOSS or not _may_be_buffer(look, flight):
        return False
    return _is_held(look, flight)


def _is_held(look: Look, flight: float) -> bool:
    """Whether the congestion window has room or stays the same; with BBR, see `BBR_FLIGHT`."""
    window, room = look.cwnd or 0.0, look.windows.snd_wnd
    if not is_bbr(look):
        return is_flat(known_windows(look.steady)) or flight <= cpu.FILLED_WINDOW * window
    return flight >= cpu.FILLED_WINDOW * room if room else flight <= BBR_FLIGHT * window


def is_window(look: Look) -> bool:
    """Whether a window explains a constant rate, or may explain it."""
    is_possible = look.is_unused and _may_be_buffer(look, look.cwnd or 0.0)
    return is_possible or _has_constant_flight(look)


def _may_be_buffer(look: Look, size: float) -> bool:
    """Whether so many bytes may be all that a buffer of a host allows its streams.

    Somebody may have chosen a smaller one; without a round trip, it is what a receiver begins with.
    """
    if look.run.buffer is not None or look.run.is_local_network:
        return True
    return size >= (SMALLEST_BUFFER if look.rtt else SMALLEST_WINDOW) * look.streams


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
    """Without the kernel's clocks: a constant window, no loss, and one window per round trip.

    It is not known whose buffer limits the window.
    """
    window = look.cwnd
    if not look.is_unsampled_tcp or not look.is_unused or not window or len(look.rates) < 3:
        return None
    if not _may_be_buffer(look, window) or cpu.is_flat_for_another_reason(look):
        return None
    if look.rtt is not None and look.implied_rtt > look.rtt / NO_ROUND_TRIP:
        return None
    rtt = look.rtt or look.implied_rtt
    room = application.room_for(look, look.known_rate, rtt)
    return Hit(
        0.8,
        f"the window stays at {amounts.size(window)} without any loss: it is capped by a buffer, "
        f"at a round trip of {amounts.time(rtt)} if that is the path's; the capacity of the path "
        f"is not proven: run again with buffers of {amounts.size(room)}, and only if the rate "
        "stays the same is the link the limit",
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
