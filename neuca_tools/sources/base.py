"""What every source has in common: the deadline it must keep, the session it is handed, the answer it gives."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Optional, Protocol, Union

from neuca_tools.errors import SourceError
from neuca_tools.model.machine import Origin, Outlet

BODY_LIMIT = 1 << 20
"""Bytes that are taken from any source, before anything is unpacked."""


INSTANCE_ID = "/latest/meta-data/instance-id"
"""The path of the instance's id in the EC2 tree, at the end of the name that a session remembers it by."""

RUN_DIRECTORY = Path("/run/neuca")


class SourceTimeoutError(SourceError):
    """A source that was still silent, or still talking, when its time was up."""


@dataclass(frozen=True)
class Surroundings:
    """Where the sources find what is known of this host; `check_platform`: whether `auto` asks only whom the firmware names.

    `outlets` are the interfaces that requests may go through, the likeliest management NIC first;
    an address of the host itself (`own`, loopback) needs none. `nics` are the MACs of all NICs. `origin` is the service that has
    answered for this instance: if set, no other one is asked. `blocked` says why there is no outlet.
    `volumes`: whether what was read from a volume counts.
    """

    run_directory: Path = RUN_DIRECTORY
    check_platform: bool = True
    dmi: Path = Path("/sys/class/dmi/id")
    proc: Path = Path("/proc")
    volumes: bool = True
    outlets: tuple[Outlet, ...] = ()
    own: frozenset[str] = frozenset()
    nics: frozenset[str] = frozenset()
    origin: Optional[Origin] = None
    blocked: str = "no NIC that may be for management has a route to it"


@dataclass(frozen=True)
class Deadline:
    """A moment on the monotonic clock, and the budget in seconds that it belongs to (for error texts).

    `stop`, if not None, is a descriptor that becomes readable when nobody waits for the answer any more.
    """

    end: float
    budget: float
    stop: Optional[int] = None

    @classmethod
    def after(cls, budget: float, stop: Optional[int] = None) -> Deadline:
        return cls(time.monotonic() + budget, budget, stop)

    def remaining(self) -> float:
        """Seconds left; zero or less when the time is up."""
        return self.end - time.monotonic()

    def share(self, parts: int) -> Deadline:
        """A deadline that leaves all but one of so many equal parts of the time left to others."""
        now = time.monotonic()
        return replace(self, end=now + (self.end - now) / parts)


@dataclass(frozen=True)
class Token:
    """The IMDSv2 token of one service, or the knowledge that it, or a path of it, has none (an empty value).

    `expires` is in seconds on the monotonic clock, which all processes of one boot share.
    """

    value: str = field(repr=False)
    expires: float


@dataclass(frozen=True)
class Session:
    """What one look learned that makes the next one cheaper: the token of each service, by its base URL."""

    tokens: Mapping[str, Token] = field(default_factory=dict)

    def token(self, service: str) -> Optional[Token]:
        """The token of that service, None where there is none that is still good."""
        token = self.tokens.get(service)
        return token if token is not None and token.expires > time.monotonic() else None

    def keep(self, service: str, token: Token) -> Session:
        return Session({**self.tokens, service: token})

    def doubting(self) -> Session:
        """The same, but for what services have said of the instance: that is asked anew."""
        return Session(
            {
                service: token
                for service, token in self.tokens.items()
                if not service.endswith(INSTANCE_ID)
            }
        )

    def joined(self, other: Session) -> Session:
        """Both; where they differ, the other one is the later."""
        return Session({**self.tokens, **other.tokens})

    def to_json(self) -> dict[str, list[Union[str, float]]]:
        """For json.dumps on the pipe between a look and the daemon. It holds secrets: never log or store it."""
        return {service: [token.value, token.expires] for service, token in self.tokens.items()}

    @classmethod
    def from_json(cls, value: object) -> Session:
        """The reverse. What has another shape is left out, since all that it can cost is one request for a token."""
        entries = value.items() if isinstance(value, dict) else ()
        return cls(
            {
                service: Token(entry[0], float(entry[1]))
                for service, entry in entries
                if _is_token(entry)
            }
        )


def _is_token(entry: object) -> bool:
    return (
        isinstance(entry, (list, tuple))
        and len(entry) == 2
        and isinstance(entry[0], str)
        and isinstance(entry[1], (int, float))
    )


@dataclass(frozen=True)
class Answer:
    """What one source said. `data` None is a positive "there is none"; `session` is for the next look.

    `parts` are the platform's own documents by their names (`documents.platform`); one that is missing says nothing.
    `instance`: the id of the instance with its kind (`ec2:i-0abc`), where it is in none of them; empty if not known.
    `origin`: the service that answered, None for a source that needs no network.
    """

    source: str
    data: Optional[bytes] = field(repr=False)
    session: Session = field(default_factory=Session)
    parts: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    instance: str = field(
        default="", repr=False
    )  # what a service answers that answers every path alike
    origin: Optional[Origin] = None

    @property
    def empty(self) -> bool:
        return self.data is None and not self.parts


class Source(Protocol):
    """One place that may hold a document. Making one asks nobody anything; the argument is what follows its name.

    Both questions raise SourceError whose text leaves out the source's own name, since the caller puts it in front.
    """

    name: str
    local: bool = True
    """Whether it never asks the network, and so answers at once."""
    outlet: Optional[Outlet] = None
    """The interface that its requests go through."""

    @property
    def origin(self) -> Optional[Origin]:
        """What to remember if it answers; None for a source that needs no network."""
        return None

    def through_each(self) -> Sequence[Source]:
        """The same source on each interface that its requests may go through, the likeliest first."""
        return (self,)

    def ways(self) -> Sequence[Source]:
        """The same source at each address that it may have, the likeliest first: the first that answers speaks for it."""
        return (self,)

    def documents(self, deadline: Deadline, session: Session) -> Answer:
        """The user-data as its bytes, and the platform's own documents."""

    def metadata(self, path: str, deadline: Deadline, session: Session) -> Answer:
        """One item of metadata by its path in the EC2 tree (`/latest/meta-data/public-ipv4`)."""
