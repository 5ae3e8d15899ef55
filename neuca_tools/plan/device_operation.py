"""The operation that changes settings of the device behind a link.

There is one for each group, because many drivers reset the NIC for each change.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass

from neuca_tools.desired.device_settings import text
from neuca_tools.plan.operation import LinkOperation, Phase, Value, Writer, was

# How the kernel, a driver or a container declines a setting of a device that is unsupported, or has
# an unsupported value (EIO: an interrupt that the kernel manages itself). Other errors are
# failures.
DECLINES = (
    errno.EOPNOTSUPP,
    errno.EINVAL,
    errno.ERANGE,
    errno.ENOENT,
    errno.EPERM,
    errno.EACCES,
    errno.EROFS,
    errno.EIO,
)


@dataclass(frozen=True)
class SetDevice(LinkOperation):
    """`before` and `after` have one group's (`rings`) values by their whole names (`rings.rx`)."""

    kind = "set-device"
    group: str
    before: Mapping[str, str]
    after: Mapping[str, str]
    phase_of: Phase = Phase.NIC

    def __hash__(self) -> int:
        return hash((self.on, self.group, *sorted(self.after.items())))

    @property
    def change(self) -> tuple[Value, Value]:
        after = f"{self.group} {text(self.after)}"
        if not self.before:
            return None, after
        return f"{self.group} {text(self.before)}", after

    @property
    def text(self) -> str:
        before = was(text(self.before) or None)
        return f'set {self.group} of {self.target}{before} to "{text(self.after)}"'

    def run(self, writer: Writer) -> None:
        writer.set_device(writer.index(self.on), self.group, self.after)
