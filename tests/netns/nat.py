"""Port publishing as Docker does it, for a kernel without `nft`: run as a program in the guest.

`nat.py 192.0.2.10=172.18.0.2` sends packets for the first address to the second (DNAT). A third
argument, `docker0`, marks the connections with 1, and gives their packets from docker0 this mark, as
`ct mark` and `meta mark` of nft(8) do.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import socket
import struct
import sys

NETFILTER, NFTABLES, BATCH_BEGIN, BATCH_END = 12, 10, 16, 17
NEW_TABLE, NEW_CHAIN, NEW_RULE = 0, 3, 6
REGISTER, IPV4, PREROUTING = 1, 2, 0
MARK, IIFNAME, CT_MARK = 3, 6, 3


def attribute(kind, value):
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def number(kind, value):
    return attribute(kind, struct.pack("!i", value))


def text(kind, value):
    return attribute(kind, value.encode() + b"\0")


def nest(kind, *parts):
    return attribute(kind | 0x8000, b"".join(parts))


def expression(name, *parts):
    return nest(1, text(1, name), nest(2, *parts))


def equal(value):
    return expression("cmp", number(1, REGISTER), number(2, 0), nest(3, attribute(1, value)))


def constant(value):
    return expression("immediate", number(1, REGISTER), nest(2, attribute(1, value)))


def to(address):
    load = (number(1, REGISTER), number(2, 1), number(3, 16), number(4, 4))
    return expression("payload", *load) + equal(socket.inet_aton(address))


def message(kind, flags, body, sequence, family=IPV4, resource=0):
    body = struct.pack("!BBH", family, 0, resource) + body
    return struct.pack("=IHHII", 16 + len(body), kind, flags | 1, sequence, 0) + body


def chain(name, kind, priority):
    hook = nest(4, number(1, PREROUTING), number(2, priority))
    return NEW_CHAIN, text(1, "t") + text(3, name) + hook + text(7, kind)


def rule(name, *expressions):
    return NEW_RULE, text(1, "t") + text(2, name) + nest(4, *expressions)


def requests(outer, inner, bridge):
    yield NEW_TABLE, text(1, "t")
    yield chain("nat", "nat", -100)
    nat = expression("nat", number(1, 1), number(2, IPV4), number(3, REGISTER))
    yield rule("nat", to(outer), constant(socket.inet_aton(inner)), nat)
    if bridge:
        one = struct.pack("=I", 1)
        yield chain("mark", "filter", -150)
        save = expression("ct", number(2, CT_MARK), number(4, REGISTER))
        yield rule("mark", to(outer), constant(one), save)
        name = expression("meta", number(1, REGISTER), number(2, IIFNAME))
        load = expression("ct", number(1, REGISTER), number(2, CT_MARK))
        mark = expression("meta", number(2, MARK), number(3, REGISTER))
        yield rule("mark", name, equal(bridge.encode().ljust(16, b"\0")), load, mark)


def main():
    outer, _, inner = sys.argv[1].partition("=")
    bridge = sys.argv[2] if len(sys.argv) > 2 else ""
    asked = list(requests(outer, inner, bridge))
    batch = message(BATCH_BEGIN, 0, b"", 0, 0, NFTABLES)
    for sequence, (kind, body) in enumerate(asked, 1):
        batch += message(NFTABLES << 8 | kind, 0x404 | 0x400, body, sequence)
    batch += message(BATCH_END, 0, b"", len(asked) + 1, 0, NFTABLES)
    kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETFILTER)
    kernel.settimeout(5)
    kernel.send(batch)
    for _ in asked:
        answer = kernel.recv(65536)
        code, sequence = (
            struct.unpack_from("=i", answer, 16)[0],
            struct.unpack_from("=I", answer, 8),
        )
        if code:
            sys.exit(f"request {sequence[0]} of {len(asked)}: error {-code}")


if __name__ == "__main__":
    main()
