"""The operation that changes settings of the device behind a link.

There is one for each group, because many drivers reset the NIC for each change.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass, field

from neuca_tools.desired.device_settings import text
from neuca_tools.documents.neuca.link_settings import is_of_place
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
    """`before` and `after` have one group's (`rings`) values by their whole names (`rings.rx`).

    The place in a bond or bridge that the device is put into has its values only then: without
    `before`, the operation sees what it has `replaced`.
    """

    kind = "set-device"
    group: str
    before: Mapping[str, str]
    after: Mapping[str, str]
    phase_of: Phase = Phase.NIC
    replaced: dict[str, str] = field(default_factory=dict, compare=False, repr=False)

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
        index = writer.index(self.on)
        if is_of_place(self.group) and not self.before:
            self.replaced.update(writer.device_values(index, self.group))
        writer.set_device(index, self.group, self.after)
