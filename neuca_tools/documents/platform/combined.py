"""The platform's own documents as one text: `reduce_documents` makes it, and `parse` reads it.

The text is JSON with sorted keys and without what the agent does not use, so that it changes only
when the meaning does.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Optional

from neuca_tools.documents.neuca.values import clip
from neuca_tools.documents.platform import clouds, ec2, instance, netplan, openstack
from neuca_tools.documents.platform.clouds import Format
from neuca_tools.documents.platform.parts import Faults, Part
from neuca_tools.documents.platform.tree import REPEATED, Tree, all_items, from_json, from_yaml
from neuca_tools.documents.platform.virtual_links import PORT_SETTINGS
from neuca_tools.documents.stacking import overlay_requests
from neuca_tools.errors import unreadable
from neuca_tools.model import Fault, LinkKey, LinkRequest, PlatformDocument, machine


def _prune_tree(tree: Tree, keys: frozenset[str], is_known: bool, unknown: Optional[str]) -> Tree:
    """The tree with `unknown` for each unknown scalar; `is_known`: its own key is in `keys`."""
    if isinstance(tree, dict):
        return _pruned_object(tree, keys, unknown)
    if isinstance(tree, list):
        # Every item keeps its place, because the paths in faults count them.
        items = [_prune_tree(item, keys, is_known, unknown) for item in tree]
        is_kept = is_known or unknown is not None or any(item is not None for item in items)
        return items if is_kept else None
    return tree if is_known or tree is None else unknown


def _pruned_object(
    tree: dict[str, Tree], keys: frozenset[str], unknown: Optional[str]
) -> dict[str, Tree]:
    items = {key: _prune_tree(value, keys, key in keys, unknown) for key, value in tree.items()}
    for key in PORT_SETTINGS.keys() & tree.keys():
        ports = tree[key]
        if isinstance(ports, dict):
            # Its keys are names of links.
            texts = {name: str(value) for name, value in ports.items()}
            items[key] = {name: text if text.isdecimal() else "" for name, text in texts.items()}
    return {key: value for key, value in items.items() if value is not None}


# Unknown keys in what people write stay for the warnings.
_FORMATS = (
    Format(openstack.NAME, openstack.KEYS, openstack.read, unknown=""),
    Format(netplan.NAME, netplan.KEYS, netplan.read, load=from_yaml, unknown=""),
    *clouds.FORMATS,
    Format(instance.OPENSTACK, None, instance.read),
    Format(instance.NOCLOUD, None, instance.read, load=from_yaml),
)
_LISTS: Mapping[str, Tree] = {"links": [], "networks": []}  # of OpenStack
_KINDS: Mapping[str, Format] = {row.name: row for row in _FORMATS}
_PLATFORM_BY_DOCUMENT = {instance.OPENSTACK: "openstack", instance.NOCLOUD: "nocloud"}


def reduce_documents(parts: Mapping[str, bytes]) -> str:
    """One text for the documents of a source, given by name; empty if there is none to keep.

    Raises DocumentError for a document that cannot be parsed, or is not an object.
    """
    trees = {}
    for name in sorted(parts.keys() & _KINDS.keys()):
        tree = _KINDS[name].load(parts[name], name)
        if tree is not None and not isinstance(tree, dict):
            raise unreadable("it is not an object", name)
        if tree:
            trees[name] = _kept_tree(name, tree)
    return json.dumps(trees, sort_keys=True) if trees else ""


def instance_id(text: str) -> str:
    """The instance ID in the text, as `KIND:ID` with the platform's kind; empty if it has none."""
    trees = _parse_trees(text) if text else {}
    ids = (
        machine.instance_text(kind, str(trees[name].get("uuid", "")))
        for name, kind in _PLATFORM_BY_DOCUMENT.items()
        if name in trees
    )
    return next(filter(None, ids), "")


def gap(text: str, before: str, macs: Optional[Collection[str]]) -> str:
    """Why a source's documents are incomplete; `before` are those that it had earlier.

    A full disk or an interrupted copy leaves an empty document about the network, or none. That of
    one which had no links, such as `config: disabled`, is no loss. `macs` belong to a service (see
    `_nic_list_gap`), None to another source.
    """
    if not text or text == before:
        return ""
    trees, earlier = _parse_trees(text), _parse_trees(before or "{}")
    if macs is not None:
        reason = _nic_list_gap(trees, earlier, macs) or _address_gap(trees, earlier)
        if reason:
            return reason
    for name in sorted({netplan.NAME, openstack.NAME} & earlier.keys() - trees.keys()):
        if _interpret_tree(name, earlier[name]).links:
            return f"{name} is empty or missing"
    return _list_gap(trees.get(openstack.NAME, _LISTS), earlier.get(openstack.NAME, {}))


def _list_gap(network: Mapping[str, Tree], before: Mapping[str, Tree]) -> str:
    """Which list OpenStack's document has lost, unless that was empty."""
    lost = next((key for key in _LISTS if before.get(key) and key not in network), "")
    return lost and f"{openstack.NAME} no longer has {lost}"


def _address_gap(
    trees: Mapping[str, dict[str, Tree]], before: Mapping[str, dict[str, Tree]]
) -> str:
    """Which NIC of a cloud has lost its addresses: they are those of the cloud's network.

    A cloud can take the IPv6 addresses of a NIC that has IPv4 ones, but not the latter.
    """
    for name in [row.name for row in clouds.FORMATS if row.name in trees.keys() & before.keys()]:
        document, earlier = (_interpret_tree(name, parts[name]) for parts in (trees, before))
        lost = _lost_addresses(document, earlier)
        if lost:
            return f"{name} no longer gives any {lost}"
    return ""


def _lost_addresses(document: PlatformDocument, earlier: PlatformDocument) -> str:
    versions_before = {link.key: _ip_versions(link) for link in earlier.links}
    # No document has the addresses of the primary NIC.
    excused = {LinkKey(hint.mac) for hint in document.management if hint.firm}
    for link in document.links:
        kept = _ip_versions(link)
        lost = versions_before.get(link.key, frozenset()) - kept
        is_gap = 4 in lost or (lost and not kept)
        if is_gap and link.state != "user" and link.key not in excused:
            return f"{'IPv4 ' * bool(kept)}address of {link.key}"
    return ""


def _ip_versions(link: LinkRequest) -> frozenset[int]:
    return frozenset(address.version for address in link.addresses)


def redacted_text(text: str) -> str:
    """A copy of such a text that everybody may read: without the guest's metadata and keys."""
    trees = _parse_trees(text)
    for tree in trees.values():
        for key in instance.SECRET:
            tree.pop(key, None)
    return json.dumps(trees, sort_keys=True)


def parse(text: str) -> PlatformDocument:
    """Interpret the text of the platform's documents.

    Unusable parts become faults. Raises DocumentError if it is not such a text.
    """
    whole = PlatformDocument()
    for name, tree in _parse_trees(text).items():
        whole = _join_documents(whole, _interpret_tree(name, tree))
    return whole


def _kept_tree(name: str, tree: dict[str, Tree]) -> dict[str, Tree]:
    keys = _KINDS[name].keys
    if keys is None:
        kept = instance.kept_metadata(tree)
    else:
        kept = _pruned_object(tree, keys, _KINDS[name].unknown)
    if REPEATED in tree:
        kept[REPEATED] = tree[REPEATED]
    return kept


def _interpret_tree(name: str, tree: dict[str, Tree], by_key: bool = False) -> PlatformDocument:
    """Interpret a document; of a key that occurs twice, the last one counts, as in most parsers."""
    own = {key: value for key, value in tree.items() if key != REPEATED}
    root = Part(own, name, faults=Faults(by_key))
    repeated = tree.get(REPEATED)
    for path, severity in repeated.items() if isinstance(repeated, dict) else ():
        fault = Fault(0, name, clip(path), "", "this key occurs twice, ignoring the first")
        root.faults.add(fault if severity == "error" else fault._replace(severity="warning"))
    return _KINDS[name].read(root)


def interpret_document(name: str, tree: dict[str, Tree]) -> PlatformDocument:
    """Interpret one document that has been parsed, without what would not be kept of it."""
    return _interpret_tree(name, _kept_tree(name, tree), by_key=True)


def _parse_trees(text: str) -> dict[str, dict[str, Tree]]:
    trees = from_json(text.encode("utf-8", "replace"), "the platform's document")
    if not isinstance(trees, dict):
        raise unreadable("it is not an object", "the platform's document")
    return {name: tree for name, tree in trees.items() if name in _KINDS and isinstance(tree, dict)}


def _join_documents(document: PlatformDocument, other: PlatformDocument) -> PlatformDocument:
    return PlatformDocument(
        hostname=document.hostname or other.hostname,
        links=tuple(overlay_requests(document.links, other.links)),
        routes=document.routes + other.routes,
        management=document.management + other.management,
        items=document.items + other.items,
        faults=document.faults + other.faults,
        rules=document.rules + other.rules,
    )


# --- Whether a metadata service's list of the guest's NICs can be complete ------------------------

# A platform that lists NICs lists all of them, and so the one through which its answer came. A list
# without it, or without any NIC, is that of a service that does not know the guest's NICs at the
# moment, or of another guest. OpenStack lists the networks of the NICs apart.

# The key of the list of all NICs. A user wrote the documents of the other platforms, for any NIC.
_NIC_LISTS = {openstack.NAME: "links"} | {row.name: row.nics for row in clouds.FORMATS if row.nics}
# It is not in the tree of every service with the paths of EC2: OpenStack's has public keys alone.
_OPTIONAL_LISTS = frozenset({ec2.NAME})
_SEPARATORS = re.compile(r"[:.-]")
_DIGITS = re.compile(r"[0-9a-f]{12}|[0-9a-f]{16}|[0-9a-f]{40}")
_GUID_DIGITS = 16  # the last ones of an InfiniBand port's address identify it
_VIRTUAL = ("bond", "vlan")


def _nic_list_gap(
    trees: Mapping[str, Mapping[str, Tree]],
    before: Mapping[str, Mapping[str, Tree]],
    macs: Collection[str],
) -> str:
    """Why the list of NICs in these documents is incomplete; empty if it need not be.

    `macs` are those of the interface through which they came, none if that is no NIC. `before` are
    the documents that the same service has given for this guest.
    """
    for name in trees.keys() & _NIC_LISTS.keys():
        reason = _gap_in_list(name, trees[name], macs)
        if reason:
            return reason
    for name in before.keys() & _NIC_LISTS.keys():
        if _listed_macs(name, before[name]) and (
            name not in trees or _listed_macs(name, trees[name]) is None
        ):
            return f"{name} was there before, and now is missing"
    networks = [documents.get(openstack.NAME, {}).get("networks") for documents in (before, trees)]
    if networks[0] and not networks[1]:
        return f"{openstack.NAME} no longer has networks"
    return ""


def _gap_in_list(name: str, tree: Mapping[str, Tree], macs: Collection[str]) -> str:
    nics = _listed_macs(name, tree)
    if nics is None or _has_nic_by_name(name, tree):
        return ""
    if not nics:
        return f"{name} has no NIC"
    own = {_without_separators(mac) for mac in macs}
    if own and not own & nics:
        return f"{name} lacks the NIC through which it came, {min(macs)}"
    return ""


def _listed_macs(name: str, tree: Mapping[str, Tree]) -> Optional[frozenset[str]]:
    """The addresses in the list of NICs, without separators; None if there need not be a list."""
    if _NIC_LISTS[name] not in tree and name in _OPTIONAL_LISTS:
        return None
    texts = map(_without_separators, _all_texts(tree.get(_NIC_LISTS[name])))
    return frozenset(text[-_GUID_DIGITS:] for text in texts if _DIGITS.fullmatch(text))


def _without_separators(text: str) -> str:
    return _SEPARATORS.sub("", text.strip().lower())


def _all_texts(tree: Tree) -> Iterator[str]:
    """Every text, and every key of an object."""
    for item in all_items(tree):
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            yield from item


def _has_nic_by_name(name: str, tree: Mapping[str, Tree]) -> bool:
    """Whether a NIC is identified by its name alone, as by Metal3 and Airship."""
    links = tree.get("links") if name == openstack.NAME else None
    return any(
        isinstance(link, dict)
        and not link.get("ethernet_mac_address")
        and link.get("type") not in _VIRTUAL
        for link in (links if isinstance(links, list) else ())
    )
