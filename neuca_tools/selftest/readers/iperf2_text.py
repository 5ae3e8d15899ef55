"""What iperf 2 prints, from 2.0.2 to 2.2: totals are lines like all others, losses come in the server's report."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple, Optional

from neuca_tools.selftest.evidence.run import Connection, Flow, Interval, Run, Total
from neuca_tools.selftest.readers.gather import gather
from neuca_tools.selftest.readers.lines import (
    PREFIXES,
    Row,
    Words,
    floating,
    parse_command,
    parse_connection,
    parse_row,
)
from neuca_tools.selftest.readers.values import scaled, total, whole

MOST_LINES = 500_000
_LOSSES = re.compile(r"([\d.]{1,12}) ms\s+(-?\d{1,18})/\s*(\d{1,18})")
# -e: Write/Err Rtry Cwnd/RTT(var)
_ENHANCED = re.compile(
    r"\d{1,18}/\d{1,18}\s+(\d{1,18})\s+(\d{1,12})([KMG]?)(?:\(\d{1,12}\))?/(\d{1,12})"
)
_ORDER = re.compile(r"(\d{1,18}) datagrams received out-of-order")
_SENT = re.compile(r"Sent (\d{1,18}) datagrams")
_SENDING = re.compile(r"Sending (\d{1,9}) byte datagrams")
_PORT = re.compile(r"(?:TCP|UDP) port (\d{1,5})")
_FAILED = re.compile(
    r"(?:connect failed|write failed|bind failed|read failed): (.*)|(did not receive ack of last datagram.*)"
)


class _Text(NamedTuple):
    rows: list[Row]
    connections: list[tuple[str, str, int, str, int]]
    words: Words
    document: str


def read(document: str) -> Run:
    """The run that a text describes. Never raises: what cannot be read is the run's `error`."""
    text = _parts(document)
    udp = text.words.udp or "UDP port" in document or "datagrams" in document
    ids = {one[0] for one in text.connections}
    no_rows = None if text.rows else "no line of a result"
    return Run(
        tool="iperf",
        protocol="udp" if udp else "tcp",
        flows=_flows(text, udp),
        connections=tuple(dict.fromkeys(Connection(*one[1:]) for one in text.connections)),
        streams=text.words.streams or len(ids) or None,
        duration=text.words.duration,
        target=_target(text, udp),
        datagram=text.words.datagram or _count(_SENDING, document),
        buffer=text.words.buffer,
        error=_failure(document) or no_rows,
    )


def _failure(document: str) -> Optional[str]:
    """iperf's own reason for an error, if it printed one."""
    found = _FAILED.search(document)
    return found[1] or found[2] if found else None


def _count(pattern: re.Pattern[str], document: str) -> Optional[int]:
    """The number in the first match."""
    found = pattern.search(document)
    return int(found[1]) if found else None


def _parts(document: str) -> _Text:
    every = document.split("\n")[:MOST_LINES]
    rows = [found for line in every if (found := parse_row(line)) is not None]
    connections = [one for line in every if (one := parse_connection(line)) is not None]
    words = next(
        (said for line in every if (said := parse_command(line)) is not None), Words("iperf")
    )
    return _Text(rows, connections, words, document)


def _target(text: _Text, udp: bool) -> Optional[float]:
    """Without -b, UDP is sent at 1.05 Mbit/s (iperf's manual page), where the command line is known."""
    return (
        1_048_576.0 if udp and text.words.target is None and text.words.udp else text.words.target
    )


def _flows(text: _Text, udp: bool) -> tuple[Flow, ...]:
    """With -d or -r the connection that came in on the port that iperf serves is the other direction."""
    if not text.rows:
        return ()
    port = _PORT.search(text.document)
    incoming = {one[0] for one in text.connections if port and one[2] == int(port[1])}
    outgoing = {one[0] for one in text.connections} - incoming
    if not incoming or not outgoing:
        return (_flow("forward", text.rows, text, udp),)
    forward = [row for row in text.rows if row.id not in incoming]
    return (
        _flow("forward", forward, text, udp),
        _flow("reverse", [row for row in text.rows if row.id in incoming], text, udp),
    )


def _flow(direction: str, rows: list[Row], text: _Text, udp: bool) -> Flow:
    """A line with losses is the receiver's, whoever printed it."""
    received = [row for row in rows if udp and _LOSSES.match(row.rest)]
    sent = [row for row in rows if row not in received]
    sums, sums_received = _whole_run(sent), _whole_run(received)
    parts = [row for row in sent or received if row not in (*sums, *sums_received)]
    return Flow(
        direction,
        gather([(row, _interval(row, udp)) for row in parts or sums]),
        replace(_total(sums), datagrams=_count(_SENT, text.document)),
        replace(_total(sums_received), out_of_order=_count(_ORDER, text.document)),
    )


def _whole_run(rows: list[Row]) -> list[Row]:
    """The lines of totals look like all others: they begin at 0 and end with the run."""
    last = max((row.end for row in rows), default=0.0)
    return [row for row in rows if row.start == 0 and row.end > last - 1]


def _interval(row: Row, udp: bool) -> Interval:
    found = None if udp else _ENHANCED.match(row.rest)
    if found is None:
        return Interval(row.start, row.end, row.bytes, row.rate)
    cwnd = int(found[2]) * 1024.0 ** PREFIXES[found[3]]
    return Interval(
        row.start,
        row.end,
        row.bytes,
        row.rate,
        int(found[1]),
        cwnd or None,
        rtt=int(found[4]) * 1e-6 or None,
    )


def _total(rows: list[Row]) -> Total:
    """A [SUM] line, or the sum of the streams' lines."""
    chosen = [row for row in rows if row.id == "SUM"] or rows
    if not chosen:
        return Total()
    losses = [found for found in (_LOSSES.match(row.rest) for row in chosen) if found]
    return Total(
        seconds=chosen[0].end - chosen[0].start,
        bytes=sum(row.bytes for row in chosen),
        rate=sum(row.rate for row in chosen),
        datagrams=whole(total(int(one[3]) for one in losses)),
        lost=whole(total(max(0, int(one[2])) for one in losses)),
        jitter=scaled(floating(losses[0][1]), 1e-3) if losses else None,
    )
