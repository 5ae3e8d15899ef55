"""D06, D23 to D25, D29: MTUs, overlays, and the devices that packets use."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.base import HIGH, INFO, MEDIUM, Hit, single_fact
from neuca_tools.selftest.conditions.capacity import path_capacity
from neuca_tools.selftest.conditions.errors import is_refused
from neuca_tools.selftest.conditions.session import (
    Session,
    first_hit,
    for_each_host,
    links_of,
    other_end,
    smallest_mtu,
)
from neuca_tools.selftest.conditions.stops import gets_through, is_unreported, probed_mtu
from neuca_tools.selftest.evidence import Host, Link
from neuca_tools.selftest.evidence.look import Fact, Look, counter_growth, growth_of_fact

WASTED = 400  # bytes of MTU (D06)
# Bytes that a link adds to each packet, over IPv4.
TUNNELS = {"vxlan": 50, "geneve": 50, "gre": 38}
OVERHEADS = {**TUNNELS, "vlan": 0, "macvlan": 0, "ipvlan": 0, "bridge": 0}
OFFLOAD = "tx-udp_tnl-segmentation"
# What an overlay needs, with their names for ethtool -K.
OFFLOADS = {
    OFFLOAD: OFFLOAD,
    "tcp-segmentation-offload": "tso",
    "generic-segmentation-offload": "gso",
}
SLOWER = 0.7  # of the rate of the underlay (D24)
# Bytes that a NIC carries beside a test, and the share of the test's bytes (D29).
NOISE, ELSEWHERE = 1e6, 0.1
BUSY_OWNER = 0.5  # of a CPU (D25)


def differing_mtus(session: Session) -> Optional[Hit]:
    """MTUs of the hosts and of the path differ: as a fault, or in a way that TCP adapts to."""
    return (
        _too_large_for_its_device(session)
        or _too_large_for_the_tunnel(session)
        or _too_large_for_the_path(session)
        or _smaller_path(session)
    )


def _smaller_path(session: Session) -> Optional[Hit]:
    """The path MTU is smaller than the interface's, and ICMP reports it."""
    for end, host in session.hosts:
        mtu = smallest_mtu(links_of(host))
        if host.route_mtu and mtu and host.route_mtu < mtu:
            return _reported_mtu(end, f"the interface of the {end} host", mtu, host.route_mtu)
    path = session.evidence.path_mtu
    mtu = smallest_mtu(links_of(session.evidence.local))
    if path.told and path.forward and mtu and path.forward < mtu:
        return _reported_mtu("path", "the interface", mtu, path.forward)
    return None


def _reported_mtu(end: str, interface: str, mtu: int, path_mtu: int) -> Hit:
    return Hit(
        0.1,
        f"the path MTU is {path_mtu} bytes, that of {interface} {mtu}; ICMP reports it, and TCP "
        "adapts to it",
        (Fact("path MTU", mtu, path_mtu),),
        f"nothing has to be done; an MTU of {path_mtu} for the route (mtu in ip-route(8)), or one "
        "MTU along the whole path, saves the discovery",
        end,
        severity=INFO,
        title="smaller path MTU",
    )


class _Stacked(NamedTuple):
    """A link and its lower device, with MTUs in bytes; `possible` is the largest that fits."""

    end: str
    link: Link
    mtu: int
    lower: Link
    possible: int


def _stacked_links(session: Session, links: Callable[[Host], Iterable[Link]]) -> Iterator[_Stacked]:
    """Those of `links` whose lower device and MTUs are known; an unknown overhead counts as 0."""
    for end, host in session.hosts:
        by_name = {link.name: link for link in host.links}
        for link in links(host):
            lower = by_name.get(link.parent or "")
            if lower is not None and lower.mtu and link.mtu:
                possible = lower.mtu - OVERHEADS.get(link.kind or "", 0)
                yield _Stacked(end, link, link.mtu, lower, possible)


def wasted_mtu(session: Session) -> Optional[Hit]:
    """A link's MTU is smaller than its lower device allows, while a CPU is full."""
    if not any(look.is_full for look in session.looks):
        return None
    for end, link, mtu, lower, possible in _stacked_links(session, links_of):
        if possible - mtu <= WASTED:
            continue
        return Hit(
            1 - mtu / possible,
            f"{link.name} of the {end} host has MTU {mtu}; its lower device {lower.name} allows "
            f"{possible}",
            (Fact(f"{link.name} mtu", possible, mtu),),
            f"ip link set {link.name} mtu {possible}, on both hosts",
            end,
        )
    return None


def _too_large_for_its_device(session: Session) -> Optional[Hit]:
    for end, link, mtu, lower, possible in _stacked_links(session, lambda host: host.links):
        if link.kind not in OVERHEADS or mtu <= possible:
            continue
        return Hit(
            0.6,
            f"{link.name} of the {end} host has MTU {mtu}, but its lower device {lower.name} "
            f"allows only {possible}",
            (Fact(f"{link.name} mtu", possible, mtu),),
            f"ip link set {link.name} mtu {possible}, or raise the MTU of {lower.name} first",
            end,
        )
    return None


def _too_large_for_the_tunnel(session: Session) -> Optional[Hit]:
    """By the path MTU, of a tunnel that names no lower device."""
    for end, host in session.hosts:
        known = filter(None, (host.route_mtu, probed_mtu(session)))
        possible = min(known, default=None)
        for link in links_of(host):
            if link.kind in TUNNELS and link.mtu and possible and possible < link.mtu:
                return Hit(
                    0.6,
                    f"{link.name} of the {end} host has MTU {link.mtu}, which is too large for the "
                    f"tunnel: {possible} bytes fit, the outer MTU less the tunnel's headers",
                    (Fact(f"{link.name} mtu", possible, link.mtu),),
                    f"ip link set {link.name} mtu {possible}, on both hosts",
                    end,
                )
    return None


def _too_large_for_the_path(session: Session) -> Optional[Hit]:
    """The path drops larger packets without a word, and TCP gets through all the same."""
    is_through = gets_through(session)
    if not is_unreported(session) or not (is_through or is_refused(session)):
        return None
    probed, mtu = probed_mtu(session), smallest_mtu(session.links)
    adapts = "; TCP adapts to it, and larger frames are of no use" if is_through else ""
    return Hit(
        0.3,
        f"packets of more than {probed} bytes do not pass, although the MTU of the interface is "
        f"{mtu}, and no ICMP message reports it{adapts}",
        (Fact("path MTU", mtu, probed),),
        f"set the MTU of the peer and of the path to {mtu}, or that of the interface to {probed}",
        "both",
    )


def overlay_tax(session: Session) -> Optional[Hit]:
    """An overlay is much slower than the path below it, which was measured as well."""
    over, under = _first_rate(session, "overlay"), _first_rate(session, "underlay")
    if over is None or not under or over >= SLOWER * under or _is_overlay_shaped(session):
        return None
    off = [(link, name) for link in session.links for name in _missing_offloads(link)]
    if not off and any(link.kind in TUNNELS for link in session.links):
        return None
    return _overlay_hit(off, over, under)


def _is_overlay_shaped(session: Session) -> bool:
    """Whether packets wait before a shaper, which offloads do not make faster."""
    return any(look.phase.path == "overlay" and path_capacity(look) for look in session.tcp)


def _overlay_hit(off: Sequence[tuple[Link, str]], over: float, under: float) -> Hit:
    facts = [single_fact(f"{link.name} {name}", "off") for link, name in off]
    turned = "; ".join(f"ethtool -K {link.name} {OFFLOADS[name]} on" for link, name in off)
    return Hit(
        1 - over / under,
        f"the overlay carries {amounts.percent(over / under)} of the rate of the path below it: "
        "encapsulation without offload",
        (Fact("overlay / underlay, bit/s", under, over), *facts[:3]),
        "; ".join(filter(None, (turned, "jumbo frames below the overlay"))),
        confidence=HIGH if off else MEDIUM,
        fixed=under,
    )


def _missing_offloads(link: Link) -> list[str]:
    """The offloads that an overlay needs and that are off: of a tunnel, segmentation as well."""
    names = list(OFFLOADS) if link.kind in TUNNELS else [OFFLOAD]
    return [name for name in names if link.offloads.get(name) is False]


def _first_rate(session: Session, path: str) -> Optional[float]:
    """bit/s of the first TCP test over "overlay" or "underlay"."""
    return next((look.rate for look in session.tcp if look.phase.path == path), None)


@for_each_host
def userspace_overlay(end: str, host: Host) -> Optional[Hit]:
    """A process forwards the packets of a tun or tap device."""
    link = next(filter(_is_userspace, links_of(host)), None)
    if link is None:
        return None
    share, busy = 0.3, ""
    if link.owner_cpu:
        share, busy = 0.7, f", which uses {amounts.percent(link.owner_cpu)} of a CPU"
    return Hit(
        share,
        f"packets of the {end} host pass through a process behind {link.name}{busy}: "
        "a userspace overlay",
        (single_fact(f"{link.name} kind", link.kind),),
        "use an overlay that the kernel implements: vxlan, wireguard",
        end,
    )


def _is_userspace(link: Link) -> bool:
    if link.kind not in ("tun", "tap"):
        return False
    return link.owner_cpu is None or link.owner_cpu >= BUSY_OWNER


def wrong_way(session: Session) -> Optional[Hit]:
    """The traffic used another NIC than the planned one, or would have if there had been a test."""
    route, planned = session.evidence.reach.route, session.evidence.local.planned
    if route and planned and route != planned and not session.looks:
        return Hit(
            1.0,
            f"the route to the peer leaves through {route}, not through {planned}: nothing was "
            "sent",
            (Fact("route", planned, route),),
            _route_through(planned, other_end(session, "local")),
            "local",
        )
    tried = ((look, sends) for look in session.looks for sends in (True, False))
    return first_hit(_wrong_device(session, look, sends) for look, sends in tried)


def _route_through(device: str, address: str) -> str:
    return (
        f"check the route (ip route get {address}), and make it leave through {device}, with the "
        "source address of that device"
    )


def _wrong_device(session: Session, look: Look, sends: bool) -> Optional[Hit]:
    """The sender's or the receiver's bytes were counted by another device than the planned one."""
    end, host, samples, counter = "receiver", look.receiver, look.phase.receiver, "rx_bytes"
    if sends:
        end, host, samples, counter = "sender", look.sender, look.phase.sender, "tx_bytes"
    family = _related_devices(host)
    if not family or any(_is_detached_tunnel(link, family) for link in host.links):
        return None
    counted = {link.name: counter_growth(samples, f"{link.name}.{counter}") for link in host.links}
    others = sorted(counted.keys() - family - {"lo"})
    worst = max(others, key=lambda name: growth_of_fact(counted[name]), default="")
    elsewhere, planned = counted.get(worst), counted.get(host.planned or "")
    total = growth_of_fact(elsewhere) + growth_of_fact(planned)
    if growth_of_fact(elsewhere) <= max(NOISE, ELSEWHERE * total):
        return None
    share = growth_of_fact(elsewhere) / total
    return Hit(
        share,
        f"{amounts.percent(share)} of the {end}'s bytes went over {worst}, not over {host.planned}",
        (elsewhere, planned),
        _route_through(
            host.planned or "the planned device",
            other_end(session, "local" if host is look.evidence.local else "peer"),
        ),
        end,
    )


def _is_detached_tunnel(link: Link, family: set[str]) -> bool:
    """Whether the lower device of a tunnel is not known: it counts the same bytes."""
    return link.kind in TUNNELS and not link.parent and link.name in family


def _related_devices(host: Host) -> set[str]:
    """The planned device with its lower and upper devices, which count the same bytes."""
    if host.planned is None or host.planned not in {link.name for link in host.links}:
        return set()
    family, size = {host.planned}, 0
    pairs = [{link.name, link.parent} for link in host.links if link.parent is not None]
    while len(family) > size:
        size = len(family)
        family = family.union(*filter(family.intersection, pairs))
    return family
