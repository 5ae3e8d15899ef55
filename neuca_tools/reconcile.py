"""One pass: look, resolve, plan, write down what will be touched, apply, verify, undo what failed, remember.

Read `Pass.run` first. A survey is all of it that changes nothing; `neuca plan`, `show` and `status` make one of their own.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Optional

from . import __version__, firstboot, hardware, leftovers, marking, memory, probing
from . import record as records
from .apply import Failure, GuardedWriter, Result, apply
from .backends import hostfacts, hostid, udev
from .backends.bus import Bus
from .backends.linkwatch import Watch, interfaces
from .backends.netlink import Netlink
from .config import Config
from .desired import Resolution, Settings, resolve
from .device_operation import SetDevice
from .devices import concerned
from .errors import ApplyError
from .fileio import locked, read_bytes
from .guard import METADATA_HOSTS
from .intake import Intake, keep, metadata_hosts
from .managers import Managers, named_by_others
from .marks import SYSCTL_FILE
from .model import NetworkState, Problem, Record, World
from .names import own_names
from .observe import found
from .operation import Operation, Phase
from .operations import (
    DeleteAddress,
    DeleteRoute,
    Rename,
    SetMtu,
    SetTxQueueLen,
    Tell,
    Unmanage,
    WriteFile,
    WriteSysctl,
)
from .plan import plan
from .report import now, read_report, write_report
from .roles import Policy
from .rounds import as_it_was, identity, unfinished, waiting
from .routing import ROUTE_PROTOCOL
from .status import DocumentStatus, Report, Status, judge, with_unsaved
from .store import NO_ROOM, catch_up, tell_unsaved, unsaved
from .tuning import Choice, audit

log = logging.getLogger("neuca")
MOST_REMOVED = 1000  # lines that status keeps until the next boot
MANAGERS_LET_GO = 0.5  # seconds that NetworkManager gets to flush what it had set
RENAMED = 10.0  # seconds that udev gets to take in a rename
LATE = (WriteSysctl, SetMtu, SetTxQueueLen)  # what udev may set late, to values of its own
PATIENCE = (
    0.0,
    0.2,
    0.5,
    1.0,
    2.0,
)  # seconds between looks: drivers, udev and systemd-sysctl settle late


@dataclass(frozen=True)
class Survey:
    """All that a pass knows before it does anything."""

    world: World
    record: Record
    resolution: Resolution
    have: NetworkState
    want: NetworkState
    managers: Mapping[str, Mapping[str, str]]
    silent_managers: Mapping[str, str]

    def plan(self, scope: Optional[Collection[str]] = None) -> tuple[Operation, ...]:
        return plan(
            self.have,
            self.want,
            self.resolution.removable,
            scope=scope,
            rename_while_up=self.world.rename_while_up,
        )

    def changed(self) -> frozenset[str]:
        """The NICs whose request is another one than what is in force, or that have appeared."""
        changed = memory.changed(self.record, self.resolution, self.world)
        kept = {(hop.to, hop.metric) for hop in self.want.hops}
        gone = {
            hop.link.mac
            for hop in self.have.hops
            if not hop.ours or (hop.to, hop.metric) not in kept
        }
        return changed | gone if "" in changed else changed


class Host:
    """The handles of one pass."""

    def __init__(
        self, config: Config, netlink: Netlink, bus: Bus, choice: Optional[Choice] = None
    ) -> None:
        self.config, self.netlink, self.bus = config, netlink, bus
        self.choice = choice or records.load_choice(config.run_directory) or config.choice

    def survey(self, intake: Intake, record: Record) -> Survey:
        """Look at everything, change nothing. Raises ObserveError."""
        config = self.config
        hosts = [address for address in metadata_hosts(config.sources) if not address.is_loopback]
        world = self.netlink.look([*hosts, *METADATA_HOSTS])
        record = memory.fresh(record, world)
        tuning = hostfacts.look(
            self.choice, config.profile_directory, config.sysctl_directory, record
        )
        settings = Settings(
            Policy(config.ignored_macs, config.management_macs),
            config.links,
            tuple(hosts),
            config.allow_default_route,
            tuning,
            config.guest_router,
        )
        requests = (*(intake.document.links if intake.document else ()), *config.links)
        age = hostid.age() if _udev_is_ours(config) else world.age
        world = replace(
            world, settings=hardware.read(world, concerned(requests, world, record)), age=age
        )
        if intake.document and intake.document.router == "true":
            world = replace(world, advertised=hostfacts.advertised(world))
        resolution = resolve(intake.document, settings, world, record)
        places = marking.Places(
            config.udev_directory,
            config.networkmanager_directory,
            config.networkd_directory,
            config.sysctl_directory,
            config.udev_substring,
            config.data_udev_priority,
            config.mgmt_udev_priority,
        )
        sysctls = read_bytes(config.sysctl_directory / SYSCTL_FILE) or b""
        marks = marking.wanted(resolution, record, places, _names(config.udev_directory), sysctls)
        want = replace(resolution.want, files=marks.files, tell=marks.tell)
        resolution = replace(resolution, want=want)
        managers = self.managers()
        words = managers.ask([device.name for device in world.devices.values()])
        record = leftovers.leave(
            record,
            resolution.roles.nics,
            marking.marked(resolution, record),
            words,
            managers.reasons,
        )
        have = found(resolution, world, record, ROUTE_PROTOCOL, marks.files, words)
        removable = leftovers.removable(resolution.removable, record, have, world, resolution.roles)
        resolution = replace(resolution, removable=removable)
        return Survey(world, record, resolution, have, want, words, managers.reasons)

    def managers(self) -> Managers:
        """Both managers; nobody is asked anything where they are not those of this namespace."""
        return Managers(self.bus, _udev_is_ours(self.config))


def _udev_is_ours(config: Config) -> bool:
    return config.managers == "auto" and udev.here(interfaces())


def _names(directory: Path) -> list[str]:
    try:
        return [path.name for path in directory.iterdir()]
    except FileNotFoundError:
        return []


@contextmanager
def host(config: Config, choice: Optional[Choice] = None) -> Iterator[Host]:
    """Open what a survey or a pass needs, and close it again. `choice` of profiles: None for the one in force."""
    with Netlink() as netlink, Bus() as bus:
        yield Host(config, netlink, bus, choice)


def writer(handles: Host, survey: Survey) -> GuardedWriter:
    """What may write to the links of this survey that are ours to set, and to no other."""
    allowed = {
        link.index for link in survey.have.links.values()
    } - survey.resolution.roles.protected
    return GuardedWriter(handles.netlink, handles.managers(), allowed)


def log_result(result: Result) -> None:
    """One line for each operation: the text that `neuca plan` prints, or that with the reason why it failed."""
    for operation in result.done:
        log.info("%s", operation.text)
    for failure in result.failures:
        log.error("%s", failure.text)


def run_pass(config: Config, intake: Intake, start: bool) -> tuple[Report, Status]:
    """One pass under the lock. `start`: drift is set right; else only NICs that changed their request, or appeared."""
    with locked(config.run_directory / "lock", config.command_timeout), host(config) as handles:
        try:
            return Pass(handles, intake).run(start)
        except ApplyError as error:
            if error.errno in NO_ROOM:
                with suppress(ApplyError):  # the run directory may be full too
                    tell_unsaved(config.state, error.text)
            raise


class Pass:
    """One pass under way."""

    def __init__(self, handles: Host, intake: Intake) -> None:
        self.host, self.intake = handles, intake
        self.state = handles.config.state
        self.began = time.monotonic()
        self.earlier: tuple[str, ...] = ()  # what a first round did, before the path was probed

    def run(self, start: bool) -> tuple[Report, Status]:
        catch_up(self.state)
        firstboot.admit(self.host.config, self.intake)
        keep(self.intake, self.state, self.host.config.run_directory)
        survey = self.host.survey(self.intake, records.load_record(self.state))
        survey = replace(survey, record=memory.meet(survey.record, survey.resolution))
        scope = None if start or self.host.config.drift == "enforce" else survey.changed()
        before_us = leftovers.left(survey.record, survey.have, survey.world)
        survey, marked = self._mark(survey, scope)
        operations = survey.plan(scope)
        before = self._write_down(survey, operations)
        with Watch() as watch:
            result = marked + apply(self._due(operations), writer(self.host, survey))
            after, result = self._verify(survey, scope, result, watch)
            undone = self._undo(after, before, result)
        after = self._remember(after, scope, result)
        gone = before_us - leftovers.left(after.record, after.have, after.world)
        report = self._report(result, undone, sorted(gone))
        if not (result.failures or self.earlier) and probing.explore(
            self.host.config,
            after.resolution,
            after.have,
            after.record,
            writer(self.host, after),
            start,
        ):
            self.earlier = (*report.changed, "the path was probed")
            return self.run(start)
        return report, _status(self.host.config, self.intake, after, report)

    def _held(self, operations: Sequence[Operation]) -> tuple[Operation, ...]:
        """Those that wait until the state can be saved."""
        return waiting(operations) if unsaved(self.state) else ()

    def _due(self, operations: Sequence[Operation]) -> Sequence[Operation]:
        held = set(self._held(operations))
        return [one for one in operations if one not in held] if held else operations

    def _mark(self, survey: Survey, scope: Optional[Collection[str]]) -> tuple[Survey, Result]:
        """Where a manager holds a NIC of ours: make it let go first, and look again, for it may flush what it had set."""
        planned = survey.plan(scope)
        operations = [operation for operation in planned if operation.order <= Phase.MARK]
        if not any(isinstance(operation, (Unmanage, Tell)) for operation in operations):
            return survey, Result()
        records.save_record(self.state, survey.record)
        with Watch() as watch:
            result = apply(operations, writer(self.host, survey))
            watch.wait(MANAGERS_LET_GO)
        again = self.host.survey(self.intake, survey.record)
        left = set(again.plan(scope))
        flushed = tuple(
            operation
            for operation in planned
            if isinstance(operation, (DeleteAddress, DeleteRoute)) and operation not in left
        )
        links = {key: replace(link, managers={}) for key, link in again.want.links.items()}
        return replace(again, want=replace(again.want, tell={}, links=links)), result + Result(
            flushed
        )

    def _write_down(self, survey: Survey, operations: Sequence[Operation]) -> NetworkState:
        """The record of what will be ours, and a journal of what the links are like now; both before the first change."""
        died = records.load_journal(self.state, survey.world.boot_id)
        links = {**survey.have.links, **(died.links if died else {})}
        before = replace(
            survey.have,
            links={key: as_it_was(link) for key, link in links.items()},
            files={},
            sysctls={},
            hops=tuple(hop for hop in survey.have.hops if hop.ours),
        )
        records.save_record(self.state, memory.intend(survey.record, operations))
        if any(operation.domain for operation in operations):
            records.save_journal(self.state, before, survey.world.boot_id)
        return before

    def _verify(
        self, survey: Survey, scope: Optional[Collection[str]], result: Result, watch: Watch
    ) -> tuple[Survey, Result]:
        """Ask again, with growing patience, until nothing is left to do.

        What is left although it was done is a failure, but sysctls, MTU and queue are set once more: udev runs systemd-sysctl
        late, and after a rename sets anew what a .link file says (cloud-init's have an MTU). What is left and was not done (a
        NIC that appeared meanwhile, a side effect of the kernel) is done in a second round.
        """
        if not result.done and not result.declined:
            return survey, result
        if any(isinstance(operation, Rename) for operation in result.done) and _udev_is_ours(
            self.host.config
        ):
            udev.settle(RENAMED)
        left: tuple[Operation, ...] = ()
        for patience in PATIENCE:
            if patience:
                watch.wait(patience)
            survey = self._again(survey, result)
            left = unfinished(self._due(survey.plan(scope)), result)
            done = {identity(operation) for operation in result.done}
            again = [operation for operation in left if identity(operation) not in done]
            if patience == PATIENCE[-1]:
                again += [operation for operation in left if isinstance(operation, LATE)]
            if again:
                self._write_down(survey, again)
                result += apply(again, writer(self.host, survey))
            elif not left:
                return survey, result
        survey = self._again(survey, result)
        left = unfinished(self._due(survey.plan(scope)), result)
        reason = "done, but it is not so: another program or the driver put it back"
        failures = tuple(Failure(operation, reason) for operation in left)
        result += Result(
            (),
            tuple(failure for failure in failures if not isinstance(failure.operation, SetDevice)),
            tuple(failure for failure in failures if isinstance(failure.operation, SetDevice)),
        )
        return self._again(survey, result) if result.declined else survey, result

    def _again(self, survey: Survey, result: Result) -> Survey:
        """Another survey, with all in the record that was done since."""
        return self.host.survey(
            self.intake, memory.decline(memory.intend(survey.record, result.done), result.declined)
        )

    def _undo(self, after: Survey, before: NetworkState, result: Result) -> Result:
        """Bring the NICs that failed back to what they were: a plan with its arguments swapped."""
        if not result.lost_nics:
            return Result()
        now = self._again(after, result)
        everything = replace(now.record.owned, routes=True)
        operations = plan(
            now.have,
            before,
            everything,
            scope=result.lost_nics,
            rename_while_up=now.world.rename_while_up,
        )
        return apply(
            [operation for operation in operations if operation.domain], writer(self.host, now)
        )

    def _remember(self, after: Survey, scope: Optional[Collection[str]], result: Result) -> Survey:
        survey = self._again(after, result) if result.failures else after
        record = memory.settle(
            memory.intend(survey.record, result.done), survey.resolution, survey.have, survey.world
        )
        record = leftovers.settled(
            memory.meet(record, survey.resolution),
            survey.have,
            survey.world,
            survey.silent_managers,
        )
        held = self._held(survey.plan(scope)) if unsaved(self.state) else ()
        undone = result.lost_nics.union(*(operation.domains for operation in held))
        record = memory.applied(
            record, survey.resolution, survey.world, scope, undone, result.to_retry
        )
        records.save_record(self.state, record)
        records.remove_journal(self.state)
        catch_up(self.state)
        return replace(survey, record=record)

    def _report(self, result: Result, undone: Result, removed: Sequence[str]) -> Report:
        log_result(result)
        for text in removed:
            log.info("%s: removed", text)
        for declined in result.declined:
            log.warning("%s, ignoring", declined.text)
        for operation in undone.done:
            log.warning("undone: %s", operation.text)
        for failure in undone.failures:
            log.error("could not be undone: %s", failure.text)
        problems = tuple(map(_problem, result.failures))
        texts = (*self.earlier, *(operation.text for operation in result.done))
        before = read_report(self.host.config.run_directory)
        told = (*(before.removed if before else ()), *(f"{text}: removed" for text in removed))[
            -MOST_REMOVED:
        ]
        report = now(time.monotonic() - self.began, texts, problems, bool(undone.done), told)
        write_report(self.host.config.run_directory, report)
        return report


def status_now(config: Config, intake: Intake) -> Status:
    """The status, from one look. Raises ObserveError, RecordError."""
    with host(config) as handles:
        survey = handles.survey(intake, records.load_record(config.state))
        return _status(config, intake, survey, read_report(config.run_directory))


def _status(config: Config, intake: Intake, survey: Survey, report: Optional[Report]) -> Status:
    """Out of the plan that a start would carry out now."""
    stored = intake.stored
    faults = [
        (fault.severity, fault.text)
        for fault in (intake.document.faults if intake.document else ())
    ]
    faults += [(fault.severity, fault.text) for fault in config.faults]
    invalid = [text for severity, text in faults if severity == "error"]
    document = DocumentStatus(
        stored.source if stored else "",
        stored.sha256.partition(".")[0] if stored else "",
        stored.fetched if stored else "",
        intake.stale,
        intake.none_for_us,
        intake.reason,
        intake.platform,
        tuple(filter(None, [*invalid, intake.refused])),
        tuple(text for severity, text in faults if severity == "warning"),
    )
    notes = (
        [intake.reason]
        if intake.reason and not intake.stale and not intake.none_for_us and stored
        else []
    )
    notes += [f"{manager}: {reason}" for manager, reason in survey.silent_managers.items()]
    notes += report.removed if report else ()
    notes += (
        named_by_others(config.udev_substring, survey.resolution.names)
        if _udev_is_ours(config)
        else ()
    )
    notes += [
        *firstboot.notes(config),
        *leftovers.kept(survey.record, survey.have, survey.world, survey.resolution.roles),
    ]
    notes += audit.notes(survey.resolution, survey.have)
    if records.load_choice(config.run_directory):
        notes.append(
            f"profile {', '.join(survey.resolution.tuning.choice.profiles)}: until the next boot (neuca tune apply)"
        )
    left, held, reason = _left(config, survey)
    status = judge(
        __version__,
        document,
        survey.resolution,
        survey.have,
        left,
        survey.changed(),
        survey.managers,
        notes,
        report,
        own_names(survey.resolution.roles, survey.resolution.requests, survey.record),
    )
    data = {**status.data, "tuning": audit.to_json(survey.resolution, survey.have)}
    return with_unsaved(replace(status, data=data), reason, held)


def _left(config: Config, survey: Survey) -> tuple[list[Operation], Sequence[Operation], str]:
    """What is left to do now, what waits until the state can be saved, and why it cannot be."""
    operations, reason = survey.plan(), unsaved(config.state)
    held = waiting(operations) if reason else ()
    return [operation for operation in operations if operation not in held], held, reason


def _problem(failure: Failure) -> Problem:
    key = failure.operation.link.key if failure.operation.link else None
    no_room = isinstance(failure.operation, WriteFile) and failure.errno in NO_ROOM
    return Problem("unsaved" if no_room else "failed", failure.text, key)
