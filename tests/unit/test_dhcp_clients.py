"""Which client does DHCP on which link, and what those that the agent starts are told and may set."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import signal
import subprocess
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, ip_address

import pytest
from test_dhcp import RUNS, decided, netplan, seen
from test_dhcp_requests import document
from worlds import key, mac, nic, route, vlan, world

from neuca_tools.backends import dhcpclients, dhcplease, processes
from neuca_tools.backends.dhcplease import FOR_EVER, LeaseContent, LeaseRecord, TimedAddress
from neuca_tools.commands import dhcp_helper
from neuca_tools.desired import dhcp_files
from neuca_tools.desired.dhcp_clients import NOT_INSTALLED, UNSERVED
from neuca_tools.documents import parse
from neuca_tools.errors import ManagerError
from neuca_tools.model import Automatic, LinkKey, NicRecord, OwnClients, Record, World
from neuca_tools.plan.operations import StartClient, StopClient

OWN = OwnClients("/sbin/dhcpcd", "/helper")
PLAIN = {"managers": {}, "no_manager_runs": True, "age": 10.0}
NOBODY = {"addresses": {1: ()}, "leased_addresses": frozenset()}
LINKS = [key(2), key(2, 5), LinkKey("bond bond0"), LinkKey("bond bond0", 5), LinkKey("bridge br0")]
NIC = dhcp_files.link_label(key(2))


def plain(own=OWN, **more):
    """A host without managers; no NIC has a lease."""
    values = {**PLAIN, **NOBODY, "own_clients": own, "later_ages": set(), **more}
    return replace(seen(), **values)


def running(found, alive=True):
    """The same host after this decision: the clients have been started."""
    requests = dict(found.desired.clients)
    return OWN._replace(requests=requests, running=frozenset(requests) if alive else frozenset())


def clients(found):
    return dict(found.resolution.roles.dhcp.clients)


# --- links --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("link", [*LINKS, LinkKey("bridge br.0_é-1"), LinkKey("vxlan v", 4094)])
def test_a_link_is_found_by_its_label(link):
    text = dhcp_files.link_label(link)
    assert dhcp_files.link_of_label(text) == link
    assert set(text) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_.")


@pytest.mark.parametrize(
    "text", ["", "notes", "bond-", "020000000002.", "bond-a b", "02000000000g"]
)
def test_what_is_no_label_is_no_link(text):
    assert dhcp_files.link_of_label(text) is None
    assert not dhcp_files.is_dhcp_file(f"04-neuca-dhcp-{text}.network")


def test_links_with_one_mac_address_have_tables_and_files_of_their_own():
    assert len({dhcp_files.table_of(link) for link in LINKS}) == len(LINKS)
    assert len({dhcp_files.file_name("networkd", link) for link in LINKS}) == len(LINKS)
    assert {number >> 30 for number in map(dhcp_files.table_of, LINKS)} == {1}


@pytest.mark.parametrize(
    ("link", "match"),
    [
        (key(2), [f"PermanentMACAddress={mac(2)}"]),
        (key(2, 5), ["Name=x1", "Kind=vlan"]),
        (LinkKey("bond bond0"), ["Name=x1", "Kind=bond"]),
        (LinkKey("bond bond0", 5), ["Name=x1", "Kind=vlan"]),
        (LinkKey("bridge br0"), ["Name=x1", "Kind=bridge"]),
        (LinkKey("macvlan m0"), ["Name=x1", "Kind=macvlan"]),
    ],
)
def test_networkd_tells_links_with_one_mac_address_apart(link, match):
    text = dhcp_files.networkd_file(link, "x1", Automatic(dhcp4=True), has_mtu=False).decode()
    assert text.partition("[Match]\n")[2].partition("\n\n")[0].splitlines() == match
    assert f"RouteTable={dhcp_files.table_of(link)}" in text


STACKED = f"""[interface {mac(2)}]
[vlan {mac(2)}.5]
dhcp4 = yes
[bond bond0]
mode = 802.3ad
members = {mac(3)}
dhcp4 = yes
[vlan bond bond0.7]
dhcp4 = yes
[vlan {mac(2)}.9]
[bridge br0]
members = {mac(2)}.9
dhcp4 = yes
"""
VIRTUAL = {key(2, 5), LinkKey("bond bond0"), LinkKey("bond bond0", 7), LinkKey("bridge br0")}


def test_networkd_serves_vlans_bonds_and_bridges():
    look = seen()
    found = decided(replace(look, devices={**look.devices, 3: nic(3)}), parse(STACKED))
    assert clients(found) == dict.fromkeys(VIRTUAL, "networkd")
    names = {path for path, content in found.desired.files.items() if content}
    assert {f"/networkd/{dhcp_files.file_name('networkd', link)}" for link in VIRTUAL} <= names


def test_networkmanager_serves_nics_and_our_own_client_what_is_on_top_of_them():
    manager = {"networkmanager": RUNS["networkd"]}
    text = STACKED.replace(f"[interface {mac(2)}]", f"[interface {mac(2)}]\ndhcp4 = yes")
    found = decided(seen(managers=manager, own_clients=OWN), parse(text))
    assert clients(found) == {key(2): "networkmanager", **dict.fromkeys(VIRTUAL, "neucad")}
    without = decided(seen(managers=manager), parse(text))
    assert clients(without) == {key(2): "networkmanager"}


def test_while_networkmanager_gives_no_answer_each_link_keeps_its_client():
    manager = {"networkmanager": RUNS["networkd"]}
    text = STACKED.replace(f"[interface {mac(2)}]", f"[interface {mac(2)}]\ndhcp4 = yes")
    first = decided(seen(managers=manager, own_clients=OWN), parse(text))
    there = {path: content for path, content in first.desired.files.items() if content}
    silent = {"networkmanager": "no response within 1 s"}
    look = seen(managers={}, silent_managers=silent, own_clients=running(first), files=there)
    assert clients(decided(look, parse(text))) == clients(first)
    assert [
        one for one in decided(look, parse(text), first.record).plan() if "dhcp" in one.kind
    ] == []


@pytest.mark.parametrize("manager", ["", "networkd"])
def test_without_networkmanager_the_agent_starts_no_client_on_top_of_a_nic(manager):
    """Early in the boot of a host with a manager, and beside one that serves every kind of link."""
    managers = {manager: RUNS[manager]} if manager else {}
    world = plain(
        OWN._replace(manager_may_start=True), managers=managers, no_manager_runs=not manager
    )
    assert "neucad" not in clients(decided(world, parse(STACKED))).values()


# --- the choice of the client -------------------------------------------------------------------------


def test_a_host_without_managers_gets_a_client_of_its_own():
    found = decided(plain(), document("dhcp4 = yes"))
    assert clients(found) == {key(2): "neucad"}
    assert [one.text for one in found.plan() if isinstance(one, StartClient)] == [
        "start the DHCP client of eth2"
    ]
    files = found.desired.files
    assert not any("dhcp" in path for path in files)
    assert f"mac:{mac(2)}".encode() in files["/nm/neuca.conf"]


@pytest.mark.parametrize(
    ("look", "expected"),
    [
        ({"own_clients": OWN._replace(manager_may_start=True)}, {}),
        ({"own_clients": OWN._replace(manager_may_start=True), "age": 400.0}, {key(2): "neucad"}),
        ({"managers": RUNS, "no_manager_runs": False}, {key(2): "networkd"}),
        (
            {"managers": RUNS, "own_clients": OWN._replace(replaces_managers=True)},
            {key(2): "neucad"},
        ),
        ({"no_manager_runs": False}, {}),
        ({"own_clients": OwnClients()}, {}),
    ],
)
def test_who_does_dhcp(look, expected):
    assert clients(decided(plain(**look), document("dhcp4 = yes"))) == expected


def test_a_nic_with_the_lease_of_another_program_is_left_to_it():
    look = seen(**PLAIN, own_clients=OWN)
    found = decided(look, document("dhcp4 = yes"))
    assert (clients(found), found.resolution.roles.dhcp.left_to_others) == ({}, {mac(2)})
    ours = OWN._replace(requests={NIC: "{}"}, running=frozenset({NIC}))
    assert clients(decided(replace(look, own_clients=ours), document("dhcp4 = yes"))) == {
        key(2): "neucad"
    }


def test_a_missing_client_is_named_with_what_to_install():
    def problems(own, age=400.0):
        found = decided(plain(own, age=age), document("dhcp4 = yes"))
        return [one.text for one in found.resolution.problems if one.link == key(2)]

    assert problems(OwnClients()) == [UNSERVED]
    assert "dhcpcd-base" in UNSERVED
    assert "dhcpcd-base" in UNSERVED
    assert problems(OwnClients(replaces_managers=True), age=1.0) == [NOT_INSTALLED]
    assert problems(OWN) == []


KNOWN = Record(nics={mac(1): NicRecord(role="management")})
WAITING = [OWN._replace(manager_may_start=True), OwnClients(manager_may_start=True)]
DHCP_ON_A_NIC = f"[interface {mac(2)}]\ndhcp4 = yes\n"
DHCP_ON_A_VLAN = f"[vlan {mac(2)}.5]\ndhcp4 = yes\n"


@pytest.mark.parametrize("own", WAITING)
@pytest.mark.parametrize("text", [DHCP_ON_A_NIC, DHCP_ON_A_VLAN])
def test_a_manager_that_starts_after_the_first_pass_is_noticed(own, text):
    """No event says that it has started."""
    ages, look = [], plain(own, age=5.0)
    decided(look, parse(text), KNOWN)
    while look.later_ages:
        ages.append(min(look.later_ages))
        look = plain(own, age=ages[-1])
        decided(look, parse(text), KNOWN)
    assert ages == [30.0, 60.0, 120.0, 240.0, 360.0]


@pytest.mark.parametrize(
    ("look", "text"),
    [
        (plain(), DHCP_ON_A_NIC),
        (plain(OwnClients()), DHCP_ON_A_NIC),
        (plain(WAITING[1]._replace(replaces_managers=True)), DHCP_ON_A_NIC),
        (plain(no_manager_runs=False, managers={"networkd": {}}), DHCP_ON_A_NIC),
        (plain(WAITING[0]), f"[interface {mac(2)}]\n"),
        (plain(WAITING[1]), f"[interface {mac(2)}]\nstate = user\ndhcp4 = yes\n"),
    ],
)
def test_a_host_that_waits_for_no_manager_makes_no_pass_for_one(look, text):
    look = replace(look, later_ages=set())
    decided(look, parse(text), KNOWN)
    assert look.later_ages <= {360.0}


def test_what_only_a_network_manager_does_is_noted():
    overrides = {"use-dns": True, "use-hostname": True}
    found = decided(plain(), netplan(dhcp4=True, dhcp6=True, **{"dhcp4-overrides": overrides}))
    assert [one.reason for one in found.resolution.notes if one.link == key(2)] == [
        "without a network manager, DNS servers and the host name of DHCP are not used"
    ]


# --- starting and stopping ----------------------------------------------------------------------------


def test_what_a_client_is_told():
    found = decided(plain(), netplan(dhcp4=True, **{"dhcp4-overrides": {"route-metric": 300}}))
    assert json.loads(found.desired.clients[NIC]) == {
        "link": mac(2),
        "program": "/sbin/dhcpcd",
        "helper": "/helper",
        "interface": "eth2",
        "index": 2,
        "table": dhcp_files.table_of(key(2)),
        "guarded": ["192.0.2.1/32"],
        "metric": 300,
        "mtu": True,
        "routes": True,
        "hostname": "",
    }


def test_a_client_that_runs_with_its_request_is_left_alone():
    look = plain()
    own = running(decided(look, document("dhcp4 = yes")))
    again = decided(replace(look, own_clients=own), document("dhcp4 = yes"))
    assert [one for one in again.plan() if one.kind.endswith("-dhcp")] == []


def test_a_client_that_has_ended_or_has_another_request_is_started():
    look = plain()
    first = decided(look, document("dhcp4 = yes"))
    for own in (running(first, alive=False), running(first)._replace(requests={NIC: "{}"})):
        again = decided(replace(look, own_clients=own), document("dhcp4 = yes"))
        assert [one.kind for one in again.plan() if one.kind.endswith("-dhcp")] == ["start-dhcp"]


@pytest.mark.parametrize(
    "lines", [[], ["dhcp4 = yes", "state = down"], ["dhcp4 = yes", "state = user"]]
)
def test_a_client_that_is_not_requested_is_stopped(lines):
    look = plain()
    own = running(decided(look, document("dhcp4 = yes")))
    again = decided(replace(look, own_clients=own), document(*lines))
    assert [one.text for one in again.plan() if isinstance(one, StopClient)] == [
        f"stop the DHCP client of {mac(2)}, and release its lease"
    ]


@pytest.mark.parametrize("line", ["dhcp4 = yess", "mtu = x"])
def test_a_client_goes_on_while_the_request_of_its_link_has_an_unusable_line(line):
    look = plain()
    own = running(decided(look, document("dhcp4 = yes")))
    again = decided(replace(look, own_clients=own), document(line))
    assert [one for one in again.plan() if one.kind.endswith("-dhcp")] == []


def test_a_client_of_a_link_that_becomes_a_member_is_stopped_in_spite_of_an_unusable_line():
    look = plain()
    own = running(decided(look, document("dhcp4 = yes")))
    bond = (
        f"[bond bond0]\nmode = active-backup\nmembers = {mac(2)}\n[interface {mac(2)}]\nmtu = x\n"
    )
    again = decided(replace(look, own_clients=own), parse(bond))
    assert not again.resolution.is_complete
    assert [one.kind for one in again.plan() if one.kind.endswith("-dhcp")] == ["stop-dhcp"]


def test_without_a_document_a_client_goes_on():
    look = plain()
    own = running(decided(look, document("dhcp4 = yes")))
    again = decided(replace(look, own_clients=own), None, Record())
    assert [one for one in again.plan() if isinstance(one, StopClient)] == []


def test_a_link_that_is_down_or_has_another_name_is_not_served_yet():
    look = plain()
    down = look.devices[2]._replace(up=False)
    found = decided(replace(look, devices={**look.devices, 2: down}), document("dhcp4 = yes"))
    assert found.desired.clients == {}
    assert "set-state" in [one.kind for one in found.plan()]
    renamed = decided(look, document("dhcp4 = yes", "name = data0"))
    assert renamed.desired.clients == {}


# --- leases -------------------------------------------------------------------------------------------

BOUND = {
    "new_ip_address": "10.9.0.51",
    "new_subnet_mask": "255.255.255.0",
    "new_dhcp_lease_time": "3600",
    "new_routers": "10.9.0.1 10.9.0.2",
}
ROUTER = IPv4Address("10.9.0.1")


LEASED = {"index": 2, "metric": 0, "table": 254, "routes": False}


def leased(environment):
    """What a lease gives to a link that takes no routes, without that to the network itself."""
    found = dhcplease.read_dhcp4_lease(environment, LEASED)
    return found and found._replace(routes=())


@pytest.mark.parametrize(("lower", "expected"), [(1500, 1500), (9000, 8000)])
def test_a_vlan_gets_no_larger_mtu_from_a_lease_than_the_nic_below_it_has(lower, expected):
    """The kernel refuses it (ERANGE), and each renewal would fail. Small kernels have no VLANs."""
    host = world(nic(2, mtu=lower), vlan(3, 2, 5))
    lease = LeaseContent((), 8000, (), 4)
    record = dhcplease._lease_record(
        lease, {**LEASED, "index": 3, "mtu": True}, host, LeaseRecord(0)
    )
    assert (record.mtu, record.mtu_before) == (expected, 1500)


def test_a_lease_as_the_client_reports_it():
    timed = TimedAddress(IPv4Interface("10.9.0.51/24"), 3600, 3600)
    assert leased(BOUND) == LeaseContent((timed,), 0, (), 4)
    assert [*dhcplease.offered_routes(BOUND)] == [(IPv4Network("0.0.0.0/0"), ROUTER)]
    routes = [(IPv4Network("192.168.64.0/18"), ROUTER), (IPv4Network("10.7.7.7/32"), ROUTER)]
    words = "192.168.64.0/18 10.9.0.1 10.7.7.7/32 10.9.0.1"
    assert [*dhcplease.offered_routes({**BOUND, "new_classless_static_routes": words})] == routes


@pytest.mark.parametrize(
    "text", ["10.7.7.7/33 10.9.0.1", "10.7.7.7", "10.7.7.7/32 10.9.0", "x", "24 1 2 3"]
)
def test_malformed_classless_routes_are_no_routes_and_routers_do_not_count_either(text):
    assert [*dhcplease.offered_routes({**BOUND, "new_classless_static_routes": text})] == []


@pytest.mark.parametrize(
    "address",
    ["", "x", "0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255", "$(reboot)", "fe80::1"],
)
def test_an_address_that_no_host_can_have_is_no_lease(address):
    assert leased({**BOUND, "new_ip_address": address}) is None


def test_values_that_are_malformed_count_as_absent():
    odd = {
        "new_interface_mtu": "1e9",
        "new_dhcp_lease_time": "-1",
    }
    timed = TimedAddress(IPv4Interface("10.9.0.51/24"), FOR_EVER, FOR_EVER)
    assert leased({**BOUND, **odd}) == LeaseContent((timed,), family=4)
    assert [*dhcplease.offered_routes({**BOUND, "new_routers": ";"})] == []


def test_a_server_cannot_fill_the_routing_table():
    words = " ".join(f"10.{one}.0.0/16 10.9.0.1" for one in range(200))
    routes = [*dhcplease.offered_routes({**BOUND, "new_classless_static_routes": words})]
    assert len(routes) == dhcplease.MAX_ROUTES


def test_addresses_that_are_not_set():
    look = replace(seen(), routes=(route("0.0.0.0/0", 1, "192.0.2.1"),))
    assert look.addresses[1][0].ip == ip_address("192.0.2.10")

    def refusal(address):
        return dhcplease.reason_to_refuse(IPv4Interface(address), 2, look)

    assert refusal("192.0.2.10/24") == "it is an address of another interface"
    for taken in ("192.0.2.1", "169.254.169.254", "100.100.100.200", "168.63.129.16"):
        reason = f"it would take over {taken}, which is reached through the management NIC"
        assert refusal(f"{taken}/32") == reason
    link_local = "it is link-local, which no server may offer (RFC 3927, 1.6)"
    assert refusal("169.254.169.253/32") == link_local  # EC2's DNS server
    assert refusal("10.9.0.51/24") == ""
    static = replace(look, leased_addresses=frozenset())
    there = IPv4Interface("10.9.0.51/24")
    assert (
        dhcplease.reason_to_refuse(there, 2, static)
        == "the link already has it from another source"
    )
    assert dhcplease.reason_to_refuse(there, 2, static, "10.9.0.51/24") == ""


def test_an_address_whose_broadcast_address_is_guarded_is_not_set():
    """The kernel routes it to the link; a server that chooses the prefix length chooses it too."""
    offered = IPv4Interface("192.0.2.9/30")
    there = World(addresses={1: (IPv4Interface("192.0.2.11/24"),)})
    reason = "its broadcast address 192.0.2.11 is an address of another interface"
    assert dhcplease.reason_to_refuse(offered, 2, there) == reason
    reason = "it would take over 192.0.2.11, which is reached through the management NIC"
    gateway = World(routes=(route("0.0.0.0/0", 1, "192.0.2.11"),))
    assert dhcplease.reason_to_refuse(offered, 2, gateway) == reason
    assert dhcplease.reason_to_refuse(offered, 2, World(), "", ["192.0.2.11/32"]) == reason
    assert dhcplease.reason_to_refuse(IPv4Interface("192.0.2.10/31"), 2, gateway) == ""


# --- the programs -------------------------------------------------------------------------------------


def request(program, hostname=""):
    return {"program": program, "interface": "eth2", "helper": "/helper", "hostname": hostname}


@pytest.mark.parametrize(
    ("hostname", "line"), [("", "hostname "), ("node0", "hostname node0"), ("-", "")]
)
def test_dhcpcd_configures_nothing_by_itself_and_asks_for_nothing_that_is_not_used(
    tmp_path, hostname, line
):
    path = tmp_path / "bridge-br0.7.json"
    words = dhcp_helper._client_command(path, request("/usr/sbin/dhcpcd", hostname))
    assert (
        words
        == (
            f"/usr/sbin/dhcpcd -4 -B -q --noconfigure -f {tmp_path}/bridge-br0.7.conf -c /helper"
            f" -e NEUCA_DHCP={path} eth2"
        ).split()
    )
    conf = (tmp_path / "bridge-br0.7.conf").read_text().splitlines()
    assert "option subnet_mask, routers, classless_static_routes, interface_mtu" in conf
    assert [one for one in conf if one.startswith("hostname")] == [line] * bool(line)


def test_the_program_is_the_one_that_is_installed():
    assert dhcpclients.client_program("none") == ""
    assert dhcpclients.client_program("/nonexistent/dhcpcd") == ""


def test_a_manager_that_is_enabled_may_still_start(tmp_path):
    assert not dhcpclients.is_manager_enabled(tmp_path)
    wants = tmp_path / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir(parents=True)
    (tmp_path / "unit").touch()
    (wants / "NetworkManager.service").symlink_to(tmp_path / "unit")
    assert dhcpclients.is_manager_enabled(tmp_path)


class Units:
    """systemd, with the clients that run as its units; what it is told is recorded."""

    def __init__(self, *running):
        self.running, self.told = frozenset(running), []

    def alive(self):
        if not self.running:
            raise ManagerError("asked systemd for the DHCP clients: no response")
        return self.running

    def restart(self, label):
        self.told.append(("restart", label))

    def stop(self, label):
        self.told.append(("stop", label))


def test_a_client_of_systemd_is_started_and_stopped_by_its_unit(tmp_path):
    units = Units("other")
    clients = dhcpclients.Clients(tmp_path, tmp_path / "helper", units)
    (tmp_path / f"eth1{dhcpclients.GONE}").touch()  # it is requested again while it is stopped
    clients.start("eth1", "{}")
    assert (units.told, [path.name for path in tmp_path.iterdir()]) == (
        [("restart", "eth1")],
        [f"eth1{dhcpclients.REQUEST}"],
    )
    clients.stop("eth1", releases=False)
    assert (units.told[1:], list(tmp_path.iterdir())) == ([("stop", "eth1")], [])


@pytest.mark.parametrize(("running", "expected"), [(["eth1", "x"], {"eth1"}), ([], {"eth1", "eth2"})])  # fmt: skip
def test_a_client_has_ended_only_if_systemd_says_so(tmp_path, running, expected):
    for label in ("eth1", "eth2"):
        (tmp_path / f"{label}{dhcpclients.REQUEST}").write_text("{}")
    clients = dhcpclients.Clients(tmp_path, tmp_path / "helper", Units(*running))
    assert clients.read("none").running == expected


def test_only_the_process_that_was_started_is_told_to_release_its_lease(tmp_path):
    gone = tmp_path / f"eth1{dhcpclients.GONE}"
    with subprocess.Popen(["sleep", "60"]) as process:
        gone.with_suffix(".pid").write_text(f"{process.pid} 1")  # another had its ID before
        dhcp_helper._signal_client(gone, signal.SIGALRM)
        assert process.poll() is None
        gone.with_suffix(".pid").write_bytes(processes.process_note(process.pid))
        dhcp_helper._signal_client(gone, signal.SIGALRM)
        assert process.wait(60) == -signal.SIGALRM


@pytest.mark.parametrize(
    "content",
    [
        {"refused": "x"},
        {"index": "2", "refused": "x"},
        {"index": 2, "refused": ["x"]},
        {"index": 2, "addresses": ["10.9.0.51/24"]},
        {"index": 2, "addresses": {"10.9.0.51/24": None}},
        {"index": 2, "addresses": {"x": 1}},
        {"index": 2, "address": "10.9.0.51/24", "until": "soon"},
        {"index": 2, "mtu_before": []},
        ["index"],
        5,
    ],
)
def test_a_damaged_file_of_a_lease_is_as_good_as_none(tmp_path, content):
    place = tmp_path / f"{NIC}{dhcplease.LEASE}"
    place.write_text(json.dumps(content))
    assert list(dhcplease.refused_leases(tmp_path)) == []
    assert dhcplease.read_lease(place) == LeaseRecord(0)
    place.write_text("[" * dhcplease.MAX_LEASE_BYTES)
    assert dhcplease.read_lease(place) == LeaseRecord(0)


@pytest.mark.parametrize(
    ("words", "reported", "code", "said"),
    [
        (["stop", "NIC"], None, 0, ""),
        (["stop", "BROKEN"], None, 1, "it has no request"),
        (["stop", "ABSENT"], None, 0, ""),
        ([], "BROKEN", 0, "it has no request"),
        ([], "ABSENT", 0, ""),
        ([], None, 2, "it is run by neucad and by DHCP clients"),
        (["stop"], None, 2, "it is run by neucad and by DHCP clients"),
        (["end", "NIC"], None, 2, "it is run by neucad and by DHCP clients"),
    ],
)
def test_the_exit_code_of_the_helper(words, reported, code, said, tmp_path, monkeypatch, capsys):
    for name, content in (("NIC", '{"interface": "none", "index": 1}'), ("BROKEN", "[]")):
        for suffix in (dhcp_helper.GONE, ".json"):
            (tmp_path / name).with_suffix(suffix).write_text(content)
    if reported:
        monkeypatch.setenv(dhcp_helper.REQUEST_VARIABLE, str(tmp_path / f"{reported}.json"))
    assert (
        dhcp_helper.main([*words[:1], *(str(tmp_path / f"{name}.json") for name in words[1:])])
        == code
    )
    error = capsys.readouterr().err
    assert error.startswith("dhcp-helper: ") if said else not error
    assert error.endswith(f"{said}\n" if said else "")
    assert (tmp_path / "NIC").with_suffix(dhcp_helper.GONE).exists() is (
        code != 0 or words[1:] != ["NIC"]
    )
