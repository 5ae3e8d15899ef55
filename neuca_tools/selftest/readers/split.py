"""Cut a text into the runs that were pasted into it, and join what both ends wrote of one run."""

# SPDX-License-Identifier: MIT

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Optional

from neuca_tools.selftest.evidence.derive import is_server, is_server_end
from neuca_tools.selftest.evidence.run import Connection, Flow, Interval, Run, Total
from neuca_tools.selftest.readers.gather import OMITTED
from neuca_tools.selftest.readers.lines import (
    LONGEST_LINE,
    SUM,
    TRADEOFF,
    Row,
    parse_command,
    parse_connection,
    parse_losses,
    parse_row,
)
from neuca_tools.selftest.readers.values import known_sum, known_values, parse_whole

MAX_RUNS = 100  # in one file
_CLIENT, _SERVER = "Client connecting to", "Server listening on"  # of iperf 2
_HEADER = re.compile(rf"Connecting to host|Accepted connection from|{_CLIENT}|{_SERVER}")
# Of a shell: after a semicolon, on a line of its own, or before the command.
_LOOP = re.compile(r";\s{0,20}do(?:\s|$)|^[\s>]{0,20}do(?:\s{0,20}$|\s{1,20}iperf)")
_LOOP_END = re.compile(r"(?:;|^)[\s>]{0,20}done\b")
_COLUMNS = re.compile(r"\[ ID\].{0,20}Interval")
TOTALS = ("sender", "receiver")
LONE_INTERVAL_SECONDS = 2.0  # a shorter run may have one interval, which its totals repeat


class _Results:
    """What is known of a run from its lines so far."""

    def __init__(self) -> None:
        self.last: dict[str, float] = {}  # when each stream's last row ended
        self.totals: dict[tuple[str, str], Row] = {}
        self.ports: set[int] = set()
        self.streams: set[str] = set()  # that have a connection
        self.latest: dict[str, Row] = {}  # of each stream, the newest last
        self.is_headed = False  # by a header after the latest row

    def add(self, line: str, row: Optional[Row]) -> None:
        """Add what a line says: `row`, or a connection."""
        opened = None if row else parse_connection(line)
        if opened is not None:
            self.streams.add(opened[0])
            self.ports.add(opened[1].local_port)
        if row is None:
            return
        key = _stream_key(row)
        if OMITTED not in row.rest:
            self.last[key] = max(row.end, self.last.get(key, 0.0))
        if row.rest.endswith(TOTALS):
            self.totals[_total_key(row)] = row
        self.latest.pop(key, None)
        self.latest[key] = row
        self.is_headed = False

    def are_ended_by(self, line: str, row: Optional[Row]) -> bool:
        """Whether the results of another run begin with this line."""
        if not self.last:
            return False
        if row is not None:
            return self._is_restarted(row) or self._is_repeated(row)
        opened = parse_connection(line)
        if opened is not None:
            return self._is_of_another(*opened)
        if _COLUMNS.search(line):
            self.is_headed = True
            return bool(self.totals)
        return bool(_HEADER.search(line) or parse_command(line))

    def _is_of_another(self, stream: str, connection: Connection) -> bool:
        """Whether this connection belongs to another run.

        Its port or stream already had one, or it follows totals: with -r, iperf 2 sends from the
        other end afterwards. Streams of one run may connect while others have intervals already.
        """
        latest = next(reversed(self.latest.values()))
        has_totals = latest.start == 0 and latest.end > LONE_INTERVAL_SECONDS
        return has_totals or stream in self.streams or connection.local_port in self.ports

    def _is_restarted(self, row: Row) -> bool:
        total = self.totals.get(_total_key(row))
        if total is not None and row.rest.endswith(TOTALS):
            return total != row and row.bytes > 0  # the same line again is a copy
        # A line with totals starts at 0 as well, but lasts as long as the run.
        return row.start == 0 and row.end < self.last.get(_stream_key(row), 0.0) - 1

    def _is_repeated(self, row: Row) -> bool:
        """Whether another run begins with these totals.

        They have a header of their own, or the document has nothing but totals. They cover the same
        time as those of their stream, or end at a different time than those of the other streams.
        """
        key = _stream_key(row)
        latest = self.latest.get(key, next(reversed(self.latest.values())))
        is_of_only_interval = row.rest.endswith(TOTALS) and not latest.rest.endswith(TOTALS)
        if any((row.start, latest.start, row.end <= LONE_INTERVAL_SECONDS, is_of_only_interval)):
            return False
        is_apart = self.is_headed or not any((self.streams, row.rest, latest.rest))
        is_copy = row.bytes == latest.bytes and key == next(reversed(self.latest))
        # The report of the other end follows with what it lost.
        is_alike = bool(parse_losses(row.rest)) == bool(parse_losses(latest.rest))
        is_as_long = abs(row.end - latest.end) < 1
        return is_apart and is_alike and not is_copy and is_as_long == (key in self.latest)


class _Loop:
    """The command that several runs have: that of a shell's loop, or of iperf 2 with -r."""

    def __init__(self) -> None:
        self._is_open = False
        self._commands: list[str] = []

    @property
    def command(self) -> str:
        """Empty if there is none, or if a loop has several, of which each run has another."""
        return self._commands[0] if len(self._commands) == 1 else ""

    def add(self, line: str) -> None:
        """Add a line that is not a result."""
        if _LOOP.search(line):
            self._is_open, self._commands = True, []
        if parse_command(line):
            before = self._commands if self._is_open else []
            is_repeated = self._is_open or TRADEOFF.search(line)
            self._commands = [*before, line] if is_repeated else []
        if _LOOP_END.search(line):
            self._is_open = False


def split_runs(document: str) -> list[str]:
    """The text of each run; the last ones together if there are too many."""
    runs: list[list[str]] = [[]]
    results, loop = _Results(), _Loop()
    for line in document.split("\n"):
        start = line[:LONGEST_LINE]
        row = parse_row(start)
        if row is None:
            loop.add(start)
        if results.are_ended_by(start, row) and len(runs) < MAX_RUNS:
            runs.append([loop.command])
            results = _Results()
        results.add(start, row)
        runs[-1].append(line)
    return ["\n".join(lines) for lines in runs]


def separate_ends(document: str) -> list[str]:
    """The text of the client and that of the server, if one text has both; else the text itself.

    Its connections are the two ends of one, as on one host, or those of a relay to different hosts.
    The sums of their streams are left out, as nothing says whose they are.
    """
    lines = document.split("\n")
    clients, served = dict[str, Connection](), dict[str, Connection]()
    for name, connection in known_values(parse_connection(line[:LONGEST_LINE]) for line in lines):
        (served if is_server_end(connection) else clients)[name] = connection
    if not (clients and served and clients.keys().isdisjoint(served)):
        return [document]
    if not _are_of_two_runs(clients.values(), served.values()):
        return [document]
    return [_without_streams(lines, served, _SERVER), _without_streams(lines, clients, _CLIENT)]


def _without_streams(lines: Iterable[str], streams: Collection[str], header: str) -> str:
    return "\n".join(
        line for line in lines if not _belongs_to(line[:LONGEST_LINE], streams, header)
    )


def _are_of_two_runs(clients: Collection[Connection], served: Collection[Connection]) -> bool:
    """Whether two programs made these connections, and not one that tests both directions."""
    mirrored = {(each.remote_port, each.local_port) for each in served}
    is_answered = any((each.local_port, each.remote_port) in mirrored for each in clients)
    return is_answered or {each.remote for each in clients}.isdisjoint(
        each.remote for each in served
    )


def _belongs_to(line: str, streams: Collection[str], header: str) -> bool:
    """Whether a line is of one of these streams, of a sum of streams, or this header."""
    row, opened = parse_row(line), parse_connection(line)
    if row is not None:
        return row.id == SUM or row.id in streams
    return header in line or (opened is not None and opened[0] in streams)


def _stream_key(row: Row) -> str:
    return f"{row.id} {row.role}"


def _total_key(row: Row) -> tuple[str, str]:
    """The stream, and which end counted the totals."""
    return _stream_key(row), row.rest.rpartition(" ")[2]


def join_ends(runs: Iterable[Run]) -> list[Run]:
    """Merge the two ends of a connection into the client's run, with what arrived."""
    distinct: list[Run] = []
    for run in runs:
        ports = {(each.remote_port, each.local_port) for each in run.connections}
        for at, other in enumerate(distinct):
            if ports & {(each.local_port, each.remote_port) for each in other.connections}:
                client, server = (run, other) if is_server(other) else (other, run)
                distinct[at] = _with_received(client, server)
                break
        else:
            distinct.append(run)
    return distinct


def _with_received(client: Run, server: Run) -> Run:
    """What the receiver counted, if the client does not have it."""
    flows = []
    for flow in client.flows:
        other = server.flow(flow.direction) or next(iter(server.flows), Flow())
        totals = (other.received, replace(other.sent, retransmits=None))
        received = next((end for end in totals if end.rate), _counted_in(other.intervals))
        flows.append(flow if flow.received.rate else replace(flow, received=received))
    return replace(client, flows=tuple(flows), error=client.error or server.error)


def _counted_in(intervals: Sequence[Interval]) -> Total:
    """What a receiver counted, where the text ends before its totals."""
    seconds = sum(each.seconds for each in intervals)
    size = known_sum(each.bytes for each in intervals)
    return Total(
        seconds or None,
        size,
        rate=8 * size / seconds if size and seconds else None,
        datagrams=parse_whole(known_sum(each.datagrams for each in intervals)),
        lost=parse_whole(known_sum(each.lost for each in intervals)),
    )
