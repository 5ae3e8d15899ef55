"""Whether a sysctl has a requested value, as the kernel reads, rounds and shows it."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from typing import Optional, Union

# In decimal, hexadecimal or octal notation (proc_get_long, kernel/sysctl.c).
_NUMBER = re.compile(r"-?(?:0x(?P<hex>[0-9a-f]+)|(?P<octal>0[0-7]*)|[1-9][0-9]*)", re.ASCII | re.I)
_MILLISECONDS = re.compile("_ms$")
# In hundredths of a second (NEIGH_SYSCTL_USERHZ_JIFFIES_ENTRY).
_HUNDREDTHS = re.compile("/neigh/[^/]+/(?:retrans_time|anycast_delay|proxy_delay|locktime)$")


def same(path: str, found: Optional[str], wanted: str) -> bool:
    """Whether two values of a sysctl are equal for the kernel.

    It counts times in ticks, of which there are 100 or more in a second.

    >>> same("net/ipv4/conf/eth1/rp_filter", "2", "0x2"), same("net/x", "10", "010")
    (True, False)
    >>> same("net/ipv6/neigh/eth1/retrans_time_ms", "1004", "1003")
    True
    """
    if found is None or found == wanted:
        return found is not None
    pairs = list(zip(found.split(), wanted.split()))
    if not len(pairs) == len(found.split()) == len(wanted.split()):
        return False
    rounding = _rounding(path)
    return all(_is_near(_value(have), _value(want), rounding) for have, want in pairs)


def _rounding(path: str) -> range:
    """The differences that the kernel's rounding makes: milliseconds upwards, others downwards."""
    if _MILLISECONDS.search(path):
        return range(10)
    return range(-1 if _HUNDREDTHS.search(path) else 0, 1)


def _value(word: str) -> Union[int, str]:
    match = _NUMBER.fullmatch(word)
    if match is None:
        return word
    if match["hex"]:
        return int(word, 16)
    return int(word, 8 if match["octal"] else 10)


def _is_near(found: Union[int, str], wanted: Union[int, str], rounding: range) -> bool:
    if isinstance(found, int) and isinstance(wanted, int):
        return found - wanted in rounding
    return found == wanted
