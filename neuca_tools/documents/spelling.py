"""What a check finds in a document, and the known word that an unknown one probably means."""

# SPDX-License-Identifier: MIT

import re
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from neuca_tools.documents.neuca.values import clip
from neuca_tools.documents.privacy import LINK_KINDS, SECTIONS
from neuca_tools.model import Fault
from neuca_tools.model.rows import Severity

MAX_SPELLINGS = 200  # unknown words that are compared with the known ones
MAX_WORD_LENGTH = 80  # characters of a word that is compared


class Finding(NamedTuple):
    """One fault. `line` is 0 if it has no line; `meant` is the probable spelling, if any."""

    line: int
    severity: Severity
    text: str
    meant: str = ""


def line_with(lines: Sequence[str], first: int, item: str) -> int:
    """The number of the first line, from `first` on, that has this item; else `first` itself."""
    if first and item:
        for number, line in enumerate(lines[first - 1 :], first):
            if item in line.lower():
                return number
    return first


def with_suggestion(text: str, meant: str) -> str:
    """The text with the probable spelling, if there is one."""
    return f'{text}; did you mean "{meant}"?' if meant else text


def closest_word(word: str, known: Collection[str], cutoff: float = 0.65) -> str:
    """The known word that is most like this one; empty if it is known, or none is like it.

    `cutoff` is the least ratio of difflib, 0 to 1; two letters that have changed places are always
    alike enough. Case and `-` or `_` make no difference.

    >>> closest_word("adresses", ["addresses", "mtu"]), closest_word("mut", ["addresses", "mtu"])
    ('addresses', 'mtu')
    >>> closest_word("mtu", ["addresses", "mtu"]), closest_word("colour", ["addresses", "mtu"])
    ('', '')
    """
    if word in known or len(word) > MAX_WORD_LENGTH:
        return ""
    # Only for a word that is not known: 1 ms.
    import difflib

    folded = {_fold_case(name): name for name in sorted(known, reverse=True)}
    swapped = _swapped_words(_fold_case(word)) & folded.keys()
    alike = sorted(swapped) or difflib.get_close_matches(_fold_case(word), folded, 1, cutoff)
    return folded[alike[0]] if alike else ""


def closest_name(name: str, known: Iterable[str]) -> str:
    """The known name or value that is most like this one and has the same numbers in it.

    >>> closest_name("eht0", ["eth0", "eth1"]), closest_name("eth2", ["eth0", "eth1"])
    ('eth0', '')
    """
    numbers = re.findall("[0-9]+", name)
    return closest_word(name, [word for word in known if re.findall("[0-9]+", word) == numbers])


def section_meant(name: str) -> str:
    """The section that a name probably means: `[vlan MAC.ID]` for `[vlna MAC.ID]`."""
    kind, _, rest = name.partition(" ")
    if not rest:
        return closest_word(name, SECTIONS)
    word = closest_word(kind, (*LINK_KINDS, "rule"))
    return f"{word} {clip(rest)}" if word else ""


def with_meant_word(fault: Fault) -> Fault:
    """A fault about an unknown word, with the one that is probably meant in place of all known."""
    if not fault.unknown:
        return fault
    kind, word, known = fault.unknown
    meant = closest_name(word, known) if kind == "value" else closest_word(word, known)
    if not meant:
        return fault
    said = "unknown key" if kind == "key" else f'unknown {kind} "{word}"'
    return fault._replace(reason=f'{said}; did you mean "{meant}"?', meant=meant)


def _swapped_words(word: str) -> set[str]:
    """The words that have two neighbouring letters of this one in the other order."""
    places = range(len(word) - 1) if len(word) > 2 else ()
    return {word[:at] + word[at + 1] + word[at] + word[at + 2 :] for at in places}


def _fold_case(word: str) -> str:
    return word.lower().replace("_", "-")
