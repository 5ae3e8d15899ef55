"""Hosts, paths and refusals of which a test shows nothing but what they are: for the golden reports."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import replace

from selftest_runs import flow_of, receiver, tcp

from neuca_tools.selftest.evidence import (
    Evidence,
    Host,
    Latency,
    Link,
    PathMtu,
    Phase,
    Reach,
    Step,
)
from neuca_tools.selftest.evidence.run import Connection, Flow, Run, Total

QUIET = {"rtt": 1_000, "min_rtt": 900, "snd_cwnd": 300, "unacked": 200, "snd_wnd": 3_000_000}
RMEM, WMEM = "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"
ENDS = (Connection("10.0.0.1", 40000, "10.0.0.2", 5201),)


def measured(rate=9e8, **facts):
    return tcp(flow_of(rate, **QUIET), **facts)


def of_host(end="local", **values):
    return measured(**{end: Host(**values)})


def failed(error, rate=None, **facts):
    """A run that ended in this error, and perhaps with a rate."""
    flows = (Flow("forward", received=Total(10.0, rate * 1.25, rate)),) if rate else ()
    run = Run("iperf3", protocol="tcp", flows=flows, connections=ENDS, error=error)
    return Evidence(phases=(Phase("tcp", run),), address="10.0.0.2", **facts)


def reached(peer="10.0.0.2", **reach):
    return Evidence(reach=Reach(**reach), address=peer)


def counted(end="receiver", **counters):
    grown = {name.replace("__", "."): (1, 1 + count) for name, count in counters.items()}
    if end == "receiver":
        return tcp(flow_of(9e8, **QUIET), receiver(grown))
    return tcp(flow_of(9e8, counters=grown, **QUIET))


def buffered(rmem, wmem, **values):
    """A flow whose receiver's window is full, between hosts with these buffers."""
    local = Host(sysctls={WMEM: wmem} if wmem else {}, links=values.pop("links", ()))
    peer = Host(sysctls={RMEM: rmem} if rmem else {})
    window = {"rwnd": 0.8, "snd_wnd": 3_144_960, "snd_cwnd": 4000, "unacked": 2172, "rtt": 100_000}
    sender = flow_of(250e6, min_rtt=100_000, **{**window, **values})
    return tcp(sender, receiver(recv_q=0, rcvbuf=6_291_456), local=local, peer=peer)


PROFILE = {"a.a": "1", "b.b": "2 3", "c.c": "4", "d.d": "5"}
CONGESTION = {"net.ipv4.tcp_congestion_control": "bbr"}
AVAILABLE = {"net.ipv4.tcp_available_congestion_control": "reno cubic"}
FAST = Link("eth1", "physical", mtu=9000, speed=25e9, numa_node=1)
SLOW = Link("eth1", "physical", mtu=1500, speed=1e8, max_speed=1e9)
VETH = Link("veth1", "veth", mtu=1500, speed=10e9)
HOSTS = {
    "one sysctl is not as tuned": of_host(sysctls={"a.a": "0"}, wanted=PROFILE),
    "four sysctls are not": of_host("peer", sysctls=dict.fromkeys(PROFILE, "0"), wanted=PROFILE),
    "three sysctls are not": of_host(sysctls={**PROFILE, "a.a": "", "b.b": "9", "c.c": "9"}, wanted=PROFILE),
    "white space in a sysctl": of_host(sysctls={"b.b": "2\t3"}, wanted=PROFILE),
    "a host that differs in one thing": of_host(drift=("eth1 is down",)),
    "a host that differs in several": of_host("peer", drift=tuple(f"eth{at} is down" for at in range(12))),
    "no BBR": of_host(sysctls=AVAILABLE, wanted=CONGESTION),
    "no BBR, and cubic in use": of_host(
        sysctls={**AVAILABLE, "net.ipv4.tcp_congestion_control": "cubic"}, wanted=CONGESTION
    ),
    "BBR is there": of_host(
        sysctls={"net.ipv4.tcp_available_congestion_control": "bbr"}, wanted=CONGESTION
    ),
    "a link below its speed": measured(9e7, local=Host(links=(SLOW,)), expect=9e8),
    "a link below its speed that is not full": measured(8e7, local=Host(links=(SLOW,)), expect=9e8),
    "a half-duplex link": of_host(links=(Link("eth1", "physical", duplex="half"),)),
    "line errors of the sender": replace(
        counted("sender", eth1__rx_frame_errors=7), local=Host(links=(Link("eth1", "physical"),))
    ),
    "another NUMA node": of_host(links=(FAST,), numa_node=0),
    "the same NUMA node": of_host(links=(FAST,), numa_node=1),
    "another NUMA node of a slower link": of_host(links=(replace(FAST, speed=10e9),), numa_node=0),
    "a NUMA node that is not known": of_host(links=(replace(FAST, numa_node=-1),), numa_node=0),
    "buffers are refused": failed("socket buffer size not set correctly"),
    "no such congestion control": failed("unable to set TCP_CONGESTION: No such file or directory"),
    "another program": failed("received an unknown control message (ensure other side is iperf3)"),
    "a busy server": failed("the server is busy running a test. try again later"),
    "a busy server at a port": reached(tcp="busy", port=45678),
    "another secret": reached(wrong_peer=True, tcp="connected"),
    "another secret, and two MACs": reached(wrong_peer=True, macs=("a", "b")),
    "two MACs": replace(reached(macs=("b", "a", "b"), route="eth2"), local=Host(planned="eth1")),
    "two MACs on the device of the route": reached(macs=("b", "a"), route="eth2"),
    "one MAC": reached(macs=("a", "a"), tcp="refused"),
    "nothing listens": reached(tcp="refused"),
    "nothing listens at a port": reached(tcp="refused", port=5000),
    "refused, as iperf3 says": failed("unable to connect to server: Connection refused"),
    "no route": reached(tcp="unreachable"),
    "no route, as iperf3 says": failed("unable to connect to server: Network is unreachable"),
    "no neighbour": reached(neighbour="failed", tcp="no-route"),
    "no gateway": reached(neighbour="incomplete", gateway="10.0.0.254"),
    "no neighbour by the connection alone": reached(tcp="no-route"),
    "a firewall that rejects": reached(tcp="no-route", ping=True),
    "a firewall that rejects a neighbour": reached(tcp="no-route", neighbour="reachable"),
    "a firewall that rejects, as iperf3 says": failed("unable to connect to server: No route to host"),
    "the same where round trips are known": failed(
        "unable to connect to server: No route to host", rtt=0.01
    ),
    "no response to a connection": reached(tcp="timeout"),
    "no response to a connection, but to ping": reached(tcp="timeout", ping=True),
    "a timeout, as iperf3 says": failed("unable to connect to server: Connection timed out"),
    "no way back": reached(tcp="timeout", ping=False, macs=("a",)),
    "no way back, without a MAC": reached(tcp="timeout", ping=False),
    "a timeout without a neighbour": reached(tcp="timeout", neighbour="failed"),
    "a stream is refused": failed("unable to connect stream: Connection timed out"),
    "a stream is refused after a while": failed("unable to connect stream: Connection timed out", 9e8),
    "an UDP server that never responds": failed("did not receive ack of last datagram", 1e6),
    "a fast one that never responds": failed("did not receive ack of last datagram", 1.1e7),
    "datagrams are blocked": replace(
        reached(tcp="connected"), idle=Latency(20, 20), idle_tcp=Latency(p50=0.001)
    ),
    "nothing is known": Evidence(),
    "steps that passed": Evidence(steps=(Step("as-planned", "pass", "x"), Step("reach", "pass", "y"))),
    "a step that failed": Evidence(steps=(Step("as-planned", "pass", "x"), Step("reach", "fail", "y"))),
    "a path MTU alone": Evidence(steps=(Step("path-mtu", "pass", "x"), Step("reach", "unknown", "y"))),
    "a neighbour table that overflows": replace(counted(arp_cache__table_fulls=3), address="10.0.0.2"),
    "the table of the other family": replace(counted(ndisc_cache__table_fulls=3), address="10.0.0.2"),
    "the table of IPv6": replace(counted(ndisc_cache__table_fulls=3), address="fd00::2"),
    "a table that is nearly full": replace(
        counted(arp_cache__entries=821),
        peer=Host(sysctls={"net.ipv4.neigh.default.gc_thresh3": "1024"}),
    ),
    "a table that is not": replace(
        counted(arp_cache__entries=818),
        peer=Host(sysctls={"net.ipv4.neigh.default.gc_thresh3": "1024"}),
    ),
    "a table that overflows in the log": of_host(log=("neighbour: arp_cache: neighbor table overflow!",)),
    "that of the other family in the log": replace(
        of_host(log=("neighbour: ndisc_cache: neighbor table overflow!",)), address="10.0.0.2"
    ),
    "a filter of return paths": counted(TcpExt__IPReversePathFilter=7),
    "the same that cuts off": replace(
        counted(TcpExt__IPReversePathFilter=7), reach=Reach(tcp="timeout")
    ),
    "a full backlog of connections": counted(TcpExt__ListenOverflows=7),
    "a full table of connections": counted("sender", conntrack__insert_failed=7),
    "the path MTU is smaller in one direction": measured(
        local=Host(links=(FAST,)), path_mtu=PathMtu(9000, 1500, False)
    ),
    "a black hole in one direction": Evidence(
        local=Host(links=(FAST,)), path_mtu=PathMtu(9000, 1500, False), address="fd00::2"
    ),
    "a black hole that is reported": Evidence(
        local=Host(links=(FAST,)), path_mtu=PathMtu(1500, 1500, True)
    ),
    "an unreported path MTU of a host that refuses": replace(
        reached(tcp="refused"), local=Host(links=(FAST,)), path_mtu=PathMtu(1500, 1500, False)
    ),
    "buffers that are not known": buffered("", ""),
    "buffers of both hosts": buffered("4096 131072 6291456", "4096 16384 4194304"),
    "large buffers": buffered("4096 131072 99999999", "4096 16384 99999999"),
    "buffers of another form": buffered("6291456", "x"),
    "buffers behind a link": buffered(
        "4096 131072 6291456", "4096 16384 16777216", links=(Link("eth1", "physical", speed=4e8),)
    ),
    "buffers behind a virtual link": buffered("4096 131072 6291456", "4096 16384 16777216", links=(VETH,)),
    "buffers of a flow that loses": buffered("4096 131072 6291456", "", retrans=2e-5),
    "several streams are much faster": replace(
        measured(3e8), phases=(*measured(3e8).phases, *measured(8e8, name="tcp-parallel").phases)
    ),
    "several streams are a little faster": replace(
        measured(3e8), phases=(*measured(3e8).phases, *measured(4.5e8, name="tcp-parallel").phases)
    ),
    "the way back is slower": replace(
        measured(9e8), phases=(*measured(9e8).phases, *measured(3e8, direction="reverse").phases)
    ),
    "the way there is slower": replace(
        measured(3e8), phases=(*measured(3e8).phases, *measured(9e8, direction="reverse").phases)
    ),
    "a tap device": measured(peer=Host(links=(Link("tap0", "tap", mtu=1500),))),
    "an overlay without segmentation": replace(
        measured(3e8, path="overlay"),
        phases=(*measured(3e8, path="overlay").phases, *measured(9e8, path="underlay").phases),
        local=Host(
            links=(
                FAST,
                Link(
                    "vx0", "vxlan", "eth1", 8950,
                    offloads={"tcp-segmentation-offload": False, "generic-segmentation-offload": False},
                ),
            )
        ),
    ),
    "an overlay with offloads": replace(
        measured(3e8, path="overlay"),
        phases=(*measured(3e8, path="overlay").phases, *measured(9e8, path="underlay").phases),
        local=Host(links=(FAST, Link("vx0", "vxlan", "eth1", 8950))),
    ),
    "a tunnel as large as its device": of_host(
        links=(FAST, Link("gnv0", "geneve", "eth1", 9000)), path=("gnv0", "eth1")
    ),
    "a VLAN as large as its device": of_host(
        links=(FAST, Link("eth1.5", "vlan", "eth1", 9000)), path=("eth1.5", "eth1")
    ),
    "a bridge larger than its port": of_host(links=(SLOW, Link("br0", "bridge", "eth1", 9000))),
}  # fmt: skip
