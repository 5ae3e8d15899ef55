"""The identity of a link, independent of its name, and the composition of virtual links.

Lower devices always have a lower rank, so sorting by rank puts them before their upper devices.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Optional

KINDS = ("bond", "bridge", "vxlan", "macvlan")
_RANKS = {"physical": 0, "bond": 1, "vlan": 2, "vxlan": 3, "macvlan": 3, "bridge": 4}
# The rank of a VLAN on a VXLAN, macvlan or bridge.
_HIGHEST = 5


class LinkKey(NamedTuple):
    """Identifies a NIC by its permanent MAC, a virtual link by kind and name, a VLAN by lower device and ID.

    `mac` is `fe:16:3e:00:6d:af` or `bond bond0`. It also identifies the failure domain: a NIC or
    virtual link with its VLANs.
    """

    mac: str
    vlan_id: Optional[int] = None

    @property
    def nic(self) -> LinkKey:
        """The NIC or virtual link that a VLAN is on; for all others, the link itself."""
        return LinkKey(self.mac)

    @property
    def made(self) -> str:
        """The kind of a virtual link, also for a VLAN on it; empty for a NIC and its VLANs."""
        kind, _, _ = self.mac.partition(" ")
        if kind in KINDS:
            return kind
        return ""

    @property
    def kind(self) -> str:
        """`physical`, `vlan` or one of KINDS."""
        if self.vlan_id is not None:
            return "vlan"
        return self.made or "physical"

    @property
    def given_name(self) -> str:
        """The name of a virtual link, which is part of its identity; empty for a NIC."""
        kind, _, name = self.mac.partition(" ")
        if kind in KINDS:
            return name
        return ""

    @property
    def rank(self) -> int:
        """The position in the stack of links; a lower device has a lower rank."""
        if self.vlan_id is not None and _RANKS.get(self.made, 0) > _RANKS["vlan"]:
            return _HIGHEST
        return _RANKS[self.kind]

    @property
    def order(self) -> tuple[int, str, int]:
        """A sort key that puts lower devices before their upper devices."""
        return self.rank, self.mac, self.vlan_id or 0

    def __lt__(self, other: tuple[object, ...]) -> bool:
        """Sort a NIC before its VLANs; tuples cannot be compared if one has None for the ID."""
        return isinstance(other, LinkKey) and (self.mac, self.vlan_id or 0) < (
            other.mac,
            other.vlan_id or 0,
        )

    def __str__(self) -> str:
        if self.vlan_id is None:
            return self.mac
        return f"{self.mac}.{self.vlan_id}"


@dataclass(frozen=True)
class Virtual:
    """The composition of a virtual link, and the options of its kind.

    `members` are the members of a bond or the ports of a bridge, `parent` is the lower device of a
    VXLAN or macvlan. `options` are as in `documents.neuca.link_kinds`: (`mode`, `802.3ad`).
    """

    members: tuple[LinkKey, ...] = ()
    parent: Optional[LinkKey] = None
    options: tuple[tuple[str, str], ...] = ()

    @property
    def lower(self) -> tuple[LinkKey, ...]:
        """Every lower device."""
        return (*self.members, *filter(None, (self.parent,)))

    def option(self, name: str) -> str:
        """The value of an option; empty if it is not set."""
        return dict(self.options).get(name, "")

    def over(self, below: Optional[Virtual]) -> Virtual:
        """Merge both, setting by setting; this one wins."""
        if below is None:
            return self
        options = tuple({**dict(below.options), **dict(self.options)}.items())
        return Virtual(self.members or below.members, self.parent or below.parent, options)


@dataclass(frozen=True)
class Automatic:
    """The addresses that a link gets from DHCP and router advertisements, by a platform's document.

    The fields have the names and meanings of netplan-yaml(5); None: the document does not say.
    `link_local` are the families that get a link-local address.
    """

    dhcp4: Optional[bool] = None
    dhcp6: Optional[bool] = None
    accept_ra: Optional[bool] = None
    link_local: Optional[tuple[str, ...]] = None
    dhcp4_overrides: tuple[tuple[str, str], ...] = ()
    dhcp6_overrides: tuple[tuple[str, str], ...] = ()
    optional: Optional[bool] = None
    critical: Optional[bool] = None
