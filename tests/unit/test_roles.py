"""Which NIC is which: identity, the roles that stick, default routes of every kind, and what is stacked on what."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import replace

import pytest
from worlds import key, mac, nic, route, vlan, world

from neuca_tools.desired.roles import Policy, assign_roles, find_nics
from neuca_tools.model import Device, NicRecord, Problem, Record, World
from neuca_tools.model.topology import (
    best_default_routes,
    identity,
    is_nic,
    with_lower_devices,
    with_upper_devices,
)

ANYONE = Policy()
NOBODY = Record()
DEFAULT = "it carries the default route"
METADATA = "it carries the route to the metadata service"
RECORDED = "it is recorded as the management NIC"
CONFIGURED = "[network] management-macs names it"


def recorded(**roles):
    """A record: `nic2="dataplane"`, `nic3="released"`."""
    nics = {}
    for name, role in roles.items():
        nics[mac(int(name[3:]))] = (
            NicRecord(released=True) if role == "released" else NicRecord(role=role)
        )
    return Record(nics=nics)


def roles(seen, named=(), policy=ANYONE, record=NOBODY):
    """Role by number of NIC."""
    found = assign_roles(seen, {mac(number) for number in named}, policy, record)
    return {int(one[-2:], 16): role for one, role in found.by_mac.items()}


# --- identity -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("device", "wanted"), [
    (nic(1), True),
    (nic(1, hardware=False), False),
    (Device(1, "veth0", "veth", mac(1)), True),
    (Device(1, "tap0", "tun", mac(1)), True),
    (Device(1, "tun0", "tun", ""), False),
    (Device(1, "ib0", "", "80:00:02:08:fe:80:00:00:00:00:00:00:f4:52:14:03:00:7b:cb:a1", hardware=True), False),
    (vlan(1, 2, 7), False),
    (nic(1, mac="00:00:00:00:00:00", permanent_mac=""), False),
    *((nic(1, kind=kind), False) for kind in ("vlan", "macvlan", "bond", "bridge", "vxlan", "ipvlan", "dummy", "team")),
])  # fmt: skip
def test_hardware_veth_and_tap_are_nics_and_nothing_else_is(device, wanted):
    assert is_nic(device) is wanted


def test_a_nic_is_known_by_its_permanent_mac_and_by_its_current_one_where_there_is_none():
    assert identity(nic(1, mac=mac(9))) == mac(1)
    assert identity(nic(1, permanent_mac="", mac=mac(9))) == mac(9)


def test_two_devices_with_one_mac_are_both_left_alone_and_named():
    seen = world(nic(2, "eth3"), nic(3, "eth2")._replace(permanent_mac=mac(2)))
    nics, problems = find_nics(seen, {mac(2)})
    assert nics == {}
    assert problems == [
        Problem(
            "contested",
            '2 devices have the MAC "02:00:00:00:00:02" (eth2, eth3): they are left alone',
            key(2),
        )
    ]


def test_a_failover_standby_under_its_master_leaves_no_candidate():
    seen = world(
        nic(2),
        nic(3)._replace(permanent_mac=mac(2), master=2),
        nic(4)._replace(permanent_mac=mac(2), master=2),
    )
    assert set(find_nics(seen, {mac(2)})[0]) == {mac(2)}


@pytest.mark.parametrize(
    ("held", "text"),
    [
        ({"master": 9}, '"eth2" belongs to "bond0": it is left alone'),
        ({"master": 77}, '"eth2" belongs to another device: it is left alone'),
        ({"slave": True}, '"eth2" belongs to another device: it is left alone'),
    ],
)
def test_a_nic_with_a_master_is_left_to_it(held, text):
    seen = world(nic(2, **held), Device(9, "bond0", "bond", mac(2)))
    assert find_nics(seen, {mac(2)})[1] == [Problem("contested", text, key(2))]


def test_an_absent_nic_is_a_problem_if_it_is_named():
    assert find_nics(world(nic(2)), {mac(3)})[1] == [
        Problem("absent", 'no NIC has the MAC "02:00:00:00:00:03"', key(3))
    ]
    assert find_nics(world(nic(2)), set())[1] == []


def test_a_vlan_or_a_macvlan_with_the_mac_of_its_nic_is_no_second_candidate():
    seen = world(
        nic(2),
        vlan(3, 2, 7),
        Device(4, "macv0", "macvlan", mac(2), lower=2),
        Device(5, "bond0", "bond", mac(2)),
    )
    assert {one: device.index for one, device in find_nics(seen, {mac(2)})[0].items()} == {
        mac(2): 2
    }


# --- default routes -------------------------------------------------------------------------------------------------


def test_the_default_routes_in_force_are_those_of_the_lowest_metric_in_each_family():
    best = route("0.0.0.0/0", 1, "192.0.2.1", 100)
    also = route("0.0.0.0/0", 2, "192.0.2.2", 100)
    six = route("::/0", 3, "fe80::1", 1024)
    worse = (
        route("0.0.0.0/0", 4, "10.0.0.1", 101),
        route("::/0", 5, "fe80::2", 2048),
        route("10.0.0.0/8", 6, None, 0),
    )
    assert best_default_routes((*worse, best, also, six)) == (best, also, six)


@pytest.mark.parametrize(
    ("routes", "management"),
    [
        ([route("0.0.0.0/0", 1, "192.0.2.1")], {1}),
        ([route("::/0", 1, "fe80::1", 1024)], {1}),
        ([route("0.0.0.0/0", 1, "192.0.2.1"), route("::/0", 2, "fe80::1", 1024)], {1, 2}),
        ([route("0.0.0.0/0", 1, "192.0.2.1", 100), route("0.0.0.0/0", 2, "10.0.0.1", 200)], {1}),
        ([route("0.0.0.0/0", 1, "192.0.2.1", 100), route("0.0.0.0/0", 2, "10.0.0.1", 100)], {1, 2}),
        ([route("0.0.0.0/0", 77, "192.0.2.1")], set()),
        ([route("0.0.0.0/0", 0)], set()),
        ([route("0.0.0.0/1", 1, "192.0.2.1"), route("128.0.0.0/1", 1, "192.0.2.1")], set()),
        ([], set()),
    ],
)
def test_the_nics_of_the_best_default_routes_are_management(routes, management):
    found = roles(world(nic(1), nic(2), routes=routes), named=(1, 2))
    assert {number for number, role in found.items() if role == "management"} == management


def test_the_route_to_the_metadata_service_makes_a_nic_management_too():
    found = assign_roles(world(nic(1), nic(2), metadata=2), {mac(2)}, ANYONE, NOBODY)
    assert (found.role(mac(2)), found.reasons[mac(2)]) == ("management", METADATA)
    assert found.guard.management == {2}


@pytest.mark.parametrize(
    ("stack", "top"),
    [
        ([vlan(9, 1, 7)], 9),
        ([vlan(9, 1, 7), vlan(10, 9, 8)], 10),
        ([Device(9, "macv0", "macvlan", mac(1), lower=1)], 9),
        ([Device(9, "br0", "bridge", mac(1))], 9),
        ([Device(9, "bond0", "bond", mac(1)), vlan(10, 9, 5)], 10),
    ],
)
def test_a_default_route_on_something_above_a_nic_makes_the_nic_management(stack, top):
    below_it = nic(1, master=9 if stack[0].kind in ("bond", "bridge") else 0)
    found = assign_roles(
        world(below_it, nic(2), *stack, routes=[route("0.0.0.0/0", top, "192.0.2.1")]),
        {mac(1)},
        ANYONE,
        NOBODY,
    )
    assert (found.role(mac(1)), found.reasons) == ("management", {mac(1): DEFAULT})
    assert {1, 9, top} <= found.guard.management
    assert found.role(mac(2)) == "unlisted"


def test_both_nics_of_a_bond_with_the_default_route_are_management():
    seen = world(
        nic(1, master=9, mac=mac(1)),
        nic(2, master=9, mac=mac(1)),
        Device(9, "bond0", "bond", mac(1)),
        routes=[route("0.0.0.0/0", 9, "192.0.2.1")],
    )
    assert roles(seen, named=(1, 2)) == {1: "management", 2: "management"}


@pytest.mark.parametrize("own", [mac(1), mac(7)], ids=["MAC of the NIC", "MAC of its own"])
def test_the_nic_below_a_bridge_of_open_vswitch_with_the_default_route_is_management(own):
    """As with OVN-Kubernetes. The kernel says of a port only that it is in the datapath."""
    datapath = Device(8, "ovs-system", "openvswitch", mac(8))
    bridge = Device(9, "br-ex", "openvswitch", own, up=True)
    seen = world(datapath, bridge, nic(1, master=8), nic(2), nic(3, master=8),
                 addresses={9: "192.0.2.10/24"}, routes=[route("0.0.0.0/0", 9, "192.0.2.1")])  # fmt: skip
    found = assign_roles(seen, {mac(2)}, ANYONE, NOBODY)
    ports = {mac(1)} if own == mac(1) else {mac(1), mac(3)}
    assert found.choice.reason_by_mac.keys() == ports
    assert {1, 9} <= found.guard.devices
    assert 2 not in found.guard.devices


def test_a_guests_tap_on_the_management_bridge_is_no_management_nic():
    """Each start of a guest would add one to the record."""
    devices = [Device(9, "br0", "bridge", mac(1)), nic(1, master=9)]
    tap = nic(8, name="vnet0", kind="tun", hardware=False, permanent_mac="", master=9)
    seen = world(*devices, tap, routes=[route("0.0.0.0/0", 9, "192.0.2.1")])
    assert assign_roles(seen, set(), ANYONE, NOBODY).choice.reason_by_mac.keys() == {mac(1)}
    # In a container, there is no hardware.
    seen = world(devices[0], tap, routes=[route("0.0.0.0/0", 9, "192.0.2.1")])
    assert assign_roles(seen, set(), ANYONE, NOBODY).choice.reason_by_mac.keys() == {mac(8)}


def test_a_default_route_through_a_tunnel_or_the_loopback_makes_nobody_management():
    seen = world(nic(1), Device(9, "wg0", "wireguard"), routes=[route("0.0.0.0/0", 9)])
    assert roles(seen, named=(1,)) == {1: "dataplane"}


# --- roles that stick -----------------------------------------------------------------------------------------------

EVIDENCE = [route("0.0.0.0/0", 2, "10.0.0.254")]


@pytest.mark.parametrize(("record", "named", "evidence", "policy", "role"), [
    (recorded(), True, False, ANYONE, "dataplane"),
    (recorded(), True, True, ANYONE, "management"),
    (recorded(), False, False, ANYONE, "unlisted"),
    (recorded(), False, True, ANYONE, "management"),
    (recorded(nic2="dataplane"), True, False, ANYONE, "dataplane"),
    (recorded(nic2="dataplane"), True, True, ANYONE, "dataplane"),
    (recorded(nic2="dataplane"), False, True, ANYONE, "unlisted"),
    (recorded(nic2="management"), True, False, ANYONE, "management"),
    (recorded(nic2="management"), True, True, ANYONE, "management"),
    (recorded(nic2=""), True, True, ANYONE, "management"),
    (recorded(nic2="released"), True, False, ANYONE, "ignored"),
    (recorded(nic2="released"), True, True, ANYONE, "ignored"),
    (recorded(nic2="dataplane"), True, False, Policy(management=frozenset({mac(2)})), "management"),
    (recorded(nic2="management"), True, False, Policy(management=frozenset({mac(3)})), "dataplane"),
    (recorded(nic2="management"), True, True, Policy(management=frozenset({mac(3)})), "management"),
    (recorded(nic2="dataplane"), True, True, Policy(management=frozenset({mac(3)})), "dataplane"),
    (recorded(nic2="management"), True, True, Policy(ignored=frozenset({mac(2)})), "ignored"),
    (recorded(), True, False, Policy(frozenset({mac(2)}), frozenset({mac(2)})), "ignored"),
])  # fmt: skip
def test_the_role_of_a_nic_by_its_record_its_document_its_routes_and_the_configuration(
    record, named, evidence, policy, role
):
    seen = world(nic(2), routes=EVIDENCE if evidence else ())
    assert roles(seen, (2,) if named else (), policy, record)[2] == role


@pytest.mark.parametrize(
    ("record", "policy", "reason"),
    [
        (recorded(nic2="management"), ANYONE, RECORDED),
        (recorded(), Policy(management=frozenset({mac(2)})), CONFIGURED),
        (recorded(nic2="management"), Policy(management=frozenset({mac(2)})), CONFIGURED),
    ],
)
def test_why_a_nic_is_management_is_told(record, policy, reason):
    assert assign_roles(world(nic(2)), set(), policy, record).reasons[mac(2)] == reason


def test_an_absent_management_nic_keeps_its_role():
    assert roles(world(nic(3)), named=(2, 3), record=recorded(nic2="management")) == {
        2: "management",
        3: "dataplane",
    }


def test_two_nics_that_both_carried_a_default_route_once_both_stay_management():
    assert roles(world(nic(1), nic(2)), record=recorded(nic1="management", nic2="management")) == {
        1: "management",
        2: "management",
    }


# --- the ignore list ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ignored", [mac(2), mac(9)])
def test_the_ignore_list_is_held_against_the_permanent_and_the_current_mac(ignored):
    seen = world(
        nic(2, mac=mac(9)),
        vlan(5, 2, 7),
        vlan(6, 5, 8),
        Device(7, "macv0", "macvlan", mac(8), lower=2),
    )
    found = assign_roles(seen, {mac(2)}, Policy(frozenset({ignored})), NOBODY)
    assert found.role(mac(2)) == "ignored"
    assert found.guard.devices == {2, 5, 6, 7}
    assert found.guard.management == frozenset()


def test_what_is_tied_to_a_protected_nic_through_a_bond_is_protected_with_it():
    seen = world(
        nic(2, master=9), nic(3, master=9), Device(9, "bond0", "bond", mac(2)), vlan(10, 9, 7)
    )
    assert {2, 9, 10} <= assign_roles(
        seen, {mac(2), mac(3)}, Policy(frozenset({mac(2)})), NOBODY
    ).guard.devices


def test_a_released_nic_is_protected_like_an_ignored_one():
    found = assign_roles(world(nic(2), vlan(5, 2, 7)), {mac(2)}, ANYONE, recorded(nic2="released"))
    assert (found.role(mac(2)), found.guard.devices) == ("ignored", {2, 5})


def test_an_ignored_mac_that_nothing_has_is_no_problem():
    found = assign_roles(world(nic(2)), {mac(2)}, Policy(frozenset({mac(7)})), NOBODY)
    assert (found.by_mac, found.problems) == ({mac(2): "dataplane"}, ())


def test_the_current_mac_of_a_management_nic_counts_too():
    assert (
        roles(world(nic(2, mac=mac(9))), named=(2,), policy=Policy(management=frozenset({mac(9)})))[
            2
        ]
        == "management"
    )


# --- stacks ---------------------------------------------------------------------------------------------------------


def test_above_and_below_follow_vlans_and_masters_and_survive_a_loop():
    seen = world(
        nic(1, master=9),
        Device(9, "bond0", "bond", mac(1)),
        vlan(10, 9, 7),
        nic(2, lower=3),
        nic(3, lower=2),
    )
    assert with_upper_devices(seen, [1]) == {1, 9, 10}
    assert with_lower_devices(seen, [10]) == {10, 9, 1}
    assert with_upper_devices(seen, [2]) == {2, 3}
    assert with_upper_devices(seen, [0]) == with_lower_devices(World(), [0]) == frozenset()


def test_a_nic_that_is_named_by_the_mac_it_has_now_keeps_its_role():
    seen = world(nic(1, mac=mac(7)), nic(2, mac=mac(8)))
    policy = Policy(ignored=frozenset({mac(1)}), management=frozenset({mac(2)}))
    roles = assign_roles(seen, {mac(7), mac(8)}, policy, Record())
    assert (roles.role(mac(7)), roles.role(mac(8))) == ("ignored", "management")


# --- default routes that a manager got from DHCP, before a document was known -----------------------------------------

DHCP = 16  # RTPROT_DHCP


def leased(*metrics):
    """NICs 1, 2, … with a default route each, from DHCP, with these metrics; the metadata service is on the link of NIC 1."""
    nics = [nic(number, up=True, carrier=True) for number in range(1, len(metrics) + 1)]
    defaults = [route("0.0.0.0/0", number, f"10.0.{number}.1", metric, DHCP)
                for number, metric in enumerate(metrics, 1) if metric]  # fmt: skip
    return world(*nics, routes=defaults, metadata=1)


@pytest.mark.parametrize("metrics", [(1024, 1024, 1024), (102, 100, 101)])
def test_default_routes_from_dhcp_make_no_management_nic_beside_one_that_is_sure_and_has_its_own(
    metrics,
):
    assert roles(leased(*metrics)) == {1: "management", 2: "unlisted", 3: "unlisted"}
    assert roles(leased(*metrics), named=(2, 3)) == {
        1: "management",
        2: "dataplane",
        3: "dataplane",
    }
    assert roles(leased(*metrics), named=(1, 2)) == {1: "management", 2: "dataplane", 3: "unlisted"}
    nowhere = replace(leased(*metrics), metadata_index=0)
    assert (
        roles(nowhere, named=(2, 3), policy=Policy(management=frozenset({mac(1)})))[2]
        == "dataplane"
    )


def test_a_default_route_from_dhcp_protects_the_nic_that_is_believed_and_one_set_by_hand_any_nic():
    assert roles(leased(None, 100), named=(2,)) == {1: "management", 2: "dataplane"}
    by_hand = replace(
        leased(102, None),
        routes=(*leased(102, None).routes, route("0.0.0.0/0", 2, "10.0.2.1", 100)),
    )
    assert roles(by_hand, named=(2,)) == {1: "management", 2: "management"}
    nowhere = replace(leased(100, 100), metadata_index=0)
    assert roles(nowhere, named=(2,)) == {1: "management", 2: "dataplane"}


def test_an_advertised_default_route_tells_nothing_beside_one_of_ipv4():
    """Any host on the link can advertise one (RFC 4861, section 11)."""
    six = route("::/0", 2, "fe80::1", 100, 9)
    seen = replace(leased(100, None), routes=(*leased(100, None).routes, six))
    assert roles(seen, named=(2,)) == {1: "management", 2: "dataplane"}
    alone = replace(leased(None, None), routes=(six,), metadata_index=0)
    assert roles(alone, named=(2,))[2] == "dataplane"
    believed = replace(alone, routes=(replace(six, index=1),))
    assert roles(believed, named=(2,)) == {1: "management", 2: "dataplane"}


def test_management_for_such_a_route_alone_is_recorded_with_a_doubt_that_a_better_one_ends():
    before = assign_roles(replace(leased(100, None), metadata_index=0), {mac(2)}, ANYONE, NOBODY)
    assert before.choice.by_automatic_route_only == {mac(1): (4,)}
    doubt = Record(nics={mac(2): NicRecord(role="management", doubtful=(4,))})
    assert roles(leased(None, None), named=(2,), record=doubt)[2] == "management"
    assert roles(leased(102, 100), named=(2,), record=doubt)[2] == "dataplane"
    firm = Record(nics={mac(2): NicRecord(role="management")})
    assert roles(leased(102, 100), named=(2,), record=firm)[2] == "management"
    assert (
        assign_roles(leased(102, 100), {mac(2)}, ANYONE, firm).choice.by_automatic_route_only == {}
    )


def test_a_doubt_of_ipv6_is_ended_by_any_other_sign_of_a_management_nic():
    six, better = route("::/0", 2, "fe80::1", 1024, 9), route("::/0", 1, "fe80::2", 100, 9)
    alone = replace(leased(None, None), routes=(better,), metadata_index=0)
    assert assign_roles(alone, {mac(2)}, ANYONE, NOBODY).choice.by_automatic_route_only == {
        mac(1): (6,)
    }
    doubt = Record(nics={mac(2): NicRecord(role="management", doubtful=(6,))})
    anchored4 = leased(100, None)
    for seen in (anchored4, replace(anchored4, routes=(*anchored4.routes, six))):
        assert roles(seen, named=(2,), record=doubt)[2] == "dataplane"
    assert (
        roles(
            replace(anchored4, routes=(*anchored4.routes, better, six)), named=(2,), record=doubt
        )[2]
        == "dataplane"
    )


def test_a_doubt_of_both_families_loses_one_after_the_other():
    six = route("::/0", 1, "fe80::2", 100, 9)
    doubt = Record(nics={mac(2): NicRecord(role="management", doubtful=(4, 6))})
    assert roles(leased(100, None), named=(2,), record=doubt)[2] == "dataplane"
    assert (
        roles(replace(leased(None, None), routes=(six,)), named=(2,), record=doubt)[2]
        == "management"
    )
    assert (
        roles(
            replace(leased(100, None), routes=(*leased(100, None).routes, six)),
            named=(2,),
            record=doubt,
        )[2]
        == "dataplane"
    )
