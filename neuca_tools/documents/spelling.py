"""Find the known word that somebody probably meant by an unknown one."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable

from neuca_tools.documents.neuca.values import clip
from neuca_tools.documents.privacy import LINK_KINDS, SECTIONS
from neuca_tools.model import Fault

LONGEST = 80  # characters of a word that is compared
_UNKNOWN = re.compile(r'^(unknown [^;"]*(?:"([^"]*)")?); known are (.*)$', re.DOTALL)
_NO_WORD = re.compile(r'^"([^"]*)" is not ((?:"[^"]*",? ?)+ or "[^"]*")$')
_MEANT = re.compile(r'^.*; did you mean "([^"]*)"\?$', re.DOTALL)


def closest(word: str, known: Collection[str], cutoff: float = 0.65) -> str:
    """The known word that is most like this one; empty if it is known, or none is like it.

    `cutoff` is the least ratio of difflib, 0 to 1; two letters that have changed places are always
    alike enough. Case and `-` or `_` make no difference.

    >>> closest("adresses", ["addresses", "mtu"]), closest("mut", ["addresses", "mtu"])
    ('addresses', 'mtu')
    >>> closest("mtu", ["addresses", "mtu"]), closest("colour", ["addresses", "mtu"])
    ('', '')
    """
    if word in known or len(word) > LONGEST:
        return ""
    folded = {_folded(name): name for name in sorted(known, reverse=True)}
    found = _swapped(_folded(word)) & folded.keys()
    alike = sorted(found) or difflib.get_close_matches(_folded(word), folded, 1, cutoff)
    return folded[alike[0]] if alike else ""


def closest_name(name: str, known: Iterable[str]) -> str:
    """The known name or value that is most like this one and has the same numbers in it.

    >>> closest_name("eht0", ["eth0", "eth1"]), closest_name("eth2", ["eth0", "eth1"])
    ('eth0', '')
    """
    numbers = re.findall("[0-9]+", name)
    return closest(name, [one for one in known if re.findall("[0-9]+", one) == numbers])


def section_meant(name: str) -> str:
    """The section that a name probably means: `[vlan MAC.ID]` for `[vlna MAC.ID]`."""
    kind, _, rest = name.partition(" ")
    if not rest:
        return closest(name, SECTIONS)
    word = closest(kind, (*LINK_KINDS, "rule"))
    return f"{word} {clip(rest)}" if word else ""


def spelt(fault: Fault) -> Fault:
    """A fault that lists the known words, with the one that is probably meant instead of them."""
    found = _UNKNOWN.match(fault.reason)
    if found:
        said, meant = found[1], closest(found[2] or fault.key, re.split(r", | and ", found[3]))
    else:
        found = _NO_WORD.match(fault.reason)
        if not found:
            return fault
        said = f'unknown value "{found[1]}"'
        meant = closest_name(found[1], re.findall('"([^"]*)"', found[2]))
    if not meant:
        return fault
    return fault._replace(reason=f'{said}; did you mean "{meant}"?')


def meant_by(fault: Fault) -> str:
    """The word that `spelt` put into a fault; empty if there is none."""
    found = _MEANT.match(fault.reason)
    return found[1] if found else ""


def _swapped(word: str) -> set[str]:
    """The words that have two neighbouring letters of this one in the other order."""
    places = range(len(word) - 1) if len(word) > 2 else ()
    return {word[:at] + word[at + 1] + word[at] + word[at + 2 :] for at in places}


def _folded(word: str) -> str:
    return word.lower().replace("_", "-")
