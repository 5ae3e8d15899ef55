"""What the tests of a mesh mean: findings, suspected or confirmed, and the exit code."""

# SPDX-License-Identifier: MIT

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, compress
from typing import NamedTuple, Optional

from neuca_tools.model.printable import counted
from neuca_tools.selftest import amounts
from neuca_tools.selftest.codes import ExitCode
from neuca_tools.selftest.evidence.codec import INTERNAL
from neuca_tools.selftest.mesh import causes, observe
from neuca_tools.selftest.mesh import entities as kinds
from neuca_tools.selftest.mesh.causes import cause_of, directed_subject, median_of_tests, subject_of
from neuca_tools.selftest.mesh.entities import Entity, Observation, is_on_path
from neuca_tools.selftest.mesh.localise import (
    CHANCE_OF_BAD,
    FAULT_PROBABILITIES,
    Suspect,
    find_suspects,
    likelihood_ratio,
)
from neuca_tools.selftest.mesh.model import MeshPlan, Pair, Row, plan_identity, tests_of
from neuca_tools.selftest.mesh.retest import is_retest
from neuca_tools.selftest.mesh.schedule import packed_slots

# The states of a finding: retests were bad again, undecided or not made, or good.
CONFIRMED, SUSPECTED, NOT_REPEATED = "confirmed", "suspected", "not-repeated"
# The log-likelihood ratio of the retests alone that confirms a suspect, or clears it.
CONFIRMING_SCORE = 2.0
# The most paths of a run that are diagnosed, as a diagnosis takes longer than a test; and the most
# of one finding about groups, which are diagnosed at the same time.
MAX_DIAGNOSES, MAX_PATHS_OF_GROUPS = 8, 4
# The most tests that are listed with a finding.
MAX_TESTS = 20
# A run is disturbed above these shares of tests on busy hosts, and of bad tests without a finding.
BUSY_SHARE, UNEXPLAINED_SHARE = 0.5, 0.1
EXIT_CODES = {
    causes.WRONG_NIC: ExitCode.NOT_AS_PLANNED,
    causes.SMALL_MTU: ExitCode.NOT_AS_PLANNED,
    causes.UNREACHABLE: ExitCode.UNREACHABLE,
    causes.NO_ROUTE: ExitCode.UNREACHABLE,
}
NO_REASON = "no result arrived"
# What each symptom is called, what its reference is called, and how both values are written.
MEASURES: Mapping[str, tuple[str, str, Callable[[float], str]]] = {
    observe.RATE: ("rate", "expected", amounts.rate),
    observe.LOSS: ("loss", "others", amounts.percent),
    observe.DELAY: ("round trip", "others", amounts.time),
    observe.JITTER: ("jitter", "others", amounts.time),
    observe.MTU: ("MTU", "others", lambda size: f"{size:.0f} bytes"),
}


@dataclass(frozen=True)
class MeshFinding:
    """What is at fault. `score` is a log-likelihood ratio, less a penalty for many candidates.

    `bad` and `good` count tests in one direction; those of hosts and groups count a pair that was
    tested several times once. `tests` are the bad ones, as "sender > receiver". `path` is the
    sender and the receiver of the last one, of which a confirmed finding has the full diagnosis.
    `equivalent` are other entities that the same tests are evidence of. `measured` is what these
    tests show, and what is expected or what the other tests show.
    """

    kind: str
    subject: str
    direction: str
    symptom: str
    state: str
    score: float
    bad: int
    good: int
    text: str
    names: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    equivalent: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    diagnosis: tuple[str, ...] = ()
    measured: tuple[str, ...] = ()
    paths: tuple[tuple[str, str], ...] = field(default=(), metadata=INTERNAL)


class Verdict(NamedTuple):
    """The findings, the surest first. `tested` of `planned` tests were reported.

    Of those, `failed` say nothing of the path, `disturbed` ran on busy hosts, and `unexplained` are
    bad or failed, and belong to no finding. Silent hosts reported nothing and took part in no test.
    `untested` are the pairs of the plan without a result, or with errors only that belong to no
    finding. The last test of `good_pairs` of the `pairs` of the plan is bad in no respect.
    """

    findings: tuple[MeshFinding, ...]
    tested: int
    planned: int
    failed: int
    disturbed: int
    unexplained: int
    untested: tuple[tuple[str, str], ...]
    reason_by_silent_host: Mapping[str, str]
    pairs: int
    good_pairs: int

    @property
    def silent(self) -> tuple[str, ...]:
        return tuple(self.reason_by_silent_host)

    @property
    def confirmed(self) -> tuple[MeshFinding, ...]:
        return tuple(finding for finding in self.findings if finding.state == CONFIRMED)

    @property
    def is_disturbed(self) -> bool:
        """Whether most tests ran on busy hosts, and too many are bad for no other reason."""
        is_busy = self.disturbed > BUSY_SHARE * (self.tested - self.failed)
        return is_busy and self.unexplained > UNEXPLAINED_SHARE * self.tested

    @property
    def exit_code(self) -> ExitCode:
        """That of the first confirmed finding; INCONCLUSIVE for suspects, or without some tests."""
        if self.confirmed:
            return EXIT_CODES.get(self.confirmed[0].kind, ExitCode.BELOW)
        has_suspects = any(finding.state == SUSPECTED for finding in self.findings)
        if has_suspects or self.silent or self.is_disturbed or self.untested:
            return ExitCode.INCONCLUSIVE
        return ExitCode.PASS


def judge_mesh(
    plan: MeshPlan, rows: Sequence[Row], reasons: Optional[Mapping[str, str]] = None
) -> Verdict:
    """The findings of a mesh. `reasons` say why hosts take no part, or no longer do.

    That nobody can reach them then says nothing of their paths.
    """
    all_rows, rows, reasons = rows, tests_of(plan, rows), reasons or {}
    tested, silent = len(rows), _reasons_of_silent_hosts(plan, rows, reasons)
    rows = _without_tests_of(silent.keys() & reasons, rows)
    suspects, observations = find_suspects(plan, rows).suspects, observe.observe_tests(plan, rows)
    findings = [
        _with_diagnosis(plan, finding, all_rows)
        for finding in _findings_of(plan, rows, suspects, observations)
    ]
    stands = [finding.state != NOT_REPEATED for finding in findings]
    explained = set[int]().union(*(suspect.tests for suspect in compress(suspects, stands)))
    failed = {
        number for number, row in enumerate(rows) if row.error in observe.ERRORS_WITHOUT_RESULT
    }
    bad = failed | {seen.test for seen in chain(*observations.values()) if seen.is_bad}
    return Verdict(
        tuple(sorted(findings, key=_report_rank)),
        tested=tested,
        planned=sum(map(len, plan.tests)),
        failed=len(failed),
        disturbed=sum(row.disturbed is True for row in rows),
        unexplained=len(bad - explained),
        untested=tuple(_pairs_without_result(plan, rows, explained)),
        reason_by_silent_host=silent,
        pairs=len(set(map(frozenset, chain.from_iterable(plan.tests)))),
        good_pairs=_count_good_pairs(rows, bad | _below_expected(plan, rows)),
    )


def _without_tests_of(left: Collection[str], rows: Iterable[Row]) -> list[Row]:
    """The rows without the failed tests of servers that had left."""
    return [row for row in rows if row.error is None or row.server not in left]


def _findings_of(
    plan: MeshPlan,
    rows: Sequence[Row],
    suspects: Iterable[Suspect],
    observations: Mapping[str, Sequence[Observation]],
) -> Iterator[MeshFinding]:
    for suspect in suspects:
        yield _finding_of(plan, rows, suspect, observations[suspect.symptom])
    if plan.expect and observe.is_slow_everywhere(rows, plan.expect):
        yield _slow_everywhere_finding(rows, plan.expect)


def _pairs_without_result(
    plan: MeshPlan, rows: Sequence[Row], explained: Collection[int]
) -> list[tuple[str, str]]:
    """The pairs of the plan without any result; an error without a finding does not count."""
    broken = {number for number, row in enumerate(rows) if row.error}
    return observe.untested_pairs(plan, rows, broken.difference(explained))


def _count_good_pairs(rows: Sequence[Row], bad: Collection[int]) -> int:
    """The pairs whose last test is not among the `bad` ones."""
    last = {frozenset((row.client, row.server)): number for number, row in enumerate(rows)}
    return sum(number not in bad for number in last.values())


def _below_expected(plan: MeshPlan, rows: Sequence[Row]) -> set[int]:
    """The tests with a rate that is too low, also where that is the finding of nearly all paths."""
    least = observe.MIN_RATE_SHARE * (plan.expect or 0.0)
    rates_by_test = enumerate(observe.known_values([row], observe.RATE) for row in rows)
    return {number for number, rates in rates_by_test if min(rates, default=least) < least}


def _with_diagnosis(plan: MeshPlan, finding: MeshFinding, rows: Sequence[Row]) -> MeshFinding:
    """The finding with the full diagnosis of the worst of its paths.

    If each path carried its rate when it was diagnosed, the finding says that instead: what is slow
    shows only under more load, or at times.
    """
    rows_of_paths = (row for row in rows if (row.client, row.server) in finding.paths)
    diagnosed = [row for row in rows_of_paths if row.slot >= len(plan.tests)]
    good_rates = _good_rates(finding, diagnosed, plan, rows)
    if good_rates:
        return replace(finding, diagnosis=(_not_always_slow(good_rates),))
    rows_with_text = (row for row in diagnosed if row.diagnosis)
    worst = min(rows_with_text, key=lambda row: row.rate_out or 0.0, default=None)
    if worst is None:
        return finding
    return replace(finding, path=(worst.client, worst.server), diagnosis=worst.diagnosis)


def _good_rates(
    finding: MeshFinding, diagnosed: Sequence[Row], plan: MeshPlan, rows: Sequence[Row]
) -> Sequence[float]:
    """The rates of the paths of a slow entity; empty if one of them is slow."""
    if finding.symptom != observe.RATE or not diagnosed:
        return ()
    rates = [row.rate_out for row in diagnosed if row.rate_out is not None]
    references = observe.reference_values(tests_of(plan, rows), plan.expect, plan.rate)
    least = observe.MIN_RATE_SHARE * (references[observe.RATE] or math.inf)
    return rates if all(rate >= least for rate in rates) else ()


def _not_always_slow(rates: Sequence[float]) -> str:
    others = counted(len(rates) - 1, "other")
    circumstances = "alone" if len(rates) == 1 else f"with {others} at the same time"
    return f"{amounts.rate(rates[0])} arrived when it was tested {circumstances}: not always slow"


def _report_rank(finding: MeshFinding) -> tuple[int, bool, float]:
    """The order in a report: the confirmed findings first, then those with the highest score.

    An address that two hosts have explains why one of them gets no connection: it precedes that.
    """
    order = (CONFIRMED, SUSPECTED, NOT_REPEATED)
    is_other = finding.kind not in (causes.DUPLICATE, causes.DUPLICATE_MAC)
    return order.index(finding.state), is_other, -finding.score


def _reasons_of_silent_hosts(
    plan: MeshPlan, rows: Sequence[Row], reasons: Mapping[str, str]
) -> dict[str, str]:
    """Why hosts took part in no test, or have left; sorted by their names."""
    answered = [row for row in rows if row.error in (None, observe.SOME_LOST)]
    responsive = {name for row in answered for name in (row.client, row.server)}
    responsive |= {row.client for row in rows}
    tested = {plan.hosts[host].name for pair in chain(*plan.tests) for host in pair}
    silent = sorted((tested - responsive) | reasons.keys())
    return {name: reasons.get(name, NO_REASON) for name in silent}


def _finding_of(
    plan: MeshPlan, rows: Sequence[Row], suspect: Suspect, observations: Sequence[Observation]
) -> MeshFinding:
    """The finding of a suspect, whose symptom these observations are about."""
    retests = [seen for seen in observations if is_retest(plan, rows[seen.test])]
    own = kinds.HOSTS if len(rows[suspect.tests[-1]].macs) > 1 else (kinds.HOST, kinds.HOST_IN)
    if suspect.symptom == observe.IDENTITY and suspect.entity.kind not in own:
        server = Entity(kinds.HOST_IN, (suspect.bad_observations[-1].receiver.host,))
        suspect = suspect._replace(entity=server, equivalent=())
    subject, direction = subject_of(suspect.entity)
    kind, text = cause_of(plan, rows, suspect)
    paths = [observation.hosts for observation in suspect.bad_observations]
    tests = list(dict.fromkeys(map(" > ".join, paths)))
    return MeshFinding(
        kind,
        subject,
        direction,
        suspect.symptom,
        _state_after_retests(suspect, retests),
        round(suspect.score, 2),
        suspect.bad,
        suspect.good,
        text,
        names=suspect.entity.names,
        tests=tuple(tests[-MAX_TESTS:]),
        equivalent=tuple(directed_subject(*subject_of(entity)) for entity in suspect.equivalent),
        path=paths[-1],
        paths=_disjoint_paths([paths[-1], *paths], suspect.entity),
        measured=tuple(_measured_texts(plan, rows, suspect)),
    )


def _disjoint_paths(
    paths: Iterable[tuple[str, str]], entity: Entity
) -> tuple[tuple[str, str], ...]:
    """The first path; of groups also others, without a common host."""
    disjoint: list[tuple[str, str]] = []
    used_hosts: set[str] = set()
    for path in paths:
        if used_hosts.isdisjoint(path):
            used_hosts.update(path)
            disjoint.append(path)
    is_shared = entity.kind not in (*kinds.HOSTS, *kinds.PAIRS)
    return tuple(disjoint[: MAX_PATHS_OF_GROUPS if is_shared else 1])


def _measured_texts(plan: MeshPlan, rows: Sequence[Row], suspect: Suspect) -> Iterator[str]:
    """What its bad tests measured and what others do, first of its own symptom, with units."""
    references = observe.reference_values(rows, plan.expect, plan.rate)
    always = (observe.RATE, observe.LOSS, observe.DELAY, observe.JITTER)
    for symptom in dict.fromkeys((suspect.symptom, *always)):
        if symptom not in MEASURES:  # not a number
            continue
        name, reference_name, in_words = MEASURES[symptom]
        value = median_of_tests(rows, suspect.bad_observations, symptom)
        reference = references[symptom]
        if value is not None and reference is not None:
            yield f"{name} {in_words(value)} ({reference_name} {in_words(reference)})"


def _slow_everywhere_finding(rows: Sequence[Row], expect: float) -> MeshFinding:
    """That nearly all paths are slower than expected; it needs no retest."""
    rates = observe.known_values(rows, observe.RATE)
    bad = sum(rate < observe.MIN_RATE_SHARE * expect for rate in rates)
    good = len(rates) - bad
    median = observe.nearest_quantile(rates, 0.5) or 0.0
    last = next(row for row in reversed(rows) if row.rate_out is not None)
    return MeshFinding(
        causes.SLOW_EVERYWHERE,
        "all paths",
        "both",
        observe.RATE,
        CONFIRMED,
        round(likelihood_ratio(bad, good, FAULT_PROBABILITIES[0], CHANCE_OF_BAD[observe.RATE]), 2),
        bad,
        good,
        causes.TEXTS[causes.SLOW_EVERYWHERE],
        path=(last.client, last.server),
        paths=((last.client, last.server),),
        measured=(f"rate {amounts.rate(median)} (expected {amounts.rate(expect)})",),
    )


def _state_after_retests(suspect: Suspect, retests: Sequence[Observation]) -> str:
    """The state of a finding, by its retests alone: without any, their score is 0."""
    results = [
        observation.is_bad
        for observation in retests
        if is_on_path(suspect.entity, observation.sender, observation.receiver)
    ]
    bad, good = results.count(True), results.count(False)
    score = likelihood_ratio(bad, good, suspect.fault_probability, CHANCE_OF_BAD[suspect.symptom])
    if score > CONFIRMING_SCORE:
        return CONFIRMED
    return SUSPECTED if score > -CONFIRMING_SCORE else NOT_REPEATED


def with_diagnosis_slots(plan: MeshPlan, rows: Sequence[Row]) -> MeshPlan:
    """The plan with slots for the diagnoses of what is confirmed.

    The sender of the last bad test of a finding is the client. Of what groups share, such as an
    uplink, several paths are tested at a time: one of them alone may not fill it.
    """
    numbers = {host.name: number for number, host in enumerate(plan.hosts)}
    paths = dict.fromkeys(chain(*(finding.paths for finding in judge_mesh(plan, rows).confirmed)))
    pairs: list[Pair] = [(numbers[sender], numbers[receiver]) for sender, receiver in paths]
    slots = (*plan.slots, *packed_slots(plan, pairs[:MAX_DIAGNOSES]))
    return replace(plan, slots=slots, diagnoses=len(plan.slots), origin=plan_identity(plan))
