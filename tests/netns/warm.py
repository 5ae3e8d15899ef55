"""A process that has imported all that a command needs, and forks for each one: 50 ms instead of 200.

The commands that it runs are processes of their own, in the namespaces of the guest, as if nsenter had started them. Tests
of what a start itself does run a fresh interpreter.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import array
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import traceback

LARGEST = 65536  # bytes of one request
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET = 0x20000, 0x10000000, 0x40000000  # linux/sched.h


class Warm:
    """Our end. Each request brings its own socket for the answer, so that threads do not get into each other's way."""

    def __init__(self, root):
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen([sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()],
                                             env={**os.environ, "PYTHONPATH": str(root)}, cwd="/")  # fmt: skip

    def close(self):
        self._ours.close()
        self._process.wait(30)

    def run(self, pid, module, arguments, seconds=None):
        """Exit code, standard output and standard error of `module`'s main in the namespaces of `pid`.

        It is killed once it has run for so many `seconds`.
        """
        reply, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with reply, theirs, tempfile() as out, tempfile() as err:
            request = json.dumps([pid, module, arguments, seconds]).encode()
            socket.send_fds(self._ours, [request], [out.fileno(), err.fileno(), theirs.fileno()])
            theirs.close()
            reply.settimeout(240)
            code = int(reply.recv(16) or b"-9")
            return (code, *(_text(stream) for stream in (out, err)))


def tempfile():
    return os.fdopen(os.memfd_create("output"), "w+b")


def _text(stream):
    stream.seek(0)
    return stream.read().decode()


def _serve(end):
    """Until the other end is closed."""
    while True:
        request, descriptors, _, _ = socket.recv_fds(end, LARGEST, 3)
        if not request:
            return
        if os.fork() == 0:
            end.close()
            _oversee(json.loads(request), *array.array("i", descriptors))
        for descriptor in descriptors:
            os.close(descriptor)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _oversee(request, out, err, reply):
    """A child that waits for the command and reports its exit code, however that ends."""
    *command, seconds = request
    child = os.fork()
    if child == 0:
        os.close(reply)
        _command(*command, out, err)
    if seconds is not None and not select.select([os.pidfd_open(child)], [], [], seconds)[0]:
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.write(reply, str(code).encode())
    os._exit(0)


def _command(pid, module, arguments, out, err):
    code = 1
    try:
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        _enter(pid)
        sys.argv = [module, *arguments]
        main = sys.modules[f"neuca_tools.commands.{module}"].main
        code = main()
    except SystemExit as wanted:
        code = wanted.code
    except BaseException:  # noqa: BLE001 - what an interpreter would do with it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code or 0)


def _enter(pid):
    """setns(2) with a process takes several namespaces at once, the user namespace first."""
    import ctypes

    kinds = CLONE_NEWNS | CLONE_NEWNET | (CLONE_NEWUSER if os.geteuid() else 0)
    libc = ctypes.CDLL(None, use_errno=True)
    root = os.open(f"/proc/{pid}/root", os.O_RDONLY)
    if libc.setns(os.pidfd_open(pid), kinds) != 0:
        raise OSError(ctypes.get_errno(), "setns")
    # The new root is that of the mount namespace; in a chroot the holder's is another.
    os.fchdir(root)
    os.chroot(".")
    os.close(root)


if __name__ == "__main__":
    import importlib

    for name in ("pyroute2", "ctypes", "http.client", "gzip", *(f"neuca_tools.commands.{each}" for each in (
            "neuca", "neucad", "change", "look", "data", "logs", "context"))):  # fmt: skip
        importlib.import_module(name)
    _serve(socket.socket(fileno=int(sys.argv[1])))
