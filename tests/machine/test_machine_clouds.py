"""A guest of each cloud, from its first boot on: every NIC answers from its own address, as the cloud lets it.

Each has the DMI data of its cloud and, at the real address, a service that refuses what the real one
refuses. The dataplane NICs end at routers, which see only what leaves through their own NIC. What
passes documents without a network is a stand-in inside the guest: vmware-rpctool needs VMware's
backdoor port, and LXD's socket its agent.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import cloudmocks
import pytest
from guest import MANAGEMENT, mac, nics
from router import Router
from steps import LEAN, STATUS, addresses, assert_left_alone, assert_nothing_odd, names

NICS = [(MANAGEMENT, 0), (mac(1), 1), (mac(2), 2)]
FAR = "198.51.100.1"  # RFC 5737
NETPLAN = cloudmocks.netplan(NICS)
RPCTOOL = f"""#!/bin/sh
case "$1" in
"info-get guestinfo.metadata") echo '{json.dumps({"instance-id": "vm-1", "network": NETPLAN})}';;
*) echo "No value found" >&2; exit 1;;
esac
"""
LXD_PATHS = {
    "/1.0/meta-data": "instance-id: c-1\n",
    "/1.0/config/cloud-init.network-config": json.dumps(NETPLAN),
}
LXD_AGENT = f"""#!/usr/bin/python3
import os, socketserver
from http.server import BaseHTTPRequestHandler
from systemd.daemon import notify

class Handler(BaseHTTPRequestHandler):
    def address_string(self):
        return "guest"

    def do_GET(self):
        body = {LXD_PATHS!r}.get(self.path, "").encode()
        self.send_response(200 if body else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

os.makedirs("/dev/lxd", 0o755, exist_ok=True)
server = socketserver.ThreadingUnixStreamServer("/dev/lxd/sock", Handler)
notify("READY=1")
server.serve_forever()
"""
# As LXD's own, which comes before cloud-init too.
LXD_UNIT = """[Unit]
DefaultDependencies=no
After=local-fs.target
Before=multi-user.target cloud-init-local.service shutdown.target
Conflicts=shutdown.target

[Service]
Type=notify
ExecStart=/usr/local/lib/lab/lxd-agent
"""
LXD = {
    "/usr/local/lib/lab/lxd-agent": LXD_AGENT,
    "/etc/systemd/system/lxd-agent.service": LXD_UNIT,
    "/etc/systemd/system/multi-user.target.wants/lxd-agent.service": "-> ../lxd-agent.service",
}


@dataclass(frozen=True)
class Cloud:
    """`dmi`: what QEMU's -smbios takes; `addresses`: of NIC N, with {n}; `rules`: how many each address has; `far`: a
    host on the Internet; `at`: the address of the service; `files`: of the stand-ins."""

    name: str
    dmi: tuple[str, ...]
    service: Callable[..., cloudmocks.Strict] | None = None
    addresses: tuple[str, ...] = ("10.1.{n}.4/24",)
    rules: int = 3
    far: str = FAR
    at: str = "169.254.169.254"
    files: Mapping[str, str] = field(default_factory=dict)
    platform_hosts: tuple[str, ...] = ()

    def bare(self, number):
        """The addresses of a NIC, without their prefix lengths."""
        return [one.format(n=number).partition("/")[0] for one in self.addresses]


_ANY = "type=1,product=Standard PC"
CLOUDS = (
    Cloud(
        "azure",
        (_ANY, "type=3,asset=7783-7084-3265-9085-8269-3286-77"),
        cloudmocks.azure,
        platform_hosts=("168.63.129.16",),
    ),
    Cloud("oracle", (_ANY, "type=3,asset=OracleCloud.com"), cloudmocks.oracle),
    Cloud(
        "gce",
        ("type=1,manufacturer=Google,product=Google Compute Engine",),
        cloudmocks.gce,
        ("10.1.{n}.4/32",),
    ),
    # Its private networks have no way to the Internet.
    Cloud(
        "hetzner",
        ("type=1,manufacturer=Hetzner,product=vServer",),
        cloudmocks.hetzner,
        ("10.1.{n}.4/32", "10.1.{n}.5/32"),
        rules=0,
        far="",
    ),
    Cloud(
        "alibaba",
        ("type=1,manufacturer=Alibaba Cloud,product=Alibaba Cloud ECS",),
        cloudmocks.alibaba,
        at="100.100.100.200",
    ),
    # Its private networks have no gateway.
    Cloud(
        "vultr",
        ("type=1,manufacturer=Vultr,product=VHF",),
        cloudmocks.vultr,
        rules=0,
        far="",
    ),
    Cloud(
        "digitalocean",
        ("type=1,manufacturer=DigitalOcean,product=Droplet",),
        cloudmocks.digitalocean,
    ),
    Cloud("ec2", ("type=1,manufacturer=Amazon EC2,product=m5.large",), cloudmocks.ec2),
    Cloud("openstack", (), cloudmocks.openstack),
    Cloud(
        "vmware",
        ("type=1,manufacturer=VMware,, Inc.,product=VMware7,,1",),
        rules=1,
        files={"/usr/bin/vmware-rpctool": RPCTOOL},
    ),
    Cloud("lxd", (_ANY, "type=2,product=LXD"), rules=1, files=LXD),
)


@pytest.fixture
def routers():
    """A function that makes the routers of the dataplane NICs; all of them end with the test."""
    made = []

    def make(leased=(), others=lambda _: ()):
        made.extend(
            Router(number, address, dhcp=number in leased, others=others(number))
            for address, number in NICS[1:]
        )
        return made

    yield make
    for one in made:
        one.close()


def cards(routers, service="169.254.169.254"):
    management, *data = nics(2)
    there = [replace(nic, link=router.cable) for nic, router in zip(data, routers, strict=True)]
    return [replace(management, service=service), *there]


def configured(guest, patience=900):
    """The status, once the agent has a document and nothing left to do."""

    def fits(done):
        return done.output.startswith("{") and done.json["state"] == "ok"

    guest.eventually("test -e /run/neuca/last-pass.json", lambda done: done.code == 0, patience)
    return guest.eventually(STATUS, fits, patience).json


def own_rules(guest):
    """The priorities of the rules of each source address."""
    found: dict[str, list[int]] = {}
    for one in json.loads(guest.check("ip -json rule show")):
        if one["src"] != "all":
            found.setdefault(one["src"], []).append(one["priority"])
    return found


@pytest.mark.parametrize("cloud", CLOUDS, ids=lambda cloud: cloud.name)
def test_every_nic_of_a_cloud_answers_from_its_own_address(guests, routers, cloud):
    boot_in_cloud(guests, routers, cloud, "G")


@pytest.mark.long
def test_a_service_that_systemd_has_locked_is_read_and_its_lock_stays(guests, routers):
    """systemd-imdsd and its generator (systemd 261 and later), as they come with Debian."""
    ec2 = next(cloud for cloud in CLOUDS if cloud.name == "ec2")
    # What 40-imds.hwdb knows EC2 by.
    ec2 = replace(ec2, dmi=(*ec2.dmi, "type=0,vendor=Amazon EC2"))
    guest, _ = boot_in_cloud(guests, routers, ec2, "N", f"{LEAN} systemd.imds.network=locked")
    guest.check("systemctl is-active systemd-imdsd.socket")
    assert "lookup 2147420181" in guest.check("ip rule show")
    assert f"prohibit {ec2.at}" in guest.check("ip route show")
    first = guest.boot_id
    guest.reboot()
    assert guest.boot_id != first
    configured(guest)
    early = "/run/systemd/network/85-imds-early.network"
    called = names(guest)
    journal = guest.check("journalctl --boot --unit systemd-networkd --output cat --no-pager")
    using = {name: f"{name}: Configuring with {early}" in journal for name in called.values()}
    assert using == {called[nic]: nic == MANAGEMENT for nic in called}
    assert "lookup 2147420181" in guest.check("ip rule show")


@pytest.mark.long
@pytest.mark.parametrize("name", ["azure", "gce"])
def test_every_nic_has_one_owner_beside_the_helper_of_its_cloud(guests, routers, name):
    """azure-vm-utils and google-guest-agent."""
    cloud = next(cloud for cloud in CLOUDS if cloud.name == name)
    arguments = LEAN if name == "gce" else f"{LEAN} systemd.mask=google-guest-agent.service"
    guest, made = boot_in_cloud(guests, routers, cloud, "M", arguments, leased=(1, 2))
    assert_left_alone(guest)
    network = network_of(guest)
    guest.check("neuca apply", 600)
    assert network_of(guest) == network
    assert_answers(guest, made, cloud)
    guest.reboot()
    assert_served(guest, made, cloud)
    assert_left_alone(guest)


def network_of(guest):
    """Addresses, rules and routes, as text; without lifetimes."""
    words = ("-brief address", "rule", "route show table all", "-6 route show table all", "-6 rule")
    text = "".join(guest.check(f"ip {word}") for word in words)
    return re.sub(r" expires \d+sec", "", text)


def boot_in_cloud(guests, routers, cloud, image, arguments=LEAN, leased=()):
    """A guest of this image in this cloud, and its routers; every NIC answers from its own address."""
    made = routers(leased, others=cloud.bare)
    guest = guests(image, cards(made, cloud.at), files=cloud.files, arguments=arguments)
    guest.equip(*(word for smbios in cloud.dmi for word in ("-smbios", smbios)))
    if cloud.service:
        guest.cloud.mode, guest.cloud.strict = "ok", cloud.service(NICS)
    guest.boot()
    assert_served(guest, made, cloud)
    return guest, made


def assert_served(guest, routers, cloud):
    """Roles, addresses and rules are as the cloud's documents have them, and every NIC answers."""
    status = configured(guest)
    roles = {one["mac"]: one["role"] for one in status["interfaces"]}
    assert roles == {MANAGEMENT: "management", mac(1): "dataplane", mac(2): "dataplane"}
    called, found = names(guest), addresses(guest)
    own = {number: {one.format(n=number) for one in cloud.addresses} for number in (1, 2)}
    assert {number: found[called[mac(number)]] for number in (1, 2)} == own
    assert found[called[MANAGEMENT]] == {f"{cloud.at.rpartition('.')[0]}.16/24"}
    counted = {source: len(some) for source, some in own_rules(guest).items()}
    bare = [*cloud.bare(1), *cloud.bare(2)]
    assert counted == (dict.fromkeys(bare, cloud.rules) if cloud.rules else {})
    for host in cloud.platform_hosts:  # as the cloud's DHCP server announces it (RFC 3442)
        gateway = f"{cloud.at.rpartition('.')[0]}.2"
        guest.check(f"ip route add {host} via {gateway} dev {called[MANAGEMENT]} proto dhcp")
        guest.check("neuca apply", 600)
    assert_answers(guest, routers, cloud)
    assert_nothing_odd(guest)


def assert_answers(guest, routers, cloud):
    for number, router in enumerate(routers, 1):
        # From the Internet and from a neighbour of the other NIC; or from this NIC's own network.
        sources = [cloud.far, f"10.1.{3 - number}.77"] if cloud.far else [f"10.1.{number}.77"]
        for address in cloud.bare(number):
            for source in (*sources, *cloud.platform_hosts):
                assert router.answers(source, address), (source, address)
        assert router.spoofed == set()
    assert guest.reachable()


# --- OpenStack's three networks -------------------------------------------------------------------

SLOTS = (0x10, 0x11, 0x12, 0x13)
# In the first one the management NIC comes last; NEUCA_ORDERS=24 is a campaign over all of them.
ORDERS = list(itertools.permutations(SLOTS, 3))[::-1]
COUNT = int(os.environ.get("NEUCA_ORDERS", "2"))


def in_orders(guests, made, image, service):
    """A guest in each order: first boots, and boots of the same guest in the next order."""
    for number, order in enumerate(ORDERS[:COUNT]):
        if number % 2 == 0:
            guest = guests(image, cards(made), arguments=LEAN)
            guest.cloud.mode, guest.cloud.strict = "ok", service
            # ifupdown's file names eth0, which has to be the management NIC at the first boot.
            first = SLOTS[:3] if image == "D" else order
        guest.permute(first if number % 2 == 0 else order)
        guest.boot()
        yield guest
        if number % 2 and number + 1 < COUNT:
            guest.close()
        else:
            guest.shut_down()


@pytest.mark.parametrize("leased", [(), (1, 2), (2,)], ids=["static", "dhcp", "mixed"])
@pytest.mark.parametrize("image", ["A", "C", "D"])
def test_three_networks_with_gateways_over_permuted_slots(guests, routers, image, leased):
    made = routers(leased)
    known = {}  # the names of each guest
    for guest in in_orders(guests, made, image, cloudmocks.openstack(NICS, leased)):
        assert_three_networks(guest, made)
        assert names(guest) == known.setdefault(guest.folder, names(guest))


def assert_three_networks(guest, routers):
    """Roles, and each NIC with its address, static or leased, which answers near and far hosts."""
    status = configured(guest)
    roles = {one["mac"]: one["role"] for one in status["interfaces"]}
    assert roles == {MANAGEMENT: "management", mac(1): "dataplane", mac(2): "dataplane"}
    called = names(guest)
    for number, router in enumerate(routers, 1):
        name, wanted = called[mac(number)], {f"10.1.{number}.4/24"}
        guest.eventually("true", lambda _: addresses(guest)[name] == wanted, 300)  # noqa: B023
        for source in (f"10.1.{number}.1", FAR):
            assert router.answers(source, f"10.1.{number}.4"), (source, number)
        assert router.spoofed == set()
    assert addresses(guest)[called[MANAGEMENT]] == {"169.254.169.16/24"}
    assert guest.reachable()
