"""Joins a cable of `qemu.link()` with a tap device of the network namespace that it is started in."""

# SPDX-License-Identifier: MIT

import contextlib
import fcntl
import os
import selectors
import socket
import struct
import sys

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000  # linux/if_tun.h
LONGEST_FRAME = 65536


def copy(source, sink):
    """One frame. A guest that is switched off takes none, and a device that is down neither: it is lost, as on a cable."""
    with contextlib.suppress(OSError):
        os.write(sink, os.read(source, LONGEST_FRAME))


def main():
    name, descriptor = sys.argv[1:]
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    cable = socket.socket(fileno=int(descriptor))
    cable.setblocking(False)
    print("ready", flush=True)
    with selectors.DefaultSelector() as selector:
        selector.register(0, selectors.EVENT_READ, None)  # closed when nobody needs this any more
        selector.register(tap, selectors.EVENT_READ, cable.fileno())
        selector.register(cable, selectors.EVENT_READ, tap)
        while True:
            for key, _ in selector.select():
                if key.data is None:
                    return
                copy(key.fd, key.data)


if __name__ == "__main__":
    main()
