"""Set-ups that are too fast for the box, for the counted guest of tests/machine/faults: netem and tbf are between the hosts."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "machine" / "faults"))

import wires
from catalogue import SERVE, Case, near
from effect import Seen
from limited import limits
from middlebox import Tally, Way
from setups import FORWARD, PACKET, REVERSE, Setup

# Packets that a host gives to its NIC as one: the guest executes 500 million instructions in a second, and one at a time are 400
# Mbit/s.
SEGMENTS = 16
ENOUGH = 1_000_000  # packets that are on their way
FILE = "/run/lab/sampled"  # the counters of the box, once in a second
SOCKETS = {FORWARD: f"{FILE}.A", REVERSE: f"{FILE}.B"}  # those of each sender
SAMPLER = f"""while :; do echo "$EPOCHREALTIME $(tc -n R -s -j qdisc show)"; sleep 1; done > {FILE} &
"""
SOCKET_SAMPLER = "".join(
    f"while :; do ss -N {path[-1]} -tinOH; sleep 1; done > {path} &\n" for path in SOCKETS.values()
)
# One line of JSON each: what is between the hosts, and the hosts' own NICs. Nothing is said of a port without a policer.
COUNTERS = (
    "tc -n R -s -j qdisc show",
    "tc -n R -s -j filter show dev ra ingress",
    "tc -n R -s -j filter show dev rb ingress",
    "tc -n A -s -j qdisc show dev a0",
    "ip -n A -s -j link show dev a0",
    "ip -n B -s -j link show dev b0",
)
TALLY = "".join(f"echo $({one} 2>/dev/null || echo [])\n" for one in COUNTERS) + f"cat {FILE}\n"
# A form feed comes before the sockets of each sender.
TALLY += "".join(f"printf '\\f'; cat {path} 2>/dev/null\n" for path in SOCKETS.values())


def segments(setup: Setup) -> int:
    """One packet at a time, where packets are lost, overtaken, too large, or too many for a short queue."""
    ways = (setup.there, setup.back)
    single = setup.own or any(way.loss or way.jitter or way.largest for way in ways)
    return 1 if single else SEGMENTS


def between(way: Way, port: str, largest: float) -> str:
    """One direction without its policer: netem delays, and the queue is that of a tbf behind it."""
    netem = f"delay {way.delay * 1e3:g}ms"
    if way.jitter:
        netem += f" {way.jitter * 1e3:g}ms"
    if way.loss:
        netem += f" loss {way.loss * 100:g}%"
    # tbf divides what is larger than its burst.
    burst = max(2 * largest, way.rate / 8 / 1000)
    limit = max(way.queue, 2 * largest)
    return (
        f"tc -n R qdisc add dev {port} root handle 1: netem {netem} limit {ENOUGH}\n"
        f"tc -n R qdisc add dev {port} parent 1:1 handle 2: tbf rate {way.rate:.0f}bit "
        f"burst {burst:.0f} limit {limit:.0f}\n"
    )


def police(way: Way, port: str, largest: float) -> str:
    """A policer where this direction enters the switch."""
    if not way.police:
        return ""
    return (
        f"tc -n R qdisc add dev {port} clsact\n"
        f"tc -n R filter add dev {port} ingress protocol ip matchall action police "
        f"rate {way.police:.0f}bit burst {max(way.burst, 2 * largest):.0f} mtu 65535 "
        "conform-exceed drop/continue\n"
    )


def _hosts(setup: Setup, count: int) -> Iterator[str]:
    yield f"ip -n A address add {wires.NEAR}/24 dev a0; ip -n B address add {wires.FAR}/24 dev b0\n"
    for namespace, settings, device in zip("AB", setup.sysctls, ("a0", "b0")):
        yield from (f"ip netns exec {namespace} sysctl -qw '{one}'\n" for one in settings)
        if count > 1:
            yield f"ip netns exec {namespace} ethtool -K {device} tso on gso on gro on > /dev/null\n"
            yield f"ip -n {namespace} link set {device} gso_max_segs {count}\n"
    if setup.own:
        yield f"tc -n A qdisc add dev a0 root tbf {setup.own}\n"


def case_of(setup: Setup) -> Case:
    """For `Stage.play` of tests/machine/faults/harness.py."""
    count = segments(setup)
    largest = count * PACKET
    lines = [
        wires.bare_switch(),
        *_hosts(setup, count),
        between(setup.there, "rb", largest),
        between(setup.back, "ra", largest),
        police(setup.there, "ra", largest),
        police(setup.back, "rb", largest),
    ]
    if setup.there.largest:
        lines.append(
            f"for port in ra rb br0; do ip -n R link set $port mtu {setup.there.largest}; done\n"
        )
    return Case(
        setup.name,
        setup.what,
        setup.wanted[0][0] if setup.wanted else "",
        "".join(lines),
        near(*setup.words, secret=setup.listens),
        helper=SERVE if setup.listens else (),
        beside=SAMPLER
        + (SOCKET_SAMPLER if setup.buffers else "")
        + ("while :; do :; done" if setup.busy else "wait"),
        tally=TALLY,
    )


# --- What happened there ---------------------------------------------------------------------------------------------------


def seen_in(text: str, setup: Setup) -> Seen:
    """What the counters of the guest say; iperf's rates are not among them."""
    text, *sockets = text.split("\f")
    rows = text.splitlines()
    counters = [json.loads(row or "[]") for row in rows[: len(COUNTERS)]]
    box, near_police, far_police, own, near_link, far_link = counters
    passed = _fastest(rows[len(COUNTERS) :])
    tallies = {
        name: _tally(way, port, box, passed.get(port, 0.0), policed, link)
        for name, way, port, policed, link in (
            ("there", setup.there, "rb", near_police, near_link),
            ("back", setup.back, "ra", far_police, far_link),
        )
    }
    found = {direction: limits(one) for direction, one in zip(SOCKETS, sockets)}
    return Seen(tallies, sum(one["drops"] for one in own), limits=found)


def _tally(
    way: Way, port: str, box: list[Any], passed: float, policed: list[Any], link: list[Any]
) -> Tally:
    kinds = {one["kind"]: one for one in box if one.get("dev") == port}
    frames = kinds["tbf"]["packets"]
    return Tally(
        frames=frames,
        vanished=link[0]["stats64"]["tx"]["dropped"],
        # netem counts what the queue behind it drops as well.
        lost=kinds["netem"]["drops"] - kinds["tbf"]["drops"],
        policed=_policed(policed),
        overflowed=kinds["tbf"]["drops"],
        overtook=frames if way.jitter else 0,
        # Not counted. That of a deep queue that drops is its length.
        waited=way.queue * 8 / way.rate if kinds["tbf"]["drops"] else 0.0,
        passed=passed,
    )


def _policed(filters: list[Any]) -> int:
    """Packets, of every action of these filters."""
    actions = (one for row in filters for one in row.get("options", {}).get("actions", ()))
    return sum(one["stats"]["drops"] for one in actions)


def _fastest(rows: list[str]) -> dict[str, float]:
    """bit/s that passed each port in the fastest second."""
    found: dict[str, float] = {}
    before: dict[str, tuple[float, int]] = {}
    for row in rows:
        time, _, text = row.partition(" ")
        for port, count in _bytes(text).items():
            now = (float(time), count)
            then = before.get(port, now)
            if now[0] > then[0]:
                rate = (now[1] - then[1]) * 8 / (now[0] - then[0])
                found[port] = max(found.get(port, 0.0), rate)
            before[port] = now
    return found


def _bytes(text: str) -> Mapping[str, int]:
    """That passed the shaper of each port; empty for a line that was cut."""
    try:
        rows = json.loads(text)
    except ValueError:
        return {}
    return {one["dev"]: one["bytes"] for one in rows if one["kind"] == "tbf"}
