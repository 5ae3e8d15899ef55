"""Compares what a look reads with what pyroute2 reads of the same host; prints the number of links."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from ipaddress import ip_address, ip_interface, ip_network

from pyroute2 import IPRoute

from neuca_tools.backends import kernel_state, kinds
from neuca_tools.backends.hostid import boot_id
from neuca_tools.model.links import KINDS
from neuca_tools.model.routing import MAIN_TABLE

ANYWHERE = {2: "0.0.0.0", 10: "::"}  # AF_INET, AF_INET6
MACVLAN_MODES = {"private": 1, "vepa": 2, "bridge": 4, "passthru": 8, "source": 16}
NONE = 0xFFFFFFFF


def devices(kernel):
    for link in kernel.get_links():
        get, flags = link.get_attr, link["flags"]
        info = get("IFLA_LINKINFO")
        kind = info.get_attr("IFLA_INFO_KIND") if info else ""
        data = info.get_attr("IFLA_INFO_DATA") if kind in ("vlan", *KINDS) else None
        elsewhere = kind == "veth" or get("IFLA_LINK_NETNSID") is not None
        lower = 0 if elsewhere else get("IFLA_LINK") or 0
        if kind == "vxlan":
            lower = data.get_attr("IFLA_VXLAN_LINK")
        properties = get("IFLA_PROP_LIST")
        altnames = properties.get_attrs("IFLA_ALT_IFNAME") if properties else []
        yield (
            link["index"],
            (
                (get("IFLA_IFNAME"), kind or "", get("IFLA_ADDRESS") or ""),
                (lower, get("IFLA_MASTER") or 0, bool(flags & 0x800)),
                (bool(flags & 1), bool(flags & 0x10000), get("IFLA_TXQLEN"), get("IFLA_QDISC")),
                (get("IFLA_MTU"), get("IFLA_MIN_MTU"), get("IFLA_MAX_MTU")),
                (data.get_attr("IFLA_VLAN_ID") if kind == "vlan" else None),
                (data.get_attr("IFLA_BOND_PRIMARY") or 0 if kind == "bond" else 0),
                tuple(altnames),
                port(info),
                data,
            ),
        )


def port(info):
    if not info or info.get_attr("IFLA_INFO_SLAVE_KIND") != "bridge":
        return ()
    data = info.get_attr("IFLA_INFO_SLAVE_DATA")
    names = {"path-cost": "IFLA_BRPORT_COST", "port-priority": "IFLA_BRPORT_PRIORITY"}
    return tuple((name, str(data.get_attr(names[name]))) for name in kinds.PORT)


def seen(device):
    return (
        (device.name, device.kind, device.mac),
        (device.lower, device.master, device.slave),
        (device.up, device.carrier, device.txqueuelen, device.qdisc),
        (device.mtu, device.min_mtu, device.max_mtu),
        device.vlan_id,
        device.primary,
        device.altnames,
        device.port,
    )


def check_options(device, data):
    """What the look has read, as pyroute2 is told it, is what pyroute2 has read."""
    told = kinds.creation_arguments(device.kind, dict(device.options))
    assert told.pop("address") == device.mac
    for name, value in told.items():
        library = data.get_attr(f"IFLA_{name.upper()}")
        if name == "macvlan_mode":
            value, library = MACVLAN_MODES[value], MACVLAN_MODES.get(library, library)
        assert library == value, (device.name, name, library, value)
    return len(told)


def addresses(kernel):
    for address in kernel.get_addr():
        local = address.get_attr("IFA_LOCAL") or address.get_attr("IFA_ADDRESS")
        flags = address.get_attr("IFA_FLAGS") or address["flags"]
        interface = ip_interface(f"{local}/{address['prefixlen']}")
        yield address["index"], interface, bool(flags & 0x80), bool(flags & 0x200)


def routes(kernel):
    """The unicast routes of tables that are not the kernel's own, with their tables."""
    for route in kernel.get_routes():
        table = route.get_attr("RTA_TABLE") or route["table"]
        if route["type"] == 1 and table != 255 and not route["flags"] & 0x200:
            to = route.get_attr("RTA_DST") or ANYWHERE[route["family"]]
            several = route.get_attr("RTA_MULTIPATH") or ()
            hops = [(hop["oif"], hop.get_attr("RTA_GATEWAY")) for hop in several]
            first = (route.get_attr("RTA_OIF"), route.get_attr("RTA_GATEWAY"))
            # Of the main table the look has each next hop as a route.
            hops = (hops or [first]) if table == MAIN_TABLE else (hops or [first])[:1]
            for index, via in hops:
                gateway = via and ip_address(via)
                metric = route.get_attr("RTA_PRIORITY") or 0
                yield (
                    ip_network(f"{to}/{route['dst_len']}"),
                    index,
                    gateway,
                    metric,
                    route["proto"],
                    table,
                )


def rules(kernel):
    for family, version in ((2, 4), (10, 6)):
        for rule in kernel.get_rules(family=family):
            get = rule.get_attr
            ends = [get(name) for name in ("FRA_SRC", "FRA_DST")]
            lengths = [rule["src_len"], rule["dst_len"]]
            texts = [f"{end}/{length}" if end else "" for end, length in zip(ends, lengths)]
            suppress = get("FRA_SUPPRESS_PREFIXLEN")
            yield (
                (version, get("FRA_PRIORITY") or 0, get("FRA_TABLE"), *texts),
                (get("FRA_FWMARK") or 0, get("FRA_FWMASK") or 0, rule["tos"]),
                (-1 if suppress in (None, NONE) else suppress, get("FRA_PROTOCOL")),
            )


def main():
    with IPRoute(strict_check=True) as kernel:
        links = dict(devices(kernel))
        slow = [sorted(map(repr, read(kernel))) for read in (addresses, routes, rules)]
    world = kernel_state.read_world()
    assert world.boot_id == boot_id()
    assert {index: link[:-1] for index, link in links.items()} == {
        index: seen(device) for index, device in world.devices.items()
    }
    for index, device in world.devices.items():
        if device.kind in KINDS:
            assert check_options(device, links[index][-1]), device.name
    of_tables = (route for route in world.other_routes if route.traits.kind == "unicast")
    all_routes = {*world.routes, *of_tables}
    quick = [
        [
            (index, one, (index, one) not in world.leased_addresses, (index, one) in world.bare)
            for index, found in world.addresses.items()
            for one in found
        ],
        [
            (one.to, one.index, one.via, one.metric, one.protocol, one.traits.table)
            for one in all_routes
        ],
        [
            (
                (one.rule.family, one.rule.priority, one.rule.table, one.rule.source, one.rule.to),
                (one.rule.mark, one.rule.mask, one.rule.tos),
                (one.rule.suppress, one.protocol),
            )
            for one in world.rules
        ],
    ]
    for library, look in zip(slow, quick):
        assert library == sorted(map(repr, look)), (library, look)
    print(len(links))


if __name__ == "__main__":
    main()
