"""Reads routes of every table, routing rules and IPv6 routers; converts ours for pyroute2.

They are read without pyroute2 for the reason that `kernel_state` states.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
import socket
import struct
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from ipaddress import ip_address, ip_network
from itertools import chain, filterfalse
from operator import attrgetter
from typing import Any, Optional, get_args

from neuca_tools.backends import wire
from neuca_tools.errors import ObserveError
from neuca_tools.model import Host, Network, Route
from neuca_tools.model.addresses import MAX_CACHED, network_of
from neuca_tools.model.provenance import RTPROT_RA
from neuca_tools.model.routing import (
    KINDS,
    MAIN_TABLE,
    OF_KERNEL,
    ROUTE_PROTOCOL,
    RouteKind,
    Rule,
    SeenRule,
    Traits,
    usual_scope,
)

GET_ROUTE, GET_NEIGHBOUR, GET_RULE, GET_NEXT_HOP = 26, 30, 34, 106  # RTM_*
# struct rtmsg, and struct fib_rule_hdr with the same layout: family, lengths of destination and
# source, TOS, table, protocol, scope, type, flags.
HEAD = struct.Struct("=BBBBBBBBI")
_NEIGHBOUR = struct.Struct("=BxxxIHBB")  # struct ndmsg: family, ifindex, state, flags, type
# NTF_ROUTER is set by an advertisement with the router's link-layer address, whatever accept_ra is.
_IS_ROUTER, _FAILED, _NEIGHBOUR_ADDRESS = 0x80, 0x20, 1  # NTF_ROUTER, NUD_FAILED, NDA_DST
NEXT_HOP = struct.Struct("=HBBi")  # struct rtnexthop: length, flags, hops, ifindex
# Of nexthop objects (ip-nexthop(8)): struct nhmsg, struct nexthop_grp, NHA_*.
_OBJECT_SIZE, _MEMBER = 8, struct.Struct("=I4x")
_OBJECT_ID, _MEMBERS, _OBJECT_OUTPUT, _OBJECT_GATEWAY = 1, 2, 5, 6
# RTA_*, and RTAX_* in RTA_METRICS
_TO, OUTPUT, _GATEWAY, _PRIORITY, SOURCE, _METRICS, MULTIPATH = 1, 4, 5, 6, 7, 8, 9
CACHE, _TABLE, _VIA, NEXT_HOP_ID = 12, 15, 18, 30
OF_NEXT_HOP = (OUTPUT, _GATEWAY, MULTIPATH, _VIA, CACHE)  # not beside NEXT_HOP_ID in a request
EXPIRES = struct.Struct("=8xi")  # rta_expires in struct rta_cacheinfo, in USER_HZ
_MTU, _ADVMSS = 2, 8
# FRA_*; FRA_L3MDEV is a whole table of its own.
_RULE_TO, _FROM, _RULE_PRIORITY, _MARK, _SUPPRESS, _RULE_TABLE, _MASK = 1, 2, 6, 10, 14, 15, 16
_SUPPRESS_GROUP, _RULE_PROTOCOL = 13, 21
_KNOWN = {_RULE_TO, _FROM, _RULE_PRIORITY, _MARK, _SUPPRESS, _RULE_TABLE, _MASK}
_KNOWN |= {_SUPPRESS_GROUP, _RULE_PROTOCOL}
_LOOKUP, _INVERT = 1, 2  # FR_ACT_TO_TBL, FIB_RULE_INVERT
ONLINK = 4  # RTNH_F_ONLINK
_CLONED = 0x200  # RTM_F_CLONED: an entry of the cache of IPv6
_LOCAL_TABLE = 255
_NOTHING = 0xFFFFFFFF  # the value of an attribute that is not set
_NAMES: Mapping[int, RouteKind] = dict(enumerate(get_args(RouteKind), 1))  # RTN_*
_SCOPES = {"global": 0, "link": 253, "host": 254}  # RT_SCOPE_*
_SCOPE_NAMES = {number: name for name, number in _SCOPES.items()}
FAMILIES = {4: int(socket.AF_INET), 6: int(socket.AF_INET6)}
_VERSIONS = {family: version for version, family in FAMILIES.items()}
_ANYWHERE = {4: bytes(4), 6: bytes(16)}
_NextHop = tuple[int, Optional[Host], int]  # device, address and flags
_Objects = Mapping[int, tuple[tuple[int, Optional[Host]], ...]]
# How a kernel without IPv6, rules or nexthop objects answers.
_MISSING = (errno.EAFNOSUPPORT, errno.EOPNOTSUPP)
# Errors for an unreachable host: no route or a `throw` route, `unreachable`, `prohibit` and
# `blackhole` routes (fib_props in net/ipv4/fib_semantics.c, ip6_route_info_create_nh), no IPv6.
_NO_ROUTE = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EACCES, errno.EINVAL, *_MISSING)


def read_routing(kernel: wire.Socket) -> dict[str, Any]:
    """The fields of `World` that concern routes, rules and routers. Raises OSError."""
    # Those of the local table, several for each address, are passed over unparsed.
    bodies, objects = _dump(kernel, GET_ROUTE, keep=_is_relevant), _read_objects(kernel)
    seen = dict.fromkeys(route for body in bodies for route in parse_routes(body, objects))
    is_ours = attrgetter("is_ours")
    return {
        "routes": tuple(filter(_is_main, sorted(seen, key=is_ours))),
        "other_routes": tuple(filterfalse(_is_main, sorted(seen, key=is_ours, reverse=True))),
        "rules": tuple(rule for body in _dump(kernel, GET_RULE) for rule in parse_rules(body)),
        "routers": _read_routers(kernel),
    }


def _dump(
    kernel: wire.Socket,
    kind: int,
    version: int = 0,
    keep: Callable[[bytes], bool] = bool,
    head_size: int = HEAD.size,
) -> list[bytes]:
    """The answers to a dump of one family, 0 for all; empty if the kernel has none of it."""
    try:
        return kernel.dump(kind, bytes([FAMILIES.get(version, 0)]).ljust(head_size, b"\0"), keep)
    except OSError as error:
        if error.errno in _MISSING:
            return []
        raise


def _read_routers(kernel: wire.Socket) -> dict[int, tuple[Host, ...]]:
    routers_by_index = defaultdict[int, list[Host]](list)
    for body in _dump(kernel, GET_NEIGHBOUR, 6, _is_router):
        _, index, _, _, _ = _NEIGHBOUR.unpack_from(body)
        host = ip_address(wire.Attributes(body[_NEIGHBOUR.size :]).bytes(_NEIGHBOUR_ADDRESS))
        if host.is_link_local:
            routers_by_index[index].append(host)
    return {index: tuple(sorted(hosts, key=int)) for index, hosts in routers_by_index.items()}


def _is_router(body: bytes) -> bool:
    _, _, state, flags, _ = _NEIGHBOUR.unpack_from(body)
    return bool(flags & _IS_ROUTER) and not state & _FAILED


# --- Routes ---------------------------------------------------------------------------------------


def _is_relevant(body: bytes) -> bool:
    """Whether the route is ours, or was not added by the kernel for an address (in VRFs too)."""
    _, _, _, _, table, protocol, _, kind, _ = HEAD.unpack_from(body)
    if _NAMES.get(kind) not in KINDS:
        return protocol not in (ROUTE_PROTOCOL, *OF_KERNEL)
    return bool(protocol == ROUTE_PROTOCOL or table != _LOCAL_TABLE)


def _is_main(route: Route) -> bool:
    """Whether it is a unicast route of the main table."""
    return (route.traits.table, route.traits.kind) == (MAIN_TABLE, "unicast")


def parse_routes(body: bytes, objects: _Objects) -> Iterator[Route]:
    """The route of a message; a foreign one of the main table for each next hop, if it is unicast.

    Nothing for another family, and for an entry of the cache.
    """
    family, length, _, _, table, protocol, _, kind, flags = HEAD.unpack_from(body)
    version = _VERSIONS.get(family)
    if version is None or kind not in _NAMES or flags & _CLONED:
        return
    values = wire.Attributes(body[HEAD.size :])
    table = values.number(_TABLE) or table
    to = network_of(values.bytes(_TO) or _ANYWHERE[version], length)
    hops = list(_next_hops(values, flags, objects))
    if protocol == ROUTE_PROTOCOL or (table, _NAMES[kind]) != (MAIN_TABLE, "unicast"):
        yield _whole_route(body, to, table, values, hops)
        return
    expires, metric = any(values.bytes(CACHE)[8 : EXPIRES.size]), values.number(_PRIORITY)
    for index, via, _ in hops:
        yield Route(to, index, via, metric, protocol, expires, message=body)


def _whole_route(
    body: bytes, to: Network, table: int, values: wire.Attributes, hops: Sequence[_NextHop]
) -> Route:
    """The route of a message with its traits, and with all of its next hops."""
    _, _, _, tos, _, protocol, scope, kind, _ = HEAD.unpack_from(body)
    name, metrics = _NAMES[kind], values.nest(_METRICS)
    (index, via, flags), *others = hops
    scope_name = _SCOPE_NAMES.get(scope, str(scope))
    is_usual = to.version == 6 or scope_name == usual_scope(4, name, via)
    traits = Traits(
        table,
        name,
        "" if is_usual else scope_name,
        bool(flags & ONLINK),
        mtu=metrics.number(_MTU),
        advmss=metrics.number(_ADVMSS),
        source=_host_or_none(values.bytes(SOURCE)),
        tos=tos,
    )
    return Route(
        to,
        # The device of a route that drops packets is lo, for IPv6.
        0 if name in KINDS[1:] else index,
        via,
        values.number(_PRIORITY),
        protocol,
        traits=traits,
        others=tuple((number, gateway) for number, gateway, _ in others),
        message=b"" if protocol == ROUTE_PROTOCOL else body,
    )


def _next_hops(values: wire.Attributes, flags: int, objects: _Objects) -> Iterator[_NextHop]:
    """The next hops of a route, or those of the object that it names instead."""
    rest = values.bytes(MULTIPATH)
    if not rest:
        named = () if OUTPUT in values else objects.get(values.number(NEXT_HOP_ID), ())
        for index, via in named or ((values.number(OUTPUT), _gateway(values)),):
            yield index, via, flags
    while len(rest) >= NEXT_HOP.size:
        length, flags, _, index = NEXT_HOP.unpack_from(rest)
        if not NEXT_HOP.size <= length <= len(rest):
            raise wire.truncated_error("a next hop")
        yield index, _gateway(wire.Attributes(rest[NEXT_HOP.size : length])), flags
        rest = rest[length + -length % 4 :]


def _gateway(values: wire.Attributes) -> Optional[Host]:
    """The address of a next hop; that of an IPv4 route may be an IPv6 address (struct rtvia)."""
    return _host_or_none(values.bytes(_GATEWAY) or values.bytes(_VIA)[2:])


def _read_objects(kernel: wire.Socket) -> _Objects:
    """The next hops of each nexthop object; routes need not repeat them (nexthop_compat_mode)."""
    objects, groups = dict[int, tuple[tuple[int, Optional[Host]], ...]](), dict[int, bytes]()
    for body in _dump(kernel, GET_NEXT_HOP, head_size=_OBJECT_SIZE):
        values = wire.Attributes(body[_OBJECT_SIZE:])
        number, via = values.number(_OBJECT_ID), _host_or_none(values.bytes(_OBJECT_GATEWAY))
        objects[number] = ((values.number(_OBJECT_OUTPUT), via),)
        groups[number] = values.bytes(_MEMBERS)
    for number, members in groups.items():
        hops = (objects.get(member, ()) for (member,) in _MEMBER.iter_unpack(members))
        objects[number] = tuple(chain.from_iterable(hops)) or objects[number]
    return objects


@lru_cache(MAX_CACHED)  # many routes have the same next hop
def _host_or_none(data: bytes) -> Optional[Host]:
    return ip_address(data) if data else None


def output_device(host: Host) -> int:
    """The index of the device through which packets to this host leave. Raises ObserveError.

    0 if there is no route, or only one from a router advertisement: any host on the link can send
    one, so it does not show which NIC is for management.
    """
    head = HEAD.pack(FAMILIES[host.version], host.max_prefixlen, *[0] * 7)
    try:
        with wire.Socket(socket.NETLINK_ROUTE, strict=True) as kernel:
            (answer,) = kernel.ask(GET_ROUTE, 0, head + wire.encode_attribute(_TO, host.packed))
    except OSError as error:
        if error.errno in _NO_ROUTE:
            return 0
        text = error.strerror or error
        raise ObserveError(f"ask the kernel for its route to {host}: {text}") from error
    if HEAD.unpack_from(answer)[5] == RTPROT_RA:
        return 0
    return wire.Attributes(answer[HEAD.size :]).number(OUTPUT)


def route_arguments(route: Route) -> dict[str, Any]:
    """The arguments with which pyroute2 sets or deletes a route."""
    traits, version = route.traits, route.to.version
    metrics = {"mtu": traits.mtu, "advmss": traits.advmss}
    flags = ONLINK if traits.onlink else 0
    arguments: dict[str, Any] = {
        "family": FAMILIES[version],
        "dst": str(route.to),
        "table": traits.table,
        "priority": route.metric,
        "proto": route.protocol,
        "type": traits.kind,
        "scope": _SCOPES[traits.scope or usual_scope(version, traits.kind, route.via)],
        "tos": traits.tos,
        "prefsrc": _host_text(traits.source),
        "metrics": {name: value for name, value in metrics.items() if value},
    }
    if route.others:
        hops = ((route.index, route.via), *route.others)
        arguments["multipath"] = [
            {"oif": index, "gateway": _host_text(via), "flags": flags} for index, via in hops
        ]
        return arguments
    own = {"gateway": _host_text(route.via), "oif": route.index or None, "flags": flags}
    return {**arguments, **own}


def _host_text(host: Optional[Host]) -> Optional[str]:
    return None if host is None else str(host)


# --- Rules ----------------------------------------------------------------------------------------


def parse_rules(body: bytes) -> Iterator[SeenRule]:
    """The rule of a message; nothing for another family."""
    family, to, source, tos, table, _, _, action, flags = HEAD.unpack_from(body)
    if family not in _VERSIONS:
        return
    values = wire.Attributes(body[HEAD.size :])
    suppress, group = (
        values.number(kind) if kind in values else _NOTHING for kind in (_SUPPRESS, _SUPPRESS_GROUP)
    )
    rule = Rule(
        _VERSIONS[family],
        values.number(_RULE_PRIORITY),
        values.number(_RULE_TABLE) or table,
        _network_text(values.get(_FROM), source),
        _network_text(values.get(_RULE_TO), to),
        values.number(_MARK),
        values.number(_MASK),
        tos,
        -1 if suppress == _NOTHING else suppress,
    )
    known = values.keys() <= _KNOWN and action == _LOOKUP and group == _NOTHING
    inverted = bool(flags & _INVERT)
    yield SeenRule(rule, values.number(_RULE_PROTOCOL), known and not inverted, known and inverted)


def _network_text(data: Optional[bytes], length: int) -> str:
    return "" if data is None else str(ip_network((data, length), strict=False))


def has_rule(rule: Rule) -> bool:
    """Whether exactly this rule exists as one of ours. Raises OSError."""
    with wire.Socket(socket.NETLINK_ROUTE) as kernel:
        bodies = _dump(kernel, GET_RULE, rule.family)
    return SeenRule(rule, ROUTE_PROTOCOL) in [seen for body in bodies for seen in parse_rules(body)]


def rule_arguments(rule: Rule) -> dict[str, Any]:
    """All selectors and the protocol, without which the kernel deletes another rule that fits."""
    return {
        "family": FAMILIES[rule.family],
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
