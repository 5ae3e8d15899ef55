"""Parse a tuning profile: settings of the host (`[sysctl]`) and of dataplane links (`[link]`)."""

# SPDX-License-Identifier: MIT

import re
from collections.abc import Iterator, Mapping
from typing import Callable, NamedTuple, Optional

from neuca_tools.documents.neuca import values
from neuca_tools.documents.neuca.values import UnusableError
from neuca_tools.model import OWN
from neuca_tools.tuning.allowed_sysctls import key_reason
from neuca_tools.tuning.sysctl_values import number_of

BUFFER = "{buffer}"  # placeholder for the buffer size in bytes that the path needs
KEEP = "-"  # placeholder for the present number
MAX_PROFILE_BYTES = 64 * 1024  # a bound of our own


class Profile(NamedTuple):
    """A profile. `mtu` is in bytes, `txqueuelen` in packets, both None if not set.

    `sysctls` maps a path to its value, which may contain KEEP and BUFFER. Numbers are minimums.
    `faults` has a message for each unusable line.
    """

    name: str
    sysctls: Mapping[str, str] = {}
    mtu: Optional[int] = None
    txqueuelen: Optional[int] = None
    faults: tuple[str, ...] = ()

    @property
    def needs_path(self) -> bool:
        """Whether it needs a rate and a round-trip time."""
        return any(BUFFER in value.split() for value in self.sysctls.values())


_READERS: Mapping[tuple[str, str], Callable[[str], object]] = {
    ("link", "mtu"): values.mtu,
    ("link", "txqueuelen"): values.txqueuelen,
}


def parse_profile(name: str, text: str) -> Profile:
    """Parse a profile; an unusable line becomes a fault and is ignored."""
    fields: dict[str, object] = {}
    sysctls: dict[str, str] = {}
    faults: list[str] = []
    for number, section, key, value in _profile_lines(text):
        try:
            if section == "sysctl" and key:
                sysctls[_host_sysctl(key)] = _host_value(value)
            elif (section, key.lower()) in _READERS:
                fields[key.lower()] = _READERS[section, key.lower()](value)
            else:
                raise UnusableError(f'"{values.clip(key or value)}" is not a setting here')
        except UnusableError as reason:
            faults.append(f'profile "{name}", line {number}: {reason}, ignoring it')
    return Profile(name, sysctls, faults=tuple(faults), **fields)  # type: ignore[arg-type]


def _profile_lines(text: str) -> Iterator[tuple[int, str, str, str]]:
    """Line number, section, key and value of each setting; a line without "=" has an empty key."""
    section = ""
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1].strip().lower()
        elif line and line[0] not in "#;":
            key, sign, value = line.partition("=")
            if not sign:
                key, value = "", line
            yield number, section, key.strip(), value.strip()


def _host_sysctl(key: str) -> str:
    """The path of a host-wide sysctl; those of one interface belong in `[interface MAC]`."""
    path = values.sysctl_key(key)
    reason = key_reason(path)
    if OWN in path:
        reason = "settings of one interface belong in its own section of the configuration"
    if reason:
        raise UnusableError(f'sysctl "{values.clip(key)}": {reason}')
    return path


def _host_value(text: str) -> str:
    """The value of a host-wide sysctl; none has a "#" or ";"."""
    if not text or re.search("[#;]", text):
        raise UnusableError(
            f'"{values.clip(text)}" is not a value; comments have lines of their own'
        )
    return values.sysctl_value(text)


def raised_value(base: Optional[str], requested: str) -> str:
    """The value to set: `requested`, with no number lower than in `base`.

    KEEP is the other number. Words, and a different count of numbers, are used as requested.

    >>> raised_value("4096 131072 6291456", "4096 87380 16777216")
    '4096 131072 16777216'
    >>> raised_value("4096 131072 6291456", "- - 31250000")
    '4096 131072 31250000'
    >>> raised_value("cubic", "htcp")
    'htcp'
    """
    old, new = (base or "").split(), requested.split()
    if len(old) != len(new):
        return requested
    have_numbers = all(word == KEEP or number_of(word) is not None for word in (*old, *new))
    return " ".join(_raised_word(*pair, have_numbers) for pair in zip(old, new))


def _raised_word(old: str, new: str, have_numbers: bool) -> str:
    if KEEP in (old, new):
        return old if new == KEEP else new
    return max(old, new, key=lambda word: number_of(word) or 0) if have_numbers else new


def has_other_count(base: Optional[str], requested: str) -> bool:
    """Whether `base` consists of numbers, but of fewer or more than `requested`."""
    numbers = (base or "").split()
    return len(numbers) not in (0, len(requested.split())) and None not in map(number_of, numbers)
