"""Names: who may have which, what is refused and why, and the order of renames."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from worlds import Agent, document, key, mac, machine, nic, route, world

from neuca_tools.desired.names import free_name, nic_names, rename_steps, vlan_name
from neuca_tools.desired.roles import Policy, assign_roles
from neuca_tools.documents.stacking import merge_layers
from neuca_tools.model import NicRecord, Problem, Record

NOBODY, ANYTHING = Record(), Policy()
TAKEN = '"{}" should be "{}", but another interface has that name'


def settle(text, seen, record=NOBODY, policy=ANYTHING):
    """(name by number of NIC, problems)."""
    requests = merge_layers(document(text).links, ())
    roles = assign_roles(seen, {one.mac for one in requests}, policy, record)
    names, problems = nic_names(requests, seen, roles, record)
    return {int(one.mac[-2:], 16): name for one, name in names.items()}, problems


def asks(**names):
    """A document that asks for names: `nic2="data"`; an empty one asks for none."""
    sections = [
        f"[interface {mac(int(one[3:]))}]\n" + (f"name = {name}\n" if name else "")
        for one, name in names.items()
    ]
    return "".join(sections) or "[interfaces]\n"


def remembers(**names):
    return Record(
        nics={
            mac(int(one[3:])): NicRecord(name=name, role="dataplane") for one, name in names.items()
        }
    )


def test_the_asked_name_wins_over_the_recorded_one_and_that_over_the_one_in_force():
    seen = world(nic(2), nic(3), nic(4))
    names, problems = settle(
        asks(nic2="data", nic3="", nic4=""), seen, remembers(nic2="old2", nic3="old3")
    )
    assert (names, problems) == ({2: "data", 3: "old3", 4: "eth4"}, [])


def test_a_swap_is_granted():
    assert settle(asks(nic2="eth3", nic3="eth2"), world(nic(2), nic(3))) == (
        {2: "eth3", 3: "eth2"},
        [],
    )


@pytest.mark.parametrize(
    "record", [Record(), remembers(nic3="eth3"), remembers(nic2="eth2", nic3="eth3")]
)
def test_a_name_that_a_nic_without_a_wish_has_is_refused_however_often_it_was_seen(record):
    names, problems = settle(asks(nic2="eth3", nic3=""), world(nic(2), nic(3)), record)
    assert names == {2: "eth2", 3: "eth3"}
    assert problems == [Problem("name", TAKEN.format("eth2", "eth3"), key(2))]


def test_a_refusal_that_takes_the_place_of_another_nic_is_passed_on():
    seen = world(nic(2), nic(3), nic(9, "taken", hardware=False))
    names, problems = settle(asks(nic2="taken", nic3="eth2"), seen)
    assert names == {2: "eth2", 3: "eth3"}
    assert [problem.text for problem in problems] == [
        TAKEN.format("eth2", "taken"),
        TAKEN.format("eth3", "eth2"),
    ]


def test_a_recorded_name_goes_before_one_that_is_asked_for_another_nic():
    names, problems = settle(
        asks(nic2="", nic3="wished"), world(nic(2), nic(3)), remembers(nic2="wished")
    )
    assert names == {2: "wished", 3: "eth3"}
    assert [problem.text for problem in problems] == [TAKEN.format("eth3", "wished")]


@pytest.mark.parametrize(
    "policy",
    [Policy(), Policy(ignored=frozenset({mac(1)})), Policy(management=frozenset({mac(1)}))],
)
def test_the_name_of_a_nic_that_may_not_move_is_never_taken(policy):
    seen = world(nic(1), nic(2), routes=[route("0.0.0.0/0", 1, "192.0.2.1")])
    names, problems = settle(asks(nic1="data", nic2="eth1"), seen, policy=policy)
    assert names == {1: "eth1", 2: "eth2"}
    assert problems == [Problem("name", TAKEN.format("eth2", "eth1"), key(2))]


def test_the_name_of_any_other_device_is_never_taken():
    seen = world(nic(2), nic(9, "br0", kind="bridge", hardware=False))
    assert settle(asks(nic2="br0"), seen)[1] == [
        Problem("name", TAKEN.format("eth2", "br0"), key(2))
    ]


def test_an_alternative_name_of_another_device_is_a_name_too():
    """They share one space: a rename to it is EEXIST."""
    seen = world(nic(2), nic(3, kind="bridge", hardware=False, altnames=("enp3s0",)))
    names, problems = settle(asks(nic2="enp3s0"), seen)
    assert names[2] == "eth2"
    assert problems == [Problem("name", TAKEN.format("eth2", "enp3s0"), key(2))]


def test_its_own_alternative_name_may_become_its_name():
    assert settle(asks(nic2="enp2s0"), world(nic(2, altnames=("enp2s0",)))) == ({2: "enp2s0"}, [])


def test_an_unlisted_nic_keeps_its_name_whatever_is_recorded():
    astray = Problem(
        "name", '"eth2" should be "old": it will get that name at the next boot', key(2)
    )
    assert settle(asks(), world(nic(2)), remembers(nic2="old")) == ({2: "eth2"}, [astray])


def test_a_name_that_an_unlisted_nic_gets_at_the_next_boot_is_given_to_no_other():
    seen, recorded = world(nic(2), nic(3)), remembers(nic2="old", nic3="eth3")
    names, problems = settle(asks(nic3="old"), seen, recorded)
    assert names == {2: "eth2", 3: "eth3"}
    assert problems[0] == Problem("name", TAKEN.format("eth3", "old"), key(3))


def test_a_name_that_is_recorded_for_two_nics_is_promised_to_one():
    texts = ("it will get that name at the next boot", "that name belongs to another interface")
    recorded = remembers(nic2="old", nic3="old")
    assert settle(asks(), world(nic(2), nic(3)), recorded)[1] == [
        Problem("name", f'"eth{number}" should be "old": {text}', key(number))
        for number, text in zip((2, 3), texts)
    ]


@pytest.mark.parametrize(
    ("parent", "vlan_id", "name"),
    [
        ("eth1", 1445, "eth1.1445"),
        ("enp129s0f0n", 7, "enp129s0f0n.7"),
        ("enp129s0f0np", 7, "enp129s0f0np.7"),
        ("enp129s0f0np0", 7, "enp129s0f0np0.7"),
        ("enp129s0f0np0", 4094, "n000002.4094"),
        ("abcdefghijklmno", 1, "n000002.1"),
        ("\u0434\u0430\u043d\u043d\u044b\u0435", 1445, "n000002.1445"),
    ],
)
def test_a_vlan_is_named_after_its_nic_within_fifteen_bytes(parent, vlan_id, name):
    assert vlan_name(parent, key(2, vlan_id)) == name
    assert len(name) <= 15


def test_a_free_name_has_at_most_fifteen_bytes():
    name = "\u0434\u0430\u043d\u043d\u044b\u04350"
    assert free_name(name, {name}) == "\u0434\u0430\u043d\u043d\u044b0"


def test_a_temporary_name_that_is_taken_is_passed_over():
    a, b, c = key(2), key(3), key(4)
    steps = rename_steps({a: "eth2", b: "eth3", c: "neuca-tmp0"}, {a: "eth3", b: "eth2"})
    assert "neuca-tmp0" not in [step.new for step in steps]
    assert {step.key: step.new for step in steps} == {a: "eth3", b: "eth2"}


def test_a_rename_onto_a_name_that_stays_is_left_out_with_those_behind_it():
    current = {key(2): "eth2", key(3): "eth3", key(4): "eth4"}
    assert rename_steps(current, {key(2): "eth3", key(4): "eth2"}) == []


def test_a_link_that_is_not_there_is_not_renamed():
    assert rename_steps({}, {key(2): "eth3"}) == []


def _vlans(first, second, nics=""):
    """VLANs by the ends of their section titles, each with its line."""
    return nics + "".join(f"[vlan {place}]\n{line}\n" for place, line in (first, second))


@pytest.mark.parametrize(
    ("before", "after", "names"),
    [
        (
            _vlans((f"{mac(2)}.5", "name = one"), (f"{mac(2)}.6", "name = two")),
            _vlans((f"{mac(2)}.5", "name = two"), (f"{mac(2)}.6", "name = one")),
            {"two": 5, "one": 6},
        ),
        (
            _vlans((f"{mac(2)}.5", "name = one"), (f"{mac(2)}.6", "name = two")),
            _vlans((f"{mac(2)}.6", "name = one"), (f"{mac(2)}.7", "name = two")),
            {"one": 6, "two": 7},
        ),
        (
            _vlans((f"{mac(2)}.5", "mtu = 1400"), (f"{mac(3)}.5", "mtu = 1300")),
            _vlans(
                (f"{mac(2)}.5", "mtu = 1400"),
                (f"{mac(3)}.5", "mtu = 1300"),
                f"[interface {mac(2)}]\nname = eth3\n[interface {mac(3)}]\nname = eth2\n",
            ),
            {"eth3.5": 5, "eth2.5": 5},
        ),
    ],
)
def test_vlans_exchange_their_names_in_one_pass(before, after, names):
    agent = Agent(machine(nic(1), nic(2), nic(3), mgmt=1), before)
    agent.run()
    mtu_by_index = {device.index: device.mtu for device in agent.kernel.world().devices.values()}
    agent.ask(after)
    _, result, _ = agent.run()
    vlans = [device for device in agent.kernel.world().devices.values() if device.vlan_id]
    assert (result.failures, {vlan.name: vlan.vlan_id for vlan in vlans}) == ((), names)
    assert all(mtu_by_index.get(vlan.index, vlan.mtu) == vlan.mtu for vlan in vlans)
    assert agent.survey().resolution.problems == ()


def test_a_vlan_keeps_its_name_for_itself_if_another_one_gets_the_requested_one():
    agent = Agent(machine(nic(1), nic(2), nic(3), mgmt=1), f"[vlan {mac(3)}.5]\nname = two\n")
    agent.run()
    first, second = (f"{mac(2)}.6", "mtu = 1400"), (f"{mac(2)}.7", "name = two")
    agent.ask(_vlans(first, second) + f"[vlan {mac(3)}.5]\nname = eth2.6\n")
    _, result, _ = agent.run()
    devices = agent.kernel.world().devices.values()
    vlans = {device.name: device.vlan_id for device in devices if device.vlan_id}
    assert (result.failures, vlans) == ((), {"two": 5, "eth2.6": 6})
    problems = agent.survey().resolution.problems
    assert {problem.link for problem in problems} == {key(2, 7), key(3, 5)}
    assert agent.plan() == ()
