"""Which paths get a full diagnosis: those of confirmed findings, after the retests."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from neuca_tools.selftest.mesh.model import MeshPlan, Pair, Row, identity
from neuca_tools.selftest.mesh.schedule import packed
from neuca_tools.selftest.mesh.verdict import judge

# The most paths of a run: a diagnosis takes longer than a test.
MOST = 8


def with_diagnoses(plan: MeshPlan, rows: Sequence[Row]) -> MeshPlan:
    """The plan with slots for the diagnoses, which are none if nothing is confirmed.

    The sender of the latest bad test of a finding is the client. Of what groups share, several
    paths are tested at a time: one of them alone may not fill it.
    """
    numbers = {host.name: number for number, host in enumerate(plan.hosts)}
    paths: dict[tuple[str, str], None] = {}
    for finding in judge(plan, rows).confirmed:
        paths.update(dict.fromkeys(finding.paths))
    pairs: list[Pair] = [(numbers[sender], numbers[receiver]) for sender, receiver in paths]
    slots = (*plan.slots, *packed(plan, pairs[:MOST]))
    return replace(plan, slots=slots, diagnoses=len(plan.slots), origin=identity(plan))
