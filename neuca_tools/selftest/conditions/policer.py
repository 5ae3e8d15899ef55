"""D17: what exceeds a rate is dropped, and never waits."""

# SPDX-License-Identifier: MIT

from itertools import filterfalse
from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions import application, datagrams, figures, queues, thresholds, udp
from neuca_tools.selftest.conditions.base import Hit, Session, of_all_directions, single_fact
from neuca_tools.selftest.conditions.capacity import path_capacity
from neuca_tools.selftest.conditions.overflow import (
    is_held_by_its_window,
    observed_losses,
    overflows,
    policed_by_bbr,
)
from neuca_tools.selftest.evidence.look import Look
from neuca_tools.selftest.evidence.run import known_windows

PLATEAU_LEVEL = 0.9  # of the plateau: what a test above a policer's rate receives at least (D17)
POLICED_LOSS = 0.01  # of the segments: more than chance or a queue drops while the rate is even
BURST_LOSS = 0.1  # of the bytes in flight, lost at once: random loss would continue afterwards


def dropped_in_bursts(look: Look) -> Optional[Hit]:
    """In one test: BBR's first loss, or more loss than the window shows.

    Many segments must have been lost together then, because each loss by itself would have made the
    window smaller; but for BBR, whose window does not depend on losses.
    """
    if not look.is_unsampled_tcp or thresholds.is_bbr(look):
        return policed_by_bbr(look)
    if look.run.is_loopback or not _is_in_bursts(look):
        return None
    return Hit(
        0.89,
        f"{amounts.percent(look.known_loss)} of the segments are lost, at a rate that hardly "
        f"varies, and the window of {amounts.size(look.cwnd or 0)} shows that many are lost "
        "together: a policer drops what exceeds its rate, or a queue is very short"
        f"{'' if look.run.congestion else '; with BBR, any loss looks so (iperf3 -V names it)'}",
        (
            single_fact("retransmits", look.retransmits),
            single_fact("cwnd", look.cwnd),
            look.rate_fact,
        ),
        "find the loss-free rate with UDP (iperf3 -u -b, twice as much each time), then ask for a "
        "shaper, or pace below it (--fq-rate)",
        confidence="medium",
    )


def _is_in_bursts(look: Look) -> bool:
    if look.cwnd is None or look.spread is None or len(look.steady) < datagrams.MIN_INTERVALS:
        return False
    if look.cwnd < queues.INITIAL_SEGMENTS * look.mss * look.streams:
        return False  # smaller than at the start: losses alone explain that
    lost = figures.late_loss(look)
    if lost < POLICED_LOSS or look.spread > figures.UNEVEN_SPREAD:
        return False
    if not all(interval.retransmits for interval in look.steady):
        return False
    if min(known_windows(look.steady), default=0.0) < 2 * look.mss * look.streams:
        return False  # a single segment: a timeout, after all of it was lost (RFC 5681)
    return look.cwnd >= figures.BURST_WINDOWS * figures.window_left_by(lost, look)


def policed_path(session: Session) -> Optional[Hit]:
    """UDP loses nothing up to a rate that it never exceeds; TCP loses packets without a queue."""
    ladder = _tests_by_rate(session)
    lossy = list(filter(_is_lost_on_the_path, ladder))
    plateau = _credible_plateau(session, ladder, lossy)
    hits = [plateau._replace(direction="forward")] if plateau else []
    if datagrams.lost_while_idle(session):
        return of_all_directions(hits)
    random_loss = datagrams.random_loss(session)
    explained = {hit.direction for hit in (*hits, random_loss) if hit}
    for tcp in session.tcp:
        is_alone = tcp.phase.name != thresholds.BIDIRECTIONAL
        # None: a hit in both directions.
        if is_alone and not {None, tcp.phase.direction} & explained:
            hit = _policed_one_way(tcp, session)
            hits += [hit._replace(direction=tcp.phase.direction)] if hit else []
    return of_all_directions(hits)


def _policed_one_way(tcp: Look, session: Session) -> Optional[Hit]:
    """One direction, judged by one test of TCP and by the datagrams sent in this direction."""
    hit = _policed_by_contrast(tcp, session)
    if hit is None and _looks_policed(tcp) and not _is_lost_for_another_reason(session, tcp):
        hit = _policed_by_tcp_alone(tcp)
    return hit or _policed_at_first(tcp)


def _is_lost_for_another_reason(session: Session, tcp: Look) -> bool:
    """Whether a policer cannot be the reason for the losses in this direction.

    Even the slowest datagrams are lost, or several streams fill a queue, which a policer lacks.
    """
    slowest = datagrams.slowest_test(
        [look for look in session.looks if datagrams.is_same_way(look, tcp)]
    )
    if slowest is not None and udp.is_losing(slowest):
        return True
    several = (thresholds.PARALLEL, tcp.phase.direction)
    looks = (look for look in session.tcp if (look.phase.name, look.phase.direction) == several)
    return any(path_capacity(look) is not None for look in looks)


def _credible_plateau(session: Session, ladder: list[Look], lossy: list[Look]) -> Optional[Hit]:
    """The plateau of UDP, unless TCP was faster.

    A busy sender offers datagrams in bursts, which are dropped far below the rate of TCP.
    """
    clean = list(filterfalse(udp.is_losing, ladder))
    hit = _plateau_hit(clean, lossy, ladder) if clean and lossy else None
    tcp = [look for look in session.tcp if look.phase.direction == "forward"]
    rates = [look.known_rate for look in tcp]
    arrived = max((look.known_rate for look in lossy), default=0.0)
    if hit is None or arrived < PLATEAU_LEVEL * max(rates, default=0.0):
        return None
    # A queue that TCP fills is that of a shaper, which drops what it does not hold.
    queued = filter(thresholds.has_standing_queue, tcp)
    return None if any(map(path_capacity, queued)) else hit


def _tests_by_rate(session: Session) -> list[Look]:
    """The UDP tests of one direction, from the slowest to the fastest."""
    measured = [look for look in session.looks if look.protocol == "udp" and look.rate]
    return sorted(
        (look for look in measured if datagrams.is_same_way(look, measured[0])),
        key=_offered_or_received,
    )


def _is_lost_on_the_path(look: Look) -> bool:
    """Whether UDP datagrams were lost that no counter and no full CPU of the hosts explains."""
    if not udp.is_losing(look) or look.known_loss < udp.CLEAR_LOSS:
        return False
    if look.is_unsampled and udp.are_many(look):
        return False  # few receivers keep up with them
    return udp.counted_losses(look) < udp.COUNTED_SHARE * udp.lost_datagrams(look)


def _looks_policed(look: Look) -> bool:
    """Whether TCP is too slow, and loses packets while the round trip stays at its minimum."""
    if thresholds.has_passed(look) or (look.is_disturbed and thresholds.carries_expected(look)):
        return False
    if not look.is_sampled:
        return look.is_unsampled and figures.loss_explains(look)
    return application.is_lossy(look) and not overflows(look) and _has_no_queue(look)


def _policed_by_tcp_alone(tcp: Look) -> Hit:
    """The hit without UDP tests at several rates, which could rule out random loss."""
    near = figures.round_rate(max(tcp.rates, default=0.0))
    where = f", near {amounts.rate(near)}" if near else ""
    # With samples, the kernel's round-trip times are known, not only iperf's retransmits.
    is_noisy = thresholds.is_noisy(tcp) or (tcp.is_disturbed and tcp.low_rtt is None)
    return Hit(
        (0.95 if tcp.phase.sender else 0.5) * tcp.known_network_share,
        f"packets are lost while no queue forms{where}: a policer, a queue of a few packets, or "
        "random loss; a UDP ladder can tell them apart",
        (tcp.loss_fact, tcp.queueing_fact),
        "find the loss-free rate with a UDP ladder (--only udp), then pace just below it (fq with "
        "maxrate, see tc-fq(8))",
        confidence="medium" if tcp.phase.sender and not is_noisy else "low",
    )


def _policed_at_first(tcp: Look) -> Optional[Hit]:
    """Slow start lost much at once, without a queue, and the window has not been as large since.

    With a queue, that is a finding of `overflow.overflowing_queue`.
    """
    losses = observed_losses(tcp)
    if not losses or losses[0].lost * tcp.mss < BURST_LOSS * losses[0].in_flight:
        return None
    if not _is_held_back_since(tcp) or not _has_no_queue(tcp) or overflows(tcp):
        return None
    if queues.backlog_drops(tcp) is not None:
        return None
    loss = losses[0]
    return Hit(
        0.95 * tcp.known_network_share,
        f"slow start lost {amounts.percent(loss.lost * tcp.mss / loss.in_flight)} of "
        f"{amounts.size(loss.in_flight)} in flight while no queue formed, and the window has "
        "not been as large since: a policer with a small bucket, or a queue of a few packets",
        (
            single_fact("in flight when packets were lost, bytes", loss.in_flight),
            single_fact("segments lost then", loss.lost),
            single_fact("rtt when packets were lost", loss.rtt),
        ),
        "pacing (fq) avoids the bursts; BBR or CUBIC and a longer test (--time 60) suffer "
        "less from such a loss",
        confidence="medium",
    )


def _is_held_back_since(tcp: Look) -> bool:
    """Whether TCP is too slow because of its window alone, without later losses."""
    if thresholds.has_passed(tcp) is not False or thresholds.carries_expected(tcp):
        return False
    is_lossless = application.is_unbounded(tcp) and not application.is_lossy(tcp)
    return is_lossless and is_held_by_its_window(tcp)


def _policed_by_contrast(tcp: Look, session: Session) -> Optional[Hit]:
    """Without a queue, TCP loses a much larger share than evenly sent datagrams.

    TCP sends in bursts. Random loss would be the same for both.
    """
    loss, count = tcp.known_loss, datagrams.rarely_lost_datagrams(tcp, session)
    if count is None or thresholds.has_passed(tcp):
        return None
    if overflows(tcp) or path_capacity(tcp) is not None:
        return None
    return Hit(
        0.95 * tcp.known_network_share,
        f"TCP loses {amounts.percent(loss)} at {amounts.rate(tcp.rate or 0)}, and evenly sent "
        f"datagrams {amounts.percent(count.share)}: bursts are dropped, by a policer with a small "
        "bucket or by a queue that is too short",
        (
            single_fact("bytes_retrans / bytes_sent", loss),
            single_fact("UDP lost / datagrams", count.share),
        ),
        "find the rate with UDP (--only udp --rate, twice as much each time, until some is lost); "
        "pacing (fq) avoids the bursts",
        confidence="medium",
    )


def _plateau_hit(clean: list[Look], lossy: list[Look], ladder: list[Look]) -> Optional[Hit]:
    """Everything arrives up to a rate, and the same amount arrives however much more is offered."""
    arrived = [look.rate or 0.0 for look in lossy]
    plateau, loss_free = max(arrived), max(map(_offered_or_received, clean))
    if min(arrived) < PLATEAU_LEVEL * plateau or loss_free > plateau / PLATEAU_LEVEL:
        return None
    pace = f"{plateau * queues.PACE / 1e3:.0f}"
    device = lossy[0].sender.planned
    own = f", or tc qdisc replace dev {device} root fq maxrate {pace}kbit" if device else ""
    return Hit(
        0.97,
        f"no loss at {amounts.rate(loss_free)}, and never more than {amounts.rate(plateau)}: "
        "a policer drops the excess",
        tuple(
            single_fact(f"of {amounts.rate(_offered_or_received(look))}, bit/s", look.rate)
            for look in ladder
        ),
        f"ask for a shaper; on the sender, iperf3 --fq-rate {pace}K{own}",
        confidence="high" if not lossy[0].is_unsampled else "medium",
    )


def _offered_or_received(look: Look) -> float:
    """bit/s that a UDP test sent, or at least the rate at which it arrived."""
    return udp.offered_rate(look) or look.rate or 0.0


def _has_no_queue(look: Look) -> bool:
    """Whether the round trip stays at its minimum; where it is not known, by the window."""
    if not look.queueing or not look.phase.sender:
        return not look.windows.flat and bool(look.retransmits)
    if not thresholds.has_grown(look, thresholds.FLAT_RTT) or thresholds.is_only_a_pair(look):
        return True
    # The round trip grew, but only the test's own bursts waited, behind the policer's bucket.
    return thresholds.delays_only_itself(look) and look.known_spread >= figures.STEADY_SPREAD
