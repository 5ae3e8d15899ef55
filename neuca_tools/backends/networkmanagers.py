"""NetworkManager and systemd-networkd over D-Bus: which interfaces they manage; our profiles.

GetManagedObjects and Describe (systemd 249) cover all devices at once, which matters on a host with
1,000 interfaces.
"""

# SPDX-License-Identifier: MIT

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Callable, NamedTuple

from neuca_tools.backends.bus import Bus, RefusedError, Service
from neuca_tools.errors import ManagerError

# The cgroups of systemd's units, in version 2 and version 1.
CGROUPS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/systemd"))
_NAME = "org.freedesktop.NetworkManager"
_PATH = "/org/freedesktop/NetworkManager"
_DEVICE = f"{_NAME}.Device"
_ACTIVE = f"{_NAME}.Connection.Active"
_STORED = f"{_NAME}.Settings.Connection"
_STATE_UNMANAGED = 10  # NM_DEVICE_STATE_UNMANAGED, nm-dbus-interface.h
_RELOAD_CONFIGURATION = 1  # flags of Reload: NetworkManager.conf and conf.d, no connections, no DNS
_NETWORKD = "/org/freedesktop/network1"
# link_state_table in networkd-link.c, without the undecided `pending` and `initialized`.
_WORDS = {
    "unmanaged": "unmanaged",
    **dict.fromkeys(("configuring", "configured", "failed"), "managed"),
}


class Manager(Service, ABC):
    """A service that manages network interfaces."""

    def _is_starting(self) -> bool:
        """Whether its cgroup exists; it may have read its files before ours were written."""
        directories = (root / "system.slice" / f"{self.title}.service" for root in CGROUPS)
        # Without a bus, nothing can be asked of it: it counts as absent.
        return not self._bus.is_missing and any(path.is_dir() for path in directories)

    @abstractmethod
    def states(self) -> dict[str, str]:
        """`managed`, `unmanaged` or `unknown` for each interface, by name. Raises ManagerError."""

    def words(self, interfaces: Iterable[str]) -> tuple[dict[str, str], str]:
        """The state of these interfaces for `neuca status`, and the reason if it is unknown.

        The states are `managed`, `unmanaged`, `absent` (no such service) and `unknown`.
        """
        try:
            if not self.absent():
                known = self.states()
                return {interface: known.get(interface, "unknown") for interface in interfaces}, ""
        except ManagerError as error:
            return dict.fromkeys(interfaces, "unknown"), error.text
        if not self._is_starting():
            return dict.fromkeys(interfaces, "absent"), ""
        reason = f"{self.title} runs, but is not on the system bus yet"
        return dict.fromkeys(interfaces, "unknown"), reason


class _Device(NamedTuple):
    path: str
    interface: str
    managed: bool
    profile: str


class NetworkManager(Manager):
    """The running NetworkManager."""

    title = "NetworkManager"
    name = _NAME

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self.profiles: Mapping[str, str] = {}
        self._seen: list[_Device] = []

    def states(self) -> dict[str, str]:
        """The states; `profiles` are then the UUIDs of the active profiles, by interface."""
        devices = self._read_devices()
        self.profiles = {device.interface: device.profile for device in devices if device.profile}
        return {
            device.interface: "managed" if device.managed else "unmanaged" for device in devices
        }

    def unmanage(self, interfaces: Collection[str]) -> None:
        """Set Managed to false for these interfaces until the next boot; addresses and routes stay.

        From the next boot on, the conf.d file applies (`marks.networkmanager_conf`). Raises
        ManagerError, which names every interface for which it failed.
        """
        refused = []
        for device in self._read_devices():
            if device.managed and device.interface in interfaces:
                try:
                    self._set_managed(device, False)
                except RefusedError as refusal:
                    refused.append(refusal.text)
        if refused:
            raise ManagerError("; ".join(refused))

    def _set_managed(self, device: _Device, managed: bool) -> None:
        what = f'set Managed of "{device.interface}" to {str(managed).lower()} in NetworkManager'
        method = "org.freedesktop.DBus.Properties.Set"
        self._ask(what, device.path, method, "ssv", _DEVICE, "Managed", managed)

    def reload_configuration(self) -> None:
        """Reload conf.d; interfaces that become unmanaged are flushed. Raises ManagerError."""
        what = "asked NetworkManager to reload its configuration"
        self._ask(what, _PATH, f"{_NAME}.Reload", "u", _RELOAD_CONFIGURATION, work=True)

    def load_profiles(
        self, place: Path, names: Collection[str], is_dhcp_file: Callable[[str], bool]
    ) -> None:
        """Load these profiles of a directory, and drop our own that no longer exist.

        Other profiles are not loaded again: one whose file is gone would be taken out of use, which
        could be that of the management NIC. Raises ManagerError.
        """
        stored = (interfaces.get(_STORED, {}) for interfaces in self._managed_objects().values())
        paths = (Path(str(profile.get("Filename", ""))) for profile in stored)
        known = {path.name for path in paths if path.parent == place}
        wanted = {place / name for name in {*names, *filter(is_dhcp_file, known)}}
        if not wanted:
            return
        what, files = "asked NetworkManager to load the profiles for DHCP", sorted(map(str, wanted))
        load = f"{_NAME}.Settings.LoadConnections"
        _, failed = self._ask(what, f"{_PATH}/Settings", load, "as", files, work=True)
        refused = sorted(path for path in failed if Path(path).name in names)
        if refused:
            raise ManagerError(f"NetworkManager does not load {', '.join(refused)}")

    def activate(self, interface: str, profile: str) -> None:
        """Manage the interface, and use the profile with this UUID on it. Raises ManagerError."""
        # Once for all NICs, of which there may be many.
        self._seen = self._seen or self._read_devices()
        for device in self._seen:
            if device.interface != interface:
                continue
            if not device.managed:
                self._set_managed(device, True)
            what = f'asked NetworkManager to use the profile for DHCP on "{interface}"'
            settings = f"{_NAME}.Settings.GetConnectionByUuid"
            connection = self._ask(what, f"{_PATH}/Settings", settings, "s", profile)
            try:
                start = f"{_NAME}.ActivateConnection"
                self._ask(what, _PATH, start, "ooo", connection, device.path, "/", work=True)
            except RefusedError:
                # A device that is not ready yet uses the profile by itself once it is.
                if device.managed:
                    raise

    def _read_devices(self) -> list[_Device]:
        objects, devices = self._managed_objects(), []
        for path, interfaces in objects.items():
            properties = interfaces.get(_DEVICE)
            if properties is None or not properties.get("Real", True):
                continue
            is_unmanaged = int(properties.get("State", 0)) == _STATE_UNMANAGED
            managed = bool(properties.get("Managed", True)) and not is_unmanaged
            active = objects.get(properties.get("ActiveConnection"), {}).get(_ACTIVE, {})
            name, uuid = str(properties.get("Interface", "")), str(active.get("Uuid", ""))
            devices.append(_Device(str(path), name, managed, uuid))
        return devices

    def _managed_objects(self) -> Any:
        method = "org.freedesktop.DBus.ObjectManager.GetManagedObjects"
        return self._ask("asked NetworkManager for its devices", "/org/freedesktop", method)


class Networkd(Manager):
    """The running systemd-networkd."""

    title = "systemd-networkd"
    name = "org.freedesktop.network1"

    def states(self) -> dict[str, str]:
        what = "asked systemd-networkd for its links"
        described = self._ask(what, _NETWORKD, f"{self.name}.Manager.Describe")
        try:
            return {
                str(link["Name"]): _WORDS.get(str(link["AdministrativeState"]), "unknown")
                for link in json.loads(described)["Interfaces"]
            }
        except (ValueError, TypeError, KeyError) as error:
            raise ManagerError(f"{what}: the response is malformed") from error

    def reload(self) -> None:
        """Reload the .network files. Links that become unmanaged lose what networkd configured."""
        what = "asked systemd-networkd to reload its files"
        self._ask(what, _NETWORKD, f"{self.name}.Manager.Reload", work=True)
