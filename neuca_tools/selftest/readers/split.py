"""Cut a text into the runs that were pasted into it, and join what both ends wrote of one run."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Optional

from neuca_tools.dataclass import replace
from neuca_tools.selftest.evidence.run import Flow, Run
from neuca_tools.selftest.readers.gather import OMITTED
from neuca_tools.selftest.readers.lines import (
    LONGEST_LINE,
    Row,
    parse_command,
    parse_connection,
    parse_row,
)

MOST_RUNS = 100
_HEADER = re.compile(
    r"Connecting to host|Accepted connection from|Client connecting to|Server listening on"
)
_COLUMNS = re.compile(r"\[ ID\].{0,20}Interval")
TOTALS = ("sender", "receiver")


class _Results:
    """What the lines of a run have said so far."""

    def __init__(self) -> None:
        self.last: dict[str, float] = {}  # when each stream's last row ended
        self.totals: dict[str, Row] = {}
        self.ports: set[int] = set()

    def add(self, row: Row) -> None:
        if OMITTED not in row.rest:
            self.last[_key(row)] = max(row.end, self.last.get(_key(row), 0.0))
        if row.rest.endswith(TOTALS):
            self.totals[_key(row) + row.rest[-6:]] = row

    def ends_at(self, line: str, row: Optional[Row], port: Optional[int]) -> bool:
        """Whether the results of another run begin with this line."""
        if not self.last:
            return False
        if row is not None:
            return self._is_restarted(row)
        if self.totals and _COLUMNS.search(line):
            return True
        # After results, a connection to the same port is the next test.
        return port in self.ports or bool(_HEADER.search(line) or parse_command(line))

    def _is_restarted(self, row: Row) -> bool:
        total = self.totals.get(_key(row) + row.rest[-6:])
        if total is not None and row.rest.endswith(TOTALS):
            return total != row and row.bytes > 0  # the same line again is a copy
        # A line with totals starts at 0 as well, but lasts as long as the run.
        return row.start == 0 and row.end < self.last.get(_key(row), 0.0) - 1


def texts(document: str) -> list[str]:
    """The text of each run; the last ones together if there are too many."""
    found: list[list[str]] = [[]]
    results = _Results()
    for line in document.split("\n"):
        row = parse_row(line[:LONGEST_LINE])
        port = None if row is not None else _local_port(line[:LONGEST_LINE])
        if len(found) < MOST_RUNS and results.ends_at(line[:LONGEST_LINE], row, port):
            found.append([])
            results = _Results()
        if row is not None:
            results.add(row)
        if port is not None:
            results.ports.add(port)
        found[-1].append(line)
    return ["\n".join(lines) for lines in found]


def _local_port(line: str) -> Optional[int]:
    connection = parse_connection(line)
    return None if connection is None else connection[1].local_port


def _key(row: Row) -> str:
    return f"{row.id} {row.role}"


def joined(runs: Iterable[Run]) -> list[Run]:
    """The same runs; of two ends of one connection, the client's run with what arrived."""
    found: list[Run] = []
    for run in runs:
        other = next((one for one in found if _is_other_end(one, run)), None)
        if other is None:
            found.append(run)
            continue
        client, server = (run, other) if is_server(other) else (other, run)
        found[found.index(other)] = _with_received(client, server)
    return found


def _is_other_end(one: Run, run: Run) -> bool:
    ports = {(each.local_port, each.remote_port) for each in one.connections}
    return any((each.remote_port, each.local_port) in ports for each in run.connections)


def is_server(run: Run) -> bool:
    """Whether the port that all connections share is its own: the client has one for each."""
    return any(each.local_port < each.remote_port for each in run.connections)


def _with_received(client: Run, server: Run) -> Run:
    """What the receiver counted, if the client does not have it."""
    flows = []
    for flow in client.flows:
        other = server.flow(flow.direction) or next(iter(server.flows), Flow())
        received = other.received if other.received.rate else replace(other.sent, retransmits=None)
        flows.append(flow if flow.received.rate else replace(flow, received=received))
    return replace(client, flows=tuple(flows), error=client.error or server.error)
