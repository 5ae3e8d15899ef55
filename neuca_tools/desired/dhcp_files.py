"""The files that make a network manager the DHCP client of a dataplane NIC, and nothing else there.

The manager sets the addresses and the MTU. Routes go into the NIC's own table (see `dhcp`). DNS
servers, NTP servers and host names of the dataplane are only used if the document asks for them.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Optional

from neuca_tools.lazy import pattern
from neuca_tools.model import Automatic

PREFIX = "04-neuca-dhcp-"  # before marks.NETWORKD_NICS_FILE: the first file that matches wins
# By the manager that reads them; see nm-settings-keyfile(5) for the second.
_NAMES = {
    "networkd": pattern(rf"{PREFIX}([0-9a-f]{{12}})\.network"),
    "networkmanager": pattern(r"neuca-dhcp-([0-9a-f]{12})\.nmconnection"),
}
# What is only done on request: netplan's key of `dhcp4-overrides`, and that of systemd.network(5).
_ASKED = {
    "use-dns": "UseDNS",
    "use-ntp": "UseNTP",
    "use-hostname": "UseHostname",
    "use-domains": "UseDomains",
}
_TRUE = ("true", "yes", "on", "1", "y")
_FALSE = ("false", "no", "off", "0", "n")
# The tables from 2**30 to 2**31 - 1 belong to NICs with DHCP.
_FIRST_TABLE = 1 << 30


def table(mac: str) -> int:
    """The table for the routes that are learned on a NIC, by the last 30 bits of its MAC address.

    >>> table("02:00:00:00:00:02")
    1073741826
    """
    return _FIRST_TABLE | int(mac.replace(":", ""), 16) & (_FIRST_TABLE - 1)


def networkd_name(mac: str) -> str:
    """The name of the file for a NIC.

    >>> networkd_name("02:00:00:00:00:02")
    '04-neuca-dhcp-020000000002.network'
    """
    return f"{PREFIX}{mac.replace(':', '')}.network"


def profile_name(mac: str) -> str:
    """The name of the NetworkManager profile for a NIC.

    >>> profile_name("02:00:00:00:00:02")
    'neuca-dhcp-020000000002.nmconnection'
    """
    return f"neuca-dhcp-{mac.replace(':', '')}.nmconnection"


def owner(name: str) -> tuple[str, str]:
    """The manager and the MAC that a file of this name is for; both empty if it is not ours."""
    for manager, form in _NAMES.items():
        match = form.fullmatch(name)
        if match:
            return manager, ":".join(re.findall("..", match.group(1)))
    return "", ""


def is_ours(name: str) -> bool:
    """Whether a file of this name is for DHCP on a NIC."""
    return bool(owner(name)[0])


def known(files: Mapping[str, Optional[bytes]]) -> dict[str, tuple[str, str]]:
    """The manager and the MAC of each of these files that is one of ours and exists, by path."""
    there = (path for path, content in files.items() if content is not None)
    found = {path: owner(Path(path).name) for path in there}
    return {path: (manager, mac) for path, (manager, mac) in found.items() if manager}


def networkd(mac: str, asked: Automatic, has_mtu: bool) -> bytes:
    """A file for systemd-networkd. `has_mtu`: the agent sets the MTU of the NIC.

    `KeepConfiguration=static` keeps the addresses of the agent, `yes` also the leases if networkd
    stops or a lease expires, as netplan's `critical` does. networkd keeps leases when it restarts.
    """
    lines = [
        f"# Written by neucad, which overwrites it. For DHCP on the NIC {mac}; see neucad(8).",
        "[Match]",
        f"PermanentMACAddress={mac}",
        "",
        "[Link]",
        "RequiredForOnline=no",
        "",
        "[Network]",
        f"DHCP={_families(asked)}",
        f"IPv6AcceptRA={_word(takes_advertisements(asked))}",
        f"LinkLocalAddressing={_link_local(asked)}",
        f"KeepConfiguration={'yes' if asked.critical else 'static'}",
        "IPv6PrivacyExtensions=kernel",
        *_section("DHCPv4", mac, dict(asked.dhcp4_overrides), has_mtu),
        "UseSIP=no",
        "SendRelease=yes",
        *_section("DHCPv6", mac, dict(asked.dhcp6_overrides), has_mtu),
        *_section("IPv6AcceptRA", mac, dict(asked.dhcp6_overrides), has_mtu),
        f"DHCPv6Client={_word(bool(asked.dhcp6))}",
    ]
    return ("\n".join(lines) + "\n").encode()


def takes_advertisements(asked: Automatic) -> bool:
    """Whether router advertisements are used; with DHCPv6 they are unless the document says no."""
    if asked.accept_ra is None:
        return bool(asked.dhcp6)
    return asked.accept_ra


def _section(name: str, mac: str, overrides: Mapping[str, str], has_mtu: bool) -> Iterator[str]:
    """One section, as far as it has the keys in systemd 252."""
    yield ""
    yield f"[{name}]"
    for key, option in _ASKED.items():
        if name != "IPv6AcceptRA" or key in ("use-dns", "use-domains"):
            yield f"{option}={_word(is_true(overrides.get(key)))}"
    if name == "DHCPv6":
        return
    if name == "DHCPv4":
        yield f"UseMTU={_word(not has_mtu and not is_false(overrides.get('use-mtu')))}"
        yield f"UseRoutes={_word(not is_false(overrides.get('use-routes')))}"
        yield from _host_name(overrides)
    yield "UseGateway=yes"
    yield f"RouteTable={table(mac)}"
    if plain_metric(overrides):
        yield f"RouteMetric={plain_metric(overrides)}"


def _host_name(overrides: Mapping[str, str]) -> Iterator[str]:
    """The host name that is sent: by default that of the host, as with netplan."""
    if "send-hostname" in overrides:
        yield f"SendHostname={_word(is_true(overrides['send-hostname']))}"
    if plain_host_name(overrides):
        yield f"Hostname={plain_host_name(overrides)}"


def plain_host_name(overrides: Mapping[str, str]) -> str:
    """The host name to send; empty if there is none, or if it is not a plain name."""
    name = overrides.get("hostname", "")
    if re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,62}[A-Za-z0-9])?", name):
        return name
    return ""


def plain_metric(overrides: Mapping[str, str]) -> str:
    """The metric of routes; empty if there is none, or if it is none that the kernel takes."""
    metric = overrides.get("route-metric", "")
    if metric.isascii() and metric.isdecimal() and len(metric) <= 10 and int(metric) < 1 << 32:
        return str(int(metric))
    return ""


def wants_ipv6(asked: Automatic) -> bool:
    """Whether IPv6 addresses come from DHCPv6 or router advertisements."""
    return bool(asked.dhcp6 or asked.accept_ra)


def _families(asked: Automatic) -> str:
    if asked.dhcp4 and asked.dhcp6:
        return "yes"
    if asked.dhcp4:
        return "ipv4"
    return "ipv6" if asked.dhcp6 else "no"


def _link_local(asked: Automatic) -> str:
    if asked.link_local is None:
        return "ipv6"
    return _both(asked.link_local)


def _both(families: Iterable[str]) -> str:
    found = set(families)
    if found == {"ipv4", "ipv6"}:
        return "yes"
    return next(iter(found), "no")


def is_true(text: Optional[str]) -> bool:
    """Whether the value of an override means yes."""
    return text is not None and text.lower() in _TRUE


def is_false(text: Optional[str]) -> bool:
    """Whether the value of an override means no; without a value it does not."""
    return text is not None and text.lower() in _FALSE


def _word(yes: bool) -> str:
    return "yes" if yes else "no"
