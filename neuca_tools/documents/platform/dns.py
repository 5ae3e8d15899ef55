"""Find DNS servers and search domains in a platform's document, for `neuca get`.

The agent does not use them. OpenStack has `services` in the document, in a network or in a route;
netplan has `nameservers` in a link; cloud-init's version 1 has `nameserver` entries, and
`dns_nameservers` in a subnet.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

from neuca_tools.documents.platform.tree import Tree, all_items
from neuca_tools.model.rows import Item

SECTION = "dns"
KEYS = frozenset(("type", "address", "addresses", "search", "dns_nameservers", "dns_search"))
# Servers, and domains, that are kept.
MAX_VALUES = 64
_KINDS = ("dns", "nameserver")


def dns_items(tree: Tree) -> tuple[Item, ...]:
    """The items for `neuca get dns nameservers` and `neuca get dns search`, in document order."""
    offers: dict[str, dict[str, None]] = {"nameservers": {}, "search": {}}
    objects = (item for item in all_items(tree) if isinstance(item, dict))
    for key, value in chain.from_iterable(map(_own_values, objects)):
        offers[key].update(dict.fromkeys(_words(value)))
    return tuple(
        Item(SECTION, key, " ".join(list(values)[:MAX_VALUES]), 0)
        for key, values in offers.items()
        if values
    )


def _own_values(tree: Mapping[str, Tree]) -> Iterator[tuple[str, Tree]]:
    """The values of one object, without those of the objects in it."""
    yield "nameservers", tree.get("dns_nameservers")
    if tree.get("type") in _KINDS:
        yield "nameservers", tree.get("address")
    yield "search", tree.get("dns_search")
    own = tree.get("nameservers")
    if isinstance(own, dict):
        yield "nameservers", own.get("addresses")
        yield "search", own.get("search")
    if tree.get("type") == "nameserver":
        yield "search", tree.get("search")


def _words(value: Tree) -> Iterator[str]:
    """Each word of a text, or of a list of texts."""
    for text in value if isinstance(value, list) else [value]:
        if isinstance(text, str):
            yield from text.split()
