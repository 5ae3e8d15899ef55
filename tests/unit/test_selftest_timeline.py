"""The timeline of a report: where each test is on the time axis, what its lines are made of, and how it is drawn."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from selftest_pages import EACH, large, tcp_phase, traced
from selftest_runs import PUBLISHED

from neuca_tools.selftest.evidence import Cpu, Evidence, Phase, Sample, Socket
from neuca_tools.selftest.evidence.run import Flow, Interval, Run
from neuca_tools.selftest.readers.documents import evidence_of
from neuca_tools.selftest.report.panels import (
    Band,
    Line,
    Panel,
    svg_figure,
)
from neuca_tools.selftest.report.timeline import timeline_panels

DATA = Path(__file__).parent / "data" / "iperf"
RATE, RTT, WINDOW, AGAIN, WHERE, CPU = range(6)


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


def counted(time: float, again: int, rtt: int) -> Sample:
    busy = Cpu(user=time / 2, idle=time / 2)
    return Sample(time, (Socket(mss=1448, snd_cwnd=10, total_retrans=again, rtt=rtt),), (busy,))


def test_samples_are_preferred_to_intervals():
    samples = (counted(5.0, 0, 1000), counted(6.0, 3, 2000), counted(8.0, 3, 3000))
    interval = Interval(0.0, 3.0, rate=1e6, retransmits=7, rtt=0.5, cwnd=9e9)
    run = Run("iperf3", protocol="tcp", flows=(Flow("forward", (interval,)),))
    panels, _ = timeline_panels(Evidence(phases=(Phase("tcp", run, sender=samples),)))
    assert panels[RATE].lines[0].parts[0] == [(0.0, 1e6), (3.0, 1e6)]
    assert panels[RTT].lines[0].parts[0] == [(0.0, 0.001), (1.0, 0.002), (3.0, 0.003)]
    assert panels[WINDOW].lines[0].parts[0] == [(at, 14480.0) for at in (0.0, 1.0, 3.0)]
    assert panels[AGAIN].lines[0].parts[0] == [(1.0, 3.0), (3.0, 0.0)]
    assert panels[CPU].lines[0].parts[0] == [(1.0, 0.5), (3.0, 0.5)]


def test_samples_at_the_same_time_have_no_rate_of_retransmits():
    samples = (counted(0.0, 0, 1000), counted(0.0, 5, 1000), counted(0.5, 11, 1000))
    panels, _ = timeline_panels(Evidence(phases=(Phase("tcp", sender=samples),)))
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
    phase = tcp_phase("tcp", snd_cwnd=400, unacked=300)
    panels, _ = timeline_panels(Evidence(phases=(phase,)))
    cwnd, window, _ = (one.parts[0] for one in panels[WINDOW].lines)
    assert (len(cwnd), len(window)) == (11, 0)


def test_a_phase_of_which_nothing_is_known_is_no_band_of_any_width():
    assert timeline_panels(Evidence())[1] == []
    empty = replace(tcp_phase("tcp"), sender=(), receiver=())
    assert svg_figure(*timeline_panels(Evidence(phases=(empty,)))) == ""


def test_samples_with_times_far_away_stay_within_the_figure():
    far = tuple(Sample(at, (), (Cpu(user=at, idle=1e18),)) for at in (-1e18, 0.0, 1e18))
    phase = replace(traced(tcp_phase("tcp"), 0), receiver=far)
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
    phase = replace(tcp_phase("tcp"), sender=(Sample(0.0), Sample(1.0)), receiver=())
    assert timeline_panels(Evidence(phases=(phase,)))[0][CPU].lines[0].parts == [[]]
