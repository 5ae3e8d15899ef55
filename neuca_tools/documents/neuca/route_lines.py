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
from neuca_tools.model.routing import KINDS, MAX_U32, Traits
from neuca_tools.model.rows import UnknownWord

MAX_NEXT_HOPS = 64  # of one route
SCOPES = ("global", "link", "host")
_STATES: dict[str, RouteState] = {"down": "absent", "user": "user"}
_KINDS = {kind: kind for kind in KINDS if kind != "unicast"}


def type_of_service(version: int, text: str) -> int:
    """A TOS (IPv4: its four bits of RFC 1349, as the kernel takes no others) or traffic class."""
    return kept_by_kernel(version, values.integer(text, 0, 255, "the type of service"))


def kept_by_kernel(version: int, number: int) -> int:
    """A type of service, if no bit of it is ignored. Raises UnusableError."""
    if version == 4 and number & ~0x1E:
        raise UnusableError(f'the type of service "{number}" has bits that IPv4 routing ignores')
    return number


metric = partial(values.integer, low=0, high=MAX_U32, what="the metric")
# An MSS leaves at least 8 bytes of data, and room for the headers in a packet of 65535 bytes.
advmss = partial(values.integer, low=8, high=65495, what="the advmss")
_TRAITS: dict[str, Callable[[str], Any]] = {
    "table": values.route_table,
    "mtu": values.mtu,
    "advmss": advmss,
    "scope": lambda text: values.word(text, SCOPES),
    "src": values.host,
}


def read_route(line: Line) -> RouteRequest:
    """`CIDR = next hop, ...`, a type of route, `down` or `user`, with properties behind."""
    to = values.network(line.key)
    state = _STATES.get(line.value.strip().lower())
    if state:
        return RouteRequest(to, state, None, line.where)
    hops, words = _split_next_hops(line.value)
    request = _with_properties(RouteRequest(to, "present", where=line.where), iter(words))
    if len(hops) == 1 and hops[0] in _KINDS:
        return request._replace(traits=request.traits._replace(kind=_KINDS[hops[0]]))
    if not hops and request.link is None:
        raise UnusableError("it has neither a next hop nor an interface")
    if len(hops) == 1 and hops[0].isalpha():
        unknown = UnknownWord("value", hops[0], (*_KINDS, *_STATES))
        raise UnusableError(f'"{hops[0]}" is not an IP address', unknown)
    vias = [_next_hop(to, text) for text in hops]
    return request._replace(via=next(iter(vias), None), others=tuple(vias[1:]))


def route_identity(line: Line) -> Hashable:
    """Equal for lines that request the same route: prefix, table, metric and type of service."""
    to = values.network(line.key)
    try:
        request = read_route(line)
    except UnusableError:
        return to
    return to, request.metric, request.traits.table, request.traits.tos


def _split_next_hops(text: str) -> tuple[list[str], list[str]]:
    """The next hops, separated by commas, and the words behind them."""
    *others, last = text.lower().split(",")
    words = last.split()
    count = 1 if words and words[0] not in (*_TRAITS, *_OTHERS) else 0
    hops = [hop.strip() for hop in others] + words[:count]
    if len(hops) > MAX_NEXT_HOPS:
        raise UnusableError(f"more than {MAX_NEXT_HOPS} next hops")
    return hops, words[count:]


def _next_hop(to: Network, text: str) -> Host:
    via = values.next_hop(text)
    if via.version != to.version:
        raise UnusableError(f'the next hop "{via}" is not of the family of "{to}"')
    return via


_OTHERS = ("metric", "interface", "on-link", "type-of-service")


def _with_properties(request: RouteRequest, words: Iterator[str]) -> RouteRequest:
    for word in words:
        if word == "on-link":
            request = request._replace(traits=request.traits._replace(onlink=True))
        elif word == "interface":
            request = request._replace(link=_read_link(_property_value(word, words), words))
        elif word == "metric":
            request = request._replace(metric=metric(_property_value(word, words)))
        else:
            traits = _with_trait(request, word, _property_value(word, words))
            request = request._replace(traits=traits)
    return request


def _property_value(word: str, words: Iterator[str]) -> str:
    if word not in (*_TRAITS, *_OTHERS):
        known = sorted((*_TRAITS, *_OTHERS))
        shown = values.clip(word)
        reason = f'unknown word "{shown}"; known are {", ".join(known)}'
        raise UnusableError(reason, UnknownWord("word", shown, tuple(known)))
    text = next(words, None)
    if text is None:
        raise UnusableError(f'"{word}" has no value')
    return text


def _with_trait(request: RouteRequest, word: str, text: str) -> Traits:
    version = request.to.version
    if word == "type-of-service":
        return request.traits._replace(tos=type_of_service(version, text))
    value = _TRAITS[word](text)
    if word != "src":
        return request.traits._replace(**{word: value})
    if value.version != version:
        raise UnusableError(f'the source "{value}" is not of the family of "{request.to}"')
    return request.traits._replace(source=value)


def _read_link(text: str, words: Iterator[str]) -> LinkKey:
    """The link after `interface`: a MAC address, or the two words of a virtual link."""
    if text in LINK_KINDS:
        text = f"{text} {next(words, '')}"
    return link_kinds.link_reference(text)
