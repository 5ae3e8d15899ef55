"""Tell whether a metadata service's list of the guest's NICs can be complete.

A platform that lists NICs lists all of them, and so the one through which its answer came. A list
without it, or without any NIC, is that of a service that does not know the guest's NICs at the
moment, or of another guest. OpenStack lists the networks of the NICs apart.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Optional

from neuca_tools.documents.platform import clouds, ec2, openstack
from neuca_tools.documents.platform.tree import Tree, all_items

# The key of the list of all NICs. A user wrote the documents of the other platforms, for any NIC.
_LISTS = {openstack.NAME: "links"} | {row.name: row.nics for row in clouds.FORMATS if row.nics}
# It is not in the tree of every service with the paths of EC2: OpenStack's has public keys alone.
_OPTIONAL = frozenset({ec2.NAME})
_SEPARATORS = re.compile(r"[:.-]")
_DIGITS = re.compile(r"[0-9a-f]{12}|[0-9a-f]{16}|[0-9a-f]{40}")
_GUID_DIGITS = 16  # the last ones of an InfiniBand port's address identify it
_VIRTUAL = ("bond", "vlan")


def list_gap(
    trees: Mapping[str, Mapping[str, Tree]],
    before: Mapping[str, Mapping[str, Tree]],
    macs: Collection[str],
) -> str:
    """Why the list of NICs in these documents is incomplete; empty if it need not be.

    `macs` are those of the interface through which they came, none if that is no NIC. `before` are
    the documents that the same service has given for this guest.
    """
    for name in trees.keys() & _LISTS.keys():
        reason = _gap_in_list(name, trees[name], macs)
        if reason:
            return reason
    for name in before.keys() & _LISTS.keys():
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
    if _LISTS[name] not in tree and name in _OPTIONAL:
        return None
    texts = map(_without_separators, _all_texts(tree.get(_LISTS[name])))
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
