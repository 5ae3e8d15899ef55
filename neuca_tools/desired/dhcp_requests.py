"""What the DHCP client that the agent starts is told of each link (`backends.dhcpclients`)."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
from collections.abc import Iterator

from neuca_tools.desired.dhcp_files import OWN, client_labels, link_of_label, table_of
from neuca_tools.desired.manager_files import asked_mtu
from neuca_tools.desired.resolve import Resolution
from neuca_tools.desired.roles import find_links
from neuca_tools.model import Automatic, OwnClients, Record, World
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
            fields = {
                "link": str(key),
                "program": world.own_clients.program,
                "helper": world.own_clients.helper,
                "interface": device.name,
                "index": device.index,
                "table": table_of(key),
            }
            for text, protocol in client_labels(key, request.automatic).items():
                asked = _request_fields(request.automatic, protocol, has_mtu)
                request_by_label[text] = json.dumps({**fields, **asked})
    return request_by_label


def _kept_requests(resolution: Resolution, own: OwnClients) -> Iterator[tuple[str, str]]:
    for text, request in own.requests.items():
        key = link_of_label(text)
        if not request or key is None or resolution.complete or key in resolution.requests:
            continue
        if resolution.roles.role_of(key) == "unlisted":
            yield text, request


def _request_fields(asked: Automatic, protocol: str, has_mtu: bool) -> dict[str, object]:
    """What is requested. `has_mtu`: the agent sets the MTU of the link.

    That of DHCPv4, which is older than the others, names no protocol.
    """
    overrides = dict(asked.dhcp6_overrides if protocol else asked.dhcp4_overrides)
    name = overrides.get("hostname", "")
    if protocol or overrides.get("send-hostname") == "false":
        name = "-"
    # Only one of the clients of a link sets its MTU.
    is_second = bool(protocol) and bool(asked.dhcp4)
    has_mtu = has_mtu or is_second or overrides.get("use-mtu") == "false"
    fields = {
        "metric": int(overrides.get("route-metric", 0)),
        "mtu": not has_mtu,
        "routes": overrides.get("use-routes") != "false",
        "hostname": name,
    }
    return {**fields, "protocol": protocol} if protocol else fields


def unused_override_notes(resolution: Resolution) -> Iterator[Note]:
    """What such a client does not do although the document requests it."""
    for key in sorted(resolution.roles.dhcp.links_of([OWN])):
        request = resolution.requests.get(key)
        asked = request.automatic if request is not None else None
        if asked is None:
            continue
        both = {*asked.dhcp4_overrides, *asked.dhcp6_overrides}
        unused = [title for name, title in _UNUSED.items() if (name, "true") in both]
        if unused:
            text = f"without a network manager, {' and '.join(unused)} of DHCP are not used"
            yield Note(SETTING, "not applicable", text, key)
