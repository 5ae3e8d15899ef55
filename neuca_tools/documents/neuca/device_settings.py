"""The settings of the device behind a link: qdisc, rings, channels, coalesce, pause, offloads, rps, xps, irq-affinity.

Each reader returns the value in its one form, so that two ways to write the same are the same request.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Callable

from neuca_tools.documents.neuca import values
from neuca_tools.documents.neuca.values import UnusableError
from neuca_tools.model.rates import rate_text, rate_value

MOST_CPUS = 8192  # CONFIG_NR_CPUS of the largest distribution kernels
MOST_OFFLOADS = 64  # features of one kernel; ours, against nonsense
_QDISCS: Mapping[str, str] = {
    "fq": "maxrate",
    "fq_codel": "",
    "pfifo": "limit",
    "pfifo_fast": "",
    "noqueue": "",
    "default": "",
}
_LEAST_RATE, _MOST_RATE = (
    8000,
    34_000_000_000,
)  # bit/s; fq holds bytes/s in 32 bits (TCA_FQ_FLOW_MAX_RATE)
_SWITCHES = ("on", "off")
_OFFLOAD = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")  # ETH_GSTRING_LEN
_COALESCE = ("rx-usecs", "rx-frames", "tx-usecs", "tx-frames", "adaptive-rx", "adaptive-tx")


def qdisc(text: str) -> str:
    """A queueing discipline as tc(8) writes it, with the one option that matters of it."""
    kind, *options = text.lower().split()
    values.word(kind, _QDISCS)
    if not options:
        return kind
    if len(options) != 2 or options[0] != _QDISCS[kind]:
        takes = f'takes "{_QDISCS[kind]}" and a value' if _QDISCS[kind] else "takes nothing more"
        raise UnusableError(f'the qdisc "{kind}" {takes}')
    return f"{kind} {options[0]} {_rate(options[1]) if kind == 'fq' else values.integer(options[1], 1, 1000000, 'the limit')}"


def _rate(text: str) -> str:
    try:
        rate = rate_value(text)
    except ValueError:
        rate = 0
    if not _LEAST_RATE <= rate <= _MOST_RATE:
        raise UnusableError(
            f'"{values.clip(text)}" is not a rate from {rate_text(_LEAST_RATE)} to {rate_text(_MOST_RATE)}'
        )
    return rate_text(rate)


def _pairs(text: str) -> dict[str, str]:
    """`rx 256, tx 512`: names and values in turn, with commas or without."""
    words = text.lower().replace(",", " ").split()
    if len(words) % 2:
        raise UnusableError(f'"{values.clip(words[-1])}" has no value')
    return dict(zip(words[::2], words[1::2]))


def _numbers(names: Iterable[str], least: int, most: int, text: str) -> str:
    """Names with a number, or with `max`: as many as the device takes."""
    pairs = _pairs(text)
    for name, value in pairs.items():
        values.word(name, names)
        if value != "max":
            pairs[name] = str(values.integer(value, least, most, name))
    return _joined(pairs)


def _coalesce(text: str) -> str:
    pairs = _pairs(text)
    for name, value in pairs.items():
        values.word(name, _COALESCE)
        pairs[name] = (
            values.word(value, _SWITCHES)
            if name.startswith("adaptive")
            else str(values.integer(value, 0, 1000000, name))
        )
    return _joined(pairs)


def _switches(names: Iterable[str], text: str) -> str:
    pairs = _pairs(text)
    for name, value in pairs.items():
        values.word(name, names)
        values.word(value, _SWITCHES)
    return _joined(pairs)


def _offloads(text: str) -> str:
    pairs = _pairs(text)
    if len(pairs) > MOST_OFFLOADS:
        raise UnusableError(f"more than {MOST_OFFLOADS} offloads")
    for name, value in pairs.items():
        if not _OFFLOAD.fullmatch(name):
            raise UnusableError(f'"{values.clip(name)}" is not the name of an offload')
        values.word(value, _SWITCHES)
    return _joined(pairs)


def _joined(pairs: Mapping[str, str]) -> str:
    return " ".join(f"{name} {pairs[name]}" for name in sorted(pairs))


def cpus(text: str) -> str:
    """`all`, `none`, or a list of CPUs as taskset(1) writes it; one list for each queue with "/" between."""
    return " / ".join(_cpu_list(part.strip().lower()) for part in text.split("/"))


def _cpu_list(text: str) -> str:
    if text in ("all", "none"):
        return text
    found: set[tuple[int, int]] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        low = values.integer(first, 0, MOST_CPUS - 1, "the CPU")
        high = values.integer(last, low, MOST_CPUS - 1, "the CPU") if dash else low
        found.add((low, high))
    return _ranges(found)


def listed(found: Iterable[int]) -> str:
    """CPUs as the kernel lists them: `0-3,8`; `none` for no CPU at all."""
    return _ranges((number, number) for number in found)


def _ranges(found: Iterable[tuple[int, int]]) -> str:
    """The same of ranges, each with its first and its last CPU; they may overlap."""
    ranges: list[list[int]] = []
    for low, high in sorted(found):
        if ranges and low <= ranges[-1][1] + 1:
            ranges[-1][1] = max(high, ranges[-1][1])
        else:
            ranges.append([low, high])
    return ",".join(f"{low}-{high}" if low != high else str(low) for low, high in ranges) or "none"


def _irq_affinity(text: str) -> str:
    if text.strip().lower() != "numa":
        raise UnusableError(f'"{values.clip(text)}" is not "numa"')
    return "numa"


READERS: Mapping[str, Callable[[str], str]] = {
    "qdisc": qdisc,
    "rings": partial(_numbers, ("rx", "tx"), 1, 1 << 20),
    "channels": partial(_numbers, ("rx", "tx", "combined"), 1, MOST_CPUS),
    "coalesce": _coalesce,
    "pause": partial(_switches, ("autoneg", "rx", "tx")),
    "offloads": _offloads,
    "rps": cpus,
    "xps": cpus,
    "irq-affinity": _irq_affinity,
}
