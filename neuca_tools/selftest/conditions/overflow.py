"""D05, D18: loss, by the round trips at which packets were lost, or by BBR's even rate.

BBR sends at the rate at which data arrives, and need not fill a queue.
"""

# SPDX-License-Identifier: MIT

from typing import NamedTuple, Optional

from neuca_tools.model.printable import counted
from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions import application, figures, thresholds
from neuca_tools.selftest.conditions.base import ORDERED, Hit, Severity, single_fact
from neuca_tools.selftest.conditions.window import full_window
from neuca_tools.selftest.evidence.derive import growths_of, round_trips_of, totals_of
from neuca_tools.selftest.evidence.look import Look

# By how much a round trip grows, beyond what a busy host adds, where a sender fills a queue: a part
# of the shortest one, and seconds at least (RFC 9406, section 4.2).
RTT_GROWTH, MIN_RTT_THRESH = 0.125, 0.004
# Round trips in which what overflowed a queue is sent again.
RECOVERY_ROUND_TRIPS = 4
# Of the times at which something was lost: the share at which a queue was full.
FULL_QUEUE_SHARE = 0.5
LOSS_SHARE, BBR_SHARE = 0.9, 0.8  # of the lost time: by losses; by BBR
# Coefficient of variation of the rate: BBR's own probes for more bandwidth average out in a second.
BBR_SPREAD = 0.10
MIN_INTERVALS = 3  # intervals
# Of a CPU that others keep full: a test that uses so much of it may have needed more.
COMPETING_CPU = 0.1
# Of the bytes: a policer drops more, and BBR then sends no more than it lets pass.
BBR_LOSS = 1e-4


class Loss(NamedTuple):
    """The round trip and the bytes in flight when packets were lost."""

    rtt: float  # seconds
    in_flight: float  # bytes


def overflowing_queue(look: Look) -> Optional[Hit]:
    """A queue is full whenever packets are lost, at a rate that is less than expected."""
    if not application.is_lossy(look) or not application.is_unbounded(look) or not overflows(look):
        return None
    losses = observed_losses(look)
    highest = max(loss.in_flight * 8 / loss.rtt for loss in losses)
    if highest >= thresholds.THROUGHPUT * (look.evidence.expect or 0.0):
        return None
    rtt = thresholds.upper_median([loss.rtt for loss in losses])
    waited = amounts.time(rtt - (look.shortest_rtt or 0.0))
    return Hit(
        LOSS_SHARE * look.known_network_share,
        f"packets are lost after they waited {waited} in a queue, at about "
        f"{amounts.rate(look.known_rate)}: this is about the capacity of the path",
        (single_fact("rtt when packets were lost", rtt), look.loss_fact),
        ORDERED,
        confidence="low" if look.is_full else "medium",
    )


def overflows(look: Look) -> bool:
    """Whether a queue was full at most of the times at which packets were lost."""
    shortest = look.shortest_rtt or 0.0
    growth = max(MIN_RTT_THRESH, min(RTT_GROWTH * shortest, thresholds.LONG_DELAY))
    # So much later is an acknowledgement of two packets, with an empty queue.
    pair = thresholds.PAIR_BYTES * 8 / look.rate if look.rate else 0.0
    losses = observed_losses(look)
    full = sum(loss.rtt >= shortest + max(look.noise + growth, pair) for loss in losses)
    return bool(losses) and full >= FULL_QUEUE_SHARE * len(losses)


def observed_losses(look: Look) -> list[Loss]:
    """Each sample before which something was lost."""
    samples, phase = look.phase.sender, look.phase
    counts = growths_of(samples, phase, "total_retrans") if look.shortest_rtt else ()
    rtt_by_time = dict(round_trips_of(samples, phase))
    in_flight_by_time = dict(totals_of(samples, phase, "in_flight"))
    losses: list[Loss] = []
    ended = 0.0
    for began, _, count in counts:
        rtt = rtt_by_time.get(began)
        if count and rtt and began >= ended:
            ended = began + RECOVERY_ROUND_TRIPS * rtt
            losses.append(Loss(rtt, in_flight_by_time.get(began, 0.0)))
    return losses


def measured_by_bbr(look: Look) -> Optional[Hit]:
    """BBR keeps one rate, loses nothing, and no window, buffer, application or CPU holds it back.

    Its windows are twice of what the path holds, so that they never limit a steady flow (Cardwell
    et al., BBR: Congestion-Based Congestion Control, 2016).
    """
    if not look.rate or not _is_steady_bbr(look) or not _is_free(look):
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
    )


def _is_free(look: Look) -> bool:
    """Whether nothing of the hosts may limit it, nor a policer that dropped its first burst."""
    receiver, sender = look.windows.rwnd_limited or 0.0, look.windows.sndbuf_limited or 0.0
    if look.is_full or _competes_for_cpu(look) or thresholds.is_mostly_idle(look):
        return False
    if observed_losses(look) and not overflows(look):
        return False
    if max(receiver, sender) >= application.PACED_LIMITED:
        return False
    rules = (
        full_window,
        application.sender_buffer,
        application.slow_reader,
        application.idle_application,
    )
    return all(rule(look) is None for rule in rules)


def _competes_for_cpu(look: Look) -> bool:
    """Whether iperf used much of a CPU that other programs kept full."""
    both = (look.sender_load, look.receiver_load)
    return look.is_disturbed and any((load.own or 0.0) >= COMPETING_CPU for load in both)


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
        "congestion window follows the loss",
        (
            look.loss_fact,
            single_fact("retransmits", look.retransmits),
            single_fact("Mathis limit, bit/s", ceiling),
        ),
        FIND_LOSS,
        confidence="medium" if look.windows.rwnd_limited is None else "high",
    )


def _loss_unsampled(look: Look) -> Optional[Hit]:
    """Where only iperf counted."""
    if not figures.loss_explains(look):
        return None
    return Hit(
        0.87,
        f"{counted(look.retransmits or 0, 'segment')} lost and retransmitted, "
        f"{amounts.percent(look.known_loss)} of what was sent",
        (
            single_fact("retransmits", look.retransmits),
            single_fact("intervals with loss", look.lossy_intervals or None),
            single_fact("cwnd", look.cwnd),
        ),
        FIND_LOSS,
        confidence="medium",
    )
