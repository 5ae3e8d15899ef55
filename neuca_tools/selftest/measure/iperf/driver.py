"""A driver's own counters, as `ethtool -S` shows them, by ioctl: ethtool netlink lacks them."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct

SIOCETHTOOL = 0x8946
# ETHTOOL_GDRVINFO, ETHTOOL_GSTRINGS, ETHTOOL_GSTATS.
DRIVER_INFO, STRINGS, VALUES = 0x03, 0x1B, 0x1D
# ETH_SS_STATS.
STATISTICS = 1
# ETH_GSTRING_LEN; the size of struct ethtool_drvinfo, and the offset of its n_stats.
NAME_LENGTH, INFO_LENGTH, COUNT_AT = 32, 196, 180
# The most counters of one device; a NIC with hundreds of queues has about that many.
MOST_COUNTERS = 4096


def driver_statistics(device: str) -> dict[str, int]:
    """All counters by name; none if the driver has none, or the device does not exist."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
            return _read_statistics(asked.fileno(), device)
    except OSError:
        return {}


def _read_statistics(descriptor: int, device: str) -> dict[str, int]:
    information = _query_driver(
        descriptor, device, struct.pack("=I", DRIVER_INFO).ljust(INFO_LENGTH, b"\0")
    )
    count = struct.unpack_from("=I", information, COUNT_AT)[0]
    if not 0 < count <= MOST_COUNTERS:
        return {}
    header = struct.pack("=III", STRINGS, STATISTICS, count)
    strings = _query_driver(descriptor, device, header + bytes(count * NAME_LENGTH))[len(header) :]
    values = _query_driver(descriptor, device, struct.pack("=II", VALUES, count) + bytes(count * 8))
    names = [name.partition(b"\0")[0] for (name,) in struct.iter_unpack(f"{NAME_LENGTH}s", strings)]
    texts = [name.decode("ascii", "replace").strip() for name in names]
    return dict(zip(texts, struct.unpack_from(f"={count}Q", values, 8)))


def _query_driver(descriptor: int, device: str, request: bytes) -> bytes:
    """The kernel writes its answer over the request, through the pointer in struct ifreq."""
    room = ctypes.create_string_buffer(request, len(request))
    name = os.fsencode(device)[:15].ljust(16, b"\0")
    ifreq = name + struct.pack("P", ctypes.addressof(room)) + bytes(16)
    fcntl.ioctl(descriptor, SIOCETHTOOL, ifreq)
    return room.raw
