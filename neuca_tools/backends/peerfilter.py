"""Confines a program to one peer: the kernel drops all other packets of its sockets.

iperf3 accepts the first connection and has no filter of its own. A control group with two BPF
programs (BPF_PROG_TYPE_CGROUP_SKB, linux/bpf.h) covers every socket that a process in it opens,
from the first packet on. IPAddressAllow= in systemd.resource-control(5) uses the same mechanism.
Requires root, Linux 5.2 (fsopen(2)) and CONFIG_CGROUP_BPF.
"""

# SPDX-License-Identifier: MIT

import ctypes
import errno
import os
import platform
import re
import socket
import struct
from contextlib import suppress
from pathlib import Path

from neuca_tools.files import closed_afterwards
from neuca_tools.libc import call
from neuca_tools.model import Host as Address

BPF_CALL = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361, "s390x": 351}
FSOPEN, FSCONFIG, FSMOUNT = 430, 431, 432  # the same on every architecture
CLOEXEC, CONFIG_CREATE = 1, 6  # FSOPEN_CLOEXEC and FSMOUNT_CLOEXEC; FSCONFIG_CMD_CREATE
LOAD, ATTACH = 5, 8  # BPF_PROG_LOAD, BPF_PROG_ATTACH
CGROUP_SKB, ALLOW_MULTI = 8, 2  # BPF_PROG_TYPE_CGROUP_SKB, BPF_F_ALLOW_MULTI
INGRESS, EGRESS = 0, 1  # BPF_CGROUP_INET_INGRESS, BPF_CGROUP_INET_EGRESS
ATTRIBUTES = 128  # bytes of union bpf_attr; those that the kernel does not know must be zero
LOAD_BYTES = 26  # BPF_FUNC_skb_load_bytes
PROTOCOL = 16  # offset of protocol in struct __sk_buff
ETHERTYPES = {4: 0x0800, 6: 0x86DD}
# Offset of the source or destination address in the IP header (RFC 791, RFC 8200).
PLACES = {(4, INGRESS): 12, (4, EGRESS): 16, (6, INGRESS): 8, (6, EGRESS): 24}
NAME = re.compile(r"neuca-selftest\.([0-9]+)\.[0-9a-f]+")


class PeerFilter:
    """A control group that passes only packets of one peer. Raises OSError if unsupported."""

    def __init__(self, peer: Address) -> None:
        # Below the control group of this process, which its supervisor tracks.
        lines = Path("/proc/self/cgroup").read_text(errors="surrogateescape").splitlines()
        own_group = next((line[3:].strip("/") for line in lines if line.startswith("0::")), "")
        with closed_afterwards(_detached_cgroup_mount()) as root:
            self._parent = os.open(own_group or ".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=root)
        self._name = f"neuca-selftest.{os.getpid()}.{id(self):x}"
        # A descriptor; a process joins the group by writing 0 to it.
        self.joining = -1
        try:
            _remove_stale(self._parent)
            os.mkdir(self._name, 0o755, dir_fd=self._parent)
            self._restrict_to(peer)
        except OSError:
            self.close()
            raise

    def _restrict_to(self, peer: Address) -> None:
        directory = os.open(self._name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=self._parent)
        with closed_afterwards(directory) as group:
            for direction in (INGRESS, EGRESS):
                with closed_afterwards(_load_program(filter_program(peer, direction))) as loaded:
                    attributes = struct.pack("=IIII", group, loaded, direction, ALLOW_MULTI)
                    _call_bpf(ATTACH, attributes)
            self.joining = os.open("cgroup.procs", os.O_WRONLY | os.O_CLOEXEC, dir_fd=group)

    def close(self) -> None:
        """Remove the group, unless a process is left in it: `_remove_stale` removes it later."""
        if self.joining >= 0:
            os.close(self.joining)
        if self._parent >= 0:
            with suppress(OSError):
                os.rmdir(self._name, dir_fd=self._parent)
            os.close(self._parent)
        self.joining = self._parent = -1


def filter_program(peer: Address, direction: int) -> bytes:
    """BPF instructions that return 1 for packets from (or to) this address and 0 for all others."""
    words = struct.unpack(f"={len(peer.packed) // 4}I", peer.packed)
    start = -4 * len(words)  # on the stack
    program: list[bytes] = []

    def add(code: int, to: int = 0, source: int = 0, offset: int = 0, value: int = 0) -> None:
        program.append(struct.pack("=BBhI", code, to | source << 4, offset, value & 0xFFFFFFFF))

    def drop_unless_equal(code: int, source: int = 0, value: int = 0) -> None:
        """Jump to the last two instructions if r0 differs."""
        add(code, 0, source, 11 + 3 * len(words) - len(program), value)

    add(0xBF, 6, 1)  # r6 = the packet
    add(0x61, 0, 6, PROTOCOL)
    drop_unless_equal(0x55, value=socket.htons(ETHERTYPES[peer.version]))
    add(0xBF, 1, 6)
    add(0xB7, 2, value=PLACES[peer.version, direction])
    add(0xBF, 3, 10)
    add(0x07, 3, value=start)
    add(0xB7, 4, value=len(peer.packed))
    add(0x85, value=LOAD_BYTES)
    drop_unless_equal(0x55)  # the header is cut off
    for place, word in enumerate(words):
        add(0x61, 0, 10, start + 4 * place)
        add(0xB4, 1, value=word)  # 32 bits, not extended by their sign
        drop_unless_equal(0x5D, source=1)
    for verdict in (1, 0):
        add(0xB7, 0, value=verdict)
        add(0x95)
    return b"".join(program)


def _load_program(code: bytes) -> int:
    kept = ctypes.create_string_buffer(code, len(code))
    license_ = ctypes.create_string_buffer(b"MIT")
    count = len(code) // 8
    where = ctypes.addressof(kept), ctypes.addressof(license_)
    return _call_bpf(LOAD, struct.pack("=IIQQ", CGROUP_SKB, count, *where))


def _call_bpf(command: int, attributes: bytes) -> int:
    number = BPF_CALL.get(platform.machine())
    if number is None or ctypes.sizeof(ctypes.c_void_p) != 8:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    kept = ctypes.create_string_buffer(attributes, ATTRIBUTES)
    return call("syscall", number, command, kept, ATTRIBUTES)


def _detached_cgroup_mount() -> int:
    """A descriptor of a cgroup version 2 file system that is not attached to any directory."""
    with closed_afterwards(call("syscall", FSOPEN, b"cgroup2", CLOEXEC)) as context:
        call("syscall", FSCONFIG, context, CONFIG_CREATE, None, None, 0)
        return call("syscall", FSMOUNT, context, CLOEXEC, 0)


def _remove_stale(parent: int) -> None:
    """Remove the groups of earlier processes that were killed. Groups in use cannot be removed."""
    for name in os.listdir(parent):
        match = NAME.fullmatch(name)
        if match and not Path(f"/proc/{match[1]}").exists():
            with suppress(OSError):
                os.rmdir(name, dir_fd=parent)
