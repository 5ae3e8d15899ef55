"""What a pass remembers: who is who, what is ours, what was before us, and what may change now; over passes and boots."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_interface

import pytest
from worlds import Agent, bare, key, mac, machine, nic, route, texts, vlan

from neuca_tools.apply.result import Failure, Result
from neuca_tools.desired import marks
from neuca_tools.desired.roles import Policy
from neuca_tools.model import (
    Device,
    Incarnation,
    LinkKey,
    NicRecord,
    OriginalValues,
    OwnedObjects,
    Record,
    World,
    WrittenSetting,
    links,
)
from neuca_tools.plan.link_operations import CreateLink
from neuca_tools.plan.operation import Target
from neuca_tools.plan.operations import AddAddress, SetMtu, SetTxQueueLen, WriteSysctl
from neuca_tools.state import changes, intentions, updates

TEN = ip_interface("10.0.0.1/24")
TWO, THREE = f"[interface {mac(2)}]\n", f"[interface {mac(3)}]\n"
RP = "net/ipv4/conf/{interface}/rp_filter"
BIG = (
    TWO
    + "mtu = 9000\ntxqueuelen = 5000\nsysctl.net.ipv4.conf.{interface}.rp_filter = 2\naddresses = 10.0.0.1/24\n"
)


def small(text="", *devices, **more):
    return Agent(machine(nic(1), nic(2), nic(3), *devices, mgmt=1), text, **more)


def poll(agent):
    """A pass that is no start; what it did."""
    operations, result, _ = agent.run(start=False)
    assert result.failures == ()
    return texts(operations)


# --- intend ---------------------------------------------------------------------------------------------------------


def test_what_operations_will_make_ours_is_known_before_they_run():
    target, child = Target(key(2), "eth2", 2), Target(key(2, 7), "eth2.7")
    operations = [
        CreateLink(child, parent=target),
        SetMtu(child, 1500, 1400),
        SetMtu(target, 1500, 9000),
        SetMtu(target, 9000, 8000),
        SetTxQueueLen(target, 1000, 5),
        AddAddress(target, TEN),
        WriteSysctl("net/ipv4/conf/eth2/rp_filter", "0", "1", target),
        WriteSysctl("net/core/rmem_max", "7", "8"),
        WriteSysctl("net/core/wmem_max", None, "8"),
    ]
    record = intentions.record_intentions(Record(), operations)
    assert record.owned == OwnedObjects(frozenset({(key(2), TEN)}), frozenset({key(2, 7)}))
    assert record.originals == {key(2): OriginalValues(1500, 1000, {RP: "0"})}
    assert record.original_sysctls == {"net/core/rmem_max": "7"}


def test_the_first_original_is_kept():
    target = Target(key(2), "eth2", 2)
    once = intentions.record_intentions(
        Record(), [SetMtu(target, 1500, 9000), WriteSysctl("net/core/rmem_max", "7", "8")]
    )
    again = intentions.record_intentions(
        once, [SetMtu(target, 9000, 1400), WriteSysctl("net/core/rmem_max", "8", "9")]
    )
    assert (again.originals, again.original_sysctls) == (once.originals, once.original_sysctls)


def test_the_original_of_a_sysctl_survives_a_name_with_dots():
    target = Target(key(2, 7), "eth2.7", 9)
    record = intentions.record_intentions(
        Record(), [WriteSysctl("net/ipv4/conf/eth2.7/rp_filter", "0", "1", target)]
    )
    assert record.originals == {key(2, 7): OriginalValues(sysctls={RP: "0"})}


# --- over passes ----------------------------------------------------------------------------------------------------


def test_what_is_no_longer_asked_for_goes_back_to_what_it_was():
    agent = small(BIG)
    agent.kernel.set_mtu(2, 1400)
    agent.run()
    assert agent.record.originals == {key(2): OriginalValues(1400, 1000, {RP: "0"})}
    agent.ask(TWO)
    assert poll(agent) == [
        "set the MTU of eth2 from 9000 to 1400",
        "set the transmit queue length of eth2 from 5000 to 1000",
        'set the sysctl net.ipv4.conf.eth2.rp_filter from "2" to "0"',
        "delete the address 10.0.0.1/24 from eth2",
    ]
    assert (agent.record.originals, agent.record.owned) == ({}, OwnedObjects())
    assert texts(agent.plan()) == []


def test_a_nic_that_is_no_longer_named_gives_all_back_but_stays_up():
    agent = small(BIG + f"[vlan {mac(2)}.7]\n")
    agent.run()
    agent.ask("[interfaces]\n")
    assert poll(agent) == [
        "delete the VLAN eth2.7",
        "set the MTU of eth2 from 9000 to 1500",
        "set the transmit queue length of eth2 from 5000 to 1000",
        'set the sysctl net.ipv4.conf.eth2.rp_filter from "2" to "0"',
        "delete the address 10.0.0.1/24 from eth2",
    ]
    assert agent.kernel.devices[2].up
    assert agent.record.nics[mac(2)] == NicRecord(name="eth2")


def test_an_original_that_is_asked_for_is_kept_for_later():
    agent = small(TWO + "mtu = 9000\n")
    agent.run()
    agent.ask(TWO + "mtu = 1500\n")
    agent.run(start=False)
    agent.kernel.set_mtu(2, 1400)
    agent.ask(TWO)
    assert poll(agent) == ["set the MTU of eth2 from 1400 to 1500"]


def test_a_global_sysctl_goes_back_with_the_last_link_that_asks_for_it():
    agent = small(
        TWO + "sysctl.net.core.rmem_max = 70000\n" + THREE + "sysctl.net.core.rmem_max = 70000\n"
    )
    agent.run()
    assert agent.record.original_sysctls == {"net/core/rmem_max": "0"}
    agent.ask(TWO + "sysctl.net.core.rmem_max = 70000\n" + THREE)
    assert poll(agent) == []
    agent.ask(TWO + THREE)
    assert poll(agent) == ['set the sysctl net.core.rmem_max from "70000" to "0"']
    assert agent.record.original_sysctls == {}


def test_an_incomplete_document_keeps_all_of_the_nic_that_it_is_not_sure_of():
    agent = small(BIG)
    agent.run()
    agent.ask(TWO + "addresses = 10.0.0.1/33\nmtu = bogus\n")
    assert poll(agent) == []
    agent.ask("[interfaces]\nnonsense = 1\n")
    assert poll(agent) == []
    agent.ask("")
    assert poll(agent) == []


@pytest.mark.parametrize(
    "lines",
    [
        f"[interfces]\n{mac(2)} = up:ipv4:10.0.0.1/24\n",
        f"[interfaces]\n{mac(2)[:-1]}z = up:ipv4:10.0.0.1/24\n",
        f"[interface {mac(2)[:-1]}z]\naddresses = 10.0.0.1/24\n",
    ],
)
def test_a_line_that_may_be_about_any_nic_keeps_what_every_nic_has(lines):
    agent = small(TWO + "addresses = 10.0.0.1/24\n")
    agent.run()
    agent.ask(TWO + lines)
    assert poll(agent) == []


def test_an_error_beyond_those_that_are_reported_keeps_what_every_nic_has():
    agent = small(TWO + "addresses = 10.0.0.1/24\n" + THREE)
    agent.run()
    agent.ask(THREE + "bogus = 1\n" * 1000 + TWO + "addresses = 10.0.0.1/33\n")
    assert len(agent.document.faults) == 1001
    assert poll(agent) == []


@pytest.mark.parametrize("lines", ["[routes]\nx = y\n", "[users]\nx\n", "[global]\nrouter = x\n"])
def test_an_error_that_is_about_no_nic_keeps_no_address(lines):
    agent = small(TWO + "addresses = 10.0.0.1/24\n")
    agent.run()
    agent.ask(TWO + lines)
    assert poll(agent) == ["delete the address 10.0.0.1/24 from eth2"]


def test_an_address_that_the_user_had_before_is_not_ours():
    agent = small(TWO + "addresses = 10.0.0.1/24\n")
    agent.kernel.add_address(2, TEN)
    agent.run()
    agent.ask(TWO)
    assert poll(agent) == []


def test_an_address_that_moves_from_one_nic_to_another():
    agent = small(TWO + "addresses = 10.0.0.1/24\n" + THREE)
    agent.run()
    agent.ask(TWO + THREE + "addresses = 10.0.0.1/24\n")
    assert poll(agent) == [
        "add the address 10.0.0.1/24 to eth3",
        "delete the address 10.0.0.1/24 from eth2",
    ]
    assert agent.record.owned.addresses == {(key(3), TEN)}


def test_an_address_deleted_and_added_again_is_the_agents_unless_seen_missing():
    agent = small(TWO + "addresses = 10.0.0.1/24\n")
    agent.run()
    agent.kernel.delete_address(2, TEN)
    assert poll(agent) == []
    assert agent.record.owned.addresses == frozenset()


def test_a_vlan_that_the_user_made_is_never_deleted():
    agent = small(f"[vlan {mac(2)}.7]\naddresses = 10.0.0.1/24\n", vlan(9, 2, 7))
    agent.run()
    agent.ask("[interfaces]\n")
    assert poll(agent) == ["delete the address 10.0.0.1/24 from eth2.7"]
    assert 9 in agent.kernel.devices


# --- drift ----------------------------------------------------------------------------------------------------------


def test_what_a_user_changed_by_hand_stays_until_a_start():
    agent = small(BIG)
    agent.run()
    agent.kernel.set_mtu(2, 1500)
    agent.kernel.delete_address(2, TEN)
    assert poll(agent) == []
    assert agent.survey().changed() == frozenset()
    operations, _, _ = agent.run(start=True)
    assert texts(operations) == [
        "set the MTU of eth2 from 1500 to 9000",
        "add the address 10.0.0.1/24 to eth2",
    ]


def test_a_sysctl_of_the_host_that_a_user_changed_by_hand_stays_until_a_start_too():
    agent = small(TWO + "sysctl.net.core.rmem_max = 70000\n" + THREE)
    agent.run()
    agent.kernel.sysctls["net/core/rmem_max"] = "9"
    agent.ask(TWO + "sysctl.net.core.rmem_max = 70000\n" + THREE + "mtu = 1400\n")
    assert poll(agent) == ["set the MTU of eth3 from 1500 to 1400"]
    operations, _, _ = agent.run(start=True)
    assert texts(operations) == ['set the sysctl net.core.rmem_max from "9" to "70000"']


def test_only_the_nic_whose_request_changed_is_set_right():
    agent = small(BIG + THREE + "mtu = 9000\n")
    agent.run()
    for index in (2, 3):
        agent.kernel.set_mtu(index, 1500)
    agent.ask(BIG + THREE + "mtu = 8000\n")
    assert agent.survey().changed() == {mac(3)}
    assert poll(agent) == ["set the MTU of eth3 from 1500 to 8000"]


def test_a_nic_that_comes_back_is_set_up_again_with_its_vlans_and_no_other():
    agent = small(BIG + f"[vlan {mac(2)}.7]\naddresses = 10.0.7.1/24\n" + THREE + "mtu = 9000\n")
    agent.run()
    agent.kernel.delete_link(2)
    agent.kernel.set_mtu(3, 1500)
    assert poll(agent) == []
    agent.kernel.devices[22] = nic(22, "eth2", mac=mac(2), permanent_mac=mac(2))
    assert agent.survey().changed() == {mac(2)}
    assert poll(agent) == [
        "set the MTU of eth2 from 1500 to 9000",
        "set the transmit queue length of eth2 from 1000 to 5000",
        "create VLAN 7 on eth2 as eth2.7",
        'set the sysctl net.ipv4.conf.eth2.rp_filter from "0" to "2"',
        "bring eth2 up",
        "bring eth2.7 up",
        "add the address 10.0.0.1/24 to eth2",
        "add the address 10.0.7.1/24 to eth2.7",
    ]
    assert agent.kernel.devices[3].mtu == 1500


def test_the_originals_of_a_replugged_nic_are_read_when_it_returns():
    agent = small(TWO + "mtu = 9000\n")
    agent.run()
    agent.kernel.delete_link(2)
    agent.run(start=False)
    agent.kernel.devices[22] = nic(22, "eth2", mac=mac(2), permanent_mac=mac(2), mtu=1400)
    agent.run(start=False)
    agent.ask(TWO)
    assert poll(agent) == ["set the MTU of eth2 from 9000 to 1400"]


def test_a_nic_that_failed_is_tried_again_at_the_next_look():
    from kernel import refuse

    agent = small(BIG)
    set_mtu = agent.kernel.set_mtu
    agent.kernel.set_mtu = lambda index, mtu: (
        refuse(22, "Invalid argument") if mtu == 9000 else set_mtu(index, mtu)
    )
    agent.run()
    assert agent.survey().changed() == {mac(2)}
    agent.kernel.set_mtu = set_mtu
    assert "set the MTU of eth2 from 1500 to 9000" in poll(agent)
    assert agent.survey().changed() == frozenset()


def test_a_sysctl_that_failed_is_tried_again_and_nothing_else_of_its_nic_is():
    from kernel import refuse

    agent = small(BIG + "sysctl.net.core.rmem_max = 70000\n")
    write, bad = agent.kernel.write_sysctl, ("net/ipv4/conf/eth2/rp_filter", "net/core/rmem_max")
    agent.kernel.write_sysctl = lambda path, value: (
        refuse(22, "Invalid argument") if path in bad else write(path, value)
    )
    agent.run()
    agent.kernel.set_mtu(2, 1500)
    for _ in range(2):
        assert agent.survey().changed() == set(bad)
        agent.run(start=False)
    agent.kernel.write_sysctl = write
    assert poll(agent) == [
        'set the sysctl net.core.rmem_max from "0" to "70000"',
        'set the sysctl net.ipv4.conf.eth2.rp_filter from "0" to "2"',
    ]
    assert agent.survey().changed() == frozenset()
    assert agent.kernel.devices[2].mtu == 1500


def test_a_sysctl_that_another_program_puts_back_is_not_fought_over():
    write = WriteSysctl("net/core/rmem_max", "0", "7")
    assert Result((), (Failure(write, "done, but it is not so"),)).refused_settings == ()
    assert Result((), (Failure(write, "Invalid argument", 22),)).refused_settings == (
        "net/core/rmem_max",
    )


VLAN = f"[vlan {mac(2)}.7]\naddresses = 10.0.7.1/24\nmtu = 9000\nsysctl.net.ipv4.conf.{{interface}}.rp_filter = 2\n"
VLAN_ROUTE = "[routes]\n10.20.0.0/16 = 10.0.7.9\n"


def test_a_vlan_that_somebody_made_again_has_appeared_and_its_nic_has_not():
    agent = small(BIG + VLAN + VLAN_ROUTE)
    agent.run()
    agent.kernel.delete_link(
        next(one.index for one in agent.kernel.devices.values() if one.vlan_id)
    )
    agent.kernel.set_txqueuelen(2, 77)
    assert poll(agent) == []
    agent.kernel.devices[40] = vlan(40, 2, 7)
    assert agent.survey().changed() == {f"{mac(2)}.7"}
    assert poll(agent) == [
        "set the MTU of eth2.7 from 1500 to 9000",
        'set the sysctl net.ipv4.conf.eth2/7.rp_filter from "0" to "2"',
        "bring eth2.7 up",
        "add the address 10.0.7.1/24 to eth2.7",
        "route 10.20.0.0/16 via 10.0.7.9 on eth2.7",
    ]
    assert agent.kernel.devices[2].txqueuelen == 77
    agent.kernel.set_mtu(40, 1400)
    assert agent.survey().changed() == frozenset()
    assert poll(agent) == []


def test_a_vlan_that_was_made_again_and_then_fails_is_tried_again():
    from kernel import refuse

    agent = small(BIG + VLAN)
    agent.run()
    agent.kernel.delete_link(
        next(one.index for one in agent.kernel.devices.values() if one.vlan_id)
    )
    agent.kernel.devices[40] = vlan(40, 2, 7)
    add = agent.kernel.add_address
    agent.kernel.add_address = lambda index, address, *more: (
        refuse(12, "Cannot allocate memory") if index == 40 else add(index, address, *more)
    )
    agent.run(start=False)
    agent.kernel.add_address = add
    assert "add the address 10.0.7.1/24 to eth2.7" in poll(agent)
    assert agent.survey().changed() == frozenset()


def test_a_nic_that_is_no_longer_named_is_left_once_and_then_not_looked_at():
    agent = small(BIG)
    agent.run()
    agent.ask("[interfaces]\n")
    assert agent.survey().changed() == {mac(2)}
    agent.run(start=False)
    assert agent.survey().changed() == frozenset()


def test_an_absent_nic_is_not_changed_for_ever():
    agent = small(f"[interface {mac(9)}]\nmtu = 9000\n")
    agent.run()
    assert agent.survey().changed() == frozenset()


def test_a_management_nic_that_a_document_names_is_not_changed_for_ever():
    agent = small(f"[interface {mac(1)}]\n")
    agent.run()
    assert agent.survey().plan(agent.survey().changed()) == ()


def test_routes_through_the_users_addresses_are_set_when_they_change():
    text = f"[interfaces]\n{mac(2)} = up\n{mac(3)} = up\n[routes]\n"
    agent = small(text)
    agent.run()
    agent.kernel.add_address(3, ip_interface("10.7.0.1/24"))
    agent.ask(text + "10.20.0.0/16 = 10.7.0.9\n")
    assert poll(agent) == ["route 10.20.0.0/16 via 10.7.0.9 on eth3"]
    agent.ask(text)
    assert poll(agent) == ["delete the route to 10.20.0.0/16 via 10.7.0.9 on eth3"]


def test_a_route_that_is_banned_from_now_on_goes_at_once():
    text = f"[interfaces]\n{mac(2)} = up:ipv4:10.0.0.1/24\n[routes]\n10.20.0.0/16 = "
    agent = small(text + "10.0.0.9\n")
    agent.run()
    agent.ask(text + "down\n")
    assert poll(agent) == ["delete the route to 10.20.0.0/16 via 10.0.0.9 on eth2"]


def test_a_prefix_that_is_banned_from_now_on_loses_the_routes_of_users_too():
    text = f"[interfaces]\n{mac(2)} = up\n[routes]\n"
    agent = small(text)
    agent.run()
    agent.kernel.routes.append(route("10.20.0.0/16", 2, "10.7.0.9", 5, 4))
    agent.ask(text + "10.20.0.0/16 = down\n")
    assert poll(agent) == ["delete the route to 10.20.0.0/16 via 10.7.0.9 on eth2"]


# --- boots ----------------------------------------------------------------------------------------------------------


def test_after_a_boot_nothing_is_ours_and_everything_is_set_up_anew():
    agent = small(BIG + f"[vlan {mac(2)}.7]\n")
    agent.run()
    agent.reboot()
    record = changes.after_boot(agent.record, agent.kernel.boot_id)
    assert (record.owned, record.originals) == (
        OwnedObjects(),
        {key(2): OriginalValues(sysctls={RP: "0"})},
    )
    assert agent.survey().changed() == {mac(2)}
    first = poll(agent)
    assert first[:1] + first[-1:] == [
        "set the MTU of eth2 from 1500 to 9000",
        "add the address 10.0.0.1/24 to eth2",
    ]
    assert texts(agent.plan()) == []


def test_a_document_changed_while_off_removes_only_what_is_still_present():
    agent = small(BIG)
    agent.run()
    agent.reboot()
    agent.ask("[interfaces]\n")
    assert poll(agent) == []
    assert agent.record.originals == {}


def test_an_address_added_after_a_boot_is_the_users_even_if_it_was_ours_before():
    agent = small(BIG)
    agent.run()
    agent.reboot()
    agent.kernel.add_address(2, TEN)
    agent.ask(TWO)
    assert "delete the address 10.0.0.1/24 from eth2" not in poll(agent)


def test_roles_stick_over_a_boot_and_a_default_route_on_a_dataplane_nic():
    agent = small(BIG)
    agent.run()
    agent.kernel.routes = [
        replace(one, index=2) if one.to.prefixlen == 0 else one for one in agent.kernel.routes
    ]
    assert agent.survey().resolution.roles.by_mac == {
        mac(1): "management",
        mac(2): "dataplane",
        mac(3): "unlisted",
    }
    assert poll(agent) == []


def test_the_same_boot_changes_nothing():
    record = Record(
        "b", owned=OwnedObjects(vlans=frozenset({key(2, 7)})), originals={key(2): OriginalValues(1)}
    )
    assert changes.after_boot(record, "b") is record


# --- who is who -----------------------------------------------------------------------------------------------------


def test_each_nic_is_remembered_by_its_first_name_and_its_role():
    agent = small(TWO)
    agent.run()
    assert {
        one[-2:]: (nic_record.name, nic_record.role)
        for one, nic_record in agent.record.nics.items()
    } == {
        "01": ("eth1", "management"),
        "02": ("eth2", "dataplane"),
        "03": ("eth3", ""),
    }
    agent.kernel.set_up(2, False)
    agent.kernel.rename(2, "byhand")
    assert poll(agent) == []
    operations, _, _ = agent.run(start=True)
    assert texts(operations) == ["rename byhand to eth2", "bring eth2 up"]


def test_a_name_that_was_refused_is_not_remembered():
    agent = small(TWO + "name = eth1\n")
    agent.run()
    assert agent.record.nics[mac(2)].name == "eth2"


def test_an_ignored_nic_is_not_remembered():
    agent = small(TWO, policy=Policy(frozenset({mac(2)})))
    agent.run()
    assert mac(2) not in agent.record.nics


def test_a_released_nic_is_forgotten_but_for_its_release():
    agent = small(BIG + f"[vlan {mac(2)}.7]\n" + THREE)
    agent.run()
    record = updates.forget_nics(agent.record, [mac(2)])
    assert record.nics[mac(2)] == NicRecord(released=True)
    assert (record.owned, record.originals) == (OwnedObjects(), {})
    agent.record = record
    assert texts(agent.plan()) == []
    agent.run()
    assert (agent.record.nics[mac(2)].released, agent.record.nics[mac(2)].role) == (True, "")


@pytest.mark.parametrize(
    ("text", "role"),
    [
        (TWO, "dataplane"),
        ("", "dataplane"),
        ("[interfaces]\nnonsense = 1\n", "dataplane"),
        ("[interfaces]\n", ""),
    ],
)
def test_a_nic_is_dataplane_until_a_complete_document_no_longer_has_it(text, role):
    agent = small(TWO)
    agent.run()
    agent.ask(text)
    agent.run(start=False)
    assert agent.record.nics[mac(2)].role == role


def test_settle_forgets_what_somebody_else_took_away():
    agent = small(BIG + f"[vlan {mac(2)}.7]\n")
    agent.run()
    agent.kernel.delete_link(agent.kernel.named("eth2.7").index)
    agent.kernel.delete_address(2, TEN)
    agent.run(start=False)
    assert agent.record.owned == OwnedObjects()


def test_what_was_written_to_a_bond_is_forgotten_once_another_bond_has_its_name():
    bond = LinkKey("bond bond0")
    written = {
        WrittenSetting("mtu", bond): "9000",
        WrittenSetting("txqueuelen", LinkKey("bond bond0", 5)): "500",
        WrittenSetting("mtu", key(2)): "9000",
        WrittenSetting("net/core/rmem_max"): "8",
    }
    record = Record(
        "boot", {bond.mac: NicRecord(incarnation=Incarnation("boot", 5))}, written=written
    )
    kept = changes.forget_stale(record, World({5: Device(5, "bond0", "bond")}, boot_id="boot"))
    assert kept.written == written
    anew = changes.forget_stale(record, World({9: Device(9, "bond0", "bond")}, boot_id="boot"))
    assert anew.written == {
        WrittenSetting("mtu", key(2)): "9000",
        WrittenSetting("net/core/rmem_max"): "8",
    }


def test_an_address_of_ours_that_somebody_deprecated_is_removed_with_its_request():
    """It counts as absent as long as it is requested, so that a start uses it again."""
    kernel, deprecated = machine(nic(1), nic(2), mgmt=1), ip_interface("10.0.5.1/24")
    text = f"[interface {mac(2)}]\naddresses = 10.0.0.1/24"
    agent, read_world = Agent(kernel, f"{text}, {deprecated}\n"), kernel.world
    agent.run()
    kernel.world = lambda: replace(read_world(), deprecated=frozenset({(2, deprecated)}))
    assert [operation.text for operation in agent.plan()] == [
        f"add the address {deprecated} to eth2"
    ]
    assert agent.run(start=False)[0] == ()
    agent.ask(f"{text}\n")
    agent.run(start=False)
    assert deprecated not in kernel.addresses[2]


@pytest.mark.parametrize(("name", "other"), [("eth1", "eth2"), ("eth2", "eth1")])
def test_a_name_that_two_nics_have_recorded_is_for_the_management_nic(name, other):
    """One had replaced the other, and both are present."""
    agent = Agent(machine(nic(1, other), nic(2, name), mgmt=2))
    agent.record = Record(
        nics={
            mac(1): NicRecord("eth1", "management" if other == "eth2" else ""),
            mac(2): NicRecord("eth1", "management"),
        }
    )
    agent.run()
    problems = agent.survey().resolution.problems
    kept = agent.record
    assert (agent.run()[0], agent.record) == ((), kept)
    assert kept.nics[mac(2)].name == "eth1"
    rules = {
        path[-18:-6]: text for path, text in agent.kernel.files.items() if path.endswith("rules")
    }
    assert b'NAME:="eth1"' in rules[bare(2)]
    if name == "eth1":
        assert (kept.nics[mac(1)].name, problems) == ("eth2", ())
        assert b'NAME:="eth2"' in rules[bare(1)]
    else:
        assert [(problem.code, problem.link) for problem in problems] == [("name", key(2))]


def test_absent_nics_with_random_macs_are_forgotten_once_there_are_too_many():
    """Not a management NIC, and no NIC that a document has named or that was released."""
    kept = {
        mac(7): NicRecord("eth7", "management"),
        mac(8): NicRecord("eth8", "dataplane"),
        mac(9): NicRecord(released=True),
    }
    agent = Agent(machine(nic(1), nic(2), mgmt=1))
    agent.run()
    for count, is_kept in ((links.MAX_ABSENT_NICS, True), (links.MAX_ABSENT_NICS + 1, False)):
        passing = {f"06:00:00:00:{n >> 8:02x}:{n & 255:02x}": f"r{n}" for n in range(count)}
        recorded = {one: NicRecord(name) for one, name in passing.items()}
        agent.record = agent.record._replace(nics={**agent.record.nics, **kept, **recorded})
        for _ in range(2):
            agent.run()
        paths = [path for path, content in agent.kernel.files.items() if content]
        paths = [path for path in paths if path.startswith("/udev/")]
        rules = {marks.rule_mac(path.removeprefix("/udev/"), "neuca-persistent") for path in paths}
        assert (passing.keys() <= agent.record.nics.keys()) is is_kept
        assert (passing.keys() <= rules) is is_kept
        assert {mac(1), mac(2), *kept} <= agent.record.nics.keys()
        assert agent.plan() == ()
    assert {mac(1), mac(2), mac(7), mac(8)} == rules


def test_a_lost_record_is_read_from_the_rules():
    """Names that udev could not swap back are not recorded, and marks stay without a document."""
    agent = Agent(machine(nic(1), nic(2), nic(3), mgmt=1), THREE)
    agent.run()
    agent.ask("")
    nics, files = agent.record.nics, dict(agent.kernel.files)
    agent.kernel = machine(nic(1, "eth2"), nic(2, "eth1"), nic(3), mgmt=1)
    agent.kernel.files, agent.record = dict(files), Record()
    for _ in range(2):
        agent.run()
        assert agent.kernel.files == files
        assert {one: (each.name, each.role) for one, each in agent.record.nics.items()} == {
            one: (each.name, each.role) for one, each in nics.items()
        }


@pytest.mark.parametrize("devices", [[nic(2)], [nic(1, "data"), nic(2)]])
def test_no_document_names_the_management_nic_in_record_or_rule(devices):
    """Neither while it is absent, nor if somebody has given it that name."""
    agent = Agent(machine(nic(1), nic(2), mgmt=1), TWO)
    agent.run()
    agent.ask(f"[interface {mac(1)}]\nname = data\n{TWO}")
    rules, names = dict(agent.kernel.files), agent.record.nics[mac(1)].name
    agent.kernel = machine(*devices, mgmt=devices[0].index if devices[1:] else None)
    agent.kernel.files = dict(rules)
    agent.run()
    path = f"/udev/15-neuca-persistent-{bare(1)}.rules"
    assert (agent.kernel.files[path], agent.record.nics[mac(1)].name) == (rules[path], names)


def test_a_name_in_a_rule_that_another_nic_has_got_meanwhile_stays_with_that_nic():
    """The record was lost while the NIC of the rule was absent."""
    agent = Agent(machine(nic(1), nic(2), mgmt=1))
    agent.run()
    rules = dict(agent.kernel.files)
    agent.kernel = machine(nic(1), nic(3, "eth2"), mgmt=1)
    agent.kernel.files, agent.record = dict(rules), Record()
    agent.run()
    rules = dict(agent.kernel.files)
    agent.kernel = machine(nic(1), nic(2, "eth5"), nic(3, "eth2"), mgmt=1)
    agent.kernel.files = rules
    agent.run()
    names = {one: nic.name for one, nic in agent.record.nics.items()}
    assert names == {mac(1): "eth1", mac(2): "eth5", mac(3): "eth2"}
