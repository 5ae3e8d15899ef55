"""D21: nothing is delivered, where iperf's own figures are all that is known."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.base import LOW, MEDIUM, Hit, fact
from neuca_tools.selftest.conditions.udp import WHOLE, payload
from neuca_tools.selftest.evidence.look import Look
from neuca_tools.selftest.evidence.printed import ETHERNET
from neuca_tools.selftest.evidence.run import Flow, Interval

BACKED_OFF = 3  # intervals with retransmits: the timer ran out again and again (RFC 6298)
FEWEST = 10  # datagrams


def stalled(look: Look) -> Optional[Hit]:
    """The first window went out, and nothing after it."""
    flow = _flow_printed(look)
    if flow is None:
        return None
    first, last = _stall(flow)
    if first is None or last is None:
        return None
    begin = f"after the first {amounts.size(first.bytes)} " if first.bytes else ""
    return Hit(
        1.0,
        f"{begin}nothing was delivered, however often retransmitted: the path drops full-size"
        " packets (MTU), or all packets",
        (fact("cwnd at the end", last.cwnd), fact("bytes", first.bytes)),
        'set the MTU of the path, or let ICMP "fragmentation needed" through; ping -M do -s '
        "1472 tells",
        confidence=MEDIUM,
        sysctls={"net.ipv4.tcp_mtu_probing": "1"},
    )


def _flow_printed(look: Look) -> Optional[Flow]:
    """That of a TCP run of which no host was sampled; `printed` needs a rate."""
    if look.protocol != "tcp" or look.phase.sender or look.phase.receiver:
        return None
    return look.flow


def _stall(flow: Flow) -> tuple[Optional[Interval], Optional[Interval]]:
    """The only interval with data and the last one, if the sender kept trying in between.

    Of a text that begins later, all intervals are without data.
    """
    known = [one for one in flow.intervals if one.bytes is not None]
    if len(known) < 2 or any(one.bytes for one in known[1:]):
        return None, None
    if known[0].start > 0 and (known[0].bytes or not flow.intervals[-1].cwnd):
        return None, None
    return (known[0], known[-1]) if _is_timed_out(known) else (None, None)


def _is_timed_out(known: Sequence[Interval]) -> bool:
    """Whether the sender's timer ran out; of two intervals, in each of them."""
    tries = sum(1 for one in known if one.retransmits)
    window = known[-1].cwnd
    if not tries or tries < len(known) == 2:
        return False
    return window is None or window <= ETHERNET or tries >= BACKED_OFF


def nothing_arrives(look: Look) -> Optional[Hit]:
    """UDP: datagrams were sent, and the receiver counted none at all."""
    flow = look.flow
    if look.protocol != "udp" or look.phase.receiver or flow is None:
        return None
    sent, size, received = flow.sent.datagrams or 0, payload(look), flow.received
    is_known = received.lost == 0 and bool(received.seconds)
    if sent < FEWEST or not is_known or any((received.bytes, received.datagrams)):
        return None
    return Hit(
        1.0,
        f"none of {sent} datagrams of {size:.0f} bytes arrived, although the control connection "
        "works: fragments, or packets larger than the path's MTU, are dropped, or a filter drops "
        "UDP",
        (fact("sent", sent), fact("bytes received", 0)),
        "iperf3 -u -l 1200: if these arrive, it is the MTU or a fragment filter; else look for a "
        "firewall",
        confidence=MEDIUM if size > WHOLE else LOW,
    )
