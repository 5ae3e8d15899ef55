"""Notifies systemd, reads and writes its journal, and sets the host name through hostnamed.

Where python3-systemd is not installed, the first two do nothing.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from neuca_tools.backends.bus import Bus
from neuca_tools.errors import ObserveError

if TYPE_CHECKING:
    import logging

IDENTIFIER = "neucad"
HOSTNAMED, _PATH = "org.freedesktop.hostname1", "/org/freedesktop/hostname1"
_ANSWER_SECONDS = 20.0  # it may have to be started first, during a busy boot


def notify(state: str) -> None:
    """Send lines such as `READY=1` to systemd, if it listens; its time-outs cover a lost one."""
    if not os.environ.get("NOTIFY_SOCKET"):
        return
    with suppress(ImportError, OSError):
        # Without systemd, the library need not be installed.
        from systemd import daemon

        daemon.notify(state.encode("utf-8", "replace").decode())


def watchdog_interval() -> Optional[float]:
    """The watchdog interval in seconds, or None: systemd-python has no sd_watchdog_enabled(3)."""
    if os.environ.get("WATCHDOG_PID", "") not in ("", str(os.getpid())):
        return None
    microseconds = os.environ.get("WATCHDOG_USEC", "")
    if not microseconds.isdecimal() or int(microseconds) == 0:
        return None
    return int(microseconds) / 1_000_000


def journal_handler() -> Optional[logging.Handler]:
    """A handler for the journal; None if standard error goes elsewhere, or without the library."""
    try:
        status = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError, AttributeError):
        # Standard error is closed, None or no file.
        return None
    # Child processes inherit the variable (systemd.exec(5)).
    if os.environ.get("JOURNAL_STREAM", "") != f"{status.st_dev}:{status.st_ino}":
        return None
    with suppress(ImportError):
        # Without systemd, the library need not be installed; it saves 8 ms.
        from systemd.journal import JournalHandler

        handler: logging.Handler = JournalHandler(SYSLOG_IDENTIFIER=IDENTIFIER)
        return handler
    return None


class JournalEntry(NamedTuple):
    """A message of the journal, `at` seconds since the boot; `fields` are the agent's own."""

    at: float
    unit: str
    message_id: str
    fields: Mapping[str, str] = {}


def journal_entries(units: Sequence[str]) -> list[JournalEntry]:
    """This boot's readable messages from and about these units. Raises ObserveError."""
    try:
        # Without systemd, the library need not be installed; it saves 8 ms.
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
            return [_journal_entry(message) for message in reader]
    except OSError as error:
        raise ObserveError(f"read the journal: {error.strerror}") from error


def _journal_entry(message: Mapping[str, Any]) -> JournalEntry:
    seconds = message["__MONOTONIC_TIMESTAMP"].timestamp.total_seconds()
    unit = str(message.get("UNIT") or message.get("_SYSTEMD_UNIT", ""))
    message_id = getattr(message.get("MESSAGE_ID"), "hex", "")
    own_fields = {key: str(value) for key, value in message.items() if key.startswith("NEUCA_")}
    return JournalEntry(seconds, unit, message_id, own_fields)


def set_hostname(hostname: str) -> None:
    """Set the static and so the kernel's host name, starting hostnamed. Raises ManagerError."""
    with Bus(_ANSWER_SECONDS, 2 * _ANSWER_SECONDS) as bus:
        what = f'ask systemd-hostnamed for the host name "{hostname}"'
        owner, method = bus.start(HOSTNAMED) or HOSTNAMED, f"{HOSTNAMED}.SetStaticHostname"
        bus.call(what, owner, _PATH, method, "sb", hostname, False)
