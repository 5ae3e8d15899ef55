"""Causes on the way: loss, policers, shapers, queues, MTUs, routes, overlays."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from random import Random

from catalogue import QUICK, Case, cause, dropping, near, only, short_path
from wires import FAR, NEAR, ROUTED_FAR, Path, bare_switch, routed, switched

TCP = only("latency", "path-mtu", "tcp", "loaded")
BOTH = only("latency", "tcp", "udp")
OTHER_A, OTHER_B = "10.9.0.1", "10.9.0.2"
SECOND_WIRE = f"""ip link add a1 index 21 netns A address fe:16:3e:00:0a:02 type veth peer index 22 name b1 netns B
ip -n A address add {OTHER_A}/24 dev a1; ip -n B address add {OTHER_B}/24 dev b1
ip -n A link set a1 up; ip -n B link set b1 up
"""


@cause
def random_loss(random: Random) -> Case:
    path, loss = short_path(random), random.choice((0.5, 1, 2))
    return Case(
        "random-loss",
        f"{path}, {loss}%",
        "D19",
        switched(path, f"loss {loss}%"),
        near(*BOTH, expect=path.expect),
    )


@cause
def policer(random: Random) -> Case:
    path, part = short_path(random), random.choice((0.3, 0.4))
    return Case(
        "policer",
        f"{path}, {path.rate * part:g} Mbit/s",
        "D17",
        switched(path) + police(path.rate * part),
        near(*BOTH, expect=path.expect),
    )


@cause
def policer_seen_by_tcp_alone(random: Random) -> Case:
    path, part = short_path(random), random.choice((0.3, 0.4))
    return Case(
        "policer-seen-by-tcp-alone",
        f"{path}, {path.rate * part:g} Mbit/s",
        "D17",
        switched(path) + police(path.rate * part),
        near(*TCP, expect=path.expect),
    )


def police(rate: float) -> str:
    return f"""tc -n R qdisc add dev ra clsact
tc -n R filter add dev ra ingress protocol ip matchall action police rate {rate:g}mbit burst 30k conform-exceed drop/continue
"""


@cause
def shaper(random: Random) -> Case:
    path, part = short_path(random), random.choice((1.5, 2, 3))
    shaped = path._replace(queue=round(1.5 * path.packets) + 10)
    return Case(
        "shaper",
        f"{shaped}, {part:g} times that expected",
        "D18",
        switched(shaped),
        near(*TCP, expect=f"{path.rate * part:g}M"),
    )


@cause
def deep_fifo(random: Random) -> Case:
    path, delay = short_path(random), random.choice((200, 300, 400))
    deep = path._replace(queue=round(path.rate * 1e6 * delay / 1e3 / 8 / 1514))
    return Case(
        "deep-fifo", f"{deep}, {delay} ms", "D14", switched(deep), near(*TCP, expect=path.expect)
    )


@cause
def short_queue_of_the_sender(random: Random) -> Case:
    """Its own NIC's queue is too short for the bursts that it sends."""
    path, size = short_path(random), random.choice((3, 4, 5))
    setup = (
        switched(path)
        + f"tc -n A qdisc add dev a0 root tbf rate {path.rate:g}mbit burst 3k limit {size * 1514}\n"
    )
    return Case(
        "short-queue-of-the-sender",
        f"{path}, {size} packets",
        "D14",
        setup,
        near(*TCP, expect=path.expect),
    )


@cause
def reordering(random: Random) -> Case:
    path, spread = Path(0, random.choice((20, 24, 28))), random.choice((7, 8, 9))
    return Case(
        "reordering",
        f"{path}, ±{spread} ms",
        "D39",
        switched(path, f"delay {path.rtt / 2:g}ms {spread}ms"),
        near(*TCP, expect="200M"),
    )


@cause
def asymmetric_path(random: Random) -> Case:
    path, part = short_path(random), random.choice((0.2, 0.3, 0.5))
    setup = switched(path, back=f"rate {path.rate * part:g}mbit")
    return Case(
        "asymmetric-path",
        f"{path}, {path.rate * part:g} Mbit/s back",
        "D18",
        setup,
        near(*QUICK, expect=path.expect),
    )


@cause
def limit_of_each_flow(random: Random) -> Case:
    path, part = short_path(random), random.choice((0.2, 0.25))
    setup = switched(path).replace(
        path.netem(), f"fq maxrate {path.rate * part:g}mbit flow_limit 25", 1
    )
    return Case(
        "limit-of-each-flow",
        f"{path}, {path.rate * part:g} Mbit/s each",
        "D26",
        setup,
        near(*only("tcp", "tcp-parallel"), "--parallel", "8", expect=f"{path.rate * 0.9:g}M"),
    )


@cause
def half_duplex(random: Random) -> Case:
    """Both ways share what the path carries, and so do one way's data and its acknowledgements."""
    path = short_path(random)
    setup = (
        hosts_and_switch()
        + f"""ip -n R link add ifb0 type ifb; ip -n R link set ifb0 up
tc -n R qdisc add dev ifb0 root {path.netem()}
for port in ra rb; do tc -n R qdisc add dev $port clsact
tc -n R filter add dev $port ingress matchall action mirred egress redirect dev ifb0; done
"""
    )
    return Case(
        "half-duplex",
        f"{path}",
        "D28",
        setup,
        near(*only("tcp", "tcp-reverse", "tcp-bidir"), expect=f"{path.rate * 0.8:g}M"),
    )


def hosts_and_switch() -> str:
    return (
        bare_switch()
        + f"ip -n A address add {NEAR}/24 dev a0; ip -n B address add {FAR}/24 dev b0\n"
    )


# --- MTU -------------------------------------------------------------------------------------------------------------------


@cause
def small_switch(random: Random) -> Case:
    """Two hosts with jumbo frames, and a switch that has none."""
    path, mtu = short_path(random), random.choice((4000, 9000))
    setup = (
        switched(path, mtu=mtu)
        + "for port in ra rb br0; do ip -n R link set $port mtu 1500; done\n"
    )
    return Case("small-switch", f"{path}, MTU {mtu}", "D21", setup, near(*TCP, expect=path.expect))


@cause
def router_that_says_nothing(random: Random) -> Case:
    path, mtu = short_path(random), random.choice((1300, 1400))
    setup = (
        two_routers(path, mtu)
        + dropping("R", "ra", "egress", "ip_proto icmp type 3")
        + dropping("S", "sb", "egress", "ip_proto icmp type 3")
    )
    return Case(
        "router-that-says-nothing",
        f"{path}, MTU {mtu}",
        "D21",
        setup,
        near(*TCP, expect=path.expect, peer=ROUTED_FAR),
    )


def two_routers(path: Path, mtu: int) -> str:
    """Between them a wire of this MTU."""
    return (
        routed(path).replace(path.both(), "")
        + f"""ip netns add S; ip -n S link set lo up
ip netns exec S sysctl -qw net.ipv4.ip_forward=1
ip -n R link set rb netns S name sb; ip -n S address add 10.0.2.254/24 dev sb; ip -n S link set sb up
ip link add rs index 31 netns R mtu {mtu} type veth peer index 32 name sr netns S mtu {mtu}
ip -n R address add 10.0.3.1/24 dev rs; ip -n S address add 10.0.3.2/24 dev sr; ip -n R link set rs up; ip -n S link set sr up
ip -n R route add 10.0.2.0/24 via 10.0.3.2; ip -n S route add default via 10.0.3.1
tc -n R qdisc add dev rs root {path.netem()}; tc -n S qdisc add dev sr root {path.netem()}
"""
    )


@cause
def overlay_mtu(random: Random) -> Case:
    """An overlay with the MTU of its default, over jumbo frames that nobody uses."""
    mtu = random.choice((1450, 1400))
    return Case(
        "overlay-mtu",
        f"MTU {mtu}",
        "D06",
        overlay(9000, mtu),
        near(*TCP, expect="1G", peer="10.7.0.2"),
    )


@cause
def overlay_larger_than_its_underlay(random: Random) -> Case:
    mtu = random.choice((1500, 2000, 8950))
    setup = (
        overlay(9000, mtu)
        + "ip -n A link set a0 mtu 1500; ip -n B link set b0 mtu 1500\n"
        + Path(30, 4).both()
    )
    return Case(
        "overlay-larger-than-its-underlay",
        f"MTU {mtu}",
        "D23",
        setup,
        near(*TCP, expect="27M", peer="10.7.0.2"),
    )


def overlay(below: int, mtu: int) -> str:
    ends = "".join(
        f"""ip -n {name} link add vx0 mtu {mtu} type vxlan id 42 local {ours} remote {theirs} dstport 4789 dev {below}
ip -n {name} address add 10.7.0.{number}/24 dev vx0; ip -n {name} link set vx0 up
"""
        for name, ours, theirs, below, number in (
            ("A", NEAR, FAR, "a0", 1),
            ("B", FAR, NEAR, "b0", 2),
        )
    )
    return (
        bare_switch(below)
        + f"ip -n A address add {NEAR}/24 dev a0; ip -n B address add {FAR}/24 dev b0\n"
        + ends
    )


# --- Routes ----------------------------------------------------------------------------------------------------------------


@cause
def wrong_interface(random: Random) -> Case:
    path = short_path(random)
    setup = switched(path) + SECOND_WIRE + f"ip -n A route add {FAR}/32 via {OTHER_B} dev a1\n"
    return Case(
        "wrong-interface",
        f"{path}",
        "D29",
        setup,
        near(*TCP, "--interface", "a0", expect=path.expect),
    )


@cause
def another_way_back(random: Random) -> Case:
    """The far end would answer over another NIC than the one that is asked."""
    path = short_path(random)
    setup = switched(path) + SECOND_WIRE + f"ip -n B route add {NEAR}/32 via {OTHER_A} dev b1\n"
    return Case(
        "another-way-back",
        f"{path}",
        "D29",
        setup,
        near(*only("tcp", "tcp-reverse"), expect=path.expect),
    )


@cause
def reverse_path_filter(random: Random) -> Case:
    """The same, and the near end does not take answers that come in there."""
    path = short_path(random)
    setup = (
        switched(path)
        + SECOND_WIRE
        + f"""ip -n B route add {NEAR}/32 via {OTHER_A} dev b1
ip -n B neighbour add {OTHER_A} lladdr fe:16:3e:00:0a:02 dev b1
"""
    )
    setup += (
        "ip netns exec A sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.a1.rp_filter=1\n"
    )
    return Case("reverse-path-filter", f"{path}", "D30", setup, near(*TCP, expect=path.expect))


@cause
def flapping_link(random: Random) -> Case:
    path, down = short_path(random), random.choice((0.2, 0.3))
    flaps = f"sleep 3; while :; do ip -n R link set ra down; sleep {down}; ip -n R link set ra up; sleep 1; done"
    words = near(*only("tcp", seconds=6), expect=path.expect)
    return Case("flapping-link", f"{path}, {down} s", "D40", switched(path), words, beside=flaps)
