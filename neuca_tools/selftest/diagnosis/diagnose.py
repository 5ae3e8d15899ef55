"""From evidence to ranked findings, and to why there is none: `diagnose`."""

# SPDX-License-Identifier: MIT

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.codes import FAULTY, WORDS, ExitCode
from neuca_tools.selftest.conditions import table
from neuca_tools.selftest.conditions.base import Cause, Hit, Session, Severity, known_facts
from neuca_tools.selftest.conditions.capacity import capacity_of_path
from neuca_tools.selftest.conditions.compare import worse_direction
from neuca_tools.selftest.conditions.messages import LOST
from neuca_tools.selftest.conditions.table import hits_of_phase, hits_of_session
from neuca_tools.selftest.conditions.thresholds import (
    BIDIRECTIONAL,
    THROUGHPUT,
    has_passed,
    is_held_below,
)
from neuca_tools.selftest.conditions.udp import SLIGHT_LOSS, share_lost_by_busy_receiver
from neuca_tools.selftest.diagnosis import advice
from neuca_tools.selftest.diagnosis.findings import (
    LOST_SHARE,
    TRIFLING_SHARE,
    Finding,
    failures,
    rank_findings,
)
from neuca_tools.selftest.evidence import NOT_ASKED, Evidence
from neuca_tools.selftest.evidence.derive import look_at_phase
from neuca_tools.selftest.evidence.look import Look

MAX_POSSIBLE = 3  # guesses that are reported
# Conditions that compare rates or losses of several phases: other load on the hosts changes those.
OF_SEVERAL_PHASES = frozenset({"D06", "D17", "D19", "D24", "D26", "D27", "D28", "D42"})


@dataclass(frozen=True)
class PhaseResult:
    """What one phase reached; rates in bit/s, `loss` as a share.

    `rate` is what iperf3 reports for the whole test; `steady` is that of the part after slow start,
    which decides `passed`. That is None if there is nothing to compare the rate with, and for
    enough datagrams of which so many were lost that the verdict may be a fault.
    """

    name: str
    direction: str
    protocol: str
    rate: Optional[float]
    loss: Optional[float]
    retransmits: Optional[int]
    passed: Optional[bool]
    error: Optional[str] = None
    steady: Optional[float] = None


class Diagnosis(NamedTuple):
    """Findings, the most important first.

    `inconclusive` says why this test has no result, `unexplained` why a rate that was measured has
    no explanation; `expect` is in bit/s. `possible` are guesses, which decide nothing; `failures`
    are facts that are wrong, whatever causes them. `since` is the result of the comparison with
    earlier tests.
    """

    findings: tuple[Finding, ...]
    phases: tuple[PhaseResult, ...]
    inconclusive: Optional[str]
    expect: Optional[float]
    unexplained: Optional[str]
    possible: tuple[Finding, ...]
    failures: tuple[str, ...]
    since: ExitCode = ExitCode.PASS

    @property
    def unknown(self) -> Optional[str]:
        """Why the diagnosis is incomplete, if it is."""
        return self.inconclusive or self.unexplained

    @property
    def limit(self) -> Optional[Finding]:
        """The most important limit or fault."""
        return next((finding for finding in self.findings if finding.severity != "info"), None)

    @property
    def cause(self) -> Optional[Finding]:
        """What the verdict names: the fault that alone decided it, else the limit."""
        ids: frozenset[str] = frozenset()
        if self.exit_code is ExitCode.NOT_AS_PLANNED:
            ids = table.NOT_AS_PLANNED
        elif self.words == FAULTY and not self.failures:
            ids = self._faults
        faults = (each for each in self.findings if each.severity == "fault" and each.id in ids)
        return next(faults, self.limit)

    @property
    def exit_code(self) -> ExitCode:
        """Why the test did not run; if it did, whether all is as expected, and as before."""
        faults, unfinished = self._faults, self._unfinished
        if unfinished is not None:
            return unfinished
        if faults & table.NOT_AS_PLANNED:
            return ExitCode.NOT_AS_PLANNED
        if faults or self.failures or self._is_below:
            return ExitCode.BELOW
        if self.unexplained and self.since is ExitCode.PASS:
            return ExitCode.INCONCLUSIVE
        return self.since

    @property
    def _unfinished(self) -> Optional[ExitCode]:
        """Why the test has no result; None if it has one."""
        if table.BUSY in self._faults:
            return ExitCode.BUSY
        if not any(phase.rate or phase.loss for phase in self.phases):
            if self._faults & table.UNREACHABLE:
                return ExitCode.UNREACHABLE
            if table.NOTHING_SENT in self._faults:
                return ExitCode.NOT_AS_PLANNED
        is_inconclusive = self.inconclusive or table.FAILED in self._faults
        return ExitCode.INCONCLUSIVE if is_inconclusive else None

    @property
    def words(self) -> str:
        """The exit code in words: nothing is below a threshold if no phase is."""
        if self.exit_code is ExitCode.BELOW and not self._is_below:
            return FAULTY
        return WORDS[self.exit_code]

    @property
    def _is_below(self) -> bool:
        return any(phase.passed is False and not phase.error for phase in self.phases)

    @property
    def _faults(self) -> frozenset[str]:
        return frozenset(finding.id for finding in self.findings if finding.severity == "fault")


def diagnose(evidence: Evidence) -> Diagnosis:
    """What limits the dataplane that was measured, and what is wrong with it."""
    looks = tuple(look_at_phase(evidence, phase) for phase in evidence.phases)
    session, results = Session(evidence, looks), tuple(map(result_of_phase, looks))
    worse, all_passed = worse_direction(session), _have_all_passed(looks)
    of_session = _of_the_session(session, all_passed, worse)
    ranked = rank_findings([*_of_phases(looks, results), *of_session], worse)
    findings = tuple(finding for finding in ranked if not finding.is_possible)
    possible = tuple(finding for finding in ranked if finding.is_possible)
    inconclusive, unexplained = why_inconclusive(evidence, looks, findings), None
    failed = failures(evidence, looks, findings)
    if inconclusive is None and not all_passed and not failed:
        unexplained = why_unexplained(session, findings)
    return Diagnosis(
        findings,
        results,
        inconclusive,
        evidence.expect,
        unexplained,
        possible=possible[:MAX_POSSIBLE],
        failures=failed,
    )


def _have_all_passed(looks: Iterable[Look]) -> bool:
    """Whether every phase has the expected rate, without those of a search."""
    judged = [has_passed(look) for look in looks if not look.phase.search]
    return bool(judged) and all(judged)


def phase_results(evidence: Evidence) -> tuple[PhaseResult, ...]:
    """What each phase reached, without an explanation."""
    return tuple(result_of_phase(look_at_phase(evidence, phase)) for phase in evidence.phases)


def _of_phases(looks: Iterable[Look], results: tuple[PhaseResult, ...]) -> Iterator[Finding]:
    """Each condition of each phase, with its direction if both were measured alone."""
    ways = {result.direction for result in results if result.name == table.ALONE}
    for look, result in zip(looks, results):
        way = look.phase.direction if len(ways) > 1 else None
        for cause, hit in hits_of_phase(look):
            if look.is_too_short and cause.id not in table.UNFINISHED:
                continue
            severity = _severity_in_phase(hit, hit.severity or cause.severity, look, result)
            if look.is_disturbed:
                hit = _less_confident(hit)
            hit = advice.never_lower(hit, advice.hosts_of(hit, look.evidence, look))
            finding = _finding_of_hit(cause, severity, hit, look)
            yield replace(finding, phase=look.phase.name, direction=way)


def _severity_in_phase(hit: Hit, severity: Severity, look: Look, result: PhaseResult) -> Severity:
    """Information if the phase passed: every path has a limit and drops a few packets."""
    if look.phase.search or (severity == "limit" and result.passed):
        return "info"
    if severity == "fault" and _is_negligible(hit, look, result):
        return "info"
    return severity


def _is_negligible(hit: Hit, look: Look, result: PhaseResult) -> bool:
    """Whether a fault made no difference to the rate of this phase."""
    if look.protocol == "udp" and result.passed and (look.loss or 0) < SLIGHT_LOSS:
        return hit.share < 1  # a receiver that got nothing at all has counted no loss
    return hit.share < TRIFLING_SHARE and result.passed is not False


def _of_the_session(session: Session, all_passed: bool, worse: Optional[str]) -> Iterable[Finding]:
    reference = session.named("tcp") or next(iter(session.looks), None)
    is_disturbed = any(look.is_disturbed for look in session.looks)
    for cause, hit in hits_of_session(session):
        severity = hit.severity or cause.severity
        if severity == "limit" and all_passed:
            severity = "info"
        if is_disturbed and cause.id in OF_SEVERAL_PHASES:
            hit = _less_confident(hit)
        hit = advice.never_lower(hit, advice.hosts_of(hit, session.evidence, reference))
        way = worse if cause.id == table.ASYMMETRIC else hit.direction
        finding = _finding_of_hit(cause, severity, hit, reference)
        yield replace(finding, direction=way)


def _less_confident(hit: Hit) -> Hit:
    """What was measured while other programs kept a CPU busy."""
    return hit._replace(confidence="medium") if hit.confidence == "high" else hit


def _finding_of_hit(cause: Cause, severity: Severity, hit: Hit, look: Optional[Look]) -> Finding:
    return Finding(
        id=cause.id,
        title=hit.title or cause.title,
        severity=severity,
        share=max(0.0, min(1.0, hit.share)),
        confidence=hit.confidence,
        phase=None,
        end=hit.end,
        text=hit.text,
        evidence=known_facts(hit.facts),
        advice=advice.advice_for(hit, look),
        sysctls=hit.sysctls,
    )


def result_of_phase(look: Look) -> PhaseResult:
    rate, error, passed = look.flow.rate, look.run.error, has_passed(look)
    is_lossy = look.protocol == "udp" and look.known_loss >= LOST_SHARE
    is_doubtful = is_lossy if passed else share_lost_by_busy_receiver(look)
    return PhaseResult(
        name=look.phase.name,
        direction=look.phase.direction,
        protocol=look.protocol,
        # A test that failed counts nothing, whatever has arrived.
        rate=rate if rate or (rate is not None and not error) else _rate_of_intervals(look),
        loss=look.loss,
        retransmits=look.retransmits,
        passed=None if is_doubtful else passed,
        error=error,
        steady=look.rate,
    )


def _rate_of_intervals(look: Look) -> Optional[float]:
    """bit/s of all of them, where the totals are missing."""
    known = [each for each in look.all_intervals if each.rate is not None and not each.omitted]
    seconds = sum(each.seconds for each in known)
    if not seconds or look.rate is None:
        return look.rate
    return sum((each.rate or 0.0) * each.seconds for each in known) / seconds


# --- What the findings do not say: why a test has no result, or its rate no explanation -----------


PREPARATIONS = {"as-planned", "reach"}  # steps that measure nothing
MIN_DURATION = 0.9  # of the duration that was asked for


def _is_measured(evidence: Evidence, looks: Sequence[Look]) -> bool:
    """Whether there is a rate, a step without a rate has a result, or all steps passed."""
    asked = [step for step in evidence.steps if step.text != NOT_ASKED]
    results = {step.name for step in asked if step.verdict in ("pass", "fail")}
    if results - PREPARATIONS or any(look.rate is not None for look in looks):
        return True
    return bool(asked) and all(step.verdict == "pass" for step in asked)


def why_inconclusive(
    evidence: Evidence, looks: Sequence[Look], findings: Sequence[Finding]
) -> Optional[str]:
    """Why the test has no result; None if it has one, or if a finding says why it did not run."""
    if any(finding.id in table.UNFINISHED and finding.title != LOST for finding in findings):
        return None
    cut = next(filter(None, map(_cut_short, looks)), None)
    if cut is not None:
        return cut
    if not findings and not _is_measured(evidence, looks):
        return "nothing was measured"
    stolen = (each.text for each in findings if (each.id, each.severity) == ("D10", "fault"))
    return next(stolen, None)


def _cut_short(look: Look) -> Optional[str]:
    """Why a run did not last as long as it should have; None if it did."""
    run = look.run
    if run.error:
        return f"iperf did not finish: {run.error}"
    if not run.duration:
        return None
    # Of several intervals without totals, a text may leave out the rest.
    only = look.flow.intervals if len(look.flow.intervals) == 1 else ()
    seconds = look.flow.sent.seconds or sum(each.end for each in only) or run.duration
    if seconds >= MIN_DURATION * run.duration:
        return None
    return f"the test ended after {amounts.time(seconds)} of {amounts.time(run.duration)}"


def why_unexplained(session: Session, findings: Sequence[Finding]) -> Optional[str]:
    """Why a rate that was measured has no explanation; None if it has one."""
    if any(look.rate and look.is_unanswered for look in session.looks):
        return "how many datagrams arrived is not known: the receiver's line is missing"
    held = next(filter(is_held_below, session.looks), None)
    if held is not None:
        return (
            f"TCP was limited to {amounts.rate(held.target or 0.0)} (--rate, -b), which cannot "
            "show the rate that is expected"
        )
    if any(finding.severity != "info" for finding in findings):
        return None
    return _without_finding(session)


def _without_finding(session: Session) -> Optional[str]:
    slow = (look for look in session.looks if has_passed(look) is False)
    if any(map(share_lost_by_busy_receiver, slow)):
        return "other programs kept the receiver's CPU busy: test again without that load"
    tcp = next(_below_capacity(session), None)
    if tcp is None:
        return None
    unexplained = (
        "the rate is below what is expected, and no condition explains it: the counters of both "
        "hosts would show more"
    )
    if session.evidence.expect is None:
        unexplained = (
            "no condition explains this rate, and no rate is expected (--expect): it may be all "
            "that the path can carry"
        )
    return _figures_missing(tcp) or unexplained


def _figures_missing(tcp: Look) -> Optional[str]:
    """What of a window, and of how it changed, is not known; None if something is."""
    windows = tcp.windows
    if (windows.rwnd_limited, windows.cwnd, windows.snd_wnd) != (None, None, None):
        return None
    figures = {"window": None, "retransmits": tcp.retransmits, "round trip": tcp.rtt}
    unknown = [name for name, value in figures.items() if value is None]
    if len(unknown) < 2:
        return None
    return f"neither {' nor '.join(unknown)} is known: iperf3 -J of a Linux sender reports more"


def _below_capacity(session: Session) -> Iterator[Look]:
    """The tests of streams without a rate, or with less than fills the path or another had."""
    full = [look.known_rate for look in session.tcp if capacity_of_path(look)]
    for look in session.looks:
        if look.protocol == "udp" or (full and look.phase.name == BIDIRECTIONAL):
            continue
        rate = look.known_rate
        if not any(THROUGHPUT <= rate / most <= 1 / THROUGHPUT for most in full):
            yield look
