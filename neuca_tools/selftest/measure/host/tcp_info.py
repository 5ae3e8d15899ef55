"""TCP_INFO of a test's sockets, from the kernel's socket diagnostics (sock_diag(7)): what `ss -ti` shows, without a process.

The place of each value: struct tcp_info of linux/tcp.h. A kernel that does not know one yet sends a shorter structure.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Optional

from neuca_tools.backends import wire
from neuca_tools.selftest.evidence import Socket
from neuca_tools.selftest.measure.host.kernel import FAMILIES

NETLINK_SOCK_DIAG, BY_FAMILY = 4, 20
TCP = 6
INFO, CONGESTION, MEMORY = 2, 4, 7  # INET_DIAG_*
ESTABLISHED, LISTEN = 1, 10  # include/net/tcp_states.h
MESSAGE = 72  # bytes of struct inet_diag_msg
WORDS = {
    "mss": 16,
    "unacked": 24,
    "pmtu": 60,
    "rtt": 68,
    "snd_cwnd": 80,
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
MOST = 1024  # sockets of one look; iperf3 has at most 128 streams


def sockets(version: int, local_port: int = 0, remote_port: int = 0) -> tuple[Socket, ...]:
    """The TCP connections of this namespace with this port at one end (0: any); at most 1024. Raises OSError."""
    extensions = 1 << (INFO - 1) | 1 << (CONGESTION - 1) | 1 << (MEMORY - 1)
    # Whatever still sends: a test that is being closed has data in flight too. Not listening, not waiting for its end.
    states = 1 << ESTABLISHED | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9
    return tuple(
        _socket(body) for body in _ask(version, extensions, states, local_port, remote_port)
    )[:MOST]


def listening(version: int, port: int) -> bool:
    """Whether somebody listens on a TCP port in this namespace. Raises OSError."""
    return any(True for _ in _ask(version, 0, 1 << LISTEN, port, 0))


def _ask(
    version: int, extensions: int, states: int, local_port: int, remote_port: int
) -> Iterator[bytes]:
    """The kernel passes over other ports by itself (inet_diag_dump_icsk in net/ipv4/inet_diag.c)."""
    request = struct.pack("=BBBBI", FAMILIES[version], TCP, extensions, 0, states) + struct.pack(
        ">HH", local_port, remote_port
    )
    with wire.Socket(NETLINK_SOCK_DIAG) as asked:
        yield from asked.ask(BY_FAMILY, wire.DUMP, request.ljust(56, b"\0"))


def _socket(body: bytes) -> Socket:
    local, remote = struct.unpack_from(">HH", body, 4)
    parts = dict(wire.attributes(body[MESSAGE:]))
    info = parts.get(INFO, b"")
    memory = struct.unpack_from(f"={len(parts.get(MEMORY, b'')) // 4}I", parts.get(MEMORY, b""))
    found = {name: _value(info, "=I", place) for name, place in WORDS.items()}
    found.update({name: _value(info, "=Q", place) for name, place in LONG_WORDS.items()})
    known = len(memory) > 5
    return Socket(
        local_port=local,
        remote_port=remote,
        **found,
        backoff=info[4] if len(info) > 7 else None,
        app_limited=bool(info[7] & 1) if len(info) > 7 else None,
        recv_q=struct.unpack_from("=I", body, 56)[0],
        rcvbuf=memory[1] if known else None,
        sndbuf=memory[3] if known else None,
        wmem_queued=memory[5] if known else None,
        congestion=parts[CONGESTION].rstrip(b"\0").decode(errors="replace")
        if CONGESTION in parts
        else None,
    )


def _value(info: bytes, form: str, place: int) -> Optional[int]:
    return (
        int(struct.unpack_from(form, info, place)[0])
        if len(info) >= place + struct.calcsize(form)
        else None
    )
