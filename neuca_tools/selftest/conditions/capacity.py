"""D17, D18: the rate that the path itself allows, by a policer or by its capacity."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import replace
from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.base import HIGH, INFO, LOW, MEDIUM, ORDERED, Hit, fact
from neuca_tools.selftest.conditions.datagrams import (
    CLEARLY,
    evenly_sent,
    fastest_tcp,
    hits_bursts,
    is_same_way,
    lost_while_idle,
    random_loss,
    slowest_test,
)
from neuca_tools.selftest.conditions.overflow import overflows
from neuca_tools.selftest.conditions.predict import goodput, line_of, round_rate
from neuca_tools.selftest.conditions.printed import loss_explains
from neuca_tools.selftest.conditions.session import Session, first, links_of, smallest_mtu
from neuca_tools.selftest.conditions.streams import (
    PAIR,
    is_mostly_idle,
    several_carry_no_more,
)
from neuca_tools.selftest.conditions.thresholds import TOGETHER, passed, reached_for_a_while
from neuca_tools.selftest.conditions.udp import counted_losses, is_losing, lost, offered
from neuca_tools.selftest.conditions.window import is_lossy, is_unbounded
from neuca_tools.selftest.evidence.look import SLICE, Look
from neuca_tools.selftest.evidence.printed import printed

SEVERAL = "tcp-parallel"
STEADY = 0.03  # coefficient of variation of the rate (D18)
# The same where iperf3 counts in whole buffers, which makes a constant rate look uneven.
IN_PIECES = 0.10
QUEUED = 1.5  # times the idle round trip (D18)
NOISE = 0.001  # seconds: what a quiet host takes to respond at most
FLAT_RTT = 1.2  # times the shortest round trip: no queue forms before packets are dropped (D17)
# Seconds: so much is a queue on a long path too (MAX_RTT_THRESH of RFC 9406, section 4.2).
NOTICED = 0.016
LEVEL = 0.9  # of the plateau (D17)
UNEVEN = 0.35  # coefficient of variation of Reno's sawtooth with no queue at all is 0.19
FULL_QUEUE = 0.9  # of the lost time: D18 where the rate varies
BESIDE_CPU = 0.5  # of the lost time: D18 where a CPU is full as well (D09)
PACE = 0.95  # of the rate of a policer: what is sent more slowly than this is not dropped


def policed(session: Session) -> Optional[Hit]:
    """UDP loses nothing up to a rate that it never exceeds; TCP loses packets without a queue."""
    ladder = _ladder(session)
    over = list(filter(_is_lost_on_the_path, ladder))
    hit = _credible_plateau(session, ladder, over)
    if hit is not None:
        return replace(hit, direction="forward")
    alone = [one for one in session.tcp if one.phase.name != TOGETHER]
    random = random_loss(session)
    if lost_while_idle(session):
        return None
    if random is not None:
        alone = [one for one in alone if one.phase.direction != random.direction]
    return first(_policed_one_way(one, session) for one in alone)


def _policed_one_way(tcp: Look, session: Session) -> Optional[Hit]:
    """By one test of TCP alone, and by the datagrams that were sent in the same direction."""
    hit = _policed_by_contrast(tcp, session)
    if hit is None and _looks_policed(tcp) and not _is_lost_for_another_reason(session, tcp):
        hit = _policed_by_tcp_alone(tcp, several_carry_no_more(session, tcp))
    if hit is None:
        return None
    return replace(hit, direction=tcp.phase.direction)


def _is_lost_for_another_reason(session: Session, tcp: Look) -> bool:
    """Whether even the slowest datagrams in this direction are lost, so that no rate matters.

    Or whether several streams in this direction fill a queue, which a policer does not have.
    """
    slowest = slowest_test([one for one in session.looks if is_same_way(one, tcp)])
    if slowest is not None and is_losing(slowest):
        return True
    way = tcp.phase.direction
    several = (
        one for one in session.tcp if (one.phase.name, one.phase.direction) == (SEVERAL, way)
    )
    return any(path_capacity(one) is not None for one in several)


def _credible_plateau(session: Session, ladder: list[Look], over: list[Look]) -> Optional[Hit]:
    """The plateau of UDP, unless TCP was faster.

    A busy sender offers datagrams in bursts, which are dropped far below the rate of TCP.
    """
    clean = [one for one in ladder if not is_losing(one)]
    hit = _plateau(clean, over, ladder) if clean and over else None
    if _is_queue_of_tcp(session):
        return None  # a shaper, which drops what its queue does not hold
    if hit is None or (hit.fixed or 0.0) < LEVEL * PACE * fastest_tcp(session):
        return None
    return hit


def _is_queue_of_tcp(session: Session) -> bool:
    """Whether TCP fills a queue in the direction of the datagrams: a policer has none."""
    there = (one for one in session.tcp if one.phase.direction == "forward")
    return any(_has_standing_queue(one) and path_capacity(one) is not None for one in there)


def _ladder(session: Session) -> list[Look]:
    """The UDP tests of one direction, from the slowest to the fastest."""
    measured = [one for one in session.looks if one.protocol == "udp" and one.rate and one.flow]
    return sorted((one for one in measured if is_same_way(one, measured[0])), key=_offered)


def _is_lost_on_the_path(look: Look) -> bool:
    """Whether UDP datagrams were lost that no counter and no full CPU of the hosts explains."""
    if not is_losing(look) or look.known_loss < CLEARLY:
        return False
    return counted_losses(look) < 0.5 * lost(look)


def _looks_policed(look: Look) -> bool:
    if passed(look) or reached_for_a_while(look):
        return False
    return _loses_without_queue(look)


def _policed_by_tcp_alone(tcp: Look, is_shared: bool) -> Hit:
    """Without a UDP ladder, random loss is ruled out only if several streams share this rate."""
    near = round_rate(max(tcp.throughput.rates, default=0.0))
    where = f", near {amounts.rate(near)}" if near else ""
    # With samples, the kernel's round-trip times are known, not only iperf's retransmits.
    share, confidence = (0.95, MEDIUM) if tcp.phase.sender else (0.5, LOW)
    if _is_noisy(tcp) or (tcp.is_disturbed and tcp.round_trip.low is None):
        confidence = LOW
    what = ": a policer, a queue of a few packets, or random loss; a UDP ladder can tell them apart"
    if is_shared:
        confidence = MEDIUM
        what = ", and several streams carry no more: a policer, or a queue of a few packets"
    return Hit(
        share * tcp.left,
        f"packets are lost while no queue forms{where}{what}",
        (fact("bytes_retrans / bytes_sent", tcp.loss), fact("rtt / min_rtt", tcp.queueing)),
        "find the loss-free rate with a UDP ladder (--only udp), then pace just below it (fq with "
        "maxrate, see tc-fq(8))",
        confidence=confidence,
    )


def _is_noisy(look: Look) -> bool:
    """Whether idle round trips vary by more than what tells a queue from none."""
    shortest, usual = look.round_trip.shortest, look.evidence.idle.p50
    if not shortest or not usual or (look.rtt or 0.0) <= FLAT_RTT * shortest:
        # The kernel's own round trips do not wait for the programs that measure the idle ones.
        return False
    return usual - shortest > max((FLAT_RTT - 1) * shortest, NOISE)


def _policed_by_contrast(tcp: Look, session: Session) -> Optional[Hit]:
    """TCP, which sends in bursts, loses a share that evenly sent datagrams do not, and no queue.

    Loss at random would hit both alike.
    """
    loss, part = tcp.known_loss, evenly_sent(session, tcp).share
    if not hits_bursts(tcp, session) or passed(tcp):
        return None
    return Hit(
        0.95 * tcp.left,
        f"TCP loses {amounts.percent(loss)} at {amounts.rate(tcp.rate or 0)}, and evenly sent "
        f"datagrams {amounts.percent(part)}: bursts are dropped, by a policer with a small bucket "
        "or by a queue that is too short",
        (fact("bytes_retrans / bytes_sent", loss), fact("UDP lost / datagrams", part)),
        "find the rate with UDP (--only udp --rate, twice as much each time, until some is lost); "
        "pacing (fq) avoids the bursts",
        confidence=MEDIUM,
    )


def _plateau(clean: list[Look], over: list[Look], ladder: list[Look]) -> Optional[Hit]:
    """Everything arrives up to a rate, and the same amount arrives however much more is offered."""
    arrived = [one.rate or 0.0 for one in over]
    plateau, free = max(arrived), max(map(_offered, clean))
    if min(arrived) < LEVEL * plateau or free > plateau / LEVEL:
        return None
    pace = f"{plateau * PACE / 1e3:.0f}"
    device = over[0].sender.planned
    own = f", or tc qdisc replace dev {device} root fq maxrate {pace}kbit" if device else ""
    return Hit(
        0.97,
        f"no loss at {amounts.rate(free)}, and never more than {amounts.rate(plateau)}: "
        "a policer drops the excess",
        tuple(fact(f"of {amounts.rate(_offered(one))}, bit/s", one.rate) for one in ladder),
        f"ask for a shaper; on the sender, iperf3 --fq-rate {pace}K{own}",
        fixed=plateau * PACE,
        confidence=HIGH if printed(over[0]) is None else MEDIUM,
    )


def _offered(look: Look) -> float:
    """bit/s that a UDP test sent, or at least the rate at which it arrived."""
    return offered(look) or look.rate or 0.0


def _loses_without_queue(look: Look) -> bool:
    """Whether TCP loses packets while the round trip stays at its minimum."""
    one = printed(look)
    if one is not None:
        return loss_explains(one)
    if not is_lossy(look) or overflows(look):
        return False
    if not look.queueing or not look.phase.sender:
        return not look.windows.flat and bool(look.throughput.retransmits)
    if not _has_grown(look, FLAT_RTT) or _is_only_a_pair(look):
        return True
    # The round trip grew, but only the test's own bursts waited, behind the policer's bucket.
    return _delays_only_itself(look) and look.known_spread >= STEADY


def path_capacity(look: Look) -> Optional[Hit]:
    """A steady rate with a queue on the path, or all that TCP can carry over a known link."""
    if look.protocol != "tcp" or not look.rate or not is_unbounded(look) or printed(look):
        return None  # where no host was sampled, see `given_rate`
    speed = _filled_line(look, look.rate)
    if speed is not None:
        return Hit(
            look.left,
            f"{amounts.rate(look.rate)} is all that TCP can carry over {amounts.rate(speed)} "
            "Ethernet",
            (fact("rate, bit/s", round(look.rate)),),
            fixed=look.rate,
            severity=None if look.evidence.expect else INFO,
        )
    return _queued_capacity(look, look.rate) if _is_queued(look) else None


def _queued_capacity(look: Look, rate: float) -> Optional[Hit]:
    """A queue on the path, at a rate that hardly varies or is never idle."""
    spread = _steady_spread(look)
    if spread is None:
        return _congested(look, rate)
    # Packets may wait for a full CPU as well, though it makes no rate so even.
    share, confidence = (BESIDE_CPU, LOW) if look.is_full else (1.0, HIGH)
    if _is_noisy(look):
        confidence = min(confidence, MEDIUM, key=(LOW, MEDIUM, HIGH).index)
    return Hit(
        share * look.left,
        f"the rate stays within {amounts.percent(spread)} of {amounts.rate(rate)} while a "
        "queue forms: this is the capacity of the path",
        (fact("rate, bit/s", round(rate)), fact("rtt / min_rtt", look.queueing)),
        ORDERED,
        confidence=confidence,
        fixed=rate,
    )


def _congested(look: Look, rate: float) -> Optional[Hit]:
    """Packets wait in every sample: a queue that is never empty, so that the path is never idle.

    If it is full, some are dropped. With a queue of less than a round trip, the rate varies by the
    way TCP recovers; that of a slow path varies because iperf counts whole buffers.
    """
    if not _has_standing_queue(look) or (look.spread or 1.0) > UNEVEN:
        return None
    return Hit(
        FULL_QUEUE * look.left,
        f"packets wait at {amounts.rate(rate)}: a queue on the path is never empty, so that this "
        "is about its capacity",
        (fact("rtt / min_rtt", look.queueing), fact("bytes_retrans / bytes_sent", look.loss)),
        ORDERED,
        confidence=LOW if look.is_full else MEDIUM,
        fixed=rate,
    )


def _steady_spread(look: Look) -> Optional[float]:
    """The coefficient of variation of a steady rate; None if it varies, or is not known."""
    limit = STEADY
    if _has_standing_queue(look):
        limit = IN_PIECES
    if look.spread is None or look.spread >= limit:
        return None
    return look.spread


def _is_queued(look: Look) -> bool:
    """Whether packets waited on the path, and not merely for a receiver that was late."""
    if not _has_grown(look, QUEUED) or _is_only_a_pair(look):
        return False
    return not _delays_only_itself(look) and not is_mostly_idle(look)


def _has_grown(look: Look, times: float) -> bool:
    """Whether the round trip grew to so many times the shortest one, or by what is a queue."""
    shortest = look.round_trip.shortest or 0.0
    return _growth(look) > min((times - 1) * shortest, NOTICED)


def _growth(look: Look) -> float:
    """Seconds that packets waited, see `queueing`."""
    return ((look.queueing or 1.0) - 1) * (look.round_trip.shortest or 0.0)


def _is_only_a_pair(look: Look) -> bool:
    """Whether what waited is less than two packets: no queue, but a slow link."""
    return _growth(look) * (look.rate or 0.0) / 8 <= PAIR


def _has_standing_queue(look: Look) -> bool:
    """Whether every sample saw a queue.

    The path was never idle then, and the rate varies only by the way iperf3 counts.
    """
    least, shortest = look.round_trip.low, look.round_trip.shortest
    if least is None or shortest is None:
        return False
    # What a tenth does not exceed has waited for a CPU less often than the median.
    noise = SLICE / 2 if look.is_disturbed else 0.0
    return least > shortest + max(min((QUEUED - 1) * shortest, NOTICED), noise)


def _delays_only_itself(look: Look) -> bool:
    """Whether requests took no longer during the test than before it: no queue delayed them."""
    if (look.phase.name, look.phase.direction) != ("tcp", "forward"):
        return False
    idle, loaded = look.evidence.idle.p50, look.evidence.loaded.p50
    if not idle or not loaded or _is_noisy(look):
        return False
    return loaded - idle <= min((FLAT_RTT - 1) * idle, NOTICED)


def _filled_line(look: Look, rate: float) -> Optional[float]:
    """The speed in bit/s of the link that this rate fills; guessed if no link's speed is known."""
    links = (*links_of(look.sender), *links_of(look.receiver))
    mtu = smallest_mtu(links_of(look.sender))
    slowest = min((link.speed for link in links if link.speed), default=None)
    if slowest is not None:
        return slowest if rate >= 0.98 * goodput(slowest, mtu or 1500) else None
    # The rate of a full link does not vary.
    is_steady = look.spread is not None and look.spread < STEADY
    return line_of(rate, mtu) if is_steady or not look.phase.sender else None
