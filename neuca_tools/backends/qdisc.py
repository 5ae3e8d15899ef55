"""Reads and sets queueing disciplines through rtnetlink (tc(8), include/uapi/linux/pkt_sched.h).

A device with several transmit queues keeps `mq` as its root qdisc, with one qdisc for each queue:
with a single qdisc, all CPUs would contend for one lock. The qdisc of such a device is the one that
all its queues share.

pyroute2 is not used: 0.7.2 to 0.9 lack the parameters of `fq`, and drop the limit of `bfifo`.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import socket
import struct
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import NamedTuple, Optional

from neuca_tools.backends import kernel_state, wire
from neuca_tools.errors import ApplyError
from neuca_tools.files import as_apply_error
from neuca_tools.model.device_settings import rate_text, rate_value

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
    """All options that a document can set: the kernel keeps the value of any that is not sent.

    A `pfifo` always comes with a limit (`desired.device_settings`).
    """
    value_by_option = dict(zip(options[::2], options[1::2]))
    if kind in ("pfifo", "bfifo") and "limit" in value_by_option:
        return wire.encode_attribute(OPTIONS, struct.pack("=I", int(value_by_option["limit"])))
    if kind == "fq":
        limit = value_by_option.get("maxrate")
        rate = rate_value(limit) // 8 if limit else UNLIMITED
        return wire.encode_nest(OPTIONS, wire.encode_number(FQ_MAX_RATE, rate))
    return b""
