"""The table of causes: it names conditions that exist, gives each row a reason, and goes in no circle."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from neuca_tools.selftest.conditions.messages import LOST
from neuca_tools.selftest.conditions.table import (
    BLOAT,
    BUSY,
    DOUBTS,
    DROPS,
    EXPLANATIONS,
    FAILED,
    NOT_AS_PLANNED,
    NOTHING_SENT,
    UNFINISHED,
    UNREACHABLE,
    causes_of,
    is_explained,
    tell_apart,
)
from neuca_tools.selftest.conditions.table import CAUSES as CONDITIONS
from neuca_tools.selftest.conditions.thresholds import BIDIRECTIONAL
from neuca_tools.selftest.conditions.udp import OVERLOADED

NAMES = {cause.id for cause in CONDITIONS} | {DROPS, BLOAT, OVERLOADED, LOST}


@pytest.mark.parametrize("row", EXPLANATIONS, ids=lambda row: "-".join(row.symptoms))
def test_a_row_names_conditions_that_exist_and_gives_a_reason(row):
    assert {*row.symptoms, *row.causes} <= NAMES
    assert not set(row.symptoms) & set(row.causes)
    assert len(row.reason.split()) > 4


def test_outcomes_name_conditions_that_exist():
    assert {BUSY, NOTHING_SENT, FAILED} | UNREACHABLE | NOT_AS_PLANNED | UNFINISHED <= NAMES


def test_no_condition_explains_itself_in_a_circle():
    symptoms = {symptom for row in EXPLANATIONS for symptom in row.symptoms}
    graph = {symptom: causes_of(symptom) for symptom in symptoms}
    order = list(TopologicalSorter(graph).static_order())
    assert order.index("D21") < order.index("D05")


def test_a_symptom_is_explained_by_any_one_of_its_causes_and_by_nothing_else():
    assert is_explained(("D05", "limited by loss"), "tcp", {"D05", "D11"})
    assert not is_explained(("D05", "limited by loss"), "tcp", {"D05", "D09"})


def test_of_two_conditions_with_one_id_the_title_decides():
    assert is_explained(("D14", "bufferbloat"), "tcp", {"D26"})
    assert not is_explained(("D14", "queue drops"), "tcp", {"D26"})


def test_sharing_the_path_explains_only_the_phase_in_which_it_is_shared():
    assert is_explained(("D18",), BIDIRECTIONAL, {"D28"})
    assert not is_explained(("D18",), "tcp", {"D28"})


def test_datagrams_that_overtake_others_do_not_lower_the_rate_at_which_they_arrive():
    assert is_explained(("D18",), "tcp-parallel", {"D39"})
    assert not is_explained(("D18",), "udp", {"D39"})


def test_sharing_that_has_a_cause_of_its_own_explains_nothing():
    assert not is_explained(("D05",), BIDIRECTIONAL, {"D28", "D01"})


def test_a_queue_that_drops_explains_loss_and_a_full_cpu_does_not():
    assert "D11" in causes_of("D05")
    assert "D09" not in causes_of("D05")


def test_a_doubt_names_conditions_that_exist_and_a_test():
    for conditions, test in DOUBTS.items():
        assert len(conditions) == 2
        assert conditions <= NAMES
        assert "(--" in test or "--rate" in test


def test_what_two_conditions_have_in_common_is_told_apart_in_either_order():
    assert tell_apart("D17", "D05") == (
        "D17 or D05: UDP (--only udp --rate): nothing lost up to some rate means a policer, loss "
        "at a tenth of it the path"
    )
    assert tell_apart("D05", "D17")
    assert tell_apart("D05", "D43") is None


def test_what_is_explained_by_its_title_has_a_title_of_the_manual():
    """Its rule and the table share one constant: a title that is changed in one place is missing here."""
    ids = {cause.id for cause in CONDITIONS}
    page = (Path(__file__).parents[2] / "docs/man/neuca-selftest.1").read_text()
    titles = {title for line in page.splitlines() for title in line.split("; ")}
    used = {name for row in EXPLANATIONS for name in (*row.symptoms, *row.causes)} - ids
    assert used <= titles
