"""Read Oracle Cloud's list of VNICs (`/opc/v2/vnics/`), wrapped as `{"vnics": [...]}`.

`sources.clouds` wraps it. The first VNIC is the primary one. On a virtual machine each VNIC is a
NIC, and its `vlanTag` is used by the hypervisor only. On bare metal, where the items have a
`nicIndex`, a VNIC with a `vlanTag` other than 0 is a VLAN on the physical NIC with the same index
(Oracle, "Virtual Network Interface Cards").
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from typing import Optional

from neuca_tools.documents.neuca import values
from neuca_tools.documents.platform import made
from neuca_tools.documents.platform.drafts import PRIMARY, Draft, finish_document, of_nic
from neuca_tools.documents.platform.parts import Part
from neuca_tools.model import LinkKey, Network, PlatformDocument

NAME, ROOT = "OCI VNICs", "vnics"
LIST = ROOT  # the key of the list of all NICs
KEYS = frozenset(
    "macAddr privateIp virtualRouterIp subnetCidrBlock vlanTag nicIndex"
    " ipv6Addresses ipv6SubnetCidrBlock ipv6VirtualRouterIp".split()
)
MTU = 9000
"""Bytes (Oracle, "Networking Overview"): that of every NIC, which no document has."""
_NONE = "<null>"  # the text of a missing value on an instance without IPv4
_IPV6_LENGTH = 64  # the prefix length of every subnet


def read(root: Part) -> PlatformDocument:
    """Read the document: the first VNIC is for management, the others get all their addresses."""
    vnics = list(root.numbered(ROOT))
    bare_metal = any(vnic.text("nicIndex") is not None for _, vnic in vnics)
    physical: dict[str, Draft] = {}
    drafts = []
    # The VLANs after the physical NICs that they are on.
    for number, vnic in sorted(vnics, key=lambda item: bare_metal and _is_vlan(item[1])):
        draft = (
            _vlan_draft(vnic, physical)
            if bare_metal and _is_vlan(vnic)
            else of_nic(vnic, "macAddr", mtu=MTU)
        )
        if draft is None:
            continue
        if not draft.key.vlan_id:
            physical.setdefault(vnic.text("nicIndex") or "", draft)
        if number == 0:
            draft.manage(PRIMARY, firm=True)
        else:
            _add_addresses(draft)
        drafts.append(draft)
    return finish_document(drafts, root)


def _is_vlan(vnic: Part) -> bool:
    return vnic.text("vlanTag") not in (None, "0")


def _vlan_draft(vnic: Part, physical: dict[str, Draft]) -> Optional[Draft]:
    """A VLAN with the MAC of its VNIC on the physical NIC with its index."""
    index = vnic.text("nicIndex") or ""
    parent, number = physical.get(index), vnic.read("vlanTag", values.vlan_id)
    if parent is None:
        vnic.fault("nicIndex", index, "no VNIC is the physical NIC, ignoring the VLAN")
        return None
    if number is None:
        return None
    mac = parent.key.mac
    draft = Draft(LinkKey(mac, number), vnic.about(mac))
    return draft if made.set_options(draft, vnic, {"macAddr": "mac"}) else None


def _add_addresses(draft: Draft) -> None:
    vnic = draft.part
    network = _read_subnet(vnic, "subnetCidrBlock")
    address = vnic.text("privateIp")
    if network and address:
        draft.add_address(vnic, "privateIp", f"{address}/{network.prefixlen}")
    with draft.whole():
        network = _read_subnet(vnic, "ipv6SubnetCidrBlock")
        length = network.prefixlen if network else _IPV6_LENGTH
        for text in vnic.texts("ipv6Addresses"):
            draft.add_address(vnic, "ipv6Addresses", f"{text}/{length}")
    for key in ("virtualRouterIp", "ipv6VirtualRouterIp"):
        router = vnic.text(key)
        if router and router != _NONE:
            draft.add_gateway(vnic, key, router)


def _read_subnet(vnic: Part, key: str) -> Optional[Network]:
    text = vnic.text(key)
    if text is None or text == _NONE:
        return None
    return vnic.made(key, text, values.network)
