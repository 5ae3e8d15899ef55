"""What systemd wants to hear of a service, and the journal.

sd_notify is a datagram (sd_notify(3)) and is sent here: `Type=notify` has to work without python3-systemd too. That
library is for the journal alone, which speaks a protocol of its own.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
from typing import Optional

_SEND_WITHIN = 1.0  # seconds


def notify(state: str) -> None:
    """Tell systemd (`READY=1`, `WATCHDOG=1`, `STATUS=…`; several on lines of their own); without one, nothing happens.

    A datagram that cannot be sent is passed over: systemd then does as if it had not come, and nobody else wants to know.
    """
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path.startswith(("/", "@")):
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.settimeout(_SEND_WITHIN)
        sender.sendto(state.encode("utf-8", "replace"), "\0" + path[1:] if path[0] == "@" else path)


def watchdog_interval() -> Optional[float]:
    """Seconds within which systemd wants `WATCHDOG=1`; None if it does not (sd_watchdog_enabled(3))."""
    microseconds, process = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    if (
        not microseconds.isdecimal()
        or int(microseconds) == 0
        or process not in ("", str(os.getpid()))
    ):
        return None
    return int(microseconds) / 1_000_000


def journal_handler() -> Optional[logging.Handler]:
    """A handler that writes to the journal, with its levels and fields; None where standard error does not go there."""
    if not _stderr_is_journal():
        return None
    try:
        from systemd.journal import JournalHandler
    except ImportError:
        return None
    handler: logging.Handler = JournalHandler(SYSLOG_IDENTIFIER="neucad")
    return handler


def _stderr_is_journal() -> bool:
    """JOURNAL_STREAM is the device and inode of the stream that systemd made (systemd.exec(5)); it is inherited."""
    try:
        status = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError, AttributeError):  # closed, or not a file: a test's, or none at all
        return False
    return os.environ.get("JOURNAL_STREAM", "") == f"{status.st_dev}:{status.st_ino}"
