"""Readers of single values: each returns the typed value, or raises UnusableError with a reason."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache, partial
from ipaddress import ip_address, ip_network
from typing import Optional

from neuca_tools.model import OWN, Address, Host, Network
from neuca_tools.model.addresses import MAX_CACHED, address_of
from neuca_tools.model.routing import KERNEL_TABLES, MAIN_TABLE, MAX_U32
from neuca_tools.model.rows import UnknownWord

IPV6_MINIMUM_MTU = 1280  # bytes (RFC 8200, 5)
_MAX_SHOWN = 80  # characters of a value in a message
_MAX_SYSCTL_BYTES = 4096
_MAC = re.compile(
    r"[0-9a-f]{12}"
    r"|[0-9a-f]{2}(?P<two>[:.-])(?:[0-9a-f]{2}(?P=two)){4}[0-9a-f]{2}"
    r"|[0-9a-f]{4}(?P<four>[:.-])[0-9a-f]{4}(?P=four)[0-9a-f]{4}"
)
_SEPARATORS = {ord(separator): "" for separator in ":.-"}
# The GUID of an InfiniBand port, or 20 bytes that end with one: an IPoIB address, or a DHCP client
# identifier as Ironic has it. Compiled when it is needed, which takes 2 ms.
_GUID = (
    r"(?:0x)?[0-9a-f]{16}(?:[0-9a-f]{24})?"
    r"|[0-9a-f]{4}(?:(?P<four>[:-])[0-9a-f]{4})(?:(?P=four)[0-9a-f]{4}){2}"
    r"|[0-9a-f]{2}(?P<two>[:-])(?:[0-9a-f]{2}(?P=two)){6}[0-9a-f]{2}"
    r"|[0-9a-f]{2}(?P<all>[:-])(?:[0-9a-f]{2}(?P=all)){18}[0-9a-f]{2}"
)
# The first byte of the IPv4 addresses that a NIC can have (RFC 6890; 127 is loopback).
_UNICAST_FIRST_BYTES = frozenset(range(1, 224)) - {127}
_SHORT_PREFIX = r"([0-9]{1,3}(?:\.[0-9]{1,3}){0,2})(/.+)"
_PKEY = r"0x([0-9a-f]{1,4})"
_FULL_MEMBER = 0x8000  # the highest bit of a P_Key (InfiniBand specification, 10.9.1.1)
_NUMBER = re.compile(r"[0-9]{1,10}")
MTU_LIMITS = (68, 65535)
# The position of a word is the number that the kernel uses for it (IPOIB_MODE_*).
IPOIB_MODES = ("datagram", "connected")
TXQUEUELEN_LIMITS = (1, 1000000)
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?"
_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
ACCEPT_DAD = f"net/ipv6/conf/{OWN}/accept_dad"
# The tables that the agent assigns to NICs for policy routing.
POLICY_TABLES = range(31000, 32000)
# Those for the routes that NICs get from DHCP (`desired.dhcp_files`).
DHCP_TABLES = range(1 << 30, 1 << 31)
_SYSCTL = r"[A-Za-z0-9_./+~-]+"
# Such as quotes, or a comment, which the kernel ignores after a number and a space. Formulas of
# profiles have braces.
_NOT_IN_SYSCTL_VALUES = r"[^A-Za-z0-9 ._,:/+{}-]"


class UnusableError(ValueError):
    """A value is unusable; the text of the exception is the reason.

    `unknown` is a misspelled word with those that are allowed, for a suggestion.
    """

    def __init__(self, reason: str, unknown: Optional[UnknownWord] = None) -> None:
        super().__init__(reason)
        self.unknown = unknown


class ForeignValueError(UnusableError):
    """A valid value that is not for the agent: a table of the kernel, a MAC that no NIC can have.

    In a platform's document it is not an error, because other programs read that document too.
    """


def clip(text: str) -> str:
    """The text on one line, without control characters and shortened for a message."""
    printable = " ".join(text[: 4 * _MAX_SHOWN].split())
    if not printable.isprintable():
        printable = "".join(letter if letter.isprintable() else "?" for letter in printable)
    whole = len(printable) <= _MAX_SHOWN and len(text) <= 4 * _MAX_SHOWN
    return printable if whole else printable[: _MAX_SHOWN - 1] + "…"


def hash_hint(value: str) -> str:
    """A hint to append to the reason if a `#` in the value was meant to begin a comment."""
    if not re.search(r"\s#", value):
        return ""
    return ' ("#" begins a comment only at the beginning of a line; after a value, ";" does)'


def is_absent(value: str) -> bool:
    """Whether a value counts as absent: empty, or `Not Specified`, as ExoGENI controllers write."""
    words = value.split()
    return not words or (len(words) == 2 and [*map(str.lower, words)] == ["not", "specified"])


def mac(text: str) -> str:
    """A MAC address in any usual notation, as `fe:16:3e:00:6d:af`.

    Group addresses do not identify a NIC (IEEE 802-2014, 8.2).
    """
    lower = text.strip().lower()
    if not _MAC.fullmatch(lower):
        raise UnusableError(f'"{clip(text)}" is not a MAC address')
    address = bytes.fromhex(lower.translate(_SEPARATORS))
    if not any(address):
        raise ForeignValueError("the all-zero MAC address names no NIC")
    if address[0] & 1:
        kind = {b"\xff" * 6: "broadcast"}.get(address, "multicast")
        raise ForeignValueError(f"the {kind} MAC address names no NIC")
    return address.hex(":")


@lru_cache(MAX_CACHED)  # each line about a NIC names it
def nic(text: str) -> str:
    """What identifies a NIC: a MAC address, or the GUID of an InfiniBand port.

    A GUID can be given by itself, or as the end of an IPoIB address or client identifier.
    """
    lower = text.strip().lower()
    if _MAC.fullmatch(lower) or not re.fullmatch(_GUID, lower):
        return mac(text)
    digits = re.sub("0x|[:-]", "", lower)[-16:]
    if digits in ("0" * 16, "f" * 16):
        raise UnusableError(f'"{clip(text)}" has no GUID of an InfiniBand port')
    return ":".join(digits[at : at + 2] for at in range(0, 16, 2))


def pkey(text: str) -> str:
    """A P_Key as `0x8001`, always with the bit for full membership, which the kernel sets.

    The `0x` is required: ip-link(8) takes digits without it for a decimal number.
    """
    digits = re.fullmatch(_PKEY, text.strip().lower())
    number = int(digits[1], 16) if digits else 0
    if not number & ~_FULL_MEMBER:
        raise UnusableError(f'"{clip(text)}" is not a P_Key from 0x0001 to 0xffff')
    return f"0x{number | _FULL_MEMBER:04x}"


def word(text: str, allowed: Iterable[str]) -> str:
    """The text in lower case, which must be one of the allowed words."""
    choices = tuple(allowed)
    lower = text.strip().lower()
    if lower not in choices:
        listed = ", ".join(f'"{choice}"' for choice in choices[:-1])
        unknown = UnknownWord("value", clip(text), choices)
        raise UnusableError(f'"{clip(text)}" is not {listed} or "{choices[-1]}"', unknown)
    return lower


def integer(text: str, low: int, high: int, what: str = "") -> int:
    """A decimal number within inclusive bounds; `what` names it in the reason."""
    stripped = text.strip()
    if not _NUMBER.fullmatch(stripped) or not low <= int(stripped) <= high:
        shown = " ".join(filter(None, (what, f'"{clip(text)}"')))
        raise UnusableError(f"{shown} is not a number from {low} to {high}")
    return int(stripped)


# In bytes: 68 is the minimum of IPv4 (RFC 791), 65535 the longest IP packet.
mtu = partial(integer, low=MTU_LIMITS[0], high=MTU_LIMITS[1], what="the MTU")
# The kernel accepts 32 bits; the limit only catches typos.
txqueuelen = partial(
    integer, low=TXQUEUELEN_LIMITS[0], high=TXQUEUELEN_LIMITS[1], what="the txqueuelen"
)
# 0 and 4095 are reserved (IEEE 802.1Q).
vlan_id = partial(integer, low=1, high=4094, what="the VLAN ID")


def table(text: str) -> int:
    """The number of a routing table: not one that the kernel uses by itself, except `main`."""
    if text.strip().lower() == "main":
        return MAIN_TABLE
    number = integer(text, 1, MAX_U32, "the table")
    if number in KERNEL_TABLES - {MAIN_TABLE}:
        raise ForeignValueError(f"the table {number} is one of the kernel's own")
    return number


def route_table(text: str) -> int:
    """The number of a table that a document may add routes to."""
    number = table(text)
    if number in POLICY_TABLES:
        first, last = POLICY_TABLES[0], POLICY_TABLES[-1]
        raise ForeignValueError(f"the tables {first} to {last} are those of policy routing")
    return number


def vrf_table(text: str) -> int:
    """The number of the table of a VRF: one that a document may add routes to, but not `main`."""
    number = route_table(text)
    if number == MAIN_TABLE:
        raise UnusableError("the main table cannot be that of a VRF")
    if number in DHCP_TABLES:
        raise UnusableError(f"the tables {DHCP_TABLES[0]} to {DHCP_TABLES[-1]} are those of DHCP")
    return number


def host(text: str) -> Host:
    """An IP address without prefix length, and without zone (`%eth0`) because names may change."""
    try:
        if "%" not in text:
            return ip_address(text.strip())
    except ValueError:
        pass
    raise UnusableError(f'"{clip(text)}" is not an IP address')


def next_hop(text: str) -> Host:
    """The address of a router on a link."""
    router = host(text)
    if router.is_unspecified or router.is_loopback or router.is_multicast:
        raise UnusableError(f'"{router}" cannot be a next hop')
    return router


def address(text: str) -> Address:
    """An address with a prefix length (default: /32, or /128 for IPv6), as in ip-address(8)."""
    ip, length = _split_cidr(text)
    if not _is_usable(ip):
        raise UnusableError(f'"{ip}" cannot be the address of a NIC')
    if length < 2:
        reason = f'the prefix length of "{ip}/{length}" would cover half of all addresses'
        raise UnusableError(reason)
    return address_of(ip.packed, length)


def _is_usable(ip: Host) -> bool:
    """Whether it can be the address of a NIC: no loopback, multicast or broadcast address."""
    first = ip.packed[0]
    if ip.version == 4 and first in _UNICAST_FIRST_BYTES:
        return True
    special = ip.is_unspecified or ip.is_loopback or ip.is_multicast
    return not special and ip.packed != b"\xff" * 4


def network(text: str) -> Network:
    """A network without host bits; an address alone is a network of one address.

    As in ip-route(8), `10/8` is 10.0.0.0/8.
    """
    short = re.fullmatch(_SHORT_PREFIX, text.strip())
    if short:
        text = f"{short[1]}{'.0' * (3 - short[1].count('.'))}{short[2]}"
    ip, length = _split_cidr(text)
    prefix = ip_network(f"{ip}/{length}", strict=False)
    if prefix.network_address != ip:
        raise UnusableError(f'"{ip}/{length}" has host bits set, its network is "{prefix}"')
    if prefix.is_loopback:
        raise UnusableError(f'"{prefix}" is the loopback network')
    return prefix


def _split_cidr(text: str) -> tuple[Host, int]:
    ip_text, slash, length_text = text.strip().partition("/")
    ip = host(ip_text)
    if not slash:
        return ip, ip.max_prefixlen
    if ip.version == 4 and "." in length_text:
        return ip, netmask_length(host(length_text))
    return ip, integer(length_text, 0, ip.max_prefixlen, "the prefix length")


def netmask_length(mask: Host) -> int:
    """The prefix length of a netmask."""
    zeros: int = int(mask) ^ (2**mask.max_prefixlen - 1)
    if zeros & (zeros + 1):
        raise UnusableError(f'"{mask}" is not a netmask')
    return mask.max_prefixlen - zeros.bit_length()


def link_name(text: str) -> str:
    """An interface name that is valid for the kernel, udev, sysctl and every file that contains it.

    The kernel allows 15 bytes without `/`, `:` and white space; udev refuses `%`, numbers, `all`
    and `default`; quotes, commas and patterns are special in udev rules and NetworkManager's lists.
    """
    name = text.strip()
    if len(name) > 15:
        raise UnusableError(f'"{clip(name)}" is longer than the 15 bytes of an interface name')
    if not re.fullmatch(_NAME, name):
        reason = 'is not an interface name: letters, digits, ".", "_" and "-" only'
        raise UnusableError(f'"{clip(name)}" {reason}')
    if name.isdigit() or name in ("all", "default", "lo"):
        raise UnusableError(f'"{name}" is not a name that an interface can have')
    return name


def hostname(text: str) -> str:
    """A host name (RFC 1123, 2.1) of at most 64 bytes (sethostname(2)).

    As in version 1.7 of this package, `/` becomes `-`, and `_` is accepted. A final dot is dropped.
    """
    name = text.strip().replace("/", "-").removesuffix(".")
    if len(name) > 64:
        raise UnusableError(f'"{clip(name)}" is longer than the 64 bytes of a host name')
    if not all(re.fullmatch(_LABEL, label) for label in name.split(".")):
        reason = 'is not a host name: letters, digits, "-" and "_" only, in labels of 1 to 63'
        raise UnusableError(f'"{clip(name)}" {reason}')
    return name


def sysctl_key(text: str) -> str:
    """The path below /proc/sys of a key of sysctl.d(5), in lower case; see `sysctl_path`.

    Only `net/` is accepted, for which CAP_NET_ADMIN is enough. `{interface}` (OWN) is kept: it
    stands for the name of the link.
    """
    path = _lower_sysctl(sysctl_path(re.sub(r"(?i)\{interface\}", OWN, text.strip())))
    if len(path) > 255 or not re.fullmatch(_SYSCTL, path.replace(OWN, "x")):
        raise UnusableError(f'"{clip(text)}" is not a sysctl key')
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts):
        raise UnusableError(f'the sysctl key "{clip(text)}" has a part that is empty, "." or ".."')
    if parts[0] != "net" or len(parts) < 2:
        raise UnusableError(f'the sysctl key "{clip(text)}" is not below "net."')
    return path


def sysctl_path(key: str) -> str:
    """A key of sysctl.d(5) as a path: dots and slashes are swapped if the first separator is a dot.

    >>> sysctl_path("net.ipv4.conf.eth1/5.mtu"), sysctl_path("net/ipv4/conf/eth1.5/mtu")
    ('net/ipv4/conf/eth1.5/mtu', 'net/ipv4/conf/eth1.5/mtu')
    """
    first = re.search("[./]", key)
    if first and first.group() == ".":
        return key.translate({ord("."): "/", ord("/"): "."})
    return key


def dotted_name(path: str) -> str:
    """A sysctl path with dots, the reverse of `sysctl_path`; any other setting is unchanged.

    >>> dotted_name("net/ipv4/conf/eth1.1445/rp_filter")
    'net.ipv4.conf.eth1/1445.rp_filter'
    """
    if "/" not in path:
        return path
    return path.translate(str.maketrans("./", "/."))


def _lower_sysctl(path: str) -> str:
    # All keys of the kernel are in lower case, but not the names of interfaces in them.
    parts = path.split("/")
    keep = {at + 1 for at, part in enumerate(parts) if part.lower() in ("conf", "neigh")}
    return "/".join(part if at in keep else part.lower() for at, part in enumerate(parts))


def duplicate_detection(text: str) -> tuple[str, str]:
    """The path and value of the sysctl that switches duplicate address detection (RFC 4862)."""
    switches = {"yes": "1", "no": "0"}
    return ACCEPT_DAD, switches[word(text, switches)]


def sysctl_value(text: str) -> str:
    """The value of a sysctl, with single spaces between its words."""
    folded = " ".join(text.split())
    if not folded.isprintable():
        raise UnusableError("the value has control characters")
    wrong = re.search(_NOT_IN_SYSCTL_VALUES, folded)
    if wrong:
        raise UnusableError(f'the value has a "{wrong[0]}", which no sysctl has')
    if len(folded.encode()) > _MAX_SYSCTL_BYTES:
        raise UnusableError(f"the value is longer than {_MAX_SYSCTL_BYTES} bytes")
    return folded
