"""Find the known word that somebody probably meant by an unknown one."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import difflib
from collections.abc import Collection

LONGEST = 80  # characters of a word that is compared


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


def _swapped(word: str) -> set[str]:
    """The words that have two neighbouring letters of this one in the other order."""
    places = range(len(word) - 1) if len(word) > 2 else ()
    return {word[:at] + word[at + 1] + word[at] + word[at + 2 :] for at in places}


def _folded(word: str) -> str:
    return word.lower().replace("_", "-")
