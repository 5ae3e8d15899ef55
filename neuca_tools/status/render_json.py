"""What `neuca show`, `neuca plan` and `neuca explain` print with --json; see neuca-status(7)."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Optional, Union

from neuca_tools.desired.device_settings import flat_settings
from neuca_tools.desired.resolve import Resolution
from neuca_tools.desired.roles import find_links
from neuca_tools.documents.neuca import link_kinds, routing
from neuca_tools.documents.neuca.link_settings import group_of
from neuca_tools.documents.neuca.values import dotted_name
from neuca_tools.model import (
    OWN,
    Device,
    Document,
    Link,
    LinkKey,
    LinkRequest,
    NetworkState,
    Origin,
    OriginalValues,
    PlatformDocument,
    Problem,
    Record,
    RouteRequest,
    World,
)
from neuca_tools.model.addresses import Host, Network
from neuca_tools.model.links import Virtual
from neuca_tools.model.routing import PLAIN, Traits
from neuca_tools.model.rows import STORAGE_SECRETS, Storage, StoredDocument
from neuca_tools.plan.operation import Operation
from neuca_tools.status import judge
from neuca_tools.status.audit import SYSCTL, origin_by_setting
from neuca_tools.status.judge import Names, Report, Status

SettingValue = Union[str, int, None]
ROLE_REASONS = {
    "dataplane": "a document or the configuration names it",
    "ignored": "it is ignored by the configuration, or was released",
    "unlisted": "no document names it",
}


def plan_json(operations: Iterable[Operation], after: Optional[Status] = None) -> dict[str, Any]:
    """`neuca plan --json`; `after` is the status after a pass that does all of it, if known."""
    outcome = outcome_json(after) if after else {}
    return {"version": 1, "operations": [each.to_json() for each in operations], **outcome}


def apply_json(report: Report, status: Status) -> dict[str, Any]:
    """`neuca apply --json`: what was changed, what was not done, and the state."""
    return {
        "version": 1,
        "finished": report.finished,
        "seconds": report.seconds,
        "changed": list(report.changed),
        "rolled_back": report.rolled_back,
        **outcome_json(status),
    }


def outcome_json(after: Status) -> dict[str, Any]:
    """The state after a pass, and what it does not do, as `neuca plan` and `apply` print it."""
    return {
        "state": after.data["state"],
        "problems": [_problem_of_link(problem, after.names) for problem in after.problems],
    }


def _problem_of_link(problem: Problem, names: Names) -> dict[str, Optional[str]]:
    link = problem.link and (names.get(problem.link) or str(problem.link))
    return {"link": link, **judge.problem_json(problem)}


def desired_json(resolution: Resolution) -> dict[str, Any]:
    """`neuca show desired --json`."""
    desired = resolution.desired
    return {
        "version": 1,
        "hostname": resolution.hostname,
        "router": resolution.router,
        "links": [_link_json(link, resolution) for link in resolution.shown_links],
        "routes": _desired_routes(resolution),
        "rules": [rule.text for rule in sorted(desired.rules)],
        "sysctl": {dotted_name(path): value for path, value in desired.sysctls.items()},
        "problems": [_problem_of_link(problem, {}) for problem in resolution.problems],
    }


def _link_json(link: Link, resolution: Resolution) -> dict[str, Any]:
    name = link.name or resolution.names.get(link.key, "")
    sysctls = {path.replace(OWN, name): value for path, value in link.sysctls.items()}
    return {
        "kind": link.kind,
        "mac": judge.nic_mac(link),
        "name": link.name,
        "parent": judge.parent_name(link),
        "vlan_id": link.key.vlan_id,
        "role": link.role,
        "state": link.state,
        "mtu": link.mtu,
        "txqueuelen": link.txqueuelen,
        "addresses": [str(address) for address in link.addresses],
        "sysctl": {dotted_name(path): value for path, value in sysctls.items()},
        "device": dict(link.device),
        "members": judge.member_names(link.virtual),
        "master": link.master and str(link.master),
        "options": dict((link.virtual or Virtual()).options),
    }


def observed_json(world: World) -> dict[str, Any]:
    """`neuca show observed --json`: every device, its addresses, and the main routing table."""
    names = {index: device.name for index, device in world.devices.items()}
    return {
        "version": 1,
        "links": [_device_json(world.devices[index], world, names) for index in sorted(names)],
        "routes": _observed_routes(world, names),
        "rules": [
            {"family": f"ipv{seen.rule.family}", "rule": seen.rule.text, "protocol": seen.protocol}
            for seen in world.rules
        ],
        "metadata_interface": names.get(world.metadata_index),
    }


def _device_json(device: Device, world: World, names: Mapping[int, str]) -> dict[str, Any]:
    return {
        "name": device.name,
        "index": device.index,
        "kind": device.kind or ("physical" if device.hardware else "virtual"),
        "mac": device.mac or None,
        "permanent_mac": device.permanent_mac or None,
        **judge.network_json(device, world),
        "max_mtu": device.max_mtu or None,
        "txqueuelen": device.txqueuelen,
        "parent": names.get(device.lower),
        "master": names.get(device.master),
        "vlan_id": device.vlan_id,
        "options": dict(device.options),
    }


def document_json(document: Optional[Document], stored: Optional[StoredDocument]) -> dict[str, Any]:
    """`neuca show document --json`: all that was parsed, except the CHAP secrets."""
    if document is None or stored is None:
        return {"version": 1, "source": None}
    return {
        "version": 1,
        "source": stored.source or None,
        "sha256": stored.sha256.partition(".")[0],
        "hostname": document.hostname,
        "router": document.router,
        "links": [_request_json(link) for link in document.links],
        "routes": _requested_routes(document.routes),
        "rules": [request.rule.text for request in document.rules],
        "platform": _platform_json(document.platform),
        "users": [user._asdict() for user in document.users],
        "scripts": [{"name": script.name, "body": script.body} for script in document.scripts],
        "storage": [_storage_json(storage) for storage in document.storage],
        "faults": [
            {"line": fault.line, "severity": fault.severity, "text": fault.text}
            for fault in document.faults
        ],
    }


def _storage_json(storage: Storage) -> dict[str, Any]:
    data = {**storage._asdict(), "ip": str(storage.ip)}
    hidden = [name for name in STORAGE_SECRETS if any(data[name])]
    return {**data, **dict.fromkeys(hidden, "(not shown)")}


def _request_json(link: LinkRequest) -> dict[str, Any]:
    virtual = link.virtual or Virtual()
    return {
        "link": str(link.key),
        "state": link.state,
        "name": link.name,
        "mtu": link.mtu,
        "txqueuelen": link.txqueuelen,
        "addresses": [str(address) for address in link.addresses],
        "sysctl": dict(link.sysctls),
        "device": dict(link.device),
        "members": judge.member_names(virtual),
        "parent": virtual.parent and str(virtual.parent),
        "options": dict(virtual.options),
        "automatic": link.automatic and link.automatic._asdict(),
    }


def _platform_json(platform: Optional[PlatformDocument]) -> Optional[dict[str, Any]]:
    if platform is None:
        return None
    return {
        "hostname": platform.hostname,
        "links": [_request_json(link) for link in platform.links],
        "routes": _requested_routes(platform.routes),
        "rules": [request.rule.text for request in platform.rules],
        "management": {hint.mac: hint.reason for hint in platform.management},
    }


def explain_link(
    key: LinkKey, resolution: Resolution, observed: NetworkState, record: Record, world: World
) -> dict[str, Any]:
    """`neuca explain --json`: each setting of one link.

    `origin` is the place in a document or the configuration that requests the desired value,
    `overridden` the value and the place that this one overrides, and `original` the value from
    before the agent changed it.
    """
    role = resolution.roles.role_of(key)
    request = resolution.requests.get(key) or LinkRequest(key)
    # The desired and the present state have no link that is left alone.
    device = find_links(world, resolution.roles).get(key)
    own = _settings_of_link(observed.links.get(key)) or _device_settings(device, world)
    current = {**_sysctl_settings(observed.sysctls), **own}
    return {
        "version": 2,
        "link": str(key),
        "role": role,
        "reason": resolution.roles.reason_of(key) or ROLE_REASONS.get(role, ""),
        "settings": [
            *_settings_explained(request, resolution, current, record),
            *_explained_routing(request, resolution, observed),
        ],
        "problems": [
            judge.problem_json(problem) for problem in resolution.problems if problem.link == key
        ],
        "notes": [note.to_json() for note in resolution.notes if note.link == key],
    }


def _settings_explained(
    request: LinkRequest,
    resolution: Resolution,
    current: Mapping[str, SettingValue],
    record: Record,
) -> Iterator[dict[str, SettingValue]]:
    key, of_host = request.key, resolution.desired.sysctls
    sysctls = {path: value for path, value in request.sysctls if of_host.get(path) == value}
    desired = {**_sysctl_settings(sysctls), **_settings_of_link(resolution.desired.links.get(key))}
    originals = record.originals.get(key, OriginalValues())
    original: dict[str, SettingValue] = {
        "mtu": originals.mtu,
        "txqueuelen": originals.txqueuelen,
        **_sysctl_settings({**record.original_sysctls, **originals.sysctls}),
        **originals.device,
    }
    origins = _origin_by_setting(request)
    for setting in _explained_settings(request, originals, {*origins, *desired}, origins):
        # The agent itself wants the name, and sysctls such as accept_ra.
        is_wanted = setting in origins or setting == "name" or setting.startswith(SYSCTL)
        values = desired.get(setting) if is_wanted else None, current.get(setting)
        yield _explained_setting(setting, origins.get(setting), *values, original.get(setting))


def _explained_settings(
    request: LinkRequest, before: OriginalValues, named: Collection[str], origins: Collection[str]
) -> list[str]:
    """The names of the settings to explain, in the order of the rows."""
    own = link_kinds.own_keys(request.key.kind) if request.virtual else ()
    device = {name for name in flat_settings(request.device) if name in origins}
    return [
        *(name for name in own if name in named),
        *("name", "state", "mtu", "txqueuelen", "addresses"),
        *sorted(device.union(before.device)),
        *sorted(name for name in named if name.startswith(SYSCTL)),
    ]


def _origin_by_setting(request: LinkRequest) -> dict[str, Origin]:
    """The origin of each setting of a request; that of `rings.rx` is the one of `rings`."""
    origins = origin_by_setting(request)
    for name in flat_settings(request.device):
        if group_of(name) in origins:
            origins[name] = origins[group_of(name)]
    return origins


def _settings_of_link(link: Optional[Link]) -> dict[str, SettingValue]:
    if link is None:
        return {}
    settings: dict[str, SettingValue] = {}
    if link.virtual:
        names = link_kinds.own_keys(link.key.kind)
        settings = {name: link_kinds.shown_value(link.virtual, name) or None for name in names}
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


def _device_settings(device: Optional[Device], world: World) -> dict[str, SettingValue]:
    if device is None:
        return {}
    network = judge.network_json(device, world)
    network["addresses"] = ", ".join(network["addresses"]) or None
    return {"name": device.name, "txqueuelen": device.txqueuelen, **network}


def _sysctl_settings(sysctls: Mapping[str, str]) -> dict[str, str]:
    return {f"{SYSCTL}{path}": value for path, value in sysctls.items()}


def _desired_routes(resolution: Resolution) -> list[dict[str, Any]]:
    """The routes that must be present, those that must be absent, and those left to the user."""
    desired = resolution.desired
    return [
        *(_route_json(hop.to, hop.via, "present", hop.metric, hop.traits) for hop in desired.hops),
        *(_route_json(to, None, "absent", None) for to in desired.banned),
        *(_route_json(to, None, "user", None) for to in resolution.left_alone),
    ]


def _requested_routes(routes: Iterable[RouteRequest]) -> list[dict[str, Any]]:
    return [
        {
            **_route_json(route.to, route.via, route.state, route.metric, route.traits),
            "link": route.link and str(route.link),
        }
        for route in routes
    ]


def _route_json(
    to: Network, via: Optional[Host], state: str, metric: Optional[int], traits: Traits = PLAIN
) -> dict[str, Any]:
    return {
        "to": str(to),
        "via": via and str(via),
        "state": state,
        "metric": metric,
        "table": traits.table,
        "type": traits.kind,
    }


def _observed_routes(world: World, names: Mapping[int, str]) -> list[dict[str, Any]]:
    """All routes but the kernel's own in the table `local`. `names` are interfaces by index."""
    return [
        {
            "to": str(route.to),
            "via": route.via and str(route.via),
            "interface": names.get(route.index),
            "metric": route.metric,
            "protocol": route.protocol,
            "table": route.traits.table,
            "type": route.traits.kind,
        }
        for route in (*world.routes, *world.other_routes)
    ]


def _explained_routing(
    request: LinkRequest, resolution: Resolution, observed: NetworkState
) -> list[dict[str, Any]]:
    """The rows of `neuca explain` on the policy routing of a link, none if it is not requested."""
    origins = {origin.setting: origin for origin in request.origins}
    desired = routing.shown_values(request.routing)
    table = resolution.tables.get(request.key)
    if table:
        desired["table"] = str(table)
    used = {hop.traits.table for hop in observed.hops if hop.ours and hop.link == request.key}
    current = {"table": table if table in used else None}
    return [
        _explained_setting(name, origins.get(name), value, current.get(name), None)
        for name, value in desired.items()
    ]


def _explained_setting(
    setting: str,
    origin: Optional[Origin],
    desired: SettingValue,
    current: SettingValue,
    original: SettingValue,
) -> dict[str, SettingValue]:
    return {
        "setting": setting,
        "desired": desired,
        "current": current,
        "origin": origin.where if origin else "",
        "overridden": origin.overrode if origin else "",
        "original": original,
    }
