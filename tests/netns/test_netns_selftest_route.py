"""The way to a peer behind real routers: hops, silent ones, and an MTU that a router reports.

guest 172.16.0.1 – 172.16.0.2 outside – left or right – last – 10.9.0.2 target
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import shutil
import sys

import pytest
from ends import FAR, FAR6, NEAR

TARGET, TARGET6 = "10.9.0.2", "fd00:9::2"
# A link: the device at its near and at its far end, with their addresses.
LINKS = (
    ("outside", "left", 1),
    ("outside", "right", 2),
    ("left", "last", 3),
    ("right", "last", 4),
    ("last", "target", 9),
)
TRACE = """import json, sys
from ipaddress import ip_address
from neuca_tools.selftest.evidence.codec import encode
from neuca_tools.selftest.measure.probes import tracepath
tracepath.TRACE_SECONDS = float(sys.argv[2])
print(json.dumps(encode(tracepath.trace_route(ip_address(sys.argv[1])))))
"""
needs_tracepath = pytest.mark.skipif(
    shutil.which("tracepath") is None, reason="needs tracepath: tests/setup.sh netns"
)


# Through the loopback device: an echo, and a report about an earlier packet, as a slow router sends it.
LATE_REPORT = """import socket, struct, sys, threading, time
from ipaddress import ip_address
from neuca_tools.selftest.measure.probes.echo import Echo
from neuca_tools.selftest.measure.probes.path_mtu import Probe
from neuca_tools.selftest.measure.probes.echo import echo_requests
from neuca_tools.selftest.measure.wait import wait_readable
host, token = ip_address(sys.argv[1]), bytes(16)
echo = Echo(host, host, 45000, token)
def serve():
    while True:
        echo.turn(set(wait_readable(echo.waiting, time.monotonic() + 60)))
threading.Thread(target=serve, daemon=True).start()
requests = echo_requests(host, 45000, token, host)
probe = Probe(requests, 0.0)
before = probe.acknowledged(1000, 0)
port = requests.socket.getsockname()[1]
packet = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 1400, 1, 0x4000, 64, 17, 0, host.packed, host.packed)
packet += struct.pack("!HHHH", port, 45000, 1380, 0)
words = struct.unpack("!18H", struct.pack("!BBHHH", 3, 4, 0, 0, 1200) + packet)
checksum = 0xFFFF - sum(words) % 0xFFFF
report = struct.pack("!BBHHH", 3, 4, checksum, 0, 1200) + packet
sender = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
sender.sendto(report, (str(host), 0))
print(before, probe.acknowledged(1000, 0), probe.reported)
"""


class Routed:
    """The guest's laboratory with routers behind its NIC."""

    def __init__(self, ends):
        self.ends, self.lab = ends, ends.lab
        self.places = {"outside": self.lab.outside}
        for name in ("left", "right", "last", "target"):
            self.places[name] = self.lab.host()
        for near, far, number in LINKS:
            self._link(near, far, number)
        self._routes()

    def sh(self, where, *lines):
        self.lab.run("sh", "-ec", "\n".join(lines), where=self.places[where])

    def _link(self, near, far, number):
        """veth "to-FAR" and "to-NEAR", with .1 and .2 of a network each."""
        self.sh(
            near,
            f"ip link add to-{far} type veth peer name to-{near} netns {self.places[far].pid}",
            f"ip address add 10.{number}.0.1/24 dev to-{far}",
            f"ip address add fd00:{number}::1/64 dev to-{far} nodad",
            f"ip link set to-{far} up",
        )
        self.sh(
            far,
            f"ip address add 10.{number}.0.2/24 dev to-{near}",
            f"ip address add fd00:{number}::2/64 dev to-{near} nodad",
            f"ip link set to-{near} up",
        )

    def _routes(self):
        for name in self.places:
            self.sh(name, *(f"echo 1 > /proc/sys/net/ipv{way}" for way in FORWARD))
            # A second trace within seconds would find routers that report no more (icmp(7), icmp_ratelimit).
            self.sh(name, *(f"echo 0 > /proc/sys/net/ipv{limit}" for limit in LIMITS))
        self.sh(
            "outside",
            "ip route add 10.9.0.0/24 via 10.1.0.2",
            "ip -6 route add fd00:9::/64 via fd00:1::2",
        )
        for name, number in (("left", 1), ("right", 2)):
            self.sh(
                name,
                f"ip route add 10.9.0.0/24 via 10.{number + 2}.0.2",
                f"ip -6 route add fd00:9::/64 via fd00:{number + 2}::2",
                f"ip route add 172.16.0.0/24 via 10.{number}.0.1",
                f"ip -6 route add fd00:16::/64 via fd00:{number}::1",
            )
        self.sh(
            "last", "ip route add default via 10.3.0.1", "ip -6 route add default via fd00:3::1"
        )
        self.sh(
            "target", "ip route add default via 10.9.0.1", "ip -6 route add default via fd00:9::1"
        )
        self.lab.ip(f"route add 10.9.0.0/24 via {FAR} dev dp1")
        self.lab.ip(f"-6 route add fd00:9::/64 via {FAR6} dev dp1")

    def trace(self, peer=TARGET, seconds=60.0):
        words = (sys.executable, "-c", TRACE, peer, seconds)
        return json.loads(self.lab.run(*map(str, words)).out)


FORWARD = ("4/ip_forward", "6/conf/all/forwarding")
LIMITS = ("4/icmp_ratelimit", "6/icmp/ratelimit")


@pytest.fixture
def routed(ends):
    made = Routed(ends)
    # For a second or two after its links are up, a router cannot send ICMPv6 errors.
    made.lab.wait("all routers", lambda: None not in mtus(made.trace(TARGET6)))
    return made


def addresses(route):
    return [one.get("addresses", []) for one in route["hops"]]


def mtus(route):
    return [one.get("mtu") for one in route["hops"]]


@needs_tracepath
@pytest.mark.parametrize(
    ("peer", "hops"),
    [
        (TARGET, [[FAR], ["10.1.0.2"], ["10.3.0.2"], [TARGET]]),
        (TARGET6, [[FAR6], ["fd00:1::2"], ["fd00:3::2"], [TARGET6]]),
    ],
)
def test_each_router_is_a_hop(routed, peer, hops):
    found = routed.trace(peer)
    assert addresses(found) == hops
    assert (found["reached"], mtus(found)) == (True, [1500] * 4)
    assert min(one["rtt"] for one in found["hops"]) > 0


@needs_tracepath
@pytest.mark.parametrize("peer", [TARGET, TARGET6])
def test_a_router_that_reports_a_smaller_mtu(routed, peer):
    routed.sh("left", "ip link set to-last mtu 1400")
    routed.sh("last", "ip link set to-left mtu 1400")
    # What the fixture has taught this host about the way to the peer.
    routed.lab.ip("route flush cache")
    routed.lab.ip("-6 route flush cache")
    assert mtus(routed.trace(peer)) == [1500, 1500, 1400, 1400]
    # The kernel of this host knows the MTU now.
    assert mtus(routed.trace(peer)) == [1400] * 4


@needs_tracepath
def test_routers_that_do_not_respond_are_silent_hops(routed):
    """This one has no way back to the guest; what passes through it comes back by the other."""
    routed.sh("last", "ip route replace default via 10.4.0.1")
    routed.sh("left", "ip route replace blackhole 172.16.0.0/24")
    found = routed.trace()
    assert addresses(found) == [[FAR], [], ["10.4.0.2"], [TARGET]]
    assert (found["reached"], mtus(found)) == (True, [1500, None, 1500, 1500])


@needs_tracepath
def test_a_path_that_ends_in_silence_has_the_hops_before_it(routed):
    """When the time for everything is over: tracepath waits three seconds for each."""
    routed.sh("left", "ip route replace blackhole 10.9.0.0/24")
    found = routed.trace(seconds=5.0)
    assert (addresses(found), mtus(found), found["reached"]) == ([[FAR]], [1500], False)


def test_a_late_report_about_a_larger_packet_does_not_count_for_the_next_one(ends):
    """The kernel raises it at the next send, which sends nothing then (ip(7), IP_RECVERR)."""
    assert ends.lab.run(sys.executable, "-c", LATE_REPORT, NEAR).out == "True True True\n"


@needs_tracepath
def test_a_change_of_the_route_is_reported_by_the_next_test(routed):
    """The peer is behind the routers, with a helper; the way changes between two tests."""
    ends = routed.ends
    ends.serve("--for", "240", "--interface", "to-last", where=routed.places["target"])
    # The target learns this limit by ICMP, and then its packets would be fragmented.
    routed.sh("last", "ip route replace default via 10.3.0.1 mtu lock 1300")
    words = ("--only", "latency,path-mtu,path,one-way", "--time", "1")
    _, report = ends.helped(*words, peer=TARGET)
    assert report["evidence"]["path_mtu"] == {"forward": 1500, "backward": 1300, "told": False}
    route, reached = report["evidence"]["route"], report["evidence"]["reach"]
    assert (reached["route"], reached["gateway"]) == ("dp1", FAR)
    assert addresses(route) == [[FAR], ["10.1.0.2"], ["10.3.0.2"], [TARGET]]
    losses = report["evidence"]["one_way"]
    assert [one.get("direction", "forward") for one in losses] == ["forward", "reverse"]
    assert all(one["seen"] >= one["lost"] >= 0 for one in losses)
    assert all(one["sent"] >= one["seen"] > 10 for one in losses)
    routed.sh("outside", "ip route replace 10.9.0.0/24 via 10.2.0.2")
    out = ends.test("--secret-file", ends.secret, *words, peer=TARGET).out
    assert "changed     path hop 2: 10.1.0.2 → 10.2.0.2\n" in out
    assert "path         pass     4 hops, peer reached\n" in out
