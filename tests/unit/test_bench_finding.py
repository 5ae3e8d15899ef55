"""A finding of tests/bench/tuning that misses its aim is printed as a miss."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.append(str(Path(__file__).parents[1] / "bench" / "tuning"))

from finding import Finding, markdown, ratio

SLOW, FAST = SimpleNamespace(rate=200e6), SimpleNamespace(rate=500e6)


@pytest.mark.parametrize(
    ("figure", "least", "most", "met", "aim"),
    [
        (2.3, 2.3, None, True, "at least 2.3"),
        (2.29, 2.3, None, False, "at least 2.3"),
        (0.1, None, 0.1, True, "at most 0.1"),
        (0.11, None, 0.1, False, "at most 0.1"),
        (1.06, 0.95, 1.05, False, "0.95 to 1.05"),
        (1599, 1600, 1600, False, "1600"),
    ],
)
def test_a_figure_meets_its_aim_or_misses_it(figure, least, most, met, aim):
    one = Finding("effect", "before", "after", figure, least, most)
    assert (one.met, one.cells()[-1]) == (met, aim)
    assert str(one).endswith(" | met" if met else " | MISSED")


def test_the_figure_of_two_flows_is_their_ratio():
    assert ratio("TCP", SLOW, FAST).figure == 2.5


def test_a_table_has_every_finding_and_its_counter_examples_by_name():
    findings = [
        Finding("lost", "70%", "–", 70, 50, unit="%"),
        Finding("no bursts", 1, "–", 1, most=0, unit="", counter=True),
    ]
    assert markdown(findings).splitlines() == [
        "| effect | published | untuned | tuned | figure |",
        "| --- | --- | --- | --- | --- |",
        "| lost | – | 70% | – | 70.00% |",
        "| but: no bursts | – | 1 | – | 1 |",
    ]
