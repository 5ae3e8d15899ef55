"""Virtual links in platforms' documents: drafts whose lower devices are looked up by name or id."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Callable, NamedTuple, Optional

from neuca_tools.documents.neuca import link_kinds, values
from neuca_tools.documents.neuca.link_settings import SETTINGS
from neuca_tools.documents.platform.drafts import Draft, by_name
from neuca_tools.documents.platform.parts import Part, milliseconds, seconds
from neuca_tools.model import LinkKey, Virtual

# The options that are time spans, by the unit of a number without one.
_SPANS: Mapping[str, Callable[[str], str]] = {
    **dict.fromkeys(("miimon", "updelay", "downdelay", "arp-interval"), milliseconds),
    **dict.fromkeys(("forward-delay", "hello-time", "max-age", "ageing-time"), seconds),
    "lp-interval": seconds,
}
PER_SLAVE = "packets-per-slave"
# What a bridge says of its ports.
PORTS = {
    "path-cost": "path-cost",
    "port-priority": "port-priority",
    "bridge_pathcost": "path-cost",
    "bridge_portprio": "port-priority",
}
MAC = {
    "mac_address": "mac",
    "macaddress": "mac",
    "ethernet_mac_address": "mac",
    "vlan_mac_address": "mac",
}


def virtual_draft(kind: str, name: str, link: Part) -> Optional[Draft]:
    """A virtual link of this name without lower devices; None, with a fault, for a bad name."""
    where = ""
    if "name" in link.tree:
        where = "name"
    key = link.made(where, name, lambda text: link_kinds.link_key(kind, text))
    if key is None:
        return None
    virtual_link = Draft(key, link.about(key.mac), virtual=Virtual())
    return virtual_link if set_options(virtual_link, link, MAC) else None


def add_draft(drafts: dict[str, Draft], name: str, draft: Optional[Draft]) -> None:
    """Add a draft by its name in the document, unless an earlier one has it."""
    if draft is not None and drafts.setdefault(name, draft) is not draft:
        draft.part.fault("", None, f'there is already a link "{name}", ignoring this one')


def vlan_draft(
    link: Part,
    keys: tuple[str, str],
    drafts: Mapping[str, Draft],
    why_not: Mapping[str, str],
    unknown: str = "",
) -> Optional[Draft]:
    """A VLAN without its settings; None, with a fault, if its link or ID is unusable.

    `keys` are those of the link and of the ID. `why_not` are the reasons why other links cannot
    have VLANs, `unknown` is the one for a link that is not described, if none is recorded yet.
    """
    below = link.text(keys[0]) or ""
    parent, number = drafts.get(below), link.read(keys[1], values.vlan_id)
    if parent is None or parent.key.vlan_id is not None:
        if below in why_not:
            link.fault(keys[0], below, why_not[below], "warning")
        elif not below:
            link.fault(keys[0], None, "a VLAN without its link, ignoring it")
        elif unknown:
            link.fault(keys[0], below, unknown)
        return None
    link = link.about(parent.part.mac)
    if number is None:
        if link.text(keys[1]) is None:
            link.fault(keys[1], None, "a VLAN without its ID, ignoring it")
        return None
    return _with_own_mac(Draft(LinkKey(parent.key.mac, number), link), parent)


def _with_own_mac(vlan: Draft, parent: Draft) -> Optional[Draft]:
    """A VLAN with its MAC, if that differs from its lower device's, as on an OpenStack trunk.

    None, with a fault, if the MAC is unusable.
    """
    is_usable = set_options(vlan, vlan.part, MAC)
    below = parent.key.mac
    if parent.virtual:
        below = parent.virtual.option("mac")
    if vlan.virtual and vlan.virtual.option("mac") == below:
        vlan.virtual = None
    return vlan if is_usable else None


def set_options(draft: Draft, part: Part, names: Mapping[str, str]) -> bool:
    """Set the options that `part` has; False, with faults, if one of them is unusable.

    `names` maps the document's names to ours.
    """
    part, errors = part.about(draft.key.mac), part.faults.unusable
    for theirs, ours in names.items():
        # A list is one text of its items, separated by commas.
        text = ",".join(part.texts(theirs)) if theirs in part.tree else ""
        read = partial(_read_setting, draft.key.kind, ours)
        own = part.made(theirs, text, read) if text else None
        if own is not None:
            draft.virtual = own.over(draft.virtual)
    return part.faults.unusable == errors


def drop_packets_per_slave(bond: Draft, part: Part, keys: Collection[str]) -> None:
    """Drop the option of a bond in another mode than balance-rr, as systemd-networkd does."""
    virtual = bond.virtual or Virtual()
    if virtual.option("mode") == "balance-rr" or not virtual.option(PER_SLAVE):
        return
    for key in part.tree.keys() & keys:
        part.about(bond.key.mac).warn(key, "it has no effect in this mode, ignoring it")
    kept = tuple(pair for pair in virtual.options if pair[0] != PER_SLAVE)
    bond.virtual = virtual._replace(options=kept)


def raise_forward_delay(bridge: Draft, part: Part, key: str) -> None:
    """Raise the forwarding delay of a bridge with STP to the least, as the kernel does."""
    virtual = bridge.virtual or Virtual()
    delay = virtual.option("forward-delay")
    if virtual.option("stp") != "yes" or not delay or int(delay) >= link_kinds.MIN_FORWARD_DELAY:
        return
    least = str(link_kinds.MIN_FORWARD_DELAY)
    reason = f"with the spanning tree protocol, the forwarding delay is at least {least} seconds"
    part.about(bridge.key.mac).fault(key, delay, f"{reason}, treated as {least}", "warning")
    bridge.virtual = Virtual(options=(("forward-delay", least),)).over(virtual)


def _read_setting(kind: str, name: str, text: str) -> Virtual:
    try:
        return link_kinds.read_setting(kind, name, _SPANS.get(name, str)(text))
    except values.ForOthersError as reason:
        # No other program can make this link with such a MAC address either.
        raise values.UnusableError(str(reason)) from None


def set_default(draft: Draft, name: str, value: str) -> None:
    """Set an option to the default of the document's format if the document does not set it."""
    virtual = draft.virtual or Virtual()
    if not virtual.option(name):
        virtual = virtual._replace(options=(*virtual.options, (name, value)))
    draft.virtual = virtual


class Upper(NamedTuple):
    """What describes a link on top of others.

    `key` names the lower ones; with `is_master` they become its members or ports.
    """

    part: Part
    key: str
    is_master: bool = True


class LeftLinks:
    """The links that are left to other programs, and those that are described but unusable.

    What is on top of them is left too, and so are the members of what is left: another program
    needs them. `uppers` are all links that are on others, by name, `drafts` what can be made.
    """

    def __init__(
        self, left: Iterable[str], uppers: Mapping[str, Upper], drafts: dict[str, Draft]
    ) -> None:
        self._origins = {name: name for name in left}
        self._uppers, self._drafts = uppers, drafts
        self._uppers_by_lower: dict[str, list[str]] = {}
        for upper, (part, key, _) in uppers.items():
            for lower in part.texts(key):
                self._uppers_by_lower.setdefault(lower, []).append(upper)
        self._spread([*self._origins], with_members=True)

    def __contains__(self, name: str) -> bool:
        return name in self._origins

    def add_unusable(self, names: Iterable[str]) -> None:
        """Leave out what is on top of these links, which have faults, but keep their members."""
        added = [name for name in names if name not in self]
        self._origins.update(zip(added, added))
        self._spread(added, with_members=False)

    def connect(self, connect: Callable[[Draft, Upper], None]) -> None:
        """Give every other link its lower devices, but leave one for which this is a fault.

        A link whose name an earlier one has is none of them.
        """
        for name, upper in self._uppers.items():
            draft = self._drafts.get(name)
            if draft is not None and draft.part.path == upper.part.path:
                errors = upper.part.faults.unusable
                connect(draft, upper)
                if upper.part.faults.unusable != errors:
                    self.add_unusable([name])

    def _spread(self, waiting: list[str], with_members: bool) -> None:
        first = {*waiting}
        for name in waiting:  # it grows
            self._drafts.pop(name, None)
            more = list(self._uppers_by_lower.get(name, ()))
            for upper in more:
                self._leave(upper, name)
            if name in self._uppers and (with_members or name not in first):
                part, key, is_master = self._uppers[name]
                more += part.texts(key) if is_master else ()
            new = [other for other in dict.fromkeys(more) if other not in self]
            self._origins.update(dict.fromkeys(new, self._origins[name]))
            waiting += new

    def _leave(self, name: str, lower: str) -> None:
        """Say why a link is left that could be made."""
        if name in self or name not in self._drafts:
            return
        part, key, _ = self._uppers[name]
        reason = f'it is on "{self._origins[lower]}", which is not configured'
        part.fault(key, lower, f"{reason}: it is left to other programs too", "warning")


def name_members(link: Part, key: str, drafts: dict[str, Draft], why_not: Collection[str]) -> None:
    """Add a draft for each lower device that the document only names: the NIC of that name.

    `why_not` are the names of the links that are described, and of those that cannot be used.
    """
    for text in link.texts(key):
        if text in drafts or text in why_not:
            continue
        name = link.made(key, text, values.link_name)
        if name is not None:
            drafts[name] = Draft(by_name(name), replace(link, tree={}))


def set_members(draft: Draft, link: Part, key: str, drafts: Mapping[str, Draft]) -> None:
    """Set the members of a bond or the ports of a bridge; one that is not described is a fault."""
    members = (_by_name(name, link, key, drafts) for name in link.texts(key))
    draft.virtual = (draft.virtual or Virtual())._replace(
        members=tuple(dict.fromkeys(filter(None, members)))
    )


def set_primary(bond: Draft, part: Part, key: str, drafts: Mapping[str, Draft]) -> None:
    """Set the primary member of a bond."""
    name = part.text(key)
    if name:
        part = part.about(bond.key.mac)
        _set_place(_member_keys(bond), part, (key, "bond-primary"), (name, "yes"), drafts)


def set_ports(bridge: Draft, part: Part, drafts: Mapping[str, Draft]) -> None:
    """Set what an object, or a list of `NAME VALUE`, says of each port of a bridge."""
    part, members = part.about(bridge.key.mac), _member_keys(bridge)
    for key, setting in PORTS.items():
        for where, name, value in _port_values(part, key):
            own = part.made(where, value, SETTINGS[setting].parse)
            if own is not None:
                _set_place(members, part, (where, setting), (name, str(own)), drafts)


def _port_values(part: Part, key: str) -> Iterator[tuple[str, str, str]]:
    """Key for messages, name and value of each port."""
    if isinstance(part.tree.get(key), dict):
        ports = part.child(key)
        for name in ports.tree:
            yield f"{key}.{name}", name, ports.text(name) or ""
        return
    for text in part.texts(key):
        name, _, value = text.partition(" ")
        yield key, name, value.strip()


def _member_keys(draft: Draft) -> frozenset[LinkKey]:
    return frozenset((draft.virtual or Virtual()).members)


def _set_place(
    members: Collection[LinkKey],
    part: Part,
    what: tuple[str, str],
    value: tuple[str, str],
    drafts: Mapping[str, Draft],
) -> None:
    """Set a setting of a member or port. `what`: the key and the setting; `value`: name, value."""
    key, setting = what
    name, text = value
    if name in drafts and drafts[name].key in members:
        drafts[name].device[setting] = text
    else:
        part.fault(key, name, "it is not a member or port of this link")


def set_parent(vxlan: Draft, link: Part, key: str, drafts: Mapping[str, Draft]) -> None:
    """Set the lower device of a VXLAN."""
    name = link.text(key)
    parent = None
    if name:
        parent = _by_name(name, link, key, drafts)
    vxlan.virtual = (vxlan.virtual or Virtual())._replace(parent=parent)


def _by_name(name: str, link: Part, key: str, drafts: Mapping[str, Draft]) -> Optional[LinkKey]:
    if name in drafts:
        return drafts[name].key
    link.fault(key, name, "no usable link has this name")
    return None
