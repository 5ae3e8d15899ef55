"""The profiles that make NetworkManager the DHCP client of a dataplane NIC, and nothing else there.

As with `dhcp_files`, all routes go into the NIC's own table, and with them the default route, so
that the main table never has it. See nm-settings-keyfile(5).
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Optional

from neuca_tools.desired.dhcp_files import (
    first_line,
    profile_name,
    table_of,
    takes_advertisements,
    wants_ipv6,
)
from neuca_tools.model import Automatic, LinkKey

# Our UUIDs begin with these bytes, so that a profile that is in use is recognised as ours.
_MARK = b"neuc"
_UUID = re.compile(r"uuid=([0-9a-f-]{36})")
# "infinity" (nm-settings-keyfile(5)): a server may appear at any time.
_FOR_EVER = (1 << 31) - 1
# Above the priority that an administrator may give another profile (nm-settings-keyfile(5)).
_HIGHEST_PRIORITY = 999


def is_our_uuid(uuid: str) -> bool:
    """Whether it is the UUID of a profile that we wrote, for any NIC and content."""
    return uuid.replace("-", "").startswith(_MARK.hex())


def uuid_of(content: Optional[bytes]) -> str:
    """The UUID in a profile; empty if there is none."""
    match = _UUID.search((content or b"").decode("utf-8", "replace"))
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
        f"id={profile_name(key).partition('.')[0]}",
        f"uuid={_uuid_of_digest(digest)}",
    ]
    return ("\n".join([*head, *lines]) + "\n").encode()


def _ipv4_lines(number: int, asked: Automatic, overrides: Mapping[str, str]) -> Iterator[str]:
    if not asked.dhcp4:
        yield "method=disabled"
        return
    yield "method=auto"
    yield "may-fail=true"
    yield f"dhcp-timeout={_FOR_EVER}"
    yield "dhcp-client-id=mac"
    # Versions before 1.48 do not know it, and never release a lease.
    yield "dhcp-send-release=1"
    yield f"link-local={3 if 'ipv4' in (asked.link_local or ()) else 2}"
    yield f"dhcp-send-hostname={overrides.get('send-hostname', 'true')}"
    if "hostname" in overrides:
        yield f"dhcp-hostname={overrides['hostname']}"
    yield from _common_lines(number, overrides)


def _ipv6_lines(number: int, asked: Automatic, overrides: Mapping[str, str]) -> Iterator[str]:
    """Without DHCPv6 and advertisements a link-local address: with one, NetworkManager takes the
    NIC for connected, and a boot does not wait for a server that does not respond.
    """
    if takes_advertisements(asked):
        yield "method=auto"
    else:
        yield "method=dhcp" if asked.dhcp6 else "method=link-local"
    yield "may-fail=true"
    yield "addr-gen-mode=0"  # eui64, which clouds that filter addresses expect
    yield "ip6-privacy=0"
    if wants_ipv6(asked):
        yield f"dhcp-timeout={_FOR_EVER}"
        yield f"ra-timeout={_FOR_EVER}"
        yield from _common_lines(number, overrides)


def _common_lines(number: int, overrides: Mapping[str, str]) -> Iterator[str]:
    yield f"ignore-auto-dns={_true_or_false(overrides.get('use-dns') != 'true')}"
    yield f"ignore-auto-routes={_true_or_false(overrides.get('use-routes') == 'false')}"
    yield f"route-table={number}"
    if "route-metric" in overrides:
        yield f"route-metric={overrides['route-metric']}"


def _uuid_of_digest(digest: bytes) -> str:
    """A UUID of version 5 (RFC 4122, 4.1) with our mark and a part of the digest."""
    text = (_MARK + digest[:12]).hex()
    return f"{text[:8]}-{text[8:12]}-5{text[13:16]}-8{text[17:20]}-{text[20:]}"


def _true_or_false(yes: bool) -> str:
    return "true" if yes else "false"
