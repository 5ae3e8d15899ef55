"""The fault catalogue's pure half: what a seed decides, what counts as found, and the figures of `make bench-diagnosis`."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from neuca_tools.commands.selftest_options import run_parser
from neuca_tools.selftest.conditions.table import CAUSES as CONDITIONS

sys.path.append(str(Path(__file__).parents[1] / "machine" / "faults"))

from everything import CAUSES, HEALTHY, cases
from verdicts import matrix, summary, verdict

INSIDE = Path(__file__).parents[1] / "machine" / "faults" / "inside"
SEEDS = (1, 202647, 202701)
KNOWN = {cause.id for cause in CONDITIONS}


def report(*findings):
    told = [
        {"id": name, "severity": severity, "share": 0.5, "text": "why"}
        for name, severity in findings
    ]
    return {"report": {"findings": told}}


def named(name):
    return cases(1, [name])[0]


def test_the_catalogue_is_as_large_as_it_was_asked_to_be():
    assert len(CAUSES) >= 30
    assert len(HEALTHY) >= 10


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_decides_every_parameter(seed):
    assert cases(seed) == cases(seed)
    assert cases(seed, ["policer"])[0] in cases(seed), "whatever else is asked for"
    assert cases(seed) != cases(seed + 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_case_is_whole(seed):
    for case in cases(seed):
        assert case.name in {**CAUSES, **HEALTHY}
        assert case.wanted in KNOWN if case.name in CAUSES else case.wanted == ""
        run_parser().parse_args(case.words)


def test_every_script_is_one_that_the_shell_understands():
    scripts = [
        part
        for case in cases(1)
        for part in (case.setup, case.beside, case.after, case.near_first, case.far_first)
    ]
    done = subprocess.run(
        ["bash", "-n"], input="\n".join(scripts), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_whatever_a_case_sets_for_the_whole_kernel_it_puts_back():
    outside = re.compile(r"^sysctl .*|(?<=; )sysctl -qw net\.\S+", re.MULTILINE)
    for case in cases(1):
        if outside.search(case.setup):
            assert "sysctl" in case.after, case.name


def test_a_cause_is_found_if_its_condition_comes_first_whatever_its_severity():
    assert verdict(named("overlay-mtu"), report(("D06", "info"), ("D05", "info"))).right
    wrong = verdict(named("policer"), report(("D19", "fault"), ("D17", "limit")))
    assert (wrong.right, wrong.found) == (False, "D19")
    assert str(wrong).startswith("WRONG: policer (Path(")
    assert verdict(named("policer"), report()).found == "nothing"


def test_a_healthy_set_up_may_have_remarks():
    assert verdict(named("town"), report(("D05", "info"))).right
    assert verdict(named("town"), report(("D05", "info"), ("D18", "limit"))).found == "D18"


def test_what_has_no_report_is_not_right():
    for name in ("town", "policer"):
        assert verdict(named(name), {"error": "the guest has gone"}).found == "no report"


def test_the_matrix_and_the_figures():
    found = [
        verdict(named("policer"), report(("D17", "limit"))),
        verdict(named("policer"), report(("D19", "fault"))),
        verdict(named("town"), report()),
    ]
    assert matrix(found).splitlines()[2:] == [
        "| D17 | policer | D17 1, D19 1 | 1 of 2 |",
        "| healthy | town | quiet 1 | 1 of 1 |",
    ]
    assert summary(found).splitlines() == [
        "the injected cause comes first: 1 of 2, 50.0% (aim 95%: MISSED)",
        "nothing above info where nothing is wrong: 1 of 1, 100.0% (aim 95%: met)",
    ]


def test_the_cases_only_name_what_the_guest_has():
    """Its files beside rehearse.py are put into /run."""
    put = {path.name for path in INSIDE.glob("*.py")}
    for case in cases(1):
        assert set(re.findall(r"/run/(\w+\.py)", repr(asdict(case)))) <= put
