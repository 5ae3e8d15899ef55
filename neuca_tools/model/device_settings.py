"""The types for settings of a device: qdisc, rings, channels, offloads and the like."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

Refusal = Literal["not applicable", "unsupported"]


class DeviceSettings(NamedTuple):
    """The observed settings of a device, by names such as `rings.rx`; only requested ones are read.

    `most` has the driver's maximum, or what `all` and `numa` stand for on this host. `missing` says
    why a setting, or a group of them, does not exist; `unsupported` are the groups among these that
    the kernel lacks, rather than the device.
    """

    values: Mapping[str, str] = {}
    most: Mapping[str, str] = {}
    missing: Mapping[str, str] = {}
    unsupported: frozenset[str] = frozenset()

    def effect_of(self, group: str) -> Refusal:
        """The effect to report for a missing setting of this group."""
        if group in self.unsupported:
            return "unsupported"
        return "not applicable"


def joined(parts: Iterable[DeviceSettings]) -> DeviceSettings:
    """The settings of several groups as one."""
    values: dict[str, str] = {}
    most: dict[str, str] = {}
    missing: dict[str, str] = {}
    unsupported: set[str] = set()
    for part in parts:
        values.update(part.values)
        most.update(part.most)
        missing.update(part.missing)
        unsupported |= part.unsupported
    return DeviceSettings(values, most, missing, frozenset(unsupported))


def lacking(groups: Iterable[str], reason: str, *, by_kernel: bool = False) -> DeviceSettings:
    """The groups as missing, all for this reason; `by_kernel`: the kernel lacks them."""
    missing = dict.fromkeys(groups, reason)
    return DeviceSettings(missing=missing, unsupported=frozenset(missing if by_kernel else ()))


class Declined(NamedTuple):
    """A device setting that the kernel or the driver has refused since the boot."""

    value: str
    effect: Refusal
    reason: str
