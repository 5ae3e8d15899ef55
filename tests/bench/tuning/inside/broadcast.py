"""Inside the guest: per cent of the copies of broadcasts that found a full backlog.

Usage: broadcast.py ROUNDS AT-ONCE PORTS
"""

# SPDX-License-Identifier: MIT

import os
import socket
import sys
import time
from pathlib import Path

PATIENCE = 30.0  # seconds


def counted():
    """Packets that left the backlogs of all processors, and those that found no room there (net/core/net-procfs.c)."""
    rows = [line.split() for line in Path("/proc/net/softnet_stat").read_text().splitlines()]
    return [sum(int(row[column], 16) for row in rows) for column in (0, 1)]


def since(before):
    return [now - then for now, then in zip(counted(), before)]


def send(sender, at_once, ports):
    """So many broadcasts one right after the other, until all that comes of them has been seen."""
    before, deadline = counted(), time.monotonic() + PATIENCE
    for _ in range(at_once):
        sender.sendto(bytes(64), ("10.9.255.255", 9))
    while sum(since(before)) < at_once * (
        ports + 1
    ):  # each comes to the bridge, and leaves it at every port
        if time.monotonic() > deadline:
            sys.exit(f"{since(before)} packets were seen of {at_once} broadcasts to {ports} ports")
        os.sched_yield()


def main():
    rounds, at_once, ports = map(int, sys.argv[1:])
    before = counted()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        for _ in range(rounds):
            send(sender, at_once, ports)
    print(100 * since(before)[1] / (rounds * at_once * ports))


if __name__ == "__main__":
    main()
