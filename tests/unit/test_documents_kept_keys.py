"""No key is kept and never read: without it, each reader makes another document."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy

import pytest
from platforms import made
from test_clouds import DROPLET, VULTR, vultr_with_options

from neuca_tools.documents.neuca import link_kinds
from neuca_tools.documents.neuca.values import UnusableError
from neuca_tools.documents.platform import (
    automatic,
    clouds,
    ec2,
    netplan,
    nocloud_v1,
    openstack,
)
from neuca_tools.errors import DocumentError

ONE, TWO, THREE = "52:54:00:00:00:01", "52:54:00:00:00:02", "52:54:00:00:00:03"

EC2 = [
    {
        "mac": ONE,
        "public-keys": ["ssh-rsa A", "ssh-rsa B"],
        "macs": {
            ONE: {"device-number": "1"},
            TWO: {
                "local-ipv4s": "10.0.0.5",
                "subnet-ipv4-cidr-block": "10.0.0.0/24",
                "ipv6s": "2001:db8::5\n2001:db8:1::5",
                "subnet-ipv6-cidr-block": "2001:db8::/64",
                "subnet-ipv6-cidr-blocks": "2001:db8:1::/64",
                "ipv4-prefix": "10.0.1.0/28",
                "ipv6-prefix": "2001:db8:2::/80",
            },
            THREE: {
                "private-ipv4s": '["10.1.0.5"]',
                "vswitch-cidr-block": "10.1.0.0/24",
                "ipv6s": "2001:db8:3::5",
                "vswitch-ipv6-cidr-block": "2001:db8:3::/64",
                "gateway": "10.1.0.253",
                "ipv6-gateway": "fe80::1",
            },
        },
    },
    {
        "macs": {
            ONE: {"device-number": "0", "network-card": "0"},
            TWO: {"device-number": "0", "network-card": "1"},
        }
    },
]
AZURE = [
    {
        "network": {
            "interface": [
                {
                    "macAddress": ONE,
                    "ipv4": {
                        "ipAddress": [{"privateIpAddress": "10.0.0.5"}],
                        "subnet": [{"address": "10.0.0.0", "prefix": "24"}],
                    },
                }
            ]
        }
    }
]
OCI = [
    {
        "vnics": [
            {"macAddr": ONE, "nicIndex": 0, "vlanTag": 0},
            {
                "macAddr": TWO,
                "nicIndex": 0,
                "vlanTag": 5,
                "privateIp": "10.0.0.5",
                "subnetCidrBlock": "10.0.0.0/24",
                "virtualRouterIp": "10.0.0.1",
                "ipv6Addresses": ["2001:db8::5"],
                "ipv6SubnetCidrBlock": "2001:db8::/80",
                "ipv6VirtualRouterIp": "fe80::1",
            },
        ]
    }
]
GCE = [
    {
        "networkInterfaces": [
            {"mac": ONE},
            {
                "mac": TWO,
                "mtu": 1460,
                "ip": "10.0.0.5",
                "subnetmask": "255.255.240.0",
                "gateway": "10.0.0.1",
                "ipv6": "2001:db8::5",
                "ipv6s": ["2001:db8::6"],
                "gatewayIpv6": "fe80::1",
                "ipAliases": ["10.1.0.5"],
                "forwardedIps": ["10.2.0.5"],
                "targetInstanceIps": ["10.3.0.5"],
                "forwardedIpv6s": ["2001:db8::7"],
            },
        ],
        "vlanNetworkInterfaces": {"1": {"5": {"mac": THREE, "ip": "10.4.0.5", "vlan": 5}}},
    }
]
HETZNER = [
    [
        {
            "mac_address": ONE,
            "ip": "10.0.0.5",
            "alias_ips": ["10.0.0.6"],
            "network": "10.0.0.0/16",
            "gateway": "10.0.0.1",
        }
    ]
]
OPENSTACK = [
    {
        "links": [
            {"id": "a", "type": "phy", "ethernet_mac_address": ONE, "mtu": 9000, "name": "n1"},
            {"id": "b", "type": "phy", "ethernet_mac_address": TWO},
            {
                "id": "c",
                "type": "bond",
                "bond_links": ["a", "b"],
                "bond_mode": "active-backup",
                "bond_primary": "a",
                "bond_lacp_rate": "fast",
                "bond_miimon": "50",
                "bond_min_links": "1",
                "bond_xmit_hash_policy": "layer2+3",
                "bond_ad_select": "count",
                "bond_updelay": "100",
                "bond_downdelay": "100",
                "bond_fail_over_mac": "active",
                "bond_arp_validate": "all",
                "bond_arp_all_targets": "all",
                "bond_arp_interval": "100",
                "bond_arp_ip_target": ["10.0.0.1"],
                "bond_num_grat_arp": "2",
                "bond_primary_reselect": "better",
                "bond_resend_igmp": "2",
                "bond_packets_per_slave": "2",
                "bond_lp_interval": "2",
                "bond_all_slaves_active": "1",
                "bond_mac": ONE,
            },
            {
                "id": "v",
                "type": "vlan",
                "vlan_link": "c",
                "vlan_id": 5,
                "vlan_mac_address": THREE,
            },
        ],
        "networks": [
            {
                "link": "v",
                "type": "ipv4",
                "ip_address": "10.0.0.5",
                "netmask": "255.255.255.0",
                "gateway": "10.0.0.1",
                "dns_nameservers": ["10.0.0.2"],
                "dns_search": ["example.org"],
                "services": [{"type": "dns", "address": "10.0.0.3"}],
                "routes": [
                    {
                        "network": "10.9.0.0",
                        "netmask": "255.255.0.0",
                        "gateway": "10.0.0.1",
                        "metric": 5,
                    },
                    {"network": "10.8.0.0", "prefix": "16", "gateway": "10.0.0.1"},
                ],
            }
        ],
    }
]


def value_of(kind, option):
    """A usable value of an option of a virtual link."""
    texts = (
        "no",
        *reversed(link_kinds.OPTIONS[kind][option].words),
        "5",
        "7",
        "10.0.0.1",
        THREE,
        "4789",
    )
    for text in texts:
        try:
            link_kinds.OPTIONS[kind][option].read(text)
        except UnusableError:
            continue
        return text
    raise AssertionError(option)


def with_options(kind, names, member="member"):
    """A link for each option, by name, as two names of one option would hide each other."""
    return {
        f"{kind}{number}": {
            "interfaces": [f"{member}{kind}{number}"],
            "parameters": {theirs: value_of(kind, ours)},
        }
        for number, (theirs, ours) in enumerate(names.items())
    }


OVERRIDES = {
    name: "false" if name.startswith(("use", "send")) else "7" for name in automatic._OVERRIDES
}
VERSION_2 = {
    "version": 2,
    "ethernets": {
        "a": {
            "match": {"macaddress": ONE, "driver": "virtio"},
            "set-name": "n1",
            "renderer": "networkd",
            "macaddress": THREE,
            "mtu": 9000,
            "ipv6-mtu": 1400,
            "addresses": ["10.0.0.5/24"],
            "gateway4": "10.0.0.1",
            "gateway6": "fe80::1",
            "dhcp4": True,
            "dhcp6": True,
            "accept-ra": True,
            "link-local": ["ipv4"],
            "optional": True,
            "critical": True,
            "wakeonlan": True,
            "infiniband-mode": "datagram",
            "dhcp4-overrides": OVERRIDES,
            "dhcp6-overrides": OVERRIDES,
            "nameservers": {"addresses": ["10.0.0.2"], "search": ["example.org"]},
            "routes": [
                {"to": "10.9.0.0/16", "via": "10.0.0.1", "metric": 5, "mtu": 1400, "table": 100},
                {"to": "10.8.0.0/16", "scope": "link", "from": "10.0.0.5", "advertised-mss": 1300},
                {"to": "10.7.0.0/16", "via": "10.6.0.1", "on-link": True},
                {"to": "10.6.0.0/16", "type": "blackhole"},
            ],
            "routing-policy": [
                {
                    "from": "10.0.0.5",
                    "to": "10.9.0.0/16",
                    "table": 100,
                    "priority": 7,
                    "mark": 5,
                    "type-of-service": 8,
                }
            ],
            **dict.fromkeys(netplan._OFFLOADS, True),
        },
        "b": {"match": {"name": "eth*"}, "activation-mode": "off"},
        "c": dict.fromkeys(("emit-lldp", "ignore-carrier", "ipv6-privacy"), True),
    },
    "bonds": {
        "bond": {"interfaces": ["x", "y"], "parameters": {"primary": "x"}},
        **with_options("bond", netplan._OPTIONS["bond"]),
    },
    "bridges": {
        "bridge": {
            "interfaces": ["b"],
            "parameters": {"path-cost": {"b": 5}, "port-priority": {"b": 5}},
        },
        "patched": {"interfaces": ["z"]},
        **with_options("bridge", netplan._OPTIONS["bridge"]),
    },
    "tunnels": {
        "vx0": {
            "mode": "vxlan",
            "link": "a",
            **{key: value_of("vxlan", ours) for key, ours in netplan._OPTIONS["vxlan"].items()},
        }
    },
    "vlans": {"v": {"id": 5, "link": "a"}},
    "vrfs": {"red": {"table": 100, "interfaces": ["c"]}},
    "openvswitch": {"ports": [["z", "zz"]]},
}
VERSION_1 = {
    "version": 1,
    "config": [
        {
            "type": "physical",
            "name": "n1",
            "mac_address": ONE,
            "mtu": 9000,
            "accept-ra": True,
            "wakeonlan": True,
            "keep_configuration": True,
            "subnets": [
                {"type": "dhcp6"},
                {
                    "type": "static",
                    "address": "10.0.0.5",
                    "netmask": "255.255.0.0",
                    "gateway": "10.0.0.1",
                    "dns_nameservers": ["10.0.0.2"],
                    "dns_search": ["example.org"],
                    "routes": [
                        {
                            "network": "10.9.0.0",
                            "prefix": 16,
                            "gateway": "10.0.0.1",
                            "metric": 5,
                        },
                        {"destination": "10.8.0.0/16", "gateway": "10.0.0.1"},
                    ],
                },
                {"type": "dhcp4", "control": "manual"},
            ],
        },
        {
            "type": "bond",
            "name": "bond0",
            "bond_interfaces": ["x", "y"],
            "params": {"bond-primary": "x"},
        },
        *(
            {
                "type": "bond",
                "name": f"b{number}",
                "bond_interfaces": [f"x{number}"],
                "params": {theirs: value_of("bond", ours)},
            }
            for number, (theirs, ours) in enumerate(nocloud_v1._BOND.items())
        ),
        {
            "type": "bond",
            "name": "bond1",
            "bond_interfaces": ["z"],
            "params": {"bond_primary": "z"},
        },
        {
            "type": "bridge",
            "name": "br0",
            "bridge_interfaces": ["n1"],
            "params": {
                **{key: value_of("bridge", ours) for key, ours in nocloud_v1._BRIDGE.items()},
                "bridge_pathcost": ["n1 5"],
                "bridge_portprio": ["n1 5"],
            },
        },
        {"type": "vlan", "name": "v", "vlan_link": "n1", "vlan_id": 5},
        {"type": "nameserver", "interface": "n1", "address": ["10.0.0.3"]},
    ],
}
KEYS = {row.name: row.keys for row in clouds.FORMATS}
READERS = {
    ec2.NAME: (ec2.KEYS, EC2, set()),
    clouds.AZURE: (KEYS[clouds.AZURE], AZURE, set()),
    clouds.OCI: (KEYS[clouds.OCI], OCI, set()),
    # `vlan` repeats the key of the VLAN's object.
    clouds.GCE: (KEYS[clouds.GCE], GCE, {"vlan"}),
    # `networks` is our name of the whole list, in which a null item is kept.
    clouds.HETZNER: (KEYS[clouds.HETZNER], HETZNER, {"networks"}),
    clouds.DIGITALOCEAN: (KEYS[clouds.DIGITALOCEAN], [DROPLET], set()),
    clouds.VULTR: (KEYS[clouds.VULTR], [VULTR, vultr_with_options()], set()),
    # The names of DNS servers and domains in netplan's format.
    openstack.NAME: (openstack.KEYS, OPENSTACK, {"addresses", "search"}),
    # The manual names both: another renderer makes the same link, and a MAC address is enough.
    netplan.NAME: (netplan.KEYS, [VERSION_2, VERSION_1], {"renderer", "driver"}),
}


def occurrences(tree, path=()) -> Iterator[tuple]:
    """The path of every key of every object."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in items if isinstance(tree, (dict, list)) else ():
        if isinstance(tree, dict):
            yield (*path, key)
        if isinstance(value, (dict, list)):
            yield from occurrences(value, (*path, key))


def without(tree, path):
    whole = deepcopy(tree)
    part = whole
    for step in path[:-1]:
        part = part[step]
    del part[path[-1]]
    return whole


def read(name, tree):
    """What the document asks; None if nothing of it is kept."""
    try:
        return made(name, json.dumps(tree))
    except DocumentError:
        return None


def test_every_cloud_has_a_sample():
    assert KEYS.keys() <= READERS.keys()


@pytest.mark.parametrize("name", READERS)
def test_every_key_that_is_kept_reaches_the_document(name):
    keys, samples, repeated = READERS[name]
    effective = set()
    for sample in samples:
        whole = read(name, sample)
        for path in occurrences(sample):
            if read(name, without(sample, path)) != whole:
                effective.add(path[-1])
    assert keys - effective == repeated
