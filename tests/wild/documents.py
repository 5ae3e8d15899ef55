"""Documents in the classes that were found in the wild, each written for these tests: name, kind and text."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

NETPLAN, VERSION_1, OPENSTACK = "network-config", "network-config", "network_data.json"

NETPLAN_DOCUMENTS = {
    "a NIC by MAC with everything": """
  ethernets:
    up:
      match: {macaddress: "52:54:00:aa:00:01"}
      set-name: dp1
      mtu: 9000
      addresses: [10.1.0.1/24, "fd00:1::1/64"]
      routes: [{to: 10.9.0.0/16, via: 10.1.0.254}, {to: "fd00:9::/32", via: "fd00:1::fe"}]
""",
    "a NIC by its name": "\n  ethernets: {eno1: {addresses: [10.1.0.1/24]}}\n",
    "a NIC by another name": "\n  ethernets: {id0: {match: {name: eno2}, addresses: [10.1.0.1/24]}}\n",
    "an upper-case MAC": '\n  ethernets: {a: {match: {macaddress: "52:54:00:AA:00:01"}, mtu: 1400}}\n',
    "DHCP of both families": "\n  ethernets: {a: {dhcp4: true, dhcp6: true}, b: {dhcp4: yes}, c: {dhcp6: on}}\n",
    "overrides of DHCP": """
  ethernets:
    a: {dhcp4: true, dhcp4-overrides: {use-dns: false, route-metric: 200}, addresses: [10.1.0.1/24]}
""",
    "router advertisements": "\n  ethernets: {a: {accept-ra: false}, b: {accept-ra: true}, c: {}}\n",
    "no link-local addresses": "\n  ethernets: {a: {link-local: [], addresses: [10.1.0.1/24]}}\n",
    "an address without a prefix length": "\n  ethernets: {a: {addresses: [10.1.0.1]}, b: {addresses: ['fd00::1']}}\n",
    "addresses with labels and lifetimes": """
  ethernets: {a: {addresses: [10.1.0.1/24: {label: "a:1", lifetime: 0}, 10.2.0.1/24]}}
""",
    "a bond in full": """
  ethernets: {a: {}, b: {}}
  bonds:
    bond0:
      interfaces: [a, b]
      addresses: [10.1.0.1/24]
      parameters: {mode: active-backup, primary: a, mii-monitor-interval: 1s, gratuitous-arp: 3, up-delay: 200ms}
""",
    "a bond that watches by ARP": """
  ethernets: {a: {}, b: {}}
  bonds:
    bond0: {interfaces: [a, b], parameters: {mode: active-backup, arp-interval: 1s, arp-ip-targets: [10.0.0.1]}}
""",
    "a bond without a mode": "\n  ethernets: {a: {}}\n  bonds: {bond0: {interfaces: [a]}}\n",
    "a bond with its MAC": '\n  ethernets: {a: {}}\n  bonds: {bond0: {interfaces: [a], macaddress: "52:54:00:AA:00:02"}}\n',
    "VLANs on NIC and bond": """
  ethernets: {a: {match: {macaddress: "52:54:00:aa:00:01"}}, b: {}}
  bonds: {bond0: {interfaces: [b]}}
  vlans: {v5: {id: 5, link: a, addresses: [10.5.0.1/24]}, v6: {id: 6, link: bond0, mtu: 1400}}
""",
    "a VLAN with its MAC": '\n  ethernets: {a: {}}\n  vlans: {v5: {id: 5, link: a, macaddress: "52:54:00:AA:00:05"}}\n',
    "a VLAN on a VLAN": "\n  ethernets: {a: {}}\n  vlans: {v5: {id: 5, link: a}, v6: {id: 6, link: v5, addresses: [10.6.0.1/24]}}\n",
    "a bridge in full": """
  ethernets: {a: {}}
  vlans: {v5: {id: 5, link: a}}
  bridges:
    br0:
      interfaces: [v5]
      addresses: [10.1.0.1/24]
      parameters: {stp: false, forward-delay: 0, hello-time: 2, max-age: 12, priority: 5, path-cost: {v5: 50}}
""",
    "a bridge without parameters": "\n  ethernets: {a: {}}\n  bridges: {br0: {interfaces: [a]}}\n",
    "a bridge with time spans": "\n  bridges: {br0: {parameters: {stp: true, forward-delay: 15s}}}\n",
    "Open vSwitch": """
  ethernets: {a: {}, b: {}}
  bridges: {ovs0: {interfaces: [a], openvswitch: {}, addresses: [10.1.0.1/24]}}
  vlans: {v5: {id: 5, link: ovs0}}
""",
    "a bridge on a tunnel, and a VRF on it": """
  ethernets: {a: {}, b: {addresses: [10.1.0.1/24]}}
  tunnels: {gt0: {mode: gretap, local: 10.0.0.1, remote: 10.0.0.2}}
  bridges: {br0: {interfaces: [gt0, a], addresses: [10.2.0.1/24]}}
  vrfs: {red: {table: 100, interfaces: [br0]}}
""",
    "an SR-IOV VLAN filter": """
  ethernets: {pf: {virtual-function-count: 1}, vf: {link: pf}}
  vlans: {v5: {id: 5, link: vf, renderer: sriov}}
""",
    "routes with metrics": """
  ethernets:
    a: {addresses: [10.1.0.1/24], routes: [{to: 10.9.0.0/16, via: 10.1.0.9, metric: 50}]}
    b: {addresses: [10.2.0.1/24], routes: [{to: 10.9.0.0/16, via: 10.2.0.9, metric: 100}]}
""",
    "routes with host bits": "\n  ethernets: {a: {addresses: [10.1.0.1/24], routes: [{to: 10.9.1.2/16, via: 10.1.0.9}]}}\n",
    "routes to hosts": "\n  ethernets: {a: {addresses: [10.1.0.1/24], routes: [{to: 10.9.1.2, via: 10.1.0.9}]}}\n",
    "routes of a table": "\n  ethernets: {a: {addresses: [10.1.0.1/24], routes: [{to: 10.9.0.0/16, via: 10.1.0.9, table: 100}]}}\n",
    "routes that drop": "\n  ethernets: {a: {addresses: [10.1.0.1/24], routes: [{to: 10.9.0.0/16, type: blackhole}]}}\n",
    "routes on the link": "\n  ethernets: {a: {addresses: [10.1.0.1/24], routes: [{to: 10.9.0.0/16, scope: link}]}}\n",
    "a default route": "\n  ethernets: {a: {addresses: [10.1.0.1/24], routes: [{to: default, via: 10.1.0.9}]}}\n",
    "gateways": "\n  ethernets: {a: {addresses: [10.1.0.1/24], gateway4: 10.1.0.9}}\n",
    "activation": """
  ethernets: {a: {activation-mode: manual, addresses: [10.1.0.1/24]}, b: {activation-mode: "off", addresses: [10.2.0.1/24]}}
""",
    "the MAC of a NIC": '\n  ethernets: {a: {macaddress: "52:54:00:AA:00:07", addresses: [10.1.0.1/24]}}\n',
    "the MTU of IPv6": "\n  ethernets: {a: {mtu: 9000, ipv6-mtu: 1400}}\n",
    "offloads and wake-on-LAN": """
  ethernets:
    a: {match: {macaddress: '52:54:00:aa:00:01'}, wakeonlan: true, generic-receive-offload: false}
""",
    "a bridge with the costs of its ports": """
  ethernets: {a: {}}
  bridges: {br0: {interfaces: [a], parameters: {path-cost: {a: 70}}}}
""",
    "a VRF": """
  ethernets: {a: {addresses: [10.0.0.1/24]}, b: {addresses: [10.1.0.1/24]}}
  vlans: {v5: {id: 5, link: b, addresses: [10.5.0.1/24]}}
  vrfs:
    blue:
      table: 100
      interfaces: [a, v5]
      routes: [{to: default, via: 10.0.0.254}, {to: 10.9.0.0/16, via: 10.5.0.254}]
      routing-policy: [{from: 10.0.0.1}]
""",
    "a bridge with empty parameters": "\n  bridges: {br0: {interfaces: [], parameters: {}}}\n",
    "a renderer between links": "\n  ethernets: {renderer: networkd, a: {addresses: [10.1.0.1/24]}}\n",
    "the loopback interface": "\n  ethernets: {lo: {addresses: [10.255.0.1/32]}, a: {}}\n",
    "another name for a NIC that is matched by name": """
  ethernets: {a: {match: {name: eno2}, set-name: dp2, addresses: [10.1.0.1/24]}}
""",
    "every NIC": "\n  ethernets: {all: {match: {}, dhcp4: true}, a: {}}\n",
    "NICs by driver": "\n  ethernets: {a: {match: {driver: virtio_net}, addresses: [10.1.0.1/24]}}\n",
    "other kinds": """
  ethernets: {a: {}}
  wifis: {w: {access-points: {home: {password: secretsecret}}}}
  tunnels: {gre1: {mode: gre, local: 10.0.0.1, remote: 10.0.0.2}}
""",
    "a VXLAN": """
  ethernets: {a: {}}
  tunnels:
    vx0: {mode: vxlan, id: 9, local: 10.0.0.1, remote: 10.0.0.2, link: a, port: 4789}
""",
}

VERSION_1_DOCUMENTS = {
    "a NIC in full": """
  - type: physical
    name: dp1
    mac_address: "52:54:00:AA:00:01"
    mtu: 9000
    accept-ra: false
    subnets:
      - type: static
        address: 10.1.0.1
        netmask: 255.255.255.0
        routes: [{network: 10.9.0.0, netmask: 255.255.0.0, gateway: 10.1.0.9}]
      - {type: static6, address: "fd00:1::1/64"}
""",
    "addresses without a netmask": """
  - {type: physical, name: a, subnets: [{type: static, address: 10.1.0.1}, {type: static6, address: "fd00::1"}]}
""",
    "address/netmask": """
  - {type: physical, name: a, subnets: [{type: static, address: 10.1.0.1/255.255.0.0}]}
""",
    "destinations with host bits": """
  - type: physical
    name: a
    subnets:
      - type: static
        address: 10.1.0.1/24
        routes:
          - {destination: 10.9.1.2/16, gateway: 10.1.0.9}
          - {destination: 10.8.1.2, gateway: 10.1.0.9}
          - {network: 10.7.1.2, netmask: 255.0.0.0, gateway: 10.1.0.9}
""",
    "the MTU of a subnet": """
  - {type: physical, name: a, mtu: 9000, subnets: [{type: static, address: 10.1.0.1/24, mtu: 1492}]}
""",
    "the metric of a subnet": """
  - type: physical
    name: a
    subnets:
      - type: static
        address: 10.1.0.1/24
        metric: 300
        routes: [{network: 10.9.0.0/16, gateway: 10.1.0.9, metric: 7}, {network: 10.8.0.0/16, gateway: 10.1.0.9}]
      - {type: dhcp6, metric: 400, routes: [{network: "fd00:9::/32", gateway: "fe80::9"}]}
""",
    "manual subnets": """
  - {type: physical, name: a, subnets: [{type: static, address: 10.1.0.1/24, control: manual}]}
  - {type: physical, name: b, subnets: [{type: static, address: 10.2.0.1/24, control: manual}, {type: static, address: 10.3.0.1/24}]}
  - {type: physical, name: c, subnets: [{type: manual}]}
""",
    "a bond of named members": """
  - {type: bond, name: bond0, bond_interfaces: [a, b], params: {bond-mode: 802.3ad, bond_miimon: 100, bond-lacp-rate: fast}}
""",
    "a bridge of anything": """
  - {type: physical, name: a, mac_address: "52:54:00:aa:00:01"}
  - {type: vlan, name: a.5, vlan_link: a, vlan_id: 5, mtu: 1496}
  - {type: bridge, name: br0, bridge_interfaces: [a.5, b], params: {bridge_stp: "off", bridge_fd: 0, bridge_pathcost: ["b 50"]}}
""",
    "a VLAN on a VLAN": """
  - {type: physical, name: a}
  - {type: vlan, name: a.5, vlan_link: a, vlan_id: 5}
  - {type: vlan, name: a.5.6, vlan_link: a.5, vlan_id: 6, subnets: [{type: static, address: 10.6.0.1/24}]}
""",
    "a VLAN on a NIC that is only named": """
  - {type: vlan, name: v5, vlan_link: eth9, vlan_id: 5, subnets: [{type: static, address: 10.5.0.1/24}]}
""",
    "routes of no link": """
  - {type: physical, name: a, subnets: [{type: static, address: 10.1.0.1/24}]}
  - {type: route, destination: 10.9.0.0/16, gateway: 10.1.0.9, metric: 3}
  - {type: route, destination: 10.8.0.0/16, gateway: 10.77.0.9}
""",
    "every kind of automatic address": """
  - {type: physical, name: a, subnets: [{type: dhcp}]}
  - {type: physical, name: b, subnets: [{type: dhcp4}, {type: dhcp6}]}
  - {type: physical, name: c, subnets: [{type: ipv6_slaac}]}
  - {type: physical, name: d, subnets: [{type: ipv6_dhcpv6-stateful}]}
  - {type: physical, name: e, subnets: [{type: ipv6_dhcpv6-stateless}]}
""",
    "routes without an address": """
  - type: physical
    name: a
    subnets: [{type: ipv6_slaac, routes: [{destination: "fd00:9::/32", gateway: "fe80::9"}]}]
  - {type: physical, name: b, subnets: [{type: dhcp, routes: [{destination: 10.9.0.0/16, gateway: 10.1.0.9}]}]}
  - {type: physical, name: c, subnets: [{type: manual, routes: [{destination: 10.8.0.0/16, gateway: 10.1.0.9}]}]}
""",
    "loopback": """
  - {type: loopback, name: lo, subnets: [{type: static, address: 10.255.0.1/32}]}
  - {type: physical, name: a, subnets: [{type: static, address: 10.1.0.1/24, gateway: 10.1.0.9}]}
  - {type: nameserver, address: [192.0.2.53], search: [example.net]}
""",
    "InfiniBand": """
  - {type: infiniband, name: ib0, subnets: [{type: static, address: 10.1.0.1/24}]}
  - {type: physical, name: a}
""",
}

OPENSTACK_DOCUMENTS = {
    "three networks": """
{"links": [
  {"id": "tap0", "vif_id": "v", "type": "ovs", "mtu": null, "ethernet_mac_address": "fa:16:3e:00:00:01"},
  {"id": "tap1", "vif_id": "v", "type": "phy", "mtu": 9000, "ethernet_mac_address": "FA:16:3E:00:00:02"}],
 "networks": [
  {"id": "n0", "link": "tap0", "type": "ipv4_dhcp", "network_id": "n"},
  {"id": "n1", "link": "tap1", "type": "ipv4", "network_id": "n", "ip_address": "10.1.0.1", "netmask": "255.255.255.0",
   "routes": [{"network": "10.9.1.2", "netmask": "255.255.0.0", "gateway": "10.1.0.9"}], "services": []},
  {"id": "n2", "link": "tap1", "type": "ipv6", "network_id": "n", "ip_address": "fd00:1::1", "netmask": "ffff:ffff:ffff:ffff::"}],
 "services": [{"type": "dns", "address": "192.0.2.53"}]}
""",
    "names without MACs": """
{"links": [{"id": "oam", "name": "eno1", "type": "phy", "mtu": "1500"}, {"id": "ksn", "name": "eno2", "type": "phy"}],
 "networks": [{"id": "n", "link": "oam", "type": "ipv4", "ip_address": "10.1.0.1", "netmask": "255.255.255.0", "routes": []}]}
""",
    "names with MACs": """
{"links": [{"id": "a", "name": "dp1", "type": "phy", "ethernet_mac_address": "fa:16:3e:00:00:01"}], "networks": []}
""",
    "a bond and a VLAN on it": """
{"links": [
  {"id": "p0", "type": "phy", "ethernet_mac_address": "fa:16:3e:00:00:01"},
  {"id": "p1", "type": "phy", "ethernet_mac_address": "fa:16:3e:00:00:02"},
  {"id": "b", "type": "bond", "ethernet_mac_address": "fa:16:3e:00:00:01", "bond_mode": "802.3ad", "bond_miimon": 100,
   "bond_xmit_hash_policy": "layer3+4", "bond_links": ["p0", "p1"]},
  {"id": "v", "type": "vlan", "vlan_link": "b", "vlan_id": 101, "vlan_mac_address": "fa:16:3e:00:00:01"}],
 "networks": [{"id": "n", "link": "v", "type": "ipv4", "ip_address": "10.1.0.1", "netmask": "255.255.255.0"}]}
""",
    "addresses without a netmask": """
{"links": [{"id": "a", "type": "phy", "ethernet_mac_address": "fa:16:3e:00:00:01"}],
 "networks": [{"link": "a", "type": "ipv4", "ip_address": "10.1.0.1"}, {"link": "a", "type": "ipv6", "ip_address": "fd00::1"}]}
""",
    "every kind of automatic address": """
{"links": [{"id": "a", "type": "phy", "ethernet_mac_address": "fa:16:3e:00:00:01"},
           {"id": "b", "type": "phy", "ethernet_mac_address": "fa:16:3e:00:00:02"}],
 "networks": [{"link": "a", "type": "ipv6_slaac", "ip_address": "fd00::1"}, {"link": "b", "type": "ipv6_dhcpv6-stateful"}]}
""",
    "host routes of subnets with automatic addresses": """
{"links": [{"id": "a", "type": "phy", "ethernet_mac_address": "fa:16:3e:00:00:01"},
           {"id": "b", "type": "phy", "ethernet_mac_address": "fa:16:3e:00:00:02"}],
 "networks": [
  {"link": "a", "type": "ipv6_slaac", "ip_address": "fd00::5", "netmask": "ffff:ffff:ffff:ffff::",
   "routes": [{"network": "fd00:9::", "netmask": "ffff:ffff::", "gateway": "fd00::1"}]},
  {"link": "b", "type": "ipv6_dhcpv6-stateful", "ip_address": "fd01::5", "netmask": "ffff:ffff:ffff:ffff::",
   "routes": [{"network": "fd00:8::", "netmask": "ffff:ffff::", "gateway": "fd01::1"}]},
  {"link": "b", "type": "ipv4_dhcp", "routes": [{"network": "10.9.0.0", "netmask": "255.255.0.0", "gateway": "10.1.0.9"}]}]}
""",
}


def written():
    """Every document as (name, kind, text)."""
    for name, text in NETPLAN_DOCUMENTS.items():
        yield f"netplan, {name}", NETPLAN, f"network:\n  version: 2{text}"
    for name, text in VERSION_1_DOCUMENTS.items():
        yield f"version 1, {name}", VERSION_1, f"version: 1\nconfig:{text}"
    for name, text in OPENSTACK_DOCUMENTS.items():
        yield f"OpenStack, {name}", OPENSTACK, text
