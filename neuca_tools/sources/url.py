"""Base URLs of metadata services: http and a literal address, so that no request waits for DNS."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from dataclasses import dataclass, field
from ipaddress import ip_address

from neuca_tools.errors import UsageError

_HOST = r"(?:\[(?P<v6>[^\[\]/]+)\]|(?P<v4>[^\[\]/:@\s]+))"
_BASE = re.compile(rf"http://{_HOST}(?::(?P<port>[0-9]{{1,5}}))?(?P<prefix>/[A-Za-z0-9._~/-]*)?")


@dataclass(frozen=True)
class Url:
    """A base URL.

    address: a literal address; an IPv6 address may have a `%zone`
    prefix: the path, empty or starting with a slash
    device: the interface to which the socket is bound; empty for none
    """

    address: str
    port: int = 80
    prefix: str = ""
    device: str = field(default="", compare=False)

    @property
    def authority(self) -> str:
        """The Host header, without the zone, which means nothing to the server (RFC 6874, 1)."""
        bare = self.address.partition("%")[0]
        return self._with_port(bare)

    def __str__(self) -> str:
        return f"http://{self._with_port(self.address)}{self.prefix}"

    def _with_port(self, address: str) -> str:
        host = f"[{address}]" if ":" in address else address
        return host if self.port == 80 else f"{host}:{self.port}"


def parse_url(text: str) -> Url:
    """Parse `http://ADDRESS[:PORT][/PREFIX]`. Raises UsageError."""
    match = _BASE.fullmatch(text)
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
        raise UsageError(f"port {port} is not one of 1 to 65535")
    return Url(address, port, (match["prefix"] or "").rstrip("/"))


def _is_literal(text: str, version: int) -> bool:
    try:
        return text.isprintable() and ip_address(text).version == version
    except ValueError:
        return False
