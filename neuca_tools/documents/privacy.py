"""Decide what of a document everybody may read: the network and the host name, nothing else."""

# SPDX-License-Identifier: MIT

import re

from neuca_tools.documents.neuca.values import clip
from neuca_tools.model.links import KINDS

REDACTED = "(redacted)"
SECTIONS = ("global", "interfaces", "routes", "users", "scripts", "storage")
LINK_KINDS = ("interface", "vlan", *KINDS)
_OPEN_SECTIONS = ("interfaces", "routes")
_OPEN_GLOBALS = ("host_name", "router")
SECRET_WORDS = ("token", "secret", "password")
_SECRET = "|".join(SECRET_WORDS)
# In the other sections, a key may be part of a script or of a public key that is not indented.
_PLAIN_KEY = r"[a-z0-9_.-]{1,32}"


def link_kind(section: str) -> str:
    """`interface`, `vlan`, `bond` and so on if the section is about one link, else empty."""
    words = section.split(None, 1)
    return words[0] if words and words[0] in LINK_KINDS else ""


def is_rule(section: str) -> bool:
    """Whether the section is a routing rule."""
    words = section.split()
    return len(words) == 2 and words[0] == "rule"


def is_known_section(section: str) -> bool:
    """Whether NEuca reads a section of this name."""
    return section in SECTIONS or bool(link_kind(section)) or is_rule(section)


def is_open(section: str, key: str) -> bool:
    """Whether a key and its value may be shown."""
    if re.search(_SECRET, key):
        return False
    if section == "global":
        return key in _OPEN_GLOBALS
    return section in _OPEN_SECTIONS or bool(link_kind(section)) or is_rule(section)


def shown_key(section: str, key: str) -> str:
    """A key for messages, clipped; empty if it may not be shown."""
    if is_open(section, key) or re.fullmatch(_PLAIN_KEY, key):
        return clip(key)
    return ""


def shown_value(section: str, key: str, value: str) -> str:
    """A value for messages: clipped, or REDACTED if it may not be shown."""
    return clip(value) if is_open(section, key) or not value else REDACTED
