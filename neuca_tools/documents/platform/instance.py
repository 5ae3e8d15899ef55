"""Read a platform's metadata about the guest: OpenStack's meta_data.json, NoCloud's meta-data.

References: nova, api/metadata/base.py and "Device role tagging"; the cloud-init manual, "NoCloud".
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice, starmap
from typing import Optional

from neuca_tools.documents.neuca import values
from neuca_tools.documents.platform.parts import Part
from neuca_tools.documents.platform.tree import Tree
from neuca_tools.model import LinkKey, LinkRequest, ManagementHint, Origin, PlatformDocument
from neuca_tools.model.rows import Item

OPENSTACK, NOCLOUD = "meta_data.json", "meta-data"
_MANAGEMENT = ("mgmt", "management")
_DATAPLANE = ("dataplane", "data")
MAX_ITEMS = 1024  # values for `neuca get`
# The section of the keys for `neuca get`.
PUBLIC_KEYS = "public-keys"
SECRET = ("meta", PUBLIC_KEYS)


def kept_metadata(top: dict[str, Tree]) -> dict[str, Tree]:
    """What the agent uses; not `random_seed`, which changes with each request, nor `admin_pass`."""
    metadata: dict[str, Tree] = {
        "hostname": top.get("hostname") or top.get("local-hostname"),
        "uuid": top.get("uuid") or top.get("instance-id"),
        "meta": top.get("meta"),
        PUBLIC_KEYS: top.get("public_keys") or top.get("public-keys"),
        "devices": _tagged_nics(top.get("devices")),
    }
    return {name: value for name, value in metadata.items() if value}


def _tagged_nics(devices: Tree) -> list[Tree]:
    if not isinstance(devices, list):
        return []
    return [
        {name: device.get(name) for name in ("mac", "tags")}
        for device in devices
        if isinstance(device, dict) and device.get("type") == "nic"
    ]


def read(root: Part) -> PlatformDocument:
    """Read the host name, the NICs with a tag for their role, and the items for `neuca get`."""
    hints: list[ManagementHint] = []
    links: list[LinkRequest] = []
    for device in root.parts("devices"):
        tag = _role_tag(device)
        mac = device.read("mac", values.nic) if tag else None
        if mac is None:
            continue
        if tag in _MANAGEMENT:
            hints.append(ManagementHint(mac, f'its device tag is "{tag}"', firm=True))
        else:
            origin = Origin("state", "up", device.where)
            links.append(LinkRequest(LinkKey(mac), "up", origins=(origin,)))
    return PlatformDocument(
        hostname=_read_hostname(root),
        links=tuple(links),
        management=tuple(hints),
        items=tuple(_metadata_items(root)),
        faults=tuple(root.faults),
    )


def _read_hostname(root: Part) -> Optional[str]:
    """The host name, or as in cloud-init its first label if the whole is too long.

    It is not part of the network: without a usable one, the document is still complete.
    """
    text = root.text("hostname")
    for name in (text, text.partition(".")[0]) if text else ():
        try:
            return values.hostname(name)
        except values.UnusableError as error:
            reason = f"{error}, ignoring it"
    if text:
        root.fault("hostname", text, reason, "warning")
    return None


def _role_tag(device: Part) -> str:
    """The tag that gives the role of a NIC; one for management wins. Empty if there is none."""
    tags = {tag.lower() for tag in device.texts("tags")}
    return next((tag for tag in (*_MANAGEMENT, *_DATAPLANE) if tag in tags), "")


def _metadata_items(root: Part) -> Iterator[Item]:
    for section in SECRET:
        pairs = _named_values(root.tree.get(section))
        for name, value in islice(chain.from_iterable(starmap(_numbered_values, pairs)), MAX_ITEMS):
            yield Item(section, name.lower(), value, 0)
    uuid = root.text("uuid")
    if uuid:
        yield Item("instance", "uuid", uuid, 0)


def _numbered_values(name: str, value: Tree) -> Iterator[tuple[str, str]]:
    """A scalar with its name; those of a list with a number after it: `name`, `name.1`."""
    values_of_name = value if isinstance(value, list) else [value]
    for number, item in enumerate(values_of_name):
        if isinstance(item, (str, bool)):
            yield f"{name}.{number}" if number else name, str(item)


def _named_values(value: Tree) -> Iterator[tuple[str, Tree]]:
    """The entries of an object by name, and those of a list, or a single value, by number."""
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list):
        yield from ((str(number), item) for number, item in enumerate(value))
    else:
        yield "0", value
