"""Read the NICs of Vultr's metadata (`/v1.json`).

Reference: Vultr, "Metadata API". The public interface gets its address by DHCP and is the primary
one; each private network is an interface without a gateway.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from neuca_tools.documents.platform.drafts import Draft, finish_document, of_nics
from neuca_tools.documents.platform.parts import Part
from neuca_tools.model import PlatformDocument

NAME, LIST = "Vultr instance", "interfaces"
KEYS = frozenset(
    "interfaces mac ipv4 ipv6 additional address netmask network prefix gateway".split()
)


def read(root: Part) -> PlatformDocument:
    """Read the document: the addresses of each interface; a gateway makes it a likely primary."""
    drafts = of_nics(root.parts(LIST), "mac")
    for draft in drafts:
        _add_family(draft, draft.part.child("ipv4"), "netmask", "255.255.255.255")
        _add_family(draft, draft.part.child("ipv6"), "prefix", "128")
    return finish_document(drafts, root)


def _add_family(draft: Draft, family: Part, mask: str, host: str) -> None:
    """The addresses of one family; the additional ones are single addresses unless they say more.

    An additional prefix of IPv6 is routed to the guest and no address of it.
    """
    if family.text("address"):
        draft.add_address(family, "address", family.text("address") or "", family.text(mask))
    draft.add_default_route(family, "gateway")
    for more in family.parts("additional"):
        if more.text("address"):
            length = more.text(mask) or host
            draft.add_address(more, "address", more.text("address") or "", length)
