"""The immutable types that the stages exchange.

An MTU is in bytes, a txqueuelen in packets. A MAC address is always written `fe:16:3e:00:6d:af`. A
sysctl key is always its path below /proc/sys (`net/ipv4/conf/eth1.1445/rp_filter`), and in a value
every sequence of white space is one blank.
"""

# SPDX-License-Identifier: MIT

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple, Optional

from neuca_tools.model.addresses import Address as Address
from neuca_tools.model.addresses import Host as Host
from neuca_tools.model.addresses import Network as Network
from neuca_tools.model.device_settings import Declined, DeviceSettings
from neuca_tools.model.links import UNCHANGED as UNCHANGED
from neuca_tools.model.links import UNRECORDED as UNRECORDED
from neuca_tools.model.links import Automatic as Automatic
from neuca_tools.model.links import Incarnation as Incarnation
from neuca_tools.model.links import LinkKey as LinkKey
from neuca_tools.model.links import NicRecord as NicRecord
from neuca_tools.model.links import OriginalValues as OriginalValues
from neuca_tools.model.links import OwnClients as OwnClients
from neuca_tools.model.links import OwnedObjects as OwnedObjects
from neuca_tools.model.links import Virtual as Virtual
from neuca_tools.model.links import WrittenSetting as WrittenSetting
from neuca_tools.model.routing import UNROUTED, NicRouting, Rule, RuleRequest, SeenRule
from neuca_tools.model.routing import Hop as Hop
from neuca_tools.model.routing import Route as Route
from neuca_tools.model.routing import RouteRequest as RouteRequest
from neuca_tools.model.routing import RouteState as RouteState
from neuca_tools.model.rows import Fault as Fault
from neuca_tools.model.rows import Item, Script, Storage, User
from neuca_tools.model.rows import Origin as Origin
from neuca_tools.model.rows import Problem as Problem
from neuca_tools.model.rows import ProblemCode as ProblemCode

# Fields of a LinkRequest that are not in its digest: `documents.stacking` turns the last three into
# a membership and device settings.
NO_SUBSTANCE = ("origins", "vrf", "dns", "offers")
LinkState = Literal["up", "down", "user"]
Role = Literal["dataplane", "management", "ignored", "unlisted"]
Router = Literal["true", "false", "user"]

# Placeholder for the name of a link in the key of a sysctl.
OWN = "{interface}"
ACCEPT_RA = f"net/ipv6/conf/{OWN}/accept_ra"  # 0: router advertisements are ignored
# What else a router advertisement sets, with the default of the kernel (ndisc_router_discovery in
# net/ipv6/ndisc.c; the reachable time also sets the age of a stale neighbour).
ADVERTISED: Mapping[str, str] = {
    f"net/ipv6/conf/{OWN}/hop_limit": "64",
    f"net/ipv6/neigh/{OWN}/base_reachable_time_ms": "30000",
    f"net/ipv6/neigh/{OWN}/gc_stale_time": "60",
    f"net/ipv6/neigh/{OWN}/retrans_time_ms": "1000",
}
# An advertisement may lower it; without one it is the MTU of the device.
IPV6_MTU = f"net/ipv6/conf/{OWN}/mtu"


class LinkRequest(NamedTuple):
    """What a text requests of one link. The agent does not touch a setting that is None or empty.

    The keys of `sysctls` contain `{interface}`. `device` are settings such as (`rings`, `rx 256`).
    `state` is None if the link is only named as a lower device of another one. `virtual` is None
    for a virtual link if no text describes it. `vrf` is the name of the VRF to be a member of.
    `offers` are the DNS settings of a platform's document, which count if `dns` is `per-link`.
    """

    key: LinkKey
    state: Optional[LinkState] = None
    name: Optional[str] = None
    addresses: tuple[Address, ...] = ()
    mtu: Optional[int] = None
    txqueuelen: Optional[int] = None
    sysctls: tuple[tuple[str, str], ...] = ()
    origins: tuple[Origin, ...] = ()
    device: tuple[tuple[str, str], ...] = ()
    virtual: Optional[Virtual] = None
    routing: NicRouting = UNROUTED
    automatic: Optional[Automatic] = None
    vrf: str = ""
    dns: str = ""
    offers: tuple[tuple[str, str], ...] = ()

    @property
    def leases(self) -> Automatic:
        """What DHCP and router advertisements are to give the link; nothing if no text says so."""
        return self.automatic or Automatic()

    def substance(self) -> str:
        """What is requested as text for a digest, whatever its order and where it comes from.

        A new name of a class or field changes it. What is not requested is left out, to save time.
        """
        values, defaults = self._asdict(), {"key": None, **self._field_defaults}
        for name in ("addresses", "sysctls", "device"):
            values[name] = sorted(values[name], key=repr)
        names = [name for name in values if values[name] not in (defaults[name], [])]
        return " ".join([f"{name}={values[name]!r}" for name in names if name not in NO_SUBSTANCE])


Requests = Mapping[LinkKey, LinkRequest]


class ManagementHint(NamedTuple):
    """Why a platform's document suggests that a NIC is for management, or says so (`firm`)."""

    mac: str
    reason: str
    firm: bool = False


class PlatformDocument(NamedTuple):
    """The content of the platform's documents; `name PATTERN` stands for a missing MAC."""

    hostname: Optional[str] = None
    links: tuple[LinkRequest, ...] = ()
    routes: tuple[RouteRequest, ...] = ()
    management: tuple[ManagementHint, ...] = ()
    items: tuple[Item, ...] = ()
    faults: tuple[Fault, ...] = ()
    rules: tuple[RuleRequest, ...] = ()


class Document(NamedTuple):
    """The content of a document, and of the platform's own documents (`platform`).

    A fault of severity `error` makes it incomplete: the agent does not remove anything then.
    """

    hostname: Optional[str] = None
    router: Router = "user"
    items: tuple[Item, ...] = ()
    links: tuple[LinkRequest, ...] = ()
    routes: tuple[RouteRequest, ...] = ()
    users: tuple[User, ...] = ()
    scripts: tuple[Script, ...] = ()
    storage: tuple[Storage, ...] = ()
    faults: tuple[Fault, ...] = ()
    platform: Optional[PlatformDocument] = None
    rules: tuple[RuleRequest, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether all of it is usable."""
        return not any(fault.severity == "error" for fault in self.faults)


class Device(NamedTuple):
    """One network device as the kernel describes it (RTM_NEWLINK, rtnetlink(7)).

    `kind` is IFLA_INFO_KIND, empty for hardware. `lower` is the index of the lower device
    (IFLA_LINK; 0 for a veth, whose IFLA_LINK is its peer), `master` that of the bridge, bond or
    VRF. `hardware`: it has a parent device on a bus. `max_mtu` is 0 if no limit is known. `qdisc`
    is the kind of the root qdisc. `options` are those of a virtual link, as in `Virtual`; `primary`
    is the index of the primary member of a bond. `port` are the settings of a bridge's port.
    `infiniband`: its addresses are port GUIDs (`ports`). The IPoIB interface of a port has no
    `kind`, but `options`; a child has the kind `ipoib`. `slot` are the numbers of its PCI addresses
    from the root of the bus, after -1 and VMware's number or, for a USB device, 2**32; empty for
    one on neither bus. `alias`: see `LINK_ALIAS`.
    """

    index: int  # type: ignore[assignment]  # of tuple.index()
    name: str
    kind: str = ""
    mac: str = ""
    permanent_mac: str = ""
    lower: int = 0
    master: int = 0
    slave: bool = False
    hardware: bool = False
    vlan_id: Optional[int] = None
    up: bool = False
    carrier: bool = False
    mtu: int = 0
    min_mtu: int = 0
    max_mtu: int = 0
    txqueuelen: int = 0
    qdisc: str = ""
    altnames: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    port: tuple[tuple[str, str], ...] = ()
    primary: int = 0
    infiniband: bool = False
    slot: tuple[int, ...] = ()
    alias: str = ""

    @property
    def mode(self) -> str:
        """The mode of a bond, macvlan or IPoIB interface; empty if it has none."""
        return dict(self.options).get("mode", "")


@dataclass(frozen=True)
class World:
    """The observed state of the host; a set of pairs has an interface index with each value.

    `metadata_index` is the device that leads to the metadata service, 0 for none. Leased addresses
    have a lifetime; `endless_leases` are others that dhclient or udhcpc has leased. `age`: seconds
    since the boot, `later_ages`: see `is_aged`. `advertised` are the devices on which the kernel
    accepts routes from router advertisements only as long as they do not forward. `sysctls` are the
    requested settings by path, if they can be read, `files` the agent's own files, None for one
    that does not exist. `managers` maps manager and interface to a state; `silent_managers` says
    why a manager gave no response. `profiles` are the UUIDs of the NetworkManager profiles in use,
    by interface; `no_manager_runs`: none of them runs, as far as this process can contact them.
    `accept_ra` is the setting of a new link (ACCEPT_RA), None without IPv6. `unadvertised` are the
    sysctls by path that an advertisement may set, each with its value without one. Autoconfigured
    addresses are from advertisements, `marked_addresses` are ours, and another host has the
    `duplicate_addresses`; there is no route to the network of the `bare` ones, and the kernel
    avoids `deprecated` ones as sources. `peer_networks` are those of point-to-point addresses,
    `broadcasts` the explicit broadcast addresses. `routes` are the unicast routes of the main
    table, `other_routes` all others but the kernel's to its addresses, `routers` the IPv6 routers
    near a device. `address_messages` are the kernel's messages about addresses, `read_at` is of
    CLOCK_MONOTONIC. `fixed_sysctls`: /proc/sys is read-only.
    `is_container`: this is not the machine's first network namespace.
    """

    devices: Mapping[int, Device] = field(default_factory=dict)
    addresses: Mapping[int, tuple[Address, ...]] = field(default_factory=dict)
    routes: tuple[Route, ...] = ()
    metadata_index: int = 0
    boot_id: str = ""
    rename_while_up: bool = True
    leased_addresses: frozenset[tuple[int, Address]] = frozenset()
    endless_leases: frozenset[tuple[int, Address]] = frozenset()
    settings: Mapping[int, DeviceSettings] = field(default_factory=dict)
    age: float = math.inf
    later_ages: set[float] = field(default_factory=set, compare=False)
    fixed_sysctls: bool = False
    advertised: frozenset[int] = frozenset()
    sysctls: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, Optional[bytes]] = field(default_factory=dict)
    managers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    silent_managers: Mapping[str, str] = field(default_factory=dict)
    profiles: Mapping[str, str] = field(default_factory=dict)
    no_manager_runs: bool = False
    own_clients: OwnClients = field(default_factory=OwnClients)
    accept_ra: Optional[str] = None
    unadvertised: Mapping[str, str] = field(default_factory=dict)
    autoconfigured: frozenset[tuple[int, Address]] = frozenset()
    peer_networks: frozenset[tuple[int, Network]] = frozenset()
    broadcasts: frozenset[tuple[int, Host]] = frozenset()
    bare: frozenset[tuple[int, Address]] = frozenset()
    deprecated: frozenset[tuple[int, Address]] = frozenset()
    marked_addresses: frozenset[tuple[int, Address]] = frozenset()
    duplicate_addresses: frozenset[tuple[int, Address]] = frozenset()
    other_routes: tuple[Route, ...] = ()
    rules: tuple[SeenRule, ...] = ()
    routers: Mapping[int, tuple[Host, ...]] = field(default_factory=dict)
    address_messages: Mapping[tuple[int, Address], bytes] = field(default_factory=dict)
    read_at: float = 0.0
    has_ipv6: bool = True
    is_container: bool = False

    def is_aged(self, seconds: float) -> bool:
        """Whether the host has been up for so long; if not, `later_ages` keeps when it will be."""
        if self.age < seconds:
            self.later_ages.add(seconds)
        return self.age >= seconds

    @cached_property
    def hosts_guests(self) -> bool:
        """Whether every veth and tap serves a container, a guest or a VPN of this host.

        In a container, one may be its own NIC, even beside hardware that is passed through.
        """
        return not self.is_container and any(nic.hardware for nic in self.devices.values())

    @cached_property
    def configured_networks(self) -> frozenset[tuple[int, Network]]:
        """Device and network of each address that was not autoconfigured, and of each peer."""
        every = {(index, address) for index, own in self.addresses.items() for address in own}
        others = every - self.autoconfigured
        return self.peer_networks | {(index, address.network) for index, address in others}

    @cached_property
    def manual_networks(self) -> Mapping[int, frozenset[Network]]:
        """The networks of other IPv4 addresses of each device that has leased ones."""
        pairs = self.leased_addresses | self.endless_leases
        leased = {pair for pair in pairs if pair[1].version == 4}
        indexes = {index for index, address in leased if address in self.addresses.get(index, ())}
        return {
            index: frozenset(
                address.network
                for address in self.addresses.get(index, ())
                if address.version == 4 and (index, address) not in leased
            )
            for index in indexes
        }


class Link(NamedTuple):
    """One link, desired (None: leave it alone) or observed (None: unknown).

    The keys of `sysctls` contain `{interface}`, because a name may change. `managers` maps
    `networkmanager` and `networkd` to `managed`, `unmanaged`, `absent` or `unknown`. `master` is
    the bond, bridge or VRF that it is in. `bare` are the addresses whose network gets no route in
    the main table. `profile` is the UUID of the NetworkManager profile that it uses, or has to use
    for DHCP, if any. `foreign_addresses` are the addresses that other programs have set, each with
    the kernel's message about it (observed). `unmarked`: it is ours and has no alias.
    """

    key: LinkKey
    kind: str
    role: Role
    name: Optional[str] = None
    index: int = 0  # type: ignore[assignment]
    state: Optional[LinkState] = None
    mtu: Optional[int] = None
    txqueuelen: Optional[int] = None
    addresses: tuple[Address, ...] = ()
    sysctls: Mapping[str, str] = {}
    device: Mapping[str, str] = {}
    managers: Mapping[str, str] = {}
    virtual: Optional[Virtual] = None
    master: Optional[LinkKey] = None
    bare: tuple[Address, ...] = ()
    profile: str = ""
    foreign_addresses: Mapping[Address, bytes] = {}
    unmarked: bool = False

    @property
    def is_in_bond(self) -> bool:
        return self.master is not None and self.master.kind == "bond"


class NetworkState(NamedTuple):
    """The desired state, the observed state, or what a journal recorded.

    `files` maps a path to its content, None for a file that should not exist, or does not.
    `sysctls` are the host-wide ones. `banned` are prefixes that must not have a route.
    `manager_by_file`: who has to reload a file once it is written (observed: the running manager,
    empty if it has to reload in any case). `clients` has what the DHCP clients that we start are
    told, by the label of the link (observed: empty for one that has ended). `foreign_routes` were
    set by other programs, and read at `read_at` (see `World`).
    """

    links: Mapping[LinkKey, Link] = {}
    hops: tuple[Hop, ...] = ()
    banned: tuple[Network, ...] = ()
    sysctls: Mapping[str, str] = {}
    files: Mapping[str, Optional[bytes]] = {}
    manager_by_file: Mapping[str, str] = {}
    rules: Mapping[Rule, LinkKey] = {}
    clients: Mapping[str, str] = {}
    foreign_routes: tuple[Route, ...] = ()
    read_at: float = 0.0


class Record(NamedTuple):
    """Everything that the agent recorded in earlier passes.

    `boot_id` is the boot that `owned` and all originals belong to. `management_networks`, with
    their gateways, are for a boot on which these NICs have no address yet. `written` has what the
    agent last set. `retry` are settings that failed. `tables` maps a link to the number of its
    routing table, `routers` to its IPv6 router. `made` are our links and their members as they
    were requested, for a roll-back that has to create them again.
    """

    boot_id: str = ""
    nics: Mapping[str, NicRecord] = {}
    owned: OwnedObjects = OwnedObjects()
    originals: Mapping[LinkKey, OriginalValues] = {}
    original_sysctls: Mapping[str, str] = {}
    applied: str = ""
    management_networks: tuple[str, ...] = ()
    declined: Mapping[LinkKey, Mapping[str, Declined]] = {}
    written: Mapping[WrittenSetting, str] = {}
    retry: tuple[str, ...] = ()
    tables: Mapping[LinkKey, int] = {}
    routers: Mapping[LinkKey, Host] = {}
    made: Mapping[LinkKey, Link] = {}

    def macs_of(self, role: str) -> set[str]:
        """The NICs that are recorded with this role."""
        return {mac for mac, nic in self.nics.items() if nic.role == role}

    @property
    def released(self) -> set[str]:
        """The NICs that were released, and are ignored since."""
        return {mac for mac, nic in self.nics.items() if nic.released}
