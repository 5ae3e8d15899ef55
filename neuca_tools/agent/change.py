"""Changes outside of passes: `neuca release`, `neuca revert` and `neuca tune`.

With `dry_run`, a change is only planned: its operations count as done. The document is read with
the lock held: a pass may have changed it while the lock was waited for.
"""

# SPDX-License-Identifier: MIT

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Optional

from neuca_tools.agent import trial_file
from neuca_tools.agent.pass_report import log_change
from neuca_tools.apply.decide import Decision, Difference
from neuca_tools.apply.host import Host, open_host
from neuca_tools.apply.result import Result
from neuca_tools.apply.transaction import Outcome, Purpose, Transaction
from neuca_tools.config import Config
from neuca_tools.desired import bindings
from neuca_tools.desired.link_resolver import GUARDED
from neuca_tools.desired.marks import SYSCTL_FILE
from neuca_tools.documents.neuca.link_settings import is_of_place
from neuca_tools.documents.stacking import all_lower_devices, all_upper_links
from neuca_tools.errors import NeucaError
from neuca_tools.files import locked
from neuca_tools.model import (
    UNCHANGED,
    Document,
    Link,
    LinkKey,
    NetworkState,
    NicRecord,
    OriginalValues,
    OwnedObjects,
    Record,
)
from neuca_tools.model.routing import POLICY_ROUTING
from neuca_tools.plan.link_operations import CreateLink, SetDevice
from neuca_tools.plan.operation import Operation, of_kind
from neuca_tools.plan.operations import SetMtu, SetTxQueueLen, StopClient, WriteFile, WriteSysctl
from neuca_tools.state import records, updates
from neuca_tools.state.active_document import Intake, last_good
from neuca_tools.state.store import demand_room, save_unsaved_files
from neuca_tools.tuning.choice import Choice

SETTINGS = (SetMtu, SetTxQueueLen, SetDevice, WriteSysctl)


@dataclass(frozen=True)
class Release(Purpose):
    """`neuca release`: remove what is ours on these NICs; those `touched` change with them."""

    macs: frozenset[str]
    touched: frozenset[str]
    requires_saved_state = True

    def operations(self, decision: Decision) -> tuple[Operation, ...]:
        """What concerns the NICs, and settings of the host that only they asked for."""
        planned = decision.plan({*self.touched, "", POLICY_ROUTING})
        originals = decision.record.original_sysctls
        return tuple(operation for operation in planned if self._is_included(operation, originals))

    def _is_included(self, operation: Operation, originals: Mapping[str, str]) -> bool:
        if isinstance(operation, StopClient):
            return operation.key.mac in self.touched
        if isinstance(operation, WriteSysctl) and originals.get(operation.path) == operation.after:
            return True  # of the whole host
        return operation.domain in self.touched or POLICY_ROUTING in operation.handles

    def remember(self, decision: Decision, result: Result, postponed: object) -> Record:  # noqa: ARG002
        """Nothing on the NICs is ours any more, unless the release failed."""
        record = super().remember(decision, result, ())
        return record if result.failures else updates.forget_nics(record, self.macs)


class Files(Purpose):
    """Write the files that differ, and change nothing else."""

    def operations(self, decision: Decision) -> tuple[Operation, ...]:
        return tuple(of_kind(decision.plan(()), WriteFile))


@dataclass(frozen=True)
class Restore(Purpose):
    """`neuca revert`: every setting has the value from before the agent."""

    sysctl_file: Path
    requires_saved_state = True

    def adapt(self, decision: Decision) -> Decision:
        """The original values as the desired state."""
        present, record = decision.observed.links, decision.record
        originals = record.originals.items()
        links = {key: _original_link(present[key], own) for key, own in originals if key in present}
        files = {str(self.sysctl_file): None}
        desired = NetworkState(links, sysctls=record.original_sysctls, files=files)
        difference = replace(decision.difference, desired=desired, owned=OwnedObjects())
        return decision._replace(difference=difference)

    def operations(self, decision: Decision) -> tuple[Operation, ...]:
        return tuple(of_kind(decision.plan(), *SETTINGS, WriteFile))

    def remember(self, decision: Decision, result: Result, postponed: object) -> Record:  # noqa: ARG002
        """Forget what was restored, unless something could not be.

        The original values of NICs that a pass leaves alone, such as ports of a foreign bridge,
        are kept, and so are the MTUs of bonds, their members and other links that neucad created.
        """
        record, restored = decision.record, decision.desired.links
        if result.failures:
            return record
        left = {}
        for key, original in record.originals.items():
            if key in restored:
                mtu = original.mtu if restored[key].mtu is None else None
                original = OriginalValues(mtu=mtu)
            if original != UNCHANGED:
                left[key] = original
        written = {
            setting: value
            for setting, value in record.written.items()
            if setting.link and getattr(restored.get(setting.link), setting.setting, None) is None
        }
        return record._replace(originals=left, original_sysctls={}, declined={}, written=written)


@dataclass(frozen=True)
class Tuning(Purpose):
    """`neuca tune`: the settings of a pass but `others`; with `link`, only those of that link."""

    link: Optional[LinkKey] = None
    others: tuple[Operation, ...] = ()

    def operations(self, decision: Decision) -> tuple[Operation, ...]:
        """The settings to change, but for those of links and places that only a pass creates."""
        plan = _without_renames(decision).whole_plan
        created = {creation.on.key for creation in of_kind(plan, CreateLink)}
        planned: list[Operation] = []
        for operation in of_kind(plan, *SETTINGS):
            key = operation.link.key if operation.link else None
            is_later = isinstance(operation, SetDevice) and operation.is_for_later_place
            if key not in created and not is_later and self.link in (None, key):
                planned.append(operation)
        return tuple(operation for operation in planned if operation not in self.others)


def _without_renames(decision: Decision) -> Difference:
    """What to change if each link keeps its name until a pass gives it the requested one."""
    names = {key: link.name for key, link in decision.observed.links.items()}
    desired = decision.desired.links.items()
    links = {key: link._replace(name=names.get(key, link.name)) for key, link in desired}
    return replace(decision.difference, desired=decision.desired._replace(links=links))


def release_nic(config: Config, mac: str, *, dry_run: bool) -> Result:
    """Remove what is ours on one NIC, its VLANs and what is made of it, then its rule and marks.

    The plan is that of a complete document without the NIC, which is ignored from then on. Other
    members of a bond that is removed get their own settings again. Raises NeucaError.
    """
    with _locked(config, dry_run), open_host(config, last_good(config.state)) as host:
        without, purpose, decision = _plan_release(host, mac)
        if dry_run:
            operations = purpose.operations(decision)
            after = host.decide(updates.forget_nics(decision.record, purpose.macs))
            return Result(tuple(dict.fromkeys((*operations, *Files().operations(after)))))
        result = run_transaction(without, purpose, decision).result
        if not result.failures:
            trial_file.change_earlier_record(
                config, lambda record: updates.forget_nics(record, purpose.macs)
            )
            result += _run_or_plan(host, Files(), dry_run=False)
        return result


@contextmanager
def _locked(config: Config, dry_run: bool) -> Iterator[None]:
    """The lock of passes, with room for the state, unless nothing is changed. Raises NeucaError."""
    if dry_run:
        yield
        return
    with locked(config.pass_lock, config.command_timeout):
        demand_room(config.state)
        yield


def _plan_release(host: Host, mac: str) -> tuple[Host, Release, Decision]:
    """The host without the NIC in its document, and the purpose. Raises NeucaError."""
    config, intake = host.config, host.intake
    survey = host.survey()
    requests = survey.resolution.requests
    released = frozenset({mac, *all_upper_links((mac,), requests)})
    touched = released | all_lower_devices(released, requests)
    ports = bindings.guid_by_short_form(survey.world, survey.record)
    bound = bindings.bound_links(config.links, ports)
    links = tuple(link for link in bound if link.key.mac not in released)
    document = bindings.bound_document(intake.document or Document(), ports)
    document = _document_without(document, released)
    without = host.for_document(config._replace(links=links), intake._replace(document=document))
    decision = without.survey()
    if decision.resolution.roles.role(mac) == "management":
        raise NeucaError(f'release "{mac}": it is the management NIC, with nothing of neucad on it')
    nic = decision.resolution.roles.nics.get(mac)
    if nic and nic.master in decision.resolution.roles.guard.devices:
        reason = f'it is in "{decision.world.devices[nic.master].name}", {GUARDED}'
        raise NeucaError(f'release "{mac}": {reason}', f"ip link set {nic.name} nomaster")
    return without, Release(released, touched), decision


def _document_without(document: Document, macs: Collection[str]) -> Document:
    """The document without these NICs, and without faults: what it no longer has is removed."""
    links = tuple(link for link in document.links if link.key.mac not in macs)
    platform = document.platform
    if platform:
        others = tuple(link for link in platform.links if link.key.mac not in macs)
        platform = platform._replace(links=others)
    return document._replace(links=links, faults=(), platform=platform)


def undo_release(config: Config, mac: str) -> None:
    """Ignore the NIC no longer, to be called with the lock held. Raises NeucaError."""
    demand_room(config.state)
    # Not to the spare directory, which a reboot empties.
    records.save_record(config.state.directory, _record_without_release(config, mac))
    trial_file.change_earlier_record(config, lambda earlier: _without_released(earlier, mac))


def plan_undo(config: Config, intake: Intake, mac: str) -> Result:
    """What a pass would do once the NIC is ignored no longer. Raises NeucaError."""
    with open_host(config, intake) as host:
        return Result(host.decide(_record_without_release(config, mac)).plan())


def _record_without_release(config: Config, mac: str) -> Record:
    """The record without this NIC. Raises NeucaError if the NIC was not released."""
    record = trial_file.next_record(config)
    if not record.nics.get(mac, NicRecord()).released:
        raise NeucaError(f'release --undo "{mac}": it was not released')
    return _without_released(record, mac)


def _without_released(record: Record, mac: str) -> Record:
    """The record without this NIC if it was released."""
    kept = {known: nic for known, nic in record.nics.items() if known != mac or not nic.released}
    return record._replace(nics=kept)


def revert_settings(config: Config, *, dry_run: bool) -> Result:
    """Restore the original values, until a pass at start sets all again. Raises NeucaError."""
    with _locked(config, dry_run), open_host(config, last_good(config.state)) as host:
        return _run_or_plan(host, Restore(config.sysctl_directory / SYSCTL_FILE), dry_run)


def _run_or_plan(host: Host, purpose: Purpose, dry_run: bool) -> Result:
    decision = purpose.adapt(host.survey())
    if dry_run:
        return Result(purpose.operations(decision))
    return run_transaction(host, purpose, decision).result


def run_transaction(host: Host, purpose: Purpose, decision: Decision) -> Outcome:
    """Run one transaction for this decision, and log it."""
    outcome = Transaction(host, purpose, decision).run()
    save_unsaved_files(host.config.state)
    return outcome._replace(result=log_change(host.config, outcome))


def _original_link(link: Link, original: OriginalValues) -> Link:
    """The link with its original settings, but for those of a place that it has left."""
    device = original.device.items()
    return link._replace(
        state=None,
        mtu=None if link.is_in_bond else original.mtu,  # which the bond sets
        txqueuelen=original.txqueuelen,
        sysctls=original.sysctls,
        device={
            name: value for name, value in device if name in link.device or not is_of_place(name)
        },
        addresses=(),
        managers={},
    )


def apply_tuning(
    config: Config, read: Callable[[], Intake], choice: Optional[Choice], link: Optional[LinkKey]
) -> Result:
    """Apply the settings that documents request and profiles want, and nothing else.

    `read` returns the document, and is called with the lock held. A choice of profiles holds until
    the next boot, and is saved before anything is set, so that later passes agree with it. Raises
    NeucaError.
    """
    with locked(config.pass_lock, config.command_timeout):
        intake = read()
        if choice is not None:
            records.save_choice(config.run_directory, choice)
        with open_host(config, intake) as host:
            return _run_or_plan(host, Tuning(link), dry_run=False)


def drop_tuning(config: Config, *, dry_run: bool) -> tuple[Result, Intake]:
    """Drop the choice of profiles, and set what is requested without it. Raises NeucaError.

    What a pass would change with the choice as well, such as manual changes, is left alone. Returns
    the document, too.
    """
    with nullcontext() if dry_run else locked(config.pass_lock, config.command_timeout):
        intake = last_good(config.state)
        with open_host(config, intake) as host:
            others = Tuning().operations(host.survey())
        if not dry_run:
            records.save_choice(config.run_directory, None)
        with open_host(config, intake, config.choice) as host:
            return _run_or_plan(host, Tuning(others=others), dry_run), intake
