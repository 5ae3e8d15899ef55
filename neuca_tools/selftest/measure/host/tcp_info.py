"""TCP_INFO of a test's sockets, from socket diagnostics (sock_diag(7)), as `ss -ti` shows it.

The index of each value is that in struct tcp_info of linux/tcp.h. Older kernels send a shorter
structure, without the values at its end.

ss(8) is not used: for 128 connections it takes twice the CPU time of this, without the time to
parse its text. pyroute2 is not: the DiagSocket of 0.7 asks for all sockets of the host, not for
those with a port, and that of 0.9 too leaves SK_MEMINFO_* undecoded.
"""

# SPDX-License-Identifier: MIT

import struct
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from neuca_tools.backends import wire
from neuca_tools.backends.routing import FAMILIES
from neuca_tools.selftest.evidence import Socket

NETLINK_SOCK_DIAG, BY_FAMILY = 4, 20
TCP = 6
# INET_DIAG_* in linux/inet_diag.h: attributes with struct tcp_info, a name, and SK_MEMINFO_*.
INFO, CONGESTION, MEMORY = 2, 4, 7
EXTENSIONS = 1 << (INFO - 1) | 1 << (CONGESTION - 1) | 1 << (MEMORY - 1)
LISTEN = 10  # include/net/tcp_states.h
# ESTABLISHED, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT and LAST_ACK: a connection that is being closed may
# still have data in flight.
SENDING = (1, 4, 5, 8, 9)
MESSAGE, RECEIVE_QUEUE = 72, 56  # bytes of struct inet_diag_msg, and the offset of its idiag_rqueue
# Offsets in struct tcp_info: tcpi_backoff, and the byte with tcpi_delivery_rate_app_limited.
BACKOFF, FLAGS = 4, 7
# Indexes of values in struct tcp_info as an array of 32-bit words, and of 64-bit words.
WORDS = {
    "mss": 4,
    "unacked": 6,
    "rtt": 17,
    "snd_cwnd": 20,
    "total_retrans": 25,
    "min_rtt": 37,
    "snd_wnd": 57,
}
LONG_WORDS = {
    "bytes_acked": 15,
    "bytes_received": 16,
    "busy_time": 21,
    "rwnd_limited": 22,
    "sndbuf_limited": 23,
    "bytes_sent": 25,
    "bytes_retrans": 26,
}
# SK_MEMINFO_RCVBUF, SK_MEMINFO_SNDBUF and SK_MEMINFO_WMEM_QUEUED of linux/sock_diag.h.
BUFFERS = {"rcvbuf": 1, "sndbuf": 3, "wmem_queued": 5}
MAX_SOCKETS = 1024  # the most sockets of one sample; iperf3 has at most 128 streams


def read_sockets(version: int, local_port: int = 0, remote_port: int = 0) -> tuple[Socket, ...]:
    """The TCP connections of this network namespace with these ports, 0 for any.

    At most MAX_SOCKETS. Raises OSError.
    """
    states = sum(1 << state for state in SENDING)
    bodies = _query_kernel(version, EXTENSIONS, states, local_port, remote_port)
    return tuple(_parse_socket(body) for body in islice(bodies, MAX_SOCKETS))


def is_listening(version: int, port: int) -> bool:
    """Whether a process listens on a TCP port in this network namespace. Raises OSError."""
    return any(True for _ in _query_kernel(version, 0, 1 << LISTEN, port, 0))


def _query_kernel(
    version: int, extensions: int, states: int, local_port: int, remote_port: int
) -> Iterator[bytes]:
    """The kernel skips sockets with other ports (inet_diag_dump_icsk in net/ipv4/inet_diag.c)."""
    request = struct.pack("=BBBBI", FAMILIES[version], TCP, extensions, 0, states)
    request += struct.pack(">HH", local_port, remote_port)
    with wire.Socket(NETLINK_SOCK_DIAG) as netlink:
        yield from netlink.dump(BY_FAMILY, request.ljust(56, b"\0"))


def _parse_socket(body: bytes) -> Socket:
    local, remote = struct.unpack_from(">HH", body, 4)
    parts = dict(wire.parse_attributes(body[MESSAGE:]))
    info = parts.get(INFO, b"")
    fields: dict[str, Any] = {
        "recv_q": struct.unpack_from("=I", body, RECEIVE_QUEUE)[0],
        **_numbers_at(WORDS, info, "I"),
        **_numbers_at(LONG_WORDS, info, "Q"),
        **_numbers_at(BUFFERS, parts.get(MEMORY, b""), "I"),
    }
    if len(info) > FLAGS:
        fields.update(backoff=info[BACKOFF], app_limited=bool(info[FLAGS] & 1))
    if CONGESTION in parts:
        fields["congestion"] = parts[CONGESTION].rstrip(b"\0").decode(errors="replace")
    return Socket(local, remote, **fields)


def _numbers_at(indexes: Mapping[str, int], data: bytes, form: str) -> dict[str, int]:
    """The values at these indexes of an array in this struct format, if the kernel sent them."""
    size = struct.calcsize(form)
    numbers = memoryview(data)[: len(data) // size * size].cast(form)  # type: ignore[call-overload]
    return {name: numbers[at] for name, at in indexes.items() if at < len(numbers)}
