"""What the failures of the last pass cost of the operations that are left to do."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Optional

from neuca_tools.model import LinkKey, Problem
from neuca_tools.plan.link_operations import CreateLink
from neuca_tools.plan.operation import Operation, Plan, joined_domains, of_kind


def apply_failures(failed: Sequence[Problem], left: Plan) -> tuple[list[Problem], Plan]:
    """The problems of links whose changes were rolled back, and the operations without a failure.

    `failed` are the failures of NICs for which operations are `left`.
    """
    operations = _failed_operations(failed, left)
    serious = [problem for problem in failed if not _spares_others(problem, operations)]
    groups = {operation.failing_domains for operation in left}
    lost = joined_domains(_macs(serious), groups)
    tried = {*operations.values()}
    missing = {creation.on.key for creation in of_kind(tried, CreateLink)}
    without_failure = tuple(
        operation
        for operation in left
        if operation.domain not in lost
        and operation not in tried
        and operation.needed.isdisjoint(missing)
    )
    return _rolled_back(serious, left, groups), without_failure


def _macs(problems: Iterable[Problem]) -> set[str]:
    return {problem.link.mac for problem in problems if problem.link}


def _failed_operations(failed: Iterable[Problem], left: Plan) -> Mapping[Problem, Operation]:
    """The operation that each failure is about, as far as it is still to be done."""
    by_link: defaultdict[Optional[LinkKey], list[Problem]] = defaultdict(list)
    for problem in failed:
        by_link[problem.link].append(problem)
    return {
        problem: operation
        for operation in left
        for problem in by_link[operation.link and operation.link.key]
        if problem.text.startswith(f"{operation.text}: ")
    }


def _spares_others(problem: Problem, operations: Mapping[Problem, Operation]) -> bool:
    """Whether nothing else was rolled back because of this failure."""
    operation = operations.get(problem)
    return problem.code == "pending" or (operation is not None and operation.spares_others)


def _rolled_back(
    serious: Sequence[Problem], left: Iterable[Operation], groups: Iterable[frozenset[str]]
) -> list[Problem]:
    """A problem for each other link of a failed NIC, whose changes were rolled back too."""
    first: dict[str, Problem] = {}
    for problem in serious:
        if problem.link:
            for mac in joined_domains({problem.link.mac}, groups):
                first.setdefault(mac, problem)
    links = {step.link.key for step in left if step.link and step.domain in first}
    links -= {problem.link for problem in serious if problem.link}
    return [
        Problem("failed", f"rolled back, because this failed: {first[key.mac].text}", key)
        for key in sorted(links)
    ]
