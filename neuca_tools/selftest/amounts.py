"""Rates, sizes, times and shares as text."""

# SPDX-License-Identifier: MIT

from neuca_tools.model.printable import counted

MIB = 2.0**20


def three_digits(value: float) -> str:
    """Three significant digits, never with an exponent."""
    # 99.95 and 9.995 are where rounding adds a digit before the point.
    if value >= 99.95:
        return f"{value:.0f}"
    if value >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}"


def rate(bits: float) -> str:
    """bit/s, decimal prefixes: "252 Mbit/s"."""
    for prefix, factor in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if bits >= 0.9995 * factor:
            return f"{three_digits(bits / factor)} {prefix}bit/s"
    return f"{bits:.0f} bit/s"


def size(count: float) -> str:
    """Bytes, binary prefixes: "3.05 MiB"."""
    for prefix, factor in (("GiB", 2.0**30), ("MiB", MIB), ("KiB", 1024.0)):
        if count >= 0.9995 * factor:
            return f"{three_digits(count / factor)} {prefix}"
    return counted(round(count), "byte")


def time(seconds: float) -> str:
    """Seconds, with a decimal prefix: "1.50 s", "13.6 ms", "40 µs"."""
    if seconds >= 0.9995:
        return f"{three_digits(seconds)} s"
    if seconds >= 0.9995e-3:
        return f"{three_digits(seconds * 1e3)} ms"
    return f"{seconds * 1e6:.0f} µs"


def percent(share: float) -> str:
    """A share of 1: "26%", "<0.001%"; only nothing is shown as "0%", and only all as "100%"."""
    value = share * 100
    if 99.5 <= value < 100:
        return f"{min(value, 99.9):.1f}%"
    if value >= 9.95 or value == 0:
        return f"{value:.0f}%"
    if value >= 0.995:
        return f"{value:.1f}%"
    if value >= 0.01:
        return f"{value:.2f}%"
    return f"{value:.1g}%" if value >= 0.001 else "<0.001%"


def bound(share: float) -> str:
    """A share of 1 within which something stays: 0.001% or more."""
    return percent(max(share, 1e-5))
