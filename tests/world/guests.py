"""The same set-ups for the counted guest of tests/machine/faults, which has netem and police, for rates beyond the box. Pure."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import math
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "machine" / "faults"))

import wires
from catalogue import SERVE, Case, near
from middlebox import Way
from setups import PACKET, Setup


def netem(way: Way) -> str:
    """A direction without its policer. netem's limit counts what is delayed as well as what waits."""
    on_the_way = way.rate * way.delay / 8 / PACKET
    parts = ["netem", f"delay {way.delay * 1e3:g}ms"]
    if way.jitter:
        parts.append(f"{way.jitter * 1e3:g}ms")
    if way.loss:
        parts.append(f"loss {way.loss * 100:g}%")
    parts += [f"rate {way.rate / 1e6:g}mbit", f"limit {math.ceil(on_the_way + way.queue / PACKET)}"]
    return " ".join(parts)


def police(way: Way, port: str) -> str:
    """A policer where this direction enters the switch."""
    if not way.police:
        return ""
    return (
        f"tc -n R qdisc add dev {port} clsact\n"
        f"tc -n R filter add dev {port} ingress protocol ip matchall action police "
        f"rate {way.police / 1e6:g}mbit burst {way.burst:.0f} conform-exceed drop/continue\n"
    )


def case_of(setup: Setup) -> Case:
    """For `Stage.play` of tests/machine/faults/harness.py."""
    lines = [
        wires.bare_switch(),
        f"ip -n A address add {wires.NEAR}/24 dev a0; ip -n B address add {wires.FAR}/24 dev b0\n",
        f"tc -n R qdisc add dev rb root {netem(setup.there)}\n",
        f"tc -n R qdisc add dev ra root {netem(setup.back)}\n",
        police(setup.there, "ra"),
        police(setup.back, "rb"),
    ]
    if setup.there.largest:
        lines.append(
            f"for port in ra rb br0; do ip -n R link set $port mtu {setup.there.largest}; done\n"
        )
    if setup.own:
        lines.append(f"tc -n A qdisc add dev a0 root tbf {setup.own}\n")
    for namespace, settings in (("A", setup.near), ("B", setup.far)):
        values = (f"net.ipv4.tcp_congestion_control={setup.congestion}", *settings)
        lines += [f"ip netns exec {namespace} sysctl -qw '{one}'\n" for one in values]
    return Case(
        setup.name,
        setup.what,
        setup.wanted[0][0] if setup.wanted else "",
        "".join(lines),
        near(*setup.words, secret=setup.listens),
        helper=SERVE if setup.listens else (),
        beside="while :; do :; done" if setup.busy else "",
    )
