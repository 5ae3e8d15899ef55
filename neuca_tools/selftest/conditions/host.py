"""D37, D38, D40, D41, D46: tuning, NICs and state of the two hosts."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.base import MEDIUM, Hit, single_fact
from neuca_tools.selftest.conditions.session import Session, ends_of, for_each_host, links_of
from neuca_tools.selftest.evidence import Host, Link
from neuca_tools.selftest.evidence.look import Fact, counter_growth

FAST = 10e9  # bit/s, above which the NUMA node matters (D41)
LINE_ERRORS = ("rx_crc_errors", "rx_frame_errors", "carrier_changes")
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
def missing_congestion_control(end: str, host: Host) -> Optional[Hit]:
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
    for end, host in session.hosts:
        for link in links_of(host):
            facts = [*_below_maximum(link), *_line_errors(session, link.name)]
            if not facts:
                continue
            first = facts[0]
            return Hit(
                0.7,
                f"the link {link.name} of the {end} host is degraded: {first.field} {first.after}, "
                f"not {first.before}",
                tuple(facts),
                f"ethtool {link.name}; change the cable, the optic or the slot",
                end,
            )
    return None


def _below_maximum(link: Link) -> Iterator[Fact]:
    if link.speed and link.max_speed and link.speed < link.max_speed:
        speeds = (amounts.rate(link.max_speed), amounts.rate(link.speed))
        yield Fact(f"{link.name} speed", *speeds)
    if link.duplex == "half":
        yield Fact(f"{link.name} duplex", "full", "half")
    if link.pcie_speed and link.pcie_max_speed and link.pcie_speed != link.pcie_max_speed:
        yield Fact(f"{link.name} PCIe", link.pcie_max_speed, link.pcie_speed)


def _line_errors(session: Session, device: str) -> Iterator[Fact]:
    """The first counter of line errors that grew."""
    for look in session.looks:
        for end in reversed(ends_of(look)):
            grown = (counter_growth(end.samples, f"{device}.{name}") for name in LINE_ERRORS)
            counter = next(filter(None, grown), None)
            if counter is not None:
                yield counter
                return


@for_each_host
def wrong_numa_node(end: str, host: Host) -> Optional[Hit]:
    """iperf3 ran on another NUMA node than that of a fast NIC."""
    links = links_of(host)
    # sysfs has -1 for a device without a node.
    nodes = {-1 if link.numa_node is None else link.numa_node for link in links} - {-1}
    if host.numa_node is None or not nodes or host.numa_node in nodes:
        return None
    if not any((link.speed or 0) > FAST for link in links):
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
        confidence=MEDIUM,
    )
