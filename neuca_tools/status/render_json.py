"""Stages as data for JSON, as `neuca show`, `neuca plan` and `neuca explain` print it with --json.

Scripts depend on the keys; neuca(8) lists them.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Optional, Union

from neuca_tools.desired.device_settings import flat, group_of
from neuca_tools.desired.resolve import Resolution
from neuca_tools.documents.neuca import link_kinds
from neuca_tools.model import (
    OWN,
    Device,
    Document,
    Link,
    LinkKey,
    LinkRequest,
    NetworkState,
    Origin,
    Original,
    PlatformDocument,
    Record,
    RouteRequest,
    World,
)
from neuca_tools.model.rows import Storage
from neuca_tools.model.stored import StoredDocument
from neuca_tools.plan.operation import Operation
from neuca_tools.status.audit import dotted
from neuca_tools.status.judge import is_nic, members, parent

SYSCTL = "sysctl."  # what the name of a setting begins with if it is a sysctl
NO_ORIGIN = Origin("", "", "")
ROLE_REASONS = {
    "dataplane": "a document or the configuration names it",
    "ignored": "it is to be ignored, or was released",
    "unlisted": "no document names it",
}


def plan_json(operations: Iterable[Operation]) -> dict[str, Any]:
    """`neuca plan --json`."""
    return {"version": 1, "operations": [operation.to_json() for operation in operations]}


def desired_json(resolution: Resolution) -> dict[str, Any]:
    """`neuca show desired --json`."""
    want = resolution.want
    routes = [_route_json(hop.to, hop.via, "present") for hop in want.hops]
    routes += [_route_json(to, None, "absent") for to in want.banned]
    routes += [_route_json(to, None, "user") for to in resolution.left_alone]
    return {
        "version": 1,
        "hostname": resolution.hostname,
        "router": resolution.router,
        "links": [_link_json(link, resolution) for link in resolution.shown],
        "routes": routes,
        "sysctl": {dotted(path): value for path, value in want.sysctls.items()},
        "problems": [
            {"link": problem.link and str(problem.link), "code": problem.code, "text": problem.text}
            for problem in resolution.problems
        ],
    }


def _link_json(link: Link, resolution: Resolution) -> dict[str, Any]:
    name = link.name or resolution.names.get(link.key, "")
    sysctls = {path.replace(OWN, name): value for path, value in link.sysctls.items()}
    return {
        "kind": link.kind,
        "mac": link.key.mac if is_nic(link) else None,
        "name": link.name,
        "parent": parent(link),
        "vlan_id": link.key.vlan_id,
        "role": link.role,
        "state": link.state,
        "mtu": link.mtu,
        "txqueuelen": link.txqueuelen,
        "addresses": [str(address) for address in link.addresses],
        "sysctl": {dotted(path): value for path, value in sysctls.items()},
        "device": dict(link.device),
        "members": members(link),
        "master": link.master and str(link.master),
        "options": dict(link.virtual.options) if link.virtual else {},
    }


def observed_json(world: World) -> dict[str, Any]:
    """`neuca show observed --json`: every device, its addresses, and the main routing table."""
    names = {index: device.name for index, device in world.devices.items()}
    routes = [
        {
            "to": str(route.to),
            "via": route.via and str(route.via),
            "interface": names.get(route.index),
            "metric": route.metric,
            "protocol": route.protocol,
        }
        for route in world.routes
    ]
    return {
        "version": 1,
        "links": [
            _device_json(device, world, names) for _, device in sorted(world.devices.items())
        ],
        "routes": routes,
        "metadata_interface": names.get(world.metadata_index),
    }


def _device_json(device: Device, world: World, names: Mapping[int, str]) -> dict[str, Any]:
    hardware_or_not = "physical" if device.hardware else "virtual"
    return {
        "name": device.name,
        "index": device.index,
        "kind": device.kind or hardware_or_not,
        "mac": device.mac or None,
        "permanent_mac": device.permanent_mac or None,
        "state": "up" if device.up else "down",
        "carrier": device.carrier,
        "mtu": device.mtu,
        "max_mtu": device.max_mtu or None,
        "txqueuelen": device.txqueuelen,
        "parent": names.get(device.lower),
        "master": names.get(device.master),
        "vlan_id": device.vlan_id,
        "options": dict(device.options),
        "addresses": [str(address) for address in world.addresses.get(device.index, ())],
    }


def document_json(document: Optional[Document], stored: Optional[StoredDocument]) -> dict[str, Any]:
    """`neuca show document --json`: all that was parsed, except for the secrets of CHAP."""
    if document is None or stored is None:
        return {"version": 1, "source": None}
    return {
        "version": 1,
        "source": stored.source,
        "sha256": stored.sha256.partition(".")[0],
        "hostname": document.hostname,
        "router": document.router,
        "links": [_request_json(link) for link in document.links],
        "routes": [_route_request_json(route) for route in document.routes],
        "platform": _platform_json(document.platform),
        "users": [
            {"login": user.login, "sudo": user.sudo, "keys": list(user.keys)}
            for user in document.users
        ],
        "scripts": [{"name": script.name, "body": script.body} for script in document.scripts],
        "storage": [_storage_json(storage) for storage in document.storage],
        "faults": [
            {"line": fault.line, "severity": fault.severity, "text": fault.text}
            for fault in document.faults
        ],
    }


def _storage_json(storage: Storage) -> dict[str, Any]:
    data = {**storage.__dict__, "ip": str(storage.ip)}
    for name in storage.SECRETS:
        if any(data[name]):
            data[name] = "(not shown)"
    return data


def _request_json(link: LinkRequest) -> dict[str, Any]:
    virtual = link.virtual
    return {
        "link": str(link.key),
        "state": link.state,
        "name": link.name,
        "mtu": link.mtu,
        "txqueuelen": link.txqueuelen,
        "addresses": [str(address) for address in link.addresses],
        "sysctl": dict(link.sysctls),
        "device": dict(link.device),
        "members": [str(member) for member in virtual.members] if virtual else [],
        "parent": str(virtual.parent) if virtual and virtual.parent else None,
        "options": dict(virtual.options) if virtual else {},
        "automatic": link.automatic and link.automatic.__dict__,
    }


def _route_request_json(route: RouteRequest) -> dict[str, Any]:
    return {
        **_route_json(route.to, route.via, route.state),
        "link": route.link and str(route.link),
    }


def _route_json(to: object, via: object, state: str) -> dict[str, Any]:
    return {"to": str(to), "via": via and str(via), "state": state}


def _platform_json(platform: Optional[PlatformDocument]) -> Optional[dict[str, Any]]:
    if platform is None:
        return None
    return {
        "hostname": platform.hostname,
        "links": [_request_json(link) for link in platform.links],
        "routes": [_route_request_json(route) for route in platform.routes],
        "management": {hint.mac: hint.reason for hint in platform.management},
    }


def explanation(
    key: LinkKey, resolution: Resolution, have: NetworkState, record: Record
) -> dict[str, Any]:
    """`neuca explain --json`: each setting of one link.

    `asked` is the value in the desired state, `found` the current one, `from` the place in a
    document that asks for it, `overrode` the place that it overrode, and `original` the value
    from before the agent changed it.
    """
    role = resolution.roles.role(key.mac)
    return {
        "version": 1,
        "link": str(key),
        "role": role,
        "reason": resolution.roles.reasons.get(key.mac) or ROLE_REASONS.get(role, ""),
        "settings": _settings_explained(key, resolution, have, record),
        "problems": [
            {"code": problem.code, "text": problem.text}
            for problem in resolution.problems
            if problem.link == key
        ],
        "notes": [note.to_json() for note in resolution.notes if note.link == key],
    }


Setting = Union[str, int, None]


def _settings_explained(
    key: LinkKey, resolution: Resolution, have: NetworkState, record: Record
) -> list[dict[str, Setting]]:
    request = resolution.requests.get(key)
    wanted = _settings(resolution.want.links.get(key))
    found = _settings(have.links.get(key))
    before = record.originals.get(key, Original())
    original = _originals(before)
    origins = _origins(request)
    rows = []
    for setting in _explained(request, before, wanted, origins):
        origin = origins.get(setting, NO_ORIGIN)
        row = {
            "setting": setting,
            "asked": None,
            "found": found.get(setting),
            "from": origin.where,
            "overrode": origin.overrode,
            "original": original.get(setting),
        }
        if setting in origins or setting == "name":
            row["asked"] = wanted.get(setting)
        rows.append(row)
    return rows


def _explained(
    request: Optional[LinkRequest],
    before: Original,
    wanted: Mapping[str, Setting],
    origins: Mapping[str, Origin],
) -> list[str]:
    """The names of the settings to explain, in the order of the rows."""
    named = {*origins, *wanted}
    own: list[str] = []
    if request and request.virtual:
        own = [name for name in link_kinds.names(request.key.kind) if name in named]
    asked = [name for name in _device_settings(request) if name in origins]
    return [
        *own,
        "name",
        "state",
        "mtu",
        "txqueuelen",
        "addresses",
        *sorted({*asked, *before.device}),
        *sorted(name for name in named if name.startswith(SYSCTL)),
    ]


def _device_settings(request: Optional[LinkRequest]) -> list[str]:
    """The device settings that a request sets, one by one: `rings.rx` rather than `rings`."""
    return list(flat(request.device)) if request else []


def _origins(request: Optional[LinkRequest]) -> dict[str, Origin]:
    """Where each setting of a request comes from; a device setting comes from where its
    group does.
    """
    origins = {origin.setting: origin for origin in request.origins} if request else {}
    for name in _device_settings(request):
        group = group_of(name)
        if group in origins:
            origins[name] = origins[group]
    return origins


def _originals(before: Original) -> dict[str, Setting]:
    return {
        "mtu": before.mtu,
        "txqueuelen": before.txqueuelen,
        **_sysctl_settings(before.sysctls),
        **before.device,
    }


def _settings(link: Optional[Link]) -> dict[str, Setting]:
    if link is None:
        return {}
    settings: dict[str, Setting] = {}
    if link.virtual:
        for name in link_kinds.names(link.key.kind):
            settings[name] = link_kinds.shown(link.virtual, name) or None
    return {
        **settings,
        "name": link.name,
        "state": link.state,
        "mtu": link.mtu,
        "txqueuelen": link.txqueuelen,
        "addresses": ", ".join(str(address) for address in link.addresses) or None,
        **_sysctl_settings(link.sysctls),
        **link.device,
    }


def _sysctl_settings(sysctls: Mapping[str, str]) -> dict[str, str]:
    return {f"{SYSCTL}{path}": value for path, value in sysctls.items()}
