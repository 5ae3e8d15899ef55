"""Several paths to one place, each tested in turn and more than once: what each of them costs against the first, the baseline."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import NamedTuple, Optional

from neuca_tools.selftest.conditions.path import TUNNELS
from neuca_tools.selftest.conditions.session import links_of
from neuca_tools.selftest.diagnosis.compare import DEVIATIONS, numbered
from neuca_tools.selftest.diagnosis.diagnose import Diagnosis, diagnose
from neuca_tools.selftest.evidence import Evidence, Phase
from neuca_tools.selftest.evidence.run import Run

RATE, CONNECTIONS, TIME, BYTES = "bit/s", "connections/s", "s", "bytes"
LESS_IS_BETTER = (TIME,)
Key = tuple[str, str, int]  # name, direction, and which of those that share them


class Tests(NamedTuple):
    """All tests of one path, in order of time; at least one."""

    label: str
    rounds: tuple[Evidence, ...]


@dataclass(frozen=True)
class Value:
    """What one path reached in one measurement: median and median absolute deviation of `count` rounds.

    `tax` is the part of the baseline's that is missing, of a time the part that came to it; below zero: the path is better.
    `alike`: the difference is no more than either path varies by itself; None where that is not known, or it is the baseline.
    """

    label: str
    median: float
    deviation: float
    count: int
    tax: Optional[float] = None
    alike: Optional[bool] = None


@dataclass(frozen=True)
class Row:
    """One measurement over every path that has it, the baseline first."""

    name: str
    direction: str
    unit: str
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Verdict:
    """One path's most typical test, with what the baseline says of it."""

    label: str
    evidence: Evidence
    diagnosis: Diagnosis


@dataclass(frozen=True)
class PathComparison:
    """All paths against the first."""

    rows: tuple[Row, ...]
    verdicts: tuple[Verdict, ...]


def compare_paths(paths: Sequence[Tests]) -> PathComparison:
    """`paths` has the baseline first."""
    under = _typical(paths[0])
    verdicts = tuple(
        _verdict(path, None if place == 0 else under) for place, path in enumerate(paths)
    )
    return PathComparison(tuple(_rows(paths)), verdicts)


def _rows(paths: Sequence[Tests]) -> Iterator[Row]:
    """In the order of the baseline's measurements, followed by those it does not have."""
    measured = [(path.label, [_measured(one) for one in path.rounds]) for path in paths]
    known = dict.fromkeys(key for _, rounds in measured for one in rounds for key in one)
    for key, unit in known:
        found = [_value(label, _all_of(rounds, (key, unit))) for label, rounds in measured]
        values = [value for value in found if value is not None]
        baseline = values[0] if values[0].label == paths[0].label else None
        others = values[1:] if baseline else values
        compared = [_against(baseline, value, unit) for value in others]
        yield Row(key[0], key[1], unit, tuple([baseline, *compared] if baseline else compared))


def _all_of(rounds: Sequence[dict[tuple[Key, str], float]], key: tuple[Key, str]) -> list[float]:
    """What each round that has this measurement reached."""
    return [one[key] for one in rounds if key in one]


def _measured(evidence: Evidence) -> dict[tuple[Key, str], float]:
    """Everything of one test that can be compared. A search for the loss-free rate offers each path other rates."""
    diagnosis = diagnose(evidence)
    searched = {(one.name, one.direction) for one in evidence.phases if one.search}
    found = {
        (_streams(key, phase), RATE): one.rate
        for (key, one), phase in zip(numbered(diagnosis.phases), evidence.phases)
        if key[:2] not in searched
    }
    found[("connections", "", 0), CONNECTIONS] = evidence.connections.rate
    found[("path MTU", "", 0), BYTES] = evidence.path_mtu.forward
    for name, latency in (
        ("latency", evidence.idle),
        ("latency TCP", evidence.idle_tcp),
        ("latency loaded", evidence.loaded),
        ("broadcast", evidence.broadcast.times),
    ):
        found[(name, "", 0), TIME] = latency.p50
    return {key: float(value) for key, value in found.items() if value is not None}


def _streams(key: Key, phase: Phase) -> Key:
    """One stream and eight are two measurements, whatever each path got through before."""
    streams = phase.run.streams if phase.run and phase.name == "tcp-parallel" else None
    return (f"{key[0]} {streams}", key[1], 0) if streams else key


def _value(label: str, known: Sequence[float]) -> Optional[Value]:
    if not known:
        return None
    middle = median(known)
    return Value(label, middle, median(abs(one - middle) for one in known), len(known))


def _against(baseline: Optional[Value], value: Value, unit: str) -> Value:
    if baseline is None or not baseline.median or unit == BYTES:
        return value
    more = value.median / baseline.median - 1
    alike = None
    if min(baseline.count, value.count) > 1:
        alike = abs(value.median - baseline.median) <= DEVIATIONS * max(
            baseline.deviation, value.deviation
        )
    return replace(value, tax=more if unit in LESS_IS_BETTER else -more, alike=alike)


def _typical(path: Tests) -> Evidence:
    """The round whose first rate is the middle one; one in which something was measured, if there is any."""
    rated = [
        (rate, place)
        for place, one in enumerate(path.rounds)
        if (rate := _first_rate(one)) is not None
    ]
    return path.rounds[sorted(rated)[len(rated) // 2][1]] if rated else path.rounds[-1]


def _first_rate(evidence: Evidence) -> Optional[float]:
    return next((one.rate for one in diagnose(evidence).phases if one.rate is not None), None)


def _verdict(path: Tests, under: Optional[Evidence]) -> Verdict:
    """That nothing explains a rate which nobody has asked for is no fault of a path: it is compared, and not judged."""
    evidence = _typical(path)
    found = diagnose(evidence if under is None else beside(evidence, under))
    unexplained = found.unexplained if found.expect is not None else None
    return Verdict(
        path.label,
        evidence,
        replace(found, phases=found.phases[: len(evidence.phases)], unexplained=unexplained),
    )


def beside(over: Evidence, under: Evidence) -> Evidence:
    """A test over a tunnel with the rates of the path below it, for the conditions that compare the two; else as it is."""
    if not any(link.kind in TUNNELS for host in (over.local, over.peer) for link in links_of(host)):
        return over
    phases = (
        *(replace(one, path="overlay") for one in over.phases),
        *(_total(one) for one in under.phases if one.run),
    )
    return replace(over, phases=phases)


def _total(phase: Phase) -> Phase:
    """A phase's totals alone: with its samples it would be judged as if it had gone over the tunnel."""
    run = phase.run or Run("iperf3")
    flows = tuple(replace(flow, intervals=()) for flow in run.flows)
    return Phase(
        phase.name,
        replace(run, flows=flows, error=None, connections=()),
        phase.direction,
        path="underlay",
        search=True,
    )
