"""Reads routes of every table, and routing rules; converts ours to arguments of pyroute2.

They are read without pyroute2 for the reason that `outlook` states.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterator, Mapping
from dataclasses import replace
from ipaddress import ip_address, ip_network
from typing import Any, Callable, NamedTuple, Optional

from neuca_tools.backends import wire
from neuca_tools.errors import ObserveError
from neuca_tools.model import Host, Route
from neuca_tools.model.routing import (
    KINDS,
    MAIN_TABLE,
    ROUTE_PROTOCOL,
    RouteKind,
    Rule,
    SeenRule,
    Traits,
)

GET_ROUTE, GET_NEIGHBOUR, GET_RULE = 26, 30, 34  # RTM_*
# struct rtmsg, and struct fib_rule_hdr with the same layout: family, lengths of destination and
# source, TOS, table, protocol, scope, type, flags.
_HEAD = struct.Struct("=BBBBBBBBI")
_NEIGHBOUR = struct.Struct("=BxxxIHBB")  # struct ndmsg: family, ifindex, state, flags, type
# NTF_ROUTER is set by an advertisement with the router's link-layer address, whatever accept_ra is.
_IS_ROUTER, _FAILED, _NEIGHBOUR_ADDRESS = 0x80, 0x20, 1  # NTF_ROUTER, NUD_FAILED, NDA_DST
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
    """The routes of ours, the foreign unicast routes of other tables than main, all rules, and the
    IPv6 routers among the neighbours, by the index of the device.
    """

    ours: tuple[Route, ...] = ()
    foreign: tuple[Route, ...] = ()
    rules: tuple[SeenRule, ...] = ()
    routers: Mapping[int, tuple[Host, ...]] = {}


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
            routers = _routers(kernel)
    except (OSError, ValueError, struct.error) as error:
        cause = getattr(error, "strerror", "") or error
        raise ObserveError(f"ask the kernel for its routing tables and rules: {cause}") from error
    return Routing(tuple(ours), tuple(foreign), tuple(rules), routers)


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


def _routers(kernel: wire.Socket) -> dict[int, tuple[Host, ...]]:
    found: dict[int, list[Host]] = {}
    for body in _dump(kernel, GET_NEIGHBOUR, 6, _is_router):
        _, index, _, _, _ = _NEIGHBOUR.unpack_from(body)
        values = dict(wire.attributes(body[_NEIGHBOUR.size :]))
        host = ip_address(bytes(values[_NEIGHBOUR_ADDRESS]))
        if host.is_link_local:
            found.setdefault(index, []).append(host)
    return {index: tuple(sorted(hosts, key=int)) for index, hosts in found.items()}


def _is_router(body: bytes) -> bool:
    _, _, state, flags, _ = _NEIGHBOUR.unpack_from(body)
    return bool(flags & _IS_ROUTER) and not state & _FAILED


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


def route_arguments(route: Route) -> dict[str, Any]:
    """What pyroute2 is told of a route, to set or to delete it."""
    traits, version = route.traits, route.to.version
    metrics = {"mtu": traits.mtu, "advmss": traits.advmss}
    flags = _ONLINK if traits.onlink else 0
    arguments: dict[str, Any] = {
        "family": _FAMILIES[version],
        "dst": str(route.to),
        "table": traits.table,
        "priority": route.metric,
        "proto": route.protocol,
        "type": traits.kind,
        "scope": _SCOPES[traits.scope or usual_scope(version, traits.kind, route.via)],
        "tos": traits.tos,
        "prefsrc": _text(traits.source),
        "metrics": {name: value for name, value in metrics.items() if value},
    }
    if route.others:
        hops = ((route.index, route.via), *route.others)
        arguments["multipath"] = [
            {"oif": index, "gateway": _text(via), "flags": flags} for index, via in hops
        ]
        return arguments
    return {**arguments, "gateway": _text(route.via), "oif": route.index or None, "flags": flags}


def _text(host: Optional[Host]) -> Optional[str]:
    return None if host is None else str(host)


# --- Rules ----------------------------------------------------------------------------------------


def _rules(kernel: wire.Socket, version: int) -> Iterator[SeenRule]:
    for body in _dump(kernel, GET_RULE, version):
        family, to, source, tos, table, _, _, action, flags = _HEAD.unpack_from(body)
        if family != _FAMILIES[version]:
            continue
        values = dict(wire.attributes(body[_HEAD.size :]))
        suppress = _number(values, _SUPPRESS, _NOTHING)
        rule = Rule(
            version,
            _number(values, _RULE_PRIORITY),
            _number(values, _RULE_TABLE, table),
            _network(values.get(_FROM), source),
            _network(values.get(_TO), to),
            _number(values, _MARK),
            _number(values, _MASK),
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


def has_rule(rule: Rule) -> bool:
    """Whether exactly this rule of ours is there. Raises OSError."""
    with wire.Socket(socket.NETLINK_ROUTE) as kernel:
        return SeenRule(rule, ROUTE_PROTOCOL) in list(_rules(kernel, rule.family))


def rule_arguments(rule: Rule) -> dict[str, Any]:
    """What pyroute2 is told of a rule, to add or to delete it.

    All selectors and the protocol: without one, the kernel deletes another rule that fits.
    """
    return {
        "family": _FAMILIES[rule.family],
        "priority": rule.priority,
        "table": rule.table,
        "protocol": ROUTE_PROTOCOL,
        "action": _LOOKUP,
        "src": rule.source or None,
        "dst": rule.to or None,
        "tos": rule.tos,
        "fwmark": rule.mark if rule.mask else None,
        "fwmask": rule.mask or None,
        "suppress_prefixlen": rule.suppress if rule.suppress >= 0 else None,
    }
