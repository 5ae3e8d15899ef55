"""The samples of one end: which connections count, what is left out, and how much an hour of them takes."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import socket
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from neuca_tools.selftest.evidence import Evidence, Phase, Sample, Socket
from neuca_tools.selftest.evidence.codec import decode, encode
from neuca_tools.selftest.evidence.derive import growths_of, rates_of, round_trips_of, totals_of
from neuca_tools.selftest.evidence.run import Connection, Run
from neuca_tools.selftest.measure.helper.answers import observations_of
from neuca_tools.selftest.measure.helper.channel import LONGEST_MESSAGE, ChannelError
from neuca_tools.selftest.measure.host import series
from neuca_tools.selftest.measure.host.series import SampleSeries

CONTROL, DATA, MORE = (40000, 5201), (40001, 5201), (40002, 5201)
PHASE = Phase(
    "tcp",
    Run(
        "iperf3", connections=tuple(Connection("::1", port, "::1", 5201) for port in (40001, 40002))
    ),
)


def sent(ports, acked, retransmits=0, rtt=0.01):
    return Socket(
        *ports,
        mss=1448,
        bytes_acked=acked,
        total_retrans=retransmits,
        rtt=round(rtt * 1e6),
        snd_cwnd=10,
        unacked=2,
    )


def test_rates_and_retransmits_are_those_of_each_interval():
    samples = [
        Sample(10.0, (sent(CONTROL, 100), sent(DATA, 0))),
        Sample(11.0, (sent(CONTROL, 100), sent(DATA, 1_250_000, 2))),
        Sample(13.0, (sent(CONTROL, 900), sent(DATA, 3_750_000, 2, 0.03))),
    ]
    assert list(rates_of(samples, PHASE)) == [(11.0, 10e6), (13.0, 10e6)]
    assert list(growths_of(samples, PHASE, "total_retrans")) == [(11.0, 1.0, 2), (13.0, 2.0, 0)]
    assert list(round_trips_of(samples, PHASE)) == [(10.0, 0.01), (11.0, 0.01), (13.0, 0.03)]
    assert list(totals_of(samples, PHASE, "cwnd")) == [(at, 14480.0) for at in (10.0, 11.0, 13.0)]


def test_windows_of_several_connections_are_added_and_round_trips_averaged():
    samples = [Sample(1.0, (sent(CONTROL, 1), sent(DATA, 10, rtt=0.01), sent(MORE, 10, rtt=0.03)))]
    assert list(totals_of(samples, PHASE, "in_flight")) == [(1.0, 5792.0)]
    assert list(round_trips_of(samples, PHASE)) == [(1.0, 0.02)]


def test_what_a_kernel_does_not_know_is_left_out():
    old = Socket(*DATA, rtt=20_000)
    samples = [Sample(1.0, (old,)), Sample(2.0, (old,)), Sample(3.0)]
    assert list(rates_of(samples, PHASE)) == list(totals_of(samples, PHASE, "cwnd")) == []
    assert list(round_trips_of(samples, PHASE)) == [(1.0, 0.02), (2.0, 0.02)]


def test_a_connection_opened_in_between_has_sent_all_that_it_counts():
    samples = [Sample(0.0, (sent(CONTROL, 1),)), Sample(1.0, (sent(CONTROL, 1), sent(DATA, 1000)))]
    assert list(rates_of(samples, PHASE)) == [(1.0, 8000)]


@pytest.mark.parametrize("told", [{}, [{"time": "x"}], [{"time": 1e300}], [{"time": True}]])
def test_a_peers_samples_of_wrong_types_are_refused(told):
    with pytest.raises(ChannelError):
        observations_of({"samples": told})


def test_a_report_of_an_earlier_build_is_read_without_what_is_no_longer_measured():
    trace = {"time": [0.0, 0.1], "sent": [None, 1e6], "rtt": [0.01, None]}
    probes = [{"direction": "forward", "begun": [0.5], "connected": [0.1], "answered": [0.2]}]
    old = {
        **encode(Evidence(phases=(PHASE,))),
        "route": {"device": "eth1", "flows": 6, "narrowings": [{"number": 1, "mtu": 1400}]},
        "responsiveness": probes,
        "loads": [{"name": "rpm", "sender_trace": trace}],
    }
    old["phases"][0].update(sender_trace=trace, receiver_trace=trace)
    assert decode(Evidence, old) == Evidence(phases=(PHASE,))


@pytest.mark.parametrize(
    ("seconds", "times"), [(60, [100, 100.5, 101, 101.5, 102]), (61, [100, 101, 102])]
)
def test_a_sample_is_half_a_second_or_in_a_long_test_a_second_after_the_last(
    monkeypatch, seconds, times
):
    clock = SimpleNamespace(now=100.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr(series, "time", clock)
    observer = SampleSeries(4, seconds=seconds)
    observer.turn()
    while clock.now < 101.9:
        clock.now += 0.125
        observer.turn()
    assert [sample.time for sample in observer.end()] == times


def test_what_did_not_change_is_left_out_but_in_the_first_sample():
    first, later = {"a": 1, "b": 5}, [{"a": 1, "b": 6}, {"a": 2, "b": 6}]
    assert [series._changed_counters(first, values) for values in later] == [
        {"b": 6},
        {"a": 2, "b": 6},
    ]


def test_the_samples_of_an_hour_with_all_streams_fit_into_a_message():
    """If they did not, the helper would be lost for the rest of the test."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=256))
        for _ in range(129):
            stack.enter_context(socket.create_connection(server.getsockname()))
            stack.enter_context(server.accept()[0]).sendall(b"x" * 10000)
        observer = SampleSeries(4, 3600.0, remote_port=server.getsockname()[1])
        interval = observer.due() - observer._samples[0].time
        samples = observer.end()
    assert len(samples[-1].sockets) == 129
    size = len(json.dumps(encode(samples[-1]), separators=(",", ":")))
    assert size * 3600 / interval < LONGEST_MESSAGE
