"""Who is believed at a first boot: never a host at the other end of a dataplane cable, whatever it leases or advertises.

Every NIC does DHCP, as in cloud images, and the attacker is there from the first second on. Each case ends with the
document of the real service, which names the attacker's NIC and networks that the attacker has chosen.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import replace

import frames
import pytest
from guest import MANAGEMENT, mac, nics
from hostile import Hostile
from steps import LEAN, STATUS, dataplane, in_force

SECONDS_ABSENT = 60.0
ATTACKED, OTHER = mac(1), mac(2)
SERVER, OFFERED = "10.66.0.1", "10.66.0.2"
IN_SERVICE_NETWORK = "169.254.66.1"
ROUTER = {"option_1": bytes((255, 255, 255, 0)), "option_3": frames.packed(SERVER)}
TO_SERVICE = {"option_1": bytes((255, 255, 255, 0)),
              "option_121": frames.classless({"169.254.169.254/32": SERVER})}  # fmt: skip
PREFIX = frames.prefix_information("fd00:16::/64")
ON_LINK = 0x80  # of a prefix: no addresses are made from it (RFC 4861, section 4.6.2)

SCRIPT = "[scripts]\nbootscript = #!/bin/sh\n    touch /var/tmp/{}\n"
HOSTILE = f"[interfaces]\n{ATTACKED} = up:ipv4:172.16.66.66/24\n" + SCRIPT.format("hostile")
REAL = f"""[interface {ATTACKED}]
addresses = 172.16.0.1/24
[interface {OTHER}]
addresses = 10.66.0.9/24, fd00:16::9/64
""" + SCRIPT.format("real")
ADDRESSES = {ATTACKED: {"172.16.0.1/24"}, OTHER: {"10.66.0.9/24", "fd00:16::9/64"}}
INTERFACES = "auto lo\niface lo inet loopback\n" + "".join(
    f"\nauto eth{number}\niface eth{number} inet dhcp\n" for number in (0, 1)
)
# What has to be on the disk for DHCP on every NIC.
FILES = {"A": {}, "C": {}, "D": {"/etc/network/interfaces": INTERFACES}}


def lease(hostile, server=SERVER, offered=OFFERED, **options):
    hostile.own(f"{server}/16").serve_dhcp(offered, server, **options)


ATTACKS = {
    "answers": lambda hostile: None,
    "router": lambda hostile: lease(hostile, **ROUTER),
    "route-to-service": lambda hostile: lease(hostile, **TO_SERVICE),
    "service-network": lambda hostile: lease(
        hostile, IN_SERVICE_NETWORK, "169.254.66.2", option_1=bytes((255, 255, 0, 0))
    ),
    "infinite-lease": lambda hostile: lease(hostile, **ROUTER, option_51=bytes((255,) * 4)),
    "prefix-0": lambda hostile: hostile.keep_advertising(
        frames.prefix_information("::/0", ON_LINK), PREFIX, lifetime=0
    ),
    "prefix-1": lambda hostile: hostile.keep_advertising(
        frames.prefix_information("::/1", ON_LINK),
        frames.prefix_information("8000::/1", ON_LINK), PREFIX, lifetime=0,
    ),
    "default-route": lambda hostile: hostile.keep_advertising(PREFIX),
    "service-prefix": lambda hostile: hostile.keep_advertising(
        frames.prefix_information("fd00:ec2::/64"), PREFIX, lifetime=0
    ),
}  # fmt: skip


@pytest.fixture
def attacked(guests):
    """A function that makes a guest of an image, and the host that attacks it."""
    with contextlib.ExitStack() as stack:

        def make(image, attack):
            hostile = stack.enter_context(contextlib.closing(Hostile()))
            about = json.dumps({"uuid": "00000000-0000-4000-8000-000000000066"})
            hostile.impersonate(HOSTILE, openstack={"meta_data.json": about, "user_data": HOSTILE})
            ATTACKS[attack](hostile)
            management, first, second = nics(2)
            cards = [management, replace(first, link=hostile.cable), second]
            return guests(image, cards, files=FILES[image], arguments=LEAN), hostile

        yield make


def assert_held(guest, hostile, status):
    """Nobody at the other end of the cable has been asked or obeyed, and each NIC has its role."""
    scripts = guest.run("ls /var/tmp").output.split()
    machine = guest.run("cat /var/lib/neuca/machine.json").output
    origin = json.loads(machine or "{}").get("origin") or {}
    roles = {one["mac"]: one["role"] for one in status["interfaces"]}
    seen = {
        "hostile script ran": "hostile" in scripts,
        "origin is the attacker": origin.get("mac") == ATTACKED,
        "attacker was asked": hostile.asked()[:1],
        "attacker's NIC is for management": roles.get(ATTACKED) == "management",
    }
    assert not any(seen.values()), (seen, roles, status["problems"])


def watch(guest, hostile, ended, patience=1800):
    """Nothing changes hands while the service is as it is, until `ended()`."""

    def fits(done):
        if done.output.startswith("{"):
            assert_held(guest, hostile, done.json)
        return ended()

    guest.eventually("test -e /run/neuca/last-pass.json", lambda done: done.code == 0, patience)
    guest.eventually(STATUS, fits, patience)


def after(seconds):
    deadline = time.monotonic() + seconds
    return lambda: time.monotonic() > deadline


def arrives(guest, hostile):
    """The real document is in force without anybody's help, also on the attacker's NIC."""
    if guest.cloud.document != REAL or guest.cloud.mode != "ok":
        guest.serve(REAL)
    status = in_force(guest, REAL)
    assert_held(guest, hostile, status)
    roles = {one["mac"]: one["role"] for one in status["interfaces"]}
    assert roles == {MANAGEMENT: "management", ATTACKED: "dataplane", OTHER: "dataplane"}
    assert dataplane(guest) == ADDRESSES
    guest.eventually("ls /var/tmp", lambda done: "real" in done.output.split(), 600)


def absent_until_late(guest, hostile):
    """Twice "not found", then nobody there for more than a minute."""
    guest.serve("")
    guest.cloud.mode = "404"
    guest.boot()
    asked = len(guest.cloud.requests)
    watch(guest, hostile, lambda: len(guest.cloud.requests) > asked + 8)
    guest.cloud.mode = "off"
    watch(guest, hostile, after(SECONDS_ABSENT))


def without_user_data(guest, hostile):
    guest.cloud.mode = "ok"
    guest.cloud.document = None
    guest.cloud.files = {"/latest/meta-data/instance-id": "i-0001"}
    guest.boot()
    asked = len(guest.cloud.requests)
    watch(guest, hostile, lambda: len(guest.cloud.requests) > asked + 8)


def well(guest, hostile):  # noqa: ARG001 - one of several
    guest.serve(REAL)
    guest.boot()


IMAGES = ("A", "C", "D")
SERVICES = (absent_until_late, without_user_data, well)


def cases():
    """Where the service is well, only what may contest it, and what the kernel itself obeys, is worth a boot."""
    for image in IMAGES:
        yield from ((image, attack, absent_until_late) for attack in ATTACKS)
        for service in (without_user_data, well):
            for attack in ("router", "prefix-0") if image != "D" else ATTACKS:
                yield image, attack, service


@pytest.mark.parametrize(("image", "attack", "service"), cases())
def test_nobody_but_the_service_of_the_management_nic_is_believed(attacked, image, attack, service):
    guest, hostile = attacked(image, attack)
    service(guest, hostile)
    arrives(guest, hostile)
