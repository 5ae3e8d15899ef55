"""The identity of a link, what is recorded of it, and the composition of virtual links.

Lower devices always have a lower rank, so sorting by rank puts them before their upper devices.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
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
_NO_VLAN = -1  # before every VLAN ID


class LinkKey(tuple[str, int]):  # noqa: SLOT001 - a tuple can have no other slots
    """Identifies a link: a NIC, a virtual link, or a VLAN on one of them.

    `mac` identifies the failure domain, a NIC or virtual link with its VLANs, by its MAC (of an
    InfiniBand port, its GUID) or by `KIND NAME`: the form that documents, records and messages use.
    `vlan_id` is None for a link that is no VLAN, and `nic` the NIC or virtual link that a VLAN is
    on, for all others the link itself. `made` is the kind of a virtual link, also for a VLAN on it,
    and `given_name` its name; both are empty for a NIC and its VLANs. `kind` is `physical`, `vlan`
    or one of KINDS. `rank` is the position in the stack of links; a lower device has a lower rank.

    Links are ordered by MAC or name, a lower device before its VLANs; `order` is a sort key that
    puts lower devices before all of their upper devices.
    """

    # Attributes, and no properties: a pass asks for them a hundred times for each of thousands.
    mac: str
    vlan_id: Optional[int]
    nic: LinkKey
    made: str
    given_name: str
    kind: str
    rank: int
    order: tuple[int, str, int]

    def __new__(cls, mac: str, vlan_id: Optional[int] = None) -> LinkKey:  # noqa: PYI034 - Python 3.9
        return _link_key(mac, vlan_id)

    def __getnewargs__(self) -> tuple[Any, ...]:
        return self.mac, self.vlan_id

    def __repr__(self) -> str:
        """The form that digests of requests are made of."""
        if self.vlan_id is not None:
            return f"Vlan({self.nic!r}, {self.vlan_id})"
        if self.made:
            return f"VirtualLink({self.made!r}, {self.given_name!r})"
        return f"Nic({self.mac!r})"

    def __str__(self) -> str:
        return self.mac if self.vlan_id is None else f"{self.mac}.{self.vlan_id}"


@lru_cache(MOST_KEPT)  # the document, the record and the kernel each name every link
def _link_key(mac: str, vlan_id: Optional[int]) -> LinkKey:
    key = tuple.__new__(LinkKey, (mac, _NO_VLAN if vlan_id is None else vlan_id))
    kind, _, name = mac.partition(" ")
    is_made = bool(name) and kind in KINDS
    key.mac, key.vlan_id = mac, vlan_id
    key.made, key.given_name = (kind, name) if is_made else ("", "")
    key.nic, key.kind = key, key.made or "physical"
    key.rank = _RANKS[key.kind]
    if vlan_id is not None:
        key.nic, key.kind = _link_key(mac, None), "vlan"
        key.rank = _HIGHEST if key.rank > _RANKS["vlan"] else _RANKS["vlan"]
    key.order = key.rank, mac, vlan_id or 0
    return key


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


class Original(NamedTuple):
    """The values of a link before the agent first changed them; None for those not changed."""

    mtu: Optional[int] = None
    txqueuelen: Optional[int] = None
    sysctls: Mapping[str, str] = {}
    device: Mapping[str, str] = {}


class NicRecord(NamedTuple):
    """What is recorded of one NIC.

    `applied` is the digest of the applied request, `incarnation` the appearance of the NIC and its
    VLANs that it was applied to. `leaving` is the manager that managed a new dataplane NIC, until
    all that it configured is removed. `unheard`: a manager gave no response and has to be told
    about the NIC. `doubtful` are the families (4, 6) whose automatic default route alone makes it a
    management NIC.
    """

    name: str = ""
    role: Literal["", "dataplane", "management"] = ""
    released: bool = False
    applied: str = ""
    incarnation: Optional[Incarnation] = None
    leaving: str = ""
    doubtful: tuple[int, ...] = ()
    unheard: bool = False


UNCHANGED, UNRECORDED = Original(), NicRecord()


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

    @property
    def has_dhcp(self) -> bool:
        """Whether DHCP is requested."""
        return bool(self.dhcp4 or self.dhcp6)

    @property
    def takes_advertisements(self) -> bool:
        """Whether router advertisements are used; with DHCPv6 unless the document says no."""
        return bool(self.dhcp6 if self.accept_ra is None else self.accept_ra)

    @property
    def has_ipv6(self) -> bool:
        """Whether IPv6 addresses come from DHCPv6 or router advertisements."""
        return bool(self.dhcp6 or self.accept_ra)


NOT_AUTOMATIC = Automatic()


class OwnClients(NamedTuple):
    """The DHCP clients that the agent starts where no network manager serves a link, one process
    for each link and protocol.

    `program` is the path of dhcpcd, empty if it may not be used or is not installed;
    `forced`: the configuration names it, and no network manager is to do it. `expected`: a network
    manager is enabled that may still start. `requests` has what each client was started with, by
    its label (`dhcp_files.client_labels`); those that are `alive` run. `helper` is the program
    that they tell of leases. `refused`: interface indices, with why something leased is not used.
    """

    program: str = ""
    helper: str = ""
    forced: bool = False
    expected: bool = False
    requests: Mapping[str, str] = {}
    alive: frozenset[str] = frozenset()
    refused: tuple[tuple[int, str], ...] = ()
