"""What a rule is about, a phase (Look) or all phases with both hosts (Session), and its Hit."""

# SPDX-License-Identifier: MIT

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple, Optional

from neuca_tools.selftest.evidence import Evidence, Host, Link
from neuca_tools.selftest.evidence.look import Fact, Look

Severity = Literal["fault", "limit", "info"]
Confidence = Literal["high", "medium", "low"]
# The advice where the path is the limit.
ORDERED = "compare it with the rate that was ordered; no setting of the hosts makes it faster"
# The tunnels, and the bytes that each adds to a packet over IPv4.
TUNNELS = {"vxlan": 50, "geneve": 50, "gre": 38}


class Hit(NamedTuple):
    """A condition that applies.

    `share` (0 to 1) is how much of the lost time, or of the lost packets, it explains. `end` is
    where the advice applies: "sender", "receiver", "local", "peer", "both", "path" or "tool".
    `sysctls` are the settings that the advice consists of; `advice` is the rest of it, in words.
    `severity` overrides that of the condition. `direction` ("forward" or "reverse") is where a rule
    that compares phases found it; None if it is not of one direction. `title` is that of the
    finding, unless it is the usual one of the condition.
    """

    share: float
    text: str
    facts: tuple[Optional[Fact], ...] = ()
    advice: str = ""
    end: str = "path"
    confidence: Confidence = "high"
    severity: Optional[Severity] = None
    direction: Optional[str] = None
    title: Optional[str] = None
    sysctls: Mapping[str, str] = MappingProxyType({})

    @property
    def recommendation(self) -> str:
        """The sysctls as a command, and the rest of the advice."""
        return "; ".join(filter(None, (sysctl_command(self.sysctls), self.advice)))


def sysctl_command(sysctls: Mapping[str, str]) -> str:
    """The sysctl(8) command that sets these; empty if there are none."""
    settings = (
        f'{name}="{value}"' if " " in value else f"{name}={value}"
        for name, value in sysctls.items()
    )
    return " ".join(["sysctl -w", *settings]) if sysctls else ""


def single_fact(name: str, value: object) -> Fact:
    """A field with a single value; anything but None and numbers becomes text."""
    if value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        return Fact(name, after=value)
    return Fact(name, after=str(value))


def known_facts(facts: Iterable[Optional[Fact]]) -> tuple[Fact, ...]:
    """The facts that have a value."""
    return tuple(each for each in facts if each is not None and each.after is not None)


# --- Subjects of rules ----------------------------------------------------------------------------


class Session(NamedTuple):
    """All phases of a test, for the rules that compare phases or examine hosts and paths."""

    evidence: Evidence
    looks: tuple[Look, ...]

    def named(self, name: str, direction: str = "forward") -> Optional[Look]:
        """The first phase with this name and direction that took long enough to be compared."""
        for look in self.looks:
            is_named = (look.phase.name, look.phase.direction) == (name, direction)
            if is_named and not look.is_too_short:
                return look
        return None

    @property
    def hosts(self) -> tuple[tuple[str, Host], ...]:
        """Both hosts, each with the name of its end."""
        return (("local", self.evidence.local), ("peer", self.evidence.peer))

    @property
    def tcp(self) -> tuple[Look, ...]:
        """The TCP phases in which a rate was measured."""
        return tuple(look for look in self.looks if look.protocol == "tcp" and look.rate)

    def other_end(self, end: str) -> str:
        """The address of the other host as `end` ("local" or "peer") sees it, if it is known."""
        address = self.evidence.address
        if end == "peer":
            runs = (phase.run for phase in self.evidence.phases if phase.run)
            known = (connection.local for run in runs for connection in run.connections)
            address = next(known, None)
        return address or "the peer's address"


class Cause(NamedTuple):
    """A condition with its id in neuca-selftest(1), and the rule by which it is recognized.

    Most look at one phase, or at all phases and both hosts, and a few at either. The title is
    used unless a hit has another one.
    """

    id: str
    title: str
    severity: Severity
    of_phase: Optional[Callable[[Look], Optional[Hit]]] = None
    of_session: Optional[Callable[[Session], Optional[Hit]]] = None


def first_hit(hits: Iterable[Optional[Hit]]) -> Optional[Hit]:
    return next(filter(None, hits), None)


def of_all_directions(hits: Iterable[Optional[Hit]]) -> Optional[Hit]:
    """The first hit, without a direction if the other direction has one like it."""
    known = list(filter(None, hits))
    if not any(_is_alike(known[0], hit) for hit in known):
        return first_hit(known)
    text = f"{known[0].text}; likewise in the other direction"
    return known[0]._replace(direction=None, text=text)


def _is_alike(hit: Hit, other: Hit) -> bool:
    """Whether the other direction has the same evidence, or less of it, and neither is a guess."""
    if hit.direction == other.direction or "low" in (hit.confidence, other.confidence):
        return False
    mine, others = ([fact.field for fact in known_facts(each.facts)] for each in (hit, other))
    return mine == others or hit.confidence == "high"


def for_each_host(rule: Callable[[str, Host], Optional[Hit]]) -> Callable[[Session], Optional[Hit]]:
    """Apply a rule about one host ("local" or "peer") to both, until it hits."""
    return lambda session: first_hit(rule(end, host) for end, host in session.hosts)


def smallest_mtu(links: Iterable[Link]) -> Optional[int]:
    """Bytes; None if no MTU is known."""
    return min((link.mtu for link in links if link.mtu), default=None)
