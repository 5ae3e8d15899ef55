"""What bonds, bridges, VXLANs and macvlans are made of, as texts say it: the keys of `[bond NAME]` and its like.

References: bonding.rst and bridge.rst of the kernel, ip-link(8), RFC 7348. The words stand at their kernel's number.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Mapping
from typing import Callable, Optional

from neuca_tools.documents.neuca import values
from neuca_tools.documents.neuca.values import UnusableError
from neuca_tools.model import Host
from neuca_tools.model.links import KINDS, LinkKey, Virtual

MOST_MEMBERS = 256
WORDS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("bond", "mode"): (
        "balance-rr",
        "active-backup",
        "balance-xor",
        "broadcast",
        "802.3ad",
        "balance-tlb",
        "balance-alb",
    ),
    ("bond", "lacp-rate"): ("slow", "fast"),
    ("bond", "xmit-hash-policy"): (
        "layer2",
        "layer3+4",
        "layer2+3",
        "encap2+3",
        "encap3+4",
        "vlan+srcmac",
    ),
    ("bond", "ad-select"): ("stable", "bandwidth", "count"),
    ("bond", "fail-over-mac"): ("none", "active", "follow"),
    ("bridge", "stp"): ("no", "yes"),
}
MACVLAN_MODES = ("bridge", "private", "vepa", "passthru")
DEFAULTS: Mapping[str, Mapping[str, str]] = {
    "bond": {"miimon": "100"},  # ms; the kernel's 0 never notices that a link is lost (bonding.rst)
    "bridge": {},
    "vxlan": {
        "port": "4789"
    },  # IANA's, RFC 7348, section 5; the kernel's own 8472 is older than that
    "macvlan": {
        "mode": "bridge"
    },  # the kernel's default, VEPA, needs a switch that sends frames back
}
MEMBERS, PARENT = ("bond", "bridge"), ("vxlan", "macvlan")


def link_key(kind: str, name: str) -> LinkKey:
    """The key of a bond or its like; raises UnusableError for a name that it cannot have."""
    found = values.link_name(name)
    if "." in found:
        raise UnusableError(f'"{found}" has a ".", which is for the ID of a VLAN on it')
    return LinkKey(f"{kind} {found}")


def reference(text: str) -> LinkKey:
    """The link that a text means: `MAC`, `KIND NAME`, or a VLAN on one of both, `MAC.ID` or `KIND NAME.ID`."""
    name = " ".join(text.split())
    kind, _, rest = name.partition(" ")
    base, dot, number = (rest if kind in KINDS else name).rpartition(".")
    if kind in KINDS:
        key = link_key(kind, base if dot else rest)
        return LinkKey(key.mac, values.vlan_id(number)) if dot else key
    try:
        return LinkKey(values.mac(name))
    except UnusableError:
        if not dot or len(base) < len("fe163e006daf"):
            raise UnusableError(
                f'"{values.clip(name)}" is neither a MAC address nor "bond NAME" or its like'
            ) from None
    return LinkKey(values.mac(base), values.vlan_id(number))


def _members(text: str) -> tuple[LinkKey, ...]:
    parts = [part for part in text.split(",") if part.strip()]
    if len(parts) > MOST_MEMBERS:
        raise UnusableError(f"more than {MOST_MEMBERS} members")
    return tuple(dict.fromkeys(map(reference, parts)))


def _number(low: int, high: int) -> Callable[[str], str]:
    return lambda text: str(values.integer(text, low, high))


def _word(words: tuple[str, ...], numbers: bool = True) -> Callable[[str], str]:
    """One of the words, or its number where the kernel takes that too."""

    def read(text: str) -> str:
        if numbers and text.isdecimal() and int(text) < len(words):
            return words[int(text)]
        return values.word(text, words)

    return read


def _host(text: str) -> str:
    found: Host = values.host(text)
    if found.is_unspecified or found.is_loopback:
        raise UnusableError(f'"{found}" cannot be an end of a VXLAN')
    return str(found)


def _truth(text: str) -> str:
    yes, no = ("yes", "true", "on", "1"), ("no", "false", "off", "0")
    return "yes" if values.word(text, (*yes, *no)) in yes else "no"


_MILLISECONDS = _number(0, 600000)
READERS: Mapping[str, Mapping[str, Callable[[str], str]]] = {
    "bond": {
        **{name: _word(words) for (kind, name), words in WORDS.items() if kind == "bond"},
        "miimon": _MILLISECONDS,
        "updelay": _MILLISECONDS,
        "downdelay": _MILLISECONDS,
        "min-links": _number(0, 65535),
        "mac": values.mac,
    },
    "bridge": {
        "stp": _truth,
        "forward-delay": _number(2, 30),
        "mac": values.mac,
    },  # seconds, IEEE 802.1D
    "vxlan": {
        "id": _number(1, 16777215),
        "local": _host,
        "remote": _host,
        "port": _number(1, 65535),
        "mac": values.mac,
    },
    "macvlan": {"mode": _word(MACVLAN_MODES, numbers=False), "mac": values.mac},
    "vlan": {"mac": values.mac},
}


def names(kind: str) -> tuple[str, ...]:
    """The keys that only a section of this kind has."""
    own = ("members",) if kind in MEMBERS else ("parent",) if kind in PARENT else ()
    return (*own, *READERS.get(kind, {}))


def setting(kind: str, name: str, text: str) -> Virtual:
    """One such key with its value; raises UnusableError."""
    if name == "members":
        return Virtual(members=_members(text))
    if name == "parent":
        return Virtual(parent=reference(text))
    return Virtual(options=((name, READERS[kind][name](text)),))


def shown(virtual: Virtual, name: str) -> str:
    """The value of such a key, for people."""
    if name == "members":
        return ", ".join(map(str, virtual.members))
    return str(virtual.parent or "") if name == "parent" else virtual.option(name)


def fault(key: LinkKey, virtual: Optional[Virtual]) -> Optional[str]:
    """What is missing or cannot be, by the texts alone."""
    if virtual is None:
        return "no text says what it is made of"
    ends = {
        values.host(virtual.option(name)).version
        for name in ("local", "remote")
        if virtual.option(name)
    }
    needed = {"bond": ("mode", "members"), "vxlan": ("id",), "macvlan": ("parent",)}.get(
        key.kind, ()
    )
    missing = next((name for name in needed if not shown(virtual, name)), None)
    if missing:
        return f"it needs {missing}"
    if len(ends) > 1:
        return "local and remote are not of one family"
    wrong = next(
        (
            lower
            for lower in virtual.lower
            if lower.rank >= key.rank or (key.kind == "bond" and lower.rank)
        ),
        None,
    )
    return f"a {key.kind} cannot be made of {wrong}" if wrong else None


def overhead(virtual: Virtual) -> int:
    """Bytes that a VXLAN adds to a packet: 50 over IPv4, 70 over IPv6 (RFC 7348, section 5: outer Ethernet, IP, UDP, VXLAN)."""
    if not virtual.option("id"):
        return 0
    return 70 if ":" in virtual.option("local") + virtual.option("remote") else 50
