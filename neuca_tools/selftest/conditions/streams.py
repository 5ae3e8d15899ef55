"""What is known of a test's streams: their algorithm, and whether the path has room for them."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Sequence

from neuca_tools.selftest.conditions.session import Session
from neuca_tools.selftest.evidence.look import SLICE, WAITS, Look, steady_sockets

DEFAULT_MSS = 1448  # bytes: TCP's payload at MTU 1500 with timestamps, where the MSS is not known
ROOM, HALF = 0.25, 0.5  # of the windows; of what the path holds, see `is_mostly_idle`
# Packets of 1500 bytes: an acknowledgement is for two (RFC 5681, section 4.2), of which the second
# waits for the first, however empty the queue is.
PAIR = 2 * 1514
AS_FAST, LOSING = 0.1, 0.005  # of the rate, of the bytes (D17)
FEW = 4  # packets in flight, see `is_crowded`


def is_bbr(look: Look) -> bool:
    """Whether the sender uses BBR, as far as is known."""
    return {one.congestion for one in steady_sockets(look)} - {None} == {"bbr"}


def is_crowded(look: Look) -> bool:
    """Whether the path holds only a few packets of each of several streams.

    None of them can send less, and with fewer than four in flight a loss ends in a timeout
    (RFC 5681, section 3.2, needs three acknowledgements after it).
    """
    streams = (look.phase.run and look.phase.run.streams) or 1
    if streams < 2 or not look.rate or not look.round_trip.shortest:
        return False
    share = look.rate * look.round_trip.shortest / 8 / streams
    return share < FEW * (look.windows.mss or DEFAULT_MSS)


def is_mostly_idle(look: Look) -> bool:
    """Whether much less was in flight than the windows had room for.

    A sender fills its congestion window, except for BBR: of that, a full path has at least as much
    in flight as an empty one holds in a round trip.
    """
    in_flight, rtt = look.windows.in_flight, look.round_trip.shortest
    room = min(look.windows.cwnd or 0.0, look.windows.snd_wnd or 0.0)
    if in_flight is None or not rtt or not look.rate or in_flight >= ROOM * room:
        return False
    return not is_bbr(look) or in_flight < HALF * look.rate * rtt / 8


def is_read_late(look: Look, waits: float) -> bool:
    """Whether most of what is in flight waits to be read, longer than for a round trip or a CPU.

    It is acknowledged late and in bursts, which overflow a short queue: the sender sees loss.
    `waits` is in seconds.
    """
    in_flight, shortest = look.windows.in_flight, look.round_trip.shortest
    if not in_flight or not shortest or not look.rate or look.is_full or look.is_disturbed:
        return False
    return waits >= max(shortest, WAITS * SLICE) and waits * look.rate / 8 >= HALF * in_flight


def several_carry_no_more(session: Session, one: Look) -> bool:
    """Whether several streams in this direction lose as well, and have the rate of this one."""
    many = session.named("tcp-parallel", one.phase.direction)
    if many is None or not many.rate or not one.rate or (many.loss or 0.0) < LOSING:
        return False
    return abs(many.rate - one.rate) <= AS_FAST * one.rate


def middle(values: Sequence[float]) -> float:
    """The upper median; 0 of no values."""
    return sorted(values)[len(values) // 2] if values else 0.0
