"""A test against earlier ones: what changed on the host, and whether the rates fell by more than they vary by themselves."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Optional

from neuca_tools.selftest.codes import ExitCode
from neuca_tools.selftest.diagnosis.diagnose import PhaseResult, diagnose
from neuca_tools.selftest.evidence import Evidence, Host, Link

DROP = 0.10  # of the earlier median (facts, section 6)
FEW, UNSURE = (
    3,
    0.20,
)  # earlier tests that do not say how much they vary; a rate that varies so much concludes nothing (the same)
DEVIATIONS = 3  # median absolute deviations (the same)
Key = tuple[str, str, float]  # name, direction, and which of those that share them
IDENTITY = ("name", "mac")  # what a reboot must not change
ASKED = ("addresses", "mtu")  # nor these, unless the agent has found all as it was asked to be


@dataclass(frozen=True)
class Change:
    """One value that is not what it was; None: it was, or is, not there."""

    where: str  # "local" or "peer"
    field: str
    before: Optional[str]
    after: Optional[str]
    identity: bool = False


@dataclass(frozen=True)
class RateChange:
    """One test's rate against its earlier ones, bit/s; `deviation` is their median absolute deviation."""

    name: str
    direction: str
    before: float
    deviation: float
    count: int
    after: Optional[float]
    worse: bool


@dataclass(frozen=True)
class Comparison:
    """All that differs."""

    changes: tuple[Change, ...]
    rates: tuple[RateChange, ...]

    @property
    def exit_code(self) -> ExitCode:
        if any(one.worse for one in self.rates):
            return ExitCode.WORSE
        return (
            ExitCode.NOT_AS_PLANNED if any(one.identity for one in self.changes) else ExitCode.PASS
        )


def compare(before: Sequence[Evidence], after: Evidence) -> Comparison:
    """`before` is in order of time, at least one: hosts are compared with the last, rates with the median of all."""
    planned = any((step.name, step.verdict) == ("as-planned", "pass") for step in after.steps)
    hosts = (
        ("local", before[-1].local, after.local, not planned),
        ("peer", before[-1].peer, after.peer, True),
    )
    changes = tuple(
        change for where, old, new, strict in hosts for change in _host(where, old, new, strict)
    )
    return Comparison(
        changes, tuple(_rates([comparable(one) for one in before], dict(comparable(after))))
    )


def comparable(evidence: Evidence) -> list[tuple[Key, PhaseResult]]:
    """What another test has too: datagrams by the rate at which they were sent; no tries of a search, which goes its own way."""
    both = zip(evidence.phases, diagnose(evidence).phases)
    tests = [
        (phase.target if one.protocol == "udp" else None, one)
        for phase, one in both
        if not phase.search
    ]
    places = numbered([one for _, one in tests])
    return [
        ((*key[:2], key[2] if target is None else target), one)
        for (key, one), (target, _) in zip(places, tests)
    ]


def _host(where: str, old: Host, new: Host, strict: bool) -> Iterator[Change]:
    """Changes of what both tests knew. Unless `strict`, configured names and addresses may change."""
    for name in ("name", "kernel", "iperf3"):
        yield from _value(where, name, getattr(old, name), getattr(new, name))
    yield from _mapping(where, "", old.sysctls, new.sysctls)
    if not old.links or not new.links:
        return
    matched = _matched(old.links, new.links)
    for before, after in matched:
        yield from _link(where, before, after, strict)
    kept = [before for before, _ in matched], [after for _, after in matched]
    for link in old.links:
        if link not in kept[0]:
            yield Change(where, link.name, "present", None, strict)
    for link in new.links:
        if link not in kept[1]:
            yield Change(where, link.name, None, "present", strict)


def _matched(old: Iterable[Link], new: Sequence[Link]) -> list[tuple[Link, Link]]:
    """Pairs of the same link in both tests."""
    pairs = ((one, _same(one, new)) for one in old)
    return [(one, same) for one, same in pairs if same is not None]


def _same(one: Link, links: Sequence[Link]) -> Optional[Link]:
    """By MAC and kind, so that a renamed NIC is recognized; without a MAC, or with several matches, by name."""
    twins = [link for link in links if link.mac and (link.mac, link.kind) == (one.mac, one.kind)]
    if len(twins) == 1:
        return twins[0]
    candidates = (*twins, *links)
    return next((link for link in candidates if link.name == one.name), None)


def _link(where: str, old: Link, new: Link, strict: bool) -> Iterator[Change]:
    label, must_stay = old.name, (*IDENTITY, *(ASKED if strict else ()))
    for name in ("name", "mac", "mtu", "speed", "duplex", "qdisc", "txqueuelen"):
        yield from _value(
            where, f"{label} {name}", getattr(old, name), getattr(new, name), name in must_stay
        )
    if old.addresses and new.addresses:
        yield from _value(
            where,
            f"{label} addresses",
            ", ".join(sorted(old.addresses)),
            ", ".join(sorted(new.addresses)),
            "addresses" in must_stay,
        )
    yield from _mapping(
        where,
        f"{label} ",
        {name: "on" if on else "off" for name, on in old.offloads.items()},
        {name: "on" if on else "off" for name, on in new.offloads.items()},
    )


def _value(
    where: str, name: str, old: object, new: object, identity: bool = False
) -> Iterator[Change]:
    if old is not None and new is not None and old != new:
        yield Change(where, name, _text(old), _text(new), identity)


def _text(value: object) -> str:
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def _mapping(
    where: str, prefix: str, old: Mapping[str, str], new: Mapping[str, str]
) -> Iterator[Change]:
    for name in sorted(old.keys() & new.keys()):
        if old[name].split() != new[name].split():
            yield Change(where, f"{prefix}{name}", old[name], new[name])


def _rates(
    before: Sequence[Sequence[tuple[Key, PhaseResult]]], now: Mapping[Key, PhaseResult]
) -> Iterator[RateChange]:
    earlier: dict[Key, list[float]] = {}
    for tests in before:
        for key, one in tests:
            if one.rate is not None:
                earlier.setdefault(key, []).append(one.rate)
    for key, rates in earlier.items():
        usual = median(rates)
        deviation = median(abs(rate - usual) for rate in rates)
        if key in now:
            rate = now[key].rate
            drop = DROP if len(rates) >= FEW else UNSURE
            fell = rate is None or usual - rate > max(drop * usual, DEVIATIONS * deviation)
            yield RateChange(key[0], key[1], usual, deviation, len(rates), rate, fell)


def numbered(phases: Sequence[PhaseResult]) -> list[tuple[tuple[str, str, int], PhaseResult]]:
    """The steps of a UDP ladder share a name: the first is compared with the first, and so on."""
    keys = [(one.name, one.direction) for one in phases]
    return [
        ((*key, keys[:place].count(key)), one) for place, (key, one) in enumerate(zip(keys, phases))
    ]
