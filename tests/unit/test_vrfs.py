"""VRFs over the model kernel: what is asked for, in which order, what is refused, and how they are taken back."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_interface, ip_network

import pytest
from worlds import Agent, mac, machine, nic, texts

from neuca_tools.desired.management import Policy
from neuca_tools.documents import parse
from neuca_tools.model import Device, LinkKey, Route
from neuca_tools.model.routing import Rule, SeenRule, Traits

ONE, TWO, THREE = mac(2), mac(3), mac(4)
VRF = f"[vrf blue]\ntable = 100\nmembers = {ONE}\n"
NIC = f"[interface {ONE}]\naddresses = 10.0.0.1/24, fd00::1/64\n"
ROUTES = "[routes]\n10.9.0.0/16 = 10.0.0.2\n0.0.0.0/0 = 10.0.0.2\n"


def agent(text, *devices, **settings):
    return Agent(
        machine(nic(1, "mgmt0"), nic(2), nic(3), nic(4), *devices, mgmt=1), text, **settings
    )


def run(one, text=None):
    """A pass after which nothing is left; its operations as a person sees them."""
    if text is not None:
        one.ask(text)
    operations, result, _ = one.run()
    assert [failure.text for failure in result.failures] == []
    assert texts(one.plan()) == []
    return texts(operations)


def refused(one):
    one.run()
    assert texts(one.plan()) == []
    found = one.survey().resolution.problems
    return [(str(problem.link), problem.text) for problem in found]


def routes(one):
    """Our routes: prefix, name of the device, table."""
    names = {index: device.name for index, device in one.kernel.devices.items()}
    return {
        (str(route.to), names[route.index], route.traits.table)
        for route in one.kernel.routes
        if route.protocol == 110
    }


def test_a_nic_joins_a_vrf_before_it_has_its_addresses_and_its_routes():
    one = agent(VRF + NIC + ROUTES)
    assert run(one) == [
        "create the VRF blue (table 100)",
        "add eth2 to blue",
        "bring eth2 up",
        "bring blue up",
        "add the address 10.0.0.1/24 to eth2",
        "add the address fd00::1/64 to eth2",
        "route 10.9.0.0/16 via 10.0.0.2 on eth2 in table 100",
        "route 0.0.0.0/0 via 10.0.0.2 on eth2 in table 100",
    ]


def test_what_a_nic_loses_when_it_joins_or_leaves_is_set_again():
    one = agent(NIC + "[routes]\n10.9.0.0/16 = 10.0.0.2\n")
    run(one)
    assert run(one, VRF + NIC + "[routes]\n10.9.0.0/16 = 10.0.0.2\n") == [
        "delete the route to 10.9.0.0/16 via 10.0.0.2 on eth2",
        "create the VRF blue (table 100)",
        "add eth2 to blue",
        "bring blue up",
        "add the address fd00::1/64 to eth2",
        "route 10.9.0.0/16 via 10.0.0.2 on eth2 in table 100",
    ]
    assert run(one, NIC + "[routes]\n10.9.0.0/16 = 10.0.0.2\n") == [
        "delete the VRF blue",
        "add the address fd00::1/64 to eth2",
        "route 10.9.0.0/16 via 10.0.0.2 on eth2",
        "delete the route to 10.9.0.0/16 via 10.0.0.2 on eth2 in table 100",
    ]
    assert routes(one) == {("10.9.0.0/16", "eth2", 254)}


def test_an_ipv6_address_of_the_user_survives_the_way_into_a_vrf():
    one = agent(NIC)
    run(one)
    theirs = ip_interface("fd00:9::9/64")
    one.kernel.add_address(2, theirs)
    run(one, VRF + NIC)
    assert theirs in one.kernel.addresses[2]


@pytest.mark.parametrize(
    "text",
    [
        VRF,
        f"[vrf blue]\ntable = 100\n[interface {ONE}]\nvrf = blue\n",
    ],
)
def test_members_are_said_on_either_side(text):
    one = agent(text)
    run(one)
    assert one.kernel.devices[2].master == one.kernel.named("blue").index


def test_a_vlan_and_a_bond_can_be_members():
    one = agent(
        "[vrf blue]\ntable = 100\n"
        f"[vlan {ONE}.5]\nvrf = blue\naddresses = 10.5.0.1/24\n"
        f"[bond bond0]\nmode = active-backup\nmembers = {TWO}\nvrf = blue\naddresses = 10.7.0.1/24\n"
    )
    run(one)
    blue = one.kernel.named("blue").index
    assert {one.name for one in one.kernel.members(blue)} == {"eth2.5", "bond0"}
    assert {one.kernel.named(name).name for name in ("eth2.5", "bond0")} == {"eth2.5", "bond0"}


def test_the_gateway_of_a_member_is_the_default_route_of_its_vrf_and_makes_no_rules():
    one = agent(VRF + NIC + "gateway = 10.0.0.2\n")
    assert "route 0.0.0.0/0 via 10.0.0.2 on eth2 in table 100" in run(one)
    assert one.kernel.rules == []


def test_the_networks_of_members_are_in_no_table_of_policy_routing():
    other = f"[interface {TWO}]\naddresses = 10.1.0.1/24\ngateway = 10.1.0.2\n"
    one = agent(VRF + NIC + other)
    run(one)
    assert not any(to.startswith("10.0.0.") for to, _, table in routes(one) if table > 31000)


def test_a_new_table_makes_the_vrf_anew():
    one = agent(VRF + NIC + ROUTES)
    run(one)
    run(one, (VRF + NIC + ROUTES).replace("table = 100", "table = 200"))
    assert dict(one.kernel.named("blue").options)["table"] == "200"
    assert {table for _, _, table in routes(one)} == {200}


def test_two_nics_that_change_their_vrfs():
    both = "[vrf blue]\ntable = 100\nmembers = {}\n[vrf red]\ntable = 200\nmembers = {}\n"
    text = NIC + f"[interface {TWO}]\naddresses = 10.1.0.1/24, fd00:1::1/64\n"
    one = agent(both.format(ONE, TWO) + text)
    run(one)
    run(one, both.format(TWO, ONE) + text)
    kernel = one.kernel
    assert [kernel.devices[index].master for index in (2, 3)] == [
        kernel.named("red").index,
        kernel.named("blue").index,
    ]
    assert {"fd00::1/64", "fd00:1::1/64"} <= {
        str(address) for index in (2, 3) for address in kernel.addresses[index]
    }


def test_everything_is_taken_back():
    one = agent(VRF + NIC + ROUTES)
    run(one)
    run(one, "[global]\n")
    assert one.kernel.named("blue") is None
    assert routes(one) == set()
    assert (one.kernel.devices[2].master, one.record.owned.vlans) == (0, frozenset())
    assert [str(address) for address in one.kernel.addresses[2]] == ["fe80::2/64"]


# --- what is refused ------------------------------------------------------------------------------


def test_a_vrf_never_takes_the_management_nic():
    one = agent(f"[vrf blue]\ntable = 100\nmembers = {mac(1)}, {ONE}\n" + NIC)
    found = [text for link, text in refused(one) if link == "vrf blue"]
    assert found[0].startswith(f"{mac(1)} is on the management NIC: ")
    assert one.kernel.named("blue") is None
    assert one.kernel.devices[1].master == 0


def test_the_addresses_of_a_member_are_not_set_outside_of_its_vrf():
    one = agent(f"[vrf blue]\ntable = 100\nmembers = {mac(1)}, {ONE}\n" + NIC + ROUTES)
    found = refused(one)
    text = 'address 10.0.0.1/24: it belongs to the VRF "blue", which cannot be created'
    assert (ONE, text) in found
    assert routes(one) == set()
    assert "10.0.0.1/24" not in {str(one) for one in one.kernel.addresses.get(2, ())}


def test_a_vrf_never_takes_an_ignored_nic():
    policy = Policy(ignored=frozenset({TWO}))
    one = agent(f"[vrf blue]\ntable = 100\nmembers = {TWO}\n", policy=policy)
    assert ("vrf blue", f"{TWO} is ignored") in refused(one)
    assert one.kernel.devices[3].master == 0


@pytest.mark.parametrize(
    "table", ["253", "254", "255", "main", "0", "4294967296", "31005", "1073741826"]
)
def test_a_table_of_the_kernel_or_of_policy_routing_is_a_fault(table):
    document = parse(f"[vrf blue]\ntable = {table}\nmembers = {ONE}\n")
    assert [fault.severity for fault in document.faults] == ["error"]


def test_a_vrf_without_a_table_is_refused():
    assert ("vrf blue", "it requires table") in refused(agent(f"[interface {ONE}]\nvrf = blue\n"))


def test_no_vlan_can_be_on_a_vrf():
    document = parse("[vlan vrf blue.5]\naddresses = 10.5.0.1/24\n")
    assert [fault.reason for fault in document.faults] == [
        'there can be no VLAN on "vrf blue", ignoring the section'
    ]


def test_two_vrfs_with_one_table_are_refused():
    found = refused(agent(VRF + f"[vrf red]\ntable = 100\nmembers = {TWO}\n"))
    assert found == [
        ("vrf blue", "the table 100 is requested for vrf red too"),
        ("vrf red", "the table 100 is requested for vrf blue too"),
    ]


def test_the_table_of_policy_routing_is_refused():
    other = f"[interface {TWO}]\naddresses = 10.1.0.1/24\ngateway = 10.1.0.2\ntable = 100\n"
    assert (
        "vrf blue",
        f"the table 100 is that of the policy routing of {TWO}",
    ) in refused(agent(VRF + other))


def test_a_table_with_routes_of_the_management_nic_is_refused():
    one = agent(VRF)
    one.kernel.routes.append(
        Route(ip_network("10.66.0.0/24"), 1, None, 0, 4, traits=Traits(table=100))
    )
    text = "the table 100 has a route of the management NIC, to 10.66.0.0/24"
    assert ("vrf blue", text) in refused(one)


def test_a_table_with_a_foreign_route_is_refused():
    one = agent(VRF)
    one.kernel.routes.append(
        Route(ip_network("10.66.0.0/24"), 4, None, 0, 4, traits=Traits(table=100))
    )
    text = "the table 100 has a route of another program, to 10.66.0.0/24"
    assert ("vrf blue", text) in refused(one)


def test_a_table_that_a_foreign_rule_leads_to_is_refused(monkeypatch):
    one = agent(VRF)
    world = one.kernel.world
    rules = (SeenRule(Rule(4, 500, 100), 4),)
    monkeypatch.setattr(one.kernel, "world", lambda: replace(world(), rules=rules))
    assert ("vrf blue", "rule 500 of another program refers to the table 100") in refused(one)


FOREIGN = Device(9, "mgmt", "vrf", mac(9), options=(("mac", mac(9)), ("table", "10")), mtu=65575)


def test_the_table_of_a_vrf_that_is_not_ours_is_refused():
    one = agent(VRF.replace("100", "10"), FOREIGN)
    text = 'the table 10 is that of the VRF "mgmt", which neucad did not create'
    assert ("vrf blue", text) in refused(one)


@pytest.mark.parametrize("to", ["0.0.0.0/0", "0.0.0.0/1", "10.9.0.0/16", "169.254.169.254/32"])
def test_no_document_adds_a_route_to_the_table_of_a_vrf_that_is_not_ours(to):
    one = agent(NIC + f"[routes]\n{to} = 10.0.0.2 table 10\n", FOREIGN)
    reason = 'the table 10 is that of the VRF "mgmt", which neucad did not create'
    assert ("None", f"route to {to}: {reason}") in refused(one)
    assert routes(one) == set()


@pytest.mark.parametrize("table", [10, 200])
def test_policy_routing_puts_no_default_route_into_a_table_that_others_use(monkeypatch, table):
    one = agent(NIC + f"gateway = 10.0.0.2\ntable = {table}\n", FOREIGN)
    world = one.kernel.world
    rules = (SeenRule(Rule(4, 500, 200), 4),)
    monkeypatch.setattr(one.kernel, "world", lambda: replace(world(), rules=rules))
    one.run()
    reasons = {
        10: 'the table 10 is that of the VRF "mgmt", which neucad did not create',
        200: "rule 500 of another program refers to the table 200",
    }
    assert [note.reason for note in one.survey().resolution.notes] == [reasons[table]]
    assert routes(one) == set()


def test_a_rule_about_marked_packets_leaves_its_table_to_policy_routing(monkeypatch):
    one = agent(NIC + "gateway = 10.0.0.2\ntable = 200\n")
    world = one.kernel.world
    rules = (SeenRule(Rule(4, 500, 200, mark=1, mask=1), 4),)
    monkeypatch.setattr(one.kernel, "world", lambda: replace(world(), rules=rules))
    assert one.survey().resolution.tables == {LinkKey(ONE): 200}


def test_thousands_of_vrfs_are_judged_in_linear_time():
    text = "".join(f"[vrf v{one}]\ntable = {one + 1000}\n" for one in range(3000))
    resolution = agent(text).survey().resolution
    assert len([key for key in resolution.desired.links if key.kind == "vrf"]) == 3000


def test_a_vrf_of_somebody_else_is_not_taken_over():
    one = agent(VRF.replace("blue", "mgmt"), FOREIGN)
    text = '"mgmt" exists and was not created by neucad: it is left alone'
    assert ("vrf mgmt", text) in refused(one)
    assert one.kernel.devices[9] == FOREIGN


def test_a_nic_in_a_vrf_of_somebody_else_is_not_touched():
    one = agent(VRF + NIC, FOREIGN)
    one.kernel.devices[2] = one.kernel.devices[2]._replace(master=9)
    refused(one)
    assert one.kernel.devices[2].master == 9


def test_a_vrf_that_is_refused_later_stays_as_it_is():
    one = agent(VRF + NIC + ROUTES)
    run(one)
    before = one.kernel.snapshot()
    one.kernel.routes.append(
        Route(ip_network("10.66.0.0/24"), 1, None, 0, 4, traits=Traits(table=100))
    )
    one.run()
    one.kernel.routes.pop()
    assert one.kernel.snapshot() == before


GATEWAY = "gateway = 10.0.0.254\n"


@pytest.mark.parametrize("wanted", ["bond red", "vrf red"])
def test_what_leaves_its_vrf_for_a_link_that_cannot_be_created_has_no_addresses(wanted):
    """They would be reachable outside of a VRF."""
    one = agent(VRF + NIC + GATEWAY, Device(9, "red", kind="dummy"))
    run(one)
    one.ask(f"[{wanted}]\ntable = 101\nmembers = {ONE}\n{NIC}{GATEWAY}")
    planned = texts(one.plan())
    operations, _, _ = one.run()
    assert texts(operations) == planned
    assert not {*map(ip_interface, ("10.0.0.1/24", "fd00::1/64"))} & {*one.kernel.addresses[2]}
    assert routes(one) == set()


def test_a_table_that_is_refused_gets_no_default_route(monkeypatch):
    """The VRF keeps its table, and its member stays in it."""
    one = agent(VRF + NIC + GATEWAY)
    run(one)
    world, rules = one.kernel.world, (SeenRule(Rule(4, 500, 101), 4),)
    monkeypatch.setattr(one.kernel, "world", lambda: replace(world(), rules=rules))
    one.ask(VRF.replace("100", "101") + NIC + GATEWAY)
    one.run()
    assert texts(one.plan()) == []
    assert not [route for route in routes(one) if route[2] == 101]
    assert one.kernel.devices[2].master == one.kernel.named("blue").index
