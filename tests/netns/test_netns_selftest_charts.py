"""What the self-test measures for its charts and its score of responsiveness, between two namespaces with a real queue."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest

# 400 ms at this rate, and 6 ms.
RATE, BLOATED, SHORT = "20mbit", 1_000_000, 15_000


def queue(ends, limit):
    ends.lab.run(*f"tc qdisc replace dev dp1 root tbf rate {RATE} burst 8k limit {limit}".split())


def score(ends):
    _, report = ends.helped("--only", "latency,rpm", "--time", "4")
    found = {one["direction"]: one for one in report["responsiveness"]}
    assert set(found) == {"forward", "reverse"}, report["evidence"]["steps"]
    return found, report


@pytest.mark.long
def test_a_bloated_queue_makes_a_path_less_responsive(ends):
    ends.serve("--for", "240")
    queue(ends, BLOATED)
    bloated, report = score(ends)
    queue(ends, SHORT)
    clean, _ = score(ends)
    ends.lab.run(*"tc qdisc del dev dp1 root".split())
    assert bloated["forward"]["rpm"] < clean["forward"]["rpm"]
    # Most of the queue's 400 ms are seen by handshakes, answers and the loaded connections alike.
    assert min(bloated["forward"][name] for name in ("handshake", "answer", "own")) > 0.1
    assert bloated["forward"]["grade"] in ("poor", "fair")
    assert bloated["forward"]["increase"] > clean["forward"]["increase"]
    assert bloated["forward"]["rate"] < 21e6
    assert report["phases"] == []
    loads = report["evidence"]["loads"]
    assert [one.get("direction", "forward") for one in loads] == ["forward", "reverse"]
    assert "raw" not in loads[0]


def test_without_a_helper_responsiveness_is_not_measured(ends):
    ends.iperf("-1")
    _, report = ends.report("--only", "rpm,tcp", "--time", "1", "--rate", "20M")
    steps = {one["name"]: (one["verdict"], one["text"]) for one in report["evidence"]["steps"]}
    assert steps["rpm"] == ("skipped", "this needs a helper on the peer")
    assert report["responsiveness"] == []


@pytest.mark.parametrize("step", ["tcp", "tcp-reverse"])
def test_both_ends_leave_a_trace_on_the_local_hosts_clock(ends, step):
    """In namespaces of one kernel both ends have the same clock: it shows whether the peer's was converted."""
    ends.serve()
    _, report = ends.helped("--only", step, "--time", "2", "--rate", "20M")
    (phase,) = report["evidence"]["phases"]
    sender, receiver = phase["sender_trace"], phase["receiver_trace"]
    for trace in (sender, receiver):
        assert {len(column) for column in trace.values()} == {len(trace["time"])}
        # More than one a second, however busy the machine is.
        assert len(trace["time"]) > 4
        assert trace["time"] == sorted(trace["time"])
    assert max(filter(None, sender["sent"])) > 1e6
    assert max(filter(None, receiver["received"])) > 1e6
    assert max(filter(None, sender["cwnd"])) > 1000
    local, remote = (sender, receiver) if step == "tcp" else (receiver, sender)
    assert remote["time"][0] <= local["time"][-1]
    assert remote["time"][-1] >= local["time"][0]
