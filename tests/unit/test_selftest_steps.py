"""The steps of a test with a stand-in for iperf3, which reports a path of 100 Mbit/s: what is asked of it, and what is said."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import os
import resource
import socket
import struct
import time
from contextlib import ExitStack
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from types import SimpleNamespace

import pytest

from neuca_tools.errors import SelftestError, UsageError
from neuca_tools.selftest.diagnosis.diagnose import diagnose
from neuca_tools.selftest.evidence import (
    Cpu,
    Host,
    Latency,
    Link,
    PathMtu,
    Phase,
    Reach,
    Sample,
    Socket,
)
from neuca_tools.selftest.evidence.route import OneWay
from neuca_tools.selftest.evidence.run import Flow, Interval, Run, Total
from neuca_tools.selftest.measure import program, session
from neuca_tools.selftest.measure.host.kernel import KernelRoute
from neuca_tools.selftest.measure.host.planned import AgentPlan
from neuca_tools.selftest.measure.iperf import conduct, phases
from neuca_tools.selftest.measure.iperf.phases import ThroughputSteps
from neuca_tools.selftest.measure.iperf.plans import PLANS, STEPS, Options
from neuca_tools.selftest.measure.mesh import pair
from neuca_tools.selftest.measure.mesh.host import Member, read_slots
from neuca_tools.selftest.measure.probes import reach, roundtrip
from neuca_tools.selftest.measure.session import PeerTest
from neuca_tools.selftest.mesh.model import MeshHost, MeshPlan, Row
from neuca_tools.selftest.mesh.schedule import make_plan

HERE = ip_address("127.0.0.1")
IPERF3 = """#!/usr/bin/python3 -ISE
import json, sys
words = sys.argv[1:]
def value(option, default=0):
    return float(words[words.index(option) + 1]) if option in words else default
seconds, streams, asked = value("-t"), int(value("-P", 1)), value("-b")
protocol, size = ("UDP" if "-u" in words else "TCP"), value("-l", 1448)
def total(rate):
    sums = {"seconds": seconds, "bytes": rate * seconds / 8, "bits_per_second": rate}
    if protocol == "UDP":
        offered = asked * streams
        sent = round(offered * seconds / 8 / size)
        lost = round(max(0, 1 - rate / offered) * sent)
        sums.update(packets=sent, lost_packets=lost, lost_percent=100 * lost / max(1, sent))
    return sums
test = {"protocol": protocol, "num_streams": streams, "duration": seconds}
test.update({"reverse": int("-R" in words), "bidir": int("--bidir" in words)})
most = min(CAPACITY, asked * streams or CAPACITY)
sent = {"sum_sent": {**total(asked * streams if protocol == "UDP" else most), "retransmits": 1}}
end = {**sent, "sum_received": total(most)}
if "--bidir" in words:
    back = total(most / 2)
    end.update({"sum_sent_bidir_reverse": back, "sum_received_bidir_reverse": back})
answer = {"start": {"words": words, "test_start": test}, "intervals": [], "end": end}
ERROR
print(json.dumps(answer))
"""


@pytest.fixture
def path(tmp_path, monkeypatch):
    """Runs steps of a test; the stand-in is in a directory that a confined iperf3 would not see."""
    monkeypatch.setattr(program, "PATH", str(tmp_path))
    monkeypatch.setattr(conduct, "confine_process", lambda: None)

    def run(*steps, capacity=1e8, error="", evidence=None, **options):
        stand_in = tmp_path / "iperf3"
        stand_in.write_text(IPERF3.replace("CAPACITY", f"{capacity:.0f}").replace("ERROR", error))
        stand_in.chmod(0o755)
        said = []
        own = Options(frozenset(steps), **{"seconds": 1.0, **options})
        test = ThroughputSteps(HERE, own, lambda step: said.append(tuple(vars(step).values())))
        test._source = HERE
        test._evidence = replace(test._evidence, **(evidence or {}))
        test._run_throughput()
        assert [tuple(vars(step).values()) for step in test._evidence.steps] == said
        return [step for step in said if step[2] != "not requested"], test._evidence

    return run


def asked_of(phase):
    """What iperf3 was asked for, without what every test has."""
    words = json.loads(phase.raw)["start"]["words"]
    usual = "--connect-timeout 3000 --get-server-output -B 127.0.0.1".split()
    start = "-c 127.0.0.1 -p 45678".split()
    assert words[:4] == start
    return " ".join(word for word in words[4:] if word not in ("-J", *usual))


def test_tcp_is_tested_in_each_direction_with_streams_and_both_ways(path):
    said, evidence = path("tcp", "tcp-reverse", "tcp-parallel", "tcp-bidir", parallel=(1, 8, 500))
    assert said == [
        ("tcp", "pass", "100 Mbit/s, 1 retransmit"),
        ("tcp-reverse", "pass", "100 Mbit/s, 1 retransmit"),
        ("tcp-parallel", "pass", "100 Mbit/s, 1 retransmit of 8 streams"),
        ("tcp-parallel", "pass", "100 Mbit/s, 1 retransmit of 128 streams"),
        ("tcp-bidir", "pass", "100 Mbit/s, 1 retransmit"),
        ("tcp-bidir", "pass", "50.0 Mbit/s back"),
    ]
    phases = evidence.phases
    assert [asked_of(phase) for phase in phases[:5]] == [
        "-t 1 -i 1",
        "-t 1 -i 1 -R",
        "-t 1 -i 1 -P 8",
        "-t 1 -i 1 -P 128",
        "-t 1 -i 1 --bidir",
    ]
    assert [(phase.name, phase.direction) for phase in phases] == [
        ("tcp", "forward"),
        ("tcp", "reverse"),
        ("tcp-parallel", "forward"),
        ("tcp-parallel", "forward"),
        ("tcp-bidir", "forward"),
        ("tcp-bidir", "reverse"),
    ]
    assert [phase.raw is None for phase in phases] == [False] * 5 + [True]


def test_a_rate_below_the_expected_one_fails(path):
    said, _ = path("tcp", "tcp-bidir", expect=112e6)
    assert [(name, verdict) for name, verdict, _ in said] == [
        ("tcp", "fail"),
        ("tcp-bidir", "fail"),
        ("tcp-bidir", "fail"),
    ]
    said, _ = path("tcp", "tcp-bidir", expect=107e6)
    assert [verdict for _, verdict, _ in said] == ["pass", "pass", "pass"]


def test_the_ladder_searches_for_the_rate_without_loss(path):
    said, evidence = path("udp", expect=4e8)
    assert [(verdict, text) for _, verdict, text in said[:5]] == [
        ("pass", "4.00 Mbit/s, 0% lost of 4.00 Mbit/s"),
        ("pass", "40.0 Mbit/s, 0% lost of 40.0 Mbit/s"),
        ("fail", "100 Mbit/s, 50% lost of 200 Mbit/s"),
        ("search", "89.4 Mbit/s, 0% lost of 89.4 Mbit/s"),
        ("search", "100 Mbit/s, 25% lost of 134 Mbit/s"),
    ]
    assert said[-1] == ("udp", "pass", "loss-free up to 95.0 Mbit/s")
    assert [phase.search for phase in evidence.phases] == [False] * 3 + [True] * 5
    assert asked_of(evidence.phases[0]) == "-t 1 -i 1 -u -b 4000000"
    assert {phase.target for phase in evidence.phases[:3]} == {4e6, 40e6, 200e6}


def test_the_ladder_without_an_expected_rate_goes_up_to_that_of_tcp(path):
    said, evidence = path("tcp", "udp")
    assert [text.rpartition(" of ")[2] for _, _, text in said[1:-1]] == [
        "1.00 Mbit/s",
        "10.0 Mbit/s",
        "50.0 Mbit/s",
        "100 Mbit/s",
    ]
    assert said[-1] == ("udp", "pass", "loss-free up to 100 Mbit/s")
    assert {phase.search for phase in evidence.phases[1:]} == {True}
    said, _ = path("udp", rate=2e6, expect=1e9)
    assert said[-1] == ("udp", "pass", "loss-free up to 2.00 Mbit/s")


def test_the_ladder_needs_a_rate(path):
    assert path("udp")[0] == [("udp", "skipped", "no target rate is known: use --rate or --expect")]
    said, _ = path("udp", capacity=1e4, expect=1e6)
    assert said[-1] == ("udp", "unknown", "no rate was found at which nothing is lost")
    assert said[0] == ("udp", "fail", "10.0 kbit/s, 99% lost of 1.00 Mbit/s")


FAILS = 'answer = {"start": {"words": words}, "intervals": [], "end": {}, "error": "unable to connect: Connection refused"}'
REFUSED = "unable to connect: Connection refused"


def test_after_a_test_that_got_nothing_through_the_others_are_skipped(path):
    said, _ = path("tcp", "tcp-reverse", "udp", "one-way", error=FAILS)
    skipped = f"the previous test got nothing through: {REFUSED}"
    assert said == [
        ("tcp", "fail", REFUSED),
        *((name, "skipped", skipped) for name in ("tcp-reverse", "udp", "one-way")),
    ]
    said, _ = path("tcp-parallel", "tcp-bidir", error=f"if streams > 1: {FAILS}")
    assert said[0] == ("tcp-parallel", "fail", f"{REFUSED}")
    assert [verdict for _, verdict, _ in said[1:]] == ["pass", "pass"]


def test_datagrams_that_do_not_arrive_are_sent_once_more(path):
    said, evidence = path("udp", expect=1e6, error=FAILS)
    assert said == [
        ("udp", "fail", REFUSED),
        ("udp", "unknown", "no rate was found at which nothing is lost"),
    ]
    assert len(evidence.phases) == 1


def test_loss_in_each_direction_is_measured_gently(path):
    said, evidence = path("tcp", "one-way")
    assert said[1:] == [
        ("one-way", "pass", "0% of 2000 lost (by sequence number), at 10.0 Mbit/s out"),
        ("one-way", "pass", "0% of 2000 lost (by sequence number), at 10.0 Mbit/s back"),
    ]
    assert [
        (way.direction, way.rate, way.sent, way.seen, way.lost) for way in evidence.one_way
    ] == [
        ("forward", 1e7, 2000, 2000, 0),
        ("reverse", 1e7, 2000, 2000, 0),
    ]


def test_a_step_passes_only_if_its_result_does(path):
    """Losses one way fail by themselves; whether faster datagrams are lost too is not known yet, and a limit hides a rate."""
    assert path("udp", capacity=9.5e5, expect=1e6)[0][0][1] == "unknown"
    said, evidence = path("one-way", capacity=9.5e5)
    assert [verdict for _, verdict, _ in said] == ["fail", "fail"]
    assert len(diagnose(evidence).failures) == 2
    assert path("tcp", rate=2e6, expect=1e9)[0][0][1] == "unknown"


# The slowest rate so far, a limit; the rate at which datagrams are sent, and how many.
GENTLE = [
    (3e5, {}, 1.5e5, 73),
    (5e6, {}, 1e6, 488),
    (3e7, {}, 3e6, 1465),
    (5e7, {}, 5e6, 2003),
    (5e7, {"rate": 2e6}, 2e6, 977),
    (None, {}, 1e6, 488),
]


@pytest.mark.parametrize(("capacity", "options", "rate", "count"), GENTLE)
def test_one_way_loss_is_measured_at_a_tenth_of_the_slowest_rate(
    path, capacity, options, rate, count
):
    flow = Flow("forward", received=Total(10.0, 1.0, capacity))
    known = {"phases": (Phase("tcp", Run("iperf3", protocol="tcp", flows=(flow,))),)}
    _, evidence = path("one-way", evidence=known if capacity else {}, **options)
    assert [(way.rate, way.sent) for way in evidence.one_way] == [(rate, count)] * 2


DEAF = {"idle": Latency(20, 20), "idle_tcp": Latency(p50=0.001)}


@pytest.mark.parametrize(
    ("steps", "evidence", "reason"),
    [
        (
            ("udp",),
            DEAF,
            "no datagram gets through",
        ),
        (
            ("one-way",),
            DEAF,
            "no datagram gets through",
        ),
    ],
)
def test_a_step_that_cannot_be_made_is_skipped(path, steps, evidence, reason):
    assert path(*steps, evidence=evidence)[0] == [(*steps, "skipped", reason)]


def test_the_rate_of_connections_needs_a_helper():
    said = []
    ThroughputSteps(HERE, Options(), said.append)._run_step("connections", list)
    assert [step.text for step in said] == ["this needs a helper on the peer"]


def test_a_kernel_that_refuses_a_step_leaves_the_others():
    said = []
    test = ThroughputSteps(HERE, Options(), said.append)

    def measure():
        raise OSError(13, "Permission denied")

    test._run_step("latency", measure)
    (step,) = said
    assert (step.verdict, step.text) == ("unknown", "cannot be measured: Permission denied")


@pytest.mark.parametrize("missing", ["iperf3", "numactl"])
def test_a_program_that_is_missing_is_the_error_of_the_run(tmp_path, monkeypatch, missing):
    monkeypatch.setattr(program, "PATH", str(tmp_path))
    own = conduct.Test(HERE, 45678, 1.0, numa_nodes="0" if missing == "numactl" else None)
    (phase,) = conduct.run_test("tcp", own)
    assert phase.run.error == f"start {missing}: No such file or directory"
    assert (phase.run.protocol, phase.direction, phase.raw) == ("tcp", "forward", "")


def test_what_the_two_ends_of_datagrams_counted():
    losses = tuple(Interval(at, at + 1, lost=lost) for at, lost in enumerate((1, None, 2)))
    flow = Flow("reverse", losses, Total(datagrams=9), Total(datagrams=8, lost=3, out_of_order=1))
    phase = Phase("one-way", Run("iperf3", flows=(flow,)), "reverse", 1e6)
    assert phases.one_way_of(phase) == OneWay(
        direction="reverse", rate=1e6, sent=9, seen=8, lost=3, out_of_order=1, losses=(1, 2)
    )
    assert phases.one_way_of(replace(phase, run=None)) == OneWay("reverse", 1e6)
    assert phases.one_way_of(replace(phase, direction="forward")) == OneWay("forward", 1e6)


# --- The whole test of a peer -------------------------------------------------------------------------------------------

REACHED = [
    (Reach(), True, []),
    (Reach("reachable", tcp="connected"), True, ["neighbour reachable"]),
    (Reach("failed"), False, ["neighbour failed"]),
    (Reach("incomplete", ping=False), False, ["neighbour incomplete", "no response to ping"]),
    (Reach("failed", ping=True), True, ["neighbour failed", "ping answered"]),
    (Reach(ping=False, tcp="refused"), True, ["no response to ping"]),
    (Reach(tcp="timeout"), True, []),
    (Reach(tcp="busy"), False, []),
    (Reach(tcp="no-route"), False, []),
    (Reach(tcp="unreachable"), False, []),
    (Reach(tcp="connected", wrong_peer=True), False, []),
]


@pytest.mark.parametrize(("reached", "is_reachable", "words"), REACHED)
def test_a_peer_is_tested_unless_it_cannot_be_reached(reached, is_reachable, words):
    assert session.is_reachable(reached) is is_reachable
    assert session.reach_words(reached) == words


MTUS = [
    (PathMtu(1500, 1500, None), "", ("pass", "1500 out, 1500 back, of 1500 bytes")),
    (PathMtu(1501, None, None), "", ("pass", "1501 out, not known back, of 1500 bytes")),
    (
        PathMtu(1499, 1500, True),
        "",
        ("pass", "1499 out, 1500 back, of 1500 bytes: ICMP reports it"),
    ),
    (PathMtu(1500, 1499, False), "", ("fail", "1500 out, 1499 back, of 1500 bytes")),
    (
        PathMtu(),
        " (9000 here)",
        ("unknown", "no response out, not known back, of 1500 bytes (9000 here)"),
    ),
]


@pytest.mark.parametrize(("path_mtu", "here", "result"), MTUS)
def test_a_path_mtu_is_judged_by_what_the_devices_take(path_mtu, here, result):
    assert session.judge_path_mtu(path_mtu, 1500, here) == result


@pytest.mark.parametrize(
    ("latency", "words"),
    [
        (Latency(), "not measured"),
        (Latency(20, 20), "no response to 20 requests"),
        (Latency(20, 0, 0.001, 0.002, 0.25), "p50 1.00 ms, p99 2.00 ms, max 250 ms"),
        (Latency(20, 3, 0.001, 0.002, 0.25), "p50 1.00 ms, p99 2.00 ms, max 250 ms, 3 of 20 lost"),
    ],
)
def test_round_trips_in_words(latency, words):
    assert session.latency_words(latency) == words


FORWARDING = "net.ipv4.ip_forward"
PLANNED = [
    (AgentPlan(), ("skipped", "the agent has made no pass on this host: nothing is planned")),
    (AgentPlan(drift=()), ("pass", "names, addresses, routes, marks, MTUs and tuning")),
    (AgentPlan(drift=("eth1 is down",)), ("fail", "eth1 is down")),
    (AgentPlan(drift=("eth1 is down", "a", "b")), ("fail", "eth1 is down, and 2 more")),
]


@pytest.mark.parametrize(("plan", "result"), PLANNED)
def test_a_host_is_compared_with_its_plan(plan, result):
    said = []
    test = PeerTest(HERE, Options(), plan, said.append)
    test._run_step("as-planned", test._compare_with_plan)
    assert [(step.name, step.verdict, step.text) for step in said] == [("as-planned", *result)]


def test_a_sysctl_with_another_value_is_not_as_planned():
    value = Path("/proc/sys/net/ipv4/tcp_rmem").read_text(encoding="ascii")
    said = []
    for planned in (" ".join(value.split()), "1 2 3"):
        sysctls = {"net.ipv4.tcp_rmem": planned, "net.ipv4.no_such_setting": "1"}
        test = PeerTest(HERE, Options(), AgentPlan(sysctls=sysctls, drift=()), said.append)
        test._run_step("as-planned", test._compare_with_plan)
    assert [step.verdict for step in said] == ["pass", "fail"]
    assert said[1].text.split() == ["net.ipv4.tcp_rmem", "is", *value.split()]


def test_an_address_of_this_host_is_not_tested():
    with pytest.raises(UsageError, match="address of this host"):
        PeerTest(HERE, Options(), AgentPlan(), print).run()


def test_a_path_that_tracepath_would_take_through_another_device_is_skipped():
    test = PeerTest(HERE, Options(), AgentPlan(), print)
    said = list(test._trace_path(session.Device(2, "eth0")))
    assert said == [("skipped", "tracepath would not send through eth0")]


def test_the_common_mtu_is_that_of_the_smaller_device():
    test = PeerTest(HERE, Options(), AgentPlan(), print)
    device = session.Device(2, "eth0", mtu=9000)
    assert test._common_mtu(device) == 9000

    class Helper:
        host = Host(links=(Link("eth1", mtu=1500), Link("eth0", mtu=1400)), planned="eth1")

    test._helper = Helper()
    assert test._common_mtu(device) == 1500
    Helper.host = replace(Helper.host, planned="eth2")
    assert test._common_mtu(device) == 9000


@pytest.mark.parametrize(
    ("times", "lost", "latency"),
    [
        ((), 0, Latency()),
        ((), 3, Latency(3, 3)),
        ((0.2, 0.1), 1, Latency(3, 1, 0.2, 0.2, 0.2)),
        (tuple(range(100)), 0, Latency(100, 0, 50, 99, 99)),
        (tuple(range(200)), 0, Latency(200, 0, 100, 198, 199)),
    ],
)
def test_quantiles_of_round_trips(times, lost, latency):
    assert roundtrip.latency_of(times, lost) == latency


def test_the_longest_duration_of_a_test():
    assert Options().duration == 90 + 18 * 25
    assert Options(seconds=1.0, parallel=()).duration == 90 + 16 * 16


def test_a_quick_test_has_no_slow_step():
    assert PLANS["quick"].steps == frozenset(
        "as-planned reach latency path-mtu tcp tcp-reverse loaded".split()
    )
    assert PLANS["standard"].steps == PLANS["full"].steps == frozenset(STEPS)


# --- What both ends saw -------------------------------------------------------------------------------------------------


class Peer:
    """A peer that refuses a test, or tells what it saw of it."""

    def __init__(self, refusal=None):
        self.refusal, self.begun, self.finished = refusal, [], 0

    def begin(self, test):
        self.begun.append(test)
        return self.refusal

    def finish(self):
        self.finished += 1
        return (Sample(7.0),)


@pytest.mark.parametrize(
    ("direction", "ends"),
    [
        ("forward", [("forward", False, True)]),
        ("reverse", [("reverse", True, False)]),
        ("both", [("forward", False, True), ("reverse", True, False)]),
    ],
)
def test_the_peer_is_the_receiver_or_the_sender(tmp_path, monkeypatch, direction, ends):
    """A test ends with what the peer saw, even if no program could be started here."""
    monkeypatch.setattr(program, "PATH", str(tmp_path))
    peer, test = Peer(), conduct.Test(HERE, 45678, 1.0, direction=direction, rate=5.0)
    found = conduct.run_test("tcp", test, peer)
    assert (peer.begun, peer.finished) == ([test], 1)
    theirs = (Sample(7.0),)
    of_peer = [
        (
            phase.direction,
            phase.sender == theirs,
            phase.receiver == theirs,
        )
        for phase in found
    ]
    assert of_peer == ends
    assert {(phase.name, phase.target) for phase in found} == {("tcp", 5.0)}


def test_a_peer_that_refuses_is_the_error_of_the_run():
    peer = Peer("the peer: begin: the port is busy")
    (phase,) = conduct.run_test("udp", conduct.Test(HERE, 45678, 1.0, udp=True), peer)
    assert (phase.run.error, phase.run.protocol) == ("the peer: begin: the port is busy", "udp")
    assert (phase.raw, peer.finished) == (None, 0)


ROW = Row(3, "a", "b", rtt=0.01)


def transferred(way, *, own=None, **values):
    """The row after a transfer, of which the kernel counted so much."""
    times = (0.0, 3.0, 4.0, 5.0)
    socket = Socket(rtt=20_000, min_rtt=values.pop("min_rtt", 5_000))
    sender = tuple(
        Sample(time, (replace(socket, bytes_acked=int(time * 1e6)),), (Cpu(user=time),))
        for time in times
    )
    receiver = tuple(Sample(time, cpus=(Cpu(idle=time),)) for time in times)
    run = Run("iperf3", protocol="tcp", cpu_local=own, flows=(Flow(received=Total(rate=5.0)),))
    return pair._with_transfer(ROW, way, Phase("tcp", run, sender=sender, receiver=receiver))


def test_a_transfer_shows_what_was_acknowledged_and_who_was_busy():
    out, back = transferred("out"), transferred("back")
    assert (out.rate_out, out.rate_back, back.rate_out, back.rate_back) == (8e6, None, None, 8e6)
    assert (out.busy_client, out.busy_server) == (1.0, 0.0)
    assert (back.busy_client, back.busy_server) == (0.0, 1.0)
    assert out.rtt == 0.005
    assert transferred("out", min_rtt=30_000).rtt == 0.01
    assert not out.disturbed
    assert transferred("out", own=1.0).disturbed
    unsampled = pair._with_transfer(
        ROW,
        "out",
        Phase("tcp", Run("iperf3", protocol="tcp", flows=(Flow(received=Total(rate=5.0)),))),
    )
    assert (unsampled.rate_out, unsampled.busy_client, unsampled.rtt) == (5.0, None, 0.01)


def test_a_host_knows_its_pair_in_a_slot():
    plan = SimpleNamespace(hosts=[SimpleNamespace(name=name) for name in "abcd"])
    pairs = [(0, 2), (3, 1)]
    assert pair.names_of_pair(plan, pairs, "c") == ("a", "c")
    assert pair.names_of_pair(plan, pairs, "b") == ("d", "b")
    assert pair.names_of_pair(plan, pairs[:1], "b") is None
    assert pair.QUICK.steps == PLANS["quick"].steps - {"tcp-reverse"}
    assert (pair.ROUND_TRIPS, pair.ROUND_TRIP_SECONDS) == (23, 2.0)


# --- A member of a mesh -------------------------------------------------------------------------------------------------


def member(guard=3000.0):
    hosts = [MeshHost(name, f"127.0.0.{at}", {}) for at, name in enumerate("ab", 1)]
    plan = make_plan(MeshPlan(hosts, (), 1e9, guard=guard))
    said = []
    return Member(plan, "a", AgentPlan(), b"secret", said.append), said


@pytest.mark.parametrize(("ahead", "takes_part"), [(1400, True), (1600, False)])
def test_a_clock_may_differ_by_half_of_the_guard_interval(ahead, takes_part):
    own, said = member()
    now = time.time()
    obeyed = own._obey(
        {"slots": [[0, [[0, 1]]]], "next": 0, "start": now + 9999, "clock": now + ahead}
    )
    assert obeyed is takes_part
    if takes_part:
        assert (said, own._schedule.next, own._schedule.diagnoses) == ([], (0, ((0, 1),)), False)
    else:
        (message,) = map(json.loads, said)
        assert message["mesh"] == 1
        assert message["behind"] == pytest.approx(ahead, abs=60)


@pytest.mark.parametrize(
    "wrong", [{"next": -1}, {"start": None}, {"clock": 1e300}, {"start": True}]
)
def test_a_message_without_its_times_is_an_error(wrong):
    own, _ = member()
    with pytest.raises(SelftestError, match="follow the coordinator: a message without its times"):
        own._obey({"next": 0, "start": 1e9, "clock": 1e9, **wrong})


def test_a_member_announces_itself_with_its_clock():
    own, said = member()
    own.announce()
    message = json.loads(said[0])
    assert (message["mesh"], message["ready"]) == (1, "a")
    assert message["clock"] == pytest.approx(time.time(), abs=60)
    assert "diagnoses" not in message
    assert own._obey({"slots": [], "diagnoses": True})
    assert own._schedule.diagnoses is True
    assert own._obey({"slots": [], "diagnoses": 1})
    assert own._schedule.diagnoses is False
    assert (own._schedule.next, own._is_busy()) == (None, False)


SLOTS = [
    ("text", "its slots cannot be read"),
    ([[0]], "its slots cannot be read"),
    ([[0, [[0, "x"]]]], "its slots cannot be read"),
    ([[0, [[0, 1, 2]]]], "its slots cannot be read"),
    ([[1e999, []]], "its slots cannot be read"),
]


@pytest.mark.parametrize(("data", "reason"), SLOTS)
def test_slots_that_cannot_be_read_are_an_error(data, reason):
    with pytest.raises(SelftestError, match=reason):
        read_slots(data, 2)
    assert read_slots([[4, [[1, 0]]]], 2) == ((4, ((1, 0),)),)


# --- Whether a peer can be reached --------------------------------------------------------------------------------------


TIME_WAIT = "06"  # include/net/tcp_states.h


def closed_connections(port):
    """The local addresses of those to this port that the kernel still waits for."""
    rows = map(str.split, Path("/proc/net/tcp").read_text().splitlines())
    return {row[1] for row in rows if row[3] == TIME_WAIT and row[2].endswith(f":{port:04X}")}


def test_connections_are_opened_until_a_hundred_have_failed():
    with socket.create_server((str(HERE), 0), backlog=4096) as listener:
        port = listener.getsockname()[1]
        before = closed_connections(port)  # another test's client may have had this port
        made = reach.connection_rate(HERE, port, HERE, 0.01)
        foreign = reach.connection_rate(HERE, port, ip_address("192.0.2.1"), 60.0)
    refused = reach.connection_rate(HERE, port, HERE, 60.0)
    assert (made.failed, made.rate > 0) == (0, True)
    assert closed_connections(port) <= before
    assert (refused.failed, refused.rate) == (100, 0.0)
    assert (foreign.failed, foreign.rate) == (100, 0.0)


def test_connections_without_a_response_are_counted(monkeypatch):
    """A listener that accepts nothing has room for one connection more than its backlog."""
    monkeypatch.setattr(reach, "FLOW_SECONDS", 0.1)
    with socket.create_server((str(HERE), 0), backlog=3) as listener:
        port = listener.getsockname()[1]
        assert reach.unanswered_flows(HERE, port, HERE) == reach.FLOWS - 4
    assert reach.unanswered_flows(HERE, port, HERE) == 0


def test_connections_are_counted_whatever_their_descriptors_are():
    """Beyond those of select(2), the first 1024."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, limits[1]), limits[1]))
        for _ in range(1024):
            stack.enter_context(Path(os.devnull).open())
        closed = stack.enter_context(socket.socket())
        closed.bind((str(HERE), 0))
        assert reach.unanswered_flows(HERE, closed.getsockname()[1], HERE) == 0


def arp(operation=2, sender="10.0.0.2", mac=bytes(range(2, 8))):
    head = struct.pack("!HHBBH", 1, 0x0800, 6, 4, operation)
    return head + mac + ip_address(sender).packed + bytes(10)


@pytest.mark.parametrize(
    ("packet", "macs"),
    [
        (arp(), {"02:03:04:05:06:07"}),
        (arp(operation=1), set()),
        (arp(sender="10.0.0.3"), set()),
        (arp()[:27], set()),
        (arp() + bytes(18), {"02:03:04:05:06:07"}),
    ],
)
def test_only_an_answer_of_the_peer_has_its_mac(packet, macs):
    assert reach._mac_in_reply(packet, ip_address("10.0.0.2")) == macs


@pytest.mark.parametrize(
    ("peer", "mac", "gateway"),
    [
        ("::1", "02:00:00:00:00:01", None),
        ("10.0.0.2", "02:00:00:00:00:01", "10.0.0.1"),
        ("10.0.0.2", "", None),
    ],
)
def test_nobody_is_asked_where_arp_cannot_tell(peer, mac, gateway):
    route = KernelRoute(1, HERE, gateway and ip_address(gateway), None, False)
    device = session.Device(1, "no-such-nic", mac=mac)
    assert reach.answering_macs(ip_address(peer), route, device) == ()


@pytest.mark.parametrize("gateway", [None, HERE])
def test_how_a_peer_is_reached_names_the_device_and_the_gateway(gateway):
    route = KernelRoute(1, HERE, gateway, None, True)
    found = reach.check_reach(HERE, route, session.Device(1, "lo", mac=""))
    assert found.ping in (True, None)  # only root may send one
    assert replace(found, ping=None) == reach.Reach(route="lo", gateway=gateway and str(HERE))


def test_datagrams_that_could_not_be_sent_one_way_fail_the_step():
    assert phases._one_way_result(OneWay("reverse", 1e6), "refused") == ("fail", "back: refused")
