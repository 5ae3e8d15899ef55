"""A hostile document wants the management network, the default route, or a host that is of no use any more."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import sys

import pytest
from lab import GATEWAY, GATEWAY6, MANAGEMENT_MAC, SERVICE, mac
from metadata import Metadata, listener

NIC = f"[interface {mac(1)}]\naddresses = 172.16.0.1/24, fd00:16::1/64\n"
IGNORED = mac(9)
REACH = """import socket, sys
for where in sys.argv[1:]:
    with socket.create_connection((where, 80), 5):
        pass"""


@pytest.fixture
def host(guest):
    """Its management network has a web server at the gateway and the service's address."""
    guest.management()
    guest.veth("dp1", 1)
    guest.veth("kept", 9, up=True, foreign=True)
    guest.configure(f"[runtime]\ndataplane-macs-to-ignore = {IGNORED}\n")
    with contextlib.ExitStack() as stack:
        for place in ("0.0.0.0", "::"):
            server = Metadata(listener(guest.outside.enter, place, 80), "")
            stack.callback(server.close)
        assert guest.once(NIC).code == 0
        yield guest


def reachable(host):
    """The gateways and the metadata service, over TCP."""
    return host.run(sys.executable, "-c", REACH, GATEWAY, GATEWAY6, SERVICE, check=False).code == 0


def ways(host):
    """Which device packets to the management network's other side take."""
    found = [host.look(f"route get {where}")[0]["dev"] for where in (SERVICE, GATEWAY, "8.8.8.8")]
    return [
        *found,
        *(host.look(f"-6 route get {where}")[0]["dev"] for where in (GATEWAY6, "2600::1")),
    ]


def refused(host):
    code, status = host.status()
    holders = [status, *status["interfaces"]]
    return code, [one["text"] for holder in holders for one in holder["problems"]]


MADE = {
    "bridge": f"[bridge evil0]\nmembers = {mac(1)}\nmac = %s\naddresses = 10.7.0.1/24\n",
    "macvlan": f"[macvlan evil0]\nparent = {mac(1)}\nmac = %s\naddresses = 10.7.0.1/24\n",
    "bond": f"[bond evil0]\nmode = active-backup\nmembers = {mac(1)}\nmac = %s\n",
    "vlan": f"[vlan {mac(1)}.66]\nmac = %s\naddresses = 10.7.0.1/24\n",
    "vxlan": f"{NIC}[vxlan evil0]\nid = 7\nlocal = 172.16.0.1\nremote = 172.16.0.2\nmac = %s\n",
}


@pytest.mark.parametrize("address", [MANAGEMENT_MAC, IGNORED], ids=["management", "ignored"])
@pytest.mark.parametrize("kind", MADE)
def test_the_mac_of_a_protected_nic_is_given_to_no_device(host, kind, address):
    host.foreign.may_make("evil0", "dp1.66")
    host.once(MADE[kind] % address)
    macs = [one.get("address") for one in host.look("link")]
    assert macs.count(address) == 1
    assert host.once(NIC).code == 0
    names = {one["ifname"] for one in host.look("link")}
    assert names == {"lo", "mgmt0", "dp1", "kept"}


def test_the_gateway_is_given_to_no_nic_while_its_default_route_is_lost(host):
    """The guest knows it from before, whatever passes are made meanwhile."""
    host.ip("route delete default")
    host.ip("-6 route delete default")
    text = f"[interface {mac(1)}]\naddresses = {GATEWAY}/24, {GATEWAY6}/64\npolicy-routing = yes\n"
    text += "gateway = 192.0.2.254, 2001:db8:ffff::fe\n"
    for _ in range(3):
        host.once(text)
        assert host.addresses("dp1") == set()
    host.ip(f"route add default via {GATEWAY} dev mgmt0")
    host.ip(f"-6 route add default via {GATEWAY6} dev mgmt0")
    assert host.once(NIC).code == 0


BIND = """import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
    udp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    udp.bind(("192.0.2.10", int(sys.argv[1])))"""


@pytest.mark.parametrize("port", [68, 546])
def test_no_vxlan_takes_the_port_of_the_dhcp_client_of_the_management_nic(host, port):
    assert host.once(f"{MADE['vxlan'] % mac(7)}port = {port}\n").code != 0
    assert host.run(sys.executable, "-c", BIND, port, check=False).code == 0


TAKEN = {
    "as a member": f"[vrf evil0]\ntable = 100\nmembers = {MANAGEMENT_MAC}\n",
    "beside a NIC": f"{NIC}[vrf evil0]\ntable = 100\nmembers = {mac(1)}, {MANAGEMENT_MAC}\n",
    "by its section": f"[vrf evil0]\ntable = 100\n[interface {MANAGEMENT_MAC}]\nvrf = evil0\n",
    "an ignored one": f"[vrf evil0]\ntable = 100\nmembers = {IGNORED}\n",
    "with the main table": f"{NIC}[vrf evil0]\ntable = 254\nmembers = {mac(1)}\n",
    "with the local table": f"{NIC}[vrf evil0]\ntable = 255\nmembers = {mac(1)}\n",
}


@pytest.mark.parametrize("text", TAKEN.values(), ids=TAKEN)
def test_no_vrf_takes_the_management_link_an_ignored_nic_or_the_hosts_table(host, text):
    before = ways(host)
    assert host.once(text).code != 0
    names = {one["ifname"]: one.get("master") for one in host.look("link")}
    assert names == dict.fromkeys(("lo", "mgmt0", "dp1", "kept"))
    assert ways(host) == before
    assert reachable(host)


HALVES = {
    "a third": ["2000::/3"],
    "quarters": [f"{number * 64}.0.0.0/2" for number in range(4)],
    "sixteenths": [f"{number * 16}.0.0.0/4" for number in range(16)],
    "hundreds": [f"{number}.0.0.0/8" for number in range(1, 255) if number != 127],
    "thousands": [f"{number >> 4}.{(number & 15) * 16}.0.0/12" for number in range(16, 224 * 16)],
    "by six": [f"{0x2000 + number * 0x200:x}::/7" for number in range(16)],
}


@pytest.mark.parametrize("routes", HALVES.values(), ids=HALVES)
def test_no_union_of_routes_takes_the_place_of_the_default_route(host, routes):
    before = ways(host)
    hop = {4: "172.16.0.254", 6: "fd00:16::fe"}
    text = "".join(f"{to} = {hop[6 if ':' in to else 4]}\n" for to in routes)
    assert host.once(f"{NIC}[routes]\n{text}").code != 0
    assert ways(host) == before
    assert reachable(host)


@pytest.mark.parametrize("address", ["2001::1/3", "8.0.0.1/3", "192.1.2.3/2", "2600::1/7"])
def test_no_address_takes_the_place_of_the_default_route(host, address):
    before = ways(host)
    done = host.once(f"[interface {mac(1)}]\naddresses = 172.16.0.1/24, {address}\n")
    assert done.code in (1, 4)
    assert ways(host) == before
    assert reachable(host)


WORST = {
    "net.ipv4.ip_default_ttl": "1",
    "net.ipv4.tcp_rmem": "1 1 1",
    "net.ipv4.tcp_wmem": "1 1 1",
    "net.ipv4.neigh.default.gc_thresh3": "0",
    "net.ipv6.neigh.default.gc_thresh3": "0",
    "net.netfilter.nf_conntrack_max": "1",
    "net.ipv4.tcp_mem": "1 1 1",
    "net.ipv4.udp_mem": "1 1 1",
    "net.core.rmem_max": "2304",
    "net.core.somaxconn": "1",
    "net.ipv6.route.max_size": "1",
    "net.ipv6.route.gc_thresh": "0",
    "net.ipv4.icmp_echo_ignore_all": "1",
    "net.ipv6.icmp.echo_ignore_all": "1",
    "net.ipv4.ip_local_port_range": "1 1",
    "net.ipv4.ip_unprivileged_port_start": "0",
    "net.ipv4.ping_group_range": "0 2147483647",
    "net.ipv4.tcp_syncookies": "0",
    "net.ipv4.tcp_max_syn_backlog": "1",
    "net.ipv4.tcp_retries2": "1",
    "net.ipv4.tcp_fin_timeout": "1",
    "net.ipv4.ipfrag_high_thresh": "0",
    "net.ipv6.bindv6only": "1",
    "net.ipv4.fwmark_reflect": "1",
    "net.ipv6.xfrm6_gc_thresh": "0",
    "net.unix.max_dgram_qlen": "0",
}


def test_no_hostile_setting_of_the_whole_host_is_written(host):
    there = f"cd /proc/sys; for one in {' '.join(WORST)}; do readlink -e ${{one//./\\/}}; done"
    found = host.run("bash", "-c", there, check=False).out.split()
    paths = [path[len("/proc/sys/") :] for path in found]
    before = {path: host.sysctl(path) for path in paths}
    assert "net/ipv4/ip_default_ttl" in before
    text = "".join(f"sysctl.{key} = {value}\n" for key, value in WORST.items())
    assert host.once(NIC + text).code == 4
    assert {path: host.sysctl(path) for path in paths} == before
    assert reachable(host)


NAMES = ("lo", "all", "default", ".", "..", "mgmt0", "kept", "a/b", "a b", "a\x1bb", "x" * 16, "%d")


@pytest.mark.parametrize("name", NAMES)
def test_a_hostile_name_is_given_to_no_device(host, name):
    before = {one["ifname"] for one in host.look("link")}
    host.once(f"[interface {mac(1)}]\nname = {name}\naddresses = 172.16.0.1/24\n")
    assert {one["ifname"] for one in host.look("link")} == before
    assert host.once(NIC).code == 0


def test_a_document_of_every_vlan_costs_nobody_else_anything(host):
    text = "".join(f"[vlan {mac(1)}.{number}]\naddresses = 10.{number >> 8}.{number & 255}.1/24\n"
                   for number in range(1, 4095))  # fmt: skip
    before = ways(host)
    host.document(NIC + text)
    plan = host.neuca("plan", "--json")
    assert plan.code in (0, 1, 2, 4)
    assert ways(host) == before
    host.document(NIC)


LINES = ("host_name = evil\n127.0.0.1 sudo", "host_name = -rf", "host_name = a\x1b[2Jb")


@pytest.mark.parametrize("line", LINES)
def test_a_hostile_host_name_is_no_host_name(host, line):
    host.once(f"[global]\n{line}\n{NIC}")
    hosts = host.folder / "hosts"
    assert not hosts.exists() or "sudo" not in hosts.read_text()
    assert host.once(NIC).code == 0


HIJACKS = {
    "everything": "from = 0.0.0.0/0\ntable = 100\npriority = 1",
    "everything, IPv6": "from = ::/0\ntable = 100\npriority = 1",
    "what has no source yet": "from = 0.0.0.0/32\ntable = 100\npriority = 1",
    "what has no source yet, and more": "from = 0.0.0.0/8\ntable = 100\npriority = 1",
    "what has no source yet, IPv6": "from = ::/128\ntable = 100\npriority = 1",
    "no selector": "table = 100\npriority = 1",
    "to the gateway": f"to = {GATEWAY}\ntable = 100\npriority = 1",
    "to the service": f"to = {SERVICE}\ntable = 100\npriority = 1",
    "the management address": "from = 192.0.2.10\ntable = 100\npriority = 1",
    "the management network": "from = 192.0.0.0/16\ntable = 100\npriority = 1",
    "half of it": "from = 192.0.2.0/25\ntable = 100\npriority = 1",
    "unmarked": "mark = 0\ntable = 100\npriority = 1",
    "unmarked by mask": "mark = 0x100/0xff\ntable = 100\npriority = 1",
    "by the kernel's rule": "from = 172.16.0.1\ntable = 100\npriority = 0",
    "the table local": "from = 172.16.0.1\ntable = 255\npriority = 1",
}


@pytest.mark.parametrize("keys", HIJACKS.values(), ids=HIJACKS)
def test_no_rule_takes_over_the_management_nic(host, keys):
    """Table 100 has a default route in each family, which no rule of another program leads to."""
    tables = "[routes]\n0.0.0.0/0 = 172.16.0.254 table 100\n::/0 = fd00:16::fe table 100\n"
    before = ways(host)
    host.once(f"{NIC}{tables}[rule evil]\n{keys}\n")
    assert ways(host) == before
    assert reachable(host)
    rules = [host.look(f"{family} rule show") for family in ("-4", "-6")]
    assert [one for found in rules for one in found if one["table"] in ("100", "255")] == []


@pytest.mark.parametrize("kind", ["blackhole", "172.16.0.254", "172.16.0.254, 172.16.0.253"])
@pytest.mark.parametrize("to", ["0.0.0.0/0", "192.0.2.0/24", "192.0.2.1/32", f"{SERVICE}/32"])
def test_no_route_of_any_type_or_table_takes_over_the_management_nic(host, to, kind):
    """Not in the main table, and not in one that a rule of the administrator's leads to."""
    host.ip("rule add lookup 100 pref 500")
    before = ways(host)
    for table in ("main", "100"):
        host.once(f"{NIC}[routes]\n{to} = {kind} metric 0 table {table}\n")
        assert ways(host) == before
        assert reachable(host)


@pytest.mark.parametrize("kind", ["quarters", "sixteenths", "by six"])
def test_no_union_of_routes_takes_over_a_table_that_another_programs_rule_leads_to(host, kind):
    """Such as that of a VPN, or those for the address of the management NIC that clouds' programs make."""
    for family, source, gateway in (
        ("-4", "192.0.2.10", GATEWAY),
        ("-6", "2001:db8:ffff::10", GATEWAY6),
    ):
        host.ip(f"{family} rule add from {source} lookup 100 pref 500")
        host.ip(f"{family} route add default via {gateway} dev mgmt0 table 100")
    hop = {4: "172.16.0.254", 6: "fd00:16::fe"}
    text = "".join(f"{to} = {hop[6 if ':' in to else 4]} table 100\n" for to in HALVES[kind])
    assert host.once(f"{NIC}[routes]\n{text}").code != 0
    for to, source in (
        ("8.8.8.8", "192.0.2.10"),
        ("203.1.0.1", "192.0.2.10"),
        ("2600::1", "2001:db8:ffff::10"),
    ):
        family = "-6" if ":" in to else "-4"
        assert host.look(f"{family} route get {to} from {source}")[0]["dev"] == "mgmt0"


@pytest.mark.parametrize("address", ["192.0.2.10/24", f"{GATEWAY}/24", f"{SERVICE}/16"])
def test_a_gateway_makes_no_guarded_address_possible(host, address):
    before = ways(host)
    host.once(f"[interface {mac(1)}]\naddresses = {address}\ngateway = {GATEWAY}\n")
    assert host.addresses("dp1") == set()
    assert ways(host) == before
    assert reachable(host)
