"""The diagnosis: published runs get their verdicts, findings are ranked, and what is not known is not guessed."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from selftest_runs import PUBLISHED, diagnose, flow_of, receiver, tcp, udp_phase

from neuca_tools.errors import SelftestError
from neuca_tools.selftest import amounts
from neuca_tools.selftest.codes import ExitCode
from neuca_tools.selftest.conditions import figures
from neuca_tools.selftest.evidence import (
    Evidence,
    Host,
    Latency,
    Link,
    Phase,
    Sample,
    Socket,
)
from neuca_tools.selftest.evidence.codec import decode, encode
from neuca_tools.selftest.evidence.run import Flow, Interval, Run, Total
from neuca_tools.selftest.readers.documents import evidence_of
from neuca_tools.selftest.report.text import phase_words

DATA = Path(__file__).parent / "data" / "iperf"
SHARED = Path(__file__).parents[3] / "shared" / "samples" / "iperf"

# What must be concluded of the published runs: the conditions that are told, in order; the exit code; a part of the text.
VERDICTS = {
    "vm-untuned-tcp": (
        ["D01"],
        0,
        "the window stays at 3.05 MiB without any loss: it is capped by a buffer",
    ),
    "vm-tuned-tcp": ([], 6, ""),
    "metal-untuned-tcp": (["D01"], 0, "at a round trip of 13.0 ms"),
    "metal-tuned-tcp": (
        ["D01"],
        0,
        "run again with buffers of 33.0 MiB, and only if the rate stays the same is the link the limit",
    ),
    "vm-untuned-udp-100M": (["D07"], 4, "takes 6 fragments at MTU 1500"),
    "vm-tuned-udp-100M": ([], 0, ""),
    "vm-untuned-udp-4000M": (["D07"], 4, "the path or the receiver takes no more"),
    "vm-tuned-udp-4000M": (["D07"], 4, "the path or the receiver takes no more"),
    "metal-untuned-udp-4000M": (["D07"], 4, "26% of the datagrams were lost"),
    "metal-tuned-udp-4000M": ([], 0, ""),
    "metal-tuned-udp-7000M": ([], 0, ""),
}
OLD_IPERF = {
    "vm-untuned-iperf2-tcp": ([], 6, ""),
    "vm-untuned-iperf2-udp-default": ([], 0, ""),
    "vm-untuned-iperf2-udp-100M": ([], 0, ""),
    "vm-untuned-iperf2-udp-4000M": (
        ["D20"],
        4,
        "the sender offered 809 Mbit/s of the requested 4.00 Gbit/s",
    ),
}


def must_conclude(content: bytes, verdict) -> None:
    diagnosis = diagnose(evidence_of(content))
    told = [one for one in diagnosis.findings if one.severity != "info"] + [*diagnosis.possible]
    assert ([one.id for one in told], int(diagnosis.exit_code)) == verdict[:2]
    assert verdict[2] in (told[0].text if told else "")


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_run_gets_its_verdict(name):
    must_conclude(PUBLISHED[name], VERDICTS[name])


@pytest.mark.parametrize("name", VERDICTS | OLD_IPERF)
def test_the_text_of_a_published_run_gets_its_verdict(name):
    if not SHARED.exists():
        pytest.skip(
            "the published texts are not beside this checkout; their figures are in selftest_runs.py"
        )
    must_conclude((SHARED / f"{name}.txt").read_bytes(), (VERDICTS | OLD_IPERF)[name])


def test_no_published_text_is_without_a_verdict():
    if not SHARED.exists():
        pytest.skip(
            "the published texts are not beside this checkout; their figures are in selftest_runs.py"
        )
    assert {path.stem for path in SHARED.iterdir()} == set(VERDICTS | OLD_IPERF)


def test_a_window_that_cannot_be_told_apart_is_of_medium_confidence_and_both_ends_are_advised():
    finding = diagnose(evidence_of(PUBLISHED["metal-tuned-tcp"])).findings[0]
    assert (finding.confidence, finding.end) == ("medium", "both")
    assert finding.advice == (
        'sysctl -w net.ipv4.tcp_rmem="4096 131072 34603008" net.ipv4.tcp_wmem="4096 16384 34603008"'
        "; keep values that are already larger"
    )


@pytest.mark.parametrize("rate", [0.942, 0.9415])
def test_all_that_a_gigabit_line_carries_is_no_window(rate):
    text = (
        "Connecting to host b, port 45678\n"
        + "".join(
            f"[  4] {at}.00-{at + 1}.00 sec  112 MBytes  {rate} Gbits/sec  0  400 KBytes\n"
            for at in range(10)
        )
        + (
            f"[  4] 0.00-10.00 sec  1.10 GBytes  {rate} Gbits/sec  0  sender\n[  4] 0.00-10.00 sec  1.10 GBytes  {rate} Gbits/sec  "
            "receiver"
        )
    )
    diagnosis = diagnose(evidence_of(text.encode()))
    assert [(one.id, one.severity, one.text) for one in diagnosis.findings] == [
        (
            "D18",
            "info",
            f"{rate * 1000:.0f} Mbit/s is all that TCP can carry over 1.00 Gbit/s Ethernet",
        )
    ]
    assert diagnosis.exit_code is ExitCode.PASS


def test_a_larger_round_trip_than_window_and_rate_imply_is_not_a_window():
    evidence = evidence_of(PUBLISHED["metal-untuned-tcp"], rtt=0.001)
    assert [one.id for one in diagnose(evidence).findings if one.id == "D01"] == []


def test_the_receivers_window_predicts_the_rate_and_the_limit_after_it():
    evidence = tcp(
        flow_of(
            250e6,
            rwnd=0.8,
            snd_wnd=3_144_960,
            snd_cwnd=4000,
            unacked=2172,
            rtt=100_000,
            min_rtt=100_000,
        ),
        receiver(recv_q=0, rcvbuf=6_291_456),
        expect=1e9,
        local=Host(
            sysctls={"net.ipv4.tcp_wmem": "4096 16384 8388608"},
            links=(Link("eth1", speed=1e9, mtu=1500),),
        ),
    )
    finding = diagnose(evidence).limit
    assert (
        finding.text
        == "the receiver's window of 3.00 MiB allows 252 Mbit/s at a round trip of 100 ms"
    )
    assert finding.advice == (
        'sysctl -w net.ipv4.tcp_rmem="4096 131072 25165824"; keep values that are already larger'
    )


def test_the_whole_window_is_not_blamed_while_the_reader_is_slow():
    told = diagnose(
        tcp(
            flow_of(50e6, rwnd=0.99, snd_wnd=200_000, unacked=138, rtt=5000),
            receiver(recv_q=3_400_000, rcvbuf=3_790_000),
        )
    ).findings
    assert [one.id for one in told if one.id in ("D01", "D02")] == ["D02"]


def test_loss_that_a_counter_explains_is_told_as_the_counters():
    evidence = tcp(
        flow_of(
            45e6, retrans=0.001, rtt=50_500, min_rtt=50_000, counters={"Tcp.RetransSegs": (0, 50)}
        ),
        receiver({"softnet.dropped": (0, 50)}),
    )
    told = {one.id: one.severity for one in diagnose(evidence).findings}
    assert (next(iter(told)), told["D05"]) == ("D13", "info")


def test_absent_is_never_zero():
    bare = tcp(
        tuple(
            Sample(float(at), (Socket(snd_cwnd=10 + at, mss=1448, bytes_acked=at * 10**8),))
            for at in range(11)
        )
    )
    diagnosis = diagnose(bare)
    assert diagnosis.findings == ()
    assert diagnosis.phases[0].rate == pytest.approx(800e6)
    assert diagnosis.unexplained == (
        "no condition explains this rate, and no rate is expected (--expect): it may be all that "
        "the path can carry"
    )


def test_a_rate_below_what_is_expected_is_below_it_also_without_an_explanation():
    diagnosis = diagnose(evidence_of((DATA / "2.1-tcp.txt").read_bytes(), 100e9))
    assert (diagnosis.exit_code, diagnosis.unknown) == (
        ExitCode.BELOW,
        "neither window nor retransmits is known: iperf3 -J of a Linux sender reports more",
    )


@pytest.mark.parametrize(
    ("rtt", "what"),
    [(None, "neither window nor round trip is known"), (0.02, "no condition explains this rate")],
)
def test_what_the_report_shows_is_not_called_unknown(rtt, what):
    rows = "[  5]  0.00-10.00 sec  50.0 MBytes  42.0 Mbits/sec   12    sender\n"
    assert diagnose(evidence_of(rows.encode(), rtt=rtt)).unknown.startswith(what)


def test_nothing_is_known_of_nothing():
    assert (diagnose(Evidence()).inconclusive, diagnose(Evidence()).exit_code) == (
        "nothing was measured",
        ExitCode.INCONCLUSIVE,
    )


# --- Exit codes -----------------------------------------------------------------------------------------------------


RESET = "iperf did not finish: unable to write to stream socket: Connection reset by peer"


@pytest.mark.parametrize(
    ("name", "code", "why"),
    [
        ("3.12-refused.json", ExitCode.UNREACHABLE, None),
        ("3.12-busy.json", ExitCode.BUSY, None),
        (
            "3.9-refused.json",
            ExitCode.INCONCLUSIVE,
            "iperf did not finish: iperf3 ended without a result or an error message",
        ),
        ("3.12-reset.json", ExitCode.INCONCLUSIVE, RESET),
    ],
)
def test_a_run_that_failed_says_so_whatever_iperf3_exited_with(name, code, why):
    diagnosis = diagnose(evidence_of((DATA / name).read_bytes()))
    assert (diagnosis.exit_code, diagnosis.inconclusive) == (code, why)


def test_a_run_that_was_cut_short_is_inconclusive():
    document = json.loads((DATA / "3.12-tcp.json").read_text())
    document["start"]["test_start"]["duration"] = 30
    assert (
        diagnose(evidence_of(json.dumps(document).encode())).inconclusive
        == "the test ended after 2.00 s of 30.0 s"
    )


@pytest.mark.parametrize(("rate", "code"), [(899e6, ExitCode.BELOW), (901e6, ExitCode.PASS)])
def test_one_stream_passes_at_nine_tenths_of_what_is_expected(rate, code):
    evidence = tcp(flow_of(rate, rwnd=0.9, snd_wnd=2_000_000, unacked=1400, rtt=10_000), expect=1e9)
    assert diagnose(evidence).exit_code is code


def test_datagrams_pass_at_eight_tenths_of_what_was_asked():
    codes = [
        diagnose(Evidence(phases=(udp_phase(1e9, got, got, {"Udp.RcvbufErrors": (0, 1)}),)))
        .phases[0]
        .passed
        for got in (0.79e9, 0.81e9)
    ]
    assert codes == [False, True]


def test_settings_that_are_not_in_effect_are_not_as_planned():
    evidence = tcp(
        flow_of(950e6),
        expect=1e9,
        peer=Host(sysctls={"net.core.rmem_max": "1"}, wanted={"net.core.rmem_max": "2"}),
    )
    assert diagnose(evidence).exit_code is ExitCode.NOT_AS_PLANNED


# --- Evidence as JSON -----------------------------------------------------------------------------------------------


def test_evidence_survives_json():
    evidence = replace(
        tcp(
            flow_of(950e6, rtt=1000),
            receiver({"softnet.dropped": (0, 9)}),
            expect=1e9,
            local=Host(
                links=(Link("eth1", offloads={"tso": False}, rings={"rx": 256}),), log=("a",)
            ),
        ),
        label="x",
    )
    assert decode(Evidence, json.loads(json.dumps(encode(evidence)))) == evidence


def test_what_is_not_known_is_not_written():
    assert encode(Evidence(expect=1e9)) == {"expect": 1e9, "version": 1}


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"version": 2}, "read the evidence: its version is 2, and this program knows 1"),
        (
            {"version": 1, "expect": "5G"},
            "read the evidence: evidence.expect is '5G', and should be a number",
        ),
        (
            {"version": 1, "expect": True},
            "read the evidence: evidence.expect is 'True', and should be a number",
        ),
        (
            {"version": 1, "phases": {}},
            "read the evidence: evidence.phases is '{}', and should be a list",
        ),
        ({"version": 1, "phases": [{}]}, 'read the evidence: evidence.phases[0] has no "name"'),
        (
            {
                "version": 1,
                "phases": [{"name": "tcp", "sender": [{"time": 1, "counters": {"a": 1.5}}]}],
            },
            "read the evidence: evidence.phases[0].sender[0].counters.a is '1.5', and should be a whole number",
        ),
        (
            {"version": 1, "phases": [{"name": "tcp", "direction": "sideways"}]},
            "read the evidence: evidence.phases[0].direction is 'sideways', and should be one of 'forward', 'reverse'",
        ),
        (
            {"version": 1, "phases": [{"name": "tcp", "run": {"tool": "x", "streams": 10**400}}]},
            "read the evidence: evidence.phases[0].run.streams is too large a number",
        ),
    ],
)
def test_evidence_that_is_wrong_is_named_by_its_path(data, text):
    with pytest.raises(SelftestError) as raised:
        decode(Evidence, data)
    assert raised.value.text == text


def test_keys_of_a_later_program_are_passed_over():
    assert decode(Evidence, {"version": 1, "weather": "fine", "local": {"mood": 1}}) == Evidence()


def test_a_report_of_ours_can_be_diagnosed_again():
    evidence = tcp(flow_of(950e6, rtt=1000), expect=1e9)
    again = evidence_of(json.dumps({"version": 1, "evidence": encode(evidence)}).encode())
    assert diagnose(again) == diagnose(evidence)


# --- Arithmetic -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mtu", "share"), [(1500, 0.9415), (9000, 0.9900)])
def test_the_share_of_a_line_that_tcp_can_carry(mtu, share):
    assert figures.goodput(1.0, mtu) == pytest.approx(share, abs=1e-4)


@pytest.mark.parametrize(
    ("rate", "line"),
    [
        (942e6, 1e9),
        (9.41e9, 10e9),
        (1.65e9, None),
        (7.4e9, None),
        (4.84e9, None),
        (0, None),
    ],
)
def test_only_a_full_line_is_taken_for_one(rate, line):
    assert figures.link_speed_for(rate) == line


def test_a_buffer_is_twice_the_bandwidth_delay_product_in_whole_mebibytes():
    assert figures.buffer_for(10e9, 0.0136) == 33 * 2**20


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (252e6, "252 Mbit/s"),
        (1.54e9, "1.54 Gbit/s"),
        (999.96e6, "1.00 Gbit/s"),
        (99.95e6, "100 Mbit/s"),
        (9.995e6, "10.0 Mbit/s"),
        (0, "0 bit/s"),
    ],
)
def test_rates_have_three_digits(value, text):
    assert amounts.rate(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.5, "1.50 s"),
        (0.9996, "1.00 s"),
        (0.9994, "999 ms"),
        (0.0009996, "1.00 ms"),
        (0.0009994, "999 µs"),
        (0.00004, "40 µs"),
    ],
)
def test_a_time_has_the_largest_unit_of_which_it_is_one_after_rounding(value, text):
    assert amounts.time(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.26, "26%"),
        (0.0049, "0.49%"),
        (2.6e-7, "<0.001%"),
        (0.00001, "0.001%"),
        (0.0000996, "0.01%"),
        (0, "0%"),
        (0.9949, "99%"),
        (0.9978, "99.8%"),
        (0.9996, "99.9%"),
        (0.99999, "99.9%"),
        (1, "100%"),
    ],
)
def test_what_is_neither_nothing_nor_all_is_never_shown_as_such(value, text):
    assert amounts.percent(value) == text


@pytest.mark.parametrize(("value", "text"), [(0, "0.001%"), (2e-6, "0.001%"), (0.02, "2.0%")])
def test_what_something_stays_within_is_neither_nothing_nor_a_bound_of_a_bound(value, text):
    assert amounts.bound(value) == text


# --- Laws -----------------------------------------------------------------------------------------------------------

counts = st.one_of(st.none(), st.integers(0, 10**12))
FIELDS = (
    "mss",
    "snd_cwnd",
    "snd_wnd",
    "unacked",
    "rtt",
    "min_rtt",
    "busy_time",
    "rwnd_limited",
    "sndbuf_limited",
    "bytes_sent",
    "bytes_retrans",
    "bytes_acked",
    "backoff",
    "recv_q",
    "rcvbuf",
    "sndbuf",
)
sockets = st.builds(Socket, **dict.fromkeys(FIELDS, counts))
NAMES = (
    "Udp.RcvbufErrors",
    "softnet.dropped",
    "eth1.rx_missed_errors",
    "eth1.qdisc.drops",
    "arp_cache.table_fulls",
    "eth1.tx_bytes",
    "eth0.tx_bytes",
    "Tcp.RetransSegs",
    "Tcp.OutSegs",
    "TcpExt.TCPSACKReorder",
    "TcpExt.ListenDrops",
)
samples = st.lists(
    st.builds(
        Sample,
        st.floats(0, 1e6),
        st.lists(sockets, max_size=3).map(tuple),
        st.just(()),
        st.dictionaries(st.sampled_from(NAMES), st.integers(0, 10**9)),
    ),
    max_size=5,
).map(tuple)
links = st.lists(
    st.builds(
        Link,
        st.sampled_from(("eth0", "eth1", "vx0")),
        st.sampled_from((None, "vxlan", "tun")),
        st.sampled_from((None, "eth0", "eth1", "vx0")),
        mtu=st.sampled_from((None, 1450, 9000)),
        speed=st.sampled_from((None, 1e9)),
    ),
    max_size=3,
).map(tuple)
hosts = st.builds(
    Host,
    links=links,
    planned=st.sampled_from((None, "eth0", "eth1")),
    sysctls=st.dictionaries(
        st.just("net.ipv4.tcp_rmem"), st.sampled_from(("", "x", "1 2 3", "1 2 6291456"))
    ),
)
runs = st.sampled_from(
    [
        None,
        Run("iperf3", error="x"),
        *(evidence_of(text).phases[0].run for text in PUBLISHED.values()),
    ]
)
phases = st.builds(
    Phase,
    st.sampled_from(("tcp", "udp", "tcp-parallel", "tcp-bidir")),
    runs,
    st.sampled_from(("forward", "reverse")),
    st.one_of(st.none(), st.floats(0, 1e12)),
    samples,
    samples,
)
evidences = st.builds(
    Evidence,
    hosts,
    hosts,
    st.lists(phases, max_size=3).map(tuple),
    st.one_of(st.none(), st.floats(1, 1e12)),
)


@settings(max_examples=60, deadline=None)
@given(evidences)
def test_any_evidence_gets_a_diagnosis_with_shares_and_survives_json(evidence):
    diagnosis = diagnose(evidence)
    assert all(0 <= one.share <= 1 and one.text for one in diagnosis.findings)
    assert isinstance(diagnosis.exit_code, ExitCode)
    assert decode(Evidence, json.loads(json.dumps(encode(evidence)))) == evidence


@pytest.mark.parametrize(
    "path",
    sorted(DATA.glob("*-tcp.json")) + sorted(DATA.glob("*-udp.json")),
    ids=lambda path: path.stem,
)
def test_the_rate_that_is_told_is_iperf3_s_own(path):
    """Of every version, within a hundredth. Before 3.10 UDP has what was sent, and what of it was lost."""
    end = json.loads(path.read_bytes())["end"]
    own = (
        end["sum_received"]["bits_per_second"]
        if "sum_received" in end
        else end["sum"]["bits_per_second"]
        * (1 - end["sum"]["lost_packets"] / end["sum"]["packets"])
    )
    assert diagnose(evidence_of(path.read_bytes())).phases[0].rate == pytest.approx(own, rel=0.01)


def test_a_slow_start_is_told_beside_the_rate():
    intervals = tuple(
        Interval(second, second + 1.0, rate=rate)
        for second, rate in enumerate([1e8, 5e8, 9e8, 9e8, 9e8])
    )
    total = Total(5.0, 3.3e9 / 8, 6.6e8)
    run = Run(
        "iperf3",
        "3.12",
        "tcp",
        (Flow("forward", intervals, total, total),),
        streams=1,
        duration=5.0,
    )
    found = diagnose(Evidence(phases=(Phase("tcp", run),), expect=1e9)).phases[0]
    assert (found.rate, found.steady, found.passed) == (6.6e8, 9e8, True)
    assert phase_words(found) == "660 Mbit/s (900 Mbit/s once under way)"


def test_a_test_that_did_not_run_has_no_rate():
    """iperf3 from 3.16 on writes its zeros all the same."""
    zero = Total(0.0, 0.0, 0.0)
    said = "the server is busy running a test. try again later"
    run = Run("iperf3", "3.21", "tcp", (Flow("forward", (), zero, zero),), error=said)
    buffers = Host(sysctls={"net.ipv4.tcp_wmem": "4096 16384 4194304"})
    found = diagnose(
        Evidence(phases=(Phase("tcp", run),), local=buffers, idle=Latency(100, 0, 1e-4))
    )
    assert found.phases[0].rate is None
    assert (found.findings[0].id, int(found.exit_code)) == ("D34", 9)
    assert phase_words(found.phases[0]) == said


@pytest.mark.parametrize(
    ("rate", "passed", "severity"), [(19.5e6, True, "info"), (12e6, None, "limit")]
)
def test_what_is_as_fast_as_it_was_allowed_to_be_has_no_limit(rate, passed, severity):
    """A CPU that others keep busy is none, then. What is slower, and of which nothing was expected, does not fail."""
    evidence = tcp(
        flow_of(
            rate, cpus=(1.0,), rtt=900, min_rtt=300, snd_cwnd=400, unacked=300, snd_wnd=3_000_000
        )
    )
    found = diagnose(replace(evidence, phases=(replace(evidence.phases[0], target=20e6),)))
    assert (
        found.phases[0].passed,
        [one.severity for one in found.findings if one.id == "D09"],
        int(found.exit_code),
    ) == (passed, [severity], 0)


@pytest.mark.parametrize(
    ("rate", "expect", "passed", "code"),
    [(20e6, 20e6, True, 0), (20e6, 22e6, True, 0), (20e6, 1e9, None, 6), (12e6, 1e9, False, 4)],
)
def test_what_is_allowed_less_than_is_expected_does_not_show_it(rate, expect, passed, code):
    evidence = tcp(
        flow_of(rate, rtt=900, min_rtt=300, snd_cwnd=400, unacked=300, snd_wnd=3_000_000)
    )
    phases = (replace(evidence.phases[0], target=20e6),)
    found = diagnose(replace(evidence, phases=phases, expect=expect))
    assert (found.phases[0].passed, int(found.exit_code)) == (passed, code)
    assert ("20.0 Mbit/s (--rate, -b)" in (found.unknown or "")) is (code == 6)
