"""Everything that a decision reads: the kernel, our own files, the network managers, profiles."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from neuca_tools.apply.decide import Interest, Observation
from neuca_tools.apply.managers import Managers
from neuca_tools.backends import hostfacts, hostid, sysctl
from neuca_tools.backends.netlink import Netlink
from neuca_tools.config import Config
from neuca_tools.desired import dhcp_files, marks
from neuca_tools.desired.manager_files import Places
from neuca_tools.files import names_in, observed_content
from neuca_tools.model import ACCEPT_RA, ADVERTISED, IPV6_MTU, OWN, World
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
    words = managers.ask([device.name for device in world.devices.values()])
    world = replace(
        world,
        settings=_device_settings(world, interest.groups_of(world)),
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
    sysctls.update(_read_sysctls(_advertised_paths(world, sysctls)))
    unadvertised = hostfacts.values_without_advertisements(world, sysctls, config.sysctl_directory)
    return Observation(replace(world, sysctls=sysctls, unadvertised=unadvertised), tuning)


def _advertised_paths(world: World, sysctls: Mapping[str, str]) -> set[str]:
    """The paths of what advertisements may have set, on the devices that accept any."""
    names, templates = [device.name for device in world.devices.values()], (*ADVERTISED, IPV6_MTU)
    accepting = [name for name in names if sysctls.get(ACCEPT_RA.replace(OWN, name), "0") != "0"]
    return {template.replace(OWN, name) for name in accepting for template in templates}


def _device_settings(
    world: World, groups: Mapping[int, Collection[str]]
) -> Mapping[int, DeviceSettings]:
    """The requested groups of device settings, by index. Raises ObserveError."""
    if not groups:
        return {}
    # Most hosts need neither this module nor the backends of all settings.
    from neuca_tools.apply import device_io

    return device_io.read_settings(world, groups)


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
