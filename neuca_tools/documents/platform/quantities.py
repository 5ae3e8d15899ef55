"""Read prefix lengths and netmasks, and the time spans of netplan and cloud-init (`1min 30s`)."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import ip_network
from typing import Optional

from neuca_tools.documents.neuca import values
from neuca_tools.documents.neuca.values import UnusableError, clip
from neuca_tools.documents.platform.parts import Part
from neuca_tools.model import Network

# What cloud-init assumes where a document gives none (net/network_state.py, _normalize_net_keys).
ASSUMED = {4: "24", 6: "64"}
# Milliseconds in each unit of systemd.time(7) that these documents have a use for.
_UNITS: Mapping[str, int] = {
    **dict.fromkeys("ms msec".split(), 1),
    **dict.fromkeys("s sec second seconds".split(), 1000),
    **dict.fromkeys("m min minute minutes".split(), 60000),
    **dict.fromkeys("h hr hour hours".split(), 3600000),
}
_SPAN = re.compile(r"(?:[0-9]{1,9} ?[a-z]+ ?){1,8}")
_TERM = re.compile(r"([0-9]+) ?([a-z]+)")


def cidr_text(text: str, netmask: Optional[str] = None) -> str:
    """An address or destination in CIDR notation.

    Its prefix length follows a slash, otherwise it is `netmask`, otherwise the one that cloud-init
    assumes. Both may be a number or a netmask. Raises UnusableError.

    >>> cidr_text("10.0.0.1", "255.255.255.0"), cidr_text("fd00::1/ffff:ffff:ffff:ffff::")
    ('10.0.0.1/24', 'fd00::1/64')
    >>> cidr_text("10.0.0.1")
    '10.0.0.1/24'
    """
    ip, _, length = text.partition("/")
    return f"{ip}/{_prefix_length(length or netmask or ASSUMED[values.host(ip).version])}"


def prefix_length(part: Part) -> Optional[str]:
    """The prefix length or netmask given next to an address or destination; None if none is."""
    netmask = part.text("netmask")
    return part.text("prefix") or netmask


def is_assumed(text: str, netmask: Optional[str]) -> bool:
    """Whether neither the address nor the netmask says the prefix length."""
    return "/" not in text and netmask is None


def read_destination(text: str) -> Network:
    """The network of a destination in CIDR notation. Host bits are masked, as by cloud-init.

    Raises UnusableError.
    """
    ip, _, length = text.partition("/")
    host = values.host(ip)
    bits = values.integer(length, 0, host.max_prefixlen, "the prefix length")
    return values.network(str(ip_network(f"{host}/{bits}", strict=False)))


def _prefix_length(netmask: str) -> str:
    netmask = netmask.strip()
    if "." not in netmask and ":" not in netmask:
        return netmask
    return str(values.netmask_length(values.host(netmask)))


def milliseconds(text: str) -> str:
    """A time span in milliseconds; a number without a unit stands for milliseconds.

    >>> milliseconds("100"), milliseconds("1s"), milliseconds("1s 500ms")
    ('100', '1000', '1500')
    """
    if _SPAN.fullmatch(text.strip()):
        return str(_total_milliseconds(text))
    return text


def seconds(text: str) -> str:
    """A time span in seconds; a number without a unit stands for seconds.

    >>> seconds("15"), seconds("2min"), seconds("2000ms")
    ('15', '120', '2')
    """
    if not _SPAN.fullmatch(text.strip()):
        return text
    whole, rest = divmod(_total_milliseconds(text), 1000)
    if rest:
        raise UnusableError(f'"{clip(text)}" is not a whole number of seconds')
    return str(whole)


def _total_milliseconds(text: str) -> int:
    terms = _TERM.findall(text)
    for _, unit in terms:
        if unit not in _UNITS:
            raise UnusableError(f'"{clip(text)}" has the unknown unit of time "{clip(unit)}"')
    return sum(int(number) * _UNITS[unit] for number, unit in terms)
