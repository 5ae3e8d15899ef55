"""D01 to D04: windows, buffers and the applications."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.base import BUFFERS, INFO, LIMIT, MEDIUM, Hit, fact
from neuca_tools.selftest.conditions.predict import aim, buffer_for, line_of, mathis
from neuca_tools.selftest.conditions.printed_hosts import is_flat_for_another_reason
from neuca_tools.selftest.conditions.session import sysctl_max
from neuca_tools.selftest.conditions.streams import DEFAULT_MSS, is_crowded, is_read_late, middle
from neuca_tools.selftest.evidence import Phase, Sample, Socket
from neuca_tools.selftest.evidence.look import Fact, Look, Windows, data_sockets, steady_sockets

RMEM, WMEM = "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"
# Of the busy time: 0.54 to 0.81 was measured on flows limited by their window (facts, D01).
RECEIVER_LIMITED = 0.4
# The same for a paced sender with a larger congestion window (facts, appendix B); BBR had 0.28.
SOMEWHAT, LARGER = 0.15, 1.2
HELD = 0.8  # of the lost time
PACED = 0.75  # of snd_wnd in flight: a paced sender waits for its turn as well
SENDER_LIMITED = 0.2  # of the busy time: 0.26 to 0.32 was measured (D03)
AT_WINDOW = 0.9  # of snd_wnd in flight
# Of the send buffer: the kernel wakes a writer when no more is queued (sk_stream_is_writeable).
WRITABLE = 2 / 3
SENT = 0.25  # of the send buffer in flight; the kernel's overhead takes half of it
MOSTLY = 0.5  # of the samples: a buffer that is full so often is the limit (D03)
SLOW_READER = 0.5  # of the receive buffer full (D02)
# Seconds until data is read (D02): 0.1 to 0.2 ms was measured with buffers of 16 to 256 KiB,
# 0.5 s with a slow reader.
WAITS = 0.002
# Seconds: so much waits only for a reader that is slower than the sender, whatever the buffer.
HOARDS = 0.1
IDLE = 0.5  # of the time with nothing in flight (D04)
LOSSY = 1e-5  # of the bytes: less loss does not slow any sender down (D05)
NETWORK = 0.8  # of the time that neither window nor buffer explains (D05)
UNPROVEN = 5e9  # bit/s: above it the path may well be slower than larger buffers would allow (D01)
NO_ROUND_TRIP = 0.8  # the measured round trip over the one that window and rate imply
NOTHING_TO_SEND = "the sending application had nothing to send"
FEED_THE_SENDER = "check what the sender reads from, and whether its rate was limited (-b)"


def loss_ceiling(look: Look, rtt: Optional[float], loss: Optional[float]) -> Optional[int]:
    """bit/s that this loss allows (see `mathis`); None if either is not known."""
    if not rtt or not loss:
        return None
    return round(mathis(look.windows.mss or DEFAULT_MSS, rtt, loss))


def is_lossy(look: Look) -> bool:
    """Whether TCP loses packets, not only in bursts of a full send buffer or among many streams."""
    if look.left < NETWORK or look.known_loss <= LOSSY or is_crowded(look):
        return False
    return sender_buffer(look) is None


def receiver_window(look: Look) -> Optional[Hit]:
    """The sender has as much in flight as the receiver's window allows."""
    limited = look.windows.rwnd_limited
    if look.protocol != "tcp" or limited is None or not look.rate or slow_reader(look) is not None:
        return None
    if limited >= RECEIVER_LIMITED and _is_window_full(look.windows):
        share = limited
    elif _holds_paced_flow(look.windows, limited):
        share = HELD
    else:
        return None
    window = look.windows.snd_wnd or look.windows.cwnd or look.rate * (look.rtt or 0) / 8
    return _receiver_window_hit(look, look.rate, window, share)


def _is_window_full(windows: Windows) -> bool:
    """Whether what was in flight filled the receiver's window, as far as is known."""
    if windows.in_flight is None or windows.snd_wnd is None:
        return True
    if windows.in_flight >= AT_WINDOW * windows.snd_wnd:
        return True
    # TCP sends whole segments: another one does not fit.
    return windows.in_flight + (windows.mss or 0.0) > windows.snd_wnd


def _holds_paced_flow(windows: Windows, limited: float) -> bool:
    """Whether the window is full, and the congestion window much larger.

    The kernel's clock stands still while a paced sender (BBR, fq) waits for its next turn.
    """
    in_flight, room = windows.in_flight, windows.snd_wnd
    if in_flight is None or not room or limited < SOMEWHAT:
        return False
    return in_flight >= PACED * room and (windows.cwnd or 0.0) >= LARGER * room


def flat_window(look: Look) -> Optional[Hit]:
    """Without the kernel's clocks: a constant window, no loss, and one window per round trip."""
    window, rate = look.windows.cwnd, look.rate
    if look.protocol != "tcp" or not look.windows.flat or not window or not rate:
        return None
    if (
        look.windows.rwnd_limited is not None
        or is_flat_for_another_reason(look)
        or _is_lossy_or_short(look)
    ):
        return None
    if line_of(rate) or _is_larger_than_needed(window, rate, look.rtt):
        return None
    return _flat_window_hit(look, rate, window)


def _is_larger_than_needed(window: float, rate: float, rtt: Optional[float]) -> bool:
    """Whether the window is larger than what is in flight, as far as the round trip is known."""
    return rtt is not None and window * 8 / rate > rtt / NO_ROUND_TRIP


def _is_lossy_or_short(look: Look) -> bool:
    if look.flow is None or len(look.throughput.rates) < 2:
        return True
    return bool(look.flow.sent.retransmits or look.throughput.retransmits)


def is_unbounded(look: Look) -> bool:
    """Whether neither the receiver's window nor the send buffer limits the flow noticeably."""
    receiver, sender = look.windows.rwnd_limited or 0, look.windows.sndbuf_limited or 0
    return receiver < RECEIVER_LIMITED and sender < SENDER_LIMITED


def _room(look: Look, rate: float, rtt: float) -> int:
    """Bytes of buffer for what is expected of the path, or for the next usual rate."""
    return buffer_for(max(aim(rate, look.evidence.expect), rate), rtt)


def _receiver_window_hit(look: Look, rate: float, window: float, share: float) -> Hit:
    rtt = look.rtt or window * 8 / rate
    room = _room(look, rate, rtt)
    return Hit(
        share,
        f"the receiver's window of {amounts.size(window)} allows {amounts.rate(window * 8 / rtt)} "
        f"at a round trip of {amounts.time(rtt)}",
        _window_facts(look),
        end="receiver",
        fixed=room * 4 / rtt,
        sysctls={RMEM: f"4096 131072 {room}"},
    )


def _flat_window_hit(look: Look, rate: float, window: float) -> Hit:
    """It is not known whose buffer limits the window."""
    rtt = look.rtt or window * 8 / rate
    room, doubt = _room(look, rate, rtt), ""
    if rate > UNPROVEN:
        doubt = (
            f"; the capacity of the path is not proven: run again with buffers of "
            f"{amounts.size(room)}, and only if the rate stays the same the link is the limit"
        )
    return Hit(
        0.8,
        f"the window stays at {amounts.size(window)} without any loss: it is capped by a buffer, "
        f"at a round trip of {amounts.time(rtt)} if that is the path's; it is not known on which "
        f"end{doubt}",
        _window_facts(look),
        end="both",
        confidence=MEDIUM,
        fixed=room * 4 / rtt,
        sysctls={RMEM: f"4096 131072 {room}", WMEM: f"4096 16384 {room}"},
        title=BUFFERS,
    )


def _window_facts(look: Look) -> tuple[Fact, ...]:
    return (
        fact("rwnd_limited / busy_time", look.windows.rwnd_limited),
        fact("snd_wnd", look.windows.snd_wnd),
        fact("snd_cwnd", look.windows.cwnd),
        fact("unacked × mss", look.windows.in_flight),
        fact("rtt", look.rtt),
    )


def slow_reader(look: Look) -> Optional[Hit]:
    """The window is small because the application does not empty the receive buffer."""
    limited, sockets = look.windows.rwnd_limited, _reading_sockets(look)
    if look.protocol != "tcp" or limited is None:
        return None
    fill, waits = _fill(sockets), _reading_delay(look, sockets)
    zero = look.receiver_fact("TcpExt.TCPToZeroWindowAdv")
    is_full = limited >= RECEIVER_LIMITED and fill > SLOW_READER
    is_hopeless = is_read_late(look, waits) or (waits >= HOARDS and limited >= SOMEWHAT)
    if not is_hopeless and not (is_full and waits >= WAITS):
        return None
    hit = Hit(
        1.0 if is_hopeless else limited,
        f"the receiving application is slow: {amounts.percent(fill)} of its buffer waits "
        f"{amounts.time(waits)} to be read",
        (fact("rwnd_limited / busy_time", limited), fact("Recv-Q / rb", fill), zero),
        "find out what limits the application: its CPU, its disk; larger buffers do not help",
        "receiver",
    )
    if not look.receiver_load.has_full_cpu:
        return hit
    # An application that reads as fast as its host can is not at fault.
    text = f"{hit.text}, and its CPU {look.receiver_load.cpu} is full"
    return replace(hit, text=text, severity=LIMIT)


def _fill(sockets: Sequence[Socket]) -> float:
    """How full the receive buffer is, as a share."""
    return middle([(one.recv_q or 0) / (one.rcvbuf or 1) for one in sockets])


def _reading_delay(look: Look, sockets: Sequence[Socket]) -> float:
    """Seconds that data waits in the receive buffer; 0 if nothing was received."""
    if not look.rate:
        return 0.0
    return middle([one.recv_q or 0 for one in sockets]) * 8 / look.rate


def _data_sockets(samples: Sequence[Sample], phase: Phase) -> list[Socket]:
    return [one for sample in samples for one in data_sockets(sample, phase)]


def _reading_sockets(look: Look) -> list[Socket]:
    """The receiver's data connections in every sample after the first whose queue is known."""
    every = _data_sockets(look.phase.receiver[1:], look.phase)
    return [one for one in every if one.recv_q is not None and one.rcvbuf]


def sender_buffer(look: Look) -> Optional[Hit]:
    """The send buffer is full.

    The kernel's clock runs only while nothing waits to be sent (tcp_cwnd_validate()), which an
    application that writes large pieces may prevent. The samples of the queue decide then.
    """
    limited = look.windows.sndbuf_limited
    if look.protocol != "tcp" or limited is None or not look.rate:
        return None
    share = limited if limited >= SENDER_LIMITED else _queued_full(look)
    limit, size = sysctl_max(look.sender, WMEM), _send_buffer_size(look)
    # A buffer that is smaller than what it may grow to is not what limits.
    may_grow = bool(limit and size and size < AT_WINDOW * limit)
    if not share or may_grow:
        return None
    of_size = f" of {amounts.size(size)}" if size else ""
    hit = Hit(
        share,
        f"the sender's buffer{of_size} is full: it waits for acknowledgements "
        f"{amounts.percent(share)} of the time",
        (
            fact("sndbuf_limited / busy_time", limited),
            fact("tb", size),
            fact(f"{WMEM} maximum", limit),
        ),
        end="sender",
    )
    rtt = look.rtt or look.round_trip.shortest
    if not rtt:
        return hit
    room = _room(look, look.rate, rtt)
    return replace(hit, fixed=room * 4 / rtt, sysctls={WMEM: f"4096 16384 {room}"})


def _send_buffer_size(look: Look) -> Optional[int]:
    """Bytes: the largest send buffer of a data connection in any sample."""
    sizes = (one.sndbuf for one in _data_sockets(look.phase.sender, look.phase))
    return max(filter(None, sizes), default=None)


def _queued_full(look: Look) -> float:
    """The share of the samples in which the send buffer, but no window, was full; 0 if few."""
    known = _sockets_with_queue(look)
    full = sum(map(_is_buffer_full, known))
    if not known or full < MOSTLY * len(known):
        return 0.0
    in_flight, window = look.windows.in_flight, _smaller_window(look.windows)
    has_room = in_flight is not None and in_flight < AT_WINDOW * window
    # The kernel says that all of the buffer was sent; that it fills a window too is a coincidence.
    if not has_room and not all(one.app_limited for one in known):
        return 0.0
    return look.left * full / len(known)


def _sockets_with_queue(look: Look) -> list[Socket]:
    every = steady_sockets(look)
    return [one for one in every if one.sndbuf and one.wmem_queued is not None]


def _is_buffer_full(socket: Socket) -> bool:
    """Whether it is full of what was sent: what waits for its turn needs no larger one."""
    if socket.in_flight is not None and socket.in_flight < SENT * (socket.sndbuf or 0):
        return False
    return (socket.wmem_queued or 0) >= WRITABLE * (socket.sndbuf or 0)


def _smaller_window(windows: Windows) -> float:
    """Bytes: the smaller of congestion window and receiver's window; 0 if either is not known."""
    return min(windows.cwnd or 0.0, windows.snd_wnd or 0.0)


def application(look: Look) -> Optional[Hit]:
    """The sending application has nothing to send."""
    idle = look.windows.idle_share
    if look.protocol != "tcp" or idle is None or look.sender_load.has_full_cpu or not look.rate:
        return None
    # It is information if the rate is what the test was limited to.
    severity = INFO if look.asked and look.rate >= 0.95 * look.asked else None
    if idle < IDLE:
        return _starved(look, severity)
    return Hit(
        idle,
        f"nothing was in flight {amounts.percent(idle)} of the time: {NOTHING_TO_SEND}",
        (fact("1 - busy_time / time", idle),),
        FEED_THE_SENDER,
        "sender",
        severity=severity,
    )


def _starved(look: Look, severity: Optional[str]) -> Optional[Hit]:
    """Little is in flight: an application that writes small pieces keeps TCP waiting."""
    window, in_flight = _smaller_window(look.windows), look.windows.in_flight
    if in_flight is None or in_flight > IDLE * window or look.left < NETWORK:
        return None
    known = [one for one in _sockets_with_queue(look) if one.app_limited is not None]
    if not known or not all(map(_is_starved, known)):
        return None
    return Hit(
        look.left,
        f"{amounts.size(in_flight)} of a window of {amounts.size(window)} were in flight, and "
        f"nothing was queued: {NOTHING_TO_SEND}",
        (fact("app_limited", "in every sample"),),
        FEED_THE_SENDER,
        "sender",
        confidence=MEDIUM,
        severity=severity,
    )


def _is_starved(socket: Socket) -> bool:
    return bool(socket.app_limited) and not _is_buffer_full(socket)
