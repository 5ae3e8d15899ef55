"""The localiser of a mesh against the simulator: each fault is named first, healthy meshes have none, whatever hosts claim."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import combinations, permutations

import pytest
from mesh_simulator import FAULTS, Mesh, is_named_first, is_of, is_true

from neuca_tools.selftest.codes import ExitCode
from neuca_tools.selftest.mesh.diagnoses import with_diagnoses
from neuca_tools.selftest.mesh.entities import Entity, Place, is_passed
from neuca_tools.selftest.mesh.localise import localise, references
from neuca_tools.selftest.mesh.model import MeshHost, Row, plan_record, read_row, row_record
from neuca_tools.selftest.mesh.retest import cleared, is_retest, with_retests
from neuca_tools.selftest.mesh.schedule import Wanted, make_plan
from neuca_tools.selftest.mesh.tally import Observation, Tally
from neuca_tools.selftest.mesh.verdict import CONFIRMED, KINDS, NOT_REPEATED, SUSPECTED, judge

SEED = int(os.environ.get("NEUCA_SEED", "1"))
MESHES = int(os.environ.get("NEUCA_MESHES", "1"))
HEALTHY = 10


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_among_200_hosts_is_named_first_and_confirmed(kind):
    mesh = Mesh(200, 10, SEED, (kind,))
    found = mesh.verdict()
    assert is_of(found.findings[0], mesh.faults[0]), (found.findings, mesh.faults)
    assert found.findings[0].state == CONFIRMED
    assert found.exit_code in (ExitCode.BELOW, ExitCode.NOT_AS_PLANNED)


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_among_16_hosts_in_two_groups_is_named_first(kind):
    """More than half of the tests are bad if the two groups have one bad link."""
    mesh = Mesh(16, 2, SEED, (kind,))
    found = mesh.verdict()
    named = found.findings[0]
    # Of two groups, the boundary of one is that of the other; a bad direction is one of both.
    boundary = kind in ("asymmetric-route", "group-boundary") and named.kind in (
        "asymmetric-route",
        "group-boundary",
    )
    assert boundary or is_of(named, mesh.faults[0]), (found.findings, mesh.faults)


@pytest.mark.parametrize(("count", "groups"), [(200, 10), (16, 2), (3, 1)])
def test_a_healthy_mesh_has_no_confirmed_finding(count, groups):
    found = [Mesh(count, groups, SEED + number).verdict() for number in range(3)]
    assert [one.confirmed for one in found] == [()] * 3


@pytest.mark.long
def test_a_thousand_hosts_with_every_fault_alone_and_in_pairs():
    """`make test-unit ARGS='-k thousand -m long -s' NEUCA_MESHES=20 NEUCA_SEED=7`: no two meshes have the same seed."""
    kinds = [*[()] * HEALTHY, *((one,) for one in FAULTS), *combinations(FAULTS, 2)]
    every, first, named, true, healthy = Counter(), Counter(), 0, 0, 0
    for number in range(MESHES):
        for place, faults in enumerate(kinds):
            mesh = Mesh(1000, 25, SEED * 10**5 + number * 100 + place, faults)
            found = mesh.verdict()
            every.update(faults)
            missed = [one for one in mesh.faults if not is_named_first(one, mesh, found.findings)]
            first.update(one.kind for one in mesh.faults if one not in missed)
            wrong = [one for one in found.confirmed if not is_true(one, mesh.faults)]
            named, true = named + len(found.confirmed), true + len(found.confirmed) - len(wrong)
            healthy += not faults and not found.findings
            if missed or wrong:
                print("\n", mesh.seed, mesh.faults, [(one.kind, one.subject) for one in found.findings])  # fmt: skip
    shares = {kind: f"{first[kind]}/{every[kind]}" for kind in FAULTS}
    print(f"\nnamed first: {shares}; precision {true}/{named}; healthy without findings {healthy}/{MESHES * HEALTHY}")  # fmt: skip
    assert all(first[kind] >= 0.95 * every[kind] for kind in FAULTS) or MESHES == 1
    assert sum(first.values()) >= 0.95 * sum(every.values())
    assert true >= 0.98 * named
    assert healthy == MESHES * HEALTHY


def test_planning_and_reporting_a_thousand_hosts_takes_less_than_ten_seconds_and_300_mib(tmp_path):
    """Of processor time, whatever else the machine does."""
    mesh = Mesh(1000, 25, SEED, ("group-boundary", "duplicate-address"))
    (tmp_path / "hosts").write_text(
        "".join(f"{one.name} {one.address} rack={one.labels['rack']}\n" for one in mesh.hosts)
    )
    rows = mesh.rows(mesh.plan)
    records = [{"plan": plan_record(mesh.plan)}, *map(row_record, rows)]
    (tmp_path / "run.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in records))
    files = ("--html", tmp_path / "page", "--prometheus", tmp_path / "metrics")
    commands = (
        ("plan", "--rate", "1G", "--group", "rack", tmp_path / "hosts"),
        ("report", *files, tmp_path / "run.jsonl"),
    )
    used = [usage(*words) for words in commands]
    assert sum(seconds for seconds, _ in used) < 10
    assert max(kib for _, kib in used) < 300 * 1024
    assert (tmp_path / "page").stat().st_size < 4e6


# A process starts with the peak of the one that it was forked from (execve(2)), here that of pytest: a small one is between.
USAGE = """import json, resource, subprocess, sys
main = "import sys; from neuca_tools.commands.selftest import main; sys.exit(main(sys.argv[1:]))"
done = subprocess.run([sys.executable, "-c", main, "mesh", *sys.argv[1:]], stdout=subprocess.DEVNULL)
assert done.returncode in (0, 6)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([used.ru_utime + used.ru_stime, used.ru_maxrss]))"""


def usage(*words):
    """The processor time in seconds and the peak of memory in KiB of a command that ends as it should."""
    command = [sys.executable, "-c", USAGE, *map(str, words)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def test_everything_that_a_test_passes_is_counted_and_nothing_else():
    """What is counted in bulk, against each entity by itself; a way that is tested again counts once for hosts and groups."""
    places = [Place("a", "x"), Place("b", "x"), Place("c", "y"), Place("d", "z"), Place("e", "")]
    seen = [
        Observation(number, one, two, (number * 7) % 3 > 0)
        for number, (one, two) in enumerate([*permutations(places, 2)] * 2)
    ]
    tally = Tally(seen)
    assert len({one.entity.kind for one in tally.counted()}) == 11
    for entity in (None, Entity("host", ("a",)), Entity("groups-one-way", ("y", "z"))):
        if entity is not None:
            seen = [one for one in seen if not is_passed(entity, one.sender, one.receiver)]
            tally.drop(entity)
        ways = {}
        for one in seen:
            ways.setdefault((one.sender, one.receiver), []).append(one.bad)
        for counted in tally.counted():
            passed = [bad for way, bad in ways.items() if is_passed(counted.entity, *way)]
            tests = [one for bad in passed for one in bad]
            if counted.entity.kind != "pair":
                tests = [2 * sum(bad) >= len(bad) for bad in passed]
            assert (counted.bad, counted.good) == (tests.count(True), tests.count(False))


# --- Parts of it --------------------------------------------------------------------------------------------------------


def mesh_of(count, groups=1, **wanted):
    hosts = [
        MeshHost(f"n{one}", f"10.0.0.{one + 1}", {"rack": f"r{one % groups}"})
        for one in range(count)
    ]
    return make_plan(hosts, Wanted(1e9, group="rack", **wanted))


def rows_of(plan, rate=lambda *_: 1e9, first=0):
    return [
        Row(
            number,
            plan.hosts[one].name,
            plan.hosts[two].name,
            rate(plan.hosts[one].name, plan.hosts[two].name),
            rate(plan.hosts[two].name, plan.hosts[one].name),
            macs=("02:00:00:00:00:01",),
        )
        for number, slot in enumerate(plan.slots)
        if number >= first
        for one, two in slot
    ]


def slow(name, part=0.5):
    return lambda sender, _: 1e9 * (part if sender == name else 1)


def test_the_reference_is_a_high_quantile_or_what_is_expected_and_never_the_median():
    plan = mesh_of(8)
    rows = [Row(0, "n0", "n1", rate) for rate in (1e9, 1e9, 1e9, 4e8, 4e8, 4e8, 4e8)]
    assert references(rows, None)["rate"] == 1e9
    assert references(rows, 2e9)["rate"] == 2e9
    assert plan.expect is None


def test_a_finding_is_suspected_until_a_retest_shows_it_again():
    plan = mesh_of(12)
    rows = rows_of(plan, slow("n3"))
    (one,) = judge(plan, rows).findings
    assert (one.kind, one.subject, one.direction, one.state) == (
        "slow-egress",
        "n3",
        "out",
        SUSPECTED,
    )
    assert judge(plan, rows).exit_code == ExitCode.INCONCLUSIVE
    again = with_retests(plan, rows, localise(plan, rows))
    bad, good = (rows_of(again, rate, len(plan.slots)) for rate in (slow("n3"), slow("")))
    (one,) = judge(again, rows + bad).findings
    assert (one.state, judge(again, rows + bad).exit_code) == (CONFIRMED, ExitCode.BELOW)
    (one,) = judge(again, rows + good).findings
    assert (one.state, judge(again, rows + good).exit_code) == (NOT_REPEATED, ExitCode.PASS)


def test_retests_are_against_two_cleared_hosts():
    plan = mesh_of(80)
    rows = rows_of(plan, slow("n3"))
    found = localise(plan, rows)
    good = cleared(plan, rows, found)
    assert (len(good), "n3" in good) == (79, False)
    again = with_retests(plan, rows, found)
    pairs = [
        {again.hosts[one].name for one in pair}
        for slot in again.slots[again.retests :]
        for pair in slot
    ]
    assert len(pairs) == 2
    partners = [(pair - {"n3"}).pop() for pair in pairs]
    met = {frozenset((row.client, row.server)) for row in rows}
    assert (len(set(partners)), any(frozenset(pair) in met for pair in pairs)) == (2, False)
    assert all(is_retest(again, row) for row in rows_of(again, first=again.retests))


def test_nothing_is_retested_in_a_healthy_mesh():
    plan = mesh_of(12)
    assert with_retests(plan, rows_of(plan), localise(plan, rows_of(plan))) == plan


def again(plan, rows):
    """The pairs of the retests."""
    later = with_retests(plan, rows, localise(plan, rows))
    return [
        {plan.hosts[one].name for one in pair}
        for slot in later.slots[len(plan.slots) :]
        for pair in slot
    ]


def test_what_is_confirmed_gets_a_full_diagnosis_and_nothing_else_does():
    """The sender of its latest bad test is the client, and what it says belongs to the finding."""
    plan = mesh_of(16)
    rows = rows_of(plan, slow("n4"))
    assert with_diagnoses(plan, rows).tests == plan.slots == with_diagnoses(plan, rows).slots
    later = with_retests(plan, rows, localise(plan, rows))
    rows += rows_of(later, slow("n4"), len(plan.slots))
    (found,) = judge(later, rows).findings
    asked = with_diagnoses(later, rows)
    (((client, server),),) = asked.slots[len(asked.tests) :]
    assert (asked.hosts[client].name, asked.hosts[server].name) == found.path
    assert (found.path[0], found.diagnosis, asked.tests) == ("n4", (), later.slots)
    told = Row(len(asked.tests), *found.path, diagnosis=("CPU-bound sender: a CPU is full",))
    assert read_row(json.loads(json.dumps(row_record(told))), asked) == told
    verdict = judge(asked, [*rows, told])
    assert verdict.findings == (replace(found, diagnosis=told.diagnosis),)
    assert (verdict.tested, verdict.planned) == (len(rows), sum(map(len, later.slots)))


def test_two_bad_pairs_of_one_host_are_both_retested_in_each_round():
    plan = mesh_of(60)
    first, second = {"n3", "n8"}, {"n3", "n9"}
    rows = rows_of(plan, lambda *way: 5e8 if set(way) in (first, second) else 1e9)
    pairs = again(plan, rows)
    assert (pairs.count(first), pairs.count(second)) == (2, 2)


def test_a_host_is_retested_if_two_answered_for_its_address_in_one_test():
    plan = mesh_of(100)
    rows = rows_of(plan)
    # Of one that several others have asked, the pair is more likely to be at fault.
    name, count = Counter(row.server for row in rows).most_common()[-1]
    assert count == 1
    place = next(number for number, row in enumerate(rows) if row.server == name)
    rows[place] = replace(rows[place], macs=("02:00:00:00:00:01", "02:00:00:00:00:02"))
    assert (judge(plan, rows).findings, len(again(plan, rows))) == ((), 2)
    # By other hosts than the one that saw both.
    first = {rows[place].client, name}
    assert all(name in pair and pair != first for pair in again(plan, rows))


def test_a_pair_that_is_bad_again_is_a_bad_pair_and_not_a_slow_host():
    """Its host has three more bad tests by chance. What a pair shows again says nothing more about its host."""
    plan = mesh_of(1000)
    rows = rows_of(plan)
    mine = [number for number, row in enumerate(rows) if "n7" in (row.client, row.server)]
    rows[mine[0]] = replace(rows[mine[0]], rate_out=5e8, rate_back=5e8)
    for number in mine[1:4]:
        rows[number] = replace(rows[number], rate_out=5e8)
    later = with_retests(plan, rows, localise(plan, rows))
    pair = {rows[mine[0]].client, rows[mine[0]].server}
    rows += rows_of(later, lambda *way: 5e8 if set(way) == pair else 1e9, len(plan.slots))
    (found,) = judge(later, rows).findings
    assert (found.kind, set(found.names), found.state) == ("bad-pair", pair, CONFIRMED)


def test_a_platform_whose_rates_vary_has_no_findings():
    """The mesh of this seed has a host with 7 bad tests of 16 by chance: one in thirteen is bad in the whole mesh."""
    assert Mesh(1000, 25, 70004).verdict().findings == ()


def test_equivalent_explanations_are_listed_together():
    """Of two groups: what leaves the one enters the other."""
    plan = mesh_of(12, groups=2)
    group = {host.name: plan.group_of(number) for number, host in enumerate(plan.hosts)}

    def rate(sender, receiver):
        return 4e8 if (group[sender], group[receiver]) == ("r0", "r1") else 1e9

    (one,) = judge(plan, rows_of(plan, rate)).findings
    assert sorted([*one.equivalent, f"{one.subject} ({one.direction})"]) == [
        "group r0 (out)",
        "group r0 to group r1 (out)",
        "group r1 (in)",
    ]


def test_a_host_that_never_reported_and_was_never_reached_is_listed():
    plan = mesh_of(6)
    rows = [row for row in rows_of(plan) if "n2" not in (row.client, row.server)]
    found = judge(plan, rows)
    assert (found.silent, found.exit_code) == (("n2",), ExitCode.INCONCLUSIVE)


def test_no_results_are_no_pass():
    plan = mesh_of(6)
    found = judge(plan, [])
    assert (found.exit_code, found.tested, found.planned) == (ExitCode.INCONCLUSIVE, 0, 15)


@pytest.mark.parametrize("error", ["late", "failed", "local"])
def test_tests_that_say_nothing_are_no_pass(error):
    plan = mesh_of(6)
    rows = [replace(row, error=error, rate_out=None, rate_back=None) for row in rows_of(plan)]
    found = judge(plan, rows)
    assert (found.findings, found.failed, found.tested) == ((), 15, 15)
    assert found.exit_code == ExitCode.INCONCLUSIVE


@pytest.mark.parametrize(
    ("busy", "slow", "code"),
    [
        # Every seventh test is slow, and nothing explains it.
        (1.0, 7, ExitCode.INCONCLUSIVE),
        (0.6, 7, ExitCode.INCONCLUSIVE),
        # That is how this platform is: its hosts were not busy.
        (0.4, 7, ExitCode.PASS),
        # Busy hosts, on which nearly all tests are good.
        (1.0, 19, ExitCode.PASS),
    ],
)
def test_a_run_on_busy_hosts_with_many_bad_tests_is_disturbed(busy, slow, code):
    plan = mesh_of(40)
    rows = [
        replace(
            row, disturbed=number < busy * 780, rate_out=5e8 if number % slow == 0 else row.rate_out
        )
        for number, row in enumerate(rows_of(plan))
    ]
    found = judge(plan, rows)
    assert (found.findings, found.exit_code, found.is_disturbed) == ((), code, code != 0)
    assert (found.disturbed, found.unexplained) == (int(busy * 780), -(-780 // slow))


def test_another_interface_than_planned_is_a_wrong_nic():
    plan = mesh_of(12)
    rows = [
        row if row.client != "n3" else Row(row.slot, "n3", row.server, error="wrong-interface")
        for row in rows_of(
            plan, lambda sender, receiver: 1e8 if "n3" in (sender, receiver) else 1e9
        )
    ]
    assert (judge(plan, rows).findings[0].kind, judge(plan, rows).findings[0].subject) == (
        "wrong-nic",
        "n3",
    )


def test_a_host_that_lies_about_all_its_tests_is_the_one_that_is_named():
    plan = mesh_of(20)
    rows = [
        row
        if row.client != "n7"
        else Row(
            row.slot, "n7", row.server, 1.0, 1.0, macs=("02:00:00:00:00:01", "02:00:00:00:00:02")
        )
        for row in rows_of(plan)
    ]
    assert {name for one in judge(plan, rows).findings for name in one.names} == {"n7"}


# --- What hosts send ----------------------------------------------------------------------------------------------------

GOOD = {
    "mesh": 1, "slot": 0, "client": "", "server": "", "rate_out": 9e8, "rate_back": 8e8, "mtu_out": 9000, "mtu_back": 1500,
    "rtt": 1e-4, "macs": ["02:00:00:00:00:01"],
}  # fmt: skip


def good(plan, **change):
    client, server = plan.slots[0][0]
    names = {"client": plan.hosts[client].name, "server": plan.hosts[server].name}
    return {**GOOD, **names, **change}


def test_a_result_survives_its_json():
    plan = mesh_of(4)
    row = read_row(good(plan), plan)
    assert (row.rate_out, row.mtu_back, row.macs) == (9e8, 1500, ("02:00:00:00:00:01",))
    assert read_row(json.loads(json.dumps(row_record(row))), plan) == row


@pytest.mark.parametrize(
    "change",
    [
        {"mesh": 2},
        {"slot": 99},
        {"slot": -1},
        {"slot": True},
        {"slot": "0"},
        {"client": "n9"},
        {"client": ["n0"]},
        {"disturbed": "yes"},
        {"disturbed": 1},
        {"diagnosis": "text"},
        {"diagnosis": [1]},
        {"diagnosis": ["x" * 201]},
        {"diagnosis": ["x"] * 4},
        {"client": {}},
        {"rate_out": -1.0},
        {"rate_out": 1e30},
        {"rate_out": float("nan")},
        {"rate_back": float("inf")},
        {"rate_back": 10**400},
        {"rate_out": "fast"},
        {"rate_out": True},
        {"mtu_out": 10**6},
        {"rtt": [1]},
        {"macs": ["x"]},
        {"macs": "02:00:00:00:00:01"},
        {"macs": ["02:00:00:00:00:01"] * 5},
        {"macs": [[]]},
        {"error": "<script>"},
        {"error": []},
        {"text": "x" * 201},
        {"text": 7},
    ],
)
def test_a_result_out_of_bounds_is_none(change):
    plan = mesh_of(4)
    assert read_row(good(plan, **change), plan) is None


@pytest.mark.parametrize("data", [None, [], 7, "x", {}, {"mesh": 1}])
def test_what_is_no_result_is_none(data):
    assert read_row(data, mesh_of(4)) is None


def test_every_kind_has_its_text():
    from neuca_tools.selftest.mesh.verdict import _TEXTS

    assert set(_TEXTS) == set(KINDS)
