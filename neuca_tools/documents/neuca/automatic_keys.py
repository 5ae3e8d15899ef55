"""Parse the keys of a NIC's section for DHCP and router advertisements."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from typing import Any, Optional

from neuca_tools.documents.neuca import values
from neuca_tools.documents.neuca.values import UnusableError
from neuca_tools.model import Automatic
from neuca_tools.model.links import LinkKey

# The field of `Automatic` that each key sets.
FIELDS = {"dhcp4": "dhcp4", "dhcp6": "dhcp6", "accept-ra": "accept_ra"}
_WORDS = {"yes": True, "no": False}


def read(link: LinkKey, key: str, text: str) -> tuple[Automatic, str]:
    """The request of one line, and its value for display. Raises UnusableError."""
    if link.kind == "vrf":
        raise UnusableError("a VRF has neither DHCP nor router advertisements")
    word = values.word(text, _WORDS)
    changes: dict[str, Any] = {FIELDS[key]: _WORDS[word]}
    return Automatic(**changes), word


def over(above: Optional[Automatic], below: Optional[Automatic]) -> Optional[Automatic]:
    """Merge both, field by field; `above` wins."""
    if above is None or below is None:
        return above or below
    given: dict[str, Any] = {
        name: value for name, value in above._asdict().items() if value not in (None, ())
    }
    return below._replace(**given)
