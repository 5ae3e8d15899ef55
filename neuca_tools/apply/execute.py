"""Carries out operations in their order, without looking at the state: `plan` has decided.

Links are changed only through the writer, which knows the links that a pass may touch and refuses
all others, whatever the plan says.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Optional

from neuca_tools.apply.look import Managers
from neuca_tools.apply.result import Failure, Result, without_missing
from neuca_tools.backends import linkwatch, raw_requests, sysctl
from neuca_tools.backends.netlink import Netlink
from neuca_tools.errors import ApplyError, GuardError, ManagerError, NeucaError, ObserveError
from neuca_tools.files import write_files
from neuca_tools.model import Host, LinkKey, Route
from neuca_tools.plan.link_operations import DECLINES, CreateLink, SetDevice
from neuca_tools.plan.operation import Operation, Target, Writer, joined_domains, of_kind
from neuca_tools.plan.operations import SetAttribute, Unmanage, WriteFile
from neuca_tools.state.store import NO_ROOM


class GuardedWriter:
    """Writes to the allowed links and those created on them, and to sysctls, files and managers.

    VLANs can also be created on the `carriers`, which are not written to otherwise. An address that
    the kernel still checks for duplicates is waited for `dad_seconds` at most.
    """

    def __init__(
        self,
        netlink: Netlink,
        managers: Managers,
        allowed: Collection[int],
        carriers: Collection[int] = (),
        dad_seconds: float = 0.0,
    ) -> None:
        self.links, self.managers, self._detection_seconds = netlink, managers, dad_seconds
        self._allowed, self._carriers = set(allowed), frozenset(carriers)

    def index(self, target: Target) -> int:
        return self._checked(target, self._allowed)

    def carrier(self, target: Target) -> int:
        """The index of a NIC to create a VLAN on."""
        return self._checked(target, self._allowed | self._carriers)

    def _checked(self, target: Target, allowed: Collection[int]) -> int:
        index = target.ifindex or self.links.index_of(target.name)
        if index not in allowed:
            raise GuardError(f'"{target.name}" is not a link that this pass may write to')
        # The path of a sysctl has the name of the interface in it.
        if self.links.name_of(index) not in ("", target.name):
            raise GuardError(f'"{target.name}" has a different name by now')
        return index

    def device_values(self, index: int, group: str) -> Mapping[str, str]:
        # Few passes set a device setting.
        from neuca_tools.apply import device_io

        world = self.links.look(())
        if index not in world.devices:
            raise ApplyError(os.strerror(errno.ENODEV), errno.ENODEV)
        return device_io.read_settings(world, {index: [group]})[index].values

    def set_device(self, index: int, group: str, values: Mapping[str, str]) -> None:
        # Most hosts need neither this module nor the backends of all settings.
        from neuca_tools.apply import device_io

        device_io.write_settings(self.links, index, group, values)

    def create_link(
        self, kind: str, name: str, parent: int, options: Mapping[str, str], mtu: Optional[int]
    ) -> None:
        self.links.create_link(kind, name, parent, options, mtu)
        index = self.links.index_of(name)
        self.links.mark_link(index)
        self._allowed.add(index)

    def restore_address(self, index: int, message: bytes, seen: float) -> None:
        raw_requests.restore_address(index, message, time.monotonic() - seen)

    def replace_route(self, route: Route) -> None:
        source = route.traits.source
        self._await_detection([route.index], source)
        try:
            self.links.replace_route(route)
        except ApplyError as error:
            if not linkwatch.is_unusable(route.index, source):
                raise
            raise ApplyError(f"{error.text}: {source} is not in use yet", errno.EAGAIN) from error

    def restore_route(self, message: bytes, indexes: Mapping[int, int], seen: float) -> None:
        self._await_detection(indexes.values(), raw_requests.source_of(message))
        raw_requests.restore_route(message, indexes, time.monotonic() - seen)

    def _await_detection(self, indexes: Iterable[int], source: Optional[Host]) -> None:
        """Wait until the source address of a route through these devices has been checked.

        Without a carrier it is not. All addresses are checked at the same time.
        """
        for index in indexes:
            if linkwatch.is_unusable(index, source) and self.links.has_carrier(index):
                began = time.monotonic()
                linkwatch.await_detection(index, source, self._detection_seconds)
                waited = time.monotonic() - began
                self._detection_seconds = max(0.0, self._detection_seconds - waited)

    def write_sysctl(self, path: str, value: str) -> None:
        sysctl.write_value(path, value)

    def write_files(self, files: Mapping[str, Optional[bytes]]) -> None:
        """Write files. NetworkManager ignores profiles that others can read."""
        contents = {Path(path): content for path, content in files.items()}
        secret = [path for path in contents if path.suffix == ".nmconnection"]
        secrets = {path: contents.pop(path) for path in secret}
        write_files(contents)
        write_files(secrets, 0o600)

    def start_client(self, label: str, request: str) -> None:
        if json.loads(request)["index"] not in self._allowed:
            raise GuardError(f'"{label}" is not a link that this pass may write to')
        self.managers.clients.start(label, request)

    def stop_client(self, label: str, releases: bool) -> None:
        self.managers.clients.stop(label, releases)


class _Progress:
    """What was done so far, and where nothing more is done.

    `stopped` are failure domains, `missing` links that could not be created. `goes_on`: only what
    needs such a link is left out after a failure.
    """

    def __init__(self, goes_on: bool) -> None:
        self._goes_on = goes_on
        self.done: list[Operation] = []
        self.failures: list[Failure] = []
        self.declined: list[Failure] = []
        self.skipped: list[Operation] = []
        self.stopped: set[str] = set()
        self.missing: frozenset[LinkKey] = frozenset()
        self._domains_of_done: set[frozenset[str]] = set()

    def succeed(self, operations: Collection[Operation]) -> None:
        self.done += operations
        self._domains_of_done.update([operation.failing_domains for operation in operations])

    def ready_operations(self, batch: list[Operation]) -> list[Operation]:
        """The operations of a batch that may be tried.

        Left out are those that need a link which could not be created. Those of a failure domain
        that has failed are skipped, and so are all later ones that share their fate.
        """
        if not self.stopped and not self.missing:
            return batch
        possible = without_missing(batch, self.missing)
        created = of_kind(batch, CreateLink)
        self.missing |= {link.on.key for link in created if link not in possible}
        skipped = [operation for operation in possible if operation.failing_domains & self.stopped]
        self.stopped.update(*(operation.failing_domains for operation in skipped))
        self.skipped += skipped
        return [operation for operation in possible if operation not in skipped]

    def fail(self, operations: Collection[Operation], error: NeucaError) -> None:
        number = getattr(error, "errno", 0)
        cause = os.strerror(number) if number in NO_ROOM else error.text
        failures = tuple(
            Failure(operation, cause if isinstance(operation, WriteFile) else error.text, number)
            for operation in operations
        )
        if of_kind(operations, SetDevice) and number in DECLINES:  # which is carried out alone
            self.declined += failures
            return
        self.failures += failures
        if self._goes_on:
            self.missing |= {link.on.key for link in of_kind(operations, CreateLink)}
        else:
            failed = Result(failures=failures)
            self.missing |= failed.missing_vlans
            groups = map(attrgetter("failing_domains"), failed.serious_failures)
            self.stopped |= joined_domains(frozenset().union(*groups), self._domains_of_done)

    def result(self) -> Result:
        return Result(
            tuple(self.done), tuple(self.failures), tuple(self.declined), tuple(self.skipped)
        )


def apply(operations: Iterable[Operation], writer: Writer, *, goes_on: bool = False) -> Result:
    """Carry out all operations; `goes_on`: also the others of a NIC after one has failed.

    Consecutive ones of a batch are carried out together, the parts of a failed one by themselves.
    """
    progress = _Progress(goes_on)
    for batch in _group_operations(operations, lambda operation: operation.batch):
        _carry_out(batch, progress, writer)
    return progress.result()


def _carry_out(batch: list[Operation], progress: _Progress, writer: Writer) -> None:
    ready = progress.ready_operations(batch)
    error = _try_batch(ready, writer)
    if error is None:
        progress.succeed(ready)
    elif len(parts := _group_operations(ready, lambda operation: operation.part)) > 1:
        for part in parts:
            _carry_out(part, progress, writer)
    else:
        progress.fail(ready, error)


def _group_operations(
    operations: Iterable[Operation], group: Callable[[Operation], object]
) -> list[list[Operation]]:
    """The operations, consecutive ones of a group together; those without a group by themselves."""
    groups = groupby(operations, lambda operation: group(operation) or id(operation))
    return [[*alike] for _, alike in groups]


def _try_batch(batch: Sequence[Operation], writer: Writer) -> Optional[NeucaError]:
    """Carry out a batch, of one kind if it is several; return the error if it failed."""
    try:
        if len(batch) == 1:
            batch[0].run(writer)
        elif files := of_kind(batch, WriteFile):
            writer.write_files({file.path: file.content for file in files})
        elif unmanaged := of_kind(batch, Unmanage):
            names = [operation.on.name for operation in unmanaged]
            writer.managers.unmanage(unmanaged[0].manager, names)
        elif attributes := of_kind(batch, SetAttribute):
            values = {operation.setting: operation.after for operation in attributes}
            writer.links.set_attributes(writer.index(attributes[0].on), values)
    except (ApplyError, ManagerError, ObserveError) as error:
        return error
    return None
