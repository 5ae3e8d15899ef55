"""Read Hetzner Cloud's private networks (`/hetzner/v1/metadata/private-networks`, YAML).

Hetzner routes every packet of a private network: an address is a /32, and the network is reached
through its gateway (Hetzner, "Networks: FAQ"). The NIC missing from the list is the public one.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from neuca_tools.documents.platform.drafts import Draft, finish_document, of_nics
from neuca_tools.documents.platform.parts import Part
from neuca_tools.documents.platform.tree import Tree, from_yaml
from neuca_tools.model import PlatformDocument
from neuca_tools.model.routing import Traits

NAME, ROOT = "Hetzner private networks", "networks"
KEYS = frozenset(("ip", "alias_ips", "mac_address", "network", "gateway"))
MTU = 1450
"""Bytes (Hetzner, "Networks: FAQ")."""


def load(data: bytes, name: str) -> Tree:
    """The list, as the object that all documents are. Raises DocumentError."""
    tree = from_yaml(data, name)
    return {ROOT: tree} if isinstance(tree, list) else tree


def read(root: Part) -> PlatformDocument:
    """Read the document: each network is a NIC with its addresses."""
    drafts = of_nics(root.parts(ROOT), "mac_address", mtu=MTU)
    for draft in drafts:
        for key in ("ip", "alias_ips"):
            for address in draft.part.texts(key):
                draft.add_address(draft.part, key, f"{address}/32")
        _add_route(draft)
    return finish_document(drafts, root)


def _add_route(draft: Draft) -> None:
    """The route to the network; no address of the NIC has the gateway in its prefix."""
    network, gateway = draft.part.text("network"), draft.part.text("gateway")
    if network and gateway:
        draft.add_route(draft.part, "network", network, None, gateway)
        draft.routes = [route._replace(traits=Traits(onlink=True)) for route in draft.routes]
