"""The attacker's means work: an attack that fails because nothing was sent would prove nothing."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import socket
import sys

import frames
import pytest
import stranger
import volumes
from lab import mac

IP4 = b"\x08\x00"
SEND = """import socket, sys
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", (sys.argv[1], 9))"""

GET = """import http.client, sys
def ask(method, path):
    end = http.client.HTTPConnection(sys.argv[1], 80, timeout=10)
    end.request(method, path)
    return end.getresponse()
print(ask("GET", "/latest/user-data").status)
token = ask("PUT", "/latest/api/token")
print(token.read().decode() or token.status)"""


def neighbours(guest):
    return {one["dst"]: one.get("lladdr") for one in guest.look("neigh show dev dp1")}


@pytest.fixture
def naive(guest, attackers):
    """A guest without an agent: whatever is sent has its effect."""
    evil = attackers().on_dataplane("dp1", 1, up=True)
    guest.ip("address add 10.66.0.2/24 dev dp1")
    return guest, evil


def test_router_advertisements_configure_a_naive_guest(naive):
    guest, evil = naive
    evil.advertise(
        frames.prefix_information("2001:db8:66::/64"),
        frames.route_information("2001:db8:77::/48"),
        frames.mtu(1280),
    )
    guest.wait("the kernel has taken the router", lambda: guest.routes("default", 6))
    assert guest.routes("default", 6)[0][:2] == (evil.link_local, "dp1")
    assert {one.partition("/")[0] for one in guest.addresses("dp1")} > {"10.66.0.2"}
    assert guest.sysctl("net/ipv6/conf/dp1/mtu") == "1280"


def test_arp_and_neighbor_advertisements_reach_a_naive_guest(naive):
    guest, evil = naive
    evil.own("10.66.0.1/24").answer_arp("10.66.0.9")
    guest.run(sys.executable, "-c", SEND, "10.66.0.9")
    guest.wait("the answer", lambda: neighbours(guest).get("10.66.0.9") == evil.mac)


@pytest.mark.parametrize("tokens", [True, False])
def test_the_service_is_asked_at_each_of_its_addresses(naive, tokens):
    guest, evil = naive
    evil.impersonate("text", tokens=tokens)
    guest.ip("route add 169.254.169.254/32 dev dp1")
    guest.ip("-6 route add fd00:ec2::254/128 dev dp1")
    for address in ("169.254.169.254", "fd00:ec2::254", "fe80::a9fe:a9fe%dp1"):
        said = guest.run(sys.executable, "-c", GET, address).out.split()
        assert said == (["401", "a-token"] if tokens else ["200", "404"])


def test_dhcp_offers_are_answers_to_what_a_client_asks(naive):
    guest, evil = naive
    evil.serve_dhcp(option_121=frames.classless({"10.0.0.0/8": "10.66.0.1"}))
    question = b"\x01\x01\x06\0" + b"neuc" + bytes(20) + frames.hardware(mac(1)) + bytes(202)
    question += frames.COOKIE + b"\x35\x01\x01\xff"
    ask = f"""import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"dp1")
s.bind(("", 68)); s.settimeout(10)
s.sendto(bytes.fromhex("{question.hex()}"), ("255.255.255.255", 67))
print(s.recv(4096).hex())"""
    answer = bytes.fromhex(guest.run(sys.executable, "-c", ask).out.strip())
    assert answer[4:8] == b"neuc"
    assert answer[16:20] == socket.inet_aton("10.66.0.2")
    assert b"\x79\x06\x08\x0a\x0a\x42\0\x01" in answer


def test_a_captured_frame_is_replayed_as_it_was(naive):
    guest, evil = naive
    evil.own("10.66.0.1/24")
    with evil.captured(lambda frame: frame[12:14] == IP4) as seen:
        guest.run(sys.executable, "-c", SEND, "10.66.0.1")
        evil.delivered()
    assert seen
    evil.send(seen[0])
    evil.flood(100, lambda number: frames.ethernet(
        evil.mac, mac(1), frames.IP4, frames.syn4("10.66.0.1", "10.66.0.2", (1024 + number, 22))))  # fmt: skip


def test_a_stranger_says_what_it_is_told_to(naive):
    guest, evil = naive
    evil.own("10.66.0.1/24")
    server = stranger.HostileServer(evil.host.enter, "10.66.0.1", b"hello")
    assert stranger.say(guest.guest.enter, "10.66.0.1", b"x").startswith(b"hello")
    server.close()
    assert server.heard == [b"x"]


@pytest.mark.parametrize("kind", ["iso9660", "vfat"])
def test_an_image_has_the_label_and_the_files(tmp_path, kind):
    made = volumes.image(tmp_path, volumes.seed("text"), kind)
    said = volumes.label(made)
    assert said == "cidata"
