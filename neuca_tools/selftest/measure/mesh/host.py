"""The part of one host in a mesh: in each slot it is a client, a server or neither."""

# SPDX-License-Identifier: MIT

import json
import math
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import NamedTuple, Optional

from neuca_tools.errors import SelftestError
from neuca_tools.libc import end_with
from neuca_tools.selftest.measure.helper.serve import Server
from neuca_tools.selftest.measure.host.planned import AgentPlan
from neuca_tools.selftest.measure.mesh.pair import diagnose_pair, measure_pair, names_of_pair
from neuca_tools.selftest.measure.mesh.results import LATEST
from neuca_tools.selftest.measure.wait import Lines, number_in, wait_readable
from neuca_tools.selftest.mesh import model
from neuca_tools.selftest.mesh.model import VERSION, MeshPlan, Row, row_record

IDLE_SECONDS = 600.0  # without a message after which a host gives up, if no slot is left
MAX_MESSAGE_BYTES = 16 * 2**20  # bytes of a message of the coordinator: the slots of 4096 hosts
CLOCK_TOLERANCE = 0.5  # the part of the guard interval by which a clock may differ
Slot = tuple[int, tuple[tuple[int, ...], ...]]


class _Child(NamedTuple):
    """The process of a slot, and a pidfd of it.

    A client reports its `row` itself, filled in; None for a server.
    """

    process: int
    pidfd: int
    row: Optional[Row]

    def fileno(self) -> int:
        return self.pidfd


@dataclass
class _Schedule:
    """The slots, which of them is next, and when it begins, in seconds since 1970.

    `diagnoses`: whether paths get a full diagnosis in these slots.
    """

    slots: Sequence[Slot] = ()
    place: int = 0
    start: float = math.inf
    diagnoses: bool = False

    @property
    def next(self) -> Optional[Slot]:
        """None after the last, or if it is not known yet when it begins."""
        is_left = self.place < len(self.slots) and self.start < math.inf
        return self.slots[self.place] if is_left else None


class Member:
    """A host of a mesh. `print_line` is called with each line of output.

    `lines` are the messages of the coordinator; None if the schedule is known in advance.
    """

    def __init__(
        self,
        plan: MeshPlan,
        name: str,
        agent: AgentPlan,
        secret: bytes,
        print_line: Callable[[str], None],
        lines: Optional[Lines] = None,
    ) -> None:
        self._plan, self._name, self._agent, self._secret = plan, name, agent, secret
        self._print_line, self._lines = print_line, lines
        self._schedule = _Schedule()
        self._child: Optional[_Child] = None
        # When the slot of the child ends, by the monotonic clock.
        self._slot_end = 0.0
        self._last_message = time.monotonic()

    def announce(self) -> None:
        self._send_message({"mesh": VERSION, "ready": self._name, "clock": time.time()})

    def follow_schedule(self, slots: Sequence[Slot], start: float) -> None:
        """Run these slots from `start` on, in seconds since 1970, and return after the last."""
        self._schedule = _Schedule(slots, 0, start)
        self.run()

    def run(self) -> None:
        """Return when the coordinator ends, or the slots. Raises SelftestError for a message."""
        try:
            while (self._lines is not None or self._is_busy()) and self._turn():
                pass
        finally:
            self._end_slot(report=False)

    def _send_message(self, message: dict[str, object]) -> None:
        self._print_line(json.dumps(message, separators=(",", ":")))

    def _turn(self) -> bool:
        """Wait for what comes next and handle it; False after the end."""
        inputs = [source for source in (self._lines, self._child) if source is not None]
        ready = wait_readable(inputs, self._due())
        if self._child in ready:
            self._end_slot()
        if self._lines in ready and not self._follow_coordinator():
            return False
        if self._child and time.monotonic() >= self._slot_end:
            self._end_slot()
        self._begin_if_due()
        return self._is_busy() or time.monotonic() < self._last_message + IDLE_SECONDS

    def _is_busy(self) -> bool:
        """Whether a test runs or is to come."""
        return self._child is not None or self._schedule.next is not None

    def _due(self) -> float:
        """When something has to be done in any case, by the monotonic clock."""
        moments = [self._slot_end] if self._child else []
        if self._schedule.next is not None:
            moments.append(time.monotonic() + self._schedule.start - time.time())
        return min(moments, default=self._last_message + IDLE_SECONDS)

    # --- Messages of the coordinator -----------------------------------------------------------

    def _follow_coordinator(self) -> bool:
        """Do what has arrived; False if the coordinator is gone, or this host cannot take part."""
        assert self._lines is not None
        self._last_message = time.monotonic()
        return all(map(self._obey, self._lines.read_messages())) and not self._lines.ended

    def _obey(self, message: dict[str, object]) -> bool:
        """Do what a message says; False if this host cannot take part."""
        if "slots" in message:
            slots = read_slots(message["slots"], len(self._plan.hosts))
            self._schedule = _Schedule(slots, diagnoses=message.get("diagnoses") is True)
        if "next" in message:
            place, start, clock = (number_in(message, key) for key in ("next", "start", "clock"))
            if not all(0 <= number < LATEST for number in (place, start, clock)):
                raise SelftestError("follow the coordinator: a message without its times")
            # It was sent before it was received: a clock that is behind even then is wrong.
            behind = clock - time.time()
            if behind > CLOCK_TOLERANCE * self._plan.guard:
                self._send_message({"mesh": VERSION, "behind": round(behind, 3)})
                return False
            self._schedule.place, self._schedule.start = int(place), start
            # One that has begun by this clock already begins again, and has no result so far.
            row, slot = self._child.row if self._child else None, self._schedule.next
            is_next = row is not None and slot is not None and row.slot == slot[0]
            self._end_slot(report=not is_next)
        return True

    # --- Slots ---------------------------------------------------------------------------------

    def _begin_if_due(self) -> None:
        slot, start = self._schedule.next, self._schedule.start
        if slot is None or time.time() < start:
            return
        self._end_slot()
        self._schedule.place += 1
        longest = self._plan.slot_seconds
        if self._schedule.diagnoses:
            longest += model.DIAGNOSIS_SECONDS
        self._schedule.start = start + longest
        number, pairs = slot
        names = names_of_pair(self._plan, pairs, self._name)
        if names is None:
            return
        # Later slots keep to the clock, whenever this one began.
        left = longest - (time.time() - start) - self._plan.guard / 2
        self._slot_end = time.monotonic() + max(1.0, left)
        row = Row(number, *names) if names[0] == self._name else None
        self._child = self._start_child(row, names[0], max(1.0, left))

    def _start_child(self, row: Optional[Row], client: str, seconds: float) -> _Child:
        parent, process = os.getpid(), os.fork()
        if process:
            return _Child(process, os.pidfd_open(process), row)
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            if end_with(parent):
                self._run_slot(row, client, seconds)
                os._exit(0)
        finally:
            # Without the parent's exit handlers.
            os._exit(1)

    def _run_slot(self, row: Optional[Row], client: str, seconds: float) -> None:
        if row is None:
            addresses = {host.name: ip_address(host.address) for host in self._plan.hosts}
            own, clients = addresses[self._name], frozenset({addresses[client]})
            Server([own], self._plan.port, self._secret, lambda _: None, clients).run(seconds)
            return
        work = diagnose_pair if self._schedule.diagnoses else measure_pair
        try:
            row = work(self._plan, row, self._agent, self._secret)
        except Exception as error:  # noqa: BLE001 - one test that fails is not the end of a mesh
            row = replace(row, error="local", text=repr(error)[:200])
        self._send_message(row_record(row))

    def _end_slot(self, report: bool = True) -> None:
        """End the process of a slot; one that has not reported its row was too late."""
        child, self._child = self._child, None
        if child is None:
            return
        with suppress(ProcessLookupError):
            os.kill(child.process, signal.SIGKILL)
        os.close(child.pidfd)
        has_reported = os.waitpid(child.process, 0)[1] == 0
        if report and child.row is not None and not has_reported:
            self._send_message(row_record(replace(child.row, error="late")))


def read_slots(data: object, hosts: int) -> tuple[Slot, ...]:
    """The slots in a message. Raises SelftestError."""
    try:
        assert isinstance(data, list)
        slots = tuple(
            (int(number), tuple((int(client), int(server)) for client, server in pairs))
            for number, pairs in data
        )
    except (AssertionError, OverflowError, TypeError, ValueError):
        raise SelftestError("follow the coordinator: its slots cannot be read") from None
    if len(slots) > model.MAX_SLOTS:
        raise SelftestError(f"follow the coordinator: more than {model.MAX_SLOTS} slots")
    for number, slot in slots:
        model.check_slot(slot, hosts, number)
    return slots


def await_plan(lines: Lines, patience: float) -> tuple[MeshPlan, bytes]:
    """The plan and the secret, which come first. Raises SelftestError."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline and not lines.ended:
        if wait_readable([lines], deadline):
            for message in lines.read_messages():
                plan, secret = model.read_plan(message.get("plan")), str(message.get("secret"))
                if len(secret) < 16:
                    break
                return plan, secret.encode()
    raise SelftestError("join a mesh: there is no plan with a secret on standard input")
