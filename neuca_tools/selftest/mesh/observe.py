"""What each test of a mesh says of each symptom, in both directions.

Numbers are judged against what the other tests of the mesh show. The reference for a rate is what
is expected or a high quantile; those for losses and times are low ones. The median would be wrong
where most tests are bad, as with one bad link between two groups.
"""

# SPDX-License-Identifier: MIT

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Optional

from neuca_tools.selftest.mesh.entities import Endpoint, Observation
from neuca_tools.selftest.mesh.model import MeshPlan, Row

REACH, IDENTITY, MTU, RATE = "reach", "identity", "mtu", "rate"
LOSS, DELAY, JITTER = "loss", "delay", "jitter"
# In this order: what an earlier one explains is not held against a path again.
SYMPTOMS = (IDENTITY, REACH, MTU, RATE, LOSS, DELAY, JITTER)
# The share of the reference below which a rate is bad; a bound of our own, as are the next.
MIN_RATE_SHARE = 0.8
# The quantiles of all tests that are the references.
HIGH_QUANTILE, LOW_QUANTILE = 0.8, 0.2
# A test is bad above ALLOWED_FACTOR times its reference plus ALLOWED_EXCESS (a share, or seconds):
# healthy paths of busy hosts exceed their reference by less.
ALLOWED_FACTOR = 3.0
ALLOWED_EXCESS = {LOSS: 0.01, DELAY: 0.002, JITTER: 0.01}
# The tests between two groups, or within one, from which these have a reference of their own: the
# distance between two sites is not a fault.
TESTS_FOR_OWN_REFERENCE = 4
# The fields of a row, out and back.
FIELDS = {
    MTU: ("mtu_out", "mtu_back"),
    RATE: ("rate_out", "rate_back"),
    LOSS: ("loss_out", "loss_back"),
    DELAY: ("rtt", "rtt"),
    JITTER: ("jitter", "jitter"),
}
# Errors that say nothing of the path.
ERRORS_WITHOUT_RESULT = frozenset({"local", "failed", "late"})
SOME_LOST, WRONG_PEER, OWN_ADDRESS = "some-lost", "wrong-peer", "own-address"
WRONG_NIC_ERRORS = frozenset({"wrong-interface", "reserved"})
# A symptom, and whether a test is bad out and back; None is not known.
Judgement = tuple[str, Optional[bool], Optional[bool]]
References = dict[str, Optional[float]]


def nearest_quantile(values: Iterable[float], share: float) -> Optional[float]:
    """The value that this share of the values does not exceed; None if there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


def known_values(rows: Iterable[Row], symptom: str) -> list[float]:
    """The known values of both directions, in the units of `Row`."""
    values = (getattr(row, name) for row in rows for name in FIELDS[symptom])
    return [value for value in values if value is not None]


def reference_values(rows: Sequence[Row], expect: Optional[float], limit: float) -> References:
    """What a test should have of each symptom that is a number. Bursts may exceed the `limit`."""
    references = {symptom: _reference_of(rows, symptom) for symptom in FIELDS}
    achieved = references[RATE]
    return {**references, RATE: expect or (achieved and min(achieved, limit))}


def _reference_of(rows: Iterable[Row], symptom: str) -> Optional[float]:
    share = LOW_QUANTILE if symptom in ALLOWED_EXCESS else HIGH_QUANTILE
    return nearest_quantile(known_values(rows, symptom), share)


def is_slow_everywhere(rows: Sequence[Row], expect: Optional[float]) -> bool:
    """Whether nearly all paths are below the rate that is expected."""
    achieved = _reference_of(rows, RATE)
    if not expect or achieved is None:
        return False
    return achieved < MIN_RATE_SHARE * expect


def _references_by_scope(
    rows: Sequence[Row], places: Mapping[str, Endpoint]
) -> dict[tuple[str, ...], References]:
    """The references for times by scope: tests within a group, or between two, have one distance.

    Scopes with few tests have none.
    """
    rows_by_scope: dict[tuple[str, ...], list[Row]] = {(): []}
    for row in rows:
        for scope in _scopes_of_test(places[row.client], places[row.server]):
            rows_by_scope.setdefault(scope, []).append(row)
    return {
        scope: {symptom: _reference_of(rows, symptom) for symptom in (DELAY, JITTER)}
        for scope, rows in rows_by_scope.items()
        if not scope or len(rows) >= TESTS_FOR_OWN_REFERENCE
    }


def _scopes_of_test(client: Endpoint, server: Endpoint) -> list[tuple[str, ...]]:
    """The groups of both hosts; all tests that cross borders, or none; all tests."""
    own = tuple(sorted({client.group, server.group}))
    return [own, ("across", "groups", str(len(own) > 1)), ()]


def observe_tests(plan: MeshPlan, rows: Sequence[Row]) -> dict[str, list[Observation]]:
    """What each test says of each symptom, in both directions; nothing for what is not known."""
    places = {name: Endpoint(name, group) for name, group in plan.group_by_host.items()}
    # A rate that hardly any path achieves says nothing of one of them.
    expect = None if is_slow_everywhere(rows, plan.expect) else plan.expect
    references = reference_values(rows, expect, plan.rate)
    by_scope = _references_by_scope(rows, places)
    shared = set(chain(*hosts_by_shared_mac(rows).values()))
    by_symptom: dict[str, list[Observation]] = {symptom: [] for symptom in SYMPTOMS}
    for number, row in enumerate(rows):
        client, server = places[row.client], places[row.server]
        scopes = _scopes_of_test(client, server)
        references.update(next(by_scope[scope] for scope in scopes if scope in by_scope))
        for symptom, out, back in _judge_test(row, references, row.server in shared):
            if out is not None:
                by_symptom[symptom].append(Observation(number, client, server, out))
            if back is not None:
                by_symptom[symptom].append(Observation(number, server, client, back))
    return by_symptom


def _judge_test(row: Row, references: References, has_shared_mac: bool) -> Iterator[Judgement]:
    yield from _identity_and_reach(row, has_shared_mac)
    if row.error in WRONG_NIC_ERRORS:
        yield RATE, True, True
        return
    for symptom, (out, back) in FIELDS.items():
        # Busy hosts answer late, whatever the path does. TCP's own times come from a transfer.
        is_unknown = row.error in ERRORS_WITHOUT_RESULT
        if symptom in (DELAY, JITTER) and (is_unknown or (symptom == JITTER and row.disturbed)):
            continue
        is_bad = partial(_is_bad, symptom, references[symptom])
        # A round trip is one observation, not two.
        is_bad_back = is_bad(getattr(row, back)) if out != back else None
        yield symptom, is_bad(getattr(row, out)), is_bad_back


def _identity_and_reach(row: Row, has_shared_mac: bool) -> Iterator[Judgement]:
    """Both are about the client and what it sends, such as over a link that goes down and up."""
    is_foreign = row.error in (WRONG_PEER, OWN_ADDRESS)
    if row.macs or is_foreign:
        yield IDENTITY, len(row.macs) > 1 or has_shared_mac or is_foreign, None
    if row.error not in (*ERRORS_WITHOUT_RESULT, OWN_ADDRESS):
        is_reached = row.error in (None, WRONG_PEER, *WRONG_NIC_ERRORS)
        yield REACH, not is_reached or bool(row.flaps), None


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
    """The MACs that two hosts of one network segment have, with their names.

    One that answers for more of them is a router or a proxy. An address for which several MACs
    answer says nothing of who has which.
    """
    ambiguous = {row.server for row in rows if len(row.macs) > 1}
    owners: dict[str, set[str]] = {}
    for row in rows:
        if row.own_mac is not None:
            owners.setdefault(row.own_mac, set()).add(row.client)
        if len(row.macs) == 1 and row.server not in ambiguous:
            owners.setdefault(row.macs[0], set()).add(row.server)
    segments = _segments_by_host(rows)
    return {
        mac: sorted(names)
        for mac, names in owners.items()
        if len(names) == 2 and names <= segments.get(min(names), set())
    }


def _segments_by_host(rows: Sequence[Row]) -> dict[str, set[str]]:
    """With each host those that respond to ARP requests of it or, in turn, of one another."""
    segments: dict[str, set[str]] = {}
    for ends in ((row.client, row.server) for row in rows if row.macs):
        smaller, larger = sorted((segments.setdefault(end, {end}) for end in ends), key=len)
        larger |= smaller
        segments.update(dict.fromkeys(smaller, larger))
    return segments


def untested_pairs(
    plan: MeshPlan, rows: Sequence[Row], unexplained: Collection[int] = ()
) -> list[tuple[str, str]]:
    """The pairs of the plan, client first, without any result that says something of the path.

    The rows in `unexplained` say nothing.
    """
    known = {
        frozenset((row.client, row.server))
        for number, row in enumerate(rows)
        if row.error not in ERRORS_WITHOUT_RESULT and number not in unexplained
    }
    names = [host.name for host in plan.hosts]
    planned = [(names[client], names[server]) for slot in plan.tests for client, server in slot]
    pairs = {frozenset(pair): pair for pair in planned}
    return [pair for hosts, pair in pairs.items() if hosts not in known]
