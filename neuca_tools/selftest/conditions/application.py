"""D02 to D04: the applications, and the send buffer between one of them and TCP."""

# SPDX-License-Identifier: MIT

from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions import thresholds
from neuca_tools.selftest.conditions.base import Hit, Severity, single_fact
from neuca_tools.selftest.conditions.figures import (
    BLOCK,
    SPEEDS,
    buffer_for,
    link_speed_for,
    mathis_rate,
    target_rate,
)
from neuca_tools.selftest.conditions.udp import SLIGHT_LOSS, datagram_size
from neuca_tools.selftest.evidence import Socket
from neuca_tools.selftest.evidence.look import Look, Windows, sockets_in_all, steady_sockets

# The other titles of the condition.
BELOW_BLOCKS, SMALL_WRITES = "-b below what iperf3 can send", "writes too small"
# iperf3 -b sends at least one block (-l) for each tick of 100 ms (esnet/iperf issues 439, 1052).
TICKS_PER_SECOND, MIN_INTERVALS = 10, 4
# Bytes of a write, and writes of a stream in a second: 0.42 million (UDP) to 0.89 million (TCP) of
# 16 to 256 bytes were measured on lo (iperf3 -l); a slow processor has half of them.
SMALL_WRITE, MANY_SMALL_WRITES = 256, 200_000
FRAME = 28 + 38  # bytes around an IPv4 datagram on Ethernet, with preamble and gap
NEAR_SPEED = 0.97  # of a link's speed, by such frames
RMEM, WMEM = "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"
# Of the busy time: 0.54 to 0.81 was measured on flows limited by their window.
RECEIVER_LIMITED = 0.4
# The same for a paced sender, whose congestion window is larger than the receiver's by this factor;
# 0.28 was measured with BBR.
PACED_LIMITED, PACED_WINDOW = 0.15, 1.2
SENDER_LIMITED = 0.2  # of the busy time: 0.26 to 0.32 was measured (D03)
AT_WINDOW = 0.9  # of snd_wnd in flight
# Of the send buffer: the kernel wakes a writer when no more is queued (sk_stream_is_writeable).
WRITABLE_SHARE = 2 / 3
IN_FLIGHT_SHARE = 0.25  # of the send buffer in flight; the kernel's overhead takes half of it
FULL_SAMPLES = 0.5  # of the samples: a buffer that is full so often is the limit (D03)
FULL_READ_BUFFER = 0.5  # of the receive buffer waits to be read (D02)
# Seconds until data is read (D02): 0.1 to 0.2 ms was measured with buffers of 16 to 256 KiB,
# 0.5 s with a slow reader.
READ_SECONDS = 0.002
# So long data waits only for a reader that is slower than the sender, whatever the buffer.
SLOW_READ_SECONDS = 0.1
IDLE_SHARE = 0.5  # of the time with nothing in flight (D04)
NEGLIGIBLE_LOSS = 1e-5  # of the bytes: less loss does not slow any sender down (D05)
NETWORK_SHARE = 0.8  # of the time that neither window nor buffer explains (D05)
NOTHING_TO_SEND = "the sending application had nothing to send"
# bit/s of a stream: UDP_RATE of iperf3, and iperf 2 alike; of this, three digits are printed.
UDP_DEFAULT, ROUNDED = 1024 * 1024, 0.01
FEED_THE_SENDER = "check what the sender reads from, and whether its rate was limited (-b)"


def _whole_blocks(look: Look) -> Optional[Hit]:
    """iperf3 sends whole blocks: a lower rate than one block for each tick cannot be requested."""
    if not look.is_unsampled:
        return None
    is_tcp = look.protocol == "tcp"
    if not look.target:
        return _small_writes(look) or (_unstated_blocks(look) if is_tcp else None)
    block = (look.run.datagram or BLOCK) if is_tcp else datagram_size(look)
    lowest = TICKS_PER_SECOND * 8 * block * look.streams  # bit/s
    if not look.target <= look.known_rate / thresholds.EXCEEDED_RATIO <= lowest:
        return None
    return Hit(
        0.9,
        f"-b requested {amounts.rate(look.target)}, and iperf3 sent "
        f"{amounts.rate(look.known_rate)}: it sends whole blocks, at least one for each tick of "
        "its timer",
        (single_fact("-b", round(look.target)), look.rate_fact),
        "smaller blocks (-l 1K), or pacing by the kernel (--fq-rate)",
        "tool",
        confidence="medium",
        title=BELOW_BLOCKS,
    )


def _small_writes(look: Look) -> Optional[Hit]:
    """Each write of a few bytes is a call of the kernel, and the number of calls is the limit."""
    size, rate = look.run.datagram or 0, look.known_rate
    writes = rate / 8 / size / look.streams if size else 0.0
    if not 0 < size <= SMALL_WRITE or writes < MANY_SMALL_WRITES or look.known_loss >= SLIGHT_LOSS:
        return None
    on_wire = rate * (1 + FRAME / size) if look.protocol == "udp" else rate
    is_full = any(NEAR_SPEED * speed <= on_wire <= speed for speed in SPEEDS)
    if is_full or link_speed_for(on_wire):
        return None
    return Hit(
        0.8,
        f"the sender writes {size} bytes at a time, {round(writes, -4):,.0f} times a second: the "
        "calls take its CPU, whatever the path can carry",
        (single_fact("-l", size), look.rate_fact),
        "larger writes (without -l), unless it is their number that is tested",
        "sender",
        confidence="medium",
        title=SMALL_WRITES,
    )


def _unstated_blocks(look: Look) -> Optional[Hit]:
    """Each second has just the blocks of an old iperf3's timer; links have no such rate."""
    if look.phase.name == thresholds.BIDIRECTIONAL or len(look.steady) < MIN_INTERVALS:
        return None
    blocks = {round((each.bytes or 0.0) / BLOCK, 1) for each in look.steady if each.seconds > 0.9}
    if blocks != {TICKS_PER_SECOND} or (look.retransmits or 0) > len(look.all_intervals):
        return None
    return Hit(
        0.85,
        f"every second carries {TICKS_PER_SECOND} blocks of 128 KiB: iperf3 sends one for each "
        "tick of its timer if -b asks for less than that, and nothing else limits it",
        (look.rate_fact,),
        "if -b was given: smaller blocks (-l 1K), or pacing by the kernel (--fq-rate)",
        "tool",
        confidence="medium",
        title=BELOW_BLOCKS,
    )


def nothing_to_send(look: Look) -> Optional[Hit]:
    """The sender has nothing to send for a while, or was to send no more."""
    return idle_application(look) or _as_requested(look)


def _as_requested(look: Look) -> Optional[Hit]:
    """No more was to be sent: -b asked for this rate, or UDP was tested without it."""
    default = UDP_DEFAULT * look.streams if look.protocol == "udp" else 0.0
    target, rate = look.target or default, look.known_rate
    is_so = (
        thresholds.is_at_target(look, thresholds.THROUGHPUT)
        if look.target
        else abs(rate - target) <= ROUNDED * target
    )
    if not look.is_unsampled or not is_so or look.run.error:
        return None
    if look.is_unanswered or look.known_loss >= SLIGHT_LOSS:
        return None
    asked = f"{amounts.rate(target)} was requested"
    if target == default:
        asked = f"without -b, iperf sends {amounts.rate(target)} over UDP"
    return Hit(
        1.0,
        f"{asked}: the test does not show what the path can carry",
        (single_fact("-b", round(target)),),
        FEED_THE_SENDER,
        "tool",
        severity="info",
        title="as much as was requested",
    )


def loss_ceiling(look: Look, rtt: Optional[float], loss: Optional[float]) -> Optional[int]:
    """bit/s that this loss allows (`mathis_rate`); None if either is not known."""
    if not rtt or not loss:
        return None
    return round(mathis_rate(look.mss, rtt, loss))


def is_lossy(look: Look) -> bool:
    """Whether TCP loses packets, not only in bursts of a full send buffer or among many streams."""
    if look.known_loss <= NEGLIGIBLE_LOSS or look.known_network_share < NETWORK_SHARE:
        return False
    return not thresholds.is_crowded(look) and sender_buffer(look) is None


def is_unbounded(look: Look) -> bool:
    """Whether neither the receiver's window nor the send buffer limits the flow noticeably."""
    receiver, sender = look.windows.rwnd_limited or 0, look.windows.sndbuf_limited or 0
    return receiver < RECEIVER_LIMITED and sender < SENDER_LIMITED


def room_for(look: Look, rate: float, rtt: float) -> int:
    """Bytes of buffer for what is expected of the path, or for the next usual rate."""
    return buffer_for(max(target_rate(rate, look.evidence.expect), rate), rtt)


def slow_reader(look: Look) -> Optional[Hit]:
    """The window is small because the application does not empty the receive buffer."""
    limited = look.windows.rwnd_limited
    if limited is None:
        return None
    fill, seconds = _waiting_to_be_read(look)
    is_full = fill > FULL_READ_BUFFER and seconds >= READ_SECONDS and limited >= RECEIVER_LIMITED
    is_late = seconds >= SLOW_READ_SECONDS and limited >= PACED_LIMITED
    is_late = is_late or thresholds.is_read_late(look, seconds)
    if not is_late and not is_full:
        return None
    hit = Hit(
        1.0 if is_late else limited,
        f"the receiving application is slow: {amounts.percent(fill)} of its buffer waits "
        f"{amounts.time(seconds)} to be read",
        (
            single_fact("rwnd_limited / busy_time", limited),
            single_fact("Recv-Q / rb", fill),
            look.receiver_fact("TcpExt.TCPToZeroWindowAdv"),
        ),
        "find out what limits the application: its CPU, its disk; larger buffers do not help",
        "receiver",
    )
    load = look.receiver_load
    if not load.has_full_cpu:
        return hit
    # An application that reads as fast as its host can is not at fault.
    return hit._replace(text=f"{hit.text}, and its CPU {load.cpu} is full", severity="limit")


def _waiting_to_be_read(look: Look) -> tuple[float, float]:
    """How full the receive buffer is, as a share, and the seconds that data waits in it.

    By the receiver's data connections in every sample after the first; 0 if that is not known.
    """
    every = sockets_in_all(look.phase.receiver[1:], look.phase)
    sockets = [socket for socket in every if socket.recv_q is not None and socket.rcvbuf]
    fills = [(socket.recv_q or 0) / (socket.rcvbuf or 1) for socket in sockets]
    waiting = thresholds.upper_median([socket.recv_q or 0 for socket in sockets])
    return thresholds.upper_median(fills), waiting * 8 / look.rate if look.rate else 0.0


def sender_buffer(look: Look) -> Optional[Hit]:
    """The send buffer is full.

    The kernel's clock runs only while nothing waits to be sent (tcp_cwnd_validate()), which an
    application that writes large pieces may prevent. The samples of the queue decide then.
    """
    limited = look.windows.sndbuf_limited
    if look.protocol != "tcp" or limited is None or not look.rate:
        return None
    share = limited if limited >= SENDER_LIMITED else _queued_full(look)
    sizes = (socket.sndbuf for socket in sockets_in_all(look.phase.sender, look.phase))
    limit, size = look.sender.sysctl_max(WMEM), max(filter(None, sizes), default=None)
    if not share or _may_grow(size, limit):
        return None
    hit = _full_buffer(share, limited, size, limit)
    rtt = look.rtt or look.shortest_rtt
    if not rtt:
        return hit
    return hit._replace(sysctls={WMEM: f"4096 16384 {room_for(look, look.rate, rtt)}"})


def _may_grow(size: Optional[int], limit: Optional[int]) -> bool:
    """Whether a buffer is smaller than what it may grow to: then it is not what limits."""
    return bool(limit and size and size < AT_WINDOW * limit)


def _full_buffer(share: float, limited: float, size: Optional[int], limit: Optional[int]) -> Hit:
    """`size` bytes of `limit`, for this share of the time."""
    of_size = f" of {amounts.size(size)}" if size else ""
    # Where the samples decide, the kernel's clock would contradict them.
    decisive = single_fact("sndbuf_limited / busy_time", limited)
    if limited != share:
        decisive = single_fact("tb full / time", share)
    return Hit(
        share,
        f"the sender's buffer{of_size} is full: it waits for acknowledgements "
        f"{amounts.percent(share)} of the time",
        (
            decisive,
            single_fact("tb", size),
            single_fact(f"{WMEM} maximum", limit),
        ),
        end="sender",
    )


def _queued_full(look: Look) -> float:
    """The share of the samples in which the send buffer, but no window, was full; 0 if few."""
    known = _sockets_with_queue(look)
    full = sum(map(_is_buffer_full, known))
    if not known or full < FULL_SAMPLES * len(known):
        return 0.0
    in_flight, window = look.windows.in_flight, _smaller_window(look.windows)
    has_room = in_flight is not None and in_flight < AT_WINDOW * window
    # The kernel says that all of the buffer was sent; that it fills a window too is a coincidence.
    if not has_room and not all(socket.app_limited for socket in known):
        return 0.0
    return look.known_network_share * full / len(known)


def _sockets_with_queue(look: Look) -> list[Socket]:
    every = steady_sockets(look)
    return [socket for socket in every if socket.sndbuf and socket.wmem_queued is not None]


def _is_buffer_full(socket: Socket) -> bool:
    """Whether it is full of what was sent: what waits for its turn needs no larger one."""
    if socket.in_flight is not None and socket.in_flight < IN_FLIGHT_SHARE * (socket.sndbuf or 0):
        return False
    return (socket.wmem_queued or 0) >= WRITABLE_SHARE * (socket.sndbuf or 0)


def _smaller_window(windows: Windows) -> float:
    """Bytes: the smaller of congestion window and receiver's window; 0 if either is not known."""
    return min(windows.cwnd or 0.0, windows.snd_wnd or 0.0)


def idle_application(look: Look) -> Optional[Hit]:
    """The sending application has nothing to send, or iperf3 sends whole blocks (-b)."""
    idle = look.windows.idle_share
    if idle is None:
        return _whole_blocks(look)
    if look.protocol != "tcp" or look.sender_load.has_full_cpu or not look.rate:
        return None
    severity: Optional[Severity] = None
    if look.target and look.rate >= 0.95 * look.target:
        severity = "info"  # it is what the test was limited to
    if idle < IDLE_SHARE:
        return _starved_sender(look, severity)
    return Hit(
        idle,
        f"nothing was in flight {amounts.percent(idle)} of the time: {NOTHING_TO_SEND}",
        (single_fact("1 - busy_time / time", idle),),
        FEED_THE_SENDER,
        "sender",
        severity=severity,
    )


def _starved_sender(look: Look, severity: Optional[Severity]) -> Optional[Hit]:
    """Little is in flight: an application that writes small pieces keeps TCP waiting."""
    window, in_flight = _smaller_window(look.windows), look.windows.in_flight
    if in_flight is None or in_flight > IDLE_SHARE * window:
        return None
    known = [socket for socket in _sockets_with_queue(look) if socket.app_limited is not None]
    is_starved = all(socket.app_limited and not _is_buffer_full(socket) for socket in known)
    if not known or not is_starved or look.known_network_share < NETWORK_SHARE:
        return None
    return Hit(
        look.known_network_share,
        f"{amounts.size(in_flight)} of a window of {amounts.size(window)} were in flight, and "
        f"nothing was queued: {NOTHING_TO_SEND}",
        (single_fact("app_limited", "in every sample"),),
        FEED_THE_SENDER,
        "sender",
        confidence="medium",
        severity=severity,
    )
