"""D18 by slow start, which fills a path that the rest of a short test does not fill again."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from typing import Optional

from neuca_tools.dataclass import NamedTuple
from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.base import LIMIT, MEDIUM, Hit, fact
from neuca_tools.selftest.conditions.session import Rule
from neuca_tools.selftest.conditions.streams import DEFAULT_MSS
from neuca_tools.selftest.conditions.thresholds import THROUGHPUT, passed
from neuca_tools.selftest.conditions.window import is_lossy, is_unbounded
from neuca_tools.selftest.evidence.look import Look
from neuca_tools.selftest.evidence.printed import printed

# Of the shortest round trip, and seconds, beyond what a busy host adds: by so much it grows where
# slow start fills a queue (RFC 9406, section 4.2).
GROWN, LEAST, ENOUGH = 0.125, 0.004, 0.016
# Of the congestion window in flight: nothing else holds the sender back.
FULL = 0.8
# Round trips in which what overflowed a queue is sent again.
RECOVERY = 4
SHARE = 0.9  # of the lost time


class Peak(NamedTuple):
    """The end of slow start: bytes in flight, seconds of a round trip, segments that were lost."""

    in_flight: float
    rtt: float
    lost: float

    def rate(self, mss: float) -> float:
        """bit/s that the path carried: what was in flight and arrived, within a round trip."""
        return max(0.0, self.in_flight - self.lost * mss) * 8 / self.rtt


def overshoot(look: Look) -> Optional[Hit]:
    """Slow start filled a queue until it dropped packets, at a rate that is less than expected.

    Afterwards the window grows by a segment in each round trip (RFC 5681, section 3.1). On a long
    path, most tests end before it fills the path again: there is neither a queue nor a loss then.
    """
    expect = look.evidence.expect
    if look.protocol != "tcp" or not expect or passed(look) is not False or printed(look):
        return None
    if look.is_full or not _is_held_by_its_window(look):
        return None
    peak = _peak(look)
    if peak is None:
        return None
    rate = max(peak.rate(look.windows.mss or DEFAULT_MSS), look.rate or 0.0)
    if rate >= THROUGHPUT * expect:
        return None
    waited = peak.rtt - (look.round_trip.shortest or 0.0)
    return Hit(
        SHARE * look.left,
        f"slow start filled a queue of {amounts.time(waited)} and lost packets at about "
        f"{amounts.rate(rate)}: this is about the capacity of the path, which the window has not "
        "reached again since then",
        (
            fact("rtt at the end of slow start", peak.rtt),
            fact("in flight, bytes", peak.in_flight),
            fact("retransmits", peak.lost),
        ),
        "compare it with the rate that was ordered; a longer test (--time 60) fills the path again",
        confidence=MEDIUM,
        fixed=rate,
    )


def _is_held_by_its_window(look: Look) -> bool:
    """Whether the congestion window alone limits the flow, and nothing is lost any more."""
    in_flight, cwnd = look.windows.in_flight, look.windows.cwnd
    if in_flight is None or not cwnd or is_lossy(look) or not is_unbounded(look):
        return False
    return in_flight >= FULL * cwnd


def _peak(look: Look) -> Optional[Peak]:
    """The end of slow start; None if no queue formed there, or if it is not in the trace."""
    trace, shortest = look.phase.sender_trace, look.round_trip.shortest
    lost = trace.points("retransmits")
    began = next((time for time, count in lost if count), None)
    if began is None or not shortest:
        return None
    until = began + shortest
    rtt = _most(trace.points("rtt"), until)
    in_flight = _most(trace.points("in_flight"), until)
    grown = look.noise + max(LEAST, min(GROWN * shortest, ENOUGH))
    if rtt < shortest + grown or in_flight <= _most(trace.points("in_flight"), first=until + rtt):
        return None
    again = sum(count for time, count in lost if time <= began + RECOVERY * rtt)
    return Peak(in_flight, rtt, again)


def _most(
    points: list[tuple[float, float]], last: float = float("inf"), first: float = 0.0
) -> float:
    """The highest value from `first` to `last`, in seconds; 0 if there is none."""
    return max((value for time, value in points if first <= time <= last), default=0.0)


OVERSHOOT = (Rule("D18", "path capacity reached", LIMIT, overshoot),)
