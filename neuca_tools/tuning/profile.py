"""A profile is a file: what it sets for the host (`[sysctl]`) and for each dataplane NIC and VLAN (`[link]`)."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Callable, Optional

from neuca_tools.documents.neuca import values
from neuca_tools.documents.neuca.values import UnusableError
from neuca_tools.model import OWN
from neuca_tools.tuning.allowed_sysctls import key_reason

AUTO, NONE = "auto", "none"
BUFFER = "{buffer}"  # stands for the bytes that the path of rate and rtt needs
KEEP = "-"  # stands for the number that is there
LARGEST = 64 * 1024  # bytes of a profile
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_TRUTH = {"true": True, "yes": True, "false": False, "no": False}


@dataclass(frozen=True)
class Profile:
    """What a profile asks. `sysctls` maps a path to its words, `-` and `{buffer}` among them. Each number is a least.

    `exact`: every value is to be what it says, lower too. `faults` say what could not be read, line by line.
    """

    name: str
    sysctls: Mapping[str, str] = field(default_factory=dict)
    mtu: Optional[int] = None
    txqueuelen: Optional[int] = None
    exact: bool = False
    faults: tuple[str, ...] = ()

    @property
    def needs_path(self) -> bool:
        """Whether it cannot be read without a rate and a round-trip time."""
        return any(BUFFER in value.split() for value in self.sysctls.values())


_READERS: Mapping[tuple[str, str], Callable[[str], object]] = {
    ("profile", "exact"): lambda text: _TRUTH[values.word(text, _TRUTH)],
    ("link", "mtu"): values.mtu,
    ("link", "txqueuelen"): values.txqueuelen,
}


def parse(name: str, text: str) -> Profile:
    """Read a profile; a line that cannot be used costs only itself."""
    fields: dict[str, object] = {}
    sysctls: dict[str, str] = {}
    faults: list[str] = []
    for number, section, key, value in _lines(text):
        try:
            if section == "sysctl" and key:
                sysctls[_sysctl(key)] = values.sysctl_value(value)
            elif (section, key.lower()) in _READERS:
                fields[key.lower()] = _READERS[section, key.lower()](value)
            else:
                raise UnusableError(f'"{values.clip(key or value)}" is not known here')
        except UnusableError as reason:
            faults.append(f'profile "{name}", line {number}: {reason}, ignoring it')
    return Profile(name, sysctls, faults=tuple(faults), **fields)  # type: ignore[arg-type]


def _lines(text: str) -> Iterator[tuple[int, str, str, str]]:
    """Line number, section, key and value; a line that is neither a section nor `key = value` has no key."""
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith("[") and stripped.endswith("]"):
            section = stripped[1:-1].strip().lower()
        elif stripped and stripped[0] not in "#;":
            key, sign, value = stripped.partition("=")
            yield number, section, key.strip() if sign else "", value.strip() if sign else stripped


def _sysctl(key: str) -> str:
    """A setting of the whole host that a profile may ask for. What belongs to one link has its place in `[interface MAC]`."""
    path = values.sysctl_key(key)
    reason = (
        "settings of one interface belong in its own section of the configuration"
        if OWN in path
        else key_reason(path)
    )
    if reason:
        raise UnusableError(f'sysctl "{values.clip(key)}": {reason}')
    return path


# --- values ---------------------------------------------------------------------------------------------------------


def same(found: Optional[str], wanted: Optional[str]) -> bool:
    """Whether two values of a sysctl mean the same; the kernel reads `02` and writes back `2`."""
    return found is not None and wanted is not None and _numbers(found) == _numbers(wanted)


def raised(base: Optional[str], asked: str, exact: bool = False) -> str:
    """`asked` over `base`, number by number, none of them lower than before unless `exact`; words are taken as asked.

    >>> raised("4096 131072 6291456", "4096 87380 16777216")
    '4096 131072 16777216'
    >>> raised("4096 131072 6291456", "- - 31250000")
    '4096 131072 31250000'
    >>> raised("cubic", "htcp")
    'htcp'
    """
    before, words = (base or "").split(), asked.split()
    if len(before) != len(words):
        return asked
    pairs = [(old, old if new == KEEP else new) for old, new in zip(before, words)]
    numbers = all(old.isdecimal() and new.isdecimal() for old, new in pairs)
    return " ".join(
        str(max(int(old), int(new))) if numbers and not exact else new for old, new in pairs
    )


def _numbers(text: str) -> list[str]:
    return [str(int(word)) if word.isdecimal() else word for word in text.split()]
