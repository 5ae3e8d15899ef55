"""What the DHCP client that the agent starts is told of each link (`backends.dhcpclients`)."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from neuca_tools.desired.dhcp import SETTING, devices_with_client
from neuca_tools.desired.dhcp_files import OWN, client_labels, link_of_label, table_of
from neuca_tools.desired.manager_files import asked_mtu
from neuca_tools.desired.resolve import Resolution
from neuca_tools.desired.safety import guarded_networks
from neuca_tools.model import Automatic, Host, OwnClients, Record, World
from neuca_tools.model.device_settings import Note

# What only a network manager does: the overrides of netplan, and what they request.
_UNUSED = {
    "use-dns": "DNS servers",
    "use-ntp": "NTP servers",
    "use-hostname": "the host name",
    "use-domains": "domains",
}


def client_requests(
    resolution: Resolution, record: Record, world: World, metadata_hosts: Iterable[Host]
) -> dict[str, str]:
    """What each client is told, by the label of its link; a link that is not up yet has none.

    Without a complete document, the clients of unlisted and undecided links go on.
    """
    request_by_label = dict(_kept_requests(resolution, world.own_clients))
    guarded = guarded_networks(
        world, resolution.roles, metadata_hosts, resolution.management_networks
    )
    for key, device in devices_with_client(resolution.roles, world).items():
        is_wanted = resolution.roles.dhcp.clients[key] == OWN and key in resolution.desired.links
        is_ready = device.up and device.name == resolution.names.get(key, device.name)
        # The name must be no option of a program.
        if is_wanted and is_ready and not device.name.startswith("-"):
            asked = resolution.requests[key].leases
            has_mtu = asked_mtu(key, resolution, record) is not None
            fields = {
                "link": str(key),
                "program": world.own_clients.program,
                "helper": world.own_clients.helper,
                "interface": device.name,
                "index": device.index,
                "table": table_of(key),
                "guarded": guarded,
            }
            for text, protocol in client_labels(key, asked).items():
                own = _request_fields(asked, protocol, has_mtu)
                if world.has_ipv6 or not protocol:
                    request_by_label[text] = json.dumps({**fields, **own})
    return request_by_label


def _kept_requests(resolution: Resolution, own: OwnClients) -> Iterator[tuple[str, str]]:
    for text, request in own.requests.items():
        key = link_of_label(text)
        if not request or key is None or resolution.is_complete:
            continue
        is_unlisted = resolution.roles.role_of(key) == "unlisted" and key not in resolution.requests
        is_kept = resolution.is_undecided(key) and resolution.roles.dhcp.clients.get(key) == OWN
        if is_unlisted or is_kept:
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
        asked = resolution.requests[key].leases
        both = {*asked.dhcp4_overrides, *asked.dhcp6_overrides}
        unused = [title for name, title in _UNUSED.items() if (name, "true") in both]
        if unused:
            text = f"without a network manager, {' and '.join(unused)} of DHCP are not used"
            yield Note(SETTING, "not applicable", text, key)
