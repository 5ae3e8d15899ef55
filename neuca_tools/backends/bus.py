"""Calls on the D-Bus system bus, with short time-outs and without starting services.

A message to a well-known name would start its service, so calls go to the unique name of its owner;
only `start` starts a service. libdbus waits 25 s for a reply. Here a query has one second, work
(such as a reload) the time that is left of the pass, of which only calls take any, and a service
that did not respond is left alone for some time.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import socket
import time
from contextlib import AbstractContextManager
from typing import Any, Optional, final

from neuca_tools.errors import ManagerError

ANSWER_SECONDS = 1.0  # for one call
PASS_SECONDS = 5.0  # for all calls of one Bus together, that is, of one pass
# Longer than a pass. The roll-back of a trial, which waits for its confirmation, asks again.
SILENCE_SECONDS = 30.0

_DAEMON, _DAEMON_PATH = "org.freedesktop.DBus", "/org/freedesktop/DBus"
# D-Bus specification, "Well-known Message Bus Instances".
_ADDRESS = "unix:path=/var/run/dbus/system_bus_socket"
_NO_SOCKET = "org.freedesktop.DBus.Error.FileNotFound"
# The name has no owner; the socket of the bus does not exist; no process listens on it.
_NO_OWNER = (
    "org.freedesktop.DBus.Error.NameHasNoOwner",
    _NO_SOCKET,
    "org.freedesktop.DBus.Error.NoServer",
)


class RefusedError(ManagerError):
    """The call was answered with an error; `name` is the name of the D-Bus error."""

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text)
        self.name = name


@final
class Bus(AbstractContextManager["Bus"]):
    """A connection to the system bus, opened at its first use; `is_missing`: it had no socket."""

    def __init__(
        self, answer_seconds: float = ANSWER_SECONDS, pass_seconds: float = PASS_SECONDS
    ) -> None:
        self._answer_seconds, self._seconds_left = answer_seconds, pass_seconds
        self._connection: Any = None
        self.is_missing = False
        self._silent_until: dict[str, float] = {}  # CLOCK_MONOTONIC, by unique name

    def __exit__(self, *_: object) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def owner(self, name: str) -> Optional[str]:
        """The unique name of the owner of a well-known name; None without an owner or a bus."""
        try:
            what = f'looked for "{name}" on the system bus'
            return str(self._call_daemon(what, "GetNameOwner", "s", name))
        except RefusedError as refusal:
            self.is_missing = refusal.name == _NO_SOCKET
            if refusal.name in _NO_OWNER:
                return None
            raise

    def start(self, name: str) -> Optional[str]:
        """The unique name of a service, which is started if necessary. Raises ManagerError."""
        owner = self.owner(name)
        if owner is None:
            what = f'started "{name}" on the system bus'
            self._call_daemon(what, "StartServiceByName", "su", name, 0)
            owner = self.owner(name)
        return owner

    def _call_daemon(self, what: str, member: str, signature: str, *arguments: object) -> Any:
        return self.call(what, _DAEMON, _DAEMON_PATH, f"{_DAEMON}.{member}", signature, *arguments)

    def call(
        self,
        what: str,
        owner: str,
        path: str,
        method: str,
        signature: str = "",
        *arguments: object,
        work: bool = False,
    ) -> Any:
        """Call a method (`interface.method`) of an object. `what` describes the call in errors.

        `work` may take all the time that is left: on a busy host, a reload takes seconds.
        Raises RefusedError if the answer is an error, and ManagerError without answer in time.
        """
        if self._connection is None:
            self._connect(what)
        # As in `_connect`.
        from dbus.exceptions import DBusException

        started = time.monotonic()
        wait = self._seconds_left if work else min(self._answer_seconds, self._seconds_left)
        silent_until = max(self._silent_until.get(name, 0.0) for name in (owner, _DAEMON))
        if started < silent_until or wait <= 0:
            raise ManagerError(
                f"{what}: not tried again in this pass, because it did not respond in time"
            )
        interface, _, member = method.rpartition(".")
        try:
            return self._connection.call_blocking(
                owner, path, interface, member, signature, arguments, timeout=wait
            )
        except DBusException as error:
            # NoReply alone is ambiguous: the daemon also sends it when a service exits.
            if time.monotonic() - started >= 0.9 * wait:
                self._silent_until[owner] = time.monotonic() + SILENCE_SECONDS
                raise ManagerError(f"{what}: no response within {wait:.2g} s") from error
            raise _refused_error(what, error) from error
        finally:
            self._seconds_left -= time.monotonic() - started

    def _connect(self, what: str) -> None:
        """Open a private connection and call Hello, for which libdbus itself would wait 25 s."""
        try:
            # Only where a manager runs; it saves 5 ms.
            from dbus.connection import Connection
            from dbus.exceptions import DBusException
        except ImportError as error:
            text = f'{what}: the Python module "dbus" cannot be imported: {error}'
            raise ManagerError(text) from error
        try:
            self._connection = Connection(os.environ.get("DBUS_SYSTEM_BUS_ADDRESS") or _ADDRESS)
        except DBusException as error:
            raise _refused_error(what, error) from error
        # Authentication has no time-out at all (libdbus 1.14), so a timer shuts down the socket.
        with socket.socket(fileno=os.dup(self._connection.get_unix_fd())) as line:
            import threading

            guard = threading.Timer(self._answer_seconds, line.shutdown, [socket.SHUT_RDWR])
            guard.start()
            try:
                self._call_daemon(what, "Hello", "")
            finally:
                guard.cancel()
                guard.join()


class Service:
    """A service on the system bus; one instance serves one pass."""

    title: str
    name: str

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._owner: Optional[str] = None

    def absent(self) -> bool:
        """Whether it is not running, or there is no bus. This never starts it."""
        self._owner = self._owner or self._bus.owner(self.name)
        return self._owner is None

    def _ask(self, what: str, path: str, *method: Any, work: bool = False) -> Any:
        """Call a method, with signature and arguments, as `Bus.call` does. Raises ManagerError."""
        if self.absent() or self._owner is None:
            raise ManagerError(f"{what}: {self.title} is not running")
        return self._bus.call(what, self._owner, path, *method, work=work)


def _refused_error(what: str, error: Any) -> RefusedError:
    """Convert a DBusException, whose own `str` would repeat the name of the error."""
    name = error.get_dbus_name() or ""
    return RefusedError(f"{what}: {' '.join((error.get_dbus_message() or name).split())}", name)
