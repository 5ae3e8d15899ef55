"""What makes VLANs, bonds, bridges, VXLANs and macvlans, puts links into them, and takes them apart again."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional

from neuca_tools.model import Virtual
from neuca_tools.plan.operation import LinkOperation, Phase, Target, Value, Writer

TITLES = {
    "vlan": "VLAN",
    "bond": "bond",
    "bridge": "bridge",
    "vxlan": "VXLAN",
    "macvlan": "macvlan",
}


@dataclass(frozen=True)
class CreateLink(LinkOperation):
    """It fails together with all that it is made of: those are then as they were, each by itself."""

    kind = "create-link"
    phase = Phase.VLAN
    virtual: Virtual = field(default_factory=Virtual)
    parent: Optional[Target] = None
    mtu: Optional[int] = None

    @property
    def fate(self) -> frozenset[str]:
        return super().fate | {lower.mac for lower in self.virtual.lower}

    @property
    def domains(self) -> frozenset[str]:
        return self.fate

    @property
    def change(self) -> tuple[Value, Value]:
        return None, self.on.name

    @property
    def text(self) -> str:
        key, options = (
            self.on.key,
            ", ".join(f"{name} {value}" for name, value in self.virtual.options),
        )
        own, parent = (
            f" ({options})" if options else "",
            f" on {self.parent.name}" if self.parent else "",
        )
        mtu = f" with MTU {self.mtu}" if self.mtu else ""
        if key.vlan_id is not None:
            return f"create VLAN {key.vlan_id}{parent} as {self.on.name}{own}{mtu}"
        return f"create the {TITLES[key.kind]} {self.on.name}{own}{parent}{mtu}"

    def run(self, writer: Writer) -> None:
        key, parent, options = self.on.key, 0, dict(self.virtual.options)
        if self.parent and key.vlan_id is not None:
            parent, options["id"] = writer.carrier(self.parent), str(key.vlan_id)
        elif self.parent:
            parent = writer.index(self.parent)
        writer.create_link(key.kind, self.on.name, parent, options, self.mtu)


@dataclass(frozen=True)
class DeleteLink(LinkOperation):
    """The kernel takes its members out of it, and a bond's down."""

    kind = "delete-link"
    phase = Phase.SHRINK

    @property
    def change(self) -> tuple[Value, Value]:
        return self.on.name, None

    @property
    def text(self) -> str:
        return f"delete the {TITLES[self.on.key.kind]} {self.on.name}"

    def run(self, writer: Writer) -> None:
        writer.delete_link(writer.index(self.on))


@dataclass(frozen=True)
class SetMaster(LinkOperation):
    """Put a link into a bond or bridge, or take it out of one (`master` None)."""

    kind = "set-master"
    before: Optional[Target]
    master: Optional[Target]
    phase_of: Phase = Phase.VLAN

    @property
    def fate(self) -> frozenset[str]:
        return super().fate | {one.key.mac for one in (self.before, self.master) if one}

    @property
    def domains(self) -> frozenset[str]:
        return self.fate

    @property
    def change(self) -> tuple[Value, Value]:
        return self.before.name if self.before else None, self.master.name if self.master else None

    @property
    def text(self) -> str:
        if self.master:
            return f"put {self.target} into {self.master.name}"
        return f"take {self.target} out of {self.before.name if self.before else 'its master'}"

    def run(self, writer: Writer) -> None:
        writer.set_master(writer.index(self.on), writer.index(self.master) if self.master else 0)
