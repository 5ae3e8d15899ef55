"""A metadata service that is asked over HTTP: at the address that the configuration names, or wherever such a one may be."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from neuca_tools.sources.base import Deadline, Source, Surroundings
from neuca_tools.sources.url import Url, parse_url

if TYPE_CHECKING:
    from neuca_tools.sources.http import Response

LINK_LOCAL = Url("169.254.169.254")  # in RFC 3927's range: every cloud's IPv4 address
_MOST_NICS = 4  # that are asked for a link-local IPv6 address


class Service(Source):
    """`kind`, or `kind=URL`. Without a URL it is asked at its IPv4 address first, then at those of IPv6."""

    kind = ""
    local = False

    def __init__(self, argument: str, surroundings: Surroundings) -> None:
        self.named, self.surroundings = bool(argument), surroundings
        self.url = parse_url(argument) if argument else LINK_LOCAL
        self.name = f"{self.kind}={self.url}" if argument else self.kind

    def ways(self) -> Sequence[Service]:
        return [self] if self.named else [self, *map(self._at, self.other_urls())]

    def other_urls(self) -> Iterable[Url]:
        """Where it may be, beside the IPv4 address."""
        return ()

    def _at(self, url: Url) -> Service:
        other = copy.copy(self)
        other.url = url
        return other

    def request(
        self, method: str, path: str, headers: Mapping[str, str], deadline: Deadline
    ) -> Response:
        """Raises SourceError."""
        from neuca_tools.sources import http  # 12 ms, which a look at a file need not pay

        return http.request(method, self.url, path, headers, deadline)


def ways_out(proc: Path) -> list[str]:
    """The names of the NICs that carry a default route of either family; proc(5), and net/ipv6/route.c for IPv6."""
    four = (
        row[0] for row in _rows(proc / "net/route") if len(row) > 7 and row[1] == row[7] == "0" * 8
    )
    six = (
        row[9]
        for row in _rows(proc / "net/ipv6_route")
        if len(row) > 9 and row[0] == "0" * 32 and row[1] == "00"
    )
    return [name for name in dict.fromkeys((*four, *six)) if name != "lo"][:_MOST_NICS]


def _rows(path: Path) -> Iterator[list[str]]:
    try:
        text = path.read_text(errors="replace")
    except OSError:  # a kernel without this family
        return
    for line in text.splitlines():
        yield line.split()
