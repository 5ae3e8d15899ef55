"""What a link *is*, whatever it is called; and what those are made of that have no hardware: bonds, bridges, VXLANs, macvlans.

A link is only ever made of links of a lower rank. So there is one order for all of them, and no graph to be sorted.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Optional

KINDS = ("bond", "bridge", "vxlan", "macvlan")
_RANKS = {"physical": 0, "bond": 1, "vlan": 2, "vxlan": 3, "macvlan": 3, "bridge": 4}
_HIGHEST = 5  # a VLAN on one of the latter


class LinkKey(NamedTuple):
    """What a link is: a NIC by its permanent MAC, a bond and its like by kind and name, a VLAN by what it is on and its ID.

    `mac` is `fe:16:3e:00:6d:af` or `bond bond0`. It names the failure domain: a NIC, bond or bridge with its VLANs.
    """

    mac: str
    vlan_id: Optional[int] = None

    @property
    def nic(self) -> LinkKey:
        """The NIC or bond below: itself for one. It and its VLANs are one failure domain."""
        return LinkKey(self.mac)

    @property
    def made(self) -> str:
        """`bond`, `bridge`, `vxlan` or `macvlan` where it is one, or a VLAN on one; else empty."""
        word = self.mac.partition(" ")[0]
        return word if word in KINDS else ""

    @property
    def kind(self) -> str:
        return "vlan" if self.vlan_id is not None else self.made or "physical"

    @property
    def given_name(self) -> str:
        """The name that is part of what it is; empty for a NIC."""
        return self.mac.partition(" ")[2] if self.made else ""

    @property
    def rank(self) -> int:
        """How high it may be stacked: what it is made of has a lower rank."""
        return (
            _HIGHEST
            if self.vlan_id is not None and _RANKS.get(self.made, 0) > _RANKS["vlan"]
            else _RANKS[self.kind]
        )

    @property
    def order(self) -> tuple[int, str, int]:
        """To sort by: what is below comes first."""
        return self.rank, self.mac, self.vlan_id or 0

    def __lt__(self, other: tuple[object, ...]) -> bool:
        """A NIC before its VLANs: as a tuple, None could not be compared."""
        return isinstance(other, LinkKey) and (self.mac, self.vlan_id or 0) < (
            other.mac,
            other.vlan_id or 0,
        )

    def __str__(self) -> str:
        return self.mac if self.vlan_id is None else f"{self.mac}.{self.vlan_id}"


@dataclass(frozen=True)
class Virtual:
    """What a bond, bridge, VXLAN or macvlan is made of.

    `members` are put into a bond or a bridge, a VXLAN or a macvlan is on its `parent`. `options` are those of its kind, as
    `documents.kinds` writes them: (`mode`, `802.3ad`).
    """

    members: tuple[LinkKey, ...] = ()
    parent: Optional[LinkKey] = None
    options: tuple[tuple[str, str], ...] = ()

    @property
    def lower(self) -> tuple[LinkKey, ...]:
        """Every link that it is made of."""
        return (*self.members, *filter(None, (self.parent,)))

    def option(self, name: str) -> str:
        return dict(self.options).get(name, "")

    def over(self, below: Optional[Virtual]) -> Virtual:
        """Both, setting by setting; this one wins."""
        if below is None:
            return self
        options = tuple({**dict(below.options), **dict(self.options)}.items())
        return Virtual(self.members or below.members, self.parent or below.parent, options)
