"""The protocol of sources, and what it uses: URL, surroundings, deadline, session and answer.

URLs are http with a literal address, so that no request waits for DNS.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
import select
import time
from collections.abc import Mapping, Sequence
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple, Optional, Protocol

from neuca_tools.errors import SourceError, UsageError
from neuca_tools.model.machine import MetadataService, Outlet

BODY_LIMIT = 1 << 20  # bytes accepted from any source, before decompression
# Paths of the EC2 tree; each is the end of a key in a session under which its value is cached.
INSTANCE_ID = "/latest/meta-data/instance-id"
NICS = "/latest/meta-data/network/interfaces/macs/"
RUN_DIRECTORY = Path("/run/neuca")
_HOST = r"(?:\[(?P<v6>[^\[\]/]+)\]|(?P<v4>[^\[\]/:@\s]+))"
_BASE = rf"http://{_HOST}(?::(?P<port>[0-9]{{1,5}}))?(?P<prefix>/[A-Za-z0-9._~/-]*)?"


class Url(NamedTuple):
    """A base URL."""

    address: str  # a literal address; an IPv6 address may have a `%zone`
    port: int = 80
    prefix: str = ""  # the path, empty or starting with a slash
    device: str = ""  # the interface to which the socket is bound; empty for none

    @property
    def authority(self) -> str:
        """The Host header, without the zone, which means nothing to the server (RFC 6874, 1)."""
        return self._with_port(self.address.partition("%")[0])

    def __str__(self) -> str:
        return f"http://{self._with_port(self.address)}{self.prefix}"

    def _with_port(self, address: str) -> str:
        host = f"[{address}]" if ":" in address else address
        return host if self.port == 80 else f"{host}:{self.port}"


def parse_url(text: str) -> Url:
    """Parse `http://ADDRESS[:PORT][/PREFIX]`. Raises UsageError."""
    match = re.fullmatch(_BASE, text)
    if match is None:
        raise UsageError(f'"{text}" is not http://ADDRESS[:PORT][/PATH]')
    address = match["v6"] or match["v4"]
    if not _is_literal(address, 6 if match["v6"] else 4):
        raise UsageError(
            f'"{address}" is not a literal address',
            "Names are not looked up: without a network yet, DNS costs minutes.",
        )
    port = int(match["port"] or 80)
    if not 1 <= port <= 65535:
        raise UsageError(f"port {port} is not from 1 to 65535")
    return Url(address, port, (match["prefix"] or "").rstrip("/"))


def _is_literal(text: str, version: int) -> bool:
    try:
        return text.isprintable() and ip_address(text).version == version
    except ValueError:
        return False


class Surroundings(NamedTuple):
    """What the sources need to know about the host and its configuration."""

    run_directory: Path = RUN_DIRECTORY
    check_platform: bool = True  # `auto` asks only the services of the cloud in the firmware
    dmi: Path = Path("/sys/class/dmi/id")
    proc: Path = Path("/proc")
    volumes: bool = True  # documents copied from volumes may be used
    outlets: tuple[Outlet, ...] = ()  # for requests, the likeliest management NIC first
    own_addresses: frozenset[str] = frozenset()  # of this host; they and loopback need no outlet
    nic_macs: frozenset[str] = frozenset()  # those of all NICs
    # The service that has answered for this instance; if set, no other one is asked.
    origin: Optional[MetadataService] = None
    # The reason if there is no outlet.
    blocked: str = "no NIC that may be for management has a route to it"


DEFAULT_SURROUNDINGS = Surroundings()


class Deadline(NamedTuple):
    """A point in time on the monotonic clock, and the budget in seconds for error messages."""

    end: float
    budget: float
    stop: Optional[int] = None  # a descriptor, readable once no response is needed any more

    @classmethod
    def after(cls, budget: float, stop: Optional[int] = None) -> Deadline:
        return cls(time.monotonic() + budget, budget, stop)

    def remaining(self) -> float:
        """Seconds left; zero or less once the time is up."""
        return self.end - time.monotonic()

    def wait(self, descriptor: int, event: int) -> bool:
        """Whether an event (select.POLLIN, …) comes in time. Raises SourceError after `stop`."""
        ready = select.poll()
        ready.register(descriptor, event)
        if self.stop is not None:
            ready.register(self.stop, select.POLLIN)
        descriptors = {number for number, _ in ready.poll(1000 * max(0.0, self.remaining()))}
        if self.stop in descriptors:
            raise SourceError("the response is no longer needed")
        return bool(descriptors)

    def share(self, parts: int) -> Deadline:
        """A deadline after the first of `parts` equal parts of the remaining time."""
        now = time.monotonic()
        return self._replace(end=now + (self.end - now) / parts)


class Token(NamedTuple):
    """The IMDSv2 token of a service, or a cached part of its tree; an empty value means none."""

    value: str
    expires: float  # in seconds on the monotonic clock, which all processes of one boot share

    def __repr__(self) -> str:
        return "Token()"


class Session(NamedTuple):
    """What is cached from one look to the next: tokens by the base URL of the service.

    They are secrets: never log or store them.
    """

    tokens: Mapping[str, Token] = {}

    def token(self, service: str) -> Optional[Token]:
        """The token of a service; None if there is none or if it has expired."""
        token = self.tokens.get(service)
        if token is None or token.expires <= time.monotonic():
            return None
        return token

    def keep(self, service: str, token: Token) -> Session:
        return Session({**self.tokens, service: token})

    def without_trees(self) -> Session:
        """This session without what is cached of the trees, so that it is read again."""
        ends = (INSTANCE_ID, NICS)
        return Session({key: token for key, token in self.tokens.items() if not key.endswith(ends)})

    def joined(self, other: Session) -> Session:
        """The union of both sessions; `other` takes precedence."""
        return Session({**self.tokens, **other.tokens})

    @classmethod
    def from_json(cls, value: Mapping[str, tuple[str, float]]) -> Session:
        """A session that came as JSON through the pipe to the daemon."""
        return cls({service: Token(*entry) for service, entry in value.items()})


class Answer(NamedTuple):
    """The answer of one source."""

    source: str
    data: Optional[bytes]  # the user-data; None if the source positively has none
    session: Session = Session()  # for the next look
    parts: Mapping[str, bytes] = {}  # the platform's own documents by name (`documents.platform`)
    instance: str = ""  # its ID with its kind (`ec2:i-0abc`) if it is in none of the parts
    origin: Optional[MetadataService] = None  # what answered; None for a source without network
    outlet: Optional[Outlet] = None  # the interface through which the answer came, None for none
    unread: str = ""  # why the platform's documents could not be read; empty if they were

    def __repr__(self) -> str:
        # The rest may have secrets, even `instance`: a service may answer every path alike.
        return f"Answer({self.source!r})"

    @property
    def is_empty(self) -> bool:
        return self.data is None and not self.parts

    @property
    def digest(self) -> str:
        """The digest of the documents."""
        parts = [self.data or b"", *(self.parts[name] for name in sorted(self.parts))]
        return sha256(b"\0".join(parts)).hexdigest()


class Source(Protocol):
    """A place that may hold a document. Constructing one reads nothing.

    `documents` and `metadata` raise SourceError without the name of the source in its text: the
    caller adds it.
    """

    name: str
    local: bool = True  # it never uses the network, and so answers at once
    outlet: Optional[Outlet] = None  # the interface through which its requests go

    @property
    def origin(self) -> Optional[MetadataService]:
        """The service to remember if it answers; None for a source without network."""
        return None

    def through_each(self) -> Sequence[Source]:
        """This source on each interface through which its requests may go, the likeliest first."""
        return (self,)

    def ways(self) -> Sequence[Source]:
        """This source at each of its addresses, the likeliest first; the first answer is used."""
        return (self,)

    def documents(self, deadline: Deadline, session: Session) -> Answer:
        """The user-data and the platform's own documents. Raises SourceError."""

    def metadata(self, path: str, deadline: Deadline, session: Session) -> Answer:  # noqa: ARG002
        """One item of metadata by its path in the EC2 tree. Most sources raise SourceError."""
        raise SourceError(f"it has no {path}: only ec2 and alibaba have paths")

    def close(self) -> None:
        """Close the connections of a query; called after each query."""
        return
