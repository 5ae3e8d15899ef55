"""Reads and writes device settings, each through its backend: qdisc, ethtool, files, resolved."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
from collections.abc import Collection, Mapping
from typing import Optional

from neuca_tools.backends import kinds, qdisc
from neuca_tools.backends.bus import Bus
from neuca_tools.backends.ethtool import Ethtool
from neuca_tools.backends.netlink import Netlink
from neuca_tools.backends.queues import Queues
from neuca_tools.backends.resolved import Resolved
from neuca_tools.documents.neuca.link_settings import SETTINGS, through
from neuca_tools.errors import ApplyError, ObserveError
from neuca_tools.model import World
from neuca_tools.model.device_settings import DeviceSettings, joined, lacking


def read(world: World, asked: Mapping[int, Collection[str]]) -> dict[int, DeviceSettings]:
    """The requested groups of settings of these devices, by index. Raises ObserveError."""
    try:
        qdiscs = qdisc.read([index for index, groups in asked.items() if "qdisc" in groups])
        settings_by_index = {
            index: _read_device(world, index, groups, qdiscs.get(index))
            for index, groups in asked.items()
        }
        names = _names(asked)
        return {
            index: joined([settings_by_index[index], *names.get(index, ())])
            for index in settings_by_index
        }
    except OSError as error:
        raise ObserveError(
            f"ask the kernel for the settings of network devices: {error.strerror or error}"
        ) from error


def _names(asked: Mapping[int, Collection[str]]) -> dict[int, list[DeviceSettings]]:
    """The DNS settings of the devices that they are of interest for, by index."""
    groups = {index: through("resolved", asked[index]) for index in asked}
    indexes = [index for index in groups if groups[index]]
    if not indexes:
        return {}
    with Bus() as bus:
        dns_by_index = Resolved(bus).read(indexes, through("resolved", SETTINGS))
    return {index: [dns_by_index[index]] for index in indexes}


def _read_device(
    world: World, index: int, groups: Collection[str], root: Optional[str]
) -> DeviceSettings:
    """One device's settings; `root` is its root qdisc. Raises OSError."""
    parts = [
        _ethtool(index, through("ethtool", groups)),
        Queues(index, world.devices[index].name).read(through("files", groups)),
        kinds.read(world, index, through("attribute", groups)),
    ]
    if root is not None:
        parts.append(DeviceSettings({"qdisc": root}))
    return joined(parts)


def _ethtool(index: int, groups: Collection[str]) -> DeviceSettings:
    if not groups:
        return DeviceSettings()
    try:
        with Ethtool() as ethtool:
            return ethtool.read(index, groups)
    except OSError as error:
        if error.errno == errno.ENODEV:
            # Removed since the look; that event starts the next pass.
            return DeviceSettings()
        if error.errno != errno.ENOENT:
            raise
        return lacking(groups, "this kernel has no ethtool netlink (Linux 5.6)", by_kernel=True)


def write(netlink: Netlink, index: int, group: str, values: Mapping[str, str]) -> None:
    """Set some values of one group. Raises ApplyError."""
    backend = SETTINGS[group].through
    if backend == "qdisc":
        qdisc.write(index, values[group])
    elif backend == "attribute":
        netlink.set_attribute(index, group, values[group])
    elif backend == "files":
        Queues(index, netlink.name_of(index)).write(group, values[group])
    elif backend == "resolved":
        with Bus() as bus:
            Resolved(bus).write(index, group, values[group])
    else:
        own = {setting.partition(".")[2] or setting: values[setting] for setting in values}
        try:
            with Ethtool() as ethtool:
                ethtool.write(index, group, own)
        except OSError as error:
            raise ApplyError(error.strerror or str(error), error.errno or 0) from error
