"""The coordinator of a mesh: one launch on all hosts, slot after slot, retests, and the results."""

# SPDX-License-Identifier: MIT

import os
import re
import secrets
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from neuca_tools.errors import SelftestError
from neuca_tools.model.printable import counted
from neuca_tools.selftest.measure import wait
from neuca_tools.selftest.measure.mesh.host import Slot
from neuca_tools.selftest.measure.mesh.results import Results
from neuca_tools.selftest.mesh import model
from neuca_tools.selftest.mesh.localise import find_suspects
from neuca_tools.selftest.mesh.model import MeshPlan, Row
from neuca_tools.selftest.mesh.retest import with_retests
from neuca_tools.selftest.mesh.schedule import duration_words, plan_among
from neuca_tools.selftest.mesh.verdict import with_diagnosis_slots

START_SECONDS, END_SECONDS = 60.0, 15.0  # for all hosts to start, and for them to end
SIGNAL_SECONDS = 1.0  # for the engine to end once its outputs have, and after each signal
# How clush(1) says that the command on a host has ended, and how many of its messages are shown.
COMMAND_ENDED = re.compile(
    r"clush: ([A-Za-z0-9._-]+): (exited with exit code .*|command timeout.*)"
)
MAX_ERRORS = 100  # lines of the hosts' errors that are shown
# Bytes of a line of a host, and lines of it in addition to its tests.
LINE_BYTES, OTHER_LINES = 4096, 10
SEND_SECONDS = 60.0  # for the engine to accept a message
Log = Callable[[str], None]


class Engine:
    """The program that starts a command on all hosts, and connects our input to theirs.

    It puts "NAME: " before each line of a host, as clush(1) does. Raises SelftestError.
    """

    def __init__(self, command: Sequence[str]) -> None:
        pipe = subprocess.PIPE
        # clush 1.9.1 (Debian 12) is a Python program that does not flush its lines into a pipe.
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        try:
            # In a session of its own: a terminal's SIGINT is for the coordinator.
            self._process = subprocess.Popen(
                command,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                cwd="/",
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            text = f'start "{command[0]}": {error.strerror}'
            raise SelftestError(text, hint="install clustershell") from error
        streams = self._process.stdin, self._process.stdout, self._process.stderr
        self._input, output, errors = (stream.fileno() for stream in streams if stream)
        os.set_blocking(self._input, False)
        self.lines, self.errors = wait.Lines(output, LINE_BYTES), wait.Lines(errors, LINE_BYTES)

    @property
    def open(self) -> list[wait.Lines]:
        """The outputs that have not ended."""
        return [output for output in (self.lines, self.errors) if not output.ended]

    def send(self, message: dict[str, Any], handle: Callable[[Sequence[Any]], None]) -> None:
        """Send a message to all hosts; `handle` the outputs that can be read meanwhile.

        An engine that cannot write its messages reads none. That one has ended is not an error:
        its outputs, which end too, have the reason.
        """
        content = wait.line_of(message)
        deadline = time.monotonic() + SEND_SECONDS
        with suppress(BrokenPipeError):
            while content:
                ready = wait.wait_readable(self.open, deadline, self._input)
                if time.monotonic() >= deadline:
                    text = f"send to the hosts: it took more than {SEND_SECONDS:g} s"
                    raise SelftestError(text)
                handle(ready)
                if self._input in ready:
                    content = content[wait.write_piece(self._input, content) :]

    def end(self) -> None:
        """Close the input of all hosts, which ends them, and then the engine."""
        with self._process as process:
            if process.stdin:
                process.stdin.close()
            deadline = time.monotonic() + END_SECONDS
            while self.open and time.monotonic() < deadline:
                for output in wait.wait_readable(self.open, deadline):
                    output.read_lines()
            for number in (signal.SIGTERM, signal.SIGKILL):
                try:
                    process.wait(SIGNAL_SECONDS)
                except subprocess.TimeoutExpired:
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, number)


@dataclass
class _Hosts:
    """What is known of the hosts during a run."""

    names: frozenset[str]
    ready_names: set[str] = field(default_factory=set)
    # Those that took longer than a slot: they are not waited for again.
    late_names: set[str] = field(default_factory=set)
    # Why a host takes no part.
    reason_by_name: dict[str, str] = field(default_factory=dict)
    # The last line that a host, or ssh for it, wrote to standard error.
    last_error_by_name: dict[str, str] = field(default_factory=dict)
    # Those on which the command has ended.
    ended_names: set[str] = field(default_factory=set)
    error_count: int = 0
    line_count_by_name: Counter[str] = field(default_factory=Counter)


class Coordinator:
    """Runs a plan, then the retests and the diagnoses of what they confirm.

    `log` is called with lines for a person.
    """

    def __init__(self, plan: MeshPlan, engine: Engine, results: Results, log: Log) -> None:
        self.plan, self._engine, self._results, self._log = plan, engine, results, log
        self._rows = dict[tuple[int, str], Row]()
        self._hosts = _Hosts(frozenset(host.name for host in plan.hosts))

    @property
    def reasons(self) -> Mapping[str, str]:
        return self._hosts.reason_by_name

    @property
    def rows(self) -> tuple[Row, ...]:
        return tuple(self._rows[key] for key in sorted(self._rows))

    def run(self, patience: float = START_SECONDS) -> None:
        """Raises SelftestError if no two hosts can be started.

        If hosts are missing at the beginning, the others get a plan of their own.
        """
        record = {**model.plan_record(self.plan), "slots": []}
        self._send({"plan": record, "secret": secrets.token_hex(32)})
        self._await_hosts(patience)
        ready = self._present_hosts()
        if len(ready) < len(self._hosts.names):
            self._continue_with(plan_among(self.plan, ready))
        self._run_slots(0)
        self._run_retests()
        self._run_diagnoses()

    def _continue_with(self, plan: MeshPlan) -> None:
        self.plan = plan
        self._results.plan(plan)

    def _run_retests(self) -> None:
        plan = with_retests(self.plan, self.rows, find_suspects(self.plan, self.rows))
        if plan.retests is not None:
            self._continue_with(plan)
            again = replace(plan, slots=plan.slots[plan.retests :])
            self._log(f"retests in {len(again.slots)} slots: {duration_words(again)}")
            self._run_slots(plan.retests)

    def _run_diagnoses(self) -> None:
        plan = with_diagnosis_slots(self.plan, self.rows)
        if plan.tests != plan.slots:
            self._continue_with(plan)
            self._log("a full diagnosis of each confirmed fault")
            self._run_slots(len(plan.tests), model.DIAGNOSIS_SECONDS)

    def _await_hosts(self, patience: float) -> None:
        """Wait until all hosts are ready; hosts that are late have no tests."""
        deadline, hosts = time.monotonic() + patience, self._hosts
        while self._expected_hosts() - hosts.ready_names and time.monotonic() < deadline:
            if not self._await_output(deadline):
                break
        present = self._present_hosts()
        missing = sorted(hosts.names - present - hosts.reason_by_name.keys())
        for name in missing:
            hosts.reason_by_name[name] = hosts.last_error_by_name.get(
                name, f"no response within {patience:g} s"
            )
        if missing:
            shown = ", ".join(missing[:10])
            absent = counted(len(missing), "host")
            self._log(f"{absent} did not start and will not be tested: {shown}")
        if hosts.reason_by_name:
            self._results.absent(hosts.reason_by_name)
        if len(present) < 2:
            raise SelftestError("run the mesh: fewer than two hosts could be started")
        self._log(f"{len(present)} of {len(hosts.names)} hosts are ready")

    def _expected_hosts(self) -> frozenset[str]:
        """The hosts that may still report."""
        hosts = self._hosts
        return hosts.names.difference(hosts.reason_by_name, hosts.ended_names)

    def _present_hosts(self) -> frozenset[str]:
        return self._expected_hosts() & self._hosts.ready_names

    def _slots_of_present_hosts(self, first: int) -> list[Slot]:
        """The slots from `first` on with the tests whose hosts are both present."""
        present, names = self._present_hosts(), [host.name for host in self.plan.hosts]
        slots = []
        for number, slot in enumerate(self.plan.slots[first:], first):
            pairs = tuple(pair for pair in slot if {names[place] for place in pair} <= present)
            if pairs:
                slots.append((number, pairs))
        return slots

    def _run_slots(self, first: int, additional_seconds: float = 0.0) -> None:
        """Run the slots from `first` on, which take so many seconds more than tests do.

        A slot ends when all of its clients have reported.
        """
        slots = self._slots_of_present_hosts(first)
        if slots:
            self._send({"slots": slots, "diagnoses": additional_seconds > 0})
        for place, (number, pairs) in enumerate(slots):
            now, longest = time.time(), self.plan.slot_seconds + additional_seconds
            self._send({"next": place, "start": now + self.plan.guard, "clock": now})
            clients = {self.plan.hosts[pair[0]].name for pair in pairs}
            self._await_rows(number, clients, time.monotonic() + self.plan.guard + longest)
            rows = (self._rows.get((number, client)) for client in clients)
            good = sum(row is not None and row.error is None for row in rows)
            self._log(f"slot {place + 1} of {len(slots)}: {good} of {len(clients)} tests succeeded")

    def _await_rows(self, number: int, clients: set[str], deadline: float) -> None:
        hosts = self._hosts

        def missing() -> set[str]:
            return {client for client in clients if (number, client) not in self._rows}

        while missing() - hosts.late_names - hosts.ended_names and time.monotonic() < deadline:
            if not self._await_output(deadline):
                raise SelftestError("run the mesh: the engine has ended")
        hosts.late_names |= missing()

    # --- Messages of the hosts -------------------------------------------------------------------

    def _send(self, message: dict[str, Any]) -> None:
        self._engine.send(message, self._handle_outputs)

    def _await_output(self, deadline: float) -> bool:
        """Handle what arrives next; False if the engine has ended."""
        self._handle_outputs(wait.wait_readable(self._engine.open, deadline))
        return not self._engine.lines.ended

    def _handle_outputs(self, ready: Sequence[Any]) -> None:
        if self._engine.lines in ready:
            for line in self._engine.lines.read_lines():
                self._handle_line(line)
        if self._engine.errors in ready:
            for line in self._engine.errors.read_lines():
                self._handle_error(line)

    def _handle_line(self, line: bytes) -> None:
        """Handle a line of a host, which may report only for itself, and only its planned tests."""
        name, _, text = line.decode("utf-8", "replace").partition(": ")
        if name not in self._hosts.names:
            return
        self._hosts.line_count_by_name[name] += 1
        if self._hosts.line_count_by_name[name] > len(self.plan.slots) + OTHER_LINES:
            return
        message = wait.parse_message(text.encode())
        if message is not None and message.get("mesh") == model.VERSION:
            self._handle_message(name, message)

    def _handle_error(self, line: bytes) -> None:
        """A line of the engine's standard error, which begins with a name if it is of a host."""
        text = line.decode("utf-8", "replace")[: model.MAX_TEXT]
        match = COMMAND_ENDED.match(text)
        if match is not None:
            self._hosts.ended_names.add(match[1])
            reason = self._hosts.last_error_by_name.setdefault(match[1], match[2])
            if match[1] in self._hosts.ready_names:
                self._exclude(match[1], reason)
        name, _, complaint = text.partition(": ")
        if name in self._hosts.names:
            self._hosts.last_error_by_name[name] = complaint.strip()
        self._hosts.error_count += 1
        if self._hosts.error_count <= MAX_ERRORS:
            self._log(text)
        elif self._hosts.error_count == MAX_ERRORS + 1:
            self._log("further errors are not shown; the report has the reason of each host")

    def _handle_message(self, name: str, message: dict[str, Any]) -> None:
        if "ready" in message:
            # One whose clock is ahead even of the time at which this arrived is refused; so is NaN.
            if wait.number_in(message, "clock") < time.time() + self.plan.guard / 2:
                self._hosts.ready_names.add(name)
            else:
                self._refuse(name, "its clock is ahead")
        elif "behind" in message:
            self._hosts.ready_names.discard(name)
            self._refuse(name, "its clock is behind")
        else:
            row = model.read_row(message, self.plan)
            if row is not None and row.client == name and (row.slot, name) not in self._rows:
                self._rows[row.slot, name] = row
                self._results.row(row)

    def _refuse(self, name: str, reason: str) -> None:
        self._exclude(name, reason)
        self._log(f"{name}: {reason}, so it is not tested")

    def _exclude(self, name: str, reason: str) -> None:
        self._hosts.reason_by_name[name] = reason
        self._results.absent({name: reason})


# --- The signals that stop a run, each of which leaves time for its end ---

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StoppedError(Exception):
    """A signal asked for the end of the run."""


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """The first signal raises StoppedError; those after it, or after the context, are ignored.

    timeout(1) sends SIGTERM twice, and the end of a run must not be interrupted.
    """

    def ignore() -> None:
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def stop(_number: int, _frame: object) -> None:
        ignore()
        raise StoppedError

    for number in STOP_SIGNALS:
        signal.signal(number, stop)
    try:
        yield
    finally:
        ignore()
