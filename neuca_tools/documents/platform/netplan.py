"""Read NoCloud's network-config: version 2, which is netplan's format; version 1 is in `nocloud_v1`.

References: netplan-yaml(5) and the cloud-init manual, "Networking config Version 2". The top-level
key `network` may be left out. Settings for other programs (DNS, renderers, Wi-Fi) are ignored.
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
    """Read a document of either version. An unknown version is a fault, and nothing is read."""
    top = root.child("network") if isinstance(root.tree.get("network"), dict) else root
    version = top.text("version")
    if version == "1":
        return nocloud_v1.read(top)
    if version != "2":
        top.fault("version", version, "it is neither 1 nor 2, ignoring the document")
        return finish([], root)
    return _version_2(top)


def _version_2(top: Part) -> PlatformDocument:
    taken = _left_to_others(top)
    below: dict[str, Draft] = {}
    for name, link in top.named("ethernets"):
        if name not in taken:
            _add(below, name, _ethernet(name, link))
    virtual = []
    for kind, name, link in _virtual_links(top):
        draft = _virtual(kind, name, link)
        _add(below, name, draft)
        virtual.append((link, draft))
    known = taken.union(
        *(top.child(kind).tree for kind in ("ethernets", "bonds", "bridges", "tunnels"))
    )
    vlans: dict[str, Draft] = {}
    for name, link in top.named("vlans"):
        if name not in taken:
            _add(vlans, name, _vlan(name, link, below, known))
    drafts = {**vlans, **below}
    for link, draft in virtual:
        _connect(draft, link, drafts)
    return finish((*below.values(), *vlans.values()), top)


def _left_to_others(top: Part) -> set[str]:
    """The names of links of unsupported kinds, and of the links that these use."""
    names: set[str] = set()
    for kind in _OTHERS:
        for name, link in top.named(kind):
            link.warn("", f"{kind} are left to other programs, with all that is on them")
            names |= {name, *link.texts("interfaces")}
    return names


def _add(drafts: dict[str, Draft], name: str, draft: Optional[Draft]) -> None:
    if draft is not None:
        drafts[name] = draft


def _connect(draft: Optional[Draft], link: Part, drafts: Mapping[str, Draft]) -> None:
    """Set the lower devices of a virtual link: the parent of a VXLAN, else the members or ports."""
    if draft is None:
        return
    if draft.key.kind == "vxlan":
        made.set_parent(draft, link, "link", drafts)
    else:
        made.set_members(draft, link, "interfaces", drafts)


def _virtual_links(top: Part) -> Iterator[tuple[str, str, Part]]:
    """Kind, name and description of each bond, bridge and VXLAN."""
    yield from (("bond", name, link) for name, link in top.named("bonds"))
    yield from (("bridge", name, link) for name, link in top.named("bridges"))
    for name, link in top.named("tunnels"):
        if link.text("mode") == "vxlan":
            yield "vxlan", name, link
        else:
            link.warn(
                "mode", "tunnels of this mode are left to other programs, with all that is on them"
            )


def _virtual(kind: str, name: str, link: Part) -> Optional[Draft]:
    draft = made.draft(kind, name, link)
    if draft is None:
        return None
    holder = link
    if kind != "vxlan":
        holder = link.child("parameters")
    made.options(draft, holder, _OPTIONS[kind])
    if kind in _DEFAULTS:
        made.default(draft, *_DEFAULTS[kind])
    return _common(draft, draft.part)


def _ethernet(name: str, link: Part) -> Optional[Draft]:
    """A NIC matched by its MAC address, or by nothing but its name: its driver is not known here."""
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
    if parent is None:
        if below in known:
            link.fault("link", below, "its NIC is left to other programs, and so is it", "warning")
        else:
            link.fault("link", below, "no link has this name, ignoring the VLAN")
        return None
    if number is None:
        if link.text("id") is None:
            link.fault("id", None, "a VLAN without its ID, ignoring it")
        return None
    link = link.about(parent.part.mac)
    draft = _common(Draft(LinkKey(parent.key.mac, number), link), link)
    draft.name = link.made("", name, values.link_name)
    made.own_mac(draft, link, parent)
    return draft


def _common(draft: Draft, link: Part) -> Draft:
    draft.mtu = link.read("mtu", values.mtu)
    for family in (4, 6):
        if link.true(f"dhcp{family}"):
            draft.lease(family)
    if link.text("gateway4") or link.text("gateway6"):
        draft.manage("the platform's document gives it the default route")
    if "accept-ra" in link.tree:
        draft.sysctls = ((ACCEPT_RA, str(int(link.true("accept-ra")))),)
    _addresses(draft, link)
    for route in link.parts("routes"):
        table, kind = route.text("table"), route.text("type")
        if table in (None, "main", "254") and kind in (None, "unicast"):
            draft.add_route(route, "to", route.text("to") or "", None, route.text("via"))
        else:
            route.warn("to", "a route of another table or type is left to other programs")
    return draft


def _addresses(draft: Draft, link: Part) -> None:
    """Add the addresses; each is a text, or a mapping from the text to its label and lifetime."""
    for number, entry in enumerate(link.items("addresses")):
        text = entry
        if isinstance(entry, dict):
            text = next(iter(entry), "")
        key = f"addresses[{number}]"
        if isinstance(text, str):
            draft.add_address(link, key, text)
        else:
            link.fault(key, None, "it is not an address")
