"""udev, where there is one for this network namespace: its events, and whether it has finished with an interface.

Only a hint: netlink is what tells that a NIC has come. pyudev starts an `ldconfig -p` with its first Context
(ctypes.util.find_library), and nothing simple stops it: ask `here` first, which does without the library.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import errno
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Optional

from neuca_tools.errors import ObserveError

_CONTROL = Path("/run/udev/control")
_RULES = (Path("/etc/udev/rules.d"), Path("/run/udev/rules.d"))
_TAGS = Path("/run/udev/tags")  # one directory for each tag that a device has
VOLUME_TAG, VOLUME_LABELS = "neuca-volume", frozenset({"config-2", "cidata"})
_LONGEST_RULES = 1 << 20  # bytes of one file of rules
_SYSFS = Path("/sys/class/net")
_BUFFER = 8 << 20  # bytes: a burst of some thousand interfaces
_ETHERNET = "1"  # ARPHRD_ETHER, linux/if_arp.h
_MOST = 4096  # events taken at once


class Event(NamedTuple):
    """What udev says when it has finished with an interface: `add`, `remove`, `change`, `move` (renamed), `bind`, …"""

    action: str
    interface: str
    ifindex: int


class Monitor:
    """The events of network interfaces, after udevd's rules. `overflowed`: some were lost; close it and open another.

    After an overflow pyudev's poll reports an error for ever (pyudev #194, tuned #778).
    """

    def __init__(self, monitor: Any) -> None:
        self._monitor = monitor
        self.overflowed = False

    def fileno(self) -> int:
        return int(self._monitor.fileno())

    def drain(self) -> set[Event]:
        """The events that wait, at most some thousand; more come with the next call. Never blocks."""
        events: set[Event] = set()
        for _ in range(_MOST):
            device = self._next()
            if device is None:
                break
            events.add(
                Event(
                    str(device.action),
                    str(device.sys_name),
                    int(device.properties.get("IFINDEX", 0)),
                )
            )
        return events

    def close(self) -> None:
        """Give the file descriptor back: pyudev closes it with its last reference."""
        self._monitor = None

    def _next(self) -> Optional[Any]:
        try:
            return None if self.overflowed else self._monitor.poll(0)
        except OSError as error:
            # ENOBUFS from the socket, or no errno at all from pyudev, which saw POLLERR.
            if error.errno not in (errno.ENOBUFS, None):
                raise ObserveError(f"read the events of udev: {error.strerror}") from error
            self.overflowed = True
            return None


def open_monitor() -> Monitor:
    """Begin to listen. Raises ObserveError, also where python3-pyudev is not installed."""
    pyudev = _pyudev("listened for the events of udev")
    try:
        monitor = pyudev.Monitor.from_netlink(pyudev.Context(), "udev")
        monitor.filter_by("net")
        with contextlib.suppress(
            PermissionError
        ):  # SO_RCVBUFFORCE wants CAP_NET_ADMIN: then the usual size has to do
            monitor.set_receive_buffer_size(_BUFFER)
        monitor.start()
    except OSError as error:
        raise ObserveError(f"listened for the events of udev: {error.strerror}") from error
    return Monitor(monitor)


def initialised(index: int) -> bool:
    """udevd has finished with this interface, and is not about to rename it. Raises ObserveError.

    After a rename that failed, systemd 252 says for ever that one is under way (systemd #24975): wait with a deadline.
    """
    pyudev = _pyudev("asked udev for its interfaces")
    try:  # by its name: Devices.from_interface_index compares bytes with a number (pyudev 0.24) and finds none
        device = pyudev.Devices.from_name(pyudev.Context(), "net", socket.if_indextoname(index))
    except (OSError, pyudev.DeviceNotFoundError):
        return False
    same = device.properties.get("IFINDEX") == str(index)
    return same and bool(device.is_initialized) and device.properties.get("ID_RENAMING") != "1"


def settle(seconds: float) -> None:
    """Wait until udevd's queue is empty, at most so long: drivers that coldplug loads bring NICs late.

    libudev has no public call for it, and no descriptor to wait on, so this runs udevadm(8).
    """
    program = shutil.which("udevadm", path="/usr/bin:/bin:/usr/sbin:/sbin")
    if program:
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                [program, "settle", f"--timeout={int(seconds)}"],
                check=False,
                timeout=seconds + 1,
                stdin=subprocess.DEVNULL,
            )


def announce(interfaces: Mapping[int, str], seconds: float) -> frozenset[int]:
    """Have udevd process these interfaces (index to name) as if they had just come, and wait for it, at most so long.

    After a rename that failed a NIC is never initialised, and NetworkManager and networkd wait for it for ever. Returns the
    indexes that udevd has not finished with even so. Raises ObserveError.
    """
    told = set()
    for index, name in interfaces.items():
        try:
            (_SYSFS / name / "uevent").write_text("add", encoding="ascii")
        except FileNotFoundError:
            continue  # it has gone meanwhile
        except OSError as error:
            raise ObserveError(f'announced "{name}" to udev: {error.strerror}') from error
        told.add(index)
    settle(seconds)
    return frozenset(index for index in told if not initialised(index))


def here(ours: Mapping[str, int]) -> bool:
    """There is a udevd, and it is that of this process's network namespace. `ours`: its interfaces, name and index.

    In a namespace of its own a process sees the host's /run and often the host's /sys, which shows the network namespace
    that it was mounted in. What is true of udevd holds for NetworkManager and networkd: their bus is the host's as well.
    """
    control, own, first = _CONTROL.exists(), _namespace("self"), _namespace("1")
    if serves(control, own, first, ours, ours):
        # Once more with what there is now: an interface may have come or gone since `ours` was read.
        return serves(control, own, first, _sysfs(), ours) or serves(
            control, own, first, _sysfs(), {name: index for index, name in socket.if_nameindex()}
        )
    return False


def serves(
    control: bool, own: str, first: str, sysfs: Mapping[str, int], ours: Mapping[str, int]
) -> bool:
    """Whether a udevd serves this namespace, from what can be seen.

    `control`: its socket exists. `own`, `first`: the namespaces of this process and of process 1, empty where they cannot
    be read. `sysfs`, `ours`: the interfaces (name, index) that sysfs shows and that this namespace has.
    """
    elsewhere = bool(own and first and own != first)
    return control and not elsewhere and dict(sysfs) == dict(ours)


def hardware() -> list[tuple[str, str]]:
    """Name and current MAC of every Ethernet interface that has a device behind it, as sysfs shows them."""
    found = []
    for name in _sysfs():
        with contextlib.suppress(OSError):
            node = _SYSFS / name
            if (node / "device").exists() and (node / "type").read_text(
                encoding="ascii"
            ).strip() == _ETHERNET:
                found.append((name, (node / "address").read_text(encoding="ascii").strip()))
    return found


def rules() -> Iterator[tuple[Path, str]]:
    """The files of udev rules that somebody of this host has written, no distribution's own. What cannot be read is left out."""
    for directory in _RULES:
        with contextlib.suppress(OSError):
            for path in sorted(directory.glob("*.rules")):
                with (
                    contextlib.suppress(OSError),
                    path.open(encoding="utf-8", errors="replace") as file,
                ):
                    yield path, file.read(_LONGEST_RULES)


def volumes() -> list[str]:
    """The numbers (`major:minor`) of the block devices that carry the label of a config drive or a
    NoCloud volume now. Raises ObserveError.
    """
    if not (_TAGS / VOLUME_TAG).is_dir():
        return []
    pyudev = _pyudev("asked udev for volumes")
    try:  # a tag stays with a device whose volume has another label now
        tagged = pyudev.Context().list_devices(subsystem="block").match_tag(VOLUME_TAG)
        found = [one for one in tagged if _label(one) in VOLUME_LABELS]
    except OSError as error:
        raise ObserveError(f"asked udev for volumes: {error.strerror}") from error
    return [f"{one.properties['MAJOR']}:{one.properties['MINOR']}" for one in found]


def _label(device: Any) -> str:
    return str(device.properties.get("ID_FS_LABEL", "")).lower()


def _namespace(process: str) -> str:
    """Empty where it cannot be read: process 1 belongs to root."""
    try:
        return str(Path(f"/proc/{process}/ns/net").readlink())
    except OSError:
        return ""


def _sysfs() -> dict[str, int]:
    """What sysfs shows. `bonding_masters` is a file among the interfaces, and one of them may go at any time."""
    found = {}
    with contextlib.suppress(FileNotFoundError):
        for entry in _SYSFS.iterdir():
            with contextlib.suppress(OSError, ValueError):
                found[entry.name] = int((entry / "ifindex").read_text(encoding="ascii"))
    return found


def _pyudev(what: str) -> Any:
    try:
        import pyudev
    except ImportError as error:
        raise ObserveError(
            f'{what}: the Python module "pyudev" cannot be imported: {error}'
        ) from error
    return pyudev
