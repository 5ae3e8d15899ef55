"""One row for each condition: the rule of the cause, and where it comes from.

docs/HACKING.md lists what a new one consists of. A rule asks for what it needs, and is silent where
that is not known; for what iperf alone counted see `Look.is_unsampled`.
"""

# SPDX-License-Identifier: MIT

from collections.abc import Collection, Iterator
from typing import NamedTuple, Optional

from neuca_tools.selftest.conditions import (
    application,
    capacity,
    compare,
    cpu,
    datagrams,
    host,
    messages,
    overflow,
    path,
    policer,
    queues,
    reach,
    udp,
    window,
)
from neuca_tools.selftest.conditions.base import Cause, Hit, Session
from neuca_tools.selftest.conditions.queues import BLOAT, DROPS
from neuca_tools.selftest.conditions.thresholds import BIDIRECTIONAL, PARALLEL
from neuca_tools.selftest.conditions.udp import OVERLOADED
from neuca_tools.selftest.evidence.look import Look

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
    "D42": "ListenOverflows; nf_conntrack of the kernel",
    "D43": "RFC 5227",
    "D46": "neuca plan",
    "D47": "iperf_strerror() of iperf3; strerror(3)",
}
"""Where each rule and its thresholds come from."""
CAUSES: tuple[Cause, ...] = (
    Cause("D01", "receive window too small", "limit", window.full_window),
    Cause("D02", "receiving application too slow", "fault", application.slow_reader),
    Cause("D03", "send buffer too small", "limit", application.sender_buffer),
    Cause("D04", "sending application has nothing to send", "limit", application.nothing_to_send),
    Cause("D05", "limited by loss", "limit", overflow.loss_limited),
    Cause("D06", "smaller packets than the path allows", "limit", of_session=path.wasted_mtu),
    Cause("D07", "UDP receive buffer overflow", "fault", udp.receive_buffer),
    Cause("D09", "CPU full", "limit", cpu.limited_by_cpu),
    Cause("D10", "time stolen by the hypervisor", "fault", cpu.stolen_time),
    Cause("D11", "NIC ring overflow", "fault", queues.nic_ring),
    Cause("D13", "backlog drops", "fault", queues.backlog_drops),
    Cause("D14", DROPS, "fault", queues.queue_drops_or_delay),
    Cause("D15", "fragments lost", "fault", udp.lost_fragments),
    Cause("D16", "neighbor table overflow", "fault", of_session=reach.neighbour_overflow),
    Cause("D17", "policed", "limit", policer.dropped_in_bursts, policer.policed_path),
    Cause("D18", "path capacity reached", "limit", capacity.capacity_of_path),
    Cause("D19", "random loss", "fault", of_session=datagrams.random_loss),
    Cause("D20", "sender cannot offer the UDP rate", "limit", udp.sender_too_slow),
    Cause("D21", "path MTU black hole", "fault", of_session=path.black_hole),
    Cause("D23", "inconsistent MTUs", "fault", of_session=path.differing_mtus),
    Cause("D24", "overlay without offload", "limit", of_session=path.overlay_tax),
    Cause("D25", "userspace overlay", "limit", of_session=path.userspace_overlay),
    Cause("D26", "one stream slower than several", "limit", of_session=compare.per_flow),
    Cause("D27", "the two directions differ", "limit", of_session=compare.asymmetric_directions),
    Cause("D28", "slow in both directions at once", "limit", of_session=compare.slow_together),
    Cause("D29", "wrong interface or route", "fault", of_session=host.wrong_way),
    Cause("D30", "reverse-path filter", "fault", of_session=reach.reverse_path),
    Cause("D31", "no response to ARP or ND", "fault", of_session=reach.no_neighbour),
    Cause("D32", "no route", "fault", of_session=reach.no_route),
    Cause("D33", "port filtered or closed", "fault", of_session=reach.closed_port),
    Cause("D34", "server busy", "fault", of_session=messages.server_busy),
    Cause("D35", "different secret or program", "fault", of_session=messages.other_program),
    Cause("D36", "buffers not applied", "fault", of_session=host.refused_buffers),
    Cause("D37", "tuning not in effect", "fault", of_session=host.tuning_not_in_effect),
    Cause("D38", "congestion control missing", "fault", of_session=host.no_congestion_control),
    Cause("D39", "reordering", "fault", queues.reordered_packets),
    Cause("D40", "link degraded", "fault", of_session=host.degraded_link),
    Cause("D41", "wrong NUMA node", "limit", of_session=host.wrong_numa_node),
    Cause("D42", "connections rejected", "limit", of_session=reach.connection_rate),
    Cause("D43", "duplicate address", "fault", of_session=reach.duplicate_address),
    Cause("D46", "not as planned", "fault", of_session=host.drifted_host),
    Cause("D47", "iperf failed", "fault", of_session=messages.failed_run),
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


# --- What explains what, each with the reason -----------------------------------------------------


ASYMMETRIC = "D27"
ALONE = "tcp"  # the phase of one stream in one direction


class Explanation(NamedTuple):
    """Any of `causes` explains any of `symptoms`, for this reason; if named, in `phases` only."""

    symptoms: tuple[str, ...]
    causes: tuple[str, ...]
    reason: str
    phases: tuple[str, ...] = ()


EXPLANATIONS = (
    Explanation(
        ("D05",),
        ("D11", "D13", "D14", "D17", "D18", "D19"),
        "it says where the segments were lost that TCP sent again",
    ),
    Explanation(
        ("D05", "D17"),
        ("D39", "D40"),
        "packets that overtake others look lost, and a link that is down loses all",
    ),
    Explanation(
        ("D04", "D05", "D17", "D42", messages.LOST),
        ("D21",),
        "full-size segments vanish without a queue, however often, and nothing else is in flight",
    ),
    Explanation((messages.LOST,), ("D33",), "iperf gives up when nothing gets through"),
    Explanation((OVERLOADED,), ("D15", "D17", "D18", "D19", "D39"), "it says which of them it is"),
    Explanation(
        ("D18",),
        ("D39",),
        "round trips of packets that overtake others vary like a queue",
        (ALONE, PARALLEL, BIDIRECTIONAL),
    ),
    Explanation(
        ("D26", "D27", "D28"),
        ("D01", "D02", "D03", "D09", "D11", "D13", DROPS, "D17", "D19", "D21", "D29", "D39"),
        "what holds one stream back makes it slower than several, or than the other direction",
    ),
    Explanation(("D20",), ("D09",), "a CPU that is full offers no more datagrams"),
    Explanation(("D09",), ("D06", "D24"), "small packets take more CPU time for each byte"),
    Explanation(
        ("D18",), ("D21", "D27"), "what the other direction exceeds is not the capacity of the path"
    ),
    Explanation(
        ("D18", BLOAT),
        ("D26",),
        "what several streams exceed is not the capacity of the path, nor its queue",
        (ALONE,),
    ),
    Explanation(
        ("D29", "D33", "D35"),
        ("D43",),
        "the other host with this address responds, refuses, or has a different secret",
    ),
    Explanation(("D33",), ("D16", "D30"), "a response that is dropped looks like a filter"),
    Explanation(
        ("D04", "D05", "D14", "D18"),
        ("D28",),
        "in this phase both directions share what each had alone",
        (BIDIRECTIONAL,),
    ),
)
# Conditions from which acknowledgements suffer as well: a cause in both directions.
BOTH_WAYS = frozenset({"D39"})
# Two conditions that the same evidence may allow, and the test that tells which it is.
DOUBTS = {
    frozenset({"D09", "D18"}): (
        "several streams (--only tcp,tcp-parallel): more in total means the CPU, the same the path"
    ),
    frozenset({"D05", "D17"}): (
        "UDP (--only udp --rate): nothing lost up to some rate means a policer, loss at a tenth of "
        "it the path"
    ),
    frozenset({"D17", "D18"}): (
        "the round trip under load (--only latency,loaded): it grows before a shaper, not before a "
        "policer"
    ),
    frozenset({"D18", "D19"}): (
        "UDP at a tenth of this rate (--only udp --rate): loss that stays is at random, else the "
        "path is slower"
    ),
}
BUSY, NOTHING_SENT, FAILED = "D34", "D29", "D47"
UNREACHABLE = frozenset({"D16", "D30", "D31", "D32", "D33"})
"""Why nothing was measured, if nothing was."""
NOT_AS_PLANNED = frozenset({"D37", "D38", "D46"})
"""Faults of the host's own configuration: they come before a rate that is below the threshold."""
UNFINISHED = frozenset({"D21", "D30", "D31", "D32", "D33", "D34", "D35", "D43", "D47"})
"""Why a test did not end, or did not run with the host it was meant for."""


def causes_of(symptom: str) -> frozenset[str]:
    """Every condition that explains this one in any phase."""
    rows = [row for row in EXPLANATIONS if symptom in row.symptoms and not row.phases]
    return frozenset(cause for row in rows for cause in row.causes)


def tell_apart(condition: str, other: str) -> Optional[str]:
    """The test that tells one condition from the other; None if both may be true at once."""
    test = DOUBTS.get(frozenset({condition, other}))
    return None if test is None else f"{condition} or {other}: {test}"


def is_explained(names: Collection[str], phase: Optional[str], met: Collection[str]) -> bool:
    """Whether a finding with these names (its id, its title) has its cause among those `met`.

    A cause within one phase explains nothing there if it is a symptom itself.
    """
    for row in EXPLANATIONS:
        if (row.phases and phase not in row.phases) or not set(row.symptoms) & set(names):
            continue
        causes = set(row.causes) & set(met)
        if row.phases:
            causes = {cause for cause in causes if not causes_of(cause) & set(met)}
        if causes:
            return True
    return False
