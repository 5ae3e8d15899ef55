"""D05, D17, D18: loss, by what was in flight when packets were lost, or by BBR's even rate.

BBR sends at the rate at which data arrives, and need not fill a queue.
"""

# SPDX-License-Identifier: MIT

from collections.abc import Sequence
from typing import NamedTuple, Optional

from neuca_tools.model.printable import counted
from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions import application, thresholds
from neuca_tools.selftest.conditions.base import ORDERED, Hit, Severity, single_fact
from neuca_tools.selftest.conditions.figures import (
    MANY_STREAMS,
    NOTABLE_LOSS,
    cap_above,
    filled_link_speed,
    loss_explains,
    round_rate,
)
from neuca_tools.selftest.conditions.window import full_window
from neuca_tools.selftest.evidence.derive import (
    growth_over_samples,
    growths_of,
    round_trips_of,
    totals_of,
)
from neuca_tools.selftest.evidence.look import Look, data_sockets

# By how much a round trip grows, beyond what a busy host adds, where a sender fills a queue: a part
# of the shortest one, and seconds at least (RFC 9406, section 4.2).
RTT_GROWTH, MIN_RTT_THRESH = 0.125, 0.004
# Of the congestion window in flight: nothing else holds the sender back.
FULL_WINDOW = 0.8
# Round trips in which what overflowed a queue is sent again.
RECOVERY_ROUND_TRIPS = 4
# Of the times at which something was lost: the share at which a queue was full.
FULL_QUEUE_SHARE = 0.5
SHORT_QUEUE = 0.3  # of the shortest round trip: a queue that bursts overflow
LOSS_SHARE, BBR_SHARE = 0.9, 0.8  # of the lost time: by losses; by BBR
# Coefficient of variation of the rate: BBR's own probes for more bandwidth average out in a second.
BBR_SPREAD = 0.10
MIN_INTERVALS = 3  # intervals
# Of what was sent within a second: BBR takes a path that loses so much for policed, and paces at
# the rate that it lets pass (bbr_lt_loss_thresh in net/ipv4/tcp_bbr.c).
BBR_POLICED_LOSS = 50 / 256
# Of a CPU that others keep full: a test that uses so much of it may have needed more.
COMPETING_CPU = 0.1
# Of the bytes: a policer drops more, and BBR then sends no more than it lets pass.
BBR_LOSS = 1e-4


class Loss(NamedTuple):
    """A time at which packets were lost."""

    time: float  # seconds
    in_flight: float  # bytes
    rtt: float  # seconds
    lost: float  # segments

    def rate(self, mss: float) -> float:
        """bit/s that the path carried: what was in flight and arrived, within a round trip."""
        return max(0.0, self.in_flight - self.lost * mss) * 8 / self.rtt

    def rate_of_burst(self, shortest: float) -> float:
        """bit/s that the path may carry if slow start filled a short queue; 0 if it was longer.

        Slow start sends twice as fast as the path carries, in bursts of one window, half of which
        waits. It overflows a queue of much less than a round trip before the path is full. Once
        that is noticed, the window is twice as large.
        """
        waited = self.rtt - shortest
        return self.in_flight * 8 / 4 / waited if 0 < waited < SHORT_QUEUE * shortest else 0.0


def overflowing_queue(look: Look) -> Optional[Hit]:
    """A queue is full whenever packets are lost, at a rate that is less than expected.

    Often that is only at the end of slow start: afterwards the window grows by a segment in each
    round trip (RFC 5681, section 3.1), and on a long path most tests end before it fills the path
    again. There is neither a queue nor a loss then.
    """
    if not application.is_unbounded(look) or not overflows(look):
        return None
    losses, shortest = observed_losses(look), look.shortest_rtt or 0.0
    if application.is_lossy(look):
        # The rate itself is known better than what is in flight in a single moment.
        highest, rate = max(loss.rate(look.mss) for loss in losses), look.known_rate
    elif is_held_by_its_window(look):
        losses = losses[:1]
        rate = max(look.known_rate, losses[0].rate(look.mss))
        highest = max(losses[0].rate(look.mss), losses[0].rate_of_burst(shortest))
    else:
        return None
    if highest >= thresholds.THROUGHPUT * (look.evidence.expect or 0.0):
        return None
    return _overflow_hit(look, losses, rate)


def _overflow_hit(look: Look, losses: Sequence[Loss], rate: float) -> Hit:
    is_early = not application.is_lossy(look)
    rtt = thresholds.upper_median([loss.rtt for loss in losses])
    waited = amounts.time(rtt - (look.shortest_rtt or 0.0))
    text, advice = f"packets are lost after they waited {waited} in a queue,", ORDERED
    if is_early:
        text = f"slow start filled a queue of {waited} and lost packets"
        advice = f"{ORDERED}; a longer test (--time 60) fills the path again"
    return Hit(
        LOSS_SHARE * look.known_network_share,
        f"{text} at about {amounts.rate(rate)}: this is about the capacity of the path",
        (
            single_fact("rtt when packets were lost", rtt),
            single_fact(
                "in flight, bytes", thresholds.upper_median([loss.in_flight for loss in losses])
            ),
            single_fact("times at which packets were lost", len(losses)),
        ),
        advice,
        confidence="low" if look.is_full else "medium",
        fixed=rate,
    )


def is_held_by_its_window(look: Look) -> bool:
    """Whether the congestion window alone limits the flow, and is smaller than it was."""
    in_flight, cwnd = look.windows.in_flight, look.windows.cwnd
    if in_flight is None or not cwnd or in_flight < FULL_WINDOW * cwnd:
        return False
    first = next(iter(observed_losses(look)))
    began = first.time + 2 * first.rtt
    later = totals_of(look.phase.sender, look.phase, "in_flight")
    return all(value < first.in_flight for time, value in later if time >= began)


def overflows(look: Look) -> bool:
    """Whether a queue was full at most of the times at which packets were lost."""
    shortest = look.shortest_rtt or 0.0
    grown = max(
        look.noise + max(MIN_RTT_THRESH, min(RTT_GROWTH * shortest, thresholds.LONG_DELAY)),
        _of_a_pair(look),
    )
    every = observed_losses(look)
    full = sum(loss.rtt >= shortest + grown for loss in every)
    return bool(every) and full >= FULL_QUEUE_SHARE * len(every)


def _of_a_pair(look: Look) -> float:
    """Seconds: so much later is an acknowledgement of two packets, with an empty queue."""
    return thresholds.PAIR_BYTES * 8 / look.rate if look.rate else 0.0


def observed_losses(look: Look) -> list[Loss]:
    """Each sample before which something was lost, with what was sent again after it."""
    samples, phase = look.phase.sender, look.phase
    counts = list(growths_of(samples, phase, "total_retrans")) if look.shortest_rtt else []
    rtt_by_time = dict(round_trips_of(samples, phase))
    in_flight_by_time = dict(totals_of(samples, phase, "in_flight"))
    losses: list[Loss] = []
    ended = 0.0
    for began, _, count in counts:
        rtt = rtt_by_time.get(began)
        if not count or not rtt or began < ended:
            continue
        ended = began + RECOVERY_ROUND_TRIPS * rtt
        lost = sum(count for time, _, count in counts if began <= time <= ended)
        losses.append(Loss(began, in_flight_by_time.get(began, 0.0), rtt, lost))
    return losses


def measured_by_bbr(look: Look) -> Optional[Hit]:
    """BBR keeps one rate, loses nothing, and no window, buffer, application or CPU holds it back.

    Its windows are twice of what the path holds, so that they never limit a steady flow (Cardwell
    et al., BBR: Congestion-Based Congestion Control, 2016).
    """
    if not look.rate or not _is_measured(look) or _lost_by_policer(look):
        return None
    losing = "almost without loss" if look.known_loss else "without any loss"
    return Hit(
        BBR_SHARE * look.known_network_share,
        "BBR, which sends what the path delivers, stays within "
        f"{amounts.bound(_smaller_spread(look) or 0)} of {amounts.rate(look.rate)} {losing}, and "
        "nothing of the hosts limits it: this is the capacity of the path",
        (look.rate_fact, look.loss_fact),
        ORDERED,
        confidence="medium",
        fixed=look.rate,
    )


def policed_by_bbr(look: Look) -> Optional[Hit]:
    """BBR lost much at first, while no queue formed, and nothing more at the rate that arrived."""
    lost = _lost_by_policer(look) if _is_measured(look) else 0.0
    if not look.rate or not lost:
        return None
    return Hit(
        LOSS_SHARE * look.known_network_share,
        f"BBR lost {amounts.percent(lost)} at first, while no queue formed, and nothing "
        f"since then, at {amounts.rate(look.rate)}: a policer, or a queue of a few packets",
        (look.rate_fact, single_fact("bytes_retrans / bytes_sent, at first", lost)),
        "find the loss-free rate with a UDP ladder (--only udp), and ask for a shaper",
        confidence="medium",
    )


def _is_measured(look: Look) -> bool:
    """Whether BBR keeps one rate, and nothing of the hosts may be what limits it."""
    receiver, sender = look.windows.rwnd_limited or 0.0, look.windows.sndbuf_limited or 0.0
    if not _is_steady_bbr(look) or max(receiver, sender) >= application.PACED_LIMITED:
        return False
    if look.is_full or _competes_for_cpu(look) or thresholds.is_mostly_idle(look):
        return False
    rules = (
        full_window,
        application.sender_buffer,
        application.slow_reader,
        application.idle_application,
    )
    return all(rule(look) is None for rule in rules)


def _lost_by_policer(look: Look) -> float:
    """The share that was lost in the worst second, if that was POLICED and no queue formed."""
    shortest = look.shortest_rtt or 0.0
    queued = shortest + max(RTT_GROWTH * shortest, _of_a_pair(look))
    every = observed_losses(look)
    if not every or any(loss.rtt >= queued for loss in every):
        return 0.0
    worst = 0.0
    sockets = [data_sockets(sample, look.phase) for sample in look.phase.sender]
    for pair in zip(sockets, sockets[1:]):
        lost = growth_over_samples(pair, "bytes_retrans")
        sent = growth_over_samples(pair, "bytes_sent")
        if lost is not None and sent:
            worst = max(worst, lost / sent)
    return worst if worst >= BBR_POLICED_LOSS else 0.0


def _is_steady_bbr(look: Look) -> bool:
    if look.protocol != "tcp" or look.is_unsampled or not thresholds.is_bbr(look):
        return False
    if thresholds.has_passed(look) is not False or look.loss is None or look.loss > BBR_LOSS:
        return False
    spread = _smaller_spread(look)
    if len(look.rates) < MIN_INTERVALS or spread is None:
        return False
    return spread < BBR_SPREAD and not thresholds.carries_expected(look)


def _smaller_spread(look: Look) -> Optional[float]:
    """The smaller variation, of iperf's rates or the kernel's: each varies by when it counts."""
    known = (spread for spread in (look.spread, look.acked_spread) if spread is not None)
    return min(known, default=None)


def _competes_for_cpu(look: Look) -> bool:
    """Whether iperf used much of a CPU that other programs kept full."""
    both = (look.sender_load, look.receiver_load)
    return look.is_disturbed and any((load.own or 0.0) >= COMPETING_CPU for load in both)


# --- D05 ------------------------------------------------------------------------------------------


# Of the bytes: "BBR v1 is agnostic to packet loss" below about 20%, and less where it is policed
# (Cardwell et al., draft-cardwell-iccrg-bbr-congestion-control).
IGNORED_LOSS = 0.1
BESIDE_CPU_SHARE = 0.5  # of the lost time: where a CPU is full as well (D09)
FIND_LOSS = (
    "find where it is lost: nstat, tc -s qdisc and ethtool -S on both hosts; send a little less "
    "than the path carries (fq with maxrate, see tc-fq(8))"
)


def loss_limited(look: Look) -> Optional[Hit]:
    """A symptom: the conditions that say where packets are lost take precedence (EXPLANATIONS)."""
    if look.protocol != "tcp" or not look.rate:
        return None
    if thresholds.is_bbr(look) and look.known_loss < IGNORED_LOSS:
        return None  # BBR does not slow down for so little loss
    if look.is_unsampled:
        return _loss_unsampled(look)
    if not application.is_lossy(look):
        return None
    hit = _loss_sampled(look, look.rate)
    return _weighed_hit(look, hit) if hit else None


def _weighed_hit(look: Look, hit: Hit) -> Hit:
    """What the loss is worth where the path carries enough, or a CPU is full as well."""
    # The path carries what is expected, and loses only what a full queue has to drop.
    if (look.is_disturbed or overflows(look)) and thresholds.carries_expected(look):
        return hit._replace(confidence="low", severity="info")
    if not look.is_full:
        return hit
    # A host that does not keep up loses packets too, and may not even end the test.
    severity: Optional[Severity] = "info" if look.run.error else None
    return hit._replace(share=BESIDE_CPU_SHARE * hit.share, confidence="low", severity=severity)


def _loss_sampled(look: Look, rate: float) -> Optional[Hit]:
    """Where hosts were sampled: this loss has to allow no more than twice the rate."""
    ceiling = application.loss_ceiling(look, look.rtt or look.implied_rtt, look.loss)
    if ceiling is not None and rate < ceiling / 2:
        # This little loss cannot hold the rate back so much.
        return None
    return Hit(
        look.known_network_share,
        f"{amounts.percent(look.known_loss)} of what was sent was lost and retransmitted, and the "
        f"congestion window follows the loss{_best_interval(look)}",
        (
            look.loss_fact,
            single_fact("retransmits", look.retransmits),
            single_fact("Mathis limit, bit/s", ceiling),
        ),
        FIND_LOSS,
        confidence="medium" if look.network_share is None else "high",
    )


def _loss_unsampled(look: Look) -> Optional[Hit]:
    """Where only iperf counted: the window has to follow the loss, and allow no more than it."""
    # Of both directions at once, each is slowed down by the other.
    is_of_other = look.phase.name == thresholds.BIDIRECTIONAL and look.known_loss < NOTABLE_LOSS
    is_sure = loss_explains(look)
    if is_of_other or not (is_sure or _may_be_slowed(look)):
        return None
    follows = ", and the congestion window follows the loss" if look.cwnd else ""
    return Hit(
        0.87,
        f"{counted(look.retransmits or 0, 'segment')} lost and retransmitted, "
        f"{amounts.percent(look.known_loss)} of what was sent{follows}{_best_interval(look)}",
        (
            single_fact("retransmits", look.retransmits),
            single_fact("intervals with loss", look.lossy_intervals or None),
            single_fact("cwnd", look.cwnd),
        ),
        FIND_LOSS,
        confidence="medium" if is_sure else "low",
    )


FEW_LOSSES = 20  # segments, of which chance makes any share


def _may_be_slowed(look: Look) -> bool:
    """Whether totals alone, which show no window that follows it, have much loss for their rate."""
    is_alone = look.cwnd is None and look.spread is None and look.streams < MANY_STREAMS
    is_much = look.known_loss >= 2 * NOTABLE_LOSS and (look.retransmits or 0) >= FEW_LOSSES
    has_limit = filled_link_speed(look) or cap_above(look.known_rate) or look.run.is_loopback
    return is_alone and is_much and not has_limit


def _best_interval(look: Look) -> str:
    near = round_rate(max(look.rates, default=0.0))
    return f"; the best interval is just below {amounts.rate(near)}" if near else ""
