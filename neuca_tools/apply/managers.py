"""NetworkManager and systemd-networkd as one: which of our links they hold, and telling them to let go; others' udev rules.

Where they are the host's and not this namespace's, or `[linux] managers = none`, nobody is asked anything.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from neuca_tools.backends import udev
from neuca_tools.backends.bus import Bus
from neuca_tools.backends.networkd import Networkd
from neuca_tools.backends.networkmanager import NetworkManager
from neuca_tools.desired.marks import names_given, rule_mac
from neuca_tools.model import LinkKey


class Managers:
    """Both managers over one bus connection, for one pass. `words` are kept until the next `ask`."""

    def __init__(self, bus: Bus, enabled: bool) -> None:
        self._networkmanager, self._networkd = NetworkManager(bus), Networkd(bus)
        self._enabled = enabled
        self.reasons: dict[str, str] = {}

    def ask(self, interfaces: Collection[str]) -> dict[str, dict[str, str]]:
        """For each manager that runs, what it says of each interface; one that is absent is left out."""
        found: dict[str, dict[str, str]] = {}
        self.reasons = {}
        for name, manager in (
            (("networkmanager", self._networkmanager), ("networkd", self._networkd))
            if self._enabled
            else ()
        ):
            words, reason = manager.words(interfaces)
            if reason:
                self.reasons[name] = reason
            if reason or "absent" not in words.values():
                found[name] = words
        return found

    def unmanage(self, manager: str, names: Collection[str]) -> None:
        """Only NetworkManager can be asked for single links. Raises ManagerError."""
        if self._enabled and manager == "networkmanager":
            self._networkmanager.unmanage(names)

    def tell(self, manager: str) -> None:
        """Have it read its configuration again. Raises ManagerError."""
        if self._enabled:
            {
                "networkmanager": self._networkmanager.reload_configuration,
                "networkd": self._networkd.reload,
            }[manager]()


def named_by_others(substring: str, names: Mapping[LinkKey, str]) -> Iterator[str]:
    """cloud-init and netplan write rules with the names that they want; cloud-init renames by itself as well, at each boot."""
    for path, text in udev.rules():
        for mac, name in names_given(text).items():
            wanted = names.get(LinkKey(mac))
            if wanted and name != wanted and rule_mac(path.name, substring) is None:
                yield (
                    f'"{path}" names {mac} "{name}", and it should be "{wanted}": the same name in both, or no mention of this'
                    " NIC there, spares it two renames at each boot"
                )
