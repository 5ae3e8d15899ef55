"""The archive and the metrics of real tests: each test is a line of both, and a full disk costs neither verdict nor report."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import gzip
import json
from datetime import datetime, timezone

from ends import FAR, FAR6, LONG, TCP


def test_each_test_is_archived_and_in_the_metrics(ends):
    ends.serve()
    metrics = ends.lab.folder / "metrics.prom"
    words = ("--secret-file", ends.secret, "--label", "both", "--prometheus", metrics)
    ends.test(*words, *TCP, FAR6)
    path = ends.lab.folder / "state" / "selftests.jsonl"
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(one["peer"], one["interface"], one["label"]) for one in found] == [
        (FAR6, "dp1", "both"),
        (FAR, "dp1", "both"),
    ]
    assert path.stat().st_mode & 0o777 == 0o600
    for peer, one in zip((FAR6, FAR), found):
        assert f'neuca_selftest_verdict{{peer="{peer}",interface="dp1"}} ' in metrics.read_text()
        report = gzip.decompress((path.parent / one["report"]).read_bytes())
        assert json.loads(report)["evidence"]["address"] == peer


def test_a_full_disk_costs_the_archive_and_not_the_test(ends):
    ends.serve()
    state = ends.lab.folder / "state"
    ends.lab.run("mount", "-t", "tmpfs", "-o", "size=64k", "none", state)
    ends.lab.run("dd", "if=/dev/zero", f"of={state}/full", "bs=4k", check=False)
    done = ends.test("--json", "--secret-file", ends.secret, *TCP)
    assert (done.code, done.json["evidence"]["address"]) == (done.json["exit_code"], FAR)
    assert [line.rpartition(": ")[2] for line in done.err.splitlines()] == [
        "No space left on device, ignoring"
    ] * 2, done.err
    assert f'neuca-selftest: write "{state}/selftests.jsonl": No space' in done.err
    assert ends.lab.run("ls", state).out == "full\nselftests.lock\n"
    ends.lab.run("umount", state)


def test_a_test_has_the_time_of_its_beginning(ends):
    ends.serve()
    test = ends.begin("--json", "--secret-file", ends.secret, seconds=3)
    ends.transferring()
    while_it_runs = datetime.now(timezone.utc).isoformat()
    taken = json.loads(test.communicate(timeout=LONG)[0])["evidence"]["taken"]
    assert taken[:19] <= while_it_runs[:19]


def test_a_report_that_cannot_be_written_does_not_cost_the_result(ends):
    ends.serve()
    done = ends.test(
        "--json", "--secret-file", ends.secret, *TCP, "--prometheus", "/proc/x", "--html", "/proc/y"
    )
    assert (done.code, done.json["evidence"]["address"]) == (1, FAR)
    assert done.err == 'neuca-selftest: write "/proc/y": No such file or directory\n'
