"""Check a platform's document offline: keys, words and names of links that appear to be misspelled.

Its reader checks everything else, after misspelled keys have been corrected: one mistake is one
finding, and the value of a misspelled key is checked too.
"""

# SPDX-License-Identifier: MIT

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import NamedTuple

from neuca_tools.documents import check_network
from neuca_tools.documents.neuca.values import clip
from neuca_tools.documents.platform import automatic, combined, netplan, nocloud_v1, openstack
from neuca_tools.documents.platform.tree import REPEATED, Tree, from_json, from_yaml, lines_of
from neuca_tools.documents.spelling import (
    MAX_SPELLINGS,
    Finding,
    closest_name,
    closest_word,
    line_with,
    with_meant_word,
    with_suggestion,
)
from neuca_tools.errors import unreadable
from neuca_tools.model import Fault, PlatformDocument

# Keys that are correct although the agent does not use them. Sources: the reference of netplan 1.2
# (netplan-yaml(5)), the schema of cloud-init 26.2 (schema-network-config-v1.json), and nova's
# doc/api_schemas/network_data.json.
# The keys below these are the names of links.
_LINKS = frozenset(
    "ethernets bonds bridges tunnels vlans vrfs wifis modems dummy-devices virtual-ethernets"
    " nm-devices".split()
)
# The keys below these are names that users choose.
_NAMED = _LINKS | frozenset(
    "path-cost port-priority bridge_pathcost bridge_portprio access-points external-ids"
    " other-config passthrough hairpin port-mac-learning".split()
)
# Of version 1 of network-config, beyond those that are read; many occur in version 2 too.
_VERSION_1 = frozenset(
    "network version config id scope keys bond-active_slave bond-ad_actor_key"
    " bond-ad_actor_sys_prio bond-ad_actor_system bond-ad_aggregator bond-ad_num_ports"
    " bond-ad_partner_key bond-ad_partner_mac bond-ad_user_port_key bond-mii_status"
    " bond-num_unsol_na bond-peer_notif_delay bond-queue_id bond-slaves bond-tlb_dynamic_lb"
    " bond-use_carrier bridge_gcint bridge_hw bridge_maxwait bridge_ports bridge_waitport"
    " broadcast ipv4 ipv6 keep_configuration routes".split()
)
# The keys that mean the same in version 1 and in version 2; those of a route are in version 2 keys
# of routes only.
_SAME = (("mac_address", "macaddress"), ("address", "addresses"), ("gateway", "gateway4"))
_SAME_IN_ROUTES = (("gateway", "via"), ("network", "to"), ("destination", "to"))
_NETPLAN = _VERSION_1 | frozenset(
    "dhcp4-overrides dhcp6-overrides advertised-receive-window aging allowed-ips"
    " anonymous-identity apn arp-proxy auth auto-config band bssid ca-cert ca-certificate"
    " certificate channel checksums client-certificate client-key client-key-password"
    " congestion-window connection-mode controller delay-virtual-functions-rebind device device-id"
    " dhcp-identifier do-not-fragment embedded-switch-mode endpoint extensions fail-mode"
    " flow-label hidden identity input ipv6-address-generation ipv6-address-token keepalive key"
    " key-management label lacp lifetime limit mac-learning mcast-snooping method neigh-suppress"
    " network-id networkmanager notifications number openvswitch optional-addresses output"
    " password peers phase2-auth pin port-range private private-key protocols public"
    " regulatory-domain rstp shared short-circuit sim-id sim-operator-id ssl stable-id ttl"
    " username uuid virtual-function-count wakeonwlan ageing peer private-key-flags"
    " ra-overrides".split()
)
_OPENSTACK = frozenset("links networks services routes vif_id network_id".split())
_SUBNETS = frozenset((*automatic.DHCP, *automatic.ADVERTISED, "static", "static6", "manual"))
# Words of the formats for kinds of links, subnets, networks and routes, and for modes.
_WORDS = {
    "network-config": _SUBNETS
    | frozenset(
        "physical infiniband bond bridge vlan route nameserver loopback static4 ipip gre sit isatap"
        " vti ip6ip6 ipip6 ip6gre vti6 wireguard gretap ip6gretap vxlan".split()
    ),
    openstack.NAME: _SUBNETS | openstack.PHYSICAL | {"bond", "vlan", "ipv4", "ipv6", "dns"},
}
# Keys whose values name links of the same document.
_NAMING = frozenset(
    "link interfaces vlan_link bond_interfaces bridge_interfaces bond_links".split()
)
# Keys whose values are words of the format.
_WORDY = ("type", "mode")
# What a reason quotes is in the text, maybe in another line of the item (a netmask).
_QUOTED = re.compile('"([^"]+)"')


class _Entry(NamedTuple):
    """A key of the document, with its path and its value."""

    path: str
    key: str
    value: Tree


def check(data: bytes, kind: str) -> Iterator[Finding]:
    """The findings in a document of this kind. Raises DocumentError if it cannot be parsed."""
    load = from_json if kind == openstack.NAME else from_yaml
    tree = load(data, kind)
    if not isinstance(tree, dict):
        raise unreadable("it is not an object", kind)
    lines = lines_of(data)
    # Beside `network` may be the meta-data of VMware's guestinfo.
    own = {"network": tree["network"]} if isinstance(tree.get("network"), dict) else tree
    misspelled = dict(_misspelled_keys(own, *_known_keys(kind, tree)))
    if kind == openstack.NAME and _is_another_kind(tree, misspelled):
        raise unreadable('it has neither "links" nor "networks"', kind)
    for path, meant in misspelled.items():
        text = with_suggestion(f'"{clip(path)}": unknown key', meant)
        yield Finding(_line_of(lines, path), "error", text, meant)
    corrector = _Corrector(misspelled, lines)
    corrected = corrector.correct_keys(tree, "", "")
    if isinstance(corrected, dict) and corrected:
        written = data.decode("utf-8", "replace").splitlines()
        yield from _reader_findings(corrected, kind, corrector.lines, written)


def _is_another_kind(tree: dict[str, Tree], misspelled: Mapping[str, str]) -> bool:
    """Whether an object is no network_data.json, but another document of a cloud."""
    keys = {misspelled.get(key, key) for key in tree}
    return bool(tree) and "services" not in tree and not keys & {"links", "networks"}


def _known_keys(kind: str, tree: dict[str, Tree]) -> tuple[frozenset[str], float]:
    """The known keys, and how alike an unknown one has to be: clouds add keys of their own."""
    if kind == openstack.NAME:
        return openstack.KEYS | _OPENSTACK, 0.8
    inner = tree.get("network")
    top = inner if isinstance(inner, dict) else tree
    if top.get("version") == "1":
        return nocloud_v1.KEYS | _VERSION_1, 0.7
    return netplan.KEYS_2 | _NETPLAN | _NAMED, 0.7


def _misspelled_keys(tree: Tree, known: frozenset[str], cutoff: float) -> Iterator[tuple[str, str]]:
    """The path of each key that looks like a known one, and that one."""
    unknown = (entry for entry in _all_entries(tree) if entry.key not in known)
    for entry in islice(unknown, MAX_SPELLINGS):
        # The key above this one, which it never means.
        parent = entry.path.rpartition(".")[0].rpartition(".")[2].partition("[")[0]
        meant = next(filter(known.__contains__, _names_elsewhere(parent, entry.key)), "")
        meant = meant or closest_word(entry.key, known - {parent}, cutoff)
        if meant:
            yield entry.path, meant


def _names_elsewhere(parent: str, key: str) -> Iterator[str]:
    """What a key of the other version, or of another place, may be called below this key."""
    same = (*_SAME_IN_ROUTES, *_SAME) if parent == "routes" or key in ("via", "to") else _SAME
    yield from (name for names in same if key in names for name in names if name != key)
    if parent == "params":
        yield from (f"bond-{key}", f"bridge_{key}")


def _all_entries(tree: Tree) -> Iterator[_Entry]:
    """Every key, without those that are names which the author chose."""
    waiting: list[tuple[Tree, str, bool]] = [(tree, "", False)]
    while waiting:
        item, path, named = waiting.pop()
        if isinstance(item, list):
            waiting += ((element, f"{path}[{at}]", False) for at, element in enumerate(item))
        elif isinstance(item, dict):
            for key, value in item.items():
                if key == REPEATED:
                    continue
                below = _path_below(path, key)
                if not named:
                    yield _Entry(below, key, value)
                waiting.append((value, below, not named and key in _NAMED))


def _path_below(path: str, key: str) -> str:
    return f"{path}.{key}".lstrip(".")


class _Corrector:
    """Corrects the misspelled keys of a tree; `lines` has the line of each path after that."""

    def __init__(self, misspelled: Mapping[str, str], lines: Mapping[str, int]) -> None:
        self._misspelled = misspelled
        self._lines_before = lines
        self.lines: dict[str, int] = {}

    def correct_keys(self, tree: Tree, path: str, new: str) -> Tree:
        """The tree at `path`, which is at `new` afterwards."""
        if path in self._lines_before:
            self.lines[new] = self._lines_before[path]
        if isinstance(tree, list):
            items = enumerate(tree)
            return [self.correct_keys(item, f"{path}[{at}]", f"{new}[{at}]") for at, item in items]
        if not isinstance(tree, dict):
            return tree
        corrected: dict[str, Tree] = {}
        for key, value in tree.items():
            below = _path_below(path, key)
            name = self._misspelled.get(below, key)
            # Of two spellings of a key, the correct one counts.
            if name == key or name not in tree:
                corrected[name] = self.correct_keys(value, below, _path_below(new, name))
        return corrected


def _reader_findings(
    tree: dict[str, Tree], kind: str, lines: Mapping[str, int], written: Sequence[str]
) -> Iterator[Finding]:
    """What the reader says about the document, and links that are named but not described."""
    unknown = {
        (path, clip(name)): (item, meant) for path, item, name, meant in _undescribed_links(tree)
    }
    document = combined.interpret_document(kind, tree)
    for fault in document.faults:
        _, meant = unknown.pop((fault.key, fault.value), ("", ""))
        quoted = _QUOTED.match(fault.reason) if fault.value else None
        line = line_with(written, _line_of(lines, fault.key), quoted[1].lower() if quoted else "")
        fault = _with_meant_value(fault, kind, meant)
        # The kind of the document, with which the text begins, is known.
        text = fault.text.removeprefix(kind).strip()
        yield Finding(line, fault.severity, text, fault.meant)
    yield from _clash_findings(document, kind, lines, written)
    if kind == openstack.NAME:
        return  # its links have ids, which are not names of NICs; the reader says so
    for (path, name), (item, meant) in unknown.items():
        reason = "the document describes no such link, so the host must have a NIC of this name"
        text = with_suggestion(f'"{clip(path)}" = "{name}": {reason}', meant)
        yield Finding(_line_of(lines, item), "error" if meant else "warning", text, meant)


def _clash_findings(
    document: PlatformDocument, kind: str, lines: Mapping[str, int], text: Sequence[str]
) -> Iterator[Finding]:
    """What of the document does not fit together; other programs may use it for other links."""
    made_of = check_network.made_of(document.links)
    clashes = check_network.find_clashes(document.links, document.routes, document.rules)
    for clash in islice(chain(made_of, clashes), MAX_SPELLINGS):
        line = _line_of(lines, clash.where[len(kind) :].lstrip(", "))
        said = with_suggestion(clash.text, clash.meant)
        yield Finding(line_with(text, line, clash.item), "warning", said, clash.meant)


def _with_meant_value(fault: Fault, kind: str, meant: str) -> Fault:
    """The fault with what its value probably means, which makes it an error."""
    fault = with_meant_word(fault)
    if fault.meant:
        return fault
    if fault.key.rpartition(".")[2] in _WORDY:
        meant = closest_name(fault.value, _WORDS[kind])
    if not meant:
        return fault
    return fault._replace(
        reason=with_suggestion(fault.reason, meant), severity="error", meant=meant
    )


def _line_of(lines: Mapping[str, int], path: str) -> int:
    """The line of a path, or of the nearest thing around it that has one; 0 if unknown."""
    while path and path not in lines:
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return lines.get(path, 0)


# --- names of links -------------------------------------------------------------------------------


def _undescribed_links(tree: dict[str, Tree]) -> Iterator[tuple[str, str, str, str]]:
    """Each link that is named but not described: path, path of the item, name, probable name."""
    described = frozenset(_described_links(tree))
    named = (
        reference
        for entry in _all_entries(tree)
        if entry.key in _NAMING
        for reference in _named_links(entry)
    )
    unknown = ((path, item, name) for path, item, name in named if name not in described)
    for path, item, name in islice(unknown, MAX_SPELLINGS):
        yield path, item, name, closest_name(name, described)


def _described_links(tree: dict[str, Tree]) -> Iterator[str]:
    """The names and ids of all links of the document."""
    inner = tree.get("network")
    top = inner if isinstance(inner, dict) else tree
    for key in _LINKS:
        links = top.get(key)
        if isinstance(links, dict):
            yield from links
    for key in ("config", "links"):
        listed = top.get(key)
        for link in listed if isinstance(listed, list) else ():
            if isinstance(link, dict):
                yield from (str(link[word]) for word in ("id", "name") if word in link)


def _named_links(entry: _Entry) -> Iterator[tuple[str, str, str]]:
    """Path, path of the item and name, of each link that the value of a key names."""
    if isinstance(entry.value, str):
        yield entry.path, entry.path, entry.value
    elif isinstance(entry.value, list):
        for number, name in enumerate(entry.value):
            if isinstance(name, str):
                yield entry.path, f"{entry.path}[{number}]", name
