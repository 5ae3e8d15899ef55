"""Results of other programs than iperf: what was recognized, and how it is read."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import NamedTuple, Optional

from neuca_tools.errors import SelftestError
from neuca_tools.selftest.evidence import Latency
from neuca_tools.selftest.evidence.run import Run

# RFC 1952.
GZIP = b"\x1f\x8b"
# zlib's number for a gzip header, with the largest window.
GZIP_WINDOW = 31
# Bytes that a compressed document may expand to; an hour of flent's rrul has about 15 MiB.
MOST_EXPANDED = 32 * 1024 * 1024


class Imported(NamedTuple):
    """Runs, and what the program measured beside them. `rtt` is that of the idle path, in s."""

    runs: Sequence[Run]
    rtt: Optional[float] = None
    idle: Latency = Latency()
    loaded: Latency = Latency()


def expanded(content: bytes) -> bytes:
    """The content, decompressed if it is gzip. Raises SelftestError."""
    found = b""
    rest = content
    while rest.startswith(GZIP):
        member = zlib.decompressobj(GZIP_WINDOW)
        try:
            found += member.decompress(rest, MOST_EXPANDED + 1 - len(found))
        except zlib.error:
            raise SelftestError("read the gzip file: it is damaged") from None
        if len(found) > MOST_EXPANDED:
            most = MOST_EXPANDED // 1024 // 1024
            raise SelftestError(f"read the gzip file: it expands to more than {most} MiB")
        if not member.eof:
            raise SelftestError("read the gzip file: it is truncated")
        rest = member.unused_data
    return found if content.startswith(GZIP) else content


def latency(seconds: Sequence[float]) -> Latency:
    """The distribution of round trips, of which the lost ones are not known."""
    if not seconds:
        return Latency()
    known = sorted(seconds)
    p50, p99 = known[(len(known) - 1) // 2], known[(len(known) - 1) * 99 // 100]
    return Latency(len(known), None, p50, p99, known[-1])
