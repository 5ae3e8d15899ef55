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

# The options that are time spans (systemd.time(7)), with the reader that knows their default unit.
_SPANS: Mapping[str, Callable[[str], str]] = {
    **dict.fromkeys(("miimon", "updelay", "downdelay", "arp-interval"), milliseconds),
    **dict.fromkeys(("forward-delay", "hello-time", "max-age", "ageing-time"), seconds),
    "lp-interval": seconds,
}
# The settings of ports that a bridge has, by the document's key.
PORT_SETTINGS = {
    "path-cost": "path-cost",
    "port-priority": "port-priority",
    "bridge_pathcost": "path-cost",
    "bridge_portprio": "port-priority",
}
# Our name of the option that each of these keys sets.
_MAC_KEYS = dict.fromkeys(
    ("mac_address", "macaddress", "ethernet_mac_address", "vlan_mac_address"), "mac"
)
# What NetworkManager chooses a MAC address by.
MAC_WORDS = ("permanent", "preserve", "random", "stable", "stable-ssid")


def virtual_draft(kind: str, name: str, link: Part) -> Optional[Draft]:
    """A virtual link of this name without lower devices; None, with a fault, for a bad name."""
    where = "name" if "name" in link.tree else ""
    key = link.parse(where, name, lambda text: link_kinds.link_key(kind, text))
    if key is None:
        return None
    draft = Draft(key, link.for_nic(key.mac), virtual=Virtual())
    return draft if set_options(draft, link, _MAC_KEYS) else None


def set_options(
    draft: Draft, part: Part, names: Mapping[str, str], defaults: Mapping[str, str] = {}
) -> bool:
    """Set the options in `part`; False, with faults, if one of them is unusable.

    `names` maps the document's keys to our names, `defaults` are those of the document's format.
    """
    present = [key for key in names if key in part.tree]
    if not (present or defaults):
        return True
    part, errors = part.for_nic(draft.key.mac), part.faults.unusable
    settings: dict[str, Virtual] = {}
    for key in present:
        setting = _setting(part, key, draft.key.kind, names[key])
        if setting is None:
            continue
        if settings.setdefault(names[key], setting) != setting:
            part.fault(key, part.tree[key], "another key sets this option to a different value")
        draft.virtual = setting.over(draft.virtual)
    if draft.virtual is not None:
        options = dict(draft.virtual.options)
        for name, default in defaults.items():
            options.setdefault(name, default)
        _fit_options(options, part, names)
        draft.virtual = draft.virtual._replace(options=tuple(options.items()))
    return part.faults.unusable == errors


def _setting(part: Part, key: str, kind: str, name: str) -> Optional[Virtual]:
    """One option, called `name` here; the items of a list become one text, with commas."""
    text = ",".join(part.texts(key))
    if name == "mac" and text.lower() in MAC_WORDS:
        part.warn(key, "only a MAC address can be set, ignoring it")
        return None
    return part.parse(key, text, partial(_read_setting, kind, name)) if text else None


def _fit_options(options: dict[str, str], part: Part, names: Mapping[str, str]) -> None:
    """Drop or change options that do not fit another one, as other programs do.

    systemd-networkd drops lacp-rate and packets-per-slave in other modes, NetworkManager ARP
    monitoring beside miimon; the kernel raises the forward delay of a bridge with STP to its
    minimum.
    """
    mode = options.get("mode", "balance-rr")
    for name, modes in link_kinds.MODES_BY_OPTION.items():
        if mode not in modes:
            _drop_option(name, "in this mode", options, part, names)
    if "0" not in (options.get("miimon", "0"), options.get("arp-interval", "0")):
        for name in ("arp-interval", "arp-validate"):
            _drop_option(name, "beside miimon", options, part, names)
    if not link_kinds.has_miimon(Virtual(options=tuple(options.items()))):
        for name in link_kinds.DELAYS:
            _drop_option(name, "without miimon", options, part, names)
    least, delay = link_kinds.MIN_FORWARD_DELAY, options.get("forward-delay")
    if options.get("stp") == "yes" and delay and int(delay) < least:
        reason = (
            "with the spanning tree protocol, the forwarding delay is at least"
            f" {least} seconds, treated as {least}"
        )
        part.fault(_key_of("forward-delay", part, names), delay, reason, "warning")
        options["forward-delay"] = str(least)


def _drop_option(
    name: str, where: str, options: dict[str, str], part: Part, names: Mapping[str, str]
) -> None:
    default = link_kinds.OPTIONS["bond"][name].kernel_default
    if options.pop(name, default) != default:
        part.warn(_key_of(name, part, names), f"it has no effect {where}, ignoring it")


def _key_of(option: str, part: Part, names: Mapping[str, str]) -> str:
    return next(key for key, name in names.items() if name == option and key in part.tree)


def _read_setting(kind: str, name: str, text: str) -> Virtual:
    try:
        return link_kinds.read_setting(kind, name, _SPANS.get(name, str)(text))
    except values.ForeignValueError as reason:
        # No other program can make this link with such a MAC address either.
        raise values.UnusableError(str(reason)) from None


class Upper(NamedTuple):
    """The part that describes an upper device. Under `key`, it has the names of its lower ones."""

    part: Part
    kind: str
    key: str

    @property
    def members(self) -> list[str]:
        """The names of its members or ports; empty for a link that has none."""
        return self.part.texts(self.key) if self.kind in link_kinds.MEMBERS else []


class LinkDrafts(dict[str, Draft]):
    """The drafts of the links of a document, by their names or IDs in it.

    `no_vlan_reasons` has every link that the document describes, with the reason why there can be
    no VLAN on it if it has no draft, or is itself a VLAN.
    """

    def __init__(self) -> None:
        super().__init__()
        self.no_vlan_reasons: dict[str, str] = {}

    def add(self, name: str, draft: Optional[Draft]) -> None:
        """Add a draft by its name in the document, unless an earlier one has it."""
        if draft is not None and self.setdefault(name, draft) is not draft:
            draft.part.fault("", None, f'there is already a link "{name}", ignoring this one')

    def vlan_draft(self, link: Part, keys: tuple[str, str], unknown: str = "") -> Optional[Draft]:
        """A VLAN without its settings; None, with a fault, if its lower device or ID is unusable.

        `keys` are those of the lower device and of the ID. `unknown` is the reason if no link has
        the name of the lower device.
        """
        below = link.text(keys[0]) or ""
        parent, number = self.get(below), link.read(keys[1], values.vlan_id)
        if parent is None or parent.key.vlan_id is not None:
            if below in self.no_vlan_reasons:
                link.fault(keys[0], below, self.no_vlan_reasons[below], "warning")
            elif not below:
                link.fault(keys[0], None, "a VLAN without its link, ignoring it")
            elif unknown:
                link.fault(keys[0], below, unknown)
            return None
        link = link.for_nic(parent.part.mac)
        if number is None:
            if link.text(keys[1]) is None:
                link.fault(keys[1], None, "a VLAN without its ID, ignoring it")
            return None
        return _with_own_mac(Draft(LinkKey(parent.key.mac, number), link), parent)

    def add_named_nics(self, link: Part, key: str) -> None:
        """Add a draft for each lower device that the document only names: the NIC of that name."""
        for text in link.texts(key):
            if text in self or text in self.no_vlan_reasons:
                continue
            name = link.parse(key, text, values.link_name)
            if name is not None:
                self[name] = Draft(by_name(name), replace(link, tree={}))

    def set_members(self, draft: Draft, link: Part, key: str) -> None:
        """Set the members of a bond or the ports of a bridge; an unknown one is a fault."""
        keys = (self._described_key(name, link, key) for name in link.texts(key))
        members = tuple(dict.fromkeys(filter(None, keys)))
        draft.virtual = (draft.virtual or Virtual())._replace(members=members)

    def set_lower_devices(
        self, options_key: str, primary_keys: Iterable[str], draft: Draft, upper: Upper
    ) -> None:
        """Set the lower devices of a virtual link, with the settings that it has for them.

        These are below `options_key`; `primary_keys` are those of the primary member of a bond.
        """
        part, kind, key = upper
        if kind == "vxlan":
            name = part.text(key)
            parent = self._described_key(name, part, key) if name else None
            draft.virtual = (draft.virtual or Virtual())._replace(parent=parent)
        elif kind in link_kinds.MEMBERS:
            self.set_members(draft, part, key)
        if kind == "bond":
            options = part.child(options_key)
            for primary in primary_keys:
                self.set_primary(draft, options, primary)
        elif kind == "bridge":
            self._set_ports(draft, part.child(options_key))

    def set_primary(self, bond: Draft, part: Part, key: str) -> None:
        """Set the primary member of a bond."""
        name = part.text(key)
        if name:
            part = part.for_nic(bond.key.mac)
            self._set_port_setting(_member_keys(bond), part, key, name, ("bond-primary", "yes"))

    def _set_ports(self, bridge: Draft, part: Part) -> None:
        """Set the settings of a bridge's ports, from objects or from lists of `NAME VALUE`."""
        part, members = part.for_nic(bridge.key.mac), _member_keys(bridge)
        for key, setting in PORT_SETTINGS.items():
            for where, name, value in _port_values(part, key):
                parsed = part.parse(where, value, SETTINGS[setting].parse)
                if parsed is not None:
                    self._set_port_setting(members, part, where, name, (setting, str(parsed)))

    def _set_port_setting(
        self, members: Collection[LinkKey], part: Part, key: str, name: str, pair: tuple[str, str]
    ) -> None:
        """Set a setting of the member or port `name`. `key` is where a fault is reported."""
        if name in self and self[name].key in members:
            self[name].device.update([pair])
        else:
            part.fault(key, name, "it is not a member or port of this link")

    def _described_key(self, name: str, link: Part, key: str) -> Optional[LinkKey]:
        if name in self:
            return self[name].key
        link.fault(key, name, "no usable link has this name")
        return None


def _port_values(part: Part, key: str) -> Iterator[tuple[str, str, str]]:
    """The key for faults, and the name and value, of each port."""
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


def _with_own_mac(vlan: Draft, parent: Draft) -> Optional[Draft]:
    """A VLAN with its MAC, if that differs from its lower device's, as on an OpenStack trunk.

    None, with a fault, if the MAC is unusable.
    """
    is_usable = set_options(vlan, vlan.part, _MAC_KEYS)
    parent_mac = parent.virtual.option("mac") if parent.virtual else parent.key.mac
    if vlan.virtual and vlan.virtual.option("mac") == parent_mac:
        vlan.virtual = None
    return vlan if is_usable else None


class SkippedLinks:
    """The `foreign` links, which are left to other programs, and those that are unusable.

    Their upper devices are skipped too, and so are the members of what is skipped: another program
    needs them. `uppers` are all upper devices by name. Skipped links are removed from `drafts`.
    """

    def __init__(
        self, foreign: Iterable[str], uppers: Mapping[str, Upper], drafts: LinkDrafts
    ) -> None:
        self._origins = {name: name for name in foreign}
        self._uppers, self._drafts = uppers, drafts
        self._uppers_by_lower: dict[str, list[str]] = {}
        for name, upper in uppers.items():
            for lower in upper.part.texts(upper.key):
                self._uppers_by_lower.setdefault(lower, []).append(name)
        self._spread([*self._origins], are_unusable=False)

    def __contains__(self, name: str) -> bool:
        return name in self._origins

    def add_unusable(self, names: Iterable[str]) -> None:
        """Skip these links, which have faults, and their upper devices, but not their members.

        The members of a VRF are skipped: their addresses must not be in the main table.
        """
        added = [name for name in names if name not in self]
        self._origins.update(zip(added, added))
        self._spread(added, are_unusable=True)

    def connect_others(self, connect: Callable[[Draft, Upper], None]) -> None:
        """Give every other upper device its lower devices, and skip one for which this is a fault.

        Of links with the same name, only the first has a draft.
        """
        for name, upper in self._uppers.items():
            draft = self._drafts.get(name)
            if draft is not None and draft.part.path == upper.part.path:
                errors = upper.part.faults.unusable
                connect(draft, upper)
                if upper.part.faults.unusable != errors:
                    self.add_unusable([name])

    def _spread(self, waiting: list[str], are_unusable: bool) -> None:
        unusable = {*waiting} if are_unusable else set()
        for name in waiting:  # it grows
            self._drafts.pop(name, None)
            more = list(self._uppers_by_lower.get(name, ()))
            for upper in more:
                self._warn_about(upper, name)
            if name in self._uppers:
                more += self._skipped_members(name, name in unusable)
            new = [other for other in dict.fromkeys(more) if other not in self]
            self._origins.update(dict.fromkeys(new, self._origins[name]))
            waiting += new

    def _skipped_members(self, name: str, is_unusable: bool) -> list[str]:
        """The members that are skipped with their link."""
        upper = self._uppers[name]
        if not is_unusable:
            return upper.members
        if upper.kind != "vrf":
            return []
        reason = f'it is in the VRF "{name}", which cannot be used, ignoring it'
        for member in upper.members:
            if member in self._drafts:
                self._drafts[member].part.fault("", None, reason, "warning")
        return upper.members

    def _warn_about(self, name: str, lower: str) -> None:
        """Warn about an upper device that is usable itself, and skipped because of a lower one."""
        if name in self or name not in self._drafts:
            return
        part, _, key = self._uppers[name]
        reason = f'it is on "{self._origins[lower]}", which is not configured'
        part.fault(key, lower, f"{reason}: it is left to other programs too", "warning")
