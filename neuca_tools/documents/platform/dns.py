"""The DNS servers and search domains that a platform's document has, wherever in it: information, which nobody here acts on.

OpenStack's `services` are of the document, of a network or of a route; netplan's `nameservers` of a link, cloud-init's
`nameserver` stands for itself, and its `dns_nameservers` are of a subnet.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator, Mapping

from neuca_tools.documents.platform.tree import Tree
from neuca_tools.model.rows import Item

SECTION = "dns"
KEYS = frozenset(("type", "address", "addresses", "search", "dns_nameservers", "dns_search"))
MOST = 64  # of each
_KINDS = ("dns", "nameserver")


def items(tree: Tree) -> tuple[Item, ...]:
    """For `neuca get dns nameservers` and `neuca get dns search`; each once, in the order of the document."""
    found: dict[str, dict[str, None]] = {"nameservers": {}, "search": {}}
    for key, value in _said(tree):
        found[key][value] = None
    return tuple(
        Item(SECTION, key, " ".join(list(values)[:MOST]), 0)
        for key, values in found.items()
        if values
    )


def _said(tree: Tree) -> Iterator[tuple[str, str]]:
    """Each server or domain with its key. The tree is bounded in depth: see `tree`."""
    if isinstance(tree, dict):
        yield from _of(
            tree,
            ("dns_nameservers", *(("address",) if tree.get("type") in _KINDS else ())),
            ("dns_search",),
        )
        own = tree.get("nameservers")
        if isinstance(own, dict):
            yield from _of(own, ("addresses",), ("search",))
        if tree.get("type") == "nameserver":
            yield from _of(tree, (), ("search",))
    for below in (
        tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    ):
        yield from _said(below)


def _of(
    tree: Mapping[str, Tree], servers: tuple[str, ...], domains: tuple[str, ...]
) -> Iterator[tuple[str, str]]:
    for name, keys in (("nameservers", servers), ("search", domains)):
        for value in (tree.get(key) for key in keys):
            listed = value if isinstance(value, list) else [value]
            yield from (
                (name, word) for text in listed if isinstance(text, str) for word in text.split()
            )
