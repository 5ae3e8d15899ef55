"""What each test of a mesh says of each symptom, in both directions.

Numbers are judged against what the other tests of the mesh show. The reference for a rate is what
is expected or a high quantile; those for losses and times are low ones. The median would be wrong
where most tests are bad, as with one bad link between two groups.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Optional

from neuca_tools.selftest.mesh.entities import Observation, Place
from neuca_tools.selftest.mesh.model import MeshPlan, Row

REACH, IDENTITY, MTU, RATE = "reach", "identity", "mtu", "rate"
LOSS, DELAY, JITTER = "loss", "delay", "jitter"
# In this order: what an earlier one explains is not held against a path again.
SYMPTOMS = (IDENTITY, REACH, MTU, RATE, LOSS, DELAY, JITTER)
# The part of the reference below which a rate is bad; the quantiles that are the references.
MIN_RATE_SHARE, HIGH_QUANTILE, LOW_QUANTILE = 0.8, 0.8, 0.2
# A test is bad above ALLOWED_FACTOR times its reference plus ALLOWED_EXCESS (shares and seconds),
# by which healthy paths of busy hosts exceed it.
ALLOWED_FACTOR = 3.0
ALLOWED_EXCESS = {LOSS: 0.01, DELAY: 0.002, JITTER: 0.01}
# The tests between two groups, or within one, from which these have a reference of their own: the
# distance between two sites is no fault.
TESTS_FOR_OWN_REFERENCE = 4
# The values of a row out and back.
FIELDS = {
    MTU: ("mtu_out", "mtu_back"),
    RATE: ("rate_out", "rate_back"),
    LOSS: ("loss_out", "loss_back"),
    DELAY: ("rtt", "rtt"),
    JITTER: ("jitter", "jitter"),
}
# Errors that say nothing of the path.
ERRORS_WITHOUT_RESULT = frozenset({"local", "failed", "late"})
IDENTITY_ERRORS = frozenset({"wrong-peer"})
WRONG_NIC_ERRORS = frozenset({"wrong-interface", "reserved"})
Judged = tuple[str, Optional[bool], Optional[bool]]


def nearest_quantile(values: Iterable[float], part: float) -> Optional[float]:
    """The nearest rank."""
    ordered = sorted(values)
    if not ordered:
        return None
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def known_values(rows: Iterable[Row], symptom: str) -> list[float]:
    """What is known of both directions, as numbers."""
    every = (getattr(row, name) for row in rows for name in FIELDS[symptom])
    return [value for value in every if value is not None]


def reference_values(rows: Sequence[Row], expect: Optional[float]) -> dict[str, Optional[float]]:
    """What a test should have of each symptom that is a number, in the units of `Row`."""
    expected = {
        name: nearest_quantile(known_values(rows, name), LOW_QUANTILE) for name in ALLOWED_EXCESS
    }
    expected.update(
        {name: nearest_quantile(known_values(rows, name), HIGH_QUANTILE) for name in (RATE, MTU)}
    )
    return {**expected, RATE: expect or expected[RATE]}


def is_slow_everywhere(rows: Sequence[Row], expect: Optional[float]) -> bool:
    """Whether nearly all paths are below the rate that is expected."""
    achieved = nearest_quantile(known_values(rows, RATE), HIGH_QUANTILE)
    return bool(expect) and achieved is not None and achieved < MIN_RATE_SHARE * expect


def _references_by_scope(
    rows: Sequence[Row], places: Mapping[str, Place]
) -> dict[tuple[str, ...], dict[str, Optional[float]]]:
    """The references for times: those within a group, or between two, have the same distance.

    Scopes with few tests have none.
    """
    rows_by_scope: dict[tuple[str, ...], list[Row]] = {(): []}
    for row in rows:
        for scope in _scopes_of_test(places[row.client], places[row.server]):
            rows_by_scope.setdefault(scope, []).append(row)
    return {
        scope: {
            name: nearest_quantile(known_values(rows, name), LOW_QUANTILE)
            for name in (DELAY, JITTER)
        }
        for scope, rows in rows_by_scope.items()
        if not scope or len(rows) >= TESTS_FOR_OWN_REFERENCE
    }


def _scopes_of_test(client: Place, server: Place) -> list[tuple[str, ...]]:
    """The two groups or the one, then all tests that cross borders, or none, and then all."""
    own = tuple(sorted({client.group, server.group}))
    return [own, ("across", "groups", str(len(own) > 1)), ()]


def observe_tests(plan: MeshPlan, rows: Sequence[Row]) -> dict[str, list[Observation]]:
    """What each test says of each symptom, in both directions; nothing for what is not known."""
    places = {name: Place(name, group) for name, group in plan.group_by_host.items()}
    # A rate that hardly any path achieves says nothing of one of them.
    expect = None if is_slow_everywhere(rows, plan.expect) else plan.expect
    expected, own = reference_values(rows, expect), _references_by_scope(rows, places)
    shared = {name for names in hosts_by_shared_mac(rows).values() for name in names}
    by_symptom: dict[str, list[Observation]] = {symptom: [] for symptom in SYMPTOMS}
    for number, row in enumerate(rows):
        client, server = places[row.client], places[row.server]
        scopes = _scopes_of_test(client, server)
        expected.update(next(own[scope] for scope in scopes if scope in own))
        for symptom, *ways in _judged_symptoms(row, expected, row.server in shared):
            by_symptom[symptom] += _observations_of(number, client, server, ways)
    return by_symptom


def _observations_of(
    test: int, client: Place, server: Place, ways: Sequence[Optional[bool]]
) -> Iterator[Observation]:
    """Whether a test is bad out and back, as far as that is known."""
    for sender, receiver, bad in zip((client, server), (server, client), ways):
        if bad is not None:
            yield Observation(test, sender, receiver, bad)


def _judged_symptoms(
    row: Row, expected: Mapping[str, Optional[float]], has_shared_mac: bool
) -> Iterator[Judged]:
    """Each symptom with whether the test is bad, out and back; None for not known."""
    yield from _identity_and_reach(row, has_shared_mac)
    if row.error in WRONG_NIC_ERRORS:
        yield RATE, True, True
        return
    for symptom, (out, back) in FIELDS.items():
        if symptom == JITTER and row.disturbed:
            # Busy hosts answer late, whatever the path does.
            continue
        is_bad = partial(_is_bad, symptom, expected[symptom])
        # A round trip is one observation, not two.
        yield (
            symptom,
            is_bad(getattr(row, out)),
            is_bad(getattr(row, back)) if out != back else None,
        )


def _identity_and_reach(row: Row, has_shared_mac: bool) -> Iterator[Judged]:
    """Both are about what the client sends, and say nothing of the way back."""
    is_foreign = row.error in IDENTITY_ERRORS
    if row.macs or is_foreign:
        yield IDENTITY, len(row.macs) > 1 or has_shared_mac or is_foreign, None
    if row.error not in ERRORS_WITHOUT_RESULT:
        yield (
            REACH,
            row.error is not None and row.error not in IDENTITY_ERRORS | WRONG_NIC_ERRORS,
            None,
        )


def _is_bad(symptom: str, reference: Optional[float], value: Optional[float]) -> Optional[bool]:
    if value is None or reference is None:
        return None
    if symptom in ALLOWED_EXCESS:
        return value > ALLOWED_FACTOR * reference + ALLOWED_EXCESS[symptom]
    if symptom == RATE:
        # A transfer of nothing is bad, also where no path carries anything.
        return value == 0 or value < MIN_RATE_SHARE * reference
    return value < reference


def hosts_by_shared_mac(rows: Sequence[Row]) -> dict[str, list[str]]:
    """The MACs that answer for the addresses of two hosts, with their names.

    One that answers for more of them is a router or a proxy. An address for which several MACs
    answer says nothing of who has which.
    """
    ambiguous = {row.server for row in rows if len(row.macs) > 1}
    owners: dict[str, set[str]] = {}
    for row in rows:
        if len(row.macs) == 1 and row.server not in ambiguous:
            owners.setdefault(row.macs[0], set()).add(row.server)
    return {mac: sorted(names) for mac, names in owners.items() if len(names) == 2}


def untested_pairs(plan: MeshPlan, rows: Sequence[Row]) -> list[tuple[str, str]]:
    """The pairs of the plan, client first, without any result that says something of the path."""
    known = {
        frozenset((row.client, row.server))
        for row in rows
        if row.error not in ERRORS_WITHOUT_RESULT
    }
    names = [host.name for host in plan.hosts]
    planned = [(names[client], names[server]) for slot in plan.tests for client, server in slot]
    return [pair for pair in dict.fromkeys(planned) if frozenset(pair) not in known]
