"""Read the NICs of DigitalOcean's metadata (`/metadata/v1.json`).

Reference: DigitalOcean, "Droplet Metadata API". Of the gateways, only that of a public interface is
for the default route. Anchor addresses, which reserved addresses are mapped to, are on the public
interface.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from neuca_tools.documents.platform.drafts import Draft, finish_document, of_nics
from neuca_tools.documents.platform.parts import Part
from neuca_tools.model import PlatformDocument

NAME, LIST = "DigitalOcean droplet", "interfaces"
_PUBLIC = "public"
_FAMILIES = {"ipv4": "netmask", "ipv6": "cidr", "anchor_ipv4": "netmask"}
KEYS = frozenset((LIST, _PUBLIC, "private", "mac", "ip_address", "gateway", *_FAMILIES)) | {
    *_FAMILIES.values()
}


def read(root: Part) -> PlatformDocument:
    """Read the document: the interfaces by their type, each with its addresses."""
    interfaces = root.child(LIST)
    public = of_nics(interfaces.parts(_PUBLIC), "mac")
    drafts = public + of_nics(interfaces.parts("private"), "mac")
    for number, draft in enumerate(drafts):
        _add_families(draft, number < len(public))
    return finish_document(drafts, root)


def _add_families(draft: Draft, is_public: bool) -> None:
    for name, mask in _FAMILIES.items():
        family = draft.part.child(name)
        if family.text("ip_address"):
            draft.add_address(
                family, "ip_address", family.text("ip_address") or "", family.text(mask)
            )
        if name.startswith("anchor"):
            continue
        if is_public:
            draft.add_default_route(family, "gateway")
        elif family.text("gateway"):
            draft.add_gateway(family, "gateway", family.text("gateway") or "")
