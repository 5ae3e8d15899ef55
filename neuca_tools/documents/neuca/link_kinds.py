"""Parse the keys specific to virtual links, such as those of `[bond NAME]` and `[bridge NAME]`.

References: bonding.rst, bridge.rst and vrf.rst of the kernel, ip-link(8), RFC 7348.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Optional

from neuca_tools.documents.neuca import values
from neuca_tools.documents.neuca.values import UnusableError
from neuca_tools.model import Host
from neuca_tools.model.links import KINDS, LinkKey, Virtual
from neuca_tools.model.ports import is_guid

MOST_MEMBERS = 256
# BOND_MAX_ARP_TARGETS of the kernel.
MOST_ARP_TARGETS = 16
# A bond in one of these modes cannot watch its members by ARP (bonding.rst, arp_interval).
_WITHOUT_ARP = ("802.3ad", "balance-tlb", "balance-alb")
# The position of a word is the number that the kernel uses for it.
WORDS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("bond", "mode"): (
        "balance-rr",
        "active-backup",
        "balance-xor",
        "broadcast",
        "802.3ad",
        "balance-tlb",
        "balance-alb",
    ),
    ("bond", "lacp-rate"): ("slow", "fast"),
    ("bond", "xmit-hash-policy"): (
        "layer2",
        "layer3+4",
        "layer2+3",
        "encap2+3",
        "encap3+4",
        "vlan+srcmac",
    ),
    ("bond", "ad-select"): ("stable", "bandwidth", "count"),
    ("bond", "fail-over-mac"): ("none", "active", "follow"),
    ("bond", "arp-validate"): (
        "none",
        "active",
        "backup",
        "all",
        "filter",
        "filter_active",
        "filter_backup",
    ),
    ("bond", "arp-all-targets"): ("any", "all"),
    ("bond", "primary-reselect"): ("always", "better", "failure"),
    ("bond", "all-slaves-active"): ("no", "yes"),
    ("bridge", "stp"): ("no", "yes"),
    ("ipoib", "mode"): values.IPOIB_MODES,
}
# Seconds, with the spanning tree protocol (IEEE 802.1D).
LEAST_FORWARD_DELAY = 2
MACVLAN_MODES = ("bridge", "private", "vepa", "passthru")
DEFAULTS: Mapping[str, Mapping[str, str]] = {
    # Milliseconds; with the kernel's default, 0, a bond never detects a lost link (bonding.rst).
    "bond": {"miimon": "100"},
    "bridge": {},
    # Assigned by IANA (RFC 7348, section 5); the kernel's default, 8472, is older than that.
    "vxlan": {"port": "4789"},
    # The kernel's default, VEPA, needs a switch that sends frames back.
    "macvlan": {"mode": "bridge"},
    "vrf": {},
    "ipoib": {"mode": "datagram"},
}
# What a new link of the kernel has (bond_main.c, br_if.c); empty for none.
KERNEL_DEFAULTS: Mapping[str, Mapping[str, str]] = {
    "bond": {
        "miimon": "0",
        "updelay": "0",
        "downdelay": "0",
        "lacp-rate": "slow",
        "xmit-hash-policy": "layer2",
        "ad-select": "stable",
        "fail-over-mac": "none",
        "min-links": "0",
        "arp-interval": "0",
        "arp-ip-target": "",
        "arp-validate": "none",
        "arp-all-targets": "any",
        "primary-reselect": "always",
        "num-grat-arp": "1",
        "resend-igmp": "1",
        "all-slaves-active": "no",
        "packets-per-slave": "1",
        "lp-interval": "1",
    },
    "bridge": {
        "stp": "no",
        "forward-delay": "15",
        "hello-time": "2",
        "max-age": "20",
        "ageing-time": "300",
        "priority": "32768",
    },
    "vxlan": {"local": "", "remote": ""},
}
MEMBERS, PARENT = ("bond", "bridge", "vrf"), ("vxlan", "macvlan", "ipoib")


def link_key(kind: str, name: str) -> LinkKey:
    """The key of a virtual link; raises UnusableError for an invalid name."""
    valid_name = values.link_name(name)
    if "." in valid_name:
        raise UnusableError(f'"{valid_name}" has a ".", which separates the ID of a VLAN')
    return LinkKey(f"{kind} {valid_name}")


def vlan_key(lower: LinkKey, number: str) -> LinkKey:
    """The key of a VLAN on a virtual link; raises UnusableError for one that can have none."""
    if lower.kind in ("vrf", "ipoib"):
        raise UnusableError(f'there can be no VLAN on "{lower}"')
    return LinkKey(lower.mac, values.vlan_id(number))


def link_reference(text: str) -> LinkKey:
    """Parse `MAC` or `KIND NAME`, or a VLAN on either, `MAC.ID` or `KIND NAME.ID`.

    Raises UnusableError.
    """
    name = " ".join(text.split())
    kind, _, rest = name.partition(" ")
    if kind in KINDS:
        return _virtual_reference(kind, rest)
    base, dot, number = name.rpartition(".")
    try:
        return LinkKey(values.nic(name))
    except UnusableError:
        if not dot or len(base) < len("fe163e006daf"):
            raise UnusableError(
                f'"{values.clip(name)}" is neither a MAC address nor a link such as "bond NAME"'
            ) from None
    return LinkKey(values.nic(base), values.vlan_id(number))


def _virtual_reference(kind: str, text: str) -> LinkKey:
    base, dot, number = text.rpartition(".")
    if not dot:
        return link_key(kind, text)
    return vlan_key(link_key(kind, base), number)


def _read_members(text: str) -> tuple[LinkKey, ...]:
    parts = [part for part in text.split(",") if part.strip()]
    if len(parts) > MOST_MEMBERS:
        raise UnusableError(f"more than {MOST_MEMBERS} members")
    return tuple(dict.fromkeys(map(link_reference, parts)))


def _number_reader(low: int, high: int) -> Callable[[str], str]:
    return lambda text: str(values.integer(text, low, high))


def _word_reader(words: tuple[str, ...], numbers: bool = True) -> Callable[[str], str]:
    """A reader of one of the words; with `numbers`, of its number in the kernel too."""

    numbered = {str(number): word for number, word in enumerate(words) if numbers}
    return lambda text: numbered.get(text) or values.word(text, words)


def _vxlan_endpoint(text: str) -> str:
    endpoint: Host = values.host(text)
    if endpoint.is_unspecified or endpoint.is_loopback:
        raise UnusableError(f'"{endpoint}" cannot be an endpoint of a VXLAN')
    return str(endpoint)


def _arp_targets(text: str) -> str:
    targets = [values.host(part) for part in text.split(",") if part.strip()]
    if len(targets) > MOST_ARP_TARGETS:
        raise UnusableError(f"more than {MOST_ARP_TARGETS} addresses")
    six = next((target for target in targets if target.version == 6), None)
    if six is not None:
        raise UnusableError(f'"{six}" is not an IPv4 address')
    return ",".join(dict.fromkeys(map(str, targets)))


def _yes_or_no(text: str) -> str:
    yes, no = ("yes", "true", "on", "1"), ("no", "false", "off", "0")
    if values.word(text, (*yes, *no)) in yes:
        return "yes"
    return "no"


_INT_MAX = 2147483647  # the bound of the kernel (bond_options.c)
_MILLISECONDS = _number_reader(0, _INT_MAX)
READERS: Mapping[str, Mapping[str, Callable[[str], str]]] = {
    "bond": {
        **{name: _word_reader(words) for (kind, name), words in WORDS.items() if kind == "bond"},
        "miimon": _MILLISECONDS,
        "updelay": _MILLISECONDS,
        "downdelay": _MILLISECONDS,
        "min-links": _number_reader(0, 65535),
        "all-slaves-active": _yes_or_no,
        "arp-interval": _MILLISECONDS,
        "arp-ip-target": _arp_targets,
        # The bounds of the kernel's bond_options.c.
        "num-grat-arp": _number_reader(0, 255),
        "resend-igmp": _number_reader(0, 255),
        "packets-per-slave": _number_reader(0, 65535),
        "lp-interval": _number_reader(1, _INT_MAX),
        "mac": values.mac,
    },
    "bridge": {
        "stp": _yes_or_no,
        # Seconds (IEEE 802.1D); with stp, the least is LEAST_FORWARD_DELAY.
        "forward-delay": _number_reader(0, 30),
        "hello-time": _number_reader(1, 10),
        "max-age": _number_reader(6, 40),
        "ageing-time": _number_reader(0, 1000000),
        "priority": _number_reader(0, 65535),
        "mac": values.mac,
    },
    "vxlan": {
        "id": _number_reader(1, 16777215),
        "local": _vxlan_endpoint,
        "remote": _vxlan_endpoint,
        "port": _number_reader(1, 65535),
        "mac": values.mac,
    },
    "macvlan": {"mode": _word_reader(MACVLAN_MODES, numbers=False), "mac": values.mac},
    "vrf": {"table": lambda text: str(values.vrf_table(text))},
    "ipoib": {"pkey": values.pkey, "mode": _word_reader(WORDS["ipoib", "mode"], numbers=False)},
    "vlan": {"mac": values.mac},
}


def default_options(kind: str, virtual: Virtual) -> Mapping[str, str]:
    """The options that a virtual link of this kind has unless it requests others."""
    if _is_on(virtual, "arp-interval"):
        # The kernel refuses both ways to check links (bonding.rst, miimon).
        return {}
    return DEFAULTS[kind]


def own_keys(kind: str) -> tuple[str, ...]:
    """The keys that only a section of this kind has."""
    own = tuple(READERS.get(kind, {}))
    if kind in MEMBERS:
        return ("members", *own)
    if kind in PARENT:
        return ("parent", *own)
    return own


def read_setting(kind: str, name: str, text: str) -> Virtual:
    """Parse the value of one such key; raises UnusableError."""
    if name == "members":
        return Virtual(members=_read_members(text))
    if name == "parent":
        return Virtual(parent=link_reference(text))
    return Virtual(options=((name, READERS[kind][name](text)),))


def shown_value(virtual: Virtual, name: str) -> str:
    """The value of such a key, for display; empty if it is not set."""
    if name == "members":
        return ", ".join(map(str, virtual.members))
    if name == "parent":
        return str(virtual.parent or "")
    return virtual.option(name)


# A bond of InfiniBand links is possible in one mode only, and is not supported.
NO_NAMES: Mapping[LinkKey, str] = MappingProxyType({})
_NO_VLANS = ": make the bond of the NICs, and the VLAN on the bond"
_ETHERNET_ONLY = ("bond", "bridge", "macvlan")
_NEEDED = {
    "bond": ("mode", "members"),
    "vxlan": ("id",),
    "macvlan": ("parent",),
    "vrf": ("table",),
    "ipoib": ("parent", "pkey"),
}


def incomplete_reason(
    key: LinkKey, virtual: Optional[Virtual], names: Mapping[LinkKey, str] = NO_NAMES
) -> Optional[str]:
    """Why the request is incomplete or contradictory, whatever the host has; None if it is not.

    `names` are the names of its lower devices, as far as they are known.
    """
    if virtual is None:
        return "neither a parent nor members are specified"
    for name in _NEEDED.get(key.kind, ()):
        if not shown_value(virtual, name):
            return f"it requires {name}"
    return _excluding_options(virtual) or _unfit_reason(key, virtual.lower, names)


def _unfit_reason(
    key: LinkKey, lowers: Collection[LinkKey], names: Mapping[LinkKey, str]
) -> Optional[str]:
    """Why a link of this kind cannot be on these links."""
    unfit = [lower for lower in lowers if not _can_be_below(lower, key)]
    if unfit:
        shown_names = (
            f'"{names[lower]}" ({lower})' if lower in names else lower for lower in unfit
        )
        is_of_vlans = key.kind == "bond" and any(lower.vlan_id for lower in unfit)
        advice = _NO_VLANS if is_of_vlans else ""
        return f"a {key.kind} cannot use {', '.join(map(str, shown_names))}{advice}"
    port = next(filter(is_ipoib, lowers), None) if key.kind in _ETHERNET_ONLY else None
    return no_ethernet(port, f"a {key.kind}") if port else None


def is_ipoib(link: LinkKey) -> bool:
    """Whether the link carries IP over InfiniBand: a port by its GUID, or a child of one."""
    return link.kind == "ipoib" or is_guid(link.mac)


def no_ethernet(lower: LinkKey, upper: str) -> str:
    """Why no link with Ethernet frames can be on an InfiniBand link (RFC 4391: IP and ARP only)."""
    return f"{lower} is an InfiniBand link, which carries no Ethernet frames: {upper} requires them"


def _excluding_options(virtual: Virtual) -> Optional[str]:
    """Which options exclude each other; None if none do."""
    ends = filter(None, (virtual.option("local"), virtual.option("remote")))
    if len({values.host(end).version for end in ends}) > 1:
        return "local and remote are not of the same family"
    delay = virtual.option("forward-delay")
    if virtual.option("stp") == "yes" and delay and int(delay) < LEAST_FORWARD_DELAY:
        return f"with stp, forward-delay is at least {LEAST_FORWARD_DELAY}"
    return _bond_contradiction(virtual)


def _bond_contradiction(virtual: Virtual) -> Optional[str]:
    mode = virtual.option("mode")
    if virtual.option("packets-per-slave") and mode != "balance-rr":
        return "packets-per-slave needs mode = balance-rr"
    if not _is_on(virtual, "arp-interval"):
        return None
    if mode in _WITHOUT_ARP:
        return f"a bond with mode = {mode} cannot have arp-interval"
    if _is_on(virtual, "miimon"):
        return "a bond cannot have both miimon and arp-interval"
    return None


def _is_on(virtual: Virtual, interval: str) -> bool:
    return virtual.option(interval) not in ("", "0")


def _can_be_below(lower: LinkKey, upper: LinkKey) -> bool:
    """Whether a link may be a lower device of another; the members of a bond are NICs."""
    if upper.kind in ("bond", "ipoib"):
        return lower.rank == 0
    return lower.rank < upper.rank


def vxlan_overhead(virtual: Virtual) -> int:
    """Bytes that a VXLAN adds to a packet; 0 for every other kind.

    50 over IPv4 and 70 over IPv6: outer Ethernet, IP, UDP and VXLAN headers (RFC 7348, section 5).
    """
    if not virtual.option("id"):
        return 0
    if ":" in virtual.option("local") + virtual.option("remote"):
        return 70
    return 50
