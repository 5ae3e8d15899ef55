"""Evidence becomes ranked findings: the one pure function of the self-test, `diagnose`."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.codes import ExitCode
from neuca_tools.selftest.conditions import PHASE_RULES, SESSION_RULES
from neuca_tools.selftest.conditions.base import FAULT, INFO, LIMIT, LOW, Hit, Session
from neuca_tools.selftest.conditions.causes import (
    NOT_AS_PLANNED,
    OUTCOMES,
    UNFINISHED,
    Outcome,
    is_explained,
)
from neuca_tools.selftest.conditions.thresholds import passed
from neuca_tools.selftest.diagnosis.limits import next_after
from neuca_tools.selftest.evidence import Evidence
from neuca_tools.selftest.evidence.codec import INTERNAL
from neuca_tools.selftest.evidence.derive import look
from neuca_tools.selftest.evidence.look import Fact, Look

FAULT_FIRST = 0.15  # what a fault counts more than a limit that explains as much
TRIFLE = 0.1  # of the lost time, or of what was lost
SLIGHT = 0.01  # of the datagrams, of a test that reached what it should: a moment at which a host was busy
SHORTEST = 0.9  # of the time that was asked for
LIMITS = frozenset(row.id for row in PHASE_RULES if row.severity == LIMIT) | frozenset(
    row.id for row in SESSION_RULES if row.severity == LIMIT
)


@dataclass(frozen=True)
class Finding:
    """One condition that applies.

    See `Hit` for `share`, `end` and `confidence`. `severity` is "fault", "limit" or "info".
    `predicted` is the rate in bit/s once it is fixed, `next_limit` what limits then. `advice`
    starts with the command that sets `sysctls`, if there are any.
    """

    id: str
    title: str
    severity: str
    share: float
    confidence: str
    phase: Optional[str]
    end: str
    text: str
    evidence: tuple[Fact, ...]
    advice: str
    predicted: Optional[float] = None
    next_limit: Optional[str] = None
    sysctls: Mapping[str, str] = field(default_factory=dict, metadata=INTERNAL)


@dataclass(frozen=True)
class PhaseResult:
    """What one phase reached.

    `rate` is what iperf3 itself says of all the test; `steady` that of the part after slow start, which is what is judged.
    """

    name: str
    direction: str
    protocol: str
    rate: Optional[float]
    loss: Optional[float]
    retransmits: Optional[int]
    passed: Optional[bool]  # None: there is nothing to compare with
    error: Optional[str] = None
    steady: Optional[float] = None


@dataclass(frozen=True)
class Diagnosis:
    """Findings, the most important first.

    `inconclusive` says why this test says nothing, `unexplained` why a rate that was measured has no explanation.
    """

    findings: tuple[Finding, ...]
    phases: tuple[PhaseResult, ...]
    inconclusive: Optional[str] = None
    expect: Optional[float] = None
    unexplained: Optional[str] = None

    @property
    def unknown(self) -> Optional[str]:
        return self.inconclusive or self.unexplained

    @property
    def limit(self) -> Optional[Finding]:
        """What holds the rate back, or is broken."""
        return next((one for one in self.findings if one.severity != INFO), None)

    @property
    def exit_code(self) -> ExitCode:
        """Point 8 of the issue: why the test did not run, else whether the rate is as expected."""
        ids = {one.id for one in self.findings if one.severity == FAULT}
        for outcome in OUTCOMES:
            if ids & outcome.conditions and self._applies(outcome):
                return outcome.exit_code
        if self.inconclusive:
            return ExitCode.INCONCLUSIVE
        if ids & NOT_AS_PLANNED:
            return ExitCode.NOT_AS_PLANNED
        failed = any(one.passed is False for one in self.phases)
        if failed or ids:
            return ExitCode.BELOW
        return ExitCode.INCONCLUSIVE if self.unexplained else ExitCode.PASS

    def _applies(self, outcome: Outcome) -> bool:
        if outcome.untested:
            return not self.phases
        return not outcome.unmeasured or not any(one.rate for one in self.phases)


def diagnose(evidence: Evidence) -> Diagnosis:
    """What limits the dataplane that was measured, and what is wrong with it."""
    looks = tuple(look(evidence, phase) for phase in evidence.phases)
    session = Session(evidence, looks)
    results = tuple(_result(one) for one in looks)
    judged = [result.passed for one, result in zip(looks, results) if not one.phase.search]
    all_passed = bool(judged) and all(judged)
    found = [*_of_phases(looks, results), *_of_the_session(session, all_passed)]
    ranked = tuple(sorted(_weighed(found), key=_order))
    why_not = _inconclusive(looks, ranked)
    unexplained = None if why_not else _unexplained(evidence, looks, ranked, all_passed)
    return Diagnosis(ranked, results, why_not, evidence.expect, unexplained)


def phase_results(evidence: Evidence) -> tuple[PhaseResult, ...]:
    """What each phase reached, without a word of why."""
    return tuple(_result(look(evidence, phase)) for phase in evidence.phases)


def _of_phases(looks: Iterable[Look], results: tuple[PhaseResult, ...]) -> Iterable[Finding]:
    """A condition of several phases is told once, of that in which it explains most."""
    best: dict[str, Finding] = {}
    for one, result in zip(looks, results):
        for row in PHASE_RULES:
            hit = row.rule(one)
            if hit is None:
                continue
            severity = hit.severity or row.severity
            slight = one.protocol == "udp" and bool(result.passed) and (one.loss or 0) < SLIGHT
            trifle = severity == FAULT and (
                slight or (hit.share < TRIFLE and result.passed is not False)
            )
            if one.phase.search or (severity == LIMIT and result.passed) or trifle:
                severity = (
                    INFO  # everything has a limit, and a few drops; these are where they should be
                )
            found = _finding(row.id, row.title, severity, hit, one)
            known = best.get(f"{row.id} {row.title}")
            if known is None or (known.severity == INFO, -known.share) > (
                severity == INFO,
                -hit.share,
            ):
                best[f"{row.id} {row.title}"] = found
    return best.values()


def _of_the_session(session: Session, all_passed: bool) -> Iterable[Finding]:
    reference = session.named("tcp") or next(iter(session.looks), None)
    for row in SESSION_RULES:
        hit = row.rule(session)
        if hit is not None:
            severity = hit.severity or row.severity
            yield _finding(
                row.id,
                row.title,
                INFO if severity == LIMIT and all_passed else severity,
                hit,
                reference,
                named=False,
            )


def _finding(
    name: str, title: str, severity: str, hit: Hit, of: Optional[Look], named: bool = True
) -> Finding:
    known = tuple(fact for fact in hit.facts if fact.after is not None)
    sure = of is not None and severity != INFO and hit.confidence != LOW
    predicted, following = next_after(name, hit, of) if of is not None and sure else (None, None)
    return Finding(
        name,
        title,
        severity,
        max(0.0, min(1.0, hit.share)),
        hit.confidence,
        of.phase.name if of and named else None,
        hit.end,
        hit.text,
        known,
        hit.recommendation,
        predicted,
        following,
        hit.sysctls,
    )


def _weighed(found: list[Finding]) -> list[Finding]:
    """Symptoms step back behind their causes: they are told, as information."""
    ids = {
        name
        for one in found
        if one.severity != INFO and one.confidence != LOW and one.share >= 0.1
        for name in (one.id, one.title)
    }
    return [_stepped_back(one, ids) for one in found]


def _stepped_back(one: Finding, met: set[str]) -> Finding:
    if not is_explained((one.id, one.title), one.phase, met):
        return one
    return replace(one, severity=INFO, predicted=None, next_limit=None)


def _order(one: Finding) -> tuple[bool, bool, float, str]:
    """Of what is told as information the limits come last: everything has one, and these are where they should be."""
    weight = one.share + (FAULT_FIRST if one.severity == FAULT else 0)
    return (one.severity == INFO, one.severity == INFO and one.id in LIMITS, -weight, one.id)


def _result(one: Look) -> PhaseResult:
    error = one.phase.run.error if one.phase.run else None
    whole = one.flow.rate if one.flow else None
    return PhaseResult(
        one.phase.name,
        one.phase.direction,
        one.protocol,
        whole or one.rate,
        one.loss,
        one.throughput.retransmits,
        passed(one),
        error,
        one.rate,
    )


def _inconclusive(looks: tuple[Look, ...], found: tuple[Finding, ...]) -> Optional[str]:
    if any(one.id in UNFINISHED for one in found):
        return None
    for one in looks:
        run = one.phase.run
        if run is not None and run.error:
            return f"iperf did not finish: {run.error}"
        if (
            run is not None
            and run.duration
            and one.flow
            and (one.flow.sent.seconds or run.duration) < SHORTEST * run.duration
        ):
            return f"the test ended after {amounts.time(one.flow.sent.seconds or 0)} of {amounts.time(run.duration)}"
    if not any(one.rate for one in looks) and not found:
        return "nothing was measured"
    return next((one.text for one in found if one.id == "D10"), None)


def _unexplained(
    evidence: Evidence, looks: tuple[Look, ...], found: tuple[Finding, ...], all_passed: bool
) -> Optional[str]:
    tcp = next((one for one in looks if one.protocol == "tcp"), None)
    explained = all_passed or any(one.severity != INFO or one.id == "D18" for one in found)
    if explained or tcp is None:  # datagrams came as they were sent
        return None
    if (
        tcp.windows.rwnd_limited is None
        and tcp.windows.cwnd is None
        and tcp.windows.snd_wnd is None
    ):
        return "neither window, retransmits nor round trip is known: iperf3 -J says more"
    if evidence.expect is None:
        return "no condition explains this rate, and no rate is expected (--expect): it may be all that there is"
    return "the rate is below what is expected, and no condition explains it: the counters of both ends would tell more"
