"""A host on the dataplane wants the management network: its addresses, its router, the way to it; and to end the agent."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import sys
from pathlib import Path

import frames
import pytest
from lab import GATEWAY, GATEWAY6, MANAGEMENT_MAC, mac

ADDRESS, MANAGED, MANAGED6 = "172.16.1.1", "192.0.2.10", "2001:db8:ffff::10"
DOCUMENT = f"[interface {mac(1)}]\naddresses = {ADDRESS}/24, fd00:16::1/64\n"
ROUTES = """ip -j -4 route show table all; ip -j -6 route show table all; ip -j rule; ip -j neigh \
show dev mgmt0"""


@pytest.fixture
def victim(guest, attackers):
    guest.management()
    evil = attackers().on_dataplane("dp1", 1, up=True)
    evil.own("172.16.1.66/24")
    assert guest.once(DOCUMENT).code == 0
    guest.settle()
    return guest, evil


def management(guest):
    """Routes, and what is known of the management NIC's neighbours."""
    route = [guest.look(f"-{family} route show dev mgmt0") for family in (4, 6)]
    return route, guest.look("address show dev mgmt0"), guest.routes("default")


def test_claims_on_the_dataplane_for_management_addresses_change_nothing(victim):
    guest, evil = victim
    before = management(guest)
    evil.claim(GATEWAY, MANAGED, "169.254.169.254", GATEWAY6, MANAGED6)
    evil.send(frames.arp(evil.mac, GATEWAY, mac(1), MANAGED))
    evil.answer_arp()
    evil.delivered()
    assert management(guest) == before
    assert guest.look(f"route get {GATEWAY}")[0]["dev"] == "mgmt0"
    known = {one["dst"]: one.get("lladdr") for one in guest.look("neigh show dev mgmt0")}
    assert evil.mac not in known.values()


@pytest.mark.parametrize("prefix", ["2001:db8:ffff::/64", "2001:db8:ffff::/65", "2001:db8:ffff::1/128",
                                    "fd00:ec2::254/128", "::/1"])  # fmt: skip
def test_an_advertised_prefix_or_route_takes_nothing_from_the_management_network(victim, prefix):
    guest, evil = victim
    before = management(guest)
    evil.advertise(frames.prefix_information(prefix), frames.route_information(prefix))
    evil.advertise(frames.route_information("::/0"), lifetime=9000)
    evil.delivered()
    assert management(guest) == before
    for where in (GATEWAY6, "2600::1"):
        assert guest.look(f"-6 route get {where}")[0]["dev"] == "mgmt0"


def test_redirects_from_the_dataplane_are_not_taken(victim):
    """RFC 1122, 3.2.2.2: a host may take one only from the gateway that it uses."""
    guest, evil = victim
    for router in (GATEWAY, "172.16.1.66"):
        evil.send(frames.redirect4(evil.mac, mac(1), router, ADDRESS, "8.8.8.8", "172.16.1.66"))
        evil.send(frames.redirect4(evil.mac, mac(1), router, MANAGED, "8.8.8.8", "172.16.1.66"))
    for router in (GATEWAY6, evil.link_local):
        evil.send(
            frames.redirect6(evil.mac, mac(1), router, "fd00:16::1", "2600::1", evil.link_local)
        )
    evil.delivered()
    assert guest.look("route get 8.8.8.8")[0]["dev"] == "mgmt0"
    assert guest.look("-6 route get 2600::1")[0]["dev"] == "mgmt0"


def test_source_routed_packets_are_not_forwarded(victim):
    """Loose source routing (RFC 791) through the guest, to the management network."""
    guest, evil = victim
    option = b"\x83\x07\x04" + frames.packed(GATEWAY)
    packet = frames.udp4("172.16.1.66", ADDRESS, (9, 9), b"x", option)
    guest.run("sh", "-c", f"nohup {sys.executable} -c '{CAPTURE}' > {guest.folder}/seen 2>&1 &",
              where=guest.outside)  # fmt: skip
    evil.flood(20, lambda number: frames.ethernet(evil.mac, mac(1), frames.IP4, packet))  # noqa: ARG005
    evil.delivered()
    guest.wait("the capture is over", lambda: "end" in (guest.folder / "seen").read_text())
    assert "172.16.1.66" not in (guest.folder / "seen").read_text()


CAPTURE = """import select, socket, time
made = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
end = time.monotonic() + 2
while select.select([made], [], [], max(0, end - time.monotonic()))[0]:
    data = made.recv(2048)
    print(socket.inet_ntoa(data[12:16]), socket.inet_ntoa(data[16:20]))
print("end")""".replace("'", '"')


def test_tagged_frames_reach_no_address_of_another_network(victim):
    """A tag that nobody asked for has no device, so no ARP request in it is answered."""
    _, evil = victim
    asks = [
        frames.ethernet(evil.mac, frames.BROADCAST, frames.ARP,
                        frames.arp(evil.mac, "10.9.9.9", target=where, reply=False)[14:], vlan)
        for vlan in (0, 1, 66, 4094)
        for where in (MANAGED,)
    ]  # fmt: skip
    with evil.captured(lambda frame: frame[12:14] == b"\x08\x06" and frame[21] == 2) as seen:
        evil.send(*asks)
        evil.delivered()
    assert [
        one
        for one in seen
        if one[28:32] == frames.packed(MANAGED) and one[22:28] == frames.hardware(MANAGEMENT_MAC)
    ] == []


def test_a_flood_costs_neither_the_daemon_nor_the_management_network_anything(victim):
    guest, evil = victim
    daemon = guest.start()
    guest.wait("the daemon is up", lambda: guest.status()[1]["state"] == "ok")
    before, sizes = management(guest), []
    for _ in range(2):
        for make in FLOODS.values():
            evil.flood(2000, lambda number, make=make: make(evil, number))
        evil.delivered()
        sizes.append(resident(daemon.pid))
    assert daemon.running
    assert management(guest) == before
    assert sizes[1] - sizes[0] < 2 << 20
    assert "error" not in daemon.log()


FLOODS = {
    "arp": lambda evil, number: frames.arp(evil.mac, f"172.16.{number >> 8}.{number & 255}"),
    "advertisements": lambda evil, number: frames.router_advertisement(
        evil.mac, f"fe80::{number + 1:x}", frames.prefix_information(f"2001:db8:{number:x}::/64")),
    "udp": lambda evil, number: frames.ethernet(
        evil.mac, mac(1), frames.IP4, frames.udp4("172.16.1.66", ADDRESS, (9, number + 1), b"x")),
    "syn": lambda evil, number: frames.ethernet(
        evil.mac, mac(1), frames.IP4, frames.syn4("172.16.1.66", ADDRESS, (number + 1, 22))),
}  # fmt: skip


def resident(pid):
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def test_a_host_on_the_management_network_is_no_router_of_the_dataplane(guest, attackers):
    """What we promise there is less: a hostile host on it can be its router. But no dataplane NIC changes."""
    guest.management()
    guest.veth("dp1", 1, up=True)
    evil = attackers().on_management()
    assert guest.once(DOCUMENT).code == 0
    guest.settle()
    with guest.foreign.changing():
        evil.advertise(frames.prefix_information("2001:db8:66::/64"), lifetime=0)
        evil.claim(ADDRESS)
        guest.wait("the kernel has seen it", lambda: len(guest.addresses("mgmt0")) > 2)
        guest.settle()
    assert guest.once().code == 0  # what it advertises counts as a management network from now on
    assert guest.addresses("dp1") == {f"{ADDRESS}/24", "fd00:16::1/64"}
