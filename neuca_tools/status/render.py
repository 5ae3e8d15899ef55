"""Stages as text for people and as JSON for scripts; the key names of the JSON are fixed by the specification."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional, Union

from neuca_tools.desired.device_settings import flat, group_of
from neuca_tools.desired.resolve import Resolution
from neuca_tools.documents.neuca import link_kinds
from neuca_tools.model import (
    OWN,
    Document,
    Link,
    LinkKey,
    LinkRequest,
    NetworkState,
    Origin,
    Original,
    PlatformDocument,
    Problem,
    Record,
    RouteRequest,
    World,
)
from neuca_tools.model.stored import StoredDocument
from neuca_tools.plan.operation import Operation
from neuca_tools.status.judge import members, parent, unsaved_line

GREEN, RED, PLAIN = "\033[32m", "\033[31m", "\033[0m"  # ECMA-48, SGR


def dotted(path: str) -> str:
    """A sysctl path as sysctl.d(5) writes it.

    >>> dotted("net/ipv4/conf/eth1.1445/rp_filter")
    'net.ipv4.conf.eth1/1445.rp_filter'
    """
    return path.translate(str.maketrans("./", "/."))


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Aligned columns, two blanks apart."""
    widths = (
        [max(len(row[column]) for row in rows) for column in range(len(rows[0]))] if rows else []
    )
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows
    ]


# --- status and plan ------------------------------------------------------------------------------------------------


_PLATFORMS = {"openstack": "OpenStack, as the firmware (DMI) says", "ec2": "EC2, as the firmware (DMI) says",
              "unknown": "the firmware (DMI) names none, so no link-local address is asked",
              "any": "not checked (platform = any)"}  # fmt: skip


def status(data: Mapping[str, Any], color: bool) -> str:
    """One line for each interface, marked, and below it a line with its reason for each shortfall."""
    document = data["document"]
    origin = (
        f"document of {document['source']}, read {document['fetched']}"
        if document["source"]
        else "no document"
    )
    stale = (
        f", stale: {document['reason']}"
        if document["stale"]
        else f" ({document['reason']})"
        if document["reason"]
        else ""
    )
    lines = [
        _colored(f"{data['state']}", data["state"] == "ok", color)
        + f": neuca {data['neuca']}, {origin}{stale}"
    ]
    lines += [f"platform: {_PLATFORMS[document['platform']]}"] if document.get("platform") else []
    lines += [*unsaved_line(data), *_last_pass(data["last_pass"])]
    shown = data["interfaces"]
    rows = [["", "NAME", "SHOULD BE", "ID", "ROLE", "NETWORKMANAGER", "NETWORKD"]]
    rows += [
        [
            "ok" if one["ok"] else "!!",
            one["name"] or "-",
            one["wanted_name"] or "-",
            _identity(one),
            one["role"],
            one["managers"]["networkmanager"],
            one["managers"]["networkd"],
        ]
        for one in shown
    ]
    first, *rest = table(rows) if shown else ["no interfaces"]
    lines.append(first)
    for line, one in zip(rest, shown):
        lines.append(_colored(line[:2], one["ok"], color) + line[2:])
        lines += [f"      {problem['code']}: {problem['text']}" for problem in one["problems"]]
        lines += [
            f"      note: {note['setting']}: {note['effect']}: {note['reason']}"
            for note in one["notes"]
        ]
    lines += [
        f"{_colored('!!', False, color)} {problem['code']}: {problem['text']}"
        for problem in data["problems"]
    ]
    if data.get("guest"):
        lines.append(
            "guest: " + ", ".join(f"{one['feature']} {one['state']}" for one in data["guest"])
        )
        lines += [
            f"      {one['feature']}: {finding['text']}"
            for one in data["guest"]
            for finding in one["findings"]
            if finding["state"] in ("ok", "pending")
        ]  # the others are problems, and stand there
    return "\n".join([*lines, *(f"   note: {note}" for note in data["notes"])])


def _identity(interface: Mapping[str, Any]) -> str:
    if interface["mac"] or interface["vlan_id"]:
        return interface["mac"] or f"VLAN {interface['vlan_id']} on {interface['parent']}"
    parts = interface["members"] or [interface["parent"] or "nothing"]
    return f"{interface['kind']} {'of' if interface['members'] else 'on'} {', '.join(parts)}"


def _last_pass(last: Optional[Mapping[str, Any]]) -> list[str]:
    if last is None:
        return ["no pass since the boot"]
    return [
        f"last pass: {last['finished']}, {last['seconds']} s, {last['changed']} changed, {last['failed']} failed"
    ]


def _colored(text: str, good: bool, color: bool) -> str:
    return f"{GREEN if good else RED}{text}{PLAIN}" if color else text


def plan(
    operations: Iterable[Operation], problems: Iterable[Problem], names: Mapping[LinkKey, str]
) -> str:
    """One line for each operation, in order; then what is not done, and why."""
    lines = [operation.text for operation in operations] or ["nothing to do"]
    for problem in problems:
        link = f"{names.get(problem.link) or problem.link}: " if problem.link else ""
        lines.append(
            f"{'left alone' if problem.code == 'ignored' else 'not done'}: {link}{problem.text}"
        )
    return "\n".join(lines)


def plan_json(operations: Iterable[Operation]) -> dict[str, Any]:
    return {"version": 1, "operations": [operation.to_json() for operation in operations]}


def tuning(data: Mapping[str, Any]) -> str:
    """`neuca tune audit`: a line for each setting, then the arithmetic in sentences."""
    rows = [["INTERFACE", "SETTING", "CURRENT", "WANTED", "SOURCE", "EFFECT"]]
    rows += [
        [
            one["interface"] or "-",
            one["setting"],
            one["current"] or "-",
            one["wanted"] or "-",
            one["source"],
            f"{one['effect']}{':' if one['reason'] and one['effect'] != 'overridden' else ''} {one['reason']}".rstrip(),
        ]
        for one in data["values"]
    ]
    head = f"profiles: {', '.join(data['profiles']) or 'none'}"
    return "\n".join(
        [head, *(table(rows) if data["values"] else ["nothing is to be tuned"]), *data["notes"]]
    )


# --- show -----------------------------------------------------------------------------------------------------------


def desired_json(resolution: Resolution) -> dict[str, Any]:
    """`neuca show desired --json`."""
    routes = [
        {"to": str(hop.to), "via": hop.via and str(hop.via), "state": "present"}
        for hop in resolution.want.hops
    ]
    routes += [{"to": str(to), "via": None, "state": "absent"} for to in resolution.want.banned]
    routes += [{"to": str(to), "via": None, "state": "user"} for to in resolution.left_alone]
    return {
        "version": 1,
        "hostname": resolution.hostname,
        "router": resolution.router,
        "links": [_link_json(link, resolution) for link in resolution.shown],
        "routes": routes,
        "sysctl": {dotted(path): value for path, value in resolution.want.sysctls.items()},
        "problems": [
            {"link": problem.link and str(problem.link), "code": problem.code, "text": problem.text}
            for problem in resolution.problems
        ],
    }


def _link_json(link: Link, resolution: Resolution) -> dict[str, Any]:
    nic = not link.key.rank
    name = link.name or resolution.names.get(link.key, "")
    return {
        "kind": link.kind,
        "mac": link.key.mac if nic else None,
        "name": link.name,
        "parent": parent(link),
        "vlan_id": link.key.vlan_id,
        "role": link.role,
        "state": link.state,
        "mtu": link.mtu,
        "txqueuelen": link.txqueuelen,
        "addresses": [str(address) for address in link.addresses],
        "sysctl": {
            dotted(template.replace(OWN, name)): value for template, value in link.sysctls.items()
        },
        "device": dict(link.device),
        "members": members(link),
        "master": link.master and str(link.master),
        "options": dict(link.virtual.options) if link.virtual else {},
    }


def observed_json(world: World) -> dict[str, Any]:
    """`neuca show observed --json`: every device, its addresses, and the main routing table."""
    names = {index: device.name for index, device in world.devices.items()}
    links = [
        {
            "name": device.name,
            "index": index,
            "kind": device.kind or ("physical" if device.hardware else "virtual"),
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
            "addresses": [str(address) for address in world.addresses.get(index, ())],
        }
        for index, device in sorted(world.devices.items())
    ]
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
        "links": links,
        "routes": routes,
        "metadata_interface": names.get(world.metadata_index),
    }


def document_json(document: Optional[Document], stored: Optional[StoredDocument]) -> dict[str, Any]:
    """`neuca show document --json`: all that was read; a CHAP secret is never shown."""
    if document is None or stored is None:
        return {"version": 1, "source": None}
    return {
        "version": 1,
        "source": stored.source,
        "sha256": stored.sha256.partition(".")[0],
        "hostname": document.hostname,
        "router": document.router,
        "links": [_asked_json(link) for link in document.links],
        "routes": [_route_json(route) for route in document.routes],
        "platform": _platform_json(document.platform),
        "users": [
            {"login": user.login, "sudo": user.sudo, "keys": list(user.keys)}
            for user in document.users
        ],
        "scripts": [{"name": script.name, "body": script.body} for script in document.scripts],
        "storage": [
            {
                **one.__dict__,
                "ip": str(one.ip),
                **{key: "(not shown)" for key in one.SECRETS if any(getattr(one, key))},
            }
            for one in document.storage
        ],
        "faults": [
            {"line": fault.line, "severity": fault.severity, "text": fault.text}
            for fault in document.faults
        ],
    }


def _asked_json(link: LinkRequest) -> dict[str, Any]:
    return {
        "link": str(link.key),
        "state": link.state,
        "name": link.name,
        "mtu": link.mtu,
        "txqueuelen": link.txqueuelen,
        "addresses": [str(address) for address in link.addresses],
        "sysctl": dict(link.sysctls),
        "device": dict(link.device),
        "members": list(map(str, link.virtual.members)) if link.virtual else [],
        "parent": link.virtual.parent and str(link.virtual.parent) if link.virtual else None,
        "options": dict(link.virtual.options) if link.virtual else {},
    }


def _route_json(route: RouteRequest) -> dict[str, Any]:
    return {"to": str(route.to), "via": route.via and str(route.via), "state": route.state}


def _platform_json(platform: Optional[PlatformDocument]) -> Optional[dict[str, Any]]:
    if platform is None:
        return None
    return {
        "hostname": platform.hostname,
        "links": [_asked_json(link) for link in platform.links],
        "routes": [_route_json(route) for route in platform.routes],
        "management": {hint.mac: hint.reason for hint in platform.management},
    }


def tree(data: Union[Mapping[str, object], Sequence[object]], indent: int = 0) -> str:
    """JSON data as an indented outline; what is null or empty is left out."""
    pad = " " * indent
    if isinstance(data, Mapping):
        return "\n".join(
            _branch(f"{pad}{key}:", value, indent)
            for key, value in data.items()
            if value not in (None, [], {}, "")
        )
    return "\n".join(_branch(f"{pad}-", value, indent) for value in data)


def _branch(head: str, value: object, indent: int) -> str:
    if isinstance(value, (Mapping, list)):
        return f"{head}\n{tree(value, indent + 2)}"
    lines = str(value).split("\n")
    return (
        f"{head} {value}"
        if len(lines) == 1
        else "\n".join([head, *(f"{' ' * (indent + 4)}{line}" for line in lines)])
    )


# --- explain --------------------------------------------------------------------------------------------------------


def explanation(
    key: LinkKey, resolution: Resolution, have: NetworkState, record: Record
) -> dict[str, Any]:
    """Every setting of one link: asked, found, from where, over what, and what it was before the agent."""
    request, wanted = resolution.requests.get(key), _settings(resolution.want.links.get(key))
    found, before = _settings(have.links.get(key)), record.originals.get(key, Original())
    origins = {origin.setting: origin for origin in request.origins} if request else {}
    original = {
        "mtu": before.mtu,
        "txqueuelen": before.txqueuelen,
        **{f"sysctl.{template}": value for template, value in before.sysctls.items()},
        **before.device,
    }
    device = (
        {
            name: origins[group_of(name)]
            for name in flat(request.device)
            if group_of(name) in origins
        }
        if request
        else {}
    )
    sysctls = sorted(name for name in {*wanted, *origins} if name.startswith("sysctl."))
    own = [
        name
        for name in link_kinds.names(key.kind)
        if request and request.virtual and name in {*origins, *wanted}
    ]
    names = [
        *own,
        "name",
        "state",
        "mtu",
        "txqueuelen",
        "addresses",
        *sorted({*device, *before.device}),
        *sysctls,
    ]
    origins.update(device)
    silent = Origin("", "", "")
    rows = [
        {
            "setting": name,
            "asked": wanted.get(name) if name in origins or name == "name" else None,
            "found": found.get(name),
            "from": origins.get(name, silent).where,
            "overrode": origins.get(name, silent).overrode,
            "original": original.get(name),
        }
        for name in names
    ]
    role = resolution.roles.role(key.mac)
    return {
        "version": 1,
        "link": str(key),
        "role": role,
        "reason": resolution.roles.reasons.get(key.mac) or _role_reason(role),
        "settings": rows,
        "problems": [
            {"code": problem.code, "text": problem.text}
            for problem in resolution.problems
            if problem.link == key
        ],
        "notes": [note.to_json() for note in resolution.notes if note.link == key],
    }


def _settings(link: Optional[Link]) -> dict[str, Union[str, int, None]]:
    if link is None:
        return {}
    virtual = (
        {
            name: link_kinds.shown(link.virtual, name) or None
            for name in link_kinds.names(link.key.kind)
        }
        if link.virtual
        else {}
    )
    return {
        **virtual,
        "name": link.name,
        "state": link.state,
        "mtu": link.mtu,
        "txqueuelen": link.txqueuelen,
        "addresses": ", ".join(str(address) for address in link.addresses) or None,
        **{f"sysctl.{template}": value for template, value in link.sysctls.items()},
        **link.device,
    }


def _role_reason(role: str) -> str:
    return {
        "dataplane": "a document or the configuration names it",
        "ignored": "it is to be ignored, or was released",
        "unlisted": "no document names it",
    }.get(role, "")


def explain(data: Mapping[str, Any]) -> str:
    """The same as a table."""
    rows = [["SETTING", "ASKED", "FOUND", "FROM", "OVERRODE", "BEFORE NEUCA"]]
    rows += [
        [
            str(row["setting"]),
            *(
                "-" if row[name] in (None, "") else str(row[name])
                for name in ("asked", "found", "from", "overrode", "original")
            ),
        ]
        for row in data["settings"]
    ]
    lines = [f"{data['link']}: {data['role']}, since {data['reason']}", *table(rows)]
    lines += [f"{problem['code']}: {problem['text']}" for problem in data["problems"]]
    return "\n".join(
        [
            *lines,
            *(
                f"note: {note['setting']}: {note['effect']}: {note['reason']}"
                for note in data["notes"]
            ),
        ]
    )
