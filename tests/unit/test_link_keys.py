"""The identity of a link: one form as text for each kind, an order, and equality by kind."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pickle

import pytest
from worlds import mac

from neuca_tools.model.links import LinkKey

NIC, BOND = LinkKey(mac(2)), LinkKey("bond bond0")


@pytest.mark.parametrize(
    ("key", "text", "domain", "kind", "made", "name"),
    [
        (NIC, mac(2), mac(2), "physical", "", ""),
        (LinkKey(NIC.mac, 7), f"{mac(2)}.7", mac(2), "vlan", "", ""),
        (BOND, "bond bond0", "bond bond0", "bond", "bond", "bond0"),
        (LinkKey(BOND.mac, 5), "bond bond0.5", "bond bond0", "vlan", "bond", "bond0"),
    ],
)
def test_a_key_says_what_kind_of_link_it_is(key, text, domain, kind, made, name):
    assert (str(key), key.mac, key.kind, key.virtual_kind, key.virtual_name) == (
        text,
        domain,
        kind,
        made,
        name,
    )
    again = LinkKey(domain, key.vlan_id)
    assert (again, type(again), hash(again)) == (key, type(key), hash(key))
    assert pickle.loads(pickle.dumps(key)) == key
    assert type(pickle.loads(pickle.dumps(key))) is type(key)


def test_lower_devices_come_first_and_a_nic_before_its_vlans():
    bridge = LinkKey("bridge br0")
    keys = [LinkKey(bridge.mac, 3), bridge, LinkKey(NIC.mac, 7), LinkKey(BOND.mac, 5), BOND, NIC]
    assert sorted(keys, key=lambda key: key.order) == [
        NIC,
        BOND,
        LinkKey(NIC.mac, 7),
        LinkKey(BOND.mac, 5),
        bridge,
        LinkKey(bridge.mac, 3),
    ]
    assert sorted(keys) == [
        NIC,
        LinkKey(NIC.mac, 7),
        BOND,
        LinkKey(BOND.mac, 5),
        bridge,
        LinkKey(bridge.mac, 3),
    ]
    assert max(keys) == LinkKey(bridge.mac, 3)


def test_a_key_names_its_kind_and_parts():
    assert repr(NIC) == f"Nic({mac(2)!r})"
    assert repr(LinkKey(BOND.mac, 5)) == "Vlan(VirtualLink('bond', 'bond0'), 5)"
