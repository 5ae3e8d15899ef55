"""A report contradicts neither itself nor the output of iperf that it is about."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from selftest_runs import diagnose
from test_selftest_printed import CAUSES, HEALTHY, LAN, WAN, document, text, udp

from neuca_tools.selftest.diagnosis.diagnose import Diagnosis
from neuca_tools.selftest.evidence import Reach
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


@pytest.mark.parametrize("name", PRINTED)
def test_no_line_denies_another(name):
    said = report(PRINTED[name])
    failed = re.search(r"VERDICT .*(fault found|below threshold)", said)
    assert not (failed and "datagrams" in failed[0] and "  pass" in said)
    assert not re.search(r"used 100% of a CPU .* take the rest", said)
    assert all(float(share) <= 100 for share in re.findall(r"([\d.]+)%", said))


def test_what_lost_too_many_datagrams_has_not_passed():
    diagnosis = told(FLOOD)
    assert (diagnosis.phases[0].passed, diagnosis.failures) == (
        None,
        ("30% of the datagrams to the peer were lost",),
    )
    assert "  pass" not in report(FLOOD)
    assert ">pass<" not in report_page(evidence_of(FLOOD.encode()), diagnosis)


def test_a_process_that_takes_all_of_a_cpu_leaves_nothing_to_interrupts():
    said = report(document([900, 600, 800] * 3, [1] * 9, cpu=(100.0, 20.0)))
    assert "used 100% of a CPU for" in said
    assert "take the rest" not in said


def test_the_rate_after_a_burst_is_the_one_that_is_left():
    """In buffers of 1.25 MiB: most seconds have one of them, some have two."""
    said = report(text([2080, 21, 10.5, 10.5, 21, 10.5, 10.5, 21, 10.5, 10.5], ends=WAN))
    assert "everything after that at 14.0 Mbit/s" in said


@pytest.mark.parametrize("ends", [LAN, WAN])
def test_a_window_may_wait_in_the_queue_of_a_full_local_link(ends):
    window = told(text([600] * 8, [3080] * 8, ends=ends)).findings[0]
    assert (window.id, "is not proven" in window.text) == ("D01", True)


def test_a_direction_that_was_not_measured_has_no_rate():
    row = "[  5][{}-C]   0.00-10.00 sec  143 MBytes  120 Mbits/sec  0  sender\n"
    run = "$ iperf3 --bidir -c x\n" + row.format("TX") + row.format("RX").replace(" 5", " 7")
    said = report(f"{run}\n$ iperf3 -c x\n{text([400] * 5)}")
    assert "carry 240 Mbit/s, one direction alone 400 Mbit/s:" in said


def test_what_is_known_is_not_called_unknown():
    run = """Client connecting to 192.0.2.9, TCP port 5001
[  1] local 192.0.2.8 port 41000 connected with 192.0.2.9 port 5001 (icwnd/mss/irtt=14/1448/10000)
[ ID] Interval       Transfer     Bandwidth
[  1] 0.00-10.00 sec   400 MBytes   336 Mbits/sec
"""
    assert told(run).unknown == (
        "neither window nor retransmits is known: iperf3 -J of a Linux sender reports more"
    )


def test_a_protocol_that_is_not_judged_has_not_passed():
    run = "$ iperf3 -c 192.0.2.9 --sctp -b 50M\n" + text([0.5] * 5)
    assert told(run).unknown.startswith("neither window")


def test_a_command_without_its_end_asked_for_no_default_rate():
    run = """$ iperf -c 192.0.2.9 -u -b
200M
[  3]  0.0-10.0 sec  39.3 MBytes  33.0 Mbits/sec   0.030 ms  100/28000 (0.36%)
"""
    assert told(run).phases[0].passed is None


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


@pytest.mark.parametrize(
    "message",
    [
        "Network is unreachable",
        "Cannot assign requested address",
        "Too many open files",
        "Cannot allocate memory",
        "No buffer space available",
        "Address family not supported by protocol",
        "Operation not permitted",
    ],
)
def test_a_server_is_not_blamed_for_what_the_client_lacks(message):
    found = told(f"{CONNECT}connect to server: {message}").findings
    assert "D33" not in {finding.id for finding in found}


@pytest.mark.parametrize(("tcp", "words"), [(None, "nothing listens"), ("timeout", "no response")])
def test_a_helper_that_does_not_respond_is_filtered_and_starts_no_server(tcp, words):
    evidence = evidence_of(f"{CONNECT}connect to server: Connection refused".encode())
    reach = Reach(ping=True, tcp=tcp, port=45678)
    finding = diagnose(replace(evidence, reach=reach)).findings[0]
    assert (finding.id, words in finding.text) == ("D33", True)
    assert ("open the ports 45678 to 45680" in finding.advice) == (tcp == "timeout")
    measured = replace(evidence_of(text([400] * 5).encode()), reach=reach)
    assert "D33" not in [each.id for each in diagnose(measured).findings]


def test_the_advice_names_the_program_that_was_used():
    assert "iperf -s" in told("connect failed: Connection refused\n").findings[0].advice


def test_a_server_that_was_stopped_while_it_waited_is_no_test_that_failed():
    waiting = "Server listening on 5201 (test #2)\niperf3: interrupt - the server has terminated\n"
    rows = "Accepted connection from 192.0.2.9, port 41000\n" + text([300, 310] * 4)
    diagnosis = told(f"{rows}-----\n{waiting}")
    assert (len(diagnosis.phases), diagnosis.inconclusive) == (1, None)
    assert told(waiting).inconclusive


@pytest.mark.parametrize(
    ("head", "system"),
    [
        ("C:\\iperf>iperf3.exe -c 192.0.2.9\n", "Windows"),
        ("PS C:\\Users\\me> .\\iperf3 -c 192.0.2.9\n", "Windows"),
        ("iperf 3.12\nDarwin mac 23.1.0 Darwin Kernel Version 23.1.0 arm64\n", "Darwin"),
        ("iperf 3.12\nLinux a 6.1.0 x86_64\n", None),
        ("$ iperf3 -c 192.0.2.9\n", None),
    ],
)
def test_advice_says_that_its_commands_are_of_another_system(head, system):
    run = text([30, 12, 25, 9, 31, 14], [40, 20, 35, 15, 45, 20], [90] * 6, ends=WAN)
    advice = told(head + run).findings[0].advice
    words = f" (this is for Linux; the output is from {system})"
    assert advice.endswith(words) == bool(system)
