"""A hostile peer of the self-test, over raw sockets: a client that lies, and a server that lies.

It shares no code with the product, so that it can say what the product never says. It is imported
(`tests/attack` does), or run inside of a namespace:

    hostile_peer.py idle ADDRESS PORT NUMBER            that many connections that say nothing
    hostile_peer.py send ADDRESS PORT HEX               one connection that says this
    hostile_peer.py serve ADDRESS PORT HEX…             says each of them to one connection
    hostile_peer.py lie ADDRESS PORT SECRET ANSWER…     knows the secret, and gives these answers
    hostile_peer.py connect ADDRESS PORT [SOURCE]       "connected", or why not, within two seconds
    hostile_peer.py capture DEVICE PORT NUMBER          datagrams to a UDP port, in hexadecimal
    hostile_peer.py replay DEVICE SOURCE SPORT DESTINATION PORT HEX…   sends them, from any source
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import hmac
import json
import re
import socket
import struct
import sys

PROTOCOL = 2
SURROGATE = b'{"nonce":"\\ud800","proof":"x"}\n'  # ended neuca-selftest --serve up to protocol 1
PATIENCE = 20.0  # seconds
ETH_P_ALL = 3
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


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def spoofed(source, source_port, destination, port, payload):
    """An IPv4 packet with a UDP datagram, from whoever it is said to be."""
    ours, theirs = socket.inet_aton(source), socket.inet_aton(destination)
    length = 8 + len(payload)
    head = struct.pack("!HHH", int(source_port), int(port), length)
    pseudo = ours + theirs + struct.pack("!BBH", 0, socket.IPPROTO_UDP, length)
    total = checksum(pseudo + head + b"\0\0" + payload) or 0xFFFF
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + length, 0, 0, 64, 17, 0, ours, theirs)
    return ip + head + struct.pack("!H", total) + payload


def replay(device, source, source_port, destination, port, payloads):
    """Send these datagrams out of a device, with any source; to 255.255.255.255 too."""
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as sender:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode() + b"\0")
        for payload in payloads:
            packet = spoofed(source, source_port, destination, port, payload)
            sender.sendto(packet, (destination, 0))


def capture(device, port, number):
    """So many UDP datagrams over IPv4 to this port: sender, its port, payload, one on a line."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL)) as heard:
        heard.bind((device, ETH_P_ALL))
        print("listening", flush=True)
        while number:
            packet = heard.recv(65536)
            if len(packet) < 28 or packet[0] != 0x45 or packet[9] != socket.IPPROTO_UDP:
                continue
            source_port, to = struct.unpack_from("!HH", packet, 20)
            if to == port:
                number -= 1
                print(socket.inet_ntoa(packet[12:16]), source_port, packet[28:].hex(), flush=True)


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
    elif what == "connect":
        try:
            connect(words[0], words[1], *words[2:], seconds=2.0).close()
            print("connected", flush=True)
        except OSError as error:
            print(error.strerror or "timed out", flush=True)
    elif what == "capture":
        capture(words[0], int(words[1]), int(words[2]))
    else:
        replay(*words[:5], [bytes.fromhex(one) for one in words[5:]])


if __name__ == "__main__":
    main(*sys.argv[1:])
