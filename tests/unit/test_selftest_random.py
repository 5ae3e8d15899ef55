"""Random runs, by seed: the diagnosis depends on the figures, not on who wrote them down, nor how."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from selftest_runs import diagnose
from test_selftest_agrees import PRINTED
from test_selftest_formats import NAMES, as_json, text
from test_selftest_printed import udp

from neuca_tools.selftest.conditions.table import DOUBTS
from neuca_tools.selftest.diagnosis.diagnose import Diagnosis
from neuca_tools.selftest.evidence import Evidence, Phase
from neuca_tools.selftest.readers.documents import OPPOSITE, evidence_of

SEEDS = range(60)
# Two that say the opposite of one phase: lost at any rate, or above one; sent as asked, or limited.
EXCLUDING = ({"D05", "D17"}, {"D05", "D18"}, {"D01", "D17"}, {"D04", "D01"}, {"D04", "D18"})
SHORT_SECONDS = 2.0
SWAPPED = {"local": "peer", "peer": "local", "forward": "reverse", "reverse": "forward"}


def drawn(seed: int) -> list[list[dict[str, float]]]:
    """What each stream sent in each second: even or not, with or without losses, at any rate."""
    chance = random.Random(seed)
    usual = chance.choice((941e6, 94.1e6, 100e6, 9.4e9, 10 ** chance.uniform(6, 10.3))) / 8
    spread, most = chance.choice((0, 0.005, 0.02, 0.2, 0.6)), chance.choice((0, 0, 1, 90))
    streams, window = chance.choice((1, 1, 4)), chance.choice((0, 0.01, 0.4))
    return [
        [
            {
                "bytes": round(usual * max(0.0, chance.gauss(1, spread)) / streams),
                "retransmits": chance.randint(0, most),
                "cwnd": round(300_000 * max(0.005, chance.gauss(1, window))),
            }
            for _ in range(streams)
        ]
        for _ in range(chance.choice((1, 2, 4, 8, 20)))
    ]


def told(content: str) -> Diagnosis:
    return diagnose(evidence_of(content.encode()))


def said(diagnosis: Diagnosis) -> list[tuple[str, ...]]:
    """Of each finding and guess what can be compared, without figures."""
    every = (*diagnosis.findings, *diagnosis.possible)
    return [(one.id, one.title, one.severity, one.confidence, one.end) for one in every]


@pytest.mark.parametrize("seed", SEEDS)
def test_text_and_json_of_a_run_have_the_same_diagnosis(seed):
    seconds = drawn(seed)
    assert said(told(text(seconds, "k"))) == said(told(as_json(seconds)))


@pytest.mark.parametrize("seed", SEEDS)
def test_no_finding_denies_another_and_little_evidence_is_never_sure(seed):
    seconds = drawn(seed)
    diagnosis = told(text(seconds))
    certain = {one.id for one in diagnosis.findings if one.severity != "info"}
    assert not [pair for pair in EXCLUDING if pair <= certain]
    for finding in diagnosis.findings:
        alike = any(frozenset({finding.id, other}) in DOUBTS for other in certain - {finding.id})
        assert not alike or finding.tell or finding.severity == "info"
        assert finding.confidence != "high" or len(seconds) > SHORT_SECONDS


@pytest.mark.parametrize("name", PRINTED)
def test_lines_of_other_programs_change_nothing(name):
    known = told(PRINTED[name])
    other = "make: Nothing to be done for 'all'.\n"
    lines = [other, PRINTED[name].rstrip("\n"), "\n", other]
    assert said(told("".join(lines))) == said(known)
    assert told("".join(lines)).exit_code == known.exit_code


def mirrored(evidence: Evidence) -> Evidence:
    """The same test, as the other end would have run it in the reverse direction."""
    phases = tuple(map(_mirrored_phase, evidence.phases))
    return replace(evidence, local=evidence.peer, peer=evidence.local, phases=phases)


def _mirrored_phase(phase: Phase) -> Phase:
    flows = tuple(replace(flow, direction=OPPOSITE[flow.direction]) for flow in phase.run.flows)
    loads = {"cpu_local": phase.run.cpu_remote, "cpu_remote": phase.run.cpu_local}
    run = replace(phase.run, flows=flows, **loads)
    return replace(phase, run=run, direction=OPPOSITE[phase.direction])


@pytest.mark.parametrize("name", PRINTED)
def test_the_reverse_direction_swaps_the_ends(name):
    evidence = evidence_of(PRINTED[name].encode())
    if any(phase.run.connections for phase in evidence.phases):
        connections = ()  # their ports say which end wrote the text
        evidence = replace(
            evidence,
            phases=tuple(
                replace(phase, run=replace(phase.run, connections=connections))
                for phase in evidence.phases
            ),
        )
    wanted = [
        tuple(SWAPPED.get(word, word) for word in finding) for finding in said(diagnose(evidence))
    ]
    assert said(diagnose(mirrored(evidence))) == wanted


@pytest.mark.parametrize("unit", ["", *NAMES])
@pytest.mark.parametrize("rate", [94.1e6, 941e6, 9.41e9])
@pytest.mark.parametrize(("streams", "each"), [(1, 1), (4, 1), (16, 0.5), (1, 10)])
@pytest.mark.parametrize("header", ["", "Reverse mode, remote host is sending\n"])
def test_a_full_link_is_healthy_in_every_unit(rate, unit, streams, each, header):
    stream = {"bytes": round(rate / 8 / streams * each), "retransmits": 0, "cwnd": 400_000}
    diagnosis = told(header + text([[stream] * streams] * 10, unit, each))
    assert [one.id for one in diagnosis.findings if one.severity != "info"] == []
    assert (diagnosis.failures, diagnosis.exit_code) == ((), 0)


@pytest.mark.parametrize("rate", [1.05, 94, 941])
@pytest.mark.parametrize("header", ["", "Reverse mode, remote host is sending\n"])
def test_datagrams_that_all_arrive_are_healthy(rate, header):
    diagnosis = told(f"$ iperf3 -c x -u -b {rate}M\n{header}" + udp([rate] * 10, [rate] * 10))
    assert [one.id for one in diagnosis.findings if one.severity != "info"] == []
    assert (diagnosis.failures, diagnosis.exit_code) == ((), 0)
