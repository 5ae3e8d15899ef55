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
from lab import GATEWAY, SERVICE
from steps import ADDRESSES, DOCUMENT, LEAN, STATUS, dataplane, in_force, names

SECONDS_ABSENT = 60.0
SECONDS_TO_WAIT_FOR_THE_FIRST_NIC = 180.0
SECONDS_WITHOUT_LEASE = SECONDS_TO_WAIT_FOR_THE_FIRST_NIC + 60
MANAGEMENT_NIC, ATTACKED_NIC, OTHER_NIC = nics(2)
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
REAL_ADDRESSES = {ATTACKED: {"172.16.0.1/24"}, OTHER: {"10.66.0.9/24", "fd00:16::9/64"}}
# Of two default routes without a metric the kernel takes the first: here the attacker's.
INTERFACES = "auto lo\niface lo inet loopback\n" + "".join(
    f"\nauto eth{number}\niface eth{number} inet dhcp\n" for number in (1, 0)
)
# dhclient of Debian tries for five minutes, one NIC after the other.
CLIENT = "timeout 20;\nretry 20;\n"
# What has to be on the disk for DHCP on every NIC.
FILES: dict[str, dict[str, str]] = {
    "A": {},
    "C": {},
    "D": {"/etc/network/interfaces": INTERFACES, "/etc/dhcp/dhclient.conf": CLIENT},
}


def lease(hostile, server=SERVER, offered=OFFERED, **options):
    hostile.own(f"{server}/16").serve_dhcp(offered, server, **options)


LEASES = ("router", "route-to-service", "service-network", "infinite-lease")
ATTACKS = {
    "answers": lambda hostile: hostile.own(f"{SERVER}/16"),
    "router": lambda hostile: lease(hostile, **ROUTER),
    "route-to-service": lambda hostile: lease(hostile, **TO_SERVICE),
    "service-network": lambda hostile: lease(
        hostile, IN_SERVICE_NETWORK, "169.254.66.2",
        option_1=bytes((255, 255, 0, 0)), option_3=frames.packed(IN_SERVICE_NETWORK),
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
def hosts():
    """A function that makes hosts outside of the guest, each with a cable to it."""
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(contextlib.closing(Hostile()))


@pytest.fixture
def attacked(guests, hosts):
    """A function that makes a guest of an image, and the host that attacks it."""

    def make(image, attack, management=MANAGEMENT_NIC):
        hostile = hosts()
        about = json.dumps({"uuid": "00000000-0000-4000-8000-000000000066"})
        files = {"meta_data.json": about, "user_data": HOSTILE}
        hostile.impersonate(HOSTILE, openstack=files, tokens=False)
        ATTACKS[attack](hostile)
        cards = [management, replace(ATTACKED_NIC, link=hostile.cable), OTHER_NIC]
        return guests(image, cards, files=FILES[image], arguments=LEAN), hostile

    return make


def assert_held(guest, status, asked=()):
    """Nobody at the other end of the cable has been asked or obeyed, and its NIC is not for management."""
    scripts = guest.run("ls /var/tmp").output.split()
    machine = guest.run("cat /var/lib/neuca/machine.json").output
    origin = json.loads(machine or "{}").get("origin") or {}
    roles = {one["mac"]: one["role"] for one in status["interfaces"]}
    seen = {
        "hostile script ran": "hostile" in scripts,
        "origin is the attacker": origin.get("mac") == ATTACKED,
        "attacker was asked": asked[:1],
        "attacker's NIC is for management": roles.get(ATTACKED) == "management",
    }
    assert not any(seen.values()), (seen, roles, status["problems"])


def watch(guest, hostile, ended, patience=1800):
    """Nothing changes hands while the service is as it is, until `ended()`; `hostile`: None if it may be asked."""

    def fits(done):
        if done.output.startswith("{"):
            assert_held(guest, done.json, hostile.asked() if hostile else ())
        return ended()

    guest.eventually("test -e /run/neuca/last-pass.json", lambda done: done.code == 0, patience)
    guest.eventually(STATUS, fits, patience)


def after(seconds):
    deadline = time.monotonic() + seconds
    return lambda: time.monotonic() > deadline


def arrives(guest, hostile):
    """The real document is in force without anybody's help, and nobody else has been asked."""
    guest.serve(REAL)
    assert_held(guest, becomes_real(guest), hostile.asked())


def becomes_real(guest):
    """The status, once the real document is in force, also on the attacker's NIC."""
    status = in_force(guest, REAL)
    roles = {one["mac"]: one["role"] for one in status["interfaces"]}
    assert roles == {MANAGEMENT: "management", ATTACKED: "dataplane", OTHER: "dataplane"}
    there = dataplane(guest)
    # What an image's own client has set is not the agent's.
    assert all(addresses <= there[nic] for nic, addresses in REAL_ADDRESSES.items()), there
    guest.eventually("ls /var/tmp", lambda done: "real" in done.output.split(), 600)
    return status


def absent_until_late(guest, hostile):
    """Twice "not found", then nobody there for more than a minute."""
    guest.serve("")
    guest.cloud.mode = "404"
    guest.boot()
    asked = len(guest.cloud.requests)
    watch(guest, hostile, lambda: len(guest.cloud.requests) > asked + 8)
    guest.cloud.mode = "off"
    watch(guest, hostile, after(SECONDS_ABSENT))


def absent_for_long(guest, hostile):
    """Longer than the guest would wait for a lease, which the management NIC has."""
    guest.boot()
    watch(guest, hostile, lambda: seconds_since_boot(guest) > SECONDS_WITHOUT_LEASE)


def without_user_data(guest, hostile):
    guest.cloud.mode = "ok"
    guest.cloud.document = None
    guest.cloud.files = {"/latest/meta-data/instance-id": "i-0001"}
    guest.boot()
    asked = len(guest.cloud.requests)
    watch(guest, hostile, lambda: len(guest.cloud.requests) > asked + 8)


def well(guest, hostile):
    guest.serve(REAL)
    guest.boot()
    watch(guest, hostile, lambda: True)


IMAGES = ("A", "C", "D")


def cases():
    """Where the service is well, only what may contest it, and what the kernel itself obeys, is worth a boot."""
    yield from (("A", "router", absent_for_long), ("D", "prefix-0", absent_for_long))
    for image in IMAGES:
        for attack in ATTACKS:
            chosen = [pytest.mark.chosen] if (image, attack) == ("C", "router") else []
            yield pytest.param(image, attack, absent_until_late, marks=chosen)
        for service in (without_user_data, well):
            for attack in ("router", "prefix-0") if image != "D" else ATTACKS:
                yield image, attack, service


@pytest.mark.parametrize(("image", "attack", "service"), cases())
def test_nobody_but_the_service_of_the_management_nic_is_believed(attacked, image, attack, service):
    guest, hostile = attacked(image, attack)
    service(guest, hostile)
    assert hostile.leases or attack not in LEASES
    arrives(guest, hostile)


@pytest.mark.parametrize("attack", ["router", "prefix-0"])
def test_the_only_lease_of_a_guest_brings_no_document(attacked, hosts, attack):
    """The management NIC gets its own later than a guest waits for it."""
    real = hosts().own(f"{GATEWAY}/24").impersonate(REAL, [SERVICE])
    management = replace(MANAGEMENT_NIC, management=False, link=real.cable)
    guest, _ = attacked("C", attack, management)
    guest.boot()
    # Once that time is over it may be asked, and is not obeyed.
    watch(guest, None, lambda: seconds_since_boot(guest) > SECONDS_WITHOUT_LEASE)
    if attack == "router":
        assert f"neuca trust {names(guest)[ATTACKED]}" in guest.run("neuca status").output
    real.serve_dhcp(
        "192.0.2.10", GATEWAY,
        option_1=bytes((255, 255, 255, 0)), option_3=frames.packed(GATEWAY),
    )  # fmt: skip
    assert_held(guest, becomes_real(guest))


def seconds_since_boot(guest):
    return float(guest.check("cat /proc/uptime").split()[0])


# --- nobody attacks: which slot the management NIC is in ---

UUID, ANOTHER_UUID = (f"6a1e3a1c-4a3b-4f2e-9d55-1f0c6b1f2a{end}" for end in ("01", "02"))
SLOTS = (0x10, 0x11, 0x12, 0x13)
EVERY_NIC = "auto lo\niface lo inet loopback\n" + "".join(
    f"\nauto eth{number}\niface eth{number} inet dhcp\n" for number in range(4)
)


def in_slot(guests, image, slot, uuid):
    """A guest with the management NIC in this slot, and cables without a DHCP server at the other NICs."""
    files = FILES[image] and {**FILES[image], "/etc/network/interfaces": EVERY_NIC}
    guest = guests(image, nics(3), files=files, arguments=LEAN)
    others = [place for place in SLOTS if place != slot]
    guest.permute([slot, *others])
    guest.equip("-uuid", UUID)
    guest.serve(DOCUMENT)
    guest.cloud.files = {
        "/openstack/latest/meta_data.json": json.dumps({"uuid": uuid}),
        "/openstack/latest/user_data": DOCUMENT,
    }
    return guest


@pytest.mark.parametrize("slot", SLOTS)
@pytest.mark.parametrize("image", IMAGES)
def test_a_guest_whose_instance_the_firmware_knows_comes_up_in_every_slot(guests, image, slot):
    guest = in_slot(guests, image, slot, UUID)
    guest.boot()
    status = in_force(guest, DOCUMENT)
    seconds = seconds_since_boot(guest)
    print(f"{image}, management NIC in slot {slot:#x}: configured after {seconds:.0f} s")
    roles = {one["mac"]: one["role"] for one in status["interfaces"]}
    assert roles[MANAGEMENT] == "management"
    assert dataplane(guest) == ADDRESSES
    assert slot == SLOTS[0] or seconds > SECONDS_TO_WAIT_FOR_THE_FIRST_NIC


@pytest.mark.parametrize("slot", [SLOTS[0], SLOTS[2]])
def test_an_instance_that_nothing_vouches_for_waits_for_an_administrator(guests, slot):
    """Only where the management NIC is not the first one."""
    guest = in_slot(guests, "C", slot, ANOTHER_UUID)
    guest.boot()
    if slot != SLOTS[0]:
        name = names(guest)[MANAGEMENT]
        guest.eventually("neuca status", lambda done: f"neuca trust {name}" in done.output)
        assert all(not found for found in dataplane(guest).values())
        print(f"asks for help after {seconds_since_boot(guest):.0f} s")
        guest.check(f"neuca trust {name}")
    in_force(guest, DOCUMENT)
    assert dataplane(guest) == ADDRESSES
