"""D16, D30 to D33, D42, D43: whether the peer can be reached, and by which means."""

# SPDX-License-Identifier: MIT

import re
from itertools import chain
from typing import Optional

from neuca_tools.model.printable import counted
from neuca_tools.selftest.conditions.base import (
    Hit,
    Session,
    first_hit,
    known_facts,
    single_fact,
)
from neuca_tools.selftest.conditions.datagrams import DELIBERATE
from neuca_tools.selftest.conditions.messages import error_text, is_refused, message_hit
from neuca_tools.selftest.conditions.udp import expected_datagrams
from neuca_tools.selftest.evidence import Evidence, Host
from neuca_tools.selftest.evidence.look import Fact, counter_growth, growth_of_fact

# The kernel's neighbour tables, and the sysctls of each.
SYSCTLS_BY_TABLE = {"arp_cache": "net.ipv4.neigh.default", "ndisc_cache": "net.ipv6.neigh.default"}
OVERFLOW = re.compile("neighbou?r table overflow", re.IGNORECASE)
FULL_QUEUES = (
    "TcpExt.ListenOverflows",
    "TcpExt.ListenDrops",
    "TcpExt.TCPReqQFullDrop",
    "conntrack.insert_failed",
    "conntrack.drop",
)
LARGER_CONNTRACK = {"net.netfilter.nf_conntrack_max": "262144"}
LARGER_BACKLOG = {"net.core.somaxconn": "4096", "net.ipv4.tcp_max_syn_backlog": "4096"}
NO_NEIGHBOUR = re.compile(r"no route to host|EHOSTUNREACH", re.IGNORECASE)
# iperf3 has a control connection when it opens the streams; with UDP, it waits for a datagram.
NO_STREAM = re.compile(
    r"unable to (?:connect stream|read from stream socket): (?:connection (?:refused|timed out)"
    r"|no route to host|resource temporarily unavailable)",
    re.IGNORECASE,
)
# iperf3 3.9 does not say why it could not connect. Where a name does not resolve, no version does.
# The server of iperf 2 responds to the last datagram.
NOT_CONNECTED = re.compile(
    "send control message: Bad file descriptor|did not receive ack"
    "|unable to connect to server.*: Resource temporarily unavailable",
    re.IGNORECASE,
)
NO_ROUTE = re.compile(r"network is unreachable|ENETUNREACH", re.IGNORECASE)
# iperf 2 waits for a connection with select(2), and reports the connect(2) that it began.
TIMED_OUT = re.compile(r"timed? ?out|operation now in progress", re.IGNORECASE)
UNRESOLVED = ("failed", "incomplete")  # states of a neighbour that does not respond


def neighbour_overflow(session: Session) -> Optional[Hit]:
    """The neighbour table of a host overflowed.

    It is that of the family of the peer's address: the kernel has one table for each (arp(7)).
    Containers share these tables, so that an IPv6 network of other containers may fill one.
    """
    table = "ndisc_cache" if ":" in (session.evidence.address or "") else "arp_cache"
    return first_hit(_full_table(session, end, host, table) for end, host in session.hosts)


def _full_table(session: Session, end: str, host: Host, table: str) -> Optional[Hit]:
    samples = (look.samples_of(end) for look in session.looks)
    grown = (counter_growth(each, f"{table}.table_fulls") for each in samples)
    fact = next(filter(None, (*grown, _logged_overflow(host, table))), None)
    if fact is None:
        return None
    sysctls = SYSCTLS_BY_TABLE[table]
    size = 4 * (host.sysctl_max(f"{sysctls}.gc_thresh3") or 1024)
    return Hit(
        0.9,
        f"the neighbor table of the {end} host overflowed: packets are dropped without an error "
        "message",
        (fact,),
        f"likewise for {'net.ipv6' if table == 'arp_cache' else 'net.ipv4'}",
        end,
        sysctls={
            f"{sysctls}.gc_thresh3": str(size),
            f"{sysctls}.gc_thresh2": str(size // 2),
            f"{sysctls}.gc_thresh1": str(size // 4),
        },
    )


def _logged_overflow(host: Host, table: str) -> Optional[Fact]:
    """The kernel's message about this table; older kernels do not say which one they mean."""
    others = SYSCTLS_BY_TABLE.keys() - {table}
    rows = (row for row in host.log if not any(other in row for other in others))
    row = next(filter(OVERFLOW.search, rows), None)
    return None if row is None else single_fact("dmesg", row)


def reverse_path(session: Session) -> Optional[Hit]:
    for end, samples, _ in chain.from_iterable(look.ends for look in session.looks):
        dropped = counter_growth(samples, "TcpExt.IPReversePathFilter")
        if dropped is None:
            continue
        is_cut_off = session.evidence.reach.tcp == "timeout" or not session.tcp
        return Hit(
            1.0 if is_cut_off else 0.5,
            f"the {end}'s reverse-path filter dropped "
            f"{counted(round(growth_of_fact(dropped)), 'packet')}: they arrive on an interface "
            "that has no route back to their source",
            (dropped,),
            "make both directions use the same interface, or set rp_filter to 2 (loose) on the one "
            "where they arrive",
            end,
        )
    return None


def no_neighbour(session: Session) -> Optional[Hit]:
    reach = session.evidence.reach
    is_unresolved = reach.neighbour in UNRESOLVED or reach.tcp == "no-route"
    if not is_unresolved or is_rejected(session):
        return None
    who, address = "the peer's address on this network", session.other_end("local")
    if reach.gateway:
        who, address = f"{reach.gateway}, the gateway of the route to the peer", reach.gateway
    return Hit(
        1.0,
        f"no response to ARP or ND for {who}",
        (single_fact("neighbour", reach.neighbour or "no route to host"),),
        "check cable, VLAN, address and prefix on both hosts, and MAC filters; ip neigh show "
        f"{address}",
    )


def is_rejected(session: Session) -> bool:
    """Whether a firewall answers in the peer's place: "No route to host" of one that is there.

    iptables and firewalld reject with ICMP host-prohibited, which is EHOSTUNREACH as well as a
    neighbour that does not respond is. Of a text nothing else is known.
    """
    reach = session.evidence.reach
    if reach.neighbour in UNRESOLVED:
        return False
    if reach.tcp == "no-route":
        return reach.ping is True or reach.neighbour == "reachable"
    return bool(NO_NEIGHBOUR.search(error_text(session)))


def no_route(session: Session) -> Optional[Hit]:
    if session.evidence.reach.tcp != "unreachable" and not NO_ROUTE.search(error_text(session)):
        return None
    return Hit(
        1.0,
        "this host has no route to the peer",
        (single_fact("connect", "ENETUNREACH"),),
        f"check the routes (ip route get {session.other_end('local')}), and add the one that is "
        "missing",
        "sender",
    )


def closed_port(session: Session) -> Optional[Hit]:
    if session.evidence.reach.neighbour in UNRESOLVED:
        return None
    rules = (_no_stream, _refused, _rejected, _not_connected, _no_response, _udp_blocked)
    return first_hit(rule(session) for rule in rules)


def _no_stream(session: Session) -> Optional[Hit]:
    if any(look.rate for look in session.looks):
        return None
    return message_hit(
        session,
        NO_STREAM,
        "the server has accepted the control connection, but no stream: a firewall or a limit of "
        "connections rejects it, or UDP is dropped (iperf3 does not repeat its first datagram)",
        "nft list ruleset; iptables -S; try again, with fewer streams (-P)",
        "peer",
        "medium",
    )


def _refused(session: Session) -> Optional[Hit]:
    if not is_refused(session):
        return None
    return Hit(
        1.0,
        "the peer responds, but nothing listens on that port",
        (single_fact("connect", "ECONNREFUSED"),),
        _start_server(session),
        "peer",
    )


def _start_server(session: Session) -> str:
    """The commands for the port that the test uses."""
    port = session.evidence.reach.port
    if port is None:
        return "start the server: iperf3 -s (for iperf 2: iperf -s), with the -p of the client"
    ours = f"neuca-selftest serve --port {port} --secret-file /etc/neuca/selftest.secret"
    return f"{ours}, or iperf3 -s -p {port}"


def _rejected(session: Session) -> Optional[Hit]:
    if not is_rejected(session):
        return None
    reach = session.evidence.reach
    is_there = reach.ping or reach.neighbour == "reachable"
    doubt = "" if is_there else ", or the peer does not respond to ARP"
    return Hit(
        0.95,
        f"a firewall rejects the connection (No route to host){doubt}",
        (single_fact("connect", "EHOSTUNREACH"),),
        "open the port on the peer (firewall-cmd --list-all; nft list ruleset); ping tells whether "
        "it is there",
        "receiver",
        confidence="high" if is_there else "medium",
    )


def _not_connected(session: Session) -> Optional[Hit]:
    """Who offers more than DELIBERATE over UDP may have lost the response of iperf 2."""
    is_slow = all(look.known_rate <= DELIBERATE for look in session.looks)
    return message_hit(
        session,
        NOT_CONNECTED,
        "the server did not respond, and iperf does not say why: nothing listens on that port, a "
        "firewall drops the packets (iperf3 needs TCP for UDP too), the server is another iperf, "
        "or its name does not resolve",
        f"{_start_server(session)}; open that port; getent hosts shows what a name means",
        "receiver",
        "medium" if is_slow else "low",
    )


def _no_response(session: Session) -> Optional[Hit]:
    """Nothing responds to iperf or, where no test of it worked, to the helper's port."""
    reach = session.evidence.reach
    is_filtered = reach.tcp == "timeout" and not any(look.rate for look in session.looks)
    if not is_filtered and not TIMED_OUT.search(error_text(session)):
        return None
    connect = single_fact("connect", "timeout")
    if reach.ping is False and reach.macs:
        return Hit(
            0.95,
            "the peer responds to ARP, but neither to ping nor to a connection: it has no way back "
            "(its prefix or its routes are wrong), or it drops everything",
            (single_fact("ARP", "answered"), single_fact("ping", "no response"), connect),
            f"ip route get {session.other_end('peer')}; ip address; nft list ruleset",
            "peer",
            confidence="medium",
        )
    but = "ping gets responses, but " if reach.ping else ""
    ports = f"ports {reach.port} to {reach.port + 2}" if reach.port else "port"
    return Hit(
        0.95,
        f"{but}a connection gets no response: a firewall drops it, or packets return another way",
        (connect,),
        f"open the {ports} on the peer (nft list ruleset; iptables -S)",
        "receiver",
        confidence="high" if reach.ping else "medium",
    )


def _udp_blocked(session: Session) -> Optional[Hit]:
    """No datagram gets through while TCP does: that of the helper, or iperf3's own connection."""
    count, is_sure = session.evidence.idle.count, is_udp_blocked(session.evidence)
    what = "to the helper got a response, while TCP works: a firewall drops UDP"
    if not is_sure:
        tests = [look.flow for look in session.looks if look.protocol == "udp"]
        if not tests or not all(flow.is_lost for flow in tests):
            return None
        count = sum(map(expected_datagrams, tests))
        what = "arrived, while TCP works: a firewall drops UDP, or the fragments of large ones"
    return Hit(
        0.95,
        f"none of {count} datagrams {what}",
        (Fact("datagrams that got through", count, 0),),
        "open the port for UDP too (nft list ruleset; iptables -S; security groups)",
        "both",
        confidence="high" if is_sure else "medium",
    )


def is_udp_blocked(evidence: Evidence) -> bool:
    """Whether the helper answers over TCP, and to no datagram."""
    idle = evidence.idle
    return bool(idle.count) and idle.lost == idle.count and evidence.idle_tcp.p50 is not None


def connection_rate(session: Session) -> Optional[Hit]:
    for end, samples, _ in chain.from_iterable(look.ends for look in session.looks):
        counters = known_facts(counter_growth(samples, name) for name in FULL_QUEUES)
        if not counters:
            continue
        advice, sysctls = "restart the listener", LARGER_BACKLOG
        if counters[0].field.startswith("conntrack"):
            advice, sysctls = "", LARGER_CONNTRACK
        return Hit(
            0.6,
            f"the {end} rejected connections: {counters[0].field} grew",
            counters,
            advice,
            end,
            sysctls=sysctls,
        )
    return None


def duplicate_address(session: Session) -> Optional[Hit]:
    macs = sorted(set(session.evidence.reach.macs))
    if len(macs) < 2:
        return None
    device = session.evidence.local.planned or session.evidence.reach.route
    option = f"-I {device} " if device else ""
    return Hit(
        0.97,
        f"{len(macs)} MAC addresses respond for the peer's address",
        (single_fact("ARP answers", ", ".join(macs)),),
        f"arping -D {option}{session.other_end('local')} shows both; give one of the "
        "hosts another address, or, if one host has two NICs in a subnet, set arp_ignore=1 and "
        "arp_announce=2 of net.ipv4.conf.all on it",
        "receiver",
    )
