"""Logs to the journal by its native protocol (systemd.io, JOURNAL_NATIVE_PROTOCOL).

python3-systemd would do, but takes as long to load as Python takes to start, in each boot that
logs a line.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
import fcntl
import logging
import os
import socket
import struct
from collections.abc import Mapping

SOCKET = "/run/systemd/journal/socket"
IDENTIFIER = "neucad"
_SEND_WITHIN = 1.0  # seconds
# syslog(3), for the levels of the library.
_PRIORITIES = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3}
_LARGE = frozenset({errno.EMSGSIZE, errno.ENOBUFS})
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


class JournalHandler(logging.Handler):
    """Sends each line with its priority, its place in the code, and the fields of `extra`."""

    def __init__(self, place: str = SOCKET) -> None:
        super().__init__()
        self.place = place

    def emit(self, record: logging.LogRecord) -> None:
        try:
            send(self._fields(record), self.place)
        except OSError:
            self.handleError(record)

    def _fields(self, record: logging.LogRecord) -> dict[str, str]:
        own = {name: str(value) for name, value in vars(record).items() if name.isupper()}
        return {
            "MESSAGE": self.format(record),
            "PRIORITY": str(_PRIORITIES.get(record.levelno, 2)),
            "SYSLOG_IDENTIFIER": IDENTIFIER,
            "LOGGER": record.name,
            "CODE_FILE": record.pathname,
            "CODE_LINE": str(record.lineno),
            "CODE_FUNC": str(record.funcName),
            **own,
        }


def send(fields: Mapping[str, str], place: str = SOCKET) -> None:
    """Send one entry. Raises OSError."""
    entry = b"".join(_field(name, value) for name, value in fields.items())
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.settimeout(_SEND_WITHIN)
        try:
            sender.sendto(entry, place)
        except OSError as error:
            if error.errno not in _LARGE:
                raise
            _send_large(entry, place, sender)


def _field(name: str, value: str) -> bytes:
    data = value.encode("utf-8", "replace")
    if b"\n" in data:  # the length first, as 64 bits in little-endian order
        return name.encode() + b"\n" + struct.pack("<Q", len(data)) + data + b"\n"
    return name.encode() + b"=" + data + b"\n"


def _send_large(entry: bytes, place: str, sender: socket.socket) -> None:
    """Send what no datagram holds as a sealed file in memory, as the protocol requires."""
    memory = os.memfd_create("journal-entry", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with os.fdopen(memory, "wb") as file:
        file.write(entry)
        file.flush()
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, _SEALS)
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", memory))
        sender.sendmsg([], [rights], 0, place)
