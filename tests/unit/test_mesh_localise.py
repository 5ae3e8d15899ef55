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
from random import Random

import pytest
from mesh_simulator import FAULTS, Mesh, is_named_first, is_of, is_true, mac_of

from neuca_tools.selftest.codes import ExitCode
from neuca_tools.selftest.mesh.entities import (
    PAIRS,
    Endpoint,
    Entity,
    Observation,
    Size,
    is_on_path,
)
from neuca_tools.selftest.mesh.localise import Suspect, Tally, explain_symptom, find_suspects
from neuca_tools.selftest.mesh.model import (
    MeshHost,
    MeshPlan,
    Row,
    plan_record,
    read_row,
    row_record,
)
from neuca_tools.selftest.mesh.observe import reference_values
from neuca_tools.selftest.mesh.report import MeshResult, report_text
from neuca_tools.selftest.mesh.retest import cleared_hosts, is_retest, with_retests
from neuca_tools.selftest.mesh.schedule import make_plan
from neuca_tools.selftest.mesh.verdict import (
    CONFIRMED,
    NOT_REPEATED,
    SUSPECTED,
    _state_after_retests,
    judge_mesh,
    with_diagnosis_slots,
)

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
    places = [
        Endpoint("a", "x"),
        Endpoint("b", "x"),
        Endpoint("c", "y"),
        Endpoint("d", "z"),
        Endpoint("e", ""),
    ]
    seen = [
        Observation(number, one, two, (number * 7) % 3 > 0)
        for number, (one, two) in enumerate([*permutations(places, 2)] * 2)
    ]
    tally = Tally(seen)
    assert len({one.kind for one, _, _ in tally.counts()}) == 12
    for entity in (None, Entity("host", ("a",)), Entity("groups-one-way", ("y", "z"))):
        if entity is not None:
            seen = [one for one in seen if not is_on_path(entity, one.sender, one.receiver)]
            tally.drop(entity)
        ways = {}
        for one in seen:
            ways.setdefault((one.sender, one.receiver), []).append(one.is_bad)
        for counted, bad_count, good_count in tally.counts():
            passed = [bad for way, bad in ways.items() if is_on_path(counted, *way)]
            tests = [one for bad in passed for one in bad]
            if counted.kind not in PAIRS:
                tests = [2 * sum(bad) >= len(bad) for bad in passed]
            assert (bad_count, good_count) == (tests.count(True), tests.count(False))


# --- Parts of it --------------------------------------------------------------------------------------------------------


def mesh_of(count, groups=1, **wanted):
    hosts = [
        MeshHost(f"n{one}", f"10.0.0.{one + 1}", {"rack": f"r{one % groups}"})
        for one in range(count)
    ]
    return make_plan(MeshPlan(hosts, (), 1e9, group="rack", **wanted))


def rows_of(plan, rate=lambda *_: 1e9, first=0):
    return [
        Row(
            number,
            plan.hosts[one].name,
            plan.hosts[two].name,
            rate(plan.hosts[one].name, plan.hosts[two].name),
            rate(plan.hosts[two].name, plan.hosts[one].name),
            macs=(mac_of(plan.hosts[two].name),),
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
    assert reference_values(rows, None, 2e9)["rate"] == 1e9
    assert reference_values(rows, 2e9, 2e9)["rate"] == 2e9
    assert plan.expect is None


@pytest.mark.parametrize(
    ("is_slow", "kind", "subject", "direction"),
    [
        (lambda ends, _: ends[0] == "n5", "slow-egress", "n5", "out"),
        (lambda ends, _: ends[1] == "n5", "slow-ingress", "n5", "in"),
        (lambda ends, _: "n5" in ends, "wrong-nic", "n5", "both"),
        (lambda _, racks: racks[0] == "r1" != racks[1], "group-boundary", "group r1", "out"),
        (lambda _, racks: racks[1] == "r1" != racks[0], "group-boundary", "group r1", "in"),
        (lambda _, racks: racks.count("r1") == 1, "group-boundary", "group r1", "both"),
        (lambda _, racks: "r1" in racks, "slow-group", "group r1, inside and out", "both"),
        (lambda _, racks: racks.count("r1") == 2, "slow-group", "inside group r1", "both"),
        (lambda _, racks: racks == ("r1", "r2"), "asymmetric-route", "group r1 to group r2", "out"),
        (lambda _, racks: {*racks} == {"r1", "r2"}, "group-boundary", "group r1 and group r2", "both"),
    ],
)  # fmt: skip
def test_what_is_slow_is_named_with_its_direction(is_slow, kind, subject, direction):
    def rate(*ends):
        racks = tuple(f"r{int(name[1:]) % 4}" for name in ends)
        return 5e8 if is_slow(ends, racks) else 1e9

    plan = mesh_of(40, 4, rounds=39)
    (one,) = judge_mesh(plan, rows_of(plan, rate)).findings
    assert (one.kind, one.subject, one.direction) == (kind, subject, direction)


def test_a_burst_above_the_rate_of_the_plan_makes_no_other_path_slow():
    plan = mesh_of(16)
    rows = rows_of(plan, lambda *way: 1.3e9 if way > ("n3",) else 1e9)
    assert judge_mesh(plan, rows).findings == ()


def test_a_finding_is_suspected_until_a_retest_shows_it_again():
    plan = mesh_of(12)
    rows = rows_of(plan, slow("n3"))
    (one,) = judge_mesh(plan, rows).findings
    assert (one.kind, one.subject, one.direction, one.state) == (
        "slow-egress",
        "n3",
        "out",
        SUSPECTED,
    )
    assert judge_mesh(plan, rows).exit_code == ExitCode.INCONCLUSIVE
    again = with_retests(plan, rows, find_suspects(plan, rows))
    bad, good = (rows_of(again, rate, len(plan.slots)) for rate in (slow("n3"), slow("")))
    (one,) = judge_mesh(again, rows + bad).findings
    assert (one.state, judge_mesh(again, rows + bad).exit_code) == (CONFIRMED, ExitCode.BELOW)
    (one,) = judge_mesh(again, rows + good).findings
    assert (one.state, judge_mesh(again, rows + good).exit_code) == (NOT_REPEATED, ExitCode.PASS)


@pytest.mark.parametrize(
    ("bad", "good", "state"),
    [(2, 4, CONFIRMED), (1, 1, SUSPECTED), (0, 3, SUSPECTED), (0, 4, NOT_REPEATED)],
)
def test_the_retests_alone_confirm_a_fault_of_half_of_the_tests_or_clear_it(bad, good, state):
    """Log-likelihood ratios of 2.4, 1.9, -2.0 and -2.6."""
    entity = Entity("host-out", ("n1",))
    suspect = Suspect("rate", entity, 9.0, 5, 5, fault_probability=0.5)
    ends = (Endpoint("n1", ""), Endpoint("n2", ""))
    retests = [Observation(number, *ends, number < bad) for number in range(bad + good)]
    others = [Observation(number, *reversed(ends), True) for number in range(9)]
    assert _state_after_retests(suspect, [*retests, *others]) == state


def test_retests_are_against_two_cleared_hosts():
    plan = mesh_of(80)
    rows = rows_of(plan, slow("n3"))
    found = find_suspects(plan, rows)
    good = cleared_hosts(rows, found)
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
    assert with_retests(plan, rows_of(plan), find_suspects(plan, rows_of(plan))) == plan


def again(plan, rows):
    """The pairs of the retests."""
    later = with_retests(plan, rows, find_suspects(plan, rows))
    return [
        {plan.hosts[one].name for one in pair}
        for slot in later.slots[len(plan.slots) :]
        for pair in slot
    ]


def test_what_is_confirmed_gets_a_full_diagnosis_and_nothing_else_does():
    """The sender of its latest bad test is the client, and what it says belongs to the finding."""
    plan = mesh_of(16)
    rows = rows_of(plan, slow("n4"))
    assert (
        with_diagnosis_slots(plan, rows).tests
        == plan.slots
        == with_diagnosis_slots(plan, rows).slots
    )
    later = with_retests(plan, rows, find_suspects(plan, rows))
    rows += rows_of(later, slow("n4"), len(plan.slots))
    (found,) = judge_mesh(later, rows).findings
    asked = with_diagnosis_slots(later, rows)
    (((client, server),),) = asked.slots[len(asked.tests) :]
    assert (asked.hosts[client].name, asked.hosts[server].name) == found.path
    assert (found.path[0], found.diagnosis, asked.tests) == ("n4", (), later.slots)
    told = Row(len(asked.tests), *found.path, diagnosis=("CPU-bound sender: a CPU is full",))
    assert read_row(json.loads(json.dumps(row_record(told))), asked) == told
    verdict = judge_mesh(asked, [*rows, told])
    assert verdict.findings == (replace(found, diagnosis=told.diagnosis),)
    assert (verdict.tested, verdict.planned) == (len(rows), sum(map(len, later.slots)))


def test_two_bad_pairs_of_one_host_are_both_retested_in_each_round():
    plan = mesh_of(60)
    first, second = {"n3", "n8"}, {"n3", "n9"}
    rows = rows_of(plan, lambda *way: 5e8 if set(way) in (first, second) else 1e9)
    pairs = again(plan, rows)
    assert (pairs.count(first), pairs.count(second)) == (4, 4)


def test_a_host_is_retested_if_two_answered_for_its_address_in_one_test():
    plan = mesh_of(100)
    rows = rows_of(plan)
    # Of one that several others have asked, the pair is more likely to be at fault.
    name, count = Counter(row.server for row in rows).most_common()[-1]
    assert count == 1
    place = next(number for number, row in enumerate(rows) if row.server == name)
    rows[place] = replace(rows[place], macs=("02:00:00:00:00:01", "02:00:00:00:00:02"))
    assert (judge_mesh(plan, rows).findings, len(again(plan, rows))) == ((), 2)
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
    later = with_retests(plan, rows, find_suspects(plan, rows))
    pair = {rows[mine[0]].client, rows[mine[0]].server}
    rows += rows_of(later, lambda *way: 5e8 if set(way) == pair else 1e9, len(plan.slots))
    (found,) = judge_mesh(later, rows).findings
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

    (one,) = judge_mesh(plan, rows_of(plan, rate)).findings
    assert sorted([*one.equivalent, f"{one.subject} ({one.direction})"]) == [
        "group r0 (out)",
        "group r0 to group r1 (out)",
        "group r1 (in)",
    ]


def test_a_host_that_never_reported_and_was_never_reached_is_listed():
    plan = mesh_of(6)
    rows = [row for row in rows_of(plan) if "n2" not in (row.client, row.server)]
    found = judge_mesh(plan, rows)
    assert (found.silent, found.exit_code) == (("n2",), ExitCode.INCONCLUSIVE)


def test_a_host_that_leaves_is_silent_and_not_called_unreachable():
    """Others cannot reach it from slot 1 on."""
    plan, reasons = mesh_of(12), {"n2": "exited with exit code 137"}
    rows = [
        replace(row, rate_out=None, rate_back=None, error="timeout")
        if row.slot >= 1 and row.server == "n2"
        else row
        for row in rows_of(plan)
        if row.slot < 1 or row.client != "n2"
    ]
    found = judge_mesh(plan, rows, reasons)
    assert (found.findings, found.tested) == ((), len(rows))
    assert (found.reason_by_silent_host, found.exit_code) == (reasons, ExitCode.INCONCLUSIVE)
    assert {name for pair in found.untested for name in pair} >= set(found.silent)
    # Without a reason, it is the host that is at fault.
    assert [finding.kind for finding in judge_mesh(plan, rows).findings] == ["unreachable"]


def test_a_host_without_iperf3_has_its_reason_and_is_not_far_away():
    """The round trips of its tests are those of the helper alone. Retests are in the other direction."""
    plan, text = mesh_of(6), "start iperf3: No such file or directory"
    rows = failing(plan, lambda *names: "n2" in names, error="failed", text=text, rtt=0.006)
    rows = [row if row.error else replace(row, rtt=7e-6) for row in rows]
    again = [
        replace(row, slot=len(plan.slots), client=row.server, server=row.client)
        for row in rows
        if row.error
    ]
    pairs = [tuple(int(name[1:]) for name in (row.client, row.server)) for row in again]
    plan = replace(plan, slots=(*plan.slots, *((pair,) for pair in pairs)), retests=len(plan.slots))
    rows += [replace(row, slot=row.slot + place) for place, row in enumerate(again)]
    verdict = judge_mesh(plan, rows)
    assert (verdict.findings, verdict.exit_code) == ((), ExitCode.INCONCLUSIVE)
    lines = report_text(MeshResult(plan, rows, verdict)).splitlines()
    assert f"NOT TESTED   5 pairs have no result: n2 with 5 hosts: {text}" in lines


def test_no_results_are_no_pass():
    plan = mesh_of(6)
    found = judge_mesh(plan, [])
    assert (found.exit_code, found.tested, found.planned) == (ExitCode.INCONCLUSIVE, 0, 15)


@pytest.mark.parametrize("error", ["late", "failed", "local"])
def test_tests_that_say_nothing_are_no_pass(error):
    plan = mesh_of(6)
    rows = [replace(row, error=error, rate_out=None, rate_back=None) for row in rows_of(plan)]
    found = judge_mesh(plan, rows)
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
    found = judge_mesh(plan, rows)
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
    assert (
        judge_mesh(plan, rows).findings[0].kind,
        judge_mesh(plan, rows).findings[0].subject,
    ) == (
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
    assert {name for one in judge_mesh(plan, rows).findings for name in one.names} == {"n7"}


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


# --- What rows say of causes --------------------------------------------------------------------------------------------


def numbers_of(plan, **values):
    """Rows with these values; each is a function of the sender and the receiver."""

    def value(name, sender, receiver):
        return values[name](sender, receiver) if name in values else None

    return [
        replace(
            row,
            loss_out=value("loss", row.client, row.server),
            loss_back=value("loss", row.server, row.client),
            rtt=value("rtt", row.client, row.server),
            jitter=value("jitter", row.client, row.server),
        )
        for row in rows_of(plan)
    ]


def confirmed(plan, rows_for):
    """The findings after the retests; `rows_for` makes the rows of a plan."""
    rows = rows_for(plan)
    later = with_retests(plan, rows, find_suspects(plan, rows))
    return judge_mesh(later, rows + [row for row in rows_for(later) if row.slot >= len(plan.slots)])


@pytest.mark.parametrize(
    ("share", "healthy"), [(0.02, 0.002), (0.05, 0.0), (0.1, 0.01)], ids=["2%", "5%", "10%"]
)
def test_loss_into_one_host_is_found_although_its_rates_are_good(share, healthy):
    def loss(_, receiver):
        return share if receiver == "n5" else healthy

    found = confirmed(mesh_of(24, groups=3, rounds=8), lambda plan: numbers_of(plan, loss=loss))
    (finding,) = found.findings
    assert (finding.kind, finding.subject, finding.direction) == ("loss", "n5", "in")
    assert (finding.state, found.exit_code) == (CONFIRMED, ExitCode.BELOW)
    shown = {0.02: "2.0", 0.05: "5.0", 0.1: "10"}[share]
    assert finding.measured[0].startswith(f"loss {shown}% (others "), finding.measured


@pytest.mark.parametrize(("symptom", "bad"), [("rtt", 0.04), ("jitter", 0.08)])
def test_a_host_far_away_in_its_own_rack_is_found_by_its_times(symptom, bad):
    def time(*way):
        return bad if "n2" in way else 3e-4

    found = confirmed(
        mesh_of(24, groups=3, rounds=8), lambda plan: numbers_of(plan, **{symptom: time})
    )
    (finding,) = found.findings
    kind = {"rtt": "delay", "jitter": "jitter"}[symptom]
    assert (finding.kind, finding.names, finding.state) == (kind, ("n2",), CONFIRMED)
    shown = {
        "rtt": "round trip 40.0 ms (others 300 µs)",
        "jitter": "jitter 80.0 ms (others 300 µs)",
    }
    assert finding.measured[0] == shown[symptom]


def test_the_distance_between_groups_is_no_fault():
    plan = mesh_of(24, groups=3)
    group = {host.name: plan.group_of(number) for number, host in enumerate(plan.hosts)}
    far = {("r0", "r1"): 0.01, ("r0", "r2"): 0.08, ("r1", "r2"): 0.07}

    def rtt(*way):
        return far.get(tuple(sorted(group[name] for name in way)), 2e-4)

    found = judge_mesh(plan, numbers_of(plan, rtt=rtt))
    assert (found.findings, found.exit_code) == ((), ExitCode.PASS)


def test_losses_of_healthy_paths_that_vary_are_no_finding():
    """As behind shapers with short queues, where a tenth of the tests lose 3 %."""
    plan = mesh_of(24, groups=3, rounds=8)
    rows = [
        replace(row, loss_out=0.03 if number % 10 == 0 else 0.004, loss_back=0.004)
        for number, row in enumerate(rows_of(plan))
    ]
    assert judge_mesh(plan, rows).findings == ()


def test_times_of_busy_hosts_are_no_finding():
    """As of namespaces of one machine with a load of 30: they vary from 0.3 to 100 ms, by chance."""
    chance = Random("busy")
    plan = mesh_of(16, groups=3, rounds=8)
    rows = [
        replace(
            row, disturbed=True, jitter=0.1 ** chance.uniform(1, 3), rtt=0.1 ** chance.uniform(2, 4)
        )
        for row in rows_of(plan)
    ]
    assert judge_mesh(plan, rows).findings == ()


def test_all_paths_at_half_of_what_is_expected_are_one_finding():
    plan = mesh_of(12, expect=2e9)
    found = judge_mesh(plan, rows_of(plan))
    (finding,) = found.findings
    assert (finding.kind, finding.subject, finding.state) == (
        "slow-everywhere",
        "all paths",
        CONFIRMED,
    )
    assert finding.measured == ("rate 1.00 Gbit/s (expected 2.00 Gbit/s)",)
    assert (found.exit_code, found.good_pairs) == (ExitCode.BELOW, 0)
    # One that is slower than the others is still found among them.
    kinds = [
        (one.kind, one.subject) for one in judge_mesh(plan, rows_of(plan, slow("n3"))).findings
    ]
    assert kinds == [("slow-everywhere", "all paths"), ("slow-egress", "n3")]


def test_a_pair_that_failed_once_and_was_not_tested_again_is_no_pass():
    """After join without a coordinator, nothing is tested again."""
    plan = mesh_of(10)
    found = judge_mesh(plan, failing(plan, lambda *names: set(names) == {"n0", "n1"}))
    assert (found.findings, found.good_pairs, found.pairs) == ((), 44, 45)
    assert (found.exit_code, list(map(set, found.untested))) == (
        ExitCode.INCONCLUSIVE,
        [{"n0", "n1"}],
    )


def test_paths_that_carry_nothing_are_no_pass():
    plan = mesh_of(12)
    rows = rows_of(plan, lambda *_: 0.0)
    assert judge_mesh(plan, rows).exit_code == ExitCode.INCONCLUSIVE
    assert judge_mesh(plan, rows).good_pairs == 0
    expected = judge_mesh(replace(plan, expect=2e9), rows)
    assert (expected.findings[0].kind, expected.exit_code) == ("slow-everywhere", ExitCode.BELOW)


def failing(plan, fails, **change):
    """Rows of which those fail that `fails` says, of the client and the server."""
    return [
        replace(row, rate_out=None, rate_back=None, macs=(), **{"error": "timeout", **change})
        if fails(row.client, row.server)
        else row
        for row in rows_of(plan)
    ]


@pytest.mark.parametrize("count", [3, 5, 6, 10])
@pytest.mark.parametrize("seed", range(1, 11))
def test_a_pair_or_host_without_a_connection_is_found_in_a_small_mesh(count, seed):
    """A suspect that is not likely enough does not hide that its pair has no good test."""
    plan = mesh_of(count, seed=seed)
    of_pair = confirmed(plan, lambda of: failing(of, lambda *names: set(names) == {"n0", "n1"}))
    kinds = [(finding.kind, finding.subject, finding.state) for finding in of_pair.findings]
    assert kinds == [("bad-pair", "n0 and n1", CONFIRMED)]
    (of_host,) = confirmed(plan, lambda of: failing(of, lambda *names: "n1" in names)).findings
    assert (of_host.kind, of_host.subject, of_host.state) == ("unreachable", "n1", CONFIRMED)


def test_no_connection_in_one_direction_is_not_called_slow():
    plan = mesh_of(16)
    one, two = (plan.hosts[place].name for place in plan.slots[3][0])
    found = confirmed(plan, lambda of: failing(of, lambda *way: way == (one, two)))
    (finding,) = found.findings
    assert (finding.kind, finding.state) == ("bad-pair", CONFIRMED)
    assert finding.text == f"no connection from {one} to {two}"


@pytest.mark.parametrize("count", [4, 64])
def test_a_pair_that_is_bad_in_one_direction_is_named_with_it(count):
    plan, way = mesh_of(count), ("n1", "n3")
    slow = confirmed(plan, lambda of: rows_of(of, lambda *path: 5e8 if path == way else 1e9))
    lossy = confirmed(plan, lambda of: numbers_of(of, loss=lambda *path: 0.05 * (path == way)))
    assert [
        (found.kind, found.subject, found.direction, found.path, found.state)
        for found in (*slow.findings, *lossy.findings)
    ] == [(kind, "n1 to n3", "out", way, CONFIRMED) for kind in ("asymmetric-route", "loss")]


def test_a_pair_of_which_a_test_has_one_result_is_found_among_64_hosts():
    plan, pair = mesh_of(64), {"n1", "n3"}
    dead = confirmed(plan, lambda of: failing(of, lambda *names: set(names) == pair))
    far = confirmed(
        plan, lambda of: numbers_of(of, rtt=lambda *way: 0.05 if set(way) == pair else 1e-4)
    )
    assert [
        (found.kind, found.subject, found.state, found.equivalent)
        for found in (*dead.findings, *far.findings)
    ] == [(kind, "n1 and n3", CONFIRMED, ()) for kind in ("bad-pair", "delay")]


@pytest.mark.parametrize("seed", range(7000, 7003))
def test_a_pair_that_is_never_good_is_tested_again_before_directions_that_are_bad_by_chance(seed):
    mesh = Mesh(64, 4, seed, ("bad-pair",))
    assert is_named_first(mesh.faults[0], mesh, mesh.verdict().confirmed)


@pytest.mark.parametrize("groups", [1, 3])
def test_a_host_to_which_no_neighbour_responds_may_have_the_right_routes(groups):
    """Its NIC is in another VLAN, or its cable in another switch: ARP gets no response in either direction."""
    plan = mesh_of(24, groups=groups)

    def row_of(row):
        if "n4" not in (row.client, row.server):
            return row
        return replace(row, rate_out=None, rate_back=None, error="no-route")

    found = judge_mesh(plan, [row_of(row) for row in rows_of(plan)])
    assert [(one.kind, one.names) for one in found.findings] == [("unreachable", ("n4",))]


@pytest.mark.parametrize("own_error", ["no-network", "no-route"])
def test_a_wrong_mask_is_no_firewall(own_error):
    """Too long, it leaves no route to other racks; too short, no neighbour there answers. Within its rack all is well."""
    plan = mesh_of(24, groups=3)
    group = {host.name: plan.group_of(number) for number, host in enumerate(plan.hosts)}

    def row_of(row):
        if "n4" not in (row.client, row.server) or group[row.client] == group[row.server]:
            return row
        error = own_error if row.client == "n4" else "timeout"
        return replace(row, rate_out=None, rate_back=None, error=error)

    found = judge_mesh(plan, [row_of(row) for row in rows_of(plan)])
    assert [(one.kind, one.names) for one in found.findings] == [("no-route", ("n4",))]
    text = "it has no route to the others: its address mask or a route is wrong"
    assert found.findings[0].text == f"{text}; only tests within r1 work"


@pytest.mark.parametrize("bad_of_five", [4, 2])
def test_half_of_the_flows_is_said(bad_of_five):
    """A test has several connections, and repeats some, so that more or fewer than half fail."""
    plan = mesh_of(24, groups=3)
    group = {host.name: plan.group_of(number) for number, host in enumerate(plan.hosts)}
    lost = {}

    def fails(client, server):
        if group[client] == group[server] or "r2" not in (group[client], group[server]):
            return False
        lost[client, server] = len(lost)
        return lost[client, server] % 5 < bad_of_five

    finding = judge_mesh(plan, failing(plan, fails)).findings[0]
    assert (finding.kind, "r2" in finding.names) == ("unreachable", True)
    assert "of its tests get no connection, the others work: as when one of several" in finding.text


def test_lost_connections_of_each_test_show_a_path_that_loses_everything():
    plan = mesh_of(24, groups=3)
    group = {host.name: plan.group_of(number) for number, host in enumerate(plan.hosts)}
    text = "7 of 16 connections got no response"

    def of_border(row):
        groups = {group[row.client], group[row.server]}
        return len(groups) == 2 and "r2" in groups

    def rows_of_plan(plan):
        return failing(plan, lambda *way: of_border(Row(0, *way)), error="some-lost", text=text)

    (finding,) = confirmed(plan, rows_of_plan).findings
    assert (finding.kind, finding.subject, finding.state) == ("unreachable", "group r2", CONFIRMED)
    assert finding.text == text


def test_a_server_that_answers_some_connections_is_not_silent():
    plan = mesh_of(2)
    rows = failing(plan, lambda *_: True, error="some-lost")
    assert judge_mesh(plan, rows).silent == ()


def test_a_duplicate_address_names_both_hosts_and_both_macs():
    plan = mesh_of(16)
    rows = [
        replace(row, macs=(mac_of("n3"), mac_of("n9"))) if row.server == "n3" else row
        for row in rows_of(plan)
    ]
    finding = judge_mesh(plan, rows).findings[0]
    assert (finding.kind, finding.names) == ("duplicate-address", ("n3",))
    assert f"{mac_of('n3')} and {mac_of('n9')} (n9) answer for it" in finding.text


def test_an_address_that_two_hosts_have_is_that_of_the_server_whoever_sees_it():
    """A single client has the server's address in its own network, and is tested with it again."""
    plan = mesh_of(24, groups=3)
    slot = next(slot for slot in plan.slots if slot)
    client, server = (plan.hosts[place].name for place in slot[0])
    macs = (mac_of(server), "02:66:00:00:00:01")
    rows = [
        replace(row, macs=macs if (row.client, row.server) == (client, server) else ())
        for row in rows_of(plan)
    ]
    again = [
        replace(row, slot=len(plan.slots) + turn) for row in rows for turn in (0, 1) if row.macs
    ]
    later = replace(plan, slots=(*plan.slots, slot[:1], slot[:1]), retests=len(plan.slots))
    (finding,) = judge_mesh(later, [*rows, *again]).findings
    assert (finding.kind, finding.subject, finding.names) == (
        "duplicate-address",
        server,
        (server,),
    )
    assert finding.state == CONFIRMED


def test_a_host_that_cannot_connect_is_retested_as_a_client():
    plan = mesh_of(24, groups=3, rounds=8)
    found = confirmed(plan, lambda of: failing(of, lambda client, _: client == "n4"))
    assert [(one.kind, one.subject, one.direction, one.state) for one in found.findings] == [
        ("unreachable", "n4", "out", CONFIRMED)
    ]


def test_pairs_without_a_connection_are_no_pass_after_good_retests_of_their_group():
    plan = mesh_of(24, groups=3)
    group = plan.group_by_host

    def fails(client, server):
        return group[client] != group[server] and "r2" in (group[client], group[server])

    rows = failing(plan, fails)
    later = with_retests(plan, rows, find_suspects(plan, rows))
    found = judge_mesh(later, rows + [row for row in rows_of(later) if row.slot >= len(plan.slots)])
    assert {finding.state for finding in found.findings} == {NOT_REPEATED}
    assert (bool(found.untested), found.exit_code) == (True, ExitCode.INCONCLUSIVE)


def test_a_host_that_has_the_address_of_its_peer_is_named():
    """Behind a router no MAC is known, and the other host refuses all connections."""
    plan = mesh_of(16)
    client = next(row.client for row in rows_of(plan) if row.server == "n3")
    rows = [
        replace(
            row,
            macs=(),
            rate_out=None,
            rate_back=None,
            error="own-address" if row.client == client else "refused",
        )
        if row.server == "n3"
        else row
        for row in rows_of(plan)
    ]
    finding = judge_mesh(plan, rows).findings[0]
    assert (finding.kind, finding.names) == ("duplicate-address", ("n3",))
    assert finding.text == f"another host has its address too: {client}"


@pytest.mark.parametrize("macs", [1, 0])
def test_another_secret_is_no_second_host_where_a_single_mac_answers(macs):
    """Behind a gateway, no MAC is known."""
    plan = mesh_of(16)
    rows = [
        replace(
            row, macs=row.macs[:macs], rate_out=None, rate_back=None, error="wrong-peer", text="x"
        )
        if row.server == "n3"
        else row
        for row in rows_of(plan)
    ]
    finding = judge_mesh(plan, rows).findings[0]
    kind = {1: "other-test", 0: "duplicate-address"}[macs]
    assert (finding.kind, finding.names) == (kind, ("n3",))


def test_two_hosts_with_one_mac_are_both_named_and_a_router_is_not():
    plan = mesh_of(16)
    rows = [
        replace(row, macs=(mac_of("n3"),)) if row.server == "n9" else row for row in rows_of(plan)
    ]
    findings = judge_mesh(plan, rows).findings
    assert {one.names for one in findings} == {("n3",), ("n9",)}
    assert {one.kind for one in findings} == {"duplicate-mac"}
    assert {one.text for one in findings} == {f"n3 and n9 both have the MAC {mac_of('n3')}"}
    behind = [replace(row, macs=(mac_of("n0"),)) for row in rows_of(plan)]
    assert judge_mesh(plan, behind).findings == ()


def behind_routers(plan, same):
    """Rows with the MACs of racks, of which the second host of `same` has that of the first."""
    group = plan.group_by_host
    mac = {name: mac_of(same[0] if name == same[1] else name) for name in group}
    return [
        replace(
            row,
            own_mac=mac[row.client],
            macs=(mac[row.server],) if group[row.client] == group[row.server] else (),
        )
        for row in rows_of(plan)
    ]


def test_two_hosts_with_one_mac_are_no_fault_where_a_router_is_between_them():
    plan = mesh_of(24, groups=3)
    assert confirmed(plan, lambda of: behind_routers(of, ("n0", "n1"))).findings == ()
    findings = confirmed(plan, lambda of: behind_routers(of, ("n0", "n3"))).findings
    assert {(one.kind, one.names) for one in findings} == {
        ("duplicate-mac", ("n0",)),
        ("duplicate-mac", ("n3",)),
    }


def test_a_client_that_sees_one_mac_for_two_servers_is_not_at_fault():
    plan = mesh_of(24, groups=3)
    twins, client = ("n0", "n3"), "n12"

    def rows_of_plan(plan):
        return [
            row if {row.client, row.server} & {client} else replace(row, macs=())
            for row in behind_routers(plan, twins)
            if row.client == client or row.server not in twins
        ]

    (finding,) = judge_mesh(plan, rows_of_plan(plan)).findings
    assert (finding.kind, set(finding.names) < set(twins)) == ("duplicate-mac", True)


def test_a_host_without_a_connection_has_the_mac_that_it_reports_itself():
    plan = mesh_of(24, groups=3)

    def rows_of_plan(plan):
        return [
            replace(row, macs=(), rate_out=None, rate_back=None, error="timeout")
            if row.server == "n3"
            else row
            for row in behind_routers(plan, ("n0", "n3"))
        ]

    finding = confirmed(plan, rows_of_plan).findings[0]
    assert (finding.kind, finding.names) == ("duplicate-mac", ("n3",))
    assert finding.text == f"n0 and n3 both have the MAC {mac_of('n0')}"


def test_a_link_that_flaps_is_no_wrong_nic():
    plan = mesh_of(16)
    rows = [
        replace(row, flaps=2) if row.client == "n6" else row
        for row in rows_of(plan, lambda *way: 6e8 if "n6" in way else 1e9)
    ]
    finding = judge_mesh(plan, rows).findings[0]
    assert (finding.kind, finding.names) == ("flapping-link", ("n6",))
    assert "changes of its carrier during tests" in finding.text


def test_a_link_that_flaps_is_no_pass_although_its_rates_are_good():
    def rows_of_plan(plan):
        return [replace(row, flaps=8 if row.client == "n6" else 0) for row in rows_of(plan)]

    (finding,) = confirmed(mesh_of(24, groups=3, rounds=8), rows_of_plan).findings
    assert (finding.kind, finding.names, finding.state) == ("flapping-link", ("n6",), CONFIRMED)


def test_a_host_whose_processors_are_full_is_no_wrong_nic():
    plan = mesh_of(16)

    def row_with(row, partners):
        busy = {"n6": 0.9}
        return replace(
            row,
            busy_client=busy.get(row.client, partners),
            busy_server=busy.get(row.server, partners),
        )

    rows = rows_of(plan, lambda *way: 6e8 if "n6" in way else 1e9)
    finding = judge_mesh(plan, [row_with(row, 0.1) for row in rows]).findings[0]
    assert (finding.kind, finding.names) == ("busy-host", ("n6",))
    assert judge_mesh(plan, [row_with(row, 0.9) for row in rows]).findings[0].kind == "wrong-nic"
    assert judge_mesh(plan, rows).findings[0].kind == "wrong-nic"


def test_a_small_mtu_of_a_nic_is_no_hole():
    plan = mesh_of(16)
    rows = [
        replace(row, mtu_out=1400, mtu_back=1400, nic_mtu=1400 if row.client == "n6" else 1500)
        if "n6" in (row.client, row.server)
        else replace(row, mtu_out=1500, mtu_back=1500, nic_mtu=1500)
        for row in rows_of(plan)
    ]
    finding = judge_mesh(plan, rows).findings[0]
    assert (finding.kind, finding.names) == ("small-mtu", ("n6",))
    assert finding.text == "its NIC has an MTU of 1400 bytes, paths of the others more"
    more = [replace(row, mtu_back=1404) if row.nic_mtu == 1400 else row for row in rows]
    assert judge_mesh(plan, more).findings[0].kind == "small-mtu"
    hole = [replace(row, nic_mtu=1500) for row in rows]
    assert judge_mesh(plan, hole).findings[0].kind == "mtu-hole"


def test_large_packets_lost_on_the_way_into_a_host_are_a_hole_although_its_own_arrive():
    plan = mesh_of(16)
    size = {"n6": 1400}
    rows = [
        replace(
            row,
            nic_mtu=9000,
            mtu_out=size.get(row.server, 9000),
            mtu_back=size.get(row.client, 9000),
        )
        for row in rows_of(plan)
    ]
    found = judge_mesh(plan, rows)
    assert [(one.kind, one.subject, one.direction) for one in found.findings] == [
        ("mtu-hole", "n6", "in")
    ]
    assert found.findings[0].text == "large packets do not get through, small ones do"


def test_a_slow_core_between_two_groups_that_loses_packets_is_retested():
    """Most results of every host are bad: low rates and, in the same tests, losses and long round trips."""
    group = mesh_of(8, groups=2).group_by_host

    def rows(plan):
        return [
            replace(row, rate_out=4e8, rate_back=4e8, loss_out=0.3, loss_back=0.3, rtt=0.05)
            if group[row.client] != group[row.server]
            else replace(row, loss_out=0.0, loss_back=0.0, rtt=1e-5)
            for row in rows_of(plan)
        ]

    found = confirmed(mesh_of(8, groups=2), rows)
    assert (found.findings[0].kind, found.findings[0].state) == ("group-boundary", CONFIRMED)
    assert found.exit_code == ExitCode.BELOW


def test_a_doubtful_host_is_retested_also_if_a_more_likely_one_is_named_after_it():
    """The good test from a to b is no evidence for b any more once the tests of a are explained."""
    bad = ["ac", "ad", "ae", "gb", "hb", "cb"]
    good = ["af", "ab", "db", *("".join(pair) for pair in combinations("cdefgh", 2))]
    tests = [
        Observation(number, Endpoint(way[0], ""), Endpoint(way[1], ""), way in bad)
        for number, way in enumerate([*bad, *good])
    ]
    suspicions = explain_symptom("rate", tests, Size(hosts=8, groups=1, pairs=28))
    assert [one.entity.names for one in suspicions.suspects] == [("b",)]
    assert [one.entity.names for one in suspicions.doubtful] == [("a",)]


def test_what_has_no_result_is_tested_again():
    plan = mesh_of(8)
    rows = [
        replace(row, error="late", rate_out=None) if row.slot == 2 else row for row in rows_of(plan)
    ]
    later = with_retests(plan, rows, find_suspects(plan, rows))
    assert sum(map(len, later.slots[len(plan.slots) :])) == len(plan.slots[2])
    whole = rows + rows_of(later, first=len(plan.slots))
    assert (judge_mesh(plan, rows).exit_code, judge_mesh(later, whole).exit_code) == (6, 0)


def test_several_paths_of_a_group_are_diagnosed_at_a_time():
    mesh = Mesh(24, 3, 1, ("group-boundary",))
    rows = mesh.rows(mesh.plan)
    later = with_retests(mesh.plan, rows, find_suspects(mesh.plan, rows))
    asked = with_diagnosis_slots(later, rows + mesh.rows(later, len(mesh.plan.slots)))
    (slot,) = asked.slots[len(asked.tests) :]
    assert len(slot) == 4
    names = [tuple(asked.hosts[place].name for place in pair) for pair in slot[:2]]
    good = [Row(len(asked.tests), *way, rate_out=1e9) for way in names]
    (finding,) = judge_mesh(asked, rows + mesh.rows(later, len(mesh.plan.slots)) + good).findings
    assert finding.diagnosis == (
        "1.00 Gbit/s arrived when it was tested with 1 other at the same time: not always slow",
    )
