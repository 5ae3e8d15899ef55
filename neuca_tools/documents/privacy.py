"""What of a document may be shown to everybody: the network and the host name, nothing else."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re

from neuca_tools.documents.neuca.values import clip
from neuca_tools.model.links import KINDS

REDACTED = "(redacted)"
SECTIONS = ("global", "interfaces", "routes", "users", "scripts", "storage")
LINK_KINDS = ("interface", "vlan", *KINDS)
_OPEN_SECTIONS = ("interfaces", "routes")
_OPEN_GLOBALS = ("host_name", "router")
SECRET_WORDS = ("token", "secret", "password")
# A key outside the open sections may be a piece of a script or of a public key whose line lost its indentation.
_PLAIN_KEY = re.compile(r"[a-z0-9_.-]{1,32}")


def link_kind(section: str) -> str:
    """`interface`, `vlan`, `bond` and so on where the section is about one link, else empty."""
    kind = section.split(None, 1)[0] if section.strip() else ""
    return kind if kind in LINK_KINDS else ""


def is_known_section(section: str) -> bool:
    """Whether a section means anything to NEuca."""
    return section in SECTIONS or bool(link_kind(section))


def is_open(section: str, key: str = "") -> bool:
    """Whether a key of a section, and its value, may be shown."""
    if any(secret in key for secret in SECRET_WORDS):
        return False
    if section == "global":
        return key in _OPEN_GLOBALS
    return section in _OPEN_SECTIONS or bool(link_kind(section))


def shown_key(section: str, key: str) -> str:
    """A key as a message may name it."""
    return clip(key) if is_open(section, key) or _PLAIN_KEY.fullmatch(key) else ""


def shown_value(section: str, key: str, value: str) -> str:
    """A value as a message may quote it."""
    return clip(value) if is_open(section, key) or not value else REDACTED
