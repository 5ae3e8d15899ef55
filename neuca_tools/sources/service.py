"""A metadata service, requested over HTTP through possible management NICs only."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import copy
from ipaddress import ip_address
from itertools import chain, groupby
from typing import TYPE_CHECKING, ClassVar, Optional

from neuca_tools.errors import SourceError
from neuca_tools.model import Host
from neuca_tools.model.machine import MetadataService, Outlet
from neuca_tools.sources.base import Deadline, Source, Surroundings, Url, parse_url

if TYPE_CHECKING:
    from neuca_tools.sources.http import Connection, Response

LINK_LOCAL = Url("169.254.169.254")  # the IPv4 address in every cloud (range: RFC 3927)
_MAX_OUTLETS = 4  # interfaces through which one service is requested


def outlets_for(url: Url, surroundings: Surroundings, named: bool) -> list[Optional[Outlet]]:
    """The interfaces through which this URL may be requested; None stands for the host itself.

    A URL from the administrator or the platform (`named`) may be behind any NIC with a route to it,
    a well-known address only behind likely management NICs.
    """
    bare, _, zone = url.address.partition("%")
    address = ip_address(bare)
    if address.is_loopback or str(address) in surroundings.own_addresses:
        return [None]
    outlets = [
        outlet
        for outlet in sorted(surroundings.outlets, key=lambda outlet: not outlet.is_likely)
        if (named or outlet.is_likely) and zone in ("", outlet.name) and outlet.reaches(address)
    ]
    return list(outlets[:_MAX_OUTLETS])


class Service(Source):
    """`kind`, or `kind=URL`. Without a URL, the IPv4 address is tried before those of IPv6."""

    kind = ""
    local = False
    well_known = LINK_LOCAL
    other_urls: tuple[Url, ...] = ()  # to try besides the IPv4 address
    headers: ClassVar[Mapping[str, str]] = {}  # of every request
    guarded: tuple[Host, ...] = ()  # other addresses of the platform, for `hosts`

    def __init__(self, argument: str, surroundings: Surroundings) -> None:
        self.named, self.surroundings = bool(argument), surroundings
        self.url, self.name = self.well_known, self.kind
        if argument:
            self.url = parse_url(argument)
            self.name = f"{self.kind}={self.url}"
        self.outlet: Optional[Outlet] = None
        self._connection: Optional[Connection] = None

    @property
    def origin(self) -> MetadataService:
        identity = self.outlet.identity if self.outlet else ""
        others = self.surroundings.nic_macs - {identity.partition(".")[0]}
        return MetadataService(
            self.kind, _url_without_zone(self.url), identity, tuple(sorted(others))
        )

    @property
    def session_key(self) -> str:
        """The key of this service in a Session: behind another NIC there is another service."""
        if self.outlet is None:
            return str(self.url)
        return f"{self.url} {self.outlet.identity}"

    def through_each(self) -> Sequence[Service]:
        urls = self._possible_urls()
        outlets = [outlets_for(url, self.surroundings, self.named) for url in urls]
        services = [self._at(self.url, outlet) for outlet in {*chain.from_iterable(outlets)}]
        if services or not urls:
            return sorted(services, key=_outlet_rank)
        return [self]  # its request fails with the reason why there is no interface

    def ways(self) -> Sequence[Service]:
        return [
            self._at(_url_with_zone(url, self.outlet), self.outlet)
            for url in self._possible_urls()
            if self.outlet in outlets_for(url, self.surroundings, self.named)
        ] or [self]

    def _possible_urls(self) -> list[Url]:
        """Every address that it may have; only the known one if a service has answered before."""
        urls = (self.url,) if self.named else (self.url, *self.other_urls)
        origin = self.surroundings.origin
        return [url for url in urls if origin is None or _url_without_zone(url) == origin.url]

    def known_at(self) -> frozenset[str]:
        """Its possible URLs, without interfaces."""
        return frozenset(map(_url_without_zone, self._possible_urls()))

    def hosts(self) -> Iterator[Host]:
        """The addresses that no document may take over."""
        for url in self._possible_urls():
            yield ip_address(url.address.partition("%")[0])
        yield from self.guarded

    def _at(self, url: Url, outlet: Optional[Outlet]) -> Service:
        other = copy(self)
        other.url, other.outlet = url, outlet
        return other

    def request(
        self, method: str, path: str, headers: Mapping[str, str], deadline: Deadline
    ) -> Response:
        """Make a request through the outlet of this service. Raises SourceError."""
        connection = self._open_connection(f"{method} {self.url}{path}")
        return connection.request(method, path, headers, deadline)

    def get(self, path: str, deadline: Deadline, absent: Collection[int] = ()) -> Response:
        """GET a path as `Connection.get` does, with the headers of every request."""
        connection = self._open_connection(f"GET {self.url}{path}")
        return connection.get(path, deadline, self.headers, absent)

    def _open_connection(self, what: str) -> Connection:
        """The connection of all requests until `close`, where the service allows it."""
        if self.outlet not in outlets_for(self.url, self.surroundings, self.named):
            raise SourceError(f"{what}: {self.surroundings.blocked}")
        if self._connection is None:
            # Files are read without http.client, which takes 19 ms.
            from neuca_tools.sources.http import Connection

            name = self.outlet.name if self.outlet else ""
            self._connection = Connection(self.url._replace(device=name))
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def by_outlet(sources: Sequence[Source]) -> list[Source]:
    """Each source on each of its interfaces."""
    made: list[Source] = []
    for are_services, row in groupby(sources, lambda source: isinstance(source, Service)):
        group = [way for source in row for way in source.through_each()]
        # They are all asked on one interface before any is asked on the next: the kind of a service
        # does not tell how trustworthy its network is.
        if are_services:
            group.sort(key=_outlet_rank)
        made += group
    return made


def _outlet_rank(source: Source) -> int:
    """The index of its interface in the order of preference, -1 for none."""
    if not isinstance(source, Service) or source.outlet not in source.surroundings.outlets:
        return -1
    return source.surroundings.outlets.index(source.outlet)


def _url_without_zone(url: Url) -> str:
    return str(url._replace(address=url.address.partition("%")[0]))


def _url_with_zone(url: Url, outlet: Optional[Outlet]) -> Url:
    """The URL, with the zone of a link-local IPv6 address (RFC 4007, section 11)."""
    if outlet is None or "%" in url.address or not url.address.lower().startswith("fe80:"):
        return url
    return url._replace(address=f"{url.address}%{outlet.name}")
