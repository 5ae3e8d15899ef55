"""dhcpcd with a lease of the attacker's, which has every hostile option: started by the agent, and by an image on its first boot."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import os
import struct
import subprocess
from pathlib import Path

import frames
import pytest
from boots import Boot
from dhcpclient import PLACE, Clients
from lab import GATEWAY, GATEWAY6, PATIENCE, SERVICE, mac
from signs import NIC, ROUTER
from unpacked import has_program

from neuca_tools.desired import dhcp_files
from neuca_tools.model import LinkKey

LEASE, PUBLIC = "10.66.0.2", "8.8.8.8"
LABEL = dhcp_files.link_label(LinkKey(mac(7)))
DOCUMENT = f"[interface {mac(7)}]\nname = {NIC}\ndhcp4 = yes\n"
COMMAND = b"$(touch /tmp/neuca-pwned);`touch /tmp/neuca-pwned`'\"\n"
TARGETS = ("0.0.0.0/0", "0.0.0.0/1", "128.0.0.0/1", f"{GATEWAY}/32", "192.0.2.0/24", f"{SERVICE}/32", f"{PUBLIC}/32")  # fmt: skip
CLASSLESS = frames.classless(dict.fromkeys(TARGETS, ROUTER))
HOSTS = b"".join(frames.packed(host) + frames.packed(ROUTER) for host in (GATEWAY, SERVICE, PUBLIC))
HOSTILE = {
    "option_3": frames.packed(ROUTER),
    "option_6": frames.packed(ROUTER), "option_12": b"pwned" + COMMAND, "option_15": b"evil.example " + COMMAND,
    "option_26": struct.pack("!H", 68), "option_33": HOSTS, "option_42": frames.packed(ROUTER),
    "option_119": b"\x04evil\x07example\0", "option_252": b"http://10.66.0.1/" + COMMAND,
}  # fmt: skip
ROUTES = {
    "classless": {"option_121": CLASSLESS, "option_249": CLASSLESS},
    "Microsoft's": {"option_249": CLASSLESS},
    "static": {},
}
LENGTHS = {"255.255.255.0": 24, "128.0.0.0": 1, "0.0.0.0": 0}

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not has_program(PLACE), reason="it requires root and dhcpcd"
)


def ways(guest):
    """The interface to each host that matters."""
    hosts = (GATEWAY, SERVICE, PUBLIC, "11.1.1.1")
    return {host: guest.look(f"route get {host}")[0]["dev"] for host in hosts}


def files():
    return {path: path.read_bytes() for path in map(Path, ("/etc/resolv.conf", "/etc/hostname"))}


def is_taken(guest, evil, mask):
    return evil.leases and f"{LEASE}/{LENGTHS[mask]}" in guest.addresses(NIC)


@pytest.fixture
def attacked(daemons, guest, attackers):
    guest.management()
    evil = attackers().on_dataplane(NIC, 7)
    evil.own("10.66.0.1/24")
    clients = Clients(guest)
    daemons.append(clients)
    guest.configure(clients.options())
    return guest, evil


CASES = [*((routes, "255.255.255.0") for routes in ROUTES), ("classless", "0.0.0.0"), ("static", "128.0.0.0")]  # fmt: skip


@pytest.mark.parametrize(("routes", "mask"), CASES)
def test_a_lease_that_the_agents_client_takes_changes_its_own_nic_only(attacked, routes, mask):
    guest, evil = attacked
    before, name, main = files(), os.uname().nodename, guest.look("route show table main")
    way = ways(guest)
    evil.serve_dhcp(**HOSTILE, **ROUTES[routes], option_1=frames.packed(mask))
    guest.once(DOCUMENT)
    guest.wait("the lease", lambda: is_taken(guest, evil, mask))
    assert guest.once().code == 0
    assert ways(guest) == way
    assert [one for one in guest.look("route show table main") if one["dev"] != NIC] == main
    private = ["10.66.0.0/24"] if LENGTHS[mask] == 24 else []
    assert [one["dst"] for one in guest.look(f"route show dev {NIC}")] == private
    assert guest.link(NIC)["mtu"] == 1500
    assert guest.run("uname", "-n").out.strip() == name
    assert files() == before
    assert not Path("/tmp/neuca-pwned").exists()


class Running:
    """The client of an image, which does everything that dhcpcd does without its scripts."""

    def __init__(self, guest):
        guest.foreign.remember()
        command = [*guest.guest.enter, Clients(guest).program, "-B", "-q", NIC]
        quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        self.process = subprocess.Popen(command, **quiet)

    def stop(self):
        self.process.kill()
        self.process.wait(PATIENCE)


@pytest.fixture
def boot(guest, attackers):
    with contextlib.ExitStack() as stack:
        yield lambda state: Boot(guest, attackers, stack, state)


@pytest.mark.matrix
@pytest.mark.parametrize(("health", "lease"), [("404", "leased"), ("absent", "no lease")])
@pytest.mark.parametrize(("routes", "mask"), CASES)
def test_a_lease_that_an_images_client_takes_brings_no_first_document(
    boot, daemons, health, lease, routes, mask
):
    made = boot((health, "IPv4", lease))
    guest, evil = made.guest, made.evil
    evil.serve_dhcp(**HOSTILE, **ROUTES[routes], option_1=frames.packed(mask))
    with guest.foreign.changing():
        daemons.append(Running(guest))
        guest.wait("the lease", lambda: is_taken(guest, evil, mask))
        guest.wait(
            "its routes",
            lambda: any(one["dev"] == NIC for one in guest.look("route show proto dhcp")),
        )
    made.check_held()


ADVERTISED = (
    frames.mtu(1280), frames.rdnss("2001:db8:66::53"), frames.route_information(f"{GATEWAY6}/128"),
    *map(frames.prefix_information, ("2001:db8:66::/64", "::/1", "8000::/1", "fd00:ec2::/64")),
)  # fmt: skip


@pytest.mark.matrix
@pytest.mark.parametrize(("health", "lease"), [("404", "leased"), ("absent", "no lease")])
@pytest.mark.parametrize("family", ["IPv6", "dual"])
def test_a_router_that_an_images_client_takes_brings_no_first_document(
    boot, daemons, health, family, lease
):
    made = boot((health, family, lease))
    guest, evil = made.guest, made.evil
    evil.own("2001:db8:66::1/64")

    def is_taken():
        if guest.sysctl(f"net/ipv6/conf/{NIC}/accept_ra") != "0":
            return False  # the kernel is still the client
        evil.advertise(*ADVERTISED)
        dynamic = guest.look(f"-6 route show dev {NIC} proto ra")
        return {"default", "2001:db8:66::/64"} <= {route["dst"] for route in dynamic}

    with guest.foreign.changing():
        daemons.append(Running(guest))
        guest.wait("its routes", is_taken)
    made.check_held()
