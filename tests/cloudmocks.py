"""Metadata services of clouds that refuse what the real ones refuse, and their documents for some NICs.

They have no sockets: each tier serves them its own way. A NIC is (MAC, number): number 0 is the one
for management, number N has the address 10.1.N.4 and the gateway 10.1.N.1.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import time
from collections import deque

FORWARDED = ("X-Forwarded-For", "Forwarded", "X-Forwarded-Host")
LONGEST_TOKEN = 21600  # seconds (EC2 and Alibaba)


class Strict:
    """A service with these paths that refuses a request without its header, or one that a proxy sent on.

    `headers` are those of its answers, `status` is what it answers while it is busy, and `rate` is
    the number of requests that it serves in one second.
    """

    def __init__(self, paths, needs=(), refusal=400, headers=(), status=None, rate=None):
        self.paths, self.needs, self.refusal = paths, dict(needs), refusal
        self.headers, self.status = headers, status
        self.times = None if rate is None else deque(maxlen=rate)

    def reply(self, method, path, headers):
        """The status, the body and more lines for the head of the answer."""
        if any(name in headers for name in FORWARDED) or not self.accepts(headers):
            return self.refusal, b"", ()
        if self.status or self.is_too_many():
            return self.status or 429, b"", ()
        if method != "GET":
            return 405, b"", ()
        found = self.paths.get(path)
        if found is None:
            return 404, b"", ()
        return 200, encoded(found), self.headers

    def accepts(self, headers):
        return all(headers.get(name) == value for name, value in self.needs.items())

    def is_too_many(self):
        if self.times is None:
            return False
        now = time.monotonic()
        full = len(self.times) == self.times.maxlen and now - self.times[0] < 1
        self.times.append(now)
        return full


class Tokens(Strict):
    """A service that wants a token of its own in the header with this name."""

    def __init__(self, paths, name, refusal):
        super().__init__(paths, {name: "a-token"}, refusal)
        self.lifetime = f"{name}-ttl-seconds"

    def reply(self, method, path, headers):
        if (method, path) != ("PUT", "/latest/api/token"):
            return super().reply(method, path, headers)
        if any(name in headers for name in FORWARDED):
            return 403, b"", ()
        seconds = headers.get(self.lifetime) or ""
        if not seconds.isdecimal() or not 1 <= int(seconds) <= LONGEST_TOKEN:
            return 400, b"", ()
        return 200, b"a-token", ()


def encoded(found):
    if isinstance(found, bytes):
        return found
    return (found if isinstance(found, str) else json.dumps(found)).encode()


def azure(nics):
    def interface(mac, number):
        return {
            "macAddress": mac.replace(":", "").upper(),
            "ipv4": {
                "ipAddress": [{"privateIpAddress": f"10.1.{number}.4", "publicIpAddress": ""}],
                "subnet": [{"address": f"10.1.{number}.0", "prefix": "24"}],
            },
            "ipv6": {"ipAddress": []},
        }

    instance = {
        "compute": {"vmId": "5c08b38e-4d57-4c23-ac45-aca61037f084"},
        "network": {"interface": [interface(*one) for one in nics]},
    }
    path = "/metadata/instance?api-version=2021-08-01"
    return Strict({path: instance}, {"Metadata": "true"}, rate=5)


def oracle(nics):
    def vnic(mac, number):
        return {
            "privateIp": f"10.1.{number}.4",
            "vlanTag": number,
            "macAddr": mac.upper(),
            "virtualRouterIp": f"10.1.{number}.1",
            "subnetCidrBlock": f"10.1.{number}.0/24",
        }

    paths = {
        "/opc/v2/instance/": {"id": "ocid1.instance.oc1.phx.abc"},
        "/opc/v2/vnics/": [vnic(*one) for one in nics],
    }
    return Strict(paths, {"Authorization": "Bearer Oracle"}, 404)


def gce(nics):
    def interface(mac, number):
        return {
            "mac": mac,
            "ip": f"10.1.{number}.4",
            "subnetmask": "255.255.255.0",
            "gateway": f"10.1.{number}.1",
            "mtu": 1460,
        }

    tree = {"id": 8812345678901234567, "networkInterfaces": [interface(*one) for one in nics]}
    flavor = {"Metadata-Flavor": "Google"}
    return Strict(
        {"/computeMetadata/v1/instance/?recursive=true&alt=json": tree},
        flavor,
        403,
        ("Metadata-Flavor: Google",),
    )


def hetzner(nics):
    """The NIC with number 0 is the public one, which is not in the list."""
    lines = [
        f'- {{ip: 10.1.{number}.4, alias_ips: [10.1.{number}.5], mac_address: "{mac}",'
        f" network: 10.1.{number}.0/24, gateway: 10.1.{number}.1}}\n"
        for mac, number in nics
        if number
    ]
    paths = {"instance-id": b"4711", "private-networks": "".join(lines).encode()}
    return Strict({f"/hetzner/v1/metadata/{name}": body for name, body in paths.items()})


def vultr(nics):
    """The NIC with number 0 is the public one; private networks have no gateway."""
    interfaces = [
        {
            "mac": mac,
            "network-type": "private" if number else "public",
            "ipv4": {
                "address": f"10.1.{number}.4",
                "netmask": "255.255.255.0",
                "gateway": "" if number else "10.1.0.1",
                "additional": [],
            },
            "ipv6": {"address": "", "network": "", "prefix": "", "additional": []},
        }
        for mac, number in nics
    ]
    tree = {"instance-v2-id": "d2a7f0de-0f5b-4a3b-8f9d-1b0a1c2d3e4f", "interfaces": interfaces}
    return Strict({"/v1.json": tree}, {"Metadata-Token": "cloudinit"})


def digitalocean(nics):
    """The NIC with number 0 is the public one."""
    interfaces = {"public": [], "private": []}
    for mac, number in nics:
        kind = "private" if number else "public"
        address = {"ip_address": f"10.1.{number}.4", "netmask": "255.255.255.0"}
        ipv4 = {**address, "gateway": f"10.1.{number}.1"}
        interfaces[kind].append({"mac": mac, "type": kind, "ipv4": ipv4})
    return Strict({"/metadata/v1.json": {"droplet_id": 2756294, "interfaces": interfaces}})


def _tree(nics, leaves, instance_id):
    """The tree that EC2 and Alibaba have, each with leaves of its own."""
    macs = "network/interfaces/macs/"
    found = {"instance-id": instance_id, "mac": nics[0][0]}
    found[macs] = "".join(f"{mac}/\n" for mac, _ in nics)
    for mac, number in nics:
        named = {name: text.format(n=number) for name, text in leaves.items()}
        found[f"{macs}{mac}/"] = "\n".join(named)
        found.update({f"{macs}{mac}/{name}": text for name, text in named.items()})
    return {f"/latest/meta-data/{path}": text for path, text in found.items()}


def ec2(nics):
    leaves = {
        "device-number": "{n}",
        "local-ipv4s": "10.1.{n}.4",
        "subnet-ipv4-cidr-block": "10.1.{n}.0/24",
    }
    return Tokens(_tree(nics, leaves, "i-0abcdef0123456789"), "X-aws-ec2-metadata-token", 401)


def alibaba(nics):
    leaves = {
        "private-ipv4s": '["10.1.{n}.4"]',
        "vswitch-cidr-block": "10.1.{n}.0/24",
        "gateway": "10.1.{n}.1",
    }
    return Tokens(_tree(nics, leaves, "i-bp13k0ajbmxxx"), "X-aliyun-ecs-metadata-token", 403)


def openstack(nics, leased=()):
    """Three networks as Neutron has them by default: each with a gateway. `leased`: numbers of those with DHCP."""

    def network(number):
        about = {"id": f"network{number}", "link": f"tap{number}", "network_id": f"{number}"}
        if number in leased:
            return {**about, "type": "ipv4_dhcp"}
        address, gateway = f"10.1.{number}.4", f"10.1.{number}.1"
        default = {"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": gateway}
        return {
            **about,
            "type": "ipv4",
            "ip_address": address,
            "netmask": "255.255.255.0",
            "routes": [default],
        }

    data = {
        "links": [
            {"id": f"tap{number}", "type": "ovs", "mtu": 1500, "ethernet_mac_address": mac}
            for mac, number in nics
        ],
        "networks": [network(number) for _, number in nics],
        "services": [],
    }
    about = {"uuid": "83679162-1378-4288-a2d4-70e13ec132aa", "hostname": "node0"}
    return Strict(
        {
            "/openstack/latest/meta_data.json": about,
            "/openstack/latest/network_data.json": data,
            "/latest/meta-data/instance-id": "i-0000001",
        }
    )


def netplan(nics):
    """Version 2 of network-config, with the rules that a user writes where no platform knows a gateway."""
    ethernets = {
        f"nic{number}": {
            "match": {"macaddress": mac},
            "addresses": [f"10.1.{number}.4/24"],
            "routes": [{"to": "0.0.0.0/0", "via": f"10.1.{number}.1", "table": 100 + number}],
            "routing-policy": [
                {"from": f"10.1.{number}.4", "table": 100 + number, "priority": 30000 + number}
            ],
        }
        for mac, number in nics
        if number
    }
    return {"version": 2, "ethernets": ethernets}
