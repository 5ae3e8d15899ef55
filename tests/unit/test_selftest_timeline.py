"""The timeline of a report: where each test is on the time axis, what its lines are made of, and how it is drawn."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from selftest_pages import EACH, large, tcp_phase, traced
from selftest_runs import PUBLISHED

from neuca_tools.selftest.evidence import Evidence, Phase, Sample
from neuca_tools.selftest.evidence.run import Flow, Interval, Run
from neuca_tools.selftest.evidence.trace import NO_TRACE, Trace
from neuca_tools.selftest.readers.documents import evidence_of
from neuca_tools.selftest.report.panels import (
    Band,
    Line,
    Panel,
    svg_figure,
)
from neuca_tools.selftest.report.timeline import timeline_panels

DATA = Path(__file__).parent / "data" / "iperf"
RATE, _, WINDOW, AGAIN, WHERE, CPU = range(6)


def bands(evidence):
    return [(one.name, one.start, one.end) for one in timeline_panels(evidence)[1]]


def test_each_test_is_where_it_was_by_the_local_hosts_clock():
    evidence = large()
    phases = (evidence.phases[0], evidence.phases[1], evidence.phases[3])
    assert bands(replace(evidence, phases=phases)) == [
        ("tcp", 0.0, 10.0),
        ("tcp ←", EACH, EACH + 10.0),
        ("tcp-bidir", 3 * EACH, 3 * EACH + 10.0),
    ]


def test_the_lines_of_a_panel_have_different_names_and_colours():
    for panel in timeline_panels(large())[0]:
        for values in ([line.name for line in panel.lines], [line.color for line in panel.lines]):
            assert len(set(values)) == len(values) > 1, panel.title


def test_a_trace_is_preferred_to_samples_and_drawn_at_its_own_times():
    panels, _ = timeline_panels(Evidence(phases=(traced(tcp_phase("tcp"), 0),)))
    rate = panels[RATE].lines[0].parts[0]
    assert len(rate) == 100
    assert [time for time, _ in rate[:3]] == pytest.approx([0.0, 0.1, 0.2])
    assert rate[0][1] == 2e8
    again = panels[AGAIN].lines[0].parts[0]
    assert again[19][1] == pytest.approx(30)  # 3 in 0.1 s


def test_a_trace_with_the_same_time_twice_has_no_rate_of_retransmits_there():
    phase = traced(tcp_phase("tcp"), 0)
    trace = replace(phase.sender_trace, time=(0.0, 0.0, 0.5), retransmits=(None, 5.0, 6.0))
    panels, _ = timeline_panels(Evidence(phases=(replace(phase, sender_trace=trace),)))
    assert [value for _, value in panels[AGAIN].lines[0].parts[0]] == [12.0]


def test_a_peers_samples_of_another_clock_are_drawn_at_our_times():
    """In reverse the sender is the peer: only the distance to its first sample counts."""
    phase = tcp_phase("tcp", "reverse")
    phase = replace(phase, sender=tuple(replace(one, time=one.time + 1e6) for one in phase.sender))
    panels, found = timeline_panels(Evidence(phases=(phase,)))
    times = [time for time, _ in panels[WHERE].lines[0].parts[0]]
    assert (times[0], times[-1], found[0].end) == (1.0, 10.0, 10.0)


def test_a_test_may_take_less_than_a_second():
    for intervals, end in (((), 0.0), ((Interval(0.0, 0.5, rate=1e9),), 0.5)):
        run = Run("iperf3", protocol="tcp", flows=(Flow("forward", intervals),))
        assert bands(Evidence(phases=(Phase("tcp", run=run),))) == [("tcp", 0.0, end)]


def test_runs_without_a_clock_follow_one_another():
    one, two = (evidence_of((DATA / name).read_bytes()).phases[0] for name in FILES)
    first, second = bands(Evidence(phases=(one, two)))
    assert (first[1], second[1]) == (0.0, first[2])


FILES = ("3.12-tcp.json", "3.16-tcp.json")


def test_two_directions_of_one_run_are_one_band():
    evidence = evidence_of((DATA / "3.12-bidir.json").read_bytes())
    assert len(evidence.phases) == 2
    assert len(bands(evidence)) == 1
    rate = timeline_panels(evidence)[0][RATE]
    assert [(one.name, bool(one.parts[0])) for one in rate.lines] == [
        ("to the peer", True),
        ("from the peer", True),
    ]


def test_what_iperf_counted_lasts_for_the_whole_interval():
    panels, _ = timeline_panels(evidence_of(PUBLISHED["vm-tuned-tcp"]))
    assert panels[RATE].lines[0].parts[0][:4] == [
        (0.0, 2.79e9),
        (10.0, 2.79e9),
        (10.0, 4.21e9),
        (20.0, 4.21e9),
    ]
    assert panels[AGAIN].lines[0].parts[0][4:6] == [(20.0, 43.4), (30.0, 43.4)]


def test_of_udp_nothing_is_shown_of_the_tcp_connection_that_controls_it():
    evidence = large()
    udp = replace(evidence, phases=evidence.phases[4:5])
    panels, _ = timeline_panels(udp)
    assert [bool(one.lines and any(one.lines[0].parts)) for one in panels] == [
        True,
        False,
        False,
        False,
        False,
        True,
    ]


def test_a_receivers_window_without_effect_does_not_hide_the_others():
    panels, _ = timeline_panels(Evidence(phases=(traced(tcp_phase("tcp"), 0),)))
    cwnd, window, _ = (one.parts[0] for one in panels[WINDOW].lines)
    assert (len(cwnd), len(window)) == (100, 0)


def test_a_phase_of_which_nothing_is_known_is_no_band_of_any_width():
    assert timeline_panels(Evidence())[1] == []
    empty = replace(tcp_phase("tcp"), sender=(), receiver=())
    assert svg_figure(*timeline_panels(Evidence(phases=(empty,)))) == ""


def test_a_trace_with_times_far_away_stays_within_the_figure():
    far = Trace((-1e18, 1e18), *[(1e18, -1e18)] * 8)
    phase = replace(traced(tcp_phase("tcp"), 0), receiver_trace=far)
    picture = svg_figure(*timeline_panels(Evidence(phases=(phase,))))
    numbers = [float(one) for one in re.findall(r'\b(?:x|y|cx|cy)="([^"]+)"', picture)]
    numbers += [float(one) for one in re.findall(r"[\d.]+", " ".join(POINTS.findall(picture)))]
    assert all(0 <= one <= 1000 for one in numbers)


POINTS = re.compile(r'points="([^"]+)"')


def test_bands_have_their_names_where_there_is_room_and_as_a_tooltip():
    found = [Band("tcp", 0, 50), Band("tcp-parallel, 8 streams", 50, 55), Band("udp", 55, 100)]
    picture = svg_figure([Panel("Rate", str, [Line("a", 0, [[(0, 1), (9, 2)]])])], found)
    labels = re.findall(r'"label"[^>]*>([^<]*)<', picture)
    assert [name for name in labels if name != "a"] == ["tcp", "udp"]
    assert re.findall("<title>([^<]*)<", picture) == [band.name for band in found]


def test_samples_without_processors_have_no_line():
    phase = replace(
        tcp_phase("tcp"), sender=(Sample(0.0), Sample(1.0)), receiver=(), sender_trace=NO_TRACE
    )
    assert timeline_panels(Evidence(phases=(phase,)))[0][CPU].lines[0].parts == [[]]
