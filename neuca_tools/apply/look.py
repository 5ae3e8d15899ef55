"""Everything that a decision reads; and the network managers, which also release links here."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from neuca_tools.apply.decide import Interest, Observation
from neuca_tools.backends import hostfacts, hostid, sysctl, udev
from neuca_tools.backends.bus import Bus
from neuca_tools.backends.dhcpclients import Clients
from neuca_tools.backends.netlink import Netlink
from neuca_tools.backends.networkmanagers import Networkd, NetworkManager
from neuca_tools.config import Config
from neuca_tools.desired import dhcp_files, marks
from neuca_tools.desired.manager_files import Places
from neuca_tools.files import names_in, observed_content
from neuca_tools.model import ACCEPT_RA, ADVERTISED, IPV6_MTU, OWN, LinkKey
from neuca_tools.model.device_settings import DeviceSettings


def file_places(config: Config) -> Places:
    """The directories of the agent's files in this configuration."""
    return Places(
        config.udev_directory,
        config.networkmanager_directory,
        config.networkd_directory,
        config.sysctl_directory,
        config.udev_substring,
        config.data_udev_priority,
        config.mgmt_udev_priority,
        config.networkmanager_profiles,
    )


def observe_host(
    interest: Interest, netlink: Netlink, managers: Managers, config: Config
) -> Observation:
    """Read all that is of interest. Raises ObserveError."""
    world = replace(netlink.look(interest.hosts), age=hostid.boot_age())
    names = [device.name for device in world.devices.values()]
    words = managers.ask(names)
    groups, settings = interest.groups_of(world), dict[int, DeviceSettings]()
    if groups:
        # Most hosts need neither this module nor the backends of all settings.
        from neuca_tools.apply import device_io

        settings = device_io.read_settings(world, groups)
    world = replace(
        world,
        settings=settings,
        fixed_sysctls=sysctl.is_read_only(),
        advertised=hostfacts.devices_with_advertised_routes(world)
        if interest.advertised
        else frozenset(),
        files={path: observed_content(path) for path in own_paths(config)},
        managers=words,
        silent_managers=managers.silent_managers,
        profiles=managers.profiles,
        no_manager_runs=managers.none_runs,
        own_clients=managers.clients.read(config.dhcp_client),
    )
    tuning = hostfacts.read_tuning_inputs(
        interest.choice, config.profile_directory, config.sysctl_directory, interest.sysctls
    )
    sysctls = {**tuning.facts.sysctls, **_read_sysctls(interest.sysctls_of(world))}
    accepting = [name for name in names if sysctls.get(ACCEPT_RA.replace(OWN, name), "0") != "0"]
    # What advertisements may have set there.
    advertised = {path.replace(OWN, name) for name in accepting for path in (*ADVERTISED, IPV6_MTU)}
    sysctls.update(_read_sysctls(advertised))
    unadvertised = hostfacts.values_without_advertisements(world, sysctls, config.sysctl_directory)
    return Observation(replace(world, sysctls=sysctls, unadvertised=unadvertised), tuning)


def _read_sysctls(paths: Collection[str]) -> dict[str, str]:
    values = {path: sysctl.read_value(path) for path in sorted(paths)}
    return {path: value for path, value in values.items() if value is not None}


def own_paths(config: Config) -> list[str]:
    """The agent's own files: rule and DHCP files that exist, and each list. Raises ObserveError."""
    where = file_places(config)
    rules = [name for name in names_in(where.udev) if marks.rule_mac(name, where.substring)]
    paths = [f"{where.udev}/{name}" for name in rules]
    for place in (where.networkd, where.profiles):
        paths += [f"{place}/{name}" for name in names_in(place) if dhcp_files.is_dhcp_file(name)]
    for name in (marks.NETWORKD_NICS_FILE, marks.NETWORKD_VLANS_FILE):
        paths.append(f"{where.networkd}/{name}")
    paths.append(f"{where.networkmanager}/{marks.NETWORKMANAGER_FILE}")
    paths.append(f"{where.sysctl}/{marks.SYSCTL_FILE}")
    return paths


class Managers:
    """NetworkManager and systemd-networkd over one bus connection, for one pass.

    They are not contacted with `[linux] managers = none`, nor from another network namespace
    (`enabled`). `silent_managers` says why one did not respond to the last `ask`. `profiles` are
    the UUIDs of the NetworkManager profiles that were in use then, by interface; `none_runs`:
    neither manager ran then. `clients` are the DHCP clients that the agent starts.
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
        usual = sysctl.read_value(sysctl.ADDRESS_MODE.format("default"))
        for mode in (sysctl.ADDRESS_MODE.format(name) for name in names):
            if usual is not None and sysctl.read_value(mode) == sysctl.NO_ADDRESS:
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
        for mac, name in marks.name_by_mac(text).items():
            wanted = names.get(LinkKey(mac))
            if wanted and name != wanted and marks.rule_mac(path.name, substring) is None:
                yield (
                    f'"{path}" names {mac} "{name}" instead of "{wanted}", so it is renamed twice'
                    " at each boot: use the same name in both, or remove the NIC from that file"
                )
