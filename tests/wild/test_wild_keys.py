"""Each key that the schemas of netplan and cloud-init have is used, or named in a warning; by the command line."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import re
import subprocess

import oracles
import pytest
import schemas
from test_wild import MANUAL

MAC = "52:54:00:00:00:01"
# Keys without an effect that are not named, each with a sentence of neuca-platform-data(5).
SILENT = {
    "renderer": "The warning does not list renderer, DNS servers, a driver next to a MAC address",
    "nameservers": "DNS is left to other programs unless",
    "dns_nameservers": "DNS is left to other programs unless",
    "dns_search": "DNS is left to other programs unless",
    "driver": "a driver next to a MAC address",
    "ipv4": "ipv4 or ipv6 of a subnet of version 1",
    "ipv6": "ipv4 or ipv6 of a subnet of version 1",
}
# A value that each key may have where one of its type does not do.
VALUES = {
    "accept-ra": True,
    "activation-mode": "off",
    "ad-select": "bandwidth",
    "addresses": ["10.9.0.1/24"],
    "advertised-mss": 1300,
    "all-members-active": True,
    "arp-all-targets": "all",
    "arp-interval": 100,
    "arp-ip-targets": ["10.9.0.9"],
    "arp-validate": "all",
    "fail-over-mac-policy": "active",
    "forward-delay": 9,
    "from": "10.9.0.0/24",
    "gateway6": "fd00::9",
    "hello-time": 3,
    "id": 77,
    "interfaces": ["b", "c"],
    "ipv6-mtu": 1400,
    "lacp-rate": "fast",
    "link": "c",
    "link-local": ["ipv4"],
    "local": "10.1.0.8",
    "macaddress": "52:54:00:00:00:77",
    "match": {"macaddress": "52:54:00:00:00:77"},
    "max-age": 19,
    "mode": "active-backup",
    "mtu": 1400,
    "path-cost": {"b": 50},
    "port-priority": {"b": 5},
    "primary": "b",
    "primary-reselect-policy": "better",
    "remote": "10.1.0.7",
    "routes": [{"to": "10.8.0.0/16", "via": "10.1.0.9"}],
    "routing-policy": [{"from": "10.1.0.1", "table": 100}],
    "set-name": "dp7",
    "stp": False,
    "table": 100,
    "to": "10.8.0.0/16",
    "transmit-hash-policy": "layer3+4",
    "type": "blackhole",
    "via": "10.1.0.8",
    # Version 1
    "address": "10.9.0.1/24",
    "bond_interfaces": ["b", "c"],
    "bridge_interfaces": ["b", "c"],
    "broadcast": "10.1.0.255",
    "control": "manual",
    "gateway": "10.1.0.9",
    "mac_address": "52:54:00:00:00:77",
    "metric": 5,
    "netmask": "255.255.0.0",
    "prefix": 16,
    "params": {"x": 1},
    "subnets": [{"type": "static", "address": "10.9.0.1/24"}],
    "vlan_id": 77,
    "vlan_link": "c",
    "bond-ad_select": "bandwidth",
    "bond-arp_all_targets": "all",
    "bond-arp_validate": "all",
    "bond-fail_over_mac": "active",
    "bond-lacp_rate": "fast",
    "bond-lacp-rate": "fast",
    "bond-mode": "active-backup",
    "bond-primary": "b",
    "bond-primary_reselect": "better",
    "bond-xmit_hash_policy": "layer3+4",
    "bond-xmit-hash-policy": "layer3+4",
    "bridge_ageing": 5,
    "bridge_fd": 9,
    "bridge_hello": 3,
    "bridge_maxage": 19,
    "bridge_pathcost": ["b 50"],
    "bridge_portprio": ["b 5"],
    "bridge_stp": False,
}
_OF_TYPE = {"bool": True, "sequence": ["1"], "mapping": {"x": "1"}}
# Each kind of link without a key more than it needs.
NETPLAN = {
    "ethernets": {"match": {"macaddress": MAC}, "addresses": ["10.1.0.1/24"]},
    "bonds": {"interfaces": ["b"], "addresses": ["10.1.0.1/24"]},
    "bridges": {"interfaces": ["b"], "addresses": ["10.1.0.1/24"]},
    "vlans": {"id": 5, "link": "b", "addresses": ["10.1.0.1/24"]},
    "vrfs": {"table": 200, "interfaces": ["b"]},
    "tunnels": {"mode": "vxlan", "id": 5, "local": "10.1.0.1", "addresses": ["10.3.0.1/24"]},
}
_SUBNETS = [{"type": "static", "address": "10.1.0.1/24"}]
VERSION_1 = {
    "physical": {"mac_address": MAC, "subnets": _SUBNETS},
    "bond": {"bond_interfaces": ["b"], "subnets": _SUBNETS},
    "bridge": {"bridge_interfaces": ["b"], "subnets": _SUBNETS},
    "vlan": {"vlan_link": "b", "vlan_id": 5, "subnets": _SUBNETS},
}


def value(key, type_="scalar"):
    return VALUES.get(key, _OF_TYPE.get(type_, 1))


def with_key(tree, path, given):
    """The object with one value more, at this path."""
    key, *rest = path
    below = tree.get(key, {})
    if key == "addresses" and rest:
        return {**tree, key: [{"10.9.0.1/24": {rest[0]: given}}]}
    if not rest:
        return {**tree, key: given}
    return {**tree, key: with_key(below if isinstance(below, dict) else {}, rest, given)}


def netplan(kind, link):
    below = {"b": {"match": {"name": "b"}}, "c": {"match": {"name": "c"}}}
    tree = {"version": 2, "ethernets": below}
    tree[kind] = {**tree.get(kind, {}), "link0": link}
    return "network-config", json.dumps(tree)


def version_1(kind, link):
    below = [{"type": "physical", "name": name} for name in "bc"]
    entry = {"type": kind, "name": "link0", **link}
    return "network-config", json.dumps({"version": 1, "config": [*below, entry]})


def netplan_documents():
    """(what it is, key, document without it, document with it)."""
    for kind, keys in schemas.netplan_keys().items():
        base = NETPLAN[kind]
        for path, type_ in keys:
            given = with_key(base, path, value(path[-1], type_))
            yield f"{kind}: {'.'.join(path)}", path[-1], netplan(kind, base), netplan(kind, given)
        for holder, names in (("routes", schemas.ROUTE), ("routing-policy", schemas.RULE)):
            for key in names:
                entry = {"to": "10.7.0.0/16", "via": "10.1.0.9"}
                if holder == "routing-policy":
                    entry = {"from": "10.1.0.1", "table": 90}
                both = [
                    netplan(kind, {**base, holder: [one]})
                    for one in (entry, {**entry, key: value(key)})
                ]
                yield f"{kind}: {holder}: {key}", key, *both


def version_1_documents():
    for kind, keys in schemas.VERSION_1.items():
        base = VERSION_1[kind]
        for key in keys:
            type_ = "bool" if key in ("keep_configuration", "wakeonlan") else "scalar"
            yield (
                f"{kind}: {key}",
                key,
                version_1(kind, base),
                version_1(kind, {**base, key: value(key, type_)}),
            )
        for key in schemas.PARAMS.get(kind, ()):
            given = {**base, "params": {key: value(key)}}
            yield f"{kind}: {key}", key, version_1(kind, base), version_1(kind, given)
        for key in schemas.SUBNET:
            plain = {**_SUBNETS[0], "address": "10.1.0.1"}
            subnet = {**plain, key: value(key)}
            if key == "type":
                subnet[key] = "dhcp4"
            both = [version_1(kind, {**base, "subnets": [one]}) for one in (plain, subnet)]
            yield f"{kind}: subnet {key}", key, *both


def effect(shown):
    """What the document asks for, without its faults."""
    return {key: part for key, part in shown["document"].items() if key != "faults"}


@pytest.mark.parametrize("documents", [netplan_documents, version_1_documents])
def test_each_key_of_each_kind_of_link_is_used_or_named(documents, tmp_path):
    cases = list(documents())
    texts = list(dict.fromkeys(one for case in cases for one in case[2:]))
    shown = dict(zip(texts, oracles.ours(texts, tmp_path)))
    wrong = []
    for what, key, without, given in cases:
        assert shown[given]["document"] is not None, (what, shown[given]["err"])
        said = [fault["text"] for fault in shown[given]["document"]["faults"]]
        before = [fault["text"] for fault in shown[without]["document"]["faults"]]
        word = re.compile(rf"(?<![\w-]){re.escape(key)}(?![\w-])")
        is_named = any(word.search(text) for text in said if text not in before)
        is_used = effect(shown[given]) != effect(shown[without])
        if not (is_named or is_used) and key not in SILENT:
            wrong.append((what, given[1]))
    assert wrong == []
    assert len(cases) > 100


def test_what_is_not_named_is_in_the_manual():
    text = subprocess.run(
        ["mandoc", "-T", "utf8", MANUAL], capture_output=True, text=True, check=True
    ).stdout
    plain = re.sub(r"\s+", " ", re.sub(".\b", "", text))
    assert [words for words in SILENT.values() if words not in plain] == []
