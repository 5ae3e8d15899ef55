"""The report of the last pass: what it contains; written, read again, and worth nothing where it is damaged."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re

import pytest
from worlds import Agent, key, mac, machine, nic

from neuca_tools.agent.pass_report import Pass, log_change, report_pass
from neuca_tools.apply.transaction import Transaction
from neuca_tools.config import Config
from neuca_tools.errors import ApplyError
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


# --- What a pass reports ----------------------------------------------------------------------------------------------

MTUS = "".join(f"[interface {mac(number)}]\nmtu = 9000\n" for number in (2, 3))


class Reporting:
    """Passes over two NICs, of which those in `refusing` refuse what is requested."""

    def __init__(self, tmp_path):
        self.config = Config(run_directory=tmp_path / "run", state_directory=tmp_path / "state")
        self.agent, self.refusing = Agent(machine(nic(1), nic(2), nic(3), mgmt=1), MTUS), set()
        self._set_mtu, self.agent.kernel.set_mtu = self.agent.kernel.set_mtu, self.set_mtu

    def set_mtu(self, index, mtu):
        if index in self.refusing:
            raise ApplyError("Invalid argument", 22)
        self._set_mtu(index, mtu)

    def run(self, *not_retried):
        """A pass that leaves these parts out; the NICs with a problem in its report."""
        decision = self.agent.survey()
        scope = None if not not_retried else {mac(2), mac(3)} - {*not_retried}
        outcome = Transaction(self.agent, Pass(scope), decision).run()
        self.agent.record = outcome.decision.record
        report = report_pass(self.config, decision, outcome, 0.5, not_retried)
        assert read_report(self.config.run_directory) == report
        return [problem.link.mac for problem in report.problems]


def test_what_is_left_out_stays_a_problem_until_it_is_tried_again(tmp_path):
    passes = Reporting(tmp_path)
    passes.refusing = {2, 3}
    assert passes.run() == [mac(2), mac(3)]
    assert passes.run(mac(3)) == [mac(2), mac(3)]
    passes.refusing = {3}
    assert passes.run(mac(3)) == [mac(3)]
    passes.refusing = set()
    assert passes.run() == []


def test_what_cannot_be_rolled_back_is_added_to_the_report_of_the_last_pass(tmp_path):
    passes = Reporting(tmp_path)
    passes.refusing = {3}
    problems = passes.run()
    passes.refusing = set()
    decision = passes.agent.survey()
    transaction = Transaction(passes.agent, Pass(None), decision)
    transaction.run()
    passes.refusing = {2, 3}
    log_change(passes.config, transaction.roll_back(decision.observed))
    report = read_report(passes.config.run_directory)
    assert [problem.link.mac for problem in report.problems] == problems
    (stuck,) = report.not_rolled_back
    assert (stuck.code, stuck.link) == ("failed", key(3))
    assert stuck.text.startswith(
        "could not be rolled back: set the MTU of eth3 from 9000 to 1500: "
    )
