"""Shared by the readers of platforms' documents: a Draft collects one link of the document."""

# SPDX-License-Identifier: MIT

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, Optional, TypeVar

from neuca_tools.documents.neuca import link_kinds, routing, values
from neuca_tools.documents.neuca.link_settings import MAX_DNS, SETTINGS
from neuca_tools.documents.platform import BY_NAME, dns
from neuca_tools.documents.platform.parts import Part, cidr_text, is_assumed, masked_network
from neuca_tools.documents.stacking import hands_off, lower_of, with_parents, without_small_mtu
from neuca_tools.model import (
    IPV6_MTU,
    Address,
    Automatic,
    Host,
    LinkKey,
    LinkRequest,
    LinkState,
    ManagementHint,
    Network,
    Origin,
    PlatformDocument,
    Requests,
    RouteRequest,
    Virtual,
)
from neuca_tools.model.routing import NicRouting, RuleRequest
from neuca_tools.model.topology import METADATA_HOSTS

_T = TypeVar("_T")
MAX_LINKS = 4096
MAX_ROUTES = 16384
MAX_RULES = 1024
MAX_ADDRESSES = 1024  # of one link
# Why there is no VLAN on a link.
LEFT = "it is left to other programs, as is its NIC"
QINQ = "a VLAN on a VLAN (QinQ) is not supported, ignoring it"
MAX_UNUSED = 20  # names of unused keys in one warning
# The key of the next hop, by that of the destination.
_HOP_KEYS = {"to": "via", "network": "gateway", "destination": "gateway", "subnetmask": "gateway"}
# No next hop or gateway; as a destination without a netmask, every one.
UNSPECIFIED = ("0.0.0.0", "::", "::0")
DEFAULT_ROUTE = "the platform's document gives it the default route"
METADATA_ROUTE = "the platform's document gives it the route to the metadata service"
PRIMARY = "it is the primary NIC of the instance"


def by_name(pattern: str) -> LinkKey:
    """The key of a NIC that a document identifies only by a name, or by a pattern of names."""
    return LinkKey(f"{BY_NAME}{pattern}")


@dataclass
class Draft:
    """One link while its document is read.

    `part` describes the link, and so do `other_parts`, which are elsewhere in the document.
    `addresses` maps each address to the place that gives it. `management` is the reason why the NIC
    may be the management NIC, empty if there is none. `device` are settings of the device, as in
    LinkRequest. `gateways` are the routers of the link's subnets, `subnets` those of which it has
    single addresses only. `offers` are DNS servers and search domains.
    """

    key: LinkKey
    part: Part
    name: Optional[str] = None
    mtu: Optional[int] = None
    addresses: dict[Address, str] = field(default_factory=dict)
    routes: list[RouteRequest] = field(default_factory=list)
    management: str = ""
    is_marked_as_management: bool = False
    virtual: Optional[Virtual] = None
    sysctls: dict[str, str] = field(default_factory=dict)
    device: dict[str, str] = field(default_factory=dict)
    state: LinkState = "up"
    rules: list[RuleRequest] = field(default_factory=list)
    automatic: Automatic = field(default_factory=Automatic)
    other_parts: list[Part] = field(default_factory=list)
    gateways: list[Host] = field(default_factory=list)
    subnets: list[Network] = field(default_factory=list)
    has_platform_gateways: bool = False
    offers: dict[str, list[str]] = field(default_factory=dict)

    def hint_management(self, reason: str, firm: bool = False) -> None:
        """Record why this may be, or with `firm` is, the management NIC; keep the first reason."""
        self.management = self.management or reason
        self.is_marked_as_management = self.is_marked_as_management or firm

    def use_dhcp(self, family: int) -> None:
        """Record that the link has DHCP of this family (4, 6)."""
        self.hint_management("the platform's document has DHCP on it")
        changes: dict[str, Any] = {f"dhcp{family}": True}
        self.automatic = self.automatic._replace(**changes)

    def accept_advertisements(self) -> None:
        """Record that the link gets addresses or settings from router advertisements."""
        self.automatic = self.automatic._replace(accept_ra=True)

    def leave_to_user(self) -> None:
        """Leave the link alone, but for its name and what it is made of."""
        self.state = "user"
        reason = "the link is left to the user, with its addresses, routes and other settings"
        self.part.fault("", None, reason, "warning")

    def offer_dns(self, part: Part, key: str, setting: str) -> None:
        """Add DNS servers (`nameservers`) or domains (`search`), which count only on request."""
        for text in chain.from_iterable(map(str.split, part.texts(key))):
            try:
                offer = str(SETTINGS[setting].parse(text))
            except values.UnusableError as reason:
                part.fault(key, text, f"{reason}, ignoring it", "warning")
                continue
            known = self.offers.setdefault(setting, [])
            if offer not in known and len(known) < MAX_DNS:
                known.append(offer)

    def set_ipv6_mtu(self, part: Part, key: str) -> None:
        """Set the MTU of IPv6, in bytes, which is a sysctl."""
        mtu = part.mtu(key)
        if mtu and mtu < values.IPV6_MINIMUM_MTU:
            part.fault(key, str(mtu), f"the MTU of IPv6 is at least {values.IPV6_MINIMUM_MTU}")
        elif mtu:
            self.sysctls[IPV6_MTU] = str(mtu)

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Drop the addresses, routes, rules and gateways added in a context that has a fault."""
        errors, addresses = self.part.faults.unusable, len(self.addresses)
        lists: tuple[list[Any], ...] = (self.routes, self.rules, self.gateways)
        lengths = [*map(len, lists)]
        yield
        if self.part.faults.unusable == errors:
            return
        for items, length in zip(lists, lengths):
            del items[length:]
        while len(self.addresses) > addresses:
            self.addresses.popitem()

    def add_default_route(self, part: Part, key: str, family: int = 0) -> None:
        """Add the default route of a family (4, 6; 0: either) with the next hop of a key, if any.

        The NIC may then be the management NIC; `add_gateway` adds the router of any subnet.
        """
        via = part.text(key)
        if via is not None and via not in UNSPECIFIED:
            self.hint_management(DEFAULT_ROUTE)
            self._add_router(part, key, via, family)

    def add_address(self, part: Part, key: str, text: str, netmask: Optional[str] = None) -> None:
        """Add an address with its prefix length after a slash, or with a netmask or prefix length.

        An unusable one becomes a fault of `key`.
        """
        address = part.parse(key, text, lambda text: values.address(cidr_text(text, netmask)))
        if address is None:
            return
        if is_assumed(text, netmask):
            reason = f'"{address.ip}" has no prefix length, treated as "{address}"'
            part.fault(key, text, reason, "warning")
        self.addresses.setdefault(address, part.where)

    def add_route(self, part: Part, key: str, to: str, netmask: Optional[str]) -> None:
        """Add the route to the destination of a key, with the next hop that is beside it.

        The default route, and a route to the metadata service alone, are not added, because the
        agent never changes them. A NIC that has one may be the management NIC.
        """
        via, is_of_either = part.text(_HOP_KEYS[key]), to == "default"
        if is_of_either or (to in UNSPECIFIED and netmask is None):
            to, netmask = to.replace("default", UNSPECIFIED[0]), "0"
        network = part.parse(key, to, lambda text: masked_network(cidr_text(text, netmask)))
        if network is None:
            return
        if is_assumed(to, netmask):
            part.fault(key, to, f'it has no prefix length, treated as "{network}"', "warning")
        if network.prefixlen == 0:
            self.hint_management(DEFAULT_ROUTE)
            self.add_default_route(part, _HOP_KEYS[key], 0 if is_of_either else network.version)
        elif network.num_addresses == 1 and network.network_address in METADATA_HOSTS:
            self.hint_management(METADATA_ROUTE)
        else:
            self._add_hop(part, key, via, network)

    def read_route(self, route: Part, key: str = "network") -> None:
        """Add the route of an object with a netmask and a gateway; `key` is its destination's."""
        with self.all_or_nothing():
            self.add_route(route, key, route.text(key) or "", route.prefix_length())

    def add_gateway(self, part: Part, key: str, text: Optional[str] = None) -> None:
        """Add the router of this link's subnet, which the platform implies, or gives in a key."""
        text = text or part.text(key)
        if text is not None and text not in UNSPECIFIED:
            self.has_platform_gateways = True
            self._add_router(part, key, text)

    def _add_router(self, part: Part, key: str, text: str, family: int = 0) -> None:
        """Add a router; the first of each family counts, and the key of another has no effect."""
        hop = part.parse(key, text, values.next_hop)
        if hop is not None and family not in (0, hop.version):
            part.fault(key, text, f"it is not an address of IPv{family}")
        elif hop is not None and all(hop.version != other.version for other in self.gateways):
            self.gateways.append(hop)
        elif hop is not None and hop not in self.gateways:
            part.disuse(key)

    def _add_hop(self, part: Part, key: str, via: Optional[str], network: Network) -> None:
        if via is None or via in UNSPECIFIED:
            part.warn(key, "a route without a next hop, ignoring it")
            part.close()
            return
        hop = part.parse(_HOP_KEYS[key], via, values.next_hop)
        if hop is None:
            return
        if hop.version != network.version:
            part.fault(_HOP_KEYS[key], via, f'the next hop is not of the family of "{network}"')
        else:
            metric = part.read("metric", routing.metric)
            self.routes.append(RouteRequest(network, "present", hop, part.where, self.key, metric))

    def request(self) -> LinkRequest:
        """The finished request. The link is up unless the document says otherwise."""
        request = LinkRequest(
            self.key,
            state=self.state,
            name=self.name,
            addresses=tuple(self.addresses),
            mtu=self.mtu,
            sysctls=tuple(self.sysctls.items()),
            device=tuple(self.device.items()),
            origins=tuple(self._setting_origins()),
            virtual=self.virtual,
            routing=NicRouting(
                gateways=tuple(self.gateways),
                implied=self.has_platform_gateways
                or any(self._is_isolated(hop.version) for hop in self.gateways),
                subnets=tuple(self.subnets),
            ),
            automatic=self.automatic if self.automatic != Automatic() else None,
            offers=tuple((name, " ".join(words)) for name, words in self.offers.items()),
        )
        request, reason = without_small_mtu(request)
        if reason:
            self.part.fault("mtu", str(self.mtu), reason)
        return hands_off(request) if self.state == "user" else request

    def _is_isolated(self, family: int) -> bool:
        """Whether all addresses of this family are single ones, in no network.

        Packets from such an address cannot leave but through the gateway of the link.
        """
        addresses = [address for address in self.addresses if address.version == family]
        return bool(addresses) and all(address.network.num_addresses == 1 for address in addresses)

    def finish_isolated(self) -> None:
        """The only next hop of a link with single addresses and no gateway is its gateway."""
        for family in filter(self._is_isolated, (4, 6)):
            hops = {route.via for route in self.routes if route.via and route.to.version == family}
            has_gateway = any(hop.version == family for hop in self.gateways)
            if len(hops) == 1 and not (self.management or has_gateway):
                self.gateways += hops
        self._set_on_link()

    def _set_on_link(self) -> None:
        """The gateway of single addresses is on the link, also as the next hop of routes."""
        for number, route in enumerate(self.routes):
            if route.via in self.gateways and self._is_isolated(route.to.version):
                self.routes[number] = route._replace(traits=route.traits._replace(onlink=True))

    def name_unused(self) -> None:
        """Add one warning with all keys about this link that have no effect."""
        parts = (self.part, *self.other_parts)
        unused = [(part, key) for part in parts for key in part.unused()]
        if self.part.faults.by_key:
            for part, key in unused:
                part.fault(key, None, "this key has no effect", "warning")
        elif unused:
            names = (key if part is self.part else f"{part.path}.{key}" for part, key in unused)
            listed = ", ".join(map(values.clip, islice(names, MAX_UNUSED)))
            if len(unused) > MAX_UNUSED:
                listed += f" and {len(unused) - MAX_UNUSED} more"
            self.part.fault("", None, f"these keys have no effect: {listed}", "warning")

    def _setting_origins(self) -> Iterator[Origin]:
        virtual = self.virtual or Virtual()
        options = link_kinds.own_keys(self.key.kind)
        settings: dict[str, object] = {
            "state": self.state,
            "name": self.name,
            "mtu": self.mtu,
            "addresses": ", ".join(map(str, self.addresses)),
            **{f"sysctl {name}": value for name, value in self.sysctls.items()},
            **self.device,
            **{name: link_kinds.shown_value(virtual, name) for name in options},
        }
        places = {"addresses": next(iter(self.addresses.values()), "")}
        for setting, value in settings.items():
            if value:
                yield Origin(setting, str(value), places.get(setting, self.part.where))


def nic_draft(link: Part, mac_key: str) -> Optional[Draft]:
    """A NIC. With a MAC address, `name` is its future name; without one, it is its present name.

    None, with a fault, if what identifies it is unusable.
    """
    if link.text(mac_key) is None:
        name = link.read("name", values.link_name)
        return Draft(by_name(name), link) if name else None
    mac = link.read(mac_key, values.nic)
    if mac is None:
        return None
    link = link.for_nic(mac)
    return Draft(LinkKey(mac), link, link.read("name", values.link_name))


def finish_document(
    drafts: Iterable[Draft], root: Part, *, by_hand: bool = False
) -> PlatformDocument:
    """The document with these links; a second link with the same key is a fault.

    `by_hand`: people write such documents, so keys without an effect are worth a warning, and a
    gateway may be missing. A management hint of a link is one of its lower devices too.
    """
    described = _distinct_drafts(drafts, root)
    for draft in described:
        addresses = _limited(draft.addresses.items(), MAX_ADDRESSES, "addresses", draft.part)
        draft.addresses = dict(addresses)
    for draft in described if by_hand else ():
        draft.finish_isolated()
    links = {draft.key: draft.request() for draft in described}
    active = [draft for draft in described if draft.state != "user"]
    routes = chain.from_iterable(draft.routes for draft in active)
    rules = chain.from_iterable(draft.rules for draft in active)
    if by_hand:
        _name_unused(described)
    return PlatformDocument(
        links=with_parents(links.values()),
        routes=_limited(routes, MAX_ROUTES, "routes", root),
        rules=_limited(rules, MAX_RULES, "rules", root),
        management=_management_hints(described, links),
        items=dns.dns_items(dict(root.tree)),
        faults=tuple(root.faults),
    )


def _limited(items: Iterable[_T], limit: int, what: str, part: Part) -> tuple[_T, ...]:
    """The first items; more than `limit` are a fault of the part."""
    first = tuple(islice(items, limit + 1))
    if len(first) > limit:
        part.fault("", None, f"more than {limit} {what}, ignoring the rest")
    return first[:limit]


def _distinct_drafts(drafts: Iterable[Draft], root: Part) -> tuple[Draft, ...]:
    """The drafts without those of a link that an earlier one describes; at most MAX_LINKS."""
    distinct: dict[LinkKey, Draft] = {}
    for draft in drafts:
        if distinct.setdefault(draft.key, draft) is not draft:
            draft.part.fault("", None, f'there is already a link "{draft.key}", ignoring this one')
    return _limited(distinct.values(), MAX_LINKS, "links", root)


def _name_unused(drafts: Collection[Draft]) -> None:
    """Name the unused keys of all links, except of the only one that may be for management.

    Other programs configure that one, with all of its keys.
    """
    are_several = sum(bool(draft.management) for draft in drafts) > 1
    for draft in drafts:
        if are_several or not draft.management:
            draft.name_unused()


def _management_hints(drafts: Iterable[Draft], links: Requests) -> tuple[ManagementHint, ...]:
    """The hints of these links, and of their lower devices by the first upper one."""
    hints = [
        ManagementHint(draft.key.mac, draft.management, draft.is_marked_as_management)
        for draft in drafts
        if draft.management
    ]
    hinted = {hint.mac for hint in hints}
    for hint in hints:  # it grows
        request = links.get(LinkKey(hint.mac))
        for lower in lower_of(request) if request else ():
            if lower.mac not in hinted:
                hinted.add(lower.mac)
                hints.append(ManagementHint(lower.mac, hint.reason))
    return tuple(hints)
