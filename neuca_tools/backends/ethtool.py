"""Reads and sets device settings through ethtool netlink: rings, offloads, wake-on-LAN, link modes.

Requires Linux 5.6 to 5.8, depending on the setting. Numbers: include/uapi/linux/ethtool_netlink.h;
offloads have the names of ethtool(8) and of the kernel.

pyroute2 0.7.2 has no rings, channels and link modes of the peer, and no version has pause or sets
wake-on-LAN.
"""

# SPDX-License-Identifier: MIT

import errno
import fnmatch
import re
import struct
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from itertools import starmap
from typing import NamedTuple, Optional

from neuca_tools.backends import wire
from neuca_tools.documents.neuca.link_settings import WAKE_ON_LAN
from neuca_tools.model.device_settings import DeviceSettings, joined_settings, missing_groups

NETLINK_GENERIC = 16
GENL_CTRL, CTRL_GETFAMILY, CTRL_FAMILY_ID, CTRL_FAMILY_NAME = 16, 3, 1, 2
HEADER, DEV_INDEX = 1, 1
FEATURES_GET, FEATURES_SET = 11, 12
WOL_GET, WOL_SET, WOL_MODES = 9, 10, 2
LINKMODES_GET, OUR_MODES, PEER_MODES = 4, 3, 4
MODE = re.compile(r"(\d+)base")  # 1000baseT/Full: Mbit/s
HW, WANTED, ACTIVE, NOCHANGE = 2, 3, 4, 5
NOMASK, BITS, BIT, BIT_NAME, BIT_VALUE = 1, 3, 1, 2, 3
WAKE = "wake-on-lan"


class _Field(NamedTuple):
    """One value: its attribute, that of its maximum (0: none), and whether it is an 8-bit flag."""

    value: int
    maximum: int = 0
    switch: bool = False


# The command that reads a group; the one that sets it follows.
GET = {"rings": 15, "channels": 17, "coalesce": 19, "pause": 21}
FIELDS: Mapping[str, Mapping[str, _Field]] = {
    "rings": {"rx": _Field(6, 2), "tx": _Field(9, 5)},
    "channels": {"rx": _Field(6, 2), "tx": _Field(7, 3), "combined": _Field(9, 5)},
    "coalesce": {
        "rx-usecs": _Field(2),
        "rx-frames": _Field(3),
        "tx-usecs": _Field(6),
        "tx-frames": _Field(7),
        "adaptive-rx": _Field(11, switch=True),
        "adaptive-tx": _Field(12, switch=True),
    },
    "pause": {
        "autoneg": _Field(2, switch=True),
        "rx": _Field(3, switch=True),
        "tx": _Field(4, switch=True),
    },
}
# The features for which each short name of ethtool(8) -K stands (off_flag_def of ethtool 6.1).
SHORT: Mapping[str, str] = {
    "rx": "rx-checksum",
    "tx": "tx-checksum-*",
    "sg": "tx-scatter-gather*",
    "tso": "tx-tcp*-segmentation",
    "gso": "tx-generic-segmentation",
    "gro": "rx-gro",
    "lro": "rx-lro",
    "rxvlan": "rx-vlan-hw-parse",
    "txvlan": "tx-vlan-hw-insert",
    "ntuple": "rx-ntuple-filter",
    "rxhash": "rx-hashing",
}
# Violates RFC 6864; drivers leave it off, and so does "tso on".
MANGLED = "tx-tcp-mangleid-segmentation"


class Ethtool(AbstractContextManager["Ethtool"]):
    """A socket of the generic netlink family "ethtool". Raises OSError if the kernel lacks it."""

    def __init__(self) -> None:
        self._wire = wire.Socket(NETLINK_GENERIC)
        payload = _command_header(CTRL_GETFAMILY) + wire.encode_text(CTRL_FAMILY_NAME, "ethtool")
        answer = wire.Attributes(self._wire.ask(GENL_CTRL, 0, payload)[0][4:])
        self._family = answer.number(CTRL_FAMILY_ID)

    def __exit__(self, *_: object) -> None:
        self._wire.__exit__()

    def read(self, index: int, groups: Iterable[str]) -> DeviceSettings:
        """The settings of these groups, or why the device lacks a group. Raises OSError."""
        return joined_settings(self._read(index, group) for group in groups)

    def _read(self, index: int, group: str) -> DeviceSettings:
        try:
            if group == "offloads":
                return self._read_features(index)
            if group == WAKE:
                modes = _named_bits(self._get(WOL_GET, index).nest(WOL_MODES))
                active = " ".join(name for name in WAKE_ON_LAN if modes.get(name))
                return DeviceSettings({WAKE: active or "off"})
            return self._read_numbers(index, group)
        except OSError as error:
            if (group, error.errno) == (WAKE, errno.EPERM):
                return missing_groups([group], "only root can read it, because of its password")
            # EINVAL: the command is newer than this kernel.
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise
            return missing_groups([group], f"the driver has no {group}")

    def _send_command(self, command: int, index: int, values: bytes = b"") -> list[bytes]:
        header = wire.encode_nest(HEADER, wire.encode_number(DEV_INDEX, index))
        return self._wire.ask(self._family, 0, _command_header(command) + header + values)

    def _get(self, command: int, index: int) -> wire.Attributes:
        return wire.Attributes(self._send_command(command, index)[0][4:])

    def _read_numbers(self, index: int, group: str) -> DeviceSettings:
        attributes = self._get(GET[group], index)
        maximums, values = {}, {}
        for name, field in FIELDS[group].items():
            maximum = attributes.number(field.maximum)
            if maximum:
                maximums[f"{group}.{name}"] = str(maximum)
            # A maximum of 0: the driver has no such ring or channel.
            if field.value in attributes and (maximum or not field.maximum):
                number = attributes.number(field.value)
                values[f"{group}.{name}"] = _on_off(number) if field.switch else str(number)
        return DeviceSettings(values, maximums)

    def _read_features(self, index: int) -> DeviceSettings:
        """The features by full and by short name; `missing` are those that the driver has fixed."""
        features = self._get(FEATURES_GET, index)
        supported, changeable = _changeable_features(features)
        active = _named_bits(features.nest(ACTIVE))
        values, missing = {}, {}
        single = {name: [name] for name in supported}
        for name, names in {**single, **_features_by_short_name(supported)}.items():
            values[f"offloads.{name}"] = _on_off(not active.keys().isdisjoint(names))
            if changeable.isdisjoint(names):
                missing[f"offloads.{name}"] = "it is fixed by the driver"
        return DeviceSettings(values, {}, missing)

    def fastest_mode(self, index: int) -> Optional[float]:
        """bit/s of the fastest mode that both ends offer; None if unknown. Raises OSError."""
        modes = self._get(LINKMODES_GET, index)
        ours, peers = (_named_bits(modes.nest(end)) for end in (OUR_MODES, PEER_MODES))
        return fastest_common_mode(ours, peers)

    def write(self, index: int, group: str, values: Mapping[str, str]) -> None:
        """Set values of one group in one request. Raises OSError."""
        if group == "offloads":
            self._write_features(index, values)
        elif group == WAKE:
            names = [name for name in values[WAKE].split() if name != "off"]
            bits = wire.encode_nest(BITS, *(_encode_bit(name, True) for name in names))
            # Without a mask, the modes that are not listed are off.
            modes = wire.encode_nest(WOL_MODES, wire.encode_attribute(NOMASK, b""), bits)
            self._send_command(WOL_SET, index, modes)
        else:
            pairs = ((FIELDS[group][name], value) for name, value in values.items())
            self._send_command(GET[group] + 1, index, b"".join(starmap(_encode_value, pairs)))

    def _write_features(self, index: int, values: Mapping[str, str]) -> None:
        features = self._get(FEATURES_GET, index)
        supported, changeable = _changeable_features(features)
        short = _features_by_short_name(supported)
        bits = []
        for feature, value in values.items():
            names = changeable.intersection(short.get(feature, [feature]))
            if (feature, value) == ("tso", "on"):
                names.discard(MANGLED)
            bits += [_encode_bit(name, value == "on") for name in sorted(names)]
        if not bits:
            raise OSError(errno.EOPNOTSUPP, "it is fixed by the driver")
        wanted = wire.encode_nest(WANTED, wire.encode_nest(BITS, *bits))
        self._send_command(FEATURES_SET, index, wanted)


def fastest_common_mode(ours: Mapping[str, bool], peers: Mapping[str, bool]) -> Optional[float]:
    """bit/s of the fastest mode that is set in both bitsets; None if there is none."""
    common = (name for name, is_set in ours.items() if is_set and peers.get(name))
    speeds = [float(mode[1]) for mode in map(MODE.match, common) if mode]
    return max(speeds) * 1e6 if speeds else None


def _command_header(command: int) -> bytes:
    return struct.pack("=BBH", command, 1, 0)


def _on_off(value: int) -> str:
    return "on" if value else "off"


def _encode_value(field: _Field, value: str) -> bytes:
    if field.switch:
        return wire.encode_attribute(field.value, bytes([value == "on"]))
    return wire.encode_number(field.value, int(value))


def _features_by_short_name(supported: Iterable[str]) -> dict[str, list[str]]:
    return {short: fnmatch.filter(supported, pattern) for short, pattern in SHORT.items()}


def _changeable_features(features: wire.Attributes) -> tuple[dict[str, bool], set[str]]:
    """All features, and those that the hardware supports and the driver has not fixed."""
    able, fixed = _named_bits(features.nest(HW)), _named_bits(features.nest(NOCHANGE))
    return able, {name for name, supported in able.items() if supported and name not in fixed}


def _named_bits(bitset: wire.Attributes) -> dict[str, bool]:
    """The names in a bitset, and whether each is set; without a mask, only set bits are listed."""
    nomask = NOMASK in bitset
    names: dict[str, bool] = {}
    for _, bit in wire.parse_attributes(bitset.bytes(BITS)):
        parts = wire.Attributes(bit)
        names[parts.text(BIT_NAME)] = nomask or BIT_VALUE in parts
    return names


def _encode_bit(name: str, on: bool) -> bytes:
    value = wire.encode_attribute(BIT_VALUE, b"") if on else b""
    return wire.encode_nest(BIT, wire.encode_text(BIT_NAME, name), value)
