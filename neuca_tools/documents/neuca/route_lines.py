"""Parse the lines of `[routes]`: next hops, then route properties named as in ip-route(8)."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from functools import partial
from typing import Any

from neuca_tools.documents.neuca import link_kinds, values
from neuca_tools.documents.neuca.ini import Line
from neuca_tools.documents.neuca.values import UnusableError
from neuca_tools.model import Host, LinkKey, Network, RouteRequest, RouteState
from neuca_tools.model.links import KINDS as LINK_KINDS
from neuca_tools.model.routing import KINDS, MAX_U32, RouteKind, Traits
from neuca_tools.model.rows import UnknownWord

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
