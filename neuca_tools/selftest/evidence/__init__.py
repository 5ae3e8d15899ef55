"""What a self-test observed on both hosts, filled in by `measure`: the diagnosis uses nothing else.

Anything may be absent: None, an empty tuple or a missing key means "not known", never zero. Sizes
are in bytes, rates in bit/s, times in seconds. Only the fields of TCP_INFO keep the kernel's units
(microseconds, segments), because findings quote them.

Counters have the kernel's own names, so that a finding can quote them:

Udp.RcvbufErrors, Ip.ReasmFails            /proc/net/snmp
TcpExt.TCPToZeroWindowAdv                  /proc/net/netstat
softnet.dropped                            /proc/net/softnet_stat, all CPUs together
arp_cache.table_fulls, ndisc_cache.entries /proc/net/stat/arp_cache, ndisc_cache
conntrack.insert_failed, conntrack.drop    /proc/net/stat/nf_conntrack
eth1.rx_bytes, eth1.rx_missed_errors       /sys/class/net/eth1/statistics
eth1.qdisc.drops                           tc -s qdisc, all qdiscs of the device together
"""

# SPDX-License-Identifier: MIT

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Optional

from neuca_tools.selftest.evidence.route import NO_ROUTE, OneWay, Route
from neuca_tools.selftest.evidence.run import Direction, Flow, Run

VERSION = 1
# The text of a step that was skipped because it was not requested.
NOT_ASKED = "not requested"
WITHOUT_SPEED = frozenset({"veth", "tun", "tap", "bridge", "vxlan", "geneve", "macvlan", "ipvlan"})


@dataclass(frozen=True)
class Socket:
    """TCP_INFO of one socket at one time (tcp(7), linux/tcp.h), with its memory (`ss -m`)."""

    local_port: Optional[int] = None
    remote_port: Optional[int] = None
    mss: Optional[int] = None
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
    app_limited: Optional[bool] = None
    backoff: Optional[int] = None
    recv_q: Optional[int] = None
    rcvbuf: Optional[int] = None  # rb of ss -m
    wmem_queued: Optional[int] = None  # w
    sndbuf: Optional[int] = None  # tb
    congestion: Optional[str] = None
    total_retrans: Optional[int] = None  # segments

    @property
    def cwnd(self) -> Optional[float]:
        """The congestion window in bytes."""
        return self._bytes(self.snd_cwnd)

    @property
    def in_flight(self) -> Optional[float]:
        """The bytes that were sent and not acknowledged."""
        return self._bytes(self.unacked)

    def _bytes(self, segments: Optional[int]) -> Optional[float]:
        if segments is None or self.mss is None:
            return None
        return float(segments * self.mss)


@dataclass(frozen=True)
class Cpu:
    """Seconds that one CPU has spent since boot (/proc/stat).

    `user` includes nice, `system` irq, and `idle` iowait.
    """

    user: float = 0.0
    system: float = 0.0
    softirq: float = 0.0
    idle: float = 0.0
    steal: float = 0.0


@dataclass(frozen=True)
class Sample:
    """The state of one end at one time, in seconds of its own monotonic clock."""

    time: float
    sockets: tuple[Socket, ...] = ()
    cpus: tuple[Cpu, ...] = ()
    counters: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Phase:
    """One test ("tcp", "tcp-parallel", "udp" …): what iperf reported, and samples of both hosts.

    In direction "forward" the host that is `local` sends. `target` is the requested rate in bit/s,
    where `run` does not have it; `raw` is iperf's unchanged output. `path` is "overlay" or
    "underlay" if both were measured. With `search` the phase is one of several attempts to find
    what the path can carry, so that a low rate is not a failure.
    """

    name: str
    run: Optional[Run] = None
    direction: Direction = "forward"
    target: Optional[float] = None
    sender: tuple[Sample, ...] = ()
    receiver: tuple[Sample, ...] = ()
    raw: Optional[str] = None
    path: Optional[str] = None
    search: bool = False

    @cached_property
    def flow(self) -> Optional[Flow]:
        """The direction of iperf's run that this phase is about."""
        if self.run is None:
            return None
        return self.run.flow(self.direction) or next(iter(self.run.flows), None)


@dataclass(frozen=True)
class Link:
    """One network device, from netlink, sysfs and ethtool.

    `kind` is "physical", "vlan", "vxlan", "bridge", "veth", "macvlan", "tun" … and `parent` the
    name of the lower device. `max_speed` is that of the fastest mode which both ends offer.
    `offloads` are those of `ethtool -k`, `rings` has the keys "rx", "rx_max", "tx" and "tx_max".
    """

    name: str
    kind: Optional[str] = None
    parent: Optional[str] = None
    mtu: Optional[int] = None
    speed: Optional[float] = None
    max_speed: Optional[float] = None
    duplex: Optional[str] = None
    qdisc: Optional[str] = None
    txqueuelen: Optional[int] = None
    numa_node: Optional[int] = None
    offloads: Mapping[str, bool] = field(default_factory=dict)
    rings: Mapping[str, int] = field(default_factory=dict)
    mac: Optional[str] = None
    addresses: tuple[str, ...] = ()

    @property
    def real_speed(self) -> Optional[float]:
        """bit/s; None of a virtual device, for which the kernel makes up a number."""
        return None if self.kind in WITHOUT_SPEED else self.speed


@dataclass(frozen=True)
class Host:
    """One end: what does not change during a test.

    `wanted` are the sysctls that tuning asks for. `path` names the devices on the path to the peer,
    the one with the address first; `planned` is the device that packets to it should use.
    `route_mtu` is what the kernel learned for the peer (ip route get), `numa_node` that of the CPU
    on which iperf3 ran. `log` are the kernel messages during the test, of the local host only.
    `drift` are the changes that a pass of the agent would make now, `agent` its version.
    """

    name: Optional[str] = None
    kernel: Optional[str] = None
    iperf3: Optional[str] = None
    sysctls: Mapping[str, str] = field(default_factory=dict)
    wanted: Mapping[str, str] = field(default_factory=dict)
    links: tuple[Link, ...] = ()
    path: tuple[str, ...] = ()
    planned: Optional[str] = None
    route_mtu: Optional[int] = None
    numa_node: Optional[int] = None
    log: tuple[str, ...] = ()
    drift: tuple[str, ...] = ()
    agent: Optional[str] = None

    @property
    def on_path(self) -> tuple[Link, ...]:
        """The devices on the path to the peer; all of them if the path is not known."""
        return tuple(link for link in self.links if link.name in self.path) or self.links

    def may_carry(self, device: str) -> bool:
        """Whether packets to the peer may pass through this device.

        It need not be on the path if no NIC is: below a bridge or a tunnel, the path is not known.
        """
        nics = (link for link in self.links if link.kind == "physical" and link.name in self.path)
        return device in self.path or not any(nics)

    def sysctl_max(self, name: str) -> Optional[int]:
        """The last number of a sysctl: of tcp_rmem and tcp_wmem, the maximum in bytes."""
        last = ["", *self.sysctls.get(name, "").split()][-1]
        return int(last) if last.isdecimal() and len(last) < 20 else None


@dataclass(frozen=True)
class Latency:
    """Round-trip times of requests in seconds; `lost` of `count` requests had no response."""

    count: Optional[int] = None
    lost: Optional[int] = None
    p50: Optional[float] = None
    p99: Optional[float] = None
    maximum: Optional[float] = None


@dataclass(frozen=True)
class Reach:
    """Whether the peer can be reached: the result of each step.

    `neighbour` is "reachable", "incomplete" or "failed"; `macs` are all MACs that answered for the
    peer's address. `tcp` is "connected", "refused", "timeout", "no-route", "unreachable" or "busy".
    `wrong_peer`: who answered does not have the peer's secret or identity. `route` is the device
    through which the route to the peer leaves, `port` that of iperf3.
    """

    neighbour: Optional[str] = None
    macs: tuple[str, ...] = ()
    ping: Optional[bool] = None
    tcp: Optional[str] = None
    wrong_peer: Optional[bool] = None
    route: Optional[str] = None
    gateway: Optional[str] = None
    port: Optional[int] = None


@dataclass(frozen=True)
class PathMtu:
    """Bytes of the largest unfragmented packet that arrived; `told`: ICMP reported the limit."""

    forward: Optional[int] = None
    backward: Optional[int] = None
    told: Optional[bool] = None

    @property
    def smallest(self) -> Optional[int]:
        """Of both directions, as far as they were measured."""
        return min(filter(None, (self.forward, self.backward)), default=None)


@dataclass(frozen=True)
class Connections:
    """Connections per second, and how many failed."""

    rate: Optional[float] = None
    failed: Optional[int] = None


@dataclass(frozen=True)
class Step:
    """One step of the self-test, for people.

    `verdict` is "pass", "fail", "skipped", "unknown" or "search".
    """

    name: str
    verdict: str
    text: str = ""


@dataclass(frozen=True)
class Evidence:
    """A whole self-test, or what is known about a foreign iperf run.

    `expect` is the rate in bit/s that the path should carry, `rtt` the round trip of the idle path
    in seconds, if it is known from elsewhere. `address` is that of the peer, `boot` the kernel's
    boot id on the local host, `taken` when it began, in ISO 8601.
    """

    local: Host = Host()
    peer: Host = Host()
    phases: tuple[Phase, ...] = ()
    expect: Optional[float] = None
    rtt: Optional[float] = None
    reach: Reach = Reach()
    idle: Latency = Latency()
    idle_tcp: Latency = Latency()
    loaded: Latency = Latency()
    path_mtu: PathMtu = PathMtu()
    connections: Connections = Connections()
    steps: tuple[Step, ...] = ()
    address: Optional[str] = None
    boot: Optional[str] = None
    label: Optional[str] = None
    taken: Optional[str] = None
    route: Route = NO_ROUTE
    one_way: tuple[OneWay, ...] = ()
    version: int = VERSION

    @property
    def links(self) -> tuple[Link, ...]:
        """The devices of both hosts on the path."""
        return (*self.local.on_path, *self.peer.on_path)
