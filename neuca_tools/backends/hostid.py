"""What this host is known by: its machine id, the UUID of its hardware, the MACs of its NICs; without any library."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import fcntl
import socket
import struct
import time
from contextlib import suppress
from pathlib import Path

from neuca_tools.model import machine

MACHINE_ID = Path("/etc/machine-id")
UUIDS = (
    Path("/sys/class/dmi/id/product_uuid"),
    Path("/sys/hypervisor/uuid"),
)  # the second is Xen's, without firmware
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
LONGEST = 64  # bytes of an id
SIOCGIFHWADDR, ARPHRD_ETHER = 0x8927, 1  # netdevice(7), linux/if_arp.h
REQUEST = struct.Struct("16sH14s8x")  # struct ifreq: name, family of the address, address


def look() -> machine.Machine:
    """What can be read of it; only root may read the UUID."""
    uuids = [text for text in map(_text, UUIDS) if text]
    return machine.known(_text(MACHINE_ID), uuids[0] if uuids else "")


def _text(path: Path) -> str:
    with suppress(OSError), path.open("rb") as stream:
        return stream.read(LONGEST).decode("ascii", "replace")
    return ""


def boot_id() -> str:
    """The kernel's identity of this boot (random(4)); empty where it cannot be read."""
    return _text(BOOT_ID).strip()


def age() -> float:
    """Seconds since the boot, time asleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def macs() -> frozenset[str]:
    """The current MAC of every Ethernet interface of this network namespace, whatever it is."""
    found = set()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as asked:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # it has gone meanwhile
                answer = fcntl.ioctl(asked, SIOCGIFHWADDR, REQUEST.pack(name.encode(), 0, b""))
                _, family, address = REQUEST.unpack(answer)
                if family == ARPHRD_ETHER:
                    found.add(address[:6].hex(":"))
    return frozenset(found)
