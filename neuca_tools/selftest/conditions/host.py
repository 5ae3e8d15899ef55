"""D29, D36 to D38, D40, D46: the two hosts, their devices and their tuning."""

# SPDX-License-Identifier: MIT

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions import figures
from neuca_tools.selftest.conditions.base import (
    TUNNELS,
    Hit,
    Session,
    first_hit,
    for_each_host,
    single_fact,
)
from neuca_tools.selftest.conditions.messages import error_text
from neuca_tools.selftest.evidence import Host, Link
from neuca_tools.selftest.evidence.look import Fact, Look, counter_growth, growth_of_fact

LINE_ERRORS = ("rx_crc_errors", "rx_frame_errors", "carrier_changes")
# Bytes that a NIC carries beside a test, and the share of the test's bytes (D29).
NOISE_BYTES, ELSEWHERE_SHARE = 1e6, 0.1
CONGESTION = "net.ipv4.tcp_congestion_control"
AVAILABLE = "net.ipv4.tcp_available_congestion_control"


@for_each_host
def tuning_not_in_effect(end: str, host: Host) -> Optional[Hit]:
    """Sysctls do not have the values that the tuning profile asks for."""
    wrong = [
        Fact(name, wanted, host.sysctls[name])
        for name, wanted in sorted(host.wanted.items())
        if host.sysctls.get(name, wanted).split() != wanted.split()
    ]
    if not wrong:
        return None
    names = ", ".join(difference.field for difference in wrong[:3])
    more = " and more" if len(wrong) > 3 else ""
    return Hit(
        0.4,
        f"sysctls of the {end} host differ from its tuning profile: {names}{more}",
        tuple(wrong),
        "neuca tune audit; a later file in /etc/sysctl.d or tuned may override them; in a "
        "container, set them on the host",
        end,
    )


@for_each_host
def drifted_host(end: str, host: Host) -> Optional[Hit]:
    """The agent would change names, addresses, routes, marks or MTUs now."""
    if not host.drift:
        return None
    more = f", and {len(host.drift) - 1} more" if len(host.drift) > 1 else ""
    return Hit(
        0.3,
        f"the {end} host differs from its desired state: {host.drift[0]}{more}",
        tuple(single_fact("neuca plan", text) for text in host.drift[:10]),
        "neuca status says why; neuca apply corrects it",
        end,
    )


@for_each_host
def lacks_tuned_congestion_control(end: str, host: Host) -> Optional[Hit]:
    """The congestion control that tuning asks for is not available."""
    wanted, available = host.wanted.get(CONGESTION), host.sysctls.get(AVAILABLE, "").split()
    if not wanted or not available or wanted in available:
        return None
    return Hit(
        0.5,
        f'the {end} host has no congestion control "{wanted}": the kernel still uses '
        f'"{host.sysctls.get(CONGESTION, available[0])}"',
        (Fact(AVAILABLE, wanted, " ".join(available)),),
        f"modprobe tcp_{wanted}; echo tcp_{wanted} > /etc/modules-load.d/neuca.conf",
        end,
    )


def degraded_link(session: Session) -> Optional[Hit]:
    """A link is slower than it could be, half duplex, or has errors."""
    return first_hit(
        _degraded(link, end, session) for end, host in session.hosts for link in host.on_path
    )


def _degraded(link: Link, end: str, session: Session) -> Optional[Hit]:
    facts = [*_below_maximum(link), *_line_errors(link, end, session)]
    if not facts:
        return None
    first, filled = facts[0], figures.LINE_SHARE[0] * (link.speed or 0.0)
    is_limit = _is_slowed(link) and any(look.known_rate >= filled for look in session.looks)
    return Hit(
        1.0 if is_limit else 0.7,
        f"the link {link.name} of the {end} host is degraded: {first.field} {first.after}, "
        f"not {first.before}",
        tuple(facts),
        f"ethtool {link.name}; change the cable, the optic or the slot",
        end,
    )


def _is_slowed(link: Link) -> bool:
    """Whether both ends of the link offer a faster mode."""
    return bool(link.speed and link.max_speed and link.speed < link.max_speed)


def _below_maximum(link: Link) -> Iterator[Fact]:
    if link.speed and link.max_speed and _is_slowed(link):
        speeds = (amounts.rate(link.max_speed), amounts.rate(link.speed))
        yield Fact(f"{link.name} speed", *speeds)
    if link.duplex == "half":
        yield Fact(f"{link.name} duplex", "full", "half")
    if link.pcie_speed and link.pcie_max_speed and link.pcie_speed != link.pcie_max_speed:
        yield Fact(f"{link.name} PCIe", link.pcie_max_speed, link.pcie_speed)


def _line_errors(link: Link, end: str, session: Session) -> Iterable[Fact]:
    """The first counter of line errors that grew at this end."""
    names = [f"{link.name}.{name}" for name in LINE_ERRORS]
    samples = (look.samples_of(end) for look in session.looks)
    grown = (counter_growth(each, name) for each in samples for name in names)
    return islice(filter(None, grown), 1)


def wrong_way(session: Session) -> Optional[Hit]:
    """The traffic used another NIC than the planned one, or would have if there had been a test."""
    route, planned = session.evidence.reach.route, session.evidence.local.planned
    if route and planned and route != planned and not session.looks:
        return Hit(
            1.0,
            f"the route to the peer leaves through {route}, not through {planned}: nothing was "
            "sent",
            (Fact("route", planned, route),),
            _route_through(planned, session.other_end("local")),
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
    """The sender's or the receiver's bytes were counted by a device other than the planned one."""
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
    if growth_of_fact(elsewhere) <= max(NOISE_BYTES, ELSEWHERE_SHARE * total):
        return None
    share = growth_of_fact(elsewhere) / total
    return Hit(
        share,
        f"{amounts.percent(share)} of the {end}'s bytes went over {worst}, not over {host.planned}",
        (elsewhere, planned),
        _route_through(
            host.planned or "the planned device",
            session.other_end("local" if host is look.evidence.local else "peer"),
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


# --- What iperf was asked for, and did not get ----------------------------------------------------


NO_CONGESTION = re.compile(r"set TCP_CONGESTION", re.IGNORECASE)
NO_BUFFERS = re.compile(
    r"set socket buffer size|buffer size not set correctly|BUF is \d{1,12}, expecting",
    re.IGNORECASE,
)


def _buffers_not_applied(look: Look) -> Optional[Hit]:
    """iperf3 asked for a socket buffer (-w), and the kernel gave less."""
    run = look.run
    if not run.buffer:
        return None
    buffers = (
        ("sndbuf_actual", run.sndbuf, "net.core.wmem_max", "sender"),
        ("rcvbuf_actual", run.rcvbuf, "net.core.rmem_max", "receiver"),
    )
    for name, got, setting, end in buffers:
        # The kernel doubles what is asked for (SO_SNDBUF in socket(7)).
        if got is None or got >= 2 * run.buffer:
            continue
        return Hit(
            0.5,
            f"-w requested {amounts.size(run.buffer)}, the kernel granted {amounts.size(got / 2)}",
            (single_fact("-w", run.buffer), single_fact(name, got)),
            end=end,
            sysctls={setting: str(int(run.buffer))},
        )
    return None


def no_congestion_control(session: Session) -> Optional[Hit]:
    """A host lacks the congestion control of its tuning, or the one that was requested (-C)."""
    said = error_text(session)
    if not NO_CONGESTION.search(said):
        return lacks_tuned_congestion_control(session)
    return Hit(
        0.9,
        "a host does not have the requested congestion control (-C)",
        (single_fact("iperf3", said),),
        "sysctl net.ipv4.tcp_available_congestion_control lists them; modprobe tcp_NAME adds one, "
        "if the kernel has it",
        "both",
    )


def refused_buffers(session: Session) -> Optional[Hit]:
    """The kernel gave less than the buffers that were requested, or iperf3 ended because of it."""
    said = error_text(session)
    if not NO_BUFFERS.search(said):
        return first_hit(map(_buffers_not_applied, session.looks))
    return Hit(
        0.9,
        "a host did not grant the requested socket buffers (-w)",
        (single_fact("iperf3", said),),
        "raise net.core.rmem_max and net.core.wmem_max, or test without -w: Linux then sizes the "
        "buffers itself",
        "both",
    )
