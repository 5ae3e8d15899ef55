"""What a condition is: an id, a title and a rule; and what a rule answers."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Optional

from neuca_tools.selftest.evidence import Evidence, Host, Link
from neuca_tools.selftest.evidence.look import Fact, Look

FAULT, LIMIT, INFO = "fault", "limit", "info"
HIGH, MEDIUM, LOW = "high", "medium", "low"


@dataclass(frozen=True)
class Hit:
    """A condition that is met.

    `share` (0 to 1) is the part of the time that was lost, or of what was lost, that it explains. `end` is the host whom the
    advice is for: "sender", "receiver", "path" or "tool". `fixed` is the rate that this limit leaves once the advice is taken,
    None where that cannot be known.
    """

    share: float
    text: str
    facts: tuple[Fact, ...] = ()
    advice: str = ""
    end: str = "path"
    confidence: str = HIGH
    fixed: Optional[float] = None
    severity: Optional[str] = None  # where it differs from the condition's own


class Session(NamedTuple):
    """All phases of a test, for the rules that compare them or look at hosts and paths."""

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
    """The devices on the way to the peer; all of them where the way is not known."""
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
