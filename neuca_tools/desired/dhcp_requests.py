"""What the DHCP client that the agent starts is told of each link (`backends.dhcpclients`)."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from neuca_tools.desired.dhcp_files import (
    OWN,
    is_false,
    is_true,
    label,
    labelled,
    plain_host_name,
    plain_metric,
    table,
)
from neuca_tools.desired.manager_files import asked_mtu
from neuca_tools.desired.resolve import Resolution
from neuca_tools.desired.roles import find_links
from neuca_tools.model import Automatic, Device, LinkKey, OwnClients, Record, World
from neuca_tools.model.effects import Note

SETTING = "dhcp"
# What only a network manager does: the overrides of netplan, and what they ask for.
_UNUSED = {
    "use-dns": "DNS servers",
    "use-ntp": "NTP servers",
    "use-hostname": "the host name",
    "use-domains": "domains",
}


def requests(resolution: Resolution, record: Record, world: World) -> dict[str, str]:
    """What each client is told, by the label of its link; a link that is not up yet has none.

    Without a complete document, the clients of unlisted links go on.
    """
    found = dict(_kept(resolution, world.own_clients))
    devices = find_links(world, resolution.roles)
    for key in sorted(resolution.roles.handed([OWN])):
        device, request = devices.get(key), resolution.requests.get(key)
        if device is None or request is None or request.automatic is None:
            continue
        name = resolution.names.get(key, device.name)
        is_ours = device.index not in resolution.roles.protected and device.up
        is_ours = is_ours and not name.startswith("-")  # it is no option of a program
        if is_ours and device.name == name and key in resolution.want.links:
            has_mtu = asked_mtu(key, resolution, record) is not None
            found[label(key)] = _request(key, device, request.automatic, has_mtu, world.own_clients)
    return found


def _kept(resolution: Resolution, own: OwnClients) -> Iterator[tuple[str, str]]:
    for text, request in own.requests.items():
        key = labelled(text)
        if not request or key is None or resolution.complete or key in resolution.requests:
            continue
        if resolution.roles.role_of(key) == "unlisted":
            yield text, request


def _request(key: LinkKey, device: Device, asked: Automatic, has_mtu: bool, own: OwnClients) -> str:
    """One line of JSON. `has_mtu`: the agent sets the MTU of the link."""
    overrides = dict(asked.dhcp4_overrides)
    name = plain_host_name(overrides)
    if "send-hostname" in overrides and not is_true(overrides["send-hostname"]):
        name = "-"
    return json.dumps(
        {
            "link": str(key),
            "program": own.program,
            "helper": own.helper,
            "interface": device.name,
            "index": device.index,
            "table": table(key),
            "metric": int(plain_metric(overrides) or 0),
            "mtu": not has_mtu and not is_false(overrides.get("use-mtu")),
            "routes": not is_false(overrides.get("use-routes")),
            "hostname": name,
        }
    )


def notes(resolution: Resolution) -> Iterator[Note]:
    """What such a client does not do although the document asks for it."""
    for key in sorted(resolution.roles.handed([OWN])):
        request = resolution.requests.get(key)
        asked = request.automatic if request is not None else None
        if asked is None:
            continue
        unused = list(_unused(asked))
        if unused:
            text = f"without a network manager, {' and '.join(unused)} of DHCP are not used"
            yield Note(SETTING, "not applicable", text, key)


def _unused(asked: Automatic) -> Iterator[str]:
    overrides: Mapping[str, str] = dict(asked.dhcp4_overrides)
    if asked.dhcp6:
        yield "IPv6 addresses"
    for name, title in _UNUSED.items():
        if is_true(overrides.get(name)):
            yield title
