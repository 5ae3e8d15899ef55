"""Read EC2's `network/interfaces/macs/` tree and public keys, as `sources.ec2` collects them.

The object is `{"mac": primary, "macs": {MAC: {leaf: text}}, "public-keys": [text, …]}`; any part
may be missing. It has no MTU, gateway or DNS server.

Reference: AWS, "Instance metadata categories" (EC2 user guide). `device-number` may be 0 for a
while after a NIC was attached, so only `mac` identifies the primary NIC if it is present.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from ipaddress import ip_network

from neuca_tools.documents.neuca import values
from neuca_tools.documents.platform.drafts import PRIMARY, Draft, finish_document
from neuca_tools.documents.platform.instance import PUBLIC_KEYS
from neuca_tools.documents.platform.parts import Part
from neuca_tools.model import Host, LinkKey, Network, PlatformDocument
from neuca_tools.model.rows import Item

NAME = "EC2 network"
LIST = "macs"  # the key of the list of all NICs
LEAVES = (
    "device-number",
    "network-card",
    "local-ipv4s",
    "subnet-ipv4-cidr-block",
    "ipv6s",
    "subnet-ipv6-cidr-block",
    "subnet-ipv6-cidr-blocks",
    "ipv4-prefix",
    "ipv6-prefix",
    # Alibaba's names; a gateway is not in EC2's tree.
    "private-ipv4s",
    "vswitch-cidr-block",
    "vswitch-ipv6-cidr-block",
    "gateway",
    "ipv6-gateway",
)
KEYS = frozenset(("mac", PUBLIC_KEYS, *LEAVES))
_ADDRESSES = {
    "local-ipv4s": ("subnet-ipv4-cidr-block",),
    "private-ipv4s": ("vswitch-cidr-block",),
    "ipv6s": (
        "subnet-ipv6-cidr-blocks",
        "subnet-ipv6-cidr-block",
        "vswitch-ipv6-cidr-block",
    ),
}
_PUNCTUATION = str.maketrans('[]",', "    ")
_PREFIXES = ("ipv4-prefix", "ipv6-prefix")


def read(root: Part) -> PlatformDocument:
    """Read the document: the primary NIC is the management NIC, the others get all their addresses.

    Public keys and delegated prefixes become items for `neuca get`.
    """
    drafts: list[Draft] = []
    items = [
        Item(PUBLIC_KEYS, str(number), text, 0)
        for number, text in enumerate(root.texts(PUBLIC_KEYS))
    ]
    primary = root.read("mac", values.mac)
    for name, nic in root.named("macs"):
        mac = nic.made("", name, values.mac)
        if mac is None:
            continue
        draft = Draft(LinkKey(mac), nic.about(mac))
        # Every network card has a number 0.
        is_first = nic.text("device-number") == "0" and nic.text("network-card") in (None, "0")
        if mac == primary or (primary is None and is_first):
            draft.manage(PRIMARY, firm=True)
        else:
            for key, blocks in _ADDRESSES.items():
                _add_addresses(draft, key, blocks)
            _add_gateways(draft)
        drafts.append(draft)
        items += _delegated_prefixes(mac, nic)
    return finish_document(drafts, root)._replace(routes=(), items=tuple(items))


def _delegated_prefixes(mac: str, nic: Part) -> Iterator[Item]:
    for leaf in _PREFIXES:
        if _leaf_words(nic, leaf):
            yield Item("ec2", f"{mac} {leaf}", " ".join(_leaf_words(nic, leaf)), 0)


def _add_addresses(draft: Draft, key: str, blocks: Iterable[str]) -> None:
    """Add each address with the prefix length of the subnet's first CIDR block that contains it."""
    nic, errors = draft.part, draft.part.faults.unusable
    networks: dict[Network, int] = {}
    for block in blocks:
        for text in _leaf_words(nic, block):
            network = nic.made(block, text, values.network)
            if network is not None:
                networks.setdefault(network, len(networks))
    has_unusable = nic.faults.unusable != errors
    lengths = {(network.version, network.prefixlen) for network in networks}
    for text in _leaf_words(nic, key):
        host = nic.made(key, text, values.host)
        if host is None:
            continue
        length = _prefix_length(host, networks, lengths)
        if length == host.max_prefixlen and has_unusable:
            nic.fault(key, text, "its subnet is unusable, ignoring the address")
        else:
            draft.add_address(nic, key, f"{host}/{length}")


def _prefix_length(
    host: Host, networks: Mapping[Network, int], lengths: Collection[tuple[int, int]]
) -> int:
    """The prefix length of the first network that contains a host, and its full length without one.

    `networks` maps each to its position, `lengths` are the families and prefix lengths in use: one
    lookup for each length, where comparing with each network would be quadratic.
    """
    around = (
        ip_network((int(host), length), strict=False)
        for version, length in lengths
        if version == host.version
    )
    containing = (
        (networks[network], network.prefixlen) for network in around if network in networks
    )
    _, length = min(containing, default=(0, host.max_prefixlen))
    return length


def _add_gateways(draft: Draft) -> None:
    """The gateways of the document; on EC2, the first host address of the IPv4 subnet.

    (AWS, "Subnet CIDR blocks".) No document has EC2's IPv6 gateway, which is link-local and
    announces itself.
    """
    draft.has_platform_gateways = True
    for key in ("gateway", "ipv6-gateway"):
        for text in _leaf_words(draft.part, key):
            draft.add_gateway(draft.part, key, text)
    for text in _leaf_words(draft.part, "subnet-ipv4-cidr-block"):
        subnet = draft.part.made("subnet-ipv4-cidr-block", text, values.network)
        if subnet is not None and subnet.num_addresses > 1:
            draft.add_gateway(draft.part, "subnet-ipv4-cidr-block", str(subnet[1]))


def _leaf_words(nic: Part, key: str) -> list[str]:
    """The words of a leaf; Alibaba writes lists as JSON."""
    return (nic.text(key) or "").translate(_PUNCTUATION).split()
