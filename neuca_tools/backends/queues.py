"""Reads and sets which CPUs serve a device's queues, and its interrupt delays.

See Documentation/networking/scaling.rst and napi.rst of the kernel. The files of a device in /sys
are found by its name, and used only if /sys shows this network namespace.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from neuca_tools.documents.neuca.link_settings import list_cpus
from neuca_tools.errors import ApplyError
from neuca_tools.files import applying, text_of
from neuca_tools.model.device_settings import DeviceSettings, joined_settings, missing_groups

SYS = Path("/sys")
# The side of a device's queues, and the file of each that has a mask of CPUs.
FILES = {"rps": ("rx", "rps_cpus"), "xps": ("tx", "xps_cpus")}
WORDS = {"rps": "receive", "xps": "transmit"}


class Queues:
    """The settings of one device that `link_settings` sets through "files", called groups here.

    They are `rps`, `xps`, and numbers that have the name of their file. The value of `rps` or `xps`
    is a list of CPUs for all queues (`0-3,8`, `none`), or one for each queue, with " / " between.
    """

    def __init__(self, index: int, name: str, sys: Path = SYS) -> None:
        self._node, self._sys = sys / "class" / "net" / name, sys
        self._here = text_of(self._node / "ifindex") == str(index)

    def read(self, groups: Iterable[str]) -> DeviceSettings:
        """The value of each group, or the reason why a group cannot be set."""
        if not self._here:
            return missing_groups(groups, "/sys does not show this network namespace")
        return joined_settings(map(self._read, groups))

    def _read(self, group: str) -> DeviceSettings:
        return self._read_masks(group) if group in FILES else self._read_attribute(group)

    def _read_attribute(self, name: str) -> DeviceSettings:
        """A number that every device of this kernel has, in a file of its own."""
        value = text_of(self._node / name)
        if not value:
            return missing_groups([name], f"this kernel has no {name}", by_kernel=True)
        return DeviceSettings({name: value})

    def write(self, group: str, value: str) -> None:
        """Set a value. Raises ApplyError."""
        if not self._here:
            raise ApplyError(f'"{self._node}" is a different device now')
        with applying():
            if group in FILES:
                self._write_masks(group, value)
            else:
                (self._node / group).write_text(value, encoding="ascii")

    def _write_masks(self, group: str, value: str) -> None:
        files, lists = self._mask_files(group), value.split(" / ")
        if len(lists) == 1:
            lists *= len(files)
        for file, cpus in zip(files, lists):
            file.write_text(_cpu_mask(cpus), encoding="ascii")

    def _mask_files(self, group: str) -> list[Path]:
        side, file = FILES[group]
        try:
            queues = list((self._node / "queues").glob(f"{side}-*"))
        except OSError:
            return []
        queues.sort(key=lambda queue: int(queue.name.partition("-")[2]))
        return [queue / file for queue in queues]

    def _read_masks(self, group: str) -> DeviceSettings:
        """The lists of CPUs; in `most` what `all` stands for, and the number of queues."""
        masks = [text_of(file) for file in self._mask_files(group)]
        lists = [_cpu_list(mask) for mask in masks if mask]
        # The kernel refuses to read the XPS mask of a device with a single queue.
        if not lists or len(lists) != len(masks):
            return missing_groups(
                [group], f"the device has no {WORDS[group]} queues to choose from"
            )
        value = lists[0] if len(set(lists)) == 1 else " / ".join(lists)
        online = text_of(self._sys / "devices/system/cpu/online") or "0"
        return DeviceSettings({group: value}, {group: online, f"{group}.queues": str(len(lists))})


def _cpu_numbers(cpus: str) -> set[int]:
    numbers: set[int] = set()
    for part in filter(None, cpus.split(",")):
        low, _, high = part.partition("-")
        numbers.update(range(int(low), int(high or low) + 1))
    return numbers


def _cpu_list(mask: str) -> str:
    """Convert a mask as the kernel prints it to a list.

    >>> _cpu_list("1,0000000f")
    '0-3,32'
    """
    bits = int(mask.replace(",", "") or "0", 16)
    return list_cpus(number for number in range(bits.bit_length()) if bits >> number & 1)


def _cpu_mask(cpus: str) -> str:
    """Convert a list to a mask as the kernel reads it: groups of 32 bits.

    >>> _cpu_mask("0-3,32"), _cpu_mask("none")
    ('1,0000000f', '0')
    """
    bits = sum(1 << number for number in _cpu_numbers(cpus)) if cpus != "none" else 0
    digits = f"{bits:x}"
    groups = [digits[max(0, end - 8) : end] for end in range(len(digits), 0, -8)]
    return ",".join(reversed(groups))
