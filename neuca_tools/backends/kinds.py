"""Settings of virtual links and of places in them, to and from attributes (linux/if_link.h).

The present values of attributes are part of every look (`kernel_state`); `netlink` sets them.
"""

# SPDX-License-Identifier: MIT

from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import Any, NamedTuple

from neuca_tools.backends import wire
from neuca_tools.documents.neuca.link_kinds import OPTIONS
from neuca_tools.documents.neuca.link_settings import IPOIB_MODE, PRIMARY
from neuca_tools.model import Device, World
from neuca_tools.model.device_settings import DeviceSettings, joined_settings, missing_groups
from neuca_tools.model.topology import MAC_LENGTH


class _Attribute(NamedTuple):
    """The keyword of pyroute2 and the number; `number6`: that for IPv6 if it differs."""

    keyword: str
    number: int
    number6: int = 0


_TIMES = ("forward-delay", "hello-time", "max-age", "ageing-time")
_CENTISECONDS = 100  # in a second: bridges count time in USER_HZ
_ATTRIBUTES: Mapping[str, Mapping[str, _Attribute]] = {
    "bond": {
        "mode": _Attribute("bond_mode", 1),
        "miimon": _Attribute("bond_miimon", 3),
        "updelay": _Attribute("bond_updelay", 4),
        "downdelay": _Attribute("bond_downdelay", 5),
        "lacp-rate": _Attribute("bond_ad_lacp_rate", 21),
        "xmit-hash-policy": _Attribute("bond_xmit_hash_policy", 14),
        "ad-select": _Attribute("bond_ad_select", 22),
        "fail-over-mac": _Attribute("bond_fail_over_mac", 13),
        "min-links": _Attribute("bond_min_links", 18),
        "arp-interval": _Attribute("bond_arp_interval", 7),
        "arp-ip-target": _Attribute("bond_arp_ip_target", 8),
        "arp-validate": _Attribute("bond_arp_validate", 9),
        "arp-all-targets": _Attribute("bond_arp_all_targets", 10),
        "primary-reselect": _Attribute("bond_primary_reselect", 12),
        "num-grat-arp": _Attribute("bond_num_peer_notif", 16),
        "resend-igmp": _Attribute("bond_resend_igmp", 15),
        "all-slaves-active": _Attribute("bond_all_slaves_active", 17),
        "packets-per-slave": _Attribute("bond_packets_per_slave", 20),
        "lp-interval": _Attribute("bond_lp_interval", 19),
    },
    "bridge": {
        "stp": _Attribute("br_stp_state", 5),
        "forward-delay": _Attribute("br_forward_delay", 1),
        "hello-time": _Attribute("br_hello_time", 2),
        "max-age": _Attribute("br_max_age", 3),
        "ageing-time": _Attribute("br_ageing_time", 4),
        "priority": _Attribute("br_priority", 6),
    },
    "vxlan": {
        "id": _Attribute("vxlan_id", 1),
        "local": _Attribute("vxlan_local", 4, 17),
        "remote": _Attribute("vxlan_group", 2, 16),
        "port": _Attribute("vxlan_port", 15),
    },
    "macvlan": {"mode": _Attribute("macvlan_mode", 1)},
    "vrf": {"table": _Attribute("vrf_table", 1)},
    "vlan": {"id": _Attribute("vlan_id", 1)},
    "ipoib": {"pkey": _Attribute("ipoib_pkey", 1), "mode": _Attribute("ipoib_mode", 2)},
}
PORT: Mapping[str, _Attribute] = {
    "path-cost": _Attribute("cost", 3),
    "port-priority": _Attribute("priority", 2),
}
# Why a device lacks a setting.
_NO_PORT, NO_MEMBER = "it is in no bridge", "it is in no bond"
_GUID = "it is an InfiniBand port, which has a GUID and no MAC address"
_REASONS = {
    "mac": "its driver reports no permanent MAC address, by which the NIC is known",
    IPOIB_MODE: "it is not an InfiniBand port",
    PRIMARY: NO_MEMBER,
}
_MACVLAN_MODES = {1: "private", 2: "vepa", 4: "bridge", 8: "passthru", 16: "source"}


def creation_arguments(kind: str, options: Mapping[str, str]) -> dict[str, Any]:
    """The keyword arguments with which pyroute2 creates such a link."""
    keywords: dict[str, Any] = {}
    if "mac" in options:
        keywords["address"] = options["mac"]
    for name, attribute in _ATTRIBUTES.get(kind, {}).items():
        value = options.get(name, "")
        # What a new bond has anyway is left out: it refuses some options in some modes, whatever
        # the value (bond_options.c).
        if value and not (kind == "bond" and value == OPTIONS[kind][name].kernel_default):
            six = "6" if attribute.number6 and ":" in value else ""
            keywords[attribute.keyword + six] = _encode_option(kind, name, value)
    return keywords


def _words(kind: str, name: str) -> tuple[str, ...]:
    """The words of an option by their numbers; none for an option with other values."""
    return OPTIONS[kind][name].words if name in OPTIONS[kind] else ()


def _encode_option(kind: str, name: str, value: str) -> Any:
    if _words(kind, name):
        return _words(kind, name).index(value)
    if name in _TIMES:
        return int(value) * _CENTISECONDS
    if name == "arp-ip-target":
        return value.split(",")
    if name == "pkey":
        return int(value, 16)
    return int(value) if value.isdecimal() else value


def link_options(kind: str, mac: str, data: wire.Attributes) -> tuple[tuple[str, str], ...]:
    """The settings of a link of one of these kinds; `data` is its IFLA_INFO_DATA."""
    settings = [("mac", mac)]
    for name, (_, number, number6) in _ATTRIBUTES.get(kind, {}).items():
        value = data.bytes(number) or (number6 and data.bytes(number6))
        if value:
            settings.append((name, _decode_option(kind, name, value)))
    return tuple(settings)


def _decode_option(kind: str, name: str, value: bytes) -> str:
    if name in ("local", "remote"):
        return str(ip_address(value))
    if name == "port":
        return str(int.from_bytes(value, "big"))
    if name == "arp-ip-target":
        return ",".join(str(ip_address(address)) for _, address in wire.parse_attributes(value))
    number = wire.decode_integer(value)
    if kind == "macvlan":
        return _MACVLAN_MODES.get(number, f"number {number}")
    if name == "pkey":
        return f"0x{number:04x}"
    words = _words(kind, name)
    if words:
        return words[number] if number < len(words) else f"number {number}"
    if name in _TIMES:
        number //= _CENTISECONDS
    return str(number)


def read_groups(world: World, index: int, groups: Iterable[str]) -> DeviceSettings:
    """The value of each group, or the reason why the device has none."""
    return joined_settings(_read_group(world, world.devices[index], group) for group in groups)


def _read_group(world: World, device: Device, group: str) -> DeviceSettings:
    values, master = dict(device.port), world.devices.get(device.master)
    if device.infiniband:
        values[IPOIB_MODE] = "" if device.kind else device.mode
    elif len(device.permanent_mac) == MAC_LENGTH:
        values["mac"] = device.mac
    if master and master.kind == "bond":
        values[PRIMARY] = "yes" if master.primary == device.index else "no"
    if values.get(group):
        return DeviceSettings({group: values[group]})
    is_port = device.infiniband and group == "mac"
    return missing_groups([group], _GUID if is_port else _REASONS.get(group, _NO_PORT))
