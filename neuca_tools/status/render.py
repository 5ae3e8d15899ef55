"""Status, plans, settings and explanations as text for a terminal."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from textwrap import wrap
from typing import Any, Optional

from neuca_tools.documents.neuca.values import dotted_name
from neuca_tools.model import OWN, Problem
from neuca_tools.model.clouds import CLOUDS
from neuca_tools.model.printable import GREEN, RED, YELLOW, painted_text
from neuca_tools.plan.operation import Operation
from neuca_tools.status.audit import SYSCTL, effect_text
from neuca_tools.status.judge import INFORMATIVE_CODES, Names

COLOR_BY_STATE = {"ok": GREEN, "pending": YELLOW, "degraded": YELLOW, "failed": RED}
INTERFACE_HEAD = (
    *("", "NAME", "ROLE", "MODE", "LINK", "MTU", "ID"),
    *("NM", "NETWORKD"),  # network managers, in the order of `state.leftovers.TITLES`
)
NOT_CHECKED = "--"  # the mark of an interface of which nothing is requested
WIDTH = 80  # characters of a line, if the width of the terminal is not given
NARROWEST = 6  # characters of a column
PLATFORM_TEXTS = {
    **{cloud.kind: f"{cloud.label}, as the firmware (DMI) says" for cloud in CLOUDS},
    "unknown": "not named by the firmware (DMI), so no well-known address is queried",
    "any": "not checked (platform = any)",
}


def table_lines(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """A text for each row, with left-aligned columns two spaces apart; the first row is the head.

    Columns that are "-" in every row are left out. The widest cells are wrapped into several lines
    until the table is no wider than `width`; words are broken only if that makes it fit.
    """
    columns = [column for column in zip(*rows) if set(column[1:]) != {"-"}]
    widths = _column_widths(columns, width)
    return ["\n".join(_row_lines(row, widths)) for row in zip(*columns)]


def _column_widths(columns: Sequence[Sequence[str]], width: int) -> list[int]:
    """The width of each column: the widest ones lose a character each time until all fit."""
    widths = [max(1, *map(len, column)) for column in columns]
    words = [max(map(len, " ".join(column).split()), default=1) for column in columns]
    width -= 2 * (len(widths) - 1)  # that of the gaps
    can_fit = sum(min(word, NARROWEST) for word in words) <= width
    for minimum in (words, [NARROWEST] * len(columns)) if can_fit else (words,):
        for _ in range(sum(widths) - width):
            spare = [max(0, observed - need) for observed, need in zip(widths, minimum)]
            if any(spare):
                widest = max(range(len(widths)), key=lambda at: (spare[at] > 0, widths[at]))
                widths[widest] -= 1
    return widths


def _row_lines(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    cells = [wrap(cell, size, break_on_hyphens=False) for cell, size in zip(row, widths)]
    for parts in zip_longest(*cells, fillvalue=""):
        yield "  ".join(map(str.ljust, parts, widths)).rstrip()


def status_text(data: Mapping[str, Any], color: bool, width: int = WIDTH) -> str:
    """`neuca status`: a row for each interface, with its addresses, problems and notes below."""
    not_rolled_back = data.get("not_rolled_back") or ()
    lines = [f"{_colored_by_state('failed', 'failed', color)}: {text}" for text in not_rolled_back]
    lines.append(_headline_text(data, color))
    platform = data["document"].get("platform")
    if platform:
        lines.append(f"platform: {PLATFORM_TEXTS.get(platform, platform)}")
    reported = {problem["text"] for problem in data["problems"]}
    if data.get("unsaved") and data["unsaved"] not in reported:
        lines.append(f"degraded: not saved: {data['unsaved']}")
    lines.append(_last_pass_line(data["last_pass"]))
    lines += _interface_lines(data["interfaces"], color, width)
    mark = _colored_by_state("!!", _severity_of_problems(data), color)
    lines += [f"{mark} {problem['code']}: {problem['text']}" for problem in data["problems"]]
    lines += _guest_lines(data.get("guest") or ())
    lines += [f"   note: {note}" for note in data["notes"]]
    return "\n".join(lines)


def _headline_text(data: Mapping[str, Any], color: bool) -> str:
    document = data["document"]
    origin, reason = "no document", ""
    if document["source"]:
        origin = f"document of {document['source']}, read {document['fetched']}"
    if document["stale"]:
        reason = f", stale: {document['reason']}"
    elif document["reason"]:
        reason = f" ({document['reason']})"
    state = _colored_by_state(data["state"], data["state"], color)
    return f"{state}: neuca {data['neuca']}, {origin}{reason}"


def _interface_lines(interfaces: Sequence[Mapping[str, Any]], color: bool, width: int) -> list[str]:
    if not interfaces:
        return ["no interfaces"]
    head, *rows = table_lines([INTERFACE_HEAD, *map(_interface_row, interfaces)], width)
    for at, interface in enumerate(interfaces):
        mark = rows[at][:2]
        state = "ok" if interface["ok"] else _severity_of_problems(interface)
        rows[at] = _colored_by_state(mark, state, color and mark != NOT_CHECKED) + rows[at][2:]
    return [head, *_with_details(rows, map(_lines_below, interfaces))]


def _with_details(rows: Iterable[str], details: Iterable[Iterable[str]]) -> Iterator[str]:
    for row, texts in zip(rows, details):
        yield row
        yield from (f"      {text}" for text in texts)


def _lines_below(interface: Mapping[str, Any]) -> Iterator[str]:
    """What is shown below the row of an interface; link-local addresses are in the JSON only."""
    if interface["desired_name"] not in (None, interface["name"]):
        yield f"desired name: {interface['desired_name']}"
    addresses = _without_link_local(interface["addresses"])
    if addresses:
        yield f"addresses: {addresses}"
    if interface.get("table"):
        yield f"routing table: {interface['table']}"
    for problem in interface["problems"]:
        yield f"{problem['code']}: {problem['text']}"
    yield from map(_note_text, interface["notes"])


def _without_link_local(addresses: Iterable[str]) -> str:
    return ", ".join(text for text in addresses if not text.startswith("fe80:"))


def _interface_row(interface: Mapping[str, Any]) -> list[str]:
    return [
        _interface_mark(interface),
        _cell_text(interface["name"]),
        interface["role"],
        _cell_text(interface["desired_state"]),
        _link_state(interface),
        _cell_text(interface["mtu"]),
        _identity_cell(interface),
        *("-" if state == "absent" else state for state in interface["managers"].values()),
    ]


def _interface_mark(interface: Mapping[str, Any]) -> str:
    """Two characters: "ok", "!!", or "--" for an interface of which nothing is requested."""
    if not interface["ok"]:
        return "!!"
    return "ok" if interface["role"] in ("dataplane", "management") else NOT_CHECKED


def _link_state(interface: Mapping[str, Any]) -> str:
    if interface["state"] == "up" and not interface["carrier"]:
        return "no carrier"
    return _cell_text(interface["state"])


def _severity_of_problems(holder: Mapping[str, Any]) -> str:
    """The state whose color the problems of the host or of an interface have."""
    codes = [problem["code"] for problem in holder["problems"]]
    return "failed" if "failed" in codes else "degraded"


def _identity_cell(interface: Mapping[str, Any]) -> str:
    """The MAC of a NIC; of other links, the kind and the lower devices."""
    if interface["mac"]:
        return str(interface["mac"])
    if interface["vlan_id"]:
        return f"VLAN {interface['vlan_id']} on {interface['parent']}"
    if interface["members"]:
        return f"{interface['kind']} of {', '.join(interface['members'])}"
    return f"{interface['kind']} on {interface['parent'] or 'nothing'}"


def _note_text(note: Mapping[str, str]) -> str:
    return f"note: {note['setting']}: {note['effect']}: {note['reason']}"


def _guest_lines(features: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The state of each feature of the guest, with the findings that are not problems."""
    states = ", ".join(f"{feature['feature']} {feature['state']}" for feature in features)
    if states:
        yield f"guest: {states}"
    for feature in features:
        for finding in feature["findings"]:
            if finding["state"] in ("ok", "pending"):
                yield f"      {feature['feature']}: {finding['text']}"


def _last_pass_line(last: Optional[Mapping[str, Any]]) -> str:
    if last is None:
        return "no pass since the boot"
    counts = f"{last['changed']} changed, {last['failed']} failed"
    return f"last pass: {last['finished']}, {last['seconds']} s, {counts}"


def _colored_by_state(text: str, state: str, color: bool) -> str:
    return painted_text(text, COLOR_BY_STATE[state], color)


def plan_text(
    operations: Iterable[Operation], problems: Iterable[Problem], names: Names, color: bool = False
) -> str:
    """One line for each operation, in order, then one for each problem."""
    lines = [operation.text for operation in operations] or ["nothing to do"]
    return "\n".join([*lines, *unfulfilled_lines(problems, names, color)])


def unfulfilled_lines(problems: Iterable[Problem], names: Names, color: bool) -> Iterator[str]:
    """One line for each request that is not fulfilled: its interface, and the reason."""
    for problem in problems:
        outcome = "left alone"
        if problem.code not in INFORMATIVE_CODES:
            severity = "failed" if problem.code == "failed" else "degraded"
            outcome = _colored_by_state("not done", severity, color)
        link = problem.link and (names.get(problem.link) or str(problem.link))
        yield ": ".join(filter(None, (outcome, link, problem.text)))


def outcome_line(state: str, changed: int, problems: Sequence[Problem], color: bool) -> str:
    """The last line of `neuca apply`: the state, and how many things are changed and not done."""
    undone = sum(problem.code not in INFORMATIVE_CODES for problem in problems)
    parts = [f"{changed} changed" if changed else "nothing to do"]
    if undone:
        parts.append(f"{undone} not done")
    return f"{_colored_by_state(state, state, color)}: {', '.join(parts)}"


def tuning_text(data: Mapping[str, Any], color: bool = False, width: int = WIDTH) -> str:
    """`neuca tune audit`: one line for each setting, then the notes."""
    lines = [f"profiles: {', '.join(data['profiles']) or 'none'}"]
    if data["values"]:
        columns = ("interface", "setting", "desired", "current", "effect")
        rows = [[value[name] or "-" for name in columns] for value in data["values"]]
        head, *rest = table_lines([[name.upper() for name in columns], *rows], width)
        lines += [head, *_with_details(rest, map(_tuning_details, data["values"]))]
    else:
        lines.append("nothing to tune")
    mark = _colored_by_state("not done", "degraded", color)
    lines += [f"{mark}: {problem['text']}" for problem in data["problems"]]
    return "\n".join([*lines, *data["notes"]])


def _tuning_details(value: Mapping[str, Any]) -> Iterator[str]:
    yield f"origin: {value['origin']}"
    if value["reason"]:
        yield effect_text(value["effect"], value["reason"])


def explanation_text(data: Mapping[str, Any], width: int = WIDTH) -> str:
    """`neuca explain`: the result of `render_json.explain_link` as a table."""
    names = (row for row in data["settings"] if row["setting"] == "name")
    link = next((row["current"] or row["desired"] for row in names), None) or OWN
    rows = [_explained_row(row, link) for row in data["settings"]]
    head, *rest = table_lines([["SETTING", "DESIRED", "CURRENT", "ORIGINAL"], *rows], width)
    lines = [f"{data['link']}: {data['role']}, because {data['reason']}", head]
    lines += _with_details(rest, map(_origin_lines, data["settings"]))
    lines += [f"{problem['code']}: {problem['text']}" for problem in data["problems"]]
    lines += [_note_text(note) for note in data["notes"]]
    return "\n".join(lines)


def _explained_row(row: Mapping[str, Any], link: str) -> list[str]:
    current = row["current"]
    if row["setting"] == "addresses":
        current = _without_link_local((current or "").split(", "))
    values = (row["desired"], current, row["original"])
    return [_setting_name(row["setting"], link), *map(_cell_text, values)]


def _origin_lines(row: Mapping[str, Any]) -> Iterator[str]:
    if row["origin"]:
        yield f"origin: {row['origin']}"
    if row["overridden"]:
        yield f"overrides: {row['overridden']}"


def _cell_text(value: object) -> str:
    return "-" if value in (None, "") else str(value)


def _setting_name(setting: str, link: str) -> str:
    """The name of a setting as sysctl(8) has it: `sysctl.net.ipv6.conf.eth1.accept_ra`."""
    if not setting.startswith(SYSCTL):
        return setting
    return SYSCTL + dotted_name(setting[len(SYSCTL) :].replace(OWN, link))
