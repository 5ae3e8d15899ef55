"""What the congestion windows of a test say about its losses."""

# SPDX-License-Identifier: MIT

from collections.abc import Sequence
from statistics import mean, median
from typing import Optional

from neuca_tools.selftest.evidence.run import Interval, is_flat, known_rates, known_windows

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
