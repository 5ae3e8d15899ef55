"""A report contradicts neither itself nor the output of iperf that it is about."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re

import pytest
from selftest_runs import diagnose
from test_selftest_printed import CAUSES, HEALTHY, LAN, WAN, document, text, udp

from neuca_tools.selftest.diagnosis.diagnose import Diagnosis
from neuca_tools.selftest.readers.documents import evidence_of
from neuca_tools.selftest.report.page import report_page
from neuca_tools.selftest.report.text import report_text

PRINTED = {**{name: run for name, (_, run) in CAUSES.items()}, **HEALTHY}
FLOOD = "$ iperf3 -u -c x -b 10M\n" + udp([9.1] * 6, [13] * 6)
CONNECT = "Connecting to host 192.0.2.9, port 5201\niperf3: error - unable to "


def told(run: str) -> Diagnosis:
    return diagnose(evidence_of(run.encode()))


def report(run: str) -> str:
    return report_text(told(run), verbose=True)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("connect to server: Connection refused", "nothing listens on that port"),
        ("connect to server: Resource temporarily unavailable", "does not say why"),
        ("send control message: Bad file descriptor", "does not say why"),
    ],
)
def test_why_iperf3_could_not_connect_is_said_as_far_as_it_is_known(message, words):
    finding = told(CONNECT + message).findings[0]
    assert (finding.id, words in finding.text) == ("D33", True)


@pytest.mark.parametrize("message", ["Network is unreachable", "Cannot assign requested address"])
def test_a_server_is_not_blamed_for_what_the_client_lacks(message):
    found = told(f"{CONNECT}connect to server: {message}").findings
    assert "D33" not in {finding.id for finding in found}


def test_the_advice_names_the_program_that_was_used():
    assert "iperf -s" in told("connect failed: Connection refused\n").findings[0].advice
