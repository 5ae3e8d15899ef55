"""How the record changes: before and after operations, and when a NIC is released."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Literal

from neuca_tools.desired.device_settings import flat_settings, is_same
from neuca_tools.desired.manager_files import has_rule, marked_macs
from neuca_tools.desired.resolve import Resolution
from neuca_tools.desired.router_advertisements import forwarding_sysctls
from neuca_tools.documents.neuca.link_settings import ATTRIBUTES, group_of, is_of_place
from neuca_tools.model import (
    OWN,
    UNCHANGED,
    UNRECORDED,
    Address,
    Link,
    LinkKey,
    LinkRequest,
    NetworkState,
    NicRecord,
    OriginalValues,
    OwnedObjects,
    Record,
    World,
    WrittenSetting,
)
from neuca_tools.model.addresses import EVERYTHING
from neuca_tools.model.routing import ROUTES_OF, is_link_scoped
from neuca_tools.plan.operation import Scope
from neuca_tools.plan.sides import must_recreate
from neuca_tools.state import changes


def remember_nics(record: Record, resolution: Resolution) -> Record:
    """Record each NIC's name, and its role until a complete document contradicts it."""
    dataplane = marked_macs(resolution, record)
    nics = _nics_and_virtual_links(record, resolution)
    for mac in resolution.roles.by_mac:
        if not has_rule(mac, resolution, record, dataplane):
            continue
        nic, key = nics.get(mac, UNRECORDED), LinkKey(mac)
        # The first name seen, until a document requests another one that can be given.
        granted = resolution.names.get(key, "")
        is_requested = granted != "" and granted == resolution.requested_name(key)
        name = granted if is_requested or not nic.name else nic.name
        lasting = _lasting_role(mac, resolution, dataplane)
        doubtful = resolution.roles.choice.by_automatic_route_only.get(mac, ())
        if mac not in nics or (nic.name, nic.role, nic.doubtful) != (name, lasting, doubtful):
            nics[mac] = nic._replace(name=name, role=lasting, doubtful=doubtful)
    nics.update(_without_lost_names(nics, resolution))
    return record._replace(nics=nics, management_networks=resolution.management_networks)


def _without_lost_names(
    nics: Mapping[str, NicRecord], resolution: Resolution
) -> Iterator[tuple[str, NicRecord]]:
    """The absent NICs whose name another NIC has taken with their place, without that name.

    At boot, a recorded name is kept free even for an absent NIC.
    """
    roles = resolution.roles
    names = {nics[mac].name for mac in nics.keys() & roles.nics.keys()} - {""}
    for mac, nic in nics.items():
        is_present = mac in roles.nics or mac in roles.twins or LinkKey(mac).virtual_kind
        if nic.name in names and not is_present and nic.role != "management":
            yield mac, nic._replace(name="")


def remember_tables(record: Record, resolution: Resolution) -> Record:
    """Record the routing table of each link, which no other link has, and its IPv6 router."""
    in_use = set(resolution.tables.values())
    kept = {key: table for key, table in record.tables.items() if table not in in_use}
    routers = {
        hop.link: hop.via
        for hop in resolution.desired.hops
        if hop.to == EVERYTHING[6] and hop.via and is_link_scoped(hop.via)
        if resolution.tables.get(hop.link) == hop.traits.table
    }
    routers = {key: router for key, router in record.routers.items() if key in kept} | routers
    return record._replace(tables={**kept, **resolution.tables}, routers=routers)


def _nics_and_virtual_links(record: Record, resolution: Resolution) -> dict[str, NicRecord]:
    """The recorded NICs, and the virtual links that are present or that the document requests."""
    roles = resolution.roles
    virtual = {mac for mac, role in roles.made.roles.items() if role == "dataplane"}
    virtual |= roles.made.devices.keys()
    nics = {mac: record.nics.get(mac, UNRECORDED) for mac in virtual}
    nics.update((mac, nic) for mac, nic in record.nics.items() if not LinkKey(mac).virtual_kind)
    return nics


def _lasting_role(
    mac: str, resolution: Resolution, dataplane: Collection[str]
) -> Literal["", "dataplane", "management"]:
    """The role to remember. A declared role lasts only as long as the document declares it.

    So does that of the NICs which were not chosen then: the next boot may show more.
    """
    roles = resolution.roles
    if mac in roles.choice.equal_candidates and roles.choice.by_document_only:
        return ""
    if roles.by_mac[mac] == "management" and mac not in roles.choice.by_document_only:
        return "management"
    return "dataplane" if mac in dataplane else ""


def forget_restored(
    record: Record, resolution: Resolution, observed: NetworkState, world: World
) -> Record:
    """Drop our addresses and links that are gone, and original values in force again.

    An original value stays while a document requests the setting. What is ours on a NIC that is in
    `world` but not in `observed` stays as well: it is a port of a bridge, or ignored now.
    """
    unseen = set(changes.link_appearances(world)) - {key.mac for key in observed.links}
    sysctls = _host_originals(record, resolution, observed)
    settings = {*sysctls, *(value.setting for value in resolution.tuning.values)}
    return record._replace(
        owned=_owned_still(record.owned, observed, unseen, world),
        originals=_link_originals(record, resolution, observed),
        made=_made_links(record, resolution, observed),
        original_sysctls=sysctls,
        declined={
            key: declined
            for key, declined in record.declined.items()
            if key.mac in unseen or key in observed.links
        },
        written={
            written: _written_value(written, record, observed)
            for written in record.written
            if written.link is not None or written.setting in settings
        },
    )


def _written_value(written: WrittenSetting, record: Record, observed: NetworkState) -> str:
    """The value that we wrote last: after an interrupted pass over the link, the present one."""
    key = written.link
    if key is not None and key in observed.links:
        value = getattr(observed.links[key], written.setting, None)  # a later version knows more
        if record.nics.get(key.mac, UNRECORDED).is_interrupted and value is not None:
            return str(value)
    return record.written[written]


def _owned_still(
    owned: OwnedObjects, observed: NetworkState, unseen: Collection[str], world: World
) -> OwnedObjects:
    """What is ours and still exists, or is on an `unseen` NIC."""
    present = {*_present_addresses(observed, world)}
    addresses = {pair for pair in owned.addresses if pair[0].mac in unseen or pair in present}
    links = {key for key in owned.vlans if key.mac in unseen or key in observed.links}
    return OwnedObjects(frozenset(addresses), frozenset(links))


def _present_addresses(observed: NetworkState, world: World) -> Iterator[tuple[LinkKey, Address]]:
    """The addresses of the links, also deprecated ones, which count as absent if requested."""
    for key, link in observed.links.items():
        every = world.addresses.get(link.index, ())
        deprecated = (address for address in every if (link.index, address) in world.deprecated)
        yield from ((key, address) for address in (*link.addresses, *deprecated))


def _made_links(
    record: Record, resolution: Resolution, observed: NetworkState
) -> dict[LinkKey, Link]:
    """Our links and their members, by the last request that they fulfilled."""
    links = {}
    for key, link in observed.links.items():
        if not link.master and key not in record.owned.vlans:
            continue
        request, wanted = resolution.requests.get(key), resolution.desired.links.get(key)
        if request is not None and wanted is not None and not must_recreate(link, wanted):
            links[key] = _as_requested(request, wanted)
        elif key in record.made:
            links[key] = record.made[key]
    return links


def _as_requested(request: LinkRequest, wanted: Link) -> Link:
    """What the link is made of, and its requested settings, without original values."""
    sysctls, device = dict(request.sysctls), flat_settings(request.device)
    return Link(
        wanted.key,
        wanted.kind,
        wanted.role,
        virtual=wanted.virtual,
        sysctls={name: wanted.sysctls[name] for name in wanted.sysctls if name in sysctls},
        device={name: wanted.device[name] for name in wanted.device if name in device},
    )


def _link_originals(
    record: Record, resolution: Resolution, observed: NetworkState
) -> dict[LinkKey, OriginalValues]:
    """The original values that are needed: all of an absent NIC, none of another absent link."""
    originals = {}
    for key, original in record.originals.items():
        if key in observed.links:
            originals[key] = _still_changed(original, key, resolution, observed)
        elif not key.rank:
            originals[key] = original
    return {key: original for key, original in originals.items() if original != UNCHANGED}


def _still_changed(
    original: OriginalValues, key: LinkKey, resolution: Resolution, observed: NetworkState
) -> OriginalValues:
    """The original values that are not in force on the link, or whose setting is requested."""
    current, request = observed.links[key], resolution.requests.get(key) or LinkRequest(key)
    templates, groups = dict(request.sysctls), dict(request.device)
    return original._replace(
        **_in_force(original, current, request),
        sysctls={
            template: value
            for template, value in original.sysctls.items()
            if template in templates or current.sysctls.get(template) != value
        },
        device={
            name: value
            for name, value in original.device.items()
            if group_of(name) in groups or not _is_restored(name, value, current)
        },
    )


def _is_restored(name: str, value: str, current: Link) -> bool:
    """Whether the device has this value, or the place in a bond or bridge has ended with it."""
    return is_same(name, current.device.get(name), value) or (
        is_of_place(name) and name not in current.device
    )


def _in_force(original: OriginalValues, current: Link, request: LinkRequest) -> dict[str, Any]:
    """The attributes that have their original value, and are not requested.

    The kernel restores the earlier MTU of a link that leaves a bond, so the bond's says nothing.
    """
    names = [name for name in ATTRIBUTES if not (current.is_in_bond and name == "mtu")]
    unasked = (name for name in names if not getattr(request, name))
    return {name: None for name in unasked if getattr(original, name) == getattr(current, name)}


def _host_originals(
    record: Record, resolution: Resolution, observed: NetworkState
) -> dict[str, str]:
    """The original sysctls of the whole host that are requested, or that are not in force."""
    asked = set(resolution.tuning.sysctls) | set(forwarding_sysctls(resolution.router))
    for request in resolution.requests.values():
        asked |= {template for template, _ in request.sysctls if OWN not in template}
    return {
        path: value
        for path, value in record.original_sysctls.items()
        if path in asked
        or observed.sysctls.get(path) != resolution.desired.sysctls.get(path, value)
    }


def record_applied(
    record: Record,
    resolution: Resolution,
    world: World,
    *,
    scope: Scope,
    failed: Collection[str],
    retry: tuple[str, ...] = (),
) -> Record:
    """Record which request is in force on each NIC of this pass that did not fail.

    `scope` is what the pass was about. `failed` has "" if the part that belongs to no NIC failed.
    `retry` holds the handles of settings to set again; those that the pass has left out stay so, as
    do routes that wait for their source address.
    """
    nics, present = dict(record.nics), changes.present_incarnations(resolution, world)
    for mac, nic in record.nics.items():
        digest = resolution.digests.get(mac, "")
        if digest and _is_withheld(mac, resolution):
            # The request is still to be carried out once the NIC can be configured.
            nics[mac] = nic._replace(applied="")
        elif mac in failed:
            continue
        elif _is_carried_out(scope, mac, nic, resolution):
            appearance = present.get(mac, nic.incarnation) if digest else None
            nics[mac] = nic._replace(applied=digest, incarnation=appearance)
        elif _has_vlan_in(scope, mac):
            nics[mac] = nic._replace(incarnation=present.get(mac, nic.incarnation))
    again = {*retry, *_settings_left(record, resolution, scope)}
    record = record._replace(nics=nics, retry=tuple(sorted(again)))
    if "" in failed or not _is_about(scope, ""):
        return record
    return record._replace(applied=resolution.digests.get("", ""))


def _is_about(scope: Scope, part: str) -> bool:
    return scope is None or part in scope


def _settings_left(record: Record, resolution: Resolution, scope: Scope) -> Iterator[str]:
    """What to set again that the pass was not about, and the routes that wait."""
    yield from (setting for setting in record.retry if not _is_about(scope, setting))
    yield from (f"{ROUTES_OF}{prefix}" for prefix in resolution.waiting_prefixes)


def _is_carried_out(scope: Scope, mac: str, nic: NicRecord, resolution: Resolution) -> bool:
    """Whether the pass was about all in which the NIC's request differs from the one in force.

    The request has to be known: an incomplete document may have left it out.
    """
    digest = resolution.digests.get(mac, "")
    if nic.released or not (digest or resolution.is_complete):
        return False
    if _is_about(scope, mac):
        return True
    return _is_about(scope, f"{ROUTES_OF}{mac}") and changes.has_same_links(nic.applied, digest)


def _is_withheld(mac: str, resolution: Resolution) -> bool:
    """Whether the NIC is present but must not be configured now, as a port of a foreign bridge.

    A dataplane NIC whose MAC two devices have is present as well.
    """
    key, roles = LinkKey(mac), resolution.roles
    if key in resolution.desired.links:
        return False
    if key.virtual_kind or mac in roles.nics or roles.role(mac) != "dataplane":
        return True
    contested = (problem.link for problem in resolution.problems if problem.code == "contested")
    return key in contested


def _has_vlan_in(scope: Scope, mac: str) -> bool:
    return any(name.startswith(f"{mac}.") for name in scope or ())


def forget_nics(record: Record, macs: Iterable[str]) -> Record:
    """Record the release of these NICs, ignored from now on, and drop virtual links among them."""
    gone = set(macs)
    nics = {mac: nic for mac, nic in record.nics.items() if mac not in gone}
    nics.update((mac, NicRecord(released=True)) for mac in gone if not LinkKey(mac).virtual_kind)
    tables = changes.of_others(record.tables, gone)
    routers = changes.of_others(record.routers, gone)
    return changes.without_links(record, gone)._replace(nics=nics, tables=tables, routers=routers)
