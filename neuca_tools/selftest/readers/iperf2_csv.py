"""The comma-separated report of iperf 2 (-y C), as the lines that it prints otherwise."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re

# Time, both ends, stream (-1 is all of them), interval, bytes, bit/s; of UDP jitter in ms, lost
# datagrams and all of them. 2.0 to 2.2 put more after that.
_LINE = re.compile(
    r"^(?:[+-]\d{4}:)?\d{14}(?:\.\d{1,6})?,(?P<local>[^,\s]{1,80}),(?P<port>\d{1,5}),"
    r"(?P<remote>[^,\s]{1,80}),(?P<far>\d{1,5}),(?P<id>-?\d{1,9}),"
    r"(?P<start>[\d.]{1,12})-(?P<end>[\d.]{1,12}),(?P<bytes>\d{1,18}),(?P<rate>\d{1,18})"
    r"(?:,(?P<jitter>[\d.]{1,12}),(?P<lost>-?\d{1,18}),(?P<count>\d{1,18}))?.{0,200}$",
    re.MULTILINE,
)
_FIRST = re.compile(r"^(?:[+-]\d{4}:)?\d{14}(?:\.\d{1,6})?,", re.MULTILINE)


def as_text(document: str) -> str:
    """The document with each line of this report replaced; as it was if it has none."""
    if not _FIRST.search(document):
        return document
    connections = dict.fromkeys(_connection(found) for found in _LINE.finditer(document))
    return "\n".join((*connections, _LINE.sub(_row, document)))


def _connection(found: re.Match[str]) -> str:
    ends = f"local {found['local']} port {found['port']}"
    return f"[{_stream(found)}] {ends} connected with {found['remote']} port {found['far']}"


def _row(found: re.Match[str]) -> str:
    row = (
        f"[{_stream(found)}] {found['start']}-{found['end']} sec  {found['bytes']} Bytes  "
        f"{found['rate']} bits/sec"
    )
    if found["count"]:
        row += f"  {found['jitter']} ms  {found['lost']}/{found['count']}"
    return row


def _stream(found: re.Match[str]) -> str:
    return "SUM" if found["id"].startswith("-") else f"{found['id']:>3}"
