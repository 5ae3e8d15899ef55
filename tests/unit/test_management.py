"""Which link is for management: exactly one of several with a gateway or DHCP, in every order, and never an attacker's."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
from dataclasses import replace
from ipaddress import ip_address, ip_interface
from itertools import permutations

import pytest
from kernel import default_route
from platforms import made
from worlds import PLACES, Agent, key, mac, machine, nic, route, vlan, world

from neuca_tools.desired import platform_roles
from neuca_tools.desired.first_nic import LEASE_SECONDS
from neuca_tools.desired.management import ANSWERS, FIRST, MANAGEMENT_DHCP_SECONDS, Policy
from neuca_tools.desired.manager_files import marked_macs, wanted_files
from neuca_tools.desired.merge import MANAGEMENT_UNKNOWN, NO_DEFAULT_ROUTE
from neuca_tools.desired.resolve import Settings, resolve_state
from neuca_tools.documents import parse
from neuca_tools.model import Device, Document, NetworkState, NicRecord, Problem, Record
from neuca_tools.model.topology import METADATA_HOSTS
from neuca_tools.state import updates
from neuca_tools.status.judge import DocumentStatus, judge_host

RA, DHCP = 9, 16  # RTPROT_RA, RTPROT_DHCP (linux/rtnetlink.h)
ORDERS = list(permutations((1, 2, 3, 4)))  # of the slots of four NICs; 4 is in no document
KINDS = ("static", "dhcp", "mixed")
GATEWAY = "the platform's document gives it the default route"
LEASE = "the platform's document has DHCP on it"


def three_networks(kind, numbers=(1, 2, 3)):
    """The network_data.json of a guest on three networks with a gateway; `mixed`: the first with DHCP."""
    links = [{"id": f"l{n}", "type": "phy", "ethernet_mac_address": mac(n)} for n in numbers]
    networks = []
    for number in numbers:
        leased = kind == "dhcp" or (kind == "mixed" and number == numbers[0])
        network = {"id": f"n{number}", "link": f"l{number}", "type": "ipv4_dhcp"}
        if not leased:
            way = {"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": f"10.0.{number}.254"}
            network.update(type="ipv4", ip_address=f"10.0.{number}.9", netmask="24", routes=[way])
        networks.append(network)
    return Document(
        platform=made("network_data.json", json.dumps({"links": links, "networks": networks}))
    )


def slots(order, routes=(), metadata=0, **more):
    """Four NICs whose indexes are in this order; `routes` are (number, metric, protocol), `metadata` is a number."""
    place = {number: index for index, number in enumerate(order, 11)}
    nics = [
        nic(
            place[number],
            f"eth{place[number]}",
            mac=mac(number),
            permanent_mac=mac(number),
            up=True,
            carrier=True,
        )
        for number in order
    ]
    ways = [
        route("0.0.0.0/0", place[number], f"10.0.{number}.254", metric, protocol)
        for number, metric, protocol in routes
    ]
    addresses = {place[number]: f"10.0.{number}.9/24" for number, _, _ in routes}
    return world(*nics, routes=ways, addresses=addresses, metadata=place.get(metadata, 0), **more)


def solve(document, seen, record=None, policy=None, links=()):
    return resolve_state(document, Settings(policy or Policy(), links), seen, record or Record())


def roles(resolution):
    return {number: resolution.roles.role(mac(number)) for number in (1, 2, 3)}


def only(number):
    return {**dict.fromkeys((1, 2, 3), "dataplane"), number: "management"}


def addresses_of(resolution, link):
    found = resolution.desired.links.get(link)
    return found and [str(address) for address in found.addresses]


def addresses(resolution, number):
    return addresses_of(resolution, key(number))


def state(resolution, observed=None):
    return judge_host("", DocumentStatus("openstack"), resolution, observed or NetworkState(), ())


# --- three networks with a gateway ----------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", ORDERS)
def test_of_three_networks_with_a_gateway_one_is_for_management_in_every_order_of_slots(
    kind, order
):
    """cloud-init has given each its gateway, with one metric: the kernel uses the first."""
    protocol = {"static": 4, "dhcp": DHCP, "mixed": DHCP}[kind]
    ways = [(number, 0, protocol) for number in order if number != 4]
    chosen = ways[0][0]
    seen = slots(order, ways, metadata=chosen)
    found = solve(three_networks(kind), seen)
    assert roles(found) == only(chosen)
    assert (found.problems, state(found).exit_code) == ((), 0)
    assert chosen not in {number for number in (1, 2, 3) if addresses(found, number) is not None}
    record = updates.remember_nics(Record(), found)
    for again in permutations((1, 2, 3, 4)):
        later = slots(again, [(number, 0, protocol) for number in again if number != 4])
        assert roles(solve(three_networks(kind), later, record)) == only(chosen)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("origin", ["", mac(1)], ids=["drive", "service"])
def test_a_management_nic_in_a_vrf_of_the_image_keeps_no_nic_waiting(kind, origin):
    """Its default route is in the table of the VRF; until the main table has one, it counts."""
    seen = slots((1, 2, 3, 4), [(1, 0, DHCP)], age=20.0)
    (way,) = seen.routes
    member = seen.devices[way.index]._replace(master=20)
    vrf = Device(20, "mgmt", "vrf", mac=mac(20), up=True)
    in_vrf = replace(way, traits=way.traits._replace(table=1000))
    devices = {**seen.devices, 20: vrf, way.index: member}
    seen, record = replace(seen, devices=devices, routes=(), other_routes=(in_vrf,)), Record()
    for _ in range(3):
        found = solve(three_networks(kind), seen, record, Policy(origin=origin))
        record = updates.remember_nics(record, found)
        assert (found.roles.waiting_nics, roles(found)) == (frozenset(), only(1))
    # It is no sign of another NIC, which any host there may have caused or an image may isolate.
    stranger = replace(seen, other_routes=(replace(in_vrf, index=seen_index(seen, 2)),))
    assert solve(three_networks(kind), stranger).roles.role(mac(2)) != "management"


def seen_index(seen, number):
    return next(device.index for device in seen.devices.values() if device.mac == mac(number))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", ORDERS)
def test_the_nic_through_which_the_service_has_answered_is_chosen_whatever_the_metrics(kind, order):
    ways = [(number, metric, DHCP) for metric, number in enumerate(order, 100) if number != 4]
    for origin in (1, 2, 3):
        found = solve(three_networks(kind), slots(order, ways), policy=Policy(origin=mac(origin)))
        assert roles(found) == only(origin)
        assert found.roles.choice.equal_candidates == frozenset()


def test_of_several_management_nics_a_reason_always_names_the_same():
    """A set of them has another order in each process."""
    document = three_networks("static")
    ways = [(1, 0, 4), (2, 0, 4), (4, 0, 4)]
    policy = Policy(management=frozenset({mac(2), mac(4)}))
    found = solve(document, slots((1, 2, 3, 4), ways), policy=policy).roles
    reasons = [
        platform_roles.role_reasons(
            document.platform, replace(found, reasons=dict(order)), (), frozenset()
        )
        for order in permutations(found.reasons.items())
    ]
    assert found.role(mac(2)) == found.role(mac(4)) == "management"
    assert reasons == reasons[:1] * len(reasons)


def test_the_reason_of_each_role_is_told():
    ways = [(number, 0, 4) for number in (1, 2, 3)]
    found = solve(three_networks("mixed"), slots((1, 2, 3, 4), ways, metadata=1))
    assert found.roles.reasons[mac(1)] == "it carries the default route"
    for number in (2, 3):
        assert found.roles.reasons[mac(number)] == (
            f'{GATEWAY}, but the management NIC is "eth11": it carries the default route'
        )
    found = solve(three_networks("mixed"), slots((1, 2, 3, 4)), policy=Policy(origin=mac(3)))
    assert found.roles.reasons[mac(3)] == ANSWERS
    assert found.roles.reasons[mac(1)] == f'{LEASE}, but the management NIC is "eth13": {ANSWERS}'


def test_a_choice_by_routes_alone_is_told_with_how_to_make_it():
    ways = [(number, 0, 4) for number in (1, 2, 3)]
    seen = slots((1, 2, 3, 4), ways)
    note = (
        'the management NIC is "eth11": it carries the default route; the platform\'s document has a'
        " gateway or DHCP on eth12, eth13 too: to choose otherwise, set [network] management-macs"
    )
    found = solve(three_networks("static"), seen)
    assert list(platform_roles.choice_sentences(found.roles)) == [note]
    for policy in (Policy(origin=mac(1)), Policy(management=frozenset({mac(1)}))):
        found = solve(three_networks("static"), seen, policy=policy)
        assert (roles(found), list(platform_roles.choice_sentences(found.roles))) == (only(1), [])


@pytest.mark.parametrize("kind", KINDS)
def test_the_configuration_a_tag_and_the_primary_flag_go_before_routes(kind):
    ways = [(number, 0, DHCP) for number in (1, 2, 3)]
    seen = slots((1, 2, 3, 4), ways, metadata=1)
    chosen = Policy(management=frozenset({mac(3)}))
    assert roles(solve(three_networks(kind), seen, policy=chosen)) == only(3)
    document = three_networks(kind)
    tags = json.dumps({"devices": [{"type": "nic", "mac": mac(2), "tags": ["mgmt"]}]})
    about = made("meta_data.json", tags)
    platform = document.platform._replace(
        management=about.management + document.platform.management
    )
    assert roles(solve(document._replace(platform=platform), seen)) == only(2)


def test_the_primary_nic_of_ec2_is_management_although_another_was_faster():
    data = {"mac": mac(2), "macs": {mac(n): {"local-ipv4s": f"10.0.{n}.9"} for n in (1, 2, 3)}}
    document = Document(platform=made("EC2 network", json.dumps(data)))
    seen = slots((1, 2, 3, 4), [(1, 100, DHCP), (2, 200, DHCP)], metadata=1)
    assert roles(solve(document, seen)) == only(2)


def test_the_nic_with_the_default_route_and_the_service_is_never_dataplane():
    """Whatever the document names: that one may still get its lease, but not for ever."""
    data = {"mac": mac(2), "macs": {mac(n): {"local-ipv4s": f"10.0.{n}.9"} for n in (1, 2, 3)}}
    document = Document(platform=made("EC2 network", json.dumps(data)))
    early = slots((1, 2, 3, 4), [(1, 100, DHCP)], metadata=1, age=5.0)
    assert roles(solve(document, early)) == {1: "unlisted", 2: "management", 3: "dataplane"}
    for age in (LEASE_SECONDS, 9999.0):
        found = solve(document, replace(early, age=age))
        assert roles(found) == {1: "management", 2: "management", 3: "dataplane"}
        assert found.roles.choice.by_automatic_route_only == {mac(1): (4,)}
    both = slots((1, 2, 3, 4), [(1, 100, DHCP), (2, 200, DHCP)], metadata=1)
    record = updates.remember_nics(Record(), found)
    assert roles(solve(document, both, record))[2] == "management"


def test_a_configured_nic_that_is_not_there_does_not_make_the_others_dataplane():
    absent = Policy(management=frozenset({mac(9)}))
    ways = [(number, 0, 4) for number in (1, 2, 3)]
    found = solve(three_networks("static"), slots((1, 2, 3, 4), ways, metadata=1), policy=absent)
    assert roles(found) == only(1)


# --- the record -----------------------------------------------------------------------------------


def test_a_recorded_management_nic_stays_one_until_the_configuration_says_otherwise_or_it_is_gone():
    record = Record(nics={mac(2): NicRecord("eth12", "management")})
    ways = [(1, 50, 4), (3, 100, DHCP)]
    seen = slots((1, 2, 3, 4), ways, metadata=1)
    assert roles(solve(three_networks("static"), seen, record)) == only(2)
    said = Policy(management=frozenset({mac(3)}))
    assert roles(solve(three_networks("static"), seen, record, said)) == only(3)
    gone = replace(seen, devices={at: one for at, one in seen.devices.items() if one.mac != mac(2)})
    found = solve(three_networks("static"), gone, record)
    assert (found.roles.role(mac(1)), found.roles.role(mac(3))) == ("management", "dataplane")


@pytest.mark.parametrize("kind", KINDS)
def test_the_choice_stays_when_the_kernel_uses_another_of_several_equal_default_routes(kind):
    """It looks at which gateways are reachable (fib_select_default), so the route changes with ARP."""
    ways = [(number, 0, DHCP) for number in (2, 3, 1)]
    first = solve(three_networks(kind), slots((1, 2, 3, 4), ways, metadata=2))
    record = updates.remember_nics(Record(), first)
    for other in (1, 2, 3):
        seen = slots((1, 2, 3, 4), ways, metadata=other)
        assert roles(solve(three_networks(kind), seen, record)) == only(1)


def test_what_a_pass_before_any_document_took_for_management_does_not_last():
    """Three leases, each with a default route, come one after the other; then the document does."""
    for order in permutations((1, 2, 3)):
        record, ways = Record(), []
        for number in order:
            ways.append((number, 100 + len(ways), DHCP))
            seen = slots((1, 2, 3, 4), ways, metadata=order[0])
            record = updates.remember_nics(record, solve(None, seen, record))
        for origin in (1, 2, 3):
            found = solve(three_networks("static"), seen, record, Policy(origin=mac(origin)))
            assert roles(found) == only(origin)


def test_equal_default_routes_before_any_document_leave_one_management_nic_in_the_end():
    ways = [(number, 0, 4) for number in (2, 1, 3)]
    seen = slots((1, 2, 3, 4), ways, metadata=2)
    before = solve(None, seen)
    assert roles(before) == {1: "management", 2: "management", 3: "management"}
    record = updates.remember_nics(Record(), before)
    assert {number: record.nics[mac(number)].role for number in (1, 2, 3)} == {
        1: "",
        2: "management",
        3: "",
    }
    assert roles(solve(three_networks("static"), seen, record)) == only(2)


# --- a first boot without a sign ------------------------------------------------------------------


def test_while_nothing_shows_which_link_is_for_management_those_with_a_gateway_wait_and_others_do_not():
    document = three_networks("static", (1, 2))
    more = made("network_data.json", json.dumps({
        "links": [{"id": "l3", "type": "phy", "ethernet_mac_address": mac(3)}],
        "networks": [{"id": "n3", "link": "l3", "type": "ipv4", "ip_address": "10.0.3.9", "netmask": "24"}],
    }))  # fmt: skip
    platform = document.platform._replace(links=document.platform.links + more.links)
    seen = slots((1, 2, 3, 4), age=20.0)
    found = solve(Document(platform=platform), seen)
    assert roles(found) == {1: "unlisted", 2: "unlisted", 3: "dataplane"}
    assert (addresses(found, 3), found.roles.waiting_nics) == (["10.0.3.9/24"], {mac(1), mac(2)})
    assert Problem("contested", MANAGEMENT_UNKNOWN, key(1)) in found.problems
    assert (state(found).data["state"], state(found).exit_code) == ("pending", 3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", ORDERS)
def test_without_any_sign_the_first_link_of_the_document_is_for_management_in_the_end(kind, order):
    for numbers in permutations((1, 2, 3)):
        found = solve(three_networks(kind, numbers), slots(order, age=MANAGEMENT_DHCP_SECONDS))
        assert roles(found) == only(numbers[0])
        assert found.roles.reasons[mac(numbers[0])] == FIRST
        assert found.roles.choice.by_document_only == {mac(numbers[0])}
        assert (state(found).data["state"], state(found).exit_code) == ("ok", 0)
        assert len(list(platform_roles.choice_sentences(found.roles))) == 1


def test_the_only_link_with_a_gateway_is_for_management_at_once():
    document = three_networks("static", (2,))
    found = solve(document, slots((1, 2, 3, 4), age=1.0))
    assert found.roles.role(mac(2)) == "management"


# --- an attacker ----------------------------------------------------------------------------------


def one_gateway(kind):
    """NIC 1 has a gateway, NICs 2 and 3 are plain."""
    with_gateway = three_networks(kind, (1,)).platform
    plain = made("network_data.json", json.dumps({
        "links": [{"id": f"l{n}", "type": "phy", "ethernet_mac_address": mac(n)} for n in (2, 3)],
        "networks": [{"id": f"n{n}", "link": f"l{n}", "type": "ipv4", "ip_address": f"10.0.{n}.9", "netmask": "24"}
                     for n in (2, 3)],
    }))  # fmt: skip
    return Document(platform=with_gateway._replace(links=with_gateway.links + plain.links))


@pytest.mark.parametrize("kind", ["static", "dhcp"])
@pytest.mark.parametrize("protocol", [RA, DHCP])
@pytest.mark.parametrize("service", [False, True])
def test_an_automatic_route_on_a_nic_without_a_gateway_in_the_document_makes_it_no_management_nic(
    kind, protocol, service
):
    host = METADATA_HOSTS[protocol == RA]
    to = f"{host}/{host.max_prefixlen}" if service else ("::/0" if protocol == RA else "0.0.0.0/0")
    way = route(to, 12, "fe80::bad" if protocol == RA else "10.0.2.66", 50, protocol)
    seen = replace(slots((1, 2, 3, 4)), routes=(way,), metadata_index=12)
    assert roles(solve(one_gateway(kind), seen)) == only(1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("protocol", [RA, DHCP])
def test_an_automatic_route_on_a_dataplane_nic_changes_no_role(kind, protocol):
    record = Record(nics={
        mac(1): NicRecord("eth11", "management"),
        mac(2): NicRecord("eth12", "dataplane" if kind != "dhcp" else ""),
    })  # fmt: skip
    way = route(
        "::/0" if protocol == RA else "0.0.0.0/0",
        12,
        "fe80::1" if protocol == RA else "10.0.2.66",
        0,
        protocol,
    )
    seen = replace(slots((1, 2, 3, 4)), routes=(way,), metadata_index=12)
    assert roles(solve(three_networks(kind), seen, record)) == only(1)


def test_advertised_routes_alone_do_not_decide_between_several_links_before_ipv4_had_its_time():
    ways = (route("::/0", 12, "fe80::1", 1024, RA),)
    young = replace(slots((1, 2, 3, 4), age=20.0), routes=ways, metadata_index=12)
    assert solve(three_networks("static"), young).roles.waiting_nics == {mac(1), mac(2), mac(3)}
    assert roles(
        solve(three_networks("static"), replace(young, age=MANAGEMENT_DHCP_SECONDS))
    ) == only(1)


# --- what a dataplane NIC gets --------------------------------------------------------------------


def test_a_gateway_of_a_dataplane_nic_is_no_route_in_the_main_table_and_no_problem():
    ways = [(number, 0, 4) for number in (1, 2, 3)]
    found = solve(three_networks("static"), slots((1, 2, 3, 4), ways, metadata=1))
    assert [addresses(found, number) for number in (1, 2, 3)] == [
        None,
        ["10.0.2.9/24"],
        ["10.0.3.9/24"],
    ]
    assert {hop.traits.table for hop in found.desired.hops} == {31001, 31002}
    assert found.problems == ()
    assert found.notes == ()


def test_a_gateway_without_policy_routing_is_not_used_which_a_note_says():
    ways = [(number, 0, 4) for number in (1, 2, 3)]
    settings = Settings(policy_routing="no")
    seen = slots((1, 2, 3, 4), ways, metadata=1)
    found = resolve_state(three_networks("static"), settings, seen, Record())
    text = f"gateway: not applicable: {GATEWAY}; {platform_roles.DEFAULT_ROUTE_STAYS}"
    assert [(note.link, note.text) for note in found.notes] == [(key(2), text), (key(3), text)]


def test_a_note_about_a_gateway_stands_on_the_link_that_has_it():
    tree = {
        "version": 2,
        "ethernets": {f"n{number}": {"match": {"macaddress": mac(number)}} for number in (1, 2, 3)},
        "vlans": {
            "v5": {"id": 5, "link": "n2", "addresses": ["10.5.0.4/24"], "gateway4": "10.5.0.1"}
        },
        "bonds": {
            "b0": {
                "interfaces": ["n3"],
                "parameters": {"mode": "802.3ad"},
                "addresses": ["10.6.0.4/24"],
                "gateway4": "10.6.0.1",
            }
        },
    }
    tree["ethernets"]["n1"]["dhcp4"] = True
    found = Document(platform=made("network-config", json.dumps(tree)))
    seen = slots((1, 2, 3, 4), [(1, 0, 4)], metadata=1)
    notes = resolve_state(found, Settings(policy_routing="no"), seen, Record()).notes
    where = [str(note.link) for note in notes if note.setting == "gateway"]
    assert where == ["bond b0", f"{mac(2)}.5"]


def test_dhcp_on_a_dataplane_nic_is_left_to_the_network_manager():
    ways = [(number, 0, DHCP) for number in (1, 2, 3)]
    found = solve(three_networks("dhcp"), slots((1, 2, 3, 4), ways, metadata=1))
    assert marked_macs(found, Record()) == frozenset()
    files = wanted_files(found, Record(), PLACES, {}).files
    assert not any(content for path, content in files.items() if not path.startswith("/udev"))
    assert not any(b"UNMANAGED" in content for content in files.values() if content)
    assert found.desired.links[key(2)].managers == {}
    assert [(note.link, note.text) for note in found.notes] == [
        (
            key(number),
            "dhcp: not applicable: DHCP on it is left to other programs",
        )
        for number in (2, 3)
    ]
    has = NetworkState(
        links={key(2): found.desired.links[key(2)]._replace(managers={"networkmanager": "managed"})}
    )
    assert state(found, has).exit_code == 0


def test_a_neuca_document_that_names_such_a_nic_takes_it_from_the_network_manager():
    ways = [(number, 0, DHCP) for number in (1, 2, 3)]
    document = parse(f"[interface {mac(2)}]\naddresses = 172.16.2.1/24\n")._replace(
        platform=three_networks("dhcp").platform,
    )
    found = solve(document, slots((1, 2, 3, 4), ways, metadata=1))
    assert (addresses(found, 2), marked_macs(found, Record())) == (["172.16.2.1/24"], {mac(2)})


def test_advertisements_are_off_whatever_dhcp_the_document_has():
    ways = [(1, 0, 4)]
    seen = replace(slots((1, 2, 3, 4), ways), accept_ra="1")
    data = {
        "links": [{"id": f"l{n}", "type": "phy", "ethernet_mac_address": mac(n)} for n in (1, 2, 3, 4)],
        "networks": [{"id": "n2", "link": "l2", "type": "ipv6_dhcpv6-stateful"},
                     {"id": "n3", "link": "l3", "type": "ipv4_dhcp"},
                     {"id": "n4", "link": "l4", "type": "ipv4_dhcp"}, {"id": "n5", "link": "l4", "type": "ipv6_slaac"}],
    }  # fmt: skip
    found = solve(Document(platform=made("network_data.json", json.dumps(data))), seen)
    assert {number for number in (2, 3, 4) if key(number) in found.without_advertisements} == {
        2,
        3,
        4,
    }
    assert found.desired.links[key(2)].sysctls["net/ipv6/conf/{interface}/accept_ra"] == "0"


def test_a_nic_that_another_program_does_dhcp_on_is_not_renamed_while_it_is_used():
    ethernets = {
        f"n{n}": {"match": {"macaddress": mac(n)}, "set-name": f"data{n}", "dhcp4": n == 2}
        for n in (2, 3)
    }
    data = {"network": {"version": 2, "ethernets": ethernets}}
    document = Document(platform=made("network-config", json.dumps(data)))
    found = solve(document, slots((1, 2, 3, 4), [(1, 0, 4)], metadata=1))
    assert (found.names[key(2)], found.names[key(3)]) == ("eth12", "data3")


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_pass_does_nothing_and_a_reboot_keeps_the_roles(kind):
    agent = Agent(machine(*(nic(number) for number in (1, 2, 3)), mgmt=1))
    agent.document = three_networks(kind)
    agent.run()
    assert agent.plan() == ()
    assert {number: agent.record.nics[mac(number)].role for number in (1, 2, 3)} == {
        1: "management",
        2: "" if kind == "dhcp" else "dataplane",
        3: "" if kind == "dhcp" else "dataplane",
    }
    agent.reboot()
    agent.run()
    assert agent.plan() == ()
    has = {str(one) for one in agent.kernel.world().addresses[3]}
    assert ("10.0.3.9/24" in has) is (kind != "dhcp")


def test_a_bond_with_dhcp_that_is_not_for_management_is_left_alone_with_its_members():
    data = {"version": 2, "ethernets": {f"eth{n}": {"match": {"macaddress": mac(n)}} for n in (1, 2, 3)},
            "bonds": {"bond0": {"interfaces": ["eth2", "eth3"], "dhcp4": True}}}  # fmt: skip
    data["ethernets"]["eth1"]["dhcp4"] = True
    document = Document(platform=made("network-config", json.dumps({"network": data})))
    found = solve(document, slots((1, 2, 3, 4), [(1, 0, 4)], metadata=1))
    assert roles(found) == {1: "management", 2: "unlisted", 3: "unlisted"}
    assert (found.desired.links, found.problems) == ({}, ())
    assert found.roles.reasons[mac(2)] == platform_roles.DHCP_LEFT_TO_OTHERS


# --- VLANs ----------------------------------------------------------------------------------------


def on_a_vlan(*devices, addresses=None, **more):
    """NIC 1 carries VLAN 10, which has the address and the default route of this host."""
    own = [nic(1, up=True), vlan(9, 1, 10, up=True)]
    found = {9: "192.0.2.10/24", **(addresses or {})}
    return world(
        *own, *devices, addresses=found, routes=[route("0.0.0.0/0", 9, "192.0.2.1")], **more
    )


SIBLING = f"[vlan {mac(1)}.20]\naddresses = 172.16.0.1/24\n"


def test_beside_a_management_vlan_another_vlan_of_the_nic_is_dataplane():
    found = solve(parse(SIBLING), on_a_vlan())
    assert found.problems == ()
    assert set(found.desired.links) == {key(1, 20)}
    assert found.desired.links[key(1, 20)].name == "eth1.20"
    assert [found.roles.role_of(key(1, number)) for number in (None, 10, 20)] == [
        "management",
        "management",
        "dataplane",
    ]
    assert found.roles.guard.devices == found.roles.guard.management == {1, 9}
    assert found.roles.reason_of(key(1, 10)) == "it carries the default route"
    assert found.roles.reason_of(key(1, 20)) == "only another VLAN of its NIC is for management"


@pytest.mark.parametrize(("text", "link", "what"), [
    (f"[vlan {mac(1)}.10]\nmtu = 1400\n", key(1, 10), "VLAN 10 is"),
    (f"[interface {mac(1)}]\nmtu = 1400\n", key(1), "it is"),
])  # fmt: skip
def test_neither_the_management_vlan_nor_the_nic_below_it_is_changed(text, link, what):
    found = solve(parse(text), on_a_vlan())
    assert found.problems == (
        Problem("refused", f"{what} on the management NIC: it carries the default route", link),
    )
    assert found.desired.links == {}


@pytest.mark.parametrize("seen", [
    on_a_vlan(addresses={1: "198.51.100.1/24"}),
    replace(on_a_vlan(), metadata_index=1),
    world(nic(1, up=True), vlan(9, 1, 10, up=True), addresses={1: "192.0.2.10/24"},
          routes=[route("0.0.0.0/0", 1, "192.0.2.1")]),
    world(nic(1, up=True, master=8), Device(8, "bond0", "bond", mac(1), up=True), vlan(9, 8, 10, mac=mac(1), up=True),
          addresses={9: "192.0.2.10/24"}, routes=[route("0.0.0.0/0", 9, "192.0.2.1")]),
])  # fmt: skip
def test_a_vlan_on_a_nic_that_is_itself_for_management_is_refused(seen):
    found = solve(parse(SIBLING), seen)
    assert key(1, 20) not in found.desired.links
    assert [problem.text for problem in found.problems if problem.link == key(1, 20)] == [
        "VLAN 20 is on the management NIC: it carries the default route"
    ]


def test_a_sibling_of_the_management_vlan_is_made_without_a_write_to_the_nic_and_goes_again():
    agent = Agent(machine(nic(1), nic(2)), SIBLING)
    kernel = agent.kernel
    kernel.set_up(1, True)
    kernel.add_link("vlan", "eth1.10", 1, {"id": "10"}, None)
    management = kernel.named("eth1.10").index
    kernel.set_up(management, True)
    kernel.add_address(management, ip_interface("192.0.2.10/24"))
    default_route(kernel, management, ip_address("192.0.2.1"))
    before = {at: kernel.devices[at] for at in (1, management)}
    kernel.written.clear()
    _, result, _ = agent.run()
    made = kernel.named("eth1.20").index
    assert (result.failures, agent.plan()) == ((), ())
    assert ip_interface("172.16.0.1/24") in kernel.world().addresses[made]
    assert set(kernel.written) == {made}
    agent.ask("[global]\n")
    agent.run()
    assert kernel.named("eth1.20") is None
    assert set(kernel.written) == {made}
    assert {at: kernel.devices[at] for at in (1, management)} == before


def test_a_member_of_a_refused_vrf_of_the_platform_gets_nothing():
    """Outside of the VRF, its addresses would be reachable."""
    text = f"""version: 2
ethernets: {{a: {{match: {{macaddress: "{mac(1)}"}}}}}}
vlans:
  management: {{link: a, id: 10, addresses: [192.0.2.10/24], gateway4: 192.0.2.1}}
  member: {{link: a, id: 20, addresses: [172.16.0.1/24]}}
vrfs: {{blue: {{table: 77, interfaces: [member]}}}}
"""
    found = solve(Document(platform=made("network-config", text)), on_a_vlan())
    assert found.desired.links == {}
    assert {(str(problem.link), problem.text) for problem in found.problems} == {
        ("vrf blue", "it is on the management NIC: it carries the default route"),
        (f"{mac(1)}.20", 'it belongs to the VRF "blue", which cannot be created'),
    }


def test_the_platform_s_vlans_on_one_nic_have_roles_of_their_own():
    """A trunk port of OpenStack: the default route is on VLAN 10, VLAN 20 has a gateway of its own."""
    way = [{"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "10.0.0.254"}]
    links = [{"id": "l1", "type": "phy", "ethernet_mac_address": mac(1)}]
    links += [{"id": f"v{n}", "type": "vlan", "vlan_link": "l1", "vlan_id": n} for n in (10, 20)]
    networks = [{"id": f"n{n}", "link": f"v{n}", "type": "ipv4", "ip_address": f"10.0.{n}.9", "netmask": "24",
                 "routes": way} for n in (10, 20)]  # fmt: skip
    document = Document(
        platform=made("network_data.json", json.dumps({"links": links, "networks": networks}))
    )
    found = solve(document, on_a_vlan())
    assert (set(found.desired.links), found.problems) == ({key(1, 20)}, ())
    assert addresses_of(found, key(1, 20)) == ["10.0.20.9/24"]


def test_managers_may_try_the_nics_between_which_nothing_has_decided():
    """A config drive with DHCP on two NICs, beside a NIC that it leaves out: one of the two needs its lease."""
    links = [{"id": f"l{n}", "type": "phy", "ethernet_mac_address": mac(n)} for n in (1, 2)]
    networks = [{"id": f"n{n}", "link": f"l{n}", "type": "ipv4_dhcp"} for n in (1, 2)]
    document = Document(
        platform=made("network_data.json", json.dumps({"links": links, "networks": networks}))
    )
    seen = world(*(nic(number) for number in (1, 2, 3)), age=5.0)
    roles = resolve_state(document, Settings(), seen, Record()).roles
    assert (roles.choice.candidates, roles.marked_early) == ({mac(1), mac(2)}, frozenset())


# --- an isolated network with the metadata service ------------------------------------------------


def isolated(seen, order, number):
    """The world in which DHCP has given a NIC a route to the metadata service, as Neutron does without a router."""
    index = 11 + order.index(number)
    service = route(f"{METADATA_HOSTS[0]}/32", index, f"10.0.{number}.2", 100, DHCP)
    return replace(seen, routes=(*seen.routes, service), metadata_index=index)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", ORDERS)
def test_the_nic_with_the_default_route_is_not_dataplane_although_the_service_is_behind_another(
    kind, order
):
    """The isolated network answers first: its NIC is for management, and nobody takes the default route of NIC 1 away."""
    document, record = three_networks(kind), Record()
    policy = Policy(origin=mac(2))
    early = isolated(slots(order, age=5.0), order, 2)
    found = solve(document, early, record, policy)
    assert roles(found) == {1: "unlisted", 2: "management", 3: "unlisted"}
    assert [problem.text for problem in found.problems] == [NO_DEFAULT_ROUTE, NO_DEFAULT_ROUTE]
    record = updates.remember_nics(record, found)
    assert {nic.role for one, nic in record.nics.items() if one != mac(2)} == {""}
    for age in (20.0, MANAGEMENT_DHCP_SECONDS, 9999.0):
        seen = isolated(slots(order, [(1, 100, DHCP)], age=age), order, 2)
        found = solve(document, seen, record, policy)
        assert roles(found) == {1: "management", 2: "management", 3: "dataplane"}
        assert (found.problems, found.roles.choice.by_automatic_route_only) == ((), {mac(1): (4,)})
        (told,) = platform_roles.choice_sentences(found.roles)
        assert told.endswith(
            f"the platform's document has a gateway or DHCP on {found.roles.name(mac(3))} too:"
            " to choose otherwise, set [network] management-macs"
        )
        record = updates.remember_nics(record, found)
    chosen = Policy(management=frozenset({mac(1)}), origin=mac(2))
    assert roles(solve(document, seen, record, chosen)) == only(1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_lease_that_leads_to_the_service_does_not_displace_the_first_nic(kind):
    """No service has responded yet, and any DHCP server can send a route to it."""
    for age in (20.0, MANAGEMENT_DHCP_SECONDS, 9999.0):
        seen = isolated(slots((1, 2, 3, 4), [(1, 100, DHCP)], age=age), (1, 2, 3, 4), 2)
        assert roles(solve(three_networks(kind), seen)) == only(1)


def test_without_a_default_route_the_other_nics_do_not_wait_for_ever():
    found = solve(
        three_networks("dhcp"),
        isolated(slots((1, 2, 3, 4), age=MANAGEMENT_DHCP_SECONDS), (1, 2, 3, 4), 2),
    )
    assert (roles(found), found.problems) == (only(2), ())


def test_the_default_route_that_a_dhcp_server_gives_a_recorded_dataplane_nic_changes_no_role():
    nics = {1: "dataplane", 2: "management", 3: "dataplane"}
    record = Record(nics={mac(n): NicRecord(f"eth{n}", role) for n, role in nics.items()})
    seen = isolated(slots((1, 2, 3, 4), [(1, 100, DHCP)]), (1, 2, 3, 4), 2)
    assert roles(solve(three_networks("dhcp"), seen, record)) == only(2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", ORDERS)
def test_a_route_to_the_service_from_dhcp_before_any_document_does_not_last_against_the_document(
    kind, order
):
    """Any DHCP server can send one: the first one to answer must not take the role from the NIC with the default route."""
    seen = isolated(slots(order, [(1, 100, 4)]), order, 4)
    record = updates.remember_nics(Record(), solve(None, seen))
    assert not record.nics[mac(1)].doubtful
    for document in (three_networks(kind), three_networks(kind)):
        found = solve(document, seen, record)
        assert roles(found) == only(1)
        record = updates.remember_nics(record, found)
    assert record.nics[mac(1)].role == "management"
    assert not record.nics[mac(1)].doubtful
