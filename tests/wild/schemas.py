"""The keys of each kind of link: netplan's by its reference in the distribution, cloud-init's by its JSON schemas.

netplan has no JSON schema; the table of cloud-init is that of its schema-network-config-v1.json (version 26.2), which Debian 12's
cloud-init does not have yet. Of version 2, its schema has no key that netplan's reference does not have.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from html.parser import HTMLParser

from oracles import ROOT

REFERENCE = ROOT / "usr/share/doc/netplan/netplan.html"
# The sections of netplan's reference that describe each kind of link.
_EVERY = ("properties-for-all-device-types", "dhcp-overrides", "routing")
_OF_KIND = "properties-for-device-type-"
KINDS = {
    "ethernets": (
        "properties-for-physical-device-types",
        f"{_OF_KIND}ethernets",
        "authentication",
    ),
    "bonds": (f"{_OF_KIND}bonds",),
    "bridges": (f"{_OF_KIND}bridges",),
    "vlans": (f"{_OF_KIND}vlans",),
    "tunnels": (f"{_OF_KIND}tunnels",),
    "vrfs": (f"{_OF_KIND}vrfs",),
}
_COMMON_V1 = ("mtu", "accept-ra", "subnets", "mac_address")
VERSION_1 = {
    "physical": (*_COMMON_V1, "keep_configuration", "wakeonlan"),
    "bond": (*_COMMON_V1, "bond_interfaces", "params"),
    "bridge": (*_COMMON_V1, "bridge_interfaces", "params"),
    "vlan": (*_COMMON_V1, "vlan_link", "vlan_id"),
}
PARAMS = {
    "bond": tuple(
        "bond-active_slave bond-ad_actor_key bond-ad_actor_sys_prio bond-ad_actor_system"
        " bond-ad_aggregator bond-ad_num_ports bond-ad_partner_key bond-ad_partner_mac"
        " bond-ad_select bond-ad_user_port_key bond-all_slaves_active bond-arp_all_targets"
        " bond-arp_interval bond-arp_ip_target bond-arp_validate bond-downdelay bond-fail_over_mac"
        " bond-lacp_rate bond-lp_interval bond-miimon bond-mii_status bond-min_links bond-mode"
        " bond-num_grat_arp bond-num_unsol_na bond-packets_per_slave bond-peer_notif_delay bond-primary"
        " bond-primary_reselect bond-queue_id bond-resend_igmp bond-slaves bond-tlb_dynamic_lb"
        " bond-updelay bond-use_carrier bond-xmit_hash_policy bond-miimon bond-min-links"
        " bond-xmit-hash-policy bond-lacp-rate bond-num-grat-arp".split()
    ),
    "bridge": tuple(
        "bridge_ageing bridge_bridgeprio bridge_fd bridge_gcint bridge_hello bridge_hw"
        " bridge_maxage bridge_maxwait bridge_pathcost bridge_portprio bridge_ports bridge_stp"
        " bridge_waitport".split()
    ),
}
SUBNET = tuple(
    "type control address netmask broadcast gateway dns_nameservers dns_search routes ipv4 ipv6"
    " metric prefix mtu".split()
)


ROUTE = tuple(
    "to via from metric on-link scope table type mtu congestion-window"
    " advertised-receive-window advertised-mss".split()
)
RULE = tuple("from to table priority mark type-of-service".split())


class _Reference(HTMLParser):
    """Collects (section, path of keys, type) from the nested lists."""

    def __init__(self):
        super().__init__()
        self.section, self.stack, self.found = "", [], []
        self.strong, self.waiting = False, ""

    def handle_starttag(self, tag, attrs):
        if tag in ("h2", "h3"):
            self.section, self.stack = dict(attrs).get("id", ""), []
        elif tag == "li":
            self.stack.append("")
        elif tag == "strong":
            self.strong, self.waiting = True, ""

    def handle_endtag(self, tag):
        if tag == "li" and self.stack:
            self.stack.pop()
        self.strong = self.strong and tag != "strong"

    def handle_data(self, data):
        if self.strong:
            self.waiting += data
        elif self.waiting:
            kind = re.match(r"\s*\(([a-z]+)", data)
            if kind and self.stack and not self.stack[-1]:
                names = [name.strip() for name in re.split(r",|/", self.waiting)]
                self.stack[-1] = names[0]
                above = tuple(filter(None, self.stack[:-1]))
                self.found += [(self.section, (*above, name), kind.group(1)) for name in names]
            self.waiting = ""


def netplan_keys():
    """For each kind of link its keys, as (path, type)."""
    reader = _Reference()
    reader.feed(REFERENCE.read_text())
    return {
        kind: [
            (path, type_)
            for section, path, type_ in reader.found
            if section in (*_EVERY, *sections)
        ]
        for kind, sections in KINDS.items()
    }
