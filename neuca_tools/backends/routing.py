"""Reads and writes routes of every table, and routing rules, as messages of rtnetlink(7).

The messages are made here rather than by pyroute2, because a request to delete a rule that lacks
one attribute deletes the first rule that the others match, whoever added it.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
import math
import socket
import struct
from collections.abc import Iterator, Mapping
from ipaddress import ip_address, ip_network
from typing import Callable, Optional

from neuca_tools.backends import wire
from neuca_tools.dataclass import NamedTuple, replace
from neuca_tools.errors import ApplyError, ObserveError
from neuca_tools.files import applying
from neuca_tools.model import Host, Network, Route
from neuca_tools.model.routing import (
    KINDS,
    MAIN_TABLE,
    ROUTE_PROTOCOL,
    RouteKind,
    Rule,
    SeenRule,
    Traits,
)

NEW_ROUTE, DELETE_ROUTE, GET_ROUTE = 24, 25, 26  # RTM_*ROUTE
NEW_RULE, DELETE_RULE, GET_RULE = 32, 33, 34  # RTM_*RULE
EXCLUSIVE = 0x200  # NLM_F_EXCL
# struct rtmsg, and struct fib_rule_hdr with the same layout: family, lengths of destination and
# source, TOS, table, protocol, scope, type, flags.
_HEAD = struct.Struct("=BBBBBBBBI")
_NEXT_HOP = struct.Struct("=HBBi")  # struct rtnexthop: length, flags, hops, ifindex
# RTA_*, and RTAX_* in RTA_METRICS
_DST, _OIF, _GATEWAY, _PRIORITY, _PREFSRC, _METRICS, _MULTIPATH, _TABLE = 1, 4, 5, 6, 7, 8, 9, 15
_CACHE_INFO, _LIFETIME, _NEXT_HOP_ID = 12, 23, 30
_EXPIRES, _TICKS = struct.Struct("=8xi"), 100  # rta_expires in struct rta_cacheinfo, USER_HZ
_APPEND = 0x800  # NLM_F_APPEND
_MTU, _ADVMSS = 2, 8
# FRA_*; FRA_L3MDEV is a whole table of its own.
_TO, _FROM, _RULE_PRIORITY, _MARK, _SUPPRESS, _RULE_TABLE, _MASK = 1, 2, 6, 10, 14, 15, 16
_SUPPRESS_GROUP, _RULE_PROTOCOL = 13, 21
_KNOWN = frozenset(
    (_TO, _FROM, _RULE_PRIORITY, _MARK, _SUPPRESS, _RULE_TABLE, _MASK, _SUPPRESS_GROUP)
) | {_RULE_PROTOCOL}
_LOOKUP, _INVERT = 1, 2  # FR_ACT_TO_TBL, FIB_RULE_INVERT
_ONLINK = 4  # RTNH_F_ONLINK
_CLONED = 0x200  # RTM_F_CLONED: an entry of the cache of IPv6
_COMPATIBLE = 252  # RT_TABLE_COMPAT: the number is in an attribute
_LOCAL_TABLE = 255
_NOTHING = 0xFFFFFFFF  # the value of an attribute that is not set
_TYPES: Mapping[RouteKind, int] = dict(zip(KINDS, (1, 6, 7, 8)))  # RTN_*
_NAMES = {number: name for name, number in _TYPES.items()}
_SCOPES = {"global": 0, "link": 253, "host": 254}  # RT_SCOPE_*
_FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}
_VERSIONS = {int(family): version for version, family in _FAMILIES.items()}
_ANYWHERE = {4: "0.0.0.0", 6: "::"}
# How a kernel without IPv6, or without rules, answers.
_MISSING = (errno.EAFNOSUPPORT, errno.EOPNOTSUPP)


class Routing(NamedTuple):
    """The routes of ours, the foreign unicast routes of other tables than main, and all rules."""

    ours: tuple[Route, ...] = ()
    foreign: tuple[Route, ...] = ()
    rules: tuple[SeenRule, ...] = ()


def read() -> Routing:
    """The routes and rules of both families. Raises ObserveError."""
    ours: list[Route] = []
    foreign: list[Route] = []
    rules: list[SeenRule] = []
    try:
        with wire.Socket(socket.NETLINK_ROUTE) as kernel:
            for version in (4, 6):
                for route in _routes(kernel, version):
                    (ours if route.protocol == ROUTE_PROTOCOL else foreign).append(route)
                rules += _rules(kernel, version)
    except (OSError, ValueError, struct.error) as error:
        cause = getattr(error, "strerror", "") or error
        raise ObserveError(f"ask the kernel for its routing tables and rules: {cause}") from error
    return Routing(tuple(ours), tuple(foreign), tuple(rules))


def _dump(
    kernel: wire.Socket, kind: int, version: int, keep: Callable[[bytes], bool] = bool
) -> list[bytes]:
    """The answers to a dump; empty if the kernel does not have this family."""
    request = _HEAD.pack(_FAMILIES[version], 0, 0, 0, 0, 0, 0, 0, 0)
    try:
        return kernel.dump(kind, request, keep)
    except OSError as error:
        if error.errno in _MISSING:
            return []
        raise


# --- Routes ---------------------------------------------------------------------------------------


def _routes(kernel: wire.Socket, version: int) -> Iterator[Route]:
    """Our routes, and the routes of tables that are not the kernel's own."""
    # A host may have a million routes in the main table: they are passed over unparsed.
    for body in _dump(kernel, GET_ROUTE, version, _is_relevant):
        family, length, _, tos, table, protocol, scope, kind, flags = _HEAD.unpack_from(body)
        if family == _FAMILIES[version] and not flags & _CLONED:
            values = dict(wire.attributes(body[_HEAD.size :]))
            shape = Traits(_number(values, _TABLE, table), _NAMES[kind], tos=tos)
            route = _route(version, length, (protocol, scope, flags), shape, values)
            yield route if protocol == ROUTE_PROTOCOL else replace(route, message=body)


def _is_relevant(body: bytes) -> bool:
    _, _, _, _, table, protocol, _, kind, _ = _HEAD.unpack_from(body)
    is_ours = protocol == ROUTE_PROTOCOL or table not in (MAIN_TABLE, _LOCAL_TABLE)
    return is_ours and kind in _NAMES


def _route(
    version: int,
    length: int,
    head: tuple[int, int, int],
    shape: Traits,
    values: Mapping[int, bytes],
) -> Route:
    protocol, scope, flags = head
    metrics = dict(wire.attributes(values.get(_METRICS, b"")))
    hops = list(_next_hops(values)) or [(_number(values, _OIF), _host(values.get(_GATEWAY)), flags)]
    index, via, flags = hops[0]
    if shape.kind != "unicast":
        index = 0  # that of lo, for IPv6
    usual = usual_scope(version, shape.kind, via)
    traits = Traits(
        shape.table,
        shape.kind,
        "" if version == 6 or _SCOPES[usual] == scope else _scope_name(scope),
        bool(flags & _ONLINK),
        _number(metrics, _MTU),
        _number(metrics, _ADVMSS),
        _host(values.get(_PREFSRC)),
        shape.tos,
    )
    to = ip_network((values.get(_DST, ip_address(_ANYWHERE[version]).packed), length))
    others = tuple((number, gateway) for number, gateway, _ in hops[1:])
    metric = _number(values, _PRIORITY)
    return Route(to, index, via, metric, protocol, traits=traits, others=others)


def usual_scope(version: int, kind: str, via: Optional[Host]) -> str:
    """The scope that ip-route(8) gives a route."""
    return "link" if version == 4 and kind == "unicast" and via is None else "global"


def _scope_name(scope: int) -> str:
    return next((name for name, number in _SCOPES.items() if number == scope), str(scope))


def _next_hops(values: Mapping[int, bytes]) -> Iterator[tuple[int, Optional[Host], int]]:
    """Device, address and flags of each next hop of a route with several."""
    data = values.get(_MULTIPATH, b"")
    while len(data) >= _NEXT_HOP.size:
        length, flags, _, index = _NEXT_HOP.unpack_from(data)
        if not _NEXT_HOP.size <= length <= len(data):
            raise wire.garbled("a next hop")
        found = dict(wire.attributes(data[_NEXT_HOP.size : length]))
        yield index, _host(found.get(_GATEWAY)), flags
        data = data[length + -length % 4 :]


def _number(values: Mapping[int, bytes], kind: int, default: int = 0) -> int:
    data = values.get(kind)
    return default if data is None else int(struct.unpack_from("=I", data)[0])


def _host(data: Optional[bytes]) -> Optional[Host]:
    return None if data is None else ip_address(data)


def replace_route(route: Route) -> None:
    """Set a route, replacing one with the same prefix, table, TOS and metric. Raises ApplyError."""
    _change(NEW_ROUTE, wire.CREATE | wire.REPLACE, _route_message(route))


def delete_route(route: Route) -> None:
    """Delete a route of ours, unless it is gone. Raises ApplyError."""
    _change(DELETE_ROUTE, 0, _route_message(route), (errno.ESRCH, errno.ENODEV))


def restore_route(message: bytes, indexes: Mapping[int, int], elapsed: float) -> None:
    """Set a route as a dump has described it so many seconds ago. Raises ApplyError.

    `indexes` has the present index of each device that may have another one than in the message. A
    route that would have expired by now is left out. The kernel drops a next hop object with its
    device: what it stood for takes its place.
    """
    for body in _restored(message, indexes, elapsed):
        _change(NEW_ROUTE, wire.CREATE | _APPEND, body, (errno.EEXIST,))


def _restored(message: bytes, indexes: Mapping[int, int], elapsed: float) -> Iterator[bytes]:
    """The bodies of the requests; none for a route that has expired.

    One for each next hop of an IPv6 route: for the kernel they are routes by themselves, of which
    some may be left. NLM_F_REPLACE would not do, as it takes the first of the same metric, through
    whatever device.
    """
    *head, flags = _HEAD.unpack_from(message)
    parts, hops = [_HEAD.pack(*head, flags & _ONLINK)], [b""]
    for kind, value in wire.attributes(message[_HEAD.size :]):
        if kind == _OIF:
            index = wire.integer(value)
            parts.append(wire.number(kind, indexes.get(index, index)))
        elif kind == _MULTIPATH:
            hops = list(_rebound(value, indexes))
        elif kind == _CACHE_INFO:
            (expires,) = _EXPIRES.unpack_from(value)
            left = math.ceil(expires / _TICKS - elapsed)
            if expires and left <= 0:
                return
            parts += [wire.number(_LIFETIME, left)] if expires else []
        elif kind != _NEXT_HOP_ID:
            parts.append(wire.attribute(kind, value))
    if head[0] == _FAMILIES[4]:
        hops = [b"".join(hops)]
    for hop in hops:
        yield b"".join((*parts, wire.attribute(_MULTIPATH, hop) if hop else b""))


def _rebound(data: bytes, indexes: Mapping[int, int]) -> Iterator[bytes]:
    """The next hops of a route with several, with these indexes of their devices."""
    while data:
        length, flags, hops, index = _NEXT_HOP.unpack_from(data)
        head = _NEXT_HOP.pack(length, flags & _ONLINK, hops, indexes.get(index, index))
        yield head + data[_NEXT_HOP.size : length + -length % 4]
        data = data[length + -length % 4 :]


def _route_message(route: Route) -> bytes:
    traits, version = route.traits, route.to.version
    scope = _SCOPES[traits.scope or usual_scope(version, traits.kind, route.via)]
    flags = _ONLINK if traits.onlink else 0
    head = _HEAD.pack(
        _FAMILIES[version],
        route.to.prefixlen,
        0,
        traits.tos,
        _short(traits.table),
        route.protocol,
        scope,
        _TYPES[traits.kind],
        0 if route.others else flags,
    )
    parts = [
        head,
        wire.attribute(_DST, route.to.network_address.packed),
        wire.number(_TABLE, traits.table),
        wire.number(_PRIORITY, route.metric),
    ]
    if traits.source:
        parts.append(wire.attribute(_PREFSRC, traits.source.packed))
    metrics = ((_MTU, traits.mtu), (_ADVMSS, traits.advmss))
    given = [wire.number(kind, value) for kind, value in metrics if value]
    if given:
        parts.append(wire.nest(_METRICS, *given))
    if route.others:
        hops = ((route.index, route.via), *route.others)
        parts.append(wire.attribute(_MULTIPATH, b"".join(_hop(*hop, flags) for hop in hops)))
    else:
        parts += _gateway(route.via)
        if route.index:
            parts.append(wire.number(_OIF, route.index))
    return b"".join(parts)


def _gateway(via: Optional[Host]) -> list[bytes]:
    return [] if via is None else [wire.attribute(_GATEWAY, via.packed)]


def _hop(index: int, via: Optional[Host], flags: int) -> bytes:
    body = b"".join(_gateway(via))
    return _NEXT_HOP.pack(_NEXT_HOP.size + len(body), flags, 0, index) + body


def _short(table: int) -> int:
    return table if table < 256 else _COMPATIBLE


# --- Rules ----------------------------------------------------------------------------------------


def _rules(kernel: wire.Socket, version: int) -> Iterator[SeenRule]:
    for body in _dump(kernel, GET_RULE, version):
        family, to, source, tos, table, _, _, action, flags = _HEAD.unpack_from(body)
        if family != _FAMILIES[version]:
            continue
        values = dict(wire.attributes(body[_HEAD.size :]))
        suppress = _number(values, _SUPPRESS, _NOTHING)
        mark = _number(values, _MARK)
        rule = Rule(
            version,
            _number(values, _RULE_PRIORITY),
            _number(values, _RULE_TABLE, table),
            _network(values.get(_FROM), source),
            _network(values.get(_TO), to),
            mark,
            _number(values, _MASK) if _MARK in values else 0,
            tos,
            -1 if suppress == _NOTHING else suppress,
        )
        known = values.keys() <= _KNOWN and action == _LOOKUP
        known = known and _number(values, _SUPPRESS_GROUP, _NOTHING) == _NOTHING
        inverted = bool(flags & _INVERT)
        protocol = values.get(_RULE_PROTOCOL, b"\0")[0]
        yield SeenRule(rule, protocol, known and not inverted, known and inverted)


def _network(data: Optional[bytes], length: int) -> str:
    return "" if data is None else str(ip_network((data, length), strict=False))


def add_rule(rule: Rule) -> None:
    """Add a rule, unless it exists. Raises ApplyError.

    The kernel says that it exists, too, if there is one with further selectors.
    """
    try:
        _change(NEW_RULE, wire.CREATE | EXCLUSIVE, _rule_message(rule))
    except ApplyError as error:
        if error.errno != errno.EEXIST:
            raise
        if not _exists(rule):
            _change(NEW_RULE, wire.CREATE, _rule_message(rule))


def _exists(rule: Rule) -> bool:
    """Whether exactly this rule of ours is there. Raises ApplyError."""
    with applying(), wire.Socket(socket.NETLINK_ROUTE) as kernel:
        return SeenRule(rule, ROUTE_PROTOCOL) in list(_rules(kernel, rule.family))


def delete_rule(rule: Rule) -> None:
    """Delete a rule of ours, unless it is gone. Raises ApplyError."""
    _change(DELETE_RULE, 0, _rule_message(rule), (errno.ENOENT,))


def _rule_message(rule: Rule) -> bytes:
    """All selectors and the protocol: without one, the kernel deletes another rule that fits."""
    ends = {_FROM: _ends(rule.source), _TO: _ends(rule.to)}
    lengths = {kind: network.prefixlen if network else 0 for kind, network in ends.items()}
    head = _HEAD.pack(
        _FAMILIES[rule.family],
        lengths[_TO],
        lengths[_FROM],
        rule.tos,
        _short(rule.table),
        0,
        0,
        _LOOKUP,
        0,
    )
    parts = [
        head,
        wire.number(_RULE_PRIORITY, rule.priority),
        wire.number(_RULE_TABLE, rule.table),
        wire.attribute(_RULE_PROTOCOL, bytes([ROUTE_PROTOCOL])),
    ]
    for kind, network in ends.items():
        if network:
            parts.append(wire.attribute(kind, network.network_address.packed))
    if rule.mask:
        parts += [wire.number(_MARK, rule.mark), wire.number(_MASK, rule.mask)]
    if rule.suppress >= 0:
        parts.append(wire.number(_SUPPRESS, rule.suppress))
    return b"".join(parts)


def _ends(text: str) -> Optional[Network]:
    return ip_network(text) if text else None


def _change(kind: int, flags: int, message: bytes, done: tuple[int, ...] = ()) -> None:
    """Make one request. Errors in `done` mean that there is nothing left to do."""
    try:
        with applying(), wire.Socket(socket.NETLINK_ROUTE) as kernel:
            kernel.ask(kind, flags, message)
    except ApplyError as error:
        if error.errno not in done:
            raise
