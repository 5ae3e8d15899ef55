"""Compute the buffer size that a path needs from its rate and round-trip time, and back.

Rates are in bit/s, times in seconds, buffers in bytes. Linux advertises about half of a receive
buffer as window (tcp_adv_win_scale = 1, ip-sysctl.rst; 3,144,960 of 6,291,456 measured), so a
buffer has to be twice as large as the data in flight.
"""

# SPDX-License-Identifier: MIT

import re
from collections.abc import Mapping

from neuca_tools.documents.neuca.values import UnusableError, clip

SHARE = 2  # buffer size divided by window size
MARGIN = 1.25  # for packet overhead and retransmissions
MEMORY_DIVISOR = 16  # a buffer takes at most a sixteenth, the two of a connection an eighth
MAX_BUFFER_BYTES = 2**31 - 1  # tcp_rmem and tcp_wmem are int (net/ipv4/sysctl_net_ipv4.c)
_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


def parse_rate(text: str) -> int:
    """A rate as in tc(8) (`10G`, `2.5 Gbit/s`), 1 kbit/s to 10 Tbit/s. Raises UnusableError."""
    bits = _parse_quantity(text, r"([kmgt]?)(?:bit(?:/s)?)?", _PREFIXES)
    if not 1e3 <= bits <= 1e13:
        raise UnusableError(f'"{clip(text)}" is not a rate such as "10Gbit"')
    return round(bits)


def parse_rtt(text: str) -> float:
    """A round-trip time: `50ms`, `100us`, `0.2s`; from 1 us to 100 s. Raises UnusableError."""
    seconds = _parse_quantity(text, r"(us|ms|s)", _UNITS)
    if not 1e-6 <= seconds <= 100:
        raise UnusableError(f'"{clip(text)}" is not a round-trip time such as "50ms"')
    return seconds


def _parse_quantity(text: str, unit: str, factors: Mapping[str, float]) -> float:
    """A number times the factor of its unit, 0 if the text is not a number with such a unit."""
    match = re.fullmatch(rf"([0-9]{{1,15}}(?:\.[0-9]{{1,6}})?) *{unit}", text.strip().lower())
    return float(match[1]) * factors[match[2]] if match else 0.0


def needed_size(bits: float, seconds: float) -> int:
    """The buffer in bytes that a path with this rate and round-trip time needs."""
    bandwidth_delay_product = bits * seconds / 8  # bytes in flight on a full path
    return round(SHARE * MARGIN * bandwidth_delay_product)


def buffer_size(bits: float, seconds: float, memory: int = 0) -> int:
    """`needed_size`, as far as the kernel and the host's memory (bytes, 0 if unknown) permit."""
    limit = memory // MEMORY_DIVISOR if memory else MAX_BUFFER_BYTES
    return min(limit, MAX_BUFFER_BYTES, needed_size(bits, seconds))


def allowed_rate(size: int, seconds: float) -> float:
    """The rate in bit/s that a receive buffer of `size` bytes allows at this round-trip time."""
    return size / SHARE * 8 / seconds


def rate_text(bits: float) -> str:
    """A rate in bit/s, for display.

    >>> [rate_text(rate) for rate in (1342177280, 671088640, 94e3)]
    ['1.3 Gbit/s', '671 Mbit/s', '94 kbit/s']
    """
    for unit, size in (("Tbit/s", 1e12), ("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)):
        if bits >= 10 * size:
            return f"{round(bits / size):g} {unit}"
        if bits >= size:
            return f"{round(bits / size, 1):g} {unit}"
    return f"{bits:.0f} bit/s"


def rtt_text(seconds: float) -> str:
    """A round-trip time in seconds, for display.

    >>> [rtt_text(rtt) for rtt in (0.05, 0.0001, 2.0)]
    ['50 ms', '100 us', '2 s']
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.6g} {unit}"
    return f"{seconds / 1e-6:.6g} us"


def size_text(size: int) -> str:
    """A number of bytes, for display.

    >>> [size_text(size) for size in (16777216, 6291456, 212992, 31250000)]
    ['16 MiB', '6 MiB', '208 KiB', '29.8 MiB']
    """
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= factor:
            return f"{round(size / factor, 1):g} {unit}"
    return f"{size} bytes"
