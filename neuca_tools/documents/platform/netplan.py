"""NoCloud's network-config: version 2, which is netplan's own format, and the way to version 1; with or without `network:`.

Reference: netplan-yaml(5), and cloud-init's manual, "Networking config Version 2". What is for others (DNS, renderers, Wi-Fi)
is passed over.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Optional

from neuca_tools.documents.neuca import made, values
from neuca_tools.documents.platform import nocloud_v1
from neuca_tools.documents.platform.drafts import Draft, by_name, finish
from neuca_tools.documents.platform.parts import Part
from neuca_tools.model import ACCEPT_RA, LinkKey, PlatformDocument

NAME = "network-config"
KEYS = nocloud_v1.KEYS | frozenset(
    "version match macaddress name driver set-name mtu addresses dhcp4 dhcp6 gateway4 gateway6"
    " routes to via table type id link interfaces accept-ra".split()
)
_OPTIONS = {
    "bond": {
        "mode": "mode",
        "lacp-rate": "lacp-rate",
        "mii-monitor-interval": "miimon",
        "min-links": "min-links",
        "transmit-hash-policy": "xmit-hash-policy",
        "ad-select": "ad-select",
        "up-delay": "updelay",
        "down-delay": "downdelay",
        "fail-over-mac-policy": "fail-over-mac",
    },
    "bridge": {"stp": "stp", "forward-delay": "forward-delay"},
    "vxlan": {"id": "id", "local": "local", "remote": "remote", "port": "port"},
}
_DEFAULTS = {"bond": ("mode", "balance-rr"), "bridge": ("stp", "yes")}  # netplan-yaml(5)
KEYS |= frozenset(name for names in _OPTIONS.values() for name in names) | {"parameters", "mode"}
_OTHERS = ("vrfs", "wifis", "modems", "dummy-devices", "virtual-ethernets")


def read(root: Part) -> PlatformDocument:
    """What the document asks, of either version."""
    top = root.child("network") if isinstance(root.tree.get("network"), dict) else root
    version = top.text("version")
    if version == "1":
        return nocloud_v1.read(top)
    if version != "2":
        top.fault("version", version, "it is neither 1 nor 2, ignoring the document")
        return finish([], root)
    return _version_2(top)


def _version_2(top: Part) -> PlatformDocument:
    taken: set[str] = set()
    for kind in _OTHERS:
        for name, link in top.named(kind):
            link.warn("", f"{kind} are left to other programs, with all that is on them")
            taken |= {name, *link.texts("interfaces")}
    ethernets = [
        (name, _ethernet(name, link)) for name, link in top.named("ethernets") if name not in taken
    ]
    virtual = [(name, link, _made(kind, name, link)) for kind, name, link in _of_kinds(top)]
    below = {
        name: draft
        for name, draft in (*ethernets, *((name, draft) for name, _, draft in virtual))
        if draft is not None
    }
    known = taken.union(
        *(top.child(kind).tree for kind in ("ethernets", "bonds", "bridges", "tunnels"))
    )
    vlans = [
        (name, _vlan(name, link, below, known))
        for name, link in top.named("vlans")
        if name not in taken
    ]
    drafts = {**{name: draft for name, draft in vlans if draft is not None}, **below}
    for _, link, draft in virtual:
        if draft is not None and draft.key.kind == "vxlan":
            made.on(draft, link, "link", drafts)
        elif draft is not None:
            made.put_in(draft, link, "interfaces", drafts)
    return finish((*below.values(), *(draft for _, draft in vlans if draft is not None)), top)


def _of_kinds(top: Part) -> Iterator[tuple[str, str, Part]]:
    """Kind, name and description of each link that is made of others."""
    yield from (("bond", name, link) for name, link in top.named("bonds"))
    yield from (("bridge", name, link) for name, link in top.named("bridges"))
    for name, link in top.named("tunnels"):
        if link.text("mode") == "vxlan":
            yield "vxlan", name, link
        else:
            link.warn(
                "mode", "tunnels of this mode are left to other programs, with all that is on them"
            )


def _made(kind: str, name: str, link: Part) -> Optional[Draft]:
    draft = made.draft(kind, name, link)
    if draft is None:
        return None
    made.options(draft, link if kind == "vxlan" else link.child("parameters"), _OPTIONS[kind])
    if kind in _DEFAULTS:
        made.default(draft, *_DEFAULTS[kind])
    return _common(draft, draft.part)


def _ethernet(name: str, link: Part) -> Optional[Draft]:
    """A NIC that is matched by its MAC address, or by its name alone: what driver it has is not known here."""
    match = link.child("match")
    if match.text("macaddress"):
        mac = match.read("macaddress", values.mac)
        if mac is None:
            return None
        key, link = LinkKey(mac), link.about(mac)
    elif (match.text("name") and "driver" not in match.tree) or not match.tree:
        key = by_name(match.text("name") or name)
    else:
        link.warn(
            "match", "it matches NICs by more than their MAC address or their name, ignoring it"
        )
        return None
    draft = _common(Draft(key, link), link)
    draft.name = link.read("set-name", values.link_name)
    return draft


def _vlan(
    name: str, link: Part, drafts: Mapping[str, Draft], known: Collection[str]
) -> Optional[Draft]:
    below = link.text("link") or ""
    parent, number = drafts.get(below), link.read("id", values.vlan_id)
    if parent is None or number is None:
        if parent is None:
            left = below in known
            reason = (
                "its NIC is left to other programs, and so is it"
                if left
                else "no link has this name, ignoring the VLAN"
            )
            link.fault("link", below, reason, "warning" if left else "error")
        elif link.text("id") is None:
            link.fault("id", None, "a VLAN without its ID, ignoring it")
        return None
    link = link.about(parent.part.mac)
    draft = _common(Draft(LinkKey(parent.key.mac, number), link), link)
    draft.name = link.made("", name, values.link_name)
    made.own_mac(draft, link, parent)
    return draft


def _common(draft: Draft, link: Part) -> Draft:
    draft.mtu = link.read("mtu", values.mtu)
    if link.true("dhcp4") or link.true("dhcp6"):
        draft.manage("the platform's document has DHCP on it")
    if link.text("gateway4") or link.text("gateway6"):
        draft.manage("the platform's document gives it the default route")
    if "accept-ra" in link.tree:
        draft.sysctls = ((ACCEPT_RA, "1" if link.true("accept-ra") else "0"),)
    _addresses(draft, link)
    for route in link.parts("routes"):
        if route.text("table") not in (None, "main", "254") or route.text("type") not in (
            None,
            "unicast",
        ):
            route.warn("to", "a route of another table or type is left to other programs")
        else:
            draft.add_route(route, "to", route.text("to") or "", None, route.text("via"))
    return draft


def _addresses(draft: Draft, link: Part) -> None:
    """Each is a text, or a mapping from the text to its label and lifetime."""
    entries = link.tree.get("addresses")
    if entries is not None and not isinstance(entries, list):
        link.fault("addresses", None, "it is not a list")
    for number, entry in enumerate(entries if isinstance(entries, list) else []):
        text = next(iter(entry), "") if isinstance(entry, dict) else entry
        key = f"addresses[{number}]"
        if isinstance(text, str):
            draft.add_address(link, key, text)
        else:
            link.fault(key, None, "it is not an address")
