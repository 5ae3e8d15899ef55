"""What a document may not ask for, each with its exact reason: prefixes, addresses and sysctls."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address, ip_interface, ip_network

import pytest
from worlds import key, mac, nic, route, vlan, world

from neuca_tools.backends.dhcplease import reason_to_refuse
from neuca_tools.desired.roles import Policy, assign_roles
from neuca_tools.desired.safety import guarded_networks, management_networks, request_limits
from neuca_tools.model import NicRecord, OwnedObjects, Record
from neuca_tools.tuning.allowed_sysctls import key_reason

TOO_SHORT = "a prefix of length 0 or 1 would replace the default route"
INSIDE = "it is inside the management network 192.0.2.0/24"
INSIDE6 = "it is inside the management network 2001:db8:1::/64"


def took(host):
    return f"it would take over {host}, which is reached through the management NIC"


def survey(named=(2,), routes=(), allow=False, metadata_hosts=()):
    """A fence round management NIC 1: 192.0.2.10/24 and 2001:db8:1::10/64, gateway 192.0.2.1."""
    seen = world(
        nic(1),
        nic(2),
        nic(3),
        vlan(9, 2, 7),
        addresses={1: "192.0.2.10/24 2001:db8:1::10/64 fe80::1/64", 2: "10.0.0.1/24 fe80::2/64"},
        routes=[route("0.0.0.0/0", 1, "192.0.2.1", 100), route("192.0.2.0/24", 1), *routes],
    )
    roles = assign_roles(seen, {mac(number) for number in named}, Policy(), Record())
    return request_limits(seen, roles, map(ip_address, metadata_hosts), allow)


@pytest.mark.parametrize(("to", "reason"), [
    ("0.0.0.0/0", TOO_SHORT),
    ("::/0", TOO_SHORT),
    ("0.0.0.0/1", TOO_SHORT),
    ("128.0.0.0/1", TOO_SHORT),
    ("8000::/1", TOO_SHORT),
    ("192.0.2.0/24", "it is the management network 192.0.2.0/24"),
    ("192.0.2.128/25", INSIDE),
    ("192.0.2.10/32", INSIDE),
    ("192.0.2.1/32", INSIDE),
    ("2001:db8:1::/64", "it is the management network 2001:db8:1::/64"),
    ("2001:db8:1::10/128", INSIDE6),
    ("192.0.0.0/16", None),
    ("192.0.2.0/23", None),
    ("169.254.0.0/16", took("169.254.169.254")),
    ("169.254.169.254/32", took("169.254.169.254")),
    ("128.0.0.0/2", took("169.254.169.254")),
    ("fd00:ec2::254/128", took("fd00:ec2::254")),
    ("fd00:ec2::/32", took("fd00:ec2::254")),
    ("fd00::/8", took("fd00:ec2::254")),
    ("64.0.0.0/2", None),
    ("10.20.0.0/16", None),
    ("2001:db8:20::/48", None),
    ("fe80::/64", None),
])  # fmt: skip
def test_a_route_is_refused_for_this_reason(to, reason):
    assert survey().route_reason(ip_network(to)) == reason


def test_a_prefix_wider_than_the_management_network_is_no_closer_than_that_is_now():
    assert survey().route_reason(ip_network("192.0.0.0/22")) is None


def test_a_gateway_that_is_only_reached_through_the_default_route_is_not_taken_over():
    outside = survey(routes=[route("::/0", 1, "2001:db8:ffff::1", 1024)])
    assert outside.route_reason(ip_network("2001:db8:ffff::/48")) == took("2001:db8:ffff::1")


def test_a_metadata_service_of_the_configuration_is_guarded_too():
    assert survey(metadata_hosts=["203.0.113.5"]).route_reason(
        ip_network("203.0.113.0/24")
    ) == took("203.0.113.5")


def test_a_metadata_service_on_the_loopback_needs_no_guard():
    assert survey(metadata_hosts=["127.0.0.1"]).route_reason(ip_network("126.0.0.0/7")) is None


def test_a_metadata_route_that_is_there_lets_only_shorter_prefixes_through():
    there = survey(routes=[route("169.254.169.254/32", 1, "192.0.2.1")])
    assert there.route_reason(ip_network("169.254.0.0/16")) is None
    assert there.route_reason(ip_network("169.254.169.254/32")) == took("169.254.169.254")


def test_a_route_of_ours_on_a_dataplane_nic_does_not_open_the_fence():
    ours = survey(routes=[route("169.254.0.0/16", 2, "10.0.0.254", 20, 110)])
    assert ours.route_reason(ip_network("169.254.0.0/16")) == took("169.254.169.254")


def test_nor_does_our_route_on_a_vlan_with_its_own_mac_address_open_it():
    made = Record(boot_id="boot-1", owned=OwnedObjects(vlans=frozenset({key(2, 7)})))
    seen = world(
        nic(1),
        nic(2),
        vlan(9, 2, 7, mac="02:00:00:00:aa:01"),
        addresses={1: "192.0.2.10/24"},
        routes=[
            route("0.0.0.0/0", 1, "192.0.2.1"),
            route("169.254.0.0/16", 9, "10.0.0.254", 20, 110),
        ],
    )
    limits = request_limits(seen, assign_roles(seen, {mac(2)}, Policy(), made), ())
    assert limits.route_reason(ip_network("169.254.0.0/16")) == took("169.254.169.254")


@pytest.mark.parametrize(("address", "reason"), [
    ("192.0.2.77/24", INSIDE),
    ("192.0.2.77/32", INSIDE),
    ("192.0.2.77/8", INSIDE),
    ("2001:db8:1::77/128", INSIDE6),
    ("169.254.169.254/32", took("169.254.169.254")),
    ("169.254.7.7/16", took("169.254.169.254")),
    ("fd00:ec2::1/64", took("fd00:ec2::254")),
    ("10.0.0.1/1", TOO_SHORT),
    ("192.0.3.1/23", None),
    ("10.0.0.1/24", None),
    ("fe80::77/64", None),
    ("::ffff:192.0.2.77/120", None),
])  # fmt: skip
def test_an_address_is_refused_for_this_reason(address, reason):
    assert survey().address_reason(ip_interface(address)) == reason


def test_the_broadcast_address_of_a_network_takes_over_no_guarded_host():
    """The kernel routes it to the link, whatever routes the network itself has."""
    seen = world(
        nic(1),
        nic(2),
        addresses={1: "10.0.0.127/32"},
        routes=[route("10.0.0.63/32", 1), route("0.0.0.0/0", 1, "10.0.0.63")],
    )
    limits = request_limits(seen, assign_roles(seen, {mac(2)}, Policy(), Record()), ())
    own = "its broadcast address 10.0.0.127 is an address of the management NIC"
    for address, reason in (
        ("10.0.0.1/25", own),
        ("10.0.0.1/26", took("10.0.0.63")),
        ("10.0.0.62/31", None),  # which has none (RFC 3021)
        ("10.0.0.1/24", None),
    ):
        for reason_of in (limits.address_reason, limits.bare_address_reason):
            assert reason_of(ip_interface(address)) == reason


@pytest.mark.parametrize(("own", "on_link", "inside"), [
    ("2001:db8:1::10/128", "2001:db8:1::/64", "2001:db8:1::5/64"),
    ("10.128.0.10/32", "10.128.0.0/20", "10.128.0.5/20"),
])  # fmt: skip
def test_a_network_that_is_only_routed_on_the_management_link_is_one_of_its_networks(
    own, on_link, inside
):
    """DHCPv6 and some clouds give the host a single address, and the network as a route without a gateway."""
    seen = world(
        nic(1),
        nic(2),
        addresses={1: own},
        routes=[route("0.0.0.0/0", 1, "10.128.0.1"), route(on_link, 1)],
    )
    found = request_limits(seen, assign_roles(seen, {mac(2)}, Policy(), Record()), ())
    assert (
        found.address_reason(ip_interface(inside))
        == f"it is inside the management network {on_link}"
    )
    assert found.route_reason(ip_network(on_link)) == f"it is the management network {on_link}"


# --- default routes, where the configuration allows them ------------------------------------------------------------


@pytest.mark.parametrize(
    ("to", "reason"),
    [
        ("0.0.0.0/0", "this host has a default route already"),
        ("::/0", None),
        ("0.0.0.0/1", TOO_SHORT),
    ],
)
def test_a_default_route_is_allowed_if_configured_and_none_exists(to, reason):
    assert survey(allow=True).route_reason(ip_network(to)) == reason


def test_a_default_route_of_ours_does_not_stand_in_its_own_way():
    seen = world(
        nic(2), addresses={2: "10.0.0.1/24"}, routes=[route("0.0.0.0/0", 2, "10.0.0.254", 20, 110)]
    )
    roles = assign_roles(
        seen, {mac(2)}, Policy(), Record(nics={mac(2): NicRecord(role="dataplane")})
    )
    assert request_limits(seen, roles, (), True).route_reason(ip_network("0.0.0.0/0")) is None


def test_a_host_with_a_default_route_only_on_an_unlisted_nic_has_one():
    seen = world(nic(2), nic(3), routes=[route("0.0.0.0/0", 3, "10.9.9.9")])
    roles = assign_roles(
        seen, {mac(2)}, Policy(), Record(nics={mac(3): NicRecord(role="dataplane")})
    )
    assert roles.role(mac(3)) == "unlisted"
    assert (
        request_limits(seen, roles, (), True).route_reason(ip_network("0.0.0.0/0"))
        == "this host has a default route already"
    )


# --- routes through the management gateway --------------------------------------------------------

EXPLICIT = [
    route("10.20.0.0/16", 1, "192.0.2.1", 100, 16),
    route("10.0.0.0/8", 1, "192.0.2.1", 100, 16),
    route("8.0.0.0/6", 1, "192.0.2.1", 100),
    route("198.51.100.7/32", 1, "192.0.2.1", 100),
    route("2001:db8:20::/48", 1, "2001:db8:1::1", 1024),
    route("2000::/3", 1, "2001:db8:1::1", 1024),
]
ROUTED = "which is routed through the management NIC"


@pytest.mark.parametrize(("to", "reason"), [
    ("10.20.0.0/16", f"it is 10.20.0.0/16, {ROUTED}"),
    ("10.20.30.0/24", f"it is inside 10.20.0.0/16, {ROUTED}"),
    ("10.20.30.40/32", f"it is inside 10.20.0.0/16, {ROUTED}"),
    ("10.0.0.0/8", f"it is 10.0.0.0/8, {ROUTED}"),
    ("8.0.0.0/6", f"it is 8.0.0.0/6, {ROUTED}"),
    ("198.51.100.7/32", f"it is 198.51.100.7/32, {ROUTED}"),
    ("2001:db8:20::/48", f"it is 2001:db8:20::/48, {ROUTED}"),
    ("2001:db8:20:1::/64", f"it is inside 2001:db8:20::/48, {ROUTED}"),
    ("2000::/3", f"it is 2000::/3, {ROUTED}"),
    ("10.128.0.0/10", None),
    ("10.16.0.0/12", None),
    ("198.51.100.0/24", None),
    ("2001:db8:30::/48", None),
])  # fmt: skip
def test_a_route_through_the_management_gateway_is_not_overridden(to, reason):
    """Longer prefixes are free inside a broad route, such as 10.0.0.0/8 and 2000::/3 here."""
    assert survey(routes=EXPLICIT).route_reason(ip_network(to)) == reason


def test_the_network_of_an_address_does_not_override_it_either():
    there = survey(routes=EXPLICIT)
    assert (
        there.address_reason(ip_interface("10.20.30.1/24"))
        == f"it is inside 10.20.0.0/16, {ROUTED}"
    )
    assert there.address_reason(ip_interface("10.30.0.1/24")) is None


def test_routes_of_ours_or_through_other_nics_stand_in_nobodys_way():
    there = survey(
        routes=[
            route("10.20.0.0/16", 2, "10.0.0.254", 100),
            route("10.30.0.0/16", 3, "10.3.0.254", 100),
            route("10.40.0.0/16", 1, "192.0.2.1", 20, 110),
        ]
    )
    assert [there.route_reason(ip_network(f"10.{number}.0.0/16")) for number in (20, 30, 40)] == [
        None
    ] * 3


def test_no_lease_may_have_an_address_of_the_management_nic_even_while_that_is_missing():
    """The client checks its lease against what the last pass has seen, and the addresses of the moment."""
    fixed, timed = "2001:db8::10/64", "2001:db8::abcd/64"
    seen = world(nic(1), nic(2), addresses={1: f"192.0.2.10/24 {fixed} {timed}"})
    seen = replace(seen, leased_addresses=frozenset({(1, ip_interface(timed))}))
    roles = assign_roles(seen, {mac(2)}, Policy(management=frozenset({mac(1)})), Record())
    guarded = guarded_networks(seen, roles, (), ())
    assert guarded == ("192.0.2.10/32", "2001:db8::10/128")
    missing = world(nic(2))
    offered = ip_interface("192.0.2.10/24")
    assert reason_to_refuse(offered, 2, missing, guarded=guarded) == took("192.0.2.10")


def test_routes_through_the_management_gateway_are_remembered_for_the_next_boot():
    seen = world(
        nic(1),
        nic(2),
        addresses={1: "192.0.2.10/24"},
        routes=[route("0.0.0.0/0", 1, "192.0.2.1"), route("192.0.2.0/24", 1), *EXPLICIT],
    )
    roles = assign_roles(seen, {mac(2)}, Policy(), Record())
    kept = ("10.20.0.0/16", "192.0.2.0/24", "192.0.2.1/32", "198.51.100.7/32", "2001:db8:20::/48")
    assert management_networks(seen, roles) == kept
    without = replace(seen, routes=seen.routes[1:])
    assert management_networks(without, roles, kept) == kept
    assert management_networks(world(nic(1)), roles, kept) == kept
    after = world(nic(1), nic(2))
    # No server may give away an address there; with a gateway, that of its own family only.
    assert guarded_networks(after, roles, (), kept) == kept
    assert guarded_networks(seen, roles, [ip_address("198.51.100.8")], kept) == (
        "192.0.2.1/32",
        "192.0.2.10/32",
        "198.51.100.8/32",
        "2001:db8:20::/48",
    )
    limits = request_limits(after, roles, (), before=kept)
    assert limits.route_reason(ip_network("10.20.30.0/24")) is not None


# --- sysctls --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("path", "reason"), [
    ("net/ipv4/conf/{interface}/rp_filter", None),
    ("net/ipv6/conf/{interface}/accept_ra", None),
    ("net/ipv4/neigh/{interface}/gc_stale_time", None),
    ("net/ipv6/neigh/{interface}/mcast_solicit", None),
    ("net/mpls/conf/{interface}/input", None),
    ("net/core/rmem_max", None),
    ("net/ipv4/tcp_rmem", None),
    ("net/ipv4/neigh/default/gc_thresh3", None),
    ("net/ipv4/conf/all/rp_filter", 'it would change "all", not this interface alone'),
    ("net/ipv4/conf/default/rp_filter", 'it would change "default", not this interface alone'),
    ("net/ipv6/conf/default/accept_ra", 'it would change "default", not this interface alone'),
    ("net/ipv4/conf/eth0/rp_filter", 'it would change "eth0", not this interface alone'),
    ("net/ipv4/conf/eth1.7/rp_filter", 'it would change "eth1.7", not this interface alone'),
    ("net/ipv4/neigh/eth0/gc_stale_time", 'it would change "eth0", not this interface alone'),
    ("net/ipv4/conf/{interface}", 'it would change "{interface}", not this interface alone'),
    ("net/ipv4/conf", 'it would change "", not this interface alone'),
    ("net/ipv4/ip_forward", "it changes every interface; use router in [global]"),
    ("net/ipv4/route/flush", "it triggers an action and is not a setting"),
    ("net/core/{interface}", "{interface} does not belong in it"),
    ("net/ipv4/conf/x{interface}/rp_filter", 'it would change "x{interface}", not this interface alone'),
])  # fmt: skip
def test_a_sysctl_is_refused_for_this_reason(path, reason):
    assert key_reason(path) == reason


def test_before_the_management_nic_has_its_address_its_network_of_before_is_guarded():
    seen = world(nic(1), nic(2))
    roles = assign_roles(seen, {mac(2)}, Policy(management=frozenset({mac(1)})), Record())
    limits = request_limits(seen, roles, (), before=("192.168.50.0/24", "192.168.50.1/32"))
    assert limits.address_reason(ip_interface("192.168.50.77/24")) is not None
    assert limits.route_reason(ip_network("192.168.50.0/25")) is not None
    reason = "it would take over 192.168.50.1, which is reached through the management NIC"
    assert limits.route_reason(ip_network("192.168.0.0/16")) == reason
    assert limits.address_reason(ip_interface("172.16.0.1/24")) is None
