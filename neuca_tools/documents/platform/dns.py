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
    for key, value in chain.from_iterable(map(_own_entries, objects)):
        offers[key][value] = None
    return tuple(
        Item(SECTION, key, " ".join(list(values)[:MAX_VALUES]), 0)
        for key, values in offers.items()
        if values
    )


def _own_entries(tree: Mapping[str, Tree]) -> Iterator[tuple[str, str]]:
    """The entries of one object, without those of the objects in it."""
    yield from _split_words("nameservers", tree.get("dns_nameservers"))
    if tree.get("type") in _KINDS:
        yield from _split_words("nameservers", tree.get("address"))
    yield from _split_words("search", tree.get("dns_search"))
    own = tree.get("nameservers")
    if isinstance(own, dict):
        yield from _split_words("nameservers", own.get("addresses"))
        yield from _split_words("search", own.get("search"))
    if tree.get("type") == "nameserver":
        yield from _split_words("search", tree.get("search"))


def _split_words(key: str, value: Tree) -> Iterator[tuple[str, str]]:
    """Each word of a text, or of a list of texts."""
    texts = [value]
    if isinstance(value, list):
        texts = value
    for text in texts:
        if isinstance(text, str):
            yield from ((key, word) for word in text.split())
