"""The report of the last pass: written, read again, and worth nothing where it is damaged."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re

import pytest
from worlds import key

from neuca_tools.model import Problem
from neuca_tools.state.store import StateDirectories
from neuca_tools.status.judge import Report
from neuca_tools.status.report import read_report, report_now, write_report

FULL = Report(
    "2026-11-20T19:00:00Z",
    0.081,
    ("bring eth2 up",),
    (
        Problem("failed", "boom", key(2)),
        Problem("failed", "bang", key(2, 7)),
        Problem("failed", "disk"),
    ),
    True,
    (
        "systemd-networkd had added the address 10.0.0.1/24 to eth2 before a document named it: removed",
    ),
)


def test_a_report_comes_back(tmp_path):
    write_report(StateDirectories(tmp_path, tmp_path), FULL)
    assert read_report(tmp_path) == FULL


def test_users_other_than_root_can_read_it(tmp_path):
    write_report(StateDirectories(tmp_path, tmp_path), FULL)
    assert (tmp_path / "last-pass.json").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    "content",
    [
        None,
        "",
        "null",
        "[]",
        "{}",
        "{",
        '{"finished": "x", "seconds": 1, "changed": 3, "problems": []}',
        "\0",
        '{"problems": [{"code": "failed"}]}',
        '{"problems": 3}',
        "3",
    ],
)
def test_a_report_that_cannot_be_read_is_none(tmp_path, content):
    if content is not None:
        (tmp_path / "last-pass.json").write_text(content)
    assert read_report(tmp_path) is None


def test_a_report_is_dated_in_utc_and_rounded_to_milliseconds():
    report = report_now(0.12345, ("x",), (), rolled_back=False)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", report.finished)
    assert (report.seconds, report.changed, report.rolled_back) == (0.123, ("x",), False)
