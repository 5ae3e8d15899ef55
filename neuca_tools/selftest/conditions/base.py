"""What a condition is (an id, a title and a rule), and what its rule returns."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Optional

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
        return next(
            (
                one
                for one in self.looks
                if one.phase.name == name and one.phase.direction == direction
            ),
            None,
        )

    @property
    def hosts(self) -> tuple[tuple[str, Host], ...]:
        return (("local", self.evidence.local), ("peer", self.evidence.peer))

    @property
    def tcp(self) -> tuple[Look, ...]:
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
    """The last of the three numbers of tcp_rmem or tcp_wmem."""
    words = host.sysctls.get(name, "").split()
    return int(words[-1]) if words and words[-1].isdecimal() and len(words[-1]) < 20 else None


def number(host: Host, name: str) -> Optional[int]:
    return sysctl_max(host, name)


def fact(name: str, value: object) -> Fact:
    """A field that did not change, or of which only one value is known."""
    return Fact(
        name,
        after=value
        if isinstance(value, (int, float)) and not isinstance(value, bool)
        else str(value),
    )
