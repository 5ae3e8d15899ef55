"""A hostile host on the dataplane wants to be the metadata service, the router or the management network."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib

import frames
import pytest
from attacker import SERVICES
from lab import MANAGEMENT_MAC, SERVICE, mac
from metadata import Metadata, listener

OURS = f"[interface {mac(1)}]\naddresses = 172.16.1.1/24\n"
EVIL = f"[interface {mac(1)}]\naddresses = 172.16.66.66/24\n[scripts]\nbootscript = #!/bin/sh\n"
ROUTES = {"10.0.0.0/8": "10.66.0.1", "0.0.0.0/0": "10.66.0.1"}
STACKED = {"openstack": {"meta_data.json": '{"uuid": "i-evil"}', "user_data": EVIL}}


@pytest.fixture
def victim(guest, attackers):
    """The management NIC has the service; dp1 leads to the attacker, is up, and is ours already."""
    guest.management()
    evil = attackers().on_dataplane("dp1", 1)
    service = guest.service(OURS)
    guest.configure(sources="openstack, ec2", timeout=2)
    assert guest.once().code == 0
    assert guest.addresses("dp1") == {"172.16.1.1/24"}
    return guest, evil, service


def neighbours(guest, name="dp1"):
    return {one["dst"] for one in guest.look(f"neigh show dev {name}")}


@pytest.mark.parametrize("platform", [{}, STACKED, {"tokens": False}], ids=["v2", "stack", "v1"])
def test_a_router_advertisement_does_not_bring_another_document(victim, platform):
    guest, evil, service = victim
    evil.impersonate(EVIL, **platform).advertise(frames.prefix_information("2001:db8:66::/64"))
    evil.claim(*SERVICES)
    service.mode = "hang"  # the attacker need not even be faster
    guest.once()
    assert evil.asked() == []
    assert "172.16.1.1/24" in guest.addresses("dp1")
    service.recover()
    assert guest.once().code == 0


def test_a_router_advertisement_gives_a_dataplane_nic_no_route_and_no_address(victim):
    guest, evil, _ = victim
    options = (
        frames.prefix_information("2001:db8:66::/64"),
        frames.route_information("2001:db8:77::/48"),
        frames.mtu(1280),
        frames.rdnss("2001:db8:66::53"),
    )
    evil.advertise(*options)
    evil.flood(200, lambda number: frames.router_advertisement(
        evil.mac, evil.link_local, frames.prefix_information(f"2001:db8:{number:x}::/64")))  # fmt: skip
    evil.delivered()
    assert guest.addresses("dp1") == {"172.16.1.1/24"}
    assert guest.routes("default", 6) == [("2001:db8:ffff::1", "mgmt0", 1024, "boot")]
    assert guest.routes("2001:db8:77::/48", 6) == []
    assert guest.sysctl("net/ipv6/conf/dp1/mtu") == "1500"


def test_a_first_boot_asks_nobody_through_a_nic_of_the_dataplane(guest, attackers):
    """The attacker answers ARP for the service before the management NIC is up."""
    guest.management(default_route=False)
    evil = attackers().on_dataplane("dp1", 1, up=True)
    evil.impersonate(EVIL).answer_arp()
    guest.ip("address add 10.66.0.2/24 dev dp1")
    guest.ip("route add default via 10.66.0.1 dev dp1 metric 50")
    guest.configure(f"[network]\nmanagement-macs = {MANAGEMENT_MAC}\n", "ec2", timeout=1)
    guest.once()
    assert evil.asked() == []
    assert guest.addresses("dp1") == {"10.66.0.2/24"}
    guest.ip("route del default dev dp1 metric 50")
    guest.ip("route add 169.254.169.254 dev mgmt0")
    guest.service(OURS)
    assert guest.once().code == 0


def test_a_service_that_answers_through_the_dataplane_too_is_not_asked(victim):
    """The address is routed to the attacker after the service has answered once."""
    guest, evil, service = victim
    evil.impersonate(EVIL, (SERVICE,)).claim(SERVICE)
    service.mode = "hang"
    guest.ip("route add 169.254.169.254/32 dev dp1 metric 1")
    guest.once()
    guest.ip("route del 169.254.169.254/32 dev dp1 metric 1")
    assert evil.asked() == []
    assert guest.addresses("dp1") == {"172.16.1.1/24"}
    service.recover()
    assert guest.once().code == 0


@pytest.mark.parametrize("platform", [{}, {"tokens": False}], ids=["v2", "v1"])
def test_a_lease_of_the_services_address_makes_no_service_of_the_guests_own_web_server(
    victim, platform
):
    """A DHCP server of the dataplane gives dp1 that address, and anybody may put pages on the web server."""
    guest, _, service = victim
    service.mode = "hang"
    with contextlib.closing(Metadata(listener(guest.guest.enter, "0.0.0.0", 80), EVIL)) as pages:
        pages.tokens = platform.get("tokens", True)
        guest.ip(f"address add {SERVICE}/32 dev dp1")
        guest.once()
        guest.ip(f"address del {SERVICE}/32 dev dp1")
        assert pages.requests == []
    assert "172.16.1.1/24" in guest.addresses("dp1")
    service.recover()
    assert guest.once().code == 0
