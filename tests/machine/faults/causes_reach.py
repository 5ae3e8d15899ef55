"""Causes that keep a test from running as it should: addresses, filters, programs; and what the agent was asked for."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from random import Random

from catalogue import NEAR, SERVE, Case, cause, dropping, near, only, short_path, sysctl
from wires import FAR, switched

TCP = only("latency", "path-mtu", "tcp", "loaded")
BRIEF = only("tcp")
PORTS = "45678-45680"


@cause
def firewall(random: Random) -> Case:
    path = short_path(random)
    setup = switched(path) + dropping("B", "b0", "ingress", f"ip_proto tcp dst_port {PORTS}")
    return Case("firewall", f"{path}", "D33", setup, near(*TCP, expect=path.expect))


@cause
def firewall_before_iperf3_alone(random: Random) -> Case:
    path = short_path(random)
    setup = switched(path) + dropping("B", "b0", "ingress", "ip_proto tcp dst_port 45678")
    return Case(
        "firewall-before-iperf3-alone", f"{path}", "D33", setup, near(*TCP, expect=path.expect)
    )


@cause
def nobody_listens(random: Random) -> Case:
    path = short_path(random)
    return Case(
        "nobody-listens",
        f"{path}",
        "D33",
        switched(path),
        near(*TCP, expect=path.expect),
        helper=(),
    )


@cause
def wrong_peer(random: Random) -> Case:
    path = short_path(random)
    helper = tuple("/run/lab/other" if word == "/run/lab/secret" else word for word in SERVE)
    return Case(
        "wrong-peer",
        f"{path}",
        "D35",
        switched(path),
        near(*TCP, expect=path.expect),
        helper=helper,
    )


@cause
def busy_helper(random: Random) -> Case:
    """Somebody else's test is under way."""
    path = short_path(random)
    words = " ".join(
        word
        for word in (
            *NEAR,
            "--secret-file",
            "/run/lab/secret",
            "--netns",
            "A",
            "--time",
            "60",
            "--rate",
            "1M",
        )
    )
    return Case(
        "busy-helper",
        f"{path}",
        "D34",
        switched(path) + "mkdir /run/lab/other-client\n",
        near(*TCP, expect=path.expect),
        beside=f"exec neuca-selftest {words} --only tcp {FAR}",
        near_first=f"until ip netns exec A ss -Htn state established dst {FAR}:45678 | grep -q .; do sleep 0.1; done",
    )


@cause
def busy_iperf3(random: Random) -> Case:
    path = short_path(random)
    setup = (
        switched(path)
        + """ip netns exec B iperf3 -s -p 45678 -D
until ip netns exec B ss -Hltn | grep -q :45678; do sleep 0.1; done
"""
    )
    busy = f"until ip netns exec A ss -Htn state established dst {FAR}:45678 | grep -q .; do sleep 0.1; done"
    return Case(
        "busy-iperf3",
        f"{path}",
        "D34",
        setup,
        near(*BRIEF, expect=path.expect, secret=False),
        helper=(),
        beside=f"exec ip netns exec A iperf3 -c {FAR} -p 45678 -t 60 -b 1M",
        near_first=busy,
        after="ip netns pids B | xargs -r kill",
    )


@cause
def twin(random: Random) -> Case:
    """A second host has the peer's address."""
    path = short_path(random)
    setup = (
        switched(path)
        + f"""ip netns add C
ip link add c0 index 15 netns C address fe:16:3e:00:0c:01 type veth peer index 16 name rc netns R
ip -n R link set rc up master br0; ip -n C address add {FAR}/24 dev c0; ip -n C link set c0 up
"""
    )
    return Case("twin", f"{path}", "D43", setup, near(*TCP, expect=path.expect))


@cause
def two_nics_in_one_network(random: Random) -> Case:
    """Both of them answer for both addresses: ARP flux."""
    path = short_path(random)
    setup = (
        switched(path)
        + """ip link add b1 index 15 netns B address fe:16:3e:00:0b:02 type veth peer index 16 name rc netns R
ip -n R link set rc up master br0; ip -n B address add 10.0.0.3/24 dev b1; ip -n B link set b1 up
"""
    )
    return Case("two-nics-in-one-network", f"{path}", "D43", setup, near(*TCP, expect=path.expect))


@cause
def no_route(random: Random) -> Case:
    path = short_path(random)
    return Case(
        "no-route",
        f"{path}",
        "D32",
        switched(path),
        near(*TCP, expect=path.expect, peer="10.3.0.2"),
    )


@cause
def absent_peer(random: Random) -> Case:
    path = short_path(random)
    return Case(
        "absent-peer",
        f"{path}",
        "D31",
        switched(path),
        near(*TCP, expect=path.expect, peer="10.0.0.77"),
        helper=(),
    )


@cause
def cut_cable(random: Random) -> Case:
    path = short_path(random)
    return Case(
        "cut-cable",
        f"{path}",
        "D31",
        switched(path) + "ip -n R link set rb nomaster\n",
        near(*TCP, expect=path.expect),
    )


@cause
def full_neighbour_table(random: Random) -> Case:
    """Somebody looks for every host of a large network."""
    path, size = short_path(random), random.choice((32, 64))
    setup = switched(path) + f"sysctl -qw {thresholds(size // 4, size // 2, size)}\n"
    scan = (
        "exec ip netns exec A python3 -c 'import socket, time\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        'while True:\n  for n in range(10, 250):\n    try: s.sendto(b"x", (f"10.0.0.{n}", 9))\n    except OSError: pass\n'
        "    time.sleep(0.01)'"
    )
    return Case(
        "full-neighbour-table",
        f"{path}, {size} entries",
        "D16",
        setup,
        near(*BRIEF, expect=path.expect),
        beside=scan,
        after=f"sysctl -qw {thresholds(128, 512, 1024)}",
    )


def thresholds(*values: int) -> str:
    return " ".join(
        f"net.ipv4.neigh.default.gc_thresh{number}={value}"
        for number, value in enumerate(values, 1)
    )


# --- What the agent was asked for ------------------------------------------------------------------------------------------

# No NIC shows that it is for management: a document names the others only 6 minutes after the boot.
APPLY = """while [ "$(cut -d. -f1 /proc/uptime)" -lt 361 ]; do sleep 1; done
ip netns exec A neuca apply --config /run/lab/A/config >/dev/null
"""
ASKED = """printf '[interfaces]\\nfe:16:3e:00:0a:01 = up:ipv4:10.0.0.1/24\\n[interface fe:16:3e:00:0a:01]\\nmtu = 1500\\n' \\
    > /run/lab/A/document
"""


def tuned(profile: str) -> str:
    return f"sed -i 's/^profile = none/profile = {profile}/' /run/lab/A/config\n"


@cause
def changed_by_hand(random: Random) -> Case:
    path, mtu = short_path(random), random.choice((1280, 1400))
    setup = switched(path) + ASKED + APPLY + f"ip -n A link set a0 mtu {mtu}\n"
    return Case(
        "changed-by-hand",
        f"{path}, MTU {mtu}",
        "D46",
        setup,
        near(*only("as-planned", "tcp"), expect=f"{path.rate * 0.95:g}M", netns=False),
        inside="A",
    )


@cause
def tuning_undone(random: Random) -> Case:
    path = short_path(random)
    setup = (
        switched(path)
        + ASKED
        + tuned("exogeni")
        + APPLY
        + sysctl("A", tcp_rmem="4096 131072 4000000")
    )
    return Case(
        "tuning-undone",
        f"{path}",
        "D37",
        setup,
        near(*only("as-planned", "tcp"), expect=path.expect, netns=False),
        inside="A",
    )
