"""Keys of platforms' documents that are correct although the agent does not use them.

Sources: the reference of netplan 1.2 (netplan-yaml(5)), the schema of cloud-init 26.2
(schema-network-config-v1.json), and nova's doc/api_schemas/network_data.json.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator

from neuca_tools.documents.platform import automatic, openstack

# The keys below these are the names of links.
LINKS = frozenset(
    "ethernets bonds bridges tunnels vlans vrfs wifis modems dummy-devices virtual-ethernets"
    " nm-devices".split()
)
# The keys below these are names that users choose.
NAMED = LINKS | frozenset(
    "path-cost port-priority bridge_pathcost bridge_portprio access-points external-ids"
    " other-config passthrough hairpin port-mac-learning".split()
)
# Of version 1 of network-config, beyond those that are read; many occur in version 2 too.
VERSION_1 = frozenset(
    "network version config interface id dns_nameservers dns_search search address scope keys"
    " bond-active_slave bond-ad_actor_key bond-ad_actor_sys_prio bond-ad_actor_system"
    " bond-ad_aggregator bond-ad_num_ports bond-ad_partner_key bond-ad_partner_mac"
    " bond-ad_user_port_key bond-mii_status bond-num_unsol_na bond-peer_notif_delay bond-queue_id"
    " bond-slaves bond-tlb_dynamic_lb bond-use_carrier bridge_gcint bridge_hw bridge_maxwait"
    " bridge_ports bridge_waitport broadcast ipv4 ipv6 keep_configuration routes".split()
)
# The keys that mean the same in version 1 and in version 2; those of a route are in version 2 keys
# of routes only.
_SAME = (("mac_address", "macaddress"), ("address", "addresses"), ("gateway", "gateway4"))
_SAME_IN_ROUTES = (("gateway", "via"), ("network", "to"), ("destination", "to"))
_NOT_IN_2 = set("id address dns_nameservers dns_search interface scope routes".split())
NETPLAN = (VERSION_1 - _NOT_IN_2) | frozenset(
    "nameservers dhcp4-overrides dhcp6-overrides advertised-mss access-points"
    " advertised-receive-window aging allowed-ips anonymous-identity apn arp-proxy auth"
    " auto-config band bssid ca-cert ca-certificate certificate channel checksums"
    " client-certificate client-key client-key-password congestion-window connection-mode"
    " controller delay-virtual-functions-rebind device device-id dhcp-identifier"
    " do-not-fragment embedded-switch-mode endpoint extensions external-ids fail-mode"
    " flow-label hidden identity infiniband-mode input ipv6-address-generation"
    " ipv6-address-token keepalive key key-management label lacp lifetime limit mac-learning"
    " mcast-snooping method neigh-suppress network-id networkmanager notifications number"
    " openvswitch optional-addresses other-config output passthrough password peers phase2-auth"
    " pin port-range ports private private-key protocols public regulatory-domain rstp shared"
    " short-circuit sim-id sim-operator-id ssl stable-id ttl username uuid"
    " virtual-function-count wakeonwlan ageing hairpin peer port-mac-learning private-key-flags"
    " ra-overrides".split()
)
OPENSTACK = frozenset("links networks services routes vif_id network_id id".split())
_SUBNETS = frozenset((*automatic.DHCP, *automatic.ADVERTISED, "static", "static6", "manual"))
# Words of the formats for kinds of links, subnets, networks and routes, and for modes.
WORDS = {
    "network-config": _SUBNETS
    | frozenset(
        "physical infiniband bond bridge vlan route nameserver loopback static4 ipip gre sit isatap"
        " vti ip6ip6 ipip6 ip6gre vti6 wireguard gretap ip6gretap vxlan".split()
    ),
    openstack.NAME: _SUBNETS | openstack.PHYSICAL | {"bond", "vlan", "ipv4", "ipv6", "dns"},
}


def names_elsewhere(parent: str, key: str) -> Iterator[str]:
    """What a key of the other version, or of another place, may be called below this key."""
    same = (*_SAME_IN_ROUTES, *_SAME) if parent == "routes" or key in ("via", "to") else _SAME
    yield from (name for names in same if key in names for name in names if name != key)
    if parent == "params":
        yield from (f"bond-{key}", f"bridge_{key}")
