"""The files that make a network manager the DHCP client of a dataplane NIC, and nothing else there.

The manager sets the addresses and the MTU. Routes go into the NIC's own table (see `dhcp`), and
with them the default route, so that the main table never has it. DNS servers, NTP servers and host
names of the dataplane are only used if the document requests them.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Optional

from neuca_tools.model import Automatic, LinkKey

_MARK = "neuca-dhcp-"  # in the name of each
# What is before and after the label of the link in the names of the files for each manager.
_NAMES = {
    # Before marks.NETWORKD_NICS_FILE: the first file that matches wins.
    "networkd": (f"04-{_MARK}", ".network"),
    "networkmanager": (_MARK, ".nmconnection"),  # nm-settings-keyfile(5)
}
# The managers that can be the client, the preferred one first; and a program that we start.
MANAGERS = tuple(_NAMES)
OWN = "neucad"
# What is only done on request: netplan's key of `dhcp4-overrides`, and that of systemd.network(5).
_ON_REQUEST = {
    "use-dns": "UseDNS",
    "use-ntp": "UseNTP",
    "use-hostname": "UseHostname",
    "use-domains": "UseDomains",
}
# What networkd would set because of an advertisement: the interval between the ICMPv6 errors of the
# whole host (systemd 255), and on the link a hop limit of 1 too. Older versions ignore the keys.
_UNUSED_OF_ADVERTISEMENTS = (
    "UseICMP6RateLimit=no",
    "UseHopLimit=no",
    "UseReachableTime=no",
    "UseRetransmissionTime=no",
)
# Servers of the dataplane are asked only for names in domains of the link. Otherwise they would be
# asked for all other names too, the fastest answer counting (systemd.network(5), DNSDefaultRoute=;
# resolved.conf(5)).
_OWN_DOMAINS_ONLY = "DNSDefaultRoute=no"
# IPv4, IPv6: the word of systemd.network(5).
_FAMILIES = {
    (True, True): "yes",
    (True, False): "ipv4",
    (False, True): "ipv6",
    (False, False): "no",
}
_LABEL = (
    r"(?:(?P<mac>[0-9a-f]{12})|(?P<kind>[a-z]+)-(?P<name>[A-Za-z0-9_-]+))"
    r"(?:\.(?P<vlan>[0-9]{1,4}))?"
)
# Before the protocol of a client next to that for DHCPv4; in no label of a link.
PROTOCOL_SEPARATOR = ":"
# The tables from 2**30 to 2**31 - 1 belong to links with DHCP.
_FIRST_TABLE = 1 << 30


def table_of(key: LinkKey) -> int:
    """The table for the routes that are learned on a link.

    That of a NIC has the last 30 bits of its MAC address; that of another link, which may have the
    MAC address of a NIC, 30 bits of a digest of its key.

    >>> table_of(LinkKey("02:00:00:00:00:02"))
    1073741826
    """
    number = int.from_bytes(sha256(str(key).encode()).digest()[:4], "big")
    if not key.rank:
        number = int(key.mac.replace(":", ""), 16)
    return _FIRST_TABLE | number & (_FIRST_TABLE - 1)


def link_label(key: LinkKey) -> str:
    """The key of a link as a part of file names and units: letters, digits, `-`, `_` and `.`.

    >>> link_label(LinkKey("02:00:00:00:00:02", 7)), link_label(LinkKey("bridge br.0"))
    ('020000000002.7', 'bridge-br_2e0')
    """
    base = key.mac.replace(":", "")
    if key.virtual_kind:
        name = re.sub(
            "[^A-Za-z0-9-]", lambda match: "_" + match[0].encode().hex("_"), key.virtual_name
        )
        base = f"{key.virtual_kind}-{name}"
    return base if key.vlan_id is None else f"{base}.{key.vlan_id}"


def link_of_label(text: str) -> Optional[LinkKey]:
    """The key with this label, which may be that of a client; None if it is not a label.

    >>> str(link_of_label("bridge-br_2e0.7:ra"))
    'bridge br.0.7'
    """
    label = text.partition(PROTOCOL_SEPARATOR)[0]
    match = re.fullmatch(_LABEL, label)
    if match is None:
        return None
    vlan_id = int(match["vlan"]) if match["vlan"] else None
    mac = ":".join(re.findall("..", match["mac"] or ""))
    if match["kind"]:
        name = re.sub(r"_([0-9a-f]{2})", lambda match: chr(int(match[1], 16)), match["name"])
        mac = f"{match['kind']} {name.encode('latin-1').decode('utf-8', 'replace')}"
    key = LinkKey(mac, vlan_id)
    return key if link_label(key) == label else None


def client_labels(key: LinkKey, asked: Automatic) -> dict[str, str]:
    """The protocol of each client that we start for a link, by label: empty for DHCPv4.

    >>> client_labels(LinkKey("02:00:00:00:00:02"), Automatic(dhcp4=True, dhcp6=True))
    {'020000000002': '', '020000000002:dhcp6': 'dhcp6', '020000000002:ra': 'ra'}
    """
    wanted = {"": bool(asked.dhcp4), "dhcp6": bool(asked.dhcp6), "ra": asked.takes_advertisements}
    base = link_label(key)
    protocols = [protocol for protocol, is_wanted in wanted.items() if is_wanted]
    return {f"{base}{PROTOCOL_SEPARATOR if name else ''}{name}": name for name in protocols}


def file_name(manager: str, key: LinkKey) -> str:
    """The name of the manager's file for a link.

    >>> file_name("networkd", LinkKey("02:00:00:00:00:02"))
    '04-neuca-dhcp-020000000002.network'
    """
    return link_label(key).join(_NAMES[manager])


def owner_of_file(name: str) -> Optional[tuple[str, LinkKey]]:
    """The manager and the link that a file of this name is for; None if it is not ours."""
    for manager, (before, after) in _NAMES.items():
        key = link_of_label(name[len(before) : -len(after)])
        if key is not None and name == file_name(manager, key):
            return manager, key
    return None


def is_dhcp_file(name: str) -> bool:
    """Whether a file of this name is for DHCP on a link."""
    return owner_of_file(name) is not None


def known_files(files: Mapping[str, Optional[bytes]]) -> dict[str, tuple[str, LinkKey]]:
    """The manager and the link of each of our DHCP files that exists, by path."""
    present = [path for path, content in files.items() if _MARK in path and content is not None]
    owners = {path: owner_of_file(path.rpartition("/")[2]) for path in present}
    return {path: pair for path, pair in owners.items() if pair is not None}


def networkd_file(key: LinkKey, name: str, asked: Automatic, has_mtu: bool) -> bytes:
    """A file for systemd-networkd. `has_mtu`: the agent sets the MTU of the link.

    A NIC is matched by its permanent MAC address, a virtual link by its `name` and kind: it may
    have the MAC address of a NIC.

    `KeepConfiguration=static` keeps the addresses of the agent, `yes` also the leases if networkd
    stops or a lease expires, as netplan's `critical` does. networkd keeps leases when it restarts.
    """
    number = table_of(key)
    link_local = ("ipv6",) if asked.link_local is None else asked.link_local
    overrides = (*asked.dhcp4_overrides, *asked.dhcp6_overrides)
    match = [f"Name={name}", f"Kind={key.kind}"]
    if not key.rank:
        match = [f"PermanentMACAddress={key.mac}"]
    lines = [
        first_line(key),
        "[Match]",
        *match,
        "",
        "[Link]",
        "RequiredForOnline=no",
        "",
        "[Network]",
        f"DHCP={_FAMILIES[bool(asked.dhcp4), bool(asked.dhcp6)]}",
        f"IPv6AcceptRA={_yes_or_no(asked.takes_advertisements)}",
        # IPv4's has a route in the main table, which would take over the metadata service.
        f"LinkLocalAddressing={_FAMILIES[False, 'ipv6' in link_local]}",
        f"KeepConfiguration={'yes' if asked.critical else 'static'}",
        "IPv6PrivacyExtensions=kernel",
        *([_OWN_DOMAINS_ONLY] if ("use-dns", "true") in overrides else []),
        *_section_lines("DHCPv4", number, dict(asked.dhcp4_overrides), has_mtu),
        "UseSIP=no",
        "SendRelease=yes",
        *_section_lines("DHCPv6", number, dict(asked.dhcp6_overrides), has_mtu),
        *_section_lines("IPv6AcceptRA", number, dict(asked.dhcp6_overrides), has_mtu),
        f"DHCPv6Client={_yes_or_no(bool(asked.dhcp6))}",
        *(_UNUSED_OF_ADVERTISEMENTS if asked.takes_advertisements else ()),
    ]
    return ("\n".join(lines) + "\n").encode()


def first_line(key: LinkKey) -> str:
    """The comment at the top of a file for this link."""
    vlan = f"VLAN {key.vlan_id} of " if key.vlan_id is not None else ""
    link = f"{vlan}the {key.virtual_kind or 'NIC'} {key.virtual_name or key.mac}"
    return f"# Written by neucad, which overwrites it. For DHCP on {link}; see neucad(8)."


def _section_lines(
    name: str, number: int, overrides: Mapping[str, str], has_mtu: bool
) -> Iterator[str]:
    """One section, as far as it has the keys in systemd 252."""
    yield from ("", f"[{name}]")
    for key, option in _ON_REQUEST.items():
        if name != "IPv6AcceptRA" or key in ("use-dns", "use-domains"):
            yield f"{option}={_yes_or_no(overrides.get(key) == 'true')}"
    if name == "DHCPv6":
        # Each delegated prefix, such as ::/1, would get an unreachable route in the main table.
        yield "UseDelegatedPrefix=no"
        return
    if name == "DHCPv4":
        yield f"UseMTU={_yes_or_no(not has_mtu and overrides.get('use-mtu') != 'false')}"
        yield f"UseRoutes={_yes_or_no(overrides.get('use-routes') != 'false')}"
        # The host name that is sent is by default that of the host, as with netplan.
        if "send-hostname" in overrides:
            yield f"SendHostname={_yes_or_no(overrides['send-hostname'] == 'true')}"
        if "hostname" in overrides:
            yield f"Hostname={overrides['hostname']}"
    yield from ("UseGateway=yes", f"RouteTable={number}")
    if "route-metric" in overrides:
        yield f"RouteMetric={overrides['route-metric']}"


def _yes_or_no(yes: bool) -> str:
    return "yes" if yes else "no"


# --- Profiles of NetworkManager -------------------------------------------------------------------

# Our UUIDs begin with these bytes, so that a profile that is in use is recognized as ours.
_UUID_MARK = b"neuc"
_UUID = r"uuid=([0-9a-f-]{36})"
# "infinity" (nm-settings-keyfile(5)): a server may appear at any time.
_FOR_EVER = (1 << 31) - 1
# Above the priority that an administrator may give another profile (nm-settings-keyfile(5)).
_HIGHEST_PRIORITY = 999


def is_our_uuid(uuid: str) -> bool:
    """Whether it is the UUID of a profile that we wrote, for any NIC and content."""
    return uuid.replace("-", "").startswith(_UUID_MARK.hex())


def uuid_of(content: Optional[bytes]) -> str:
    """The UUID in a profile; empty if there is none."""
    match = re.search(_UUID, (content or b"").decode("utf-8", "replace"))
    return match.group(1) if match else ""


def networkmanager_profile(key: LinkKey, asked: Automatic, mtu: Optional[int]) -> bytes:
    """The profile of a NIC. `mtu`: that of the document in bytes, None for that of the lease.

    The UUID depends on the content: NetworkManager takes a changed profile for a new one, and
    the old one out of use.
    """
    ipv4, ipv6 = dict(asked.dhcp4_overrides), dict(asked.dhcp6_overrides)
    lines = [
        "type=ethernet",
        f"autoconnect-priority={_HIGHEST_PRIORITY}",
        "autoconnect-retries=0",
        "lldp=0",
        "llmnr=0",
        "mdns=0",
        "",
        "[ethernet]",
        f"mac-address={key.mac}",
        *([f"mtu={mtu}"] if mtu is not None else []),
        "",
        "[ipv4]",
        *_ipv4_lines(table_of(key), asked, ipv4),
        "",
        "[ipv6]",
        *_ipv6_lines(table_of(key), asked, ipv6),
        "",
        "[hostname]",
        f"from-dhcp={int({**ipv6, **ipv4}.get('use-hostname') == 'true')}",
        "from-dns-lookup=0",
    ]
    digest = sha256("\n".join((key.mac, *lines)).encode()).digest()
    head = [
        first_line(key),
        "[connection]",
        f"id={_MARK}{link_label(key)}",
        f"uuid={_uuid_of_digest(digest)}",
    ]
    return ("\n".join([*head, *lines]) + "\n").encode()


def _ipv4_lines(number: int, asked: Automatic, overrides: Mapping[str, str]) -> Iterator[str]:
    if not asked.dhcp4:
        yield "method=disabled"
        return
    yield from ("method=auto", "may-fail=true", f"dhcp-timeout={_FOR_EVER}", "dhcp-client-id=mac")
    # Versions before 1.48 do not know it, and never release a lease.
    yield "dhcp-send-release=1"
    yield "link-local=2"  # off
    yield f"dhcp-send-hostname={overrides.get('send-hostname', 'true')}"
    if "hostname" in overrides:
        yield f"dhcp-hostname={overrides['hostname']}"
    yield from _common_lines(number, overrides)


def _ipv6_lines(number: int, asked: Automatic, overrides: Mapping[str, str]) -> Iterator[str]:
    """Without DHCPv6 and advertisements a link-local address: with one, NetworkManager takes the
    NIC for connected, and a boot does not wait for a server that does not respond.
    """
    if asked.takes_advertisements:
        yield "method=auto"
    else:
        yield "method=dhcp" if asked.dhcp6 else "method=link-local"
    yield "may-fail=true"
    yield "addr-gen-mode=0"  # eui64, which clouds that filter addresses expect
    yield "ip6-privacy=0"
    if asked.has_ipv6:
        yield from (f"dhcp-timeout={_FOR_EVER}", f"ra-timeout={_FOR_EVER}")
        yield from _common_lines(number, overrides)


def _common_lines(number: int, overrides: Mapping[str, str]) -> Iterator[str]:
    yield f"ignore-auto-dns={str(overrides.get('use-dns') != 'true').lower()}"
    yield f"ignore-auto-routes={str(overrides.get('use-routes') == 'false').lower()}"
    yield f"route-table={number}"
    if "route-metric" in overrides:
        yield f"route-metric={overrides['route-metric']}"


def _uuid_of_digest(digest: bytes) -> str:
    """A UUID of version 5 (RFC 4122, 4.1) with our mark and a part of the digest."""
    text = (_UUID_MARK + digest[:12]).hex()
    return f"{text[:8]}-{text[8:12]}-5{text[13:16]}-8{text[17:20]}-{text[20:]}"
