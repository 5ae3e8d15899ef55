"""What a suspect of a mesh is called, and what the rows of its tests say of its cause."""

# SPDX-License-Identifier: MIT

from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.evidence.load import MIN_FULL_INTERVALS
from neuca_tools.selftest.mesh import entities as kinds
from neuca_tools.selftest.mesh import observe
from neuca_tools.selftest.mesh.entities import Entity, Observation
from neuca_tools.selftest.mesh.localise import Suspect
from neuca_tools.selftest.mesh.model import MeshPlan, Row

SLOW_EGRESS, SLOW_INGRESS, WRONG_NIC = "slow-egress", "slow-ingress", "wrong-nic"
GROUP_BOUNDARY, SLOW_GROUP, ASYMMETRIC = "group-boundary", "slow-group", "asymmetric-route"
MTU_HOLE, SMALL_MTU, DUPLICATE = "mtu-hole", "small-mtu", "duplicate-address"
DUPLICATE_MAC, BAD_PAIR, UNREACHABLE = "duplicate-mac", "bad-pair", "unreachable"
FLAPPING, NO_ROUTE, SLOW_EVERYWHERE = "flapping-link", "no-route", "slow-everywhere"
BUSY_HOST, OTHER_TEST = "busy-host", "other-test"
# What an entity is called in a sentence, which direction of it is affected, and of what kind its
# finding of low rates is.
_ENTITIES = {
    kinds.HOST_OUT: ("{0}", "out", SLOW_EGRESS),
    kinds.HOST_IN: ("{0}", "in", SLOW_INGRESS),
    kinds.HOST: ("{0}", "both", WRONG_NIC),
    kinds.GROUP_OUT: ("group {0}", "out", GROUP_BOUNDARY),
    kinds.GROUP_IN: ("group {0}", "in", GROUP_BOUNDARY),
    kinds.UPLINK: ("group {0}", "both", GROUP_BOUNDARY),
    kinds.GROUP: ("group {0}, inside and out", "both", SLOW_GROUP),
    kinds.INSIDE: ("inside group {0}", "both", SLOW_GROUP),
    kinds.ONE_WAY: ("group {0} to group {1}", "out", ASYMMETRIC),
    kinds.BETWEEN: ("group {0} and group {1}", "both", GROUP_BOUNDARY),
    kinds.PAIR: ("{0} and {1}", "both", BAD_PAIR),
    kinds.PATH: ("{0} to {1}", "out", ASYMMETRIC),
}
# The kinds of findings, in words.
TEXTS = {
    SLOW_EGRESS: "what it sends is slow, what it receives is not",
    SLOW_INGRESS: "what it receives is slow, what it sends is not",
    WRONG_NIC: "slow in both directions, as with a NIC other than planned or a slow host",
    GROUP_BOUNDARY: "slow across its border, as with a degraded or overloaded uplink",
    SLOW_GROUP: "its hosts are slow among themselves",
    ASYMMETRIC: "slow in this direction only, as with different routes or links each way",
    MTU_HOLE: "large packets do not get through, small ones do",
    SMALL_MTU: "the MTU of the NIC is smaller than what the other paths carry",
    DUPLICATE: "another host has its address too",
    OTHER_TEST: "another self-test, such as neuca-selftest serve or another mesh, uses its port",
    DUPLICATE_MAC: "another host has the same MAC",
    BAD_PAIR: "slow with each other only",
    UNREACHABLE: "tests of it get no connection",
    FLAPPING: "the link of its NIC goes down and up",
    NO_ROUTE: "it has no route to the others: its address mask or a route is wrong",
    BUSY_HOST: "its processors are full, those of its partners are not",
    SLOW_EVERYWHERE: "nearly all paths are slower than expected",
    observe.LOSS: "packets are lost",
    observe.DELAY: "round trips take longer than those of the others",
    observe.JITTER: "round trips vary more than those of the others",
}
# The share of bad tests below which connections fail only now and then.
MIN_BAD_SHARE = 0.9
# The kind of a finding, and its text.
Cause = tuple[str, str]


def subject_of(entity: Entity) -> tuple[str, str]:
    """What an entity is called, and which direction of it is affected."""
    subject, direction, _ = _ENTITIES[entity.kind]
    return subject.format(*entity.names), direction


def directed_subject(subject: str, direction: str) -> str:
    """ "node7 (out)", "group r1"."""
    return subject if direction == "both" else f"{subject} ({direction})"


def cause_of(plan: MeshPlan, rows: Sequence[Row], suspect: Suspect) -> Cause:
    """The kind of the finding that a suspect is, and its text."""
    tests = [rows[number] for number in suspect.tests]
    if suspect.symptom == observe.IDENTITY or _has_rivals(rows, suspect):
        return _of_identity(rows, suspect)
    if suspect.symptom == observe.MTU:
        return _of_mtu(tests, suspect.entity, plan)
    changes = _carrier_changes(rows, suspect)
    if changes:
        return FLAPPING, f"{TEXTS[FLAPPING]}: {changes} changes of its carrier during tests"
    if suspect.symptom == observe.REACH:
        return _of_reach(plan, rows, suspect, tests)
    if _is_busy_host(rows, suspect):
        return BUSY_HOST, TEXTS[BUSY_HOST]
    return _of_numbers(suspect, tests)


def _is_busy_host(rows: Sequence[Row], suspect: Suspect) -> bool:
    """Whether a processor of a host was full in its tests, and none of its partners."""
    if suspect.entity.kind not in kinds.HOSTS:
        return False
    (name,) = suspect.entity.names
    own, others = _usual_load(rows, name, True), _usual_load(rows, name, False)
    return own is not None and others is not None and others < MIN_FULL_INTERVALS <= own


def _usual_load(rows: Sequence[Row], name: str, is_own: bool) -> Optional[float]:
    """In the tests of a host, the median of its own load, or of those of its partners."""
    loads = []
    for row in rows:
        if name in (row.client, row.server):
            is_client = (row.client == name) is is_own
            loads.append(row.busy_client if is_client else row.busy_server)
    return observe.nearest_quantile((load for load in loads if load is not None), 0.5)


def _carrier_changes(rows: Sequence[Row], suspect: Suspect) -> int:
    """How often the link of a host went up or down during its tests, if that can be the cause."""
    if suspect.entity.kind not in kinds.HOSTS:
        return 0
    return sum(row.flaps or 0 for row in rows if row.client in suspect.entity.names)


def _of_numbers(suspect: Suspect, tests: Sequence[Row]) -> Cause:
    if suspect.symptom != observe.RATE:
        return suspect.symptom, TEXTS[suspect.symptom]
    for row in tests:
        if suspect.entity.kind in kinds.HOSTS and row.error in observe.WRONG_NIC_ERRORS:
            return WRONG_NIC, row.text or TEXTS[WRONG_NIC]
    _, _, kind = _ENTITIES[suspect.entity.kind]
    return kind, TEXTS[kind]


def _has_rivals(rows: Sequence[Row], suspect: Suspect) -> bool:
    """Whether a second host with this address or MAC explains that there is no connection."""
    if suspect.entity.kind not in kinds.HOSTS or suspect.symptom != observe.REACH:
        return False
    names = suspect.entity.names
    has_macs = any(len(rows[number].macs) > 1 for number in suspect.tests)
    shares_mac = not set(names).isdisjoint(chain(*observe.hosts_by_shared_mac(rows).values()))
    return has_macs or shares_mac or bool(_hosts_with_address(rows, names))


def _hosts_with_address(rows: Iterable[Row], names: Collection[str]) -> list[str]:
    """The hosts that have found the address of one of these hosts among their own."""
    return sorted(
        {row.client for row in rows if row.server in names and row.error == observe.OWN_ADDRESS}
    )


def _of_identity(rows: Sequence[Row], suspect: Suspect) -> Cause:
    """Two hosts with one address or one MAC, with both names and MACs as far as rows tell them.

    If a single MAC answers, what has another secret there is a program of the same host.
    """
    names = suspect.entity.names
    for mac, owners in observe.hosts_by_shared_mac(rows).items():
        if not set(names).isdisjoint(owners):
            return DUPLICATE_MAC, f"{' and '.join(owners)} both have the MAC {mac}"
    others = _hosts_with_address(rows, names)
    if others:
        return DUPLICATE, f"{TEXTS[DUPLICATE]}: {' and '.join(others)}"
    macs = _rival_macs(rows, names)
    if macs:
        return DUPLICATE, f"{TEXTS[DUPLICATE]}: {' and '.join(macs)} answer for it"
    is_alone = all(len(rows[number].macs) == 1 for number in suspect.tests)
    kind = OTHER_TEST if is_alone else DUPLICATE
    return kind, TEXTS[kind]


def _rival_macs(rows: Sequence[Row], names: Collection[str]) -> list[str]:
    """The MACs that answer together for these hosts, with the host for which each answers alone."""
    macs = set(chain(*(row.macs for row in rows if row.server in names and len(row.macs) > 1)))
    alone = [row for row in rows if row.server not in names and len(row.macs) == 1]
    owner = {row.macs[0]: row.server for row in alone}
    return [f"{mac} ({owner[mac]})" if mac in owner else mac for mac in sorted(macs)]


def _of_mtu(tests: Sequence[Row], entity: Entity, plan: MeshPlan) -> Cause:
    """Whether the MTU of a client's own NIC is the limit, and the paths carry all of it."""
    group = plan.group_by_host
    for row in tests:
        # Some drivers receive more than their MTU.
        is_limit = row.nic_mtu and row.mtu_out == row.nic_mtu <= (row.mtu_back or row.nic_mtu)
        if is_limit and not {row.client, group[row.client]}.isdisjoint(entity.names):
            return SMALL_MTU, f"its NIC has an MTU of {row.nic_mtu} bytes, paths of the others more"
    return MTU_HOLE, TEXTS[MTU_HOLE]


def _of_reach(plan: MeshPlan, rows: Sequence[Row], suspect: Suspect, tests: Sequence[Row]) -> Cause:
    kind, names = suspect.entity
    within = _only_within(plan, rows, names[0]) if kind in kinds.HOSTS else ""
    if kind in kinds.HOSTS and _lacks_route(tests, names, bool(within)):
        return NO_ROUTE, f"{TEXTS[NO_ROUTE]}{within}"
    for row in tests:
        if row.error == observe.SOME_LOST:
            return {kinds.PAIR: BAD_PAIR}.get(kind, UNREACHABLE), row.text or TEXTS[UNREACHABLE]
    if kind == kinds.PAIR:
        return BAD_PAIR, _of_pair(rows, suspect)
    share_bad = suspect.bad / (suspect.bad + suspect.good)
    if within or share_bad >= MIN_BAD_SHARE:
        return UNREACHABLE, f"{TEXTS[UNREACHABLE]}{within}"
    return UNREACHABLE, (
        f"{amounts.percent(share_bad)} of its tests get no connection, the others work: as when one"
        " of several paths (ECMP, members of a bond) loses everything"
    )


def _lacks_route(tests: Sequence[Row], names: Collection[str], has_neighbours: bool) -> bool:
    """Whether all that failed from these hosts did so by their own masks or routes.

    A neighbour that does not respond ("no-route") shows a mask that is too short if others do.
    """
    errors = {row.error for row in tests if row.client in names}
    return bool(errors) and errors <= {"no-network", "no-route" if has_neighbours else "no-network"}


def _of_pair(rows: Sequence[Row], suspect: Suspect) -> str:
    """The direction of a connection is that of its client."""
    worked = {(row.client, row.server) for row in rows if row.error is None}
    failed = dict.fromkeys(observation.hosts for observation in suspect.bad_observations)
    if any(path in worked for path in failed):
        return "some of their connections fail, others work"
    return ", ".join(f"no connection from {client} to {server}" for client, server in failed)


def _only_within(plan: MeshPlan, rows: Sequence[Row], name: str) -> str:
    """A phrase if the tests of a host work within its group only; else empty."""
    group = plan.group_by_host
    good = [row for row in rows if name in (row.client, row.server) and row.error is None]
    partners = {row.server if row.client == name else row.client for row in good}
    if group[name] and good and all(group[partner] == group[name] for partner in partners):
        return f"; only tests within {group[name]} work"
    return ""


def median_of_tests(
    rows: Sequence[Row], observations: Iterable[Observation], symptom: str
) -> Optional[float]:
    """The median of what these tests measured in their direction, in the units of `Row`."""
    out, back = observe.FIELDS[symptom]
    values = []
    for observation in observations:
        row = rows[observation.test]
        values.append(getattr(row, out if row.client == observation.sender.host else back))
    return observe.nearest_quantile((value for value in values if value is not None), 0.5)
