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
from neuca_tools.selftest.readers.values import total, whole

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
    """The run that a text tells of. Never raises: what cannot be read is the run's `error`."""
    text = _parts(document)
    udp = text.words.udp or "UDP port" in document or "datagrams" in document
    ids = {one[0] for one in text.connections}
    datagram, failed = _SENDING.search(document), _FAILED.search(document)
    error = failed[1] or failed[2] if failed else None
    return Run(
        "iperf",
        None,
        "udp" if udp else "tcp",
        _flows(text, udp),
        tuple(dict.fromkeys(Connection(*one[1:]) for one in text.connections)),
        text.words.streams or len(ids) or None,
        text.words.duration,
        _target(text, udp),
        text.words.datagram or (int(datagram[1]) if datagram else None),
        text.words.buffer,
        error=error or (None if text.rows else "no line of a result"),
    )


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
    heard = [row for row in rows if udp and _LOSSES.match(row.rest)]
    said = [row for row in rows if row not in heard]
    totals = _whole_run(said)
    parts = [
        row for row in said or heard if row not in totals and row not in _whole_run(heard)
    ] or totals
    counted, disorder = _SENT.search(text.document), _ORDER.search(text.document)
    sent = replace(_total(totals), datagrams=int(counted[1]) if counted else None)
    received = replace(
        _total(_whole_run(heard)), out_of_order=int(disorder[1]) if disorder else None
    )
    return Flow(direction, gather([(row, _interval(row, udp)) for row in parts]), sent, received)


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
    """A [SUM] line, or the streams' lines added up."""
    chosen = [row for row in rows if row.id == "SUM"] or rows
    if not chosen:
        return Total()
    losses = [found for row in chosen if (found := _LOSSES.match(row.rest)) is not None]
    jitter = floating(losses[0][1]) if losses else None
    return Total(
        chosen[0].end - chosen[0].start,
        sum(row.bytes for row in chosen),
        sum(row.rate for row in chosen),
        None,
        whole(total(int(one[3]) for one in losses)),
        whole(total(max(0, int(one[2])) for one in losses)),
        jitter=None if jitter is None else jitter / 1000,
    )
