"""Read the NICs of DigitalOcean's metadata (`/metadata/v1.json`).

Reference: DigitalOcean, "Droplet Metadata API". Of the gateways, only that of a public interface is
for the default route. Anchor addresses, which reserved addresses are mapped to, are on the public
interface.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from neuca_tools.documents.neuca import values
from neuca_tools.documents.platform.drafts import Draft, finish
from neuca_tools.documents.platform.parts import Part
from neuca_tools.model import LinkKey, PlatformDocument

NAME, LIST = "DigitalOcean droplet", "interfaces"
_PUBLIC = "public"
_FAMILIES = {"ipv4": "netmask", "ipv6": "cidr", "anchor_ipv4": "netmask"}
KEYS = frozenset((LIST, _PUBLIC, "private", "mac", "ip_address", "gateway", *_FAMILIES)) | {
    *_FAMILIES.values()
}


def read(root: Part) -> PlatformDocument:
    """Read the document: the interfaces by their type, each with its addresses."""
    drafts = []
    interfaces = root.child(LIST)
    for kind in (_PUBLIC, "private"):
        for nic in interfaces.parts(kind):
            mac = nic.read("mac", values.mac)
            if mac is not None:
                drafts.append(_nic(nic.about(mac), LinkKey(mac), kind == _PUBLIC))
    return finish(drafts, root)


def _nic(nic: Part, key: LinkKey, is_public: bool) -> Draft:
    draft = Draft(key, nic)
    for name, mask in _FAMILIES.items():
        family = nic.child(name)
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
    return draft
