"""EC2's `network/interfaces/macs/` tree and public keys, as `sources.ec2` gathers them.

It is `{"mac": primary, "macs": {MAC: {leaf: text}}, "public-keys": [text, …]}`, any of which may be missing.

Reference: AWS, "Instance metadata categories" (EC2 user guide). No MTU, gateway or DNS is in it. The `device-number` may
read 0 for a while after a NIC was attached, so the primary NIC is known by `mac` alone wherever that is there.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_network

from neuca_tools.documents.neuca import values
from neuca_tools.documents.platform.drafts import Draft, finish
from neuca_tools.documents.platform.instance import PUBLIC_KEYS
from neuca_tools.documents.platform.parts import Part
from neuca_tools.model import LinkKey, Network, PlatformDocument
from neuca_tools.model.rows import Item

NAME = "EC2 network"
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
)
KEYS = frozenset(("mac", PUBLIC_KEYS, *LEAVES))
_PREFIXES = ("ipv4-prefix", "ipv6-prefix")


def read(root: Part) -> PlatformDocument:
    """The instance's primary NIC is its management NIC; the others get all their addresses. The rest are items."""
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
        if mac == primary or (primary is None and _is_first(nic)):
            draft.manage("it is the primary NIC of the instance")
        else:
            _addresses(draft, "local-ipv4s", ("subnet-ipv4-cidr-block",))
            _addresses(draft, "ipv6s", ("subnet-ipv6-cidr-blocks", "subnet-ipv6-cidr-block"))
        drafts.append(draft)
        items += [
            Item("ec2", f"{mac} {leaf}", " ".join(_lines(nic, leaf)), 0)
            for leaf in _PREFIXES
            if _lines(nic, leaf)
        ]
    document = finish(drafts, root)
    return PlatformDocument(
        None, document.links, (), document.management, tuple(items), document.faults
    )


def _is_first(nic: Part) -> bool:
    """Each card of an instance with several has a number 0."""
    return nic.text("device-number") == "0" and nic.text("network-card") in (None, "0")


def _addresses(draft: Draft, key: str, blocks: Iterable[str]) -> None:
    """Each address with the prefix length of the subnet's block that holds it."""
    nic = draft.part
    networks: dict[Network, int] = {}  # with their places: of several, the first one counts
    for block in blocks:
        for text in _lines(nic, block):
            network = nic.made(block, text, values.network)
            if network is not None:
                networks.setdefault(network, len(networks))
    lengths = {(network.version, network.prefixlen) for network in networks}
    for text in _lines(nic, key):
        host = nic.made(key, text, values.host)
        if host is not None:
            around = (
                ip_network((int(host), length), strict=False)
                for version, length in lengths
                if version == host.version
            )
            holding = sorted((networks[one], one.prefixlen) for one in around if one in networks)
            length = holding[0][1] if holding else host.max_prefixlen
            draft.add_address(nic, key, f"{host}/{length}")


def _lines(nic: Part, key: str) -> list[str]:
    return (nic.text(key) or "").split()
