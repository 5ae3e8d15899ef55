"""D18, D19: datagrams that a path drops, and what they tell about the loss that TCP sees."""

# SPDX-License-Identifier: MIT

from collections.abc import Iterator, Sequence
from itertools import chain, filterfalse
from statistics import mean, pstdev
from typing import NamedTuple, Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.base import Hit, Session, of_all_directions, single_fact
from neuca_tools.selftest.conditions.figures import STEADY_SPREAD, cap_above
from neuca_tools.selftest.conditions.overflow import overflows
from neuca_tools.selftest.conditions.thresholds import BIDIRECTIONAL, has_small_buffer, is_crowded
from neuca_tools.selftest.conditions.udp import (
    CLEAR_LOSS,
    COUNTED_SHARE,
    MANY_PER_SECOND,
    VERY_FEW_PER_SECOND,
    counted_losses,
    datagram_size,
    expected_datagrams,
    is_gentle,
    is_losing,
    is_one_of_several,
    losses_by_interval,
    lost_datagrams,
    offered_rate,
    seconds_missed,
)
from neuca_tools.selftest.evidence import Phase, derive
from neuca_tools.selftest.evidence.look import Fact, Look
from neuca_tools.selftest.evidence.run import known_rates

# Datagrams that should be lost at the loss rate of the other tests: the probability that none is
# lost is then 5 % (exp(-3)).
EXPECTED_LOSSES = 3
HEAVY_TCP_LOSS = 0.005  # of the bytes of TCP: more than a full queue causes (D17)
# How many datagrams random loss would have dropped, and how many times fewer were dropped: then
# the loss of TCP is not random (D17, D19).
SURE_LOSSES, LOSS_CONTRAST = 20, 4
# bit/s, and a share of the expected rate: what is sent more slowly overloads no path.
DELIBERATE, DELIBERATE_SHARE = 10e6, 0.15
# Of TCP's rate: datagrams that are sent so slowly and evenly are dropped by no queue or policer.
GENTLE_RATE = 0.5
FEW_LOST_PROBES = 2  # of the probes before a test
# Of the datagrams: a busy receiver whose counters are not known may lose so many.
UNSEEN_LOSS = 0.0075
# Of gently sent datagrams, as a share and a number: a host that is busy for a moment loses fewer,
# or all of them at once (D19).
GENTLE_LOSS, SEVERAL_LOSSES = 0.002, 4
# For a single test: the datagrams that have to be lost at least; the share that may be lost at
# most, as iperf does not work on a worse link; the variance of the losses of intervals over their
# mean (1 by chance), below which they are those of a shaper; and for how many seconds longer than
# it was sent data is received if a queue holds it.
CERTAIN_LOSSES, MAX_RANDOM_LOSS, REGULAR_DISPERSION, QUEUED_SECONDS = 5, 0.2, 0.1, 0.25
LOSSY_INTERVALS = 2 / 3  # of the intervals in which random loss would drop something
# Of the share of datagrams that is lost: TCP loses at least so much if the loss is random.
SEEN_BY_TCP = 0.3


class DatagramCount(NamedTuple):
    """How many datagrams of one or several tests were lost, and of how many.

    `losses` has the losses of each interval for each test; `rate` is the highest rate that one of
    the tests offered, in bit/s.
    """

    lost: int
    sent: int
    losses: tuple[tuple[int, ...], ...]
    rate: float

    @property
    def share(self) -> float:
        return self.lost / max(1, self.sent)

    @property
    def is_spread(self) -> bool:
        """Whether as many intervals have losses as if each loss were due to chance.

        A sender that got no CPU for a while makes up for it in bursts, which overflow a queue.
        """
        known = [losses for losses in self.losses if len(losses) > 1 and any(losses)]
        if not known:
            return self.lost >= SURE_LOSSES
        expected = sum(map(_lossy_intervals_by_chance, known))
        return sum(bool(lost) for losses in known for lost in losses) >= LOSSY_INTERVALS * expected


def _lossy_intervals_by_chance(losses: Sequence[int]) -> float:
    """In how many of these intervals something is lost if chance distributes the losses."""
    count = len(losses)
    # iperf3 counts a datagram that arrives late as one that is not lost after all: -1.
    return count * (1 - (1 - 1 / count) ** max(0, sum(losses)))


def random_loss(session: Session) -> Optional[Hit]:
    """Even the slowest test loses datagrams, so that no queue overflows."""
    # Of both directions at once, each may make the other lose.
    slowest = slowest_test([look for look in session.looks if len(look.run.flows) < 2])
    if slowest is None or not (is_losing(slowest) and _is_random(slowest, session)):
        hits = [*_hits_beside("", session)]
    else:
        hits = [_random_in(slowest, session), *_hits_beside(slowest.phase.direction, session)]
    return of_all_directions(hits) or _random_while_idle(session)


def _hits_beside(known: str, session: Session) -> Iterator[Optional[Hit]]:
    """For each test of TCP in one direction other than the `known` one."""
    alone = [look for look in session.tcp if look.phase.name != BIDIRECTIONAL]
    for look in sorted(alone, key=lambda look: -gently_sent(session, look).share):
        if look.phase.direction != known:
            yield _random_beside(look, session)


def _random_in(slowest: Look, session: Session) -> Optional[Hit]:
    loss = slowest.known_loss
    hit = _random_loss_hit(loss, slowest.rate or 0.0, slowest.phase.direction, session)
    if not slowest.is_unsampled:
        if slowest.phase.receiver or loss >= UNSEEN_LOSS:
            return hit
        return hit._replace(confidence="low")
    # No counter of a host was read: a busy host loses a few datagrams, as does a full path.
    if not _is_deliberate(slowest):
        return None
    is_sure = lost_datagrams(slowest) >= SURE_LOSSES or loss >= CLEAR_LOSS
    return hit._replace(confidence="medium") if is_sure and is_gentle(slowest) else None


def lost_while_idle(session: Session) -> bool:
    """Whether probes were lost before the test, on quiet hosts: no queue and no policer does it.

    TCP loses as well then. A host that does not respond at all says nothing.
    """
    lost, count = session.evidence.idle.lost or 0, session.evidence.idle.count or 0
    is_disturbed = any(look.is_disturbed for look in session.looks)
    if is_disturbed or not FEW_LOST_PROBES <= lost < count / 2:
        return False
    return any((look.loss or 0.0) >= HEAVY_TCP_LOSS for look in session.tcp)


def _random_while_idle(session: Session) -> Optional[Hit]:
    if not lost_while_idle(session):
        return None
    idle = session.evidence.idle
    return Hit(
        0.95,
        f"{idle.lost} of {idle.count} probes were lost while nothing else was sent, and TCP loses "
        "as well: not a queue or a policer, but a bad cable, optic, duplex setting or radio link",
        (Fact("probes that were answered", idle.count, (idle.count or 0) - (idle.lost or 0)),),
        _look_for_errors(session),
        confidence="medium",
    )


def _random_loss_hit(loss: float, rate: float, direction: str, session: Session) -> Hit:
    return Hit(
        0.95,
        f"{amounts.percent(loss)} is lost even at {amounts.rate(rate)}: "
        "not a queue that overflows, but a bad cable, optic, duplex setting or radio link",
        (single_fact("lost / datagrams", loss),),
        _look_for_errors(session),
        direction=direction,
    )


def _random_beside(tcp: Look, session: Session) -> Optional[Hit]:
    """Datagrams that were sent gently are lost, and TCP loses about as much or more."""
    count = gently_sent(session, tcp)
    if count.lost < SEVERAL_LOSSES or count.share < GENTLE_LOSS or not count.is_spread:
        return None
    if tcp.known_loss < SEEN_BY_TCP * count.share:
        return None
    faster = [look for look in _significant_tests(session.looks) if is_same_way(look, tcp)]
    if any(map(_is_clean, faster)):
        return None
    hit = _random_loss_hit(count.share, count.rate, tcp.phase.direction, session)
    return hit._replace(confidence="medium")


def _look_for_errors(session: Session) -> str:
    device = session.evidence.local.planned
    commands = f"ethtool -S {device}, ethtool {device}" if device else "ethtool, ethtool -S"
    return f"look for errors on both hosts ({commands}); change the cable or the optic"


def gently_sent(session: Session, tcp: Look) -> DatagramCount:
    """The datagrams of this direction that were offered at no more than half of TCP's rate."""
    return _sum_of_counts(session, tcp, GENTLE_RATE * tcp.known_rate, 0.0)


def _sum_of_counts(session: Session, tcp: Look, rate: float, loss: float) -> DatagramCount:
    """Of the tests in the direction of `tcp` that offered at most `rate`, or lost less than `loss`.

    Those whose losses the hosts themselves counted are left out.
    """
    same_way = [look for look in session.looks if is_same_way(look, tcp)]
    counts = [*_one_way_counts(session, tcp.phase.direction, rate)]
    counts += [
        DatagramCount(
            lost_datagrams(look),
            expected_datagrams(look.flow),
            (losses_by_interval(look),),
            offered_rate(look),
        )
        for look in filterfalse(_is_counted, same_way)
        if offered_rate(look) <= rate or look.known_loss < loss
    ]
    return DatagramCount(
        sum(count.lost for count in counts),
        sum(count.sent for count in counts),
        tuple(chain.from_iterable(count.losses for count in counts)),
        max((count.rate for count in counts), default=0.0),
    )


def _one_way_counts(session: Session, direction: str, rate: float) -> Iterator[DatagramCount]:
    """The tests of one-way loss in this direction that were no faster than `rate`, in bit/s."""
    for test in session.evidence.one_way:
        is_slow = test.direction == direction and (test.rate or 0.0) <= rate
        if is_slow and test.loss is not None:
            yield DatagramCount(test.lost or 0, test.seen or 0, (test.losses,), test.rate or 0.0)


def is_same_way(udp: Look, tcp: Look) -> bool:
    return udp.protocol == "udp" and udp.phase.direction == tcp.phase.direction


def _is_counted(udp: Look) -> bool:
    """Whether the hosts' own counters say where datagrams were dropped."""
    return bool(lost_datagrams(udp)) and counted_losses(udp) >= COUNTED_SHARE * lost_datagrams(udp)


def rarely_lost_datagrams(tcp: Look, session: Session) -> Optional[DatagramCount]:
    """The evenly sent datagrams that lose a much smaller share than TCP, which sends in bursts.

    None if there are none, or not enough. A short queue drops some that are nearly as fast as TCP.
    """
    loss = tcp.known_loss
    # A policer would let pass what is no faster than TCP, or faster without loss.
    even = _sum_of_counts(session, tcp, tcp.known_rate, CLEAR_LOSS)
    counts = (even, gently_sent(session, tcp))
    enough = (count for count in counts if loss * count.sent >= SURE_LOSSES)
    if loss < HEAVY_TCP_LOSS:
        return None
    return next((count for count in enough if count.share <= loss / LOSS_CONTRAST), None)


def _is_only_bursts(tcp: Look, session: Session) -> bool:
    """Whether TCP loses only in bursts, neither in a full queue nor among too many streams."""
    is_rare = rarely_lost_datagrams(tcp, session) is not None
    return is_rare and not overflows(tcp) and not is_crowded(tcp)


def _is_random(slowest: Look, session: Session) -> bool:
    """Whether no counter explains the loss, and whatever is sent faster is lost as well."""
    if _is_counted(slowest) or any(_is_only_bursts(look, session) for look in session.tcp):
        return False
    tests = _significant_tests(session.looks)
    others = [look for look in tests if look is not slowest and look.rate]
    return not any(map(_is_clean, others)) if others else _is_certain(slowest)


def _is_deliberate(look: Look) -> bool:
    """Whether it was so slow that it overloads no path."""
    return look.known_rate <= max(DELIBERATE, DELIBERATE_SHARE * (look.evidence.expect or 0.0))


def _is_certain(only: Look) -> bool:
    """Whether the only test is slow, and lost enough: a fast one says nothing about slow ones."""
    if not _is_deliberate(only):
        return False
    if lost_datagrams(only) < CERTAIN_LOSSES or only.known_loss > MAX_RANDOM_LOSS:
        return False
    losses = losses_by_interval(only)[1:]
    is_shaped = len(losses) > 3 and pstdev(losses) ** 2 < REGULAR_DISPERSION * mean(losses)
    return not is_shaped and seconds_missed(only) > -QUEUED_SECONDS


def _is_clean(udp: Look) -> bool:
    """Whether a test lost nothing, or much at its start or end only; a few losses prove nothing."""
    return not is_losing(udp) and not 0 < lost_datagrams(udp) < EXPECTED_LOSSES


def _significant_tests(looks: Sequence[Look]) -> list[Look]:
    """The UDP tests with enough datagrams: a short slow one may have lost none by chance."""
    udp = [look for look in looks if look.protocol == "udp" and look.loss is not None]
    lossy = [look for look in udp if is_losing(look)]
    expected = sum(expected_datagrams(look.flow) for look in lossy)
    share = sum(map(lost_datagrams, lossy)) / max(1, expected)
    min_datagrams = EXPECTED_LOSSES / share if share else 0.0
    return [look for look in udp if expected_datagrams(look.flow) >= min_datagrams]


def slowest_test(looks: Sequence[Look]) -> Optional[Look]:
    """The significant UDP test that offered the lowest rate."""
    return min(_significant_tests(looks), key=offered_rate, default=None)


# --- D18, where iperf's own figures are all that is known -----------------------------------------


STEADIER_THAN_LOSS = 1 / 3  # the spread of what arrives, of the share that is lost
MIN_INTERVALS = 3  # that a judgement needs at least
# Of few datagrams: more than is lost by chance, and less than if nothing got through.
MIN_LOSS, MAX_LOSS = 0.05, 0.9
DEFAULT_DATAGRAM = 1448  # bytes: iperf3's default, where the size is not known
MORE_ARRIVED = 1.1  # times the rate of another test
SMALL_DATAGRAM = 512  # bytes: smaller ones are sent to see how many a host takes


def limited_arrival(look: Look) -> Optional[Hit]:
    """UDP datagrams arrive at the rate of the path, whatever is sent."""
    if not look.is_unsampled or has_small_buffer(look):
        return None
    hit = _constant_arrival(look) or _slow_path(look)
    if hit is None or any(_is_contradicted_by(look, phase) for phase in look.evidence.phases):
        return None
    return hit


def _constant_arrival(look: Look) -> Optional[Hit]:
    """UDP datagrams arrive at a constant rate, however much is lost."""
    if look.known_loss < CLEAR_LOSS or not is_losing(look):
        return None
    rates = _arrival_rates(look)
    # Where loss differs from interval to interval, so does what is left of a constant rate.
    spread = min(STEADY_SPREAD, STEADIER_THAN_LOSS * look.known_loss)
    if len(rates) < MIN_INTERVALS or pstdev(rates) >= spread * mean(rates):
        return None
    arrived, size = mean(rates), datagram_size(look) or DEFAULT_DATAGRAM
    # Any host can receive these, so the path lost the others; but a small host takes few small
    # ones.
    if arrived / 8 / size >= (MANY_PER_SECOND if size >= SMALL_DATAGRAM else VERY_FEW_PER_SECOND):
        return None
    return Hit(
        0.8,
        f"{amounts.rate(arrived)} arrive all the time, although "
        f"{amounts.percent(look.known_loss)} of what is sent does not: something on the path "
        "limits the rate, and drops the rest",
        (single_fact("received, bit/s", round(arrived)), look.loss_fact),
        "offer less than that (-b); compare it with the rate that was ordered or scheduled",
        confidence="medium",
        severity="fault",  # even if as much arrived as is enough of what was offered
    )


def _arrival_rates(look: Look) -> list[float]:
    """Those that the receiver counted; without them, the mean if it is just below a sold rate."""
    rates = known_rates(interval for interval in look.steady if interval.lost is not None)
    return rates or [look.known_rate] * (MIN_INTERVALS if cap_above(look.known_rate) else 0)


def _is_contradicted_by(look: Look, phase: Phase) -> bool:
    """Whether more arrived in another test, or less in one that lost datagrams as well."""
    other = derive.look_at_phase(look.evidence, phase)
    if phase is look.phase or not is_same_way(other, look) or not other.rate:
        return False
    if other.is_unanswered:
        return False  # that is what was sent
    if other.rate > MORE_ARRIVED * look.known_rate:
        return True
    return other.known_loss >= CLEAR_LOSS and other.rate < look.known_rate / MORE_ARRIVED


def _slow_path(look: Look) -> Optional[Hit]:
    """Many UDP datagrams are lost, although they are so few that any receiver would keep up."""
    loss = look.known_loss
    if not MIN_LOSS <= loss <= MAX_LOSS or look.run.is_loopback:
        return None
    if not is_losing(look) or not is_gentle(look) or is_one_of_several(look):
        return None
    return Hit(
        0.76,
        f"only {amounts.rate(look.known_rate)} arrive, and {amounts.percent(loss)} of the "
        "datagrams are lost, although they are few and unfragmented: the path is slower than what "
        "was offered",
        (single_fact("received, bit/s", round(look.known_rate)), look.loss_fact),
        "offer less (-b) until nothing is lost: if that helps, it is the rate of the path, else "
        "it is loss at any rate (cable, radio)",
        confidence="medium",
        severity="fault",  # even if as much arrived as is enough of what was offered
    )
