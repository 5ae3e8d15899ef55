"""Reads and sets how a device queues packets: its qdisc, and which CPUs serve its queues.

Queueing disciplines go through rtnetlink (tc(8), include/uapi/linux/pkt_sched.h). A device with
several transmit queues keeps `mq` as its root qdisc, with one qdisc for each queue: with a single
qdisc, all CPUs would contend for one lock. The qdisc of such a device is the one that all its
queues share. pyroute2 is not used: 0.7.2 to 0.9 lack the parameters of `fq`, and drop the limit of
`bfifo`.

RPS, XPS and interrupt delays (Documentation/networking/scaling.rst and napi.rst of the kernel) are
files in a directory of /sys that has the device's name, used only if /sys shows this network
namespace.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import socket
import struct
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, Optional

from neuca_tools.backends import kernel_state, wire
from neuca_tools.documents.neuca.link_settings import cpu_numbers, list_cpus
from neuca_tools.errors import ApplyError
from neuca_tools.files import as_apply_error, text_of
from neuca_tools.model.device_settings import (
    DeviceSettings,
    joined_settings,
    missing_groups,
    rate_text,
    rate_value,
)

SYS = Path("/sys")
# The prefix of the queues' names, the file of each queue that has a mask of CPUs, the direction.
MASK_FILES = {"rps": ("rx", "rps_cpus", "receive"), "xps": ("tx", "xps_cpus", "transmit")}
SEPARATOR = " / "  # between the lists of the queues
NUM_TX_QUEUES = 31  # IFLA_NUM_TX_QUEUES
NEWQDISC, DELQDISC, GETQDISC = 36, 37, 38  # RTM_*
KIND, OPTIONS = 1, 2  # TCA_*
FQ_MAX_RATE = 7  # TCA_FQ_FLOW_MAX_RATE, bytes/s
UNLIMITED = 0xFFFFFFFF
ROOT = 0xFFFFFFFF  # TC_H_ROOT
_MESSAGE = struct.Struct("=BBHiIII")  # struct tcmsg


class _Qdisc(NamedTuple):
    handle: int
    parent: int
    kind: str
    options: bytes

    @property
    def text(self) -> str:
        """The qdisc in the syntax of documents."""
        if self.kind in ("pfifo", "bfifo") and len(self.options) >= 4:
            return f"{self.kind} limit {struct.unpack_from('=I', self.options)[0]}"
        if self.kind == "fq":
            options = wire.Attributes(self.options)
            rate = options.number(FQ_MAX_RATE)
            if FQ_MAX_RATE in options and rate != UNLIMITED:
                return f"fq maxrate {rate_text(8 * rate)}"
        return self.kind


def read_qdiscs(indexes: Collection[int]) -> Mapping[int, str]:
    """The qdisc of each device: `default KIND` if the kernel chose it. Raises OSError.

    `default`: there is none yet; `mixed`: the queues differ.
    """
    with wire.Socket(socket.NETLINK_ROUTE) as kernel:
        qdiscs_by_index = _dump_qdiscs(kernel)
    return {index: _device_text(qdiscs_by_index[index]) for index in indexes}


def set_qdisc(index: int, qdisc: str) -> None:
    """Set the qdisc of a device; `default` lets the kernel choose. Raises ApplyError."""
    kind, *options = qdisc.split()
    with as_apply_error(), wire.Socket(socket.NETLINK_ROUTE) as kernel:
        root = _root_qdisc(_dump_qdiscs(kernel)[index])
        if kind == "default":
            if root is not None and root.handle:
                kernel.ask(DELQDISC, 0, _qdisc_message(index, ROOT))
        elif kind != "noqueue" and _uses_mq(kernel, index, root):
            root = _ensure_mq_handle(kernel, index, root)
            for leaf in _queue_qdiscs(_dump_qdiscs(kernel)[index], root):
                _replace_qdisc(kernel, index, leaf.parent, kind, options)
        else:
            _replace_qdisc(kernel, index, ROOT, kind, options)


def _dump_qdiscs(kernel: wire.Socket) -> defaultdict[int, list[_Qdisc]]:
    qdiscs_by_index = defaultdict[int, list[_Qdisc]](list)
    for body in kernel.dump(GETQDISC, _qdisc_message(0)):
        _, _, _, index, handle, parent, _ = _MESSAGE.unpack_from(body)
        parts = wire.Attributes(body[_MESSAGE.size :])
        qdisc = _Qdisc(handle, parent, parts.text(KIND), parts.bytes(OPTIONS))
        qdiscs_by_index[index].append(qdisc)
    return qdiscs_by_index


def _qdisc_message(index: int, parent: int = 0) -> bytes:
    return _MESSAGE.pack(0, 0, 0, index, 0, parent, 0)


def _root_qdisc(qdiscs: list[_Qdisc]) -> Optional[_Qdisc]:
    return next((qdisc for qdisc in qdiscs if qdisc.parent == ROOT), None)


def _device_text(qdiscs: list[_Qdisc]) -> str:
    root = _root_qdisc(qdiscs)
    if root is None:
        # The device was never up; it gets its qdisc when it comes up.
        return "default"
    text = root.text
    if root.kind == "mq":
        leaves = {qdisc.text for qdisc in _queue_qdiscs(qdiscs, root)}
        if leaves:
            text = leaves.pop() if len(leaves) == 1 else "mixed"
    return f"default {text}" if root.handle == 0 else text


def _queue_qdiscs(qdiscs: list[_Qdisc], root: _Qdisc) -> list[_Qdisc]:
    others = (qdisc for qdisc in qdiscs if qdisc.parent != ROOT)
    return [qdisc for qdisc in others if qdisc.parent >> 16 == root.handle >> 16]


def _uses_mq(kernel: wire.Socket, index: int, root: Optional[_Qdisc]) -> bool:
    """Whether the root is `mq`, or will be once it is up: hardware with several transmit queues."""
    if root is not None:
        return root.kind == "mq"
    request = kernel_state.LINK.pack(0, 0, index, 0, 0)
    answer = kernel.ask(kernel_state.GET_LINK, 0, request)[0]
    link = wire.Attributes(answer[kernel_state.LINK.size :])
    return kernel_state.INFO not in link and link.number(NUM_TX_QUEUES) > 1


def _ensure_mq_handle(kernel: wire.Socket, index: int, root: Optional[_Qdisc]) -> _Qdisc:
    """The root `mq`, with the handle by which its queues are addressed. Raises ApplyError."""
    if root is None or not root.handle:
        _replace_qdisc(kernel, index, ROOT, "mq", [])
        root = _root_qdisc(_dump_qdiscs(kernel)[index])
    if root is None or root.kind != "mq" or not root.handle:
        raise ApplyError("its queues have no qdisc of their own")
    return root


def _replace_qdisc(
    kernel: wire.Socket, index: int, parent: int, kind: str, options: list[str]
) -> None:
    message = _qdisc_message(index, parent) + wire.encode_text(KIND, kind)
    kernel.ask(NEWQDISC, wire.CREATE | wire.REPLACE, message + _encode_options(kind, options))


def _encode_options(kind: str, options: list[str]) -> bytes:
    """All options that a document can set: the kernel keeps the value of any that is not sent."""
    value_by_option = dict(zip(options[::2], options[1::2]))
    # A `pfifo` always comes with a limit (`desired.device_settings`).
    if kind in ("pfifo", "bfifo") and "limit" in value_by_option:
        return wire.encode_attribute(OPTIONS, struct.pack("=I", int(value_by_option["limit"])))
    if kind == "fq":
        limit = value_by_option.get("maxrate")
        rate = rate_value(limit) // 8 if limit else UNLIMITED
        return wire.encode_nest(OPTIONS, wire.encode_number(FQ_MAX_RATE, rate))
    return b""


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
