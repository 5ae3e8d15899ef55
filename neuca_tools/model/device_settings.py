"""What a device has, beyond its link: the types of `devices`, apart from `model` since they are about one device alone."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple


@dataclass(frozen=True)
class DeviceSettings:
    """What a device has of qdisc, rings and the like, by names such as `rings.rx`; only what somebody asks for is read.

    `most`: the driver's maximum, or what `all` and `numa` stand for here. `missing`: why there is no such setting, or group.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    most: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)


class Declined(NamedTuple):
    """A device setting that was tried since the boot, and that the kernel or the driver did not take."""

    value: str
    effect: Literal["not applicable", "unsupported"]
    reason: str
