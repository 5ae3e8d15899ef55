"""Bonds, bridges and VXLANs in the platforms' documents: drafts, with their parts looked up by what they are called there."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Optional

from neuca_tools.documents.neuca import link_kinds
from neuca_tools.documents.platform.drafts import Draft
from neuca_tools.documents.platform.parts import Part
from neuca_tools.model import LinkKey, Virtual

MAC = {
    "mac_address": "mac",
    "macaddress": "mac",
    "ethernet_mac_address": "mac",
    "vlan_mac_address": "mac",
}


def draft(kind: str, name: str, link: Part) -> Optional[Draft]:
    """A bond or its like of this name, nothing in it yet; None, and a fault, for a name that it cannot have."""
    key = link.made(
        "name" if "name" in link.tree else "", name, lambda text: link_kinds.link_key(kind, text)
    )
    if key is None:
        return None
    found = Draft(key, link.about(key.mac), virtual=Virtual())
    options(found, link, MAC)
    return found


def own_mac(vlan: Draft, link: Part, parent: Draft) -> None:
    """The MAC of a VLAN, where it is another one than that of what it is on: as a subport of an OpenStack trunk has it."""
    options(vlan, link, MAC)
    below = parent.virtual.option("mac") if parent.virtual else parent.key.mac
    if vlan.virtual and vlan.virtual.option("mac") == below:
        vlan.virtual = None


def options(found: Draft, part: Part, names: Mapping[str, str]) -> None:
    """Those that `part` has; `names` maps the document's names to ours."""
    part = part.about(found.key.mac)
    for theirs, ours in names.items():
        text = part.text(theirs)
        own = (
            part.made(theirs, text, partial(link_kinds.setting, found.key.kind, ours))
            if text
            else None
        )
        found.virtual = own.over(found.virtual) if own else found.virtual


def default(found: Draft, name: str, value: str) -> None:
    """What the document's own format says that it is, where it says nothing."""
    found.virtual = (
        Virtual(options=((name, value),))
        if found.virtual is None
        else replace(
            found.virtual,
            options=found.virtual.options
            if found.virtual.option(name)
            else (*found.virtual.options, (name, value)),
        )
    )


def put_in(found: Draft, link: Part, key: str, drafts: Mapping[str, Draft]) -> None:
    """Its members, by what the document calls them; one that it does not describe is left out."""
    members = [
        member
        for name in link.texts(key)
        for member in [_called(name, link, key, drafts)]
        if member
    ]
    found.virtual = replace(found.virtual or Virtual(), members=tuple(dict.fromkeys(members)))


def on(found: Draft, link: Part, key: str, drafts: Mapping[str, Draft]) -> None:
    """What a VXLAN is on."""
    name = link.text(key)
    parent = _called(name, link, key, drafts) if name else None
    found.virtual = replace(found.virtual or Virtual(), parent=parent)


def _called(name: str, link: Part, key: str, drafts: Mapping[str, Draft]) -> Optional[LinkKey]:
    if name in drafts:
        return drafts[name].key
    link.fault(key, name, "no link that can be used is called so, ignoring it")
    return None
