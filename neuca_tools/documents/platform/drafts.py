"""What the readers of the platforms' documents share: a Draft collects one link while its document is read."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Optional

from neuca_tools.documents.neuca import link_kinds, values
from neuca_tools.documents.neuca.values import UnusableError
from neuca_tools.documents.platform import dns
from neuca_tools.documents.platform.parts import Part
from neuca_tools.documents.stacking import lower_of, with_parents
from neuca_tools.model import (
    Address,
    Automatic,
    Host,
    LinkKey,
    LinkRequest,
    ManagementHint,
    Network,
    Origin,
    PlatformDocument,
    RouteRequest,
    Virtual,
)
from neuca_tools.model.topology import METADATA_HOSTS

MAX_LINKS = 4096
MAX_ROUTES = 16384
MAX_ADDRESSES = 1024
BY_NAME = "name "
PRIMARY = "it is the primary NIC of the instance"
_DEFAULT = ("default", "0.0.0.0", "0.0.0.0/0", "::", "::/0")


def by_name(pattern: str) -> LinkKey:
    """The key of a NIC that a document identifies only by a name, or by a pattern of names."""
    return LinkKey(f"{BY_NAME}{pattern}")


@dataclass
class Draft:
    """One link while its document is read.

    `part` describes the link. `addresses` maps each address to the place that gives it.
    `management` is the reason why the NIC may be the management NIC, empty if there is none; `firm`:
    the document names it as the management NIC.
    """

    key: LinkKey
    part: Part
    name: Optional[str] = None
    mtu: Optional[int] = None
    addresses: dict[Address, str] = field(default_factory=dict)
    routes: list[RouteRequest] = field(default_factory=list)
    management: str = ""
    firm: bool = False
    virtual: Optional[Virtual] = None
    sysctls: tuple[tuple[str, str], ...] = ()
    automatic: Automatic = field(default_factory=Automatic)
    gateways: list[Host] = field(default_factory=list)

    def manage(self, reason: str, firm: bool = False) -> None:
        """Record that the NIC may be the management NIC, or with `firm` is; the first reason is kept."""
        self.management = self.management or reason
        self.firm = self.firm or firm

    def lease(self, family: int) -> None:
        """Record that the link has DHCP of this family (4, 6)."""
        self.manage("the platform's document has DHCP on it")
        if family == 4:
            self.automatic = replace(self.automatic, dhcp4=True)
        else:
            self.automatic = replace(self.automatic, dhcp6=True)

    def listen(self) -> None:
        """Record that the link gets addresses or settings from router advertisements."""
        self.automatic = replace(self.automatic, accept_ra=True)

    def add_address(self, part: Part, key: str, text: str, netmask: Optional[str] = None) -> None:
        """Add an address with its prefix length after a slash, or with a netmask.

        An unusable one becomes a fault of `key`; more than MAX_ADDRESSES are dropped.
        """
        found = part.made(key, text, lambda text: values.address(cidr(text, netmask)))
        if found is not None and len(self.addresses) < MAX_ADDRESSES:
            self.addresses.setdefault(found, part.where)

    def add_route(
        self, part: Part, key: str, to: str, netmask: Optional[str], via: Optional[str]
    ) -> None:
        """Add a route.

        The default route, and a route to the metadata service, are not added, because the agent never
        changes them. A NIC that has one may be the management NIC.
        """
        if to in _DEFAULT and (netmask is None or netmask in (*_DEFAULT, "0")):
            self.manage("the platform's document gives it the default route")
            return
        network = part.made(key, to, lambda text: values.network(cidr(text, netmask)))
        if network is None:
            return
        if any(host in network for host in METADATA_HOSTS):
            self.manage("the platform's document gives it the route to the metadata service")
        elif via is None:
            part.fault(key, to, "a route without a next hop, ignoring it", "warning")
        else:
            hop_key = "gateway"
            if key == "to":
                hop_key = "via"
            self._add_hop(part, hop_key, via, network)

    def add_gateway(self, part: Part, key: str, text: str) -> None:
        """Add the router of this link's subnet; the first of each family counts."""
        hop = part.made(key, text, values.next_hop)
        if hop is not None and all(hop.version != other.version for other in self.gateways):
            self.gateways.append(hop)

    def _add_hop(self, part: Part, key: str, via: str, network: Network) -> None:
        hop = part.made(key, via, values.next_hop)
        if hop is None:
            return
        if hop.version != network.version:
            part.fault(key, via, f'the next hop is not of the family of "{network}"')
        elif len(self.routes) < MAX_ROUTES:
            self.routes.append(RouteRequest(network, "present", hop, part.where, self.key))

    def request(self) -> LinkRequest:
        """The finished request. Every link that a document describes is to be up."""
        mtu = self._usable_mtu()
        return LinkRequest(
            self.key,
            state="up",
            name=self.name,
            addresses=tuple(self.addresses),
            mtu=mtu,
            sysctls=self.sysctls,
            origins=tuple(self._origins(mtu)),
            virtual=self.virtual,
            automatic=self._automatic(),
        )

    def _automatic(self) -> Optional[Automatic]:
        if self.automatic == Automatic():
            return None
        return self.automatic

    def _origins(self, mtu: Optional[int]) -> Iterator[Origin]:
        where = self.part.where
        yield Origin("state", "up", where)
        if self.name:
            yield Origin("name", self.name, where)
        if mtu:
            yield Origin("mtu", str(mtu), where)
        if self.addresses:
            first = next(iter(self.addresses.values()))
            yield Origin("addresses", ", ".join(map(str, self.addresses)), first)
        for name, value in self.sysctls:
            yield Origin(f"sysctl {name}", value, where)
        if self.virtual:
            shown = {
                name: link_kinds.shown(self.virtual, name)
                for name in link_kinds.names(self.key.kind)
            }
            for name, value in shown.items():
                if value:
                    yield Origin(name, value, where)

    def _usable_mtu(self) -> Optional[int]:
        """The MTU in bytes; None, with a fault, if it is too small for the link's IPv6 addresses."""
        small = self.mtu is not None and self.mtu < values.IPV6_MINIMUM_MTU
        if not small or all(address.version == 4 for address in self.addresses):
            return self.mtu
        reason = (
            f"an MTU below {values.IPV6_MINIMUM_MTU} cannot carry the IPv6 addresses of this link"
        )
        self.part.fault("mtu", str(self.mtu), reason)
        return None


def cidr(text: str, netmask: Optional[str]) -> str:
    """An address or network in CIDR notation, from a netmask or prefix length given separately.

    Raises UnusableError for a netmask that is none.

    >>> cidr("10.0.0.1", "255.255.255.0"), cidr("fd00::1", "ffff:ffff:ffff:ffff::"), cidr("10.0.0.1", "24")
    ('10.0.0.1/24', 'fd00::1/64', '10.0.0.1/24')
    """
    if "/" in text or netmask is None:
        return text
    return f"{text}/{_prefix_length(netmask)}"


def _prefix_length(netmask: str) -> str:
    if netmask.isdecimal():
        return netmask
    mask = values.host(netmask)
    zeros = int(mask) ^ (2**mask.max_prefixlen - 1)
    if zeros & (zeros + 1):
        raise UnusableError(f'"{mask}" is not a netmask')
    return str(mask.max_prefixlen - zeros.bit_length())


def finish(drafts: Iterable[Draft], root: Part) -> PlatformDocument:
    """The document with these links; a second link with the same key is a fault.

    What is said of a link that may be for management is said of its lower devices too.
    """
    links: dict[LinkKey, LinkRequest] = {}
    hints: list[ManagementHint] = []
    routes: list[RouteRequest] = []
    for draft in drafts:
        if draft.key in links:
            draft.part.fault(
                "", None, f'there is another link "{draft.key}" above it, ignoring this one'
            )
        elif len(links) == MAX_LINKS:
            root.fault("", None, f"more than {MAX_LINKS} links, ignoring the rest")
            break
        else:
            links[draft.key] = draft.request()
            routes += draft.routes
            if draft.management:
                hints.append(ManagementHint(draft.key.mac, draft.management, draft.firm))
    return PlatformDocument(
        links=with_parents(links.values()),
        routes=tuple(routes[:MAX_ROUTES]),
        management=(*hints, *_hints_below(hints, links)),
        items=dns.items(dict(root.tree)),
        faults=tuple(root.faults),
    )


def _hints_below(
    hints: Iterable[ManagementHint], links: Mapping[LinkKey, LinkRequest]
) -> list[ManagementHint]:
    """Hints for all lower devices of these links, each with the reason of the first upper device."""
    found: dict[str, ManagementHint] = {hint.mac: hint for hint in hints}
    waiting = list(found.values())
    given = len(found)
    for hint in waiting:  # it grows
        request = links.get(LinkKey(hint.mac))
        for lower in lower_of(request) if request else ():
            if lower.mac not in found:
                found[lower.mac] = ManagementHint(lower.mac, hint.reason)
                waiting.append(found[lower.mac])
    return waiting[given:]
