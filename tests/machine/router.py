"""The cloud's side of a dataplane NIC: a router at the other end of its cable, which speaks ARP, DHCP and ICMP.

It sees what leaves through this NIC only: an answer that takes another one never arrives, as in a cloud.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import itertools
import os
import select
import struct
import threading
import time
from ipaddress import ip_address

from qemu import link

PATIENCE = 300.0  # seconds
IP, ARP = 0x0800, 0x0806
ICMP, UDP = 1, 17
DISCOVER, OFFER, REQUEST, ACK = 1, 2, 3, 5  # RFC 2132, section 9.6
COOKIE = b"\x63\x82\x53\x63"  # RFC 2131, section 3


class Router:
    """Gateway of 10.1.N.0/24, where the guest has 10.1.N.4; with DHCP it leases that address.

    `cable` is the end for the guest's NIC. `spoofed` are the other IPv4 sources that left through it.
    """

    def __init__(self, number, mac, *, dhcp=False, others=()):
        self.guest_mac, self.dhcp = hardware(mac), dhcp
        self.mac = bytes((2, 0xCA, 0xB1, 0xE0, 0, number))
        self.gateway, self.address = packed(f"10.1.{number}.1"), packed(f"10.1.{number}.4")
        self.allowed = {self.address, bytes(4), *map(packed, others)}
        self.spoofed, self.leased = set(), 0
        self.cable, self._ours = link()
        self._echoes, self._changed, self._numbers = (
            set(),
            threading.Condition(),
            itertools.count(1),
        )
        self._stop, self._stopping = os.pipe()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self):
        os.close(self._stopping)
        self._thread.join(PATIENCE)
        os.close(self._stop)
        self._ours.close()
        self.cable.close()

    def answers(self, source, target, patience=PATIENCE):
        """Whether an echo request from `source` to this address of the guest is answered through this NIC."""
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            number = next(self._numbers)
            self._send(IP, ip(ICMP, packed(source), packed(target), echo(number)))
            with self._changed:
                wanted = (packed(target), packed(source), number)
                if self._changed.wait_for(lambda: wanted in self._echoes, 2):  # noqa: B023 - at once
                    return True
        return False

    def _run(self):
        while self._stop not in select.select([self._ours, self._stop], [], [])[0]:
            frame = self._ours.recv(65536)
            kind, body = int.from_bytes(frame[12:14], "big"), frame[14:]
            if kind == ARP and body[6:8] == b"\0\1" and body[24:28] == self.gateway:
                self._send(ARP, body[:6] + b"\0\2" + self.mac + self.gateway + body[8:18])
            elif kind == IP:
                self._take(frame[:6], body)

    def _take(self, target_mac, packet):
        source, target, rest = packet[12:16], packet[16:20], packet[4 * (packet[0] & 15) :]
        if source not in self.allowed:
            self.spoofed.add(str(ip_address(source)))
        elif packet[9] == UDP and rest[2:4] == b"\0\x43" and self.dhcp:
            self._lease(rest[8:])
        elif packet[9] == ICMP and rest[0] == 0 and target_mac == self.mac:
            with self._changed:
                self._echoes.add((source, target, int.from_bytes(rest[6:8], "big")))
                self._changed.notify_all()

    def _lease(self, message):
        """RFC 2131, section 3.1; the offer is sent to the MAC, with no ARP."""
        answer = {DISCOVER: OFFER, REQUEST: ACK}.get(options(message[240:]).get(53, b"\0")[0])
        if answer is None:
            return
        self.leased += answer == ACK
        said = {53: bytes((answer,)), 54: self.gateway, 51: (3600).to_bytes(4, "big"),
                1: bytes((255, 255, 255, 0)), 3: self.gateway}  # fmt: skip
        tail = b"".join(bytes((key, len(value))) + value for key, value in said.items()) + b"\xff"
        head = b"\2\1\6\0" + message[4:8] + bytes(2) + message[10:16] + self.address + self.gateway
        reply = head + message[24:236] + COOKIE + tail.ljust(64, b"\0")
        datagram = struct.pack("!HHHH", 67, 68, 8 + len(reply), 0) + reply
        there = bytes((255,) * 4) if message[10] & 0x80 else self.address
        self._send(IP, ip(UDP, self.gateway, there, datagram))

    def _send(self, kind, body):
        self._ours.send(self.guest_mac + self.mac + kind.to_bytes(2, "big") + body.ljust(46, b"\0"))


def hardware(mac):
    return bytes.fromhex(mac.replace(":", ""))


def packed(address):
    return ip_address(address).packed


def options(data):
    """The options of a DHCP message (RFC 2132, section 2), but for padding."""
    found, place = {}, 0
    while place + 1 < len(data) and data[place] != 255:
        if data[place]:
            found[data[place]] = data[place + 2 : place + 2 + data[place + 1]]
            place += 1 + data[place + 1]
        place += 1
    return found


def checksum(data):
    """RFC 1071."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return (~total & 0xFFFF).to_bytes(2, "big")


def echo(number):
    """An echo request (RFC 792)."""
    body = struct.pack("!HH", 0xCAB1, number)
    return b"\x08\0" + checksum(b"\x08\0\0\0" + body) + body


def ip(protocol, source, target, payload):
    head = struct.pack("!BBHHHBB", 0x45, 0, 20 + len(payload), 1, 0, 64, protocol)
    return head + checksum(head + bytes(2) + source + target) + source + target + payload
