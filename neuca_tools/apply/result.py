"""What was carried out of a plan, and what failed."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from neuca_tools.model import LinkKey
from neuca_tools.plan.link_operations import CreateLink, SetDevice
from neuca_tools.plan.operation import Operation, joined
from neuca_tools.plan.operations import Activate, ClientOperation, Unmanage, WriteFile, WriteSysctl
from neuca_tools.plan.route_operations import AddRule, DeleteRule, ReplaceRoute, RestoreRoute
from neuca_tools.state.store import NO_ROOM

HARMLESS = (
    Unmanage,
    Activate,
    WriteSysctl,
    SetDevice,
    AddRule,
    DeleteRule,
    RestoreRoute,
    ClientOperation,
)
"""Operations whose failure does not count as a failure of the NIC."""


class Failure(NamedTuple):
    """An operation that failed, and why; `files`: it stands for so many that failed alike."""

    operation: Operation
    reason: str
    errno: int = 0
    files: int = 1

    @property
    def text(self) -> str:
        if self.files > 1:
            place = f'"{self.operation.target}" among them'
            return f"{self.files} files cannot be written, {place}: {self.reason}"
        return f"{self.operation.text}: {self.reason}"

    @property
    def is_early(self) -> bool:
        """Whether it is a route whose source address is not in use yet."""
        return isinstance(self.operation, ReplaceRoute) and self.errno == errno.EAGAIN

    @property
    def is_unsaved(self) -> bool:
        """Whether it is a file for which there is no room."""
        return isinstance(self.operation, WriteFile) and self.errno in NO_ROOM


@dataclass(frozen=True)
class Result:
    """What was done, and what failed; after a NIC's first failure nothing more is done to it.

    `declined` are settings that a device does not support, which is no failure. `skipped` was not
    tried, because one of its links had failed.
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
        """The MACs of the NICs that have to be rolled back, with the NICs that they were joined to.

        Sysctls, device settings and calls to NetworkManager fail alone.
        """
        lost = frozenset().union(*(one.fate for one in (*self.serious, *self.skipped)))
        return joined(lost, {one.fate for one in self.done} if lost else ())

    @property
    def reasons(self) -> tuple[Failure, ...]:
        """The failures to report: one for all files that could not be written for one reason."""
        unsaved = Counter(one.reason for one in self.failures if one.is_unsaved)
        return tuple(
            one._replace(files=unsaved.pop(one.reason)) if one.is_unsaved else one
            for one in self.failures
            if not one.is_unsaved or one.reason in unsaved
        )

    @property
    def tried(self) -> tuple[Operation, ...]:
        """The operations that were carried out, and those that failed."""
        failed = (failure.operation for failure in (*self.failures, *self.declined))
        return (*self.done, *failed)

    @property
    def serious(self) -> tuple[Operation, ...]:
        """The failed operations that count as a failure of their NICs."""
        failed = (failure.operation for failure in self.failures if not failure.is_early)
        return tuple(operation for operation in failed if not _is_harmless(operation))

    @property
    def early_nics(self) -> frozenset[str]:
        """The MACs of the NICs with a route that could not be set yet."""
        early = (failure.operation.domains for failure in self.failures if failure.is_early)
        return frozenset().union(*early)

    @property
    def missing(self) -> frozenset[LinkKey]:
        """The VLANs that could not be created; what needs them is left out."""
        failed = [failure.operation for failure in self.failures]
        return frozenset(
            one.on.key for one in failed if isinstance(one, CreateLink) and one.spares_others
        )

    @property
    def to_retry(self) -> tuple[str, ...]:
        """The paths of the sysctls that the kernel refused.

        Values that another program changed again are not retried.
        """
        refused = {
            failure.operation.path
            for failure in self.failures
            if isinstance(failure.operation, WriteSysctl) and failure.errno
        }
        return tuple(sorted(refused))


def _is_harmless(operation: Operation) -> bool:
    if isinstance(operation, CreateLink):
        return operation.spares_others
    return isinstance(operation, HARMLESS)
