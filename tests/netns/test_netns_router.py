"""`router` of [global]: forwarding of both families, put back when nobody asks, and never at a management NIC's cost."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import sys
import time

import pytest
from lab import mac

IPV4, IPV6 = "net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"
NIC = f"[interfaces]\n{mac(1)} = up:ipv4:172.16.0.1/24\n"


def asks(word):
    return f"[global]\nrouter = {word}\n{NIC}"


@pytest.fixture
def host(lab):
    """A dataplane NIC, and leave to change what the kernel changes with forwarding on its own."""
    lab.veth("dp1", 1)
    for table in ("net/ipv4/conf", "net/ipv6/conf"):
        for name in ("all", "default", "lo", "mgmt0", "dp1"):
            lab.foreign.may_set(f"{table}/{name}/forwarding", f"{table}/{name}/accept_redirects")
    lab.foreign.may_set(IPV4)
    return lab


def forwarding(lab):
    return lab.sysctl(IPV4), lab.sysctl(IPV6)


def test_it_is_turned_on_and_put_back_when_nobody_asks_any_more(host):
    assert forwarding(host) == ("0", "0")
    assert host.once(asks("true")).code == 0
    assert forwarding(host) == ("1", "1")
    assert host.once().code == 0
    assert host.plan() == []
    assert host.once(asks("user")).code == 0
    assert forwarding(host) == ("0", "0")


def test_it_is_turned_off_and_put_back(host):
    host.sysctl(IPV4, 1)
    host.sysctl(IPV6, 1)
    assert host.once(asks("FALSE")).code == 0
    assert forwarding(host) == ("0", "0")
    assert host.once(NIC).code == 0
    assert forwarding(host) == ("1", "1")


def test_what_the_user_has_set_is_left_alone(host):
    host.sysctl(IPV4, 1)
    assert host.once(asks("user")).code == 0
    assert forwarding(host) == ("1", "0")
    assert host.once(NIC).code == 0
    assert forwarding(host) == ("1", "0")


def test_a_change_by_hand_is_drift_and_revert_puts_back_what_was_there_before(host):
    host.once(asks("true"))
    host.sysctl(IPV4, 0)
    assert host.problems() == [
        ("drift", 'changed; neuca apply would set the sysctl net.ipv4.ip_forward from "0" to "1"')
    ]
    assert host.once().code == 0
    assert host.neuca("revert").code == 0
    assert forwarding(host) == ("0", "0")
    assert host.once().code == 0


def test_a_faulty_document_puts_nothing_back(host):
    host.once(asks("true"))
    assert host.once(asks("perhaps")).code == 78
    assert forwarding(host) == ("1", "1")


def test_forwarding_of_ipv6_begins_once_no_first_advertisement_is_expected_any_more(host, daemons):
    """Nothing happens at that age of the host that would cause a pass."""
    host.management()
    host.sysctl("net/ipv6/conf/mgmt0/accept_ra", 1)
    host.document(asks("true"))
    offset = 40 - int(time.clock_gettime(time.CLOCK_BOOTTIME))
    daemons.append(host.start("unshare", "--time", "--boottime", str(offset)))
    host.wait("IPv4 is forwarded", lambda: host.sysctl(IPV4) == "1")
    host.wait("IPv6 is forwarded", lambda: host.sysctl(IPV6) == "1")


# RFC 4861, 4.2: a router for 1800 s. Hop limit and outgoing interface are those that a receiver wants to see.
ADVERTISE = """import socket, struct
with socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6) as sender:
    sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 255)
    place = ("ff02::1", 0, 0, socket.if_nametoindex("mgmt0"))
    sender.sendto(struct.pack("!BBHBBHII", 134, 0, 0, 64, 0, 1800, 0, 0), place)
"""


def advertised(host):
    """The default routes of router advertisements."""
    return [one["dev"] for one in host.look("-6 route show default") if one.get("protocol") == "ra"]


def is_advertised(host):
    """A router outside says that it is one; not yet, while its own address is new."""
    host.run(sys.executable, "-c", ADVERTISE, where=host.outside, check=False)
    return bool(advertised(host))


def test_a_management_nic_using_router_advertisements_keeps_its_default_route(host):
    host.management()
    host.sysctl("net/ipv6/conf/mgmt0/accept_ra", 1)
    with host.foreign.changing():
        host.wait("a router is known", lambda: is_advertised(host))
    assert host.once(asks("true")).code == 4
    assert (forwarding(host), advertised(host)) == (("1", "0"), ["mgmt0"])
    reason = (
        "IPv6 forwarding remains off: mgmt0 gets its default route from router advertisements (accept_ra = 1), which a"
        " forwarding host ignores; to use both, set net.ipv6.conf.mgmt0.accept_ra = 2, then run neuca apply"
    )
    assert host.problems() == [("contested", reason)]
    host.sysctl("net/ipv6/conf/mgmt0/accept_ra", 2)
    assert host.once().code == 0
    assert (forwarding(host), advertised(host)) == (("1", "1"), ["mgmt0"])


def test_a_management_nic_without_an_advertised_route_has_none_to_lose(host):
    host.management()
    with host.foreign.changing():
        host.ip("-6 route del default dev mgmt0")
        host.sysctl("net/ipv6/conf/mgmt0/accept_ra", 1)
    assert host.once(asks("true")).code == 0
    assert (forwarding(host), host.problems()) == (("1", "1"), [])


def test_the_switch_of_the_configuration_leaves_it_to_the_user(host):
    host.configure("[guest]\nrouter = no\n")
    assert host.once(asks("true")).code == 0
    assert forwarding(host) == ("0", "0")
