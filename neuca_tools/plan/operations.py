"""Everything that a pass can do, each as a small object; MTUs are in bytes, queues in packets."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Optional

from neuca_tools.desired.dhcp_files import PROTOCOL_SEPARATOR
from neuca_tools.documents.neuca.values import dotted_name
from neuca_tools.model import Address, LinkKey
from neuca_tools.plan.operation import (
    LinkOperation,
    Operation,
    Phase,
    Target,
    Value,
    Writer,
    value_before,
)


@dataclass(frozen=True)
class SetAttribute(LinkOperation):
    """Set an attribute of the link itself; `setting` is its row in the table of link settings.

    Consecutive ones of a link are set with one request (`LinkWriter.set_attributes`).
    """

    setting: ClassVar[str]
    title: ClassVar[str]
    before: Optional[int]
    after: int
    phase: Phase = Phase.NIC

    @property
    def batch(self) -> object:
        return self.on

    @property
    def part(self) -> object:
        return self.setting  # the kernel does not say which of several it has refused

    @property
    def change(self) -> tuple[Value, Value]:
        return self.before, self.after

    @property
    def text(self) -> str:
        return f"set the {self.title} of {self.target}{value_before(self.before)} to {self.after}"

    def run(self, writer: Writer) -> None:
        writer.links.set_attributes(writer.index(self.on), {self.setting: self.after})


@dataclass(frozen=True)
class SetMtu(SetAttribute):
    """Set the MTU. `bond` has set that of its member, this link: a change of it includes this."""

    kind = "set-mtu"
    setting = "mtu"
    title = "MTU"
    bond: Optional[LinkKey] = None

    @property
    def handles(self) -> frozenset[str]:
        return super().handles | ({self.bond.mac} if self.bond else frozenset())


class SetTxQueueLen(SetAttribute):
    kind = "set-txqueuelen"
    setting = "txqueuelen"
    title = "transmit queue length"


@dataclass(frozen=True)
class SetState(LinkOperation):
    kind = "set-state"
    form = "bring {0.target} {0.change[1]}"
    up: bool
    phase: Phase = Phase.UP

    @property
    def change(self) -> tuple[Value, Value]:
        return ("down", "up") if self.up else ("up", "down")

    def run(self, writer: Writer) -> None:
        writer.links.set_up(writer.index(self.on), self.up)


@dataclass(frozen=True)
class Rename(LinkOperation):
    kind = "rename"
    form = "rename {0.on.name} to {0.new}"
    phase = Phase.RENAME
    new: str

    @property
    def change(self) -> tuple[Value, Value]:
        return self.on.name, self.new

    def run(self, writer: Writer) -> None:
        writer.links.rename(writer.index(self.on), self.new)


@dataclass(frozen=True)
class _AddressOperation(LinkOperation):
    value_form = "{0.address}"
    address: Address


@dataclass(frozen=True)
class AddAddress(_AddressOperation):
    """Add an address, or assert a present one; with `ours`, it may be removed again.

    Without `ours`, another program has set it, and this pass makes the kernel drop it, or has done
    so: `message` describes it as it was `seen` (CLOCK_MONOTONIC). `bare`: its network gets no route
    in the main table. `checked`: it is used only if no other host has it.
    """

    kind = "add-address"
    form = "add the address {0.address} to {0.target}"
    phase = Phase.ADDRESS
    ours: bool = True
    bare: bool = False
    checked: bool = True
    message: bytes = field(default=b"", repr=False)
    seen: float = 0.0

    def run(self, writer: Writer) -> None:
        index = writer.index(self.on)
        if self.message:
            writer.restore_address(index, self.message, self.seen)
        else:
            writer.links.add_address(index, self.address, self.bare, self.checked)


@dataclass(frozen=True)
class DeleteAddress(_AddressOperation):
    kind = "delete-address"
    form = "delete the address {0.address} from {0.target}"
    is_removal = True
    phase: Phase = Phase.RETIRE

    def run(self, writer: Writer) -> None:
        writer.links.delete_address(writer.index(self.on), self.address)


@dataclass(frozen=True)
class WriteSysctl(Operation):
    """Set a sysctl, of the link `on`, or of the whole network namespace (None)."""

    kind = "write-sysctl"
    target_form = "{0.path}"
    handle_form = "{0.path}"
    spares_others = True
    phase = Phase.SYSCTL
    path: str
    before: Optional[str]
    after: str
    on: Optional[Target] = None

    @property
    def targets(self) -> tuple[Target, ...]:
        return (self.on,) if self.on else ()

    @property
    def change(self) -> tuple[Value, Value]:
        return self.before, self.after

    @property
    def text(self) -> str:
        name = dotted_name(self.path)
        return f'set the sysctl {name}{value_before(self.before)} to "{self.after}"'

    def run(self, writer: Writer) -> None:
        if self.on is not None:
            writer.index(self.on)  # only to check that this pass may write to the link
        writer.write_sysctl(self.path, self.after)


@dataclass(frozen=True)
class WriteFile(Operation):
    """Write a file whole, or remove it (`content` None). Sizes are in bytes, None for no file.

    Consecutive ones are written together, so that a pass waits for the disk once.
    """

    kind = "write-file"
    target_form = "{0.path}"
    phase = Phase.FILES
    path: str
    content: Optional[bytes]
    size_before: Optional[int] = None

    @property
    def batch(self) -> object:
        return WriteFile

    @property
    def part(self) -> object:
        return self.path.rpartition("/")[0]

    @property
    def change(self) -> tuple[Value, Value]:
        return self.size_before, None if self.content is None else len(self.content)

    @property
    def text(self) -> str:
        verb = "remove" if self.content is None else "write"
        return f'{verb} "{self.path}"'

    def run(self, writer: Writer) -> None:
        writer.write_files({self.path: self.content})


@dataclass(frozen=True)
class Unmanage(LinkOperation):
    kind = "unmanage"
    spares_others = True
    form = "make {0.manager} release {0.target}"
    phase = Phase.MARK
    manager: str

    @property
    def batch(self) -> object:
        return self.manager

    @property
    def change(self) -> tuple[Value, Value]:
        return "managed", "unmanaged"

    def run(self, writer: Writer) -> None:
        writer.managers.unmanage(self.manager, [self.on.name])


@dataclass(frozen=True)
class ReloadManager(Operation):
    kind = "tell-manager"
    form = "make {0.manager} reload its configuration"
    target_form = "{0.manager}"
    phase = Phase.MARK
    manager: str

    def run(self, writer: Writer) -> None:
        writer.managers.reload(self.manager)


@dataclass(frozen=True)
class Activate(LinkOperation):
    """Have NetworkManager do DHCP on the link with this profile."""

    kind = "activate"
    spares_others = True
    form = "make networkmanager do DHCP on {0.target}"
    value_form = "{0.profile}"
    phase = Phase.MARK
    profile: str

    def run(self, writer: Writer) -> None:
        writer.index(self.on)
        writer.managers.activate(self.on.name, self.profile)


_TITLES = {"": "DHCP client", "dhcp6": "DHCPv6 client", "ra": "autoconfiguration"}


@dataclass(frozen=True)
class ClientOperation(Operation):
    """A change of one client of a link; `label` is one of `desired.dhcp_files.client_labels`.

    Its failure does not count as one of the link, and does not roll the link back.
    """

    spares_others = True
    target_form = "{0.key}"
    value_form = "{0.request}"
    key: LinkKey
    label: str
    request: str

    @property
    def protocol(self) -> str:
        """Empty for DHCPv4."""
        return self.label.partition(PROTOCOL_SEPARATOR)[2]

    @property
    def title(self) -> str:
        return _TITLES.get(self.protocol, "")

    @property
    def handles(self) -> frozenset[str]:
        return frozenset({self.key.mac, str(self.key), self.label})


@dataclass(frozen=True)
class StartClient(ClientOperation):
    """Start the client, or start it again with another request."""

    kind = "start-dhcp"
    form = "start the {0.title} of {0.name}"
    target_form = "{0.name}"
    phase = Phase.CLIENT
    name: str

    @property
    def failing_domains(self) -> frozenset[str]:
        return frozenset({self.key.mac})

    def run(self, writer: Writer) -> None:
        writer.start_client(self.label, self.request)


@dataclass(frozen=True)
class StopClient(ClientOperation):
    """End the client and, unless the link must not be changed, remove what its lease has set."""

    releases: bool
    kind = "stop-dhcp"
    is_removal = True
    phase = Phase.MARK

    @property
    def text(self) -> str:
        removal = "remove its addresses" if self.protocol == "ra" else "release its lease"
        stopped = f"stop the {self.title} of {self.key}"
        return f"{stopped}, and {removal}" if self.releases else stopped

    def run(self, writer: Writer) -> None:
        writer.stop_client(self.label, self.releases)
