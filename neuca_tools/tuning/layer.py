"""Profiles over what the host has and what its administrator says: the weakest layer of what a pass wants, value by value.

Below the local configuration and the document, above nothing. A number is raised, never lowered; the base of raising is what
the agent found before it first wrote, as long as its own last word stands.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Optional

from neuca_tools.model import LinkKey, Problem, Record
from neuca_tools.model.effects import Effect
from neuca_tools.tuning import arithmetic
from neuca_tools.tuning.environment import Environment
from neuca_tools.tuning.profile import AUTO, BUFFER, KEEP, Profile, raised, same
from neuca_tools.tuning.sysctld import Words

CONGESTION = "net/ipv4/tcp_congestion_control"
AVAILABLE, PERMITTED = (
    "net/ipv4/tcp_available_congestion_control",
    "net/ipv4/tcp_allowed_congestion_control",
)
AUTO_PROFILE = "exogeni"
PROFILE = "profile "  # how the origin of every value of a profile begins


@dataclass(frozen=True)
class Choice:
    """What is asked for: profiles by name, and the path that `bdp` computes for (bit/s, seconds)."""

    profiles: tuple[str, ...] = ()
    rate: Optional[int] = None
    rtt: Optional[float] = None


class Obstacle(NamedTuple):
    """Why a sysctl cannot be set here."""

    effect: Effect
    reason: str


@dataclass(frozen=True)
class Facts:
    """What the host says. `found`: sysctls by path; `memory` in bytes, 0 if not known.

    `modules` are congestion control algorithms that can be loaded, None if not known; `own_namespace`: the network
    namespace is not the first.
    `probed` maps the MAC of a NIC to the MTU in bytes that a peer acknowledged.
    """

    environment: Environment = field(default_factory=Environment)
    found: Mapping[str, str] = field(default_factory=dict)
    obstacles: Mapping[str, Obstacle] = field(default_factory=dict)
    words: Words = field(default_factory=Words)
    memory: int = 0
    modules: Optional[frozenset[str]] = None
    own_namespace: bool = False
    probed: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class TuningInputs:
    """What the profiles are, and what they are judged by. `missing`: why some cannot be read."""

    profiles: tuple[Profile, ...] = ()
    missing: tuple[str, ...] = ()
    facts: Facts = field(default_factory=Facts)


class Asked(NamedTuple):
    """One value as the profiles ask it."""

    value: str
    exact: bool
    source: str


@dataclass(frozen=True)
class Value:
    """One value judged. `setting`: a path below /proc/sys, `mtu` or `txqueuelen`. `wanted` None: it is left as it is.

    `effect` is None where it can be set: then what is found, compared with `wanted`, says whether it is effective.
    """

    setting: str
    asked: str
    source: str
    wanted: Optional[str] = None
    effect: Optional[Effect] = None
    reason: str = ""
    link: Optional[LinkKey] = None
    found: Optional[str] = None


@dataclass(frozen=True)
class Layer:
    """What the profiles want of the host (`values`, with those of single links once these are known), and of every link.

    `before`: what each sysctl goes back to when nobody asks for it any more. `faults` cannot be used, `notes` are for people.
    """

    choice: Choice = field(default_factory=Choice)
    environment: Environment = field(default_factory=Environment)
    values: tuple[Value, ...] = ()
    mtu: Optional[Asked] = None
    txqueuelen: Optional[Asked] = None
    probed: Mapping[str, int] = field(default_factory=dict)
    before: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def problems(self) -> list[Problem]:
        return [Problem("invalid", text) for text in self.faults]

    @property
    def sysctls(self) -> dict[str, str]:
        """What is wanted of the host, by path."""
        return {
            value.setting: value.wanted
            for value in self.values
            if value.wanted is not None and value.link is None
        }


def named(choice: Choice) -> tuple[str, ...]:
    """The profiles that a choice reads, in order, each once."""
    return tuple(dict.fromkeys(AUTO_PROFILE if name == AUTO else name for name in choice.profiles))


def layer(
    choice: Choice,
    profiles: Sequence[Profile],
    facts: Facts,
    record: Record,
    missing: Sequence[str] = (),
) -> Layer:
    """Judge every value of these profiles: those that `named` lists, but for the `missing`, which could not be read."""
    usable = [
        profile for profile in profiles if not profile.needs_path or (choice.rate and choice.rtt)
    ]
    faults = [*missing, *(fault for profile in profiles for fault in profile.faults)]
    faults += [
        f'profile "{profile.name}": it needs rate and rtt'
        for profile in profiles
        if profile not in usable
    ]
    asked = _combine(
        [replace(profile, sysctls=_computed(profile, choice, facts)) for profile in usable]
    )
    values = tuple(_judge(path, one, facts, record) for path, one in asked.items())
    on_links = [
        one
        for one in usable
        if one.name in choice.profiles or facts.environment.kind == "bare metal"
    ]
    words = {path: facts.words.said(path) for path in record.original_sysctls}
    before = {
        path: word.value if (word := words[path]) else original
        for path, original in record.original_sysctls.items()
    }
    return Layer(
        choice,
        facts.environment,
        values,
        _most("mtu", on_links),
        _most("txqueuelen", on_links),
        facts.probed,
        before,
        tuple(faults),
        tuple(_notes(choice, usable, on_links, facts)),
    )


def _computed(profile: Profile, choice: Choice, facts: Facts) -> dict[str, str]:
    size = (
        arithmetic.buffer(choice.rate, choice.rtt, facts.memory)
        if choice.rate and choice.rtt
        else 0
    )
    return {path: value.replace(BUFFER, str(size)) for path, value in profile.sysctls.items()}


def _combine(profiles: Sequence[Profile]) -> dict[str, Asked]:
    """The highest of every number; where they are words, or a profile is exact, the last one counts."""
    asked: dict[str, Asked] = {}
    for profile in profiles:
        for path, value in profile.sysctls.items():
            old = asked.get(path)
            mine = Asked(value, profile.exact, PROFILE + profile.name)
            if old and not (mine.exact or old.exact):
                both = (
                    raised(old.value, value)
                    if KEEP not in f"{old.value} {value}".split()
                    else _dashed(old.value, value)
                )
                source = (
                    old.source
                    if both == old.value
                    else mine.source
                    if both == value
                    else f"{old.source}, {profile.name}"
                )
                mine = Asked(both, False, source)
            asked[path] = mine
    return asked


def _dashed(old: str, new: str) -> str:
    """Two values of which one leaves numbers alone: those are the other's."""
    pairs = list(zip(old.split(), new.split()))
    if len(old.split()) != len(new.split()):
        return new
    return " ".join(
        first if second == KEEP else second if first == KEEP else raised(first, second)
        for first, second in pairs
    )


def _judge(path: str, asked: Asked, facts: Facts, record: Record) -> Value:
    value = Value(path, asked.value, asked.source, found=facts.found.get(path))
    obstacle = facts.obstacles.get(path) or (
        _congestion(asked.value, facts, record) if path == CONGESTION else None
    )
    if obstacle:
        return replace(value, effect=obstacle.effect, reason=obstacle.reason)
    word, found = facts.words.said(path), facts.found.get(path)
    if word and not same(word.value, raised(word.value, asked.value, asked.exact)):
        return replace(
            value, effect="overridden", reason=f'by {word.file}, which says "{word.value}"'
        )
    ours = path in record.original_sysctls and same(found, record.written.get(path))
    wanted = raised(record.original_sysctls[path] if ours else found, asked.value, asked.exact)
    if KEEP in wanted.split():
        return replace(
            value,
            effect="not applicable",
            reason=f'it is "{found}" here, which has another number of words',
        )
    return replace(value, wanted=wanted)


def _congestion(name: str, facts: Facts, record: Record) -> Optional[Obstacle]:
    """The kernel has it or can load it, and lets this namespace have it (tcp_set_default_congestion_control).

    It loads the module itself when the name is written: where that was tried in vain, there is none.
    """
    missing = (facts.modules is not None and name not in facts.modules) or record.written.get(
        CONGESTION
    ) == name
    if name not in facts.found.get(AVAILABLE, "").split() and missing:
        return Obstacle("unsupported", f'this kernel has no "{name}"')
    if facts.own_namespace and name not in facts.found.get(PERMITTED, "").split():
        return Obstacle(
            "not applicable", f'the host does not allow "{name}" in this network namespace'
        )
    return None


def _most(field_name: str, profiles: Sequence[Profile]) -> Optional[Asked]:
    """The highest that is asked of a link; the last exact profile that has a say counts more."""
    said = [
        (getattr(one, field_name), one) for one in profiles if getattr(one, field_name) is not None
    ]
    exact = [pair for pair in said if pair[1].exact][-1:]
    chosen = exact or sorted(said, key=lambda pair: pair[0])[-1:]
    return next((Asked(str(value), one.exact, PROFILE + one.name) for value, one in chosen), None)


def _notes(
    choice: Choice, usable: Sequence[Profile], on_links: Sequence[Profile], facts: Facts
) -> Iterator[str]:
    if AUTO in choice.profiles:
        links = "" if any(one.name == AUTO_PROFILE for one in on_links) else ", its sysctls only"
        yield f"profile auto is {AUTO_PROFILE}{links}: this host is {facts.environment.text}"
    if choice.rate and choice.rtt and any(one.needs_path for one in usable):
        size = arithmetic.buffer(choice.rate, choice.rtt, facts.memory)
        text = f"{arithmetic.rate_text(choice.rate)} at {arithmetic.rtt_text(choice.rtt)} RTT"
        yield f"{text} needs TCP buffers of {arithmetic.size_text(arithmetic.buffer(choice.rate, choice.rtt))}"
        if size < arithmetic.buffer(choice.rate, choice.rtt):
            yield f"their limit here is a sixteenth of the memory, {arithmetic.size_text(size)}"
