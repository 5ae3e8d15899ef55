"""The identity of a link, independent of its name, and the composition of virtual links.

Lower devices always have a lower rank, so sorting by rank puts them before their upper devices.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from functools import lru_cache
from operator import itemgetter
from typing import Any, Literal, NamedTuple, Optional

from neuca_tools.model.addresses import MOST_KEPT, Address

LINK_ALIAS = "neuca-guest-tools"
"""The alias (ip-link(8)) of every link that neucad has created."""
KINDS = ("bond", "bridge", "vxlan", "macvlan", "vrf", "ipoib")
_RANKS = {
    "physical": 0,
    "bond": 1,
    "vlan": 2,
    "ipoib": 2,
    "vxlan": 3,
    "macvlan": 3,
    "bridge": 4,
    # Any other link can be in a VRF, and no link can be on one.
    "vrf": 6,
}
# The rank of a VLAN on a VXLAN, macvlan or bridge.
_HIGHEST = 5


# `__new__` below returns no typing.Self (PYI034), which is newer than Python 3.9.


class LinkKey(tuple[Any, ...]):
    """Identifies a link: a `Nic`, a `VirtualLink` or a `Vlan`.

    `mac` identifies the failure domain, a NIC or virtual link with its VLANs, by its MAC or by
    `KIND NAME`: the form that documents, records and messages use. LinkKey(mac, vlan_id) is the
    link with this form.
    """

    __slots__ = ()

    def __new__(cls, mac: str, vlan_id: Optional[int] = None) -> LinkKey:  # noqa: PYI034
        return _link_key(mac, vlan_id)

    @property
    def mac(self) -> str:
        raise NotImplementedError

    @property
    def vlan_id(self) -> Optional[int]:
        """The VLAN ID; None for a link that is no VLAN."""
        return None

    @property
    def nic(self) -> LinkKey:
        """The NIC or virtual link that a VLAN is on; for all others, the link itself."""
        return self

    @property
    def made(self) -> str:
        """The kind of a virtual link, also for a VLAN on it; empty for a NIC and its VLANs."""
        return ""

    @property
    def kind(self) -> str:
        """`physical`, `vlan` or one of KINDS."""
        raise NotImplementedError

    @property
    def given_name(self) -> str:
        """The name of a virtual link, which is part of its identity; empty for a NIC."""
        return ""

    @property
    def rank(self) -> int:
        """The position in the stack of links; a lower device has a lower rank."""
        return _RANKS[self.kind]

    @property
    def order(self) -> tuple[int, str, int]:
        """A sort key that puts lower devices before their upper devices."""
        return self.rank, self.mac, self.vlan_id or 0

    def __lt__(self, other: object) -> bool:
        return isinstance(other, LinkKey) and self.position < other.position

    def __gt__(self, other: object) -> bool:
        return isinstance(other, LinkKey) and self.position > other.position

    @property
    def position(self) -> tuple[str, int]:
        """What links are ordered by: MAC or name; a lower device comes before its VLANs.

        A sort computes it once for each link, not for each comparison.
        """
        return self.mac, self.vlan_id or 0

    def __bool__(self) -> Literal[True]:
        return True

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self))})"

    def __str__(self) -> str:
        return self.mac


class Nic(LinkKey):
    """A NIC, by its permanent MAC, or by its GUID if it is an InfiniBand port."""

    __slots__ = ()

    def __new__(cls, mac: str) -> Nic:  # noqa: PYI034
        return tuple.__new__(cls, (mac,))

    # As for any link, but without a call of Python: a pass asks for them a hundred times for each
    # of thousands.

    mac = property(itemgetter(0))
    vlan_id = None
    kind = "physical"
    made = given_name = ""
    rank = 0

    @property
    def order(self) -> tuple[int, str, int]:
        return 0, self[0], 0

    @property
    def position(self) -> tuple[str, int]:
        return self[0], 0


class VirtualLink(LinkKey):
    """A bond, bridge, VXLAN, macvlan, VRF or IPoIB child, by its kind and name."""

    __slots__ = ()

    def __new__(cls, kind: str, name: str) -> VirtualLink:  # noqa: PYI034
        return tuple.__new__(cls, (kind, name))

    @property
    def mac(self) -> str:
        return f"{self[0]} {self[1]}"

    @property
    def made(self) -> str:
        return self.kind

    @property
    def kind(self) -> str:
        return str(self[0])

    @property
    def given_name(self) -> str:
        return str(self[1])


class Vlan(LinkKey):
    """A VLAN, by its lower device (a `Nic` or `VirtualLink`) and ID."""

    __slots__ = ()

    def __new__(cls, lower: LinkKey, vlan_id: int) -> Vlan:  # noqa: PYI034
        return tuple.__new__(cls, (lower, vlan_id))

    @property
    def mac(self) -> str:
        return self.nic.mac

    @property
    def vlan_id(self) -> int:
        return int(self[1])

    @property
    def nic(self) -> LinkKey:
        lower: LinkKey = self[0]
        return lower

    @property
    def made(self) -> str:
        return self.nic.made

    @property
    def kind(self) -> str:
        return "vlan"

    @property
    def given_name(self) -> str:
        return self.nic.given_name

    @property
    def rank(self) -> int:
        if self.nic.rank > _RANKS["vlan"]:
            return _HIGHEST
        return _RANKS["vlan"]

    def __str__(self) -> str:
        return f"{self.mac}.{self.vlan_id}"


@lru_cache(MOST_KEPT)  # the document, the record and the kernel each name every link
def _link_key(mac: str, vlan_id: Optional[int]) -> LinkKey:
    lower: LinkKey = Nic(mac)
    kind, _, name = mac.partition(" ")
    if name and kind in KINDS:
        lower = VirtualLink(kind, name)
    if vlan_id is None:
        return lower
    return Vlan(lower, vlan_id)


class Incarnation(NamedTuple):
    """One appearance of a NIC or virtual link; a reboot and every plugging in make a new one.

    `ifindex` is its interface index. `vlans` has the interface index of each VLAN on it that is
    asked for, by ID.
    """

    boot_id: str
    ifindex: int
    vlans: tuple[tuple[int, int], ...] = ()

    def is_same_link(self, other: Optional[Incarnation]) -> bool:
        """Whether both are the same appearance of the link itself, whatever VLANs are on it."""
        return other is not None and self[:2] == other[:2]

    def __str__(self) -> str:
        """As in the record: `BOOT_ID:INDEX VLAN_ID=INDEX ...`."""
        vlans = [f"{vlan_id}={ifindex}" for vlan_id, ifindex in self.vlans]
        return " ".join([f"{self.boot_id}:{self.ifindex}", *vlans])


class Written(NamedTuple):
    """A setting made by the agent: an attribute of a link, or the path of a sysctl of the host."""

    setting: str
    link: Optional[LinkKey] = None

    def __str__(self) -> str:
        """As in the record: `LINK SETTING`, or the path."""
        if self.link is None:
            return self.setting
        return f"{self.link} {self.setting}"


class Owned(NamedTuple):
    """What the agent added since the boot, and may remove.

    `routes`: whether it may remove routes, which it knows by its own rtm_protocol. `vlans` contains
    the virtual links of all kinds.
    """

    addresses: frozenset[tuple[LinkKey, Address]] = frozenset()
    vlans: frozenset[LinkKey] = frozenset()
    routes: bool = False


class Virtual(NamedTuple):
    """The composition of a virtual link, and the options of its kind.

    `members` are the members of a bond or VRF or the ports of a bridge, `parent` is the lower
    device of a VXLAN, macvlan or IPoIB child. `options` are as in `documents.neuca.link_kinds`:
    (`mode`, `802.3ad`).
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


class Automatic(NamedTuple):
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
