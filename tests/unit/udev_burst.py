"""Run in a network namespace of its own: be udevd for one event, then for a burst, and print what the monitor made of it."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import socket
import struct

from neuca_tools.backends.udev import Monitor

UDEV_GROUP = (
    2  # the multicast group of processed events, MONITOR_GROUP_UDEV in systemd's device-monitor
)
MURMUR_OF_NET = 0xA74D3CC8  # MurmurHash2("net", 0), what the filter for a subsystem compares


def event(subsystem=MURMUR_OF_NET, **properties):
    """A message of libudev's format (monitor_netlink_header, device-monitor.c)."""
    body = b"".join(f"{key}={value}".encode() + b"\0" for key, value in properties.items())
    numbers = struct.pack("=III", 40, 40, len(body))
    return (
        b"libudev\0"
        + struct.pack("!I", 0xFEEDCAFE)
        + numbers
        + struct.pack("!IIII", subsystem, 0, 0, 0)
        + body
    )


def main():
    monitor = Monitor()
    sender = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 15)  # NETLINK_KOBJECT_UEVENT
    message = event(
        ACTION="add",
        DEVPATH="/devices/virtual/net/lo",
        SUBSYSTEM="net",
        INTERFACE="lo",
        IFINDEX=1,
        SEQNUM=1,
    )
    quiet = sorted(monitor.drain())
    sender.sendto(message, (0, UDEV_GROUP))
    one = sorted(monitor.drain())
    # Of another subsystem; in libudev's format no longer; among the kernel's own.
    sender.sendto(event(subsystem=1, ACTION="add", SUBSYSTEM="net", IFINDEX=1), (0, UDEV_GROUP))
    sender.sendto(b"another" + message[7:], (0, UDEV_GROUP))
    sender.sendto(message, (0, 1))
    others = sorted(monitor.drain())
    for _ in range(100_000):
        sender.sendto(message, (0, UDEV_GROUP))
    monitor.drain()
    burst, after = monitor.overflowed, sorted(monitor.drain())
    del monitor
    fresh = Monitor()
    sender.sendto(message, (0, UDEV_GROUP))
    print(
        json.dumps(
            {
                "quiet": quiet,
                "one": one,
                "others": others,
                "burst": burst,
                "after": after,
                "fresh": sorted(fresh.drain()),
            }
        )
    )


if __name__ == "__main__":
    main()
