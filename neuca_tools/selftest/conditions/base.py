"""What a condition is (an id, a title and a rule), and what its rule returns."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Optional, cast

from neuca_tools.selftest.evidence import Evidence, Host, Link
from neuca_tools.selftest.evidence.look import Fact, Look

FAULT, LIMIT, INFO = "fault", "limit", "info"
HIGH, MEDIUM, LOW = "high", "medium", "low"


@dataclass(frozen=True)
class Hit:
    """A condition that applies.

    `share` (0 to 1) is how much of the lost time, or of the lost packets, it explains. `end` is
    where the advice applies: "sender", "receiver", "local", "peer", "both", "path" or "tool".
    `sysctls` are the settings that the advice consists of; `advice` is the rest of it, in words.
    `fixed` is the rate in bit/s that this limit allows once the advice is taken, if it can be
    computed. `severity` overrides that of the condition.
    """

    share: float
    text: str
    facts: tuple[Fact, ...] = ()
    advice: str = ""
    end: str = "path"
    confidence: str = HIGH
    fixed: Optional[float] = None
    severity: Optional[str] = None
    sysctls: Mapping[str, str] = field(default_factory=dict)

    @property
    def recommendation(self) -> str:
        """The sysctls as a command, and the rest of the advice."""
        parts = (sysctl_command(self.sysctls), self.advice)
        return "; ".join(part for part in parts if part)


def sysctl_command(sysctls: Mapping[str, str]) -> str:
    """The sysctl(8) command that sets these; empty if there are none."""
    words = [f"{name}={_quoted(value)}" for name, value in sysctls.items()]
    return " ".join(["sysctl -w", *words]) if words else ""


def _quoted(value: str) -> str:
    return f'"{value}"' if " " in value else value


class Session(NamedTuple):
    """All phases of a test, for the rules that compare phases or examine hosts and paths."""

    evidence: Evidence
    looks: tuple[Look, ...]

    def named(self, name: str, direction: str = "forward") -> Optional[Look]:
        """The first phase with this name and direction."""
        for one in self.looks:
            if (one.phase.name, one.phase.direction) == (name, direction):
                return one
        return None

    @property
    def hosts(self) -> tuple[tuple[str, Host], ...]:
        """Both hosts, each with the name of its end."""
        return (("local", self.evidence.local), ("peer", self.evidence.peer))

    @property
    def tcp(self) -> tuple[Look, ...]:
        """The TCP phases in which a rate was measured."""
        return tuple(one for one in self.looks if one.protocol == "tcp" and one.rate)


class PhaseRule(NamedTuple):
    """A condition of one phase."""

    id: str
    title: str
    severity: str
    rule: Callable[[Look], Optional[Hit]]


class SessionRule(NamedTuple):
    """A condition of the whole test."""

    id: str
    title: str
    severity: str
    rule: Callable[[Session], Optional[Hit]]


def links_of(host: Host) -> tuple[Link, ...]:
    """The devices on the path to the peer; all of them if the path is not known."""
    on_path = tuple(link for link in host.links if link.name in host.path)
    return on_path or host.links


def sysctl_max(host: Host, name: str) -> Optional[int]:
    """The last number of a sysctl: of tcp_rmem and tcp_wmem, the maximum in bytes."""
    last = (host.sysctls.get(name, "").split() or [""])[-1]
    return int(last) if last.isdecimal() and len(last) < 20 else None


def known_facts(facts: Iterable[Optional[Fact]]) -> tuple[Fact, ...]:
    """Without those that are absent or have no value."""
    return tuple(one for one in facts if one is not None and one.after is not None)


def fact(name: str, value: object) -> Fact:
    """A field with a single value; anything but a number becomes text."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return Fact(name, after=cast(float, value) if is_number else str(value))
