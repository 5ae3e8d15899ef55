"""The confinement of iperf3: the user nobody, no capabilities, and no writable directory but /tmp.

iperf3 is C code that parses what a peer sends. Each restriction is applied by the new process
between fork and exec. Those that need root are skipped for other users.
"""

# SPDX-License-Identifier: MIT

import errno
import os
import resource
import struct
from contextlib import suppress
from pathlib import Path
from typing import Callable

from neuca_tools.libc import call
from neuca_tools.selftest.measure.program import MAX_OUTPUT

NOBODY = 65534  # the user and the group, in every distribution
# linux/prctl.h, linux/capability.h, linux/sched.h and linux/mount.h.
PR_SET_NO_NEW_PRIVS = 38
CAPABILITY_VERSION_3 = 0x20080522
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REC, MS_PRIVATE = 0x4000, 0x40000
# Empty and read-only for iperf3. It gets a /tmp of its own, where it keeps a file for each stream.
HIDDEN_DIRECTORIES = "/dev/shm /home /media /mnt /opt /root /run /srv /var".split()
LIMITS = {
    resource.RLIMIT_CORE: 0,
    # 128 streams have a socket and a file each.
    resource.RLIMIT_NOFILE: 1024,
    # Bytes of a file. Its output is one, and for each stream it has another of 128 KiB.
    resource.RLIMIT_FSIZE: MAX_OUTPUT,
}
# For users other than root, and for root in a user namespace to which nobody is not mapped.
NOT_ALLOWED = (errno.EPERM, errno.EINVAL)


def confine_process(cgroup_procs: int = -1) -> Callable[[], None]:
    """The function to call in the new process.

    `cgroup_procs` is the descriptor of that file of the control group to enter; -1 for none.
    """

    def confine() -> None:
        if cgroup_procs >= 0:
            os.write(cgroup_procs, b"0")
        with suppress(OSError):
            # The first process to be killed if the host runs out of memory.
            Path("/proc/self/oom_score_adj").write_bytes(b"1000")
        for limit, value in LIMITS.items():
            # SystemCallFilter= of a service may forbid both: Python raises ValueError for EPERM.
            with suppress(OSError, ValueError):
                hard_limit = resource.getrlimit(limit)[1]
                if hard_limit != resource.RLIM_INFINITY:
                    value = min(value, hard_limit)
                resource.setrlimit(limit, (value, value))
        _hide_directories()
        _become_nobody()
        with suppress(OSError):
            call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        with suppress(OSError):
            call("capset", struct.pack("=II", CAPABILITY_VERSION_3, 0), bytes(24))

    return confine


def _hide_directories() -> None:
    """Hide directories in a new mount namespace, so that no other process is affected."""
    try:
        call("unshare", CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC)
    except OSError:
        return
    try:
        call("mount", b"none", b"/", None, MS_REC | MS_PRIVATE, None)
    except OSError:
        os._exit(1)
    for directory in HIDDEN_DIRECTORIES:
        _mount_empty(directory, MS_RDONLY, b"mode=0555,size=4k")
    _mount_empty("/tmp", 0, b"mode=1777,size=64m")


def _mount_empty(directory: str, flags: int, options: bytes) -> None:
    flags |= MS_NOSUID | MS_NODEV | MS_NOEXEC
    with suppress(OSError):
        call("mount", b"tmpfs", directory.encode(), b"tmpfs", flags, options)


def _become_nobody() -> None:
    try:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    except OSError as error:
        if error.errno not in NOT_ALLOWED:
            raise
