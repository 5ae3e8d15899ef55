"""Which NIC the metadata service is reached through: no route is an answer, an error is none."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import sys

import pytest

LOOK = """
import errno, sys
from ipaddress import ip_address
from neuca_tools.backends import wire
from neuca_tools.backends.netlink import Netlink
from neuca_tools.errors import ObserveError
with Netlink() as netlink:
    if len(sys.argv) > 2:  # what the kernel says when it has no memory left, which it cannot be made to say here
        ask = wire.Socket.ask
        def refuse(kernel, kind, flags, *words):
            if flags & wire.DUMP:
                return ask(kernel, kind, flags, *words)
            raise OSError(errno.ENOBUFS, "No buffer space available")
        wire.Socket.ask = refuse
    try:
        print(netlink.look([ip_address(sys.argv[1])]).metadata_index)
    except ObserveError as error:
        print(error.text)
"""
HOSTS = {4: "169.254.169.254", 6: "fd00:ec2::254"}


def reached_through(lab, host, *more):
    return lab.run(sys.executable, "-c", LOOK, host, *more).out.strip()


@pytest.mark.parametrize("family", [4, 6])
def test_a_host_that_no_device_leads_to_is_reached_through_none(lab, family):
    assert reached_through(lab, HOSTS[family]) == "0"
    for kind in ("throw", "unreachable", "prohibit", "blackhole"):
        lab.ip(f"-{family} route add {kind} {HOSTS[family]}")
        assert reached_through(lab, HOSTS[family]) == "0"
        lab.ip(f"-{family} route del {kind} {HOSTS[family]}")


@pytest.mark.parametrize("family", [4, 6])
def test_an_error_is_not_taken_for_no_route(lab, family):
    assert reached_through(lab, HOSTS[family], "refuse") == (
        f"ask the kernel for its route to {HOSTS[family]}: No buffer space available"
    )
