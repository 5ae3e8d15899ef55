"""Read the network part of Azure's instance metadata (`/metadata/instance`).

Reference: Microsoft, "Azure Instance Metadata Service". All values are strings. The NICs are in no
particular order, and nothing marks the primary one: it is the only one that reaches the service.
Neither gateway nor MTU is given; the gateway is the first host address of the subnet (Microsoft,
"Virtual network subnets"). IPv6 often comes without a subnet.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from typing import Optional

from neuca_tools.documents.neuca import values
from neuca_tools.documents.platform.drafts import Draft, finish_document, of_nics
from neuca_tools.documents.platform.parts import Part
from neuca_tools.model import Network, PlatformDocument

NAME = "Azure instance"
LIST = "network"  # the key of the list of all NICs
ANY = "Azure has DHCP on each NIC, and does not say which one is the primary one"
KEYS = frozenset(("macAddress", "privateIpAddress", "address", "prefix"))


def read(root: Part) -> PlatformDocument:
    """Read the document: each NIC with all its addresses."""
    drafts = of_nics(root.child("network").parts("interface"), "macAddress")
    for draft in drafts:
        draft.manage(ANY)
        _add_addresses(draft, draft.part.child("ipv4"), gateway=True)
        _add_addresses(draft, draft.part.child("ipv6"), gateway=False)
    return finish_document(drafts, root)


def _add_addresses(draft: Draft, family: Part, *, gateway: bool) -> None:
    """The addresses of the same family, and the gateway that follows from the first subnet."""
    errors = family.faults.unusable
    subnets = [subnet for part in family.parts("subnet") if (subnet := _read_subnet(part))]
    has_unusable = family.faults.unusable != errors
    for entry in family.parts("ipAddress"):
        host = entry.read("privateIpAddress", values.host)
        if host is None:
            continue
        length = next(
            (subnet.prefixlen for subnet in subnets if host in subnet), host.max_prefixlen
        )
        if length == host.max_prefixlen and has_unusable:
            reason = "its subnet is unusable, ignoring the address"
            entry.fault("privateIpAddress", str(host), reason)
        else:
            draft.add_address(entry, "privateIpAddress", f"{host}/{length}")
    if gateway and subnets and subnets[0].num_addresses > 2:
        draft.add_gateway(family, "subnet", str(subnets[0].network_address + 1))


def _read_subnet(part: Part) -> Optional[Network]:
    address, prefix = part.text("address"), part.text("prefix")
    if address is None or prefix is None:
        return None
    return part.made("address", f"{address}/{prefix}", values.network)
