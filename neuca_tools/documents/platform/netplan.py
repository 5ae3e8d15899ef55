"""Read NoCloud's network-config version 2, netplan's format; `nocloud_v1` reads version 1.

References: netplan-yaml(5) and the cloud-init manual, "Networking config Version 2". The top-level
key `network` may be left out. DNS is for other programs; other keys without an effect are named.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Optional

from neuca_tools.documents.neuca import link_kinds, values
from neuca_tools.documents.neuca.link_settings import IPOIB_MODE
from neuca_tools.documents.platform import automatic, netplan_routing, nocloud_v1, virtual_links
from neuca_tools.documents.platform.drafts import LEFT, QINQ, Draft, by_name, finish_document
from neuca_tools.documents.platform.parts import Part
from neuca_tools.documents.platform.virtual_links import LinkDrafts, SkippedLinks, Upper
from neuca_tools.model import ACCEPT_RA, LinkKey, PlatformDocument, Virtual

NAME = "network-config"
NO_VLAN = "there can be no VLAN on a VRF, ignoring it"


def _option_names(words: str) -> dict[str, str]:
    """Our names of options by netplan's, from words like `up-delay=updelay`, or one for both."""
    pairs = (word.partition("=") for word in words.split())
    return {theirs: ours or theirs for theirs, _, ours in pairs}


_OPTIONS = {
    # "gratuitious-arp" is a misspelling that netplan accepts too.
    "bond": _option_names(
        "mode lacp-rate mii-monitor-interval=miimon min-links"
        " transmit-hash-policy=xmit-hash-policy ad-select up-delay=updelay down-delay=downdelay"
        " fail-over-mac-policy=fail-over-mac arp-interval arp-ip-targets=arp-ip-target"
        " arp-validate arp-all-targets gratuitous-arp=num-grat-arp gratuitious-arp=num-grat-arp"
        " primary-reselect-policy=primary-reselect resend-igmp packets-per-slave"
        " packets-per-member=packets-per-slave learn-packet-interval=lp-interval"
        " all-slaves-active all-members-active=all-slaves-active"
    ),
    "bridge": _option_names(
        "stp forward-delay hello-time max-age ageing-time aging-time=ageing-time priority"
    ),
    "vxlan": _option_names("id local remote port"),
}
_OF_MEMBERS = ("primary", "path-cost", "port-priority", "hairpin", "port-mac-learning")
# The names of ethtool(8) for netplan's.
_OFFLOADS = {
    "receive-checksum-offload": "rx",
    "transmit-checksum-offload": "tx",
    "tcp-segmentation-offload": "tso",
    "tcp6-segmentation-offload": "tx-tcp6-segmentation",
    "generic-segmentation-offload": "gso",
    "generic-receive-offload": "gro",
    "large-receive-offload": "lro",
}
_SWITCH = {True: "on", False: "off"}
_ACTIVATION = ("manual", "off")
# Switches without an effect that are off by default.
_OFF = ("critical", "emit-lldp", "ignore-carrier", "ipv6-privacy", "optional", "wakeonlan")
KEYS_2 = (
    frozenset(
        "version config match macaddress name driver set-name mtu addresses dhcp4 dhcp6 gateway4"
        " gateway6 routes to via table type id link interfaces accept-ra ipv6-mtu activation-mode"
        " renderer parameters mode primary path-cost port-priority infiniband-mode ports".split()
    )
    | frozenset(name for names in _OPTIONS.values() for name in names)
    | _OFFLOADS.keys()
    | set(_OFF)
    | automatic.KEYS
    | netplan_routing.KEYS
    | {"nameservers", "search"}
)
KEYS = nocloud_v1.KEYS | KEYS_2
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_KINDS = ("ethernets", "bonds", "bridges", "tunnels", "vlans", "vrfs")
# The upper devices: the kind of each section, and the key of the lower devices.
_UPPERS = {
    "bonds": ("bond", "interfaces"),
    "bridges": ("bridge", "interfaces"),
    "vrfs": ("vrf", "interfaces"),
    "vlans": ("vlan", "link"),
    "tunnels": ("vxlan", "link"),
}
# What may be set for all links of a kind.
_BESIDES = ("renderer",)
_OTHERS = ("wifis", "modems", "dummy-devices", "virtual-ethernets", "nm-devices")


def read(root: Part) -> PlatformDocument:
    """Read a document of either version. An unknown version is a fault, and nothing is read."""
    top = root
    if isinstance(root.tree.get("network"), dict):
        top = root.child("network")
        root.warn_besides("network")
    if top.tree.get("config") == "disabled":
        # The word of cloud-init for a network that it leaves alone.
        return finish_document([], root)
    version = top.text("version")
    if version == "1":
        return nocloud_v1.read(top)
    if version != "2":
        top.fault("version", version, "it is neither 1 nor 2, ignoring the document")
        return finish_document([], root)
    return _version_2(top)


def _version_2(top: Part) -> PlatformDocument:
    taken = _left_to_others(top)
    drafts = LinkDrafts()
    uppers = _upper_links(top)
    own = {kind: _own_links(top, kind, taken) for kind in _KINDS}
    for name, link in own["ethernets"].items():
        drafts.add(name, _nic_draft(name, link))
    _refuse_matched_names(drafts.values())
    for kind, name, link in _virtual_links(own):
        drafts.add(name, _virtual_draft(kind, name, link))
    described = taken.union(*(top.child(kind).tree for kind in _KINDS))
    drafts.no_vlan_reasons = dict.fromkeys(sorted(described), LEFT)
    drafts.no_vlan_reasons.update(dict.fromkeys(own["vlans"], QINQ))
    drafts.no_vlan_reasons.update(dict.fromkeys(own["vrfs"], NO_VLAN))
    _name_lower_devices(uppers, taken, drafts)
    for name, link in own["vlans"].items():
        drafts.add(name, _vlan_draft(name, link, drafts))
    for name, link in own["vrfs"].items():
        drafts.add(name, _vrf_draft(name, link))
    skipped = SkippedLinks(sorted(taken), uppers, drafts)
    skipped.add_unusable(name for name in drafts.no_vlan_reasons if name not in drafts)
    skipped.connect_others(partial(drafts.set_lower_devices, "parameters", ("primary",)))
    return finish_document(drafts.values(), top, by_hand=True)


def _own_links(top: Part, kind: str, taken: Collection[str]) -> dict[str, Part]:
    """The links of a kind that are not left to other programs."""
    return {name: link for name, link in top.named(kind, _BESIDES) if name not in taken}


def _name_lower_devices(
    uppers: Mapping[str, Upper], taken: Collection[str], drafts: LinkDrafts
) -> None:
    """Add drafts for the lower devices that the document only names."""
    for name, upper in uppers.items():
        if name in drafts or (name not in taken and upper.key == "link"):
            drafts.add_named_nics(upper.part, upper.key)


def _upper_links(top: Part) -> dict[str, Upper]:
    return {
        name: Upper(link, kind, key)
        for section, (kind, key) in _UPPERS.items()
        for name, link in top.named(section, _BESIDES)
    }


def _left_to_others(top: Part) -> set[str]:
    """The names of links that only other programs can make, and of the links that these use."""
    names = set(_patch_ports(top.child("openvswitch")))
    for kind in (*_OTHERS, *_KINDS):
        for name, link in top.named(kind, _BESIDES):
            reason = _left_reason(kind, link)
            if reason:
                link.warn("", reason)
                names |= {name, *link.texts("interfaces")}
    top.warn_besides(*_KINDS, *_OTHERS, "version", "renderer")
    return names


def _patch_ports(switch: Part) -> Iterator[str]:
    """The names of Open vSwitch's patch ports, which are listed in pairs."""
    pairs = switch.tree.get("ports")
    for pair in pairs if isinstance(pairs, list) else ():
        if isinstance(pair, list):
            yield from (name for name in pair if isinstance(name, str))


def _left_reason(kind: str, link: Part) -> str:
    """Why another program has to make this link; empty if the kernel can."""
    if kind in _OTHERS:
        return f"{kind} are left to other programs, with everything on top of them"
    what = _foreign_kind(kind, link)
    return what and f"{what}, which is left to other programs, with everything on top of it"


def _foreign_kind(kind: str, link: Part) -> str:
    """What kind of link this is if another program has to make it; empty if the kernel can."""
    if "openvswitch" in link.tree:
        return "a link of Open vSwitch"
    if link.text("renderer") == "sriov":
        return "a VLAN filter of an SR-IOV virtual function"
    is_of_connection = re.fullmatch(_UUID, link.text("link") or "") or "networkmanager" in link.tree
    if is_of_connection and kind != "ethernets":
        return "a connection of NetworkManager"
    return ""


def _virtual_links(own: Mapping[str, Mapping[str, Part]]) -> Iterator[tuple[str, str, Part]]:
    """Kind, name and description of each bond, bridge and VXLAN."""
    yield from (("bond", name, link) for name, link in own["bonds"].items())
    yield from (("bridge", name, link) for name, link in own["bridges"].items())
    for name, link in own["tunnels"].items():
        if link.text("mode") == "vxlan":
            yield "vxlan", name, link
        else:
            link.warn(
                "mode",
                "tunnels of this mode are left to other programs, with everything on top of them",
            )


def _virtual_draft(kind: str, name: str, link: Part) -> Optional[Draft]:
    defaults = {}
    if kind == "bond":
        defaults = {"mode": "balance-rr"}
    elif kind == "bridge" and "parameters" in link.tree:
        # netplan-yaml(5). Without parameters, netplan generates none: the kernel's default counts.
        defaults = {"stp": "yes"}
    draft = virtual_links.virtual_draft(kind, name, link)
    if draft is None:
        return None
    unusable, holder = link.faults.unusable, link
    if kind != "vxlan":
        holder = link.child("parameters")
        holder.refuse_besides({*_OPTIONS[kind], *_OF_MEMBERS})
    virtual_links.set_options(draft, holder, _OPTIONS[kind], defaults)
    return _add_common_keys(draft) if link.faults.unusable == unusable else None


def _vrf_draft(name: str, link: Part) -> Optional[Draft]:
    key = link.parse("", name, partial(link_kinds.link_key, "vrf"))
    table = link.read("table", values.vrf_table)
    if key is None or table is None:
        if link.text("table") is None:
            link.fault("table", None, "a VRF without its table, ignoring it")
        return None
    virtual = Virtual(options=(("table", str(table)),))
    return _add_common_keys(Draft(key, link.for_nic(key.mac), virtual=virtual))


def _nic_draft(name: str, link: Part) -> Optional[Draft]:
    draft = _match_nic(name, link)
    if draft is None:
        return None
    draft.name = link.read("set-name", values.link_name)
    switches = ((name, link.flag(key)) for key, name in _OFFLOADS.items())
    offloads = sorted(f"{name} {_SWITCH[is_on]}" for name, is_on in switches if is_on is not None)
    if offloads:
        draft.device["offloads"] = " ".join(offloads)
    if link.flag("wakeonlan"):
        draft.device["wake-on-lan"] = "magic"
    mode = link.read(IPOIB_MODE, lambda text: values.word(text, values.IPOIB_MODES))
    if mode is not None:
        draft.device[IPOIB_MODE] = mode
    _set_mac(draft)
    return _add_common_keys(draft)


def _refuse_matched_names(drafts: Collection[Draft]) -> None:
    """Refuse new names by which another NIC is matched: after a rename, they would mean both.

    A NIC that is matched by its name is known by its new name from then on.
    """
    draft_by_key = {draft.key: draft for draft in drafts}
    for draft in drafts:
        if draft.name and draft_by_key.get(by_name(draft.name), draft) is not draft:
            reason = "another NIC is matched by this name, ignoring it"
            draft.part.fault("set-name", draft.name, reason)
            draft.name = None


def _set_mac(draft: Draft) -> None:
    """Set the MAC address of a NIC; netplan has words for some of them."""
    link = draft.part
    word = (link.text("macaddress") or "").lower()
    if word in virtual_links.MAC_WORDS:
        reason = "only a MAC address can be set, and the permanent one is the default"
        link.fault("macaddress", word, reason, "warning")
    elif word:
        mac = link.read("macaddress", values.mac)
        if mac is not None:
            draft.device["mac"] = mac


def _match_nic(name: str, link: Part) -> Optional[Draft]:
    """A NIC matched by its MAC address, or by name alone; its driver is not known here."""
    match = link.child("match")
    present = match.text("name") or name
    if "macaddress" in match.tree:
        return _matched_by_mac(match, link)
    if present == "lo":
        link.warn("", "the loopback interface is left to other programs")
        return None
    if "match" in link.tree and not match.tree:
        link.warn("match", "it matches every NIC, ignoring it")
        return None
    if match.tree and ("driver" in match.tree or match.text("name") is None):
        reason = "it matches NICs by more than their MAC address or their name, ignoring it"
        link.warn("match", reason)
        return None
    return Draft(by_name(present), link)


def _matched_by_mac(match: Part, link: Part) -> Optional[Draft]:
    # The MAC address is enough: no two NICs that are not slaves of one device have the same.
    match.use("driver")
    mac = match.read("macaddress", values.nic) if match.has_all("macaddress") else None
    return Draft(LinkKey(mac), link.for_nic(mac)) if mac else None


def _vlan_draft(name: str, link: Part, drafts: LinkDrafts) -> Optional[Draft]:
    draft = drafts.vlan_draft(link, ("link", "id"))
    if draft is None:
        return None
    draft.name = link.parse("", name, values.link_name)
    return _add_common_keys(draft)


def _add_common_keys(draft: Draft) -> Draft:
    link = draft.part
    draft.mtu = link.mtu()
    for family in (4, 6):
        if link.flag(f"dhcp{family}"):
            draft.use_dhcp(family)
        draft.add_default_route(link, f"gateway{family}", family)
    draft.automatic = automatic.of_netplan(link)
    if draft.automatic.accept_ra is not None:
        link.use("accept-ra")
        draft.sysctls[ACCEPT_RA] = str(int(draft.automatic.accept_ra))
    draft.set_ipv6_mtu(link, "ipv6-mtu")
    link.use("renderer")
    names = link.child("nameservers")
    draft.offer_dns(names, "addresses", "nameservers")
    draft.offer_dns(names, "search", "search")
    link.close("nameservers")
    link.use_defaults(*_OFF)
    mode = link.read("activation-mode", lambda text: values.word(text, _ACTIVATION))
    if mode == "manual":
        draft.leave_to_user()
    elif mode == "off":
        draft.state = "down"
    _add_addresses(draft, link)
    netplan_routing.read(draft)
    return draft


def _add_addresses(draft: Draft, link: Part) -> None:
    """Add the addresses; each is a text, or a mapping from the text to its label and lifetime."""
    for number, entry in enumerate(link.items("addresses")):
        text = entry
        key = f"addresses[{number}]"
        if isinstance(entry, dict):
            text = next(iter(entry), "")
            link.use(f"{key}.{text}")
        if isinstance(text, str):
            draft.add_address(link, key, text)
        else:
            link.fault(key, None, "it is not an address")
