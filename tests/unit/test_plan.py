"""The order and the words of a plan, what it takes away and what it leaves, scopes, and its use for the way back."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from ipaddress import ip_address, ip_interface, ip_network

import pytest
from kernel import Kernel
from worlds import Agent, key, mac, machine, nic, texts, vlan, world

from neuca_tools.apply.result import Result
from neuca_tools.model import Hop, Link, NetworkState, OwnedObjects, Virtual
from neuca_tools.plan.operation import Operation, Phase
from neuca_tools.plan.plan import in_scope, plan_operations

TEN, SIX = ip_interface("10.0.0.1/24"), ip_interface("fd00::1/64")
NET, VIA = ip_network("10.20.0.0/16"), ip_address("10.0.0.254")
NOTHING = OwnedObjects()
RP = "net/ipv4/conf/{interface}/rp_filter"


def link(number, vlan_id=None, **more):
    name = more.pop("name", f"eth{number}" if vlan_id is None else f"eth{number}.{vlan_id}")
    kind = "physical" if vlan_id is None else "vlan"
    return Link(key(number, vlan_id), kind, "dataplane", name, more.pop("index", 0), **more)


def there(number, vlan_id=None, **more):
    """A link as it is found: down, MTU 1500, queue 1000."""
    usual = {
        "state": "down",
        "mtu": 1500,
        "txqueuelen": 1000,
        "index": number if vlan_id is None else number * 10,
    }
    return link(number, vlan_id, **{**usual, **more})


def state(*links, **more):
    return NetworkState({one.key: one for one in links}, **more)


def words(observed, desired, owned=NOTHING, **more):
    return [operation.text for operation in plan_operations(observed, desired, owned, **more)]


def test_a_fresh_nic_with_a_vlan_is_set_up_in_this_order():
    desired = state(
        link(
            2,
            name="data",
            state="up",
            mtu=9000,
            txqueuelen=5000,
            addresses=(TEN,),
            sysctls={RP: "2"},
        ),
        link(2, 7, name="data.7", state="up", mtu=9000, addresses=(SIX,)),
        hops=(Hop(NET, key(2), VIA, 20),),
        sysctls={"net/core/rmem_max": "1"},
        files={"/etc/x": b"new"},
    )
    observed = state(
        there(2, sysctls={RP: "0"}), sysctls={"net/core/rmem_max": "0"}, files={"/etc/x": None}
    )
    assert words(observed, desired) == [
        'write "/etc/x"',
        "rename eth2 to data",
        "set the MTU of data from 1500 to 9000",
        "set the transmit queue length of data from 1000 to 5000",
        "create VLAN 7 on data as data.7 with MTU 9000",
        'set the sysctl net.core.rmem_max from "0" to "1"',
        'set the sysctl net.ipv4.conf.data.rp_filter from "0" to "2"',
        "bring data up",
        "bring data.7 up",
        "add the address 10.0.0.1/24 to data",
        "add the address fd00::1/64 to data.7",
        "route 10.20.0.0/16 via 10.0.0.254 on data",
    ]


def test_what_goes_goes_in_this_order():
    observed = state(
        there(2, state="up", mtu=9000, addresses=(TEN,)),
        there(2, 7, state="up", mtu=9000),
        there(2, 8, state="up", mtu=9000),
        hops=(Hop(NET, key(2), VIA, 20),),
    )
    desired = state(link(2, state="down", mtu=1400), link(2, 8, state="down", mtu=1300))
    owned = OwnedObjects(frozenset({(key(2), TEN)}), frozenset({key(2, 7), key(2, 8)}), routes=True)
    assert words(observed, desired, owned) == [
        "delete the route to 10.20.0.0/16 via 10.0.0.254 on eth2",
        "delete the VLAN eth2.7",
        "set the MTU of eth2.8 from 9000 to 1300",
        "set the MTU of eth2 from 9000 to 1400",
        "bring eth2.8 down",
        "bring eth2 down",
        "delete the address 10.0.0.1/24 from eth2",
    ]


def test_the_mtu_of_a_nic_is_raised_before_that_of_its_vlans():
    observed = state(there(2, mtu=1500), there(2, 7, mtu=1500))
    assert words(observed, state(link(2, mtu=9000), link(2, 7, mtu=8000))) == [
        "set the MTU of eth2 from 1500 to 9000",
        "set the MTU of eth2.7 from 1500 to 8000",
    ]


def test_only_what_is_owned_is_taken_away():
    observed = state(
        there(2, addresses=(TEN, SIX)),
        there(2, 7),
        hops=(Hop(NET, key(2), VIA, 20), Hop(NET, key(2), VIA, 5, ours=False)),
    )
    assert words(observed, state()) == []
    assert words(observed, state(link(2), link(2, 7))) == []
    assert words(observed, state(), OwnedObjects(routes=True)) == [
        "delete the route to 10.20.0.0/16 via 10.0.0.254 on eth2"
    ]
    assert words(observed, state(), OwnedObjects(frozenset({(key(2), SIX)}))) == [
        "delete the address fd00::1/64 from eth2"
    ]


def test_a_vlan_that_goes_takes_its_addresses_and_routes_with_it():
    observed = state(there(2), there(2, 7, addresses=(TEN,)), hops=(Hop(NET, key(2, 7), VIA, 20),))
    owned = OwnedObjects(frozenset({(key(2, 7), TEN)}), frozenset({key(2, 7)}), routes=True)
    assert words(observed, state(link(2)), owned) == ["delete the VLAN eth2.7"]


def test_a_vlan_that_is_to_have_another_mac_is_made_again_if_it_is_ours():
    own, other = (Virtual(options=(("mac", f"02:00:00:00:00:0{number}"),)) for number in (7, 8))
    observed, desired = (
        state(there(2), there(2, 7, virtual=own)),
        state(link(2), link(2, 7, mtu=1400, virtual=other)),
    )
    assert words(observed, desired, OwnedObjects(vlans=frozenset({key(2, 7)}))) == [
        "delete the VLAN eth2.7",
        "create VLAN 7 on eth2 as eth2.7 (mac 02:00:00:00:00:08) with MTU 1400",
    ]
    assert words(observed, state(link(2), link(2, 7, virtual=other))) == []
    assert (
        words(
            observed,
            state(link(2), link(2, 7, virtual=own)),
            OwnedObjects(vlans=frozenset({key(2, 7)})),
        )
        == []
    )
    assert (
        words(observed, state(link(2), link(2, 7)), OwnedObjects(vlans=frozenset({key(2, 7)})))
        == []
    )


def test_a_nic_that_is_not_there_is_not_planned_for():
    desired = state(
        link(2, state="up", mtu=9000),
        link(2, 7, state="up"),
        hops=(Hop(NET, key(2), VIA, 20), Hop(NET, key(2, 7), VIA, 20)),
    )
    assert words(state(), desired, OwnedObjects(routes=True)) == []


def test_the_same_address_with_another_prefix_length_is_another_address():
    observed, new = state(there(2, state="up", addresses=(TEN,))), ip_interface("10.0.0.1/16")
    assert words(
        observed, state(link(2, addresses=(new,))), OwnedObjects(frozenset({(key(2), TEN)}))
    ) == [
        "add the address 10.0.0.1/16 to eth2",
        "delete the address 10.0.0.1/24 from eth2",
    ]


def test_the_operations_of_a_plan_are_in_the_order_of_the_phases():
    observed = state(there(2, state="up"), there(3, state="up"))
    desired = state(link(2, name="eth3", state="down", mtu=1400), link(3, name="eth2", mtu=9000))
    orders = [operation.phase for operation in plan_operations(observed, desired)]
    assert orders == sorted(orders)
    assert (
        Phase.FILES
        < Phase.MARK
        < Phase.RENAME
        < Phase.SHRINK
        < Phase.NIC
        < Phase.VLAN
        < Phase.SYSCTL
        < Phase.UP
        < Phase.ADDRESS
    )


# --- up and down ----------------------------------------------------------------------------------------------------


def test_a_link_on_its_way_down_gets_its_ipv6_addresses_again():
    """The kernel drops them on the way down."""
    observed = state(there(2, state="up", addresses=(TEN, SIX)))
    assert words(observed, state(link(2, state="down", addresses=(TEN, SIX)))) == [
        "bring eth2 down",
        "add the address fd00::1/64 to eth2",
    ]


def test_before_6_2_a_nic_goes_down_for_its_name_and_comes_back_with_all_it_had():
    theirs, local = ip_interface("fd00:9::1/64"), ip_interface("fe80::2/64")
    observed = state(
        there(2, state="up", addresses=(TEN, SIX, theirs, local), foreign_addresses={theirs: b""}),
        there(2, 7, state="up"),
        hops=(Hop(NET, key(2), VIA, 20),),
    )
    desired = state(
        link(2, name="data", state="up", addresses=(TEN, SIX)),
        link(2, 7, name="data.7", state="up"),
        hops=(Hop(NET, key(2), VIA, 20),),
    )
    assert words(
        observed, desired, OwnedObjects(frozenset({(key(2), SIX)})), rename_while_up=False
    ) == [
        "bring eth2 down",
        "rename eth2 to data",
        "bring eth2.7 down",
        "rename eth2.7 to data.7",
        "bring data up",
        "bring data.7 up",
        "add the address fd00::1/64 to data",
        "add the address fd00:9::1/64 to data",
        "route 10.20.0.0/16 via 10.0.0.254 on data",
    ]
    assert words(observed, desired, rename_while_up=True) == [
        "rename eth2 to data",
        "rename eth2.7 to data.7",
    ]


def test_before_6_2_a_nic_goes_down_even_if_only_its_vlan_is_renamed():
    observed = state(there(2, state="up"), there(2, 7, state="up"))
    desired = state(link(2, state="down"), link(2, 7, name="data", state="down"))
    assert words(observed, desired, rename_while_up=False) == [
        "bring eth2.7 down",
        "rename eth2.7 to data",
        "bring eth2 down",
    ]


def test_before_6_2_a_renamed_vlan_takes_nothing_from_its_nic():
    observed = state(there(2, state="up", addresses=(SIX,)), there(2, 7, state="up"))
    desired = state(link(2, addresses=(SIX,)), link(2, 7, name="data"))
    assert words(observed, desired, rename_while_up=False) == [
        "bring eth2.7 down",
        "rename eth2.7 to data",
        "bring data up",
    ]


def test_a_nic_that_is_down_is_renamed_without_a_bounce_and_stays_down():
    assert words(state(there(2)), state(link(2, name="data")), rename_while_up=False) == [
        "rename eth2 to data"
    ]


def small(text, *devices, live=True):
    kernel = machine(nic(1), nic(2, max_mtu=9000), nic(3), *devices, mgmt=1)
    kernel.rename_while_up = live
    return Agent(kernel, text)


@pytest.mark.parametrize(
    ("text", "live"),
    [
        (f"[interfaces]\n{mac(2)} = down\n", True),
        (f"[interface {mac(2)}]\nname = data\n", False),
    ],
)
def test_a_users_ipv6_address_survives_link_down_and_does_not_become_ours(text, live):
    agent = small(text, live=live)
    agent.kernel.set_up(2, True)
    agent.kernel.add_address(2, SIX)
    for _ in range(2):
        agent.run()
        assert texts(agent.plan()) == []
        assert SIX in agent.kernel.addresses[2]
    assert agent.record.owned.addresses == frozenset()


@pytest.mark.parametrize("there_before", [True, False])
def test_a_vlan_that_should_be_down_is_down_after_its_nic_came_up(there_before):
    agent = small(
        f"[interfaces]\n{mac(2)} = up\n[vlan {mac(2)}.7]\nstate = down\n",
        *([vlan(9, 2, 7)] if there_before else []),
    )
    agent.run()
    assert agent.kernel.named("eth2").up
    assert not agent.kernel.named("eth2.7").up
    assert texts(agent.plan()) == []


def test_a_vlan_follows_its_nic_down_and_up_again_with_its_addresses():
    text = f"[interfaces]\n{mac(2)} = up\n[vlan {mac(2)}.7]\naddresses = fd00::1/64\n"
    agent = small(text)
    agent.run()
    agent.kernel.set_up(2, False)
    assert texts(agent.plan()) == [
        "bring eth2 up",
        "bring eth2.7 up",
        "add the address fd00::1/64 to eth2.7",
    ]
    agent.run()
    assert texts(agent.plan()) == []


def test_a_nic_that_is_to_be_down_goes_down_with_a_vlan_that_would_be_up():
    agent = small(f"[interfaces]\n{mac(2)} = down\n[vlan {mac(2)}.7]\n")
    agent.kernel.set_up(2, True)
    _, result, _ = agent.run()
    assert [failure.text for failure in result.failures] == []
    assert not agent.kernel.devices[2].up


@pytest.mark.parametrize("name", ["eth2", "eth2.7", "eth3"])
def test_a_name_that_is_still_in_use_is_judged_the_same_before_and_after_a_pass(name):
    agent = small(
        f"[interface {mac(2)}]\nname = data\n[interface {mac(3)}]\n[vlan {mac(3)}.7]\nname = {name}\n[vlan {mac(2)}.7]\n"
    )
    agent.run()
    assert texts(agent.plan()) == []


# --- scope ----------------------------------------------------------------------------------------------------------


def test_a_scope_holds_the_operations_of_its_nics_and_those_of_no_nic():
    observed, desired = (
        state(there(2), there(3), files={"/x": None}),
        state(
            link(2, mtu=9000),
            link(3, mtu=9000),
            files={"/x": b""},
            sysctls={"net/core/rmem_max": "1"},
        ),
    )
    assert words(observed, desired, scope={mac(3), ""}) == [
        'write "/x"',
        "set the MTU of eth3 from 1500 to 9000",
        'set the sysctl net.core.rmem_max to "1"',
    ]
    assert words(observed, desired, scope=()) == ['write "/x"']


def test_a_route_that_changes_nics_is_in_the_scope_of_both():
    observed = state(there(2), there(3), hops=(Hop(NET, key(2), VIA, 20),))
    desired = state(link(2), link(3), hops=(Hop(NET, key(3), VIA, 20),))
    for one in (2, 3):
        assert words(observed, desired, scope={mac(one)}) == [
            "replace the route to 10.20.0.0/16 via 10.0.0.254 on eth2 with via 10.0.0.254 on eth3"
        ]
    assert words(observed, desired, scope={mac(4)}) == []


def test_a_rename_in_scope_waits_for_one_that_is_not():
    observed = state(there(2), there(3))
    desired = state(link(2, name="eth3"), link(3, name="data"))
    assert words(observed, desired, scope={mac(2)}) == []
    assert words(observed, desired, scope={mac(3)}) == ["rename eth3 to data"]
    assert words(observed, desired) == ["rename eth3 to data", "rename eth2 to eth3"]


def test_an_operation_in_scope_names_a_nic_that_keeps_its_name_by_that_name():
    observed, desired = (
        state(there(2), there(3)),
        state(link(2, name="eth3", mtu=9000), link(3, name="eth2", mtu=9000)),
    )
    assert words(observed, desired, scope={mac(2)}) == ["set the MTU of eth2 from 1500 to 9000"]
    assert words(observed, desired) == [
        "rename eth2 to neuca-tmp0",
        "rename eth3 to eth2",
        "rename neuca-tmp0 to eth3",
        "set the MTU of eth3 from 1500 to 9000",
        "set the MTU of eth2 from 1500 to 9000",
    ]


def test_a_new_vlan_is_called_after_the_name_that_its_nic_has_after_the_plan():
    """Its NIC cannot have its name yet, since another NIC that is out of scope keeps that."""
    observed = state(there(2), there(3))
    desired = state(
        link(2, name="eth3"), link(3, name="data"), link(2, 7, name="eth3.7", state="up")
    )
    assert words(observed, desired, scope={mac(2)}) == [
        "create VLAN 7 on eth2 as eth3.7",
        "bring eth3.7 up",
    ]


def test_a_nic_that_takes_a_name_from_one_out_of_scope_gets_everything_else():
    agent = small(f"[interface {mac(2)}]\nname = data\n[interface {mac(3)}]\n")
    agent.run()
    agent.kernel.rename(2, "byhand")
    agent.ask(
        f"[interface {mac(2)}]\nname = data\n[interface {mac(3)}]\nname = byhand\nmtu = 9000\n"
    )
    _, result, _ = agent.run(start=False)
    assert [failure.text for failure in result.failures] == []
    assert agent.kernel.devices[3].mtu == 9000


def test_in_scope_keeps_what_touches_no_nic():
    observed, desired = (
        state(there(2), files={"/x": None}),
        state(link(2, mtu=9000), files={"/x": b"1"}),
    )
    assert [one.kind for one in in_scope(plan_operations(observed, desired), ())] == ["write-file"]


# --- managers and files ---------------------------------------------------------------------------------------------


def test_a_nic_is_taken_out_of_a_managers_hands_after_the_files_and_before_its_name():
    observed = state(
        there(2, managers={"networkmanager": "managed"}), files={"/nm": None}
    )._replace(
        manager_by_file={"/nm": "networkmanager"},
    )
    desired = state(
        link(2, name="data", managers={"networkmanager": "unmanaged"}), files={"/nm": b"x"}
    )._replace(
        manager_by_file={"/nm": "networkmanager"},
    )
    assert words(observed, desired) == [
        'write "/nm"',
        "make networkmanager release eth2",
        "make networkmanager reload its configuration",
        "rename eth2 to data",
    ]


def test_networkd_which_has_no_call_for_it_is_not_said_to_release_a_nic():
    observed = state(there(2, managers={"networkd": "managed"}))
    assert words(observed, state(link(2, managers={"networkd": "unmanaged"}))) == []


@pytest.mark.parametrize("word", ["unmanaged", "absent", "unknown"])
def test_a_manager_that_does_not_hold_the_nic_is_not_asked(word):
    assert (
        words(
            state(there(2, managers={"networkmanager": word})),
            state(link(2, managers={"networkmanager": "unmanaged"})),
        )
        == []
    )


def test_a_manager_that_does_not_run_or_has_nothing_new_to_read_is_not_told():
    desired = state(files={"/nm": b"x"})._replace(manager_by_file={"/nm": "networkmanager"})
    assert words(state(files={"/nm": None}), desired) == ['write "/nm"']
    assert (
        words(
            state(files={"/nm": b"x"})._replace(manager_by_file={"/nm": "networkmanager"}), desired
        )
        == []
    )


def test_a_file_that_should_not_be_there_is_removed_once():
    assert words(state(files={"/x": b"old"}), state(files={"/x": None})) == ['remove "/x"']
    assert words(state(files={"/x": None}), state(files={"/x": None})) == []


# --- words ----------------------------------------------------------------------------------------------------------


def test_each_operation_as_json():
    observed = state(
        there(2, addresses=(TEN,)),
        there(3, 8),
        there(3),
        hops=(Hop(NET, key(2), None, 20),),
        files={"/x": b"abc"},
    )
    desired = state(
        link(2, name="data", state="up", mtu=9000, txqueuelen=5, sysctls={RP: "1"}, managers={}),
        link(2, 7, mtu=1400),
        link(3),
        hops=(Hop(NET, key(3), VIA, 20),),
        files={"/x": b"x"},
    )
    owned = OwnedObjects(frozenset({(key(2), TEN)}), frozenset({key(3, 8)}), routes=True)
    assert [
        tuple(one.to_json().values())[:4] for one in plan_operations(observed, desired, owned)
    ] == [
        ("write-file", "/x", 3, 1),
        ("rename", "eth2", "eth2", "data"),
        ("delete-link", "eth3.8", "eth3.8", None),
        ("set-mtu", "data", 1500, 9000),
        ("set-txqueuelen", "data", 1000, 5),
        ("create-link", "eth2.7", None, "eth2.7"),
        ("write-sysctl", "net/ipv4/conf/data/rp_filter", None, "1"),
        ("set-state", "data", "down", "up"),
        ("replace-route", "eth3", "on data", "via 10.0.0.254 on eth3"),
        ("delete-address", "data", "10.0.0.1/24", None),
    ]


def test_the_example_of_the_specification():
    (operation,) = plan_operations(state(there(1)), state(link(1, mtu=9000)))
    assert operation.to_json() == {
        "operation": "set-mtu",
        "target": "eth1",
        "from": 1500,
        "to": 9000,
        "text": "set the MTU of eth1 from 1500 to 9000",
    }


# --- failure and the way back ---------------------------------------------------------------------------------------


def test_a_nic_that_fails_is_brought_back_and_the_others_go_on():
    agent = small(
        f"[interface {mac(2)}]\nmtu = 9000\naddresses = 10.0.0.1/24\n[interface {mac(3)}]\naddresses = 10.0.1.1/24\n"
    )
    agent.kernel.add_address = _refusing(agent.kernel, TEN)
    _, result, undone = agent.run()
    assert [failure.text for failure in result.failures] == [
        "add the address 10.0.0.1/24 to eth2: Invalid argument"
    ]
    assert texts(undone.done) == ["set the MTU of eth2 from 9000 to 1500", "bring eth2 down"]
    assert (
        agent.kernel.devices[2].mtu,
        agent.kernel.devices[2].up,
        agent.kernel.devices[3].up,
    ) == (1500, False, True)
    assert agent.record.nics[mac(2)].applied == ""
    assert agent.record.nics[mac(3)].applied != ""


def _refusing(kernel, refused):
    """A kernel whose driver refuses one address."""
    from kernel import refuse

    add = kernel.add_address
    return lambda index, address, *more: (
        refuse(22, "Invalid argument") if address == refused else add(index, address, *more)
    )


def test_a_route_stays_where_it_was_when_the_nic_that_it_should_move_to_fails():
    text = f"[interface {mac(2)}]\naddresses = 10.0.0.1/24\n[routes]\n10.20.0.0/16 = 10.0.0.254\n"
    agent = small(text)
    agent.run()
    agent.ask(
        text.replace(mac(2), mac(3)).replace("10.0.0.1/24", "10.0.0.2/24")
        + f"[interface {mac(2)}]\naddresses = 10.0.5.1/24\n"
    )
    agent.kernel.add_address = _refusing(agent.kernel, ip_interface("10.0.0.2/24"))
    _, result, _ = agent.run(start=False)
    assert [failure.text for failure in result.failures] == [
        "add the address 10.0.0.2/24 to eth3: Invalid argument"
    ]
    assert [(str(one.to), one.index) for one in agent.kernel.routes if one.protocol == 110] == [
        ("10.20.0.0/16", 2)
    ]


def test_a_failed_sysctl_costs_no_nic_anything():
    agent = small(
        f"[interface {mac(2)}]\naddresses = 10.0.0.1/24\nsysctl.net.ipv4.conf.{{interface}}.rp_filter = 1\n"
    )
    from kernel import refuse

    agent.kernel.write_sysctl = lambda *_: refuse(1, "Operation not permitted")
    _, result, undone = agent.run()
    assert [failure.text for failure in result.failures] == [
        'set the sysctl net.ipv4.conf.eth2.rp_filter from "0" to "1": Operation not permitted'
    ]
    assert (undone, result.nics_to_roll_back, TEN in agent.kernel.addresses[2]) == (
        None,
        frozenset(),
        True,
    )
    assert Result().nics_to_roll_back == frozenset()


def test_a_vlan_that_should_be_down_keeps_its_ipv6_address_when_its_nic_comes_up():
    """The NIC takes it up, and on its way down again the kernel drops the address."""
    agent = small(
        f"[interfaces]\n{mac(2)} = up\n[vlan {mac(2)}.7]\nstate = down\naddresses = fd00::1/64\n"
    )
    agent.run()
    assert texts(agent.plan()) == []
    assert agent.kernel.addresses[agent.kernel.named("eth2.7").index] == [SIX]


@pytest.mark.parametrize("state", ["up", "down"])
def test_an_mtu_that_would_cost_a_user_his_ipv6_address_is_not_set(state):
    """Below 1280 bytes the kernel takes every IPv6 address of the link away (RFC 8200, section 5)."""
    agent = small(f"[interface {mac(2)}]\nstate = {state}\nmtu = 1000\n")
    agent.kernel.set_up(2, True)
    agent.kernel.add_address(2, SIX)
    _, result, _ = agent.run()
    assert [failure.text for failure in result.failures] == []
    assert SIX in agent.kernel.addresses[2]
    assert texts(agent.plan()) == []


def test_resetting_a_qdisc_to_the_default_follows_the_sysctl_that_defines_it():
    link = Link(
        key(2), "physical", "dataplane", "eth2", 2, "up", device={"qdisc": "fq", "rings.rx": "256"}
    )
    back = link._replace(device={"qdisc": "default", "rings.rx": "512"})
    observed = NetworkState({key(2): link}, sysctls={"net/core/default_qdisc": "fq"})
    desired = NetworkState({key(2): back}, sysctls={"net/core/default_qdisc": "fq_codel"})
    assert [operation.kind for operation in plan_operations(observed, desired)] == [
        "set-device",
        "write-sysctl",
        "set-device",
    ]
    assert plan_operations(observed, desired)[-1].text == 'set qdisc of eth2 from "fq" to "default"'


def test_a_bridge_keeps_the_mtu_that_it_has_of_a_port_which_leaves():
    kernel = machine(nic(2), nic(3, mtu=1300))
    agent = Agent(kernel, f"[interface {mac(3)}]\n[bridge br0]\nmembers = {mac(3)}\n")
    agent.run()
    assert kernel.named("br0").mtu == 1300
    agent.ask(f"[interface {mac(2)}]\n[bridge br0]\nmembers = {mac(2)}\nmtu = 1300\n")
    planned = texts(agent.plan())
    assert "set the MTU of br0 to 1300" in planned
    assert texts(agent.run()[0]) == planned
    assert kernel.named("br0").mtu == 1300
    assert not agent.plan()


def test_a_vxlan_that_is_larger_than_its_parent_is_lowered_once_the_parent_is_raised():
    text = "[interface {nic}]\nmtu = {mtu}\n[vxlan vx0]\nid = 3\nparent = {nic}\n"
    kernel = machine(nic(2))
    agent = Agent(kernel, text.format(nic=mac(2), mtu=9000))
    agent.run()
    kernel.set_mtu(2, 1500)
    assert kernel.named("vx0").mtu == 8950
    agent.ask(text.format(nic=mac(2), mtu=2000))
    done, result, _ = agent.run()
    assert [line for line in texts(done) if "MTU" in line] == [
        "set the MTU of eth2 from 1500 to 2000",
        "set the MTU of vx0 from 8950 to 1950",
    ]
    assert not result.failures


def test_a_vxlan_gets_what_its_parent_has_once_the_bond_of_it_is_deleted():
    kernel = machine(nic(2))
    agent = Agent(kernel, f"[bond bond0]\nmode = balance-rr\nmembers = {mac(2)}\nmtu = 1400\n")
    agent.run()
    assert kernel.devices[2].mtu == 1400
    vxlan = f"[vxlan vx0]\nid = 3\nparent = {mac(2)}\n"
    agent.ask(f"{vxlan}[vrf blue]\nmembers = bridge br0, {mac(2)}\n")  # there is no br0
    planned = texts(agent.plan())
    assert "create the VXLAN vx0 (id 3, port 4789) on eth2 with MTU 1450" in planned
    assert texts(agent.run()[0]) == planned
    assert kernel.devices[2].mtu == 1500


@pytest.mark.parametrize(
    ("before", "after"), [(9000, 9000), (2000, 2000), (9000, 2000), (2000, 9000)]
)
def test_the_vlans_of_a_bridge_keep_their_mtu_when_all_ports_are_exchanged(before, after):
    nics = "".join(f"[interface {mac(number)}]\nmtu = 9000\n" for number in (2, 3))
    text = f"{nics}[bridge br0]\nmembers = {{}}\n[vlan bridge br0.5]\nmtu = {{}}\n"
    agent = Agent(machine(nic(2), nic(3)), text.format(mac(2), before))
    agent.run()
    agent.ask(text.format(mac(3), after))
    planned = texts(agent.plan())
    assert planned == [
        "remove eth2 from br0",
        "add eth3 to br0",
        f"set the MTU of br0.5 to {after}",
    ]
    operations, result, _ = agent.run()
    assert (texts(operations), result.failures) == (planned, ())
    assert agent.kernel.named("br0.5").mtu == after


def test_the_plan_shows_the_mtu_that_a_vlan_has_on_a_bridge_without_ports():
    vlan_section = "[vlan bridge br0.5]\n"
    agent = Agent(machine(nic(2)), f"[bridge br0]\nmembers =\n{vlan_section}")
    agent.run()
    port = f"[interface {mac(2)}]\nmtu = 9000\n[bridge br0]\nmembers = {mac(2)}\n"
    agent.ask(f"{port}{vlan_section}mtu = 9000\n")
    assert "set the MTU of br0.5 from 1500 to 9000" in texts(agent.plan())


def test_a_vlan_that_is_renamed_goes_down_with_its_nic():
    kernel = Kernel(world(nic(2), vlan(3, 2, 6), rename_while_up=False))
    kernel.set_up(2, True)
    kernel.set_up(3, True)
    agent = Agent(kernel, f"[interface {mac(2)}]\nstate = down\n[vlan {mac(2)}.6]\nname = data\n")
    _, result, _ = agent.run()
    assert [failure.text for failure in result.failures] == []
    assert (kernel.named("eth2").up, kernel.named("data").up) == (False, False)
    assert not agent.plan()


def kinds_of(operation):
    yield from [operation] if hasattr(operation, "kind") else []
    for kind in operation.__subclasses__():
        yield from kinds_of(kind)


def test_which_operations_only_remove_and_which_do_not_fail_their_nic():
    """Such as a rule without which the NIC still is as requested."""
    kinds = list(kinds_of(Operation))
    assert {kind.kind for kind in kinds if kind.is_removal} == {
        *("delete-address", "delete-link", "delete-route", "delete-rule", "stop-dhcp")
    }
    assert {kind.kind for kind in kinds if kind.spares_others is True} == {
        *("activate", "unmanage", "write-sysctl", "set-device", "start-dhcp", "stop-dhcp"),
        *("restore-route", "add-rule", "delete-rule"),
    }
