"""What a boot costs without us, with us, and with cloud-init doing the same network, each in a guest of the same packages.

The guest's clock counts instructions (QEMU's -icount, one for each nanosecond), so that a figure is the guest's own and hardly
depends on what else this machine does. Each kind is prepared by a boot that is not counted: then our document is in force, and
cloud-init has done all that it does once.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import images
from guest import MANAGEMENT, Guest, mac, nics
from steps import bare, in_force

PATIENCE = 1200.0  # seconds of this machine: instructions are counted by one thread
COUNTED = ("-icount", "shift=0,sleep=on")
NOT_HERE = "cloud-init=disabled"
LATE = 20  # seconds of the guest after its boot: what was put off until then belongs to the boot
VLAN = 1445
ADDRESSES = {mac(number): f"172.16.{number}.1/24" for number in (1, 2, 3)}
VLAN_ADDRESS = "10.14.45.1/24"
DOCUMENT = "\n".join(
    [
        "[interfaces]",
        *(f"{bare(nic)} = up:ipv4:{address}" for nic, address in ADDRESSES.items()),
        f"[vlan {bare(mac(1))}.{VLAN}]",
        f"addresses = {VLAN_ADDRESS}",
        "",
    ]
)
MANAGEMENT_DHCP = f"[Match]\nPermanentMACAddress={MANAGEMENT}\n\n[Network]\nDHCP=ipv4\n"
SEED = "/var/lib/cloud/seed/nocloud"
# Whoever wants the network online is part of every kind: else cloud-init alone would wait for it.
ONLINE = "systemctl add-wants multi-user.target network-online.target"
FIGURES = f"""systemctl is-system-running --wait > /dev/null; sleep {LATE}
systemctl show --property UserspaceTimestampMonotonic,FinishTimestampMonotonic
for group in init.scope system.slice system.slice/lab-agent.service; do
    echo "$group=$(sed -n 's/^usage_usec //p' /sys/fs/cgroup/$group/cpu.stat)"
done
ip -4 -oneline address"""


class Unmeasured(Exception):
    """A guest was not what it has to be for its figures to count."""


class Boot(NamedTuple):
    """Seconds of the guest's clock: `userspace` as systemd-analyze has it, `processor` of all processes but the lab's own."""

    userspace: float
    processor: float


@dataclass(frozen=True)
class Kind:
    """One kind of guest: whether our package is in it, words for its kernel, and what is done in its first boot."""

    title: str
    packaged: bool
    arguments: str
    prepare: Callable[[Guest], None]


def _base(guest: Guest) -> None:
    guest.check(ONLINE)
    guest.put("/etc/systemd/network/80-management.network", MANAGEMENT_DHCP)
    guest.check("networkctl reload")


def _ours(guest: Guest) -> None:
    _base(guest)
    in_force(guest, DOCUMENT, patience=PATIENCE)


def _cloud_init(guest: Guest) -> None:
    ethernets = {"management": {"match": {"macaddress": MANAGEMENT}, "dhcp4": True}}
    # Nobody advertises a router here: networkd would wait 12 s for one, and with it all that cloud-init does later.
    ethernets.update(
        {
            f"data{nic[-2:]}": {
                "match": {"macaddress": nic},
                "addresses": [address],
                "accept-ra": False,
            }
            for nic, address in ADDRESSES.items()
        }
    )
    vlans = {
        f"vlan{VLAN}": {
            "id": VLAN,
            "link": f"data{mac(1)[-2:]}",
            "addresses": [VLAN_ADDRESS],
            "accept-ra": False,
        }
    }
    guest.check(ONLINE)
    guest.put("/etc/cloud/cloud.cfg.d/95_bench.cfg", "datasource_list: [NoCloud]\n")
    guest.put(
        f"{SEED}/network-config", json.dumps({"version": 2, "ethernets": ethernets, "vlans": vlans})
    )
    guest.put(f"{SEED}/meta-data", "instance-id: bench\n")
    guest.put(f"{SEED}/user-data", "#cloud-config\nlocale: false\n")  # the image has no locales


BASE, OURS = (
    Kind("without", False, NOT_HERE, _base),
    Kind("neuca-guest-tools", True, NOT_HERE, _ours),
)
CLOUD_INIT = Kind("cloud-init", False, "", _cloud_init)
KINDS = (BASE, OURS, CLOUD_INIT)


def prepared(kind: Kind, folder: Path) -> Guest:
    """A guest of this kind, switched off after its first boot, in which there is no cloud-init, and one of its own."""
    image = images.image("E", kind.packaged)
    guest = Guest(changed(image, NOT_HERE), folder, nics(3))
    try:
        _first_boots(kind, guest, image)
    except BaseException:
        guest.close()  # QEMU would outlive us
        raise
    return guest


def _first_boots(kind: Kind, guest: Guest, image: images.Image) -> None:
    guest.serve(DOCUMENT)
    guest.boot(PATIENCE)
    kind.prepare(guest)
    guest.shut_down(PATIENCE)
    if kind is CLOUD_INIT:
        guest.image = changed(image, kind.arguments)
        guest.boot(PATIENCE)
        guest.check("cloud-init status --wait", PATIENCE)
        guest.shut_down(PATIENCE)


def changed(image: images.Image, arguments: str, machine: tuple[str, ...] = ()) -> images.Image:
    """The image with other words for its kernel and for QEMU."""
    return replace(image, recipe=replace(image.recipe, arguments=arguments, machine=machine))


def measure(kind: Kind, before: Guest, folder: Path) -> Boot:
    """One more boot of a guest that was prepared, from its disk as it was then. Raises Unmeasured."""
    guest = Guest(
        changed(before.image, kind.arguments, COUNTED),
        folder,
        nics(3),
        processors=1,
        disk=before.disk,
    )
    try:
        guest.serve(DOCUMENT)
        guest.boot(PATIENCE)
        return _figures(kind, guest.check(FIGURES, PATIENCE))
    finally:
        guest.close()
        guest.forget()


def _figures(kind: Kind, said: str) -> Boot:
    missing = [
        address
        for address in (*ADDRESSES.values(), VLAN_ADDRESS)
        if (f" {address} " in said) == (kind is BASE)
    ]
    if missing:
        raise Unmeasured(
            f"{kind.title}: {', '.join(missing)} {'is' if kind is BASE else 'is not'} there\n{said}"
        )
    found = dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
    userspace = int(found["FinishTimestampMonotonic"]) - int(found["UserspaceTimestampMonotonic"])
    processor = (
        int(found["init.scope"])
        + int(found["system.slice"])
        - int(found["system.slice/lab-agent.service"])
    )
    return Boot(userspace / 1e6, processor / 1e6)
