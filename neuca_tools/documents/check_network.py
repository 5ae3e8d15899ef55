"""Check offline how the links, addresses and routes of a document fit together.

A pass refuses or loses what is found here, but only on the host and one by one.
"""

# SPDX-License-Identifier: MIT

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import ne
from typing import NamedTuple, Optional

from neuca_tools.documents.neuca import link_kinds
from neuca_tools.model import Host, LinkKey, LinkRequest, Network, RouteRequest
from neuca_tools.model.routing import RuleRequest
from neuca_tools.model.rows import Severity

_ADDRESSES = "addresses"
# The last prefix length of IPv4 with an address of the network itself and one for broadcasts.
_LAST_WITH_BROADCAST = 30


class Clash(NamedTuple):
    """Something that does not fit. `where` and `item` lead to its line: a place, then a text.

    `severity` is for a document that is complete by itself; `meant` is what was probably meant.
    `link`: the place is in the section of this link, if it has one.
    """

    where: str
    item: str
    text: str
    severity: Severity = "error"
    meant: str = ""
    link: Optional[LinkKey] = None


def find_clashes(
    links: Sequence[LinkRequest], routes: Iterable[RouteRequest], rules: Iterable[RuleRequest]
) -> Iterator[Clash]:
    """What does not fit together in the requests of one document."""
    yield from _same_addresses(links)
    yield from _same_names(links)
    for request in links:
        yield from _odd_addresses(request)
        yield from _gateway_clashes(request)
    yield from _member_clashes(links)
    yield from _mtu_clashes(links)
    yield from _unlisted_nics(links)
    yield from _next_hops(links, routes)
    yield from _rules_for_all(rules)


def made_of(links: Sequence[LinkRequest]) -> Iterator[Clash]:
    """Virtual links that lack something, or have what they cannot have."""
    names = {request.key: request.name for request in links if request.name}
    for request in links:
        virtual = request.virtual
        reason = virtual and link_kinds.incomplete_reason(request.key, virtual, names)
        if reason and request.key.virtual_kind and request.key.vlan_id is None:
            text = f"{_link_label(request)}: {reason}"
            yield Clash(_place_of(request, "state"), "", text, link=request.key)


def _link_label(request: LinkRequest) -> str:
    return f'"{request.name}"' if request.name else str(request.key)


def _place_of(request: LinkRequest, setting: str) -> str:
    """The place of a setting, else the first one that is known of the link."""
    places = {origin.setting: origin.where for origin in reversed(request.origins)}
    return places.get(setting, next(reversed(places.values()), "")) if places else ""


def _same_addresses(links: Iterable[LinkRequest]) -> Iterator[Clash]:
    first: dict[Host, LinkRequest] = {}
    for request in links:
        for address in () if request.state == "user" else request.addresses:
            other = first.setdefault(address.ip, request)
            if other is request or (address.version == 6 and address.is_link_local):
                continue
            label = _link_label(other)
            text = f"{address.ip} is requested on {label} too, so it is set on none of them"
            yield Clash(_place_of(request, _ADDRESSES), str(address.ip), text)


def _same_names(links: Iterable[LinkRequest]) -> Iterator[Clash]:
    first: dict[str, LinkRequest] = {}
    for request in links:
        name = request.name or ("" if request.key.vlan_id else request.key.virtual_name)
        other = first.setdefault(name, request) if name else request
        if other is not request:
            text = f'"{name}" is the name of {other.key} too, so only one of them gets it'
            yield Clash(_place_of(request, "name"), name, text, link=request.key)


def _odd_addresses(request: LinkRequest) -> Iterator[Clash]:
    for host, number in Counter(address.ip for address in request.addresses).items():
        if number > 1 and host.version == 6:
            text = f"{host} has several prefix lengths, so only the first is set"
            yield Clash(_place_of(request, _ADDRESSES), str(host), text)
    for address in request.addresses:
        network = address.network
        if address.version == 6 or network.prefixlen > _LAST_WITH_BROADCAST:
            continue
        kinds = {network.network_address: "its network", network.broadcast_address: "all hosts"}
        if address.ip in kinds:
            text = f"{address} is the address of {kinds[address.ip]}, not of one host"
            yield Clash(_place_of(request, _ADDRESSES), str(address.ip), text, "warning")


def _networks_of(requests: Iterable[LinkRequest]) -> set[Network]:
    addresses = (address for request in requests for address in request.addresses)
    networks = (address.network for address in addresses)
    return {network for network in networks if network.prefixlen < network.max_prefixlen}


def _gateway_clashes(request: LinkRequest) -> Iterator[Clash]:
    own = {address.ip for address in request.addresses}
    networks_of_link = _networks_of([request])
    for gateway in request.routing.gateways:
        networks = {other for other in networks_of_link if other.version == gateway.version}
        reason = ""
        if gateway in own:
            reason = "is the address of the link itself"
        elif not gateway.is_link_local and networks and not _is_in(gateway, networks):
            reason = "is in no network of the link"
        if reason:
            text = f"the gateway {gateway} {reason}"
            where = _place_of(request, "state")
            yield Clash(where, str(gateway), text, "warning", link=request.key)


def _is_in(host: Host, networks: Collection[Network]) -> bool:
    return any(host in network for network in networks)


def _member_clashes(links: Iterable[LinkRequest]) -> Iterator[Clash]:
    upper: dict[LinkKey, LinkRequest] = {}
    for request in links:
        for member in request.virtual.members if request.virtual else ():
            other = upper.setdefault(member, request)
            if other is not request:
                text = f"{_link_label(request)}: {member} is in {_link_label(other)} already"
                name = member.mac.rpartition(" ")[2]
                yield Clash(_place_of(request, "members"), name, text, link=request.key)
    for request in links:
        above = upper.get(request.key)
        if above and above.key.kind != "vrf" and request.addresses:
            what = "member" if above.key.kind == "bond" else "port"
            text = f"a {what} of {_link_label(above)} cannot have addresses: give them to that"
            yield Clash(_place_of(request, _ADDRESSES), str(request.addresses[0].ip), text)


def _mtu_clashes(links: Iterable[LinkRequest]) -> Iterator[Clash]:
    mtus = {request.key: request.mtu for request in links if request.mtu}
    for request in links:
        most = mtus.get(request.key.nic)
        if request.key.vlan_id is not None and request.mtu and most and request.mtu > most:
            text = f"the MTU {request.mtu} of the VLAN is above that of its lower device, {most}"
            yield Clash(_place_of(request, "mtu"), str(request.mtu), text)


def _unlisted_nics(links: Sequence[LinkRequest]) -> Iterator[Clash]:
    """NICs with VLANs that the document does not list, although it lists one with another digit.

    Members of bonds are not counted: they are rarely listed, and their addresses are alike.
    """
    listed = {request.key.mac for request in links if request.origins and request.key.rank == 0}
    for request in links:
        nic = request.key.nic
        if nic == request.key or nic.virtual_kind or nic.mac in listed:
            continue
        alike = min(filter(partial(_is_one_digit_off, nic.mac), listed), default="")
        if alike:
            text = f"the document describes no NIC {nic.mac}, but {alike}"
            yield Clash(_place_of(request, "state"), "", text, "warning", alike, request.key)


def _is_one_digit_off(mac: str, other: str) -> bool:
    return len(mac) == len(other) and sum(map(ne, mac, other)) == 1


def _next_hops(links: Sequence[LinkRequest], routes: Iterable[RouteRequest]) -> Iterator[Clash]:
    networks: dict[Optional[LinkKey], set[Network]] = {None: _networks_of(links)}
    networks.update({request.key: _networks_of([request]) for request in links})
    own = {address.ip for request in links for address in request.addresses}
    listed = list(routes)
    direct = _direct_networks(listed)
    for route in listed:
        near = networks.get(route.link, set())
        if any(network.version == route.to.version for network in near):
            yield from _unreached_hops(route, near | direct[route.link])
        for hop in own.intersection((route.via, *route.others)):
            text = f"the next hop {hop} of {route.to} is an address of this host"
            yield Clash(route.where, str(hop), text)


def _rules_for_all(rules: Iterable[RuleRequest]) -> Iterator[Clash]:
    """Rules that could select traffic of the management NIC, each once for both families."""
    requests = [request for request in rules if not (request.rule.source or request.rule.mask)]
    for where, text in dict.fromkeys((request.where, request.rule.text) for request in requests):
        yield Clash(where, "", f"rule {text}: it has neither from nor mark, so it is refused")


def _direct_networks(routes: Iterable[RouteRequest]) -> Mapping[Optional[LinkKey], set[Network]]:
    """The destinations that need no next hop, by link; those of all links for None."""
    direct: dict[Optional[LinkKey], set[Network]] = defaultdict(set)
    for route in routes:
        if route.is_direct:
            direct[None].add(route.to)
            direct[route.link].add(route.to)
    return direct


def _unreached_hops(route: RouteRequest, near: Collection[Network]) -> Iterator[Clash]:
    """The next hops that are in none of the networks `near`."""
    for hop in () if route.via is None else (route.via, *route.others):
        if not (route.traits.onlink or hop.is_link_local or _is_in(hop, near)):
            of = "the link" if route.link else "the document"
            text = f"the next hop {hop} of {route.to} is in no network of {of}"
            yield Clash(route.where, str(hop), text, "warning")
