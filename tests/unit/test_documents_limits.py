"""As many of each as neuca-user-data(5) permits are used; of one more, the rest is ignored and reported."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest

from neuca_tools.documents import parse
from neuca_tools.documents.neuca import (
    link_kinds,
    link_settings,
    routing,
    values,
)


def address(number):
    return f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"


def many(section, line):
    return lambda count: section + "".join(line.format(n=n, ip=address(n)) for n in range(count))


def mac_of(number):
    return f"02:00:00:01:{number >> 8:02x}:{number & 255:02x}"


# What is limited, how many there may be, a document with so many, and how many are used.
LIMITS = {
    "links": (4096, lambda count: "[interfaces]\n" + "".join(f"{mac_of(n)} = up\n" for n in range(count)),
              lambda document: len(document.links)),
    "routes": (16384, many("[routes]\n", "{ip}/32 = 10.9.9.9\n"), lambda document: len(document.routes)),
    "rules": (1024, many("", "[rule r{n}]\nfrom = {ip}/32\ntable = 100\n"), lambda document: len(document.rules)),
    "users": (1024, many("[users]\n", "u{n} = no\n"), lambda document: len(document.users)),
    "scripts": (1024, many("[scripts]\n", "s{n} = #!/bin/sh\n"), lambda document: len(document.scripts)),
    "settings": (1024, many("[interface 02:00:00:00:00:02]\n", "sysctl.net.core.x{n} = 1\n"),
                 lambda document: len(document.links[0].sysctls)),
}  # fmt: skip


@pytest.mark.parametrize("name", LIMITS)
def test_only_what_is_beyond_a_limit_is_ignored(name):
    limit, text, count_used = LIMITS[name]
    document = parse(text(limit))
    assert ([fault.text for fault in document.faults], count_used(document)) == ([], limit)
    document = parse(text(limit + 1))
    assert [fault.reason.partition(" ")[0] for fault in document.faults] == ["more"]
    assert count_used(document) == limit


def listed(line, make):
    return lambda count: line + ", ".join(map(make, range(1, count + 1))) + "\n"


# What one value may list, and how many.
LISTS = {
    "members": (256, listed("[bridge br0]\nmembers = ", mac_of)),
    "ARP targets": (16, listed(
        f"[bond bond0]\nmembers = {mac_of(1)}\nmode = active-backup\narp-interval = 9\narp-ip-target = ", address
    )),
    "DNS servers": (16, listed(f"[interface {mac_of(1)}]\nnameservers = ", address)),
    "search domains": (16, listed(
        f"[interface {mac_of(1)}]\nnameservers = 10.0.0.1\nsearch = ", lambda n: f"d{n}.example"
    )),
    "offloads": (64, listed(f"[interface {mac_of(1)}]\noffloads = ", lambda n: f"x{n} on")),
    "addresses": (1024, listed(f"[interface {mac_of(1)}]\naddresses = ", lambda n: f"{address(n)}/8")),
    "next hops": (64, listed("[routes]\n10.0.0.0/8 = ", lambda n: f"192.0.2.{n}")),
}  # fmt: skip


@pytest.mark.parametrize("name", LISTS)
def test_a_value_that_lists_too_much_is_ignored(name):
    limit, text = LISTS[name]
    assert [fault.text for fault in parse(text(limit)).faults] == []
    assert len(parse(text(limit + 1)).faults) == 1


INT_MAX = 2**31 - 1
# The least and the greatest number of each option of a virtual link.
OPTION_BOUNDS = {
    "bond": {
        **dict.fromkeys(("miimon", "updelay", "downdelay", "arp-interval"), (0, INT_MAX)),
        **dict.fromkeys(("min-links", "packets-per-slave"), (0, 65535)),
        **dict.fromkeys(("num-grat-arp", "resend-igmp"), (0, 255)),
        "lp-interval": (1, INT_MAX),
    },
    "bridge": {
        "forward-delay": (0, 30),
        "hello-time": (1, 10),
        "max-age": (6, 40),
        "ageing-time": (0, 1000000),
        "priority": (0, 65535),
    },
    "vxlan": {"id": (1, 16777215), "port": (1024, 65535)},
}
BOUNDS = {
    "mtu": (values.mtu, 68, 65535),
    "txqueuelen": (values.txqueuelen, 1, 1000000),
    "VLAN ID": (values.vlan_id, 1, 4094),
    "metric": (routing.metric, 0, 2**32 - 1),
    "advmss": (routing.advmss, 8, 65495),
    "type-of-service": (routing.type_of_service, 0, 255),
    "priority": (routing.RULE_READERS["priority"], 1, 32765),
    **{
        f"{group} {name}": (lambda text, read=read, name=name: read(name, text), *bounds)
        for group, bounds, readers in (
            ("channels", (1, 8192), link_settings._CHANNELS),
            ("rings", (1, 2**20), link_settings._RINGS),
            ("coalesce", (0, 1000000), link_settings._COALESCE),
        )
        for name, read in readers.items()
        if not name.startswith("adaptive")
    },
    **{
        f"{kind} {name}": (link_kinds.OPTIONS[kind][name].read, *bounds)
        for kind, options in OPTION_BOUNDS.items()
        for name, bounds in options.items()
    },
}


@pytest.mark.parametrize("name", BOUNDS)
def test_a_number_is_read_within_its_bounds_only(name):
    read, least, greatest = BOUNDS[name]
    assert [int(read(str(number))) for number in (least, greatest)] == [least, greatest]
    for number in (least - 1, greatest + 1):
        with pytest.raises(
            values.UnusableError, match=f"is not a number from {least} to {greatest}$"
        ):
            read(str(number))
