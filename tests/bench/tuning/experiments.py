"""The articles' headline effects: for each what is set up, what is measured before and after tuning, the aim, what was published.

Each experiment is a function of a fresh laboratory that yields its findings, those where the effect must not show (`counter`)
among them. Every tuned value is set by `neuca`. The aims are those that the project set itself before anything was measured here.

BLOG: "Lies, damn lies, and iperf" (ExoGENI); IBM: "Exploration of Large Scale Virtual Networks"; ESNET: fasterdata.es.net.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from finding import Finding, ratio
from two_hosts import KERNEL, Flow, TwoHosts

INSIDE = Path(__file__).with_name("inside")
EXOGENI = "--profile exogeni"
BDP = "--profile bdp --rate 1Gbit --rtt 100ms"
ALL = (KERNEL, "A", "B")
PORTS = 1000  # of a bridge, which has 1,023 at the most
SECONDS, SHORT = (
    9,
    3,
)  # of a TCP stream on a long path, and on a short one, where it is at its full rate at once
# A stream that tuning does not help: what varies is the start.
NONE = {"least": 0.95, "most": 1.05, "counter": True}
NO_LOSS, LOSS = 0.1, "loss 0.1%"  # per cent


def exogeni(hosts: TwoHosts) -> Iterator[Finding]:
    """BLOG: 1.54 to 4.11 Gbit/s between virtual machines."""
    hosts.build()
    before, after = {}, {}
    for found in (before, after):
        for rtt, seconds in ((100, SECONDS), (10, SHORT)):
            hosts.path(rtt)
            found[rtt] = hosts.tcp(seconds)
        if found is before:
            hosts.tune(ALL, EXOGENI)
    yield ratio(
        "TCP, 100 ms RTT: defaults, `exogeni`",
        before[100],
        after[100],
        least=2.3,
        published="2.67 x (ExoGENI)",
    )
    yield ratio("at 10 ms RTT the processor is the limit", before[10], after[10], **NONE)


def bdp(hosts: TwoHosts) -> Iterator[Finding]:
    """ESNET: both ends need buffers of the bandwidth-delay product. A receiver alone waits for the sender, and the other way."""
    hosts.build()
    hosts.path(100)
    neither = hosts.tcp(SECONDS)
    hosts.tune("A", BDP)
    hosts.path(100)
    sender = hosts.tcp(SECONDS)
    hosts.tune("B", BDP)
    hosts.path(100)
    both = hosts.tcp(SECONDS)
    hosts.untune("A")
    hosts.path(100)
    receiver = hosts.tcp(SECONDS)
    yield ratio("TCP, 100 ms RTT: defaults, `bdp` for 1 Gbit/s", neither, both, least=3.5)
    yield ratio("the sender alone is not enough", neither, sender, most=1.5, counter=True)
    yield ratio("the receiver alone is not enough", neither, receiver, most=1.5, counter=True)


def udp(hosts: TwoHosts) -> Iterator[Finding]:
    """BLOG: 26% of 100 Mbit/s lost, then none. Here it all arrives together every 100 ms, as at a receiver that is held up."""
    bursts = "slot 100ms 100ms"
    hosts.build()
    hosts.path(0)
    steady = hosts.udp(5, 100_000_000, 1448)
    hosts.path(0, bursts)
    before = hosts.udp(5, 100_000_000, 1448)
    overflown = hosts.counter("UdpRcvbufErrors")
    hosts.tune([KERNEL], EXOGENI)
    after = hosts.udp(5, 100_000_000, 1448)
    shown = [f"{one.loss:.2f}%" for one in (before, after, steady)]
    share = 100 * overflown / max(1, before.lost)
    yield Finding(
        "UDP, 100 Mbit/s in bursts: lost by default",
        shown[0],
        "–",
        before.loss,
        50,
        None,
        "%",
        "26% (ExoGENI)",
    )
    yield Finding(
        "the same: `exogeni`", shown[0], shown[1], after.loss, None, NO_LOSS, "%", "0% (ExoGENI)"
    )
    yield Finding(
        "packets lost by default, and dropped by full socket buffers",
        before.lost,
        overflown,
        share,
        99,
        101,
        "%",
    )
    yield Finding(
        "without bursts nothing is lost by default",
        shown[2],
        "–",
        steady.loss,
        None,
        NO_LOSS,
        "%",
        counter=True,
    )


def mtu(hosts: TwoHosts) -> Iterator[Finding]:
    """ESNET: 9000 bytes save the cost of a packet, which offloads save as well: so it shows where a NIC has none."""
    found = {}
    for offloads in ("off", "on"):
        for size in (1500, 9000):
            hosts.build_by_documents(
                f"mtu = {size}\noffloads = tso {offloads} gso {offloads} gro {offloads}"
            )
            found[offloads, size] = hosts.tcp(SHORT)
    without, with_them = (
        [found[offloads, size] for size in (1500, 9000)] for offloads in ("off", "on")
    )
    yield ratio(
        "TCP without offloads: MTU 1500, 9000", *without, least=1.8, published="3 x (ESnet)"
    )
    yield ratio("with TSO, GSO and GRO it makes no difference", *with_them, **NONE)


def neighbours(hosts: TwoHosts) -> Iterator[Finding]:
    """IBM: "neighbor table overflow!"; a table of 1,024 entries for the 1,600 nodes of one network."""
    hosts.clear("A", "B")
    hosts.run("""ip link add a0 index 11 netns A type veth peer index 12 name b0 netns B
ip -n A address add 10.1.200.1/16 dev a0; ip -n A link set a0 up
ip -n B address add 10.1.200.2/16 dev b0; ip -n B link set b0 up
ip -n B route add local 10.1.0.0/17 dev lo""")
    few, before = _reached(hosts, 900), _reached(hosts, 1600)
    hosts.tune([KERNEL], "--profile many-peers")
    after = _reached(hosts, 1600)
    yield Finding(
        "neighbours of 1,600 that answer: defaults",
        before,
        "–",
        before,
        1000,
        1024,
        "",
        "1,024 (IBM)",
    )
    yield Finding("the same: `many-peers`", before, after, after, 1600, 1600, "")
    yield Finding("900 of 900 answer by default", few, "–", few, 900, 900, "", counter=True)


def _reached(hosts: TwoHosts, count: int) -> int:
    hosts.run("ip -n A neighbour flush dev a0; ip -n B neighbour flush dev b0")
    return int(_inside(hosts, "neighbours.py", "A", "B", count))


def broadcast(hosts: TwoHosts) -> Iterator[Finding]:
    """IBM: a broadcast goes to every port of a bridge at once, through the backlog of one processor.

    The article's backlog of 10,000 packets holds ten broadcasts to 1,000 ports, and not twenty.
    """
    hosts.clear("N", "S")
    pairs = [f"link add p{number} type veth peer name q{number}" for number in range(PORTS)]
    up = [
        f"link set {end} up"
        for number in range(PORTS)
        for end in (f"q{number}", f"p{number} master br0")
    ]
    hosts.guest.put("/run/lab/ports", "\n".join([*pairs, *up]) + "\n")
    hosts.run("""for host in N S; do for key in all default; do
ip netns exec $host sysctl -qw net.ipv6.conf.$key.disable_ipv6=1; done; done
ip link add s0 netns S type veth peer name s1 netns N; ip -n N link add br0 type bridge; ip -n N link set br0 up
ip -n N link set s1 up master br0; ip -n S address add 10.9.0.1/16 dev s0; ip -n S link set s0 up
ip -n N -batch /run/lab/ports""")
    before = {at_once: _flooded(hosts, at_once) for at_once in (1, 5)}
    hosts.tune([KERNEL], "--profile many-peers")
    after = {at_once: _flooded(hosts, at_once) for at_once in (5, 20)}
    shown = f"{before[5]:.1f}%"
    yield Finding(
        "broadcasts to 1,000 ports of a bridge, five at once: lost by default",
        shown,
        "–",
        before[5],
        5,
        unit="%",
    )
    yield Finding("the same: `many-peers`", shown, f"{after[5]:.1f}%", after[5], 0, 0, "%")
    yield Finding(
        "one at a time none is lost by default",
        f"{before[1]:.1f}%",
        "–",
        before[1],
        0,
        0,
        "%",
        counter=True,
    )
    yield Finding(
        "twenty at once are too many for it",
        "–",
        f"{after[20]:.1f}%",
        after[20],
        5,
        unit="%",
        counter=True,
    )


def _flooded(hosts: TwoHosts, at_once: int) -> float:
    """Per cent of the copies of twenty broadcasts that the backlog had no room for."""
    return float(_inside(hosts, "broadcast.py", "S", 20 // at_once, at_once, PORTS))


def congestion(hosts: TwoHosts) -> Iterator[Finding]:
    """htcp, which `exogeni` asks for, is to come back from a loss sooner than cubic. Buffers are the same in both arms, by `bdp`.

    Without offloads, so that what is lost is one packet of 1,500 bytes; with them it would be up to 64 KiB. Which ones are lost
    is left to chance: hence several runs, added up.
    """
    path = "--rate 1.2Gbit --rtt 50ms"  # its buffers, of 18.75 MB, are above those of exogeni
    found: dict[str, list[Flow]] = {"": [], LOSS: []}
    for profile, name in (("bdp", "cubic"), ("exogeni,bdp", "htcp")):
        hosts.build_by_documents("offloads = tso off gso off gro off")
        hosts.tune(ALL, f"--profile {profile} {path}")
        for loss, runs, seconds in ((LOSS, 4, 30), ("", 1, SECONDS)):
            flows = []
            for _ in range(runs):
                hosts.path(50, f"{loss} rate 500mbit")
                flows.append(hosts.tcp(seconds))
            assert {one.congestion for one in flows} == {name}, flows
            found[loss].append(Flow(sum(one.rate for one in flows) / runs, name))
    yield ratio("TCP, 50 ms RTT, 0.1% loss: cubic, htcp", *found[LOSS], least=1.5)
    yield ratio("without loss it makes no difference", *found[""], **NONE)


def _inside(hosts: TwoHosts, script: str, namespace: str, *words: object) -> str:
    """What a script of ours says in a namespace of the guest."""
    hosts.guest.put(f"/run/lab/{script}", (INSIDE / script).read_text())
    return hosts.run(
        f"ip netns exec {namespace} python3 /run/lab/{script} {' '.join(map(str, words))}"
    )


# The last one leaves two thousand devices behind.
EXPERIMENTS: Mapping[str, Callable[[TwoHosts], Iterator[Finding]]] = {
    one.__name__: one for one in (exogeni, bdp, udp, mtu, neighbours, congestion, broadcast)
}
