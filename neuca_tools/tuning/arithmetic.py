"""The arithmetic of a path: rate and round-trip time to bytes of buffer, and a buffer to the rate that it allows.

Rates in bit/s, times in seconds, buffers in bytes. Linux advertises about half of a receive buffer as window
(tcp_adv_win_scale = 1, ip-sysctl.rst; 3,144,960 of 6,291,456 measured), so a buffer has to be twice what is in flight.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re

from neuca_tools.documents.neuca.values import UnusableError, clip

SHARE = 2  # buffer / window
MARGIN = 1.25  # for overhead of packets, and for what waits to be sent again
MOST_OF_MEMORY = 16  # both buffers of one connection: an eighth of the memory at most
LARGEST = 2**31 - 1  # bytes: tcp_rmem and tcp_wmem are int (net/ipv4/sysctl_net_ipv4.c)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


def rate(text: str) -> int:
    """A rate as tc(8) writes it, in powers of 1000: `10G`, `10Gbit`, `2.5 Gbit/s`; from 1 kbit/s to 10 Tbit/s.

    Raises UnusableError.
    """
    found = re.fullmatch(
        r"([0-9]{1,15}(?:\.[0-9]{1,6})?) *([kmgt]?)(?:bit(?:/s)?)?", text.strip().lower()
    )
    bits = float(found[1]) * 1000 ** _POWERS[found[2]] if found else 0
    if not 1e3 <= bits <= 1e13:
        raise UnusableError(f'"{clip(text)}" is not a rate like "10Gbit"')
    return round(bits)


def rtt(text: str) -> float:
    """A round-trip time: `50ms`, `100us`, `0.2s`; from 1 us to 100 s. Raises UnusableError."""
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,6})?) *(us|ms|s)", text.strip().lower())
    seconds = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if not 1e-6 <= seconds <= 100:
        raise UnusableError(f'"{clip(text)}" is not a round-trip time like "50ms"')
    return seconds


def product(bits: float, seconds: float) -> float:
    """The bandwidth-delay product in bytes: what is in flight on a full path."""
    return bits * seconds / 8


def buffer(bits: float, seconds: float, memory: int = 0) -> int:
    """The buffer in bytes that such a path needs, within what `memory` bytes (0: not known) and the kernel allow."""
    needed = round(SHARE * MARGIN * product(bits, seconds))
    return min(needed, LARGEST, memory // MOST_OF_MEMORY if memory else LARGEST)


def allowed(size: int, seconds: float) -> float:
    """The rate in bit/s that a receive buffer of `size` bytes allows at this round-trip time."""
    return size / SHARE * 8 / seconds


def rate_text(bits: float) -> str:
    """A rate for people.

    >>> [rate_text(one) for one in (1342177280, 671088640, 94e3)]
    ['1.3 Gbit/s', '671 Mbit/s', '94 kbit/s']
    """
    for unit, size in (("Tbit/s", 1e12), ("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)):
        if bits >= size:
            return f"{round(bits / size, 1 if bits < 10 * size else None):g} {unit}"
    return f"{bits:.0f} bit/s"


def rtt_text(seconds: float) -> str:
    """A round-trip time for people.

    >>> [rtt_text(one) for one in (0.05, 0.0001, 2.0)]
    ['50 ms', '100 us', '2 s']
    """
    unit, size = next(
        ((unit, size) for unit, size in (("s", 1.0), ("ms", 1e-3)) if seconds >= size), ("us", 1e-6)
    )
    return f"{seconds / size:.6g} {unit}"


def size_text(size: int) -> str:
    """A number of bytes for people.

    >>> [size_text(one) for one in (16777216, 6291456, 212992, 31250000)]
    ['16 MiB', '6 MiB', '208 KiB', '29.8 MiB']
    """
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= factor:
            return f"{round(size / factor, 1):g} {unit}"
    return f"{size} bytes"
