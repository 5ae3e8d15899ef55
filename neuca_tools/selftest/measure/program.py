"""A program started for a test: its output is kept up to a limit, and it ends with this process.

iperf3 is also confined, because it is C code that parses what a peer sends: it gets the user
nobody, no capabilities, and no writable directory but /tmp. Each restriction is applied by the new
process between fork and exec. Those that need root are skipped for other users.
"""

# SPDX-License-Identifier: MIT

import errno
import os
import resource
import struct
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Callable, NamedTuple, Optional

from neuca_tools.libc import call, end_with
from neuca_tools.selftest.measure.wait import wait_readable

# Never the current directory, whatever the environment says.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MAX_OUTPUT = 32 * 1024 * 1024  # bytes of each output
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


class ProgramResult(NamedTuple):
    """The exit code, negative for a signal, and both outputs; `was_killed` if it was late."""

    code: int
    out: bytes
    error: bytes
    was_killed: bool = False


class Program:
    """A running program. `confine` is called in the new process first.

    Call `end` once: its outputs are files in memory, which nobody has to read meanwhile. The
    constructor raises OSError if the program cannot be started.
    """

    def __init__(
        self, command: Sequence[str], confine: Optional[Callable[[], None]] = None
    ) -> None:
        parent = os.getpid()

        def prepare_process() -> None:
            if confine is not None:
                confine()
            # Last, because a change of user clears it (prctl(2)).
            if not end_with(parent):
                os._exit(1)

        self._descriptors = [os.memfd_create("out"), os.memfd_create("error")]
        try:
            self._process, pidfd = _start_program(command, prepare_process, self._descriptors)
            self._descriptors.append(pidfd)
        except OSError:
            self._close()
            raise

    def fileno(self) -> int:
        """The descriptor that is readable once the program has ended."""
        return self._descriptors[-1]

    def terminate(self) -> None:
        self._process.terminate()

    def end(self, seconds: float = 0.0) -> ProgramResult:
        """The result. Kills the program if it has not ended within `seconds`."""
        was_killed = not wait_readable([self], time.monotonic() + seconds)
        if was_killed:
            self._process.kill()
        code = self._process.wait()
        out, error = (os.pread(output, MAX_OUTPUT, 0) for output in self._descriptors[:2])
        self._close()
        return ProgramResult(code, out, error, was_killed)

    def _close(self) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)


def _start_program(
    command: Sequence[str], prepare: Callable[[], None], outputs: Sequence[int]
) -> tuple[subprocess.Popen[bytes], int]:
    """A process and its pidfd."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=outputs[0],
            stderr=outputs[1],
            env={**os.environ, "LC_ALL": "C", "PATH": PATH, "TMPDIR": "/tmp"},
            cwd="/",
            preexec_fn=prepare,  # noqa: PLW1509 - this process has no threads
        )
    except subprocess.SubprocessError as error:
        # `prepare` raised an exception.
        raise OSError(errno.EPERM, "it cannot be confined") from error
    try:
        return process, os.pidfd_open(process.pid)
    except OSError:
        # Nobody would wait for it.
        process.kill()
        process.wait()
        raise


# --- The confinement of iperf3 ---


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
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
        except OSError as error:
            if error.errno not in NOT_ALLOWED:
                raise
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
