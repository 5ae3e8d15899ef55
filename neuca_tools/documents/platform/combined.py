"""The platform's own documents, of whatever kind: from the bytes of a source to one text to keep, and from that to what it asks.

The text is JSON with only what is of use, in one order: so it is another text only when it says something else.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Callable, NamedTuple

from neuca_tools.documents.neuca.links import overlay
from neuca_tools.documents.platform import ec2, instance, netplan, openstack
from neuca_tools.documents.platform.parts import Part
from neuca_tools.documents.platform.tree import Tree, from_json, from_yaml
from neuca_tools.errors import DocumentError
from neuca_tools.model import LinkRequest, PlatformDocument, machine


class _Kind(NamedTuple):
    """How one document is read: its bytes, what of it is kept, what it means."""

    load: Callable[[bytes, str], Tree]
    kept: Callable[[Tree], Tree]
    read: Callable[[Part], PlatformDocument]


def _only(keys: frozenset[str]) -> Callable[[Tree], Tree]:
    """Leave out the scalars whose key means nothing here: a Wi-Fi password, a token, what changes at each look."""

    def pruned(tree: Tree, known: bool = True) -> Tree:
        if isinstance(tree, dict):
            items = {key: pruned(value, key in keys) for key, value in tree.items()}
            return {key: value for key, value in items.items() if value is not None and value != []}
        if isinstance(tree, list):
            items_of = [
                pruned(one, known) for one in tree
            ]  # each keeps its place, for the paths of faults
            return items_of if known or any(item is not None for item in items_of) else []
        return tree if known else None

    return pruned


_KINDS: Mapping[str, _Kind] = {
    openstack.NAME: _Kind(from_json, _only(openstack.KEYS), openstack.read),
    netplan.NAME: _Kind(from_yaml, _only(netplan.KEYS), netplan.read),
    ec2.NAME: _Kind(from_json, _only(ec2.KEYS), ec2.read),
    instance.OPENSTACK: _Kind(from_json, instance.kept, instance.read),
    instance.NOCLOUD: _Kind(from_yaml, instance.kept, instance.read),
}

_INSTANCES = {instance.OPENSTACK: "openstack", instance.NOCLOUD: "nocloud"}


def reduced(parts: Mapping[str, bytes]) -> str:
    """The one text of a source's documents, by their names; empty where there is none. Raises DocumentError."""
    trees = {}
    for name in sorted(parts.keys() & _KINDS.keys()):
        tree = _KINDS[name].load(parts[name], name)
        if tree is not None and not isinstance(tree, dict):
            raise DocumentError(f"cannot read {name}: it is not an object")
        if tree:
            trees[name] = _KINDS[name].kept(tree)
    return json.dumps(trees, sort_keys=True) if trees else ""


def instance_id(text: str) -> str:
    """The id of the instance in such a text, with the kind of platform that gave it; empty if there is none."""
    trees = _trees(text) if text else {}
    found = (
        machine.instance(kind, str(trees[name].get("uuid", "")))
        for name, kind in _INSTANCES.items()
        if name in trees
    )
    return next(filter(None, found), "")


def open_text(text: str) -> str:
    """A copy of such a text for everybody: without the guest's own metadata and keys."""
    return json.dumps(
        {name: instance.open_part(tree) for name, tree in _trees(text).items()}, sort_keys=True
    )


def parse(text: str) -> PlatformDocument:
    """What such a text asks; what cannot be used in it becomes a fault. Raises DocumentError for a text of another kind."""
    whole = PlatformDocument()
    for name, tree in _trees(text).items():
        whole = _joined(whole, _KINDS[name].read(Part(tree, name)))
    return whole


def _trees(text: str) -> dict[str, dict[str, Tree]]:
    trees = from_json(text.encode("utf-8", "replace"), "the platform's document")
    if not isinstance(trees, dict):
        raise DocumentError("cannot read the platform's document: it is not what was kept")
    return {name: tree for name, tree in trees.items() if name in _KINDS and isinstance(tree, dict)}


def _joined(one: PlatformDocument, other: PlatformDocument) -> PlatformDocument:
    links: dict[object, LinkRequest] = {link.key: link for link in one.links}
    for link in other.links:
        links[link.key] = overlay(links[link.key], link) if link.key in links else link
    return PlatformDocument(
        one.hostname or other.hostname,
        tuple(links.values()),
        one.routes + other.routes,
        one.management + other.management,
        one.items + other.items,
        one.faults + other.faults,
    )
