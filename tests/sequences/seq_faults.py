"""Faults in the process of a command: changes that the kernel refuses, lost answers, a full disk, and a sudden end."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import ctypes
import errno
import os
import signal
import socket
import struct
from typing import NamedTuple

LIBC = ctypes.CDLL(None, use_errno=True)
CAP_NET_ADMIN = 12
_CAP_VERSION = 0x20080522  # _LINUX_CAPABILITY_VERSION_3


class Fault(NamedTuple):
    """What happens from the moment with this number on, `count` times.

    "refuse": a change of the network is sent without CAP_NET_ADMIN. "deaf": the answer to a question is lost (ENOBUFS).
    "full": a file cannot be created (ENOSPC). "kill": the process ends before a change of the network or of a file.
    """

    kind: str
    first: int
    count: int = 1


def inject(faults):
    """Arrange for these faults in this process."""
    counted = dict.fromkeys(("refuse", "deaf", "full", "kill"), 0)

    def is_due(kind):
        counted[kind] += 1
        return any(fault.kind == kind and 0 <= counted[kind] - fault.first < fault.count for fault in faults)  # fmt: skip

    def change():
        if is_due("kill"):
            os.kill(os.getpid(), signal.SIGKILL)

    if faults:
        _patch_sockets(is_due, change)
        _patch_files(is_due, change)


def _patch_sockets(is_due, change):
    send, receive = socket.socket.send, socket.socket.recv_into

    def sending(self, content, *flags):
        if self.family == socket.AF_NETLINK and _is_change(bytes(content)):
            change()
            if is_due("refuse"):
                _may_administrate(False)
                try:
                    return send(self, content, *flags)
                finally:
                    _may_administrate(True)
        return send(self, content, *flags)

    def receiving(self, *words):
        if self.family == socket.AF_NETLINK and is_due("deaf"):
            raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))
        return receive(self, *words)

    socket.socket.send, socket.socket.recv_into = sending, receiving


def _patch_files(is_due, change):
    create, replace, unlink = os.open, os.replace, os.unlink

    def creating(path, flags, *words, **options):
        if flags & os.O_EXCL and is_due("full"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return create(path, flags, *words, **options)

    def replacing(*words, **options):
        change()
        return replace(*words, **options)

    def unlinking(*words, **options):
        change()
        return unlink(*words, **options)

    os.open, os.replace, os.unlink = creating, replacing, unlinking


def _is_change(message):
    """rtnetlink: the types of new, delete, get and set follow each other (linux/rtnetlink.h)."""
    if len(message) < 16:
        return False
    kind = struct.unpack_from("=IH", message)[1]
    return kind >= 16 and kind % 4 != 2


def _may_administrate(is_permitted):
    header = struct.pack("=Ii", _CAP_VERSION, 0)
    sets = ctypes.create_string_buffer(24)
    LIBC.capget(header, sets)
    words = list(struct.unpack("=6I", sets.raw))
    bit = 1 << CAP_NET_ADMIN
    words[0] = words[0] | bit if is_permitted else words[0] & ~bit
    if LIBC.capset(header, struct.pack("=6I", *words)):
        raise OSError(ctypes.get_errno(), "capset")
