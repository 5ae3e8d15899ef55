"""How requests combine: two for one link are merged, and virtual links are on top of others."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from neuca_tools.documents.neuca.link_settings import ATTRIBUTES
from neuca_tools.documents.neuca.values import IPV6_MINIMUM_MTU
from neuca_tools.model import LinkRequest, Origin, Requests
from neuca_tools.model.links import LinkKey, Virtual


def with_parents(requests: Iterable[LinkRequest]) -> tuple[LinkRequest, ...]:
    """The requests, with an empty one for each link that is only named as a lower device."""
    every: dict[LinkKey, LinkRequest] = {}
    listed = tuple(requests)
    asked = {request.key for request in listed}
    for request in listed:
        for key in (request.key, *lower_of(request)):
            if key.nic not in asked:
                every.setdefault(key.nic, LinkRequest(key.nic))
        every[request.key] = request
    return tuple(every.values())


def with_vrfs(requests: Iterable[LinkRequest]) -> tuple[LinkRequest, ...]:
    """The requests, with the links that request a VRF (`vrf`) among the members of this VRF."""
    every = {request.key: request for request in requests}
    for request in [request for request in every.values() if request.vrf]:
        every[request.key] = request._replace(vrf="")
        key = LinkKey(f"vrf {request.vrf}")
        vrf = every.get(key, LinkRequest(key, state="up"))
        virtual = vrf.virtual or Virtual()
        members = tuple(dict.fromkeys((*virtual.members, request.key)))
        every[key] = vrf._replace(virtual=virtual._replace(members=members))
    return tuple(every.values())


def lower_of(request: LinkRequest) -> tuple[LinkKey, ...]:
    """The requested lower devices of a virtual link; empty for every other link."""
    return request.virtual.lower if request.virtual else ()


def all_lower_devices(macs: Iterable[str], requests: Requests) -> frozenset[str]:
    """All lower devices of these links, direct and indirect, by the MAC of their keys."""

    def below(mac: str) -> set[str]:
        request = requests.get(LinkKey(mac))
        return {lower.mac for lower in lower_of(request)} if request else set()

    return _all_reachable(macs, below)


def all_upper_links(macs: Iterable[str], requests: Requests) -> frozenset[str]:
    """All virtual links on top of these links, direct and indirect, by the MAC of their keys."""
    above: dict[str, set[str]] = {}
    for key, request in requests.items():
        for lower in lower_of(request):
            above.setdefault(lower.mac, set()).add(key.mac)
    return _all_reachable(macs, lambda mac: above.get(mac, set()))


def _all_reachable(start: Iterable[str], following: Callable[[str], set[str]]) -> frozenset[str]:
    """Everything that follows these; one of them is included only if it follows another."""
    reached: set[str] = set()
    waiting = list(start)
    while waiting:
        more = following(waiting.pop()) - reached
        reached |= more
        waiting += more
    return frozenset(reached)


def ignored_links(
    unusable: Iterable[LinkKey], requests: Iterable[LinkRequest]
) -> dict[LinkKey, LinkKey]:
    """The unusable links and those that depend on one, each with the unusable link.

    Their upper links depend on them, direct or not, and so do the members of a VRF among them,
    whose addresses must not be in the main table.
    """
    dependents: dict[LinkKey, list[LinkKey]] = {}
    for request in requests:
        key = request.key
        vrf = [LinkKey(f"vrf {request.vrf}")] if request.vrf else []
        for lower in (*lower_of(request), *vrf, *((key.nic,) if key.vlan_id else ())):
            dependents.setdefault(lower, []).append(key)
        if key.kind == "vrf":
            dependents.setdefault(key, []).extend(lower_of(request))
    ignored = {key: key for key in unusable}
    waiting = list(ignored)
    for lower in waiting:  # it grows
        new = [key for key in dependents.get(lower, ()) if key not in ignored]
        ignored.update(dict.fromkeys(new, ignored[lower]))
        waiting += new
    return ignored


# --- Merging requests for one link ----------------------------------------------------------------

# Where a setting comes from that no text gives.
DEFAULT = "default"
# The fields of a request that a single line sets completely.
SINGLE = ("state", "name", "addresses", "vrf", "dns", *ATTRIBUTES)


def merge_requests(below: LinkRequest, above: LinkRequest) -> LinkRequest:
    """Merge two requests setting by setting; `above` wins, unless its state is only a default."""
    defaulted = ("state", DEFAULT) in [(origin.setting, origin.where) for origin in above.origins]
    own = without_setting(above, "state") if defaulted and below.state else above
    single: dict[str, Any] = {name: getattr(own, name) or getattr(below, name) for name in SINGLE}
    return LinkRequest(
        above.key,
        **single,
        sysctls=tuple({**dict(below.sysctls), **dict(own.sysctls)}.items()),
        device=tuple({**dict(below.device), **dict(own.device)}.items()),
        virtual=own.virtual.over(below.virtual) if own.virtual else below.virtual,
        routing=own.routing.over(below.routing),
        automatic=own.automatic.over(below.automatic) if own.automatic else below.automatic,
        offers=own.offers or below.offers,
        origins=_overlay_origins(below.origins, own.origins),
    )


def _overlay_origins(below: Iterable[Origin], above: Iterable[Origin]) -> tuple[Origin, ...]:
    merged = {origin.setting: origin for origin in below}
    for origin in above:
        if old := merged.get(origin.setting):
            origin = origin._replace(overrode=f"{old.value} from {old.where}")
        merged[origin.setting] = origin
    return tuple(merged.values())


def without_setting(request: LinkRequest, setting: str) -> LinkRequest:
    """The request without one of the settings that are None if they are not requested."""
    origins = tuple(origin for origin in request.origins if origin.setting != setting)
    nothing: dict[str, Any] = {setting: None}
    return request._replace(origins=origins, **nothing)


def without_sysctl(request: LinkRequest, key: str) -> LinkRequest:
    """The request without this sysctl."""
    return request._replace(sysctls=tuple(pair for pair in request.sysctls if pair[0] != key))


def without_small_mtu(request: LinkRequest) -> tuple[LinkRequest, str]:
    """The request without an MTU below 1280 bytes if it has IPv6 addresses (RFC 8200, section 5).

    The kernel would remove every IPv6 address (addrconf.c). With the reason, empty if it has none.
    """
    small = request.mtu is not None and request.mtu < IPV6_MINIMUM_MTU
    if not small or all(address.version == 4 for address in request.addresses):
        return request, ""
    reason = f"an MTU below {IPV6_MINIMUM_MTU} cannot carry the IPv6 addresses of this link"
    return without_setting(request, "mtu"), reason


def up_by_default(request: LinkRequest) -> LinkRequest:
    """The request with state `up` if it has none."""
    if request.state:
        return request
    return request._replace(state="up", origins=(Origin("state", "up", DEFAULT), *request.origins))


def hands_off(request: LinkRequest) -> LinkRequest:
    """The request for a link in state `user`: nothing but its name."""
    kept = tuple(origin for origin in request.origins if origin.setting in ("state", "name"))
    return LinkRequest(
        request.key, state="user", name=request.name, origins=kept, virtual=request.virtual
    )


def combine_requests(
    below: Iterable[LinkRequest], above: Iterable[LinkRequest]
) -> tuple[LinkRequest, ...]:
    """Merge two sets of requests, setting by setting; `above` wins, links of `below` come first.

    The result has a state, unless the link is only named as a lower device of another one.
    """
    return tuple(map(_complete_request, overlay_requests(below, above)))


def overlay_requests(
    below: Iterable[LinkRequest], above: Iterable[LinkRequest]
) -> Iterable[LinkRequest]:
    """`combine_requests` without completing the requests."""
    merged = {request.key: request for request in below}
    for request in above:
        lower = merged.get(request.key)
        merged[request.key] = merge_requests(lower, request) if lower else request
    return merged.values()


def _complete_request(request: LinkRequest) -> LinkRequest:
    if request.origins or request.key.vlan_id or request.virtual:
        request = up_by_default(request)
    return hands_off(request) if request.state == "user" else request


def merge_layers(
    document: Iterable[LinkRequest], local: Iterable[LinkRequest]
) -> dict[LinkKey, LinkRequest]:
    """One request for each link; each setting of the local configuration takes precedence.

    The lower devices of a link that is requested to be up are brought up too. Those without a state
    have no lower devices of their own, so that the order does not matter.
    """
    combined = with_parents(with_vrfs(combine_requests(document, local)))
    merged = {request.key: request for request in combined}
    for key, request in tuple(merged.items()):
        for lower in (key.nic, *lower_of(request)):
            if request.state == "up" and lower in merged and merged[lower].state is None:
                merged[lower] = merged[lower]._replace(state="up")
    return {key: _with_dns(request) for key, request in merged.items()}


def _with_dns(request: LinkRequest) -> LinkRequest:
    """The request, with the DNS settings that its platform offers if it requests them."""
    if request.dns != "per-link" or not request.offers:
        return request
    device = {**dict(request.offers), **dict(request.device)}
    return request._replace(device=tuple(device.items()))
