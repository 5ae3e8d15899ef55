"""Two hosts, A and B, with a router R between them: network namespaces of one guest, tuned by `neuca` alone.

`guest` is a Guest of tests/machine on the image T, whose clock counts instructions. What belongs to the kernel and not to a
namespace (net.core.*, the neighbour tables) is tuned as its first namespace, which is called `kernel` here.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import NamedTuple

sys.path.append(str(Path(__file__).parents[2] / "machine"))

from counted import CONFIGURATION

PATIENCE = 1800.0  # seconds: of the guest's leaping clock, and of an emulation that shares this machine with others
KERNEL = "kernel"
A, B = "10.0.1.1", "10.0.2.1"
MACS = {
    "a0": "fe:16:3e:00:0a:01",
    "ra": "fe:16:3e:00:0a:02",
    "rb": "fe:16:3e:00:0b:02",
    "b0": "fe:16:3e:00:0b:01",
}
ADDRESSES = {"a0": f"{A}/24", "ra": "10.0.1.254/24", "rb": "10.0.2.254/24", "b0": f"{B}/24"}
NICS = {"A": ("a0",), "R": ("ra", "rb"), "B": ("b0",)}

NO_NAMESPACES = "for name in $(ip -o netns list | cut -d ' ' -f 1); do ip netns del $name; done; rm -rf /run/lab"
# A veth and its peer with the same index look like no pair to the kernel: hence the index.
BUILD = """ip link add a0 index 11 netns A address {a0} type veth peer index 12 name ra netns R address {ra}
ip link add b0 index 13 netns B address {b0} type veth peer index 14 name rb netns R address {rb}
ip netns exec R sysctl -qw net.ipv4.ip_forward=1""".format(**MACS)


class Flow(NamedTuple):
    """What iperf3 says: bit/s received, the congestion control of the sender, packets sent and lost (of UDP)."""

    rate: float
    congestion: str
    sent: int = 0
    lost: int = 0

    @property
    def loss(self) -> float:
        """Per cent."""
        return 100 * self.lost / self.sent

    def __str__(self) -> str:
        return f"{self.rate / 1e6:.0f} Mbit/s"


class TwoHosts:
    """One laboratory; `build` begins anew, with every setting as the kernel has it."""

    def __init__(self, guest):
        self.guest = guest
        self._tuned_kernel = False

    def run(self, script):
        """The output of a bash script that must succeed."""
        return self.guest.check(f"set -e\n{script}", PATIENCE)

    # --- what there is ---

    def clear(self, *names):
        """Put the kernel back, and have these namespaces alone, empty."""
        if self._tuned_kernel:
            self.untune(KERNEL)
        self.run(
            NO_NAMESPACES
            + "".join(f"\nip netns add {name}; ip -n {name} link set lo up" for name in names)
        )
        for name in (KERNEL, *names):
            self.run(f"mkdir -p /run/lab/{name}; : > /run/lab/{name}/document")
            self.guest.put(f"/run/lab/{name}/config", CONFIGURATION.format(f"/run/lab/{name}"))

    def build(self):
        """Both hosts and the router, with their addresses."""
        self.clear("A", "R", "B")
        addresses = [f"ip -n {host} address add {ADDRESSES[nic]} dev {nic}; ip -n {host} link set {nic} up"
                     for host, nics in NICS.items() for nic in nics]  # fmt: skip
        self.run("\n".join([BUILD, *addresses]))
        self._routes()

    def build_by_documents(self, settings):
        """The same, with addresses and these `settings` of every NIC from a document that neuca applies."""
        self.clear("A", "R", "B")
        self.run(BUILD)
        for host, nics in NICS.items():
            lines = ["[interfaces]", *(f"{MACS[nic]} = up:ipv4:{ADDRESSES[nic]}" for nic in nics)]
            lines += [line for nic in nics for line in (f"[interface {MACS[nic]}]", settings)]
            self.guest.put(f"/run/lab/{host}/document", "\n".join(lines) + "\n")
            self.run(self._neuca(host, "apply"))
        self._routes()

    def _routes(self):
        self.run(
            "ip -n A route add 10.0.2.0/24 via 10.0.1.254; ip -n B route add 10.0.1.0/24 via 10.0.2.254"
        )

    def path(self, rtt, there=""):
        """What the path does from now on: a round-trip time in ms, and what else netem does to packets on their way to B.

        netem drops what does not find room among 1,000 packets, if it is not told otherwise. TCP forgets what it knew.
        """
        delay = f"delay {rtt / 2:g}ms" if rtt else ""
        self.run(f"""for nic in ra rb; do tc -n R qdisc delete dev $nic root 2> /dev/null || true; done
tc -n R qdisc add dev rb root netem {delay} {there} limit 200000
tc -n R qdisc add dev ra root netem {delay} limit 200000
for host in A B; do ip -n $host tcp_metrics flush; done""")

    # --- tuning ---

    def _neuca(self, name, words):
        inside = "" if name == KERNEL else f"ip netns exec {name} "
        command, _, rest = words.partition(" ")
        return f"{inside}neuca {command} --config /run/lab/{name}/config {rest}"

    def tune(self, names, options):
        """`neuca tune apply` on each of these, with `--profile` and its like."""
        for name in names:
            self._tuned_kernel |= name == KERNEL
            self.run(self._neuca(name, f"tune apply {options}"))

    def untune(self, *names):
        """`neuca tune revert` on each of these."""
        for name in names:
            self.run(self._neuca(name, "tune revert"))
        self._tuned_kernel &= KERNEL not in names

    # --- measuring ---

    def tcp(self, seconds):
        """One TCP stream from A to B, its start counted too."""
        end = self._iperf(f"-t {seconds}")
        return Flow(end["sum_received"]["bits_per_second"], end["sender_tcp_congestion"])

    def udp(self, seconds, rate, size):
        """A UDP stream from A to B of `rate` bit/s in packets of `size` bytes."""
        total = self._iperf(f"-t {seconds} -u -b {rate} -l {size}")["sum"]
        return Flow(total["bits_per_second"], "", total["packets"], total["lost_packets"])

    def _iperf(self, words):
        # The server ends a moment after its client: the next one would find it still busy.
        said = self.run("ip netns exec B iperf3 -s -1 --idle-timeout 60 >/dev/null 2>&1 & server=$!\n"
                        "until ip netns exec B ss -Hltn | grep -q :5201; do sleep 0.05; done\n"
                        f"ip netns exec A iperf3 -c {B} -J {words}\n"
                        "wait $server || true")  # fmt: skip
        data = json.loads(said)
        assert "error" not in data, data["error"]  # iperf3 3.12 ends with 0 then, too
        return data["end"]

    def counter(self, name):
        """A counter of nstat(8) in B, since the namespace was made."""
        return int(
            json.loads(self.run(f"ip netns exec B nstat -asz --json {name}"))["kernel"][name]
        )
