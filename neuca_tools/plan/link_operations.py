"""Operations that create virtual links, change their members, or set a device up."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Optional

from neuca_tools.desired.device_settings import group_text
from neuca_tools.documents.neuca.link_settings import is_of_place
from neuca_tools.model import LinkKey, Virtual
from neuca_tools.plan.operation import (
    LinkOperation,
    Operation,
    Phase,
    Target,
    Value,
    Writer,
    value_before,
)

_TITLES = {"vlan": "VLAN", "vxlan": "VXLAN", "vrf": "VRF", "ipoib": "IPoIB child"}


@dataclass(frozen=True)
class CreateLink(LinkOperation):
    """Create a virtual link. If that fails, its lower devices are rolled back too.

    The failure of a VLAN does not affect its NIC (`spares_others`), which carries no trace of it,
    unless the VLAN was `deleted` to be recreated, and has to be restored.
    """

    kind = "create-link"
    phase = Phase.VLAN
    virtual: Virtual = field(default_factory=Virtual)
    parent: Optional[Target] = None
    mtu: Optional[int] = None
    deleted: bool = False

    @property
    def spares_others(self) -> bool:
        return self.on.key.vlan_id is not None and not self.deleted

    @property
    def needed(self) -> frozenset[LinkKey]:
        return frozenset({*self.virtual.lower, *([self.parent.key] if self.parent else ())})

    @property
    def failing_domains(self) -> frozenset[str]:
        return super().failing_domains | {lower.mac for lower in self.virtual.lower}

    @property
    def text(self) -> str:
        key, options = self.on.key, ", ".join(map(" ".join, self.virtual.options))
        own = f" ({options})" if options else ""
        parent = f" on {self.parent.name}" if self.parent else ""
        mtu = f" with MTU {self.mtu}" if self.mtu else ""
        if key.vlan_id is not None:
            return f"create VLAN {key.vlan_id}{parent} as {self.on.name}{own}{mtu}"
        return f"create the {_TITLES.get(key.kind, key.kind)} {self.on.name}{own}{parent}{mtu}"

    def run(self, writer: Writer) -> None:
        key, options = self.on.key, dict(self.virtual.options)
        if key.vlan_id is None:
            parent = _index_of(writer, self.parent)
        else:
            options["id"] = str(key.vlan_id)
            parent = writer.carrier(self.parent) if self.parent else 0
        writer.create_link(key.kind, self.on.name, parent, options, self.mtu)


@dataclass(frozen=True)
class MarkLink(Operation):
    """Mark a link that an earlier version created. Its failure does not affect the link."""

    kind = "mark-link"
    form = "mark {0.on.name} as created by neucad"
    value_form = "{0.on.name}"
    phase = Phase.VLAN
    on: Target

    def run(self, writer: Writer) -> None:
        writer.links.mark_link(writer.index(self.on))


@dataclass(frozen=True)
class DeleteLink(LinkOperation):
    """Delete a link, which concerns its lower devices: its members leave it, and may go down."""

    kind = "delete-link"
    is_removal = True
    lower: tuple[LinkKey, ...] = ()
    phase: Phase = Phase.SHRINK

    @property
    def failing_domains(self) -> frozenset[str]:
        return super().failing_domains | {lower.mac for lower in self.lower}

    @property
    def text(self) -> str:
        return f"delete the {_TITLES.get(self.on.key.kind, self.on.key.kind)} {self.on.name}"

    def run(self, writer: Writer) -> None:
        writer.links.delete_link(writer.index(self.on))


@dataclass(frozen=True)
class SetMaster(LinkOperation):
    """Put a link into a bond, bridge or VRF, or take it out of one (`master` None).

    `mtu` is that of a NIC before it is put into a bond, which sets that of its members.
    """

    kind = "set-master"
    before: Optional[Target]
    master: Optional[Target]
    phase: Phase = Phase.VLAN
    mtu: Optional[int] = None

    @property
    def targets(self) -> tuple[Target, ...]:
        return (self.on, *filter(None, (self.before, self.master)))

    @property
    def handles(self) -> frozenset[str]:
        return frozenset((self.on.key.mac, str(self.on.key)))

    @property
    def change(self) -> tuple[Value, Value]:
        return _name_of(self.before), _name_of(self.master)

    @property
    def text(self) -> str:
        if self.master:
            return f"add {self.target} to {self.master.name}"
        return f"remove {self.target} from {_name_of(self.before) or 'its master'}"

    def run(self, writer: Writer) -> None:
        writer.links.set_master(writer.index(self.on), _index_of(writer, self.master))


def _name_of(target: Optional[Target]) -> Optional[str]:
    return target and target.name


def _index_of(writer: Writer, target: Optional[Target]) -> int:
    return writer.index(target) if target else 0


# How the kernel, a driver or a container declines a setting of a device that is unsupported, or has
# an unsupported value (EIO: an interrupt that the kernel manages itself). Other errors are
# failures.
DECLINES = (
    *(errno.EOPNOTSUPP, errno.EINVAL, errno.ERANGE, errno.ENOENT),
    *(errno.EPERM, errno.EACCES, errno.EROFS, errno.EIO),
)


@dataclass(frozen=True)
class SetDevice(LinkOperation):
    """Set one group of device settings at once, as many drivers reset the NIC for each change.

    `before` and `after` have the values of one group (`rings`) by their whole names (`rings.rx`).
    Settings of a place in a bond or bridge have values only once the device is in it: without
    `before`, the operation reads what it has `replaced`.
    """

    kind = "set-device"
    handle_form = "{0.on.key} {0.group}"
    spares_others = True
    group: str
    before: Mapping[str, str]
    after: Mapping[str, str]
    phase: Phase = Phase.NIC
    replaced: dict[str, str] = field(default_factory=dict, compare=False, repr=False)

    def __hash__(self) -> int:
        return hash((self.on, self.group, *sorted(self.after.items())))

    @property
    def is_for_later_place(self) -> bool:
        """Whether the device is in no bond or bridge where it has the setting yet."""
        return is_of_place(self.group) and not self.before

    @property
    def change(self) -> tuple[Value, Value]:
        before = f"{self.group} {group_text(self.before)}" if self.before else None
        return before, f"{self.group} {group_text(self.after)}"

    @property
    def text(self) -> str:
        before = value_before(group_text(self.before) or None)
        return f'set {self.group} of {self.target}{before} to "{group_text(self.after)}"'

    def run(self, writer: Writer) -> None:
        index = writer.index(self.on)
        if self.is_for_later_place:
            self.replaced.update(writer.device_values(index, self.group))
        writer.set_device(index, self.group, self.after)
