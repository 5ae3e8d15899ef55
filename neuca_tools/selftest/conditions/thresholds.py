"""Whether a phase reached what was expected of it, and whether its packets wait in a queue."""

# SPDX-License-Identifier: MIT

from collections.abc import Sequence
from statistics import mean
from typing import Optional

from neuca_tools.selftest.conditions.figures import is_as_requested
from neuca_tools.selftest.evidence.derive import rates_of
from neuca_tools.selftest.evidence.look import MAX_WAITS, SLICE_SECONDS, Look, steady_sockets
from neuca_tools.selftest.evidence.run import BBR

PARALLEL = "tcp-parallel"  # the phase of several streams in one direction
BIDIRECTIONAL = "tcp-bidir"  # the phase in which both directions send at once
# Of what is expected: TCP, UDP; bounds of our own. Not 0.95 for many streams: on a link of
# 10 Gbit/s they get 9.41 at most, with packets of 1500 bytes.
THROUGHPUT, DATAGRAMS = 0.90, 0.80
# Of each direction where both send at once, and of the sum of what each gets alone (D28):
# acknowledgements wait behind the data of the other direction, and with buffers of one round trip
# two-way TCP leaves a good part of the path unused (Zhang, Shenker and Clark, SIGCOMM 1991; 0.72 in
# a healthy case of tests/machine/faults).
BOTH_WAYS = 0.70
UNLIMITED_RATE = 50e9  # bit/s of UDP: who asks for so much wants to see what is possible
# Of the rate that was asked for: iperf3 did not keep to it.
EXCEEDED_RATIO = 1.5


def has_passed(look: Look) -> Optional[bool]:
    """Whether the rate is close enough to the expected one; None if either is not known."""
    if look.run.error:
        return False
    if look.phase.search or look.rate is None or look.is_unanswered:
        return None
    enough, wanted = _expected_rate(look)
    if is_held_below(look):
        return None
    if wanted is not None:
        return _mean_of_directions(look) >= enough * wanted
    # Nothing is expected, but the test may have been as fast as it was allowed to be.
    return True if is_at_target(look, enough) else None


def is_at_target(look: Look, enough: float) -> bool:
    """Whether it sent this share of what it was to send (-b), and not much more."""
    target = look.target or float("inf")
    is_enough = look.known_rate >= enough * target or is_as_requested(look)
    return is_enough and look.known_rate <= EXCEEDED_RATIO * target


def is_held_below(look: Look) -> bool:
    """Whether TCP sent as much as it was to send, which is too little to show the expected rate."""
    (enough, wanted), target = _expected_rate(look), look.target or 0.0
    if look.protocol == "udp" or not 0 < target < enough * (wanted or 0.0):
        return False
    return look.known_rate >= enough * target


def carries_expected(look: Look) -> bool:
    """Whether TCP had the expected rate for a moment, in slow start or later: the path has it.

    Where it is slower for the rest of the test, its window may not have grown back: by a segment in
    each round trip (RFC 5681, section 3.1).
    """
    expect = look.evidence.expect
    if not expect:
        return False
    return any(rate >= expect for _, rate in rates_of(look.phase.sender, look.phase))


def _expected_rate(look: Look) -> tuple[float, Optional[float]]:
    """The share that is enough, and of what: the rate expected of the path; of UDP, asked for."""
    if look.protocol == "udp":
        return DATAGRAMS, look.target if 0 < (look.target or 0) < UNLIMITED_RATE else None
    share = BOTH_WAYS if look.phase.name == BIDIRECTIONAL else THROUGHPUT
    return share, look.evidence.expect


def _mean_of_directions(look: Look) -> float:
    """bit/s: where both directions send at once, it is chance which of them gets more (see D28)."""
    rates = [flow.rate for flow in look.run.flows if flow.rate]
    is_shared = look.phase.name == BIDIRECTIONAL and len(rates) > 1
    return mean(rates) if is_shared else look.known_rate


# --- Queues ---------------------------------------------------------------------------------------


QUEUED_RATIO = 1.5  # times the idle round trip (D18)
NOISE_SECONDS = 0.001  # seconds: what a quiet host takes to respond at most
# Seconds: so much is a queue on a long path too (MAX_RTT_THRESH of RFC 9406, section 4.2).
LONG_DELAY = 0.016
IDLE_ROOM, HALF_FULL = 0.25, 0.5  # of the windows; of what the path holds, see `is_mostly_idle`
# Packets of 1500 bytes: an acknowledgement is for two (RFC 5681, section 4.2), of which the second
# waits for the first, however empty the queue is.
PAIR_BYTES = 2 * 1514
FEW_PACKETS = 4  # packets in flight, see `is_crowded`
FLAT_RTT = 1.2  # times the shortest round trip: no queue forms before packets are dropped (D17)


def is_noisy(look: Look) -> bool:
    """Whether idle round trips vary by more than what tells a queue from none."""
    shortest, usual = look.shortest_rtt, look.evidence.idle.p50
    if not shortest or not usual or (look.rtt or 0.0) <= FLAT_RTT * shortest:
        # The kernel's own round trips do not wait for the programs that measure the idle ones.
        return False
    return usual - shortest > max((FLAT_RTT - 1) * shortest, NOISE_SECONDS)


def is_queued(look: Look) -> bool:
    """Whether packets waited on the path, and not merely for a receiver that was late."""
    if not has_grown(look, QUEUED_RATIO) or is_only_a_pair(look):
        return False
    return not delays_only_itself(look) and not is_mostly_idle(look)


def has_grown(look: Look, times: float) -> bool:
    """Whether the round trip grew to so many times the shortest one, or by what is a queue."""
    shortest = look.shortest_rtt or 0.0
    return _queueing_delay(look) > min((times - 1) * shortest, LONG_DELAY)


def _queueing_delay(look: Look) -> float:
    """Seconds that packets waited, see `queueing`."""
    return ((look.queueing or 1.0) - 1) * (look.shortest_rtt or 0.0)


def is_only_a_pair(look: Look) -> bool:
    """Whether what waited is less than two packets: no queue, but a slow link."""
    return _queueing_delay(look) * (look.rate or 0.0) / 8 <= PAIR_BYTES


def has_standing_queue(look: Look) -> bool:
    """Whether every sample saw a queue.

    The path was never idle then, and the rate varies only by the way iperf3 counts.
    """
    least, shortest = look.low_rtt, look.shortest_rtt
    if least is None or shortest is None:
        return False
    # What a tenth does not exceed has waited for a CPU less often than the median.
    noise = SLICE_SECONDS / 2 if look.is_disturbed else 0.0
    return least > shortest + max(min((QUEUED_RATIO - 1) * shortest, LONG_DELAY), noise)


def delays_only_itself(look: Look) -> bool:
    """Whether requests took no longer during the test than before it: no queue delayed them."""
    if (look.phase.name, look.phase.direction) != ("tcp", "forward"):
        return False
    idle, loaded = look.evidence.idle.p50, look.evidence.loaded.p50
    if not idle or not loaded or is_noisy(look):
        return False
    return loaded - idle <= min((FLAT_RTT - 1) * idle, LONG_DELAY)


def is_bbr(look: Look) -> bool:
    """Whether the sender uses BBR, as far as is known."""
    if look.is_unsampled:
        return look.run.congestion == BBR
    return {socket.congestion for socket in steady_sockets(look)} - {None} == {BBR}


def is_crowded(look: Look) -> bool:
    """Whether the path holds only a few packets of each of several streams.

    None of them can send less, and with fewer than four in flight a loss ends in a timeout
    (RFC 5681, section 3.2, needs three acknowledgements after it).
    """
    if look.streams < 2 or not look.rate or not look.shortest_rtt:
        return False
    return look.rate * look.shortest_rtt / 8 / look.streams < FEW_PACKETS * look.mss


def is_mostly_idle(look: Look) -> bool:
    """Whether much less was in flight than the windows had room for.

    A sender fills its congestion window, except for BBR: of that, a full path has at least as much
    in flight as an empty one holds in a round trip.
    """
    in_flight, rtt = look.windows.in_flight, look.shortest_rtt
    room = min(look.windows.cwnd or 0.0, look.windows.snd_wnd or 0.0)
    if in_flight is None or not rtt or not look.rate or in_flight >= IDLE_ROOM * room:
        return False
    return not is_bbr(look) or in_flight < HALF_FULL * look.rate * rtt / 8


def is_read_late(look: Look, waits: float) -> bool:
    """Whether most of what is in flight waits to be read, longer than for a round trip or a CPU.

    It is acknowledged late and in bursts, which overflow a short queue: the sender sees loss.
    `waits` is in seconds.
    """
    in_flight, shortest = look.windows.in_flight, look.shortest_rtt
    if not in_flight or not shortest or look.is_full or look.is_disturbed:
        return False
    limit = max(shortest, MAX_WAITS * SLICE_SECONDS)
    return waits >= limit and waits * look.known_rate / 8 >= HALF_FULL * in_flight


def has_small_buffer(look: Look) -> bool:
    """Whether the buffer of -w, which iperf3 sets on both hosts, is full after SLICE_SECONDS."""
    size = look.run.buffer if look.is_unsampled and look.run.tool == "iperf3" else None
    return bool(size) and (size or 0.0) < (look.flow.sent.rate or 0.0) / 8 * SLICE_SECONDS


def upper_median(values: Sequence[float]) -> float:
    """The upper median; 0 of no values."""
    return sorted(values)[len(values) // 2] if values else 0.0
