"""The verdict on ordinary machines: busy hosts, two directions that differ, and a table that agrees with it."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import replace

import pytest
from selftest_runs import diagnose, flow_of, receiver, tcp, udp_phase
from test_selftest_conditions import CASES

from neuca_tools.selftest.codes import ExitCode
from neuca_tools.selftest.evidence import (
    NOT_ASKED,
    Cpu,
    Evidence,
    Host,
    Latency,
    Link,
    PathMtu,
    Phase,
    Reach,
    Step,
)
from neuca_tools.selftest.evidence.look import Fact
from neuca_tools.selftest.evidence.route import OneWay
from neuca_tools.selftest.evidence.run import Flow, Interval, Run, Total
from neuca_tools.selftest.readers.documents import evidence_of
from neuca_tools.selftest.report.record import nagios_line, prometheus_text
from neuca_tools.selftest.report.text import report_text, verdict_text

ROOMY = {"snd_cwnd": 300, "unacked": 200, "snd_wnd": 3_000_000}
QUIET = {"rtt": 1_000, "min_rtt": 900, **ROOMY}
FULL_PATH = {"rtt": 40_000, "min_rtt": 10_000, **ROOMY}
WINDOW = {
    "rwnd": 0.8,
    "rtt": 10_000,
    "min_rtt": 9_900,
    "snd_cwnd": 900,
    "unacked": 87,
    "snd_wnd": 126_000,
}


def two_ways(there: Evidence, back: Evidence) -> Evidence:
    phases = (*there.phases, *(replace(one, direction="reverse") for one in back.phases))
    return replace(there, phases=phases)


def on_hosts(evidence: Evidence, own: float | None = 1.0, **cpu: float) -> Evidence:
    """The same test on hosts whose only CPU spent its time so, as shares; `own` per cent were iperf's."""
    phases = []
    for one in evidence.phases:
        run = one.run or Run("iperf3", protocol="tcp")
        ends = {
            end: tuple(
                replace(each, cpus=(Cpu(**{name: part * each.time for name, part in cpu.items()}),))
                for each in getattr(one, end)
            )
            for end in ("sender", "receiver")
        }
        phases.append(replace(one, run=replace(run, cpu_local=own, cpu_remote=own), **ends))
    return replace(evidence, phases=tuple(phases))


def told(evidence: Evidence) -> list[tuple[str, str | None]]:
    found = diagnose(evidence).findings
    return [(one.id, one.direction) for one in found if one.severity != "info"]


# --- Each direction by itself --------------------------------------------------------------------------------------------


def test_what_limits_the_slower_direction_comes_first():
    fast, slow = tcp(flow_of(900e6, **FULL_PATH)), tcp(flow_of(100e6, **WINDOW))
    assert told(two_ways(fast, slow))[0] == ("D01", "reverse")
    assert told(two_ways(slow, fast))[0] == ("D01", "forward")
    assert ("D18", "forward") in told(two_ways(fast, slow))


def test_what_limits_both_directions_alike_is_told_once():
    one = tcp(flow_of(90e6, **FULL_PATH))
    assert told(two_ways(one, one)) == [("D18", "both")]
    assert "to the peer" not in report_text(diagnose(two_ways(one, one)))


def test_a_cause_in_one_direction_explains_nothing_in_the_other():
    """The full CPU of the faster direction is not why the other one is slow."""
    fast = on_hosts(tcp(flow_of(5e9, **QUIET)), own=99.0, system=1.0)
    slow = on_hosts(tcp(flow_of(90e6, **QUIET)), idle=1.0)
    assert told(two_ways(fast, slow)) == [("D27", "reverse"), ("D09", "forward")]
    both = on_hosts(two_ways(fast, tcp(flow_of(90e6, **QUIET))), own=99.0, system=1.0)
    assert ("D27", "reverse") not in told(both), "here it is"


def test_the_text_says_which_direction_is_meant():
    fast, slow = tcp(flow_of(900e6, **FULL_PATH)), tcp(flow_of(100e6, **WINDOW))
    lines = " ".join(report_text(diagnose(two_ways(fast, slow)), verbose=True).split())
    assert "(D01, explains 80%, from the peer)" in lines
    assert "(D18, explains 100%, to the peer)" in lines


def test_of_one_direction_alone_none_is_named():
    assert told(tcp(flow_of(100e6, **WINDOW))) == [("D01", None)]


def test_the_samples_of_both_directions_differ_by_a_label():
    slow, fast = tcp(flow_of(90e6, **FULL_PATH)), tcp(flow_of(900e6, **FULL_PATH))
    evidence = two_ways(slow, fast)
    lines = prometheus_text([(evidence, diagnose(evidence))]).splitlines()
    names = [line.rpartition(" ")[0] for line in lines if not line.startswith("#")]
    assert len(set(names)) == len(names)


# --- Busy hosts ----------------------------------------------------------------------------------------------------------


def test_other_programs_lower_the_confidence():
    one = tcp(flow_of(90e6, **FULL_PATH))
    assert diagnose(on_hosts(one, idle=1.0)).findings[0].confidence == "high"
    found = diagnose(on_hosts(one, user=1.0)).findings
    assert (found[0].id, found[0].confidence) == ("D18", "medium")
    assert [(one.id, one.severity) for one in found][-1] == ("D09", "info")


@pytest.mark.parametrize(
    ("own", "severity", "code"),
    [
        (1.0, "info", ExitCode.PASS),
        (60.0, "fault", ExitCode.INCONCLUSIVE),
        (None, "fault", ExitCode.INCONCLUSIVE),
    ],
)
def test_stolen_time_counts_where_the_test_needed_it(own, severity, code):
    one = on_hosts(tcp(flow_of(90e6, **FULL_PATH)), own=own, user=0.3, steal=0.2, idle=0.5)
    diagnosis = diagnose(one)
    note = next(each for each in diagnosis.findings if each.id == "D10")
    assert (note.severity, diagnosis.exit_code) == (severity, code)
    assert note.text.startswith("the hypervisor took 20% of a CPU of the sender")


def test_a_sender_that_shares_its_cpu_is_not_idle_by_choice():
    one = tcp(flow_of(40e6, idle=0.9, **QUIET))
    assert told(on_hosts(one, idle=1.0)) == [("D04", None)]
    assert told(on_hosts(one, user=1.0)) == []


def test_a_run_that_failed_without_its_figures_says_nothing_of_the_cpu():
    one = on_hosts(tcp(flow_of(162, retrans=0.9, **QUIET)), own=None, user=1.0)
    failed = replace(one.phases[0].run, error="iperf3 had not ended in time")
    assert "D09" not in [
        each.id
        for each in diagnose(replace(one, phases=(replace(one.phases[0], run=failed),))).findings
    ]


def test_programs_that_respond_late_make_a_queue_less_certain():
    """The kernel's own round trips of 19 ms are a queue, however late programs respond."""
    one = tcp(flow_of(10e6, rtt=19_000, min_rtt=10_000, **ROOMY))
    noisy = replace(one, idle=Latency(100, 0, 0.0185))
    found = [diagnose(each).findings[0] for each in (one, noisy)]
    assert [(each.id, each.confidence) for each in found] == [("D18", "high"), ("D18", "medium")]


# --- The path ------------------------------------------------------------------------------------------------------------


def uneven(rates: list[float], **socket) -> Evidence:
    """A flow whose rate varies, as iperf reports it."""
    evidence = tcp(flow_of(sum(rates) / len(rates), **socket))
    intervals = tuple(Interval(at, at + 1, rate=rate) for at, rate in enumerate(rates))
    run = Run("iperf3", protocol="tcp", flows=(Flow("forward", intervals),))
    return replace(evidence, phases=(replace(evidence.phases[0], run=run),), expect=150e6)


SAWTOOTH = [60e6, 70e6, 80e6, 90e6, 55e6] * 2


def test_loss_with_a_standing_queue_is_that_of_a_full_path():
    found = diagnose(uneven(SAWTOOTH, retrans=0.01, **FULL_PATH)).findings
    assert [(one.id, one.severity) for one in found][:2] == [("D18", "limit"), ("D05", "info")]
    assert found[0].confidence == "medium"


def test_loss_without_a_queue_is_not():
    assert "D18" not in [one for one, _ in told(uneven(SAWTOOTH, retrans=0.01, **QUIET))]


def test_loss_that_evenly_sent_datagrams_do_not_see_is_no_random_loss():
    lossy = uneven([15e6] * 10, retrans=0.019, **QUIET)
    ladder = (udp_phase(1e6, 1e6, 1e6), udp_phase(8e6, 8e6, 8e6 * 0.997))
    found = diagnose(replace(lossy, phases=(*lossy.phases, *ladder))).findings[0]
    assert (found.id, found.confidence) == ("D17", "medium")
    assert "evenly sent datagrams" in found.text
    alike = tuple(udp_phase(rate, rate, rate * 0.981) for rate in (1e6, 8e6))
    assert diagnose(replace(lossy, phases=(*lossy.phases, *alike))).findings[0].id == "D19"


def test_no_policer_is_slower_than_what_tcp_carries():
    """A busy sender offers its datagrams in bursts, of which some are lost far below the rate."""
    lossy = uneven([19e6] * 10, retrans=0.05, **QUIET)
    ladder = (udp_phase(6e6, 6e6, 6e6), udp_phase(7e6, 7e6, 6.5e6))
    found = diagnose(replace(lossy, phases=(*lossy.phases, *ladder))).findings[0]
    assert found.id == "D17"
    assert "never more than" not in found.text


def test_the_window_of_a_paced_sender_is_seen_though_the_kernels_clock_stands_still():
    paced = {
        "rtt": 101_000,
        "min_rtt": 100_000,
        "snd_wnd": 162_000,
        "unacked": 104,
        "snd_cwnd": 247,
    }
    found = diagnose(
        tcp(flow_of(12.8e6, rwnd=0.28, **paced), receiver(recv_q=0, rcvbuf=262_144))
    ).findings
    assert found[0].id == "D01"
    open_window = {**paced, "snd_wnd": 1_620_000}
    assert "D01" not in [one for one, _ in told(tcp(flow_of(12.8e6, rwnd=0.28, **open_window)))]


@pytest.mark.parametrize(("queue", "severity"), [(0.05, "limit"), (0.2, "fault")])
def test_a_queue_of_a_shaper_is_a_limit_and_a_deep_one_a_fault(queue, severity):
    flow = flow_of(90e6, rtt=int((0.001 + queue) * 1e6), min_rtt=1_000, **ROOMY)
    found = {one.id: one for one in diagnose(tcp(flow)).findings}
    assert found["D14"].severity == severity
    assert (next(iter(found)) == "D14") is (severity == "fault")


# --- The words -----------------------------------------------------------------------------------------------------------


def test_nothing_is_below_a_threshold_if_no_row_is():
    broken = replace(tcp(flow_of(90e6, **QUIET)), local=replace(Evidence().local, drift=("x",)))
    deep = tcp(flow_of(90e6, rtt=300_000, min_rtt=1_000, **ROOMY))
    for evidence, code, words in (
        (deep, ExitCode.BELOW, "fault found"),
        (replace(deep, expect=1e9), ExitCode.BELOW, "below threshold"),
        (replace(deep, expect=90e6), ExitCode.BELOW, "fault found"),
        (broken, ExitCode.NOT_AS_PLANNED, "not as planned"),
    ):
        diagnosis = diagnose(evidence)
        assert (diagnosis.exit_code, diagnosis.words) == (code, words)
    assert "VERDICT     fault found: D14, bufferbloat" in report_text(diagnose(deep))
    # 299 ms more than without load, and 20 ms that are normal.
    assert diagnose(deep).findings[0].share == pytest.approx(299 / 319)


def test_a_verdict_names_the_fault_that_decided_it():
    """The first finding may be a limit, which is no fault."""
    full = CASES["D18"]
    deep = tcp(flow_of(95.4e6, rtt=101_000, min_rtt=500, **ROOMY))
    drifted = replace(full, local=replace(full.local, drift=("set the MTU",)))
    for evidence, words in (
        (deep, "fault found: D14, bufferbloat"),
        (drifted, "not as planned: D46, not as planned"),
        (
            replace(deep, expect=1e9),
            "below threshold, expected 1.00 Gbit/s: D18, path capacity reached",
        ),
    ):
        diagnosis = diagnose(evidence)
        assert diagnosis.limit.id == "D18"
        assert verdict_text(diagnosis) == words
    assert nagios_line(diagnose(deep)).partition(" |")[0].endswith("95.4 Mbit/s, D14 bufferbloat")


# --- What a world of other set-ups has taught ----------------------------------------------------------------------------


def test_a_path_that_acknowledged_full_packets_is_no_black_hole():
    """Sixteen streams share so little that some of them back off."""
    flow = flow_of(300e3, backoff=3, rtt=1000, min_rtt=900, snd_cwnd=1, unacked=1)
    links = (Link("eth1", mtu=1500),)
    evidence = tcp(flow, local=Host(links=links), peer=Host(links=links))
    assert told(evidence)[0] == ("D21", None)
    probed = replace(evidence, path_mtu=PathMtu(1500, 1500, False))
    assert "D21" not in [one for one, _ in told(probed)]
    assert told(replace(evidence, path_mtu=PathMtu(1200, 1500, False)))[0] == ("D21", None)


def test_a_window_is_full_if_another_segment_does_not_fit():
    small = {"rtt": 57_000, "min_rtt": 57_000, "snd_wnd": 3_712, "snd_cwnd": 22}
    assert told(tcp(flow_of(400e3, rwnd=1.0, unacked=2, **small))) == [("D01", None)]
    assert told(tcp(flow_of(400e3, rwnd=1.0, unacked=1, **small))) == []


def test_a_queue_is_seen_by_the_kernel_where_idle_round_trips_vary():
    lossy = uneven([7e6] * 10, retrans=0.015, rtt=18_000, min_rtt=9_000, **ROOMY)
    for idle in (0.009, 0.060):
        assert told(replace(lossy, idle=Latency(100, 0, idle)))[0] == ("D18", None)


def test_round_trips_of_the_kernel_that_stay_flat_tell_however_late_programs_respond():
    lossy = uneven([19e6] * 10, retrans=0.05, rtt=10_900, min_rtt=10_000, **ROOMY)
    found = diagnose(replace(lossy, idle=Latency(100, 0, 0.024))).findings
    assert [(one.id, one.severity) for one in found][:2] == [("D17", "limit"), ("D05", "info")]


@pytest.mark.parametrize(
    ("kind", "rate", "ends"),
    [
        ("veth", 25e9, None),
        ("veth", 941.5e6, "over 1.00 Gbit/s Ethernet, or through a shaper of that rate"),
        ("physical", 9.41e9, "over 10.0 Gbit/s Ethernet"),
    ],
)
def test_a_virtual_link_is_no_ethernet_that_is_full(kind, rate, ends):
    link = Host(links=(Link("eth1", kind, mtu=1500, speed=10e9),), path=("eth1",))
    found = diagnose(tcp(flow_of(rate, **QUIET), local=link)).findings
    endings = [one.text[-len(ends or "") :] for one in found if one.id == "D18"]
    assert endings == ([ends] if ends else [])


# --- MTUs, overlays ------------------------------------------------------------------------------------------------------

JUMBO = Host(links=(Link("eth1", mtu=9000),), path=("eth1",))
SMALLER = {"path_mtu": PathMtu(1504, 1504, False), "local": JUMBO, "peer": JUMBO}
MTU_STEP = (Step("path-mtu", "fail", "1504 out, 1504 back, of 9000 bytes"),)


def test_a_failed_step_is_in_the_verdict_and_in_the_exit_code():
    """TCP gets through, so that connections do not hang; the CPU limits."""
    busy = tcp(flow_of(900e6, cpus=(0.99,), **QUIET), steps=MTU_STEP, **SMALLER)
    found = diagnose(busy)
    assert "D21" not in [one.id for one in found.findings]
    mtu = next(one for one in found.findings if one.id == "D23")
    assert mtu.text.startswith("packets of more than 1504 bytes do not pass")
    assert "TCP adapts to it, and larger frames are of no use" in mtu.text
    assert (found.exit_code, found.words) == (ExitCode.BELOW, "fault found")
    silent = diagnose(replace(busy, path_mtu=PathMtu()))
    assert silent.failures == ("path-mtu: 1504 out, 1504 back, of 9000 bytes",)
    assert silent.exit_code is ExitCode.BELOW


def test_a_black_hole_of_one_direction_is_one_though_the_other_is_fast():
    fast = tcp(flow_of(900e6, **QUIET), local=JUMBO, peer=JUMBO)
    back = replace(fast, phases=tuple(replace(one, direction="reverse") for one in fast.phases))
    for size, named in ((PathMtu(1504, 9000, False), True), (PathMtu(9000, 1504, False), False)):
        assert ("D21" in [one[0] for one in told(replace(back, path_mtu=size))]) is named


def test_a_refused_connection_is_no_black_hole():
    evidence = Evidence(reach=Reach(tcp="refused", ping=True), steps=MTU_STEP, **SMALLER)
    assert [one.id for one in diagnose(evidence).findings] == ["D33", "D23"]


def test_a_tunnel_that_names_no_device_gets_its_right_mtu():
    links = (Link("vx0", "vxlan", mtu=1500), Link("eth1", "physical", mtu=1500))
    host = Host(links=links, path=("vx0",), route_mtu=1450)
    found = diagnose(tcp(flow_of(900e6, **QUIET), local=host, path_mtu=PathMtu(1450, 1450, True)))
    mtu = [one for one in found.findings if one.id in ("D21", "D23")]
    assert [one.advice for one in mtu] == ["ip link set vx0 mtu 1450; likewise on the other host"]


@pytest.mark.parametrize(("rate", "share"), [(94.1e6, 1.0), (40e6, 0.7)])
def test_a_full_link_that_could_be_faster_is_no_capacity(rate, share):
    """A cable of two pairs: to replace it makes the path faster, whatever was ordered."""
    link = Link("eth1", "physical", mtu=1500, speed=100e6, max_speed=1e9)
    host = Host(links=(link,), path=("eth1",))
    limit = diagnose(tcp(flow_of(rate, **QUIET), local=host, expect=1e9)).limit
    assert (limit.id, limit.share) == ("D40", share)


def overlay(**offloads: bool) -> Host:
    links = (Link("vx0", "vxlan", "eth1", 1450, offloads=offloads), Link("eth1", mtu=1500))
    return Host(links=links, path=("vx0", "eth1"))


def over_and_under(over: Evidence, host: Host) -> Evidence:
    under = tcp(flow_of(6e9, **QUIET), path="underlay")
    return replace(over, local=host, phases=(*over.phases, *under.phases))


def test_the_offloads_that_are_off_are_named_with_a_command_that_works():
    slow = tcp(flow_of(970e6, **QUIET), path="overlay")
    host = overlay(**{"tcp-segmentation-offload": False, "generic-segmentation-offload": False})
    found = next(one for one in diagnose(over_and_under(slow, host)).findings if one.id == "D24")
    assert found.advice.startswith("ethtool -K vx0 tso on; ethtool -K vx0 gso on")
    for host in (Host(), overlay()):
        findings = diagnose(over_and_under(slow, host)).findings
        assert "D24" not in [one.id for one in findings]


def test_an_overlay_behind_a_shaper_does_not_lack_offloads():
    shaped = tcp(flow_of(95e6, **FULL_PATH), path="overlay", expect=1e9)
    host = overlay(**{"tx-udp_tnl-segmentation": False})
    found = {one.id: one.severity for one in diagnose(over_and_under(shaped, host)).findings}
    assert found["D18"] == "limit"
    assert "D24" not in found


# --- Lost datagrams, and peers that cannot be reached ----------------------------------------------------------------------

TWO_TESTS = """Connecting to host 10.0.0.2, port 5201
[ ID] Interval           Transfer     Bandwidth       Jitter    Lost/Total Datagrams
[  4]   0.00-10.00  sec  1.24 GBytes  1.06 Gbits/sec  0.001 ms  {}/162217 ({}%)
[  4] Sent 162217 datagrams

Connecting to host 10.0.0.2, port 5201
[ ID] Interval           Transfer     Bandwidth       Jitter    Lost/Total Datagrams
[  4]   0.00-10.00  sec   124 MBytes   104 Mbits/sec  0.038 ms  {}/15827 ({}%)
[  4] Sent 15827 datagrams
"""
SENDER_ALONE = """Connecting to host 10.0.0.2, port 5201
[ ID] Interval           Transfer     Bitrate         Total Datagrams
[  5]   0.00-1.00   sec   119 MBytes  1.00 Gbits/sec  86330
[  5]   1.00-2.00   sec   119 MBytes  1.00 Gbits/sec  86330
- - - - - - - - - - - - - - - - - - - - - - - - -
[ ID] Interval           Transfer     Bitrate         Jitter    Lost/Total Datagrams
[  5]   0.00-2.00   sec   238 MBytes  1.00 Gbits/sec  0.000 ms  0/172660 (0%)  sender
"""


@pytest.mark.parametrize(
    ("losses", "share"), [((135795, 84, 13456, 85), "85%"), ((48665, 30, 4748, 30), "30%")]
)
def test_two_tests_that_lose_the_same_share_do_not_pass(losses, share):
    found = diagnose(evidence_of(TWO_TESTS.format(*losses).encode()))
    assert (found.exit_code, found.words) == (ExitCode.BELOW, "fault found")
    assert found.failures == (f"{share} of the datagrams to the peer were lost",)


@pytest.mark.parametrize("losses", [(16221, 10, 1582, 10), (135795, 84, 1582, 10)])
def test_what_another_rate_contradicts_is_no_capacity(losses):
    """As much is lost at a tenth of the rate, or more arrived in the other test."""
    found = diagnose(evidence_of(TWO_TESTS.format(*losses).encode()))
    assert (found.exit_code, found.findings) == (ExitCode.BELOW, ())


def test_a_loss_below_the_threshold_passes():
    found = diagnose(evidence_of(TWO_TESTS.format(1622, 1, 15, 0.1).encode()))
    assert (found.exit_code, found.failures) == (ExitCode.PASS, ())


def test_what_a_sender_of_datagrams_counted_alone_is_no_result():
    found = diagnose(evidence_of(SENDER_ALONE.encode()))
    assert found.exit_code is ExitCode.INCONCLUSIVE
    assert found.unknown == (
        "how many datagrams arrived is not known: the receiver's line is missing"
    )


def test_a_test_of_which_nothing_arrives_has_no_rate_and_fails():
    sent = Total(1.0, bytes=125e3, rate=1e6, datagrams=86)
    flow = Flow("forward", (), sent, Total(1.0, datagrams=86, lost=86))
    udp = Phase("udp", Run("iperf3", protocol="udp", flows=(flow,), target=1e6))
    found = diagnose(Evidence(phases=(udp,)))
    assert (found.phases[0].rate, found.phases[0].loss, found.phases[0].passed) == (0.0, 1.0, False)
    assert found.exit_code is ExitCode.BELOW


def test_datagrams_that_arrive_twice_are_not_lost():
    sent = Total(1.0, bytes=500e3, rate=4e6, datagrams=345)
    flow = Flow("forward", (), sent, Total(1.0, bytes=550e3, rate=4.4e6, datagrams=345, lost=345))
    fewer = replace(flow, received=Total(1.0, bytes=530e3, rate=4.2e6, datagrams=345, lost=345))
    udp, other = (
        Phase("udp", Run("iperf3", protocol="udp", flows=(each,), target=4e6))
        for each in (flow, fewer)
    )
    found = diagnose(Evidence(phases=(udp, other)))
    assert found.phases[0].loss == 0.0
    assert found.failures == ("10% of the datagrams to the peer arrived twice",)
    assert found.exit_code is ExitCode.BELOW


def test_loss_of_half_the_flows_is_said_although_tcp_is_as_fast_as_expected():
    one_way = (OneWay("forward", 1e6, 2000, 2000, 46), OneWay("reverse", 1e6, 2000, 2000, 0))
    found = diagnose(tcp(flow_of(900e6, **QUIET), expect=900e6, one_way=one_way))
    assert found.phases[0].passed
    assert found.failures == ("2.3% of slowly sent datagrams to the peer were lost",)
    assert found.exit_code is ExitCode.BELOW


def test_three_percent_that_bbr_does_not_mind_are_said():
    found = diagnose(tcp(flow_of(900e6, retrans=0.03, **QUIET), expect=900e6))
    assert "3.0% of the segments to the peer were retransmitted" in found.failures


@pytest.mark.parametrize(("rtt", "lost"), [(1_900, False), (100_000, True)])
def test_streams_without_room_for_their_fewest_segments_lose_by_themselves(rtt, lost):
    one = tcp(flow_of(95e6, retrans=0.25, **{**QUIET, "rtt": rtt, "min_rtt": rtt}), expect=100e6)
    (phase,) = one.phases
    many = replace(phase, run=replace(phase.run or Run("iperf3"), streams=64))
    assert bool(diagnose(replace(one, phases=(many,))).failures) == lost


BLOCKED = {"idle": Latency(97, 97), "idle_tcp": Latency(97, 0, 0.001, 0.002, 0.002)}


def test_datagrams_that_nothing_answers_beside_tcp_are_a_firewall():
    found = diagnose(tcp(flow_of(900e6, **QUIET), expect=900e6, **BLOCKED)).findings[0]
    assert (found.id, found.severity) == ("D33", "fault")
    assert "none of 97 datagrams" in found.text


@pytest.mark.parametrize(
    ("reach", "condition", "words"),
    [
        (Reach("reachable", ping=True, tcp="no-route"), "D33", "a firewall rejects"),
        (Reach("failed", tcp="no-route"), "D31", "for the peer's address"),
        (Reach("failed", gateway="172.16.1.200"), "D31", "for 172.16.1.200, the gateway"),
        (Reach("reachable", ("aa",), ping=False, tcp="timeout"), "D33", "it has no way back"),
        (Reach("reachable", ("aa",), ping=True, tcp="timeout"), "D33", "a firewall drops it"),
        (Reach(ping=True, wrong_peer=True), "D35", "the peer has a different secret"),
    ],
)
def test_the_unreachable_is_told_from_what_rejects(reach, condition, words):
    found = diagnose(Evidence(reach=reach)).findings[0]
    assert found.id == condition
    assert words in found.text


def test_no_route_to_host_in_a_text_is_rather_a_firewall():
    said = b"$ iperf3 -c 192.168.122.14\niperf3: error - unable to connect to server: No route to host\n"
    found = diagnose(evidence_of(said)).findings
    assert [(one.id, one.confidence) for one in found] == [("D33", "medium")]


def test_the_advised_server_listens_where_the_test_looks_for_it():
    found = diagnose(Evidence(reach=Reach(ping=True, tcp="refused", port=45678))).findings[0]
    assert "iperf3 -s -p 45678" in found.advice
    assert found.advice.startswith("neuca-selftest serve --port 45678")
    assert found.end == "peer"


def test_a_port_that_iperf3_cannot_connect_to_is_closed():
    said = b"iperf3: error - unable to send control message: Bad file descriptor\n"
    assert [one.id for one in diagnose(evidence_of(said)).findings] == ["D33"]


@pytest.mark.parametrize("name", ["latency", "path-mtu", "connections", "one-way", "path"])
def test_a_step_alone_is_a_result(name):
    steps = (
        Step("as-planned", "skipped"),
        Step("reach", "pass"),
        Step(name, "pass", "as it should"),
    )
    passed = diagnose(Evidence(steps=steps))
    assert (passed.exit_code, passed.unknown) == (ExitCode.PASS, None)
    failed = diagnose(Evidence(steps=(*steps[:2], Step(name, "fail", "no"))))
    assert (failed.exit_code, failed.failures) == (ExitCode.BELOW, (f"{name}: no",))
    skipped = diagnose(Evidence(steps=(*steps[:2], Step(name, "skipped", "no helper"))))
    assert skipped.unknown == "nothing was measured"


@pytest.mark.parametrize(
    ("as_planned", "code"),
    [
        (Step("as-planned", "pass"), ExitCode.PASS),
        (Step("as-planned", "skipped", NOT_ASKED), ExitCode.PASS),
        (Step("as-planned", "skipped", "nothing is planned"), ExitCode.INCONCLUSIVE),
    ],
)
def test_a_test_of_nothing_but_preparations_passes_with_them(as_planned, code):
    steps = (as_planned, Step("reach", "pass"), Step("tcp", "skipped", NOT_ASKED))
    assert diagnose(Evidence(steps=steps)).exit_code is code


# --- Shapers, policers, and loss at random ---------------------------------------------------------------------------------


def test_a_shaper_of_one_direction_is_said_to_be_one():
    evidence = two_ways(tcp(flow_of(100e6, **QUIET)), tcp(flow_of(20e6, **FULL_PATH)))
    found = diagnose(replace(evidence, expect=100e6))
    assert (found.limit.id, found.limit.direction) == ("D18", "reverse")
    assert "D27" not in {one.id for one in found.findings}


def test_a_shaper_is_not_a_policer_as_well():
    """Its queue drops what datagrams offer beyond its rate, and TCP waits in it."""
    path = {"rtt": 60_000, "min_rtt": 10_000, **ROOMY}
    shaped = tcp(flow_of(19e6, **path), expect=80e6)
    ladder = (udp_phase(10e6, 10e6, 10e6), udp_phase(80e6, 80e6, 19.4e6))
    found = diagnose(replace(shaped, phases=(*shaped.phases, *ladder))).findings
    assert [one.id for one in found if one.severity != "info"][:1] == ["D18"]
    assert "D17" not in [one.id for one in found]


def test_probes_that_are_lost_while_idle_are_not_lost_by_a_policer():
    lossy = tcp(flow_of(40e6, retrans=0.02, **QUIET), expect=80e6)
    assert told(lossy)[0][0] == "D17"
    found = diagnose(replace(lossy, idle=Latency(97, 2, 0.001, 0.002, 0.002))).findings
    assert found[0].id == "D19"
    assert found[0].evidence == (Fact("probes that were answered", 97, 95),)
    assert "D17" not in [one.id for one in found]


def test_what_a_plain_server_loses_when_it_is_busy_is_no_bad_cable():
    """0.5% at 31 Mbit/s, and no counter of the receiver."""
    found = diagnose(Evidence(phases=(udp_phase(31e6, 31e6, 30.85e6, seen=False),), expect=31e6))
    assert "D19" not in [one.id for one in found.findings if one.severity != "info"]


@pytest.mark.parametrize(
    ("arrived", "unknown"),
    [
        (23.2e6, None),
        (12.2e6, "other programs kept the receiver's CPU busy: test again without that load"),
    ],
)
def test_what_a_receiver_without_a_cpu_drops_is_no_fault_of_the_path(arrived, unknown):
    """Other programs have its CPU for a moment, and the socket of iperf3 overflows."""
    dropped = int((25e6 - arrived) * 10 / 8 / 1448)
    ladder = udp_phase(25e6, 25e6, arrived, {"Udp.RcvbufErrors": (0, dropped)})
    stream = tcp(flow_of(25e6, **QUIET), expect=20e6)
    busy = on_hosts(replace(stream, phases=(*stream.phases, ladder)), own=2.0, user=1.0)
    found = diagnose(busy)
    code = ExitCode.INCONCLUSIVE if unknown else ExitCode.PASS
    assert (found.exit_code, found.unknown) == (code, unknown)
    assert (found.failures, found.limit) == ((), None)
    more = udp_phase(25e6, 25e6, arrived - 2e6, {"Udp.RcvbufErrors": (0, dropped)})
    lossy = replace(stream, phases=(*stream.phases, more))
    assert diagnose(on_hosts(lossy, own=2.0, user=1.0)).exit_code is ExitCode.BELOW
    idle = diagnose(on_hosts(busy, own=2.0, idle=1.0))
    assert (idle.exit_code, idle.limit.id) == (ExitCode.BELOW, "D07")


@pytest.mark.parametrize("direction", ["forward", "reverse"])
@pytest.mark.parametrize("name", ["tcp", "udp"])
def test_the_rate_of_what_did_not_arrive_is_zero(name, direction):
    """As through a black hole: the sender counts what it has sent."""
    flow = Flow(
        "forward", (Interval(0, 10, rate=180e3),), Total(10.0, 225e3, 180e3), Total(10.0, 0.0, 0.0)
    )
    stream = Phase("tcp", Run("iperf3", protocol="tcp", flows=(flow,), streams=1, duration=10.0))
    phase = {"tcp": stream, "udp": udp_phase(1e6, 1e6, 0.0)}[name]
    found = diagnose(Evidence(phases=(replace(phase, direction=direction),), expect=20e6))
    assert [one.rate for one in found.phases] == [0.0]


@pytest.mark.parametrize(
    "said",
    [
        "unable to connect stream: Connection refused",
        "unable to read from stream socket: Resource temporarily unavailable",
    ],
)
def test_a_server_that_accepted_the_control_connection_listens(said):
    found = diagnose(evidence_of(f"iperf3 -c 10.20.0.9 -P 5\niperf3: error - {said}\n".encode()))
    assert (found.limit.id, found.limit.confidence, found.exit_code) == (
        "D33",
        "medium",
        ExitCode.UNREACHABLE,
    )
    assert "accepted the control connection" in found.limit.text
