"""NetworkManager over D-Bus: which interfaces it manages, and telling it to leave some alone.

One question answers for all devices (GetManagedObjects): at 1,000 interfaces a question for each would be thousands.
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
    """NetworkManager as it runs now."""

    title = "NetworkManager"
    name = "org.freedesktop.NetworkManager"
    unit = "NetworkManager.service"

    def states(self) -> dict[str, str]:
        return {
            device.interface: "managed" if device.managed else "unmanaged"
            for device in self._devices()
        }

    def unmanage(self, interfaces: Collection[str]) -> None:
        """Set Managed to false for those of these interfaces that are managed. Their addresses and routes stay.

        It holds until the next boot; beyond that the conf.d file counts (`marks.networkmanager_conf`). The ManagerError
        that it raises names every interface for which it did not work.
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
        """Have NetworkManager read its conf.d again. What it had activated and must leave, it takes down and flushes.

        Raises ManagerError.
        """
        self._ask(
            "asked NetworkManager to read its configuration again",
            "/org/freedesktop/NetworkManager",
            "org.freedesktop.NetworkManager.Reload",
            "u",
            _RELOAD_CONFIGURATION,
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
    managed = (
        bool(properties.get("Managed", True))
        and int(properties.get("State", 0)) != _STATE_UNMANAGED
    )
    return _Device(path, str(properties.get("Interface", "")), managed)
