"""Carries operations out, in their order. No condition on state here: what to do is `plan`'s to say.

The writer is the only way to a link, and it knows the links that a pass may touch: any other is refused, whatever the plan says.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, Optional

from neuca_tools.apply import device_io
from neuca_tools.apply.managers import Managers
from neuca_tools.backends import sysctl
from neuca_tools.backends.netlink import Netlink
from neuca_tools.errors import ApplyError, GuardError, ManagerError, NeucaError
from neuca_tools.files import write_files
from neuca_tools.model import Address, Host, Network
from neuca_tools.plan.device_operation import SetDevice
from neuca_tools.plan.operation import Operation, Target, Writer
from neuca_tools.plan.operations import Unmanage, WriteFile, WriteSysctl

COSTS_ITSELF = (Unmanage, WriteSysctl, SetDevice)
# What the kernel, a driver or a container says to a setting of a device that it does not have, or not so (EIO: an interrupt
# that the kernel manages itself). Anything else is a failure.
DECLINES = (
    errno.EOPNOTSUPP,
    errno.EINVAL,
    errno.ERANGE,
    errno.ENOENT,
    errno.EPERM,
    errno.EACCES,
    errno.EROFS,
    errno.EIO,
)


class Failure(NamedTuple):
    """An operation that failed, and why."""

    operation: Operation
    reason: str
    errno: int = 0

    @property
    def text(self) -> str:
        return f"{self.operation.text}: {self.reason}"


@dataclass(frozen=True)
class Result:
    """What was done, and what failed; after a NIC's first failure nothing more is done to it.

    `declined`: settings that a device does not take, which is nobody's failure. `skipped`: what was not tried, since a link
    that it is about had failed.
    """

    done: tuple[Operation, ...] = ()
    failures: tuple[Failure, ...] = ()
    declined: tuple[Failure, ...] = ()
    skipped: tuple[Operation, ...] = ()

    def __add__(self, later: Result) -> Result:
        return Result(
            self.done + later.done,
            self.failures + later.failures,
            self.declined + later.declined,
            self.skipped + later.skipped,
        )

    @property
    def lost_nics(self) -> frozenset[str]:
        """The NICs that are not as asked, nor as before, with what they are put together with. A sysctl, a mark costs itself."""
        serious = [
            failure.operation
            for failure in self.failures
            if not isinstance(failure.operation, COSTS_ITSELF)
        ]
        lost = {mac for operation in (*serious, *self.skipped) for mac in operation.fate}
        together = (
            {operation.fate for operation in self.done if len(operation.fate) > 1}
            if lost
            else set()
        )
        while any(lost & fate and not fate <= lost for fate in together):
            lost.update(*(fate for fate in together if fate & lost))
        return frozenset(lost)

    @property
    def to_retry(self) -> tuple[str, ...]:
        """The sysctls that the kernel refused, which cost their NIC nothing else; what another program put back is its own."""
        return tuple(
            sorted(
                {
                    failure.operation.path
                    for failure in self.failures
                    if isinstance(failure.operation, WriteSysctl) and failure.errno
                }
            )
        )


class GuardedWriter:
    """The real thing: netlink, sysctls, files and managers, for these links and those created on them, and no others."""

    def __init__(self, netlink: Netlink, managers: Managers, allowed: Collection[int]) -> None:
        self._netlink, self._managers = netlink, managers
        self._allowed = set(allowed)

    def index(self, target: Target) -> int:
        index = target.ifindex or self._netlink.index_of(target.name)
        if index not in self._allowed:
            raise GuardError(f'"{target.name}" is not a link that this pass may write to')
        if self._netlink.name_of(index) not in ("", target.name):  # a sysctl goes by the name
            raise GuardError(f'"{target.name}" has another name by now')
        return index

    def set_mtu(self, index: int, mtu: int) -> None:
        self._netlink.set_mtu(index, mtu)

    def set_txqueuelen(self, index: int, packets: int) -> None:
        self._netlink.set_txqueuelen(index, packets)

    def set_device(self, index: int, group: str, values: Mapping[str, str]) -> None:
        device_io.write(index, self._netlink.name_of(index), group, values)

    def set_up(self, index: int, up: bool) -> None:
        self._netlink.set_up(index, up)

    def rename(self, index: int, name: str) -> None:
        self._netlink.rename(index, name)

    def create_link(
        self, kind: str, name: str, parent: int, options: Mapping[str, str], mtu: Optional[int]
    ) -> None:
        self._netlink.create_link(kind, name, parent, options, mtu)
        self._allowed.add(self._netlink.index_of(name))

    def set_master(self, index: int, master: int) -> None:
        self._netlink.set_master(index, master)

    def delete_link(self, index: int) -> None:
        self._netlink.delete_link(index)

    def add_address(self, index: int, address: Address) -> None:
        self._netlink.add_address(index, address)

    def delete_address(self, index: int, address: Address) -> None:
        """Delete it alone: without promote_secondaries the kernel takes the other addresses of its network with a primary one."""
        path = f"net/ipv4/conf/{self._netlink.name_of(index)}/promote_secondaries"
        before = sysctl.read(path) if address.version == 4 else None
        if before == "0":
            sysctl.write(path, "1")
        try:
            self._netlink.delete_address(index, address)
        finally:
            if before == "0":
                sysctl.write(path, "0")

    def replace_route(self, index: int, to: Network, via: Optional[Host], metric: int) -> None:
        self._netlink.replace_route(index, to, via, metric)

    def delete_route(self, index: int, to: Network, via: Optional[Host], metric: int) -> None:
        self._netlink.delete_route(index, to, via, metric)

    def write_sysctl(self, path: str, value: str) -> None:
        sysctl.write(path, value)

    def write_files(self, files: Mapping[str, Optional[bytes]]) -> None:
        write_files({Path(path): content for path, content in files.items()})

    def unmanage(self, manager: str, names: Collection[str]) -> None:
        self._managers.unmanage(manager, names)

    def tell(self, manager: str) -> None:
        self._managers.tell(manager)


def apply(operations: Iterable[Operation], writer: Writer) -> Result:
    """Do them all. Files of one directory go out together; so do the NICs of one manager."""
    done: list[Operation] = []
    failures: list[Failure] = []
    declined: list[Failure] = []
    skipped: list[Operation] = []
    stopped: frozenset[str] = frozenset()
    for batch in _batches(operations):
        ready = [operation for operation in batch if not operation.fate & stopped]
        left = [operation for operation in batch if operation.fate & stopped]
        stopped |= {mac for operation in left for mac in operation.fate}
        skipped += left
        error = _try(ready, writer) if ready else None
        if error is None:
            done += ready
            continue
        failed = [Failure(operation, error.text, getattr(error, "errno", 0)) for operation in ready]
        declined += filter(_is_declined, failed)
        failures += [failure for failure in failed if not _is_declined(failure)]
        stopped |= Result(tuple(done), tuple(failures)).lost_nics
    return Result(tuple(done), tuple(failures), tuple(declined), tuple(skipped))


def _is_declined(failure: Failure) -> bool:
    return isinstance(failure.operation, SetDevice) and failure.errno in DECLINES


def _batches(operations: Iterable[Operation]) -> Iterable[list[Operation]]:
    def together(pair: tuple[int, Operation]) -> object:
        number, operation = pair
        if isinstance(operation, WriteFile):
            return Path(operation.path).parent
        return operation.manager if isinstance(operation, Unmanage) else number

    for _, pairs in groupby(enumerate(operations), together):
        yield [operation for _, operation in pairs]


def _try(batch: list[Operation], writer: Writer) -> Optional[NeucaError]:
    """None, or why it failed. A manager that does not do as asked costs no NIC its settings: status shows who holds it."""
    first = batch[0]
    try:
        if isinstance(first, WriteFile):
            writer.write_files(
                {one.path: one.content for one in batch if isinstance(one, WriteFile)}
            )
        elif isinstance(first, Unmanage):
            writer.unmanage(
                first.manager, [one.on.name for one in batch if isinstance(one, Unmanage)]
            )
        else:
            if isinstance(first, WriteSysctl) and first.on is not None:
                writer.index(first.on)
            first.run(writer)
    except (ApplyError, ManagerError) as error:
        return error
    return None
