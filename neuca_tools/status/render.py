"""Status, plans, settings and explanations as text for a terminal."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional, Union

from neuca_tools.model import OWN, LinkKey, Problem
from neuca_tools.model.clouds import CLOUDS
from neuca_tools.model.printable import GREEN, RED, painted
from neuca_tools.plan.operation import Operation
from neuca_tools.status.audit import SYSCTL, dotted, effect_text
from neuca_tools.status.judge import INFORMATION

EMPTY: tuple[object, ...] = (None, [], {}, "")  # values that an outline leaves out
PLATFORMS = {
    **{cloud.kind: f"{cloud.label}, as the firmware (DMI) says" for cloud in CLOUDS},
    "unknown": "not named by the firmware (DMI), so no well-known address is queried",
    "any": "not checked (platform = any)",
}


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Left-aligned columns, two spaces apart. Every row has a cell for each column."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def status(data: Mapping[str, Any], color: bool) -> str:
    """`neuca status`: one line for each interface, with its problems and notes below it."""
    stuck = data.get("not_rolled_back") or ()
    lines = [f"{_colored('failed', good=False, color=color)}: {text}" for text in stuck]
    lines.append(_headline(data, color))
    platform = data["document"].get("platform")
    if platform:
        lines.append(f"platform: {PLATFORMS[platform]}")
    told = {problem["text"] for problem in data["problems"]}
    if data.get("unsaved") and data["unsaved"] not in told:
        lines.append(f"degraded: not saved: {data['unsaved']}")
    lines.append(_last_pass(data["last_pass"]))
    lines += _interfaces(data["interfaces"], color)
    mark = _colored("!!", good=False, color=color)
    lines += [f"{mark} {problem['code']}: {problem['text']}" for problem in data["problems"]]
    lines += _guest(data.get("guest") or ())
    lines += [f"   note: {note}" for note in data["notes"]]
    return "\n".join(lines)


def _headline(data: Mapping[str, Any], color: bool) -> str:
    document = data["document"]
    origin, reason = "no document", ""
    if document["source"]:
        origin = f"document of {document['source']}, read {document['fetched']}"
    if document["stale"]:
        reason = f", stale: {document['reason']}"
    elif document["reason"]:
        reason = f" ({document['reason']})"
    state = _colored(data["state"], good=data["state"] == "ok", color=color)
    return f"{state}: neuca {data['neuca']}, {origin}{reason}"


def _interfaces(interfaces: Sequence[Mapping[str, Any]], color: bool) -> list[str]:
    if not interfaces:
        return ["no interfaces"]
    rows = [["", "NAME", "SHOULD BE", "ID", "ROLE", "NETWORKMANAGER", "NETWORKD"]]
    rows += [_interface_row(one) for one in interfaces]
    head, *rest = table(rows)
    lines = [head]
    for line, one in zip(rest, interfaces):
        lines.append(_colored(line[:2], good=one["ok"], color=color) + line[2:])
        if one.get("table"):
            lines.append(f"      routing table: {one['table']}")
        lines += [f"      {problem['code']}: {problem['text']}" for problem in one["problems"]]
        lines += [f"      {_note(note)}" for note in one["notes"]]
    return lines


def _interface_row(interface: Mapping[str, Any]) -> list[str]:
    managers = interface["managers"]
    return [
        "ok" if interface["ok"] else "!!",
        interface["name"] or "-",
        interface["wanted_name"] or "-",
        _identity(interface),
        interface["role"],
        managers["networkmanager"],
        managers["networkd"],
    ]


def _identity(interface: Mapping[str, Any]) -> str:
    """The MAC of a NIC; for other links, their lower devices."""
    if interface["mac"]:
        return str(interface["mac"])
    if interface["vlan_id"]:
        return f"VLAN {interface['vlan_id']} on {interface['parent']}"
    if interface["members"]:
        return f"{interface['kind']} of {', '.join(interface['members'])}"
    return f"{interface['kind']} on {interface['parent'] or 'nothing'}"


def _note(note: Mapping[str, str]) -> str:
    return f"note: {note['setting']}: {note['effect']}: {note['reason']}"


def _guest(features: Sequence[Mapping[str, Any]]) -> list[str]:
    """The state of each feature, with those findings that are not problems."""
    if not features:
        return []
    lines = ["guest: " + ", ".join(f"{one['feature']} {one['state']}" for one in features)]
    for one in features:
        told = [finding for finding in one["findings"] if finding["state"] in ("ok", "pending")]
        lines += [f"      {one['feature']}: {finding['text']}" for finding in told]
    return lines


def _last_pass(last: Optional[Mapping[str, Any]]) -> str:
    if last is None:
        return "no pass since the boot"
    counts = f"{last['changed']} changed, {last['failed']} failed"
    return f"last pass: {last['finished']}, {last['seconds']} s, {counts}"


def _colored(text: str, *, good: bool, color: bool) -> str:
    return painted(text, GREEN if good else RED, color)


def plan(
    operations: Iterable[Operation],
    problems: Iterable[Problem],
    names: Mapping[LinkKey, str],
    color: bool = False,
) -> str:
    """One line for each operation, in order, then one for each problem."""
    lines = [operation.text for operation in operations] or ["nothing to do"]
    return "\n".join([*lines, *undone(problems, names, color)])


def undone(
    problems: Iterable[Problem], names: Mapping[LinkKey, str], color: bool = False
) -> list[str]:
    """One line for each request that is not carried out: its interface, and the reason."""
    lines = []
    for problem in problems:
        outcome = "left alone"
        if problem.code not in INFORMATION:
            outcome = _colored("not done", good=False, color=color)
        link = problem.link and (names.get(problem.link) or str(problem.link))
        lines.append(": ".join(filter(None, (outcome, link, problem.text))))
    return lines


def applied(state: str, changed: int, problems: Sequence[Problem], color: bool = False) -> str:
    """The last line of `neuca apply`: the state, and how many changes and shortfalls there are."""
    left = sum(problem.code not in INFORMATION for problem in problems)
    parts = [f"{changed} changed" if changed else "nothing to do"]
    if left:
        parts.append(f"{left} not done")
    return f"{_colored(state, good=state == 'ok', color=color)}: {', '.join(parts)}"


def tuning(data: Mapping[str, Any], color: bool = False) -> str:
    """`neuca tune audit`: one line for each setting, then the notes."""
    lines = [f"profiles: {', '.join(data['profiles']) or 'none'}"]
    if data["values"]:
        head = ["INTERFACE", "SETTING", "CURRENT", "WANTED", "SOURCE", "EFFECT"]
        lines += table([head, *(_tuning_row(one) for one in data["values"])])
    else:
        lines.append("nothing to tune")
    mark = _colored("not done", good=False, color=color)
    lines += [f"{mark}: {problem['text']}" for problem in data["problems"]]
    return "\n".join([*lines, *data["notes"]])


def _tuning_row(value: Mapping[str, Any]) -> list[str]:
    shown = [value[name] or "-" for name in ("interface", "setting", "current", "wanted")]
    return [*shown, value["source"], effect_text(value["effect"], value["reason"])]


def tree(data: Union[Mapping[str, object], Sequence[object]], indent: int = 0) -> str:
    """JSON data as an indented outline, without values that are null or empty."""
    pad = " " * indent
    if not isinstance(data, Mapping):
        return "\n".join(_branch(f"{pad}-", value, indent) for value in data)
    shown = {key: value for key, value in data.items() if value not in EMPTY}
    return "\n".join(_branch(f"{pad}{key}:", value, indent) for key, value in shown.items())


def _branch(head: str, value: object, indent: int) -> str:
    if isinstance(value, (Mapping, list)):
        return f"{head}\n{tree(value, indent + 2)}"
    if "\n" not in str(value):
        return f"{head} {value}"
    pad = " " * (indent + 4)
    return "\n".join([head, *(f"{pad}{line}" for line in str(value).split("\n"))])


def explain(data: Mapping[str, Any]) -> str:
    """`neuca explain`: the result of `render_json.explanation` as a table."""
    rows = [["SETTING", "REQUESTED", "CURRENT", "SOURCE", "OVERRIDES", "ORIGINAL"]]
    names = [row["found"] or row["asked"] for row in data["settings"] if row["setting"] == "name"]
    link = next(iter(names), None) or OWN
    for row in data["settings"]:
        values = [row[name] for name in ("asked", "found", "from", "overrode", "original")]
        rows.append([_setting(row["setting"], link), *map(_cell, values)])
    lines = [f"{data['link']}: {data['role']}, because {data['reason']}", *table(rows)]
    lines += [f"{problem['code']}: {problem['text']}" for problem in data["problems"]]
    lines += [_note(note) for note in data["notes"]]
    return "\n".join(lines)


def _cell(value: object) -> str:
    return "-" if value in (None, "") else str(value)


def _setting(setting: str, link: str) -> str:
    """The name of a setting as sysctl(8) has it: `sysctl.net.ipv6.conf.eth1.accept_ra`."""
    if not setting.startswith(SYSCTL):
        return setting
    return SYSCTL + dotted(setting[len(SYSCTL) :].replace(OWN, link))
