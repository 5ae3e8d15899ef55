"""Parse the platforms' own documents: what `combined` does, loaded when there is one.

Many guests have no such document, and most commands read none. The docstrings are in `combined`.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

# Imports inside functions: only hosts on a platform need the readers, which take 8 ms.

if TYPE_CHECKING:
    from neuca_tools.model import PlatformDocument

BY_NAME = "name "
"""How the key of a link begins that the document names instead of giving its MAC."""


def reduced(parts: Mapping[str, bytes]) -> str:
    if not parts:
        return ""
    from neuca_tools.documents.platform import combined

    return combined.reduced(parts)


def instance_id(text: str) -> str:
    if not text:
        return ""
    from neuca_tools.documents.platform import combined

    return combined.instance_id(text)


def incomplete(text: str, before: str, macs: Collection[str]) -> str:
    if not text:
        return ""
    from neuca_tools.documents.platform import combined

    return combined.incomplete(text, before, macs)


def open_text(text: str) -> str:
    from neuca_tools.documents.platform import combined

    return combined.open_text(text)


def parse(text: str) -> PlatformDocument:
    from neuca_tools.documents.platform import combined

    return combined.parse(text)
