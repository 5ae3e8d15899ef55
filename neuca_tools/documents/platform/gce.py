"""Read the network part of Google Compute Engine's metadata (`instance/?recursive=true`).

The full path is `/computeMetadata/v1/instance/?recursive=true`. The first NIC is the primary one.
Google routes every packet of an instance, so an address is a /32 (a /128) and even its subnet is
reached through the gateway (Google, "VPC networks: subnets"). Alias ranges and the addresses of
load balancers are addresses of the guest if they are single ones.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator, Mapping

from neuca_tools.documents.neuca import values
from neuca_tools.documents.platform import made
from neuca_tools.documents.platform.drafts import PRIMARY, Draft, finish_document, of_nic
from neuca_tools.documents.platform.parts import Part
from neuca_tools.model import LinkKey, PlatformDocument

NAME = "GCE instance"
LIST = "networkInterfaces"  # the key of the list of all NICs
_EXTRA = ("ipAliases", "forwardedIps", "targetInstanceIps", "forwardedIpv6s")
KEYS = frozenset(("mac", "ip", "gateway", "gatewayIpv6", "ipv6", "ipv6s", "mtu", "vlan", *_EXTRA))
_FULL = {4: 32, 6: 128}


def read(root: Part) -> PlatformDocument:
    """Read the document: the first NIC is for management, the others get all their addresses."""
    nics: dict[str, Draft] = {}
    for number, nic in root.numbered("networkInterfaces"):
        draft = of_nic(nic, "mac", mtu=nic.mtu())
        if draft is None:
            continue
        if number == 0:
            draft.manage(PRIMARY, firm=True)
        else:
            _add_addresses(draft)
        nics[str(number)] = draft
    return finish_document([*nics.values(), *_vlan_drafts(root, nics)], root)


def _vlan_drafts(root: Part, nics: Mapping[str, Draft]) -> Iterator[Draft]:
    """The VLAN NICs: an object by number of the parent NIC, then by VLAN ID."""
    for index, group in root.named("vlanNetworkInterfaces"):
        if index not in nics:
            group.fault("", index, "there is no NIC with this number, ignoring its VLANs")
            continue
        mac = nics[index].key.mac
        for number in group.tree:
            vlan = group.child(number).about(mac)
            tag = vlan.made("", number, values.vlan_id)
            if tag is not None:
                draft = Draft(LinkKey(mac, tag), vlan, mtu=vlan.mtu())
                if made.set_options(draft, vlan, {"mac": "mac"}):
                    _add_addresses(draft)
                    yield draft


def _add_addresses(draft: Draft) -> None:
    nic = draft.part
    for key in ("ip", "ipv6", "ipv6s", *_EXTRA):
        for text in nic.texts(key):
            _add_address(draft, key, text)
    for key in ("gateway", "gatewayIpv6"):
        gateway = nic.text(key)
        if gateway:
            draft.add_gateway(nic, key, gateway)


def _add_address(draft: Draft, key: str, text: str) -> None:
    """One address, with its full length; a wider range is for containers, and gets no address."""
    host, _, length = text.partition("/")
    address = draft.part.made(key, host, values.host)
    if address is None:
        return
    if length in ("", str(_FULL[address.version])):
        draft.add_address(draft.part, key, f"{address}/{_FULL[address.version]}")
    else:
        draft.part.warn(key, f"{text} is a range, and not set as addresses of the guest")
