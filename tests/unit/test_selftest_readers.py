"""The readers of iperf3's and iperf 2's output, held against what five versions of iperf3 and iperf 2.1.8 really wrote."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import re
import time
from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from neuca_tools.errors import SelftestError
from neuca_tools.selftest.diagnosis.diagnose import diagnose
from neuca_tools.selftest.evidence.run import Connection, Interval, Run, Total
from neuca_tools.selftest.readers import (
    iperf2_text,
    iperf3_json,
    iperf3_text,
    lines,
)
from neuca_tools.selftest.readers.documents import evidence_of, read_all, read_run
from neuca_tools.selftest.readers.gather import received_total

DATA = Path(__file__).parent / "data" / "iperf"
VERSIONS = ("3.7", "3.9", "3.12", "3.16", "3.21")
each_version = pytest.mark.parametrize("version", VERSIONS)


def sample(name: str) -> Run:
    return read_run((DATA / name).read_bytes())


def raw(name: str) -> dict:
    return json.loads((DATA / name).read_text())


# --- JSON -----------------------------------------------------------------------------------------------------------


@each_version
def test_a_tcp_run_has_its_rates_windows_and_ends(version):
    run, document = sample(f"{version}-tcp.json"), raw(f"{version}-tcp.json")
    flow = run.flow("forward")
    assert (run.error, run.version, run.protocol, run.streams, run.duration) == (
        None,
        version,
        "tcp",
        1,
        2.0,
    )
    assert [one.rate for one in flow.intervals] == [
        one["sum"]["bits_per_second"] for one in document["intervals"]
    ]
    assert [one.cwnd for one in flow.intervals] == [
        one["streams"][0]["snd_cwnd"] for one in document["intervals"]
    ]
    assert [one.rtt for one in flow.intervals] == pytest.approx(
        [one["streams"][0]["rtt"] / 1e6 for one in document["intervals"]]
    )
    assert flow.received.bytes == document["end"]["sum_received"]["bytes"]
    assert flow.sent.retransmits == document["end"]["sum_sent"]["retransmits"]
    assert run.congestion == "bbr"
    assert (run.connections[0].local, run.connections[0].remote_port) == ("127.0.0.1", 5301)


@pytest.mark.parametrize(
    ("version", "known"), [("3.7", False), ("3.9", False), ("3.12", True), ("3.21", True)]
)
def test_the_receivers_window_is_not_known_before_iperf3_3_10(version, known):
    assert all(
        (one.snd_wnd is not None) is known
        for one in sample(f"{version}-tcp.json").flow("forward").intervals
    )


@each_version
def test_both_directions_are_there_also_where_a_version_gives_them_one_name(version):
    run = sample(f"{version}-bidir.json")
    assert [flow.direction for flow in run.flows] == ["forward", "reverse"]
    ends = [flow.received.rate for flow in run.flows]
    assert all(ends)
    assert ends[0] != ends[1]
    assert all(one.cwnd for one in run.flow("forward").intervals)
    assert [one.cwnd for one in run.flow("reverse").intervals] == [None, None]


def test_a_usual_reader_of_json_loses_one_direction_of_3_7():
    run, lossy = sample("3.7-bidir.json"), raw("3.7-bidir.json")
    assert (
        lossy["end"]["sum_sent"]["bits_per_second"]
        == run.flow("reverse").sent.rate
        != run.flow("forward").sent.rate
    )


@pytest.mark.parametrize(
    ("lost", "datagrams", "amounts"),
    [
        (25, 100, (750, 6e3)),
        (0, 100, (1000, 8e3)),
        (None, 100, (None, None)),
        (100, 100, (0, 0.0)),
        (101, 100, (None, None)),
        (0, 0, (None, None)),
    ],
)
def test_what_was_received_is_what_was_sent_without_the_losses(lost, datagrams, amounts):
    total = received_total(Total(10.0, 1000, 8e3, retransmits=3), lost, datagrams)
    assert (total.bytes, total.rate) == amounts
    assert (total.seconds, total.retransmits, total.lost) == (10.0, None, lost)


@each_version
def test_losses_of_udp_are_the_receivers(version):
    run, document = sample(f"{version}-udp.json"), raw(f"{version}-udp.json")
    flow = run.flow("forward")
    assert (run.protocol, run.datagram, flow.received.lost) == (
        "udp",
        32768,
        document["end"]["sum"]["lost_packets"],
    )
    assert (flow.sent.lost, flow.received.out_of_order) == (None, 0)
    assert flow.received.bytes <= flow.sent.bytes
    assert run.target == (None if version in ("3.7", "3.9") else 200e6)


@pytest.mark.parametrize(
    ("version", "error"),
    [
        ("3.7", "unable to connect to server: Connection refused"),
        ("3.9", "iperf3 ended without a result or an error message"),
        ("3.12", "unable to connect to server: Connection refused"),
        (
            "3.16",
            (
                "unable to connect to server - server may have stopped running or use a different port, firewall issue, etc.: "
                "Connection refused"
            ),
        ),
    ],
)
def test_a_refused_connection_is_an_error_whatever_the_exit_code_was(version, error):
    run = sample(f"{version}-refused.json")
    assert (run.error, run.flows) == (error, ())


@pytest.mark.parametrize(
    ("version", "error"),
    [
        ("3.7", "unable to write to stream socket: Connection reset by peer"),
        ("3.9", "iperf3 ended without a result or an error message"),
        ("3.12", "unable to write to stream socket: Connection reset by peer"),
        ("3.21", "control socket has closed unexpectedly"),
    ],
)
def test_a_server_that_was_killed_leaves_an_error_and_what_went_over_before(version, error):
    run = sample(f"{version}-reset.json")
    assert run.error == error
    assert run.flow("forward").intervals[0].rate > 0
    assert run.flow("forward").received == Total()


def test_a_busy_server_is_an_error():
    assert sample("3.12-busy.json").error == "the server is busy running a test. try again later"


def test_in_reverse_the_windows_come_from_the_servers_own_output():
    with_output, without = (
        sample("3.12-reverse.json").flow("reverse"),
        sample("3.21-reverse.json").flow("reverse"),
    )
    assert [one.cwnd for one in with_output.intervals] == pytest.approx([767 * 1024, 3.12 * 2**20])
    assert [one.retransmits for one in with_output.intervals] == [0, 1]
    assert without.received.rate > 0


def test_the_events_of_a_stream_are_one_run():
    run = sample("3.21-stream.json")
    assert (run.error, run.version, len(run.flow("forward").intervals)) == (None, "3.21", 2)


def test_an_object_that_is_printed_twice_counts_once():
    text = (DATA / "3.16-tcp.json").read_text()
    run = read_run((text + text).encode())
    assert run.flows == sample("3.16-tcp.json").flows


@pytest.mark.parametrize(
    "rest", ['{"event": "start", "data": {}}', '{"start": ', '{"end": ' * 5000]
)
def test_whole_results_are_read_whatever_comes_after_them(rest):
    whole = (DATA / "3.12-tcp.json").read_bytes() + (DATA / "3.21-tcp.json").read_bytes()
    runs = read_all(whole + rest.encode())
    assert [run.version for run in runs] == ["3.12", "3.21"]
    assert runs == read_all(whole)


def test_warnings_before_the_object_are_passed_over():
    text = (
        b"Warning: Permanently added 'b' to the list of known hosts.\n"
        + (DATA / "3.12-tcp.json").read_bytes()
    )
    assert read_run(text).flows == sample("3.12-tcp.json").flows


@pytest.mark.parametrize("cut", [200, 900])
def test_a_truncated_object_without_results_says_where_it_ends(cut):
    text = (DATA / "3.12-tcp.json").read_text()[:cut].rstrip('"')
    run = read_run(text.encode())
    assert run.flows == ()
    assert re.match(rf"the JSON .* line {text.count(chr(10)) + 1}[:,]", run.error)


def test_an_error_among_the_objects_of_debugging_is_read():
    text = 'send_parameters:\n{\n\t"tcp":\ttrue\n}\niperf3: error - unable to connect stream\n'
    assert read_run(text.encode()).error == "unable to connect stream"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            '{"start": {}, "intervals": [',
            "the JSON ends at line 1: it was truncated",
        ),
        ('{"start" {}}', "the JSON is broken at line 1, column 10: Expecting ':' delimiter"),
        ('{"start":' + "[" * 100_000, "the JSON cannot be read: it is nested too deeply"),
        ('{"start": ' + "9" * 5000 + "}", "iperf3 ended without a result or an error message"),
        ("{}", "iperf3 ended without a result or an error message"),
        ('{"hops": [{"rtt": 1}]}', "the JSON is not that of iperf3"),
        ("[]", "this is neither iperf3's JSON, nor its text, nor iperf 2's text"),
        ("", "this is neither iperf3's JSON, nor its text, nor iperf 2's text"),
    ],
)
def test_what_is_no_result_says_why(text, error):
    assert read_run(text.encode()).error == error


def test_numbers_that_cannot_be_are_not_known():
    document = {
        "start": {},
        "end": {"sum_sent": {"seconds": -1, "bytes": float("inf"), "bits_per_second": True}},
        "intervals": [{"sum": {"start": 0, "end": 1, "bytes": "many"}}, 7, {"sum": {"start": "x"}}],
    }
    flow = read_run(json.dumps(document).encode()).flows[0]
    assert (flow.sent, flow.intervals) == (Total(), (Interval(0.0, 1.0),))


# --- Text -----------------------------------------------------------------------------------------------------------


def test_parallel_streams_of_a_text_are_summed_and_the_omitted_interval_is_marked():
    flow = sample("3.21-tcp3.txt").flow("forward")
    assert [(round(one.start), one.end, one.omitted) for one in flow.intervals] == [
        (0, 1, True),
        (0, 1, False),
        (1, 2, False),
    ]
    assert flow.intervals[-1].rate == 16.5e9
    assert flow.sent.retransmits == 21
    assert flow.intervals[-1].cwnd == pytest.approx(8.49 * 2**20, rel=0.01)


def test_both_directions_of_a_text_are_told_apart():
    run = sample("3.7-bidir.txt")
    assert [(flow.direction, flow.sent.retransmits) for flow in run.flows] == [
        ("forward", 8),
        ("reverse", 3),
    ]
    assert (run.streams, len(run.connections)) == (1, 2)


def test_a_reverse_text_is_reverse():
    assert [flow.direction for flow in sample("3.12-reverse.txt").flows] == ["reverse"]


def test_a_verbose_udp_text_says_version_target_and_cpu():
    run = sample("3.12-udp.txt")
    assert (run.version, run.protocol, run.target, run.cpu_local, run.cpu_remote) == (
        "3.12",
        "udp",
        200e6,
        2.8,
        0.9,
    )
    assert run.flow("forward").received == Total(2.1, 41.6 * 2**20, 166e6, None, 1524, 194)


def test_an_error_in_a_text_is_the_error():
    assert sample("3.9-refused.txt").error == "unable to send control message: Bad file descriptor"


def test_an_error_that_another_program_passes_on_is_the_error():
    said = "the server is busy running a test. try again later"
    log = f"11:26:13 ERROR [homeassistant.components.iperf3] Iperf3 error: {said}\n"
    assert read_run(log.encode()).error == said


# --- iperf 2 --------------------------------------------------------------------------------------------------------


def test_the_totals_of_iperf_2_are_told_from_its_intervals():
    flow = sample("2.1-tcp.txt").flow("forward")
    assert ([(one.start, one.end) for one in flow.intervals], flow.sent.seconds) == (
        [(0, 1), (1, 2)],
        pytest.approx(2, abs=0.1),
    )


def test_the_enhanced_report_of_iperf_2_has_windows_and_rtt():
    interval = sample("2.1-tcp-e.txt").flow("forward").intervals[1]
    assert (interval.retransmits, interval.cwnd, interval.rtt) == (
        1,
        4476 * 1024,
        pytest.approx(106e-6),
    )


def test_parallel_streams_of_iperf_2_are_summed():
    run = sample("2.1-tcp2.txt")
    assert (run.streams, [one.rate for one in run.flows[0].intervals], run.flows[0].sent.rate) == (
        2,
        [37.4e9, 41.5e9],
        38.4e9,
    )


def test_a_sum_of_iperf_2_that_has_the_first_intervals_twice_is_no_total():
    text = """[  4]  0.0- 1.0 sec  232124 KBytes  1901558 Kbits/sec
[  4]  1.0- 2.0 sec  158626 KBytes  1299464 Kbits/sec
[  4]  0.0- 2.0 sec  390750 KBytes  1600512 Kbits/sec
[SUM]  0.0- 2.0 sec  622874 KBytes  2551292 Kbits/sec
"""
    for sums, rate in (("622874", 1_600_512e3), ("390750", 2_551_292e3)):
        run = read_run(text.replace("622874", sums).encode())
        assert run.flows[0].sent.rate == rate


def test_an_error_of_an_early_iperf3_lacks_its_name():
    said = "parameter error: Some option you are trying to set is client only"
    assert read_run(f"$ iperf3 -s -u\n{said}\n".encode()).error == said


def test_a_negative_count_of_iperf_2_is_no_amount():
    row = "[  3]  0.0- 1.0 sec  18014398509481962 KBytes  18014398509481962 KBytes/sec\n"
    assert read_run(f"Client connecting to a, TCP port 5201\n{row}".encode()).unreadable


def test_the_servers_report_of_iperf_2_is_what_was_received():
    flow = sample("2.1-udp.txt").flow("forward")
    assert (flow.sent.datagrams, flow.received.datagrams, flow.received.lost) == (8921, 8920, 0)


def test_a_connection_that_iperf_2_could_not_make_is_an_error():
    assert sample("2.1-refused.txt").error == "Connection refused"


def test_a_dual_test_of_iperf_2_has_two_directions():
    text = """Server listening on TCP port 5001
[  5] local 10.0.0.1 port 40000 connected with 10.0.0.2 port 5001
[  4] local 10.0.0.1 port 5001 connected with 10.0.0.2 port 50000
[  5]  0.0-120.0 sec  89.0 GBytes  6.37 Gbits/sec
[  4]  0.0-120.0 sec  79.5 GBytes  5.69 Gbits/sec
"""
    assert [(flow.direction, flow.sent.rate) for flow in read_run(text.encode()).flows] == [
        ("forward", 6.37e9),
        ("reverse", 5.69e9),
    ]


# --- Words ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "bits"),
    [
        ("5G", 5e9),
        ("100M", 100e6),
        ("2.5gbit", 2.5e9),
        ("100 Mbit/s", 100e6),
        ("40Gbps", 40e9),
        ("1000", 1000.0),
        ("fast", None),
        ("1.2.3G", None),
        ("-5G", None),
    ],
)
def test_rates_are_read_as_iperf_reads_them(word, bits):
    assert lines.parse_rate(word) == bits


@pytest.mark.parametrize("prefix", ["K", "k", "\u212a"])
def test_a_prefix_in_any_script_is_read(prefix):
    """Case-insensitive patterns take the Kelvin sign for a K, and a long s for an S."""
    row = lines.parse_row(f"[  5] 0.0-1.0 \u017fec  2.00 {prefix}Bytes  16.0 {prefix}bit\u017f/sec")
    assert row is not None
    assert (row.bytes, row.rate) == (2048.0, 16_000.0)


def test_a_pasted_command_line_says_what_was_asked_for():
    run = read_run(
        b"$ iperf3 -c 10.0.0.1 -u -b 10M -P 2 -t 30 -l 8K -w 4M\n[ 4] 0.00-1.00 sec 1 MBytes 8 Mbits/sec 100\n"
    )
    assert (run.protocol, run.target, run.duration, run.streams) == ("udp", 20e6, 30.0, 2)
    assert (run.datagram, run.buffer) == (8192, 4 * 2**20)


def test_a_connection_is_read_from_a_text():
    assert sample("3.12-udp.txt").connections == (
        Connection("127.0.0.1", 51046, "127.0.0.1", 5301),
    )


# --- Laws -----------------------------------------------------------------------------------------------------------

TEXTS = {path.name: path.read_text() for path in sorted(DATA.iterdir())}
PIECES = [
    "{",
    "}",
    "[",
    "]",
    '"',
    ":",
    ",",
    "-",
    "e9",
    "9" * 400,
    "NaN",
    "null",
    "\n",
    "[SUM]",
    "[ 4]",
    " sec ",
    "GBytes",
    "/",
    "%",
    "0.0.0",
    "sender",
    "receiver",
    "(omitted)",
    "[TX-C]",
    "iperf3 -b ",
    "\0",
    "\ufeff",
    "ü",
    "1e999",
    "connected with",
    "port ",
]


@st.composite
def mutated(draw):
    """A real document with some pieces cut out and some put in."""
    text = draw(st.sampled_from(sorted(TEXTS.values())))
    for _ in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 60)))
        text = (
            text[:start]
            + draw(st.one_of(st.sampled_from(PIECES), st.just(""), st.text(max_size=4)))
            + text[end:]
        )
    return text


KEYS = (
    "start",
    "intervals",
    "end",
    "sum",
    "sum_sent",
    "sum_received",
    "streams",
    "udp",
    "connected",
    "test_start",
    "error",
    "event",
    "data",
    "bidir",
    "reverse",
    "server_output_json",
    "server_output_text",
    "cpu_utilization_percent",
    "seconds",
    "bytes",
    "rtt",
)
simple = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8))
shaped = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(KEYS), inner, max_size=6),
    ),
    max_leaves=25,
)


def numbers(value) -> list[float]:
    if is_dataclass(value):
        return [one for field in fields(value) for one in numbers(getattr(value, field.name))]
    if isinstance(value, tuple):
        return [one for part in value for one in numbers(part)]
    return [value] if isinstance(value, (int, float)) and not isinstance(value, bool) else []


def must_be_a_run(run) -> None:
    assert isinstance(run, Run)
    assert all(0 <= number < float("inf") for number in numbers(run))


@settings(max_examples=120, deadline=None)
@given(mutated())
@example("[ 4] 0.00-1.00 sec 1 GBytes 1 Gbits/sec 0." + "1" * 30)
def test_no_damaged_document_raises(text):
    content = text.encode("utf-8", "surrogatepass")
    for run in (read_run(content), *read_all(content + b"\n" + content)):
        must_be_a_run(run)
    for run in (*iperf3_json.read(text), iperf3_text.read(text), iperf2_text.read(text)):
        must_be_a_run(run)


def without_each_key(value):
    """The same without one of its keys, for each key; of a list, for those of its first part."""
    if isinstance(value, list) and value:
        yield from ([part, *value[1:]] for part in without_each_key(value[0]))
    if isinstance(value, dict):
        for key, inner in value.items():
            yield {name: each for name, each in value.items() if name != key}
            yield from ({**value, key: part} for part in without_each_key(inner))


@pytest.mark.parametrize("kind", ["tcp", "udp", "bidir", "reverse", "refused"])
def test_no_key_of_a_document_is_needed(kind):
    for damaged in without_each_key(raw(f"3.21-{kind}.json")):
        content = json.dumps(damaged).encode()
        must_be_a_run(read_run(content))
        with suppress(SelftestError):
            diagnose(evidence_of(content))


@settings(max_examples=120, deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS), shaped, max_size=8))
def test_no_json_of_any_shape_raises(document):
    must_be_a_run(read_run(json.dumps(document).encode()))


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300))
def test_no_bytes_raise(content):
    must_be_a_run(read_run(content))


SERVERS_ROWS = """[  5]   0.00-1.00   sec   117 KBytes   961 Kbits/sec  2.219 ms  3/86 (3.5%)
[  5]   1.00-2.00   sec   122 KBytes   996 Kbits/sec  0.454 ms  0/86 (0%)
[  5]   2.00-2.01   sec  1.41 KBytes  1.25 Mbits/sec  0.146 ms  1/2 (50%)
"""


@pytest.mark.parametrize("protocol", ["UDP", "TCP"])
def test_a_client_knows_what_its_server_lost_in_each_interval(protocol):
    rows = [{"start": at, "end": at + 1, "bytes": 125_000, "packets": 86} for at in (0.0, 1.0001)]
    document = {
        "start": {"test_start": {"protocol": protocol, "reverse": 0}},
        "intervals": [{"sum": one} for one in rows],
        "end": {"sum": {"bytes": 250_000}},
        "server_output_text": SERVERS_ROWS,
    }
    (flow,) = read_run(json.dumps(document).encode()).flows
    lost = [3, 0] if protocol == "UDP" else [None, None]
    assert [(one.lost, one.datagrams) for one in flow.intervals] == [(one, 86) for one in lost]


def interval_of(number, **values):
    row = {"start": number / 2, "end": (number + 1) / 2, "bytes": 1e6, **values}
    return {"streams": [row], "sum": row}


def test_each_half_second_has_the_windows_that_its_server_counted():
    document = {
        "start": {"test_start": {"protocol": "TCP", "reverse": 1}},
        "intervals": [interval_of(number) for number in range(6)],
        "end": {"sum_received": {"bytes": 6e6}},
        "server_output_json": {
            "intervals": [
                interval_of(number, retransmits=number, snd_cwnd=1000 * number + 1000)
                for number in range(6)
            ]
        },
    }
    (flow,) = read_run(json.dumps(document).encode()).flows
    assert [one.retransmits for one in flow.intervals] == [0, 1, 2, 3, 4, 5]
    assert [one.cwnd for one in flow.intervals] == [1000, 2000, 3000, 4000, 5000, 6000]


# --- what people paste ----------------------------------------------------------------------------

CLIENT = """Connecting to host 10.20.0.9, port 5201
[  5] local 10.20.0.8 port 40100 connected to 10.20.0.9 port 5201
[ ID] Interval           Transfer     Bitrate         Retr  Cwnd
[  5]   0.00-1.00   sec  52.0 MBytes   436 Mbits/sec   11    310 KBytes
[  5]   1.00-2.00   sec  51.0 MBytes   428 Mbits/sec    3    312 KBytes
"""
SUMMARY = """- - - - - - - - - - - - - - - - - - - - - - - - -
[ ID] Interval           Transfer     Bitrate         Retr
[  5]   0.00-2.00   sec   103 MBytes   432 Mbits/sec   14             sender
[  5]   0.00-2.04   sec   102 MBytes   419 Mbits/sec                  receiver
"""
SERVER = """-----------------------------------------------------------
Server listening on 5201 (test #1)
-----------------------------------------------------------
Accepted connection from 10.20.0.8, port 40098
[  5] local 10.20.0.9 port 5201 connected to 10.20.0.8 port 40100
[ ID] Interval           Transfer     Bitrate
[  5]   0.00-1.00   sec  49.0 MBytes   411 Mbits/sec
[  5]   1.00-2.00   sec  51.0 MBytes   428 Mbits/sec
[  5]   2.00-2.04   sec  2.00 MBytes   419 Mbits/sec
- - - - - - - - - - - - - - - - - - - - - - - - -
[ ID] Interval           Transfer     Bitrate
[  5]   0.00-2.04   sec   102 MBytes   419 Mbits/sec                  receiver
"""


@pytest.mark.parametrize("text", [CLIENT + SERVER, SERVER + CLIENT])
def test_both_ends_of_a_run_are_one_run(text):
    (run,) = read_all(text.encode())
    flow = run.flows[0]
    assert (len(flow.intervals), flow.intervals[0].retransmits) == (2, 11)
    assert (run.peer, flow.received.rate) == ("10.20.0.9", 419e6)


def test_several_runs_in_a_text_are_several():
    other = CLIENT.replace("40100", "40200").replace("436", "136")
    runs = read_all((CLIENT + SUMMARY + other + SUMMARY).encode())
    assert [(len(run.flows), run.flows[0].intervals[0].rate) for run in runs] == [
        (1, 436e6),
        (1, 136e6),
    ]


def test_the_next_connection_to_a_server_after_results_is_another_run():
    """iperf 2 counts its streams on, whoever they come from; those of -P connect before any row."""
    connected = "[  {0}] local 10.20.0.9 port 5001 connected with 10.20.0.8 port 4100{0}\n"
    row = "[  {0}]  0.0-10.0 sec  540 MBytes  453 Mbits/sec\n"
    first = connected.format(4) + connected.format(5) + row.format(4) + row.format(5)
    runs = read_all((first + connected.format(6) + row.format(6)).encode())
    assert [len(run.connections) for run in runs] == [2, 1]
    assert runs[1].flows[0].sent.rate == 453e6


def test_a_stream_that_is_connected_again_is_that_of_another_run():
    """A client has another port for each test, and a mail may leave out its first line."""
    again = CLIENT.replace("40100", "40200").replace("436", "136").split("\n", 1)[1]
    runs = read_all((CLIENT + "Reverse mode, remote host 192.0.2.9 is sending\n" + again).encode())
    assert [run.flows[0].intervals[0].rate for run in runs] == [436e6, 136e6]


@pytest.mark.parametrize("between", ["", "[ ID] Interval           Transfer     Bitrate   Retr\n"])
def test_summaries_of_several_runs_are_several_runs(between):
    ends = (
        "[  5]   0.00-10.00  sec   {0} MBytes   {1} Mbits/sec    4             sender\n"
        "[  5]   0.00-10.02  sec   {0} MBytes   {1} Mbits/sec                  receiver\n"
    )
    text = ends.format(600, 503) + between + ends.format(300, 252)
    assert [run.flows[0].sent.rate for run in read_all(text.encode())] == [503e6, 252e6]


def test_totals_below_headers_of_their_own_are_those_of_several_runs():
    """Of one stream: iperf 2 prints nothing but this line, and iperf3 before 3.7 of datagrams."""
    header = "[ ID] Interval       Transfer     Bandwidth\n"
    rows = [f"[  3]  0.0-10.0 sec   {size} MBytes   {rate} Mbits/sec\n" for size, rate in RUNS]
    assert [run.flows[0].rate for run in read_all(header.join(["", *rows]).encode())] == [
        210e6,
        530e6,
    ]
    rows = [row.replace("sec\n", "sec  0.04 ms  9000/30000 (30%)\n") for row in rows]
    text = header.join(["iperf3 -u -c x\n", *rows])
    assert [run.flows[0].sent.rate for run in read_all(text.encode())] == [210e6, 530e6]


RUNS = ((250, 210), (632, 530))


SENT = "Client connecting to {0}, TCP port 5001\n[  3] local {1} port 41000 connected with {0} port 5001\n"
TOTALS = "[  3]  0.0-10.0 sec  500 MBytes  420 Mbits/sec\n[  4]  0.0-10.0 sec  999 MBytes  838 Mbits/sec\n"


def test_the_port_of_the_self_test_is_that_of_the_server():
    """The client's port is the higher one only by chance."""
    client = SENT.format("10.20.0.9", "10.20.0.8").replace("5001", "45678")
    server = "[  4] local 10.20.0.9 port 45678 connected with 10.20.0.8 port 41000\n"
    sent, arrived = TOTALS.splitlines(keepends=True)
    (run,) = read_all((client + sent + server + arrived).encode())
    assert [(flow.sent.rate, flow.received.rate) for flow in run.flows] == [(420e6, 838e6)]
    assert run.connections[0].remote_port == 45678


def test_an_interval_as_long_as_the_run_is_not_added_to_its_totals():
    """With -i 10 -t 10, iperf 2 prints the same time twice."""
    text = """Client connecting to 10.20.0.9, TCP port 5001
[  3] local 10.20.0.8 port 41000 connected with 10.20.0.9 port 5001
[  3]  0.0-10.0 sec   632 MBytes   530 Mbits/sec
[  3]  0.0-10.1 sec   633 MBytes   526 Mbits/sec
"""
    (run,) = read_all(text.encode())
    assert (run.flows[0].sent.rate, len(run.flows[0].intervals)) == (526e6, 1)


def test_totals_that_a_script_kept_of_several_runs_are_not_added_up():
    """A loop over iperf 2 and grep leaves neither headers nor connections."""
    rows = [f"[  3]  0.0-10.0 sec   {size} MBytes   {rate} Mbits/sec\n" for size, rate in RUNS]
    runs = read_all("".join(rows).encode())
    assert [(run.streams, run.flows[0].rate) for run in runs] == [(1, 210e6), (1, 530e6)]
    pair = rows[0] + rows[1].replace("[  3]", "[  4]")
    runs = read_all((pair + pair).encode())
    assert [run.streams for run in runs] == [2, 2]


def test_the_totals_of_a_receiver_of_datagrams_are_what_arrived():
    """An old server's last line, which says nothing of its end."""
    rows = [f"[  5] {at}.00-{at + 1}.00 sec 6.20 MBytes 52.0 Mbits/sec" for at in range(3)]
    rows.append("[  5]   0.00-3.05   sec  18.9 MBytes  52.0 Mbits/sec")
    text = "".join(f"{row}  0.050 ms  1000/3000 (33%)\n" for row in rows)
    (run,) = read_all(f"Accepted connection from 10.0.0.1, port 41000\n{text}".encode())
    assert (run.flows[0].rate, run.flows[0].received.lost) == (52e6, 1000)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text.encode("utf-16"),  # PowerShell's > of Windows
        lambda text: json.dumps({"changed": True, "stdout": text}).encode(),
        lambda text: text.replace("\n", " ").encode(),
        lambda text: "\n".join(f"iperf3-1 iperf3 {line}" for line in text.split("\n")).encode(),
        lambda text: text.replace("sender", "").replace("receiver", "").encode(),
    ],
    ids=["UTF-16", "in JSON", "without newlines", "prefixes", "cut on the right"],
)
def test_what_programs_do_to_a_text_is_undone(spoil):
    (plain,) = read_all(WHOLE.encode())
    (run,) = read_all(spoil(WHOLE))
    assert run.flows == plain.flows
    assert len(run.flows[0].intervals) == 3


def test_the_text_of_a_document_in_utf_16_is_kept_as_text():
    (phase,) = evidence_of(WHOLE.encode("utf-16")).phases
    assert phase.raw == WHOLE


@pytest.mark.parametrize("seconds", ["inf", "nan", "1e999"])
def test_a_duration_that_is_no_number_of_seconds_is_not_known(seconds):
    (phase,) = evidence_of(f"$ iperf3 -c 10.0.0.2 -t {seconds}\n{WHOLE}".encode()).phases
    assert phase.run.duration is None


WHOLE = """Connecting to host 10.0.0.2, port 5201
[  5] local 10.0.0.1 port 41000 connected to 10.0.0.2 port 5201
[ ID] Interval           Transfer     Bitrate         Retr  Cwnd
[  5]   0.00-1.00   sec  25.0 MBytes   210 Mbits/sec    2    380 KBytes
[  5]   1.00-2.00   sec  24.0 MBytes   201 Mbits/sec    0    412 KBytes
[  5]   2.00-3.00   sec  26.0 MBytes   218 Mbits/sec    1   1.02 MBytes
- - - - - - - - - - - - - - - - - - - - - - - - -
[ ID] Interval           Transfer     Bitrate         Retr
[  5]   0.00-3.00   sec  75.0 MBytes   210 Mbits/sec    3             sender
[  5]   0.00-3.04   sec  74.0 MBytes   204 Mbits/sec                  receiver
"""


def test_a_udp_test_after_a_tcp_test_is_another_run():
    udp = (
        "[ ID] Interval           Transfer     Bitrate         Jitter    Lost/Total Datagrams\n"
        "[  5]   0.00-10.00  sec   60 MBytes   50 Mbits/sec  0.01 ms  0/43000 (0%)  sender\n"
    )
    runs = read_all((CLIENT + SUMMARY + udp).encode())
    assert [run.protocol for run in runs] == ["tcp", "udp"]


def test_rows_of_two_runs_without_any_header_are_two_runs():
    rows = [f"[  4]   {at}.00-{at + 1}.00   sec  5.00 MBytes  41.9 Mbits/sec" for at in range(5)]
    runs = read_all("\n".join(rows + rows[:4]).encode())
    assert [(run.tool, len(run.flows[0].intervals)) for run in runs] == [
        ("iperf3", 5),
        ("iperf3", 4),
    ]


def test_rows_of_iperf_2_without_a_header_are_its():
    (run,) = read_all(b"[  3]  1.0- 2.0 sec  96.0 KBytes  96.0 KBytes/sec\n")
    assert (run.tool, run.flows[0].sent.rate or run.flows[0].intervals[0].rate) == (
        "iperf",
        96 * 1024 * 8,
    )


def test_the_only_line_of_an_iperf_2_that_could_not_connect_is_its_error():
    (run,) = read_all(b"connect failed: Connection refused\n")
    assert (run.tool, run.error, run.unreadable) == ("iperf", "Connection refused", False)


@pytest.mark.parametrize("header", ["", "Client connecting to 10.20.0.9, TCP port 5001\n"])
def test_what_iperf_2_says_of_a_connection_that_failed_is_its_error(header):
    text = (
        "[  1] tcp connect to 10.20.0.9 port 5001 failed (No route to host) on 2026-01-02 (UTC)\n"
    )
    (run,) = read_all(f"{header}{text}".encode())
    assert (run.tool, run.error, run.unreadable) == ("iperf", "No route to host", False)


def test_the_same_line_printed_twice_counts_once():
    text = CLIENT + SUMMARY + "RESULT: " + SUMMARY.splitlines()[-1]
    assert read_run(text.encode()).flows[0].received.rate == 419e6


def test_results_in_the_debug_output_of_a_server_are_found():
    debug = 'send_parameters:\n{\n\t"tcp":\ttrue\n}\n' + SERVER
    (run,) = read_all(debug.encode())
    assert (run.tool, run.flows[0].received.rate) == ("iperf3", 419e6)
    result = (DATA / "3.12-tcp.json").read_text()
    (run,) = read_all(('{"tcp": true, "parallel": 1}\n' + result).encode())
    assert run.flows == sample("3.12-tcp.json").flows


def test_several_json_results_are_several_runs_and_a_repeated_one_is_not():
    one, other = ((DATA / name).read_text() for name in ("3.12-tcp.json", "3.9-tcp.json"))
    assert [run.version for run in read_all((one + one + other).encode())] == ["3.12", "3.9"]


def test_a_comma_before_a_bracket_is_passed_over():
    text = (DATA / "3.12-tcp.json").read_text()
    cut = re.sub(r"\}\s*\],", "},\n],", text)
    assert cut != text
    assert read_run(cut.encode()).flows == sample("3.12-tcp.json").flows


def test_a_comma_before_a_bracket_ahead_of_the_result_moves_nothing():
    text = re.sub(r"\}\s*\],", "},\n],", (DATA / "3.12-tcp.json").read_text())
    (run,) = read_all(f"[1,]\n{text}".encode())
    assert run.flows == sample("3.12-tcp.json").flows


def test_a_word_that_a_mail_put_on_its_own_line_belongs_to_the_row():
    mail = "\n".join(f"> > {line}" for line in (CLIENT + SUMMARY).splitlines())
    wrapped = mail.replace("             sender", "\n> > sender").replace(
        "     receiver", "\n> > receiver"
    )
    assert wrapped != mail
    assert read_run(wrapped.encode()).flows == read_run((CLIENT + SUMMARY).encode()).flows


def test_losses_that_a_mail_put_on_their_own_line_belong_to_the_row():
    lines = [
        "[  5] local 192.0.2.2 port 5201 connected to 192.0.2.1 port 41000",
        "[ ID] Interval           Transfer     Bitrate         Jitter    Lost/Total Datagrams",
        "[  5]   0.00-1.00   sec  6.30 MBytes  52.8 Mbits/sec  0.046 ms  1381/5950 (23%)",
        "[  5]   0.00-1.00   sec  6.30 MBytes  52.8 Mbits/sec  0.046 ms  1381/5950 (23%)  receiver",
    ]
    text = "\n".join(lines)
    wrapped = "\n".join(f">> {line}" for line in lines)
    wrapped = wrapped.replace(" 1381/5950", "\n>> 1381/5950")
    assert wrapped != text
    assert read_run(wrapped.encode()) == read_run(text.encode())


def test_the_command_names_the_peer_and_the_segments():
    run = read_run(
        f"$ iperf3 --client 192.0.2.9 --set-mss 600\n{CLIENT.splitlines()[3]}\n".encode()
    )
    assert (run.peer, run.mss) == ("192.0.2.9", 600)


def test_intervals_of_half_a_second_stay_apart():
    rows = [
        f"[  5]   {at / 2:.2f}-{at / 2 + 0.5:.2f}   sec  5.00 MBytes  83.9 Mbits/sec"
        for at in range(6)
    ]
    intervals = read_run("\n".join([CLIENT.splitlines()[0], *rows]).encode()).flows[0].intervals
    assert [(one.start, one.rate) for one in intervals] == [(at / 2, 83.9e6) for at in range(6)]


def test_prose_and_warnings_among_results_are_no_errors():
    prose = "Results of iperf3: quite good\niperf3: interrupt - the client has terminated\n"
    assert read_run((prose + CLIENT).encode()).error is None
    failed = CLIENT + "iperf3: error - control socket has closed unexpectedly\n"
    assert read_run(failed.encode()).error == "control socket has closed unexpectedly"


def test_the_processors_are_those_of_client_and_server_whoever_wrote():
    line = "CPU Utilization: local/{} 11.5% (1%u/10%s), remote/{} 22.5% (2%u/20%s)\n"
    client = read_run((CLIENT + line.format("sender", "receiver")).encode())
    server = read_run((SERVER + line.format("receiver", "sender")).encode())
    assert (client.cpu_local, client.cpu_remote) == (11.5, 22.5)
    assert (server.cpu_local, server.cpu_remote) == (22.5, 11.5)


@pytest.mark.parametrize(
    ("columns", "cwnd", "rtt"),
    [
        ("7000/0          0       -1K/410 us  91.2", None, 410e-6),
        ("7000/0  0   640K(452)/410(31) us  91.2", 640 * 1024, 410e-6),
        ("7000/0  0   512K(361)/640K(452)/410(31) us  91.2", 640 * 1024, 410e-6),
    ],
)
def test_the_windows_of_every_iperf_2_are_read(columns, cwnd, rtt):
    row = f"[  1] 0.00-1.00 sec   101 MBytes   847 Mbits/sec  {columns}"
    interval = iperf2_text.read(row).flows[0].intervals[0]
    assert (interval.cwnd, interval.rtt) == (cwnd, pytest.approx(rtt))


def test_options_may_be_attached_or_long():
    words = lines.parse_command("C:\\> iperf3.exe -c 10.20.0.9 -P8 -w64k --bitrate=20M --time 5")
    assert (words.streams, words.buffer, words.target, words.duration) == (8, 65536, 160e6, 5)
    assert words.options == "-c 10.20.0.9 -P8 -w64k --bitrate=20M --time 5"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "this is neither iperf3's JSON, nor its text, nor iperf 2's text"),
        (b"iperf 3.14 (cJSON 1.7.15)\nLinux host 6.1.0\n", "no results found"),
        (b'{"start": {}, "intervals": [', "the JSON ends at line 1: it was truncated"),
    ],
)
def test_what_has_no_result_is_refused_with_a_reason(content, reason):
    with pytest.raises(SelftestError) as raised:
        evidence_of(content)
    assert raised.value.text == f"read the output of iperf: {reason}"


ROWS = """[ ID] Interval           Transfer     Bitrate         Retr  Cwnd
[  5]   0.00-1.00   sec   112 MBytes   940 Mbits/sec    3    303 KBytes
[  5]   1.00-2.00   sec   111 MBytes   934 Mbits/sec    0    305 KBytes
[ ID] Interval           Transfer     Bitrate         Retr
[  5]   0.00-2.00   sec   223 MBytes   937 Mbits/sec    3             sender
[  5]   0.00-2.04   sec   222 MBytes   933 Mbits/sec                  receiver
"""


def _each(template: str) -> str:
    return "".join(template.format(line) + "\n" for line in ROWS.splitlines())


@pytest.mark.parametrize(
    "document",
    [
        _each("{0}"),
        _each("> > >>> {0}"),
        _each('<span class="line"><span>{0}</span></span>'),
        _each('        "{0}       ", '),
        _each("# {0}"),
        ROWS.replace("937 Mbits/sec ", "**937 Mbits/sec** "),
    ],
)
def test_a_row_is_the_same_in_mail_web_pages_and_lists_of_strings(document):
    (flow,) = iperf3_text.read(document).flows
    assert [one.cwnd for one in flow.intervals] == [303 * 1024, 305 * 1024]
    assert [one.retransmits for one in flow.intervals] == [3, 0]
    assert (flow.sent.rate, flow.sent.retransmits, flow.received.rate) == (937e6, 3, 933e6)


def test_a_rate_that_the_unit_rounds_to_nothing_is_that_of_its_bytes():
    row = "[  4]   0.00-2.00   sec  87.5 KBytes  0.00 Gbits/sec    2   23.8 KBytes\n"
    (one,) = iperf3_text.read(row).flows[0].intervals
    assert one.rate == 87.5 * 1024 * 8 / 2


def test_one_direction_of_bidir_is_read_alone():
    """As of a text that was cut, or of which only some lines were pasted."""
    rows = (
        f"[  5][TX-C]   {at}.00-{at + 1}.00   sec   112 MBytes   941 Mbits/sec" for at in (0, 1)
    )
    run = read_run("\n".join(rows).encode())
    assert [len(flow.intervals) for flow in run.flows] == [2, 0]
    assert run.flow("forward").intervals[1].rate == 941e6


def test_a_server_of_iperf_2_counts_the_losses_of_each_interval():
    rows = """[  3]  0.0- 1.0 sec  2.00 MBytes  16.8 Mbits/sec  0.047 ms   20/ 1447 (1.4%)
[  3]  1.0- 2.0 sec  2.00 MBytes  16.8 Mbits/sec  0.069 ms    0/ 1427 (0%)
[  3]  0.0- 2.0 sec  4.00 MBytes  16.8 Mbits/sec  0.069 ms   20/ 2874 (0.7%)
"""
    flow = iperf2_text.read(rows).flows[0]
    assert [(one.lost, one.datagrams) for one in flow.intervals] == [(20, 1447), (0, 1427)]
    assert (flow.received.lost, flow.received.datagrams) == (20, 2874)


def test_blank_lines_take_time_in_proportion_to_their_number():
    """A pattern that may cross lines would inspect each of them for each of the others."""
    with pytest.raises(SelftestError):
        evidence_of(b"\n" * 300_000)


PLAIN = [(940e6, 303 * 1024, 3), (934e6, 305 * 1024, 0)]


@pytest.mark.parametrize(
    ("document", "known"),
    [
        (ROWS.replace("its/sec", "its/s"), PLAIN),
        (ROWS.replace("[  5]", "[ *5]"), PLAIN),
        ('"server_output_text": "' + ROWS.replace("\n", "\\n") + '",', PLAIN),
    ],
)
def test_a_row_is_read_however_it_is_written(document, known):
    (run,) = read_all(document.encode())
    assert [(one.rate, one.cwnd, one.retransmits) for one in run.flows[0].intervals] == known


def test_a_row_that_prose_is_glued_to_is_read():
    (run,) = read_all(b"[  4] 0.0-10.0 sec 1.19 GBytes 1.02 Gbits/secThe next")
    assert run.flows[0].rate == 1.02e9


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        ("iperf3 -uRc 10.20.0.9 -b 5M", (True, True, True, 5e6)),
        ("iperf3 -c 10.20.0.9 -ub 5M", (True, False, True, 5e6)),
        ("iperf-2.2.1 -us -i 1", (True, False, False, None)),
        ("iperf3 --client 10.20.0.9 --fq-rate 8M", (False, False, True, 8e6)),
        ("iperf3 -c 10.20.0.9 -fm -P 2 --fq-rate=8M", (False, False, True, 16e6)),
    ],
)
def test_flags_may_share_a_hyphen_and_pacing_is_a_target(command, flags):
    words = lines.parse_command(f"$ {command}")
    assert (words.udp, words.reverse, words.client, words.target) == flags


@pytest.mark.parametrize(
    "after",
    [
        " \\",
        " \\ | grep bits",
        " | tail -1",
        " ------- Client",
        " [  4] 0.0-9.0 sec",
        " [ ID] I",
        "; done",
        " && iperf -c 10.20.0.7",
        "`, it is slow",
        "</summary>",
    ],
)
def test_options_end_where_the_command_does(after):
    assert lines.parse_command(f"$ iperf -c 10.20.0.9 -t 9{after}").options == "-c 10.20.0.9 -t 9"


def test_an_address_that_a_page_left_out_is_not_the_next_option():
    words = lines.parse_command("iperf.exe -c -P 2 -b -t 9")
    assert (words.client, words.peer, words.streams, words.target) == (True, None, 2, None)
    assert lines.parse_command("$ iperf3 -c [2001:db8::1] -t 9").options == "-c [2001:db8::1] -t 9"


def test_the_clients_command_says_what_was_asked_for_not_the_servers():
    """A server's -u without -b limits nothing."""
    both = "$ iperf -u -s\n$ iperf -c 10.20.0.9 -u -b 500K\n"
    row = "[  3]  0.0- 1.0 sec  61.7 KBytes   506 Kbits/sec\n"
    assert iperf2_text.read(both + row).target == 500e3
    assert iperf2_text.read("$ iperf -u -s\n" + row).target is None


@pytest.mark.parametrize(
    ("ends", "rtt"), [("(icwnd/mss/irtt=14/1448/20600)", 0.0206), ("(peer 2.0.13)", None)]
)
def test_the_first_round_trip_of_iperf_2_is_that_of_all_intervals(ends, rtt):
    run = iperf2_text.read(
        f"[  1] local 10.20.0.8 port 41000 connected with 10.20.0.9 port 5001 {ends}\n"
        "[  1] 0.0000-1.0000 sec   100 MBytes   839 Mbits/sec\n"
        "[  1] 1.0000-2.0000 sec   100 MBytes   839 Mbits/sec\n"
        "[  1] 0.0000-2.0000 sec   200 MBytes   839 Mbits/sec\n"
    )
    assert [one.rtt for one in run.flows[0].intervals] == [rtt and pytest.approx(rtt)] * 2
    assert run.mss == (1448 if "mss" in ends else None)


def test_a_summary_of_nothing_after_intervals_with_data_is_not_known():
    rows = ROWS.replace("223 MBytes   937 Mbits/sec", "0.00 Bytes  0.00 bits/sec")
    flow = iperf3_text.read(rows).flows[0]
    assert (flow.sent.rate, flow.sent.retransmits, flow.received.rate) == (None, 3, 933e6)


def test_an_attempt_that_failed_before_the_results_is_not_their_error():
    failed = "iperf3: error - unable to start listener for connections: Address already in use\n"
    assert iperf3_text.read(failed + ROWS).error is None
    assert iperf3_text.read(ROWS + failed).error.startswith("unable to start listener")


def test_a_number_in_proportion_to_the_bytes_counts_datagrams():
    rows = "".join(
        f"[  5]   {at}.00-{at + 1}.00   sec  {size} KBytes   103 Kbits/sec  {count}\n"
        for at, (size, count) in enumerate([("12.6", 9), ("11.2", 8), ("12.6", 9)])
    )
    run = iperf3_text.read(rows)
    assert run.protocol == "udp"
    assert [one.datagrams for one in run.flows[0].intervals] == [9, 8, 9]
    assert iperf3_text.read(rows.replace(" 8\n", " 0\n")).protocol == "tcp"


def test_the_comma_separated_report_of_iperf_2_is_read():
    ends = "20260102030405,10.20.0.8,41000,10.20.0.9,5001,3"
    (run,) = read_all(
        f"{ends},0.0-1.0,118000000,944000000\n{ends},1.0-2.0,117000000,936000000\n"
        f"{ends},0.0-2.0,235000000,940000000\n".encode()
    )
    (flow,) = run.flows
    assert [one.rate for one in flow.intervals] == [944e6, 936e6]
    assert flow.sent.rate == 940e6
    assert run.connections == (Connection("10.20.0.8", 41000, "10.20.0.9", 5001),)


def test_parallel_streams_in_a_comma_separated_report_are_one_run():
    lines = [
        f"20260102030405,10.20.0.9,5001,10.20.0.8,4100{stream},{stream},"
        f"{at}.0-{at + 1}.0,59000000,472000000"
        for at in range(3)
        for stream in (4, 5)
    ]
    (run,) = read_all("\n".join(lines).encode())
    assert (len(run.connections), run.flows[0].intervals[0].rate) == (2, 944e6)


def test_the_comma_separated_report_of_a_udp_server_has_its_losses():
    line = (
        b"20260102030405,10.20.0.9,5001,10.20.0.8,41000,3,0.0-10.0,1312500,1050000,0.04,9,893,1.0,0"
    )
    (run,) = read_all(line)
    assert (run.protocol, run.flows[0].received.lost, run.flows[0].received.datagrams) == (
        "udp",
        9,
        893,
    )


@pytest.mark.parametrize(
    "part",
    [
        b'{"\\',
        b'{"a":[',
        b"[  5] 0.00-1.00 sec 1 MBytes ",
        b"sec ",
        b"1,",
        b"| sec",
        b"[ ",
        b"sec\\n",
        b" ",
        b"iperf3 -c x -b 1M\n",
        b"[  5]   0.00-1.00   sec  1.0 MBytes  1.0 Mbits/sec\n",
        b"20260102030405,",
        b"(ct=",
        b'{"intervals":[{}],',
    ],
)
def test_whatever_is_repeated_is_read_in_time(part):
    """200 kB of it; what took time by the square of that would take minutes."""
    began = time.process_time()
    with suppress(SelftestError):
        evidence_of(part * (200_000 // len(part)))
    assert time.process_time() - began < 5


def test_a_number_of_a_thousand_digits_ends_nothing():
    row = b"[  5]   0.00-1.00   sec  1.0 MBytes  1.0 Mbits/sec " + b"9" * 5000
    assert read_all(row)[0].error is None


def test_streams_are_counted_by_their_rows_where_no_connection_is_shown():
    rows = [
        f"[{at:3}]   0.00-1.00   sec  112 MBytes   940 Mbits/sec    0    320 KBytes"
        for at in (5, 7)
    ]
    rows.append("[SUM]   0.00-1.00   sec  224 MBytes  1.88 Gbits/sec    0")
    assert read_run("\n".join(rows).encode()).streams == 2
    both = [row.replace("]", f"][{role}]", 1) for row, role in zip(rows, ("TX-C", "RX-C"))]
    assert read_run("\n".join(both).encode()).streams == 1


def test_a_rate_of_fewer_digits_than_the_size_is_that_of_the_bytes():
    """`-f G` prints 50 Mbit/s as 0.01 GBytes/sec."""
    row = lines.parse_row("[  5]   0.00-1.00   sec  5.96 MBytes  0.01 GBytes/sec")
    assert row is not None
    assert row.rate == pytest.approx(50e6, rel=0.001)


def of_server(reverse: int, sent: int, received: int) -> bytes:
    """What an iperf3 server writes of a UDP test: zeros for what its client counted."""
    span = {"start": 0, "end": 2, "seconds": 2}

    def counts(size: int) -> dict:
        count = {"packets": size // 1000, "lost_packets": 0, "lost_percent": 0, "jitter_ms": 0}
        return {**span, "bytes": size, "bits_per_second": size * 4.0, **count}

    counted = counts(max(sent, received))
    asked = {"protocol": "UDP", "num_streams": 1, "reverse": reverse, "target_bitrate": 9_000_000}
    start = {"accepted_connection": {"host": "10.20.0.8", "port": 40000}, "test_start": asked}
    end = {"sum": counted, "sum_sent": counts(sent), "sum_received": counts(received)}
    intervals = [{"streams": [counted], "sum": counted}]
    return json.dumps({"start": start, "intervals": intervals, "end": end}).encode()


def test_a_server_does_not_know_what_its_client_sent_or_received():
    (sending,) = read_run(of_server(1, sent=2_000_000, received=0)).flows
    assert (sending.sent.datagrams, sending.received.datagrams, sending.received.lost) == (
        2000,
        None,
        None,
    )
    (receiving,) = read_run(of_server(0, sent=0, received=2_000_000)).flows
    assert (receiving.sent.rate, receiving.sent.datagrams) == (None, None)
    assert receiving.received.datagrams == 2000


def test_connections_without_results_are_not_the_streams_of_a_test():
    test = (
        "[  5] local 10.20.0.9 port 5201 connected to 10.20.0.8 port {}\n"
        "iperf3: error - unable to receive control message: Connection reset by peer\n"
    )
    assert read_run((test.format(41000) + test.format(41002)).encode()).streams == 1


TRADEOFFS = """$ {}
Client connecting to 10.20.0.9, TCP port 5001
[  5] local 10.20.0.8 port {} connected with 10.20.0.9 port 5001
[  5]  0.0- 5.0 sec   561 MBytes   941 Mbits/sec
[  4] local 10.20.0.8 port 5001 connected with 10.20.0.9 port {}
[  4]  0.0- 5.0 sec   301 MBytes   505 Mbits/sec
"""


@pytest.mark.parametrize("without", ["nothing", "Client|iperf"])
def test_each_direction_of_each_tradeoff_is_a_test_of_its_own(without):
    command = "for i in 1 2; do iperf -c 10.20.0.9 -r -t 5; done"
    text = TRADEOFFS.format(command, 41000, 50210) + TRADEOFFS.format("", 41002, 50212)
    lines_left = [line for line in text.splitlines() if not re.search(without, line)]
    phases = evidence_of("\n".join(lines_left).encode()).phases
    ways = [(phase.name, phase.direction, round(phase.flow.rate / 1e6)) for phase in phases]
    assert ways == [("tcp", "forward", 941), ("tcp", "reverse", 505)] * 2


@pytest.mark.parametrize(
    ("first", "later"),
    [("{0}:5001 {1}:1309", "{0}:50210 {1}:5001"), ("{1}:1309 {0}:5001", "{1}:5001 {0}:50210")],
    ids=["server", "client"],
)
def test_a_port_below_that_of_the_server_is_still_a_clients(first, later):
    """Windows before Vista takes 1025 to 5000; each end of iperf 2 with -r prints the same two tests."""
    text = ""
    for ends, rate in ((first, 349), (later, 1.03)):
        local, remote = ends.format("10.20.0.9", "10.20.0.8").replace(":", " port ").split(" 10.")
        text += f"[  4] local {local} connected with 10.{remote}\n"
        text += f"[  4]  0.0-10.0 sec  {rate / 8.389:.2f} MBytes  {rate} Mbits/sec\n"
    phases = evidence_of(text.encode()).phases
    assert [phase.direction for phase in phases] == ["forward", "reverse"]


def test_the_totals_of_the_only_interval_are_of_the_same_test():
    text = RUN.replace("Cwnd", "").format(41000).splitlines()
    head = "[ ID] Interval           Transfer     Bitrate         Retr\n"
    only = "[  5]   0.00-5.00   sec   240 MBytes   403 Mbits/sec\n"
    totals = "[  5]   0.00-5.00   sec   241 MBytes   404 Mbits/sec  1769             sender\n"
    content = (
        f"Reverse mode, remote host 10.20.0.9 is sending\n{text[0]}\n{head}{only}{head}{totals}"
    )
    phases = evidence_of(content.encode()).phases
    assert [(phase.direction, phase.flow.sent.retransmits) for phase in phases] == [
        ("reverse", 1769)
    ]


def test_a_blank_before_the_unit_of_time_may_be_missing():
    row = lines.parse_row("[  5] 0.00-10.00sec  1.10 GBytes  943 Mbits/sec   7      sender")
    assert (row.end, row.rest) == (10, "7      sender")


RUN = """[  5] local 10.20.0.8 port {} connected to 10.20.0.9 port 5201
[  5]   0.00-1.00   sec  2.23 MBytes  18.7 Mbits/sec    0   64.2 KBytes
[  5]   1.00-2.00   sec  2.23 MBytes  18.7 Mbits/sec    0   64.2 KBytes
[  5]   0.00-2.00   sec  4.46 MBytes  18.7 Mbits/sec    0             sender
"""
# --- Counts that cannot be those of the test --------------------------------------------------------------------------


RECEIVER = "Reverse mode, remote host 192.0.2.9 is sending\n"


def test_a_count_of_datagrams_that_the_text_cuts_off_is_not_known():
    flow = read_run(
        b"[  4]   0.00-10.00  sec   124 MBytes   104 Mbits/sec  0.376 ms  14622/156"
    ).flow("forward")
    assert (flow.received.lost, flow.received.datagrams, flow.is_lost) == (None, None, False)


def test_the_largest_count_of_datagrams_that_iperf3_prints_is_not_known():
    text = "[  5]   0.00-86400.04 sec  9.82 TBytes  1000 Mbits/sec  0.007 ms  0/2147483647 (0%)  receiver"
    assert read_run(text.encode()).flow("forward").received.lost is None


def test_a_receivers_only_interval_is_what_arrived():
    row = "[  5]   0.00-1.00   sec   546 KBytes  4.47 Mbits/sec  0.165 ms  606993/612585 (99%)\n"
    run = read_run(("iperf3 -R -l 100 -u -c 192.0.2.9 -b 1M\n" + RECEIVER + row).encode())
    assert run.flow("reverse").intervals[0].rate == 4.47e6
    assert run.flow("reverse").sent == run.flow("reverse").received == Total()


def test_what_arrived_is_what_the_intervals_of_a_receiver_say():
    """Old totals have the sender's bytes, and datagrams only as far as the receiver saw any."""
    rows = """
[  4]   0.00-27.53  sec  8.00 KBytes  2.38 Kbits/sec  101327731611.758 ms  0/1 (0%)
[  4]  27.53-30.00  sec  80.0 KBytes   265 Kbits/sec  53142390297.363 ms  4/14 (29%)
- - - - - - - - - - - - - - - - - - - - - - - - -
[  4]   0.00-30.00  sec  3.94 MBytes  1.10 Mbits/sec  53142390297.363 ms  4/15 (27%)
[  4] Sent 15 datagrams
"""
    flow = read_run((RECEIVER + rows).encode()).flow("reverse")
    assert flow.sent.rate == 1.10e6
    assert flow.received.rate == pytest.approx(88 * 8192 / 30, rel=0.01)


def test_more_retransmits_than_segments_are_not_known():
    rows = "[  5]   0.00-30.00  sec  34.3 GBytes  9.83 Gbits/sec  775435825             sender\n"
    assert read_run(rows.encode()).flow("forward").retransmits is None


@pytest.mark.parametrize(("shown", "granted"), [("416 KByte", 416), ("2.00 MByte", 1024)])
def test_a_buffer_is_what_the_kernel_granted_of_the_request(shown, granted):
    header = f"TCP window size:  {shown} (WARNING: requested 1.00 MByte)\n"
    row = "[  1] 0.0000-60.0067 sec  5.00 GBytes   715 Mbits/sec\n"
    run = read_run(f"$ iperf -c 192.0.2.7 -t 60 -w 1M\n{header}{row}".encode())
    assert run.buffer == granted * 1024
