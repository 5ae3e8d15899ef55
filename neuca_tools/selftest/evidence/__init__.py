"""What a self-test saw at both ends: the shape that the running half fills, and all that the diagnosis looks at.

Everything may be absent: None, an empty tuple or a missing key is "not known", never zero. Sizes are bytes, rates bit/s, times
seconds; only the fields of TCP_INFO keep the kernel's units (microseconds, segments), for they are quoted as evidence.

Counters are kept under the kernel's own names, so that a finding can quote them:

Udp.RcvbufErrors, Ip.ReasmFails, TcpExt.TCPToZeroWindowAdv   /proc/net/snmp and /proc/net/netstat
softnet.processed, softnet.dropped, softnet.time_squeeze     /proc/net/softnet_stat, all CPUs together (softnet.3.dropped: CPU 3)
arp_cache.table_fulls, arp_cache.entries, ndisc_cache.…      /proc/net/stat/arp_cache and ndisc_cache
conntrack.insert_failed, conntrack.drop                      /proc/net/stat/nf_conntrack
eth1.rx_bytes, eth1.rx_missed_errors                         /sys/class/net/eth1/statistics
eth1.ethtool.rx_no_buffer_count                              ethtool -S eth1
eth1.qdisc.drops, eth1.qdisc.backlog, eth1.qdisc.requeues    tc -s qdisc, all of the device's together
rxe0.retry_exceeded                                          /sys/class/infiniband/rxe0/ports/1/hw_counters
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Optional

from neuca_tools.selftest.evidence.run import Run

VERSION = 1
NOT_ASKED = "not asked for"  # why a step is skipped that nobody wanted


@dataclass(frozen=True)
class Socket:
    """TCP_INFO of one socket at one time (tcp(7), linux/tcp.h), with its memory as `ss -m` shows it."""

    local_port: Optional[int] = None
    remote_port: Optional[int] = None
    mss: Optional[int] = None
    pmtu: Optional[int] = None
    snd_cwnd: Optional[int] = None  # segments
    snd_wnd: Optional[int] = None
    unacked: Optional[int] = None  # segments
    rtt: Optional[int] = None  # µs
    min_rtt: Optional[int] = None  # µs
    busy_time: Optional[int] = None  # µs, these three: the sender's chronographs
    rwnd_limited: Optional[int] = None
    sndbuf_limited: Optional[int] = None
    bytes_sent: Optional[int] = None
    bytes_retrans: Optional[int] = None
    bytes_acked: Optional[int] = None
    bytes_received: Optional[int] = None
    delivery_rate: Optional[int] = None  # bytes/s
    app_limited: Optional[bool] = None
    backoff: Optional[int] = None
    reord_seen: Optional[int] = None
    dsack_dups: Optional[int] = None
    recv_q: Optional[int] = None
    rcvbuf: Optional[int] = None  # rb of ss -m
    wmem_queued: Optional[int] = None  # w
    sndbuf: Optional[int] = None  # tb
    congestion: Optional[str] = None


@dataclass(frozen=True)
class Cpu:
    """Seconds that one CPU spent since boot (/proc/stat): `user` with nice, `system` with irq."""

    user: float = 0.0
    system: float = 0.0
    softirq: float = 0.0
    idle: float = 0.0  # with iowait
    steal: float = 0.0


@dataclass(frozen=True)
class Sample:
    """One look at one end. `time` is monotonic, of that end's own clock."""

    time: float
    sockets: tuple[Socket, ...] = ()
    cpus: tuple[Cpu, ...] = ()
    counters: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Phase:
    """One test: its name ("tcp", "tcp-parallel", "udp" …), iperf's own words, and the samples of both ends."""

    name: str
    run: Optional[Run] = None
    direction: str = "forward"  # "forward": the host that is `local` sends
    target: Optional[float] = None  # the rate that was asked for, where the run does not say
    sender: tuple[Sample, ...] = ()
    receiver: tuple[Sample, ...] = ()
    raw: Optional[str] = None  # what iperf wrote, as it was
    path: Optional[str] = None  # "overlay" or "underlay", where both were measured
    search: bool = (
        False  # one of several tries at what the path takes: that it takes less is no shortfall
    )


@dataclass(frozen=True)
class Link:
    """One network device: its facts from netlink, sysfs and ethtool."""

    name: str
    kind: Optional[str] = None  # physical, vlan, vxlan, bridge, veth, macvlan, tun …
    parent: Optional[str] = None
    mtu: Optional[int] = None
    max_mtu: Optional[int] = None
    speed: Optional[float] = None
    max_speed: Optional[float] = None
    duplex: Optional[str] = None
    qdisc: Optional[str] = None
    txqueuelen: Optional[int] = None
    numa_node: Optional[int] = None
    offloads: Mapping[str, bool] = field(default_factory=dict)  # ethtool -k
    rings: Mapping[str, int] = field(default_factory=dict)  # rx, rx_max, tx, tx_max
    pcie_speed: Optional[str] = None
    pcie_max_speed: Optional[str] = None
    owner_cpu: Optional[float] = None  # of a tun device: the share of a CPU that its process takes
    mac: Optional[str] = None
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True)
class Host:
    """One end: what does not change during a test."""

    name: Optional[str] = None
    kernel: Optional[str] = None
    iperf3: Optional[str] = None
    memory: Optional[int] = None
    sysctls: Mapping[str, str] = field(default_factory=dict)
    wanted: Mapping[str, str] = field(default_factory=dict)  # sysctls that tuning has asked for
    links: tuple[Link, ...] = ()
    path: tuple[
        str, ...
    ] = ()  # names of the devices on the way to the peer, the one with the address first
    planned: Optional[str] = None  # the device that traffic to the peer should use
    route_mtu: Optional[int] = None  # that the kernel learned for the peer (ip route get)
    numa_node: Optional[int] = None  # of the CPU that iperf3 ran on
    log: tuple[str, ...] = ()  # kernel messages during the test
    drift: tuple[
        str, ...
    ] = ()  # what a pass of the agent would do now: the host is not as it was asked to be


@dataclass(frozen=True)
class Latency:
    """Round-trip times of requests and responses; `lost` of `count` came never."""

    count: Optional[int] = None
    lost: Optional[int] = None
    p50: Optional[float] = None
    p99: Optional[float] = None
    maximum: Optional[float] = None


@dataclass(frozen=True)
class Reach:
    """Whether the peer can be reached at all: each step's own word for what happened."""

    neighbour: Optional[str] = None  # reachable, incomplete, failed
    macs: tuple[str, ...] = ()  # every MAC that answered for the peer's address
    ping: Optional[bool] = None
    tcp: Optional[str] = None  # connected, refused, timeout, no-route, unreachable, busy
    wrong_peer: Optional[bool] = None  # who answered has not the other end's secret or identity
    route: Optional[str] = None  # the device that the route to the peer leaves through


@dataclass(frozen=True)
class PathMtu:
    """The largest packet that the other end acknowledged with DF set, one way; `told`: an ICMP message said so."""

    forward: Optional[int] = None
    backward: Optional[int] = None
    told: Optional[bool] = None


@dataclass(frozen=True)
class Connections:
    """The connection-rate test."""

    rate: Optional[float] = None  # connections/s
    failed: Optional[int] = None
    no_address: Optional[int] = None  # of them: EADDRNOTAVAIL


@dataclass(frozen=True)
class Broadcast:
    """Requests to everybody: how many hosts should answer, how many did at least once, and the round trips of all answers."""

    expected: Optional[int] = None
    answered: Optional[int] = None
    times: Latency = Latency()


@dataclass(frozen=True)
class Rdma:
    """The RDMA test: the device whose network device has the route to the peer."""

    device: Optional[str] = None
    state: Optional[str] = None
    gid: Optional[str] = None
    rate: Optional[float] = None
    round_trip: Optional[float] = None
    error: Optional[str] = None


@dataclass(frozen=True)
class Step:
    """One phase of the self-test with its own verdict, for people: pass, fail, skipped, unknown; search: a try."""

    name: str
    verdict: str
    text: str = ""


@dataclass(frozen=True)
class Evidence:
    """A whole self-test, or what is known of somebody else's run."""

    local: Host = Host()
    peer: Host = Host()
    phases: tuple[Phase, ...] = ()
    expect: Optional[float] = None
    rtt: Optional[float] = None  # of the idle path, where it is known from elsewhere
    reach: Reach = Reach()
    idle: Latency = Latency()
    idle_tcp: Latency = Latency()
    loaded: Latency = Latency()
    path_mtu: PathMtu = PathMtu()
    connections: Connections = Connections()
    broadcast: Broadcast = Broadcast()
    rdma: Rdma = Rdma()
    steps: tuple[Step, ...] = ()
    address: Optional[str] = None  # of the peer
    boot: Optional[str] = None  # the kernel's identity of the boot in which this was measured
    label: Optional[str] = None
    taken: Optional[str] = None  # ISO 8601
    version: int = VERSION
