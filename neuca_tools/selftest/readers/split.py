"""Cut a text into the runs that were pasted into it, and join what both ends wrote of one run."""

# SPDX-License-Identifier: MIT

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Optional

from neuca_tools.selftest.evidence.derive import is_server
from neuca_tools.selftest.evidence.run import Connection, Flow, Run
from neuca_tools.selftest.readers.gather import OMITTED, total_of_intervals
from neuca_tools.selftest.readers.lines import (
    LONGEST_LINE,
    SUM,
    Row,
    parse_command,
    parse_connection,
    parse_losses,
    parse_row,
)

MAX_RUNS = 100  # in one file
_HEADER = re.compile(
    "Connecting to host|Accepted connection from|Client connecting to|Server listening on"
)
TOTALS = ("sender", "receiver")
LONE_INTERVAL_SECONDS = 2.0  # a shorter run may have one interval, which its totals repeat


class _Results:
    """What is known of a run from its lines so far."""

    def __init__(self) -> None:
        self.last: dict[str, float] = {}  # when each stream's last row ended
        self.ports: set[int] = set()
        self.streams: set[str] = set()  # that have a connection
        self.latest: dict[str, Row] = {}  # of each stream, the newest last

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
        self.latest.pop(key, None)
        self.latest[key] = row

    def are_ended_by(self, line: str, row: Optional[Row]) -> bool:
        """Whether the results of another run begin with this line."""
        if not self.last:
            return False
        if row is not None:
            return self._is_restarted(row) or self._is_repeated(row)
        opened = parse_connection(line)
        if opened is not None:
            return self._is_of_another(*opened)
        has_totals = any(latest.rest.endswith(TOTALS) for latest in self.latest.values())
        is_of_next = has_totals and "[ ID]" in line
        return bool(is_of_next or _HEADER.search(line) or parse_command(line))

    def _is_of_another(self, stream: str, connection: Connection) -> bool:
        """Whether this connection belongs to another run.

        Its port or stream already had one, or it follows totals: with -r, iperf 2 sends from the
        other end afterwards. Streams of one run may connect while others have intervals already.
        """
        latest = next(reversed(self.latest.values()))
        has_totals = latest.start == 0 and latest.end > LONE_INTERVAL_SECONDS
        return has_totals or stream in self.streams or connection.local_port in self.ports

    def _is_restarted(self, row: Row) -> bool:
        latest = self.latest.get(_stream_key(row))
        if latest is not None and latest.rest.endswith(TOTALS) and row.rest.endswith(TOTALS):
            # The receiver's totals follow the sender's, and the same line again is a copy.
            is_of_other_end = latest.rest.endswith("sender") and row.rest.endswith("receiver")
            return not is_of_other_end and latest != row and row.bytes > 0
        # A line with totals starts at 0 as well, but lasts as long as the run.
        return row.start == 0 and row.end < self.last.get(_stream_key(row), 0.0) - 1

    def _is_repeated(self, row: Row) -> bool:
        """Whether the text has only totals, and these are those of the next run of their stream."""
        latest = self.latest.get(f"{SUM} {row.role}") or self.latest.get(_stream_key(row))
        if latest is None or self.streams or row.rest.endswith(TOTALS):
            return False
        # The report of the other end follows with what it lost.
        is_alike = bool(parse_losses(row.rest)) == bool(parse_losses(latest.rest))
        is_total = row.start == latest.start == 0 and row.end > LONE_INTERVAL_SECONDS
        is_copy = row.bytes == next(reversed(self.latest.values())).bytes
        return is_total and is_alike and not is_copy


def split_runs(document: str) -> list[str]:
    """The text of each run; the last ones together if there are too many."""
    runs: list[list[str]] = [[]]
    results = _Results()
    for line in document.split("\n"):
        start = line[:LONGEST_LINE]
        row = parse_row(start)
        if results.are_ended_by(start, row) and len(runs) < MAX_RUNS:
            runs.append([])
            results = _Results()
        results.add(start, row)
        runs[-1].append(line)
    return ["\n".join(lines) for lines in runs]


def _stream_key(row: Row) -> str:
    return f"{row.id} {row.role}"


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
        received = next((end for end in totals if end.rate), total_of_intervals(other.intervals))
        flows.append(flow if flow.received.rate else replace(flow, received=received))
    return replace(client, flows=tuple(flows), error=client.error or server.error)
