"""Compare several paths to the same place, each measured several times, with the first of them."""

# SPDX-License-Identifier: MIT

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple, Optional

from neuca_tools.selftest.conditions.base import TUNNELS
from neuca_tools.selftest.conditions.thresholds import PARALLEL
from neuca_tools.selftest.diagnosis.compare import DEVIATIONS, Key, median_and_deviation, with_keys
from neuca_tools.selftest.diagnosis.diagnose import Diagnosis, diagnose, phase_results
from neuca_tools.selftest.evidence import Evidence, Phase

RATE, CONNECTIONS, TIME, BYTES = "bit/s", "connections/s", "s", "bytes"
LESS_IS_BETTER = (TIME,)
# What is measured, and its unit.
Measurement = tuple[Key, str]


class Tests(NamedTuple):
    """All tests of one path: at least one, in order of time."""

    label: str
    rounds: tuple[Evidence, ...]


@dataclass(frozen=True)
class Value:
    """What one path reached: median and median absolute deviation of `count` rounds.

    `tax` is how much worse it is than the baseline, as a share of the baseline; negative if it is
    better. `alike`: the difference is within the variation of the two paths; None if the variation
    is not known.
    """

    label: str
    median: float
    deviation: float
    count: int
    tax: Optional[float] = None
    alike: Optional[bool] = None


@dataclass(frozen=True)
class Row:
    """One measurement of every path that has it, the baseline first."""

    name: str
    direction: str
    unit: str
    values: tuple[Value, ...]


class Verdict(NamedTuple):
    """The typical round of one path, and its diagnosis with regard to the baseline."""

    label: str
    evidence: Evidence
    diagnosis: Diagnosis


class PathComparison(NamedTuple):
    """All paths compared with the first."""

    rows: tuple[Row, ...]
    verdicts: tuple[Verdict, ...]


def compare_paths(paths: Sequence[Tests]) -> PathComparison:
    """Compare `paths` with the first of them, the baseline."""
    baseline = _typical_round(paths[0])
    others = [_verdict_on_path(path, baseline) for path in paths[1:]]
    verdicts = (_verdict_on_path(paths[0], None), *others)
    return PathComparison(tuple(_rows_of_paths(paths)), verdicts)


def _rows_of_paths(paths: Sequence[Tests]) -> Iterator[Row]:
    """In the order of the baseline's measurements, followed by those it does not have."""
    reached = [_reached_values(path) for path in paths]
    for measurement in dict.fromkeys(chain.from_iterable(reached)):
        (name, direction, _), unit = measurement
        base = reached[0].get(measurement)
        known = [values[measurement] for values in reached if measurement in values]
        compared = [_against_baseline(base, value, unit) for value in known]
        yield Row(name, direction, unit, tuple(compared))


def _reached_values(path: Tests) -> dict[Measurement, Value]:
    """Every measurement that any round of this path has."""
    known: dict[Measurement, list[float]] = {}
    for evidence in path.rounds:
        for measurement, value in dict(_measurements_of(evidence)).items():
            if value is not None:
                known.setdefault(measurement, []).append(float(value))
    return {
        measurement: Value(path.label, *median_and_deviation(values), len(values))
        for measurement, values in known.items()
    }


def _measurements_of(evidence: Evidence) -> Iterator[tuple[Measurement, Optional[float]]]:
    """All that can be compared; a search for the loss-free rate offers each path other rates."""
    searched = {(phase.name, phase.direction) for phase in evidence.phases if phase.search}
    results = with_keys(phase_results(evidence))
    for (key, result), phase in zip(results, evidence.phases):
        if key[:2] not in searched:
            yield (_with_streams(key, phase), RATE), result.rate
    for name, unit, value in (
        ("connections", CONNECTIONS, evidence.connections.rate),
        ("path MTU", BYTES, evidence.path_mtu.forward),
        ("latency", TIME, evidence.idle.p50),
        ("latency TCP", TIME, evidence.idle_tcp.p50),
        ("latency loaded", TIME, evidence.loaded.p50),
    ):
        yield ((name, "", 0), unit), value


def _with_streams(key: Key, phase: Phase) -> Key:
    """Tests with different numbers of streams are different measurements."""
    if phase.name != PARALLEL or phase.run is None or not phase.run.streams:
        return key
    return f"{key[0]} {phase.run.streams}", key[1], 0


def _against_baseline(baseline: Optional[Value], value: Value, unit: str) -> Value:
    if baseline is None or baseline is value or not baseline.median or unit == BYTES:
        return value
    share, alike = value.median / baseline.median, None
    tax = share - 1 if unit in LESS_IS_BETTER else 1 - share
    if min(baseline.count, value.count) > 1:
        deviation = max(baseline.deviation, value.deviation)
        alike = abs(value.median - baseline.median) <= DEVIATIONS * deviation
    return replace(value, tax=tax, alike=alike)


def _typical_round(path: Tests) -> Evidence:
    """The round with the median of the first rates; the last round if no round has a rate."""
    first_rates = []
    for at, test in enumerate(path.rounds):
        rates = [result.rate for result in phase_results(test) if result.rate is not None]
        first_rates += [(rates[0], at)] if rates else []
    if not first_rates:
        return path.rounds[-1]
    return path.rounds[sorted(first_rates)[len(first_rates) // 2][1]]


def _verdict_on_path(path: Tests, under: Optional[Evidence]) -> Verdict:
    """Without an expected rate, an unexplained rate is compared but not judged."""
    evidence = _typical_round(path)
    diagnosis = diagnose(_with_underlay(evidence, under))
    diagnosis = diagnosis._replace(phases=diagnosis.phases[: len(evidence.phases)])
    if diagnosis.expect is None:
        diagnosis = diagnosis._replace(unexplained=None)
    return Verdict(path.label, evidence, diagnosis)


def _with_underlay(over: Evidence, under: Optional[Evidence]) -> Evidence:
    """Add the rates of the path below to a test over a tunnel, for the rules that compare both.

    Without samples, which would be judged as if they had been taken over the tunnel.
    """
    if under is None or not any(link.kind in TUNNELS for link in over.links):
        return over
    phases = [replace(phase, path="overlay") for phase in over.phases]
    for phase in under.phases:
        if phase.run:
            flows = tuple(replace(flow, intervals=()) for flow in phase.run.flows)
            run = replace(phase.run, flows=flows, error=None, connections=())
            phases.append(Phase(phase.name, run, phase.direction, path="underlay", search=True))
    return replace(over, phases=tuple(phases))
