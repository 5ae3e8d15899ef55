"""Joins standard input and output, one connection of a guest to its metadata service, with a port of this machine's loopback."""

# SPDX-License-Identifier: MIT

import os
import selectors
import socket
import sys


def copy(source, sink):
    """One piece; False at the end of it all."""
    data = os.read(source, 65536)
    while data:
        data = data[os.write(sink, data) :]
        if not data:
            return True
    return False


def main():
    try:
        server = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    except OSError:
        return  # the service is switched off
    server.setblocking(True)
    with server, selectors.DefaultSelector() as selector:
        selector.register(0, selectors.EVENT_READ, server.fileno())
        selector.register(server.fileno(), selectors.EVENT_READ, 1)
        while all(copy(key.fd, key.data) for key, _ in selector.select()):
            pass


if __name__ == "__main__":
    try:
        main()
    except OSError:
        sys.exit(1)  # either side has gone
