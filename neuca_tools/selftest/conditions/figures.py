"""Rates of links and windows, and what iperf's own figures prove when no host was sampled."""

# SPDX-License-Identifier: MIT

import math
from typing import Optional

from neuca_tools.selftest.evidence import run
from neuca_tools.selftest.evidence.look import Look

# Of the speed of Ethernet at MTU 1500: 0.901 through WireGuard (1368 of 1518 bytes), 0.909 through
# VXLAN, 0.928 with IPv6 and timestamps, 0.949 with IPv4 and none; as printed, with three digits of
# a size and of a time.
LINE_SHARE = (0.895, 0.955)
# The most with MTU 9000, or on a virtual link, which has no preamble and no gap between frames.
MAX_FAST_SHARE = 1.005
JUMBO_SHARE = (0.985, 0.992)  # with MTU 9000 and preambles, on links that are not virtual
FAST_LINE, JUMBO = 10e9, 8000  # bit/s, bytes of MSS: below both, MTU 9000 is rare
FAST_RATE, MANY_STREAMS = 1e9, 4  # bit/s, streams
NEARLY_ALL = 0.9  # of what a link carries, or of what was asked for
# Of a nominal rate that providers sell: below, headers explain too much; above, it was exceeded.
CAP_SHARE = (LINE_SHARE[1], 1.005)
UNEVEN_SPREAD = 0.15  # coefficient of variation of the rate that losses leave
BURST_WINDOWS = 2  # times the average window that as much loss leaves if it is by chance
CAP_DIGITS = (1, 2, 5, 10)  # leading digits
STEADY_SPREAD = 0.03  # coefficient of variation of the rate
PACED_SPREAD = 0.004  # the same, and of a round rate: iperf's text has three digits
FULL_LINK_SPREAD = 0.04  # the same of a full link, of which iperf counts whole blocks
HELD_SPREAD = 0.015  # the same of a rate that a limiter holds
BLOCK = 128 * 1024  # bytes: what iperf writes and counts at once over TCP, without -l
# The kernel's own default, tcp_rmem[2] (tcp(7)): what the receiver may hold.
RECEIVE_BUFFER = 6 * 2**20
HEAVY_LOSS = 0.0045  # of the segments: loss that no full link needs (1 in 200, and chance)
NOTABLE_LOSS = 0.0005  # of the segments: less may be chance; a bound of our own
FEW_LOSSES = 20  # segments, of which chance makes any share
# sqrt(3/2) of Mathis et al. (1997), for a receiver that acknowledges each segment.
RENO_CONSTANT = 1.22
MANY_WRITES = 100_000  # in a second: as many packets as hosts receive (udp.MANY_PER_SECOND)
# bit/s: a test of netem or tbf on lo is slower, and so is a limiter of a rate that nobody sells.
UNSHAPED_RATE = 0.5e9


def filled_link_speed(look: Look) -> Optional[float]:
    """The speed in bit/s of the Ethernet that this run filled."""
    if look.known_spread >= FULL_LINK_SPREAD:
        return None
    return next((speed for speed in SPEEDS if _fills_line(look.known_rate, speed, look)), None)


def is_in_host(look: Look) -> bool:
    """Whether nothing leaves the host, as fast as only its CPUs limit it."""
    return look.run.is_loopback and look.known_rate >= UNSHAPED_RATE


def late_loss(look: Look) -> float:
    """The share of the segments that were lost after slow start; of all, if that is not known."""
    counts = [interval.retransmits for interval in look.steady]
    size = sum(interval.bytes or 0 for interval in look.steady)
    if None in counts or not size:
        return look.known_loss
    return min(1.0, sum(filter(None, counts)) * look.mss / size)


def _fills_line(rate: float, speed: float, look: Look) -> bool:
    share = rate / speed
    if speed >= FAST_LINE:
        return LINE_SHARE[0] <= share <= MAX_FAST_SHARE  # any MTU up to 9000, and virtual links
    # Where the MSS is not known: nothing but such a link limits a local network.
    mss = look.run.mss
    may_be_jumbo = look.run.is_local_network if mss is None else mss > JUMBO
    is_jumbo = may_be_jumbo and JUMBO_SHARE[0] <= share <= JUMBO_SHARE[1]
    return is_jumbo or LINE_SHARE[0] <= share <= LINE_SHARE[1]


def buffered_bytes(look: Look) -> float:
    """Bytes that the hosts and a relay between them hold: no path carried these yet."""
    if look.protocol == "udp":
        return BLOCK  # two of the largest datagrams
    return 2 * (run.send_buffer(look.run) + look.streams * RECEIVE_BUFFER)


def cap_above(rate: float) -> Optional[float]:
    """The nominal rate in bit/s that a provider may have limited this rate to."""
    if rate <= 0:
        return None
    decade = math.pow(10, math.floor(math.log10(rate)))
    nominal = (step * decade for step in CAP_DIGITS)
    return next((cap for cap in nominal if CAP_SHARE[0] <= rate / cap <= CAP_SHARE[1]), None)


def loss_explains(look: Look) -> bool:
    """Whether the loss that was counted holds the rate back.

    As long as the rate varies much, the window has not grown back from what slow start lost.
    """
    if (look.retransmits or 0) < FEW_LOSSES or is_in_host(look) or is_limited(look):
        return False
    if look.known_rate >= FAST_LINE and look.streams >= MANY_STREAMS:
        return False  # what many streams lose at rates that only hosts limit, the hosts lose
    is_uneven = look.known_spread >= UNEVEN_SPREAD
    lost = late_loss(look)
    if is_uneven or look.spread is None:
        lost = max(lost, look.known_loss)
    return lost >= (NOTABLE_LOSS if is_uneven else HEAVY_LOSS)


def window_left_by(share: float, look: Look) -> float:
    """Bytes: the window that this share of losses leaves if each segment is lost by itself."""
    return look.streams * RENO_CONSTANT / math.sqrt(share) * look.mss


def is_limited(look: Look) -> bool:
    """Whether the rate is the same however much is lost: TCP's own varies by more with loss."""
    return late_loss(look) >= NOTABLE_LOSS and is_constant(look, HELD_SPREAD)


def is_constant(look: Look, limit: float = STEADY_SPREAD) -> bool:
    """Whether the rate is known, and hardly varies."""
    return look.spread is not None and look.spread < limit


def is_paced(look: Look) -> bool:
    """Whether it is just a round rate: a program asked for it; a limiter counts headers as well.

    iperf writes whole blocks, and may write one more or less.
    """
    rate = look.flow.received.rate or look.known_rate
    if not 0 < rate < NEARLY_ALL * FAST_RATE or look.known_loss >= HEAVY_LOSS:
        return False
    decade = 10.0 ** math.floor(math.log10(rate))
    missing = min(abs(rate - digit * decade) for digit in CAP_DIGITS)
    block = BLOCK * 8 / max(1.0, sum(interval.seconds for interval in look.steady))
    is_round = missing <= max(PACED_SPREAD * rate, block)
    return is_round and rate >= block and is_constant(look, PACED_SPREAD)


def writes_often(look: Look) -> bool:
    """Whether so many blocks (-l) are written in a second that a CPU may be what limits them."""
    size = look.run.datagram
    return bool(size) and look.known_rate / 8 >= MANY_WRITES * (size or 0)


def is_as_requested(look: Look) -> bool:
    """Whether the rate is the one that was requested (-b): that is not a capacity.

    iperf writes whole blocks, and may have one less to write than was asked for.
    """
    if not look.target or not look.rate:
        return False
    seconds = sum(interval.seconds for interval in look.steady)
    missing = (look.target - look.rate) * seconds / 8
    return look.rate >= NEARLY_ALL * look.target or (seconds > 0 and missing <= BLOCK)


# --- Arithmetic of paths: line rates, windows and losses ------------------------------------------


# bit/s: the speeds of Ethernet, and those to aim for where no rate is expected.
SPEEDS = tuple(gigabits * 1e9 for gigabits in (0.1, 1, 2.5, 5, 10, 25, 40, 50, 100, 200, 400))
STEPS = tuple(gigabits * 1e9 for gigabits in (1, 10, 25, 40, 100, 200, 400))
# Bytes: IPv4 and TCP with timestamps; preamble, Ethernet header, checksum and gap between frames.
HEADERS, FRAMING = 52, 38
TOLERANCE = 0.005  # of a link's goodput: such a rate is that of the link


def goodput(speed: float, mtu: int) -> float:
    """bit/s that TCP can carry over Ethernet of this speed: 94.15 % at MTU 1500, 99 % at 9000."""
    return speed * (mtu - HEADERS) / (mtu + FRAMING)


def link_speed_for(rate: float, mtu: Optional[int] = None) -> Optional[float]:
    """The speed of the Ethernet that a TCP flow of this rate fills."""
    for speed in SPEEDS:
        if abs(rate / goodput(speed, mtu or 1500) - 1) <= TOLERANCE:
            return speed
    return None


def target_rate(rate: float, expect: Optional[float]) -> float:
    """The rate to make room for: what is expected, else the next usual speed well above `rate`."""
    if expect:
        return expect
    return next((step for step in STEPS if step >= 1.2 * rate), 2 * rate)


def buffer_for(rate: float, rtt: float) -> int:
    """Bytes of tcp_rmem[2] and tcp_wmem[2], in whole MiB.

    Twice the bandwidth-delay product, because Linux advertises half of the buffer as its window.
    """
    return max(1, math.ceil(2 * rate * rtt / 8 / 2**20)) * 2**20


def mathis_rate(mss: float, rtt: float, loss: float) -> float:
    """The rate in bit/s that loss leaves to a Reno-like sender.

    Mathis, Semke, Mahdavi, Ott: The macroscopic behavior of the TCP congestion avoidance algorithm
    (Computer Communication Review 27(3), 1997).
    """
    return mss * 8 / (rtt * math.sqrt(loss))
