"""Which CPUs serve the queues and the interrupts of a device: RPS, XPS and IRQ affinity, through /sys and /proc/irq.

RPS and XPS: Documentation/networking/scaling.rst of the kernel. A device's files are looked for by its name, and used only
where /sys shows this network namespace.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Optional

from neuca_tools.documents.neuca.device_settings import listed
from neuca_tools.errors import ApplyError
from neuca_tools.model.device_settings import DeviceSettings

SYS, IRQ = Path("/sys"), Path("/proc/irq")
FILES = {"rps": ("rx", "rps_cpus"), "xps": ("tx", "xps_cpus")}
WORDS = {"rps": "receive", "xps": "transmit"}


class Queues:
    """The files of one device."""

    def __init__(self, index: int, name: str, sys: Path = SYS, irq: Path = IRQ) -> None:
        self._node, self._sys, self._irq = sys / "class" / "net" / name, sys, irq
        self._here = _read(self._node / "ifindex") == str(index)

    def read(self, groups: Iterable[str]) -> DeviceSettings:
        """The CPUs of each queue, or why there is nothing to set."""
        values: dict[str, str] = {}
        most: dict[str, str] = {}
        missing: dict[str, str] = {}
        for group in groups:
            if not self._here:
                missing[group] = "/sys does not show this network namespace"
                continue
            found = self._interrupts() if group == "irq-affinity" else self._masks(group)
            values.update(found.values)
            most.update(found.most)
            missing.update(found.missing)
        return DeviceSettings(values, most, missing)

    def write(self, group: str, value: str) -> None:
        """Set the CPUs; an interrupt that is no longer this device's is left alone. Raises ApplyError."""
        if not self._here:
            raise ApplyError(f'"{self._node}" is another device by now')
        try:
            if group == "irq-affinity":
                own = {str(irq) for irq in self._irqs()}
                for irq, _, cpus in (one.partition("=") for one in value.split()):
                    if irq in own:
                        (self._irq / irq / "smp_affinity_list").write_text(cpus, encoding="ascii")
                return
            files, lists = self._files(group), value.split(" / ")
            for file, cpus in zip(files, lists if len(lists) > 1 else lists * len(files)):
                file.write_text(_mask(cpus), encoding="ascii")
        except OSError as error:
            raise ApplyError(error.strerror or str(error), error.errno or 0) from error

    def _files(self, group: str) -> list[Path]:
        side, file = FILES[group]
        with suppress(OSError):
            queues = [
                one for one in (self._node / "queues").iterdir() if one.name.startswith(f"{side}-")
            ]
            return [
                one / file
                for one in sorted(queues, key=lambda one: int(one.name.partition("-")[2]))
            ]
        return []

    def _masks(self, group: str) -> DeviceSettings:
        masks = [_read(file) for file in self._files(group)]
        lists = [_cpus(mask) for mask in masks if mask is not None]
        if not lists or len(lists) != len(
            masks
        ):  # the kernel refuses to speak of XPS with a single queue
            return DeviceSettings(
                missing={group: f"the device has no {WORDS[group]} queues to choose from"}
            )
        value = lists[0] if len(set(lists)) == 1 else " / ".join(lists)
        online = _read(self._sys / "devices/system/cpu/online") or "0"
        return DeviceSettings({group: value}, {group: online, f"{group}.queues": str(len(lists))})

    def _interrupts(self) -> DeviceSettings:
        """`most`: each interrupt on the CPUs of the NIC's node, or where it is now if that is inside of them."""
        near, irqs = self._node_cpus(), self._irqs()
        lists = {irq: _read(self._irq / str(irq) / "smp_affinity_list") for irq in irqs}
        known = {irq: cpus for irq, cpus in lists.items() if cpus}
        if near is None or not known:
            reason = (
                "the device belongs to no NUMA node"
                if near is None
                else "the device has no interrupts of its own"
            )
            return DeviceSettings(missing={"irq-affinity": reason})
        wanted = {
            irq: cpus if _numbers(cpus) <= _numbers(near) else near for irq, cpus in known.items()
        }
        return DeviceSettings({"irq-affinity": _joined(known)}, {"irq-affinity": _joined(wanted)})

    def _irqs(self) -> list[int]:
        """Message-signalled interrupts; those of a virtio NIC are of the PCI device that it is on."""
        for place in (self._node / "device", self._node / "device" / ".."):
            with suppress(OSError):
                return sorted(
                    int(one.name) for one in (place / "msi_irqs").iterdir() if one.name.isdecimal()
                )
        return []

    def _node_cpus(self) -> Optional[str]:
        for place in (self._node / "device", self._node / "device" / ".."):
            node = _read(place / "numa_node")
            if node is not None:
                return _read(self._sys / "devices/system/node" / f"node{node}" / "cpulist")
        return None


def _read(path: Path) -> Optional[str]:
    with suppress(OSError):
        return path.read_text(encoding="ascii", errors="replace").strip()
    return None


def _numbers(cpus: str) -> set[int]:
    found: set[int] = set()
    for part in filter(None, cpus.split(",")):
        low, _, high = part.partition("-")
        found.update(range(int(low), int(high or low) + 1))
    return found


def _cpus(mask: str) -> str:
    """A mask as the kernel prints it, as a list.

    >>> _cpus("1,0000000f")
    '0-3,32'
    """
    bits = int(mask.replace(",", "") or "0", 16)
    return listed(number for number in range(bits.bit_length()) if bits >> number & 1)


def _mask(cpus: str) -> str:
    """A list as a mask that the kernel reads: groups of 32 bits.

    >>> _mask("0-3,32"), _mask("none")
    ('1,0000000f', '0')
    """
    bits = sum(1 << number for number in _numbers(cpus)) if cpus != "none" else 0
    digits = f"{bits:x}"
    groups = [digits[max(0, end - 8) : end] for end in range(len(digits), 0, -8)]
    return ",".join(reversed(groups))


def _joined(lists: dict[int, str]) -> str:
    return " ".join(f"{irq}={cpus}" for irq, cpus in lists.items())
