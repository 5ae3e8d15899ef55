"""Notifies systemd, and reads and writes its journal.

sd_notify(3) is implemented here because `Type=notify` must work without python3-systemd, which is
used only to read the journal.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Optional

from neuca_tools.errors import ObserveError

if TYPE_CHECKING:
    import logging

_SEND_WITHIN = 1.0  # seconds


def notify(state: str) -> None:
    """Send lines such as `READY=1`, `WATCHDOG=1` or `STATUS=…` to systemd, if it is listening.

    Errors are ignored: systemd's own time-outs cover a lost notification.
    """
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path.startswith(("/", "@")):
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.settimeout(_SEND_WITHIN)
        address = "\0" + path[1:] if path[0] == "@" else path
        sender.sendto(state.encode("utf-8", "replace"), address)


def watchdog_interval() -> Optional[float]:
    """The watchdog interval in seconds, None if disabled (sd_watchdog_enabled(3))."""
    if os.environ.get("WATCHDOG_PID", "") not in ("", str(os.getpid())):
        return None
    microseconds = os.environ.get("WATCHDOG_USEC", "")
    if not microseconds.isdecimal() or int(microseconds) == 0:
        return None
    return int(microseconds) / 1_000_000


def journal_handler() -> Optional[logging.Handler]:
    """A handler for the journal; None if standard error goes elsewhere."""
    if not _stderr_is_journal():
        return None
    from neuca_tools.backends.journal import JournalHandler

    return JournalHandler()


def _stderr_is_journal() -> bool:
    """Whether standard error is the stream in JOURNAL_STREAM, which child processes inherit.

    The variable holds its device and inode numbers (systemd.exec(5)).
    """
    try:
        status = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError, AttributeError):
        # Standard error is closed, None or no file.
        return False
    return os.environ.get("JOURNAL_STREAM", "") == f"{status.st_dev}:{status.st_ino}"


def journal_entries(
    units: Sequence[str],
) -> list[tuple[float, str, str, str, dict[str, str]]]:
    """The messages of this boot from and about these units, as far as this user may read them.

    Each is: seconds since the kernel started, unit, text, message ID, and the agent's own fields.
    Raises ObserveError without python3-systemd or a journal.
    """
    try:
        from systemd.journal import Reader
    except ImportError:
        raise ObserveError("read the journal: python3-systemd is not installed") from None
    try:
        with Reader() as reader:
            for number, field in enumerate(("_SYSTEMD_UNIT", "UNIT")):
                if number:
                    reader.add_disjunction()
                reader.this_boot()
                for unit in units:
                    reader.add_match(**{field: unit})
            return [_entry(found) for found in reader]
    except OSError as error:
        raise ObserveError(f"read the journal: {error.strerror}") from error


def _entry(found: Mapping[str, Any]) -> tuple[float, str, str, str, dict[str, str]]:
    at = found["__MONOTONIC_TIMESTAMP"].timestamp.total_seconds()
    unit = str(found.get("UNIT") or found.get("_SYSTEMD_UNIT", ""))
    identity = getattr(found.get("MESSAGE_ID"), "hex", "")
    own = {key: str(value) for key, value in found.items() if key.startswith("NEUCA_")}
    return at, unit, str(found.get("MESSAGE", "")), identity, own
