"""What the readers of platforms' documents share: links under way, their addresses and routes, and why a NIC is management."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Optional

from neuca_tools.documents.neuca import link_kinds, values
from neuca_tools.documents.neuca.values import UnusableError
from neuca_tools.documents.platform import dns
from neuca_tools.documents.platform.parts import Part
from neuca_tools.documents.stacking import lower_of, with_parents
from neuca_tools.model import (
    Address,
    LinkKey,
    LinkRequest,
    ManagementHint,
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
_DEFAULT = ("default", "0.0.0.0", "0.0.0.0/0", "::", "::/0")


def by_name(pattern: str) -> LinkKey:
    """The key of a NIC that a document knows by its name, or by a pattern of names, alone."""
    return LinkKey(f"{BY_NAME}{pattern}")


@dataclass
class Draft:
    """One link while its document is read; `part` is what describes it."""

    key: LinkKey
    part: Part
    name: Optional[str] = None
    mtu: Optional[int] = None
    addresses: dict[Address, str] = field(default_factory=dict)
    routes: list[RouteRequest] = field(default_factory=list)
    management: str = ""
    virtual: Optional[Virtual] = None
    sysctls: tuple[tuple[str, str], ...] = ()

    def manage(self, reason: str) -> None:
        """The NIC is a management one, for the first reason found."""
        self.management = self.management or reason

    def add_address(self, part: Part, key: str, text: str, netmask: Optional[str] = None) -> None:
        """An address, its prefix length behind a slash or in a netmask of its own."""
        found = part.made(key, text, lambda text: values.address(cidr(text, netmask)))
        if found is not None and len(self.addresses) < MAX_ADDRESSES:
            self.addresses.setdefault(found, part.where)

    def add_route(
        self, part: Part, key: str, to: str, netmask: Optional[str], via: Optional[str]
    ) -> None:
        """A route; one that everything or the metadata service goes by tells what the NIC is for, and is left to others."""
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
            hop_key = "via" if key == "to" else "gateway"
            hop = part.made(hop_key, via, values.next_hop)
            if hop is not None and hop.version != network.version:
                part.fault(hop_key, via, f'the next hop is not of the family of "{network}"')
            elif hop is not None and len(self.routes) < MAX_ROUTES:
                self.routes.append(RouteRequest(network, "present", hop, part.where, self.key))

    def request(self) -> LinkRequest:
        """What it comes to: a link that a document describes should be up."""
        mtu = self._usable_mtu()
        origins = [Origin("state", "up", self.part.where)]
        origins += [Origin("name", self.name, self.part.where)] if self.name else []
        origins += [Origin("mtu", str(mtu), self.part.where)] if mtu else []
        origins += (
            [
                Origin(
                    "addresses",
                    ", ".join(map(str, self.addresses)),
                    next(iter(self.addresses.values())),
                )
            ]
            if self.addresses
            else []
        )
        origins += [
            Origin(f"sysctl {name}", value, self.part.where) for name, value in self.sysctls
        ]
        own = [
            name
            for name in link_kinds.names(self.key.kind)
            if self.virtual and link_kinds.shown(self.virtual, name)
        ]
        origins += [
            Origin(name, link_kinds.shown(self.virtual, name), self.part.where)
            for name in own
            if self.virtual
        ]
        return LinkRequest(
            self.key,
            "up",
            self.name,
            tuple(self.addresses),
            mtu,
            sysctls=self.sysctls,
            origins=tuple(origins),
            virtual=self.virtual,
        )

    def _usable_mtu(self) -> Optional[int]:
        small = self.mtu is not None and self.mtu < values.IPV6_MINIMUM_MTU
        if not small or all(address.version == 4 for address in self.addresses):
            return self.mtu
        reason = (
            f"an MTU below {values.IPV6_MINIMUM_MTU} cannot carry the IPv6 addresses of this link"
        )
        self.part.fault("mtu", str(self.mtu), reason)
        return None


def cidr(text: str, netmask: Optional[str]) -> str:
    """An address or a network with its prefix length.

    >>> cidr("10.0.0.1", "255.255.255.0"), cidr("fd00::1", "ffff:ffff:ffff:ffff::"), cidr("10.0.0.1", "24")
    ('10.0.0.1/24', 'fd00::1/64', '10.0.0.1/24')
    """
    return text if "/" in text or netmask is None else f"{text}/{_prefix_length(netmask)}"


def _prefix_length(netmask: str) -> str:
    if netmask.isdecimal():
        return netmask
    mask = values.host(netmask)
    zeros = int(mask) ^ (2**mask.max_prefixlen - 1)
    if zeros & (zeros + 1):
        raise UnusableError(f'"{mask}" is not a netmask')
    return str(mask.max_prefixlen - zeros.bit_length())


def finish(drafts: Iterable[Draft], root: Part) -> PlatformDocument:
    """The document that these links make; the second link of one key is a fault.

    A bond that is a management link makes its members that, and so on for all that others are made of.
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
            hints += [ManagementHint(draft.key.mac, draft.management)] if draft.management else []
    hints += _below(hints, links)
    return PlatformDocument(
        None,
        with_parents(links.values()),
        tuple(routes[:MAX_ROUTES]),
        tuple(hints),
        dns.items(dict(root.tree)),
        tuple(root.faults),
    )


def _below(
    hints: Iterable[ManagementHint], links: Mapping[LinkKey, LinkRequest]
) -> list[ManagementHint]:
    """What the links of these hints are made of, each with the reason of the first that leads to it."""
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
