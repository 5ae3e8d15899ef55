"""The plan of a mesh: who tests whom in which slot, for any hosts, groups and seed; and what is no list of hosts or no plan."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuca_tools.commands.selftest import main as selftest
from neuca_tools.errors import SelftestError, UsageError
from neuca_tools.selftest.mesh.model import (
    MeshHost,
    MeshPlan,
    plan_identity,
    plan_record,
    read_plan,
)
from neuca_tools.selftest.mesh.schedule import circle_rounds, make_plan, plan_budget, read_hosts


def hosts_of(count, groups=1, **labels):
    return [
        MeshHost(
            f"n{number:04}",
            f"10.0.{number // 250}.{number % 250 + 1}",
            {"rack": f"r{number % groups}", **{key: of(number) for key, of in labels.items()}},
        )
        for number in range(count)
    ]


def pairs_of(plan):
    return [pair for slot in plan.slots for pair in slot]


meshes = st.builds(
    lambda count, groups, **rest: MeshPlan(hosts_of(count, groups), (), 1e9, group="rack", **rest),
    count=st.integers(2, 40),
    groups=st.integers(1, 6),
    seed=st.integers(0, 1000),
    rounds=st.integers(0, 50),
    per_uplink=st.integers(1, 5),
)


@pytest.mark.parametrize("count", [2, 3, 4, 7, 15, 16, 64, 257])
def test_the_circle_method_meets_everybody_once_in_disjoint_rounds(count):
    rounds = list(circle_rounds(count))
    assert len(rounds) == count - 1 + count % 2
    for pairs in rounds:
        used = [host for pair in pairs for host in pair]
        assert len(set(used)) == len(used)
    assert sorted(tuple(sorted(pair)) for pairs in rounds for pair in pairs) == list(
        combinations(range(count), 2)
    )


@settings(max_examples=60, deadline=None)
@given(meshes)
def test_no_host_has_two_tests_at_a_time_and_no_pair_is_met_twice(mesh):
    plan = make_plan(mesh)
    for slot in plan.slots:
        used = [host for pair in slot for host in pair]
        assert len(set(used)) == len(used)
        assert used
    met = [frozenset(pair) for pair in pairs_of(plan)]
    assert len(set(met)) == len(met)
    assert read_plan(json.loads(json.dumps(plan_record(plan)))) == plan


@settings(max_examples=60, deadline=None)
@given(meshes)
def test_no_uplink_has_more_tests_than_its_cap(mesh):
    plan = make_plan(mesh)
    for slot in plan.slots:
        groups = [{plan.group_of(one) for one in pair} for pair in slot]
        load = Counter(name for both in groups if len(both) == 2 for name in both)
        assert max(load.values(), default=0) <= mesh.per_uplink


@settings(max_examples=40, deadline=None)
@given(meshes)
def test_all_rounds_meet_every_pair_and_each_host_has_one_test_a_round(mesh):
    hosts, plan = mesh.hosts, make_plan(mesh)
    most = len(hosts) - 1 + len(hosts) % 2
    count = Counter(host for pair in pairs_of(plan) for host in pair)
    if plan.rounds == most:
        assert sum(map(len, plan.slots)) == len(hosts) * (len(hosts) - 1) // 2
    else:
        assert max(count.values(), default=0) <= plan.rounds


@settings(max_examples=30, deadline=None)
@given(meshes, st.randoms())
def test_the_same_seed_gives_the_same_plan_in_whatever_order_the_hosts_are(mesh, chance):
    mixed = list(mesh.hosts)
    chance.shuffle(mixed)
    assert make_plan(replace(mesh, hosts=mixed)) == make_plan(mesh)


def test_another_seed_gives_another_plan():
    plans = {
        plan_identity(make_plan(MeshPlan(hosts_of(100), (), 1e9, seed=seed))) for seed in range(5)
    }
    assert len(plans) == 5


@pytest.mark.parametrize(
    ("count", "rounds", "tests"), [(64, 63, 2016), (65, 8, 256), (63, 63, 1953)]
)
def test_all_pairs_up_to_64_hosts_and_8_rounds_above(count, rounds, tests):
    plan = make_plan(MeshPlan(hosts_of(count), (), 1e9))
    assert (plan.rounds, len(pairs_of(plan))) == (rounds, tests)


@pytest.mark.parametrize("rounds", [0, 8])
def test_pairs_within_groups_come_first(rounds):
    plan = make_plan(MeshPlan(hosts_of(24, 4), (), 1e9, group="rack", rounds=rounds))
    inside = [
        [plan.group_of(one) == plan.group_of(two) for one, two in slot] for slot in plan.slots
    ]
    first = next(number for number, slot in enumerate(inside) if not all(slot))
    assert first > 0
    if not rounds:
        assert not any(any(slot) for slot in inside[first:])


def test_one_test_at_a_time_on_a_hypervisor():
    hosts = hosts_of(32, 4, hypervisor=lambda number: f"h{number // 4}")
    plan = make_plan(MeshPlan(hosts, (), 1e9, group="rack"))
    for slot in plan.slots:
        load = Counter(
            name for pair in slot for name in {hosts[one].labels["hypervisor"] for one in pair}
        )
        assert max(load.values()) == 1
    assert len(pairs_of(plan)) == 32 * 31 // 2


def test_hosts_without_a_label_have_their_share_of_rounds_and_cross_uplinks():
    labelled = hosts_of(10, 2)
    others = [replace(host, name=f"other-{host.name}", labels={}) for host in hosts_of(90)]
    plan = make_plan(MeshPlan([*labelled, *others], (), 1e9, group="rack", per_uplink=1))
    tests = Counter(host for pair in pairs_of(plan) for host in pair)
    assert min(tests.values()) >= 7
    for slot in plan.slots:
        groups = [{plan.group_of(host) for host in pair} for pair in slot]
        load = Counter(name for both in groups if len(both) == 2 for name in both if name)
        assert max(load.values(), default=0) <= 1


def test_the_budget_is_time_and_bytes():
    plan = make_plan(MeshPlan(hosts_of(4), (), 1e9, seconds=2.0, guard=3.0))
    # Three slots of 3 + 2 x 2 + 3 seconds, or 2 x 3 + 2 x 2 + 15; six tests of two transfers of 250 MB.
    assert plan_budget(plan) == (30.0, 75.0, 3e9, 1.5e9)


def test_a_thousand_hosts_are_planned_in_25_groups():
    plan = make_plan(MeshPlan(hosts_of(1000, 25), (), 1e9, group="rack"))
    count = Counter(host for pair in pairs_of(plan) for host in pair)
    assert (min(count.values()) >= 7, max(count.values())) == (True, 8)


# --- The list of hosts --------------------------------------------------------------------------------------------------


def test_hosts_are_names_addresses_and_labels():
    text = "# ours\n\nb fd00::2 rack=r1 site=x # the second\na fd00::1\n"
    assert read_hosts(text) == (
        MeshHost("b", "fd00::2", {"rack": "r1", "site": "x"}),
        MeshHost("a", "fd00::1"),
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "read the hosts: it requires 2 to 4096 hosts, and has 0"),
        ("a 10.0.0.1", "read the hosts: it requires 2 to 4096 hosts, and has 1"),
        ("a", "read the hosts, line 1: it is not NAME ADDRESS [LABEL=VALUE …]"),
        (
            "a 10.0.0.1\n-rf 10.0.0.2",
            "read the hosts, line 2: a host is named '-rf': letters, digits and ._- are accepted",
        ),
        *(
            (text, f'read the hosts: two hosts have the name or address "{twice}"')
            for text, twice in (
                ("a 10.0.0.1\n\na 10.0.0.2", "a"),
                ("a 10.0.0.1\nb 10.0.0.1", "10.0.0.1"),
                ("a 2001:db8::1\nb 2001:DB8:0::1", "2001:db8::1"),
            )
        ),
        (
            "a 10.0.0.1\nb fd00::2",
            "read the hosts: hosts with IPv4 and with IPv6 addresses cannot test each other",
        ),
        ("a 10.0.0.256", "read the hosts, line 1: \"a\": '10.0.0.256' is not an IP address"),
        ("a 127.0.0.1", 'read the hosts, line 1: "a": 127.0.0.1 is not the address of a host'),
        (
            "a 255.255.255.255",
            'read the hosts, line 1: "a": 255.255.255.255 is not the address of a host',
        ),
        (
            "a ::ffff:10.0.0.1",
            'read the hosts, line 1: "a": ::ffff:10.0.0.1 is IPv4: write 10.0.0.1',
        ),
        (
            "a fe80::1%eth1",
            'read the hosts, line 1: "a": fe80::1%eth1 is link-local, which is not supported',
        ),
        (
            "a 2001:db8::1%eth0\nb 2001:db8::1%eth1",
            'read the hosts, line 1: "a": 2001:db8::1%eth0 has a zone, which is not supported',
        ),
        ("a 10.0.0.1 rack=x rack=y", "read the hosts, line 1: a label is given twice"),
        (
            "a 10.0.0.1 rack",
            'read the hosts, line 1: "a": its labels are not up to 8 of NAME=VALUE',
        ),
    ],
)
def test_what_is_no_list_of_hosts_is_an_error_with_its_line_or_name(text, reason):
    with pytest.raises(UsageError) as refused:
        read_hosts(text)
    assert refused.value.text == reason


def test_the_name_of_a_host_may_be_as_long_as_dns_permits():
    name = ".".join(["node7", "long-project", *["department"] * 20])
    assert 200 < len(name) <= 253
    plan = make_plan(MeshPlan(read_hosts(f"{name} 10.0.0.1\nb 10.0.0.2"), (), 1e9))
    assert read_plan(plan_record(plan)) == plan


def test_a_host_may_be_reached_by_its_address():
    plan = make_plan(MeshPlan(read_hosts("10.0.0.1 10.0.0.1\n10.0.0.2 10.0.0.2"), (), 1e9))
    assert read_plan(json.loads(json.dumps(plan_record(plan)))) == plan


def planned(tmp_path, hosts, *options):
    """`mesh plan`: the exit code."""
    (tmp_path / "hosts").write_text(hosts)
    return selftest(["mesh", "plan", *options, str(tmp_path / "hosts")])


PAIR = "a 10.0.0.1\nb 10.0.0.2\n"


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path, capsys):
    assert planned(tmp_path, f"\ufeff{PAIR}", "--rate", "1G") == 0
    marked, _ = capsys.readouterr()
    planned(tmp_path, PAIR, "--rate", "1G")
    assert marked == capsys.readouterr().out


@pytest.mark.parametrize(
    ("hosts", "options", "reason"),
    [
        (PAIR, ("--rate", "20T"), '"rate" is not from 1 to 1e+13'),
        (PAIR, ("--rate", "0.0001K"), '"rate" is not from 1 to 1e+13'),
        (PAIR, ("--rate", "1G", "--expect", "20T"), '"expect" is not from 1 to 1e+13'),
        (
            "".join(
                f"n{one} 10.0.{one // 250}.{one % 250} hypervisor=h\n" for one in range(1, 205)
            ),
            ("--rate", "1G", "--rounds", "4096"),
            "it has more than 20000 slots",
        ),
    ],
)
def test_no_plan_is_printed_that_run_would_refuse(tmp_path, capsys, hosts, options, reason):
    assert planned(tmp_path, hosts, *options) == 1
    assert capsys.readouterr() == ("", f"neuca-selftest: read the plan: {reason}\n")


# --- What is no plan ----------------------------------------------------------------------------------------------------


def record():
    return json.loads(json.dumps(plan_record(make_plan(MeshPlan(hosts_of(4), (), 1e9)))))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"version": 2}, "read the plan: its version is 2, and this program knows 1"),
        ({"hosts": []}, "read the plan: it requires 2 to 4096 hosts, and has 0"),
        ({"hosts": 7}, "read the plan: plan.hosts is '7', and should be a list"),
        ({"rate": 0}, 'read the plan: "rate" is not from 1 to 1e+13'),
        ({"seconds": 1e9}, 'read the plan: "seconds" is not from 1 to 3600'),
        ({"port": 22}, 'read the plan: "port" is not from 1024 to 65533'),
        (
            {"slots": [[[0, 9]]]},
            "read the plan: slot 0 has [0, 9], which is not a pair of its hosts",
        ),
        ({"slots": [[[0, 1], [1, 2]]]}, "read the plan: slot 0 has a host twice"),
        ({"slots": [[[0, 0]]]}, "read the plan: slot 0 has a host twice"),
        (
            {"slots": [[[-1, 1]]]},
            "read the plan: slot 0 has [-1, 1], which is not a pair of its hosts",
        ),
        ({"slots": [[]] * 20_001}, "read the plan: it has more than 20000 slots"),
    ],
)
def test_what_is_no_plan_is_an_error_that_names_its_place(change, reason):
    with pytest.raises(SelftestError) as refused:
        read_plan({**record(), **change})
    assert refused.value.text == reason


@pytest.mark.parametrize(
    ("name", "low", "high", "below", "above"),
    [
        ("rate", 1.0, 1e13, 0.9, 1.1e13),
        ("expect", 1.0, 1e13, 0.9, 1.1e13),
        ("seconds", 1.0, 3600.0, 0.9, 3601.0),
        ("guard", 0.1, 60.0, 0.09, 61.0),
        ("port", 1024, 65533, 1023, 65534),
        ("per_uplink", 1, 4096, 0, 4097),
    ],
)
def test_a_number_of_a_plan_may_be_at_its_bounds(name, low, high, below, above):
    for number in (low, high):
        assert getattr(read_plan({**record(), name: number}), name) == number
    for number in (below, above):
        with pytest.raises(SelftestError, match=f'"{name}" is not from'):
            read_plan({**record(), name: number})


def test_two_hosts_with_one_address_are_no_plan():
    data = record()
    data["hosts"][1]["address"] = data["hosts"][0]["address"]
    with pytest.raises(SelftestError) as refused:
        read_plan(data)
    assert refused.value.text == 'read the plan: two hosts have the name or address "10.0.0.1"'
