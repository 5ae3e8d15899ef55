"""The text output of iperf 2, from 2.0.2 to 2.2.

Lines with totals look like all others; the losses of a UDP test are in the server's report.
"""

# SPDX-License-Identifier: MIT

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Optional

from neuca_tools.selftest.evidence.run import Direction, Flow, Run
from neuca_tools.selftest.readers import lines
from neuca_tools.selftest.readers.gather import Line, gather_intervals, total_of
from neuca_tools.selftest.readers.lines import Rest, Row, Text, Words
from neuca_tools.selftest.readers.values import parse_whole

UDP_TARGET = 1_048_576.0  # bit/s of a UDP test without -b (iperf(1))
# With -e: Write/Err Rtry Cwnd/RTT(var), from 2.1 with a count of packets, from 2.2 with InF before.
_ENHANCED = re.compile(
    r"\d{1,18}/\d{1,18}\s+(\d{1,18})\s+(?:[^\s/]{1,40}/)?"
    r"(-?\d{1,12})([KMG]?)(?:\(-?\d{1,12}\))?/\s*(\d{1,12})"
)
_WINDOW = re.compile(r"TCP window size: *([\d.]{1,12}) ([KMG]?)Byte(?! \(default\))")
_PEER = re.compile(r"(?:Client connecting to|connected with) ([^\s,]{1,80})")
_ORDER = re.compile(r"(\d{1,18}) datagrams received out-of-order")
# What iperf 2.1 and later print of a new connection: its MSS and first round trip in microseconds.
_FIRST = re.compile(r"\(icwnd/mss/irtt=\d{1,9}/(\d{2,5})/(\d{1,9})\)")
_SENT = re.compile(r"Sent (\d{1,18}) datagrams")
_SENDING = re.compile(r"Sending (\d{1,9}) byte datagrams")
_PORT = re.compile(r"(?:TCP|UDP) port (\d{1,5})")
_FAILED = re.compile(
    r"(?:connect|write\d?|bind|read|recvn?)(?: to \S{1,80} port \d{1,5})? failed:?"
    r" *\(?([^)\n]{1,200})"
)
# 2.0 counts a write that failed as -1 byte, and prints a sum below zero as one of 64 bits.
_NEGATIVE = re.compile(r"sec +(?:18446744073709|18014398509481|17592186044)\d")
# Of a bounce-back test, whose rate counts both directions.
_BURSTS = re.compile(r"Bursting: *(\d{1,9}) Byte writes (\d{1,9}) times every ([\d.]{1,12}) second")
_DUALTEST = re.compile(r"(?:^|\s)(?:-d|--dualtest)\b")
_NOT_ACKNOWLEDGED = re.compile(r"(did not receive ack of last datagram.*)")
# Time, both ends, stream (-1 is all of them), interval, bytes, bit/s; of UDP jitter in ms, lost
# datagrams and all of them. 2.0 to 2.2 put more after that.
_LINE = re.compile(
    r"^(?:[+-]\d{4}:)?\d{14}(?:\.\d{1,6})?,(?P<local>[^,\s]{1,80}),(?P<port>\d{1,5}),"
    r"(?P<remote>[^,\s]{1,80}),(?P<far>\d{1,5}),(?P<id>-?\d{1,9}),"
    r"(?P<start>[\d.]{1,12})-(?P<end>[\d.]{1,12}),(?P<bytes>\d{1,18}),(?P<rate>\d{1,18})"
    r"(?:,(?P<jitter>[\d.]{1,12}),(?P<lost>-?\d{1,18}),(?P<count>\d{1,18}))?.{0,200}$",
    re.MULTILINE,
)


def read(document: str) -> Run:
    """Parse a run. Never raises: if the text cannot be read, the run has an `error`."""
    text = lines.parse_document(document)
    words = text.words
    udp = _is_udp(text, document)
    error = _find_error(text, document)
    return Run(
        tool="iperf",
        protocol="udp" if udp else "tcp",
        flows=tuple(_with_trip(flow, document) for flow in _flows_of(text, document, udp)),
        connections=text.distinct_connections,
        streams=words.streams or _count_streams(text),
        duration=words.duration,
        target=_requested_rate(words, document),
        datagram=words.datagram or _first_number(_SENDING, document),
        buffer=min(filter(None, (words.buffer, _window_size(document))), default=None),
        mss=_first_number(_FIRST, document) or words.mss,
        peer=lines.first_group(_PEER, document) or words.peer,
        options=words.options,
        error=error,
        unreadable=error == lines.NO_RESULTS,
    )


def _count_streams(text: Text) -> Optional[int]:
    ids = {name for name, _ in text.connections}
    return len(ids or text.ids) or None


def _is_udp(text: Text, document: str) -> bool:
    if text.words.udp or "UDP port" in document or "datagrams" in document:
        return True
    return any(lines.parse_losses(row.rest) for row in text.rows)


def _requested_rate(words: Words, document: str) -> Optional[float]:
    burst = _BURSTS.search(document)
    if burst and (seconds := lines.parse_float(burst[3])):
        return 2 * 8 * int(burst[1]) * int(burst[2]) / seconds
    is_cut = "-b" in (words.options or "").split()  # before its value
    if words.udp and words.client and words.target is None and not is_cut:
        return UDP_TARGET
    return words.target


def _find_error(text: Text, document: str) -> Optional[str]:
    reason = lines.first_group(_FAILED, document)
    if text.connections and _NEGATIVE.search(document):
        reason = reason or "every write failed"
    if reason is None and not any(lines.parse_losses(row.rest) for row in text.rows):
        reason = lines.first_group(_NOT_ACKNOWLEDGED, document)  # and no later report
    if reason or text.rows:
        return reason
    return lines.NO_RESULTS


def _window_size(document: str) -> Optional[float]:
    """Bytes: the size of the socket buffer, if it is not the default.

    Less than -w requests is all that the kernel granted; Linux shows twice what it granted.
    """
    match = _WINDOW.search(document)
    return lines.parse_amount(match[1], match[2], 1024) if match else None


def _with_trip(flow: Flow, document: str) -> Flow:
    """With the shortest first round trip in the intervals, if none is known of them."""
    trip = min((int(match[2]) for match in _FIRST.finditer(document)), default=0) * 1e-6
    if not trip or any(interval.rtt for interval in flow.intervals):
        return flow
    intervals = tuple(replace(interval, rtt=trip) for interval in flow.intervals)
    return replace(flow, intervals=intervals)


def _first_number(pattern: re.Pattern[str], document: str) -> Optional[int]:
    return parse_whole(lines.parse_float(lines.first_group(pattern, document)))


def _flows_of(text: Text, document: str, udp: bool) -> tuple[Flow, ...]:
    incoming = _incoming_streams(text, document)
    forward = [row for row in text.rows if row.id not in incoming]
    flows: dict[Direction, list[Row]] = {
        "forward": forward,
        "reverse": _without_rows(text.rows, forward),
    }
    return tuple(_flow_of(name, rows, document, udp) for name, rows in flows.items() if rows)


def _incoming_streams(text: Text, document: str) -> set[str]:
    """The streams to the port that this iperf serves: the reverse direction, with -d."""
    is_dual = _DUALTEST.search(text.words.options or "")
    if is_dual and not text.connections and len(text.ids) == 2:
        return {max(text.ids)}
    port = _first_number(_PORT, document)
    incoming = {name for name, connection in text.connections if connection.local_port == port}
    return incoming if incoming < {name for name, _ in text.connections} else set()


def _flow_of(direction: Direction, rows: list[Row], document: str, udp: bool) -> Flow:
    """Rows with losses are the receiver's, whichever end printed them."""
    received = [row for row in rows if udp and lines.parse_losses(row.rest)]
    sent = _without_rows(rows, received)
    sums, sums_received = _whole_run(sent), _whole_run(received)
    parts = _without_rows(sent or received, [*sums, *sums_received]) or sums
    intervals = gather_intervals(_lines_of(parts, _parse_rest))
    totals = (_without_wrong_sum(each, rows) for each in (sums, sums_received))
    total, total_received = (total_of(_lines_of(each, lines.parse_losses)) for each in totals)
    return Flow(
        direction,
        intervals,
        replace(total, datagrams=_first_number(_SENT, document)),
        replace(total_received, out_of_order=_first_number(_ORDER, document)),
    )


def _without_rows(rows: list[Row], removed: Iterable[Row]) -> list[Row]:
    unwanted = set(removed)
    return [row for row in rows if row not in unwanted]


def _whole_run(rows: list[Row]) -> list[Row]:
    """The line with totals of each stream: its last that begins at 0 and ends with the run."""
    last = max((row.end for row in rows), default=0.0)
    whole = {row.id: row for row in rows if row.start == 0 and row.end > last - 1}
    return list(whole.values())


def _without_wrong_sum(sums: list[Row], rows: list[Row]) -> list[Row]:
    """Totals without a [SUM] that counts the first intervals twice, as some of 2.0 print it."""
    begins = [row.bytes for row in rows if row.start == 0 and row.id != lines.SUM]
    streams = [row for row in sums if row.id != lines.SUM]
    is_wrong = any(math.isclose(row.bytes, sum(begins), rel_tol=0.01) for row in sums)
    return streams if is_wrong and 0 < len(streams) < len(begins) else sums


def _lines_of(rows: list[Row], parse_rest: Callable[[str], Optional[Rest]]) -> list[Line]:
    return [(row, parse_rest(row.rest) or Rest()) for row in rows]


def _parse_rest(rest: str) -> Optional[Rest]:
    match = _ENHANCED.match(rest)
    if match is None:
        return lines.parse_losses(rest)
    # A window of "-1K": the kernel did not say.
    window = lines.parse_amount(match[2], match[3], 1024) if match[2].isdecimal() else None
    return Rest(int(match[1]), window or None, int(match[4]) * 1e-6 or None)


def with_rows_of_csv(document: str) -> str:
    """The document with each line of iperf -y C replaced by the row that it stands for."""
    connections = dict.fromkeys(map(_connection_line, _LINE.finditer(document)))
    return "\n".join((*connections, _LINE.sub(_row_line, document))) if connections else document


def _connection_line(match: re.Match[str]) -> str:
    ends = f"local {match['local']} port {match['port']}"
    return f"[{_stream_id(match)}] {ends} connected with {match['remote']} port {match['far']}"


def _row_line(match: re.Match[str]) -> str:
    amounts = f"{match['bytes']} Bytes  {match['rate']} bits/sec"
    if match["count"]:
        amounts += f"  {match['jitter']} ms  {match['lost']}/{match['count']}"
    return f"[{_stream_id(match)}] {match['start']}-{match['end']} sec  {amounts}"


def _stream_id(match: re.Match[str]) -> str:
    return "SUM" if match["id"].startswith("-") else f"{match['id']:>3}"
