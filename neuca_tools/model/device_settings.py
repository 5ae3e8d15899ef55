"""The types for settings of a device beyond its link: qdisc, rings, channels, offloads and the like."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple


@dataclass(frozen=True)
class DeviceSettings:
    """The observed settings of a device, by names such as `rings.rx`; only requested ones are read.

    `most` has the driver's maximum, or what `all` and `numa` stand for on this host. `missing` says
    why a setting, or a group of them, does not exist.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    most: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)


class Declined(NamedTuple):
    """A device setting that the kernel or the driver has refused since the boot."""

    value: str
    effect: Literal["not applicable", "unsupported"]
    reason: str
