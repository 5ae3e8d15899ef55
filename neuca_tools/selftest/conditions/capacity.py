"""D18: the rate that the path itself allows, by a queue or by iperf's figures."""

# SPDX-License-Identifier: MIT

import math
from collections.abc import Sequence
from statistics import mean, median, pstdev
from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions import figures, overflow, thresholds, udp
from neuca_tools.selftest.conditions.application import is_unbounded
from neuca_tools.selftest.conditions.base import ORDERED, Confidence, Hit, single_fact, smallest_mtu
from neuca_tools.selftest.conditions.cpu import LAN_RTT, may_be_rate_of_host
from neuca_tools.selftest.conditions.datagrams import limited_arrival
from neuca_tools.selftest.conditions.window import is_window, stated_window
from neuca_tools.selftest.evidence.derive import is_server
from neuca_tools.selftest.evidence.look import Look
from neuca_tools.selftest.evidence.run import known_rates, known_windows, send_buffer

SLOWEST_LINK = 10e6  # bit/s
BURST_RATIO = 3  # times the rate after it
CEILING_INTERVALS, CEILING_LEVEL = 0.3, 0.015  # of the intervals; of the rate of the best one
# Seconds: two round trips by way of a geostationary satellite (RFC 2488, section 2); what TCP has
# in flight is half of a window at least.
LONGEST_PATH = 1.2
NEAR_LINE = 0.75  # of the speed of Ethernet
USUAL_SECONDS = 1.5  # seconds: means of longer intervals vary less
SLOW_RATE = 1e9  # bit/s: every host of today can send and receive faster
# Coefficient of variation, where iperf3 counts whole buffers: a constant rate looks uneven.
WHOLE_BUFFERS_SPREAD = 0.10
SAWTOOTH_SPREAD = 0.35  # coefficient of variation of Reno's sawtooth with no queue at all is 0.19
STANDING_QUEUE_SHARE = 0.9  # of the lost time: D18 where the rate varies


def capacity_of_path(look: Look) -> Optional[Hit]:
    """The path gives this rate, by the queue before it, by BBR, or by iperf's figures."""
    if look.protocol == "udp":
        return limited_arrival(look)
    by_samples = path_capacity(look) or overflow.overflowing_queue(look)
    return by_samples or overflow.measured_by_bbr(look) or path_rate(look)


def path_rate(look: Look) -> Optional[Hit]:
    """The path gives this rate: a full link, a token bucket, or a rate that nothing varies."""
    if look.protocol != "tcp" or look.is_sampled or look.run.is_loopback:
        return None
    if figures.is_as_requested(look) or figures.is_paced(look):
        return None
    speed = figures.filled_link_speed(look)
    if speed is not None:
        return _full_link(look, speed)
    return _token_bucket(look) or _constant_rate(look) or _common_ceiling(look) or _long_queue(look)


def _full_link(look: Look, speed: float) -> Hit:
    rate, line = amounts.rate(look.known_rate), amounts.rate(speed)
    is_wanted = bool(look.evidence.expect or (look.target and look.target > speed))
    is_shaper = speed <= SLOWEST_LINK  # it is likelier than Ethernet so slow
    shaper = ", or through a shaper of that rate" if is_shaper else ""
    text = f"{rate} is all that TCP can carry over {line} Ethernet{shaper}"
    if look.known_rate < figures.LINE_SHARE[0] * speed:
        text = f"the best interval fills {line} Ethernet; the mean is {rate}"
    return Hit(
        1.0,
        text,
        (look.rate_fact,),
        ORDERED,
        severity=None if is_wanted or is_shaper else "info",
        confidence="medium" if is_shaper or look.spread is None else "high",
    )


def _token_bucket(look: Look) -> Optional[Hit]:
    """The rate of a bucket's tokens after all that it held went out."""
    rates = known_rates(look.all_intervals)
    times = _least_fall(look, rates)
    drop = next((index for index, rate in enumerate(rates) if rate * times <= rates[0]), 0)
    early, rest = rates[:drop], rates[drop:]
    if not early or _is_down(look, rest) or _is_shaped_by_loss(look, rest):
        return None
    slow = median(rest) or mean(rest)
    if not 0 < times * slow <= min(early) or _rises_again(look, rest, slow):
        return None
    seconds = look.all_intervals[drop].start
    excess = (mean(early) - slow) * seconds / 8
    # The mean unless there is a burst, because iperf counts a slow rate in whole buffers.
    rate = mean(rest) if max(rest) <= BURST_RATIO * slow else slow
    return _bucket_hit(look, mean(early), rate, excess)


def _least_fall(look: Look, rates: Sequence[float]) -> float:
    """By how much the rate falls at least once a bucket is empty.

    A sender also counts what waits in its buffer, unlike a receiver. A full buffer shows in one
    rate alone, and not where one even rate follows another, each for MIN_INTERVALS at least.
    """
    slow = [rate for rate in rates if rate * figures.ARRIVED_RATIO <= rates[0]]
    early = rates[: len(rates) - len(slow)]
    if look.is_counted_by_receiver:
        return figures.ARRIVED_RATIO
    if min(len(early), len(slow)) < figures.MIN_INTERVALS or max(slow) > min(early):
        return BURST_RATIO
    is_even = pstdev(slow) < figures.STEADY_SPREAD * mean(slow)
    is_step = is_even and pstdev(early) < figures.UNEVEN_SPREAD * mean(early)
    return figures.ARRIVED_RATIO if is_step else BURST_RATIO


def _is_down(look: Look, rates: Sequence[float]) -> bool:
    """Whether nothing passes any more, and something may be lost: tokens would keep coming."""
    return look.retransmits != 0 and not any(rates[len(rates) // 2 :])


def _rises_again(look: Look, rates: Sequence[float], slow: float) -> bool:
    """Whether there is another burst, for which no tokens can gather.

    The sender's buffer fills in the first interval, and may take one whenever it has room. What a
    receiver counts has passed the bucket.
    """
    if look.is_counted_by_receiver:
        return max(rates) >= figures.ARRIVED_RATIO * slow
    more = max(rates[1:], default=0.0) - BURST_RATIO * mean(rates)
    burst = more * look.all_intervals[-1].seconds / 8
    return rates[-1] > 2 * slow or burst > send_buffer(look.run)


def _is_shaped_by_loss(look: Look, rates: Sequence[float]) -> bool:
    """Whether the rates vary as losses make them, or are too few, or not known from the start."""
    if len(look.all_intervals) < 3 or look.all_intervals[0].start:
        return True
    if look.retransmits and not median(rates):
        # It stands still most of the time, where tokens would keep coming.
        return True
    is_uneven = pstdev(rates) > figures.UNEVEN_SPREAD * mean(rates)
    return is_uneven and look.known_loss >= figures.NOTABLE_LOSS


def _bucket_hit(look: Look, fast: float, slow: float, excess: float) -> Optional[Hit]:
    if excess <= figures.buffered_bytes(look) and not look.is_counted_by_receiver:
        return None
    is_slight = fast < BURST_RATIO * slow and not look.is_counted_by_receiver
    or_host = ", or a host that became slower (heat, other work)" if is_slight else ""
    return Hit(
        0.93,
        f"the first {amounts.size(excess)} went at {amounts.rate(fast)}, everything "
        f"after that at {amounts.rate(slow)}: a token bucket of that size and rate{or_host}",
        (
            single_fact("at first, bit/s", round(fast)),
            single_fact("after that, bit/s", round(slow)),
        ),
        ORDERED,
        confidence="medium",
    )


def _constant_rate(look: Look) -> Optional[Hit]:
    if _has_other_reason(look):
        return None
    cap = _cap_not_exceeded(look)
    share = 0.9 if figures.is_limited(look) else _share_of_cap(look, cap)
    if not share and not is_window(look) and _is_even(look):
        share = 0.75
    if not share:
        return None
    near = _cap_clause(look.known_rate, cap)
    is_in_blocks = look.known_spread >= WHOLE_BUFFERS_SPREAD
    apart = "apart from the whole blocks that iperf counts, " if is_in_blocks else ""
    return Hit(
        share,
        f"{apart}the rate stays at {amounts.rate(look.known_rate)}{near}, and fills no Ethernet: "
        "something on the path limits it to that",
        (look.rate_fact, single_fact("variation", None if is_in_blocks else look.spread)),
        "compare it with the rate that was ordered, or that the cloud allows this guest; without a "
        "shaper, it is a window: iperf3 -J shows the round trip",
        confidence="medium",
    )


def _cap_clause(rate: float, cap: Optional[float]) -> str:
    """How the rate compares with the one that a provider sells, unless both read the same."""
    if cap is None or amounts.rate(rate) == amounts.rate(cap):
        return ""
    return f", {_near_cap(rate, cap)}"


def _near_cap(rate: float, cap: float) -> str:
    limit = amounts.rate(cap)
    if amounts.rate(rate) == limit:
        return f"at {limit}"
    return f"just {'below' if rate < cap else 'above'} {limit}"


def _has_other_reason(look: Look) -> bool:
    """Whether something else than a limiter keeps the rate constant, or may do so."""
    if figures.may_be_asked_for(look) or figures.writes_often(look) or stated_window(look):
        return True
    if not figures.late_loss(look):
        # A limiter makes a queue, or drops: in so small a window, nothing queues.
        return look.windows.flat and look.implied_rtt < LAN_RTT
    return figures.late_loss(look) >= figures.HEAVY_LOSS and not figures.is_limited(look)


def _cap_not_exceeded(look: Look) -> Optional[float]:
    """The rate that a provider sells, just above that of the run and of most of its intervals."""
    cap, rates = figures.cap_above(look.known_rate), sorted(look.rates)
    if cap is None or look.retransmits or not rates:
        return cap  # what is dropped shows a bucket, which lets bursts pass
    return cap if rates[-1 - len(rates) // 4] <= cap * figures.max_share_of(cap) else None


def _common_ceiling(look: Look) -> Optional[Hit]:
    """The best intervals are alike, at a rate that providers sell; after losses, others are slower.

    What varies by itself is seldom as fast in several intervals, and never faster.
    """
    rates = sorted(look.rates, reverse=True)
    best = rates[: max(3, round(len(rates) * CEILING_INTERVALS))]
    if len(rates) < 5 or look.known_loss < figures.NOTABLE_LOSS / 2:
        return None
    cap = figures.cap_above(best[0])
    if cap is None or best[-1] < (1 - CEILING_LEVEL) * best[0]:
        return None
    if thresholds.has_few_in_flight(look):
        return None
    return Hit(
        0.88,
        f"the best {len(best)} intervals are {_near_cap(best[0], cap)}, and none is faster: "
        "something on the path limits the rate to that, and drops the rest",
        (
            single_fact("best interval, bit/s", round(best[0])),
            single_fact("retransmits", look.retransmits),
        ),
        "compare it with the rate that was ordered, or that the cloud allows this guest",
        confidence="medium",
    )


def _long_queue(look: Look) -> Optional[Hit]:
    """What is in flight takes longer to arrive than any path does: most of it waits in a queue.

    A window that grows is as large as what was in flight in the end (tcp_is_cwnd_limited()).
    """
    widest = max(known_windows(look.steady), default=0.0) * 8 / (look.rate or math.inf)
    delay = max(look.implied_rtt, widest, -udp.seconds_missed(look))
    if figures.late_loss(look) or delay <= LONGEST_PATH:
        return None
    return Hit(
        0.8,
        f"what is in flight takes {amounts.time(delay)} to arrive at "
        f"{amounts.rate(look.known_rate)}, longer than on any path: it waits before a slow link or "
        "a shaper",
        (look.rate_fact, single_fact("cwnd", look.cwnd)),
        ORDERED,
        confidence="medium",
    )


def _share_of_cap(look: Look, cap: Optional[float]) -> float:
    """How likely a limiter is at a rate that providers sell: if it is constant, or full."""
    if cap is None or (not look.retransmits and not look.cwnd and may_be_rate_of_host(look)):
        return 0.0
    if look.spread is not None:
        return 0.9 if figures.is_constant(look) else 0.0
    is_limited = look.known_loss >= figures.NOTABLE_LOSS and look.known_rate < figures.FAST_LINE
    return 0.8 if is_limited else 0.0


def _is_even(look: Look) -> bool:
    """Whether the rate varies so little that a limiter gives it; hosts and radios vary more."""
    fewest = 3 if look.retransmits else 4
    if may_be_rate_of_host(look) or look.known_rate >= SLOW_RATE or len(look.rates) < fewest:
        return False
    # What arrives varies less behind a limiter, and more over a radio.
    varies = look.is_counted_by_receiver and look.known_spread >= figures.VERY_STEADY_SPREAD
    if varies or _is_of_lan_client(look):
        return False
    doubtful = look.steady[0].seconds > USUAL_SECONDS or _is_near_line(look.known_rate)
    bound = figures.VERY_STEADY_SPREAD if doubtful else figures.STEADY_SPREAD
    return figures.arrives_constantly(look, bound)


def _is_of_lan_client(look: Look) -> bool:
    """Whether only a client in a LAN counted: a microcontroller receives as evenly as a limiter."""
    return look.run.is_local_network and not (look.cwnd or is_server(look.run))


def _is_near_line(rate: float) -> bool:
    """Whether encapsulation or a virtual NIC may be all that is missing to a full link."""
    return any(NEAR_LINE * speed <= rate <= speed for speed in figures.SPEEDS)


def path_capacity(look: Look) -> Optional[Hit]:
    """A steady rate with a queue on the path, or all that TCP can carry over a known link."""
    if look.protocol != "tcp" or not look.rate or not is_unbounded(look) or look.is_unsampled:
        return None  # where no host was sampled, see `path_rate`
    slowest = _slowest_link(look)
    speed = _filled_line(look, slowest)
    if speed is not None:
        return Hit(
            look.known_network_share,
            f"{amounts.rate(look.rate)} is all that TCP can carry over {amounts.rate(speed)} "
            f"Ethernet{'' if slowest else ', or through a shaper of that rate'}",
            (look.rate_fact,),
            ORDERED,
            severity=None if look.evidence.expect else "info",
            confidence="high" if slowest else "medium",
        )
    return _queued_capacity(look) if thresholds.is_queued(look) else None


def _queued_capacity(look: Look) -> Optional[Hit]:
    """A queue on the path, at a rate that hardly varies, or one that no sample saw empty.

    The path is never idle then. If the queue is full, it drops some packets: with one of less than
    a round trip, the rate varies by the way TCP recovers; that of a slow path varies because iperf
    counts whole buffers.
    """
    is_standing = thresholds.has_standing_queue(look)
    limit = WHOLE_BUFFERS_SPREAD if is_standing else figures.STEADY_SPREAD
    if look.spread is None or look.spread >= limit:
        if not is_standing or (look.spread or 1.0) > SAWTOOTH_SPREAD:
            return None
        return Hit(
            STANDING_QUEUE_SHARE * look.known_network_share,
            f"packets wait at {amounts.rate(look.known_rate)}: a queue on the path is never empty, "
            "so that this is about its capacity",
            (look.queueing_fact, look.loss_fact),
            ORDERED,
            confidence="low" if look.is_full else "medium",
        )
    share = 1.0
    confidence: Confidence = "medium" if thresholds.is_noisy(look) else "high"
    if look.is_full:
        # Packets may wait for a full CPU as well, though it makes no rate so even.
        share, confidence = overflow.BESIDE_CPU_SHARE, "low"
    return Hit(
        share * look.known_network_share,
        f"the rate stays within {amounts.bound(look.spread)} of "
        f"{amounts.rate(look.known_rate)} while a queue forms: this is the capacity of the path",
        (look.rate_fact, look.queueing_fact),
        ORDERED,
        confidence=confidence,
    )


def _filled_line(look: Look, slowest: Optional[float]) -> Optional[float]:
    """The speed in bit/s of the link that TCP fills: of the `slowest`, or guessed without one."""
    rate, mtu = look.known_rate, smallest_mtu(look.sender.on_path)
    if slowest is not None:
        return slowest if rate >= 0.98 * figures.goodput(slowest, mtu or 1500) else None
    # The rate of a full link does not vary.
    is_steady = look.spread is not None and look.spread < figures.STEADY_SPREAD
    return figures.link_speed_for(rate, mtu) if is_steady or not look.phase.sender else None


def _slowest_link(look: Look) -> Optional[float]:
    """bit/s; None if the speed of no link on the path is known."""
    speeds = (link.real_speed for link in look.evidence.links)
    return min(filter(None, speeds), default=None)
