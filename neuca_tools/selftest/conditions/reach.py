"""D16, D30 to D35, D42, D43, D45: neighbours, routes, filters, the other end's programs, connections and RDMA."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.base import (
    FAULT,
    LIMIT,
    MEDIUM,
    Hit,
    Session,
    SessionRule,
    fact,
    sysctl_max,
)
from neuca_tools.selftest.evidence import Broadcast
from neuca_tools.selftest.evidence.look import Fact, delta, growth

LOST_BROADCASTS = 0.01  # of all answers (D47)
NEARLY_FULL = 0.8  # of gc_thresh3 (D16)
OVERFLOW = re.compile(
    r"neighbou?r table overflow|neighbor: arp_cache: neighbor table overflow", re.IGNORECASE
)
FULL_QUEUES = (
    "TcpExt.ListenOverflows",
    "TcpExt.ListenDrops",
    "TcpExt.TCPReqQFullDrop",
    "TcpExt.TCPTimeWaitOverflow",
    "conntrack.insert_failed",
    "conntrack.drop",
)
LARGER_CONNTRACK = {"net.netfilter.nf_conntrack_max": "262144"}
LARGER_BACKLOG = {"net.core.somaxconn": "4096", "net.ipv4.tcp_max_syn_backlog": "4096"}
REFUSED = re.compile(r"connection refused", re.IGNORECASE)
BUSY = re.compile(r"server is busy", re.IGNORECASE)
NO_NEIGHBOUR = re.compile(r"no route to host|EHOSTUNREACH", re.IGNORECASE)
NO_ROUTE = re.compile(r"network is unreachable|ENETUNREACH", re.IGNORECASE)
TIMED_OUT = re.compile(r"timed? ?out", re.IGNORECASE)
OTHER_PROGRAM = re.compile(
    r"make sure other side|protocol|unknown control message|unable to receive (parameters|cookie)"
    r"|is not iperf3",
    re.IGNORECASE,
)


def errors(session: Session) -> str:
    return " | ".join(one.run.error for one in session.evidence.phases if one.run and one.run.error)


def neighbours(session: Session) -> Optional[Hit]:
    for end, host in session.hosts:
        told = next((line for line in host.log if OVERFLOW.search(line)), None)
        limit = sysctl_max(host, "net.ipv4.neigh.default.gc_thresh3")
        for look in session.looks:
            samples = (
                look.phase.sender
                if (look.phase.direction == "forward") is (end == "local")
                else look.phase.receiver
            )
            full = delta(samples, "arp_cache.table_fulls") or delta(
                samples, "ndisc_cache.table_fulls"
            )
            entries = max(
                (sample.counters.get("arp_cache.entries", 0) for sample in samples), default=0
            )
            if full is not None or (limit and entries > NEARLY_FULL * limit):
                return _too_many(
                    end, full or Fact("arp_cache.entries", limit, entries), growth(full), limit
                )
        if told is not None:
            return _too_many(end, fact("dmesg", told), 1, limit)
    return None


def _too_many(end: str, evidence: Fact, full: float, limit: Optional[int]) -> Hit:
    size = 4 * (limit or 1024)
    text = f"the {end} host's table of neighbours {'overflowed: packets vanish and nobody is told' if full else 'is nearly full'}"
    return Hit(
        0.9 if full else 0.3,
        text,
        (evidence,),
        "likewise for net.ipv6",
        end,
        sysctls={
            "net.ipv4.neigh.default.gc_thresh3": str(size),
            "net.ipv4.neigh.default.gc_thresh2": str(size // 2),
            "net.ipv4.neigh.default.gc_thresh1": str(size // 4),
        },
    )


def reverse_path(session: Session) -> Optional[Hit]:
    for look in session.looks:
        for end, samples in (("sender", look.phase.sender), ("receiver", look.phase.receiver)):
            dropped = delta(samples, "TcpExt.IPReversePathFilter")
            if dropped is not None and growth(dropped) > 0:
                share = 1.0 if session.evidence.reach.tcp == "timeout" or not look.rate else 0.5
                text = (
                    f"the {end}'s reverse-path filter dropped {growth(dropped):.0f} packets: they come in where no route "
                    "goes back"
                )
                advice = (
                    "sysctl -w net.ipv4.conf.DEV.rp_filter=2, or routes that go and come one way"
                )
                return Hit(share, text, (dropped,), advice, end)
    return None


def no_neighbour(session: Session) -> Optional[Hit]:
    reach = session.evidence.reach
    if (
        reach.neighbour in ("failed", "incomplete")
        or reach.tcp == "no-route"
        or NO_NEIGHBOUR.search(errors(session))
    ):
        text = "nobody answers for the peer's address on this network (ARP or ND)"
        advice = "ip neigh show PEER; check cable, VLAN, address and prefix of both ends, and MAC filters"
        return Hit(
            1.0,
            text,
            (fact("neighbour", reach.neighbour or errors(session) or "no route to host"),),
            advice,
            "path",
        )
    return None


def no_route(session: Session) -> Optional[Hit]:
    if session.evidence.reach.tcp == "unreachable" or NO_ROUTE.search(errors(session)):
        advice = "ip route get PEER; ip route add PREFIX via GATEWAY dev DEV"
        return Hit(
            1.0,
            "this host has no route to the peer",
            (fact("connect", "ENETUNREACH"),),
            advice,
            "sender",
        )
    return None


def filtered(session: Session) -> Optional[Hit]:
    reach, said = session.evidence.reach, errors(session)
    if reach.tcp == "refused" or REFUSED.search(said):
        return Hit(
            1.0,
            "the peer answers, and nothing listens on that port",
            (fact("connect", "ECONNREFUSED"),),
            "start the other end: iperf3 -s -1",
            "receiver",
        )
    if reach.tcp == "timeout" or TIMED_OUT.search(said):
        if reach.neighbour in ("failed", "incomplete"):
            return None
        known = "ping is answered, and " if reach.ping else ""
        return Hit(
            0.95,
            f"{known}a connection gets no answer at all: a firewall drops it, or the way back is another",
            (fact("connect", "timeout"), *((fact("ping", "answered"),) if reach.ping else ())),
            "open the port on the peer (nft list ruleset; iptables -S)",
            "receiver",
            "high" if reach.ping else MEDIUM,
        )
    return None


def busy(session: Session) -> Optional[Hit]:
    if session.evidence.reach.tcp == "busy" or BUSY.search(errors(session)):
        return Hit(
            1.0,
            "the peer's iperf3 is busy with somebody else's test, or with one that was never ended",
            (fact("iperf3", errors(session) or "busy"),),
            "try again later; a server for one test alone: iperf3 -s -1 --idle-timeout 20",
            "receiver",
        )
    return None


def other_program(session: Session) -> Optional[Hit]:
    if session.evidence.reach.wrong_peer:
        return Hit(
            1.0,
            "who answers at the peer's address is not the peer",
            (fact("identity", "differs"),),
            "check the address; look for a second host that has it (arping -D)",
            "path",
        )
    if OTHER_PROGRAM.search(errors(session)):
        return Hit(
            0.9,
            "the two ends do not speak the same protocol: iperf 2 on one side, or versions too far apart",
            (fact("iperf3", errors(session)),),
            "install the same iperf3 at both ends",
            "tool",
        )
    return None


def connection_rate(session: Session) -> Optional[Hit]:
    tested = session.evidence.connections
    if tested.no_address:
        return Hit(
            0.8,
            f"{tested.no_address} connections found no free port",
            (fact("EADDRNOTAVAIL", tested.no_address),),
            end="sender",
            sysctls={"net.ipv4.ip_local_port_range": "1024 65535"},
        )
    for look in session.looks:
        for end, samples in (("receiver", look.phase.receiver), ("sender", look.phase.sender)):
            found = [one for name in FULL_QUEUES if (one := delta(samples, name)) is not None]
            if found:
                conntrack = found[0].field.startswith("conntrack")
                return Hit(
                    0.6,
                    f"the {end} turned connections away: {found[0].field} grew",
                    tuple(found),
                    "" if conntrack else "restart the listener",
                    end,
                    sysctls=LARGER_CONNTRACK if conntrack else LARGER_BACKLOG,
                )
    return None


def duplicate(session: Session) -> Optional[Hit]:
    macs = session.evidence.reach.macs
    if len(set(macs)) < 2:
        return None
    return Hit(
        0.97,
        f"{len(set(macs))} MAC addresses answer for the peer's address",
        (fact("ARP answers", ", ".join(sorted(set(macs)))),),
        "arping -D -I DEV PEER; with two NICs of one host in a subnet: sysctl -w net.ipv4.conf.all.arp_ignore=1 "
        "net.ipv4.conf.all.arp_announce=2",
        "receiver",
    )


def broadcast_lost(tested: Broadcast) -> bool:
    """Whether somebody never answered, or not often enough."""
    lost = tested.times.lost or 0
    return (tested.answered or 0) < (tested.expected or 0) or lost > LOST_BROADCASTS * (
        tested.times.count or 0
    )


def broadcasts(session: Session) -> Optional[Hit]:
    tested = session.evidence.broadcast
    if not broadcast_lost(tested):
        return None
    part = (tested.times.lost or 0) / (tested.times.count or 1)
    missing = (tested.expected or 0) - (tested.answered or 0)
    told = (
        f"{missing} of {tested.expected} hosts never answered a broadcast"
        if missing > 0
        else f"{amounts.percent(part)} of the answers to broadcasts never came"
    )
    facts = [Fact("hosts that answered", tested.expected, tested.answered)] if missing > 0 else []
    facts.append(
        Fact("answers", tested.times.count, (tested.times.count or 0) - (tested.times.lost or 0))
    )
    advice = (
        "neuca-selftest --serve on each of them, with the same secret; sysctl -w net.core.netdev_max_backlog=10000 on the "
        "host of the bridge; fewer hosts in one network"
    )
    return Hit(part or 1.0, told, tuple(facts), advice, "path", MEDIUM)


def rdma(session: Session) -> Optional[Hit]:
    tested = session.evidence.rdma
    why = (
        tested.error
        or (
            f"port state {tested.state}"
            if tested.state and "ACTIVE" not in tested.state.upper()
            else None
        )
        or ("no GID for this network" if tested.device and tested.gid == "" else None)
    )
    if why is None:
        return None
    return Hit(
        0.5,
        f"RDMA over {tested.device or 'any device'} does not work: {why}",
        (fact("RDMA", why),),
        "ibv_devinfo; rdma link; choose the device and the GID of the NIC that has the route (-d, -g)",
        "path",
        MEDIUM,
    )


REACH_SESSION = (
    SessionRule("D34", "server busy", FAULT, busy),
    SessionRule("D35", "the other end is not what it should be", FAULT, other_program),
    SessionRule("D43", "duplicate address", FAULT, duplicate),
    SessionRule("D30", "reverse-path filter", FAULT, reverse_path),
    SessionRule("D32", "no route", FAULT, no_route),
    SessionRule("D31", "peer does not answer ARP or ND", FAULT, no_neighbour),
    SessionRule("D33", "port filtered or closed", FAULT, filtered),
    SessionRule("D16", "neighbour table overflow", FAULT, neighbours),
    SessionRule("D42", "connections turned away", LIMIT, connection_rate),
    SessionRule("D47", "broadcasts lost", FAULT, broadcasts),
    SessionRule("D45", "RDMA does not work", FAULT, rdma),
)
