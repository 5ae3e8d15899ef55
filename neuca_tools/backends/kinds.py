"""Converts the settings of virtual links to and from attributes of rtnetlink (linux/if_link.h)."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Callable

from neuca_tools.documents.neuca.link_kinds import WORDS

_TIMES = ("forward-delay", "hello-time", "max-age", "ageing-time")
_CENTISECONDS = 100  # in a second: bridges count time in USER_HZ
_ATTRIBUTES: Mapping[str, Mapping[str, str]] = {
    "bond": {
        "mode": "BOND_MODE",
        "miimon": "BOND_MIIMON",
        "updelay": "BOND_UPDELAY",
        "downdelay": "BOND_DOWNDELAY",
        "lacp-rate": "BOND_AD_LACP_RATE",
        "xmit-hash-policy": "BOND_XMIT_HASH_POLICY",
        "ad-select": "BOND_AD_SELECT",
        "fail-over-mac": "BOND_FAIL_OVER_MAC",
        "min-links": "BOND_MIN_LINKS",
        "arp-interval": "BOND_ARP_INTERVAL",
        "arp-ip-target": "BOND_ARP_IP_TARGET",
        "arp-validate": "BOND_ARP_VALIDATE",
        "arp-all-targets": "BOND_ARP_ALL_TARGETS",
        "primary-reselect": "BOND_PRIMARY_RESELECT",
        "num-grat-arp": "BOND_NUM_PEER_NOTIF",
        "resend-igmp": "BOND_RESEND_IGMP",
        "all-slaves-active": "BOND_ALL_SLAVES_ACTIVE",
        "packets-per-slave": "BOND_PACKETS_PER_SLAVE",
        "lp-interval": "BOND_LP_INTERVAL",
    },
    "bridge": {
        "stp": "BR_STP_STATE",
        "forward-delay": "BR_FORWARD_DELAY",
        "hello-time": "BR_HELLO_TIME",
        "max-age": "BR_MAX_AGE",
        "ageing-time": "BR_AGEING_TIME",
        "priority": "BR_PRIORITY",
    },
    "vxlan": {
        "id": "VXLAN_ID",
        "local": "VXLAN_LOCAL",
        "remote": "VXLAN_GROUP",
        "port": "VXLAN_PORT",
    },
    "macvlan": {"mode": "MACVLAN_MODE"},
    "vlan": {"id": "VLAN_ID"},
}


def words(kind: str, options: Mapping[str, str]) -> dict[str, Any]:
    """The keyword arguments with which pyroute2 creates such a link."""
    found: dict[str, Any] = {"address": options["mac"]} if "mac" in options else {}
    for name, value in options.items():
        if name in _ATTRIBUTES[kind]:
            six = "6" if name in ("local", "remote") and ":" in value else ""
            found[_ATTRIBUTES[kind][name].lower() + six] = _number(kind, name, value)
    return found


def _number(kind: str, name: str, value: str) -> Any:
    if (kind, name) in WORDS:
        return WORDS[kind, name].index(value)
    if name in _TIMES:
        return int(value) * _CENTISECONDS
    if name == "arp-ip-target":
        return value.split(",")
    return int(value) if value.isdecimal() else value


def options(kind: str, mac: str, attribute: Callable[[str], Any]) -> tuple[tuple[str, str], ...]:
    """The settings of a link; `attribute` is `get_attr` of its IFLA_INFO_DATA."""
    return (("mac", mac), *_options(kind, attribute)) if kind in _ATTRIBUTES else ()


def _options(kind: str, attribute: Callable[[str], Any]) -> Iterator[tuple[str, str]]:
    for name, suffix in _ATTRIBUTES[kind].items():
        value = attribute(f"IFLA_{suffix}")
        if value is None and name in ("local", "remote"):
            value = attribute(f"IFLA_{suffix}6")
        if value is not None:
            yield name, _text(kind, name, value)


def _text(kind: str, name: str, value: Any) -> str:
    if (kind, name) in WORDS:
        words = WORDS[kind, name]
        return words[value] if value < len(words) else f"number {value}"
    if name in _TIMES:
        value //= _CENTISECONDS
    if name == "arp-ip-target":
        return ",".join(map(str, value))
    return str(value)
