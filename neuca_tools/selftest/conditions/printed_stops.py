"""D05, D21: nothing is delivered any more, where iperf's own figures are all that is known."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.base import FAULT, LIMIT, LOW, MEDIUM, Hit, fact
from neuca_tools.selftest.conditions.printed import BLOCK
from neuca_tools.selftest.conditions.session import Rule
from neuca_tools.selftest.conditions.udp import WHOLE, payload
from neuca_tools.selftest.evidence.look import Look
from neuca_tools.selftest.evidence.printed import ETHERNET
from neuca_tools.selftest.evidence.run import Flow, Interval, known_rates

BACKED_OFF = 3  # intervals with retransmits: the timer ran out again and again (RFC 6298)
SILENT = 0.5  # of the run
FEWEST = 10  # datagrams
# Intervals before it at least, and of their median rate each of them: not a radio that fades.
UNTIL, EVEN = 5, 0.5


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


def silenced(look: Look) -> Optional[Hit]:
    """Data went out for a while, and from then on nothing, although it was sent again."""
    flow = _flow_printed(look)
    if flow is None:
        return None
    known = [one for one in flow.intervals if one.bytes is not None]
    silent = _silent(known)
    said = _silence(known[: len(known) - len(silent)], silent)
    if said is None:
        return None
    return Hit(
        1.0,
        f"after {amounts.time(silent[0].start)} nothing more {said}: from then on, the path loses "
        "everything",
        (fact("cwnd at the end", silent[-1].cwnd), fact("intervals without data", len(silent))),
        "check the link at that time: dmesg and ethtool -S of both hosts and of devices between",
        confidence=MEDIUM,
        severity=FAULT,
    )


def _silence(before: Sequence[Interval], silent: Sequence[Interval]) -> Optional[str]:
    """In words, if the run ended in silence, as its sender or its receiver counted it."""
    if all(one.retransmits is None and one.cwnd is None for one in (*before, *silent)):
        return "arrived" if _is_cut_off(before, silent) else None
    is_long = len(silent) >= SILENT * (len(before) + len(silent))
    if len(before) < 2 or not is_long or not _is_tried(silent):
        return None
    return "was delivered, however often it was retransmitted"


def _is_cut_off(before: Sequence[Interval], silent: Sequence[Interval]) -> bool:
    """Whether an even rate stopped for good."""
    rates = known_rates(before[:-1])  # the last one has a part of it
    if len(silent) < BACKED_OFF or len(rates) < UNTIL:
        return False
    return min(rates) >= EVEN * median(rates)


def _silent(known: Sequence[Interval]) -> Sequence[Interval]:
    """The intervals after the last one with data."""
    sent = next((at + 1 for at in reversed(range(len(known))) if known[at].bytes), 0)
    return known[sent:]


def _is_tried(silent: Sequence[Interval]) -> bool:
    """Whether the sender kept trying, and its timer ran out: that leaves it one segment."""
    tries = sum(1 for one in silent if one.retransmits)
    if len(silent) < BACKED_OFF or tries < 2:
        return False
    return (silent[-1].cwnd or 0) <= ETHERNET


def stalling(look: Look) -> Optional[Hit]:
    """Nothing moves for whole intervals, again and again, at a rate that has blocks for each."""
    flow = _flow_printed(look)
    sizes = [one.bytes for one in flow.intervals if one.bytes is not None] if flow else []
    silent, size = sum(not one for one in sizes), sum(sizes)
    if look.asked or not SILENT <= silent / max(1, len(sizes)) < 1 or size < BLOCK * len(sizes):
        return None
    if not _resumes(sizes) or len(sizes) < UNTIL or _is_never_lost(flow):
        return None
    return Hit(
        0.9,
        f"nothing was delivered in {silent} of {len(sizes)} intervals, and much in the others: the "
        "path loses everything for seconds, or the link stops",
        (fact("intervals without data", silent),),
        "check the link at that time: dmesg and ethtool -S of both hosts; of a radio, its signal",
        confidence=MEDIUM,
    )


def nothing_arrives(look: Look) -> Optional[Hit]:
    """UDP: datagrams were sent, and the receiver counted none at all."""
    flow = look.flow
    if look.protocol != "udp" or look.phase.receiver or flow is None:
        return None
    sent, size = flow.sent.datagrams or 0, payload(look)
    if sent < FEWEST or flow.received.bytes or flow.received.datagrams:
        return None
    if flow.received.lost != 0 or not flow.received.seconds:
        return None  # the receiver's total is not known
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


def _is_never_lost(flow: Optional[Flow]) -> bool:
    """Whether the sender is known to have sent nothing again: what it sent waits, or is held."""
    return flow is not None and {one.retransmits for one in flow.intervals} == {0}


def _resumes(sizes: Sequence[float]) -> bool:
    """Whether there is data after silence, and before it."""
    known = [at for at, size in enumerate(sizes) if size]
    return any(later > before + 1 for before, later in zip(known, known[1:]))


PRINTED_STOPS = (
    Rule("D21", "path MTU black hole", FAULT, nothing_arrives),
    Rule("D21", "path MTU black hole", FAULT, stalled),
    Rule("D05", "limited by loss", LIMIT, silenced),
    Rule("D05", "limited by loss", LIMIT, stalling),
)
