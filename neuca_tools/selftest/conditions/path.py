"""D06, D21 to D25, D29: MTUs, overlays, and which way the packets go."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.base import (
    FAULT,
    HIGH,
    INFO,
    LIMIT,
    MEDIUM,
    Hit,
    Session,
    SessionRule,
    fact,
    links_of,
)
from neuca_tools.selftest.evidence import Host, Link
from neuca_tools.selftest.evidence.look import Fact, Look, delta, growth

WASTED = 400  # bytes of MTU (D06)
DEAD = 1e6  # bytes in a whole test: only what fitted into small packets (D21)
THROUGH = 8e6  # bit/s: no flow that hangs carries so much (D21)
OVERHEADS = {
    "vxlan": 50,
    "geneve": 50,
    "gre": 38,
    "vlan": 0,
    "macvlan": 0,
    "ipvlan": 0,
    "bridge": 0,
}  # bytes, over IPv4
TUNNELS = ("vxlan", "geneve", "gre")
OFFLOAD = "tx-udp_tnl-segmentation"
SLOWER = 0.7  # of the underlay's rate (D24)
ELSEWHERE = 0.1  # of the bytes on another NIC (D29)
BUSY_OWNER = 0.5  # of a CPU (D25)


def black_hole(session: Session) -> Optional[Hit]:
    """Large packets vanish, and nobody says so."""
    mtus = [link.mtu for _, host in session.hosts for link in links_of(host) if link.mtu]
    probed = [
        value
        for value in (session.evidence.path_mtu.forward, session.evidence.path_mtu.backward)
        if value
    ]
    small = (
        bool(probed and mtus and min(probed) < min(mtus))
        and session.evidence.path_mtu.told is not True
    )
    stuck = next((one for one in session.tcp if _is_stuck(one)), None)
    if not small and stuck is None:
        return None
    if stuck is None and any((one.rate or 0) > THROUGH for one in session.tcp):
        return None  # traffic gets through: probing, clamping or a route's MTU takes care of it
    facts = [fact("path MTU, acknowledged", min(probed))] if probed else []
    facts += [fact("MTU of the interfaces", min(mtus))] if mtus else []
    facts += [one for one in (stuck.sender_fact("TcpExt.TCPTimeouts"),) if one] if stuck else []
    size = f" above {min(probed)} bytes" if probed else ""
    text = f"packets{size} vanish on the way, and no ICMP message says so: connections open and then hang"
    return Hit(
        1.0,
        text,
        tuple(facts),
        'then set the MTU of the path, or let ICMP "fragmentation needed" through',
        "path",
        sysctls={"net.ipv4.tcp_mtu_probing": "1"},
        confidence=HIGH if small else MEDIUM,
    )


def _is_stuck(look: Look) -> bool:
    sockets = [one for sample in look.phase.sender[-1:] for one in sample.sockets]
    acked = sum(one.bytes_acked or 0 for one in sockets)
    return bool(sockets) and acked < DEAD and any((one.backoff or 0) >= 2 for one in sockets)


def smaller_path(session: Session) -> Optional[Hit]:
    for end, host in session.hosts:
        mtus = [link.mtu for link in links_of(host) if link.mtu]
        if host.route_mtu and mtus and host.route_mtu < min(mtus):
            text = (
                f"the path to the peer takes {host.route_mtu} bytes, the interface of the {end} host {min(mtus)}; ICMP says "
                "so, and TCP follows"
            )
            advice = (
                f"ip route change PREFIX … mtu {host.route_mtu}, or the same MTU on all of the path"
            )
            return Hit(
                0.1,
                text,
                (Fact("path MTU", min(mtus), host.route_mtu),),
                advice,
                end,
                severity=INFO,
            )
    told, probed = session.evidence.path_mtu.told, session.evidence.path_mtu.forward
    mtus = [link.mtu for link in links_of(session.evidence.local) if link.mtu]
    if told and probed and mtus and probed < min(mtus):
        return Hit(
            0.1,
            f"the path takes {probed} bytes, the interface {min(mtus)}; ICMP says so, and TCP follows",
            (Fact("path MTU", min(mtus), probed),),
            f"ip route change PREFIX … mtu {probed}",
            "path",
            severity=INFO,
        )
    return None


def wasted_mtu(session: Session) -> Optional[Hit]:
    """A device takes smaller packets than what it lies on, and the number of packets is what limits."""
    for end, host in session.hosts:
        by_name = {link.name: link for link in host.links}
        for link in links_of(host):
            parent = by_name.get(link.parent or "")
            if (
                parent is None
                or not parent.mtu
                or not link.mtu
                or not _packets_limit(session, links_of(host))
            ):
                continue
            possible = parent.mtu - OVERHEADS.get(link.kind or "", 0)
            if possible - link.mtu > WASTED:
                text = f"{link.name} of the {end} host has MTU {link.mtu}; {parent.name} below it would carry {possible}"
                return Hit(
                    1 - link.mtu / possible,
                    text,
                    (Fact(f"{link.name} mtu", possible, link.mtu),),
                    f"ip link set {link.name} mtu {possible}, at both ends",
                    end,
                )
    return None


def _packets_limit(session: Session, chain: tuple[Link, ...]) -> bool:
    full = any(one.is_full for one in session.looks)
    off = any(
        link.offloads.get(name) is False
        for link in chain
        for name in (OFFLOAD, "tcp-segmentation-offload")
    )
    overlay = any(link.kind in TUNNELS for link in chain)
    return full or off or overlay


def inconsistent(session: Session) -> Optional[Hit]:
    for end, host in session.hosts:
        by_name = {link.name: link for link in host.links}
        for link in host.links:
            parent = by_name.get(link.parent or "")
            overhead = OVERHEADS.get(link.kind or "")
            if (
                parent
                and link.mtu
                and parent.mtu
                and overhead is not None
                and link.mtu > parent.mtu - overhead
            ):
                return Hit(
                    0.6,
                    f"{link.name} of the {end} host has MTU {link.mtu}, more than {parent.name} carries "
                    f"({parent.mtu - overhead})",
                    (Fact(f"{link.name} mtu", parent.mtu - overhead, link.mtu),),
                    f"ip link set {link.name} mtu {parent.mtu - overhead}, or raise {parent.name} first",
                    end,
                )
    return None


def overlay_tax(session: Session) -> Optional[Hit]:
    over, under = (
        [one.rate for one in session.tcp if one.phase.path == name]
        for name in ("overlay", "underlay")
    )
    ratio = (over[0] or 0) / under[0] if over and under and under[0] else None
    without = [
        (end, link)
        for end, host in session.hosts
        for link in links_of(host)
        if link.offloads.get(OFFLOAD) is False
    ]
    tunnels = any(link.kind in TUNNELS for _, host in session.hosts for link in links_of(host))
    if ratio is None or ratio >= SLOWER or (not without and tunnels):
        return None
    facts = [Fact("overlay / underlay, bit/s", under[0], over[0])]
    facts += [fact(f"{link.name} {OFFLOAD}", "off") for _, link in without[:1]]
    text = f"the overlay carries {amounts.percent(ratio)} of what the path below it does: encapsulation without offload"
    advice = f"ethtool -K DEV {OFFLOAD} on, if the NIC can; jumbo frames below the overlay"
    return Hit(1 - ratio, text, tuple(facts), advice, "path", HIGH if without else MEDIUM, under[0])


def userspace(session: Session) -> Optional[Hit]:
    for end, host in session.hosts:
        for link in links_of(host):
            if link.kind in ("tun", "tap") and (
                link.owner_cpu is None or link.owner_cpu >= BUSY_OWNER
            ):
                busy = (
                    f", which takes {amounts.percent(link.owner_cpu)} of a CPU"
                    if link.owner_cpu
                    else ""
                )
                text = f"packets of the {end} host go through a process behind {link.name}{busy}: a userspace overlay"
                return Hit(
                    0.7 if busy else 0.3,
                    text,
                    (fact(f"{link.name} kind", link.kind),),
                    "an overlay of the kernel's: vxlan, wireguard",
                    end,
                )
    return None


def wrong_way(session: Session) -> Optional[Hit]:
    """The bytes of a test went over another NIC than the one that was meant; or would have, and there was no test."""
    route, planned = session.evidence.reach.route, session.evidence.local.planned
    if route and planned and route != planned and not session.looks:
        return Hit(
            1.0,
            f"the route to the peer leaves through {route}, not through {planned}: nothing was sent",
            (Fact("route", planned, route),),
            f"ip route get PEER; ip route replace PEER dev {planned} src ADDRESS",
            "local",
        )
    for one in session.looks:
        for end, host, samples, name in (
            ("sender", one.sender, one.phase.sender, "tx_bytes"),
            ("receiver", one.receiver, one.phase.receiver, "rx_bytes"),
        ):
            hit = _wrong_device(
                host, end, {link.name: delta(samples, f"{link.name}.{name}") for link in host.links}
            )
            if hit is not None:
                return hit
    return None


def _wrong_device(host: Host, end: str, counted: dict[str, Optional[Fact]]) -> Optional[Hit]:
    family = _family(host, host.planned)
    if host.planned is None or not family:
        return None
    if any(link.kind in TUNNELS and not link.parent for link in host.links if link.name in family):
        return None  # what carries it is not known, and counts the same bytes
    elsewhere = {
        name: fact
        for name, fact in counted.items()
        if name not in family and name != "lo" and growth(fact) > 1e6
    }
    planned = growth(counted.get(host.planned))
    worst = max(elsewhere, key=lambda name: growth(elsewhere[name]), default=None)
    if worst is None or growth(elsewhere[worst]) <= ELSEWHERE * (
        growth(elsewhere[worst]) + planned
    ):
        return None
    share = growth(elsewhere[worst]) / (growth(elsewhere[worst]) + planned)
    facts = tuple(one for one in (elsewhere[worst], counted.get(host.planned)) if one is not None)
    return Hit(
        share,
        f"{amounts.percent(share)} of the {end}'s bytes went over {worst}, not over {host.planned}",
        facts,
        f"ip route get PEER; ip route replace PEER dev {host.planned} src ADDRESS",
        end,
    )


def _family(host: Host, name: Optional[str]) -> set[str]:
    """A device with what it lies on and what lies on it: their counters count the same bytes."""
    parents = {link.name: link.parent for link in host.links}
    if name not in parents:
        return set()
    found = {name}
    while True:
        more = {child for child, parent in parents.items() if parent in found}
        more |= {parent for child, parent in parents.items() if child in found and parent}
        if more <= found:
            return {one for one in found if one}
        found |= {one for one in more if one}


PATH_SESSION = (
    SessionRule("D21", "path MTU black hole", FAULT, black_hole),
    SessionRule("D29", "wrong interface or route", FAULT, wrong_way),
    SessionRule("D23", "MTUs do not fit", FAULT, inconsistent),
    SessionRule("D06", "smaller packets than the path allows", LIMIT, wasted_mtu),
    SessionRule("D24", "overlay without offload", LIMIT, overlay_tax),
    SessionRule("D25", "userspace overlay", LIMIT, userspace),
    SessionRule("D22", "smaller path MTU", INFO, smaller_path),
)
