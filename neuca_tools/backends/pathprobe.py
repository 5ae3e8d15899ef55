"""Probes, without capabilities, whether an unfragmented datagram of a size reaches a neighbour.

The probe is a UDP datagram with "don't fragment" to a closed port, which the neighbour's kernel
answers with ICMP "port unreachable" (RFC 1122, 3.2.2.1). Without a response the size counts as too
large, whether the datagram was lost or filtered.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
import select
import socket
import time

from neuca_tools.model import Host

FIRST_PORT = 33434  # the first one of traceroute(8), which firewalls expect
TRIES = 3
# Linux sends one "port unreachable" a second to a host that has used up its burst of six
# (icmp_ratelimit, net/ipv4/icmp.c), so the last of the tries comes more than that later.
ANSWER_SECONDS = 0.6
HEADERS = {4: 28, 6: 48}  # bytes of IP and UDP
# IP_MTU_DISCOVER and IPV6_MTU_DISCOVER (linux/in.h, in6.h), for which Python has no names.
MTU_DISCOVER = {4: (socket.IPPROTO_IP, 10), 6: (socket.IPPROTO_IPV6, 23)}
PROBE = 3  # IP_PMTUDISC_PROBE: don't fragment, and use the MTU of the device alone
_NOT_CARRIED = (
    errno.EMSGSIZE,
    errno.EHOSTUNREACH,
    errno.ENETUNREACH,
    errno.ENODEV,
    errno.ENETDOWN,
    errno.EADDRNOTAVAIL,
    errno.EPERM,
    errno.EACCES,
)


def acknowledged(device: str, neighbour: Host, size: int) -> bool:
    """Whether this neighbour acknowledges an IP packet of `size` bytes. Takes 1.8 s at most."""
    return any(
        _is_answered(device, neighbour, size, FIRST_PORT + number) for number in range(TRIES)
    )


def _is_answered(device: str, neighbour: Host, size: int, port: int) -> bool:
    family = socket.AF_INET if neighbour.version == 4 else socket.AF_INET6
    deadline = time.monotonic() + ANSWER_SECONDS
    with socket.socket(
        family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    ) as probe:
        try:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode() + b"\0")
            probe.setsockopt(*MTU_DISCOVER[neighbour.version], PROBE)
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * size)
            probe.connect((str(neighbour), port))
            probe.send(bytes(size - HEADERS[neighbour.version]))
            if select.select([probe], [], [], max(0.0, deadline - time.monotonic()))[0]:
                probe.recv(1)
                # The port was open after all.
                return True
        except ConnectionRefusedError:
            return True
        except OSError as error:
            if error.errno not in _NOT_CARRIED:
                raise
    return False
