"""One direction of an iperf3 JSON document: its intervals, and what each end counted."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Optional

from neuca_tools.selftest.evidence.run import Flow, Interval, Total
from neuca_tools.selftest.readers.gather import arrived
from neuca_tools.selftest.readers.values import (
    mapping,
    mappings,
    mean,
    number,
    scaled,
    total,
    whole,
)

MOST_INTERVALS = 200_000
# The receiver counts the gaps in what it gets: of what comes after the last datagram that it got it knows nothing. So much of a
# test may just be on its way at the end.
TAIL = 0.1


def flow(
    document: Mapping[str, Any], direction: str, suffix: str = "", sender: Optional[bool] = None
) -> Flow:
    """`suffix` is how this direction's sums are called, `sender` whether its streams are those that send (None: all)."""
    end = mapping(document.get("end"))
    intervals = [
        _interval(one, suffix, sender)
        for one in mappings(document.get("intervals"))[:MOST_INTERVALS]
    ]
    sent, received = _totals(end, suffix, sender)
    return Flow(
        direction,
        tuple(one for one in intervals if one is not None),
        replace(sent, lost=None, jitter=None),
        received,
    )


def with_windows(heard: Flow, told: Flow) -> Flow:
    """In reverse the windows are the server's to know: its own output has them, where it was asked for."""
    theirs = {round(one.start): one for one in told.intervals}
    merged = []
    for one in heard.intervals:
        other = theirs.get(round(one.start), one)
        merged.append(
            replace(
                one,
                retransmits=other.retransmits,
                cwnd=other.cwnd,
                snd_wnd=other.snd_wnd,
                rtt=other.rtt,
                pmtu=other.pmtu,
            )
        )
    return replace(heard, intervals=tuple(merged))


def _interval(
    document: Mapping[str, Any], suffix: str, sender: Optional[bool]
) -> Optional[Interval]:
    streams = _streams(document, sender)
    summed = mapping(document.get(f"sum{suffix}")) or (streams[0] if len(streams) == 1 else {})
    start, end = number(summed.get("start")), number(summed.get("end"))
    if start is None or end is None:
        return None
    return Interval(
        start,
        end,
        bytes=number(summed.get("bytes")),
        rate=number(summed.get("bits_per_second")),
        retransmits=whole(summed.get("retransmits")),
        cwnd=total(_known(one, "snd_cwnd") for one in streams),
        snd_wnd=total(_known(one, "snd_wnd") for one in streams),
        rtt=scaled(mean(_known(one, "rtt") for one in streams), 1e-6),
        pmtu=min((int(one["pmtu"]) for one in streams if _known(one, "pmtu")), default=None),
        datagrams=whole(summed.get("packets")),
        lost=whole(summed.get("lost_packets")),
        jitter=scaled(number(summed.get("jitter_ms")), 1e-3),
        omitted=summed.get("omitted") is True,
    )


def _streams(document: Mapping[str, Any], sender: Optional[bool]) -> list[Mapping[str, Any]]:
    """The streams of an interval that send, or receive; all if `sender` is None."""
    every = mappings(document.get("streams"))
    return [one for one in every if sender is None or one.get("sender", sender) is sender]


def _known(stream: Mapping[str, Any], key: str) -> Optional[float]:
    """Zero is what iperf3 writes where the kernel or its own end has no value."""
    return number(stream.get(key)) or None


def _totals(end: Mapping[str, Any], suffix: str, sender: Optional[bool]) -> tuple[Total, Total]:
    """What was sent, and what was received.

    For UDP, 3.7 and 3.9 write only `sum`: what was sent, with the receiver's count of losses.
    """
    both = mapping(end.get(f"sum{suffix}"))
    sent = _total(mapping(end.get(f"sum_sent{suffix}")) or both)
    out_of_order = _out_of_order(end, sender)
    received = mapping(end.get(f"sum_received{suffix}"))
    if not received and number(both.get("lost_percent")) is not None:
        found = arrived(sent, whole(both.get("lost_packets")), sent.datagrams)
        return sent, replace(found, out_of_order=out_of_order)
    found = _total(received)
    lost = whole(both.get("lost_packets")) if found.lost is None else found.lost
    datagrams = whole(both.get("packets")) if found.datagrams is None else found.datagrams
    missing = _missing_tail(sent.datagrams, datagrams)
    if missing and lost is not None:
        datagrams, lost = sent.datagrams, lost + missing
    return sent, replace(
        found, retransmits=None, datagrams=datagrams, lost=lost, out_of_order=out_of_order
    )


def _missing_tail(sent: Optional[int], counted: Optional[int]) -> int:
    """How many datagrams were lost after the last one that was received; 0 if few are missing."""
    if not sent or counted is None or sent - counted <= TAIL * sent:
        return 0
    return sent - counted


def _out_of_order(end: Mapping[str, Any], sender: Optional[bool]) -> Optional[int]:
    streams = (mapping(one.get("udp")) for one in mappings(end.get("streams")))
    chosen = (one for one in streams if sender is None or one.get("sender", sender) is sender)
    return whole(total(number(one.get("out_of_order")) for one in chosen))


def _total(summed: Mapping[str, Any]) -> Total:
    return Total(
        seconds=number(summed.get("seconds")),
        bytes=number(summed.get("bytes")),
        rate=number(summed.get("bits_per_second")),
        retransmits=whole(summed.get("retransmits")),
        datagrams=whole(summed.get("packets")),
        lost=whole(summed.get("lost_packets")),
        jitter=scaled(number(summed.get("jitter_ms")), 1e-3),
    )
