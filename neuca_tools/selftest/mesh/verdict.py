"""What the tests of a mesh mean: findings, suspected or confirmed, and the exit code."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from neuca_tools.selftest.codes import ExitCode
from neuca_tools.selftest.mesh import entities as kinds
from neuca_tools.selftest.mesh.entities import Entity, is_passed
from neuca_tools.selftest.mesh.localise import (
    CHANCE,
    ELSEWHERE,
    IDENTITY,
    MTU,
    NEITHER,
    REACH,
    Suspect,
    localise,
    observations,
    ratio,
)
from neuca_tools.selftest.mesh.model import MeshPlan, Row, tests_of
from neuca_tools.selftest.mesh.retest import is_retest
from neuca_tools.selftest.mesh.tally import Observation

# The states of a finding: a retest showed it again, there was none, or the retest was good.
CONFIRMED, SUSPECTED, NOT_REPEATED = "confirmed", "suspected", "not-repeated"
# The log-likelihood ratio of the retests alone that confirms a suspect, or clears it.
SURE = 2.0
# The names of the tests that are listed with a finding.
MOST_TESTS = 20
# The share of the tests of a plan without which nothing can be said of the mesh.
ENOUGH = 0.5
# The share of bad tests that nothing explains with which a run on busy hosts says nothing.
UNSTEADY = 0.1

SLOW_EGRESS, SLOW_INGRESS, WRONG_NIC = "slow-egress", "slow-ingress", "wrong-nic"
GROUP_BOUNDARY, SLOW_GROUP, ASYMMETRIC = "group-boundary", "slow-group", "asymmetric-route"
MTU_HOLE, DUPLICATE, BAD_PAIR = "mtu-hole", "duplicate-address", "bad-pair"
UNREACHABLE = "unreachable"
KINDS = (
    *(SLOW_EGRESS, SLOW_INGRESS, WRONG_NIC, GROUP_BOUNDARY, SLOW_GROUP, ASYMMETRIC),
    *(MTU_HOLE, DUPLICATE, BAD_PAIR, UNREACHABLE),
)
_OF_RATE = {
    kinds.HOST_OUT: SLOW_EGRESS,
    kinds.HOST_IN: SLOW_INGRESS,
    kinds.HOST: WRONG_NIC,
    kinds.GROUP_OUT: GROUP_BOUNDARY,
    kinds.GROUP_IN: GROUP_BOUNDARY,
    kinds.UPLINK: GROUP_BOUNDARY,
    kinds.BETWEEN: GROUP_BOUNDARY,
    kinds.GROUP: SLOW_GROUP,
    kinds.INSIDE: SLOW_GROUP,
    kinds.ONE_WAY: ASYMMETRIC,
    kinds.PAIR: BAD_PAIR,
}
# What an entity is called in a sentence, and which direction of it is affected.
_SUBJECTS = {
    kinds.HOST_OUT: ("{0}", "out"),
    kinds.HOST_IN: ("{0}", "in"),
    kinds.HOST: ("{0}", "both"),
    kinds.GROUP_OUT: ("group {0}", "out"),
    kinds.GROUP_IN: ("group {0}", "in"),
    kinds.UPLINK: ("group {0}", "both"),
    kinds.GROUP: ("group {0}, inside and out", "both"),
    kinds.INSIDE: ("inside group {0}", "both"),
    kinds.ONE_WAY: ("group {0} to group {1}", "out"),
    kinds.BETWEEN: ("group {0} and group {1}", "both"),
    kinds.PAIR: ("{0} and {1}", "both"),
}
_TEXTS = {
    SLOW_EGRESS: "what it sends is slow, what it receives is not",
    SLOW_INGRESS: "what it receives is slow, what it sends is not",
    WRONG_NIC: "slow in both directions, as with another NIC than planned or a slow host",
    GROUP_BOUNDARY: "slow across its border, as with a degraded or overloaded uplink",
    SLOW_GROUP: "its hosts are slow among themselves",
    ASYMMETRIC: "slow in this direction only, as with another route or link than the way back",
    MTU_HOLE: "large packets do not get through, small ones do",
    DUPLICATE: "another host has its address too",
    BAD_PAIR: "slow with each other only",
    UNREACHABLE: "tests of it get no connection",
}


@dataclass(frozen=True)
class MeshFinding:
    """What is at fault. `score` is a log-likelihood ratio, after the penalty for many entities.

    `bad` and `good` count tests in one direction; those of hosts and groups count a pair that was
    tested several times once. `tests` are the bad ones, as "sender > receiver". `path` is the
    sender and the receiver of the last one, of which a confirmed finding has the full diagnosis.
    `equivalent`: what the same tests are evidence of.
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


@dataclass(frozen=True)
class Verdict:
    """The findings, the surest first. `tested` of `planned` tests were reported.

    Of those, `failed` say nothing of the path, `disturbed` ran on busy hosts, and `unexplained` are
    bad but belong to no finding, or failed. `silent` are the hosts that reported nothing and took
    part in no test.
    """

    findings: tuple[MeshFinding, ...]
    tested: int
    planned: int
    silent: tuple[str, ...] = ()
    failed: int = 0
    disturbed: int = 0
    unexplained: int = 0

    @property
    def confirmed(self) -> tuple[MeshFinding, ...]:
        return tuple(one for one in self.findings if one.state == CONFIRMED)

    @property
    def is_disturbed(self) -> bool:
        """Whether most tests ran on busy hosts, and too many are bad for no other reason."""
        is_busy = self.disturbed > ENOUGH * (self.tested - self.failed)
        return is_busy and self.unexplained > UNSTEADY * self.tested

    @property
    def has_results(self) -> bool:
        """Whether enough tests say something of their paths."""
        known = self.tested - self.failed
        return known > 0 and known >= ENOUGH * self.planned

    @property
    def exit_code(self) -> ExitCode:
        """That of the first confirmed finding; INCONCLUSIVE for suspects, or without results."""
        if self.confirmed:
            known = {WRONG_NIC: ExitCode.NOT_AS_PLANNED, UNREACHABLE: ExitCode.UNREACHABLE}
            return known.get(self.confirmed[0].kind, ExitCode.BELOW)
        doubtful = any(one.state == SUSPECTED for one in self.findings)
        if doubtful or self.silent or self.is_disturbed or not self.has_results:
            return ExitCode.INCONCLUSIVE
        return ExitCode.PASS


def judge(plan: MeshPlan, rows: Sequence[Row]) -> Verdict:
    """The findings of a mesh."""
    every, rows = rows, tests_of(plan, rows)
    found, seen = localise(plan, rows), observations(plan, rows)
    again = {
        symptom: [one for one in of_it if is_retest(plan, rows[one.test])]
        for symptom, of_it in seen.items()
    }
    diagnoses = {(row.client, row.server): row.diagnosis for row in every if row.diagnosis}
    findings = [_finding(rows, one, again[one.symptom], diagnoses) for one in found.suspects]
    explained = {test for one in found.suspects for test in one.tests}
    failed = {number for number, row in enumerate(rows) if row.error in NEITHER}
    bad = _bad_tests(seen)
    return Verdict(
        tuple(sorted(findings, key=_rank)),
        len(rows),
        sum(map(len, plan.tests)),
        _silent_hosts(plan, rows),
        failed=len(failed),
        disturbed=sum(row.disturbed is True for row in rows),
        unexplained=len((bad | failed) - explained),
    )


def _bad_tests(seen: Mapping[str, Sequence[Observation]]) -> set[int]:
    return {one.test for of_it in seen.values() for one in of_it if one.bad}


def _rank(finding: MeshFinding) -> tuple[int, bool, float]:
    """What comes first in a report: the confirmed, then those with the highest score.

    An address that two hosts have explains why one of them gets no connection.
    """
    order = (CONFIRMED, SUSPECTED, NOT_REPEATED)
    return order.index(finding.state), finding.kind != DUPLICATE, -finding.score


def _silent_hosts(plan: MeshPlan, rows: Sequence[Row]) -> tuple[str, ...]:
    """The hosts that no test was heard from, sorted by name."""
    heard = {name for row in rows for name in (row.client, row.server) if not row.error}
    heard |= {row.client for row in rows}
    planned = {plan.hosts[place].name for slot in plan.slots for pair in slot for place in pair}
    return tuple(sorted(planned - heard))


def _finding(
    rows: Sequence[Row],
    suspect: Suspect,
    again: Sequence[Observation],
    diagnoses: Mapping[tuple[str, str], tuple[str, ...]],
) -> MeshFinding:
    entity = suspect.entity
    kind = _kind(suspect, [rows[one] for one in suspect.tests])
    subject, direction = _SUBJECTS[entity.kind]
    tests = list(dict.fromkeys(f"{sender} > {receiver}" for sender, receiver in suspect.ways))
    return MeshFinding(
        kind,
        subject.format(*entity.names),
        direction,
        suspect.symptom,
        _state(suspect, again),
        round(suspect.score, 2),
        suspect.bad,
        suspect.good,
        _TEXTS[kind],
        names=entity.names,
        tests=tuple(tests[-MOST_TESTS:]),
        equivalent=tuple(_words(one) for one in suspect.equivalent),
        path=suspect.ways[-1],
        diagnosis=diagnoses.get(suspect.ways[-1], ()),
    )


def _words(entity: Entity) -> str:
    subject, direction = _SUBJECTS[entity.kind]
    found = subject.format(*entity.names)
    if direction == "both":
        return found
    return f"{found} ({direction})"


def _kind(suspect: Suspect, tests: Sequence[Row]) -> str:
    host = suspect.entity.kind in kinds.HOSTS
    if suspect.symptom == IDENTITY:
        return DUPLICATE
    if suspect.symptom == MTU:
        return MTU_HOLE
    if suspect.symptom == REACH:
        return _kind_of_unreachable(suspect, tests, host)
    if host and any(row.error in ELSEWHERE for row in tests):
        return WRONG_NIC
    return _OF_RATE[suspect.entity.kind]


def _kind_of_unreachable(suspect: Suspect, tests: Sequence[Row], is_host: bool) -> str:
    if is_host and any(len(row.macs) > 1 for row in tests):
        return DUPLICATE
    return BAD_PAIR if suspect.entity.kind == kinds.PAIR else UNREACHABLE


def _state(suspect: Suspect, again: Sequence[Observation]) -> str:
    """Whether the retests alone say the same."""
    results = [one.bad for one in again if is_passed(suspect.entity, one.sender, one.receiver)]
    if not results:
        return SUSPECTED
    bad, good = results.count(True), results.count(False)
    score = ratio(bad, good, suspect.hit, CHANCE[suspect.symptom])
    if score > SURE:
        return CONFIRMED
    return SUSPECTED if score > -SURE else NOT_REPEATED
