"""D06, D21, D23 to D25: MTUs and overlays."""

# SPDX-License-Identifier: MIT

from collections.abc import Callable, Iterable, Iterator, Sequence
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
from neuca_tools.selftest.evidence.run import JUMBO_FRAME, Flow, Interval

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
        mtu = smallest_mtu(host.on_path)
        if host.route_mtu and mtu and host.route_mtu < mtu:
            return _reported_mtu(end, f"the interface of the {end} host", mtu, host.route_mtu)
    path = session.evidence.path_mtu
    mtu = smallest_mtu(session.evidence.local.on_path)
    if path.told and path.forward and mtu and path.forward < mtu:
        return _reported_mtu("path", "the interface", mtu, path.forward)
    return None


def _reported_mtu(end: str, interface: str, mtu: int, path_mtu: int) -> Hit:
    return Hit(
        0.1,
        f"the path MTU is {path_mtu} bytes, that of {interface} {mtu}; ICMP reports it, and TCP "
        "adapts to it",
        (Fact("path MTU", mtu, path_mtu),),
        f"nothing needs to be done; an MTU of {path_mtu} for the route (mtu in ip-route(8)), or "
        "one MTU along the whole path, saves the discovery",
        end,
        severity="info",
        title="smaller path MTU",
    )


def _stacked_links(
    session: Session, links: Callable[[Host], Iterable[Link]]
) -> Iterator[tuple[str, Link, int, Link, int]]:
    """The end, a link, its MTU, its lower device and the largest MTU in bytes that fits there.

    Of the `links` of each host, those with known MTUs; an unknown overhead is 0.
    """
    for end, host in session.hosts:
        by_name = {link.name: link for link in host.links}
        for link in links(host):
            lower = by_name.get(link.parent or "")
            if lower is not None and lower.mtu and link.mtu:
                possible = lower.mtu - OVERHEADS.get(link.kind or "", 0)
                yield end, link, link.mtu, lower, possible


def wasted_mtu(session: Session) -> Optional[Hit]:
    """A link's MTU is smaller than its lower device allows, while a CPU is full."""
    if not any(look.is_full for look in session.looks):
        return None
    for end, link, mtu, lower, possible in _stacked_links(session, lambda host: host.on_path):
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
        known = filter(None, (host.route_mtu, session.evidence.path_mtu.smallest))
        possible = min(known, default=None)
        for link in host.on_path:
            if link.kind in TUNNELS and link.mtu and possible and possible < link.mtu:
                return Hit(
                    0.6,
                    f"{link.name} of the {end} host has MTU {link.mtu}, which is too large for the "
                    f"tunnel: {possible} bytes fit, the outer MTU less the tunnel's headers",
                    (Fact(f"{link.name} mtu", possible, link.mtu),),
                    f"ip link set {link.name} mtu {possible}; likewise on the other host",
                    end,
                )
    return None


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
    overlays, underlays = _tcp_over(session, "overlay"), _tcp_over(session, "underlay")
    if not overlays or not underlays:
        return None
    over, under = overlays[0].known_rate, underlays[0].known_rate
    # Offloads make a path through a shaper no faster.
    if over >= SLOWER_SHARE * under or any(map(path_capacity, overlays)):
        return None
    off = [(link, name) for link in session.evidence.links for name in _missing_offloads(link)]
    if not off and any(link.kind in TUNNELS for link in session.evidence.links):
        return None
    return _overlay_hit(off, over, under)


def _tcp_over(session: Session, path: str) -> list[Look]:
    """The TCP tests over the "overlay" or the "underlay"."""
    return [look for look in session.tcp if look.phase.path == path]


def _overlay_hit(off: Sequence[tuple[Link, str]], over: float, under: float) -> Hit:
    facts = [single_fact(f"{link.name} {name}", "off") for link, name in off]
    turned = "; ".join(f"ethtool -K {link.name} {OFFLOADS[name]} on" for link, name in off)
    return Hit(
        1 - over / under,
        f"the overlay carries {amounts.percent(over / under)} of the rate of the path below it: "
        "encapsulation without offload",
        (Fact("overlay / underlay, bit/s", under, over), *facts[:3]),
        "; ".join(filter(None, (turned, "jumbo frames below the overlay"))),
        confidence="high" if off else "medium",
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


BACKED_OFF_INTERVALS = 3  # intervals with retransmits: the timer ran out again and again (RFC 6298)
DEAD_BYTES = 1e6  # bytes in a whole test: no more than what fits into small packets (D21)
SEND_BUFFER = 4 << 20  # bytes: of more than one holds (tcp_wmem of tcp(7)), large packets arrived
THROUGH_RATE = 8e6  # bit/s: a flow that hangs never carries so much (D21)


def _stalled_hit(look: Look) -> Optional[Hit]:
    """By iperf's figures alone: the first window went out, and nothing after it."""
    first, last = _stalled_interval(look.flow) if _may_stall(look) else (None, None)
    if first is None or last is None or (look.flow.sent.bytes or first.bytes or 0) > SEND_BUFFER:
        return None
    version, is_guess = look.run.ip_version, not _sees_attempts(look)
    begin = f"after the first {amounts.size(first.bytes)} " if first.bytes else ""
    end = "arrived" if is_guess else "was delivered, however often retransmitted"
    return Hit(
        1.0,
        f"{begin}nothing {end}: the path drops full-size packets (MTU), or all packets",
        (single_fact("cwnd at the end", last.cwnd), single_fact("bytes", first.bytes)),
        f"{_report_large_packets(version)}; ping -M do -s {USUAL_MTU - HEADERS[version]} tells",
        "sender",
        confidence="low" if is_guess else "medium",
        sysctls={"net.ipv4.tcp_mtu_probing": "1"},
    )


def _may_stall(look: Look) -> bool:
    """Whether only iperf's figures of TCP are known, and -b is not why it sent so little."""
    is_paced = bool(look.target) and not look.retransmits
    return look.protocol == "tcp" and not (look.is_sampled or is_paced)


def _sees_attempts(look: Look) -> bool:
    """Whether it is known that the sender tried: a receiver without its count does not see it."""
    return look.retransmits is not None or not is_of_receiver(look.phase)


def _report_large_packets(version: int) -> str:
    message = "packet too big" if version == 6 else "fragmentation needed"
    return f'set the MTU of the path, or let ICMP "{message}" through'


def _stalled_interval(flow: Flow) -> tuple[Optional[Interval], Optional[Interval]]:
    """The only interval with data and the last one, if the sender kept trying in between.

    Of a text that begins later, all intervals are without data.
    """
    known = [interval for interval in flow.intervals if interval.bytes is not None]
    if len(known) < 2 or any(interval.bytes for interval in known[1:]):
        return None, None
    is_stalled = _is_timed_out(flow, known) and (
        known[0].start == 0 or not _is_anything_through(flow)
    )
    return (known[0], known[-1]) if is_stalled else (None, None)


def _is_anything_through(flow: Flow) -> bool:
    """Whether something arrived before the text begins, or may have."""
    first = next(interval for interval in flow.intervals if interval.bytes is not None)
    return bool(first.bytes or flow.received.bytes or not flow.intervals[-1].cwnd)


def _is_timed_out(flow: Flow, known: Sequence[Interval]) -> bool:
    """Whether the sender's timer ran out; of two intervals, in each of them.

    Where no interval has a count, the totals may, or the data stopped for so long.
    """
    counts = {interval.retransmits for interval in known}
    if counts == {None}:
        return flow.sent.retransmits != 0 and len(known) > BACKED_OFF_INTERVALS
    tries = sum(1 for interval in known if interval.retransmits)
    window = known[-1].cwnd
    if not tries or tries < len(known) == 2:
        return False
    return window is None or window <= JUMBO_FRAME or tries >= BACKED_OFF_INTERVALS


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
