"""What the DHCP client that the agent starts is told of each link (`backends.dhcpclients`)."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from neuca_tools.desired.dhcp_files import (
    OWN,
    client_labels,
    link_of_client,
    table_of,
)
from neuca_tools.desired.manager_files import asked_mtu
from neuca_tools.desired.resolve import Resolution
from neuca_tools.desired.roles import find_links
from neuca_tools.model import Automatic, Device, LinkKey, OwnClients, Record, World
from neuca_tools.model.device_settings import Note

SETTING = "dhcp"
# What only a network manager does: the overrides of netplan, and what they request.
_UNUSED = {
    "use-dns": "DNS servers",
    "use-ntp": "NTP servers",
    "use-hostname": "the host name",
    "use-domains": "domains",
}


def client_requests(resolution: Resolution, record: Record, world: World) -> dict[str, str]:
    """What each client is told, by the label of its link; a link that is not up yet has none.

    Without a complete document, the clients of unlisted links go on.
    """
    request_by_label = dict(_kept_requests(resolution, world.own_clients))
    devices = find_links(world, resolution.roles)
    for key in sorted(resolution.roles.dhcp.links_of([OWN])):
        device, request = devices.get(key), resolution.requests.get(key)
        if device is None or request is None or request.automatic is None:
            continue
        name = resolution.names.get(key, device.name)
        is_ours = device.index not in resolution.roles.guard.devices and device.up
        is_ours = is_ours and not name.startswith("-")  # it is no option of a program
        if is_ours and device.name == name and key in resolution.want.links:
            has_mtu = asked_mtu(key, resolution, record) is not None
            own = _Link(key, device, request.automatic, has_mtu)
            for text, protocol in client_labels(key, request.automatic).items():
                request_by_label[text] = _request_line(own, protocol, world.own_clients)
    return request_by_label


def _kept_requests(resolution: Resolution, own: OwnClients) -> Iterator[tuple[str, str]]:
    for text, request in own.requests.items():
        key = link_of_client(text)
        if not request or key is None or resolution.complete or key in resolution.requests:
            continue
        if resolution.roles.role_of(key) == "unlisted":
            yield text, request


class _Link(NamedTuple):
    """A link that is up and what it is to have. `has_mtu`: the agent sets its MTU."""

    key: LinkKey
    device: Device
    asked: Automatic
    has_mtu: bool


def _request_line(link: _Link, protocol: str, own: OwnClients) -> str:
    """One line of JSON. That of DHCPv4, which is older than the others, names no protocol."""
    overrides = dict(link.asked.dhcp6_overrides if protocol else link.asked.dhcp4_overrides)
    name = overrides.get("hostname", "")
    if protocol or overrides.get("send-hostname") == "false":
        name = "-"
    # Only one of the clients of a link sets its MTU.
    is_second = bool(protocol) and bool(link.asked.dhcp4)
    has_mtu = link.has_mtu or is_second or overrides.get("use-mtu") == "false"
    fields = {
        "link": str(link.key),
        "program": own.program,
        "helper": own.helper,
        "interface": link.device.name,
        "index": link.device.index,
        "table": table_of(link.key),
        "metric": int(overrides.get("route-metric", 0)),
        "mtu": not has_mtu,
        "routes": overrides.get("use-routes") != "false",
        "hostname": name,
    }
    return json.dumps({**fields, "protocol": protocol} if protocol else fields)


def unused_override_notes(resolution: Resolution) -> Iterator[Note]:
    """What such a client does not do although the document requests it."""
    for key in sorted(resolution.roles.dhcp.links_of([OWN])):
        request = resolution.requests.get(key)
        asked = request.automatic if request is not None else None
        if asked is None:
            continue
        unused = list(_unused_overrides(asked))
        if unused:
            text = f"without a network manager, {' and '.join(unused)} of DHCP are not used"
            yield Note(SETTING, "not applicable", text, key)


def _unused_overrides(asked: Automatic) -> Iterator[str]:
    for name, title in _UNUSED.items():
        both = (asked.dhcp4_overrides, asked.dhcp6_overrides)
        if any((name, "true") in overrides for overrides in both):
            yield title
