"""Reads and sets which CPUs serve the queues of a device (RPS, XPS), and its interrupt delays.

See Documentation/networking/scaling.rst and napi.rst of the kernel. The files of a device are in a
directory of /sys that has its name, and are used only if /sys shows this network namespace.
"""

# SPDX-License-Identifier: MIT

from collections.abc import Iterable
from pathlib import Path

from neuca_tools.documents.neuca.link_settings import cpu_numbers, list_cpus
from neuca_tools.errors import ApplyError
from neuca_tools.files import as_apply_error, text_of
from neuca_tools.model.device_settings import DeviceSettings, joined_settings, missing_groups

SYS = Path("/sys")
# The prefix of the queues' names, the file of each queue that has a mask of CPUs, the direction.
MASK_FILES = {"rps": ("rx", "rps_cpus", "receive"), "xps": ("tx", "xps_cpus", "transmit")}
SEPARATOR = " / "  # between the lists of the queues


class Queues:
    """The settings of one device that are files in /sys: `link_settings` has them as "files".

    A group is `rps`, `xps`, or the name of a file with a single number, such as
    `gro_flush_timeout`. The value of `rps` and `xps` is one list of CPUs for all queues (`0-3,8`,
    `none`), or one list for each queue, with SEPARATOR between them.
    """

    def __init__(self, index: int, name: str, sys: Path = SYS) -> None:
        self._directory, self._sys = sys / "class" / "net" / name, sys
        self._is_shown = text_of(self._directory / "ifindex") == str(index)

    def read(self, groups: Iterable[str]) -> DeviceSettings:
        """The value of each group, or the reason why a group cannot be set."""
        if not self._is_shown:
            return missing_groups(groups, "/sys does not show this network namespace")
        return joined_settings(map(self._read, groups))

    def _read(self, group: str) -> DeviceSettings:
        if group in MASK_FILES:
            return self._read_masks(group)
        value = text_of(self._directory / group)
        if not value:  # every device has the file if the kernel supports it
            return missing_groups([group], f"this kernel has no {group}", by_kernel=True)
        return DeviceSettings({group: value})

    def write(self, group: str, value: str) -> None:
        """Set a value. Raises ApplyError."""
        if not self._is_shown:
            raise ApplyError(f'"{self._directory}" is a different device now')
        with as_apply_error():
            if group not in MASK_FILES:
                (self._directory / group).write_text(value, encoding="ascii")
                return
            files, lists = self._mask_files(group), value.split(SEPARATOR)
            if len(lists) == 1:
                lists *= len(files)
            for file, cpus in zip(files, lists):
                file.write_text(_cpu_mask(cpus), encoding="ascii")

    def _mask_files(self, group: str) -> list[Path]:
        prefix, file, _ = MASK_FILES[group]
        try:
            queues = list((self._directory / "queues").glob(f"{prefix}-*"))
        except OSError:
            return []
        queues.sort(key=lambda queue: int(queue.name.partition("-")[2]))
        return [queue / file for queue in queues]

    def _read_masks(self, group: str) -> DeviceSettings:
        """The lists; `maximums` has the CPUs online (`all`), and the number of queues."""
        masks = [text_of(file) for file in self._mask_files(group)]
        lists = [_cpu_list(mask) for mask in masks if mask]
        # The kernel refuses to read the XPS mask of a device with a single queue.
        if not lists or len(lists) != len(masks):
            reason = f"the device has no {MASK_FILES[group][2]} queues to choose from"
            return missing_groups([group], reason)
        value = lists[0] if len(set(lists)) == 1 else SEPARATOR.join(lists)
        online = text_of(self._sys / "devices/system/cpu/online") or "0"
        maximums = {group: online, f"{group}.queues": str(len(lists))}
        return DeviceSettings({group: value}, maximums)


def _cpu_list(mask: str) -> str:
    """Convert a mask, as the kernel prints it, to a list of CPUs.

    >>> _cpu_list("1,0000000f")
    '0-3,32'
    """
    bits = int(mask.replace(",", "") or "0", 16)
    return list_cpus(number for number in range(bits.bit_length()) if bits >> number & 1)


def _cpu_mask(cpus: str) -> str:
    """Convert a list of CPUs to a mask as the kernel reads it: hexadecimal, in groups of 32 bits.

    >>> _cpu_mask("0-3,32"), _cpu_mask("none")
    ('1,0000000f', '0')
    """
    bits = sum(1 << number for number in cpu_numbers(cpus))
    digits = f"{bits:x}"
    groups = [digits[max(0, end - 8) : end] for end in range(len(digits), 0, -8)]
    return ",".join(reversed(groups))
