"""An operation: one change, which can describe itself, and carry itself out through a writer.

As phases are constant, and lower devices come first in each, no dependency graph is needed.
"""

# SPDX-License-Identifier: MIT

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, NamedTuple, Optional, Protocol, TypeVar, Union

from neuca_tools.model import Address, LinkKey, Route
from neuca_tools.model.routing import Rule

Value = Union[str, int, None]
Scope = Optional[Collection[str]]
"""What may change: handles of operations (`Operation.handles`); None for everything."""


class Phase(IntEnum):
    """The order of a pass.

    Files come first, then what network managers do because of them (MARK, as does our alias). What
    is removed or lowered (SHRINK) makes room for what is created or raised (NIC, and VLAN for all
    virtual links); settings that reset a NIC come before it is set up. Rules follow the tables that
    they lead to. Old addresses are deleted last (RETIRE): with the last IPv4 address of a link, the
    kernel deletes every IPv4 route through it. DHCP begins on a link that is up (CLIENT).
    """

    FILES = 1
    MARK = 2
    RENAME = 3
    SHRINK = 4
    NIC = 5
    VLAN = 6
    SYSCTL = 7
    UP = 8
    ADDRESS = 9
    ROUTE = 10
    RULE = 11
    RETIRE = 12
    CLIENT = 13


class Target(NamedTuple):
    """The link of an operation. ifindex 0: it does not exist yet, and is later found by name."""

    key: LinkKey
    name: str
    ifindex: int = 0


def value_before(before: Value) -> str:
    """The present value in the text of an operation; empty if it is unknown."""
    if before is None:
        return ""
    if isinstance(before, int):
        return f" from {before}"
    return f' from "{before}"'


def joined_domains(domains: Collection[str], groups: Iterable[frozenset[str]]) -> frozenset[str]:
    """These failure domains, with those that are in a group with one of them."""
    lost, joined = {*domains}, [group for group in groups if len(group) > 1]
    reached = -1
    while reached != len(lost):
        reached = len(lost)
        lost.update(*(group for group in joined if group & lost))
    return frozenset(lost)


class LinkWriter(Protocol):
    """What changes links by their indexes, which the `Writer` has checked, and rules."""

    def set_attributes(self, index: int, values: Mapping[str, int]) -> None: ...
    def set_up(self, index: int, up: bool) -> None: ...
    def rename(self, index: int, name: str) -> None: ...
    def mark_link(self, index: int) -> None: ...
    def set_master(self, index: int, master: int) -> None: ...
    def delete_link(self, index: int) -> None: ...
    def add_address(
        self, index: int, address: Address, bare: bool = False, checked: bool = True
    ) -> None: ...
    def delete_address(self, index: int, address: Address) -> None: ...
    def delete_route(self, route: Route) -> None: ...
    def add_rule(self, rule: Rule) -> None: ...
    def delete_rule(self, rule: Rule) -> None: ...


class ManagerWriter(Protocol):
    """What tells network managers of a change."""

    def unmanage(self, manager: str, names: Collection[str]) -> None: ...
    def reload(self, manager: str) -> None: ...
    def activate(self, interface: str, profile: str) -> None: ...


class Writer(Protocol):
    """What carries out operations. Its methods raise ApplyError, ManagerError or ObserveError.

    A change that is already in force is not an error. `index` checks that a link may be changed.
    """

    @property
    def links(self) -> LinkWriter: ...
    @property
    def managers(self) -> ManagerWriter: ...
    def index(self, target: Target) -> int: ...
    def carrier(self, target: Target) -> int: ...
    def device_values(self, index: int, group: str) -> Mapping[str, str]: ...
    def set_device(self, index: int, group: str, values: Mapping[str, str]) -> None: ...
    def create_link(
        self, kind: str, name: str, parent: int, options: Mapping[str, str], mtu: Optional[int]
    ) -> None: ...
    def restore_address(self, index: int, message: bytes, seen: float) -> None: ...
    def replace_route(self, route: Route) -> None: ...
    def restore_route(self, message: bytes, indexes: Mapping[int, int], seen: float) -> None: ...
    def write_sysctl(self, path: str, value: str) -> None: ...
    def write_files(self, files: Mapping[str, Optional[bytes]]) -> None: ...
    def start_client(self, label: str, request: str) -> None: ...
    def stop_client(self, label: str, releases: bool) -> None: ...


class Operation:
    """One change.

    If `link` is None, it concerns no single link, and its failure does not affect any NIC. `form`
    is the format of its text, `target_form` and `value_form` those of its target and value, and
    `handle_form` that of its own handle, with the operation as argument 0.
    """

    kind: ClassVar[str]
    phase: Phase
    form: ClassVar[str]
    target_form: ClassVar[str] = ""
    value_form: ClassVar[str] = ""
    handle_form: ClassVar[str] = ""
    is_removal: ClassVar[bool] = False

    @property
    def targets(self) -> tuple[Target, ...]:
        """The links that it changes or joins; the first one is its own."""
        return ()

    @property
    def spares_others(self) -> bool:
        """Whether its failure leaves everything else of its NIC as it is."""
        return False

    @property
    def link(self) -> Optional[Target]:
        return next(iter(self.targets), None)

    @property
    def target(self) -> str:
        if self.target_form:
            return self.target_form.format(self)
        return self.link.name if self.link else "host"

    @property
    def domain(self) -> Optional[str]:
        """The MAC of the NIC whose failure domain this is in."""
        return self.link.key.mac if self.link else None

    @property
    def domains(self) -> frozenset[str]:
        """Every failure domain that it touches: the failing ones, and what a moved route leaves."""
        return self.failing_domains

    @property
    def handles(self) -> frozenset[str]:
        """The entries of a scope that include it: MACs of NICs ("" for none), keys of links."""
        keys = {str(self.link.key)} if self.link else set()
        own = {self.own_handle} if self.handle_form else set()
        return frozenset(((self.domains | keys) or {""}) | own)

    @property
    def own_handle(self) -> str:
        """The entry of a scope that includes this setting alone."""
        return self.handle_form.format(self)

    @property
    def failing_domains(self) -> frozenset[str]:
        """The failure domains that fail if this does: several if it joins links."""
        return frozenset(target.key.mac for target in self.targets)

    @property
    def needed(self) -> frozenset[LinkKey]:
        """The links that have to exist for it."""
        return frozenset(target.key for target in self.targets)

    @property
    def batch(self) -> object:
        """Equal for operations that are carried out together; None if it is carried out alone."""
        return None

    @property
    def part(self) -> object:
        """Equal for operations of a batch that fail together."""
        return self.batch

    @property
    def change(self) -> tuple[Value, Value]:
        """The value before, and after."""
        return (self.value, None) if self.is_removal else (None, self.value)

    @property
    def value(self) -> Value:
        """What it adds, or removes; None if a value is changed, or none can be said."""
        return self.value_form.format(self) if self.value_form else None

    @property
    def text(self) -> str:
        return self.form.format(self)

    def run(self, writer: Writer) -> None:
        raise NotImplementedError

    def to_json(self) -> dict[str, Value]:
        before, after = self.change
        values = {"operation": self.kind, "target": self.target, "from": before, "to": after}
        return {**values, "text": self.text}


Plan = tuple[Operation, ...]
OfKind = TypeVar("OfKind", bound=Operation)


def of_kind(operations: Iterable[Operation], *kinds: type[OfKind]) -> list[OfKind]:
    """The operations of these kinds, in their order."""
    return [operation for operation in operations if isinstance(operation, kinds)]


@dataclass(frozen=True)
class LinkOperation(Operation):
    """A change of one link."""

    value_form = "{0.on.name}"
    on: Target

    @property
    def targets(self) -> tuple[Target, ...]:
        return (self.on,)
