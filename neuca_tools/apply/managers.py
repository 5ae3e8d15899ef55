"""NetworkManager and systemd-networkd: which links they manage, and how they release them.

They are not contacted with `[linux] managers = none`, nor from another network namespace.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from neuca_tools.backends import sysctl, udev
from neuca_tools.backends.bus import Bus
from neuca_tools.backends.dhcpclients import Clients
from neuca_tools.backends.networkmanagers import Networkd, NetworkManager
from neuca_tools.backends.sysctl import ADDRESS_MODE, NO_ADDRESS
from neuca_tools.desired import dhcp_files
from neuca_tools.desired.marks import name_by_mac, rule_mac
from neuca_tools.files import names_in
from neuca_tools.model import LinkKey


class Managers:
    """Both managers over one bus connection, for one pass.

    `silent_managers` says why a manager did not respond to the last `ask`. `profiles` are the UUIDs
    of the NetworkManager profiles that were in use then, by interface; `none_runs`: neither manager
    ran then. `clients` are the DHCP clients that the agent starts.
    """

    def __init__(self, bus: Bus, enabled: bool, profile_directory: Path, clients: Clients) -> None:
        self._networkmanager, self._networkd = NetworkManager(bus), Networkd(bus)
        self._enabled, self._profile_directory, self.clients = enabled, profile_directory, clients
        self.profiles: Mapping[str, str] = {}
        self.none_runs = False
        self.silent_managers: dict[str, str] = {}

    def ask(self, interfaces: Collection[str]) -> dict[str, dict[str, str]]:
        """Each running manager's state of each interface: "managed", "unmanaged" or another."""
        words_by_manager: dict[str, dict[str, str]] = {}
        self.silent_managers = {}
        if not self._enabled:
            return {}
        managers = (("networkmanager", self._networkmanager), ("networkd", self._networkd))
        for name, manager in managers:
            words, reason = manager.words(interfaces)
            if reason:
                self.silent_managers[name] = reason
            if reason or "absent" not in words.values():
                words_by_manager[name] = words
        self.profiles, self.none_runs = self._networkmanager.profiles, not words_by_manager
        return words_by_manager

    def unmanage(self, manager: str, names: Collection[str]) -> None:
        """Have NetworkManager release links; networkd has no call for it.

        NetworkManager sets their link-local addresses itself. The kernel, which it had set none,
        does so again from now on. Raises ManagerError, ApplyError.
        """
        if not self._enabled or manager != "networkmanager":
            return
        self._networkmanager.unmanage(names)
        usual = sysctl.read_value(ADDRESS_MODE.format("default"))
        for mode in (ADDRESS_MODE.format(name) for name in names):
            if usual is not None and sysctl.read_value(mode) == NO_ADDRESS:
                sysctl.write_value(mode, usual)

    def reload(self, manager: str) -> None:
        """Have the manager reload its configuration. Raises ManagerError."""
        if not self._enabled:
            return
        if manager == "networkmanager":
            place = self._profile_directory
            names = {name for name in names_in(place) if dhcp_files.is_dhcp_file(name)}
            self._networkmanager.load_profiles(place, names, dhcp_files.is_dhcp_file)
            self._networkmanager.reload_configuration()
        else:
            self._networkd.reload()

    def activate(self, interface: str, profile: str) -> None:
        """Have NetworkManager use the profile on the interface. Raises ManagerError."""
        if self._enabled:
            self._networkmanager.activate(interface, profile)


def named_by_others(substring: str, names: Mapping[LinkKey, str]) -> Iterator[str]:
    """A sentence for each udev rule, such as those of cloud-init, that gives a NIC another name."""
    for path, text in udev.read_rules():
        for mac, name in name_by_mac(text).items():
            wanted = names.get(LinkKey(mac))
            if wanted and name != wanted and rule_mac(path.name, substring) is None:
                yield (
                    f'"{path}" names {mac} "{name}" instead of "{wanted}", so it is renamed twice'
                    " at each boot: use the same name in both, or remove the NIC from that file"
                )
