"""The identity of a link, what is recorded of it, and the composition of virtual links."""

# SPDX-License-Identifier: MIT

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal, NamedTuple, Optional

from neuca_tools.model.addresses import MAX_CACHED, Address

LINK_ALIAS = "neuca-guest-tools"
"""The alias (ip-link(8)) of every link that neucad has created."""
KINDS = ("bond", "bridge", "vxlan", "macvlan", "vrf", "ipoib")
# The position of each kind in the stack of links: a lower device has a lower rank than its upper
# devices, so sorting by rank puts it first.
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
_RANK_OF_UPPER_VLAN = 5  # of a VLAN on a VXLAN, macvlan or bridge
_NO_VLAN = -1  # sorts a NIC or virtual link before its VLANs


class LinkKey(tuple[str, int]):  # noqa: SLOT001 - a tuple can have no other slots
    """Identifies a link: a NIC, a virtual link, or a VLAN on one of them.

    `mac` identifies the failure domain, which is a NIC or virtual link with its VLANs: by its MAC,
    by the GUID of an InfiniBand port, or as `KIND NAME` for a virtual link. Documents, records and
    messages use the same form. `vlan_id` is None for a link that is no VLAN. `nic` is the key of
    the failure domain: the NIC or virtual link that a VLAN is on, or else the link itself.
    `virtual_kind` and `virtual_name` are those of a virtual link, also for a VLAN on it; both are
    empty for a NIC and its VLANs. `kind` is `physical`, `vlan` or one of KINDS. `rank` is the
    position in the stack of links.

    Keys are ordered by `mac`, with a NIC or virtual link before its VLANs. `order` is a sort key
    that puts lower devices before all of their upper devices.
    """

    # Attributes rather than properties, because a pass reads them very often.
    mac: str
    vlan_id: Optional[int]
    nic: "LinkKey"
    virtual_kind: str
    virtual_name: str
    kind: str
    rank: int
    order: tuple[int, str, int]

    def __new__(cls, mac: str, vlan_id: Optional[int] = None) -> "LinkKey":  # noqa: PYI034 - Python 3.9
        return _link_key(mac, vlan_id)

    def __getnewargs__(self) -> tuple[Any, ...]:
        return self.mac, self.vlan_id

    def __repr__(self) -> str:
        """The text that goes into the digest of a request; a change of it changes every digest."""
        if self.vlan_id is not None:
            return f"Vlan({self.nic!r}, {self.vlan_id})"
        if self.virtual_kind:
            return f"VirtualLink({self.virtual_kind!r}, {self.virtual_name!r})"
        return f"Nic({self.mac!r})"

    def __str__(self) -> str:
        return self.mac if self.vlan_id is None else f"{self.mac}.{self.vlan_id}"


@lru_cache(MAX_CACHED)  # the document, the record and the kernel each name every link
def _link_key(mac: str, vlan_id: Optional[int]) -> LinkKey:
    key = tuple.__new__(LinkKey, (mac, _NO_VLAN if vlan_id is None else vlan_id))
    kind, _, name = mac.partition(" ")
    is_made = bool(name) and kind in KINDS
    key.mac, key.vlan_id = mac, vlan_id
    key.virtual_kind, key.virtual_name = (kind, name) if is_made else ("", "")
    key.nic, key.kind = key, key.virtual_kind or "physical"
    key.rank = _RANKS[key.kind]
    if vlan_id is not None:
        key.nic, key.kind = _link_key(mac, None), "vlan"
        key.rank = _RANK_OF_UPPER_VLAN if key.rank > _RANKS["vlan"] else _RANKS["vlan"]
    key.order = key.rank, mac, vlan_id or 0
    return key


class Incarnation(NamedTuple):
    """One appearance of a NIC or virtual link: a reboot or another hotplug makes a new one.

    `ifindex` is its interface index. `vlans` are its requested VLANs: VLAN ID, interface index.
    """

    boot_id: str
    ifindex: int
    vlans: tuple[tuple[int, int], ...] = ()

    def is_same_link(self, other: Optional["Incarnation"]) -> bool:
        """Whether both are the same appearance of the link itself, whatever VLANs are on it."""
        return other is not None and self[:2] == other[:2]

    def __str__(self) -> str:
        """As in the record: `BOOT_ID:INDEX VLAN_ID=INDEX ...`."""
        vlans = [f"{vlan_id}={ifindex}" for vlan_id, ifindex in self.vlans]
        return " ".join([f"{self.boot_id}:{self.ifindex}", *vlans])


class WrittenSetting(NamedTuple):
    """A setting that the agent has written: an attribute of `link`, or a sysctl of the host.

    `setting` is the name of the attribute (`mtu`), or the path of the sysctl below /proc/sys.
    """

    setting: str
    link: Optional[LinkKey] = None

    def __str__(self) -> str:
        """As in the record: `LINK SETTING`, or the path."""
        return f"{self.link} {self.setting}" if self.link else self.setting


class OwnedObjects(NamedTuple):
    """What the agent has added since the boot, and may remove.

    `vlans` has the keys of VLANs and of virtual links of all kinds: the record has this name for
    it. `routes`: whether routes may be removed, too; ours have an rtm_protocol of their own.
    """

    addresses: frozenset[tuple[LinkKey, Address]] = frozenset()
    vlans: frozenset[LinkKey] = frozenset()
    routes: bool = False


class OriginalValues(NamedTuple):
    """The values of a link before the agent first changed them; None or absent if it never did.

    `sysctls` are by path, `device` are device settings by name (`rings`).
    """

    mtu: Optional[int] = None
    txqueuelen: Optional[int] = None
    sysctls: Mapping[str, str] = {}
    device: Mapping[str, str] = {}


class NicRecord(NamedTuple):
    """What is recorded of one NIC or virtual link; the fields have their names in the record.

    `applied` is the digest of the applied request, `incarnation` the appearance that it was applied
    to. `leaving` is the network manager that had configured a new dataplane NIC, until what it left
    there is removed. `unheard`: a network manager gave no response, and has still to be told that
    the NIC is not its own. `doubtful` are the IP versions whose automatic default route is the only
    reason to take it for a management NIC.
    """

    name: str = ""
    role: Literal["", "dataplane", "management"] = ""
    released: bool = False
    applied: str = ""
    incarnation: Optional[Incarnation] = None
    leaving: str = ""
    doubtful: tuple[int, ...] = ()
    unheard: bool = False

    @property
    def is_interrupted(self) -> bool:
        """Whether a pass or a trial that changed the link was interrupted."""
        return self.applied == NONE_IN_FORCE


UNCHANGED, UNRECORDED = OriginalValues(), NicRecord()
# Absent NICs without a role that are recorded: as many as one PCIe device has functions (ARI).
MAX_ABSENT_NICS = 256
NONE_IN_FORCE = "none in force"  # in place of the digest of a request (`NicRecord.applied`)


class Virtual(NamedTuple):
    """The composition of a virtual link, and the options of its kind.

    `members` are the members of a bond or VRF or the ports of a bridge, `parent` is the lower
    device of a VXLAN, macvlan or IPoIB child. `options` are pairs of name and value, such as
    (`mode`, `802.3ad`); `documents.neuca.link_kinds` lists them.
    """

    members: tuple[LinkKey, ...] = ()
    parent: Optional[LinkKey] = None
    options: tuple[tuple[str, str], ...] = ()

    @property
    def lower(self) -> tuple[LinkKey, ...]:
        """Every lower device: the members, and the parent."""
        return (*self.members, *filter(None, (self.parent,)))

    def option(self, name: str) -> str:
        """The value of an option; empty if it is not set."""
        return dict(self.options).get(name, "")

    def over(self, below: Optional["Virtual"]) -> "Virtual":
        """Both requests merged: what this one does not set is taken from `below`."""
        if below is None:
            return self
        options = tuple({**dict(below.options), **dict(self.options)}.items())
        return Virtual(self.members or below.members, self.parent or below.parent, options)


class Automatic(NamedTuple):
    """Whether a link is to get addresses from DHCP and router advertisements.

    The fields have the names and meanings of netplan-yaml(5), and are None if no document sets
    them. `link_local` are the families (`ipv4`, `ipv6`) with a link-local address.
    """

    dhcp4: Optional[bool] = None
    dhcp6: Optional[bool] = None
    accept_ra: Optional[bool] = None
    link_local: Optional[tuple[str, ...]] = None
    dhcp4_overrides: tuple[tuple[str, str], ...] = ()
    dhcp6_overrides: tuple[tuple[str, str], ...] = ()
    optional: Optional[bool] = None
    critical: Optional[bool] = None

    def over(self, below: Optional["Automatic"]) -> "Automatic":
        """Both requests merged, field by field; this one wins."""
        if below is None:
            return self
        fields = self._asdict().items()
        return below._replace(**{name: value for name, value in fields if value not in (None, ())})

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


class OwnClients(NamedTuple):
    """The DHCP clients that the agent starts on links that no network manager serves.

    There is one process for each link and protocol. `program` is the path of dhcpcd, empty if it
    may not be used or is not installed; `helper` is the program that it runs for each lease.
    `replaces_managers`: the configuration requires this client, even if a network manager runs.
    `manager_may_start`: none runs yet, but one is enabled. `requests` has what each client was
    started with, by its label (`dhcp_files.client_labels`); `running` are the labels of those that
    still run. `refusals` are pairs of an interface index and the reason why a part of its lease is
    not used.
    """

    program: str = ""
    helper: str = ""
    replaces_managers: bool = False
    manager_may_start: bool = False
    requests: Mapping[str, str] = {}
    running: frozenset[str] = frozenset()
    refusals: tuple[tuple[int, str], ...] = ()
