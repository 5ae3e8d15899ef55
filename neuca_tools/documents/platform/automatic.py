"""Read what a document says about DHCP and router advertisements; it is kept for later, without an effect of its own."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import replace
from typing import Optional

from neuca_tools.documents.neuca import values
from neuca_tools.documents.platform.parts import Part
from neuca_tools.model import Automatic

_OVERRIDES = (
    "hostname",
    "route-metric",
    "send-hostname",
    "use-dns",
    "use-domains",
    "use-hostname",
    "use-mtu",
    "use-ntp",
    "use-routes",
)
KEYS = frozenset(("dhcp4", "dhcp6", "accept-ra", "link-local", "optional", "critical", *_OVERRIDES))
_FAMILIES = ("ipv4", "ipv6")
# The types of subnets in OpenStack's document and in version 1 of NoCloud's.
DHCP4 = ("dhcp", "dhcp4", "ipv4_dhcp")
DHCP6 = ("dhcp6", "ipv6_dhcp", "ipv6_dhcpv6-stateful")
ADVERTISED = ("ipv6_slaac", "ipv6_dhcpv6-stateless")


def of_netplan(link: Part) -> Automatic:
    """The settings of a link of netplan. None of the keys counts as used."""
    part = replace(link, used=set())
    families = None
    if "link-local" in part.tree:
        read = (part.made("link-local", text, _family) for text in part.texts("link-local"))
        families = tuple(filter(None, read))
    return Automatic(
        dhcp4=_flag(part, "dhcp4"),
        dhcp6=_flag(part, "dhcp6"),
        accept_ra=_flag(part, "accept-ra"),
        link_local=families,
        dhcp4_overrides=_overrides(part.child("dhcp4-overrides")),
        dhcp6_overrides=_overrides(part.child("dhcp6-overrides")),
        optional=_flag(part, "optional"),
        critical=_flag(part, "critical"),
    )


def with_subnet(known: Automatic, kind: str) -> Automatic:
    """The settings of a link with one more subnet of this type."""
    if kind in DHCP4:
        return replace(known, dhcp4=True)
    if kind in DHCP6:
        return replace(known, dhcp6=True)
    if kind in ADVERTISED:
        return replace(known, accept_ra=True)
    return known


def _family(text: str) -> str:
    return values.word(text, _FAMILIES)


def _flag(part: Part, key: str) -> Optional[bool]:
    if part.text(key) is None:
        return None
    return part.true(key)


def _overrides(part: Part) -> tuple[tuple[str, str], ...]:
    """The overrides that netplan-yaml(5) lists, as texts."""
    found = ((name, part.text(name)) for name in _OVERRIDES)
    return tuple((name, text) for name, text in found if text is not None)
