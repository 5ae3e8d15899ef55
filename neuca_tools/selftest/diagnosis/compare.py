"""Compare a test with earlier ones: what changed on the hosts, and which rates fell."""

# SPDX-License-Identifier: MIT

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import median
from typing import Optional

from neuca_tools.selftest.codes import ExitCode
from neuca_tools.selftest.diagnosis.diagnose import PhaseResult, result_of_phase
from neuca_tools.selftest.evidence import Evidence, Host, Link
from neuca_tools.selftest.evidence.derive import look_at_phase
from neuca_tools.selftest.evidence.route import route_changes
from neuca_tools.selftest.readers.values import known_values

DROPPED_SHARE = 0.10  # of the median of the earlier rates; a bound of our own
# With fewer earlier tests it is not known how much the rate varies, and it must fall by more.
FEW_TESTS, UNSURE_DROP = 3, 0.20
MORE_LOST = 0.01  # of the packets
DEVIATIONS = 3  # median absolute deviations; a bound of our own
# A phase's name, its direction, and the UDP rate or its place among phases that share both.
Key = tuple[str, str, float]
# What a reboot must not change, and what may change if the agent applied another request.
IDENTITY = ("name", "mac")
REQUESTED = ("addresses", "mtu")


@dataclass(frozen=True)
class Change:
    """One value that changed; None if it is absent. `where` is "local", "peer" or "path"."""

    where: str
    field: str
    before: Optional[str]
    after: Optional[str]
    identity: bool = False


# How a phase was measured, as far as it is known: the limit in bit/s, the seconds, the streams, a
# helper on the peer, whether others filled a CPU.
Manner = tuple[Optional[float], ...]
# What a phase reached, and how it was measured.
Measured = tuple[PhaseResult, Manner]


@dataclass(frozen=True)
class RateChange:
    """A phase's rate in bit/s, and median and median absolute deviation of `count` earlier ones.

    `before` is None if no earlier one was measured alike. `loss` is the share of the packets,
    `loss_before` its median.
    """

    name: str
    direction: str
    before: Optional[float]
    deviation: float
    count: int
    after: Optional[float]
    worse: bool
    loss_before: Optional[float] = None
    loss: Optional[float] = None


@dataclass(frozen=True)
class Comparison:
    """All differences."""

    changes: tuple[Change, ...]
    rates: tuple[RateChange, ...]

    @property
    def exit_code(self) -> ExitCode:
        if any(change.worse for change in self.rates):
            return ExitCode.WORSE
        if any(change.identity for change in self.changes):
            return ExitCode.NOT_AS_PLANNED
        return ExitCode.PASS


def compare(before: Sequence[Evidence], after: Evidence, least: int = 1) -> Comparison:
    """Compare hosts with the last of `before`, and rates with the median of those measured alike.

    `before` has at least one test, in order of time. Rates of another peer are left out. With fewer
    than `least` that were measured alike, nothing is worse.
    """
    last = before[-1]
    as_planned = any((step.name, step.verdict) == ("as-planned", "pass") for step in after.steps)
    changes = (
        *_host_changes("local", last.local, after.local, strict=not as_planned),
        *_host_changes("peer", last.peer, after.peer, strict=True),
        *(Change("path", *change) for change in route_changes(last.route, after.route)),
    )
    # A test without an address may be one of any peer.
    peers = {None, after.address}
    same = [test for test in before if after.address is None or test.address in peers]
    rates = _rate_changes(map(_comparable_phases, same), dict(_comparable_phases(after)), least)
    return Comparison(changes, tuple(rates))


def _are_alike(manner: Manner, other: Manner) -> bool:
    """Whether two phases can be compared: what is known of both is the same."""
    pairs = zip(manner, other)
    return all(value == known for value, known in pairs if None not in (value, known))


def _comparable_phases(evidence: Evidence) -> Iterator[tuple[Key, Measured]]:
    """The phases that every test has; those of a search depend on what it finds."""
    looks = [look_at_phase(evidence, phase) for phase in evidence.phases if not phase.search]
    is_helped = bool(evidence.peer.kernel)
    for look, (key, result) in zip(looks, with_keys(list(map(result_of_phase, looks)))):
        if result.protocol == "udp" and look.phase.target is not None:
            key = (*key[:2], look.phase.target)
        target, run = look.target or 0.0, look.run
        yield key, (result, (target, run.duration, run.streams, is_helped, look.is_disturbed))


def median_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """The median and the median absolute deviation."""
    middle = median(values)
    return middle, median(abs(value - middle) for value in values)


def with_keys(phases: Sequence[PhaseResult]) -> list[tuple[Key, PhaseResult]]:
    """Each phase with its key; the steps of a UDP ladder share a name and are counted."""
    names = [(phase.name, phase.direction) for phase in phases]
    return [((*name, names[:at].count(name)), phases[at]) for at, name in enumerate(names)]


def _host_changes(where: str, old: Host, new: Host, strict: bool) -> Iterator[Change]:
    """Changes of what both tests know; unless `strict`, what can be requested may change."""
    yield from _changes_of_values(where, "", _values_of_host(old), _values_of_host(new))
    if old.links and new.links:
        yield from _changes_of_links(where, old, new, strict)


def _changes_of_links(where: str, old: Host, new: Host, strict: bool) -> Iterator[Change]:
    pairs = [(link, _same_link(link, new.links)) for link in old.links]
    for before, after in pairs:
        if after is not None:
            yield from _link_changes(where, before, after, strict)
    for before, after in pairs:
        if after is None:
            yield Change(where, before.name, "present", None, strict)
    kept = [after for _, after in pairs]
    for link in new.links:
        if link not in kept:
            yield Change(where, link.name, None, "present", strict)


def _same_link(known: Link, links: Sequence[Link]) -> Optional[Link]:
    """By MAC and kind, which a rename does not change; else by name."""
    twins = [
        link for link in links if link.mac and (link.mac, link.kind) == (known.mac, known.kind)
    ]
    if len(twins) == 1:
        return twins[0]
    return next((link for link in (*twins, *links) if link.name == known.name), None)


def _link_changes(where: str, old: Link, new: Link, strict: bool) -> Iterator[Change]:
    must_stay = (*IDENTITY, *REQUESTED) if strict else IDENTITY
    values = _values_of_link(old), _values_of_link(new)
    yield from _changes_of_values(where, f"{old.name} ", *values, must_stay)


def _values_of_host(host: Host) -> dict[str, str]:
    """What may change of a host, apart from its devices; empty if it is not known."""
    versions = {name: getattr(host, name) or "" for name in ("name", "kernel", "iperf3")}
    return {**versions, **host.sysctls}


def _values_of_link(link: Link) -> dict[str, str]:
    """What may change of a device, as text; empty if it is not known."""
    names = ("name", "mac", "mtu", "duplex", "qdisc", "txqueuelen")
    return {
        **{name: str(getattr(link, name) or "") for name in names},
        "speed": f"{link.speed:.0f}" if link.speed else "",
        "addresses": ", ".join(sorted(link.addresses)),
        **{name: "on" if is_on else "off" for name, is_on in link.offloads.items()},
    }


def _changes_of_values(
    where: str,
    prefix: str,
    old: Mapping[str, str],
    new: Mapping[str, str],
    identity: Sequence[str] = (),
) -> Iterator[Change]:
    """The values of which both are known, and that differ in more than white space."""
    for name, before in old.items():
        after = new.get(name)
        if before and after and before.split() != after.split():
            yield Change(where, f"{prefix}{name}", before, after, name in identity)


def _rate_changes(
    before: Iterable[Iterable[tuple[Key, Measured]]], now: Mapping[Key, Measured], least: int
) -> Iterator[RateChange]:
    earlier: dict[Key, list[Measured]] = {}
    for key, measured in chain.from_iterable(before):
        if measured[0].rate is not None:
            earlier.setdefault(key, []).append(measured)
    for key in filter(now.__contains__, earlier):
        yield _rate_change(key, earlier[key], now[key], least)


def _rate_change(key: Key, earlier: Sequence[Measured], now: Measured, least: int) -> RateChange:
    result, manner = now
    alike = [known for known, other in earlier if _are_alike(manner, other)]
    rates, rate = known_values(known.rate for known in alike), result.rate
    if not rates:
        return RateChange(*key[:2], None, 0.0, 0, rate, worse=False)
    change = RateChange(*key[:2], *median_and_deviation(rates), len(rates), rate, worse=False)
    before, loss = _usual_loss(alike), _usual_loss([result])
    is_worse = _is_slower(change)
    if loss - before > MORE_LOST:
        change, is_worse = replace(change, loss_before=before, loss=loss), True
    return replace(change, worse=is_worse and len(rates) >= least)


def _usual_loss(results: Iterable[PhaseResult]) -> float:
    """The median share; 0 if none is known."""
    return median(known_values(result.loss for result in results) or [0.0])


def _is_slower(change: RateChange) -> bool:
    usual, rate = change.before or 0.0, change.after
    drop = DROPPED_SHARE if change.count >= FEW_TESTS else UNSURE_DROP
    return rate is None or usual - rate > max(drop * usual, DEVIATIONS * change.deviation)
