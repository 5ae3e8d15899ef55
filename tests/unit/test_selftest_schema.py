"""The published schema of the self-test's report: it is what the types say, and describes every report of these tests."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
from pathlib import Path

import command_schemas
import pytest
from jsonschema import Draft202012Validator
from selftest_pages import large
from selftest_runs import PUBLISHED, diagnose
from selftest_schema import PATH, SCHEMAS, published, validated
from test_selftest_conditions import CASES

from neuca_tools.commands.neuca import main
from neuca_tools.selftest.evidence import Evidence
from neuca_tools.selftest.readers.documents import evidence_of
from neuca_tools.selftest.report.record import report_json

DATA = sorted((Path(__file__).parent / "data" / "iperf").iterdir())


def report_of(evidence):
    return json.loads(report_json(evidence, diagnose(evidence)))


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: path.name)
def test_a_published_schema_is_what_the_types_say(path):
    expected = published(SCHEMAS[path])
    assert path.read_text(encoding="utf-8") == expected, "run python3 tests/selftest_schema.py"
    Draft202012Validator.check_schema(json.loads(expected))


def test_every_published_schema_is_made_by_one_of_both_tools():
    made = {*SCHEMAS, *map(command_schemas.path, command_schemas.SCHEMAS)}
    assert set(PATH.parent.iterdir()) == made


@pytest.mark.parametrize("path", DATA, ids=lambda path: path.name)
def test_the_report_of_a_published_run_is_described(path):
    validated(report_of(evidence_of(path.read_bytes())))


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_report_of_a_run_in_an_article_is_described(name):
    validated(report_of(evidence_of(PUBLISHED[name])))


@pytest.mark.parametrize("name", CASES)
def test_the_report_of_a_condition_is_described(name):
    validated(report_of(CASES[name]))


def test_the_report_without_anything_is_described():
    validated(report_of(Evidence()))


def test_the_report_of_a_whole_test_is_described():
    """With samples of both hosts and one-way loss."""
    report = validated(report_of(large()))
    assert len(report["evidence"]["one_way"]) == 2


def test_the_report_of_explain_is_described(capsys):
    for path in DATA[:3]:
        main(["explain", "--json", str(path)], "neuca-selftest")
        assert validated(json.loads(capsys.readouterr().out))["subject"]["file"] == str(path)


def test_what_the_schema_does_not_have_is_found():
    report = report_of(Evidence())
    with pytest.raises(AssertionError, match="colour"):
        validated({**report, "colour": 1})
    with pytest.raises(AssertionError, match="verdict"):
        validated({**report, "verdict": "lovely"})
    with pytest.raises(AssertionError, match="'evidence' is a required property"):
        validated({name: report[name] for name in report if name != "evidence"})
    with pytest.raises(AssertionError, match=r"\$\.evidence\.phases\[0\]\.run"):
        validated({**report, "evidence": {"version": 1, "phases": [{"name": "tcp", "run": 3}]}})


def test_others_may_add_keys():
    known = json.loads(PATH.read_text(encoding="utf-8"))
    Draft202012Validator(known).validate({**report_of(Evidence()), "later": True})
