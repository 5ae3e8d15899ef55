"""The types that the stages hand to each other: frozen, and without behaviour beyond reading themselves.

Units: MTU in bytes, txqueuelen in packets. A MAC address is always written `fe:16:3e:00:6d:af`. A sysctl key is always
its path below /proc/sys (`net/ipv4/conf/eth1.1445/rp_filter`), and a value has its white space folded to single blanks.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
)
from typing import Literal, NamedTuple, Optional, Union

from neuca_tools.model.device_settings import Declined, DeviceSettings
from neuca_tools.model.links import LinkKey as LinkKey
from neuca_tools.model.links import Virtual as Virtual
from neuca_tools.model.rows import Item, Script, Storage, User

Address = Union[IPv4Interface, IPv6Interface]
Network = Union[IPv4Network, IPv6Network]
Host = Union[IPv4Address, IPv6Address]

LinkState = Literal["up", "down", "user"]
Role = Literal["dataplane", "management", "ignored", "unlisted"]
RouteState = Literal["present", "absent", "user"]
Router = Literal["true", "false", "user"]
ProblemCode = Literal[
    "absent",
    "ignored",
    "contested",
    "drift",
    "refused",
    "failed",
    "name",
    "mtu",
    "invalid",
    "unsaved",
]

OWN = "{interface}"  # stands for a link's own name in the key of a sysctl
ACCEPT_RA = f"net/ipv6/conf/{OWN}/accept_ra"  # 0: no router advertisement has any effect


# --- What a document says -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """One thing in a text that could not be used (`error`), or that deserves a word (`warning`). It costs only itself.

    `line` 0: the text has no lines; then `section` is the name of the document.
    """

    line: int
    section: str
    key: str
    value: str
    reason: str
    severity: Literal["error", "warning"] = "error"

    @property
    def text(self) -> str:
        where = f"line {self.line}: [{self.section}]" if self.section else f"line {self.line}"
        where = where if self.line else self.section
        what = f' "{self.key}"' if self.key else ""
        what += f' = "{self.value}"' if self.value else ""
        return f"{where}{what}: {self.reason}"


@dataclass(frozen=True)
class Origin:
    """Where one setting of one link came from: `line 12, [interface fe163e006daf]`, and what it overrode."""

    setting: str
    value: str
    where: str
    overrode: str = ""


@dataclass(frozen=True)
class LinkRequest:
    """What a text asks of one link. None or empty: not asked, so not ours to set.

    `sysctls` has `{interface}` still in its keys; `device`: (`rings`, `rx 256`). `state` None: it is only named by another
    link's. `virtual` None for a bond or its like: no text says what it is made of.
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


@dataclass(frozen=True)
class RouteRequest:
    """One line of `[routes]`; `via` is None unless the state is `present`. `link` where the document says which."""

    to: Network
    state: RouteState
    via: Optional[Host] = None
    where: str = ""
    link: Optional[LinkKey] = None


class ManagementHint(NamedTuple):
    """Why a platform's document makes a NIC a management one. `firm`: even if a NEuca document names the NIC."""

    mac: str
    reason: str
    firm: bool = False


@dataclass(frozen=True)
class PlatformDocument:
    """What the platform's own documents say. The MAC of a key may be `name PATTERN` where that is all they know."""

    hostname: Optional[str] = None
    links: tuple[LinkRequest, ...] = ()
    routes: tuple[RouteRequest, ...] = ()
    management: tuple[ManagementHint, ...] = ()
    items: tuple[Item, ...] = ()
    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True)
class Document:
    """All that a document says. `faults` of severity `error` make it incomplete: then nothing is taken away for it.

    `platform` is what the platform's own documents say beside it, their faults among these.
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

    @property
    def complete(self) -> bool:
        return not any(fault.severity == "error" for fault in self.faults)


# --- What this host has ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Device:
    """One network device as the kernel describes it (RTM_NEWLINK, rtnetlink(7)).

    `kind` is IFLA_INFO_KIND, empty for hardware. `lower` is the index of the device that it is stacked on (IFLA_LINK; 0
    for a veth, whose IFLA_LINK is its peer), `master` that of its bridge or bond. `hardware`: it has a parent device on a bus.
    `max_mtu` 0: no limit known. `qdisc`: the kind of its root qdisc. `options`: those of a bond or its like, see `Virtual`.
    """

    index: int
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


@dataclass(frozen=True)
class Route:
    """One unicast route of the main table. `index` is the output device; `protocol` is rtm_protocol.

    `expires`: it has a lifetime.
    """

    to: Network
    index: int
    via: Optional[Host] = None
    metric: int = 0
    protocol: int = 0
    expires: bool = False


@dataclass(frozen=True)
class World:
    """One whole look at the host. `metadata_index` is the device that the metadata service is reached through, 0 for none.

    `age`: seconds since the boot, where it may still be coming up by itself; infinite where nobody brings it up.
    `advertised`: devices on which the kernel takes routes from router advertisements, and would not if they forwarded.
    `sysctls`: the settings that were looked for, by path, without those that cannot be read. `files`: the agent's own files,
    None for one that is not there. `managers`: manager -> interface -> word; `silent_managers`: why one did not answer.
    `accept_ra` is what a new link gets (ACCEPT_RA), None where there is no IPv6. `autoconf` are the
    addresses that the kernel made of router advertisements; `peers` the networks of the other ends
    of point-to-point addresses.
    """

    devices: Mapping[int, Device] = field(default_factory=dict)
    addresses: Mapping[int, tuple[Address, ...]] = field(default_factory=dict)
    routes: tuple[Route, ...] = ()
    metadata_index: int = 0
    boot_id: str = ""
    rename_while_up: bool = True
    leased: frozenset[tuple[int, Address]] = frozenset()  # those with a lifetime, with their device
    settings: Mapping[int, DeviceSettings] = field(default_factory=dict)
    age: float = math.inf
    advertised: frozenset[int] = frozenset()
    sysctls: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, Optional[bytes]] = field(default_factory=dict)
    managers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    silent_managers: Mapping[str, str] = field(default_factory=dict)
    accept_ra: Optional[str] = None
    autoconf: frozenset[tuple[int, Address]] = frozenset()
    peers: frozenset[tuple[int, Network]] = frozenset()


# --- What plan compares ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Link:
    """One link, asked or found. None: not ours to set (asked), not known (found).

    `sysctls` keep `{interface}` in their keys, since a name may change. `managers` maps `networkmanager` and `networkd` to
    `managed`, `unmanaged`, `absent` or `unknown`. `master` is the bond or bridge of ours that it is in.
    """

    key: LinkKey
    kind: str
    role: Role
    name: Optional[str] = None
    index: int = 0
    state: Optional[LinkState] = None
    mtu: Optional[int] = None
    txqueuelen: Optional[int] = None
    addresses: tuple[Address, ...] = ()
    sysctls: Mapping[str, str] = field(default_factory=dict)
    device: Mapping[str, str] = field(default_factory=dict)
    managers: Mapping[str, str] = field(default_factory=dict)
    virtual: Optional[Virtual] = None
    master: Optional[LinkKey] = None


@dataclass(frozen=True)
class Hop:
    """A route through one of our links, asked or found. `left_over`: a manager put it there that has to leave the NIC."""

    to: Network
    link: LinkKey
    via: Optional[Host] = None
    metric: int = 0
    ours: bool = True
    left_over: bool = False


@dataclass(frozen=True)
class NetworkState:
    """The one type of both sides: what is asked, what is found, and what a journal remembers.

    `files` maps a path to its content, None where it should not be (or is not). `sysctls` are those of no single link.
    `banned` are prefixes that should have no route. `tell` maps a file to the manager that has to read it again once it is
    written (found: the manager runs; empty if it has to in any case).
    """

    links: Mapping[LinkKey, Link] = field(default_factory=dict)
    hops: tuple[Hop, ...] = ()
    banned: tuple[Network, ...] = ()
    sysctls: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, Optional[bytes]] = field(default_factory=dict)
    tell: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Owned:
    """What the agent itself added since this boot, and so may take away. `routes`: those with its own rtm_protocol.

    `vlans`: with them bonds, bridges, VXLANs and macvlans.
    """

    addresses: frozenset[tuple[LinkKey, Address]] = frozenset()
    vlans: frozenset[LinkKey] = frozenset()
    routes: bool = False


# --- What the agent remembers ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Original:
    """What a link had before the agent first changed it. None: the agent has not changed that value."""

    mtu: Optional[int] = None
    txqueuelen: Optional[int] = None
    sysctls: Mapping[str, str] = field(default_factory=dict)
    device: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class NicRecord:
    """One NIC. `applied` is the digest of the request in force, `incarnation` the appearance of the NIC and its VLANs that it was
    applied to (`changes.incarnations`).

    `leaving`: the manager that held it when it became ours, until all of it is gone; `unheard`: one gave no answer, and has yet
    to hear of it. `doubtful`: families, see `roles`.
    """

    name: str = ""
    role: Literal["", "dataplane", "management"] = ""
    released: bool = False
    applied: str = ""
    incarnation: str = ""
    leaving: str = ""
    doubtful: tuple[int, ...] = ()
    unheard: bool = False


@dataclass(frozen=True)
class Record:
    """All that the agent knows from before. `boot_id` says which boot `owned`, and the originals of a link or host, belong to.

    `ground`: the networks of the management NICs and their gateways, for a boot on which they have no address yet.
    `written`: what the agent itself last set, by sysctl path, `MAC mtu` or `MAC txqueuelen`. `probed`: the MTU that a peer
    acknowledged out of the NIC with this MAC, 0 if none beyond the one it has, -1 if no peer answered.
    `retry`: the sysctls that failed.
    """

    boot_id: str = ""
    nics: Mapping[str, NicRecord] = field(default_factory=dict)
    owned: Owned = field(default_factory=Owned)
    originals: Mapping[LinkKey, Original] = field(default_factory=dict)
    original_sysctls: Mapping[str, str] = field(default_factory=dict)
    applied: str = ""
    ground: tuple[str, ...] = ()
    declined: Mapping[LinkKey, Mapping[str, Declined]] = field(default_factory=dict)
    written: Mapping[str, str] = field(default_factory=dict)
    probed: Mapping[str, int] = field(default_factory=dict)
    retry: tuple[str, ...] = ()


@dataclass(frozen=True)
class Problem:
    """One shortfall with its reason; `link` is None where it concerns the whole host."""

    code: ProblemCode
    text: str
    link: Optional[LinkKey] = None
