"""D09, D10, D37, D38, D40, D41, D44: CPUs, tuning, NICs and clocks of the two hosts."""

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
    PhaseRule,
    Session,
    SessionRule,
    fact,
    links_of,
)
from neuca_tools.selftest.evidence.load import Load
from neuca_tools.selftest.evidence.look import Fact, Look, delta, growth

STEAL = 0.05  # of a CPU's time (D10)
FAST = 10e9  # bit/s, above which the NUMA node matters (D41)
DEVIATION = 0.05  # of an interval's length (D44)
CONGESTION, AVAILABLE = (
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_available_congestion_control",
)


def cpu(look: Look) -> Optional[Hit]:
    both = (("sender", look.sender_load), ("receiver", look.receiver_load))
    end, load = max(both, key=lambda one: ((one[1].full or 0), (one[1].busy or 0)))
    if not load.is_full or not _is_working(look) or _got_nothing(look):
        return None
    which = f"CPU {load.cpu} of the {end} is full {amounts.percent(load.full or 0)} of the time, mostly with {load.what}"
    facts = tuple(
        Fact(f"CPU {load.cpu} {name}", after=getattr(load, name))
        for name in ("busy", "user", "system", "softirq")
    )
    advice = {
        "softirq": "spread the packets over CPUs: ethtool -L DEV combined N, or rps_cpus; jumbo frames; offloads (ethtool "
        "-k)",
        "system": "jumbo frames and offloads (ethtool -k); more streams with iperf3 3.16 and later",
        "user": "more streams (-P) with iperf3 3.16 and later, which has a thread for each",
    }[load.what]
    if load.what == "user":  # iperf3 itself hardly computes
        which += "; something else may be what runs there"
    return Hit(
        (load.full or 0) * look.left,
        which,
        facts,
        advice,
        end,
        MEDIUM if load.what == "user" else HIGH,
    )


def _is_working(look: Look) -> bool:
    """A full CPU does not matter where the window is what the flow waits for."""
    return (look.windows.rwnd_limited or 0) < 0.4 and (look.windows.sndbuf_limited or 0) < 0.2


def _got_nothing(look: Look) -> bool:
    """A run that failed at once says nothing of what limits: whatever the host did meanwhile."""
    return bool(look.phase.run and look.phase.run.error and not look.rate)


def steal(look: Look) -> Optional[Hit]:
    if _got_nothing(look):
        return None
    ends: tuple[tuple[str, Load], ...] = (
        ("sender", look.sender_load),
        ("receiver", look.receiver_load),
    )
    for end, load in ends:
        if (load.steal or 0) > STEAL:
            text = f"the hypervisor took {amounts.percent(load.steal or 0)} of a CPU of the {end}: this result says little"
            advice = "ask for dedicated CPUs, or test when the host is quiet"
            return Hit(
                min(1.0, (load.steal or 0) * 2), text, (fact("steal", load.steal),), advice, end
            )
    return None


def clock(look: Look) -> Optional[Hit]:
    """iperf3 ends its intervals by the clock: lengths that jump are the clock's doing, or a host that stood still."""
    lengths = [one.seconds for one in look.throughput.steady[:-1] if one.seconds > 0]
    if len(lengths) < 3:
        return None
    usual = sorted(lengths)[len(lengths) // 2]
    worst = max(lengths, key=lambda one: abs(one - usual))
    if abs(worst - usual) <= DEVIATION * usual:
        return None
    text = f"an interval of {amounts.time(usual)} took {amounts.time(worst)}: a host stood still, or its clock jumped"
    return Hit(
        0.2,
        text,
        (Fact("interval, seconds", usual, worst),),
        "test again; look at steal and at the clock source",
        "tool",
        MEDIUM,
        severity=INFO,
    )


def tuning(session: Session) -> Optional[Hit]:
    for end, host in session.hosts:
        wrong = [
            (name, want)
            for name, want in sorted(host.wanted.items())
            if name in host.sysctls and host.sysctls[name].split() != want.split()
        ]
        if wrong:
            facts = tuple(Fact(name, want, host.sysctls[name]) for name, want in wrong)
            names = ", ".join(name for name, _ in wrong[:3])
            text = f"not as tuning asked on the {end} host: {names}{' and more' if len(wrong) > 3 else ''}"
            advice = "neuca tune audit; a later file of /etc/sysctl.d or tuned may win; in a container, set it on the host"
            return Hit(0.4, text, facts, advice, end)
    return None


def drift(session: Session) -> Optional[Hit]:
    """Names, addresses, routes, marks, MTUs: what the agent would set now."""
    for end, host in session.hosts:
        if host.drift:
            more = f", and {len(host.drift) - 1} more" if len(host.drift) > 1 else ""
            return Hit(
                0.3,
                f"the {end} host is not as it was asked to be: {host.drift[0]}{more}",
                tuple(fact("neuca plan", text) for text in host.drift[:10]),
                "neuca status says why; neuca apply sets it right",
                end,
            )
    return None


def congestion(session: Session) -> Optional[Hit]:
    for end, host in session.hosts:
        wanted, available = host.wanted.get(CONGESTION), host.sysctls.get(AVAILABLE, "").split()
        if wanted and available and wanted not in available:
            return Hit(
                0.5,
                f'the {end} host has no congestion control "{wanted}": the kernel went on with '
                f'"{host.sysctls.get(CONGESTION, available[0])}"',
                (Fact(AVAILABLE, wanted, " ".join(available)),),
                f"modprobe tcp_{wanted}; echo tcp_{wanted} > /etc/modules-load.d/neuca.conf",
                end,
            )
    return None


def degraded(session: Session) -> Optional[Hit]:
    for end, host in session.hosts:
        for link in links_of(host):
            facts = []
            if link.speed and link.max_speed and link.speed < link.max_speed:
                facts.append(Fact(f"{link.name} speed, bit/s", link.max_speed, link.speed))
            if link.duplex == "half":
                facts.append(Fact(f"{link.name} duplex", "full", "half"))
            if link.pcie_speed and link.pcie_max_speed and link.pcie_speed != link.pcie_max_speed:
                facts.append(Fact(f"{link.name} PCIe", link.pcie_max_speed, link.pcie_speed))
            facts += _line_errors(session, link.name)
            if facts:
                return Hit(
                    0.7,
                    f"the link {link.name} of the {end} host is not what it could be: {facts[0].field} "
                    f"{facts[0].after}, not "
                    f"{facts[0].before}",
                    tuple(facts),
                    f"ethtool {link.name}; change cable, optic or slot",
                    end,
                )
    return None


def _line_errors(session: Session, device: str) -> list[Fact]:
    names = (f"{device}.rx_crc_errors", f"{device}.rx_frame_errors", f"{device}.carrier_changes")
    series = [
        samples for one in session.looks for samples in (one.phase.sender, one.phase.receiver)
    ]
    found = [delta(samples, name) for samples in series for name in names]
    return [one for one in found if one is not None and growth(one) > 0][:1]


def numa(session: Session) -> Optional[Hit]:
    for end, host in session.hosts:
        nodes = {
            link.numa_node
            for link in links_of(host)
            if link.numa_node is not None and link.numa_node >= 0
        }
        fast = any((link.speed or 0) > FAST for link in links_of(host))
        if fast and host.numa_node is not None and nodes and host.numa_node not in nodes:
            node = min(nodes)
            text = f"iperf3 ran on NUMA node {host.numa_node} of the {end} host, and the NIC is on node {node}"
            advice = f"numactl --cpunodebind={node} --membind={node} iperf3 …"
            return Hit(0.25, text, (Fact("NUMA node", node, host.numa_node),), advice, end, MEDIUM)
    return None


HOST = (
    PhaseRule("D09", "CPU full", LIMIT, cpu),
    PhaseRule("D10", "time stolen by the hypervisor", FAULT, steal),
    PhaseRule("D44", "clock trouble", INFO, clock),
)
HOST_SESSION = (
    SessionRule("D38", "congestion control missing", FAULT, congestion),
    SessionRule("D37", "tuning not in effect", FAULT, tuning),
    SessionRule("D46", "not as planned", FAULT, drift),
    SessionRule("D40", "link degraded", FAULT, degraded),
    SessionRule("D41", "wrong NUMA node", LIMIT, numa),
)
