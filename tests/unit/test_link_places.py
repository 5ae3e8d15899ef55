"""The MAC of a NIC, and the settings of a port or member: when they are set, refused and restored."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from worlds import Agent, Policy, key, mac, machine, nic, texts

from neuca_tools.model import LinkKey
from neuca_tools.state.intentions import record_intentions

OWN = "02:00:00:00:f1:01"
BRIDGE = f"[bridge br0]\nmembers = {mac(2)}, {mac(3)}\n"
BOND = f"[bond bond0]\nmode = active-backup\nmembers = {mac(2)}, {mac(3)}\n"


def section(number, *lines):
    return "\n".join([f"[interface {mac(number)}]", *lines, ""])


def agent(text, *, mgmt=1):
    return Agent(machine(nic(1), nic(2), nic(3), mgmt=mgmt), text)


def passes(one, text=None):
    """The operations of a pass after which a second one has nothing to do."""
    if text is not None:
        one.ask(text)
    _, result, undone = one.run()
    assert (result.failures, result.declined, undone) == ((), (), None)
    assert texts(one.plan()) == []
    return texts(result.done)


def refusals(one):
    return [(problem.link, problem.text) for problem in one.survey().resolution.problems]


def settings(one, index):
    return dict(one.kernel.world().settings[index].values)


@pytest.mark.parametrize("link", ["[bridge br0]\nmembers = ", "[macvlan br0]\nparent = "])
def test_a_link_of_ours_on_an_ignored_nic_is_refused_and_not_created_again(link):
    one = agent(f"{section(3)}{link}{mac(2)}\n")
    passes(one)
    one.settings = one.settings._replace(policy=Policy(ignored=frozenset({mac(2)})))
    assert passes(one, f"{section(3)}{link}{mac(3)}\n") == []
    assert refusals(one) == [
        (LinkKey(link[1:].split("]")[0]), '"br0" depends on a management or ignored NIC')
    ]


# --- The MAC address of a NIC ---------------------------------------------------------------------


def test_a_nic_gets_the_mac_and_has_its_permanent_one_back():
    one = agent(section(2, f"mac = {OWN}", "name = dp1"))
    assert f'set mac of dp1 from "{mac(2)}" to "{OWN}"' in passes(one)
    assert (one.kernel.devices[2].mac, one.kernel.devices[2].permanent_mac) == (OWN, mac(2))
    assert one.record.originals[key(2)].device == {"mac": mac(2)}
    # Its files, role and name go by the permanent one.
    assert one.survey().resolution.roles.by_mac == {
        mac(1): "management",
        mac(2): "dataplane",
        mac(3): "unlisted",
    }
    assert f'set mac of dp1 from "{OWN}" to "{mac(2)}"' in passes(one, section(2, "name = dp1"))
    assert one.kernel.devices[2].mac == mac(2)
    assert key(2) not in one.record.originals


def test_a_nic_that_no_document_names_any_more_has_its_permanent_mac_back():
    one = agent(section(2, f"mac = {OWN}") + section(3))
    passes(one)
    assert f'set mac of eth2 from "{OWN}" to "{mac(2)}"' in passes(one, section(3))


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (mac(1), f'the MAC address {mac(1)} is that of the management NIC "eth1"'),
        (
            mac(3),
            f'the MAC address {mac(3)} is that of "eth3", which is not one of its lower devices',
        ),
        (mac(9), f"the MAC address {mac(9)} is that of another NIC"),
    ],
)
def test_no_nic_gets_the_mac_of_another_one(wanted, reason):
    one = agent(section(2, f"mac = {wanted}") + section(9))
    passes(one)
    assert (key(2), f"mac {wanted}: {reason}") in refusals(one)
    assert one.kernel.devices[2].mac == mac(2)


def test_two_nics_cannot_swap_their_macs_and_one_mac_goes_to_neither_of_two():
    swapped = section(2, f"mac = {mac(3)}") + section(3, f"mac = {mac(2)}")
    same = section(2, f"mac = {OWN}") + section(3, f"mac = {OWN}")
    for text in (swapped, same):
        one = agent(text)
        passes(one)
        assert [one.kernel.devices[index].mac for index in (2, 3)] == [mac(2), mac(3)]
        assert len(refusals(one)) == 2


def test_the_management_nic_and_an_ignored_one_keep_their_mac():
    text = section(1, f"mac = {OWN}") + section(2, f"mac = {OWN}")
    one = Agent(machine(nic(1), nic(2), nic(3), mgmt=1), text, Policy(ignored=frozenset({mac(2)})))
    one.run()
    assert [one.kernel.devices[index].mac for index in (1, 2)] == [mac(1), mac(2)]


def test_a_nic_without_a_permanent_mac_keeps_its_own_because_it_is_known_by_that():
    kernel = machine(nic(1), nic(2)._replace(permanent_mac=""), mgmt=1)
    one = Agent(kernel, section(2, f"mac = {OWN}"))
    passes(one)
    assert one.kernel.devices[2].mac == mac(2)
    assert [note.reason for note in one.survey().resolution.notes] == [
        "its driver reports no permanent MAC address, by which the NIC is known"
    ]


def test_a_bond_has_the_say_over_the_mac_of_its_members():
    one = agent(section(2, f"mac = {OWN}"))
    passes(one)
    done = passes(one, BOND + section(2, f"mac = {OWN}"))
    assert f'set mac of eth2 from "{OWN}" to "{mac(2)}"' in done
    reason = f"mac {OWN}: it is in a bond, which sets the MAC address of its members"
    assert refusals(one) == [(key(2), reason)]
    assert [one.kernel.devices[index].mac for index in (2, 3)] == [mac(2), mac(2)]
    passes(one, section(2, f"mac = {OWN}") + section(3))
    assert [one.kernel.devices[index].mac for index in (2, 3)] == [OWN, mac(3)]
    assert one.record.originals[key(2)].device == {"mac": mac(2)}


def test_a_mac_is_restored_although_the_pass_that_set_it_died():
    one = agent(section(2, f"mac = {OWN}"))
    decision = one.survey()
    # The record is saved before the first change.
    one.record = record_intentions(decision.record, decision.plan())
    one.carry_out(decision, decision.plan())
    assert one.kernel.devices[2].mac == OWN
    passes(one, section(2))
    assert one.kernel.devices[2].mac == mac(2)


# --- Ports of a bridge, members of a bond ---------------------------------------------------------


def test_a_port_gets_its_cost_and_priority_once_it_is_in_the_bridge_and_loses_them():
    asked = section(2, "path-cost = 50", "port-priority = 5")
    one = agent(BRIDGE + asked)
    done = passes(one)
    assert done.index("add eth2 to br0") < done.index('set path-cost of eth2 to "50"')
    assert one.kernel.devices[2].port == (("path-cost", "50"), ("port-priority", "5"))
    assert passes(one, BRIDGE + section(2, "path-cost = 50")) == [
        'set port-priority of eth2 from "5" to "32"'
    ]
    assert passes(one, BRIDGE + section(2)) == ['set path-cost of eth2 from "50" to "100"']
    assert key(2) not in one.record.originals


def test_a_port_that_leaves_or_moves_takes_nothing_along():
    one = agent(BRIDGE + section(2, "path-cost = 50"))
    passes(one)
    moved = f"[bridge br1]\nmembers = {mac(2)}\n"
    passes(one, moved + section(2, "path-cost = 60") + section(3))
    assert dict(one.kernel.devices[2].port)["path-cost"] == "60"
    done = passes(one, section(2) + section(3))
    assert not [text for text in done if "path-cost" in text]
    assert one.record.originals == {}


def test_a_setting_of_a_port_has_no_effect_elsewhere():
    one = agent(BOND + section(2, "path-cost = 50") + section(3, "bond-primary = yes"))
    passes(one)
    notes = {note.setting: note.reason for note in one.survey().resolution.notes}
    assert notes == {"path-cost": "it is in no bridge that neucad created"}


def test_the_primary_member_moves_and_goes():
    one = agent(BOND + section(2, "bond-primary = yes"))
    assert 'set bond-primary of eth2 to "yes"' in passes(one)
    bond = one.kernel.named("bond0").index
    assert one.kernel.devices[bond].primary == 2
    passes(one, BOND + section(3, "bond-primary = yes"))
    assert one.kernel.devices[bond].primary == 3
    passes(one, BOND)
    assert one.kernel.devices[bond].primary == 0


def test_of_two_primary_members_none_is_and_a_mode_without_one_declines():
    one = agent(BOND + section(2, "bond-primary = yes") + section(3, "bond-primary = yes"))
    passes(one)
    assert one.kernel.named("bond0").primary == 0
    assert len(refusals(one)) == 2
    one = agent(BOND.replace("active-backup", "802.3ad") + section(2, "bond-primary = yes"))
    _, result, undone = one.run()
    assert [failure.reason for failure in result.declined] == ["Permission denied"]
    assert (result.failures, undone, texts(one.plan())) == ((), None, [])
    passes(one, BOND + section(2, "bond-primary = yes"))
    assert one.kernel.named("bond0").primary == 2  # in a mode that has one


def test_wake_on_lan_is_set_and_restored():
    one = agent(section(2, "wake-on-lan = magic"))
    assert 'set wake-on-lan of eth2 from "off" to "magic"' in passes(one)
    assert settings(one, 2)["wake-on-lan"] == "magic"
    assert passes(one, section(2)) == ['set wake-on-lan of eth2 from "magic" to "off"']


def test_a_port_that_joins_a_bond_does_not_get_the_path_cost_that_it_had_in_a_bridge():
    agent_ = agent(BRIDGE + section(2, "path-cost = 50"))
    passes(agent_)
    done = passes(agent_, BOND + section(2) + section(3))
    assert not [text for text in done if "path-cost" in text]
    assert passes(agent_) == []
