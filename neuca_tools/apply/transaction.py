"""One transaction: mark, journal, apply, verify, roll back, remember.

This is the only code that changes a host. A pass, `tune`, `release` and `revert` differ only in
their purpose: which operations of a decision they carry out, and what the record says afterwards.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from neuca_tools.apply.decide import Decision
from neuca_tools.apply.execute import apply
from neuca_tools.apply.result import (
    Failure,
    Result,
    operation_identity,
    postponed_operations,
    restorable_link,
    restorable_now,
    unfinished_operations,
    with_other_settings,
    without_flushed,
)
from neuca_tools.errors import ApplyError
from neuca_tools.model import Link, LinkKey, NetworkState, Record
from neuca_tools.plan.link_operations import SetDevice
from neuca_tools.plan.operation import Operation, Phase, Plan, Scope, of_kind
from neuca_tools.plan.operations import (
    Activate,
    DeleteAddress,
    ReloadManager,
    Rename,
    SetAttribute,
    SetState,
    Unmanage,
    WriteFile,
    WriteSysctl,
)
from neuca_tools.plan.plan import plan_operations
from neuca_tools.plan.route_operations import DeleteRoute
from neuca_tools.state import intentions, updates

if TYPE_CHECKING:
    from neuca_tools.apply.host import Host
    from neuca_tools.backends.linkwatch import Watch

RELEASE_SECONDS = 0.5
"""Seconds that NetworkManager has to flush the addresses and routes that it had set."""
ACTIVATION_LOOKS = 3
"""How often to wait RELEASE_SECONDS, or for a change, when it flushes a NIC to start DHCP on it."""
VERIFY_DELAYS_SECONDS = (0.0, 0.2, 0.5, 1.0, 2.0)
"""Seconds before each look of a verification, because drivers, udev and systemd-sysctl act late."""
ROLL_BACK_DELAYS_SECONDS = (0.0, 0.2, 1.0)
"""Seconds before each round of a roll-back."""
SET_AGAIN_AT_THE_END = (WriteSysctl, SetAttribute)
"""Settings that are set once more at the end, because udev may have overwritten them."""
REASON_NOT_IN_EFFECT = "done, but not in effect: another program or the driver has undone it"


class Purpose(Protocol):
    """What a transaction is for."""

    requires_saved_state: bool = False
    """Whether nothing is changed unless the state can be saved, rather than only removals."""

    def adapt(self, decision: Decision) -> Decision:
        """The decision, with another desired state if this purpose has its own."""
        return decision

    def operations(self, decision: Decision) -> Plan:
        """The operations to carry out, in the order of the plan."""

    def remember(self, decision: Decision, result: Result, postponed: Plan) -> Record:  # noqa: ARG002
        """The record afterwards; that of the decision includes what was done.

        The `postponed` operations wait until the state can be saved.
        """
        resolution, observed, world = decision.resolution, decision.observed, decision.world
        return updates.forget_restored(decision.record, resolution, observed, world)


class Outcome(NamedTuple):
    """What was done and what failed, what was rolled back, and the decision at the end."""

    result: Result
    rolled_back: Result
    decision: Decision


@dataclass
class Transaction:
    """One transaction in progress; `run` carries it out.

    `before` is the state to roll back to, noted before anything can fail: an empty one would remove
    all that is ours. `made_links` are those of the record. The record of the decision includes the
    `recorded_operations`. Creating it raises ObserveError.
    """

    host: Host
    purpose: Purpose
    decision: Decision
    result: Result = field(default_factory=Result)
    rolled_back: Result = field(default_factory=Result)
    before: NetworkState = field(init=False)
    made_links: Mapping[LinkKey, Link] = field(init=False)
    managers_were_told: bool = False
    recorded_operations: Plan = ()

    def __post_init__(self) -> None:
        self._note_before()

    def run(self) -> Outcome:
        """Carry out the decision. Raises NeucaError, after which the next pass repeats it."""
        planned = self._release_from_managers(self.purpose.operations(self.decision))
        self._save_journal(planned)
        with self.host.watch() as watch:
            self._carry_out(self._due(planned))
            self._verify_result(watch)
            if self.result.nics_to_roll_back:
                self._return_to(self.before, self.result.nics_to_roll_back, watch)
            self._write_late_files()
        self._remember()
        return Outcome(self.result, self.rolled_back, self.decision)

    def roll_back(self, observed: NetworkState) -> Outcome:
        """Return to the state before the transaction, with files and sysctls as `observed` then."""
        self.result = Result()  # the record has what was done, and forgot what it restored
        self.decision = self._decide_anew(self.decision.record)
        desired = self.before._replace(
            files=observed.files,
            sysctls=observed.sysctls,
            manager_by_file=self.decision.desired.manager_by_file,
        )
        with self.host.watch() as watch:
            self._return_to(desired, None, watch)
        return Outcome(Result(), self.rolled_back, self.decision)

    # --- the steps ---

    def _release_from_managers(self, planned: Sequence[Operation]) -> Sequence[Operation]:
        """Have managers release our NICs, which may flush them; return what is planned after it."""
        operations = [operation for operation in planned if operation.phase <= Phase.MARK]
        if not of_kind(operations, Unmanage, ReloadManager, Activate):
            return planned
        self._save_intentions(self.decision.record, operations)
        with self.host.watch() as watch:
            self._carry_out(operations)
            watch.wait(RELEASE_SECONDS)
            if self._activated_nics():
                for _ in range(ACTIVATION_LOOKS):
                    watch.wait(RELEASE_SECONDS)
        self.managers_were_told = True
        self.decision = self._decide_anew(self.decision.record)
        self.before = without_flushed(self.before, self.decision.observed)
        after = self.purpose.operations(self.decision)
        removals: list[Operation] = of_kind(planned, DeleteAddress, DeleteRoute)
        done_by_managers = tuple(removal for removal in removals if removal not in set(after))
        self.result += Result(done_by_managers)
        return after

    def _note_before(self) -> None:
        """Note the state to roll back to: before an interrupted pass, if there was one."""
        world, observed = self.decision.world, self.decision.observed
        interrupted, made = self.host.load_journal(world.boot_id), self.decision.record.made
        # Also requested addresses that will expire, which count as absent for a plan.
        addresses = world.addresses
        links = {
            key: link._replace(addresses=addresses.get(link.index, ()))
            for key, link in observed.links.items()
        }
        for key, link in (interrupted.links if interrupted else {}).items():
            links[key] = with_other_settings(link, observed.links.get(key, link))
        self.made_links = made
        self.before = observed._replace(
            links={key: restorable_link(link, made.get(key), world) for key, link in links.items()},
            files={},
            sysctls={},
            hops=tuple(hop for hop in observed.hops if hop.ours),
        )

    def _save_journal(self, operations: Sequence[Operation]) -> None:
        """Before the first change, save the current links and what will be ours."""
        if operations:  # without any, the record is saved once, at the end
            record, written = self.decision.record, self.decision.record.written
            record = intentions.record_intentions(record, operations)
            # What was written before is there until the operations are carried out.
            record = record._replace(written={**record.written, **written})
            self._save_intentions(record, operations)
        if any(operation.domain for operation in operations):
            self.host.save_journal(self.before, self.decision.world.boot_id)
        if self.purpose.requires_saved_state and self.host.unsaved_reason():
            self.host.remove_journal()
            raise ApplyError(self.host.unsaved_reason(), errno.ENOSPC)

    def _save_intentions(self, record: Record, operations: Sequence[Operation]) -> None:
        """Save the record for the case that the operations are interrupted. Raises ApplyError."""
        self.host.save_record(intentions.without_requests(record, operations))

    def _carry_out(self, operations: Sequence[Operation]) -> None:
        self.result += apply(operations, self.host.writer(self.decision))

    def _verify_result(self, watch: Watch) -> None:
        """Look again, with growing delays, until nothing is left to do.

        An operation that was done and is planned again has failed. Sysctls, MTU and queue length,
        however, are set once more: udev runs systemd-sysctl late, and after a rename it applies
        .link files again (those of cloud-init contain an MTU). Operations that are new, because a
        NIC has appeared or because of a side effect in the kernel, are done in a second round.
        """
        if not self.result.done and not self.result.declined:
            return
        self.host.wait_for_udev(self.result.done)
        for delay in VERIFY_DELAYS_SECONDS:
            watch.wait(delay)
            left = self._unfinished()
            further = self._second_round(left, last=delay == VERIFY_DELAYS_SECONDS[-1])
            if further:
                before = self.before  # a roll-back still restores the first state
                self._note_before()
                self._save_journal(further)
                self.before = before
                self._carry_out(further)
            elif not left:
                return
        self._record_failed(self._unfinished())

    def _return_to(self, desired: NetworkState, scope: Scope, watch: Watch) -> None:
        """Roll back by the same steps: plan, record, apply, verify.

        Whatever fails, the rest is done. What failed is tried again, as it may rely on the rest.
        """
        record = self.decision.record._replace(made=desired.links)  # a look reads the links in it
        self.decision = self.decision._replace(record=record)
        self.rolled_back, reasons = Result(), dict[object, str]()
        for delay in ROLL_BACK_DELAYS_SECONDS:
            watch.wait(delay)
            steps = self._steps_back(desired, scope)
            if not steps:
                return
            record = intentions.record_intentions(self.decision.record, steps)
            self.decision = self.decision._replace(record=record)
            with suppress(ApplyError):  # without room for the record, the host is what counts
                self._save_intentions(record, steps)
            tried = apply(steps, self.host.writer(self.decision), goes_on=True)
            self.host.wait_for_udev(tried.done)
            for failure in tried.failures:
                reasons[operation_identity(failure.operation)] = failure.reason
            self.rolled_back += replace(tried, failures=())
        left = tuple(
            Failure(step, reasons.get(operation_identity(step), REASON_NOT_IN_EFFECT))
            for step in self._steps_back(desired, scope)
        )
        self.rolled_back = replace(self.rolled_back, failures=left)

    def _steps_back(self, desired: NetworkState, scope: Scope) -> Plan:
        """The plan that leads back to `desired`; with `scope` only what concerns a link."""
        self._look_again()
        now = self.decision
        observed = now.observed._replace(hops=tuple(hop for hop in now.observed.hops if hop.ours))
        steps = plan_operations(
            observed,
            restorable_now(desired, observed, now.record),
            now.record.owned._replace(routes=True),
            scope=scope,
            rename_while_up=now.world.rename_while_up,
        )
        declined = {operation_identity(failure.operation) for failure in self.rolled_back.declined}
        in_scope = (step for step in steps if scope is None or step.domain)
        return tuple(step for step in in_scope if operation_identity(step) not in declined)

    def _write_late_files(self) -> None:
        """Write the files with names that were in use until this transaction renamed links."""
        if not of_kind(self.result.done, Rename):
            return
        attempted = set(map(operation_identity, self.result.tried_operations))
        late = of_kind(self.purpose.operations(self.decision), WriteFile, ReloadManager)
        if not attempted.issuperset(map(operation_identity, of_kind(late, WriteFile))):
            self._carry_out(late)

    def _remember(self) -> None:
        if self.result.failures:
            self._look_again()
        postponed: Plan = ()
        if self.host.unsaved_reason():
            postponed = postponed_operations(self.purpose.operations(self.decision))
        record = self._with_done()._replace(made=self.made_links)
        self.decision = self.decision._replace(record=record)
        record = self.purpose.remember(self.decision, self.result, postponed)
        left = [failure.operation for failure in self.rolled_back.failures]
        record = intentions.without_requests(record, left)
        self.host.remove_journal()  # first: the record forgets what the journal would bring back
        self.host.save_record(record)
        self.decision = self.decision._replace(record=record)
        self.recorded_operations = ()  # the purpose may have made it forget what was done

    # --- shared by the steps ---

    def _decide_anew(self, record: Record) -> Decision:
        return self.purpose.adapt(self.host.decide(record))

    def _look_again(self) -> None:
        """Observe and decide again, with a record of everything that was done."""
        declined = [(each.operation, each.reason, each.errno) for each in self.result.declined]
        record = intentions.record_declined(self._with_done(), declined)
        self.decision = self._decide_anew(record)
        self.recorded_operations = self.result.done

    def _with_done(self) -> Record:
        """The record of the decision with everything that was done."""
        done = self.result.done
        if self.recorded_operations == done:
            return self.decision.record
        return intentions.record_intentions(self.decision.record, done)

    def _due(self, planned: Sequence[Operation]) -> Sequence[Operation]:
        """What to carry out now: neither what is postponed, nor what the managers were told."""
        left_out = set(postponed_operations(planned)) if self.host.unsaved_reason() else set()
        if self.managers_were_told:
            left_out.update(of_kind(planned, Unmanage, ReloadManager))
        if not left_out:
            return planned
        return [operation for operation in planned if operation not in left_out]

    def _unfinished(self) -> Plan:
        self._look_again()
        return unfinished_operations(self._due(self.purpose.operations(self.decision)), self.result)

    def _second_round(self, left: Sequence[Operation], last: bool) -> list[Operation]:
        if not left:
            return []
        done = {operation_identity(operation) for operation in self.result.done}
        further = [operation for operation in left if operation_identity(operation) not in done]
        if last:
            flushed = self._activated_nics() | _raised_nics(left)
            further += [
                operation
                for operation in left
                if isinstance(operation, SET_AGAIN_AT_THE_END) or operation.domains & flushed
            ]
        return list(dict.fromkeys(further))

    def _activated_nics(self) -> frozenset[str]:
        """The NICs on which NetworkManager was told to start DHCP: it may flush them late."""
        activations = of_kind(self.result.done, Activate)
        return frozenset(activation.on.key.mac for activation in activations)

    def _record_failed(self, left: Sequence[Operation]) -> None:
        """Record operations without effect as failed, those on device settings as declined."""
        declined = of_kind(left, SetDevice)
        failed = [operation for operation in left if operation not in declined]
        self.result += Result((), _not_kept(failed), _not_kept(declined))
        if self.result.declined:
            self._look_again()


def _raised_nics(left: Sequence[Operation]) -> frozenset[str]:
    """The NICs with a link that was brought down and is up.

    The kernel brings a VLAN up with its lower device, in Linux 7.2 perhaps after it has said so.
    Bringing the VLAN down again removes its IPv6 addresses.
    """
    states = of_kind(left, SetState)
    return frozenset().union(*(state.failing_domains for state in states if not state.up))


def _not_kept(operations: Sequence[Operation]) -> tuple[Failure, ...]:
    return tuple(Failure(operation, REASON_NOT_IN_EFFECT) for operation in operations)
