"""Every command with --json prints what its schema describes, and with --dry-run changes nothing."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from command_schemas import validated
from lab import mac

DOCUMENT = f"""[interfaces]
{mac(1).replace(":", "")} = up:ipv4:172.16.1.1/24
[interface {mac(1)}]
mtu = 9000
sysctl.net.core.somaxconn = 8192
[routes]
10.20.0.0/16 = 172.16.1.254
[users]
ada = no:
[scripts]
bootscript = exit 0
"""
SHOWN = [
    ("status", "status"),
    ("plan", "plan"),
    ("plan", "apply --dry-run"),
    ("user-data", "show document"),
    ("desired", "show desired"),
    ("observed", "show observed"),
    ("explanation", "explain dp1"),
    ("tuning", "tune audit"),
    ("plan", "tune plan"),
    ("plan", "tune apply --dry-run"),
    ("plan", "tune revert --dry-run"),
    ("plan", "revert --dry-run"),
    ("plan", "release dp1 --dry-run"),
    ("section", "interfaces"),
    ("section", "routes"),
    ("section", "users"),
    ("section", "storage"),
    ("scripts", "run-scripts --dry-run"),
    ("clean", "clean --keep-identity --dry-run"),
]
CHANGES = [
    ("report", "apply"),
    ("changes", "tune apply --profile bdp --rate 1Gbit --rtt 20ms"),
    ("changes", "tune revert"),
    ("report", "apply"),
    ("changes", "revert"),
    ("report", "apply"),
    ("changes", "release dp1"),
    ("report", "release --undo dp1"),
    ("scripts", "run-scripts"),
    ("clean", "clean --keep-identity"),
]


@pytest.fixture
def running(lab):
    lab.foreign.may_set("net/core/somaxconn")
    lab.veth("dp1", 1)
    assert lab.once(DOCUMENT).code == 0
    return lab


def test_what_shows_or_is_dry_changes_nothing_and_is_described(running):
    with running.monitored() as monitor:
        for schema, words in SHOWN:
            done = running.neuca(*words.split(), "--json")
            validated(schema, done.json)
        assert monitor.lines() == []


def test_what_changes_something_is_described(running):
    for schema, words in CHANGES:
        found = validated(schema, running.neuca(*words.split(), "--json").json)
        if words == "revert":
            assert {"set-mtu", "write-sysctl"} <= {one["operation"] for one in found["operations"]}
        if words == "run-scripts":
            assert [(one["name"], one["state"]) for one in found["scripts"]] == [
                ("bootscript", "ok")
            ]
    assert running.once(DOCUMENT).code == 0


def test_a_dry_run_of_a_script_tells_whether_it_would_run(running):
    assert running.neuca("run-scripts", "--dry-run").out == (
        "bootscript: would run, or is running\n"
    )
    assert running.neuca("run-scripts").code == 0
    assert "exit status 0" in running.neuca("run-scripts", "--dry-run").out


def test_a_trial_is_no_output_for_programs(running):
    done = running.neuca("apply", "--try", "60", "--json")
    assert (done.code, done.err.splitlines()[-1]) == (
        2,
        "neuca: apply: --try waits for confirmation, and cannot be combined with --json",
    )
