"""Broadcasts on a bridge with several hosts that run `neuca-selftest --serve`."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from ends import FAR, FAR6, findings, steps

RESPONDERS = (("172.16.0.11", "fd00:16::11"), ("172.16.0.12", "fd00:16::12"))
ONLY = ("--only", "broadcast")


@pytest.fixture
def bridge(ends):
    """The other end is the host of a bridge; two more hosts are on it."""
    hosts = ends.bridge(*((f"{ours}/24", f"{ours6}/64 nodad") for ours, ours6 in RESPONDERS))
    return ends, hosts


def test_everybody_answers_over_both_families(bridge):
    ends, hosts = bridge
    ends.serve("--for", "120")
    for host in hosts:
        ends.serve("--for", "120", where=host)
    for peer in (FAR, FAR6):
        _, report = ends.helped(*ONLY, "--broadcast", "3", peer=peer)
        found = report["evidence"]["broadcast"]
        assert (found["expected"], found["answered"], found["times"]["count"]) == (3, 3, 150), found
        assert 0 < found["times"]["p50"] <= found["times"]["p99"] <= found["times"]["maximum"]
        assert (
            (steps(report)["broadcast"] == "pass")
            is ("D47" not in findings(report))
            is (found["times"].get("lost", 0) < 2)
        )


@pytest.mark.long
def test_who_is_missing_is_told(bridge):
    ends, hosts = bridge
    ends.serve("--for", "120")
    ends.serve("--for", "120", where=hosts[0])
    ends.serve(
        "--for", "120", where=hosts[1], secret=ends.write("other", "the secret of somebody else")
    )
    code, report = ends.helped(*ONLY, "--broadcast", "3")
    assert (code, findings(report)) == (4, {"D47"})
    found = report["evidence"]["broadcast"]
    assert (found["answered"], found["times"]["count"]) == (2, 150)
    assert found["times"]["lost"] >= 50
    assert "2 of 3 answered: " in next(
        one["text"] for one in report["evidence"]["steps"] if one["name"] == "broadcast"
    )


@pytest.mark.long
def test_nobody_is_asked_without_a_secret_nor_unless_it_is_wanted(ends):
    _, report = ends.report(*ONLY)
    assert [
        (one["verdict"], one["text"])
        for one in report["evidence"]["steps"]
        if one["name"] == "broadcast"
    ] == [("skipped", "this needs the secret that all responders share (--secret-file)")]
    ends.serve()
    others = "tcp,tcp-reverse,tcp-parallel,tcp-bidir,udp,latency,path-mtu,connections"
    done = ends.test("--secret-file", ends.secret, "--plan", "full", "--skip", others)
    assert "broadcast" not in done.out
