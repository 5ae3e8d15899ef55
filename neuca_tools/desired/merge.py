"""Merges the local configuration, the NEuca document and the platform's documents.

There is one request for each link. They are merged setting by setting, and take precedence in this
order. The platform lists every NIC, including the management NIC, so roles are assigned first, and
only its requests for dataplane NICs are used.
"""

# SPDX-License-Identifier: MIT

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from itertools import chain
from operator import attrgetter
from typing import NamedTuple, Optional

from neuca_tools.desired import bindings, dhcp_clients, platform_roles, routing_tables
from neuca_tools.desired.management import MANAGEMENT_DHCP_SECONDS
from neuca_tools.desired.policy import Policy
from neuca_tools.desired.roles import Roles, assign_roles
from neuca_tools.desired.routes import Networks
from neuca_tools.documents.neuca.values import UnusableError
from neuca_tools.documents.neuca.values import nic as nic_of
from neuca_tools.documents.stacking import all_upper_links, lower_of, merge_layers, overlay_requests
from neuca_tools.model import (
    OWN,
    UNRECORDED,
    Document,
    Fault,
    Host,
    LinkKey,
    LinkRequest,
    PlatformDocument,
    Problem,
    Record,
    Requests,
    Role,
    RouteRequest,
    World,
)
from neuca_tools.model.device_settings import Note
from neuca_tools.model.links import KINDS
from neuca_tools.model.ports import identity_forms
from neuca_tools.model.provenance import is_automatic
from neuca_tools.model.routing import RuleRequest
from neuca_tools.model.topology import VIRTUAL_NICS

EARLY_MARK_SECONDS = 240.0  # seconds after a boot; see `management.MANAGEMENT_DHCP_SECONDS`
# The sections of a NEuca document, and the platform's documents, that set nothing of a link that an
# incomplete document could remove.
_NOT_ABOUT_LINKS = frozenset(
    ("global", "routes", "rule", "users", "scripts", "storage", "meta_data.json", "meta-data")
)
_UNTIL = (
    f"until {{}}, and at most for the first {MANAGEMENT_DHCP_SECONDS / 60:g} minutes after boot,"
    " no NIC is configured just because a document names it"
)
MANAGEMENT_UNKNOWN = f"it is not known yet which NIC is for management: {_UNTIL.format('it is')}"
NO_DEFAULT_ROUTE = f"no NIC carries the default route of this host yet: {_UNTIL.format('one does')}"


class Layers(NamedTuple):
    """The merged requests, the role of each NIC, and problems with requests that match no NIC.

    `trusted`: see `trusted_links`. `local` and `policy` have the identities of their NICs.
    """

    requests: Requests
    roles: Roles
    routes: tuple[RouteRequest, ...]
    problems: tuple[Problem, ...] = ()
    notes: tuple[Note, ...] = ()
    rules: tuple[RuleRequest, ...] = ()
    trusted: Optional[frozenset[LinkKey]] = None
    local: Sequence[LinkRequest] = ()
    policy: Policy = Policy()


def stack_layers(
    document: Optional[Document],
    local: Sequence[LinkRequest],
    policy: Policy,
    world: World,
    record: Record,
) -> Layers:
    """Merge a document and the local configuration, and hold back possible management NICs."""
    identities = bindings.guid_by_short_form(world, record)
    document = document and bindings.bound_document(document, identities)
    local = bindings.bound_links(local, identities)
    policy = bindings.bound_policy(policy, world, record)
    inputs = _MergeInputs(local, policy, world, record)
    layers = _held_back(_merge_layers(document or Document(), inputs), inputs)
    trusted = trusted_links(document, layers.requests)
    asked, notes = routing_tables.without_dhcp(layers.requests)
    roles = dhcp_clients.assign_clients(asked, layers.roles, world, trusted)
    problems = (*layers.problems, *dhcp_clients.unserved_links(asked, roles, world))
    requests = dhcp_clients.without_accept_ra(asked, roles, layers.local)
    if document is not None and document.platform is not None:
        notes += platform_roles.unused_notes(document.platform, roles, requests)
    layers = layers._replace(roles=roles, requests=requests, problems=problems, trusted=trusted)
    # Those of the NEuca document belong to no link.
    rules = (
        rule for rule in layers.rules if not rule.link or roles.role_of(rule.link) == "dataplane"
    )
    routes = routing_tables.place_routes(layers.routes, requests)
    return layers._replace(routes=routes, rules=tuple(rules), notes=(*layers.notes, *notes))


class _MergeInputs(NamedTuple):
    """What a document is merged with."""

    local: Sequence[LinkRequest]
    policy: Policy
    world: World
    record: Record

    @property
    def configured(self) -> set[str]:
        """The NICs that the configuration names."""
        return {request.key.mac for request in self.local}


def _held_back(layers: Layers, inputs: _MergeInputs) -> Layers:
    roles = layers.roles
    held = roles.choice.candidates or _unproven_macs(roles, inputs)
    if not held:
        return layers
    reason = NO_DEFAULT_ROUTE if "management" in roles.by_mac.values() else MANAGEMENT_UNKNOWN
    problems = [
        Problem("contested", reason, LinkKey(mac)) for mac in sorted(held & roles.nics.keys())
    ]
    roles = replace(
        roles,
        by_mac={**roles.by_mac, **dict.fromkeys(held, "unlisted")},
        waiting_nics=held,
        reasons={**roles.reasons, **dict.fromkeys(held, reason)},
        # Managers must be able to try the NICs between which nothing has decided yet.
        marked_early=held if _may_be_marked(roles, inputs.world) else frozenset(),
    )
    return layers._replace(roles=roles, problems=(*layers.problems, *problems))


def _may_be_marked(roles: Roles, world: World) -> bool:
    """Whether NICs may be kept from managers although it is not known yet what they are for."""
    unlisted = (device for mac, device in roles.nics.items() if roles.role(mac) == "unlisted")
    has_unlisted = any(device.kind not in VIRTUAL_NICS for device in unlisted)
    is_open = has_unlisted and not roles.choice.candidates
    return is_open and not world.is_aged(EARLY_MARK_SECONDS)


def _unproven_macs(roles: Roles, inputs: _MergeInputs) -> frozenset[str]:
    """NICs that only a document names, while the management NIC of this host may still be unknown.

    A local document (a file, a config drive) is read before DHCP has completed, and may name the
    management NIC. If it leaves another NIC out, its NICs are first marked, so that no network
    manager takes them. If no management NIC shows up, the marks are removed and managers may try
    every NIC. A host without any management NIC is configured after that.
    """
    if "management" in roles.by_mac.values() or _is_reached(inputs.world, roles):
        return frozenset()
    nics = inputs.record.nics
    named = {mac for mac, role in roles.by_mac.items() if role == "dataplane"} - inputs.configured
    unproven = frozenset(mac for mac in named if nics.get(mac, UNRECORDED).role != "dataplane")
    is_late = not unproven or inputs.world.is_aged(MANAGEMENT_DHCP_SECONDS)
    return frozenset() if is_late else unproven


def _is_reached(world: World, roles: Roles) -> bool:
    """Whether this host is reached otherwise: through a protected NIC, or a route set by hand."""
    defaults = (route for route in world.routes if route.to.prefixlen == 0)
    return world.metadata_index in roles.guard.devices or any(
        route.index in roles.guard.devices or not is_automatic(route, world) for route in defaults
    )


def _merge_layers(document: Document, inputs: _MergeInputs) -> Layers:
    local, policy, world, record = inputs
    links, routes = document.links, document.routes
    requests = merge_layers(links, local)
    platform, problems = bindings.bind_names(document.platform or PlatformDocument(), world, record)
    roles = _assign_roles(platform, requests, inputs)
    notes: tuple[Note, ...] = ()
    if document.platform is not None:
        notes = tuple(platform_roles.absent_notes(platform, roles, world))
        named = {key.mac for key in requests}
        described = platform_roles.requests_for(platform, roles, named, world)
        requests = merge_layers(overlay_requests(described, links), local)
    taken = {route.to for route in routes}
    more = (
        route
        for route in platform.routes
        if route.link and route.to not in taken and roles.role_of(route.link) == "dataplane"
    )
    return Layers(
        requests,
        roles,
        (*routes, *more),
        (*problems, *platform_roles.refused_links(platform, roles, world)),
        notes,
        (*document.rules, *platform.rules),
        local=local,
        policy=policy,
    )


def _assign_roles(platform: PlatformDocument, own: Requests, inputs: _MergeInputs) -> Roles:
    """The roles, with the platform's requests for NICs that neither `own` nor `inputs` names."""
    named = {key.mac for key in own}
    claims = platform_roles.platform_claims(platform, inputs.configured, inputs.world)
    left = frozenset[str]()
    if not dhcp_clients.serves_virtual(inputs.world):
        left = platform_roles.left_alone(platform) - named
    known = named | (claims.listed - left)
    roles = assign_roles(inputs.world, known, inputs.policy, inputs.record, claims)
    every = {request.key: request for request in (*platform.links, *own.values())}
    roles = _with_virtual_roles(roles, every, left)
    reasons = platform_roles.role_reasons(platform, roles, named, left)
    return replace(roles, reasons={**reasons, **roles.reasons})


def _with_virtual_roles(roles: Roles, requests: Requests, left: Collection[str]) -> Roles:
    """The roles with those of virtual links: of their lower devices; `left` are left alone."""
    lowers = {lower.mac for lower in chain.from_iterable(map(lower_of, requests.values()))}
    virtual_roles: dict[str, Role] = {key.mac: "dataplane" for key in requests if key.virtual_kind}
    virtual_roles.update(dict.fromkeys(virtual_roles.keys() & left, "unlisted"))
    stricter: tuple[Role, ...] = ("ignored", "management")
    for role in stricter:
        on_such = all_upper_links([mac for mac in lowers if roles.role(mac) == role], requests)
        virtual_roles.update(dict.fromkeys(virtual_roles.keys() & on_such, role))
    return replace(roles, made=roles.made._replace(roles=virtual_roles))


# --- Requests, before the host is looked at -------------------------------------------------------


def requested_twice(requests: Requests, roles: Roles) -> dict[Host, str]:
    """The addresses requested on several dataplane links, with these links; none of them gets it.

    This depends on the documents, not on which NICs are present. Link-local IPv6 addresses are
    unique per link only (RFC 4291, 2.5.6), and do not count.
    """
    asked: dict[Host, list[LinkKey]] = {}
    for key in sorted(requests):
        if roles.role_of(key) == "dataplane" and requests[key].state != "user":
            for ip in {*map(attrgetter("ip"), requests[key].addresses)}:
                if not (ip.version == 6 and ip.is_link_local):
                    asked.setdefault(ip, []).append(key)
    return {ip: " and ".join(map(str, keys)) for ip, keys in asked.items() if len(keys) > 1}


def trusted_links(document: Optional[Document], requests: Requests) -> Optional[frozenset[LinkKey]]:
    """The keys of the links that none of the unusable parts of a document can be about.

    None if the document is complete. What such a link no longer requests may be removed. There is
    no such link without a document, or if an unusable part does not tell which link it is about, as
    a misspelled section or MAC address.
    """
    if document is not None and document.is_complete:
        return None
    doubtful = document and _doubtful_macs(document.faults)
    if doubtful is None:
        return frozenset()
    return frozenset(
        key
        for key, request in requests.items()
        if request.origins and doubtful.isdisjoint(identity_forms([key.mac]))
    )


def _doubtful_macs(faults: Iterable[Fault]) -> Optional[set[str]]:
    """The links that errors are about; None if one may be about any link."""
    doubtful: set[str] = set()
    for fault in faults:
        if fault.severity == "error" and fault.section.partition(" ")[0] not in _NOT_ABOUT_LINKS:
            macs = {*_macs_of(fault)}
            if not macs:
                return None
            doubtful |= macs
    return doubtful


def _macs_of(fault: Fault) -> Iterable[str]:
    """Every MAC, also that of a `[vlan MAC.ID]`, or "KIND NAME" that a faulty line may be about."""
    words = fault.section.split()
    yield from (
        f"{kind} {name.partition('.')[0]}" for kind, name in zip(words, words[1:]) if kind in KINDS
    )
    for word in (fault.key, *words):
        for part in (word, word.rpartition(".")[0]):
            with suppress(UnusableError):
                yield nic_of(part)


def request_digests(
    layers: Layers, sysctls: Mapping[str, str], refused: Collection[Host]
) -> dict[str, str]:
    """The digests of each NIC's request: of its links, and of the routes through their networks.

    The key "" is for requests that belong to no NIC, with the `sysctls` of the whole host. A digest
    depends on the documents only: plugging in a NIC changes no other NIC's request. `refused` are
    the addresses that several NICs request, so that none of these gets them.
    """
    parts: dict[str, list[str]] = defaultdict(list)
    for key in sorted(layers.requests):
        request = layers.requests[key]
        lost = [address for address in request.addresses if address.ip in refused]
        parts[key.mac] += [request.substance(), *map("not {}".format, lost)]
        parts[""] += [repr(pair) for pair in request.sysctls if OWN not in pair[0]]
        for lower in lower_of(request):
            parts[lower.mac].append(f"in {key}")
    parts[""] += [repr(pair) for pair in sorted(sysctls.items())]
    networks = Networks(layers.requests)
    paths: dict[str, list[str]] = defaultdict(list)
    for route in layers.routes:
        paths[_mac_of(route, networks, parts)].append(repr(route._replace(where="")))
    return {mac: f"{_digest_of(texts)}.{_digest_of(paths[mac])}" for mac, texts in parts.items()}


def _digest_of(texts: Iterable[str]) -> str:
    return sha256("\n".join(sorted(texts)).encode()).hexdigest()[:16]


def _mac_of(route: RouteRequest, networks: Networks, macs: Collection[str]) -> str:
    """Which of these MACs is that of the link of the route; empty if none is."""
    link = networks.link_to(route.via, route.link)
    if link is None and route.traits.kind == "unicast":
        link = route.link if route.via is None or route.traits.onlink else None
    return link.mac if link and link.mac in macs else ""
