"""Functions of libc that Python lacks in the versions that we support."""

# SPDX-License-Identifier: MIT

import ctypes
import errno
import os
import re
import signal
from contextlib import suppress

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def call(name: str, *arguments: object) -> int:
    """The result of a function; it gets each integer as a long. Raises OSError if it is -1."""
    longs = (ctypes.c_long(word) if isinstance(word, int) else word for word in arguments)
    result = int(getattr(_LIBC, name)(*longs))
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def user_lookup_error(login: str, services: str = "") -> int:
    """The errno of getpwnam_r(3); 0 if the name services know whether there is such a user.

    The pwd module takes every error for an absent user. The result of getpwnam_r is that of the
    last of the `services` (nsswitch.conf(5)), so each one is asked by itself; one that is not set
    up (ENOENT) counts only as the last.
    """
    error = _lookup_error(login)
    configure = getattr(_LIBC, "__nss_configure_lookup", None)  # of glibc alone
    if error or configure is None or not services:
        return error
    for service in re.sub(r"\[.*?\]", " ", services).split():
        configure(b"passwd", service.encode())
        error = _lookup_error(login)
        if error not in (0, errno.ENOENT):
            break
        error = 0
    configure(b"passwd", services.encode())
    return error


def _lookup_error(login: str) -> int:
    entry, strings = ctypes.create_string_buffer(256), ctypes.create_string_buffer(65536)
    size, result = ctypes.c_size_t(len(strings)), ctypes.c_void_p()
    ctypes.set_errno(0)
    return int(_LIBC.getpwnam_r(login.encode(), entry, strings, size, ctypes.byref(result)))


def end_with(parent: int) -> bool:
    """Have the kernel kill this process when its parent ends; whether that one still runs."""
    with suppress(OSError):
        call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == parent
