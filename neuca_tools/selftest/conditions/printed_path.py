"""D17, D18: a rate that the path gives, where iperf's own figures are all that is known."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import mean, median, pstdev
from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.base import HIGH, INFO, MEDIUM, ORDERED, Hit, fact
from neuca_tools.selftest.conditions.predict import SPEEDS, goodput
from neuca_tools.selftest.conditions.printed import (
    BURSTS,
    FAST_LINE,
    HEAVY,
    LOSSY,
    OF_LINE,
    UNEVEN,
    VERY_STEADY,
    as_asked,
    buffers,
    burst,
    by_chance,
    cap_of,
    highest_of,
    is_constant,
    is_limited,
    is_paced,
    link_filled,
    nominal_rates,
    tcp_printed,
)
from neuca_tools.selftest.conditions.printed_hosts import (
    COPIED,
    LAN_RTT,
    explained_by_a_host,
    is_of_a_host,
)
from neuca_tools.selftest.conditions.printed_window import is_window, queue_in_subnet, stated_window
from neuca_tools.selftest.conditions.session import first
from neuca_tools.selftest.conditions.thresholds import TOGETHER
from neuca_tools.selftest.evidence.look import Look
from neuca_tools.selftest.evidence.printed import Printed
from neuca_tools.selftest.evidence.run import Interval, known_rates

SLOWEST_LINK = 10e6  # bit/s
MEAN = 0.015  # of what TCP carries over a link
BURST = 3  # times the rate after it
ARRIVED, STEADY_REST = 1.5, 5  # the same of what arrived; intervals
LASTING = 3.0  # seconds that a bucket took to empty, longer than slow start
EVEN = 0.05  # coefficient of variation of the rate before
AT_CEILING, LEVEL = 0.3, 0.015  # of the intervals; of the rate of the best one
USUAL = 1.5  # seconds: means of longer intervals vary less
NEAR_LINE = 0.75  # of the speed of Ethernet
SLOW = 1e9  # bit/s: every host of today can send and receive faster
# Of its rate, for TCP: 0.956 with timestamps and 0.964 without, of 1514 bytes at MTU 1500, as
# printed. Ethernet carries 0.949 at most, of 1538 bytes.
OF_FRAMES = (0.954, 0.966)
INTERVALS = 3


def given_rate(look: Look) -> Optional[Hit]:
    """The path gives this rate: a full link, a token bucket, or a rate that nothing varies."""
    one = tcp_printed(look)
    if one is None or as_asked(look) or one.is_loopback or is_paced(one):
        return None
    speed = link_filled(one)
    if speed is not None:
        return _full_link(look, one, speed)
    if look.phase.name == TOGETHER:
        return _constant_rate(one, look) if one.rate >= SLOW and _cap_kept(one) else None
    return first(
        (
            _token_bucket(one),
            _constant_rate(one, look),
            _ceiling(one),
            queue_in_subnet(one),
            _frames_alone(look, one),
        )
    )


def _frames_alone(look: Look, one: Printed) -> Optional[Hit]:
    """Where only the mean of a run is known."""
    cap = _cap_of_frames(look) if one.spread is None else None
    return None if cap is None else _frames_hit(look, cap)


def _full_link(look: Look, one: Printed, speed: float) -> Hit:
    text = f"{amounts.rate(one.rate)} is all that TCP can carry over {amounts.rate(speed)} Ethernet"
    if one.rate < OF_LINE[0] * speed:
        text = (
            f"the best interval fills {amounts.rate(speed)} Ethernet; the mean is "
            f"{amounts.rate(one.rate)}"
        )
    cap = _cap_of_frames(look)
    if cap is not None:
        return _frames_hit(look, cap)
    is_wanted = bool(look.evidence.expect or (look.asked and look.asked > speed))
    return Hit(
        1.0,
        text,
        (fact("rate, bit/s", round(one.rate)),),
        severity=None if is_wanted or _is_shaper(one, speed) else INFO,
        confidence=MEDIUM if _is_shaper(one, speed) else HIGH,
    )


def _cap_of_frames(look: Look) -> Optional[float]:
    """The rate in bit/s of a shaper, if more arrived than Ethernet of that speed can carry.

    Of the receiver's own totals: a sender counts what is still on its way, and so does a receiver
    whose time is the sender's.
    """
    flow = look.flow
    if flow is None or not flow.received.rate or flow.received.seconds == flow.sent.seconds:
        return None
    rate = flow.received.rate
    if not flow.received.seconds or rate >= FAST_LINE:
        return None
    lowest, highest = OF_FRAMES
    return next((one for one in nominal_rates(rate) if lowest <= rate / one <= highest), None)


def _frames_hit(look: Look, cap: float) -> Hit:
    rate = look.flow.received.rate if look.flow else None
    return Hit(
        0.85,
        f"{amounts.rate(rate or 0)} arrived: more than TCP can carry over {amounts.rate(cap)} "
        "Ethernet, and as much as a shaper of that rate lets through, which does not count what "
        "is between frames",
        (fact("received, bit/s", round(rate or 0)),),
        "compare it with the rate that was ordered, or that the cloud allows this guest",
        confidence=MEDIUM,
    )


def _is_shaper(one: Printed, speed: float) -> bool:
    """Whether a shaper of this rate is likelier than Ethernet so slow.

    Of a rate of which only the mean is known, if that is just what TCP carries over such a link.
    """
    if speed > SLOWEST_LINK:
        return False
    return one.spread is not None or abs(one.rate / goodput(speed) - 1) <= MEAN


def _token_bucket(one: Printed) -> Optional[Hit]:
    """The rate of a bucket's tokens after all that it held went out."""
    rest = known_rates(one.every[1:])
    if len(rest) < 3 or not one.every[0].rate or one.every[0].omitted:
        return _emptied_later(one)
    usual = median(rest) or mean(rest)
    if usual <= 0 or one.every[0].rate < _burst(one, rest) * usual or rest[-1] > 2 * usual:
        return _emptied_later(one)
    return _bucket_hit(one, one.every[0].rate, usual, burst(one, usual))


def _burst(one: Printed, rest: Sequence[float]) -> float:
    """How many times faster than the rest the first interval has to be.

    What a receiver counts did arrive; a sender also counts what waits in its buffer.
    """
    if one.share >= LOSSY and pstdev(rest) > UNEVEN * mean(rest):
        return math.inf  # what loss leaves varies
    is_even = len(rest) >= STEADY_REST and pstdev(rest) <= EVEN * mean(rest)
    return ARRIVED if one.is_received and is_even else BURST


def _emptied_later(one: Printed) -> Optional[Hit]:
    """An even rate for some seconds, and from then on a fraction of it."""
    every = [each for each in one.every if each.rate is not None and not each.omitted]
    if one.share >= HEAVY:
        return None
    # All that comes later is that much slower than all before: only one place can be the first.
    rates = known_rates(every)
    at = next((at for at, rate in enumerate(rates) if rate * BURST <= rates[0]), 0)
    before, after = every[:at], every[at:]
    if before and _is_plateau(before, after):
        fast, slow = mean(known_rates(before)), median(known_rates(after))
        seconds = sum(each.seconds for each in before)
        return _bucket_hit(one, fast, slow, (fast - slow) * seconds / 8)
    return None


def _is_plateau(before: Sequence[Interval], after: Sequence[Interval]) -> bool:
    """Whether all of the first intervals are as fast, and all of the others much slower.

    One interval is enough if the text leaves out those that follow it.
    """
    fast, slow = known_rates(before), known_rates(after)
    if min(slow) <= 0 or min(fast) < BURST * max(slow) or pstdev(fast) > EVEN * mean(fast):
        return False
    is_cut = after[0].start > before[-1].end + 1
    return sum(each.seconds for each in before) >= LASTING and (len(before) >= 3 or is_cut)


def _bucket_hit(one: Printed, fast: float, slow: float, excess: float) -> Optional[Hit]:
    if excess <= buffers(one) and not one.is_received:
        return None
    return Hit(
        0.93,
        f"the first {amounts.size(excess)} went at {amounts.rate(fast)}, everything "
        f"after that at {amounts.rate(slow)}: a token bucket of that size and rate",
        (
            fact("at first, bit/s", round(fast)),
            fact("median of the others, bit/s", round(slow)),
        ),
        ORDERED,
        confidence=MEDIUM,
    )


def _exceeds(one: Printed, cap: float) -> bool:
    """Whether a quarter of the intervals went beyond what a shaper of this rate lets through.

    In between, iperf may count a block more or less.
    """
    beyond = [each for each in one.rates if each > cap * highest_of(cap)]
    return len(beyond) * 4 >= len(one.rates)


def _constant_rate(one: Printed, look: Look) -> Optional[Hit]:
    if _is_given_elsewhere(one, look) or _is_unhindered(one):
        return None
    cap = _cap_kept(one)
    share = 0.9 if is_limited(one) else _share_of_cap(one, cap)
    if not share and not is_window(one):
        share = _share_of_steadiness(one)
    if not share:
        return None
    near = f", just below {amounts.rate(cap)}" if cap else ""
    return Hit(
        share,
        f"the rate stays at {amounts.rate(one.rate)}{near}, and fills no Ethernet: something"
        " on the path limits it to that",
        (fact("rate, bit/s", round(one.rate)), fact("variation", one.spread)),
        "compare it with the rate that was ordered, or that the cloud allows this guest; without a "
        "shaper, it is a window: iperf3 -J shows the round trip",
        confidence=MEDIUM,
    )


def _cap_kept(one: Printed) -> Optional[float]:
    """The rate that a provider sells, just above that of the run, and of all its intervals."""
    cap = cap_of(one.rate)
    # What is dropped shows a bucket, which lets bursts pass.
    if cap is not None and not one.retransmits and _exceeds(one, cap):
        return None
    return cap


def _is_given_elsewhere(one: Printed, look: Look) -> bool:
    """Whether loss, a host, a buffer or the sending program gives the rate."""
    if (one.late_share >= HEAVY and not is_limited(one)) or explained_by_a_host(look):
        return True
    return stated_window(look) is not None or is_paced(one)


def _is_unhindered(one: Printed) -> bool:
    """Whether the window stays so small that nothing queues: a limiter makes a queue, or drops."""
    return one.is_flat and not one.late_share and one.implied_rtt < LAN_RTT


def _ceiling(one: Printed) -> Optional[Hit]:
    """The best intervals are alike, at a rate that providers sell; after losses, others are slower.

    What varies by itself is seldom as fast in several intervals, and never faster.
    """
    rates = sorted(one.rates, reverse=True)
    best = rates[: max(3, round(len(rates) * AT_CEILING))]
    if len(rates) < 5 or one.share < LOSSY / 2 or best[-1] < (1 - LEVEL) * best[0]:
        return None
    cap = cap_of(best[0])
    if cap is None:
        return None
    return Hit(
        0.88,
        f"the best {len(best)} intervals are just below {amounts.rate(cap)}, and none is faster: "
        "something on the path limits the rate to that, and drops the rest",
        (fact("best interval, bit/s", round(best[0])), fact("retransmits", one.retransmits)),
        "compare it with the rate that was ordered, or that the cloud allows this guest",
        confidence=MEDIUM,
    )


def _share_of_cap(one: Printed, cap: Optional[float]) -> float:
    """How likely a limiter is at a rate that providers sell: if it is constant, or full."""
    if cap is None or (not one.retransmits and _is_rather_of_a_host(one)):
        return 0.0
    if one.spread is None:
        return 0.8 if one.share >= LOSSY and one.rate < FAST_LINE else 0.0
    return 0.9 if is_constant(one) else 0.0


def _is_rather_of_a_host(one: Printed) -> bool:
    """Whether hosts are as steady: in a local network, or at a rate that nobody sells."""
    return one.rate >= COPIED or (not one.cwnds and is_of_a_host(one))


def _share_of_steadiness(one: Printed) -> float:
    """How likely a limiter is, by how little the rate varies; hosts vary more."""
    if is_of_a_host(one) or one.rate >= SLOW or not _is_even_at_receiver(one):
        return 0.0
    enough = 3 if one.is_queueing or one.is_overshot else 4
    if is_constant(one, VERY_STEADY) and len(one.rates) >= enough:
        return 0.75
    return 0.7 if _is_steady_enough(one) else 0.0


def _is_steady_enough(one: Printed) -> bool:
    """The same of more intervals of usual length, far from what a link carries."""
    if _is_near_line(one.rate) or len(one.rates) < 5:
        return False
    return is_constant(one) and one.late[0].seconds <= USUAL


def _is_even_at_receiver(one: Printed) -> bool:
    """Whether what arrived, if that is known, varies as little as behind a limiter; radios vary."""
    return not _is_of_receiver(one) or one.known_spread < VERY_STEADY


def _is_of_receiver(one: Printed) -> bool:
    """Whether the rows are those of a receiver, beside the sender's total."""
    return one.retransmits is not None and all(each.retransmits is None for each in one.every)


def _is_near_line(rate: float) -> bool:
    """Whether encapsulation or a virtual NIC may be all that is missing to a full link."""
    return any(NEAR_LINE * speed <= rate <= speed for speed in SPEEDS)


def policed(look: Look) -> Optional[Hit]:
    """So much is lost that it must be lost together: the window would be smaller otherwise."""
    one = tcp_printed(look)
    if one is None or one.is_loopback or not _is_in_bursts(one):
        return None
    return Hit(
        0.89,
        f"{amounts.percent(one.share)} of the segments are lost, at a rate that hardly varies, and "
        f"the window of {amounts.size(one.cwnd or 0)} shows that many are lost together: a policer "
        "drops what exceeds its rate, or a queue is very short",
        (
            fact("retransmits", one.retransmits),
            fact("cwnd", one.cwnd),
            fact("rate, bit/s", round(one.rate)),
        ),
        "find the loss-free rate with UDP (iperf3 -u -b, twice as much each time), then ask for a "
        "shaper, or pace below it (--fq-rate)",
        confidence=MEDIUM,
    )


def _is_in_bursts(one: Printed) -> bool:
    if one.cwnd is None or one.spread is None or len(one.late) < INTERVALS:
        return False
    if one.is_reduced or one.follows_window:
        return False
    if one.late_share < HEAVY or one.spread > UNEVEN or not all(e.retransmits for e in one.late):
        return False
    return one.cwnd >= BURSTS * by_chance(one, one.late_share)
