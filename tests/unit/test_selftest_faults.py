"""What was recorded while a cause was injected (tests/machine/faults) gets its verdict again, without a guest."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from selftest_runs import diagnose, flow_of, receiver, tcp, udp_phase

from neuca_tools.selftest.codes import ExitCode
from neuca_tools.selftest.evidence import Evidence, Latency, Phase, Reach, Sample
from neuca_tools.selftest.evidence.run import Flow, Run, Total
from neuca_tools.selftest.readers.documents import evidence_of, read_run
from neuca_tools.selftest.report.record import report_json

DATA = Path(__file__).parent / "data" / "faults"
FOUND = {  # recorded case: what comes first, a part of what is said of it
    "small-receive-buffer": ("D01", "the receiver's window of "),
    "small-send-buffer": ("D03", "the sender's buffer of 244 KiB is full"),
    "policer": (
        "D17",
        "no loss at 12.6 Mbit/s, and never more than 13.3 Mbit/s: a policer drops the excess",
    ),
    "random-loss": ("D19", "is lost even at 2.11 Mbit/s: not a queue that overflows"),
    "slow-source": ("D04", "and nothing was queued: the sending application had nothing to send"),
    "small-switch": (
        "D21",
        "packets above 1504 bytes are dropped on the path without an ICMP message",
    ),
    "asymmetric-path": ("D18", "of 8.61 Mbit/s while a queue forms"),
    "half-duplex": (
        "D28",
        "both directions at once carry 26.2 Mbit/s, one after the other 55.0 Mbit/s in total",
    ),
    "asymmetric-path-two-looks": (
        "D18",
        "of 6.31 Mbit/s while a queue forms: this is the capacity of the path",
    ),
    "limit-of-each-flow": ("D26", "many streams carry 8.0 times as much as one"),
    "policer-seen-by-tcp-alone": ("D17", "packets are lost while no queue forms, near 5.00 Mbit/s"),
    "flapping-link": ("D40", "a0.carrier_changes 10, not 2"),
    "small-send-buffer-in-bursts": ("D03", "the sender's buffer of 30.5 KiB is full"),
    "slow-reader-with-room": (
        "D02",
        "the receiving application is slow: 49% of its buffer waits 797 ms to be read",
    ),
    "full-neighbour-table": ("D16", "the neighbor table of the local host overflowed"),
    "small-send-buffer-and-a-quiet-path": ("D03", "the sender's buffer of 43.9 KiB is full"),
    "shaper": ("D18", "while a queue forms: this is the capacity of the path"),
    "slow-reader": (
        "D02",
        "the receiving application is slow: 73% of its buffer waits 1.60 s to be read",
    ),
    "deep-fifo": ("D14", "the round trip grows from 4.19 ms to 164 ms under load"),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_was_recorded_gets_its_verdict(name):
    first = diagnose(evidence_of((DATA / f"{name}.json").read_bytes())).findings[0]
    assert first.id == FOUND[name][0]
    assert FOUND[name][1] in first.text
    assert first.severity != "info"


def test_every_recording_has_a_verdict():
    assert {path.stem for path in DATA.iterdir()} == set(FOUND)


# --- What the recordings have taught ---------------------------------------------------------------------------------------


def test_a_slow_test_without_a_loss_says_nothing_against_loss_at_random():
    """Of its 860 datagrams four would be lost; of 86 none may be."""
    lossy = [udp_phase(rate, rate, 0.995 * rate) for rate in (4e6, 8e6)]
    assert (
        diagnose(Evidence(phases=(udp_phase(1e5, 1e5, 1e5), *lossy), expect=45e6)).findings[0].id
        == "D19"
    )
    many = diagnose(Evidence(phases=(udp_phase(2e6, 2e6, 2e6), *lossy), expect=45e6))
    assert "D19" not in [one.id for one in many.findings]


def test_a_queue_of_the_senders_own_slows_it_down_without_anything_being_sent_twice():
    def dropping(count, rate):
        flow = flow_of(
            rate,
            rtt=15_500,
            min_rtt=14_000,
            snd_cwnd=17,
            unacked=17,
            snd_wnd=160_000,
            counters={"a0.qdisc.drops": (0, count), "Tcp.OutSegs": (0, 15_000)},
        )
        return diagnose(tcp(flow, receiver(), expect=25e6)).findings[0]

    assert (dropping(70, 18e6).id, dropping(70, 18e6).severity, dropping(70, 18e6).share) == (
        "D14",
        "fault",
        1.0,
    )
    assert dropping(1, 2e6).share == 0.05, "one drop does not hold anybody back so much"


def test_a_path_that_is_full_loses_because_it_is_full():
    flow = flow_of(
        47.8e6,
        retrans=0.001,
        rtt=40_000,
        min_rtt=16_000,
        snd_cwnd=170,
        unacked=165,
        snd_wnd=3_000_000,
    )
    evidence = tcp(flow, expect=75e6)
    assert [(one.id, one.severity) for one in diagnose(evidence).findings] == [
        ("D18", "limit"),
        ("D05", "info"),
    ]


@pytest.mark.parametrize(("beside", "found"), [(0.006, []), (0.024, ["D18"])])
def test_only_a_queue_that_others_wait_in_too_is_one_of_the_path(beside, found):
    """A receiver that reads late acknowledges late; its echo does not."""
    flow = flow_of(8.6e6, rtt=28_000, min_rtt=6_000, snd_cwnd=26, unacked=29, snd_wnd=390_000)
    evidence = tcp(flow, expect=28e6, idle=Latency(100, 0, 0.006), loaded=Latency(100, 0, beside))
    assert [one.id for one in diagnose(evidence).findings] == found


def test_what_the_other_way_carries_is_not_beyond_the_path():
    def flow(rate, rtt):
        return flow_of(rate, rtt=rtt, min_rtt=16_000, snd_cwnd=170, unacked=165, snd_wnd=3_000_000)

    there, back = tcp(flow(48e6, 17_000), expect=50e6), tcp(flow(14e6, 40_000), direction="reverse")
    evidence = replace(there, phases=(*there.phases, *back.phases))
    found = [(one.id, one.severity, one.direction) for one in diagnose(evidence).findings]
    assert found == [("D18", "limit", "reverse")]


def test_a_round_trip_that_grows_before_a_full_processor_is_rather_of_the_processor():
    """The path is possible."""
    flow = flow_of(20e6, rtt=40_000, min_rtt=4_500, snd_cwnd=90, unacked=74, snd_wnd=1_000_000)
    evidence = tcp(flow, receiver(cpus=(1.0,)), expect=100e6)
    found = diagnose(evidence)
    assert [(one.id, one.severity, one.confidence) for one in found.findings] == [
        ("D09", "limit", "high"),
        ("D14", "info", "low"),
    ]
    assert [one.id for one in found.possible] == ["D18"]
    assert found.findings[0].tell == (
        "D09 or D18: several streams (--only tcp,tcp-parallel): more in total means the CPU, the "
        "same the path"
    )


def test_a_black_hole_is_why_a_test_did_not_end():
    diagnosis = diagnose(evidence_of((DATA / "small-switch.json").read_bytes()))
    assert (diagnosis.exit_code, diagnosis.unknown) == (ExitCode.BELOW, None)
    assert [one.id for one in diagnosis.findings if one.severity != "info"] == ["D21"]


def test_many_streams_that_fill_a_line_pass_though_its_own_rate_is_expected():
    alone = tcp(
        flow_of(9.41e9, rtt=300, min_rtt=200, snd_cwnd=500, unacked=300, snd_wnd=6_000_000),
        expect=10e9,
    )
    many = replace(
        alone.phases[0], name="tcp-parallel", run=Run("iperf3", protocol="tcp", streams=8)
    )
    diagnosis = diagnose(replace(alone, phases=(alone.phases[0], many)))
    assert [one.passed for one in diagnosis.phases] == [True, True]


def test_both_ways_at_once_are_judged_together():
    """Which of the two gets more is chance, and so is how much each loses; that the path holds up is the sum."""

    def together(there, back):
        flows = tuple(
            Flow(way, received=Total(10.0, rate=rate))
            for way, rate in (("forward", there), ("reverse", back))
        )
        alone = [
            tcp(
                flow_of(
                    9.5e6, rtt=19_000, min_rtt=10_000, snd_cwnd=20, unacked=18, snd_wnd=900_000
                ),
                expect=10e6,
                direction=way,
            )
            for way in ("forward", "reverse")
        ]
        lossy = tcp(
            flow_of(
                there,
                retrans=0.017,
                rtt=13_400,
                min_rtt=10_200,
                snd_cwnd=9,
                unacked=9,
                snd_wnd=650_000,
            )
        )
        both = replace(
            lossy.phases[0], name="tcp-bidir", run=Run("iperf3", protocol="tcp", flows=flows)
        )
        evidence = replace(alone[0], phases=(alone[0].phases[0], alone[1].phases[0], both))
        diagnosis = diagnose(evidence)
        return [one.id for one in diagnosis.findings if one.severity != "info"], int(
            diagnosis.exit_code
        )

    assert together(6.9e6, 7.5e6) == ([], 0)
    assert together(6.0e6, 3.5e6) == (["D28"], 4)


TWO = ("fe:16:3e:00:0b:01", "fe:16:3e:00:0c:01")


@pytest.mark.parametrize(
    ("facts", "first"),
    [
        ({"macs": TWO, "tcp": "refused"}, "D43"),
        ({"macs": TWO, "wrong_peer": True}, "D43"),
        ({"tcp": "refused"}, "D33"),
    ],
)
def test_whoever_has_the_same_address_is_why_a_connection_fails(facts, first):
    told = [
        one.id
        for one in diagnose(Evidence(reach=Reach(**facts))).findings
        if one.severity != "info"
    ]
    assert told == [first]


def test_a_reverse_path_filter_that_counts_is_no_firewall():
    run = Run("iperf3", protocol="tcp", error="unable to connect to server: Connection timed out")
    samples = tuple(
        Sample(float(at), counters={"TcpExt.IPReversePathFilter": 3 * at}) for at in range(3)
    )
    diagnosis = diagnose(Evidence(phases=(Phase("tcp", run, sender=samples),)))
    assert [(one.id, one.severity) for one in diagnosis.findings] == [
        ("D30", "fault"),
        ("D33", "info"),
    ]
    assert diagnosis.exit_code is ExitCode.UNREACHABLE


def test_a_report_of_a_peer_that_was_not_reached_can_be_read_again():
    evidence = Evidence(reach=Reach(wrong_peer=True), address="172.16.0.2")
    again = evidence_of(report_json(evidence, diagnose(evidence)).encode())
    assert again == evidence
    assert [one.id for one in diagnose(again).findings] == ["D35"]


def test_searching_for_the_loss_free_rate_leaves_nothing_unexplained():
    found = replace(udp_phase(95e6, 95e6, 95e6), search=True)
    evidence = replace(
        tcp(
            flow_of(95e6, rtt=2000, min_rtt=1900, snd_cwnd=30, unacked=20, snd_wnd=900_000),
            expect=100e6,
        )
    )
    tried = replace(udp_phase(105e6, 105e6, 95e6), search=True)
    diagnosis = diagnose(replace(evidence, phases=(*evidence.phases, tried, found)))
    assert (diagnosis.unknown, diagnosis.exit_code) == (None, ExitCode.PASS)
    assert diagnosis.failures == ()


@pytest.mark.parametrize(("came", "lost"), [(205, 482), (680, 0), (0, 687)])
def test_what_the_receiver_has_heard_nothing_of_is_lost(came, lost):
    """It counts gaps; the last datagrams leave none. A few may still be on their way."""
    total = '{{"seconds": 3, "bytes": 1, "bits_per_second": 1e6, "packets": {}, "lost_packets": 0}}'
    text = (
        f'{{"start": {{"test_start": {{"protocol": "UDP"}}}}, "intervals": [], "end": {{"sum": {total.format(687)}, '
        f'"sum_sent": {total.format(687)}, "sum_received": {total.format(came)}}}}}'
    )
    flow = read_run(text.encode()).flow("forward")
    assert (flow.received.lost, flow.received.datagrams) == (lost, 687 if lost else came)


def test_a_table_of_neighbours_that_is_full_is_why_nobody_answers():
    diagnosis = diagnose(evidence_of((DATA / "full-neighbour-table.json").read_bytes()))
    assert [one.id for one in diagnosis.findings if one.severity != "info"] == ["D16"]
    assert diagnosis.exit_code is ExitCode.UNREACHABLE
