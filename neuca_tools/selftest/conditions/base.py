"""What a rule returns: a Hit with its facts and its recommendation."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Optional

from neuca_tools.selftest.evidence.look import Fact

FAULT, LIMIT, INFO = "fault", "limit", "info"
HIGH, MEDIUM, LOW = "high", "medium", "low"
# The advice where the path is the limit.
ORDERED = "compare it with the rate that was ordered; no setting of the hosts makes it faster"


@dataclass(frozen=True)
class Hit:
    """A condition that applies.

    `share` (0 to 1) is how much of the lost time, or of the lost packets, it explains. `end` is
    where the advice applies: "sender", "receiver", "local", "peer", "both", "path" or "tool".
    `sysctls` are the settings that the advice consists of; `advice` is the rest of it, in words.
    `fixed` is the rate in bit/s that this limit allows once the advice is taken, if it can be
    computed. `severity` overrides that of the condition. `direction` ("forward" or "reverse") is
    where a rule that compares phases found it; None if it is not of one direction. `title` is that
    of the finding, unless it is the usual one of the condition.
    """

    share: float
    text: str
    facts: tuple[Optional[Fact], ...] = ()
    advice: str = ""
    end: str = "path"
    confidence: str = HIGH
    fixed: Optional[float] = None
    severity: Optional[str] = None
    direction: Optional[str] = None
    title: Optional[str] = None
    sysctls: Mapping[str, str] = field(default_factory=dict)

    @property
    def recommendation(self) -> str:
        """The sysctls as a command, and the rest of the advice."""
        return "; ".join(filter(None, (sysctl_command(self.sysctls), self.advice)))


def sysctl_command(sysctls: Mapping[str, str]) -> str:
    """The sysctl(8) command that sets these; empty if there are none."""
    if not sysctls:
        return ""
    return " ".join(
        ["sysctl -w", *(f"{name}={_quoted_if_spaced(sysctls[name])}" for name in sysctls)]
    )


def _quoted_if_spaced(value: str) -> str:
    return f'"{value}"' if " " in value else value


def single_fact(name: str, value: object) -> Fact:
    """A field with a single value; anything but None and numbers becomes text."""
    if value is None:
        return Fact(name)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return Fact(name, after=value)
    return Fact(name, after=str(value))


def known_facts(facts: Iterable[Optional[Fact]]) -> tuple[Fact, ...]:
    """Those that have a value."""
    return tuple(each for each in facts if each is not None and each.after is not None)
