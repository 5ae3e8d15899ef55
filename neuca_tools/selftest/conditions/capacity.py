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
from neuca_tools.selftest.evidence.run import known_rates, known_windows

SLOW_RATE = 1e8  # bit/s: radios and hosts of today hold faster rates as evenly
BURST_RATIO = 3  # times the rate after it
# Seconds: two round trips by way of a geostationary satellite (RFC 2488, section 2); what TCP has
# in flight is half of a window at least.
LONGEST_PATH = 1.2
# Coefficient of variation, where iperf3 counts whole buffers: a constant rate looks uneven.
WHOLE_BUFFERS_SPREAD = 0.10
SAWTOOTH_SPREAD = 0.35  # coefficient of variation of Reno's sawtooth with no queue at all is 0.19


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
    return _token_bucket(look) or _constant_rate(look) or _long_queue(look)


def _full_link(look: Look, speed: float) -> Hit:
    is_wanted = bool(look.evidence.expect or (look.target and look.target > speed))
    return Hit(
        1.0,
        f"{amounts.rate(look.known_rate)} is all that TCP can carry over {amounts.rate(speed)} "
        "Ethernet",
        (look.rate_fact,),
        ORDERED,
        severity=None if is_wanted else "info",
        confidence="medium" if look.spread is None else "high",
    )


def _token_bucket(look: Look) -> Optional[Hit]:
    """The rate of a bucket's tokens after all that it held went out: it falls, and stays there."""
    rates = known_rates(look.all_intervals)
    drop = next((at for at, rate in enumerate(rates) if rate * BURST_RATIO <= rates[0]), 0)
    early, rest = rates[:drop], rates[drop:]
    if not early or max(rest) * BURST_RATIO > min(early) or _may_be_of_loss(look, rest):
        return None
    fast, slow = mean(early), median(rest)
    # The mean unless there is a burst, because iperf counts a slow rate in whole buffers.
    slow = mean(rest) if max(rest) <= BURST_RATIO * slow else slow
    seconds = sum(interval.seconds for interval in look.all_intervals[:drop])
    excess = (fast - slow) * seconds / 8
    if not slow or excess <= figures.buffered_bytes(look):
        return None  # nothing passes any more, or the buffers of the hosts filled
    return Hit(
        0.93,
        f"the first {amounts.size(excess)} went at {amounts.rate(fast)}, everything "
        f"after that at {amounts.rate(slow)}: a token bucket of that size and rate",
        (
            single_fact("at first, bit/s", round(fast)),
            single_fact("after that, bit/s", round(slow)),
        ),
        ORDERED,
        confidence="medium",
    )


def _may_be_of_loss(look: Look, rates: Sequence[float]) -> bool:
    """Whether losses leave the rates uneven, unlike tokens, or the beginning is not known."""
    is_lossy = figures.late_loss(look) >= figures.NOTABLE_LOSS
    is_uneven = pstdev(rates) > figures.UNEVEN_SPREAD * mean(rates)
    return bool(look.all_intervals[0].start) or (is_lossy and is_uneven)


def _constant_rate(look: Look) -> Optional[Hit]:
    """Nothing varies the rate, or it is just below one that providers sell."""
    cap = figures.cap_above(look.known_rate)
    if figures.writes_often(look) or stated_window(look) or not _is_held(look, cap):
        return None
    near = f", just below {amounts.rate(cap)}" if cap and look.known_rate < 0.99 * cap else ""
    return Hit(
        0.9 if cap else 0.75,
        f"the rate stays at {amounts.rate(look.known_rate)}{near}, and fills no Ethernet: "
        "something on the path limits it to that",
        (look.rate_fact, single_fact("variation", look.spread)),
        "compare it with the rate that was ordered, or that the cloud allows this guest; without a "
        "shaper, it is a window: iperf3 -J shows the round trip",
        confidence="medium",
    )


def _is_held(look: Look, cap: Optional[float]) -> bool:
    """Whether a limiter holds the rate: what hosts and radios give varies more."""
    lost, is_sold = figures.late_loss(look), cap is not None and cap <= figures.FAST_LINE
    if look.spread is None:
        return is_sold and lost >= figures.NOTABLE_LOSS
    if lost >= figures.HEAVY_LOSS or _may_be_of_host(look):
        return figures.is_limited(look)
    if is_sold:
        return figures.is_constant(look)
    is_slow = look.known_rate < SLOW_RATE and not is_window(look)
    return is_slow and figures.is_constant(look, figures.HELD_SPREAD)


def _may_be_of_host(look: Look) -> bool:
    """Whether a host of a local network may give this rate: no window shows a queue."""
    is_client = look.run.is_local_network and not is_server(look.run)
    return (is_client or may_be_rate_of_host(look)) and look.implied_rtt < LAN_RTT


def _long_queue(look: Look) -> Optional[Hit]:
    """What is in flight takes longer to arrive than any path does: most of it waits in a queue.

    A window that grows is as large as what was in flight in the end (tcp_is_cwnd_limited()).
    """
    widest = max(known_windows(look.steady), default=look.cwnd or 0.0) * 8
    delay = max(widest / (look.rate or math.inf), -udp.seconds_missed(look))
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
    is_standing, rate = thresholds.has_standing_queue(look), amounts.rate(look.known_rate)
    text = (
        f"packets wait at {rate}: a queue on the path is never empty, so that this is about its "
        "capacity"
    )
    confidence: Confidence = "medium"
    if figures.is_constant(look, WHOLE_BUFFERS_SPREAD if is_standing else figures.STEADY_SPREAD):
        spread = amounts.bound(look.known_spread)
        text = (
            f"the rate stays within {spread} of {rate} while a queue forms: this is the capacity "
            "of the path"
        )
        confidence = "medium" if thresholds.is_noisy(look) else "high"
    elif not is_standing or not figures.is_constant(look, SAWTOOTH_SPREAD):
        return None
    # Packets may wait for a full CPU as well, though it makes no rate so even.
    return Hit(
        look.known_network_share * (overflow.BESIDE_CPU_SHARE if look.is_full else 1),
        text,
        (look.rate_fact, look.queueing_fact),
        ORDERED,
        confidence="low" if look.is_full else confidence,
    )


def _filled_line(look: Look, slowest: Optional[float]) -> Optional[float]:
    """The speed in bit/s of the link that TCP fills: of the `slowest`, or guessed without one."""
    rate, mtu = look.known_rate, smallest_mtu(look.sender.on_path)
    if slowest is not None:
        return slowest if rate >= 0.98 * figures.goodput(slowest, mtu or 1500) else None
    # The rate of a full link does not vary.
    is_steady = figures.is_constant(look) or not look.phase.sender
    return figures.link_speed_for(rate, mtu) if is_steady else None


def _slowest_link(look: Look) -> Optional[float]:
    """bit/s; None if the speed of no link on the path is known."""
    speeds = (link.real_speed for link in look.evidence.links)
    return min(filter(None, speeds), default=None)
