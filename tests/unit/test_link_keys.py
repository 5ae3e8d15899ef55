"""The identity of a link: one form as text for each kind, an order, and equality by kind."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pickle

import pytest
from worlds import mac

from neuca_tools.model.links import LinkKey, Nic, VirtualLink, Vlan

NIC, BOND = Nic(mac(2)), VirtualLink("bond", "bond0")


@pytest.mark.parametrize(
    ("key", "text", "domain", "kind", "made", "name"),
    [
        (NIC, mac(2), mac(2), "physical", "", ""),
        (Vlan(NIC, 7), f"{mac(2)}.7", mac(2), "vlan", "", ""),
        (BOND, "bond bond0", "bond bond0", "bond", "bond", "bond0"),
        (Vlan(BOND, 5), "bond bond0.5", "bond bond0", "vlan", "bond", "bond0"),
    ],
)
def test_a_key_says_what_kind_of_link_it_is(key, text, domain, kind, made, name):
    assert (str(key), key.mac, key.kind, key.made, key.given_name) == (
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
    bridge = VirtualLink("bridge", "br0")
    keys = [Vlan(bridge, 3), bridge, Vlan(NIC, 7), Vlan(BOND, 5), BOND, NIC]
    assert sorted(keys, key=lambda key: key.order) == [
        NIC,
        BOND,
        Vlan(NIC, 7),
        Vlan(BOND, 5),
        bridge,
        Vlan(bridge, 3),
    ]
    assert sorted(keys) == [NIC, Vlan(NIC, 7), BOND, Vlan(BOND, 5), bridge, Vlan(bridge, 3)]
    assert max(keys) == Vlan(bridge, 3)


def test_a_key_names_its_class_and_parts():
    assert repr(Vlan(BOND, 5)) == "Vlan(VirtualLink('bond', 'bond0'), 5)"
