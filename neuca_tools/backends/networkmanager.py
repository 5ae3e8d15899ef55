"""NetworkManager over D-Bus: queries which interfaces it manages, and makes it unmanage some.

GetManagedObjects covers all devices at once, which matters on a host with 1,000 interfaces.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from neuca_tools.backends.bus import Manager, RefusedError
from neuca_tools.errors import ManagerError

_DEVICE = "org.freedesktop.NetworkManager.Device"
_STATE_UNMANAGED = 10  # NM_DEVICE_STATE_UNMANAGED, nm-dbus-interface.h
_RELOAD_CONFIGURATION = 1  # flags of Reload: NetworkManager.conf and conf.d, no connections, no DNS


class _Device(NamedTuple):
    path: str
    interface: str
    managed: bool


class NetworkManager(Manager):
    """The running NetworkManager."""

    title = "NetworkManager"
    name = "org.freedesktop.NetworkManager"
    unit = "NetworkManager.service"

    def states(self) -> dict[str, str]:
        return {
            device.interface: "managed" if device.managed else "unmanaged"
            for device in self._devices()
        }

    def unmanage(self, interfaces: Collection[str]) -> None:
        """Set Managed to false for these interfaces until the next boot; addresses and routes stay.

        From the next boot on, the conf.d file applies (`marks.networkmanager_conf`). Raises
        ManagerError, which names every interface for which it failed.
        """
        refused = []
        for device in self._devices():
            if device.managed and device.interface in interfaces:
                try:
                    self._ask(
                        f'set Managed of "{device.interface}" to false in NetworkManager',
                        device.path,
                        "org.freedesktop.DBus.Properties.Set",
                        "ssv",
                        _DEVICE,
                        "Managed",
                        False,
                    )
                except RefusedError as refusal:
                    refused.append(refusal.text)
        if refused:
            raise ManagerError("; ".join(refused))

    def reload_configuration(self) -> None:
        """Reload conf.d; interfaces that become unmanaged are flushed. Raises ManagerError."""
        self._ask(
            "asked NetworkManager to read its configuration again",
            "/org/freedesktop/NetworkManager",
            "org.freedesktop.NetworkManager.Reload",
            "u",
            _RELOAD_CONFIGURATION,
            work=True,
        )

    def _devices(self) -> list[_Device]:
        objects = self._ask(
            "asked NetworkManager for its devices",
            "/org/freedesktop",
            "org.freedesktop.DBus.ObjectManager.GetManagedObjects",
        )
        return [
            _device(str(path), interfaces[_DEVICE])
            for path, interfaces in objects.items()
            if _DEVICE in interfaces and interfaces[_DEVICE].get("Real", True)
        ]


def _device(path: str, properties: Any) -> _Device:
    unmanaged = int(properties.get("State", 0)) == _STATE_UNMANAGED
    managed = bool(properties.get("Managed", True)) and not unmanaged
    return _Device(path, str(properties.get("Interface", "")), managed)
