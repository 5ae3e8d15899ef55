"""D06, D21, D23 to D25: MTUs and overlays."""

# SPDX-License-Identifier: MIT

from collections.abc import Iterator
from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.base import (
    TUNNELS,
    Hit,
    Session,
    first_hit,
    for_each_host,
    single_fact,
    smallest_mtu,
)
from neuca_tools.selftest.conditions.capacity import path_capacity
from neuca_tools.selftest.conditions.messages import is_refused
from neuca_tools.selftest.conditions.udp import HEADERS, USUAL_MTU
from neuca_tools.selftest.evidence import Host, Link, Socket
from neuca_tools.selftest.evidence.derive import is_of_receiver
from neuca_tools.selftest.evidence.look import Fact, Look

WASTED_BYTES = 400  # bytes of MTU (D06)
OVERHEADS = {**TUNNELS, "vlan": 0, "macvlan": 0, "ipvlan": 0, "bridge": 0}
OFFLOAD = "tx-udp_tnl-segmentation"
# What an overlay needs, with their names for ethtool -K.
OFFLOADS = {
    OFFLOAD: OFFLOAD,
    "tcp-segmentation-offload": "tso",
    "generic-segmentation-offload": "gso",
}
SLOWER_SHARE = 0.7  # of the rate of the underlay (D24)


def differing_mtus(session: Session) -> Optional[Hit]:
    """A link is larger than its lower device, a tunnel or the path carries."""
    return (
        _too_large_for_its_device(session)
        or _too_large_for_the_tunnel(session)
        or _too_large_for_the_path(session)
    )


def _stacked_links(session: Session) -> Iterator[tuple[str, Link, int, Link, int]]:
    """The end, a link, its MTU, its lower device and the largest MTU in bytes that fits there.

    Of the links with known MTUs; an unknown overhead is 0.
    """
    for end, host in session.hosts:
        by_name = {link.name: link for link in host.links}
        for link in host.on_path:
            lower = by_name.get(link.parent or "")
            if lower is not None and lower.mtu and link.mtu:
                possible = lower.mtu - OVERHEADS.get(link.kind or "", 0)
                yield end, link, link.mtu, lower, possible


def wasted_mtu(session: Session) -> Optional[Hit]:
    """A link's MTU is smaller than its lower device allows, while a CPU is full."""
    if not any(look.is_full for look in session.looks):
        return None
    for end, link, mtu, lower, possible in _stacked_links(session):
        if possible - mtu <= WASTED_BYTES:
            continue
        return Hit(
            1 - mtu / possible,
            f"{link.name} of the {end} host has MTU {mtu}; its lower device {lower.name} allows "
            f"{possible}",
            (Fact(f"{link.name} mtu", possible, mtu),),
            f"ip link set {link.name} mtu {possible}; likewise on the other host",
            end,
        )
    return None


def _too_large_for_its_device(session: Session) -> Optional[Hit]:
    for end, link, mtu, lower, possible in _stacked_links(session):
        if link.kind in OVERHEADS and mtu > possible:
            return _too_large(end, link, f"its lower device {lower.name}", possible)
    return None


def _too_large_for_the_tunnel(session: Session) -> Optional[Hit]:
    """By the path MTU, of a tunnel that names no lower device."""
    for end, host in session.hosts:
        known = filter(None, (host.route_mtu, session.evidence.path_mtu.smallest))
        possible = min(known, default=None)
        for link in host.on_path:
            if link.kind in TUNNELS and link.mtu and possible and possible < link.mtu:
                return _too_large(end, link, "the path of the tunnel", possible)
    return None


def _too_large(end: str, link: Link, lower: str, possible: int) -> Hit:
    return Hit(
        0.6,
        f"{link.name} of the {end} host has MTU {link.mtu}, but {lower} allows only {possible}",
        (Fact(f"{link.name} mtu", possible, link.mtu),),
        f"ip link set {link.name} mtu {possible}; likewise on the other host",
        end,
    )


def _too_large_for_the_path(session: Session) -> Optional[Hit]:
    """The path drops larger packets without a word, and TCP gets through all the same."""
    is_through = gets_through(session)
    if not is_unreported(session) or not (is_through or is_refused(session)):
        return None
    probed, mtu = session.evidence.path_mtu.smallest, smallest_mtu(session.evidence.links)
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
    tests = {look.phase.path: look for look in reversed(session.tcp)}
    # Offloads make a path through a shaper no faster.
    if not {"overlay", "underlay"} <= tests.keys() or path_capacity(tests["overlay"]):
        return None
    over, under = tests["overlay"].known_rate, tests["underlay"].known_rate
    if over >= SLOWER_SHARE * under:
        return None
    off = [(link, name) for link in session.evidence.links for name in _missing_offloads(link)]
    if not off:
        return None
    facts = [single_fact(f"{link.name} {name}", "off") for link, name in off]
    commands = "; ".join(f"ethtool -K {link.name} {OFFLOADS[name]} on" for link, name in off)
    return Hit(
        1 - over / under,
        f"the overlay carries {amounts.percent(over / under)} of the rate of the path below it: "
        "encapsulation without offload",
        (Fact("overlay / underlay, bit/s", under, over), *facts[:3]),
        f"{commands}; jumbo frames below the overlay",
    )


def _missing_offloads(link: Link) -> list[str]:
    """The offloads that an overlay needs and that are off: of a tunnel, segmentation as well."""
    names = list(OFFLOADS) if link.kind in TUNNELS else [OFFLOAD]
    return [name for name in names if link.offloads.get(name) is False]


@for_each_host
def userspace_overlay(end: str, host: Host) -> Optional[Hit]:
    """A process forwards the packets of a tun or tap device."""
    link = next((link for link in host.on_path if link.kind in ("tun", "tap")), None)
    if link is None:
        return None
    return Hit(
        0.3,
        f"packets of the {end} host pass through a process behind {link.name}: a userspace overlay",
        (single_fact(f"{link.name} kind", link.kind),),
        "use an overlay that the kernel implements: vxlan, wireguard",
        end,
    )


# --- D21 ------------------------------------------------------------------------------------------


TIMEOUTS = 2  # intervals without data, and retransmits: the timer ran out again (RFC 6298)
DEAD_BYTES = 1e6  # bytes in a whole test: no more than what fits into small packets (D21)
SEND_BUFFER = 4 << 20  # bytes: of more than one holds (tcp_wmem of tcp(7)), large packets arrived
THROUGH_RATE = 8e6  # bit/s: a flow that hangs never carries so much (D21)


def _stalled_hit(look: Look) -> Optional[Hit]:
    """By iperf's figures alone: the first window went out, and nothing after it."""
    if look.protocol != "tcp" or look.is_sampled or not _is_stalled(look):
        return None
    first, *_, last = look.flow.intervals
    version, is_guess = look.run.ip_version, look.retransmits is None and is_of_receiver(look.phase)
    return Hit(
        1.0,
        "nothing arrives after the first window: the path drops full-size packets (MTU), or all "
        "packets",
        (single_fact("cwnd at the end", last.cwnd), single_fact("bytes", first.bytes)),
        f"{_report_large_packets(version)}; ping -M do -s {USUAL_MTU - HEADERS[version]} tells",
        "sender",
        # A receiver does not see whether anything was sent.
        confidence="low" if is_guess else "medium",
        sysctls={"net.ipv4.tcp_mtu_probing": "1"},
    )


def _is_stalled(look: Look) -> bool:
    """Whether no interval but the first has data, and the sender, if it counted, tried again."""
    known = [interval for interval in look.flow.intervals if interval.bytes is not None]
    idle = [interval for interval in known if not interval.bytes]
    if len(idle) < TIMEOUTS or any(interval.bytes for interval in known[1:]):
        return False
    again = look.retransmits
    return look.flow.size <= SEND_BUFFER and (again is None or again >= TIMEOUTS)


def _report_large_packets(version: int) -> str:
    message = "packet too big" if version == 6 else "fragmentation needed"
    return f'set the MTU of the path, or let ICMP "{message}" through'


def black_hole(session: Session) -> Optional[Hit]:
    """Large packets are dropped on the path, and no ICMP message reports it."""
    probed, unreported = session.evidence.path_mtu.smallest, is_unreported(session)
    # If packets of full size were acknowledged, something else holds TCP up.
    suspects = session.tcp if probed is None or is_less(session) else ()
    stuck = next(filter(_is_stuck, suspects), None)
    if stuck is None and (not unreported or gets_through(session) or is_refused(session)):
        return first_hit(map(_stalled_hit, session.looks))
    hit = _black_hole_hit(session, stuck)
    return hit if unreported else hit._replace(confidence="medium")


def _black_hole_hit(session: Session, stuck: Optional[Look]) -> Hit:
    probed = session.evidence.path_mtu.smallest
    above = f" above {probed} bytes" if probed else ""
    return Hit(
        1.0,
        f"packets{above} are dropped on the path without an ICMP message: connections open, then "
        "hang",
        (
            single_fact("path MTU, acknowledged", probed),
            single_fact("MTU of the interfaces", smallest_mtu(session.evidence.links)),
            single_fact("backoff, times", _last_backoff(stuck)) if stuck else None,
            stuck.sender_fact("TcpExt.TCPTimeouts") if stuck else None,
        ),
        _report_large_packets(6 if ":" in (session.evidence.address or "") else 4),
        _sender_of_large_packets(session, stuck),
        sysctls={"net.ipv4.tcp_mtu_probing": "1"},
    )


def _sender_of_large_packets(session: Session, stuck: Optional[Look]) -> str:
    """The end whose packets are dropped: of the direction that hangs, or carries less."""
    measured = session.evidence.path_mtu
    out, back = measured.forward or 0, measured.backward or 0
    if stuck is not None:
        return "local" if stuck.phase.direction == "forward" else "peer"
    if out == back or not (out and back):
        return "both"
    return "local" if out < back else "peer"


def is_less(session: Session) -> bool:
    """Whether the path carries smaller packets than the interfaces do."""
    probed, mtu = session.evidence.path_mtu.smallest, smallest_mtu(session.evidence.links)
    return probed is not None and mtu is not None and probed < mtu


def is_unreported(session: Session) -> bool:
    return is_less(session) and session.evidence.path_mtu.told is not True


def gets_through(session: Session) -> bool:
    """Whether TCP was fast all the same, by MTU probing, MSS clamping or the MTU of a route.

    Only in the direction that carries smaller packets than the other.
    """
    measured, probed = session.evidence.path_mtu, session.evidence.path_mtu.smallest
    sizes = {"forward": measured.forward, "reverse": measured.backward}
    narrow = (look for look in session.tcp if sizes[look.phase.direction] == probed)
    return any((look.rate or 0) > THROUGH_RATE for look in narrow)


def _is_stuck(look: Look) -> bool:
    """Whether a TCP test backed off again and again after what fits into a few small packets."""
    acked = sum(socket.bytes_acked or 0 for socket in _last_sockets(look))
    return _last_backoff(look) >= 2 and acked < DEAD_BYTES


def _last_backoff(look: Look) -> int:
    """How often a socket of the sender had doubled its timeout when the test ended."""
    return max((socket.backoff or 0 for socket in _last_sockets(look)), default=0)


def _last_sockets(look: Look) -> tuple[Socket, ...]:
    return look.phase.sender[-1].sockets if look.phase.sender else ()
