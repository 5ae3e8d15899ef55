"""The file of a mesh: its plan, then a line for each test.

It is locked while a run writes it, and the holder of the lock is the process that `stop` ends.
"""

# SPDX-License-Identifier: MIT

import fcntl
import os
import signal
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import BinaryIO, NamedTuple, Optional

from neuca_tools.errors import SelftestError, UsageError
from neuca_tools.files import lock_holder
from neuca_tools.selftest.measure.wait import line_of, parse_message
from neuca_tools.selftest.mesh import model
from neuca_tools.selftest.mesh.model import VERSION, MeshPlan, Row
from neuca_tools.selftest.readers.values import mappings

# Bytes of a line, and of the files that are read: all pairs of 1,000 hosts.
LONGEST_LINE, MAX_BYTES = 32 * 2**20, 2**30
LATEST = 1e11  # of any time, in seconds since 1970


class RecordedRun(NamedTuple):
    """The last plan in the files, the last row of each of its tests, and when the run began.

    `began` is in seconds since 1970. `reasons` say why hosts took no part, by their names.
    """

    plan: MeshPlan
    rows: tuple[Row, ...]
    began: Optional[float]
    reasons: Mapping[str, str] = {}


class Results:
    """A file that is open for writing."""

    def __init__(self, descriptor: int, path: Path) -> None:
        self._descriptor, self._path = descriptor, path

    def plan(self, plan: MeshPlan) -> None:
        self._write(
            {"mesh": VERSION, "plan": model.plan_record(plan), "began": round(time.time(), 3)}
        )

    def row(self, row: Row) -> None:
        self._write(model.row_record(row))

    def absent(self, reasons: Mapping[str, str]) -> None:
        """Record why hosts take no part."""
        self._write({"mesh": VERSION, "absent": dict(reasons)})

    def _write(self, record: dict[str, object]) -> None:
        content = line_of(record)
        with _failing(f'write "{self._path}"'):
            while content:
                content = content[os.write(self._descriptor, content) :]


@contextmanager
def _failing(action: str) -> Iterator[None]:
    """Turn an OSError into a SelftestError that says what was tried."""
    try:
        yield
    except OSError as error:
        raise SelftestError(f"{action}: {error.strerror}") from error


@contextmanager
def open_results(path: Path) -> Iterator[Results]:
    """The file, locked and empty: the output of an earlier run is replaced.

    Raises SelftestError, and UsageError if another run has it or if it is a file of another kind.
    """
    with _failing(f'write "{path}"'):
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not _try_lock(descriptor, path):
            raise UsageError(f'write "{path}": another run is writing it')
        # Another descriptor of this file would release the lock when it is closed (fcntl(2)).
        with _failing(f'write "{path}"'), os.fdopen(descriptor, "rb", closefd=False) as stream:
            # A device or a pipe has no size, and cannot be emptied.
            if os.fstat(descriptor).st_size:
                if not next(_read_records(stream), {}).keys() >= {"mesh", "plan"}:
                    raise UsageError(f'write "{path}": it exists, and is not the output of a mesh')
                os.ftruncate(descriptor, 0)
        yield Results(descriptor, path)
    finally:
        os.close(descriptor)


def stop_run(path: Path) -> bool:
    """End the run that writes this file, or the hosts that follow it; False if there is none.

    Raises SelftestError, ApplyError.
    """
    holders = {lock_holder(path, place, 1) for place in range(model.MAX_HOSTS)}
    return sum(map(_end_holder, holders)) > 0


def _end_holder(holder: int) -> bool:
    """End the process with a lock; False if there is none, or if it is not on this host."""
    if holder <= 0:
        return False
    # It may have ended meanwhile.
    with _failing(f"stop the mesh: process {holder}"), suppress(ProcessLookupError):
        os.kill(holder, signal.SIGTERM)
    return True


def lock_plan(path: Path, place: int) -> None:
    """Lock a plan for the host at this place for as long as this process lives.

    The lock is that of one byte, because hosts may share the file: over NFS, they share its locks
    too. Do not open the plan afterwards: closing it releases the lock (fcntl(2)). Raises
    SelftestError, and UsageError if another process has locked it for this host.
    """
    with _failing(f'lock "{path}"'):
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    if not _try_lock(descriptor, path, place, 1):
        text = f'join a mesh: another process has joined it with "{path}"'
        raise UsageError(text, hint=f'neuca-selftest mesh stop "{path}"')


def _try_lock(descriptor: int, path: Path, start: int = 0, length: int = 0) -> bool:
    """Lock `length` bytes of a file, 0 for all; False if another process has locked any of them.

    Raises SelftestError if locks do not work here, as on some NFS mounts.
    """
    # EAGAIN or EACCES (fcntl(2)).
    with _failing(f'lock "{path}"'), suppress(BlockingIOError, PermissionError):
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, length, start)
        return True
    return False


def read_results(paths: Iterable[Path]) -> RecordedRun:
    """What the files have together. Raises SelftestError if none has a plan."""
    records_by_path: dict[str, Sequence[dict[str, object]]] = {}
    for path in paths:
        with _failing(f'read "{path}"'), path.open("rb") as stream:
            records_by_path[str(path)] = list(_read_records(stream))
    return join_records(records_by_path)


def join_records(files: Mapping[str, Sequence[dict[str, object]]]) -> RecordedRun:
    """The plan and the rows in these records. Raises SelftestError."""
    records = list(chain.from_iterable(files.values()))
    plan = _last_plan(files)
    known_rows = filter(None, (model.read_row(record, plan) for record in records))
    rows = {(row.slot, row.client): row for row in known_rows}
    ordered = tuple(rows[key] for key in sorted(rows))
    times = (record.get("began") for record in records)
    began = next((time for time in times if isinstance(time, float) and 0 < time < LATEST), None)
    return RecordedRun(plan, ordered, began, _parse_reasons(records, plan))


def _last_plan(files: Mapping[str, Sequence[dict[str, object]]]) -> MeshPlan:
    """The latest state of the one plan in these files. Raises SelftestError."""
    plan: Optional[MeshPlan] = None
    for name, records in files.items():
        for later in (model.read_plan(record["plan"]) for record in records if "plan" in record):
            if plan and model.plan_identity(later) != model.plan_identity(plan):
                raise SelftestError(f'read "{name}": it has two different plans')
            plan = later
    if plan is None:
        raise SelftestError("read the results of a mesh: there is no plan in them")
    return plan


def _parse_reasons(records: Iterable[Mapping[str, object]], plan: MeshPlan) -> dict[str, str]:
    """Why hosts of the plan took no part, by their names."""
    names = {host.name for host in plan.hosts}
    return {
        name: str(text)[: model.MAX_TEXT]
        for absent in mappings([record.get("absent") for record in records])
        for name, text in absent.items()
        if name in names
    }


def _read_records(stream: BinaryIO) -> Iterator[dict[str, object]]:
    """The JSON objects in a file; other lines are passed over."""
    left = MAX_BYTES
    while left > 0 and (line := stream.readline(LONGEST_LINE)):
        left -= len(line)
        record = parse_message(line)
        if record is not None:
            # What `mesh plan` prints is the plan alone.
            yield {"plan": record} if record.keys() >= {"hosts", "slots"} else record
