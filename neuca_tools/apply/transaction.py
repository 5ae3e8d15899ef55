"""One transaction: mark, journal, apply, verify, undo, remember. The only code that changes a host.

A pass, `tune`, `release` and `revert` differ in their purpose alone: which operations of a decision
they carry out, and what they leave in the record.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Optional, Protocol

from neuca_tools.apply.decide import Decision
from neuca_tools.apply.execute import Failure, Result, apply
from neuca_tools.apply.rounds import as_it_was, identity, unfinished, waiting
from neuca_tools.model import NetworkState, Record
from neuca_tools.plan.device_operation import SetDevice
from neuca_tools.plan.operation import Operation, Phase, Writer
from neuca_tools.plan.operations import (
    DeleteAddress,
    DeleteRoute,
    Rename,
    SetMtu,
    SetTxQueueLen,
    Tell,
    Unmanage,
    WriteSysctl,
)
from neuca_tools.plan.plan import plan
from neuca_tools.state import updates

log = logging.getLogger("neuca")
RELEASE_TIME = 0.5  # seconds that NetworkManager gets to flush what it had set
PATIENCE = (0.0, 0.2, 0.5, 1.0, 2.0)
"""Seconds before each look of a verification: drivers, udev and systemd-sysctl settle late."""
LATE = (WriteSysctl, SetMtu, SetTxQueueLen)
"""Set once more at the end: udev may have set them late, to values of its own."""
NOT_KEPT = "done, but it is not so: another program or the driver put it back"


class Watcher(Protocol):
    """Waits for changes of the host."""

    def wait(self, seconds: float) -> None:
        """Until something changes, at most so long."""


class Host(Protocol):
    """The host that a transaction changes."""

    def decide(self, record: Record) -> Decision:
        """Look again, and decide with this record. Raises ObserveError."""

    def writer(self, decision: Decision) -> Writer:
        """What may write to the links of this decision, and to no other."""

    def watch(self) -> AbstractContextManager[Watcher]:
        """A watch for changes from now on."""

    def settle_renames(self) -> None:
        """Wait until udev has taken in that interfaces have other names."""


class Store(Protocol):
    """Where the record and the journal are kept. What is saved is on the disk when a method returns."""

    def save_record(self, record: Record) -> None:
        """Raises ApplyError."""

    def load_journal(self, boot_id: str) -> Optional[NetworkState]:
        """What links were like before a transaction that never ended; None if the last one ended."""

    def save_journal(self, before: NetworkState, boot_id: str) -> None:
        """Raises ApplyError."""

    def remove_journal(self) -> None:
        """Raises ApplyError."""

    def unsaved(self) -> str:
        """Why something could not be saved; empty where everything is."""


class Purpose(Protocol):
    """What a transaction is for."""

    def shape(self, decision: Decision) -> Decision:
        """The decision with the desired state of this purpose."""

    def operations(self, decision: Decision) -> tuple[Operation, ...]:
        """What is to be done, in the order of the plan."""

    def remember(self, decision: Decision, result: Result, held: Sequence[Operation]) -> Record:
        """The record afterwards. `held` waits until the state can be saved."""


class Outcome(NamedTuple):
    """What was done and what failed; what had to be undone; and the decision at the end."""

    result: Result
    undone: Result
    decision: Decision


@dataclass
class Transaction:
    """One transaction under way. `run` is all of it."""

    host: Host
    store: Store
    purpose: Purpose
    decision: Decision
    result: Result = field(default_factory=Result)
    undone: Result = field(default_factory=Result)
    before: NetworkState = field(default_factory=NetworkState)
    marked: bool = False

    def run(self) -> Outcome:
        """Carry out the decision. Raises NeucaError; the next start then finds the journal."""
        planned = self._mark(self.purpose.operations(self.decision))
        self._journal(planned)
        with self.host.watch() as watch:
            self._apply(self._due(planned))
            self._verify(watch)
            self._undo()
        self._remember()
        return Outcome(self.result, self.undone, self.decision)

    # --- the steps ---

    def _mark(self, planned: Sequence[Operation]) -> Sequence[Operation]:
        """Make managers let go of our NICs first, and look again: they may flush what they had set.

        Returns what is planned after that.
        """
        operations = [one for one in planned if one.order <= Phase.MARK]
        if not any(isinstance(one, (Unmanage, Tell)) for one in operations):
            return planned
        self.store.save_record(self.decision.record)
        with self.host.watch() as watch:
            self._apply(operations)
            watch.wait(RELEASE_TIME)
        self.marked = True
        self.decision = self._decide(self.decision.record)
        left = self.purpose.operations(self.decision)
        removals = [one for one in planned if isinstance(one, (DeleteAddress, DeleteRoute))]
        self.result += Result(tuple(one for one in removals if one not in set(left)))
        return left

    def _journal(self, operations: Sequence[Operation]) -> None:
        """Save what will be ours, and what the links are like now, before the first change."""
        world, have = self.decision.world, self.decision.have
        died = self.store.load_journal(world.boot_id)
        links = {**have.links, **(died.links if died else {})}
        self.before = replace(
            have,
            links={key: as_it_was(link, world) for key, link in links.items()},
            files={},
            sysctls={},
            hops=tuple(hop for hop in have.hops if hop.ours),
        )
        self.store.save_record(updates.record_intentions(self.decision.record, operations))
        if any(operation.domain for operation in operations):
            self.store.save_journal(self.before, world.boot_id)

    def _apply(self, operations: Sequence[Operation]) -> None:
        self.result += apply(operations, self.host.writer(self.decision))

    def _verify(self, watch: Watcher) -> None:
        """Look again, with growing patience, until nothing is left to do.

        What is left although it was done is a failure, but sysctls, MTU and queue length are set
        once more: udev runs systemd-sysctl late, and after a rename sets anew what a .link file
        says (cloud-init's have an MTU). What is left and was not done yet (a NIC that appeared
        meanwhile, a side effect of the kernel) is done in a second round.
        """
        if not self.result.done and not self.result.declined:
            return
        if any(isinstance(operation, Rename) for operation in self.result.done):
            self.host.settle_renames()
        for patience in PATIENCE:
            if patience:
                watch.wait(patience)
            left = self._left()
            again = self._second_round(left, last=patience == PATIENCE[-1])
            if again:
                self._extend_journal(again)
                self._apply(again)
            elif not left:
                return
        self._fail(self._left())

    def _undo(self) -> None:
        """Roll back the NICs that failed: a plan with its arguments swapped."""
        lost = self.result.lost_nics
        if not lost:
            return
        self._look_again()
        now = self.decision
        everything = replace(now.record.owned, routes=True)
        operations = plan(
            now.have,
            self.before,
            everything,
            scope=lost,
            rename_while_up=now.world.rename_while_up,
        )
        own = [operation for operation in operations if operation.domain]
        self.undone = apply(own, self.host.writer(now))

    def _remember(self) -> None:
        if self.result.failures:
            self._look_again()
        held: Sequence[Operation] = ()
        if self.store.unsaved():
            held = waiting(self.purpose.operations(self.decision))
        record = self.purpose.remember(self.decision, self.result, held)
        self.store.save_record(record)
        self.store.remove_journal()
        self.decision = replace(self.decision, record=record)

    # --- what they share ---

    def _decide(self, record: Record) -> Decision:
        return self.purpose.shape(self.host.decide(record))

    def _look_again(self) -> None:
        """Another decision, with all in the record that was done since."""
        record = updates.record_intentions(self.decision.record, self.result.done)
        self.decision = self._decide(updates.record_declined(record, self.result.declined))

    def _due(self, planned: Sequence[Operation]) -> Sequence[Operation]:
        """What is planned, but for what waits until the state can be saved, or was told before."""
        held = set(waiting(planned)) if self.store.unsaved() else set()
        if self.marked:
            held |= {one for one in planned if isinstance(one, (Unmanage, Tell))}
        return [one for one in planned if one not in held] if held else planned

    def _left(self) -> tuple[Operation, ...]:
        self._look_again()
        return unfinished(self._due(self.purpose.operations(self.decision)), self.result)

    def _second_round(self, left: Sequence[Operation], last: bool) -> list[Operation]:
        done = {identity(operation) for operation in self.result.done}
        again = [operation for operation in left if identity(operation) not in done]
        if last:
            again += [operation for operation in left if isinstance(operation, LATE)]
        return again

    def _extend_journal(self, operations: Sequence[Operation]) -> None:
        """Save what a second round will change; what is rolled back to is still the first state."""
        before = self.before
        self._journal(operations)
        self.before = before

    def _fail(self, left: Sequence[Operation]) -> None:
        """Count as failed what was done and is not so; of device settings as declined."""
        failures = [Failure(operation, NOT_KEPT) for operation in left]
        declined = [one for one in failures if isinstance(one.operation, SetDevice)]
        self.result += Result(
            (), tuple(one for one in failures if one not in declined), tuple(declined)
        )
        if self.result.declined:
            self._look_again()
