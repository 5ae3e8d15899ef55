"""Documents of the largest size that is read (50000 items or 4096 links), each long of another construct."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json


def _mac(number):
    digits = f"{number:08x}"
    return "02:00:" + ":".join(digits[at : at + 2] for at in range(0, 8, 2))


def _address(number):
    return f"10.{number >> 8 & 255}.{number & 255}.1/24"


def _route(number):
    return f"172.{number >> 8 & 255}.{number & 255}.0/24"


def _netplan(**kinds):
    return "network-config", {"version": 2, **kinds}


def _version_1(*links):
    return "network-config", {"version": 1, "config": list(links)}


def _openstack(links, networks=()):
    return "network_data.json", {"links": list(links), "networks": list(networks)}


def _physical(number):
    subnets = [{"type": "static", "address": _address(number)}]
    return {"type": "physical", "name": f"n{number}", "subnets": subnets}


def _netplan_bond(number):
    parameters = {"mode": "active-backup", "primary": f"p{number}"}
    return {"interfaces": [f"p{number}", f"q{number}"], "parameters": parameters}


_PORTS = [f"p{number}" for number in range(4000)]
DOCUMENTS = {
    "NICs of netplan": lambda: _netplan(
        ethernets={
            f"n{number}": {
                "match": {"macaddress": _mac(number)},
                "set-name": f"dp{number}",
                "macaddress": _mac(number + 65536),
                "addresses": [_address(number)],
            }
            for number in range(2900)
        }
    ),
    "routes of netplan": lambda: _netplan(
        ethernets={
            "n": {
                "addresses": ["10.0.0.1/24"],
                "routes": [{"to": _route(number), "via": "10.0.0.9"} for number in range(9000)],
            }
        }
    ),
    "ports of netplan": lambda: _netplan(
        bridges={
            "b": {
                "interfaces": _PORTS,
                "parameters": {
                    "path-cost": dict.fromkeys(_PORTS, 5),
                    "port-priority": dict.fromkeys(_PORTS, 5),
                },
            }
        }
    ),
    "bonds of netplan": lambda: _netplan(
        bonds={f"b{number}": _netplan_bond(number) for number in range(3000)}
    ),
    "VLANs of netplan": lambda: _netplan(
        ethernets={"n": {}},
        vlans={
            f"v{number}": {"id": number, "link": "n", "addresses": [_address(number)]}
            for number in range(1, 4095)
        },
    ),
    "unknown keys": lambda: _netplan(
        ethernets={f"n{number}": {f"k{key}": 1 for key in range(10)} for number in range(2000)}
    ),
    "NICs of version 1": lambda: _version_1(*map(_physical, range(3500))),
    "VLANs of version 1": lambda: _version_1(
        _physical(0),
        *(
            {"type": "vlan", "name": f"v{number}", "vlan_link": "n0", "vlan_id": number}
            for number in range(1, 4000)
        ),
    ),
    "routes of version 1 without a link": lambda: _version_1(
        *map(_physical, range(1000)),
        *(
            {"type": "route", "destination": _route(number), "gateway": "10.3.231.9"}
            for number in range(2500)
        ),
    ),
    "bonds of version 1": lambda: _version_1(
        *(
            {
                "type": "bond",
                "name": f"b{number}",
                "bond_interfaces": [f"p{number}", f"q{number}"],
                "params": {"bond-mode": 1, "bond-primary": f"p{number}"},
            }
            for number in range(3000)
        )
    ),
    "NICs of OpenStack": lambda: _openstack(
        (
            {"id": f"t{number}", "type": "phy", "ethernet_mac_address": _mac(number), "mtu": 1450}
            for number in range(3500)
        ),
        (
            {"link": f"t{number}", "type": "ipv4", "ip_address": _address(number)}
            for number in range(3500)
        ),
    ),
    "bonds of OpenStack": lambda: _openstack(
        entry
        for number in range(2000)
        for entry in (
            {
                "id": f"t{number}",
                "type": "phy",
                "ethernet_mac_address": _mac(number),
                "name": f"e{number}",
            },
            {
                "id": f"b{number}",
                "type": "bond",
                "bond_links": [f"t{number}"],
                "bond_primary": f"e{number}",
            },
        )
    ),
}


def document(name):
    """Kind and text of one of them."""
    kind, tree = DOCUMENTS[name]()
    return kind, json.dumps(tree)
