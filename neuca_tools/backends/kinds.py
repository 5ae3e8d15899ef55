"""The settings of VLANs, bonds and their like, between our words and the attributes of rtnetlink (linux/if_link.h)."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Callable

from neuca_tools.documents.neuca.link_kinds import WORDS

_CENTISECONDS = 100  # of a second: what a bridge counts time in (USER_HZ)
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
    },
    "bridge": {"stp": "BR_STP_STATE", "forward-delay": "BR_FORWARD_DELAY"},
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
    """The keywords of pyroute2 that say this of a new link."""
    found: dict[str, Any] = {"address": options["mac"]} if "mac" in options else {}
    for name, value in options.items():
        if name in _ATTRIBUTES[kind]:
            six = "6" if name in ("local", "remote") and ":" in value else ""
            found[_ATTRIBUTES[kind][name].lower() + six] = _number(kind, name, value)
    return found


def _number(kind: str, name: str, value: str) -> Any:
    if (kind, name) in WORDS:
        return WORDS[kind, name].index(value)
    if name == "forward-delay":
        return int(value) * _CENTISECONDS
    return int(value) if value.isdecimal() else value


def options(kind: str, mac: str, attribute: Callable[[str], Any]) -> tuple[tuple[str, str], ...]:
    """What a link has of them; `attribute` is the `get_attr` of its IFLA_INFO_DATA."""
    return (("mac", mac), *_options(kind, attribute)) if kind in _ATTRIBUTES else ()


def _options(kind: str, attribute: Callable[[str], Any]) -> Iterator[tuple[str, str]]:
    for name, what in _ATTRIBUTES[kind].items():
        found = attribute(f"IFLA_{what}")
        found = (
            attribute(f"IFLA_{what}6") if found is None and name in ("local", "remote") else found
        )
        if found is None:
            continue
        if (kind, name) in WORDS:
            known = WORDS[kind, name]
            found = known[found] if found < len(known) else f"number {found}"
        yield name, str(found // _CENTISECONDS if name == "forward-delay" else found)
