"""The device behind a link, read and written: qdisc, rings and offloads, queues. It knows which backend has which setting."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
from collections.abc import Collection, Mapping

from neuca_tools.backends import qdisc
from neuca_tools.backends.ethtool import Ethtool
from neuca_tools.backends.queues import FILES, Queues
from neuca_tools.errors import ApplyError, ObserveError
from neuca_tools.model import World
from neuca_tools.model.device_settings import DeviceSettings

THROUGH_ETHTOOL = ("rings", "channels", "coalesce", "pause", "offloads")
THROUGH_FILES = (*FILES, "irq-affinity")


def read(world: World, asked: Mapping[int, Collection[str]]) -> dict[int, DeviceSettings]:
    """What each of these devices has, by index, of the groups that are asked for. Raises ObserveError."""
    found = {}
    try:
        qdiscs = (
            qdisc.read([index for index, groups in asked.items() if "qdisc" in groups])
            if asked
            else {}
        )
        for index, groups in asked.items():
            ethtool = _ethtool(index, [group for group in groups if group in THROUGH_ETHTOOL])
            files = Queues(index, world.devices[index].name).read(
                [group for group in groups if group in THROUGH_FILES]
            )
            values = {"qdisc": qdiscs[index]} if index in qdiscs else {}
            found[index] = DeviceSettings(
                {**values, **ethtool.values, **files.values},
                {**ethtool.most, **files.most},
                {**ethtool.missing, **files.missing},
            )
    except OSError as error:
        raise ObserveError(
            f"ask the kernel for the settings of network devices: {error.strerror or error}"
        ) from error
    return found


def _ethtool(index: int, groups: Collection[str]) -> DeviceSettings:
    if not groups:
        return DeviceSettings()
    try:
        with Ethtool() as ethtool:
            return ethtool.read(index, groups)
    except OSError as error:
        if (
            error.errno == errno.ENODEV
        ):  # gone since the look; the event of that makes the next pass
            return DeviceSettings()
        if error.errno != errno.ENOENT:
            raise
        return DeviceSettings(
            missing=dict.fromkeys(groups, "this kernel has no ethtool netlink (Linux 5.6)")
        )


def write(index: int, name: str, group: str, values: Mapping[str, str]) -> None:
    """Set some values of one group. Raises ApplyError."""
    if group == "qdisc":
        qdisc.write(index, values[group])
    elif group in THROUGH_FILES:
        Queues(index, name).write(group, values[group])
    else:
        try:
            with Ethtool() as ethtool:
                ethtool.write(
                    index,
                    group,
                    {setting.partition(".")[2]: value for setting, value in values.items()},
                )
        except OSError as error:
            raise ApplyError(error.strerror or str(error), error.errno or 0) from error
