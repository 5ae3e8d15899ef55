"""The loss of one direction: how it is counted, and what reports say of it."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
from dataclasses import replace

from selftest_pages import large

from neuca_tools.selftest.diagnosis.diagnose import diagnose
from neuca_tools.selftest.evidence import OneWay
from neuca_tools.selftest.readers.documents import evidence_of
from neuca_tools.selftest.report.record import report_json
from neuca_tools.selftest.report.text import one_way_words


def test_one_way_loss_is_the_share_of_missing_sequence_numbers():
    direction = OneWay("forward", 1e6, sent=1005, seen=1000, lost=10, out_of_order=2)
    assert direction.loss == 0.01
    assert one_way_words(direction) == (
        "1.0% of 1000 lost (by sequence number), 2 out of order, 1005 sent, at 1.00 Mbit/s"
    )
    assert OneWay(lost=0).loss is None
    assert OneWay(seen=10, lost=-1).loss == 0.0


def test_the_report_has_the_loss_of_a_direction():
    evidence = replace(large(), one_way=(OneWay("reverse", 1e6, 1000, 1000, 10, 0),))
    report = report_json(evidence, diagnose(evidence))
    assert evidence_of(report.encode()) == evidence
    assert json.loads(report)["evidence"]["one_way"][0]["lost"] == 10


def test_a_report_with_the_routers_of_an_earlier_version_is_read():
    evidence = large()
    report = json.loads(report_json(evidence, diagnose(evidence)))
    report["evidence"]["route"] = {"device": "eth1", "hops": [{"number": 1}], "reached": True}
    assert evidence_of(json.dumps(report).encode()) == evidence
