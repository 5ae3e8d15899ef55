"""D29, D36 to D38, D40, D41, D46: the two hosts, their devices and their tuning."""

# SPDX-License-Identifier: MIT

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions import figures
from neuca_tools.selftest.conditions.base import (
    Hit,
    Session,
    first_hit,
    for_each_host,
    single_fact,
)
from neuca_tools.selftest.conditions.messages import message_hit
from neuca_tools.selftest.evidence import Host, Link
from neuca_tools.selftest.evidence.look import Fact, Look, counter_growth, growth_of_fact

FAST_LINK = 10e9  # bit/s, above which the NUMA node matters (D41)
LINE_ERRORS = ("rx_crc_errors", "rx_frame_errors", "carrier_changes")
MOST_BYTES = 0.5  # of those of a test: if the planned device has less, it was not used (D29)


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
        f"ethtool {link.name}; change the cable or the optic",
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


def _line_errors(link: Link, end: str, session: Session) -> Iterable[Fact]:
    """The first counter of line errors that grew at this end."""
    names = [f"{link.name}.{name}" for name in LINE_ERRORS]
    samples = (look.samples_of(end) for look in session.looks)
    grown = (counter_growth(each, name) for each in samples for name in names)
    return islice(filter(None, grown), 1)


@for_each_host
def wrong_numa_node(end: str, host: Host) -> Optional[Hit]:
    """iperf3 ran on another NUMA node than that of a fast NIC."""
    links = host.on_path
    # sysfs has -1 for a device without a node.
    nodes = {-1 if link.numa_node is None else link.numa_node for link in links} - {-1}
    if host.numa_node is None or not nodes or host.numa_node in nodes:
        return None
    if not any((link.speed or 0) > FAST_LINK for link in links):
        return None
    node = min(nodes)
    return Hit(
        0.25,
        f"iperf3 ran on NUMA node {host.numa_node} of the {end} host, and the NIC is on node "
        f"{node}",
        (Fact("NUMA node", node, host.numa_node),),
        f"neuca-selftest --numa {node}, or run the program with numactl --cpunodebind={node} "
        f"--membind={node}",
        end,
        confidence="medium",
    )


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
    """Most of the sender's or the receiver's bytes were not counted by the planned device.

    Its lower and upper devices count the same bytes, and other programs use other devices.
    """
    end, host, samples, counter = "receiver", look.receiver, look.phase.receiver, "rx_bytes"
    if sends:
        end, host, samples, counter = "sender", look.sender, look.phase.sender, "tx_bytes"
    if not samples or f"{host.planned}.{counter}" not in samples[0].counters:
        return None
    planned = counter_growth(samples, f"{host.planned}.{counter}")
    counted = {link.name: counter_growth(samples, f"{link.name}.{counter}") for link in host.links}
    busiest = max(counted, key=lambda name: growth_of_fact(counted[name]), default="")
    most = growth_of_fact(counted.get(busiest))
    total = look.known_rate / 8 * (samples[-1].time - samples[0].time)
    if not growth_of_fact(planned) < MOST_BYTES * total <= most:
        return None
    share = most / (most + growth_of_fact(planned))
    return Hit(
        share,
        f"{amounts.percent(share)} of the {end}'s bytes went over {busiest}, not over "
        f"{host.planned}",
        (counted[busiest], planned),
        _route_through(
            host.planned or "the planned device",
            session.other_end("local" if host is look.evidence.local else "peer"),
        ),
        end,
    )


# --- What iperf was asked for, and did not get ----------------------------------------------------


NO_CONGESTION = re.compile(r"set TCP_CONGESTION", re.IGNORECASE)
NO_BUFFERS = re.compile(
    r"set socket buffer size|buffer size not set correctly|BUF is \d{1,12}, expecting",
    re.IGNORECASE,
)


def no_congestion_control(session: Session) -> Optional[Hit]:
    """A host lacks the congestion control that was requested (-C)."""
    return message_hit(
        session,
        NO_CONGESTION,
        "a host does not have the requested congestion control (-C)",
        "sysctl net.ipv4.tcp_available_congestion_control lists them; modprobe tcp_NAME adds one, "
        "if the kernel has it",
        "both",
    )


def refused_buffers(session: Session) -> Optional[Hit]:
    """iperf3 ended because the kernel gave less than the buffers that were requested."""
    return message_hit(
        session,
        NO_BUFFERS,
        "a host did not grant the requested socket buffers (-w)",
        "raise net.core.rmem_max and net.core.wmem_max, or test without -w: Linux then sizes the "
        "buffers itself",
        "both",
    )
