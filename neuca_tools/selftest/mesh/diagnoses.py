"""Which paths get a full diagnosis: one of each confirmed finding, after the retests."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from neuca_tools.selftest.mesh.model import MeshPlan, Pair, Row
from neuca_tools.selftest.mesh.schedule import packed
from neuca_tools.selftest.mesh.verdict import judge

# The most paths of a run: a diagnosis takes longer than a test.
MOST = 8


def with_diagnoses(plan: MeshPlan, rows: Sequence[Row]) -> MeshPlan:
    """The plan with slots for the diagnoses, which are none if nothing is confirmed.

    The sender of the latest bad test of a finding is the client.
    """
    numbers = {host.name: number for number, host in enumerate(plan.hosts)}
    paths = dict.fromkeys(one.path for one in judge(plan, rows).confirmed[:MOST])
    pairs: list[Pair] = [(numbers[sender], numbers[receiver]) for sender, receiver in paths]
    return replace(plan, slots=(*plan.slots, *packed(plan, pairs)), diagnoses=len(plan.slots))
