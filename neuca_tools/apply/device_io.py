"""Reads and writes device settings, each through its backend.

The backends of the rows in `link_settings` are modules of `backends`: `ethtool`, `resolved`,
`queues` for "qdisc" and "files"; for "attribute", a look (`kernel_state`) has what `kinds` reads,
and `netlink` sets it.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
from collections.abc import Collection, Mapping
from typing import Optional

from neuca_tools.backends import kinds, queues
from neuca_tools.backends.bus import Bus
from neuca_tools.backends.ethtool import Ethtool
from neuca_tools.backends.netlink import Netlink
from neuca_tools.backends.resolved import Resolved
from neuca_tools.documents.neuca.link_settings import SETTINGS, groups_through
from neuca_tools.errors import ApplyError, ObserveError
from neuca_tools.model import World
from neuca_tools.model.device_settings import DeviceSettings, joined_settings, missing_groups


def read_settings(world: World, asked: Mapping[int, Collection[str]]) -> dict[int, DeviceSettings]:
    """The requested groups of settings of these devices, by index. Raises ObserveError."""
    try:
        qdiscs = queues.read_qdiscs([index for index, groups in asked.items() if "qdisc" in groups])
        settings_by_index = {
            index: _read_device(world, index, groups, qdiscs.get(index))
            for index, groups in asked.items()
        }
        named = [index for index, groups in asked.items() if groups_through("resolved", groups)]
        if named:
            with Bus() as bus:
                dns_by_index = Resolved(bus).read(named, groups_through("resolved", SETTINGS))
            for index, dns in dns_by_index.items():
                settings_by_index[index] = joined_settings([settings_by_index[index], dns])
        return settings_by_index
    except OSError as error:
        what = "ask the kernel for the settings of network devices"
        raise ObserveError(f"{what}: {error.strerror or error}") from error


def _read_device(
    world: World, index: int, groups: Collection[str], root: Optional[str]
) -> DeviceSettings:
    """One device's settings; `root` is its root qdisc. Raises OSError."""
    parts = [
        _ethtool_settings(index, groups_through("ethtool", groups)),
        queues.Queues(index, world.devices[index].name).read(groups_through("files", groups)),
        kinds.read_groups(world, index, groups_through("attribute", groups)),
    ]
    if root is not None:
        parts.append(DeviceSettings({"qdisc": root}))
    return joined_settings(parts)


def _ethtool_settings(index: int, groups: Collection[str]) -> DeviceSettings:
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
        return missing_groups(
            groups, "this kernel has no ethtool netlink (Linux 5.6)", by_kernel=True
        )


def write_settings(netlink: Netlink, index: int, group: str, values: Mapping[str, str]) -> None:
    """Set some values of one group. Raises ApplyError."""
    backend = SETTINGS[group].through
    if backend == "qdisc":
        queues.set_qdisc(index, values[group])
    elif backend == "attribute":
        netlink.set_attribute(index, group, values[group])
    elif backend == "files":
        queues.Queues(index, netlink.name_of(index)).write(group, values[group])
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
