"""What iperf3 prints for people, with or without the command line that was pasted along with it."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple, Optional

from neuca_tools.selftest.evidence.run import Connection, Flow, Interval, Run, Total
from neuca_tools.selftest.readers.gather import arrived, gather
from neuca_tools.selftest.readers.lines import (
    LONGEST_LINE,
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
BEGINNING = 10_000  # characters, in which versions and options are looked for
_ERROR = re.compile(r"iperf3: (?:error - )?(.*)")
_VERSION = re.compile(r"iperf (3\.[\w.+-]{1,20})")
_TCP_REST = re.compile(r"(\d{1,12})(?:\s+([\d.]{1,12})\s*([KMGT]?)Bytes)?$")
_UDP_REST = re.compile(r"([\d.]{1,12}) ms\s+(-?\d{1,18})/\s*(\d{1,18})")
_TARGET = re.compile(r"Target Bitrate: (\d{1,18})")
_CPU = re.compile(
    r"CPU Utilization: local/\w{6,8} ([\d.]{1,9})%[^,]{0,40}, remote/\w{6,8} ([\d.]{1,9})%"
)


def read(document: str) -> Run:
    """The run that a text describes. Never raises: what cannot be read is the run's `error`."""
    every = document.split("\n")[:MOST_LINES]
    rows = [(line, found) for line in every if (found := parse_row(line)) is not None]
    commands = (parse_command(line) for line in every)
    words = next(filter(None, commands), Words("iperf3"))
    udp = words.udp or "Datagrams" in document
    reverse = words.reverse or "Reverse mode" in document
    version = _VERSION.search(document[:BEGINNING])
    connections = _connections(every)
    local, remote = _cpus(document)
    return Run(
        tool="iperf3",
        version=version[1] if version else None,
        protocol="udp" if udp else "tcp",
        flows=tuple(_flows([found for _, found in rows], reverse, udp)),
        connections=connections,
        streams=words.streams or _streams(rows, connections),
        duration=words.duration,
        target=_target(document) if words.target is None else words.target,
        datagram=words.datagram,
        buffer=words.buffer,
        cpu_local=local,
        cpu_remote=remote,
        error=_error(every, [line for line, _ in rows], document),
    )


def _error(every: list[str], rows: list[str], document: str) -> Optional[str]:
    said = next(
        (found[1].strip() for line in every if (found := _ERROR.search(line[:LONGEST_LINE]))), None
    )
    if said is not None:
        return said
    if not rows:
        return "no line of a result"
    ended = "Sent " in document or any(
        line.rstrip().endswith(("sender", "receiver")) for line in rows
    )
    return None if ended else "the text ends before the summary of the run"


def _cpus(document: str) -> tuple[Optional[float], Optional[float]]:
    """`-V` says them, of the local and of the remote process."""
    found = _CPU.search(document[-BEGINNING:])
    return (floating(found[1]), floating(found[2])) if found else (None, None)


def _streams(rows: list[tuple[str, Row]], connections: tuple[Connection, ...]) -> Optional[int]:
    """With --bidir there is one more connection for each stream."""
    return len(connections) // (2 if any(found.role for _, found in rows) else 1) or None


def _target(document: str) -> Optional[float]:
    """`-V` says it."""
    found = _TARGET.search(document[:BEGINNING])
    return float(found[1]) if found else None


def _connections(every: list[str]) -> tuple[Connection, ...]:
    found = [connection for line in every if (connection := parse_connection(line)) is not None]
    return tuple(dict.fromkeys(Connection(*one[1:]) for one in found))


def _flows(rows: list[Row], reverse: bool, udp: bool) -> list[Flow]:
    """One flow, or one for each of TX-C and RX-C."""
    if any(row.role for row in rows):
        return [
            _flow("forward", [row for row in rows if row.role in ("TX-C", "RX-S")], udp),
            _flow("reverse", [row for row in rows if row.role in ("RX-C", "TX-S")], udp),
        ]
    return [_flow("reverse" if reverse else "forward", rows, udp)] if rows else []


def _flow(direction: str, rows: list[Row], udp: bool) -> Flow:
    ends = [row for row in rows if row.rest.endswith(("sender", "receiver"))]
    old = [] if ends or not udp else _old_udp_end(rows)
    parts = [(row, _interval(row, udp)) for row in rows if row not in (*ends, *old)]
    if old:
        sent = _total(old, udp)
        received = arrived(sent, sent.lost, sent.datagrams)
    else:
        sent = _total([row for row in ends if row.rest.endswith("sender")], udp)
        received = _total([row for row in ends if row.rest.endswith("receiver")], udp)
    return Flow(direction, gather(parts), replace(sent, lost=None, jitter=None), received)


def _old_udp_end(rows: list[Row]) -> list[Row]:
    """Before iperf3 3.7 a UDP run ended in one line without a name, over the whole time, with the receiver's losses."""
    last = max((row.end for row in rows), default=0.0)
    return [row for row in rows if row.start == 0 and row.end == last and _UDP_REST.match(row.rest)]


class Rest(NamedTuple):
    """What follows the rate of one line."""

    retransmits: Optional[int] = None
    cwnd: Optional[float] = None
    datagrams: Optional[int] = None
    lost: Optional[int] = None
    jitter: Optional[float] = None


def _rest(row: Row, udp: bool) -> Rest:
    words = row.rest.replace("(omitted)", "").replace("sender", "").replace("receiver", "").strip()
    losses = _UDP_REST.match(words)
    if losses is not None:
        jitter = floating(losses[1])
        return Rest(
            None,
            None,
            int(losses[3]),
            max(0, int(losses[2])),
            None if jitter is None else jitter / 1000,
        )
    found = _TCP_REST.match(words)
    if found is None:
        return Rest()
    if udp:
        return Rest(datagrams=int(found[1]))
    amount = floating(found[2]) if found[2] else None
    return Rest(
        int(found[1]), None if amount is None else amount * 1024 ** PREFIXES[found[3].upper()]
    )


def _interval(row: Row, udp: bool) -> Interval:
    rest = _rest(row, udp)
    return Interval(
        row.start,
        row.end,
        row.bytes,
        row.rate,
        rest.retransmits,
        rest.cwnd,
        datagrams=rest.datagrams,
        lost=rest.lost,
        jitter=rest.jitter,
        omitted="(omitted)" in row.rest,
    )


def _total(ends: list[Row], udp: bool) -> Total:
    """A [SUM] line, or the streams' lines added up."""
    chosen = [row for row in ends if row.id == "SUM"] or ends
    if not chosen:
        return Total()
    rests = [_rest(row, udp) for row in chosen]
    return Total(
        chosen[0].end - chosen[0].start,
        sum(row.bytes for row in chosen),
        sum(row.rate for row in chosen),
        whole(total(rest.retransmits for rest in rests)),
        whole(total(rest.datagrams for rest in rests)),
        whole(total(rest.lost for rest in rests)),
        jitter=rests[0].jitter,
    )
