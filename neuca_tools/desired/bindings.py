"""Which NIC of this host a document means: by the pattern of a name, or by six bytes of a GUID.

After this, every key of a request has the identity of a NIC, as far as one is known.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from operator import attrgetter
from typing import Optional, TypeVar

from neuca_tools.desired.policy import Policy
from neuca_tools.documents.platform import BY_NAME
from neuca_tools.documents.stacking import merge_requests
from neuca_tools.model import (
    UNRECORDED,
    Device,
    Document,
    LinkKey,
    LinkRequest,
    PlatformDocument,
    Problem,
    Record,
    RouteRequest,
    World,
)
from neuca_tools.model.ports import identity_forms, is_guid
from neuca_tools.model.routing import RuleRequest
from neuca_tools.model.topology import identity, nics_in

_OnLink = TypeVar("_OnLink", RouteRequest, RuleRequest)
_AnyDocument = TypeVar("_AnyDocument", Document, PlatformDocument)
_Identities = Mapping[str, Collection[str]]  # the NICs of each MAC or name that stands for others

# --- Names ----------------------------------------------------------------------------------------


def bind_names(
    platform: PlatformDocument, world: World, record: Record
) -> tuple[PlatformDocument, list[Problem]]:
    """The document with names of NICs replaced by MACs; a problem for each name that no NIC has."""
    keys = [link.key.mac for link in platform.links] + [hint.mac for hint in platform.management]
    name_keys = {mac for mac in keys if mac.startswith(BY_NAME)}
    if not name_keys:
        return platform, []
    new_names = {link.key.mac: link.name for link in platform.links if link.key == link.key.nic}
    nics_by_name_key = {
        key: _nics_matched(key[len(BY_NAME) :], new_names.get(key), world, record)
        for key in sorted(name_keys)
    }
    _bind_new_names(nics_by_name_key, new_names)
    problems = [*_unnamed(nics_by_name_key), *_described_twice(platform, nics_by_name_key)]
    return _bound_platform(platform, nics_by_name_key), problems


def _bind_new_names(
    nics_by_name_key: dict[str, tuple[str, ...]], new_names: Mapping[str, Optional[str]]
) -> None:
    """A lower device is named by the name that the document gives to a NIC, unless to several."""
    holders: dict[str, set[str]] = defaultdict(set)
    for mac, name in new_names.items():
        if name:
            holders[f"{BY_NAME}{name}"].update(nics_by_name_key.get(mac, (mac,)))
    for key in nics_by_name_key.keys() & holders.keys():
        if len(holders[key]) == 1:
            nics_by_name_key[key] = tuple(holders[key])


def _unnamed(nics_by_name_key: _Identities) -> Iterator[Problem]:
    for key, nics in nics_by_name_key.items():
        if not nics:
            yield Problem("absent", f'no NIC is named "{key[len(BY_NAME) :]}"')


def _described_twice(
    platform: PlatformDocument, nics_by_name_key: _Identities
) -> Iterator[Problem]:
    """A problem for each NIC or VLAN that is described by several names, or by name and MAC."""
    described: dict[LinkKey, list[str]] = defaultdict(list)
    for request in platform.links:
        bare_request = LinkRequest(request.key, state=request.state, origins=request.origins)
        if request.key.vlan_id is not None or request != bare_request:
            for key in _bound_keys(request.key, nics_by_name_key):
                described[key].append(str(request.key).replace(BY_NAME, "", 1))
    for key, written in described.items():
        if len(written) > 1:
            names = " and ".join(f'"{name}"' for name in written)
            kind = "NIC" if key.vlan_id is None else "VLAN"
            text = f"the document describes this {kind} {len(written)} times, as {names}:"
            yield Problem("refused", f"{text} of each setting, the first counts", key)


def _bound_keys(key: LinkKey, identities: _Identities) -> list[LinkKey]:
    """The links that a key means."""
    return [LinkKey(mac, key.vlan_id) for mac in identities.get(key.mac, (key.mac,))]


def _bound_requests(text: _AnyDocument, identities: _Identities) -> _AnyDocument:
    return text._replace(
        links=bound_links(text.links, identities),
        routes=tuple(_bound_on_links(text.routes, identities)),
        rules=tuple(_bound_on_links(text.rules, identities)),
    )


def _bound_platform(platform: PlatformDocument, identities: _Identities) -> PlatformDocument:
    hints = [
        hint._replace(mac=mac)
        for hint in platform.management
        for mac in identities.get(hint.mac, (hint.mac,))
    ]
    return _bound_requests(platform, identities)._replace(management=tuple(hints))


def _bound_on_links(requests: Iterable[_OnLink], identities: _Identities) -> Iterator[_OnLink]:
    for request in requests:
        links = _bound_keys(request.link, identities) if request.link else [None]
        yield from (request._replace(link=link) for link in links)


def bound_links(
    requests: Iterable[LinkRequest], identities: _Identities
) -> tuple[LinkRequest, ...]:
    """The requests with these MACs replaced; requests for the same link are merged."""
    if not identities:
        return tuple(requests)
    links: dict[LinkKey, LinkRequest] = {}
    for request in requests:
        virtual = request.virtual
        if virtual:
            every = (key for member in virtual.members for key in _bound_keys(member, identities))
            parents = _bound_keys(virtual.parent, identities) if virtual.parent else ()
            parent = next(iter(parents), virtual.parent)
            virtual = virtual._replace(members=tuple(every), parent=parent)
        for key in _bound_keys(request.key, identities):
            moved = request._replace(key=key, virtual=virtual)
            links[key] = merge_requests(moved, links[key]) if key in links else moved
    return tuple(links.values())


def _nics_matched(
    pattern: str, new_name: Optional[str], world: World, record: Record
) -> tuple[str, ...]:
    """The NICs that a name or pattern means, also if they have got their new name already."""
    matched = _nics_called(pattern, world, record)
    if not new_name or (matched and not _is_pattern(pattern)):
        return matched
    return tuple(sorted({*matched, *_nics_called(new_name, world, record)}))


def _is_pattern(name: str) -> bool:
    return bool(set(name) & set("*?["))


def _nics_called(pattern: str, world: World, record: Record) -> tuple[str, ...]:
    """The NICs whose recorded name matches the pattern, or else the present one.

    The recorded name counts first because another NIC may have the name now. Failing that, or for a
    pattern, alternative names count (ip-link(8), property).
    """
    nics = _possible_nics(pattern, world, record)
    names = ((record.nics.get(identity(nic), UNRECORDED).name or nic.name, nic) for nic in nics)
    called = _matching(pattern, names)
    if not called or _is_pattern(pattern):
        called |= _matching(pattern, ((name, nic) for nic in nics for name in nic.altnames))
    return tuple(sorted(called))


def _possible_nics(pattern: str, world: World, record: Record) -> list[Device]:
    """The NICs that a name or pattern may mean.

    A pattern means no veth or tap of a container or guest of this host, unless it is configured.
    """
    nics = [*nics_in(world)]
    if not _is_pattern(pattern) or not world.hosts_guests:
        return nics
    configured = {mac for mac, nic in record.nics.items() if nic.applied}
    return [nic for nic in nics if nic.hardware or identity(nic) in configured]


def _matching(pattern: str, names: Iterable[tuple[str, Device]]) -> set[str]:
    return {identity(nic) for name, nic in names if fnmatchcase(name, pattern)}


# --- GUIDs of InfiniBand ports --------------------------------------------------------------------


def guid_by_short_form(world: World, record: Record) -> dict[str, tuple[str, ...]]:
    """The GUID of each InfiniBand port that is present or recorded, by its short form.

    A short form that a NIC has as its MAC address means that NIC. One that several ports have means
    the one that is configured already, or none of them.
    """
    ports = defaultdict(set)
    for guid, other_forms in _infiniband_ports(world, record):
        for short_form in other_forms:
            ports[short_form].add(guid)
    nics = [*nics_in(world)]
    macs = {*map(identity, nics), *map(attrgetter("mac"), nics)}
    macs.update(mac for mac, nic in record.nics.items() if nic.name)
    configured = {mac for mac, nic in record.nics.items() if nic.applied}
    bound = {}
    for short_form in ports.keys() - macs:
        guids = ports[short_form] if len(ports[short_form]) == 1 else ports[short_form] & configured
        if len(guids) == 1:
            bound[short_form] = tuple(guids)
    return bound


def _infiniband_ports(world: World, record: Record) -> Iterator[tuple[str, frozenset[str]]]:
    """The GUID of each InfiniBand port, and its other forms."""
    for guid in filter(is_guid, record.nics):
        yield guid, identity_forms([guid]) - {guid}
    for device in nics_in(world):
        if device.infiniband:
            guid = identity(device)
            yield guid, identity_forms([guid, device.mac]) - {guid}


def bound_document(document: Document, identities: _Identities) -> Document:
    """The document with the GUIDs of ports in place of their short forms."""
    if not identities:
        return document
    platform = document.platform and _bound_platform(document.platform, identities)
    return _bound_requests(document, identities)._replace(platform=platform)


def bound_policy(policy: Policy, world: World, record: Record) -> Policy:
    """The policy with the GUIDs of all ports that are listed in another form.

    A short form of several ports protects them all.
    """
    ports = list(_infiniband_ports(world, record))
    ignored, management = (
        macs | {guid for guid, other_forms in ports if other_forms & macs}
        for macs in (policy.ignored, policy.management)
    )
    return policy._replace(ignored=ignored, management=management)
