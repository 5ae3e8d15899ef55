"""D09, D10, D37, D38, D40, D41, D45: CPUs, tuning, NICs and clocks of the two hosts."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.base import HIGH, INFO, LOW, MEDIUM, Hit, fact
from neuca_tools.selftest.conditions.session import Session, ends, for_each_host, links_of
from neuca_tools.selftest.conditions.streams import is_mostly_idle
from neuca_tools.selftest.conditions.thresholds import passed
from neuca_tools.selftest.conditions.window import is_unbounded
from neuca_tools.selftest.evidence import Host, Link, Rdma
from neuca_tools.selftest.evidence.load import Load
from neuca_tools.selftest.evidence.look import STEAL, Fact, Look, delta

FAST = 10e9  # bit/s, above which the NUMA node matters (D41)
LINE_ERRORS = ("rx_crc_errors", "rx_frame_errors", "carrier_changes")
CONGESTION = "net.ipv4.tcp_congestion_control"
AVAILABLE = "net.ipv4.tcp_available_congestion_control"
# What to do about a full CPU, by what it spends most of its time on (D09).
RELIEVE = {
    "softirq": "spread the packets over CPUs: more queues of the NIC (ethtool -L), or rps_cpus; "
    "jumbo frames; offloads (ethtool -k)",
    "system": "jumbo frames and offloads (ethtool -k); more streams with iperf3 3.16 or later",
    "user": "more streams (-P) with iperf3 3.16 or later, which has a thread for each",
}


def cpu(look: Look) -> Optional[Hit]:
    """A CPU of either host is full, and nothing else limits the flow."""
    receiver, sender = ends(look)
    end, _, load = max(sender, receiver, key=lambda one: _fullness(one.load))
    if _got_nothing(look) or _is_unknown(look, load):
        return None
    if load.has_full_cpu and load.is_of_others:
        return _waiting(look, end, load) or _other_load(end, load)
    if not load.is_full or not is_unbounded(look):
        return None
    full, suspect, confidence = load.full or 0, "", HIGH
    if load.what == "user":
        # iperf3 itself hardly computes.
        suspect, confidence = "; another program may be running there", MEDIUM
    return Hit(
        full * look.left,
        f"CPU {load.cpu} of the {end} is full {amounts.percent(full)} of the time, mostly with "
        f"{load.what}{suspect}",
        (
            fact(f"CPU {load.cpu} busy", load.busy),
            fact(f"CPU {load.cpu} user", load.user),
            fact(f"CPU {load.cpu} system", load.system),
            fact(f"CPU {load.cpu} softirq", load.softirq),
        ),
        RELIEVE[load.what],
        end,
        confidence=confidence,
    )


def _fullness(load: Load) -> tuple[bool, float, float]:
    return load.is_full, load.full or 0.0, load.busy or 0.0


def _waiting(look: Look, end: str, load: Load) -> Optional[Hit]:
    """The sender has little in flight: it waits for a CPU that others fill.

    By fair scheduling it would get half of it; a program of higher priority leaves it less.
    """
    if look.protocol != "tcp" or passed(look) is not False or not is_mostly_idle(look):
        return None
    if not is_unbounded(look):
        return None
    return Hit(
        look.left,
        f"other programs kept CPU {load.cpu} of the {end} busy, and left iperf "
        f"{amounts.percent(load.own or 0)} of it: much less was in flight than the windows had "
        "room for",
        (
            fact(f"CPU {load.cpu} busy", load.busy),
            fact("CPU of iperf", load.own),
            fact("in flight, bytes", look.windows.in_flight),
        ),
        "stop them, give them a lower priority (renice), or test on another CPU",
        end,
        confidence=MEDIUM,
    )


def _other_load(end: str, load: Load) -> Hit:
    """A note: the test did not need that CPU, but what it measured may have waited for it."""
    return Hit(
        0.0,
        f"other programs kept CPU {load.cpu} of the {end} busy; iperf used "
        f"{amounts.percent(load.own or 0)} of one: test again without them to be sure",
        (fact(f"CPU {load.cpu} busy", load.busy), fact("CPU of iperf", load.own)),
        end=end,
        confidence=LOW,
        severity=INFO,
    )


def _is_unknown(look: Look, load: Load) -> bool:
    """Whether a run failed without saying how much of the CPU was its own."""
    return bool(look.phase.run and look.phase.run.error) and load.own is None


def _got_nothing(look: Look) -> bool:
    """A run that failed at once tells nothing about limits, whatever the host did meanwhile."""
    return bool(look.phase.run and look.phase.run.error and not look.rate)


def steal(look: Look) -> Optional[Hit]:
    if _got_nothing(look):
        return None
    for end, _, load in reversed(ends(look)):
        stolen = load.steal or 0
        if stolen <= STEAL:
            continue
        if not load.is_short_of_stolen:
            return _stolen_from_others(end, load, stolen)
        return Hit(
            min(1.0, stolen * 2),
            f"the hypervisor took {amounts.percent(stolen)} of a CPU of the {end}: this result is "
            "not reliable",
            (fact("steal", stolen),),
            "ask for dedicated CPUs, or test when the hypervisor is idle",
            end,
        )
    return None


def _stolen_from_others(end: str, load: Load, stolen: float) -> Hit:
    """A note: the test used so little of a CPU that it was not short of what was taken."""
    return Hit(
        0.0,
        f"the hypervisor took {amounts.percent(stolen)} of a CPU of the {end}, of which iperf used "
        f"{amounts.percent(load.own or 0)}: round trips may be longer than those of the path",
        (fact("steal", stolen), fact("CPU of iperf", load.own)),
        end=end,
        confidence=LOW,
        severity=INFO,
    )


@for_each_host
def tuning(end: str, host: Host) -> Optional[Hit]:
    """Sysctls do not have the values that the tuning profile asks for."""
    wrong = [
        Fact(name, wanted, host.sysctls[name])
        for name, wanted in sorted(host.wanted.items())
        if host.sysctls.get(name, wanted).split() != wanted.split()
    ]
    if not wrong:
        return None
    names = ", ".join(one.field for one in wrong[:3])
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
def drift(end: str, host: Host) -> Optional[Hit]:
    """The agent would change names, addresses, routes, marks or MTUs now."""
    if not host.drift:
        return None
    more = f", and {len(host.drift) - 1} more" if len(host.drift) > 1 else ""
    return Hit(
        0.3,
        f"the {end} host differs from its desired state: {host.drift[0]}{more}",
        tuple(fact("neuca plan", text) for text in host.drift[:10]),
        "neuca status says why; neuca apply corrects it",
        end,
    )


@for_each_host
def congestion(end: str, host: Host) -> Optional[Hit]:
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


def degraded(session: Session) -> Optional[Hit]:
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
        yield Fact(f"{link.name} speed, bit/s", link.max_speed, link.speed)
    if link.duplex == "half":
        yield Fact(f"{link.name} duplex", "full", "half")
    if link.pcie_speed and link.pcie_max_speed and link.pcie_speed != link.pcie_max_speed:
        yield Fact(f"{link.name} PCIe", link.pcie_max_speed, link.pcie_speed)


def _line_errors(session: Session, device: str) -> Iterator[Fact]:
    """The first counter of line errors that grew."""
    for look in session.looks:
        for end in reversed(ends(look)):
            grown = (delta(end.samples, f"{device}.{name}") for name in LINE_ERRORS)
            found = next(filter(None, grown), None)
            if found is not None:
                yield found
                return


@for_each_host
def numa(end: str, host: Host) -> Optional[Hit]:
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


def rdma(session: Session) -> Optional[Hit]:
    tested = session.evidence.rdma
    why = _why_no_rdma(tested)
    if why is None:
        return None
    return Hit(
        0.5,
        f"RDMA over {tested.device or 'any device'} does not work: {why}",
        (fact("RDMA", why),),
        "ibv_devinfo; rdma link; choose the device and the GID of the NIC that has the route "
        "(-d, -g)",
        confidence=MEDIUM,
    )


def _why_no_rdma(tested: Rdma) -> Optional[str]:
    """None if RDMA works or was not tested."""
    if tested.error:
        return tested.error
    if tested.state and "ACTIVE" not in tested.state.upper():
        return f"port state {tested.state}"
    return "no GID for this network" if tested.device and tested.gid == "" else None
