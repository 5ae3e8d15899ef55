"""Read EC2's `network/interfaces/macs/` tree and public keys, as `sources.ec2` collects them.

The object is `{"mac": primary, "macs": {MAC: {leaf: text}}, "public-keys": [text, …]}`; any part
may be missing. It has no MTU, gateway or DNS server.

References: AWS, "Instance metadata categories" and "Subnet CIDR blocks" (EC2 user guide).
`device-number` may be 0 for a while after a NIC was attached, so only `mac` identifies the primary
NIC if it is present.
"""

# SPDX-License-Identifier: MIT

from collections.abc import Iterator
from typing import Optional

from neuca_tools.documents.neuca import values
from neuca_tools.documents.platform.drafts import PRIMARY, Draft, finish_document
from neuca_tools.documents.platform.instance import PUBLIC_KEYS
from neuca_tools.documents.platform.nics import Subnets
from neuca_tools.documents.platform.parts import Part, masked_network
from neuca_tools.model import LinkKey, Network, PlatformDocument
from neuca_tools.model.rows import Item

NAME = "EC2 network"
# The last five are those of Alibaba; a gateway is not in EC2's tree.
LEAVES = tuple(
    "device-number network-card local-ipv4s subnet-ipv4-cidr-block ipv6s subnet-ipv6-cidr-block"
    " subnet-ipv6-cidr-blocks ipv4-prefix ipv6-prefix"
    " private-ipv4s vswitch-cidr-block vswitch-ipv6-cidr-block gateway ipv6-gateway".split()
)
KEYS = frozenset(("mac", PUBLIC_KEYS, *LEAVES))
_ADDRESSES = {
    "local-ipv4s": ("subnet-ipv4-cidr-block",),
    "private-ipv4s": ("vswitch-cidr-block",),
    "ipv6s": ("subnet-ipv6-cidr-blocks", "subnet-ipv6-cidr-block", "vswitch-ipv6-cidr-block"),
}
_PUNCTUATION = str.maketrans('[]",', "    ")
_PREFIXES = ("ipv4-prefix", "ipv6-prefix")


def read(root: Part) -> PlatformDocument:
    """Read the document: the primary NIC is the management NIC, the others get all their addresses.

    Public keys and delegated prefixes become items for `neuca get`.
    """
    drafts: list[Draft] = []
    keys = enumerate(root.texts(PUBLIC_KEYS))
    items = [Item(PUBLIC_KEYS, str(number), text, 0) for number, text in keys]
    primary = root.read("mac", values.mac)
    for name, nic in root.named("macs"):
        mac = nic.parse("", name, values.mac)
        if mac is None:
            continue
        draft = Draft(LinkKey(mac), nic.for_nic(mac))
        # Every network card has a number 0.
        is_first = nic.text("device-number") == "0" and nic.text("network-card") in (None, "0")
        if mac == primary or (primary is None and is_first):
            draft.hint_management(PRIMARY, firm=True)
        else:
            _add_addresses(draft)
        drafts.append(draft)
        for leaf in _PREFIXES:
            prefixes = " ".join(_leaf_words(nic, leaf))
            if prefixes:
                items.append(Item("ec2", f"{mac} {leaf}", prefixes, 0))
    return finish_document(drafts, root)._replace(items=tuple(items))


def _add_addresses(draft: Draft) -> None:
    """The addresses, and the gateways: on EC2, the first host address of the IPv4 subnet.

    No document has EC2's IPv6 gateway, which is link-local and announces itself.
    """
    nic = draft.part
    for key, blocks in _ADDRESSES.items():
        subnets = Subnets(nic, (network for block in blocks for network in _blocks(nic, block)))
        for text in _leaf_words(nic, key):
            subnets.add_address(draft, nic, key, text)
    draft.has_platform_gateways = True
    for key in ("gateway", "ipv6-gateway"):
        for text in _leaf_words(nic, key):
            draft.add_gateway(nic, key, text)
    for subnet in _blocks(nic, "subnet-ipv4-cidr-block"):
        if subnet is not None and subnet.num_addresses > 1:
            draft.add_gateway(nic, "subnet-ipv4-cidr-block", str(subnet[1]))


def _blocks(nic: Part, key: str) -> Iterator[Optional[Network]]:
    return (nic.parse(key, text, masked_network) for text in _leaf_words(nic, key))


def _leaf_words(nic: Part, key: str) -> list[str]:
    """The words of a leaf; Alibaba writes lists as JSON."""
    return (nic.text(key) or "").translate(_PUNCTUATION).split()
