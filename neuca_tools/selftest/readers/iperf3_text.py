"""The text output of iperf3, with or without the command line that was pasted along with it."""

# SPDX-License-Identifier: MIT

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Optional

from neuca_tools.selftest.evidence.run import Direction, Flow, Interval, Run, Total
from neuca_tools.selftest.readers import gather
from neuca_tools.selftest.readers.gather import Line
from neuca_tools.selftest.readers.lines import (
    NO_RESULTS,
    Rest,
    Row,
    Text,
    first_group,
    parse_amount,
    parse_document,
    parse_float,
    parse_losses,
)
from neuca_tools.selftest.readers.values import parse_whole

# Characters at either end of a document, in which the facts about the whole run are looked for.
HEAD = 10_000
# Bytes of a datagram, and how much those of two rows differ, which have three digits.
SMALLEST, LARGEST, SIZE_TOLERANCE = 16, 65_507, 1.05
# Programs that call iperf3 write "Iperf3 error: ", or its words alone. After a hyphen, a client
# without words for an error of its server prints nothing (SERVER_ERROR in iperf_client_api.c).
ERROR = re.compile(
    r"(?:[Ii]perf3(?: error)?: (?:error - (?=\S))?|^(?=parameter error: |unable to "
    r"(?:(?:create a new|connect) stream|connect to server|(?:send|receive) (?:control|cookie|param"
    r"|results)|(?:read from|write to) stream socket|set [A-Z]{2,4}_[A-Z]{4,12}: )"
    r"|(?:SND|RCV)BUF is \d{1,12}, expecting))(.*)",
    re.MULTILINE,
)
MAX_ERRORS = 5  # messages that are reported
TOTALS_FACTOR = 1.5  # times the usual interval: a line of totals
_FAILED = re.compile(r"iperf3: error - (.*)")  # among results, other lines are warnings or prose
_VERSION = re.compile(r"iperf (3\.[\w.+-]{1,20})")
_TCP_REST = re.compile(r"(\d{1,12})(?:\s+([\d.]{1,12})\s*([KMGT]?)Bytes)?$")  # Retr, Cwnd
_TARGET = re.compile(r"Target Bitrate: (\d{1,18})")
_MSS = re.compile(r"TCP MSS: (\d{2,5})")
_PEER = re.compile(r"(?:Connecting to host|Accepted connection from) ([^\s,]{1,80})")
_TAKEN = re.compile(r"^\W{0,8}Time: (.{1,60})$", re.MULTILINE)
_SYSTEM = re.compile(
    r"^\W{0,8}((?:Linux|Darwin|FreeBSD|CYGWIN\S{0,20}|SunOS) .{1,150})$", re.MULTILINE
)
_ORDER = re.compile(r"(\d{1,18}) datagrams received out-of-order")
_CONGESTION = re.compile(r"^\W{0,8}snd_tcp_congestion (\w{1,20})", re.MULTILINE)  # -V
_CPU = re.compile(
    r"CPU Utilization: local/(\w{6,8}) ([\d.]{1,9})%[^,]{0,40}, remote/\w{6,8} ([\d.]{1,9})%"
)
# How the lines end that sum up the run, by the end that counted.
SENDER, RECEIVER = "sender", "receiver"
DONE = "iperf Done."  # once the client has the results of the server


def read(document: str) -> Run:
    """Parse a run. Never raises: if the text cannot be read, the run has an `error`."""
    text = parse_document(document)
    words, head, tail = text.words, document[:HEAD], document[-HEAD:]
    protocol = _find_protocol(text, document)
    target = words.target
    if target is None:
        target = parse_float(first_group(_TARGET, head))
    error = _find_error(text, document)
    reverse = words.reverse or "Reverse mode" in document
    # What a receiver printed before any totals, below which it says how many were sent.
    is_cut = (reverse or "Accepted connection" in head) and "Sent " not in document
    local, remote = _find_cpu_loads(tail, RECEIVER if reverse else SENDER)
    flows = _flows_of(
        text.rows, reverse, udp=protocol == "udp", is_cut=is_cut, is_done=DONE in document
    )
    return Run(
        tool="iperf3",
        version=first_group(_VERSION, head),
        protocol=protocol,
        flows=_with_order(flows, tail),
        connections=text.distinct_connections,
        streams=words.streams or _count_streams(text),
        duration=words.duration,
        target=target,
        datagram=words.datagram,
        buffer=words.buffer,
        mss=parse_whole(parse_float(first_group(_MSS, head))) or words.mss,
        congestion=first_group(_CONGESTION, tail),
        cpu_local=local,
        cpu_remote=remote,
        peer=first_group(_PEER, head) or words.peer,
        taken=first_group(_TAKEN, head),
        system=first_group(_SYSTEM, head),
        options=words.options,
        error=error,
        unreadable=error == NO_RESULTS,
    )


def _with_order(flows: tuple[Flow, ...], document: str) -> tuple[Flow, ...]:
    """With the datagrams that were overtaken, of which each stream has a line ("[SUM]")."""
    counts = list(map(int, _ORDER.findall(document)))
    if not counts or len(flows) != 1:
        return flows
    return (replace(flows[0], received=replace(flows[0].received, out_of_order=sum(counts))),)


def _find_protocol(text: Text, document: str) -> str:
    if text.words.sctp or "protocol: SCTP" in document[:HEAD]:
        return "sctp"
    return "udp" if text.words.udp or _is_udp(text.rows, document) else "tcp"


def _is_udp(rows: list[Row], document: str) -> bool:
    """By a header or, without one, by jitter and losses or by how many datagrams were sent."""
    if "Datagrams" in document or any(parse_losses(row.rest) for row in rows):
        return True
    if "Retr" in document or not rows:
        return False
    return _are_datagrams(rows)


def _are_datagrams(rows: list[Row]) -> bool:
    """Whether lone numbers are in proportion to the bytes: datagrams, not TCP's retransmits."""
    counts = [parse_float(row.rest) or 0.0 for row in rows]
    sizes = [row.bytes / count for row, count in zip(rows, counts) if count >= 1]
    if len(sizes) < len(rows):
        return False
    return SMALLEST <= max(sizes) <= min(SIZE_TOLERANCE * min(sizes), LARGEST)


def _find_error(text: Text, document: str) -> Optional[str]:
    if not text.rows:
        messages = dict.fromkeys(message.strip() for message in ERROR.findall(document))
        return " | ".join(list(messages)[:MAX_ERRORS]) or NO_RESULTS
    # What failed before the results was another attempt.
    failed = first_group(_FAILED, document[document.find(" sec ") :])
    return failed.strip() if failed else None


def _find_cpu_loads(document: str, client: str) -> tuple[Optional[float], Optional[float]]:
    """The CPU load of the client and of the server; `client` is the role of the client."""
    match = _CPU.search(document)
    if match is None:
        return None, None
    local, remote = parse_float(match[2]), parse_float(match[3])
    return (local, remote) if match[1] == client else (remote, local)


def _count_streams(text: Text) -> Optional[int]:
    """By the rows; by the connections where only their sum has some, one if there are none."""
    both = any(row.role for row in text.rows)  # of --bidir, which has two for each stream
    count = (len(text.ids) or len(text.distinct_connections)) if text.rows else 1
    return count // (1 + both) or None


def _flows_of(
    rows: list[Row], reverse: bool, *, udp: bool, is_cut: bool, is_done: bool
) -> tuple[Flow, ...]:
    """One flow, or with --bidir one for each direction."""
    flow_of = partial(_flow_of, udp=udp, is_cut=is_cut, is_done=is_done)
    if not rows:
        return ()
    if not any(row.role for row in rows):
        return (flow_of("reverse" if reverse else "forward", rows),)
    there = [row for row in rows if row.role in ("TX-C", "RX-S")]
    back = [row for row in rows if row.role in ("RX-C", "TX-S")]
    return flow_of("forward", there), flow_of("reverse", back)


def _flow_of(
    direction: Direction, rows: list[Row], *, udp: bool, is_cut: bool, is_done: bool
) -> Flow:
    old = _old_udp_summary(rows, is_cut) if udp else set()
    lines = [(row, _parse_rest(row, udp)) for row in (rows if old else _mark_totals(rows))]
    totals = [line for line in lines if _is_total(line[0], old)]
    intervals = gather.gather_intervals([line for line in lines if not _is_total(line[0], old)])
    sent, received = _read_ends(totals, intervals, is_old=bool(old), is_done=udp and is_done)
    return Flow(direction, intervals, replace(sent, lost=None), received)


def _read_ends(
    totals: list[Line], intervals: Sequence[Interval], *, is_old: bool, is_done: bool
) -> tuple[Total, Total]:
    """What was sent and what arrived; `is_done`: the client of a UDP test has both counts."""
    sent, received = _total_of_end(totals, SENDER), _total_of_end(totals, RECEIVER)
    if is_old:
        sent, received = _old_totals(gather.total_of(totals), intervals)
    if is_done:
        counted = gather.total_of_intervals(intervals)
        received = gather.with_missing_tail(received, sent.datagrams or counted.datagrams)
    return gather.without_zeros(sent, intervals), gather.without_zeros(received, intervals)


def _is_total(row: Row, old: Collection[Row]) -> bool:
    return _is_summary(row) or row in old


def _old_totals(both: Total, intervals: Sequence[Interval]) -> tuple[Total, Total]:
    """What was sent and what arrived, of one line of totals."""
    # Those of a receiver say what arrived; its totals do, too.
    counted = gather.total_of_intervals(each for each in intervals if each.lost is not None)
    if counted.rate is None:
        return both, gather.received_total(both, both.lost, both.datagrams)
    if (both.rate or 0.0) <= SIZE_TOLERANCE * counted.rate:
        return Total(), both
    return both, replace(both, rate=counted.rate, bytes=counted.rate * (both.seconds or 0.0) / 8)


def _is_summary(row: Row) -> bool:
    return row.rest.endswith((SENDER, RECEIVER))


def _total_of_end(lines: list[Line], end: str) -> Total:
    return gather.total_of([line for line in lines if line[0].rest.endswith(end)])


def _mark_totals(rows: list[Row]) -> list[Row]:
    """Mark totals that have lost the word "sender" or "receiver": the sender's come first.

    With --bidir, a direction may have no rows.
    """
    if not rows:
        return []
    last = max(row.end for row in rows)
    usual = median(row.end - row.start for row in rows)
    longest = max(last - usual, TOTALS_FACTOR * usual)
    marked, seen = [], set()
    for row in rows:
        if row.start == 0 and row.end >= longest:
            end = RECEIVER if row.id in seen else SENDER
            seen.add(row.id)
            row = row if _is_summary(row) else row._replace(rest=f"{row.rest} {end}")
        marked.append(row)
    return marked


def _old_udp_summary(rows: list[Row], is_cut: bool) -> set[Row]:
    """Before iperf3 3.7, a UDP run ended with one line of totals, with the receiver's losses.

    Of a text that `is_cut`, a first interval alone is not a total.
    """
    if any(map(_is_summary, rows)):
        return set()
    last = max((row.end for row in rows), default=0.0)
    whole = [row for row in rows if row.start == 0 and row.end == last]
    if is_cut and len(whole) == len(rows):
        return set()
    return {row for row in whole if parse_losses(row.rest)}


def _parse_rest(row: Row, udp: bool) -> Rest:
    rest = row.rest.replace(gather.OMITTED, "").replace(SENDER, "").replace(RECEIVER, "").strip()
    losses, match = parse_losses(rest), _TCP_REST.match(rest)
    if losses is not None or match is None:
        return losses or Rest()
    if udp:
        return Rest(datagrams=int(match[1]))
    return Rest(int(match[1]), parse_amount(match[2], match[3], 1024))
