"""What a platform says of the guest itself: OpenStack's meta_data.json and NoCloud's meta-data.

Reference: nova, api/metadata/base.py and "Device role tagging"; cloud-init's manual, "NoCloud".
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator

from neuca_tools.documents.neuca import values
from neuca_tools.documents.platform.parts import Part
from neuca_tools.documents.platform.tree import Tree
from neuca_tools.model import LinkKey, LinkRequest, ManagementHint, Origin, PlatformDocument
from neuca_tools.model.rows import Item

OPENSTACK, NOCLOUD = "meta_data.json", "meta-data"
_MANAGEMENT = ("mgmt", "management")
_DATAPLANE = ("dataplane", "data")
MAX_ITEMS = 1024
PUBLIC_KEYS = "public-keys"  # their section, for `neuca get`
_SECRET = ("meta", PUBLIC_KEYS)


def kept(tree: Tree) -> dict[str, Tree]:
    """What is of use later; not `random_seed`, which is another one at each look, nor an `admin_pass`."""
    top = tree if isinstance(tree, dict) else {}
    devices = top.get("devices")
    nics: list[Tree] = (
        [
            {name: device.get(name) for name in ("mac", "tags")}
            for device in devices
            if isinstance(device, dict) and device.get("type") == "nic"
        ]
        if isinstance(devices, list)
        else []
    )
    found = {
        "hostname": top.get("hostname") or top.get("local-hostname"),
        "uuid": top.get("uuid") or top.get("instance-id"),
        "meta": top.get("meta"),
        PUBLIC_KEYS: top.get("public_keys") or top.get("public-keys"),
        "devices": nics,
    }
    return {name: value for name, value in found.items() if value}


def open_part(tree: dict[str, Tree]) -> dict[str, Tree]:
    """What of this everybody may read."""
    return {name: value for name, value in tree.items() if name not in _SECRET}


def read(root: Part) -> PlatformDocument:
    """The host name, the NICs that a tag names, and all that `neuca get` may ask for."""
    hints: list[ManagementHint] = []
    links: list[LinkRequest] = []
    for device in root.parts("devices"):
        tags = {tag.lower() for tag in device.texts("tags")}
        mac = device.read("mac", values.mac) if tags & {*_MANAGEMENT, *_DATAPLANE} else None
        tag = next((tag for tag in (*_MANAGEMENT, *_DATAPLANE) if tag in tags), "")
        if mac is not None and tag in _MANAGEMENT:
            hints.append(ManagementHint(mac, f'its device tag is "{tag}"', firm=True))
        elif mac is not None:
            links.append(
                LinkRequest(LinkKey(mac), "up", origins=(Origin("state", "up", device.where),))
            )
    hostname = root.text("hostname")
    return PlatformDocument(
        hostname and root.made("hostname", hostname, values.hostname),
        tuple(links),
        (),
        tuple(hints),
        tuple(_items(root)),
        tuple(root.faults),
    )


def _items(root: Part) -> Iterator[Item]:
    for section in _SECRET:
        value = root.tree.get(section)
        listed = value if isinstance(value, list) else [value]
        pairs = list(value.items()) if isinstance(value, dict) else list(enumerate(listed))
        for name, one in pairs[:MAX_ITEMS]:
            if isinstance(one, (str, bool)):
                yield Item(section, str(name).lower(), str(one), 0)
    if root.text("uuid"):
        yield Item("instance", "uuid", root.text("uuid") or "", 0)
