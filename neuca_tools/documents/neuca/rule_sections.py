"""Parse routing rules: sections `[rule NAME]` with the keys of netplan's `routing-policy`."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from neuca_tools.documents.neuca import route_lines, values
from neuca_tools.documents.neuca.ini import Line
from neuca_tools.documents.neuca.values import UnusableError
from neuca_tools.documents.privacy import is_rule
from neuca_tools.model import Fault, Network
from neuca_tools.model.routing import MAX_U32, Rule, RuleRequest
from neuca_tools.model.rows import UnknownWord

MAX_RULES = 1024
# Before the rules of policy routing, which begin at 31000, and after all that have a priority.
DEFAULT_PRIORITY = 30900
_MARK = r"0x[0-9a-f]{1,8}|[0-9]{1,10}"


def _read_mark(text: str) -> tuple[int, int]:
    """`MARK` or `MARK/MASK`, decimal or hexadecimal. A mark of 0 would select unmarked packets."""
    mark, slash, mask = text.partition("/")
    number = _mark_number(mark)
    bits = _mark_number(mask) if slash else MAX_U32
    if not number & bits:
        raise UnusableError(f'"{values.clip(text)}" selects packets without a mark')
    if number & ~bits:
        raise UnusableError(f'"{values.clip(text)}" is a mark with bits outside its mask')
    return number, bits


def _mark_number(text: str) -> int:
    digits = text.strip().lower()
    number = -1
    if re.fullmatch(_MARK, digits):
        number = int(digits, 16 if digits.startswith("0x") else 10)
    if not 0 <= number <= MAX_U32:
        raise UnusableError(f'"{values.clip(text)}" is not a mark')
    return number


READERS: Mapping[str, Callable[[str], Any]] = {
    "from": values.network,
    "to": values.network,
    "table": values.table,
    # 0, 32766 and 32767 are the kernel's own rules.
    "priority": partial(values.integer, low=1, high=32765, what="the priority"),
    "mark": _read_mark,
    "type-of-service": route_lines.type_of_service,
}


def rules_of(selectors: Mapping[str, Any]) -> list[Rule]:
    """The rule with these values, for each family if it has no address. Raises UnusableError."""
    if "table" not in selectors:
        raise UnusableError("a rule without a table")
    networks: dict[str, Network] = {
        key: selectors[key] for key in ("from", "to") if key in selectors
    }
    families = {network.version for network in networks.values()}
    if len(families) > 1:
        raise UnusableError("from and to are not of the same family")
    # A /0 is not a selector, as in the kernel's answers.
    prefixes = {key: str(network) for key, network in networks.items() if network.prefixlen}
    mark, mask = selectors.get("mark", (0, 0))
    tos = selectors.get("type-of-service", 0)
    rules = []
    for family in sorted(families or (4, 6)):
        route_lines.check_type_of_service(family, tos)
        rule = Rule(family, selectors.get("priority", DEFAULT_PRIORITY), selectors["table"])
        source, to = prefixes.get("from", ""), prefixes.get("to", "")
        rules.append(rule._replace(source=source, to=to, mark=mark, mask=mask, tos=tos))
    return rules


def read(lines: Iterable[Line], faults: list[Fault]) -> tuple[RuleRequest, ...]:
    """The rules of all sections. One with an unusable line is a fault, and ignored as a whole."""
    sections: dict[str, list[Line]] = {}
    for line in lines:
        if is_rule(line.section):
            sections.setdefault(line.section, []).append(line)
    requests: list[RuleRequest] = []
    for section in sections.values():
        requests += _read_section(section, faults)
        if len(requests) > MAX_RULES:
            faults.append(section[0].fault(f"more than {MAX_RULES} rules, ignoring the rest"))
            break
    return tuple(requests[:MAX_RULES])


def _read_value(line: Line) -> Any:  # noqa: ANN401 - as the reader of the key returns it
    if line.key not in READERS:
        known = tuple(sorted(READERS))
        reason = f"unknown key; known are {', '.join(known)}"
        raise UnusableError(reason, UnknownWord("key", line.key, known))
    return READERS[line.key](line.value)


def _read_section(lines: list[Line], faults: list[Fault]) -> list[RuleRequest]:
    selectors: dict[str, Any] = {}
    before = len(faults)
    for line in lines:
        try:
            selectors[line.key] = _read_value(line)
        except UnusableError as reason:
            faults.append(line.fault(f"{reason}, ignoring the rule", unknown=reason.unknown))
    first = lines[0]
    try:
        if len(faults) == before:
            return [RuleRequest(rule, first.where) for rule in rules_of(selectors)]
    except UnusableError as reason:
        faults.append(first.fault(f"{reason}, ignoring the rule"))
    return []
