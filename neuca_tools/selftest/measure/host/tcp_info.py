"""TCP_INFO of a test's sockets, from socket diagnostics (sock_diag(7)), as `ss -ti` shows it.

The offset of each value is that in struct tcp_info of linux/tcp.h. Older kernels send a shorter
structure, without the values at its end.

ss(8) is not used: for 128 connections it takes twice the CPU time of this, 2.9 ms, without the time
to parse its text, and a test reads them ten times a second.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Optional

from neuca_tools.backends import wire
from neuca_tools.selftest.evidence import Socket
from neuca_tools.selftest.measure.host.kernel import FAMILIES

NETLINK_SOCK_DIAG, BY_FAMILY = 4, 20
TCP = 6
# INET_DIAG_* in linux/inet_diag.h: attributes with struct tcp_info, a name, and SK_MEMINFO_*.
INFO, CONGESTION, MEMORY = 2, 4, 7
# include/net/tcp_states.h.
LISTEN = 10
# ESTABLISHED, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT and LAST_ACK: a connection that is being closed may
# still have data in flight.
SENDING = (1, 4, 5, 8, 9)
# Bytes of struct inet_diag_msg, and the offset of its idiag_rqueue.
MESSAGE, RECEIVE_QUEUE = 72, 56
# Offsets in struct tcp_info: tcpi_backoff, and the byte with tcpi_delivery_rate_app_limited.
BACKOFF, FLAGS = 4, 7
WORDS = {
    "mss": 16,
    "unacked": 24,
    "pmtu": 60,
    "rtt": 68,
    "snd_cwnd": 80,
    "total_retrans": 100,
    "min_rtt": 148,
    "dsack_dups": 216,
    "reord_seen": 220,
    "snd_wnd": 228,
}
LONG_WORDS = {
    "bytes_acked": 120,
    "bytes_received": 128,
    "delivery_rate": 160,
    "busy_time": 168,
    "rwnd_limited": 176,
    "sndbuf_limited": 184,
    "bytes_sent": 200,
    "bytes_retrans": 208,
}
# SK_MEMINFO_RCVBUF, SK_MEMINFO_SNDBUF and SK_MEMINFO_WMEM_QUEUED of linux/sock_diag.h.
BUFFERS = {"rcvbuf": 4, "sndbuf": 12, "wmem_queued": 20}
# The most sockets of one sample; iperf3 has at most 128 streams.
MOST_SOCKETS = 1024


def read_sockets(version: int, local_port: int = 0, remote_port: int = 0) -> tuple[Socket, ...]:
    """The TCP connections of this network namespace with these ports, 0 for any; at most MOST.

    `version` is that of IP. Raises OSError.
    """
    extensions = 1 << (INFO - 1) | 1 << (CONGESTION - 1) | 1 << (MEMORY - 1)
    states = sum(1 << state for state in SENDING)
    bodies = _query_kernel(version, extensions, states, local_port, remote_port)
    return tuple(_parse_socket(body) for body in bodies)[:MOST_SOCKETS]


def is_listening(version: int, port: int) -> bool:
    """Whether a process listens on a TCP port in this network namespace. Raises OSError."""
    return any(True for _ in _query_kernel(version, 0, 1 << LISTEN, port, 0))


def _query_kernel(
    version: int, extensions: int, states: int, local_port: int, remote_port: int
) -> Iterator[bytes]:
    """The kernel skips sockets with other ports (inet_diag_dump_icsk in net/ipv4/inet_diag.c)."""
    request = struct.pack("=BBBBI", FAMILIES[version], TCP, extensions, 0, states)
    request += struct.pack(">HH", local_port, remote_port)
    with wire.Socket(NETLINK_SOCK_DIAG) as asked:
        yield from asked.ask(BY_FAMILY, wire.DUMP, request.ljust(56, b"\0"))


def _parse_socket(body: bytes) -> Socket:
    local, remote = struct.unpack_from(">HH", body, 4)
    parts = dict(wire.parse_attributes(body[MESSAGE:]))
    info = parts.get(INFO, b"")
    memory = parts.get(MEMORY, b"")
    fields: dict[str, Any] = {
        "recv_q": _value_at(body, "=I", RECEIVE_QUEUE),
        **{name: _value_at(info, "=I", place) for name, place in WORDS.items()},
        **{name: _value_at(info, "=Q", place) for name, place in LONG_WORDS.items()},
        **{name: _value_at(memory, "=I", place) for name, place in BUFFERS.items()},
    }
    if len(info) > FLAGS:
        fields.update(backoff=info[BACKOFF], app_limited=bool(info[FLAGS] & 1))
    if CONGESTION in parts:
        fields["congestion"] = parts[CONGESTION].rstrip(b"\0").decode(errors="replace")
    return Socket(local, remote, **fields)


def _value_at(data: bytes, form: str, offset: int) -> Optional[int]:
    """None if the kernel's structure ends before it."""
    if len(data) < offset + struct.calcsize(form):
        return None
    return int(struct.unpack_from(form, data, offset)[0])
