"""Results of flent and perfSONAR: read as evidence, or refused with a reason; nothing in them does harm."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import gzip
import json
from copy import deepcopy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from selftest_schema import validated

from neuca_tools.commands.neuca import main
from neuca_tools.errors import SelftestError
from neuca_tools.selftest.diagnosis.diagnose import diagnose, phase_results
from neuca_tools.selftest.evidence import Latency
from neuca_tools.selftest.evidence.run import Interval, Total
from neuca_tools.selftest.readers.documents import evidence_of
from neuca_tools.selftest.readers.imported import MOST_EXPANDED, expanded
from neuca_tools.selftest.report.record import record


def series(*seconds):
    """Five values for each second, as with flent's step of 0.2 s; None has none."""
    return [value for value in seconds for _ in range(5)]


FLENT = {
    "version": 4,
    "x_values": [round(number * 0.2, 1) for number in range(25)],
    "results": {
        "Ping (ms) ICMP": series(20.0, 20.0, 80.0, 90.0, 100.0),
        "Ping (ms) UDP BE": series(*[7.0] * 5),
        "Ping (ms) avg": series(*[9.0] * 5),
        "TCP upload": series(None, None, 10.0, 30.0, 20.0),
        "TCP upload::2": series(None, None, 1.0, 3.0, 2.0),
        "TCP upload::tcp_rtt": series(None, None, 40.0, 60.0, 50.0),
        "TCP upload::2::tcp_rtt": series(None, None, 60.0, 80.0, 70.0),
        "TCP upload::tcp_cwnd": series(None, None, 100, 200, 150),
        "TCP upload::2::tcp_cwnd": series(None, None, 10, 20, 15),
        "TCP upload avg": series(None, None, 999.0, 999.0, 999.0),
        "TCP upload sum": series(None, None, 999.0, 999.0, 999.0),
        "TCP totals": series(None, None, 999.0, 999.0, 999.0),
        "cpu_stats_localhost::load": series(*[0.5] * 5),
    },
    "metadata": {
        "NAME": "tcp_nup",
        "HOST": "netperf.example.net",
        "LOCAL_HOST": "here",
        "LENGTH": 3,
        "STEP_SIZE": 0.2,
        "TIME": "2026-11-22T20:00:00.000000Z",
        "FLENT_VERSION": "2.2.0",
        "KERNEL_NAME": "Linux",
        "KERNEL_RELEASE": "6.1.0",
        "SERIES_META": {
            "TCP upload": {
                "MEAN_VALUE": 19.5,
                "UNITS": "Mbits/s",
                "TCP_MSS": 1448,
                "TCP_RETRANSMIT": "7",
                "CONG_CONTROL": "cubic",
            },
            "TCP upload::2": {"MEAN_VALUE": 1.5, "UNITS": "Mbits/s", "TCP_RETRANSMIT": "2"},
        },
    },
    "raw_values": {},
}


def read(document):
    return evidence_of(json.dumps(document).encode())


def refusal(document):
    with pytest.raises(SelftestError) as raised:
        read(document)
    return raised.value.text


# --- flent ----------------------------------------------------------------------------------------------------------------


def test_flents_streams_are_one_flow_by_the_second():
    evidence = read(FLENT)
    (phase,) = evidence.phases
    run, (flow,) = phase.run, phase.run.flows
    assert (phase.name, flow.direction, run.tool, run.version, run.peer) == (
        *("tcp-parallel", "forward", "flent", "2.2.0"),
        "netperf.example.net",
    )
    assert (run.streams, run.mss, run.congestion, run.duration) == (2, 1448, "cubic", 3.0)
    assert (run.taken, run.system, run.options) == (
        "2026-11-22T20:00:00.000000Z",
        "Linux 6.1.0",
        "tcp_nup",
    )
    first, *_ = flow.intervals
    assert first == Interval(0, 1.0, 11e6 / 8, 11e6, cwnd=110 * 1448, rtt=pytest.approx(0.05))
    assert [one.rate for one in flow.intervals] == [11e6, 33e6, 22e6]
    assert flow.sent == Total(pytest.approx(3.0), pytest.approx(66e6 / 8), 21e6, 9)
    assert flow.received == Total()


def test_flents_pings_before_the_load_are_the_idle_path():
    evidence = read(FLENT)
    assert evidence.idle == Latency(10, None, 0.02, 0.02, 0.02)
    assert (evidence.loaded.count, evidence.loaded.p50, evidence.loaded.maximum) == (15, 0.09, 0.1)
    assert evidence.rtt == 0.02


def test_a_download_of_flent_comes_from_the_peer():
    document = deepcopy(FLENT)
    document["results"] = {
        name.replace("upload", "download"): values for name, values in FLENT["results"].items()
    }
    evidence = read(document)
    assert [(one.direction, one.rate) for one in phase_results(evidence)] == [("reverse", 22e6)]
    assert evidence.phases[0].run.flows[0].received.rate == 22e6


def test_both_directions_of_flent_are_at_once():
    document = deepcopy(FLENT)
    document["results"]["TCP download"] = series(None, None, 5.0, 5.0, 5.0)
    found = [(one.name, one.direction, one.rate) for one in phase_results(read(document))]
    assert found == [("tcp-bidir", "forward", 21e6), ("tcp-bidir", "reverse", 5e6)]


def test_the_names_of_classes_are_streams():
    document = deepcopy(FLENT)
    names = ("TCP upload BE", "TCP upload BE2", "TCP upload CS5", "TCP upload avg")
    document["results"] = {name: series(None, 1.0, 1.0, 1.0, 1.0) for name in names}
    assert read(document).phases[0].run.streams == 3


@pytest.mark.parametrize("version", [1, 2, 3])
def test_older_versions_of_flents_file_are_read(version):
    document = {**deepcopy(FLENT), "version": version}
    del document["metadata"]["SERIES_META"], document["raw_values"]
    if version == 1:
        del document["version"]
    assert [one.rate for one in phase_results(read(document))] == [22e6]


REFUSED_FLENT = {
    "a later version": ({"version": 5}, "its version is 5, not one of 1 to 4"),
    "an odd version": ({"version": [1]}, "its version is [1], not one of 1 to 4"),
    "no series": ({"results": {}}, "it has no TCP upload or download"),
    "pings alone": (
        {"results": {"Ping (ms) ICMP": series(*[1.0] * 5)}},
        "it has no TCP upload or download",
    ),
    "no times": ({"x_values": []}, "it has no TCP upload or download"),
    "no values": (
        {"results": {"TCP upload": series(*[None] * 5)}},
        "it has no TCP upload or download",
    ),
}


@pytest.mark.parametrize("name", REFUSED_FLENT)
def test_flents_data_without_a_result_is_refused(name):
    change, reason = REFUSED_FLENT[name]
    assert refusal({**FLENT, **change}) == f"read flent's data: {reason}"


# --- Compressed -----------------------------------------------------------------------------------------------------------


def test_a_compressed_file_is_read(tmp_path, capsys):
    path = tmp_path / "tcp_nup-2026-11-22T200000.flent.gz"
    path.write_bytes(gzip.compress(json.dumps(FLENT).encode()))
    assert main(["explain", str(path)], "neuca-selftest") == 6
    assert capsys.readouterr().out.split("\n")[0] == (
        f"{path}: flent 2.2.0, 2026-11-22T20:00:00.000000Z, peer netperf.example.net, options tcp_nup"
    )


def test_several_members_are_one_document():
    text = json.dumps(FLENT).encode()
    content = gzip.compress(text[:100]) + gzip.compress(text[100:])
    assert evidence_of(content) == read(FLENT)


BOMB = gzip.compress(bytes(MOST_EXPANDED // 2), 9)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (BOMB * 3, "it expands to more than 32 MiB"),
        (gzip.compress(bytes(MOST_EXPANDED + 1)), "it expands to more than 32 MiB"),
        (gzip.compress(b"x" * 1000)[:-9], "it is truncated"),
        (b"\x1f\x8b", "it is truncated"),
        (b"\x1f\x8b\x08\x00" + b"\xff" * 40, "it is damaged"),
        (b"\x1f\x8b garbage", "it is damaged"),
        (gzip.compress(b"x")[:-8] + bytes(8), "it is damaged"),
    ],
    ids=["members", "bomb", "truncated", "header", "damaged", "garbage", "checksum"],
)
def test_a_compressed_file_that_cannot_be_read(content, reason, tmp_path, capsys):
    path = tmp_path / "file.gz"
    path.write_bytes(content)
    assert main(["explain", str(path)], "neuca-selftest") == 1
    assert capsys.readouterr() == ("", f"neuca-selftest: read the gzip file: {reason}\n")


def test_a_bomb_of_bombs_is_expanded_once():
    inner = gzip.compress(bytes(MOST_EXPANDED))
    assert expanded(gzip.compress(inner)) == inner


# --- perfSONAR ------------------------------------------------------------------------------------------------------------


def of_perfsonar(start, rate, **more):
    return {
        "start": start,
        "end": start + 1.0,
        "throughput-bits": rate,
        "throughput-bytes": rate / 8,
        "omitted": False,
        **more,
    }


TCP = {
    "succeeded": True,
    "diags": "Participant 0:\nnuttcp -T 2\n\n\nParticipant 1:\nnuttcp -S\n",
    "intervals": [
        {
            "streams": [
                {
                    **of_perfsonar(second, rate, retransmits=retransmits, rtt=30_000),
                    "stream-id": 5,
                    "tcp-window-size": 500_000,
                }
            ],
            "summary": of_perfsonar(second, rate, retransmits=retransmits),
        }
        for second, rate, retransmits in ((0.0, 80e6, 0), (1.0, 120e6, 3))
    ],
    "summary": {
        "streams": [{**of_perfsonar(0.0, 100e6, retransmits=3), "end": 2.0, "stream-id": 5}],
        "summary": {
            **of_perfsonar(0.0, 100e6, retransmits=3),
            "end": 2.0,
            "receiver-throughput-bits": 98e6,
            "jitter": None,
        },
    },
}
UDP = {
    "succeeded": True,
    "diags": "",
    "intervals": [],
    "summary": {
        "streams": [],
        "summary": {**of_perfsonar(0.0, 10e6, sent=1000, lost=100, jitter=0.5), "end": 1.0},
    },
}
SPEC = {"source": "a.example.net", "dest": "b.example.net", "schema": 1}


def archived(result, **spec):
    """What an archiver gets."""
    return {
        "id": "0d9d0c5e",
        "schedule": {"start": "2026-11-22T20:00:00Z", "duration": "PT20S"},
        "test": {"type": "throughput", "spec": {**SPEC, **spec}},
        "tool": {"name": "iperf3", "version": "1.0"},
        "participants": ["a.example.net", "b.example.net"],
        "result": result,
    }


def test_a_throughput_result_is_read_like_iperf3s():
    (phase,) = read(TCP).phases
    run, (flow,) = phase.run, phase.run.flows
    assert (phase.name, run.tool, run.protocol, run.streams, flow.direction) == (
        *("tcp", "pscheduler", "tcp", 1),
        "forward",
    )
    assert flow.intervals == (
        Interval(0, 1, 10e6, 80e6, 0, 500_000, rtt=0.03),
        Interval(1, 2, 15e6, 120e6, 3, 500_000, rtt=0.03),
    )
    assert (flow.sent.rate, flow.sent.retransmits, flow.received.rate) == (100e6, 3, 98e6)


def test_a_result_is_found_wherever_it_is():
    inside = archived(TCP)
    run = {
        "start-time": "2026-11-22T20:00:00Z",
        "participants": ["a.example.net", "b.example.net"],
        "result": None,
        "result-full": [TCP, {"succeeded": True, "diags": ""}],
        "result-merged": TCP,
        "state": "finished",
        "errors": None,
    }
    rates = [one.rate for one in phase_results(read(TCP))]
    for document in (inside, {"result": inside, "attempts": []}, run):
        evidence = read(document)
        assert [one.rate for one in phase_results(evidence)] == rates == [98e6]
        assert (evidence.phases[0].run.peer, evidence.taken) == (
            "b.example.net",
            "2026-11-22T20:00:00Z",
        )


def test_a_reverse_test_comes_from_the_peer():
    found = [(one.direction, one.rate) for one in phase_results(read(archived(TCP, reverse=True)))]
    assert found == [("reverse", 98e6)]


@pytest.mark.parametrize("document", [UDP, archived(UDP, udp=True)], ids=["bare", "archived"])
def test_a_result_of_udp_has_its_losses(document):
    (one,) = phase_results(read(document))
    assert (one.protocol, one.rate, one.loss) == ("udp", 9e6, 0.1)


IPERF3 = {
    "start": {
        "version": "iperf 3.16",
        "connecting_to": {"host": "192.0.2.7", "port": 5201},
        "test_start": {"protocol": "TCP", "num_streams": 1, "duration": 1},
    },
    "intervals": [],
    "end": {
        "sum_sent": {"start": 0, "end": 1, "seconds": 1, "bytes": 9e6, "bits_per_second": 72e6},
        "sum_received": {"start": 0, "end": 1, "seconds": 1, "bytes": 8e6, "bits_per_second": 64e6},
        "cpu_utilization_percent": {"host_total": 12.5},
    },
}


def test_iperf3s_own_output_in_the_result_is_preferred():
    diags = f"Participant 0:\niperf3 -c 192.0.2.7 -J\n\n{json.dumps(IPERF3)}\n\nParticipant 1:\n"
    run = read(archived({**TCP, "diags": diags})).phases[0].run
    assert (run.tool, run.version, run.cpu_local, run.peer) == ("iperf3", "3.16", 12.5, "192.0.2.7")
    assert run.taken == "2026-11-22T20:00:00Z"
    broken = f"Participant 0:\n{json.dumps(IPERF3)[:-30]}"
    assert read({**TCP, "diags": broken}).phases[0].run.tool == "pscheduler"


def test_a_test_that_failed_says_why(tmp_path, capsys):
    path = tmp_path / "result"
    failed = {"succeeded": False, "diags": "", "error": "Unable to parse\n the output"}
    path.write_text(json.dumps(archived(failed)))
    assert main(["explain", str(path)], "neuca-selftest") == 6
    assert "the test failed: Unable to parse the output" in capsys.readouterr().out


REFUSED_PERFSONAR = {
    "another test": (
        {**archived({"succeeded": True, "max-clock-error": 1}), "test": {"type": "latency"}},
        "it is of a latency test, not of throughput",
    ),
    "nothing": (
        {"succeeded": True, "diags": "", "intervals": []},
        "it has neither intervals nor a summary",
    ),
    "no rate": ({"succeeded": True, "diags": "", "summary": {"streams": []}}, "it has no rate"),
    "odd types": ({"succeeded": True, "diags": 5, "intervals": [[]], "summary": {"a": 1}}, None),
}


@pytest.mark.parametrize("name", REFUSED_PERFSONAR)
def test_a_result_without_throughput_is_refused(name):
    document, reason = REFUSED_PERFSONAR[name]
    assert refusal(document) == f"read perfSONAR's result: {reason or 'it has no rate'}"


# --- All of them ----------------------------------------------------------------------------------------------------------

SAMPLES = {
    "flent": FLENT,
    "perfSONAR": archived(TCP),
    "perfSONAR udp": archived(UDP, udp=True),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_the_report_is_as_published(name):
    evidence = read(SAMPLES[name])
    validated(json.loads(record(evidence, diagnose(evidence))))


@pytest.mark.parametrize("content", [b"[]", b"[7]", b"null", b"7"])
def test_other_json_is_what_it_was(content):
    with pytest.raises(SelftestError, match="read the output of iperf: "):
        evidence_of(content)


ODD = st.sampled_from(
    [
        None,
        True,
        -1,
        0,
        1e308,
        float("nan"),
        "",
        "x\x1b[2J",
        "9" * 5000,
        [],
        [[]],
        {},
        [None],
        10**400,
    ]
)


def replaced(data, chosen, value):
    """The document with one of its parts, by its number in order, replaced."""
    count = [0]

    def walk(part):
        count[0] += 1
        if count[0] == chosen:
            return value
        if isinstance(part, dict):
            return {key: walk(one) for key, one in part.items()}
        return [walk(one) for one in part[:8]] if isinstance(part, list) else part

    return walk(data)


@settings(max_examples=300, deadline=None)
@given(name=st.sampled_from(sorted(SAMPLES)), chosen=st.integers(1, 150), value=ODD)
def test_no_odd_value_crashes_a_reader(name, chosen, value):
    document = json.dumps(replaced(SAMPLES[name], chosen, value)).encode()
    try:
        evidence = evidence_of(document)
    except SelftestError as error:
        assert error.text.startswith("read ")  # noqa: PT017 - some of them are refused
    else:
        record(evidence, diagnose(evidence))
