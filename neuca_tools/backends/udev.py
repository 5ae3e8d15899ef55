"""udev: its events, rules and volumes, and whether it has finished processing an interface.

udev may not serve this network namespace, so new NICs are detected through netlink. pyudev is slow
to load, and its first Context runs `ldconfig -p` (ctypes.util.find_library).
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from neuca_tools.backends.linkwatch import index_by_interface
from neuca_tools.errors import ObserveError
from neuca_tools.files import readable_paths, text_of

_CONTROL = Path("/run/udev/control")
_QUEUE = Path("/run/udev/queue")  # exists while udevd has events to process
_RULES = (Path("/etc/udev/rules.d"), Path("/run/udev/rules.d"))
_TAGS = Path("/run/udev/tags")  # one directory for each tag in use
VOLUME_TAG, VOLUME_LABELS = "neuca-volume", frozenset({"config-2", "cidata"})
_SYSFS = Path("/sys/class/net")
_DATA = Path("/run/udev/data")  # a file for each device
# Properties of a device that is being renamed, or (systemd 257) processed again.
_UNFINISHED = frozenset({"E:ID_RENAMING=1", "E:ID_PROCESSING=1"})
_PROGRAMS = "/usr/bin:/bin:/usr/sbin:/sbin"

_RECEIVE_BUFFER_BYTES = 8 << 20
_MAX_EVENTS = 4096  # events read at once


class Monitor:
    """The events of network interfaces, processed by udevd; lost ones set `overflowed`."""

    def __init__(self) -> None:
        """Start to receive events. Raises ObserveError."""
        self.overflowed = False
        what = "listened for the events of udev"
        pyudev = _import_pyudev(what)
        try:
            self._monitor = pyudev.Monitor.from_netlink(pyudev.Context())
            self._monitor.filter_by("net")
            # Without CAP_NET_ADMIN the size stays the default.
            with contextlib.suppress(PermissionError):
                self._monitor.set_receive_buffer_size(_RECEIVE_BUFFER_BYTES)
            self._monitor.start()
        except OSError as error:
            raise ObserveError(f"{what}: {error.strerror or error}") from error

    def fileno(self) -> int:
        descriptor: int = self._monitor.fileno()
        return descriptor

    def drain(self) -> set[tuple[str, str]]:
        """The action (`add`, …) and interface of up to _MAX_EVENTS pending events. Never blocks."""
        events: set[tuple[str, str]] = set()
        for _ in range(_MAX_EVENTS):
            try:
                device = None if self.overflowed else self._monitor.poll(0)
            except OSError:  # ENOBUFS; pyudev does not keep the number
                self.overflowed = True
                break
            if device is None:
                break
            events.add((device.action or "", device.sys_name))
        return events


def is_initialised(index: int) -> bool:
    """Whether udevd has processed this interface and is not renaming it.

    udevd has a file for each device that it has processed, with a line for each property; it is
    read without pyudev, which a pass need not load for it (109 million instructions). After a
    failed rename, systemd 252 reports one in progress for good (systemd #24975): wait for this with
    a deadline.
    """
    try:
        socket.if_indextoname(index)
        lines = (_DATA / f"n{index}").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    return not _UNFINISHED & set(lines)


def is_busy() -> bool:
    """Whether udevd has events to process, in whichever network namespace."""
    return _QUEUE.exists()


def await_empty_queue(seconds: float) -> None:
    """Wait until udevd's queue is empty, or until the time is up."""
    # Only if udev is busy; it saves 2 ms.
    import shutil
    import subprocess

    # Drivers that are loaded by coldplug create their NICs late. libudev has neither a public call
    # for this nor a descriptor to wait on.
    program = shutil.which("udevadm", path=_PROGRAMS)
    if program:
        with contextlib.suppress(subprocess.TimeoutExpired):
            settle = [program, "settle", f"--timeout={int(seconds)}"]
            subprocess.run(settle, check=False, timeout=seconds + 1, stdin=subprocess.DEVNULL)


def announce_interfaces(interfaces: Mapping[int, str], seconds: float) -> frozenset[int]:
    """Have udevd process these interfaces (index to name) once more, and wait for it.

    After a failed rename a NIC is never initialised, and NetworkManager and networkd wait for it
    indefinitely. Returns the indexes of those that are still not initialised when the time is up.
    Raises ObserveError.
    """
    announced = set()
    for index, name in interfaces.items():
        try:
            (_SYSFS / name / "uevent").write_text("add", encoding="ascii")
        except FileNotFoundError:
            # The interface has disappeared.
            continue
        except OSError as error:
            raise ObserveError(f'announced "{name}" to udev: {error.strerror}') from error
        announced.add(index)
    await_empty_queue(seconds)
    return frozenset(index for index in announced if not is_initialised(index))


def serves_this_namespace() -> bool:
    """Whether udevd runs and serves the network namespace of this process."""
    # A process in another network namespace sees the host's /run and often the host's /sys, which
    # shows the namespace in which it was mounted. The same applies to NetworkManager and networkd
    # and the host's bus.
    own, first = _network_namespace("self"), _network_namespace("1")
    if not _CONTROL.exists() or (own and first and own != first):
        return False
    before, shown = index_by_interface().items(), _interfaces_in_sysfs().items()
    if before == shown:
        return True
    # Interfaces appear, disappear and are renamed: those that were there throughout decide.
    after, lasting = index_by_interface().items(), shown & _interfaces_in_sysfs().items()
    return lasting <= after and before & after <= shown


def read_rules() -> Iterator[tuple[Path, str]]:
    """The readable udev rules of the administrator and in /run, not those of the distribution."""
    for path in chain.from_iterable(readable_paths(place, "*.rules") for place in _RULES):
        yield path, text_of(path)


def volume_numbers() -> list[str]:
    """The numbers (`major:minor`) of config drives and NoCloud volumes. Raises ObserveError."""
    if not (_TAGS / VOLUME_TAG).is_dir():
        return []
    what = "asked udev for volumes"
    pyudev = _import_pyudev(what)
    # A device keeps its tag when its label changes, so the label is checked too.
    try:
        tagged = pyudev.Context().list_devices(subsystem="block").match_tag(VOLUME_TAG)
        return [
            f"{device.properties['MAJOR']}:{device.properties['MINOR']}"
            for device in tagged
            if str(device.properties.get("ID_FS_LABEL", "")).lower() in VOLUME_LABELS
        ]
    except OSError as error:
        raise ObserveError(f"{what}: {error.strerror}") from error


def _network_namespace(process: str) -> str:
    """The network namespace of a process; empty if unreadable (process 1 belongs to root)."""
    try:
        return str(Path(f"/proc/{process}/ns/net").readlink())
    except OSError:
        return ""


def _interfaces_in_sysfs() -> dict[str, int]:
    """Index by name; not every entry is an interface (`bonding_masters`), and some disappear."""
    index_by_name = {}
    with contextlib.suppress(FileNotFoundError):
        for entry in _SYSFS.iterdir():
            with contextlib.suppress(OSError, ValueError):
                index_by_name[entry.name] = int((entry / "ifindex").read_text(encoding="ascii"))
    return index_by_name


def _import_pyudev(what: str) -> Any:
    try:
        # For the daemon and for volumes only; it saves 16 ms of a pass.
        import pyudev
    except ImportError as error:
        text = f'{what}: the Python module "pyudev" cannot be imported: {error}'
        raise ObserveError(text) from error
    return pyudev
