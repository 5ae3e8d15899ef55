"""A pass changes what is requested anew: a NIC, the routes of a NIC, a route of the host, and nothing beside it."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from lab import mac

NIC = mac(1)
FIRST = f"""[interfaces]
{NIC} = up
[interface {NIC}]
mtu = 1450
addresses = 172.16.0.1/24, 172.17.0.1/24
sysctl.net.ipv4.conf.{{interface}}.rp_filter = 2
sysctl.net.ipv4.conf.{{interface}}.arp_ignore = 1
[routes]
10.1.0.0/16 = 172.16.0.254
10.2.0.0/16 = 172.17.0.254
"""


def exchanged(text, first, second):
    """The text with these two parts in each other's place."""
    return text.replace(first, "@").replace(second, first).replace("@", second)


def change_by_hand(lab):
    """What the user does to the NIC, and no request of anything else may undo."""
    lab.ip("link set dp1 mtu 1400")
    lab.ip("address add 172.18.0.1/24 dev dp1")
    lab.ip("address del 172.17.0.1/24 dev dp1")


def is_as_by_hand(lab):
    """Whether nothing has undone it."""
    shown = lab.addresses("dp1")
    return lab.link("dp1")["mtu"] == 1400 and shown == {"172.16.0.1/24", "172.18.0.1/24"}


@pytest.fixture
def running(lab):
    """A guest whose daemon has applied `FIRST`."""
    lab.veth("dp1", 1)
    lab.veth("dp2", 2)
    lab.document(FIRST)
    lab.start()
    lab.wait("the first document", lambda: lab.routes("10.2.0.0/16"))
    lab.settle()
    change_by_hand(lab)
    yield lab
    assert lab.daemon.stop() == 0
    lab.once()


def next_document(lab, text):
    """A document with these lines for the guest, and a second NIC whose address shows that a pass was made."""
    lab.document(f"{text}[interface {mac(2)}]\naddresses = 172.30.0.1/24\n")
    lab.wait("the next document", lambda: lab.addresses("dp2"))
    lab.settle()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("10.1.0.0/16 = 172.16.0.254", "10.2.0.0/16 = 172.17.0.254"),
        ("172.16.0.1/24", "172.17.0.1/24"),
        (
            "sysctl.net.ipv4.conf.{interface}.rp_filter = 2",
            "sysctl.net.ipv4.conf.{interface}.arp_ignore = 1",
        ),
    ],
    ids=["routes", "addresses", "sysctls"],
)
def test_the_order_of_lines_changes_nothing(running, first, second):
    next_document(running, exchanged(FIRST, first, second))
    assert is_as_by_hand(running)


def test_a_route_that_is_to_be_absent_changes_nothing_else_of_its_nic(running):
    next_document(running, FIRST.replace("10.1.0.0/16 = 172.16.0.254", "10.1.0.0/16 = down"))
    assert running.routes("10.1.0.0/16") == []
    assert is_as_by_hand(running)


def test_a_route_of_the_user_that_is_to_be_absent_changes_nothing_else_of_its_nic(running):
    running.ip("route add 10.5.0.0/16 via 172.16.0.254")
    next_document(running, FIRST + "10.5.0.0/16 = down\n")
    assert running.routes("10.5.0.0/16") == []
    assert is_as_by_hand(running)


def test_a_route_of_the_host_changes_no_nic_with_a_route_through_an_address_of_the_user(running):
    loose = FIRST + "10.6.0.0/16 = 172.18.0.254\n"
    next_document(running, loose)
    assert running.routes("10.6.0.0/16")
    assert is_as_by_hand(running)
    running.document(f"{loose}10.7.0.0/16 = blackhole\n")
    running.wait("the blackhole", lambda: running.look("route show 10.7.0.0/16"))
    running.settle()
    assert is_as_by_hand(running)


def test_a_new_route_brings_what_it_needs_of_its_nic(running):
    """The requested address through which it leads was removed by hand."""
    next_document(running, FIRST + "10.8.0.0/16 = 172.17.0.254\n")
    assert running.routes("10.8.0.0/16")
    assert "172.17.0.1/24" in running.addresses("dp1")


def test_an_address_that_a_second_nic_requests_too_leaves_the_first(running):
    """No NIC gets an address that two request."""
    running.document(FIRST + f"[interface {mac(2)}]\naddresses = 172.16.0.1/24\n")
    running.wait(
        "the second request", lambda: running.addresses("dp1") != {"172.16.0.1/24", "172.18.0.1/24"}
    )
    running.settle()
    assert "172.16.0.1/24" not in running.addresses("dp1") | running.addresses("dp2")
    assert {code for code, _ in running.problems("dp1")} == {"refused"}
