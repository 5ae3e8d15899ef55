"""The trace of one end: which connections count, what grows, and whose clock its times are of."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import math
import socket
import time
from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace

import pytest

from neuca_tools.selftest.evidence import Cpu, Sample, Socket
from neuca_tools.selftest.evidence.codec import encode
from neuca_tools.selftest.evidence.trace import NO_TRACE, Trace, shifted_trace, trace_within
from neuca_tools.selftest.measure.helper.answers import clock_of, observations_of
from neuca_tools.selftest.measure.helper.channel import LONGEST_MESSAGE, ChannelError
from neuca_tools.selftest.measure.host import series
from neuca_tools.selftest.measure.host.series import SampleSeries, trace_of

CONTROL, DATA, MORE = (40000, 5201), (40001, 5201), (40002, 5201)


def sent(ports, acked, retransmits=0, rtt=0.01, received=0):
    return Socket(
        *ports,
        mss=1448,
        bytes_acked=acked,
        bytes_received=received,
        total_retrans=retransmits,
        rtt=round(rtt * 1e6),
        snd_cwnd=10,
        snd_wnd=65535,
        unacked=2,
    )


def test_rates_and_retransmits_are_those_of_each_interval():
    found = trace_of(
        [
            Sample(10.0, [sent(CONTROL, 100), sent(DATA, 0)]),
            Sample(10.1, [sent(CONTROL, 100), sent(DATA, 125_000, 2)]),
            Sample(10.3, [sent(CONTROL, 100), sent(DATA, 375_000, 2, 0.03)]),
        ]
    )
    assert found.points("sent") == [(10.1, 10e6), (10.3, 10e6)]
    assert found.points("retransmits") == [(10.1, 2), (10.3, 0)]
    assert found.points("rtt") == [(10.0, 0.01), (10.1, 0.01), (10.3, 0.03)]
    assert found.cwnd == (14480.0,) * 3
    assert found.time == (10.0, 10.1, 10.3)


def test_windows_of_several_connections_are_added_and_round_trips_averaged():
    streams = [sent(DATA, 10, rtt=0.01), sent(MORE, 10, rtt=0.03)]
    found = trace_of([Sample(1.0, [sent(CONTROL, 1), *streams])])
    assert (found.cwnd, found.rtt, found.in_flight) == ((28960.0,), (0.02,), (5792.0,))


def test_a_connection_that_receives_has_no_part_in_windows():
    """With --bidir an end has connections of both kinds."""
    receiving = sent(MORE, 5, rtt=9.0, received=900_000)
    first = [sent(CONTROL, 1), sent(DATA, 0), replace(receiving, bytes_received=0)]
    found = trace_of(
        [Sample(1.0, first), Sample(2.0, [sent(CONTROL, 1), sent(DATA, 800_000), receiving])]
    )
    assert (found.rtt, found.sent[1], found.received[1]) == ((0.01, 0.01), 6.4e6, 7.2e6)


def test_what_a_kernel_does_not_know_is_none():
    old = Socket(*DATA, rtt=20_000)
    found = trace_of([Sample(1.0, [old]), Sample(2.0, [old]), Sample(3.0)])
    assert (found.sent, found.retransmits, found.cwnd) == ((None,) * 3,) * 3
    assert found.rtt == (0.02, 0.02, None)


def test_a_connection_opened_in_between_has_sent_all_that_it_counts():
    found = trace_of(
        [Sample(0.0, [sent(CONTROL, 1)]), Sample(1.0, [sent(CONTROL, 1), sent(DATA, 1000)])]
    )
    assert found.sent == (None, 8000)


def test_the_busiest_processor_is_taken_over_a_quarter_of_a_second():
    times = [(0.0, 0.0, 0.0), (0.1, 0.1, 0.0), (0.3, 0.1, 0.2), (0.4, 0.1, 0.3)]
    points = [
        Sample(at, (), tuple(Cpu(user=busy, idle=at - busy) for busy in each))
        for at, *each in times
    ]
    assert trace_of(points).cpu == (None, None, 0.667, 1.0)


def test_a_trace_of_nothing_is_empty():
    assert trace_of([]) == NO_TRACE


def test_what_is_outside_of_the_test_or_lacks_a_column_is_cut():
    long = Trace((1.0, 2.0, 3.0), *[(7.0,) * 3] * 8)
    assert trace_within(long, 1.5, 2.5) == Trace((2.0,), *[(7.0,)] * 8)
    assert trace_within(long, 4, 5) == NO_TRACE
    assert trace_within(Trace((1.0, 2.0), *[(7.0,)] * 8), 0, 9).time == (1.0,)


def test_the_peers_times_become_ours():
    told = {"time": [1000.0, 1001.0], **{name: [1.0, None] for name in COLUMNS}}
    found = shifted_trace(observations_of({"trace": told}).sender_trace, 990.0)
    assert (found.time, found.rtt) == ((10.0, 11.0), (1.0, None))
    assert shifted_trace(Trace((5.0,)), -1.5).time == (6.5,)


COLUMNS = "sent received rtt cwnd snd_wnd in_flight retransmits cpu".split()


@pytest.mark.parametrize("told", [[], {"time": ["x"]}, {"time": [1e300]}, {"rtt": [True]}])
def test_a_peers_trace_of_wrong_types_is_refused(told):
    with pytest.raises(ChannelError):
        observations_of({"trace": told})


@pytest.mark.parametrize("clock", [None, True, "1", -1, float("nan"), float("inf"), 1e300])
def test_a_peer_without_a_clock_is_refused(clock):
    with pytest.raises(ChannelError):
        clock_of({"clock": clock})
    assert clock_of({"clock": 12}) == 12.0


def test_a_recorder_sees_a_connection_and_the_processors(monkeypatch):
    monkeypatch.setattr(series, "MAX_POINTS", 1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as one:
            accepted = server.accept()[0]
            with accepted:
                one.sendall(b"x" * 1000)
                seen = SampleSeries(4, seconds=1e-9, remote_port=port)
                end = time.monotonic() + 0.5
                while time.monotonic() < end:
                    seen.turn()
                found = seen.end().trace
    assert len(found.time) == 2
    assert all(found.cwnd)
    assert found.time == tuple(sorted(found.time))


def test_a_long_test_has_no_more_points_than_a_short_one(monkeypatch):
    monkeypatch.setattr(series, "SAMPLE_SECONDS", math.inf)
    seen = SampleSeries(4, seconds=3600)
    assert seen.due() - seen.end().trace.time[0] >= 5.9


def test_what_did_not_change_is_left_out_but_in_the_first_sample():
    first, later = {"a": 1, "b": 5}, [{"a": 1, "b": 6}, {"a": 2, "b": 6}]
    assert [series._changed_counters(first, values) for values in later] == [
        {"b": 6},
        {"a": 2, "b": 6},
    ]


def test_one_look_serves_for_a_sample_and_for_a_point(monkeypatch):
    clock = SimpleNamespace(now=100.0)
    clock.monotonic, clock.thread_time = (lambda: clock.now), (lambda: 0.0)
    monkeypatch.setattr(series, "time", clock)
    observer = SampleSeries(4, seconds=1.5)
    while clock.now < 101.3:
        clock.now = max(clock.now, observer.due())
        observer.turn()
    seen = observer.end()
    assert len(seen.samples) > 2
    assert {round(sample.time, 6) for sample in seen.samples[:-1]} <= set(seen.trace.time)


def test_points_take_a_twentieth_of_a_cpu_at_most(monkeypatch):
    """Each look takes 50 ms of a CPU here."""
    clock = SimpleNamespace(used=0.0, monotonic=lambda: 100.0)

    def thread_time():
        clock.used += 0.05
        return clock.used

    clock.thread_time = thread_time
    monkeypatch.setattr(series, "time", clock)
    assert SampleSeries(4, seconds=1.5)._point_due == pytest.approx(101.0)


def test_the_samples_of_an_hour_with_all_streams_fit_into_a_message():
    """If they did not, the helper would be lost for the rest of the test."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=256))
        for _ in range(129):
            stack.enter_context(socket.create_connection(server.getsockname()))
            stack.enter_context(server.accept()[0]).sendall(b"x" * 10000)
        observer = SampleSeries(4, 3600.0, remote_port=server.getsockname()[1])
        interval = observer._sample_due - observer._samples[0].time
        samples = observer.end().samples
    assert len(samples[-1].sockets) == 129
    size = len(json.dumps(encode(samples[-1]), separators=(",", ":")))
    assert size * 3600 / interval < LONGEST_MESSAGE


def test_many_connections_are_read_less_often(monkeypatch):
    monkeypatch.setattr(series, "CONNECTION_SECONDS", 3.0)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()),
    ):
        observer = SampleSeries(4, seconds=1.5, remote_port=server.getsockname()[1])
        assert observer._point_due - time.monotonic() > 2
