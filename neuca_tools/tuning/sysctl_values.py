"""Whether two values of a sysctl are the same, although they are written differently."""

# SPDX-License-Identifier: MIT

import re
from typing import Optional

# In decimal, hexadecimal or octal notation, of at most 20 characters (proc_get_long,
# kernel/sysctl.c).
_NUMBER = r"(?ai)(?!.{21})-?(?:0x(?P<hex>[0-9a-f]+)|(?P<octal>0[0-7]*)|[1-9][0-9]*)"
# In hundredths of a second (NEIGH_SYSCTL_USERHZ_JIFFIES_ENTRY).
_HUNDREDTHS = "/neigh/[^/]+/(?:retrans_time|anycast_delay|proxy_delay|locktime)$"


def is_same_sysctl(path: str, current: Optional[str], wanted: Optional[str]) -> bool:
    """Whether two values of a sysctl are equal for the kernel.

    It counts times in ticks, of which there are 100 or more in a second.

    >>> is_same_sysctl("net/ipv4/conf/eth1/rp_filter", "2", "0x2")
    True
    >>> is_same_sysctl("net/x", "10", "010")
    False
    >>> is_same_sysctl("net/ipv6/neigh/eth1/retrans_time_ms", "1004", "1003")
    True
    """
    if current is None or wanted is None or current == wanted:
        return current is not None and wanted is not None
    present, desired = current.split(), wanted.split()
    if len(present) != len(desired):
        return False
    rounding = _rounding_of(path)
    return all(_is_near(*pair, rounding) for pair in zip(present, desired))


def _rounding_of(path: str) -> range:
    """The differences that the kernel's rounding makes: milliseconds upwards, others downwards."""
    if path.endswith("_ms"):
        return range(10)
    return range(-1 if re.search(_HUNDREDTHS, path) else 0, 1)


def number_of(word: str) -> Optional[int]:
    """A number as the kernel reads it; None for another word."""
    match = re.fullmatch(_NUMBER, word)
    if match is None:
        return None
    if match["hex"]:
        return int(word, 16)
    return int(word, 8 if match["octal"] else 10)


def _is_near(current: str, wanted: str, rounding: range) -> bool:
    present, desired = number_of(current), number_of(wanted)
    if present is None or desired is None:
        return current == wanted
    return present - desired in rounding
