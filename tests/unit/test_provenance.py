"""Who has set a route: what a lease has brought is told from what an administrator has added by hand."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_interface

import pytest
from worlds import nic, route, world

from neuca_tools.backends.kernel_state import leased_without_end
from neuca_tools.model.provenance import (
    ADMINISTRATOR,
    ADVERTISEMENT,
    AGENT,
    KERNEL,
    LEASE,
    is_automatic,
    route_provenance,
)
from neuca_tools.model.routing import ROUTE_PROTOCOL

LEASED = ip_interface("10.0.0.5/24")
KERNELS, BOOT, DHCP, RA = 2, 3, 16, 9  # RTPROT_* (linux/rtnetlink.h)


def setter(seen, addresses, lifetime):
    """Who has set the route of a host whose NIC has these addresses, of which LEASED has a lifetime."""
    leases = {lifetime: frozenset({(2, LEASED)})}
    host = world(nic(2), addresses={2: addresses}, routes=[seen], **leases)
    return route_provenance(seen, host)


@pytest.mark.parametrize(
    ("seen", "addresses", "expected"),
    [
        (route("0.0.0.0/0", 2, "10.0.0.1", protocol=DHCP), "", LEASE),
        (route("0.0.0.0/0", 2, "10.0.0.1", protocol=ROUTE_PROTOCOL), "10.0.0.5/24", AGENT),
        # The scripts of dhclient and udhcpc add routes like an administrator.
        (route("0.0.0.0/0", 2, "10.0.0.1", protocol=BOOT), "10.0.0.5/24", LEASE),
        (route("0.0.0.0/0", 2, "10.0.0.1", protocol=BOOT), "10.0.0.5/24 192.0.2.5/24", LEASE),
        (route("0.0.0.0/0", 2, "192.0.2.1", protocol=BOOT), "10.0.0.5/24 192.0.2.5/24", ADMINISTRATOR),
        (route("10.9.0.0/16", 2, protocol=BOOT), "10.0.0.5/24", LEASE),
        (route("10.9.0.0/16", 2, protocol=BOOT), "10.0.0.5/24 192.0.2.5/24", ADMINISTRATOR),
        # The kernel adds the route to the network of each address.
        (route("10.0.0.0/24", 2, protocol=KERNELS), "10.0.0.5/24 192.0.2.5/24", LEASE),
        (route("192.0.2.0/24", 2, protocol=KERNELS), "10.0.0.5/24 192.0.2.5/24", KERNEL),
        # The lease has ended: the address is gone.
        (route("0.0.0.0/0", 2, "192.0.2.1", protocol=BOOT), "192.0.2.5/24", ADMINISTRATOR),
        (route("192.0.2.0/24", 2, protocol=KERNELS), "192.0.2.5/24", KERNEL),
        (route("::/0", 2, "fe80::1", protocol=BOOT), "10.0.0.5/24", ADMINISTRATOR),
        (route("::/0", 2, "fe80::1", protocol=RA), "10.0.0.5/24", ADVERTISEMENT),
        # The network of an address with a lifetime, and one that was advertised.
        (replace(route("fd00::/64", 2, protocol=KERNELS), expires=True), "fd00::5/64", LEASE),
        (replace(route("fd00::/64", 2, protocol=KERNELS), expires=True), "fd01::5/64", ADVERTISEMENT),
    ],
)  # fmt: skip
@pytest.mark.parametrize("lifetime", ["leased_addresses", "endless_leases"])
def test_a_route_is_of_its_lease_unless_it_belongs_to_an_address_set_by_hand(seen, addresses, expected, lifetime):  # fmt: skip
    assert setter(seen, addresses, lifetime) == expected


@pytest.mark.parametrize(
    ("addresses", "guessed"),
    [("169.254.7.7/16", True), ("169.254.7.7/16 192.0.2.10/32", False), ("192.0.2.10/32", False)],
)
def test_a_link_local_address_beside_one_set_by_hand_is_no_lease(addresses, guessed):
    """So a static address with a gateway outside of its network still shows the management NIC."""
    seen = world(nic(2), addresses={2: addresses})
    leases = leased_without_end(seen)
    assert {str(address) for _, address in leases} == ({"169.254.7.7/16"} if guessed else set())
    seen = replace(seen, endless_leases=leases)
    assert is_automatic(route("0.0.0.0/0", 2, "172.31.1.1", protocol=BOOT), seen) == guessed
