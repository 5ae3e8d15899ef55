"""A hostile peer of the self-test, over raw sockets: a client that lies, and a server that lies.

It shares no code with the product, so that it can say what the product never says. It is imported
(`tests/attack` does), or run inside of a namespace:

    hostile_peer.py idle ADDRESS PORT NUMBER            that many connections that say nothing
    hostile_peer.py send ADDRESS PORT HEX               one connection that says this
    hostile_peer.py serve ADDRESS PORT HEX…             says each of them to one connection
    hostile_peer.py lie ADDRESS PORT SECRET ANSWER…     knows the secret, and gives these answers
    hostile_peer.py connect ADDRESS PORT [SOURCE]       "connected", or why not, within two seconds
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import hmac
import json
import re
import socket
import sys

PROTOCOL = 2
SURROGATE = b'{"nonce":"\\ud800","proof":"x"}\n'  # ended neuca-selftest --serve up to protocol 1
PATIENCE = 20.0  # seconds
NONCE = "5a" * 32


def proof(secret: bytes, what: str, server: str, client: str) -> str:
    text = f"neuca-selftest {PROTOCOL} {what} {server} {client}"
    return hmac.new(secret, text.encode(), "sha256").hexdigest()


class Signed:
    """A connection after its handshake: lines with any content, correctly signed."""

    def __init__(self, connection, role, key):
        self.connection, self._key = connection, bytes.fromhex(key)
        self._role, self._sent = role, 0
        self._stream = connection.makefile("rb")

    def send(self, text):
        text = text if isinstance(text, bytes) else json.dumps(text).encode()
        signed = hmac.new(self._key, f"{self._role} {self._sent} ".encode() + text, "sha256")
        self._sent += 1
        self.connection.sendall(signed.hexdigest().encode() + b" " + text + b"\n")

    def receive(self):
        """The next message, its signature left aside; None at the end."""
        line = self._stream.readline()
        return json.loads(line[65:]) if line else None


def client(address, port, secret, source=None):
    """A client that knows the secret, at the server's control port (that of the tests plus 1)."""
    connection = connect(address, port, source)
    hello = connection.makefile("rb").readline()
    theirs = re.search(rb'"nonce":"(\w+)"', hello)[1].decode()
    claim = proof(secret, "client", theirs, NONCE)
    connection.sendall(f'{{"nonce":"{NONCE}","proof":"{claim}"}}\n'.encode())
    assert b"proof" in receive_line(connection)
    return Signed(connection, "client", proof(secret, "session", theirs, NONCE))


def receive_line(connection):
    """Byte by byte: nothing of the next line is taken."""
    line = b""
    while not line.endswith(b"\n"):
        piece = connection.recv(1)
        if not piece:
            break
        line += piece
    return line


def connect(address, port, source=None, seconds=PATIENCE):
    where = (source, 0) if source else None
    return socket.create_connection((address, int(port)), seconds, where)


def listen(address, port):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, int(port)), family=family)


def server(address, port, secret, answers):
    """A server that knows the secret; it gives these answers in turn, then closes."""
    with listen(address, port) as listener:
        print("listening", flush=True)
        connection, _ = listener.accept()
        with connection:
            connection.sendall(f'{{"neuca-selftest":{PROTOCOL},"nonce":"{NONCE}"}}\n'.encode())
            theirs = re.search(rb'"nonce":"(\w+)"', receive_line(connection))[1].decode()
            connection.sendall(f'{{"proof":"{proof(secret, "server", NONCE, theirs)}"}}\n'.encode())
            signed = Signed(connection, "server", proof(secret, "session", NONCE, theirs))
            for answer in answers:
                if signed.receive() is None:
                    return
                signed.send(answer)
            while signed.receive() is not None:
                pass


def shout(address, port, lines):
    """A server that knows nothing: says each of these to a connection of its own."""
    with listen(address, port) as listener:
        print("listening", flush=True)
        for line in lines:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.sendall(line)
                while connection.recv(4096):
                    pass


def main(what, *words):
    """One of the rows of the module's docstring."""
    if what == "idle":
        kept = [connect(words[0], words[1]) for _ in range(int(words[2]))]
        print("connected", len(kept), flush=True)
        sys.stdin.read()
    elif what == "send":
        with connect(words[0], words[1]) as connection:
            receive_line(connection)
            connection.sendall(bytes.fromhex(words[2]))
            print(receive_line(connection), flush=True)
    elif what == "serve":
        shout(words[0], words[1], [bytes.fromhex(one) for one in words[2:]])
    elif what == "lie":
        server(words[0], words[1], words[2].encode(), [one.encode() for one in words[3:]])
    else:
        try:
            connect(words[0], words[1], *words[2:], seconds=2.0).close()
            print("connected", flush=True)
        except OSError as error:
            print(error.strerror or "timed out", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
