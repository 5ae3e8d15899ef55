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
    streams = [
        one
        for one in mappings(document.get("streams"))
        if sender is None or one.get("sender", sender) is sender
    ]
    summed = mapping(document.get(f"sum{suffix}")) or (streams[0] if len(streams) == 1 else {})
    start, end = number(summed.get("start")), number(summed.get("end"))
    if start is None or end is None:
        return None
    jitter = scaled(number(summed.get("jitter_ms")), 1e-3)
    return Interval(
        start,
        end,
        number(summed.get("bytes")),
        number(summed.get("bits_per_second")),
        whole(summed.get("retransmits")),
        total(_known(one, "snd_cwnd") for one in streams),
        total(_known(one, "snd_wnd") for one in streams),
        scaled(mean(_known(one, "rtt") for one in streams), 1e-6),
        min((int(one["pmtu"]) for one in streams if _known(one, "pmtu")), default=None),
        whole(summed.get("packets")),
        whole(summed.get("lost_packets")),
        jitter,
        summed.get("omitted") is True,
    )


def _known(stream: Mapping[str, Any], key: str) -> Optional[float]:
    """Zero is what iperf3 writes where the kernel or its own end has no value."""
    return number(stream.get(key)) or None


def _totals(end: Mapping[str, Any], suffix: str, sender: Optional[bool]) -> tuple[Total, Total]:
    """Of UDP, 3.7 and 3.9 have `sum` alone: what was sent, with the receiver's count of losses."""
    both = mapping(end.get(f"sum{suffix}"))
    sent = mapping(end.get(f"sum_sent{suffix}")) or both
    received = mapping(end.get(f"sum_received{suffix}"))
    out_of_order = total(
        _out_of_order(one)
        for one in mappings(end.get("streams"))
        if sender is None or mapping(one.get("udp")).get("sender", sender) is sender
    )
    first = _total(sent)
    if not received and number(both.get("lost_percent")) is not None:
        return first, replace(
            arrived(first, whole(both.get("lost_packets")), first.datagrams),
            out_of_order=whole(out_of_order),
        )
    second = _total(received)
    lost = whole(both.get("lost_packets")) if second.lost is None else second.lost
    datagrams = whole(both.get("packets")) if second.datagrams is None else second.datagrams
    if (
        first.datagrams
        and datagrams is not None
        and lost is not None
        and first.datagrams - datagrams > TAIL * first.datagrams
    ):
        datagrams, lost = first.datagrams, lost + first.datagrams - datagrams
    return first, Total(
        second.seconds,
        second.bytes,
        second.rate,
        None,
        datagrams,
        lost,
        whole(out_of_order),
        second.jitter,
    )


def _out_of_order(stream: Mapping[str, Any]) -> Optional[float]:
    return number(mapping(stream.get("udp")).get("out_of_order"))


def _total(summed: Mapping[str, Any]) -> Total:
    seconds = number(summed.get("seconds"))
    jitter = scaled(number(summed.get("jitter_ms")), 1e-3)
    return Total(
        seconds,
        number(summed.get("bytes")),
        number(summed.get("bits_per_second")),
        whole(summed.get("retransmits")),
        whole(summed.get("packets")),
        whole(summed.get("lost_packets")),
        None,
        jitter,
    )
