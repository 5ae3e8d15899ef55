"""One direction of iperf3's JSON: its intervals, and what each end counted."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Optional

from neuca_tools.selftest.evidence.run import Flow, Interval, Total
from neuca_tools.selftest.readers import values
from neuca_tools.selftest.readers.gather import received_total, without_zeros

Json = Mapping[str, Any]
MOST_INTERVALS = 200_000
# What only the sender knows of an interval of TCP.
WINDOWS = ("retransmits", "cwnd", "snd_wnd", "rtt", "pmtu")
# The receiver counts gaps between datagrams, and so misses those lost after the last one that it
# received. This share of them may still be in flight when the test ends.
MOST_IN_FLIGHT = 0.1


def read_flow(
    document: Json, direction: str, suffix: str = "", sender: Optional[bool] = None
) -> Flow:
    """One direction; `suffix` is that of its sums' keys.

    `sender` selects the streams whose own end sends (True) or receives (False); None selects all.
    """
    every = values.mappings(document.get("intervals"))[:MOST_INTERVALS]
    intervals = tuple(
        filter(None, (_read_interval(interval, suffix, sender) for interval in every))
    )
    totals = _read_totals(
        values.mapping(document.get("end")), suffix, sender, _is_of_server(document)
    )
    sent, received = (without_zeros(end_total, intervals) for end_total in totals)
    return Flow(direction, intervals, replace(sent, lost=None, jitter=None), received)


def with_counts(flow: Flow, server: Flow, names: Sequence[str]) -> Flow:
    """Take these fields of each interval from the server, because only it knows them."""
    by_start = {round(interval.start): interval for interval in server.intervals}
    merged = []
    for interval in flow.intervals:
        other = by_start.get(round(interval.start), interval)
        merged.append(replace(interval, **{name: getattr(other, name) for name in names}))
    return replace(flow, intervals=tuple(merged))


def _read_interval(document: Json, suffix: str, sender: Optional[bool]) -> Optional[Interval]:
    streams = _select_streams(values.mappings(document.get("streams")), sender)
    summed = values.mapping(document.get(f"sum{suffix}"))
    if not summed and len(streams) == 1:
        summed = streams[0]
    start, end = values.parse_number(summed.get("start")), values.parse_number(summed.get("end"))
    if start is None or end is None:
        return None
    amounts = _read_total(summed)
    pmtu = min(
        (value for stream in streams if (value := positive_number(stream, "pmtu"))), default=None
    )
    return Interval(
        start,
        end,
        bytes=amounts.bytes,
        rate=amounts.rate,
        retransmits=amounts.retransmits,
        cwnd=values.known_sum(positive_number(stream, "snd_cwnd") for stream in streams),
        snd_wnd=values.known_sum(positive_number(stream, "snd_wnd") for stream in streams),
        rtt=values.scaled(
            values.known_mean(positive_number(stream, "rtt") for stream in streams), 1e-6
        ),
        pmtu=values.parse_whole(pmtu),
        datagrams=amounts.datagrams,
        lost=amounts.lost,
        jitter=amounts.jitter,
        omitted=summed.get("omitted") is True,
    )


def _select_streams(streams: list[Json], sender: Optional[bool]) -> list[Json]:
    """The streams whose end is `sender`; one that does not say so belongs to either."""
    return [
        stream for stream in streams if sender is None or stream.get("sender", sender) is sender
    ]


def positive_number(document: Json, key: str) -> Optional[float]:
    """iperf3 writes zero where the kernel or its own end has no value."""
    return values.parse_number(document.get(key)) or None


def _is_of_server(document: Json) -> bool:
    """Whether a server wrote this, which does not know what its client received."""
    return bool(values.mapping(values.mapping(document.get("start")).get("accepted_connection")))


def _read_totals(
    end: Json, suffix: str, sender: Optional[bool], is_of_server: bool
) -> tuple[Total, Total]:
    """What was sent, and what was received.

    For UDP, 3.7 and 3.9 write only `sum`: what was sent, with the receiver's count of losses.
    """
    both = values.mapping(end.get(f"sum{suffix}"))
    sent = _read_total(values.mapping(end.get(f"sum_sent{suffix}")) or both)
    summed = values.mapping(end.get(f"sum_received{suffix}"))
    if is_of_server and summed and not values.parse_number(summed.get("bytes")):
        return sent, Total()
    if not summed and values.parse_number(both.get("lost_percent")) is not None:
        received = received_total(
            sent, values.parse_whole(both.get("lost_packets")), sent.datagrams
        )
    else:
        # Where the receiver's sum lacks a number, `sum` may have it.
        received = _with_missing_tail(_read_total({**both, **summed}), sent.datagrams)
    return sent, replace(received, out_of_order=_out_of_order(end, sender))


def _with_missing_tail(received: Total, sent: Optional[int]) -> Total:
    """Count the datagrams that were lost after the last one that was received."""
    if not sent or received.datagrams is None or received.lost is None:
        return received
    missing = sent - received.datagrams
    if missing <= MOST_IN_FLIGHT * sent:
        return received
    return replace(received, datagrams=sent, lost=received.lost + missing)


def _out_of_order(end: Json, sender: Optional[bool]) -> Optional[int]:
    streams = [values.mapping(stream.get("udp")) for stream in values.mappings(end.get("streams"))]
    return values.parse_whole(
        values.known_sum(
            values.parse_number(stream.get("out_of_order"))
            for stream in _select_streams(streams, sender)
        )
    )


def _read_total(summed: Json) -> Total:
    return Total(
        seconds=values.parse_number(summed.get("seconds")),
        bytes=values.parse_number(summed.get("bytes")),
        rate=values.parse_number(summed.get("bits_per_second")),
        retransmits=values.parse_whole(summed.get("retransmits")),
        datagrams=values.parse_whole(summed.get("packets")),
        lost=values.parse_whole(summed.get("lost_packets")),
        jitter=values.scaled(values.parse_number(summed.get("jitter_ms")), 1e-3),
    )
