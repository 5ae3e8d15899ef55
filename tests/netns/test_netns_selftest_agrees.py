"""A report agrees with its own measurements: each case with real packets between two namespaces."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import sys

import pytest
from between import between, told
from ends import FAR, MAIN, NEAR, PORT, TCP
from middlebox import Way

from neuca_tools.selftest.codes import NAGIOS, ExitCode
from neuca_tools.selftest.report.record import STATES

QUICK = ("--only", "latency,path-mtu,tcp,udp", "--time", "1")


@pytest.fixture
def hosts(tmp_path):
    with between(tmp_path) as made:
        yield made


@pytest.fixture
def jumbo(tmp_path):
    """Two hosts with jumbo frames, and a switch between them that drops what is larger than 1500 bytes."""
    with between(tmp_path, mtu=9000) as made:
        made.bridged()
        for port in ("ra", "rb"):
            made.run("ip", "link", "set", port, "mtu", "1500", where=made.box)
        yield made


def finding(report, name):
    return next(one for one in report["findings"] if one["id"] == name)


def test_a_path_mtu_that_fails_is_in_the_verdict(jumbo):
    """A plain server; TCP gets through, because the switch's MTU probing or its MSS lets it."""
    jumbo.start("iperf3", "-s", "--forceflush", "-p", str(PORT), where=jumbo.far, first="-")
    report = jumbo.report("--only", "path-mtu,tcp", "--time", "1", helped=False)
    steps = {one["name"]: one["verdict"] for one in report["evidence"]["steps"]}
    assert steps["path-mtu"] == "fail", report
    assert report["exit_code"] == 4
    assert {"D21", "D23"} & set(told(report)), report["findings"]


def test_datagrams_that_are_blocked_are_a_firewall_and_not_waited_for(hosts):
    hosts.boxed(Way(no_udp=True), Way(no_udp=True))
    hosts.serve()
    report = hosts.report(*QUICK, "--expect", "1M", "--rate", "20M")
    assert told(report)[0] == "D33", report["findings"]
    assert "datagrams" in finding(report, "D33")["text"]
    steps = {one["name"]: one["text"] for one in report["evidence"]["steps"]}
    assert steps["udp"] == "no datagram gets through"


def test_a_peer_that_has_no_way_back(ends):
    ends.iperf("-1")
    ends.lab.run("ip", "route", "add", "blackhole", f"{NEAR}/32", where=ends.lab.outside)
    _, report = ends.report(*TCP)
    assert "it has no way back" in finding(report, "D33")["text"]


def test_a_mistyped_secret_is_named_first(ends):
    ends.serve(secret=ends.write("other", "another secret than the first\n"))
    _, report = ends.report("--secret-file", ends.secret, *TCP)
    assert "mistyped" in finding(report, "D35")["text"]


def test_the_advised_server_is_the_one_that_the_test_finds(ends):
    _, report = ends.report(*TCP)
    assert f"iperf3 -s -p {PORT}" in finding(report, "D33")["advice"]
    ends.iperf("-1")
    code, _ = ends.report(*TCP)
    assert code in (0, 6)


@pytest.mark.parametrize(
    ("via", "gateway"), [("172.16.0.200", "172.16.0.200"), ("inet6 fd00:16::200", "fd00:16::200")]
)
def test_the_gateway_that_is_absent_is_named(ends, via, gateway):
    ends.lab.ip(f"route add 198.51.100.0/24 via {via} dev dp1")
    _, report = ends.report(*TCP, peer="198.51.100.1")
    assert f"{gateway}, the gateway" in finding(report, "D31")["text"]


def archived(ends):
    """The exit code and the verdict of the last test in the history."""
    known = ends.lab.run(
        sys.executable, "-c", MAIN, "history", "--config", ends.lab.config_file, "--json"
    )
    last = json.loads(known.out)[-1]
    return last["exit_code"], last["verdict"]


def test_every_output_has_the_verdict_that_the_comparison_makes(ends):
    """After four tests, a shaper: worse than before, or below the threshold for the queue that drops."""
    ends.serve()
    words = ("--secret-file", ends.secret, "--only", "tcp", "--time", "1", "--expect", "1M")
    for _ in range(4):
        ends.test(*words)
    ends.lab.run(*"tc qdisc add dev dp1 root tbf rate 20mbit burst 32k latency 50ms".split())
    code, report = ends.report(*words)
    assert archived(ends) == (code, report["verdict"]) == (report["exit_code"], report["verdict"])
    line = ends.test(*words, "--nagios")
    assert line.code == NAGIOS[ExitCode(archived(ends)[0])]
    assert line.out.startswith(f"DATAPLANE {STATES[line.code]} - ")
    said = ends.test(*words)
    assert archived(ends) == (said.code, archived(ends)[1])
    assert f"\nVERDICT     {archived(ends)[1]}" in said.out
    assert ("WORSE" in said.out) or said.code != 7


@pytest.mark.parametrize("step", ["latency", "path-mtu", "connections"])
def test_a_step_alone_is_a_result(ends, step):
    ends.serve()
    code, report = ends.helped("--only", step)
    assert (code, report.get("unknown")) == (0, None), report


def test_a_shaper_of_one_direction_is_one(hosts):
    hosts.shape("rate 20mbit burst 32k latency 200ms")
    hosts.serve()
    report = hosts.report("--only", "latency,tcp,tcp-reverse", "--expect", "100M", "--time", "4")
    assert {"D18", "D27"} & set(told(report)), report["findings"]
    first = report["findings"][0]
    assert "ip route get" not in first["advice"]
    assert "D17" not in told(report)
    assert FAR in report["evidence"]["address"]
