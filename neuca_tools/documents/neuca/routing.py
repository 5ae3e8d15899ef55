"""Parse what routes packets: `[routes]`, sections `[rule NAME]`, and keys of link sections."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, cast

from neuca_tools.documents.neuca import link_kinds, values
from neuca_tools.documents.neuca.ini import Line
from neuca_tools.documents.neuca.values import UnusableError
from neuca_tools.documents.privacy import is_rule
from neuca_tools.model import Automatic, Fault, Host, LinkKey, Network, RouteRequest, RouteState
from neuca_tools.model.links import KINDS as LINK_KINDS
from neuca_tools.model.routing import (
    CHOICES,
    KINDS,
    MAIN_TABLE,
    MAX_U32,
    Choice,
    NicRouting,
    RouteKind,
    Rule,
    RuleRequest,
    Traits,
)
from neuca_tools.model.rows import UnknownWord

# --- Lines of `[routes]`: next hops, then route properties named as in ip-route(8) ----------------

MAX_NEXT_HOPS = 64  # of one route
SCOPES = ("global", "link", "host")
_STATES: dict[str, RouteState] = {"down": "absent", "user": "user"}
_KINDS: dict[str, RouteKind] = {kind: kind for kind in KINDS if kind != "unicast"}
metric = partial(values.integer, low=0, high=MAX_U32, what="the metric")
# An MSS leaves at least 8 bytes of data, and room for the headers in a packet of 65535 bytes.
advmss = partial(values.integer, low=8, high=65495, what="the advmss")
type_of_service = partial(values.integer, low=0, high=255, what="the type of service")
# The field of `Traits` that a property sets, and its reader.
_TRAITS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "table": ("table", values.route_table),
    "mtu": ("mtu", values.mtu),
    "advmss": ("advmss", advmss),
    "scope": ("scope", lambda text: values.word(text, SCOPES)),
    "src": ("source", values.host),
    "type-of-service": ("tos", type_of_service),
}
_PROPERTIES = ("metric", "interface", "on-link", *_TRAITS)


def check_type_of_service(version: int, number: int) -> None:
    """Raise UnusableError if IPv4 would ignore a bit: it has the four of RFC 1349."""
    if version == 4 and number & ~0x1E:
        raise UnusableError(f'the type of service "{number}" has bits that IPv4 routing ignores')


def read_route(line: Line) -> RouteRequest:
    """`CIDR = next hop, ...`, a type of route, `down` or `user`, with properties after it."""
    to = values.network(line.key)
    state = _STATES.get(line.value.strip().lower())
    if state:
        return RouteRequest(to, state, None, line.where)
    hops, words = _split_next_hops(line.value)
    request = _with_properties(RouteRequest(to, "present", where=line.where), iter(words))
    kind = _KINDS.get(hops[0].lower()) if len(hops) == 1 else None
    if kind or not hops:
        # The kernel refuses on-link without a next hop, which it is about.
        traits = request.traits._replace(kind=kind or "unicast", onlink=False)
        request = request._replace(traits=traits)
    if kind:
        return request
    if not hops and request.link is None:
        raise UnusableError("it has neither a next hop nor an interface")
    return _with_next_hops(request, hops)


def route_identity(line: Line) -> Hashable:
    """Equal for lines that request the same route: prefix, table, metric and type of service."""
    to = values.network(line.key)
    try:
        request = read_route(line)
    except UnusableError:
        return to
    return to, request.metric, request.traits.table, request.traits.tos


def _split_next_hops(text: str) -> tuple[list[str], list[str]]:
    """The next hops, separated by commas, and the words after them."""
    *others, last = text.split(",")
    words = last.split()
    count = 1 if words and words[0].lower() not in _PROPERTIES else 0
    hops = [hop.strip() for hop in others] + words[:count]
    if len(hops) > MAX_NEXT_HOPS:
        raise UnusableError(f"more than {MAX_NEXT_HOPS} next hops")
    return hops, words[count:]


def _with_next_hops(request: RouteRequest, hops: list[str]) -> RouteRequest:
    if len(hops) == 1 and hops[0].isalpha():
        unknown = UnknownWord("value", hops[0], (*_KINDS, *_STATES))
        raise UnusableError(f'"{hops[0]}" is not an IP address', unknown)
    vias = [_next_hop(request.to, text) for text in hops]
    return request._replace(via=next(iter(vias), None), others=tuple(vias[1:]))


def _next_hop(to: Network, text: str) -> Host:
    via = values.next_hop(text)
    if via.version != to.version:
        raise UnusableError(f'the next hop "{via}" is not of the family of "{to}"')
    return via


def _with_properties(request: RouteRequest, words: Iterator[str]) -> RouteRequest:
    traits: dict[str, Any] = {}
    for word in words:
        name = word.lower()
        if name == "on-link":
            traits["onlink"] = True
            continue
        text = _property_value(name, words)
        if name == "interface":
            request = request._replace(link=_read_link(text, words))
        elif name == "metric":
            request = request._replace(metric=metric(text))
        else:
            field, read = _TRAITS[name]
            traits[field] = read(text)
    request = request._replace(traits=Traits(**traits))
    source, version = request.traits.source, request.to.version
    if source and source.version != version:
        raise UnusableError(f'the source "{source}" is not of the family of "{request.to}"')
    check_type_of_service(version, request.traits.tos)
    return request


def _property_value(name: str, words: Iterator[str]) -> str:
    if name not in _PROPERTIES:
        known = tuple(sorted(_PROPERTIES))
        shown = values.clip(name)
        reason = f'unknown word "{shown}"; known are {", ".join(known)}'
        raise UnusableError(reason, UnknownWord("word", shown, known))
    text = next(words, None)
    if text is None:
        raise UnusableError(f'"{name}" has no value')
    return text


def _read_link(text: str, words: Iterator[str]) -> LinkKey:
    """The link after `interface`: a MAC address, or the two words of a virtual link."""
    if text.lower() in LINK_KINDS:
        text = f"{text.lower()} {next(words, '')}"
    return link_kinds.link_reference(text)


# --- Sections `[rule NAME]`, with the keys of netplan's `routing-policy` --------------------------

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


RULE_READERS: Mapping[str, Callable[[str], Any]] = {
    "from": values.network,
    "to": values.network,
    "table": values.table,
    # 0, 32766 and 32767 are the kernel's own rules.
    "priority": partial(values.integer, low=1, high=32765, what="the priority"),
    "mark": _read_mark,
    "type-of-service": type_of_service,
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
        check_type_of_service(family, tos)
        rule = Rule(family, selectors.get("priority", DEFAULT_PRIORITY), selectors["table"])
        source, to = prefixes.get("from", ""), prefixes.get("to", "")
        rules.append(rule._replace(source=source, to=to, mark=mark, mask=mask, tos=tos))
    return rules


def read_rules(lines: Iterable[Line], faults: list[Fault]) -> tuple[RuleRequest, ...]:
    """The rules of all sections. One with an unusable line is a fault, and ignored as a whole."""
    sections: dict[str, list[Line]] = {}
    for line in lines:
        if is_rule(line.section):
            sections.setdefault(line.section, []).append(line)
    requests: list[RuleRequest] = []
    for section in sections.values():
        requests += _read_rule(section, faults)
        if len(requests) > MAX_RULES:
            faults.append(section[0].fault(f"more than {MAX_RULES} rules, ignoring the rest"))
            break
    return tuple(requests[:MAX_RULES])


def _rule_value(line: Line) -> Any:  # noqa: ANN401 - as the reader of the key returns it
    if line.key not in RULE_READERS:
        known = tuple(sorted(RULE_READERS))
        reason = f"unknown key; known are {', '.join(known)}"
        raise UnusableError(reason, UnknownWord("key", line.key, known))
    return RULE_READERS[line.key](line.value)


def _read_rule(lines: list[Line], faults: list[Fault]) -> list[RuleRequest]:
    selectors: dict[str, Any] = {}
    before = len(faults)
    for line in lines:
        try:
            selectors[line.key] = _rule_value(line)
        except UnusableError as reason:
            faults.append(line.fault(f"{reason}, ignoring the rule", unknown=reason.unknown))
    first = lines[0]
    try:
        if len(faults) == before:
            return [RuleRequest(rule, first.where) for rule in rules_of(selectors)]
    except UnusableError as reason:
        faults.append(first.fault(f"{reason}, ignoring the rule"))
    return []


# --- Keys of a link section: policy routing, DHCP and router advertisements -----------------------


def _read_gateways(text: str) -> NicRouting:
    """One address, or one of each family. The key has no other use, so `auto` stands for `yes`."""
    gateways = tuple(values.next_hop(part) for part in text.split(",") if part.strip())
    if len({gateway.version for gateway in gateways}) < len(gateways):
        raise UnusableError("two gateways of the same family")
    return NicRouting(gateways=gateways, implied=True)


def _read_table(text: str) -> NicRouting:
    number = values.table(text)
    if number == MAIN_TABLE:
        raise UnusableError("the main table cannot be that of one link")
    return NicRouting(table=number)


LINK_READERS: Mapping[str, Callable[[str], NicRouting]] = {
    "gateway": _read_gateways,
    "policy-routing": lambda text: NicRouting(choice=cast(Choice, values.word(text, CHOICES))),
    "table": _read_table,
}


def shown_values(routing: NicRouting) -> dict[str, str]:
    """The values that are set, by key, for display."""
    values_of = {
        "gateway": ", ".join(map(str, routing.gateways)),
        "policy-routing": routing.choice or "",
        "table": str(routing.table or ""),
    }
    return {key: value for key, value in values_of.items() if value}


# The keys that set the fields of `Automatic` with these names.
AUTOMATIC = ("dhcp4", "dhcp6", "accept-ra")
_WORDS = {"yes": True, "no": False}


def read_automatic(link: LinkKey, key: str, text: str) -> tuple[Automatic, str]:
    """The request of one line, and its value for display. Raises UnusableError."""
    if link.kind == "vrf":
        raise UnusableError("a VRF can have neither DHCP nor router advertisements")
    word = values.word(text, _WORDS)
    changes: dict[str, Any] = {key.replace("-", "_"): _WORDS[word]}
    return Automatic(**changes), word
