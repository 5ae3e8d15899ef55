"""What the self-test measures for its charts, between two namespaces."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest


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
