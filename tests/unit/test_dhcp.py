"""DHCP on dataplane NICs: what the client is told to do, and what becomes of what it learns."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
from dataclasses import replace
from ipaddress import ip_address, ip_interface, ip_network

import pytest
from platforms import made
from worlds import PLACES, key, mac, nic, route, world

from neuca_tools.agent.pass_report import Pass
from neuca_tools.apply.decide import Observation, Policies, decide_pass
from neuca_tools.apply.result import Failure, Result
from neuca_tools.desired import dhcp_files
from neuca_tools.desired.dhcp import MAX_ROUTES, learned_gateways
from neuca_tools.desired.resolve import Settings, resolve_state
from neuca_tools.documents import parse
from neuca_tools.model import Automatic, Document, NicRecord, Record, Route
from neuca_tools.model.routing import MAIN_TABLE, Traits
from neuca_tools.plan.operations import ReloadManager
from neuca_tools.status.judge import DocumentStatus, judge_host

DHCP, RA, KERNEL = 16, 9, 2
TABLE = dhcp_files.table_of(key(2))
RUNS = {"networkd": {"eth1": "managed", "eth2": "managed"}}
FILE = "/networkd/04-neuca-dhcp-020000000002.network"


def netplan(**settings):
    """A document in which NIC 1 has DHCP, and NIC 2 what is asked for."""
    ethernets = {
        "eth1": {"match": {"macaddress": mac(1)}, "dhcp4": True},
        "eth2": {"match": {"macaddress": mac(2)}, **settings},
    }
    data = {"network": {"version": 2, "ethernets": ethernets}}
    return Document(platform=made("network-config", json.dumps(data)))


def offered(to, via=None, source="10.9.0.51", protocol=DHCP, metric=1024):
    """A route in the table of NIC 2."""
    traits = Traits(TABLE, source=ip_address(source) if source else None)
    return Route(ip_network(to), 2, via and ip_address(via), metric, protocol, traits=traits)


def changed(document, **changes):
    """The document with another request for NIC 2."""
    platform = document.platform
    links = tuple(one._replace(**changes) if one.key == key(2) else one for one in platform.links)
    return document._replace(platform=platform._replace(links=links))


LINK = offered("10.9.0.0/24")
LEASE = ip_interface("10.9.0.51/24")


def seen(*tables, lease="10.9.0.51/24", **more):
    """Two NICs, the first with the default route; the second has a lease, and these routes in its table."""
    eth1, eth2 = nic(1, up=True), nic(2, up=True)
    found = world(
        eth1,
        eth2,
        addresses={1: "192.0.2.10/24", 2: lease},
        routes=[route("0.0.0.0/0", 1, "192.0.2.1", protocol=DHCP)],
        metadata=1,
    )
    leased = frozenset((2, address) for address in found.addresses[2])
    return replace(
        found, **{"managers": RUNS, "other_routes": tables, "leased_addresses": leased, **more}
    )


def solve(look, **settings):
    return resolve_state(netplan(**{"dhcp4": True, **settings}), Settings(), look, Record())


def main_routes(found):
    """The routes for the main table that are derived from a lease."""
    return {
        (str(hop.to), hop.via and str(hop.via))
        for hop in found.desired.hops
        if hop.traits.table == MAIN_TABLE
    }


def refusals(found):
    return [note.reason for note in found.notes if note.setting == "dhcp"]


# Routes that the client has learned, and the gateway of the link by them.
VIA, OTHER = "10.9.0.1", "10.9.0.2"
GATEWAYS = [
    ([LINK], {}),
    ([LINK, offered("10.8.0.0/16", VIA)], {}),
    ([offered("0.0.0.0/0")], {}),
    ([offered("0.0.0.0/0"), offered("0.0.0.0/0", VIA, metric=2000)], {4: VIA}),
    ([offered("10.8.0.0/16", OTHER, metric=1), offered("0.0.0.0/0", VIA)], {4: VIA}),
    ([offered("0.0.0.0/0", OTHER, metric=2000), offered("0.0.0.0/0", VIA)], {4: VIA}),
    ([offered("0.0.0.0/0", VIA), offered("::/0", "fe80::1", source=None)], {4: VIA, 6: "fe80::1"}),
]


@pytest.mark.parametrize(("routes", "expected"), GATEWAYS)
def test_the_gateway_of_a_link_is_that_of_its_best_default_route(routes, expected):
    look = seen(*routes)
    gateways = learned_gateways(solve(look).roles, look)
    assert gateways == {key(2): {version: ip_address(text) for version, text in expected.items()}}


# --- files ------------------------------------------------------------------------------------------


def test_the_file_for_networkd():
    asked = Automatic(dhcp4=True)
    assert dhcp_files.networkd_file(key(2), "", asked, has_mtu=False).decode() == (
        f"""# Written by neucad, which overwrites it. For DHCP on the NIC {mac(2)}; see neucad(8).
[Match]
PermanentMACAddress={mac(2)}

[Link]
RequiredForOnline=no

[Network]
DHCP=ipv4
IPv6AcceptRA=no
LinkLocalAddressing=ipv6
KeepConfiguration=static
IPv6PrivacyExtensions=kernel

[DHCPv4]
UseDNS=no
UseNTP=no
UseHostname=no
UseDomains=no
UseMTU=yes
UseRoutes=yes
UseGateway=yes
RouteTable={TABLE}
UseSIP=no
SendRelease=yes

[DHCPv6]
UseDNS=no
UseNTP=no
UseHostname=no
UseDomains=no
UseDelegatedPrefix=no

[IPv6AcceptRA]
UseDNS=no
UseDomains=no
UseGateway=yes
RouteTable={TABLE}
DHCPv6Client=no
"""
    )


def lines(section="", has_mtu=False, **asked):
    """The lines of the file for this request, or of one of its sections."""
    text = dhcp_files.networkd_file(key(2), "", Automatic(**asked), has_mtu).decode()
    if section:
        text = text.partition(f"[{section}]\n")[2].partition("\n[")[0]
    return text.splitlines()


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ({"dhcp4": True, "dhcp6": True}, "DHCP=yes"),
        ({"dhcp6": True}, "DHCP=ipv6"),
        ({"dhcp6": True}, "IPv6AcceptRA=yes"),
        ({"dhcp6": True, "accept_ra": False}, "IPv6AcceptRA=no"),
        ({"dhcp6": True}, "DHCPv6Client=yes"),
        ({"accept_ra": True}, "DHCP=no"),
        ({"accept_ra": True}, "IPv6AcceptRA=yes"),
        ({"dhcp4": True, "critical": True}, "KeepConfiguration=yes"),
        ({"dhcp4": True, "link_local": ()}, "LinkLocalAddressing=no"),
        ({"dhcp4": True, "link_local": ("ipv4",)}, "LinkLocalAddressing=no"),
        ({"dhcp4": True, "link_local": ("ipv6", "ipv4")}, "LinkLocalAddressing=ipv6"),
        ({"dhcp4": True, "optional": False}, "RequiredForOnline=no"),
        ({"dhcp4": True, "dhcp4_overrides": (("use-dns", "true"),)}, "DNSDefaultRoute=no"),
        ({"dhcp6": True, "dhcp6_overrides": (("use-dns", "true"),)}, "DNSDefaultRoute=no"),
    ],
)
def test_what_a_document_asks_for_is_in_the_file(asked, line):
    assert line in lines(**asked)


@pytest.mark.parametrize(
    "option", ["ICMP6RateLimit", "HopLimit", "ReachableTime", "RetransmissionTime"]
)
def test_of_an_advertisement_only_addresses_routes_and_the_mtu_are_used(option):
    """networkd of systemd 255 sets net.ipv6.icmp.ratelimit because of one."""
    assert f"Use{option}=no" in lines("IPv6AcceptRA", accept_ra=True)
    assert f"Use{option}=no" not in lines("IPv6AcceptRA", dhcp4=True)  # some versions warn


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        ((("use-dns", "true"),), "UseDNS=yes"),
        ((("use-ntp", "true"),), "UseNTP=yes"),
        ((("use-hostname", "true"),), "UseHostname=yes"),
        ((("use-domains", "route"),), "UseDomains=no"),
        ((("use-mtu", "false"),), "UseMTU=no"),
        ((("use-routes", "false"),), "UseRoutes=no"),
        ((("route-metric", "300"),), "RouteMetric=300"),
        ((("send-hostname", "false"),), "SendHostname=no"),
        ((("hostname", "node0"),), "Hostname=node0"),
    ],
)
def test_overrides_of_netplan_keep_their_meaning(overrides, line):
    assert line in lines("DHCPv4", dhcp4=True, dhcp4_overrides=overrides)


def test_the_mtu_of_a_lease_does_not_replace_that_of_the_document():
    assert "UseMTU=no" in lines(dhcp4=True, has_mtu=True)


# --- the marks of managers ----------------------------------------------------------------------------


def decided(look, document, record=None):
    return decide_pass(
        Observation(replace(look, files={"/networkd/nothing": None, **look.files})),
        document,
        Policies(Settings(), PLACES),
        record or Record(),
    )


def test_the_client_may_take_the_nic_and_no_other_manager():
    files = decided(seen(), netplan(dhcp4=True)).desired.files
    assert files[FILE] == dhcp_files.networkd_file(key(2), "", Automatic(dhcp4=True), has_mtu=False)
    assert "/networkd/05-neuca-nics.network" not in {path for path in files if files[path]}
    assert f"mac:{mac(2)}".encode() in files["/nm/neuca.conf"]
    rule = files["/udev/10-neuca-persistent-020000000002.rules"].decode()
    assert 'ENV{NM_UNMANAGED}="1", ENV{ID_NET_MANAGED_BY}="io.systemd.Network"' in rule


def test_that_the_client_manages_the_nic_is_no_problem_and_that_another_does_is_one():
    both = {**RUNS, "networkmanager": {"eth1": "managed", "eth2": "managed"}}
    for managers, problems in (
        (RUNS, []),
        (both, [("contested", "NetworkManager manages it", key(2))]),
    ):
        found = decided(seen(managers=managers), netplan(dhcp4=True))
        texts = judge_host("", DocumentStatus("nocloud"), found.resolution, found.observed, ()).data
        (eth2,) = [one for one in texts["interfaces"] if one["mac"] == mac(2)]
        assert [(one["code"], one["text"], key(2)) for one in eth2["problems"]] == problems


def test_networkd_is_told_of_a_new_file_and_of_one_that_goes():
    record = Record(nics={mac(2): NicRecord("eth2", "dataplane")})
    first = decided(seen(), netplan(dhcp4=True), record)
    texts = [one.text for one in first.plan()]
    assert "make networkd reload its configuration" in texts
    there = {path: content for path, content in first.desired.files.items() if content}
    again = decided(seen(files=there), netplan(dhcp4=True), record)
    assert not [one for one in again.plan() if one.kind in ("write-file", "tell")]
    gone = decided(seen(files=there), netplan(addresses=["172.16.0.1/24"]), record)
    assert gone.desired.files[FILE] is None
    texts = [one.text for one in gone.plan()]
    assert "make networkd reload its configuration" in texts


@pytest.mark.parametrize("manager", ["networkd", "networkmanager"])
@pytest.mark.parametrize("lines", ["dhcp4 = yess\n", "dhcp4 = yes\ndhcp6 = yess\n", "mtu = x\n"])
def test_a_manager_keeps_a_nic_whose_request_has_an_unusable_line(lines, manager):
    section, words = f"[interface {mac(2)}]\n", {manager: {"eth1": "managed", "eth2": "managed"}}
    first = decided(seen(managers=words), parse(f"{section}dhcp4 = yes\ndhcp6 = yes\n"))
    there = {path: content for path, content in first.desired.files.items() if content}
    (profile,) = (dhcp_files.uuid_of(there[path]) for path in there if "neuca-dhcp" in path)
    look = seen(managers=words, files=there, profiles={"eth2": profile})
    later = decided(look, parse(section + lines), first.record)
    assert not later.resolution.is_complete
    assert later.resolution.roles.dhcp.clients == {key(2): manager}
    assert [one.text for one in later.plan() if one.kind in ("write-file", "tell")] == []
    complete = decided(look, parse(section), first.record)
    assert [path for path in there if complete.desired.files[path] is None]


def test_a_manager_that_could_not_be_told_of_the_files_is_told_in_the_next_pass():
    first = decided(seen(), netplan(dhcp4=True))
    failed = Result(failures=(Failure(ReloadManager("networkd"), "no response within 1 s"),))
    record = Pass().remember(first, failed, ())
    there = {path: content for path, content in first.desired.files.items() if content}
    again = decided(seen(files=there), netplan(dhcp4=True), record)
    assert "make networkd reload its configuration" in [one.text for one in again.plan()]
    record = Pass().remember(again, Result(again.plan()), ())
    last = decided(seen(files=there), netplan(dhcp4=True), record)
    assert [one for one in last.plan() if isinstance(one, ReloadManager)] == []


def test_a_networkmanager_that_read_the_profile_and_says_no_more_is_asked_again():
    """On a slow host it may use a profile of its own until it has been told to use ours."""
    words = {"networkmanager": {"eth1": "managed", "eth2": "managed"}}
    first = decided(seen(managers=words), netplan(dhcp4=True))
    there = {path: content for path, content in first.desired.files.items() if content}
    silent = {"networkmanager": "no response within 1 s"}
    slow = decided(
        seen(managers={}, silent_managers=silent, files=there), netplan(dhcp4=True), first.record
    )
    record = Pass().remember(slow, Result((ReloadManager("networkmanager"),)), ())
    theirs = {"eth2": "7c37d129-de57-3a27-b98c-a572a9f1c5b7"}
    last = decided(seen(managers=words, files=there, profiles=theirs), netplan(dhcp4=True), record)
    assert "make networkmanager do DHCP on eth2" in [one.text for one in last.plan(last.changed())]
    record = Pass().remember(last, Result((ReloadManager("networkmanager"),)), ())
    assert mac(2) in last.unapplied_scope()
    assert mac(2) not in last._replace(record=record).unapplied_scope()


def test_before_any_manager_runs_the_client_is_the_one_that_has_the_file():
    found = seen(managers={}, files={FILE: b"as before"})
    assert FILE in decided(found, netplan(dhcp4=True)).desired.files
    assert FILE not in decided(seen(managers={}), netplan(dhcp4=True)).desired.files


def test_a_client_that_gives_no_answer_keeps_its_nic_and_another_manager_does_not_get_it():
    silent = {"networkmanager": "no response within 1 s"}
    words = {"networkmanager": {"eth1": "managed", "eth2": "managed"}}
    first = decided(seen(managers=words), netplan(dhcp4=True)).desired.files
    there = {path: content for path, content in first.items() if content}
    for managers in (RUNS, {"networkd": {"eth1": "unmanaged", "eth2": "unmanaged"}}, {}):
        look = seen(managers=managers, silent_managers=silent, files=there)
        files = decided(look, netplan(dhcp4=True)).desired.files
        assert [path for path in there if "neuca-dhcp" in path and not files[path]] == []
        assert not files.get(FILE)


def test_a_manager_without_the_management_nic_waits_for_the_answer_of_another():
    words, silent = (
        {"networkd": {"eth1": "unmanaged"}},
        {"networkmanager": "no response within 1 s"},
    )
    look = seen(managers=words, silent_managers=silent)
    assert not decided(look, netplan(dhcp4=True)).desired.files.get(FILE)
    assert decided(seen(managers=words), netplan(dhcp4=True)).desired.files[FILE]
    look = seen(silent_managers=silent)
    assert decided(look, netplan(dhcp4=True)).desired.files[FILE]


def test_without_a_document_a_client_keeps_its_nic():
    record = Record(nics={mac(2): NicRecord("eth2", "dataplane")})
    files = decided(seen(files={FILE: b"as before"}), None, record).desired.files
    assert FILE not in files
    assert not files.get("/networkd/05-neuca-nics.network")


@pytest.mark.parametrize("state", ["user", "down"])
def test_a_nic_that_is_down_or_left_to_its_user_gets_no_client(state):
    document = changed(netplan(dhcp4=True), state=state)
    assert FILE not in decided(seen(), document).desired.files


def test_router_advertisements_are_read_by_the_client_and_not_by_the_kernel():
    found = solve(seen(accept_ra="1"), **{"dhcp6": True, "accept-ra": True})
    link = found.desired.links[key(2)]
    assert link.sysctls["net/ipv6/conf/{interface}/accept_ra"] == "0"
    assert key(2) in found.without_advertisements


# --- what the client learns ---------------------------------------------------------------------------


def test_the_network_and_classless_routes_of_a_lease_are_copied_into_the_main_table():
    far = offered("192.168.77.0/24", "10.9.0.1")
    found = solve(seen(LINK, offered("10.9.0.1/32"), far, offered("0.0.0.0/0", "10.9.0.1")))
    assert main_routes(found) == {
        ("10.9.0.0/24", None),
        ("10.9.0.1/32", None),
        ("192.168.77.0/24", "10.9.0.1"),
    }
    assert (found.problems, refusals(found)) == ((), [])


def test_the_default_route_of_a_lease_is_only_used_for_packets_from_its_address():
    found = solve(seen(LINK, offered("0.0.0.0/0", "10.9.0.1")))
    defaults = [hop for hop in found.desired.hops if hop.to.prefixlen == 0]
    assert [(str(hop.via), hop.traits.table) for hop in defaults] == [("10.9.0.1", 31001)]
    assert {rule.source for rule in found.desired.rules} == {"10.9.0.51/32"}


def test_without_policy_routing_the_default_route_of_a_lease_is_not_used_at_all():
    settings = Settings(policy_routing="no")
    look = seen(LINK, offered("0.0.0.0/0", "10.9.0.1"))
    found = resolve_state(netplan(dhcp4=True), settings, look, Record())
    assert [hop for hop in found.desired.hops if hop.to.prefixlen == 0] == []
    assert not found.desired.rules


@pytest.mark.parametrize(
    ("to", "via", "reason"),
    [
        ("169.254.169.254/32", "10.9.0.1", "it would take over 169.254.169.254"),
        ("192.0.2.1/32", "10.9.0.1", "it is inside the management network 192.0.2.0/24"),
        ("192.0.2.0/25", None, "it is inside the management network 192.0.2.0/24"),
        ("0.0.0.0/1", "10.9.0.1", "a prefix of length 0 or 1 would replace the default route"),
        ("128.0.0.0/1", None, "a prefix of length 0 or 1 would replace the default route"),
        ("169.254.9.0/24", "10.9.0.1", "link-local addresses are not routed"),
        ("169.254.169.253/32", None, "link-local addresses are not routed"),
        ("127.0.0.0/8", "10.9.0.1", "loopback addresses are not routed"),
        ("127.0.0.53/32", None, "loopback addresses are not routed"),
        ("fd00:ec2::252/127", None, "clouds have a service at fd00:ec2::253"),
        ("fd00:ec2::123/128", "fe80::9", "clouds have a service at fd00:ec2::123"),
        ("8.8.8.8/32", "10.9.0.1", "only a document can route public addresses"),
        ("64.0.0.0/2", "10.9.0.1", "only a document can route public addresses"),
        ("8.8.8.0/24", None, "only a document can route public addresses"),
        ("64.0.0.0/2", None, "only a document can route public addresses"),
        ("64:ff9b::/96", None, "only a document can route public addresses"),
        ("8000::/2", None, "only a document can route public addresses"),
        ("224.0.0.0/3", "10.9.0.1", "multicast and reserved addresses are not routed"),
        ("255.255.255.255/32", None, "multicast and reserved addresses are not routed"),
        ("10.200.0.0/16", "10.9.0.51", "its next hop 10.9.0.51 is this host itself"),
        ("10.200.0.0/16", "10.77.0.1", "its next hop 10.77.0.1 is in no network on this link"),
        ("10.200.0.0/16", "169.254.9.1", "its next hop 169.254.9.1 is in no network on this link"),
    ],
)
def test_no_server_on_the_dataplane_can_route_what_a_document_could_not(to, via, reason):
    found = solve(seen(LINK, offered(to, via)))
    assert main_routes(found) == {("10.9.0.0/24", None)}
    (text,) = refusals(found)
    assert text.startswith(f"the route to {to} that was offered on it is not used: {reason}")


def test_the_network_of_a_public_lease_stays_out_of_the_main_table():
    lease = ip_interface("8.8.8.8/24")
    look = seen(offered("8.8.8.0/24", source="8.8.8.8"))
    look = replace(
        look, addresses={**look.addresses, 2: (lease,)}, leased_addresses=frozenset({(2, lease)})
    )
    found = solve(look)
    assert main_routes(found) == set()
    assert refusals(found)[0].endswith("only a document can route public addresses")


def test_a_route_of_another_program_or_of_the_document_is_not_replaced():
    theirs = route("10.50.0.0/16", 1, "192.0.2.7", 1024, 4)
    look = seen(LINK, offered("10.50.0.0/16", "10.9.0.1"))
    found = solve(replace(look, routes=(*look.routes, theirs)))
    assert main_routes(found) == {("10.9.0.0/24", None)}
    text = "there is another route with the same prefix and metric"
    assert refusals(found)[0].endswith(text)


def test_a_route_whose_place_another_one_has_is_in_the_table_of_its_link():
    theirs = route("10.50.0.0/16", 2, "10.9.0.7", 1024, 4)
    look = seen(LINK, *(offered(to, "10.9.0.1") for to in ("10.50.0.0/16", "0.0.0.0/0")))
    found = solve(replace(look, routes=(*look.routes, theirs)))
    tables = {str(hop.to): hop.traits.table for hop in found.desired.hops}
    assert (tables["10.50.0.0/16"], refusals(found)) == (31001, [])


def test_without_policy_routing_such_a_route_is_not_set_in_the_place_of_the_other():
    theirs = route("10.50.0.0/16", 2, "10.9.0.7", 1024, 4)
    look = seen(LINK, offered("10.50.0.0/16", "10.9.0.1"))
    found = solve(replace(look, routes=(*look.routes, theirs)))
    text = "there is another route with the same prefix and metric"
    assert (main_routes(found), len(refusals(found))) == ({("10.9.0.0/24", None)}, 1)
    assert refusals(found)[0].endswith(text)


def test_a_route_that_is_there_already_is_neither_set_nor_reported():
    theirs = route("10.9.0.0/24", 2, None, 1024, KERNEL)
    look = seen(LINK, offered("10.50.0.0/16", "10.9.0.1"))
    found = solve(replace(look, routes=(*look.routes, theirs)))
    assert (main_routes(found), refusals(found)) == ({("10.50.0.0/16", "10.9.0.1")}, [])


def test_a_link_local_router_may_have_the_address_of_another_link():
    look = seen(offered("fd00:50::/48", "fe80::1", source=None))
    addresses = {**look.addresses, 1: (*look.addresses[1], ip_interface("fe80::1/64"))}
    found = solve(replace(look, addresses=addresses))
    assert (main_routes(found), refusals(found)) == ({("fd00:50::/48", "fe80::1")}, [])


def test_a_server_cannot_fill_the_main_table():
    many = [offered(f"10.50.{n}.0/24", "10.9.0.1") for n in range(MAX_ROUTES + 10)]
    found = solve(seen(LINK, *many))
    assert len(main_routes(found)) == MAX_ROUTES


def test_routes_of_a_lease_go_with_it():
    hop = Route(ip_network("10.50.0.0/16"), 2, ip_address("10.9.0.1"), 1024, 110)
    look = seen(lease="10.9.0.51/24")
    record = Record(nics={mac(2): NicRecord("eth2", "dataplane")})
    plan = decided(replace(look, routes=(*look.routes, hop)), netplan(dhcp4=True), record)
    done = [one.text for one in plan.plan(plan.changed()) if one.kind == "delete-route"]
    assert done == ["delete the route to 10.50.0.0/16 via 10.9.0.1 on eth2 with metric 1024"]


def test_an_address_with_a_lease_stays_beside_those_of_the_document():
    record = Record(nics={mac(2): NicRecord("eth2", "dataplane", leaving="networkd")})
    plan = decided(seen(LINK), netplan(dhcp4=True, addresses=["172.16.0.1/24"]), record).plan()
    assert [one.text for one in plan if "address" in one.kind] == [
        "add the address 172.16.0.1/24 to eth2"
    ]


def test_an_address_that_the_client_has_from_an_advertisement_stays():
    look = seen(lease="fd00:9::1/64", accept_ra="1")
    (address,) = look.addresses[2]
    record = Record(nics={mac(2): NicRecord("eth2", "dataplane")})
    autoconf = frozenset({(2, address)})
    for asked, gone in (
        ({"dhcp6": True}, []),
        ({}, ["delete the address fd00:9::1/64 from eth2"]),
    ):
        plan = decided(replace(look, autoconfigured=autoconf), netplan(**asked), record).plan()
        assert [one.text for one in plan if one.kind == "delete-address"] == gone


def test_the_gateway_of_a_document_goes_before_that_of_a_lease():
    look = seen(LINK, offered("0.0.0.0/0", "10.9.0.1"))
    found = solve(look, gateway4="10.9.0.254")
    defaults = [str(hop.via) for hop in found.desired.hops if hop.to.prefixlen == 0]
    assert defaults == ["10.9.0.254"]


@pytest.mark.parametrize(
    ("lease", "reason"),
    [
        ("192.0.2.10/24", "it is an address of the management NIC"),
        (
            "169.254.169.254/32",
            "it would take over 169.254.169.254, which is reached through the management NIC",
        ),
    ],
)
def test_an_address_that_no_document_could_have_is_reported(lease, reason):
    found = solve(seen(lease=lease))
    texts = [problem.text for problem in found.problems]
    assert texts == [f"it got the address {lease} from a server or router: {reason}"]


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("192.0.2.10", "it is an address of the management NIC"),
        (
            "192.0.2.1",
            "it would take over 192.0.2.1, which is reached through the management NIC",
        ),
    ],
)
def test_a_broadcast_address_that_takes_over_a_guarded_host_is_reported(host, reason):
    """networkd of systemd 255 and 257 sets the one that the server chooses (option 28)."""
    look = replace(seen(), broadcasts=frozenset({(2, ip_address(host)), (1, ip_address(host))}))
    texts = [problem.text for problem in solve(look).problems]
    assert texts == [f"it got the broadcast address {host} from a server: {reason}"]


def test_a_default_route_that_gets_into_the_main_table_is_reported():
    look = seen(LINK)
    leak = route("0.0.0.0/0", 2, "10.9.0.1", 5000, DHCP)
    found = solve(replace(look, routes=(*look.routes, leak)))
    assert [problem.text for problem in found.problems] == [
        "the main table has an IPv4 default route through it that neucad did not add"
    ]
    assert found.roles.role(mac(2)) == "dataplane"


def test_the_network_and_gateway_of_router_advertisements():
    address = ip_interface("fd00:9::1/64")
    look = seen(
        offered("fd00:9::/64", None, "", RA),
        offered("::/0", "fe80::1", "", RA),
        lease=str(address),
    )
    document = changed(netplan(), automatic=Automatic(accept_ra=True))
    found = resolve_state(document, Settings(), look, Record())
    assert main_routes(found) == {("fd00:9::/64", None)}
    assert {rule.source for rule in found.desired.rules} == {"fd00:9::1/128"}


def test_the_router_that_the_client_has_chosen_goes_before_others_among_the_neighbours():
    """Any host becomes one by an advertisement, even without a lifetime."""
    routes = offered("fd00:9::/64", None, "", RA), offered("::/0", "fe80::1", "", RA)
    look = seen(*routes, lease="fd00:9::1/64", routers={2: (ip_address("fe80::bad"),)})
    document = changed(netplan(), automatic=Automatic(accept_ra=True))
    found = resolve_state(document, Settings(), look, Record())
    gateways = {str(hop.via) for hop in found.desired.hops if hop.to.prefixlen == 0}
    assert gateways == {"fe80::1"}


def test_a_nic_that_a_neuca_document_names_gets_no_client():
    text = f"[interface {mac(2)}]\naddresses = 172.16.0.1/24\n"
    document = parse(text)._replace(platform=netplan(dhcp4=True).platform)
    assert FILE not in decided(seen(), document).desired.files
