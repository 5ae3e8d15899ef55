"""D21: nothing gets through but small packets, by probes, sockets or iperf's figures."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.base import HIGH, MEDIUM, Hit, single_fact
from neuca_tools.selftest.conditions.errors import is_refused
from neuca_tools.selftest.conditions.session import Session, first_hit, smallest_mtu
from neuca_tools.selftest.evidence.look import Look
from neuca_tools.selftest.evidence.run import JUMBO_FRAME, Flow, Interval

BACKED_OFF = 3  # intervals with retransmits: the timer ran out again and again (RFC 6298)
DEAD = 1e6  # bytes in a whole test: no more than what fits into small packets (D21)
THROUGH = 8e6  # bit/s: a flow that hangs never carries so much (D21)


def _stalled_hit(look: Look) -> Optional[Hit]:
    """By iperf's figures alone: the first window went out, and nothing after it."""
    if look.protocol != "tcp" or look.is_sampled:
        return None
    first, last = _stalled_interval(look.flow)
    if first is None or last is None:
        return None
    begin = f"after the first {amounts.size(first.bytes)} " if first.bytes else ""
    return Hit(
        1.0,
        f"{begin}nothing was delivered, however often retransmitted: the path drops full-size"
        " packets (MTU), or all packets",
        (single_fact("cwnd at the end", last.cwnd), single_fact("bytes", first.bytes)),
        'set the MTU of the path, or let ICMP "fragmentation needed" through; ping -M do -s '
        "1472 tells",
        confidence=MEDIUM,
        sysctls={"net.ipv4.tcp_mtu_probing": "1"},
    )


def _stalled_interval(flow: Flow) -> tuple[Optional[Interval], Optional[Interval]]:
    """The only interval with data and the last one, if the sender kept trying in between.

    Of a text that begins later, all intervals are without data.
    """
    known = [interval for interval in flow.intervals if interval.bytes is not None]
    if len(known) < 2 or any(interval.bytes for interval in known[1:]):
        return None, None
    if known[0].start > 0 and (known[0].bytes or not flow.intervals[-1].cwnd):
        return None, None
    return (known[0], known[-1]) if _is_timed_out(known) else (None, None)


def _is_timed_out(known: Sequence[Interval]) -> bool:
    """Whether the sender's timer ran out; of two intervals, in each of them."""
    tries = sum(1 for interval in known if interval.retransmits)
    window = known[-1].cwnd
    if not tries or tries < len(known) == 2:
        return False
    return window is None or window <= JUMBO_FRAME or tries >= BACKED_OFF


def black_hole(session: Session) -> Optional[Hit]:
    """Large packets are dropped on the path, and no ICMP message reports it."""
    probed, mtu = probed_mtu(session), smallest_mtu(session.links)
    unreported = is_unreported(session)
    # If packets of full size were acknowledged, something else holds TCP up.
    suspects = session.tcp if probed is None or is_less(session) else ()
    stuck = next(filter(_is_stuck, suspects), None)
    if stuck is None and (not unreported or gets_through(session) or is_refused(session)):
        return first_hit(map(_stalled_hit, session.looks))
    above = f" above {probed} bytes" if probed else ""
    return Hit(
        1.0,
        f"packets{above} are dropped on the path without an ICMP message: connections open, then "
        "hang",
        (
            single_fact("path MTU, acknowledged", probed),
            single_fact("MTU of the interfaces", mtu),
            stuck.sender_fact("TcpExt.TCPTimeouts") if stuck else None,
        ),
        'set the MTU of the path, or let ICMP "fragmentation needed" through',
        confidence=HIGH if unreported else MEDIUM,
        sysctls={"net.ipv4.tcp_mtu_probing": "1"},
    )


def is_less(session: Session) -> bool:
    """Whether the path carries smaller packets than the interfaces do."""
    probed, mtu = probed_mtu(session), smallest_mtu(session.links)
    return probed is not None and mtu is not None and probed < mtu


def is_unreported(session: Session) -> bool:
    return is_less(session) and session.evidence.path_mtu.told is not True


def gets_through(session: Session) -> bool:
    """Whether TCP was fast all the same, by MTU probing, MSS clamping or the MTU of a route."""
    return any((look.rate or 0) > THROUGH for look in session.tcp)


def probed_mtu(session: Session) -> Optional[int]:
    """Bytes: the largest packet that gets through in both directions, as far as it was measured."""
    measured = session.evidence.path_mtu
    return min(filter(None, (measured.forward, measured.backward)), default=None)


def _is_stuck(look: Look) -> bool:
    """Whether a TCP test backed off again and again after what fits into a few small packets."""
    sockets = look.phase.sender[-1].sockets if look.phase.sender else ()
    backoff = max((socket.backoff or 0 for socket in sockets), default=0)
    return backoff >= 2 and sum(socket.bytes_acked or 0 for socket in sockets) < DEAD
