"""One row for each condition: the rule of the cause, and where it comes from.

To add one, write a rule in the module where it belongs, a row here with its source, a line in the
manual page, and a test. A rule asks for what it needs, and is silent where that is not known; for
what iperf alone counted see `Look.is_unsampled`.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator

from neuca_tools.selftest.conditions import (
    application,
    capacity,
    compare,
    cpu,
    datagrams,
    host,
    overflow,
    path,
    policer,
    queues,
    reach,
    udp,
    window,
)
from neuca_tools.selftest.conditions.base import FAULT, LIMIT, Cause, Hit, Session
from neuca_tools.selftest.conditions.causes import DROPS
from neuca_tools.selftest.evidence.look import Look

__all__ = ["CAUSES", "SOURCES", "hits_of_phase", "hits_of_session"]

SOURCES = {
    "D01": "rwnd_limited of tcp(7); RFC 7323; tcp_rmem",
    "D02": "TCPToZeroWindowAdv; RFC 9293, section 3.8.6",
    "D03": "sndbuf_limited of tcp(7); tcp_wmem",
    "D04": "busy_time of tcp(7); esnet/iperf issues 439, 1052",
    "D05": "Mathis et al. 1997; RFC 9438, section 5.1",
    "D06": "fasterdata.es.net, jumbo frames",
    "D07": "UdpRcvbufErrors and UdpMemErrors of nstat(8); udp(7)",
    "D09": "/proc/stat; getrusage(2); fasterdata.es.net, 100G tuning",
    "D10": "steal of proc(5)",
    "D11": "ethtool(8), -S and -g",
    "D13": "dropped of softnet_stat",
    "D14": "tc(8), -s qdisc; RFC 7567; RFC 9406, section 4.2",
    "D15": "IpReasmFails; RFC 8900",
    "D16": "gc_thresh3 of arp(7)",
    "D17": "Flach et al., An Internet-Wide Analysis of Traffic Policing, 2016",
    "D18": "Ethernet framing; tc-tbf(8); RFC 9406; Cardwell et al., BBR, 2016",
    "D19": "RFC 2330, section 11; Poisson dispersion",
    "D20": "iperf3(1), -b",
    "D21": "RFC 2923; RFC 4821; RFC 6298",
    "D23": "RFC 7348, section 4.3; RFC 4821; RFC 1191",
    "D24": "segmentation-offloads of the kernel; measured, VXLAN with and without offloads",
    "D25": "tuntap of the kernel",
    "D26": "measured, 1, 2 and 4 streams at 100 ms",
    "D27": "measured, 48 of 1090 Mbit/s back through the management NIC",
    "D28": "Zhang, Shenker and Clark, SIGCOMM 1991",
    "D29": "ip-route(8)",
    "D30": "rp_filter of ip-sysctl; IPReversePathFilter",
    "D31": "RFC 826; RFC 4861; arp(7)",
    "D32": "ENETUNREACH of ip(7)",
    "D33": "ECONNREFUSED of tcp(7); RFC 1812, section 5.2.7.1",
    "D34": "iperf3's messages",
    "D35": "iperf3's messages; the helper's handshake",
    "D36": "SO_SNDBUF of socket(7); iperf3's messages",
    "D37": "sysctl(8)",
    "D38": "TCP_CONGESTION of tcp(7); iperf3's messages",
    "D39": "RFC 4737; TCPSACKReorder",
    "D40": "ethtool(8); IEEE 802.3",
    "D41": "numactl(8)",
    "D42": "ListenOverflows; nf_conntrack of the kernel; ip_local_port_range",
    "D43": "RFC 5227",
    "D46": "neuca plan",
}
"""Where each rule and its thresholds come from."""
CAUSES: tuple[Cause, ...] = (
    Cause("D01", "receive window too small", LIMIT, window.full_window),
    Cause("D02", "receiving application too slow", FAULT, application.slow_reader),
    Cause("D03", "send buffer too small", LIMIT, application.sender_buffer),
    Cause("D04", "sending application has nothing to send", LIMIT, application.idle_application),
    Cause("D05", "limited by loss", LIMIT, overflow.loss_limited),
    Cause("D06", "smaller packets than the path allows", LIMIT, of_session=path.wasted_mtu),
    Cause("D07", "UDP receive buffer overflow", FAULT, udp.receive_buffer),
    Cause("D09", "CPU full", LIMIT, cpu.limited_by_cpu),
    Cause("D10", "time stolen by the hypervisor", FAULT, cpu.stolen_time),
    Cause("D11", "NIC ring overflow", FAULT, queues.nic_ring),
    Cause("D13", "backlog drops", FAULT, queues.backlog_drops),
    Cause("D14", DROPS, FAULT, queues.queue_drops_or_delay),
    Cause("D15", "fragments lost", FAULT, udp.lost_fragments),
    Cause("D16", "neighbour table overflow", FAULT, of_session=reach.neighbour_overflow),
    Cause("D17", "policed", LIMIT, policer.dropped_in_bursts, policer.policed_path),
    Cause("D18", "path capacity reached", LIMIT, capacity.capacity_of_path),
    Cause("D19", "random loss", FAULT, of_session=datagrams.random_loss),
    Cause("D20", "sender cannot offer the UDP rate", LIMIT, udp.sender_too_slow),
    Cause("D21", "path MTU black hole", FAULT, of_session=path.black_hole),
    Cause("D23", "inconsistent MTUs", FAULT, of_session=path.differing_mtus),
    Cause("D24", "overlay without offload", LIMIT, of_session=path.overlay_tax),
    Cause("D25", "userspace overlay", LIMIT, of_session=path.userspace_overlay),
    Cause("D26", "one stream slower than several", LIMIT, of_session=compare.per_flow),
    Cause("D27", "the two directions differ", LIMIT, of_session=compare.asymmetric_directions),
    Cause("D28", "slow in both directions at once", LIMIT, of_session=compare.slow_together),
    Cause("D29", "wrong interface or route", FAULT, of_session=host.wrong_way),
    Cause("D30", "reverse-path filter", FAULT, of_session=reach.reverse_path),
    Cause("D31", "no response to ARP or ND", FAULT, of_session=reach.no_neighbour),
    Cause("D32", "no route", FAULT, of_session=reach.no_route),
    Cause("D33", "port filtered or closed", FAULT, of_session=reach.closed_port),
    Cause("D34", "server busy", FAULT, of_session=host.server_busy),
    Cause("D35", "another secret or program", FAULT, of_session=host.other_program),
    Cause("D36", "buffers not applied", FAULT, of_session=host.refused_buffers),
    Cause("D37", "tuning not in effect", FAULT, of_session=host.tuning_not_in_effect),
    Cause("D38", "congestion control missing", FAULT, of_session=host.no_congestion_control),
    Cause("D39", "reordering", FAULT, queues.reordered_packets),
    Cause("D40", "link degraded", FAULT, of_session=host.degraded_link),
    Cause("D41", "wrong NUMA node", LIMIT, of_session=host.wrong_numa_node),
    Cause("D42", "connections rejected", LIMIT, of_session=reach.connection_rate),
    Cause("D43", "duplicate address", FAULT, of_session=reach.duplicate_address),
    Cause("D46", "not as planned", FAULT, of_session=host.drifted_host),
)


def hits_of_phase(look: Look) -> Iterator[tuple[Cause, Hit]]:
    """What applies to one phase."""
    for cause in CAUSES:
        hit = cause.of_phase(look) if cause.of_phase else None
        if hit is not None:
            yield cause, hit


def hits_of_session(session: Session) -> Iterator[tuple[Cause, Hit]]:
    """What applies to all phases together, to the hosts, or to the path."""
    for cause in CAUSES:
        hit = cause.of_session(session) if cause.of_session else None
        if hit is not None:
            yield cause, hit
