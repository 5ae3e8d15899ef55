"""The reports of a mesh: one line, a list, JSON by its schema, OpenMetrics, Nagios, and a page whose size is bounded."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from jsonschema import Draft202012Validator
from mesh_simulator import Mesh
from selftest_schema import MESH_PATH, mesh_schema, published, validated
from test_mesh_localise import mesh_of, rows_of, slow

from neuca_tools.commands.neuca import main
from neuca_tools.selftest.mesh import page
from neuca_tools.selftest.mesh.localise import find_suspects
from neuca_tools.selftest.mesh.model import MeshHost, MeshPlan, Row, plan_record, row_record
from neuca_tools.selftest.mesh.page import cells_by_path, heat_map, mesh_page
from neuca_tools.selftest.mesh.report import (
    MeshResult,
    nagios_line,
    report_data,
    report_json,
    report_metrics,
    report_text,
    verdict_line,
)
from neuca_tools.selftest.mesh.retest import with_retests
from neuca_tools.selftest.mesh.schedule import budget_line, make_plan
from neuca_tools.selftest.mesh.verdict import judge_mesh, with_diagnosis_slots


def result_of(plan, rows):
    return MeshResult(plan, rows, judge_mesh(plan, rows), 1.7e9)


@pytest.fixture(scope="module")
def healthy():
    plan = mesh_of(6, groups=2)
    return result_of(plan, rows_of(plan))


@pytest.fixture(scope="module")
def faulty():
    """n3 of twelve hosts sends slowly, and a retest has confirmed that."""
    plan = mesh_of(12)
    rows = rows_of(plan, slow("n3"))
    again = with_retests(plan, rows, find_suspects(plan, rows))
    return result_of(again, rows + rows_of(again, slow("n3"), len(plan.slots)))


@pytest.fixture(scope="module")
def large():
    mesh = Mesh(1000, 25, 1, ("group-boundary",))
    return result_of(mesh.plan, mesh.rows(mesh.plan))


def test_a_healthy_mesh_in_one_line(healthy):
    assert verdict_line(healthy) == "MESH pass: 15 of 15 tests"
    assert report_text(healthy).splitlines() == [
        "REFERENCE    1.00 Gbit/s",
        "PAIRS        15 of 15 pass, at 1.00 Gbit/s to 1.00 Gbit/s",
        "MESH pass: 15 of 15 tests",
    ]


def test_a_fault_in_one_line_and_in_a_list(faulty):
    assert (
        verdict_line(faulty) == "MESH fault found: 68 of 68 tests, slow-egress n3 (out) confirmed"
    )
    head, numbers, tests, ways, *_ = report_text(faulty).splitlines()
    assert numbers == "             rate 500 Mbit/s (expected 1.00 Gbit/s)"
    assert {one.partition(" > ")[0] for one in ways.strip().split(", ")} == {"n3"}
    assert (
        head == "CONFIRMED    slow-egress n3 (out): what it sends is slow, what it receives is not"
    )
    assert tests == "             11 bad, 0 good tests of rate, score 31.7"


def test_the_full_diagnosis_of_a_path_belongs_to_its_finding(faulty):
    path = faulty.verdict.findings[0].path
    plan = with_diagnosis_slots(faulty.plan, faulty.rows)
    row = Row(len(plan.tests), *path, diagnosis=("CPU-bound sender: a <CPU> is full",))
    result = MeshResult(plan, faulty.rows, judge_mesh(plan, [*faulty.rows, row]))
    said = f"             {' > '.join(path)}: CPU-bound sender: a <CPU> is full"
    assert said in report_text(result).splitlines()
    assert "<ul><li>CPU-bound sender: a &lt;CPU&gt; is full</li></ul>" in mesh_page(result)
    assert verdict_line(result) == verdict_line(faulty)


def test_a_path_that_is_good_alone_does_not_contradict_its_finding(faulty):
    """All that its diagnosis says of a path at full rate is about another state of it."""
    path = faulty.verdict.findings[0].path
    plan = with_diagnosis_slots(faulty.plan, faulty.rows)
    row = Row(len(plan.tests), *path, 9.9e8, diagnosis=("path capacity reached: 990 Mbit/s",))
    (finding,) = judge_mesh(plan, [*faulty.rows, row]).findings
    assert finding.diagnosis == ("990 Mbit/s arrived when it was tested alone: not always slow",)
    # If the rate is as expected, nothing limits it, and the diagnosis has no text.
    (finding,) = judge_mesh(plan, [*faulty.rows, replace(row, diagnosis=())]).findings
    assert finding.diagnosis == ("990 Mbit/s arrived when it was tested alone: not always slow",)
    row = replace(row, rate_out=5e8)
    (finding,) = judge_mesh(plan, [*faulty.rows, row]).findings
    assert finding.diagnosis == row.diagnosis


def test_hosts_that_are_silent_have_their_reason_in_the_list_the_page_and_json():
    plan = mesh_of(6)
    rows = [row for row in rows_of(plan) if "n2" not in (row.client, row.server)]
    result = MeshResult(plan, rows, judge_mesh(plan, rows, {"n2": "its clock is ahead"}))
    assert "SILENT       n2: its clock is ahead" in report_text(result).splitlines()
    assert "n2: its clock is ahead" in mesh_page(result)
    assert validated(json.loads(report_json(result)), MESH_PATH)["reasons"] == {
        "n2": "its clock is ahead"
    }


def test_tests_without_a_result_are_named_by_their_host_and_no_pass():
    """As of a host that is stopped after its first slots: its partners report that they failed."""
    plan = mesh_of(10)
    rows = [
        replace(row, error="failed", rate_out=None, rate_back=None)
        if "n4" in (row.client, row.server) and row.slot > 0
        else row
        for row in rows_of(plan)
    ]
    result = result_of(plan, rows)
    assert verdict_line(result) == "MESH inconclusive: 45 of 45 tests, 8 pairs not tested"
    assert (
        "NOT TESTED   8 pairs have no result: n4 with 8 hosts" in report_text(result).splitlines()
    )
    assert nagios_line(result).startswith("MESH UNKNOWN")
    assert len(report_data(result)["untested"]) == 8


def test_one_silent_host_and_one_pair_are_in_the_singular():
    plan = make_plan(MeshPlan([MeshHost("a", "10.0.0.1"), MeshHost("b", "10.0.0.2")], (), 1e9))
    assert budget_line(plan).startswith("2 hosts, 1 test in 1 slot: about ")
    result = MeshResult(plan, [], judge_mesh(plan, [], {"a": "its clock is off"}))
    assert verdict_line(result).endswith(", 2 hosts silent, 1 pair not tested")
    row = Row(0, *(plan.hosts[place].name for place in plan.slots[0][0]), error="late")
    result = MeshResult(plan, [row], judge_mesh(plan, [row]))
    assert ", 1 host silent, 1 pair not tested" in verdict_line(result)
    assert "NOT TESTED   1 pair has no result: a with 1 host" in report_text(result).splitlines()


def test_a_diagnosis_cannot_control_the_terminal(faulty):
    plan = with_diagnosis_slots(faulty.plan, faulty.rows)
    path = faulty.verdict.findings[0].path
    row = Row(len(plan.tests), *path, diagnosis=("\x1b[2J\nMESH pass: \u202e",))
    result = MeshResult(plan, faulty.rows, judge_mesh(plan, [*faulty.rows, row]))
    for text in (report_text(result), report_json(result), mesh_page(result)):
        assert not any(one in text for one in ("\x1b", "\u202e"))
    assert "\nMESH pass" not in report_text(result)


def test_all_formats_count_the_pairs_that_pass(faulty):
    verdict = faulty.verdict
    counted = f"{verdict.good_pairs} of {verdict.pairs} pass, at "
    assert 0 < verdict.good_pairs < verdict.pairs
    assert f"\nPAIRS        {counted}" in report_text(faulty)
    assert f"pairs: {counted}" in mesh_page(faulty)
    data = json.loads(report_json(faulty))
    assert (data["good_pairs"], data["pairs"]) == (verdict.good_pairs, verdict.pairs)


def test_the_colours_of_a_page_are_colours_and_its_legend_has_them(faulty):
    page = mesh_page(faulty)
    legend = re.findall(r'<i style="background:(.*?)">', page)
    assert [colour for colour in legend if not re.fullmatch("#[0-9a-f]{6}", colour)] == []
    assert len(set(legend)) == len(legend)
    assert set(re.findall(r'bgcolor="(.*?)"', page)) <= set(legend)


def test_a_disturbed_run_says_so():
    plan = mesh_of(12)
    rows = [
        replace(row, disturbed=True, rate_out=5e8 if number % 7 == 0 else 1e9)
        for number, row in enumerate(rows_of(plan))
    ]
    result = result_of(plan, rows)
    assert verdict_line(result) == "MESH inconclusive: 66 of 66 tests, disturbed by other load"
    said = (
        "in 66 of 66 tests, other load kept processors of the hosts busy;"
        " 10 are bad or failed without another reason"
    )
    assert f"DISTURBED    {said}" in report_text(result).splitlines()
    assert said in mesh_page(result)
    assert (report_data(result)["disturbed"], report_data(result)["unexplained"]) == (66, 10)


def test_the_line_for_nagios(healthy, faulty):
    assert nagios_line(healthy) == (
        "MESH OK - pass: 15 of 15 tests | 'tests'=15;;;0;15 'confirmed'=0 'findings'=0 'silent'=0"
    )
    assert nagios_line(faulty).startswith(
        "MESH CRITICAL - fault found: 68 of 68 tests, slow-egress n3"
    )


def test_the_published_schema_is_what_the_types_say():
    assert MESH_PATH.read_text(encoding="utf-8") == published(mesh_schema), (
        "run python3 tests/selftest_schema.py"
    )
    Draft202012Validator.check_schema(mesh_schema())


@pytest.mark.parametrize("name", ["healthy", "faulty", "large"])
def test_the_schema_describes_every_report(name, request):
    result = request.getfixturevalue(name)
    assert validated(json.loads(report_json(result)), MESH_PATH)["tested"] == len(result.rows)


def test_a_report_without_results_is_described():
    plan = mesh_of(3)
    assert validated(json.loads(report_json(result_of(plan, []))), MESH_PATH)["reference"] is None


def samples(text):
    return [one for one in text.splitlines() if not one.startswith("#")]


def test_the_metrics_are_readable_and_grow_with_the_hosts_only(faulty, large):
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as families

    for result in (faulty, large):
        known = {one.name: one for one in families(report_metrics(result))}
        rates = known["neuca_mesh_host_rate_ratio"].samples
        assert len(rates) == 2 * len(result.plan.hosts)
        assert len(samples(report_metrics(result))) < 2 * len(result.plan.hosts) + 200
    assert 'neuca_mesh_hosts{state="named"} 1' in report_metrics(faulty)
    assert 'neuca_mesh_host_rate_ratio{host="n3",direction="out"} 0.5' in report_metrics(faulty)


def test_nobody_is_good_and_named_or_silent_at_once(faulty):
    found = [one.rpartition(" ") for one in samples(report_metrics(faulty)) if "mesh_hosts{" in one]
    assert sum(int(value) for _, _, value in found) == 12


# --- The page -----------------------------------------------------------------------------------------------------------


def test_the_grid_is_sorted_by_group():
    plan = mesh_of(6, groups=2)
    names = re.findall(r"scope=row>r\d (n\d)<", heat_map(result_of(plan, rows_of(plan))))
    assert names == [*("n0", "n2", "n4"), *("n1", "n3", "n5")]


def test_each_direction_of_a_pair_has_a_cell(faulty):
    text = heat_map(faulty)
    assert text.count("title=") == 12 * 11
    assert 'title="n3 &gt; n0: 500 Mbit/s"' in text
    assert 'title="n0 &gt; n3: 1.00 Gbit/s"' in text


def test_what_was_not_tested_is_grey_and_has_no_tooltip():
    plan = mesh_of(4)
    text = heat_map(result_of(plan, rows_of(plan)[:1]))
    assert (text.count("title="), text.count('bgcolor="#b8bcc2"')) == (2, 10)


def test_a_failed_test_has_its_own_colour_and_a_tooltip_has_the_mtu():
    plan = mesh_of(4)
    names = [
        (plan.hosts[one].name, plan.hosts[two].name) for slot in plan.slots for one, two in slot
    ]
    rows = [
        Row(0, *names[0], error="timeout"),
        Row(0, *names[1], 1e9, 1e9, 1500, 9000),
    ]
    found = cells_by_path(result_of(plan, rows))
    client, server = names[1]
    assert found[names[0]].color == found[names[0][::-1]].color == "#6b1fa8"
    assert (found[client, server].color, found[server, client].color) == ("#12743a", "#12743a")
    assert found[names[1]].text.endswith(": 1.00 Gbit/s, MTU 1500")


def test_the_page_of_a_thousand_hosts_is_small_and_names_the_slowest(large):
    text = mesh_page(large)
    assert len(text) < 1_000_000
    ((slow,),) = [one.names for one in large.verdict.findings]
    assert f"group {slow}" in text
    assert heat_map(large) in text


def test_of_many_hosts_the_groups_have_cells(large):
    """The group that is at fault is slow to and from all others, and fast within."""
    ((slow,),) = [one.names for one in large.verdict.findings]
    picture = heat_map(large)
    names = re.findall(r"scope=row>(r\d+)<", picture)
    assert names == sorted(set(names))
    assert len(names) == 25
    ways = {
        way: colour
        for colour, way in re.findall(r'bgcolor="(#\w+)" title="(\S+ &gt; \S+):', picture)
    }
    others = set(names) - {slow}
    assert {ways[f"{slow} &gt; {one}"] for one in others} <= {"#e58a2e", "#efc04a"}
    assert {ways[f"{one} &gt; {slow}"] for one in others} <= {"#e58a2e", "#efc04a"}
    assert ways[f"{slow} &gt; {slow}"] not in {"#e58a2e", "#efc04a"}


def test_a_cell_of_groups_says_of_how_many_pairs_it_is_the_median(large):
    plan = mesh_of(64, groups=2, rounds=1)
    rack = {host.name: host.labels["rack"] for host in plan.hosts}
    row = next(row for row in rows_of(plan) if rack[row.client] != rack[row.server])
    assert ": 1 pair, median 1.00 Gbit/s" in heat_map(result_of(plan, [row]))
    assert not re.search(r"\b1 pairs|\d\d pair\b", heat_map(large))


def test_the_cell_of_two_groups_is_the_median_of_their_pairs():
    plan = mesh_of(64, groups=2, rounds=4)
    rack = {host.name: host.labels["rack"] for host in plan.hosts}
    across = [row for row in rows_of(plan) if (rack[row.client], rack[row.server]) == ("r0", "r1")]
    rates = (1e8, 9.9e8, 9e8, 5e8, 2e8)
    rows = [replace(row, rate_out=rate, rate_back=None) for row, rate in zip(across, rates)]
    assert "r0 &gt; r1: 5 pairs, median 500 Mbit/s" in heat_map(result_of(plan, rows))


def test_many_hosts_of_one_group_have_no_picture():
    plan = mesh_of(64, rounds=1)
    result = result_of(plan, rows_of(plan))
    assert (heat_map(result), "<table class=mesh" in mesh_page(result)) == ("", False)


def test_a_page_has_no_script_and_loads_nothing(faulty, large):
    for result in (faulty, large):
        text = mesh_page(result)
        assert "<script" not in text
        assert re.findall(r'(?:src|href)="', text) == []


def test_what_hosts_are_called_and_say_is_escaped():
    """Names are checked when a plan is read; even if they were not, a page shows them as text."""
    bad = '"><script>\x1b[2J'
    plan = MeshPlan((MeshHost(bad, "10.0.0.1"), MeshHost("b", "10.0.0.2")), (((0, 1),),), 1e9)
    result = result_of(plan, [Row(0, bad, "b", 1e9, 1e9, error="failed", text=bad)])
    for text in (
        mesh_page(result),
        report_text(result),
        nagios_line(result),
        report_metrics(result),
    ):
        assert "\x1b" not in text
    assert "<script" not in mesh_page(result)


# --- The command --------------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path, faulty):
    plan, rows = tmp_path / "plan.json", tmp_path / "rows.jsonl"
    plan.write_text(json.dumps(plan_record(faulty.plan)))
    rows.write_text("".join(json.dumps(row_record(row)) + "\n" for row in faulty.rows))
    return plan, rows


def mesh(*words):
    return main(["mesh", *map(str, words)], "neuca-selftest")


def test_report_reads_a_plan_and_the_output_of_every_host(files, tmp_path, capsys, faulty):
    page_file, metrics_file = tmp_path / "mesh.html", tmp_path / "mesh.prom"
    code = mesh("report", "--json", "--html", page_file, "--prometheus", metrics_file, *files)
    found = json.loads(capsys.readouterr().out)
    assert (code, found) == (4, {**json.loads(report_json(faulty)), "began": None})
    assert page_file.read_text().startswith("<!DOCTYPE html>")
    assert metrics_file.read_text() == report_metrics(replace(faulty, began=None))


def test_report_for_nagios_exits_as_a_plugin_does(files, capsys):
    assert mesh("report", "--nagios", *files) == 2
    assert capsys.readouterr().out.startswith("MESH CRITICAL - fault found")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "neuca-selftest: read the results of a mesh: there is no plan in them\n"),
        ("[" * 100_000, "neuca-selftest: read the results of a mesh: there is no plan in them\n"),
        ('{"plan": 7}\n', "neuca-selftest: read the plan: it is not a JSON object\n"),
    ],
)
def test_a_file_without_a_plan_is_an_error(tmp_path, capsys, text, reason):
    (tmp_path / "x").write_text(text)
    assert mesh("report", tmp_path / "x") == 1
    assert capsys.readouterr().err == reason


def test_lines_that_are_no_results_are_passed_over(files, capsys):
    with files[1].open("a") as stream:
        stream.write(
            'garbage\n[]\n{"mesh": 1, "slot": 0, "client": "n0", "server": "nobody"}\n{"mesh"'
        )
    assert mesh("report", *files) == 4
    assert "68 of 68 tests" in capsys.readouterr().out


def test_plan_prints_the_plan_and_what_it_costs(tmp_path, capsys):
    (tmp_path / "hosts").write_text("a 10.0.0.1 rack=x\nb 10.0.0.2 rack=x\nc 10.0.0.3 rack=y\n")
    assert mesh("plan", "--rate", "1G", "--group", "rack", tmp_path / "hosts") == 0
    out, err = capsys.readouterr()
    assert [host["name"] for host in json.loads(out)["hosts"]] == ["a", "b", "c"]
    assert err == (
        "neuca-selftest: 3 hosts, 3 tests in 3 slots: about 0.5 min, at most 1.2 min, and retests of what is found;"
        " at most 1.40 GiB, 954 MiB of one host\n"
    )


def test_a_plan_whose_transfers_cannot_reach_what_is_expected_is_an_error(tmp_path, capsys):
    (tmp_path / "hosts").write_text("a 10.0.0.1\nb 10.0.0.2\n")
    assert mesh("plan", "--rate", "100M", "--expect", "1G", tmp_path / "hosts") == 2
    assert capsys.readouterr() == (
        "",
        "neuca-selftest: mesh plan: --rate is below --expect, so that no path can achieve it\n",
    )
    assert mesh("plan", "--rate", "1G", "--expect", "1G", tmp_path / "hosts") == 0


def test_a_group_that_no_host_has_is_an_error(tmp_path, capsys):
    (tmp_path / "hosts").write_text("a 10.0.0.1\nb 10.0.0.2\n")
    assert mesh("plan", "--rate", "1G", "--group", "rack", tmp_path / "hosts") == 2
    assert capsys.readouterr().err == ('neuca-selftest: mesh plan: no host has the label "rack"\n')


def test_a_plan_needs_a_rate(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        mesh("plan", tmp_path / "hosts")
    assert ended.value.code == 2
    assert "the following arguments are required: --rate" in capsys.readouterr().err


def test_nothing_is_stopped_where_nothing_runs(tmp_path, capsys):
    (tmp_path / "run.jsonl").touch()
    assert mesh("stop", tmp_path / "run.jsonl") == 1
    assert capsys.readouterr().err == f'neuca-selftest: no run is writing "{tmp_path}/run.jsonl"\n'


def test_options_of_clush_are_for_run_only(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        mesh("report", tmp_path, "--", "-l", "root")
    assert (ended.value.code, capsys.readouterr().err) == (
        2,
        "neuca-selftest: mesh: only run accepts options of clush\n",
    )


def test_a_record_has_every_host_once(large):
    assert len(report_data(large)["hosts"]) == 1000


def test_a_step_of_the_scale_belongs_to_the_colour_above_it():
    for number, step in enumerate(page.STEPS):
        colours = [page._color_of_rate(1e9 * share, 1e9) for share in (step, step - 0.001)]
        assert colours == [page.SCALE[number + 1], page.SCALE[number]]
