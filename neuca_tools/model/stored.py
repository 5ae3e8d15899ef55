"""The last good document, as it is kept for a boot on which no source answers."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StoredDocument:
    """The last good document: its text, where it came from, its SHA-256 and when it was first read (RFC 3339, UTC).

    `platform` is the text of the platform's own documents (`documents.platform.reduced`); either may be empty.
    """

    source: str
    sha256: str
    fetched: str
    text: str
    platform: str = ""
