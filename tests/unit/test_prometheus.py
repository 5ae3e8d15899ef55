"""The metrics of the status: every state, each NIC, names that need escaping, and the textfile."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_status import GOOD, PASS, TWO, small, status
from worlds import mac

from neuca_tools.commands.neuca import main
from neuca_tools.model import Problem
from neuca_tools.status.judge import DocumentStatus, Report
from neuca_tools.status.prometheus import METRICS, status_metrics

MAN = Path(__file__).parents[2] / "docs" / "man" / "neuca-status.7"
LINE = re.compile(r'neuca_(\w+)(?:\{((?:\w+="(?:[^"\\\n]|\\.)*",?)+)\})? (\S+)')


def samples(data):
    return samples_of_text(status_metrics(data))


def samples_of_text(text):
    """The value of each series; every line is a sample, a comment, or the end."""
    found = {}
    for line in text.splitlines():
        if line[:1] == "#":
            assert line == "# EOF" or re.fullmatch(r"# (HELP|TYPE) neuca_\w+ .+", line)
            continue
        name, labels, value = LINE.fullmatch(line).groups()
        assert name in METRICS
        assert (name, labels) not in found
        found[name, labels] = float(value)
    return found


def test_a_host_that_is_as_requested():
    agent = small(TWO)
    agent.run()
    found = samples(status(agent).data)
    labels = f'interface="eth2",mac="{mac(2)}",vlan_id="",role="dataplane"'
    assert found["interface_ok", labels] == 1
    assert (found["state", 'state="ok"'], found["state", 'state="failed"']) == (1, 0)
    assert (found["drift", None], found["document_stale", None], found["unsaved", None]) == (
        0,
        0,
        0,
    )
    assert found["last_pass_timestamp_seconds", None] == 1795201200
    assert found["last_pass_duration_seconds", None] == 0.08
    assert found["last_pass_changed", None] == 7


def test_drift_and_failures_are_counted_for_each_nic():
    agent = small(TWO)
    agent.run()
    agent.kernel.set_mtu(2, 1500)
    failure = Report("2026-11-20T19:00:00Z", 0.1, (), (Problem("failed", "boom"),))
    found = samples(status(agent, report=failure).data)
    labels = f'interface="eth2",mac="{mac(2)}",vlan_id="",role="dataplane"'
    assert found["interface_ok", labels] == 0
    assert found["interface_problems", f'{labels},code="drift"'] == 1
    assert (found["problems", 'code="drift"'], found["drift", None]) == (1, 1)
    assert found["last_pass_failed", None] == 1


@pytest.mark.parametrize("document", [DocumentStatus(), DocumentStatus(none_for_us=True), GOOD])
@pytest.mark.parametrize("report", [None, PASS])
def test_what_is_not_known_has_no_line(document, report):
    found = samples(status(small(TWO), document=document, report=report).data)
    names = {name for name, _ in found}
    assert ("document_info" in names) == bool(document.source)
    assert ("last_pass_changed" in names) == bool(report)
    assert {value for (name, _), value in found.items() if name.endswith("info")} == {1}


def test_a_name_cannot_break_a_line():
    agent = small(TWO)
    data = status(agent).data
    data["interfaces"][0]["name"] = 'a"\\\n# EOF\x1b'
    found = samples(data)
    assert any("x1b" in (labels or "") for _, labels in found)


def test_metrics_do_not_stay_as_they_were_when_there_is_no_status(tmp_path, capsys):
    config, metrics = tmp_path / "config", tmp_path / "neuca.prom"
    config.write_bytes(b"\xff")
    metrics.write_text("earlier")
    words = ["status", "--config", str(config), f"--prometheus={metrics}"]
    assert main([*words, "--timeout", "1"]) == 2  # a wrong usage says nothing of the host
    assert metrics.read_text() == "earlier"
    assert main(words) == 78
    assert main([*words[:-1], "--prometheus"]) == 78
    assert metrics.read_text() == capsys.readouterr().out
    found = samples_of_text(metrics.read_text())
    assert {name for name, _ in found} == {"info", "state"}
    assert [labels for (_, labels), value in found.items() if value and "state" in labels] == [
        'state="failed"'
    ]


def test_every_metric_is_documented():
    section = MAN.read_text().partition(".Ss neuca status \\-\\-prometheus")[2].partition(".Ss ")[0]
    assert re.findall(r"^\.It Ic (\w+)", section, re.MULTILINE) == list(METRICS)
