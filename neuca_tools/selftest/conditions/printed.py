"""What iperf's own figures prove when no host was sampled: full links, caps, losses."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import math
from statistics import mean, pstdev
from typing import Optional

from neuca_tools.selftest.conditions.predict import SPEEDS
from neuca_tools.selftest.evidence.look import Look
from neuca_tools.selftest.evidence.moves import send_buffer
from neuca_tools.selftest.evidence.printed import Printed, printed
from neuca_tools.selftest.evidence.run import known_rates

# Of the speed of Ethernet at MTU 1500: 0.901 through WireGuard (1368 of 1518 bytes), 0.909 through
# VXLAN, 0.928 with IPv6 and timestamps, 0.949 with IPv4 and none; as printed, with three digits of
# a size and of a time.
OF_LINE = (0.895, 0.955)
# The same with MTU 9000, or on a virtual link, which has no preamble and no gap between frames.
OF_FAST_LINE = (0.985, 1.005)
OF_JUMBO = (0.985, 0.992)  # with MTU 9000 and preambles, on links that are not virtual
FAST_LINE, JUMBO = 10e9, 8000  # bit/s, bytes of MSS: below both, MTU 9000 is rare
# bit/s: that a mean alone fits one of these by chance is more likely than such a link.
RARE = (2.5e9, 5e9)
FAST, MANY = 1e9, 4  # bit/s, streams
NEARLY = 0.9  # of what a link carries, or of what was asked for
# Of a nominal rate that providers sell: below, headers explain too much; above, it was exceeded.
# Clouds let through up to 2% more, which no Ethernet carries.
OF_CAP, OF_CLOUD = (OF_LINE[1], 1.005), 1.02
UNEVEN = 0.15  # coefficient of variation of the rate that losses leave
AT_CAP = 0.1  # the same behind a limiter
MOST_LOST = 0.25  # of the segments, where TCP meets a limiter
BURSTS = 2  # times the average window that as much loss leaves if each segment is lost by chance
CAPS = (1, 2, 5, 10)  # leading digits
STEADY = 0.03  # coefficient of variation of the rate
PACED = 0.004  # the same, and of a round rate: iperf's text has three digits
SOME = 5  # intervals, below which the size of a block does not excuse that they differ
TIMEOUTS = 8  # intervals, of which one may have a timeout
MANY_BLOCKS, APART, ONE_APART = 6, 2.1, 1.1  # in an interval at least; by which two may differ
MOSTLY, EVEN_PARTS = 0.015, 0.04  # the same of the middle half of the intervals; of fifths
VERY_STEADY, LONG_RUN = 0.01, 10  # the same of its means over fifths of a run; intervals
BLOCK = 128 * 1024  # bytes: what iperf writes and counts at once over TCP, without -l
# The kernel's own default, tcp_rmem[2] (tcp(7)): what the receiver may hold.
RECEIVE_BUFFER = 6 * 2**20
HEAVY = 0.0045  # of the segments: loss that no full link needs (1 in 200, and chance)
LOSSY = 0.001
# 1.22 is sqrt(3/2) of Mathis et al. (1997) for a receiver that acknowledges each segment; CUBIC's
# average window is 1.054 * (RTT / p) ** 0.75 segments (RFC 9438, section 5.1).
RENO, CUBIC = 1.22, 1.054
REGULAR = 0.3  # of the intervals with loss: it is what the window depends on
LEAST = 0.5  # events of loss, where chance may have added the only one
WITHIN = 2  # a response function is that of an average
OF_LIMIT = 0.02  # what a limit of a flow lets through, more or less
AT_LEAST = 0.05  # of it: a window that is much smaller is held by something else
# Of a rate: its coefficient of variation at most if a limiter gives it, and at least what one loss
# by chance in each interval leaves of it; of more losses the square root.
EVEN, BY_CHANCE = 0.03, 0.2


def link_filled(one: Printed) -> Optional[float]:
    """The speed in bit/s of the Ethernet that this run filled."""
    for speed in SPEEDS:
        if one.spread is None and speed in RARE:
            continue
        is_full = any(_fills(rate, speed, one) for rate in (one.rate, one.rate - one.queued))
        if is_full and _is_even(one) and not _exceeds(one, speed):
            return speed
        best = max(one.rates, default=0.0)
        if one.rate >= NEARLY * OF_LINE[1] * speed and _fills(best, speed, one):
            return speed
    return None


def _is_even(one: Printed) -> bool:
    """Whether the rate varies by no more than iperf's blocks do: a full link does not vary."""
    if one.spread is None:
        return True
    size = one.rate * one.late[0].seconds / 8
    if size <= 0 or len(one.rates) < SOME:
        return one.spread < STEADY
    return one.spread < STEADY + BLOCK / size


def _fills(rate: float, speed: float, one: Printed) -> bool:
    lowest, highest = OF_LINE
    if speed >= FAST_LINE:
        return lowest <= rate / speed <= OF_FAST_LINE[1]  # any MTU up to 9000, and virtual links
    if lowest <= rate / speed <= highest:
        return True
    lowest, highest = OF_JUMBO
    return _may_be_jumbo(one, speed) and lowest <= rate / speed <= highest


def _may_be_jumbo(one: Printed, speed: float) -> bool:
    """Whether a link may carry frames of 9000 bytes, as nothing else limits a local network."""
    if one.run.mss is None:
        # Clouds limit a flow to 5 Gbit/s; Ethernet of that speed with MTU 9000 is rarer.
        return one.is_local_network and one.spread is not None and speed != max(RARE)
    # MTU 9000 on a rare link is rarer than a limit of that rate.
    return one.run.mss > JUMBO and speed not in RARE


def _exceeds(one: Printed, speed: float) -> bool:
    """Whether intervals were faster than the link, and not only to fill the send buffer."""
    excess = sum(
        max(0.0, each.rate - speed) * each.seconds / 8 for each in one.late if each.rate is not None
    )
    return max(excess, burst(one, one.rate)) > send_buffer(one.run)


def burst(one: Printed, rate: float) -> float:
    """Bytes of the first interval in excess of this rate."""
    if not one.every or one.every[0].start > 0 or one.every[0].bytes is None:
        return 0.0
    return one.every[0].bytes - rate * one.every[0].seconds / 8


def buffers(one: Printed) -> float:
    """Bytes that the hosts and a relay between them hold: no path carried these yet."""
    return 2 * (send_buffer(one.run) + one.streams * RECEIVE_BUFFER)


def cap_of(rate: float) -> Optional[float]:
    """The nominal rate in bit/s that a provider may have limited this rate to."""
    nominal = nominal_rates(rate)
    return next((cap for cap in nominal if OF_CAP[0] <= rate / cap <= highest_of(cap)), None)


def nominal_rates(rate: float) -> list[float]:
    """The rates in bit/s that providers sell, of the decade of this one."""
    if rate <= 0:
        return []
    decade = math.pow(10, math.floor(math.log10(rate)))
    return [step * decade for step in CAPS]


def highest_of(cap: float) -> float:
    """What a limit of this rate lets through at most, of its nominal rate."""
    return OF_CLOUD if FAST <= cap < FAST_LINE else OF_CAP[1]


def loss_explains(one: Printed) -> bool:
    """Whether the loss that was counted holds the rate back."""
    if not one.retransmits or one.is_inside or _is_of_a_limiter(one) or one.is_idle_after_loss:
        return False
    speed = link_filled(one)
    if speed is None:
        return _is_heavy(one) or is_window_left_by_loss(one) or _is_window_bound(one)
    # Many streams that fill a fast link lose what exceeds it.
    return _is_heavy(one) and (speed < FAST or one.streams < MANY)


def _is_of_a_limiter(one: Printed) -> bool:
    """Whether something limits the rate, and drops the rest."""
    return is_limited(one) or is_shared(one)


def is_shared(one: Printed) -> bool:
    """Whether many streams lose much, and nothing else is known: together they fill something.

    Each of n streams has 1/n of what the path holds, and so meets n * n times the loss of one.
    """
    return one.spread is None and one.streams >= MANY and one.share >= HEAVY


def _is_window_bound(one: Printed) -> bool:
    """Whether the window is about what so much loss leaves of it, or, if unknown, the rate."""
    if one.cwnd is None:
        # A shaper, too, drops one segment in some hundreds.
        return one.spread is not None and one.share >= LOSSY and not is_constant(one)
    left = window_at_loss(one)
    return _is_answered(one) and AT_LEAST * left <= one.cwnd <= WITHIN * left


def _is_heavy(one: Printed) -> bool:
    """Whether more is lost than a full link needs, and the window shows it.

    What many streams lose at rates that only hosts limit, these lose.
    """
    if one.rate >= FAST_LINE and one.streams >= MANY:
        return False
    return one.late_share >= HEAVY and (one.is_reduced or not one.is_flat)


def is_window_left_by_loss(one: Printed) -> bool:
    """Whether each round trip carries the congestion window that loss left, without a queue."""
    return one.is_unqueued and one.is_window_full and not one.is_flat and one.is_lowered


def by_chance(one: Printed, share: float) -> float:
    """Bytes: the window that so much loss leaves if each segment is lost by itself."""
    return one.streams * RENO / math.sqrt(share) * one.mss


def is_at_cap(one: Printed) -> bool:
    """Whether what arrived is a rate that is sold, and the loss is not what made it so."""
    if not one.arrived or cap_of(one.arrived) is None or one.arrived >= FAST_LINE:
        return False
    if one.share > MOST_LOST or not varies_little(one, AT_CAP):
        return False
    if one.cwnd is None or not one.share:
        return True
    return mean(one.cwnds) >= BURSTS * by_chance(one, one.share)


def varies_little(one: Printed, most: float) -> bool:
    """Whether the rate varies by no more than this, as far as blocks tell."""
    if one.spread is None or one.spread <= most:
        return True
    size = one.rate * one.late[0].seconds / 8
    return not one.is_received and one.spread <= BLOCK / max(size, 1)


def is_limited(one: Printed) -> bool:
    """Whether the rate is the same in each interval however much is lost: a limiter drops the rest.

    Loss at any rate makes TCP's own rate vary by more than this.
    """
    if one.share >= HEAVY and is_at_cap(one):
        return True
    is_rare = not one.is_received and 2 * one.events < len(one.every)
    if not one.every or one.share < LOSSY or is_rare or _is_of_hosts(one):
        return False
    if _is_steady(one, VERY_STEADY):
        return True
    losses = (one.retransmits or 0) / len(one.every)
    # What so many losses by chance leave of the rate varies more.
    by_chance = min(EVEN, BY_CHANCE / math.sqrt(max(1.0, losses)))
    return _spread_of_most(one) < max(VERY_STEADY, by_chance)


def _is_of_hosts(one: Printed) -> bool:
    """Whether no limiter gives this rate: nobody sells just any fast one, and none ever stops."""
    is_fast = one.rate >= FAST_LINE and not _is_near(one.rate, FAST_LINE)
    return is_fast or not min(one.rates, default=0.0)


def _is_near(rate: float, nominal: float) -> bool:
    return abs(rate / nominal - 1) <= OF_LIMIT


def _spread_of_most(one: Printed) -> float:
    """The coefficient of variation of the rate, without one of eight intervals: timeouts."""
    rates = one.rates
    if len(rates) < 4:
        rates = known_rates(one.every[1:])
    most = sorted(rates)[len(rates) // TIMEOUTS :]
    if len(most) < 4 or mean(most) <= 0:
        return math.inf
    return pstdev(most) / mean(most)


def _is_answered(one: Printed) -> bool:
    """Whether window and rate are what this loss leaves of them."""
    if one.is_recovering or one.slows_at_loss:
        return True
    if one.spread is None or is_constant(one) or one.is_queued:
        return False
    is_regular = one.events >= REGULAR * len(one.every)
    return one.follows_loss or (is_regular and one.follows_window)


def window_at_loss(one: Printed) -> float:
    """Bytes: the average window that TCP keeps if it meets loss as often as this run did.

    Segments that are lost together are one event; an interval of iperf has one at least.
    """
    size = sum(interval.bytes or 0 for interval in one.every)
    # Few events may be fewer by chance, by about the square root of their number.
    events = max(one.events - math.sqrt(one.events), LEAST)
    chance = events * one.mss / max(size, one.mss)
    rtt = one.rtt or (one.cwnd or 0) * 8 / one.rate
    segments = max(RENO / math.sqrt(chance), CUBIC * math.pow(rtt / chance, 0.75))
    return one.streams * segments * one.mss


def is_constant(one: Printed, limit: float = STEADY) -> bool:
    """Whether the rate is known not to vary, or by whole blocks alone.

    Those make a slow rate uneven from interval to interval, but not from minute to minute.
    """
    if one.spread is None:
        return False
    return _is_steady(one, limit) or _is_within_blocks(one) or _is_mostly_steady(one)


def _is_mostly_steady(one: Printed) -> bool:
    """Whether the rate hardly varies but for some intervals that others make up for."""
    is_usual = one.usual_spread is not None and one.usual_spread < MOSTLY
    return is_usual and one.drift < EVEN_PARTS


def _is_steady(one: Printed, limit: float) -> bool:
    """Whether the rate hardly varies, or in a long run from minute to minute hardly does."""
    if one.spread is None:
        return False
    is_long = len(one.rates) >= LONG_RUN
    return one.spread < limit or (is_long and _is_even(one) and one.drift < VERY_STEADY)


def _is_within_blocks(one: Printed) -> bool:
    """Whether the intervals differ by no more than a block of iperf at either end."""
    if not differs_by_blocks(one, APART) or one.is_local_network:
        return False
    return min(each.bytes or 0.0 for each in one.late) >= MANY_BLOCKS * BLOCK and _stays(one)


def differs_by_blocks(one: Printed, most: float) -> bool:
    """Whether all sizes are known, and no two intervals differ by more than `most` blocks."""
    sizes = [each.bytes for each in one.late if each.bytes is not None]
    if len(sizes) < 3 or len(sizes) < len(one.late):
        return False
    return max(sizes) - min(sizes) <= most * BLOCK


def _stays(one: Printed) -> bool:
    """Whether the second half of a long run is as fast as the first."""
    if len(one.rates) < LONG_RUN - 2:
        return False
    middle = len(one.rates) // 2
    early, late = mean(one.rates[:middle]), mean(one.rates[middle:])
    return abs(early - late) < STEADY * late


def as_asked(look: Look) -> bool:
    """Whether the rate is the one that was requested (-b): that is no capacity.

    iperf writes whole blocks, and may have one less to write than was asked for.
    """
    if not look.asked or not look.rate:
        return False
    seconds = sum(one.seconds for one in look.throughput.steady)
    missing = (look.asked - look.rate) * seconds / 8
    return look.rate >= NEARLY * look.asked or (seconds > 0 and missing <= BLOCK)


def is_paced(one: Printed) -> bool:
    """Whether it is just a round rate: a program asked for it; a limiter counts headers as well."""
    rate = one.arrived or one.rate
    cap = cap_of(rate)
    if cap is None or cap >= FAST or one.spread is None or one.share >= HEAVY:
        return False
    is_even = one.spread <= PACED or differs_by_blocks(one, ONE_APART)
    return is_even and abs(rate / cap - 1) <= PACED


def tcp_printed(look: Look) -> Optional[Printed]:
    """The figures of a TCP run; None as for `printed`."""
    return printed(look) if look.protocol == "tcp" else None
