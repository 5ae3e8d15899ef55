"""As many of each as neuca-user-data(5) permits are used; of one more, the rest is ignored and reported."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest

from neuca_tools.documents import parse


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
