"""Documents by seed, in the classes that the JSON schemas of cloud-init and the manual of netplan allow."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
from random import Random

UNKNOWN = "xq-unknown"


class Generator:
    """Writes documents; the same seed gives the same ones.

    With `unknown`, every link has a key that nobody knows, and none has DHCP.
    """

    def __init__(self, seed, unknown=False):
        self.random = Random(seed)
        self.unknown = unknown
        self.dhcp = 0 if unknown else 0.2
        self.count = 0

    def maybe(self, chance, **keys):
        """These keys, or none of them."""
        return keys if self.random.random() < chance else {}

    def number(self):
        self.count += 1
        return self.count

    def mac(self):
        text = f"52:54:00:00:{self.random.randrange(256):02x}:{self.number() % 256:02x}"
        return text.upper() if self.random.random() < 0.2 else text

    def host(self, version=4):
        if version == 6:
            return f"fd00:{self.number():x}::{self.random.randrange(1, 255):x}"
        return (
            f"10.{self.random.randrange(256)}.{self.number() % 256}.{self.random.randrange(1, 255)}"
        )

    def address(self):
        if self.random.random() < 0.7:
            return f"{self.host()}/{self.random.choice((8, 16, 24, 30, 32))}"
        return f"{self.host(6)}/{self.random.choice((48, 64, 128))}"

    def destination(self, version=4):
        length = self.random.choice((8, 16, 24, 32) if version == 4 else (32, 64, 128))
        return f"{self.host(version)}/{length}"

    # --- netplan ---

    def netplan(self):
        """A document of version 2."""
        nics = {f"nic{number}": self._ethernet() for number in range(self.random.randrange(1, 6))}
        free = list(nics)
        self.random.shuffle(free)
        bonds = {}
        if len(free) > 2:
            members = [free.pop(), free.pop()]
            for member in members:
                nics[member] = {
                    key: nics[member][key]
                    for key in ("match", "set-name", UNKNOWN)
                    if key in nics[member]
                }
            bonds["bond0"] = {
                "interfaces": members,
                **self._bond_parameters(members),
                **self._netplan_common(),
            }
        vlans = {
            f"vlan{number}": {
                "id": self.random.randrange(1, 4095),
                "link": self.random.choice([*free, *bonds] or list(nics)),
                **self._netplan_common(),
            }
            for number in range(self.random.randrange(3))
        }
        # A link has one VLAN of each ID.
        distinct = {(vlan["link"], vlan["id"]): name for name, vlan in vlans.items()}
        vlans = {name: vlans[name] for name in distinct.values()}
        bridges = {}
        if self.random.random() < 0.4:
            ports = (
                [self.random.choice(list(vlans))] if vlans and self.random.random() < 0.5 else []
            )
            bridges["br0"] = {
                "interfaces": ports,
                **self._bridge_parameters(ports),
                **self._netplan_common(),
            }
        document = {"version": 2, "ethernets": nics, **self.maybe(0.3, renderer="networkd")}
        document.update(
            {
                name: links
                for name, links in (("bonds", bonds), ("vlans", vlans), ("bridges", bridges))
                if links
            }
        )
        return "network-config", json.dumps({"network": document})

    def _ethernet(self):
        match = {}
        if self.random.random() < 0.7:
            match = {
                "match": {"macaddress": self.mac().lower()},
                **self.maybe(0.5, **{"set-name": f"dp{self.number()}"}),
            }
        return {
            **match,
            **self._netplan_common(),
            **self.maybe(0.1, macaddress=f"02:00:00:00:00:{self.number() % 256:02x}"),
            **self.maybe(0.1, wakeonlan=True),
            **self.maybe(0.1, **{"generic-receive-offload": False}),
        }

    def _netplan_common(self):
        link = {
            **self.maybe(
                0.6, addresses=[self.address() for _ in range(self.random.randrange(1, 4))]
            ),
            **self.maybe(0.3, mtu=self.random.choice((1280, 1450, 1500, 9000))),
            **self.maybe(self.dhcp, dhcp4=self.random.choice((True, False))),
            **self.maybe(self.dhcp, dhcp6=self.random.choice((True, False))),
            **self.maybe(0.1, **{"accept-ra": self.random.choice((True, False))}),
            **self.maybe(0.1, **{"link-local": self.random.choice(([], ["ipv4"], ["ipv6"]))}),
            **self.maybe(0.1, optional=True),
            **self.maybe(0.1, critical=True),
            **self.maybe(0.1, nameservers={"addresses": ["192.0.2.53"], "search": ["example.net"]}),
            **self.maybe(
                0.4, routes=[self._netplan_route() for _ in range(self.random.randrange(1, 4))]
            ),
        }
        return self._with_unknown(link)

    def _with_unknown(self, link):
        return {**link, UNKNOWN: 7} if self.unknown else link

    def _netplan_route(self):
        version = self.random.choice((4, 4, 6))
        return {
            "to": self.destination(version),
            "via": self.host(version),
            **self.maybe(0.3, metric=self.random.randrange(1, 1000)),
            **self.maybe(0.1, table=self.random.randrange(100, 200)),
            **self.maybe(0.1, **{"on-link": True}),
        }

    def _bond_parameters(self, members):
        parameters = {
            "mode": self.random.choice(("balance-rr", "active-backup", "802.3ad", "balance-xor")),
            **self.maybe(0.5, **{"mii-monitor-interval": self.random.choice((100, "100ms", "1s"))}),
            **self.maybe(0.2, **{"gratuitous-arp": 2}),
            **self.maybe(0.3, primary=self.random.choice(members)),
        }
        return self.maybe(0.8, parameters=parameters)

    def _bridge_parameters(self, ports):
        parameters = {
            **self.maybe(0.5, stp=self.random.choice((True, False))),
            **self.maybe(0.5, **{"forward-delay": self.random.choice((4, "15s"))}),
            **self.maybe(0.2, priority=5),
        }
        for port in ports:
            parameters.update(self.maybe(0.5, **{"path-cost": {port: 50}}))
            parameters.update(self.maybe(0.5, **{"port-priority": {port: 7}}))
        return {"parameters": parameters} if parameters else {}

    # --- version 1 ---

    def version_1(self):
        """A document of version 1."""
        names = [f"nic{number}" for number in range(self.random.randrange(1, 6))]
        config = [
            self._with_unknown(
                {
                    "type": "physical",
                    "name": name,
                    **self.maybe(0.8, mac_address=self.mac()),
                    **self._v1_common(),
                }
            )
            for name in names
        ]
        below = list(names)
        if len(below) > 2:
            members = [below.pop(), below.pop()]
            params = {
                "bond-mode": self.random.choice((1, "802.3ad", "balance-xor")),
                **self.maybe(0.4, **{"bond-miimon": 100}),
            }
            config.append(
                self._with_unknown(
                    {
                        "type": "bond",
                        "name": "bond0",
                        "bond_interfaces": members,
                        "params": params,
                        **self._v1_common(),
                    }
                )
            )
            below.append("bond0")
        for number in self.random.sample(range(1, 4095), self.random.randrange(3)):
            vlan = {
                "type": "vlan",
                "name": f"vlan{number}",
                "vlan_link": self.random.choice(below),
                "vlan_id": number,
            }
            config.append(self._with_unknown({**vlan, **self._v1_common()}))
        if self.random.random() < 0.3:
            bridge = {
                "type": "bridge",
                "name": "br0",
                "bridge_interfaces": [],
                "params": {"bridge_stp": self.random.choice(("on", "off", True))},
            }
            config.append(self._with_unknown({**bridge, **self._v1_common()}))
        config += [{"type": "nameserver", "address": "192.0.2.53"}] * self.random.randrange(2)
        return "network-config", json.dumps({"version": 1, "config": config})

    def _v1_common(self):
        return {
            **self.maybe(0.3, mtu=self.random.choice((1280, 1500, 9000))),
            **self.maybe(0.1, **{"accept-ra": self.random.choice((True, False))}),
            **self.maybe(0.8, subnets=[self._subnet() for _ in range(self.random.randrange(1, 4))]),
        }

    def _subnet(self):
        kind = self.random.choice(
            ("static", "static", "static", "static6", "dhcp4", "dhcp6", "manual", "ipv6_slaac")
        )
        if not kind.startswith("static"):
            return {"type": "manual" if self.unknown else kind}
        version = 6 if kind == "static6" else 4
        return {
            "type": kind,
            **self._length("address", version),
            **self.maybe(0.1, mtu=1400),
            **self.maybe(0.1, control="auto"),
            **self.maybe(0.1, dns_nameservers=["192.0.2.53"]),
            **self.maybe(0.1, metric=self.random.randrange(1, 1000)),
            **self.maybe(0.3, routes=[self._v1_route(version)]),
        }

    def _length(self, key, version):
        """An address or destination with its prefix length in one of the forms that are in use."""
        length, mask = ("16", "255.255.0.0") if version == 4 else ("48", "ffff:ffff:ffff::")
        host = self.host(version)
        return self.random.choice(
            (
                {key: f"{host}/{length}"},
                # Python's ipaddress, and so cloud-init, takes no netmask of IPv6 after a slash.
                {key: f"{host}/{mask if version == 4 else length}"},
                {key: host, "netmask": mask},
                {key: host, "prefix": int(length)},
                {key: host},
            )
        )

    def _v1_route(self, version):
        key = self.random.choice(("network", "destination"))
        return {
            **self._length(key, version),
            "gateway": self.host(version),
            **self.maybe(0.2, metric=self.random.randrange(1, 100)),
        }

    # --- OpenStack ---

    def openstack(self):
        """A document of OpenStack."""
        links, networks = [], []
        for number in range(self.random.randrange(1, 5)):
            link = {
                "id": f"tap{number}",
                "type": self.random.choice(("phy", "ovs", "bridge", "vif")),
                "ethernet_mac_address": self.mac(),
            }
            links.append(
                self._with_unknown(
                    {
                        **link,
                        **self.maybe(0.5, mtu=self.random.choice((None, 1450, 9000))),
                        **self.maybe(0.2, name=f"dp{number}"),
                    }
                )
            )
        if self.random.random() < 0.3:
            mac = self.mac()
            links.append(
                self._with_unknown(
                    {
                        "id": "v",
                        "type": "vlan",
                        "vlan_link": "tap0",
                        "vlan_id": self.random.randrange(1, 4095),
                        "vlan_mac_address": mac,
                    }
                )
            )
        for link in links:
            networks += [
                self._network(link["id"], number) for number in range(self.random.randrange(3))
            ]
        document = {
            "links": links,
            "networks": networks,
            "services": [{"type": "dns", "address": "192.0.2.53"}],
        }
        return "network_data.json", json.dumps(document)

    def _network(self, link, number):
        kind = self.random.choice(
            ("ipv4", "ipv4", "ipv6", "ipv4_dhcp", "ipv6_slaac", "ipv6_dhcpv6-stateful")
        )
        network = {"id": f"network{number}", "link": link, "type": kind, "network_id": "n"}
        if kind not in ("ipv4", "ipv6"):
            return {**network, "type": "ipv6_slaac"} if self.unknown else network
        version = int(kind[-1])
        routes = [self._openstack_route(version) for _ in range(self.random.randrange(3))]
        return {**network, **self._length("ip_address", version), "routes": routes}

    def _openstack_route(self, version):
        """OpenStack's schema has no `prefix` for a route, and cloud-init 24 does not read it there."""
        route = {**self._length("network", version), "gateway": self.host(version)}
        if "prefix" in route:
            route["network"] += f"/{route.pop('prefix')}"
        return route
