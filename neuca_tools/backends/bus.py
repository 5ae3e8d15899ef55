"""The one door to D-Bus: short calls on the system bus that start no service and never wait for long.

A message to a well-known name starts its service if it is not running; calls go to the unique name of whoever owns it,
which starts nothing; `start` does. libdbus gives a service 25 s to answer; here it has one, and who was silent is not asked
again.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Optional, final

from neuca_tools.errors import ManagerError

ANSWER = 1.0  # seconds that one call may take
BUDGET = 5.0  # seconds that all calls of one Bus, that is of one pass, may take

# Where systemd keeps the cgroups of its units: version 2, and version 1.
CGROUPS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/systemd"))

_DAEMON = "org.freedesktop.DBus"
_ADDRESS = "unix:path=/var/run/dbus/system_bus_socket"  # D-Bus specification, "Well-known Message Bus Instances"
_NOBODY = (
    "org.freedesktop.DBus.Error.NameHasNoOwner",
    "org.freedesktop.DBus.Error.FileNotFound",  # no socket
    "org.freedesktop.DBus.Error.NoServer",
)  # a socket that nobody listens on


class RefusedError(ManagerError):
    """An answer that came, and is an error; `name` is that of the D-Bus error."""

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text)
        self.name = name


@final
class Bus:
    """One connection to the system bus (DBUS_SYSTEM_BUS_ADDRESS, else the usual place), made at its first use.

    `answer` and `budget`, in seconds, are for a process that no NIC waits for.
    """

    def __init__(self, answer: float = ANSWER, budget: float = BUDGET) -> None:
        self._answer, self._budget = answer, budget
        self._connection: Any = None
        self._deadline = 0.0
        self._silent: set[str] = set()

    def __enter__(self) -> Bus:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def reached(self) -> bool:
        """Whether there is a bus, as far as it has been asked for anything."""
        return self._connection is not None

    def owner(self, name: str) -> Optional[str]:
        """The unique name of the running service that owns a name; None for nobody, and where there is no bus."""
        try:
            return str(
                self.call(
                    f'looked for "{name}" on the system bus',
                    _DAEMON,
                    "/org/freedesktop/DBus",
                    "org.freedesktop.DBus.GetNameOwner",
                    "s",
                    name,
                )
            )
        except RefusedError as refusal:
            if refusal.name in _NOBODY:
                return None
            raise

    def start(self, name: str) -> Optional[str]:
        """The unique name of a service, which is started if it does not run. Raises ManagerError."""
        owner = self.owner(name)
        if owner is not None:
            return owner
        what = f'started "{name}" on the system bus'
        self.call(
            what,
            _DAEMON,
            "/org/freedesktop/DBus",
            "org.freedesktop.DBus.StartServiceByName",
            "su",
            name,
            0,
        )
        return self.owner(name)

    def call(
        self, what: str, owner: str, path: str, method: str, signature: str = "", *arguments: object
    ) -> Any:
        """Call a method (`interface.method`) of an object. `what` says in an error what was tried.

        Raises ManagerError: a RefusedError for an error that was answered, else there was no answer in time.
        """
        if self._connection is None:
            self._connect(what)
        return self._call(what, owner, path, method, signature, arguments)

    def _connect(self, what: str) -> None:
        """A private connection, registered by hand: libdbus itself would give the bus 25 s.

        To authenticate it waits without limit (seen with 1.14): then the socket is shut under it.
        """
        self._deadline = self._deadline or time.monotonic() + self._budget
        try:
            from dbus.connection import Connection
            from dbus.exceptions import DBusException
        except ImportError as error:
            raise ManagerError(
                f'{what}: the Python module "dbus" cannot be imported: {error}'
            ) from error
        try:
            self._connection = Connection(os.environ.get("DBUS_SYSTEM_BUS_ADDRESS") or _ADDRESS)
        except DBusException as error:
            raise _refusal(what, error) from error
        with socket.socket(fileno=os.dup(self._connection.get_unix_fd())) as line:
            guard = threading.Timer(self._answer, line.shutdown, [socket.SHUT_RDWR])
            guard.start()
            try:
                self._call(
                    what, _DAEMON, "/org/freedesktop/DBus", "org.freedesktop.DBus.Hello", "", ()
                )
            finally:
                guard.cancel()
                guard.join()

    def _call(
        self,
        what: str,
        owner: str,
        path: str,
        method: str,
        signature: str,
        arguments: tuple[object, ...],
    ) -> Any:
        from dbus.exceptions import DBusException

        started = time.monotonic()
        wait = min(self._answer, self._deadline - started)
        if owner in self._silent or _DAEMON in self._silent or wait <= 0:
            raise ManagerError(f"{what}: not tried again in this pass, after no answer in time")
        interface, _, member = method.rpartition(".")
        try:
            return self._connection.call_blocking(
                owner, path, interface, member, signature, arguments, timeout=wait
            )
        except DBusException as error:
            # By the clock: NoReply is also what the daemon says at once for a service that went away.
            if time.monotonic() - started >= 0.9 * wait:
                self._silent.add(owner)
                raise ManagerError(f"{what}: no answer within {wait:.2g} s") from error
            raise _refusal(what, error) from error


class Manager(ABC):
    """A service that manages network interfaces unless it is told not to, looked for anew in each pass."""

    title: str
    name: str
    unit: str

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._owner: Optional[str] = None

    def absent(self) -> bool:
        """It is not running, or there is no bus. It is never started for the question."""
        self._owner = self._owner or self._bus.owner(self.name)
        return self._owner is None

    def _starting(self) -> bool:
        """It runs, and is not on the bus yet: it may have read its files before ours were there. A unit's cgroup goes with it."""
        return self._bus.reached and any(
            (root / "system.slice" / self.unit).is_dir() for root in CGROUPS
        )

    @abstractmethod
    def states(self) -> dict[str, str]:
        """`managed`, `unmanaged` or `unknown` for each interface that it knows, by name; raises ManagerError."""

    def words(self, interfaces: Iterable[str]) -> tuple[dict[str, str], str]:
        """What status says of these interfaces (`managed`, `unmanaged`, `absent`, `unknown`), and why it is unknown."""
        try:
            known = None if self.absent() else self.states()
        except ManagerError as error:
            return dict.fromkeys(interfaces, "unknown"), error.text
        if known is None and self._starting():
            return dict.fromkeys(
                interfaces, "unknown"
            ), f"{self.title} runs, and is not on the system bus yet"
        if known is None:
            return dict.fromkeys(interfaces, "absent"), ""
        return {interface: known.get(interface, "unknown") for interface in interfaces}, ""

    def _ask(
        self, what: str, path: str, method: str, signature: str = "", *arguments: object
    ) -> Any:
        if self.absent() or self._owner is None:
            raise ManagerError(f"{what}: {self.title} is not running")
        return self._bus.call(what, self._owner, path, method, signature, *arguments)


def _refusal(what: str, error: Any) -> RefusedError:
    """From a DBusException; its own `str` would repeat the name of the error."""
    name = error.get_dbus_name() or ""
    return RefusedError(f"{what}: {' '.join((error.get_dbus_message() or name).split())}", name)
