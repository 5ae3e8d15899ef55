"""What the path does is named first, however busy the hosts are: real tests between two hosts, with a busy loop for each processor.

A measurement that is inconclusive, as on a machine that others take the processors of, is repeated: the verdict is what counts.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import os

import pytest
from between import between, told
from middlebox import Way

TRIES = 4
STEPS = "latency,tcp,tcp-reverse,loaded"
SHAPED = "rate {rate}mbit burst 32k latency 50ms"


@pytest.fixture
def hosts(tmp_path):
    with between(tmp_path) as made:
        yield made


def concluded(hosts, *words, steps=STEPS):
    """The report of the first test that has a result."""
    hosts.serve()
    hosts.busy(os.cpu_count() or 1)
    for _ in range(TRIES):
        report = hosts.report("--only", steps, *words)
        (hosts.folder / "report.json").write_text(json.dumps(report))  # to look at what failed
        if not report.get("unknown"):
            break
    return report


@pytest.mark.parametrize(
    "rate", [pytest.param(95, marks=pytest.mark.long), 48, pytest.param(25, marks=pytest.mark.long)]
)
def test_a_shaper_is_named_and_not_the_processors_that_others_fill(hosts, rate):
    words = SHAPED.format(rate=rate)
    hosts.shape(words, words)
    report = concluded(hosts)
    assert told(report)[0] == "D18", report["findings"]
    assert "D09" not in told(report)
    assert {one["confidence"] for one in report["findings"]} <= {"medium", "low"}


@pytest.mark.long
def test_a_policer_is_named_and_not_the_processors_that_others_fill(hosts):
    """TCP alone shows it only as loss without a queue; datagrams that are sent evenly tell."""
    way = Way(rate=100e6, delay=0.005, queue=250e3, police=20e6)
    hosts.boxed(way, way)
    report = concluded(hosts, "--expect", "80M", steps=f"{STEPS},udp")
    assert told(report)[0] == "D17", report["findings"]
    assert "D09" not in told(report)


@pytest.mark.long
def test_the_slower_direction_is_named_first(hosts):
    hosts.shape(SHAPED.format(rate=100), SHAPED.format(rate=30))
    report = concluded(hosts, "--expect", "80M")
    first = report["findings"][0]
    assert (first["id"], first["direction"]) == ("D18", "reverse"), report["findings"]
    assert "D09" not in told(report)
    assert [one["passed"] for one in report["phases"]] == [True, False]
    assert report["verdict"] == "below threshold"
