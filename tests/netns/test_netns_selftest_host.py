"""What the self-test reads of the kernel about its host, compared with what iproute2 and /proc show of the same."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import sys

import pytest
from between import FAR, NEAR, between

READ = """import json, os
from dataclasses import asdict
from ipaddress import ip_address
from neuca_tools.selftest.measure.host import counters, facts, kernel
names = {device.index: device.name for device in kernel.read_devices().values()}
def route(text, source=None):
    try:
        found = kernel.route_to(ip_address(text), source and ip_address(source))
    except OSError as error:
        return error.strerror
    texts = [found[1] and str(found[1]), found[2] and str(found[2])]
    return [names[found[0]], *texts, *found[3:]]
def state(text):
    return kernel.neighbour_state(ip_address(text), route_index)
route_index = kernel.route_to(ip_address("172.16.0.2")).device_index
host = facts.describe_host(kernel.route_to(ip_address("172.16.0.2")), "a0", {"net.ipv4.ip_forward": "1"}, ["x"])
"""


@pytest.fixture
def hosts(tmp_path):
    with between(tmp_path) as made:
        made.bridged()
        yield made


def read(hosts, expression):
    """The value of an expression in host A, through JSON."""
    script = f"{READ}print(json.dumps({expression}))"
    return json.loads(hosts.run(sys.executable, "-c", script, where=hosts.near))


def ip(hosts, *lines):
    for line in lines:
        hosts.run(*line.split(), where=hosts.near)


def shown(hosts, words):
    return json.loads(hosts.run(*words.split(), where=hosts.near))


# A destination, and a source that is asked for; device, source, gateway, MTU, and whether it is local or one host.
ROUTES = {
    (FAR, None): ["a0", NEAR, None, None, False, True],
    (FAR, "172.16.0.9"): ["a0", "172.16.0.9", None, None, False, True],
    ("10.7.0.1", None): ["a0", "172.16.0.9", FAR, 1300, False, True],
    ("10.8.0.1", None): ["a0", NEAR, "fd00:16::2", None, False, True],
    ("fd00:7::1", None): ["a0", "fd00:16::1", "fd00:16::2", 1400, False, True],
    (NEAR, None): ["lo", NEAR, None, None, True, False],
    ("172.16.0.255", None): ["a0", NEAR, None, None, False, False],
    ("10.9.0.1", None): "No route to host",
    ("192.0.2.1", None): "Network is unreachable",
}


def test_a_route_is_the_one_that_the_kernel_takes(hosts):
    ip(
        hosts,
        "ip link set lo up",
        "ip address add 172.16.0.9/24 dev a0",
        "ip address add fd00:16::1/64 dev a0 nodad",
        f"ip route add 10.7.0.0/24 via {FAR} src 172.16.0.9 mtu 1300",
        "ip route add 10.8.0.0/24 via inet6 fd00:16::2 dev a0",
        "ip route add fd00:7::/64 via fd00:16::2 mtu 1400",
        "ip route add unreachable 10.9.0.0/24",
    )
    asked = read(hosts, f"[route(*words) for words in {list(ROUTES)}]")
    assert dict(zip(ROUTES, asked)) == ROUTES


STATES = {"reachable": "reachable", "stale": "reachable", "permanent": "reachable"}
STATES |= {"failed": "failed", "incomplete": "incomplete", "none": None}


def test_a_neighbour_has_the_state_that_the_kernel_shows(hosts):
    for place, state in enumerate(STATES, 10):
        ip(hosts, f"ip neigh replace 172.16.0.{place} lladdr 02:00:00:00:00:01 dev a0 nud {state}")
    addresses = [f"172.16.0.{place}" for place in range(10, 10 + len(STATES))]
    assert read(hosts, f"[state(text) for text in {addresses}]") == list(STATES.values())
    assert read(hosts, "state('172.16.0.200')") is None
    assert read(hosts, "kernel.neighbour_state(ip_address('172.16.0.10'), route_index + 1)") is None


BURST = """import socket
with socket.socket(type=socket.SOCK_DGRAM) as sender:
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**20)
    for _ in range(100):
        sender.sendto(bytes(1000), ("172.16.0.2", 9))
"""


def test_the_counters_of_devices_and_queues_are_those_of_iproute2(hosts):
    ip(
        hosts,
        "tc qdisc add dev a0 root tbf rate 800bit burst 2000 limit 5000",
        f"ip neigh replace {FAR} lladdr 02:00:00:00:00:01 dev a0",
    )
    hosts.run(sys.executable, "-c", BURST, where=hosts.near)
    before = shown(hosts, "ip -j -s -s link show dev a0")[0]["stats64"]
    counted = read(hosts, "kernel.read_link_counters()")
    (queue,) = shown(hosts, "tc -j -s qdisc show dev a0")
    assert counted["a0"]["qdisc.drops"] == queue["drops"] > 50
    for way in ("rx", "tx"):
        for name in ("packets", "bytes", "errors", "dropped"):
            assert counted["a0"][f"{way}_{name}"] >= before[way][name]
    assert counted["a0"]["tx_packets"] - before["tx"]["packets"] < 10
    assert counted["a0"]["carrier_changes"] >= before["tx"]["carrier_changes"] > 0


def test_a_host_is_described_as_iproute2_shows_it(hosts):
    ip(
        hosts,
        "ip link add br0 type bridge",
        "ip link add name p0 mtu 1400 txqueuelen 77 type veth peer name p1",
        "ip link set p0 up",
        "ip address add 10.5.0.1/24 dev p0",
    )
    host = read(hosts, "asdict(host)")
    devices = {device["ifname"]: device for device in shown(hosts, "ip -j -d address")}
    links = {link["name"]: link for link in host["links"]}
    assert links.keys() == {name for name, one in devices.items() if "UP" in one["flags"]} | {"a0"}
    for name in ("a0", "p0"):
        device = devices[name]
        assert links[name]["mtu"] == device["mtu"]
        assert (links[name]["mac"], links[name]["qdisc"]) == (device["address"], device["qdisc"])
        assert (links[name]["kind"], links[name]["txqueuelen"]) == ("veth", device["txqlen"])
        scopes = [one["local"] for one in device["addr_info"] if one["scope"] == "global"]
        assert links[name]["addresses"] == scopes != []
    assert (bool(links["a0"]["offloads"]), links["p0"]["offloads"]) == (True, {})
    assert (host["path"], host["planned"], host["drift"]) == (["a0"], "a0", ["x"])
    assert host["wanted"] == {"net.ipv4.ip_forward": "1"}
    version = hosts.run("iperf3", "--version", where=hosts.near).split()[1]
    assert (host["iperf3"], host["kernel"]) == (
        version,
        hosts.run("uname", "-r", where=hosts.near).strip(),
    )
    for name, path in (
        ("net.ipv4.ip_forward", "ipv4/ip_forward"),
        ("net.ipv4.tcp_rmem", "ipv4/tcp_rmem"),
        ("net.ipv4.conf.a0.rp_filter", "ipv4/conf/a0/rp_filter"),
    ):
        value = hosts.run("cat", f"/proc/sys/net/{path}", where=hosts.near)
        assert host["sysctls"][name].split() == value.split()


LISTENING = """import socket, struct
from neuca_tools.selftest.measure.host import tcp_info
with socket.create_server(("127.0.0.1", 0)) as server:
    port = server.getsockname()[1]
    before = tcp_info.is_listening(4, port), tcp_info.is_listening(6, port), tcp_info.is_listening(4, port + 1)
print(*before, tcp_info.is_listening(4, port))
"""


def test_a_port_is_taken_while_a_program_listens_there(hosts):
    ip(hosts, "ip link set lo up")
    assert (
        hosts.run(sys.executable, "-c", LISTENING, where=hosts.near) == "True False False False\n"
    )
