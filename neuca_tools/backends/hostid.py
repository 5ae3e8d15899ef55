"""Reads the identity of this host: machine ID, hardware UUID, boot ID and MACs."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import fcntl
import socket
import struct
import time
from contextlib import suppress
from pathlib import Path

from neuca_tools.files import text_of
from neuca_tools.model import machine, ports

MACHINE_ID = Path("/etc/machine-id")
# The second is for Xen guests without firmware.
UUIDS = (Path("/sys/class/dmi/id/product_uuid"), Path("/sys/hypervisor/uuid"))
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
MAX_ID_BYTES = 64
SIOCGIFHWADDR, ARPHRD_ETHER = 0x8927, 1  # netdevice(7), linux/if_arp.h
SYSFS = Path("/sys/class/net")
IFREQ = struct.Struct("16sH14s8x")  # struct ifreq: name, family of the address, address


def read_machine() -> machine.Machine:
    """The identity, as far as it can be read: only root may read the UUID."""
    uuids = [text for text in (text_of(path, MAX_ID_BYTES) for path in UUIDS) if text]
    return machine.known_machine(text_of(MACHINE_ID, MAX_ID_BYTES), uuids[0] if uuids else "")


def boot_id() -> str:
    """The boot ID of the kernel (random(4)); empty if it cannot be read."""
    return text_of(BOOT_ID, MAX_ID_BYTES)


def boot_age() -> float:
    """Seconds since the boot, including suspend."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def present_macs() -> frozenset[str]:
    """The current MAC of every Ethernet interface of this namespace, including virtual ones, and
    the GUID of every InfiniBand port.
    """
    addresses = set()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as kernel:
        for _, name in socket.if_nameindex():
            # The interface may have disappeared.
            with suppress(OSError):
                answer = fcntl.ioctl(kernel, SIOCGIFHWADDR, IFREQ.pack(name.encode(), 0, b""))
                _, family, address = IFREQ.unpack(answer)
                if family == ARPHRD_ETHER:
                    addresses.add(address[:6].hex(":"))
                elif family == ports.INFINIBAND:
                    addresses.add(port_guid(name))
    return frozenset(addresses - {""})


def port_guid(name: str) -> str:
    """The GUID of an InfiniBand interface; empty if it has none, or is gone.

    From sysfs, because struct ifreq has room for 14 of the 20 bytes.
    """
    with suppress(OSError, ValueError):
        text = (SYSFS / name / "address").read_text(encoding="ascii")
        return ports.guid(bytes.fromhex(text.strip().replace(":", "")))
    return ""
