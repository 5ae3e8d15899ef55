"""The settings of a device (qdisc, rings, channels, offloads and the like), and their effects."""

# SPDX-License-Identifier: MIT

import re
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, Optional

from neuca_tools.model.links import LinkKey

Refusal = Literal["not applicable", "unsupported"]

USUAL_TXQUEUELEN = 1000  # DEFAULT_TX_QUEUE_LEN of the kernel


class DeviceSettings(NamedTuple):
    """The observed settings of a device, by names such as `rings.rx`; only requested ones are read.

    `maximums` has the driver's maximum, or what `all` stands for on this host. `missing` says
    why a setting, or a group of them, does not exist; `unsupported` are the groups among these that
    the kernel lacks, rather than the device.
    """

    values: Mapping[str, str] = {}
    maximums: Mapping[str, str] = {}
    missing: Mapping[str, str] = {}
    unsupported: frozenset[str] = frozenset()


def joined_settings(parts: Iterable[DeviceSettings]) -> DeviceSettings:
    """The settings of several groups as one."""
    values: dict[str, str] = {}
    maximums: dict[str, str] = {}
    missing: dict[str, str] = {}
    unsupported: set[str] = set()
    for part in parts:
        values |= part.values
        maximums |= part.maximums
        missing |= part.missing
        unsupported |= part.unsupported
    return DeviceSettings(values, maximums, missing, frozenset(unsupported))


def missing_groups(
    groups: Iterable[str], reason: str, *, by_kernel: bool = False
) -> DeviceSettings:
    """The groups as missing, all for this reason; `by_kernel`: the kernel lacks them."""
    missing = dict.fromkeys(groups, reason)
    return DeviceSettings(missing=missing, unsupported=frozenset(missing if by_kernel else ()))


class Declined(NamedTuple):
    """A device setting that the kernel or the driver has refused since the boot."""

    value: str
    effect: Refusal
    reason: str


Effect = Literal["effective", "not applicable", "unsupported", "overridden"]
"""Whether a requested setting is in effect, or why not; no pass fails for it.

`not applicable`: the device, driver or container does not accept it, or it would change nothing;
`unsupported`: the kernel does not have it; `overridden`: something with a higher precedence sets
it.
"""


class Note(NamedTuple):
    """One setting by its requested name (`rings.rx`); `link` is None for a host-wide setting."""

    setting: str
    effect: Effect
    reason: str
    link: Optional[LinkKey]

    @property
    def text(self) -> str:
        """Setting, effect and reason, for messages."""
        return ": ".join(filter(None, (self.setting, self.effect, self.reason)))

    def to_json(self) -> dict[str, str]:
        """The JSON form, without the link."""
        return {"setting": self.setting, "effect": self.effect, "reason": self.reason}


# Rates as tc(8) writes them: `2gbit`. The numbers are in bit/s; the units are decimal.
_UNITS = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_RATE = r"([0-9]{1,11}(?:\.[0-9]{1,9})?)(bit|kbit|mbit|gbit)"


def rate_value(text: str) -> int:
    """Parse a rate: bit/s, rounded down to whole bytes. Raises ValueError."""
    match = re.fullmatch(_RATE, text.lower())
    if match is None:
        raise ValueError(text)
    # Few requests have a rate; it saves 1 ms.
    from decimal import Decimal

    return int(Decimal(match[1]) * _UNITS[match[2]]) // 8 * 8


def rate_text(rate: int) -> str:
    """A rate in the largest unit that gives a whole number.

    >>> rate_text(1500000000), rate_text(2 * 10**9)
    ('1500mbit', '2gbit')
    """
    unit = next(unit for unit in ("gbit", "mbit", "kbit", "bit") if rate % _UNITS[unit] == 0)
    return f"{rate // _UNITS[unit]}{unit}"
