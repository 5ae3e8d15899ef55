"""The last good document, as stored for a boot on which no source responds."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StoredDocument:
    """The last good document.

    `fetched` is when it was first read (RFC 3339, UTC). `platform` is the text of the platform's
    own documents (`documents.platform.combined.reduced`). `text` or `platform` may be empty.
    """

    source: str
    sha256: str
    fetched: str
    text: str
    platform: str = ""
