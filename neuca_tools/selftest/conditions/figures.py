"""Rates of links and windows, and what iperf's own figures prove when no host was sampled."""

# SPDX-License-Identifier: MIT

import math
from collections.abc import Sequence
from itertools import accumulate
from statistics import mean, median, pstdev
from typing import Optional

from neuca_tools.selftest.evidence import run
from neuca_tools.selftest.evidence.look import Look
from neuca_tools.selftest.evidence.run import Interval, is_flat, known_rates, known_windows

# Of the speed of Ethernet at MTU 1500: 0.901 through WireGuard (1368 of 1518 bytes), 0.909 through
# VXLAN, 0.928 with IPv6 and timestamps, 0.949 with IPv4 and none; as printed, with three digits of
# a size and of a time.
LINE_SHARE = (0.895, 0.955)
# The most with MTU 9000, or on a virtual link, which has no preamble and no gap between frames.
MAX_FAST_SHARE = 1.005
JUMBO_SHARE = (0.985, 0.992)  # with MTU 9000 and preambles, on links that are not virtual
FAST_LINE, JUMBO = 10e9, 8000  # bit/s, bytes of MSS: below both, MTU 9000 is rare
# bit/s: that a mean alone fits one of these by chance is more likely than such a link.
RARE_SPEEDS = (2.5e9, 5e9)
FAST_RATE, MANY_STREAMS = 1e9, 4  # bit/s, streams
NEARLY_ALL = 0.9  # of what a link carries, or of what was asked for
# Of a nominal rate that providers sell: below, headers explain too much; above, it was exceeded.
# Clouds let through up to 2% more, which no Ethernet carries.
CAP_SHARE, MAX_CLOUD_SHARE = (LINE_SHARE[1], 1.005), 1.02
UNEVEN_SPREAD = 0.15  # coefficient of variation of the rate that losses leave
BURST_WINDOWS = 2  # times the average window that as much loss leaves if it is by chance
CAP_DIGITS = (1, 2, 5, 10)  # leading digits
STEADY_SPREAD = 0.03  # coefficient of variation of the rate
PACED_SPREAD = 0.004  # the same, and of a round rate: iperf's text has three digits
FULL_LINK_SPREAD = 0.04  # the same of a full link, of which iperf counts whole blocks
MIN_INTERVALS = 5  # intervals, below which the size of a block does not excuse that they differ
QUEUE_GROWTH = 2  # times the first window: what grows more waits in a queue
# Blocks: in all intervals at least; from a constant rate; what rounding to 0.01 MBytes may add to a
# whole number of them, or take away.
ENOUGH_BLOCKS, MAX_DRIFT, ROUNDED = 8, 1.5, 0.05
VERY_STEADY_SPREAD = 0.01  # coefficient of variation of the rate
BLOCK = 128 * 1024  # bytes: what iperf writes and counts at once over TCP, without -l
# The kernel's own default, tcp_rmem[2] (tcp(7)): what the receiver may hold.
RECEIVE_BUFFER = 6 * 2**20
HEAVY_LOSS = 0.0045  # of the segments: loss that no full link needs (1 in 200, and chance)
NOTABLE_LOSS = 0.001  # of the segments: less may be chance; a bound of our own
# sqrt(3/2) of Mathis et al. (1997), for a receiver that acknowledges each segment.
RENO_CONSTANT = 1.22
ARRIVED_RATIO = 1.5  # times what arrived later: what a bucket held
# Coefficient of variation that one loss by chance in each interval leaves at least.
SPREAD_BY_CHANCE = 0.2
MANY_WRITES = 100_000  # in a second: as many packets as hosts receive (udp.MANY_PER_SECOND)
UNSHAPED_RATE = 0.5e9  # bit/s: a test of netem or tbf on lo is slower


def filled_link_speed(look: Look) -> Optional[float]:
    """The speed in bit/s of the Ethernet that this run filled."""
    rate, best = look.known_rate, max(look.rates, default=0.0)
    rates = []
    if look.known_spread < FULL_LINK_SPREAD:
        rates += [rate, rate - _queued_rate(look)]
    if look.spread is not None and rate >= NEARLY_ALL * best:
        rates.append(best)
    for speed in SPEEDS:
        is_likely = look.spread is not None or speed not in RARE_SPEEDS
        if is_likely and any(_fills_line(each, speed, look) for each in rates):
            return speed
    return None


def _queued_rate(look: Look) -> float:
    """bit/s that a growing window holds back: what was sent, and has not arrived yet."""
    seconds = sum(interval.seconds for interval in look.steady[1:])
    windows = known_windows(look.steady)
    if len(windows) < 3 or seconds <= 0:
        return 0.0
    return max(0.0, windows[-1] - windows[0]) * 8 * look.streams / seconds


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
    if LINE_SHARE[0] <= share <= LINE_SHARE[1]:
        return True
    # Where the MSS is not known: nothing but such a link limits a local network.
    mss = look.run.mss
    may_be_jumbo = look.run.is_local_network if mss is None else mss > JUMBO
    return may_be_jumbo and JUMBO_SHARE[0] <= share <= JUMBO_SHARE[1]


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
    return next((cap for cap in nominal if CAP_SHARE[0] <= rate / cap <= max_share_of(cap)), None)


def max_share_of(cap: float) -> float:
    """What a limit of this rate lets through at most, of its nominal rate."""
    return MAX_CLOUD_SHARE if FAST_RATE <= cap < FAST_LINE else CAP_SHARE[1]


def loss_explains(look: Look) -> bool:
    """Whether the loss that was counted holds the rate back."""
    if not look.retransmits or is_in_host(look) or is_limited(look):
        return False
    # What many streams lose at rates that only hosts limit, the hosts lose.
    is_of_hosts = look.known_rate >= FAST_LINE and look.streams >= MANY_STREAMS
    if not is_of_hosts and late_loss(look) >= HEAVY_LOSS:
        return True
    return filled_link_speed(look) is None and look.cwnd is not None and _follows_loss(look)


def window_left_by(share: float, look: Look) -> float:
    """Bytes: the window that this share of losses leaves if each segment is lost by itself."""
    return look.streams * RENO_CONSTANT / math.sqrt(share) * look.mss


def is_limited(look: Look) -> bool:
    """Whether the rate is the same however much is lost: TCP's own varies by more with loss."""
    is_rare = not look.is_counted_by_receiver and 2 * look.lossy_intervals < len(look.all_intervals)
    if look.known_loss < NOTABLE_LOSS or is_rare or look.spread is None:
        return False
    losses = (look.retransmits or 0) / max(1, len(look.all_intervals))
    return look.spread < min(STEADY_SPREAD, SPREAD_BY_CHANCE / math.sqrt(max(1.0, losses)))


def is_constant(look: Look, limit: float = STEADY_SPREAD) -> bool:
    """Whether the rate is known, and hardly varies, or by whole blocks alone."""
    return look.spread is not None and (look.spread < limit or _is_within_blocks(look))


def _is_within_blocks(look: Look) -> bool:
    """Whether they have whole blocks, each written when it was due: random rates drift by more."""
    counts = [(each.bytes or 0.0) / BLOCK for each in look.steady]
    if len(counts) < MIN_INTERVALS or look.run.is_local_network or not _are_whole(counts):
        return False
    usual = mean(counts)
    drift = list(accumulate((each - usual for each in counts), initial=0.0))
    return sum(counts) >= ENOUGH_BLOCKS and max(drift) - min(drift) <= MAX_DRIFT


def _are_whole(counts: Sequence[float]) -> bool:
    return all(abs(each - round(each)) <= ROUNDED * min(1, round(each)) for each in counts)


def arrives_constantly(look: Look, limit: float) -> bool:
    """Whether the rate is constant, at least after subtracting what a growing window queued."""
    if is_constant(look, limit):
        return True
    windows = known_windows(look.steady)
    if len(windows) != len(look.steady) or len(windows) < MIN_INTERVALS:
        return False
    if windows[-1] < QUEUE_GROWTH * windows[0]:
        return False
    growth = [(after - before) * look.streams for before, after in zip(windows, windows[1:])]
    sent = [each.bytes or 0.0 for each in look.steady[1:]]
    arrived = [size - more for size, more in zip(sent, growth)]
    return min(arrived) > 0 and pstdev(arrived) < limit * mean(arrived)


def is_paced(look: Look) -> bool:
    """Whether it is just a round rate: a program asked for it; a limiter counts headers as well."""
    rate = look.flow.received.rate or look.known_rate
    cap = cap_above(rate)
    if cap is None or cap >= FAST_RATE or look.known_loss >= HEAVY_LOSS:
        return False
    return is_constant(look, PACED_SPREAD) and abs(rate / cap - 1) <= PACED_SPREAD


def may_be_asked_for(look: Look) -> bool:
    """Whether these are whole blocks: as many as -b with a round rate sends, but for one.

    A client's command says whether it has -b.
    """
    counts = [(each.bytes or 0.0) / BLOCK for each in look.steady]
    is_known = not {"-c", "--client"}.isdisjoint((look.run.options or "").split())
    if is_known or not counts or not look.known_rate or not _are_whole(counts):
        return False
    decade = 10.0 ** math.floor(math.log10(look.known_rate))
    seconds = sum(each.seconds for each in look.steady)
    missing = (abs(look.known_rate - digit * decade) * seconds / 8 for digit in CAP_DIGITS)
    return min(missing) <= BLOCK


def _follows_loss(look: Look) -> bool:
    """Whether window and rate are what this loss leaves of them."""
    if is_recovering(look.all_intervals):
        return True
    if look.spread is None or is_constant(look):
        return False
    return follows_loss(look.all_intervals, look.rates, look.spread)


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
SPEEDS = tuple(gigabits * 1e9 for gigabits in (0.01, 0.1, 1, 2.5, 5, 10, 25, 40, 50, 100, 200, 400))
STEPS = tuple(gigabits * 1e9 for gigabits in (1, 10, 25, 40, 100, 200, 400))
# The leading digits of rates that are ordered.
ROUND_DIGITS = (1, 2, 2.5, 4, 5, 6, 8, 10)
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


def round_rate(rate: float) -> Optional[float]:
    """The round rate that this one is just below; policers count headers too."""
    if rate <= 0:
        return None
    decade = 10.0 ** math.floor(math.log10(rate))
    near = (step * decade for step in ROUND_DIGITS if 0.93 <= rate / (step * decade) <= 1.0)
    return next(near, None)


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


# --- What the congestion windows of a test say about its losses -----------------------------------


FOLLOWING_RATE, NEARLY_EVEN = 0.95, 0.05  # of the rate before the window fell; its variation
SHORT_INTERVAL = 2.0  # seconds
FOLLOWED_LOSSES = 0.5  # of the losses
# What TCP multiplies its window with after a loss: 0.5 (RFC 5681), 0.7 for CUBIC (RFC 9438,
# section 4.6). An interval of iperf may contain some of the recovery.
FALLEN_WINDOW = 0.85
# Of the window before: a loss from which it recovers within an interval costs nothing.
RECOVERED_WINDOW = 0.95
RISEN_BY = 1.1  # times the first third, by the last third of the values


def is_recovering(every: Sequence[Interval]) -> bool:
    """Whether window and rate still grow from what a loss in slow start left of them."""
    windows, rates = known_windows(every), known_rates(every)
    third = len(every) // 3
    if not third or not every[0].retransmits or any(each.retransmits for each in every[third:]):
        return False
    if not len(windows) == len(rates) == len(every) or is_flat(windows[-third - 1 :]):
        return False  # or it no longer grows
    # The last third is higher than the first one, and its rate higher than that of the middle.
    rise = all(mean(each[-third:]) >= RISEN_BY * mean(each[:third]) for each in (windows, rates))
    return rise and mean(rates[-third:]) > mean(rates[third:-third])


def follows_loss(every: Sequence[Interval], usual: Sequence[float], spread: float) -> bool:
    """Whether the congestion window fell after a loss, and the rate with it.

    `usual` are the rates after slow start, and `spread` is their coefficient of variation. A queue
    on the path keeps the rate up while the window falls. An interval of many seconds tells the
    window at its end alone, so that the rates cannot be compared.
    """
    falls = _lasting_falls(every)
    later = [pair for pair in falls if pair[0] is not every[0]]  # without slow start
    if not later:
        is_only = [bool(interval.retransmits) for interval in every].count(True) == 1
        return bool(falls) and is_only and _moves_with_window(every)
    if not _follow_most_losses(falls, every):
        return False
    if later[0][0].seconds > SHORT_INTERVAL:
        return True
    return _rate_falls(later, usual, spread) and _moves_with_window(every)


def _moves_with_window(every: Sequence[Interval]) -> bool:
    """Whether the rate is higher with a larger window, after slow start.

    A window that limits is what is sent in a round trip. If something else limits, the rate changes
    by chance, and may fall after a loss as well.
    """
    later = [
        ((before.cwnd + after.cwnd) / 2, after.rate)
        for before, after in zip(every[1:], every[2:])
        if before.cwnd and after.cwnd and after.rate is not None
    ]
    usual = mean(window for window, _ in later) if later else 0.0
    return sum((window - usual) * rate for window, rate in later) >= 0


def _follow_most_losses(
    falls: Sequence[tuple[Interval, Interval]], every: Sequence[Interval]
) -> bool:
    """Whether the windows fell after at least FOLLOWED_LOSSES of the losses.

    Probes for a lost last segment are counted as well, and shrink no window (RFC 8985).
    """
    retransmits = {id(interval): interval.retransmits or 0 for interval in every}
    # What slow start lost may be in the second interval, where the window falls on from the first.
    of_start = {id(interval) for pair in falls if pair[0] is every[0] for interval in pair}
    followed = {id(interval) for pair in falls for interval in pair} - of_start
    counted = followed.union(map(id, every[2:]))
    lost = sum(map(retransmits.__getitem__, counted))
    return sum(map(retransmits.__getitem__, followed)) >= FOLLOWED_LOSSES * lost


def _rate_falls(
    falls: Sequence[tuple[Interval, Interval]], usual: Sequence[float], spread: float
) -> bool:
    before, after = (sum(known_rates(side)) for side in zip(*falls))
    if spread < NEARLY_EVEN:
        # Slower than usual as well, because every radio's rate goes up and down.
        before = min(before, median(usual) * len(falls))
    return after <= FOLLOWING_RATE * before


def _lasting_falls(every: Sequence[Interval]) -> list[tuple[Interval, Interval]]:
    """Pairs in which the window fell after a loss, and was not back one interval later."""
    return [
        (before, after)
        for before, after, following in zip(every, every[1:], (*every[2:], None))
        if _has_lasting_fall(before, after, following)
    ]


def _has_lasting_fall(before: Interval, after: Interval, following: Optional[Interval]) -> bool:
    if not before.cwnd or not after.cwnd or not (before.retransmits or after.retransmits):
        return False
    is_back = following is not None and (following.cwnd or 0.0) >= RECOVERED_WINDOW * before.cwnd
    return after.cwnd <= FALLEN_WINDOW * before.cwnd and not is_back
