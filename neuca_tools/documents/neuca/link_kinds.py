"""Parse the keys specific to virtual links, such as those of `[bond NAME]` and `[bridge NAME]`.

References: bonding.rst, bridge.rst and vrf.rst of the kernel, ip-link(8), RFC 7348.
"""

# SPDX-License-Identifier: MIT

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import NamedTuple, Optional

from neuca_tools.documents.neuca import values
from neuca_tools.documents.neuca.values import UnusableError
from neuca_tools.model import Host
from neuca_tools.model.links import KINDS, LinkKey, Virtual
from neuca_tools.model.ports import is_guid

MAX_MEMBERS = 256  # of a bond or VRF, or ports of a bridge
# BOND_MAX_ARP_TARGETS of the kernel.
MAX_ARP_TARGETS = 16
# The modes of a bond in which the kernel takes an option (bond_options.c, unsuppmodes).
_ARP_MODES = ("balance-rr", "active-backup", "balance-xor", "broadcast")
MODES_BY_OPTION = {
    "arp-interval": _ARP_MODES,
    "arp-validate": _ARP_MODES,
    "lacp-rate": ("802.3ad",),
    "packets-per-slave": ("balance-rr",),
}
DELAYS = ("updelay", "downdelay")
# Seconds, with the spanning tree protocol (IEEE 802.1D).
MIN_FORWARD_DELAY = 2
MACVLAN_MODES = ("bridge", "private", "vepa", "passthru")
DEFAULTS: Mapping[str, Mapping[str, str]] = {
    # Milliseconds; with the kernel's default, 0, a bond never detects a lost link (bonding.rst).
    "bond": {"miimon": "100"},
    # Assigned by IANA (RFC 7348, section 5); the kernel's default, 8472, is older than that.
    "vxlan": {"port": "4789"},
    # The kernel's default, VEPA, needs a switch that sends frames back.
    "macvlan": {"mode": "bridge"},
    "ipoib": {"mode": "datagram"},
}
MEMBERS = ("bond", "bridge", "vrf")


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
    """Parse `MAC`, `KIND NAME`, or a VLAN: `MAC.ID` or `KIND NAME.ID`. Raises UnusableError."""
    name = " ".join(text.split())
    kind, _, rest = name.partition(" ")
    base, dot, number = name.rpartition(".")
    if kind in KINDS:
        upper = base.partition(" ")[2]
        return vlan_key(link_key(kind, upper), number) if dot else link_key(kind, rest)
    try:
        return LinkKey(values.nic(name))
    except UnusableError:
        if not dot or len(base) < len("fe163e006daf"):
            reason = 'is neither a MAC address nor a link such as "bond NAME"'
            raise UnusableError(f'"{values.clip(name)}" {reason}') from None
    return LinkKey(values.nic(base), values.vlan_id(number))


def _read_members(text: str) -> tuple[LinkKey, ...]:
    parts = [part for part in text.split(",") if part.strip()]
    if len(parts) > MAX_MEMBERS:
        raise UnusableError(f"more than {MAX_MEMBERS} members")
    return tuple(dict.fromkeys(map(link_reference, parts)))


def _number_reader(low: int, high: int) -> Callable[[str], str]:
    return lambda text: str(values.integer(text, low, high))


def _vxlan_endpoint(text: str) -> str:
    endpoint: Host = values.host(text)
    if endpoint.is_unspecified or endpoint.is_loopback:
        raise UnusableError(f'"{endpoint}" cannot be an endpoint of a VXLAN')
    return str(endpoint)


def _arp_targets(text: str) -> str:
    targets = [values.host(part) for part in text.split(",") if part.strip()]
    if len(targets) > MAX_ARP_TARGETS:
        raise UnusableError(f"more than {MAX_ARP_TARGETS} addresses")
    six = next((target for target in targets if target.version == 6), None)
    if six is not None:
        raise UnusableError(f'"{six}" is not an IPv4 address')
    return ",".join(dict.fromkeys(map(str, targets)))


_NO_YES = ("no", "yes")


def _yes_or_no(text: str) -> str:
    yes, no = ("yes", "true", "on", "1"), ("no", "false", "off", "0")
    return "yes" if values.word(text, (*yes, *no)) in yes else "no"


class Option(NamedTuple):
    """An option of a virtual link.

    `kernel_default` is what a new link has (bond_main.c, br_if.c): empty for none, None if it is
    always requested. `words` are the possible values in the order of their numbers in the kernel.
    """

    read: Callable[[str], str]
    kernel_default: Optional[str] = None
    words: tuple[str, ...] = ()


def _word_option(words: str, kernel_default: Optional[str] = None) -> Option:
    """One of these words, or its number in the kernel."""
    choices = tuple(words.split())
    numbered = {str(number): word for number, word in enumerate(choices)}
    return Option(
        lambda text: numbered.get(text) or values.word(text, choices), kernel_default, choices
    )


_INT_MAX = 2147483647  # the bound of the kernel (bond_options.c)
_MILLISECONDS = Option(_number_reader(0, _INT_MAX), "0")
_MAC = Option(values.mac)
OPTIONS: Mapping[str, Mapping[str, Option]] = {
    "bond": {
        "mode": _word_option(
            "balance-rr active-backup balance-xor broadcast 802.3ad balance-tlb balance-alb"
        ),
        "lacp-rate": _word_option("slow fast", "slow"),
        "xmit-hash-policy": _word_option(
            "layer2 layer3+4 layer2+3 encap2+3 encap3+4 vlan+srcmac", "layer2"
        ),
        "ad-select": _word_option("stable bandwidth count", "stable"),
        "fail-over-mac": _word_option("none active follow", "none"),
        "arp-validate": _word_option(
            "none active backup all filter filter_active filter_backup", "none"
        ),
        "arp-all-targets": _word_option("any all", "any"),
        "primary-reselect": _word_option("always better failure", "always"),
        "all-slaves-active": Option(_yes_or_no, "no", _NO_YES),
        "miimon": _MILLISECONDS,
        "updelay": _MILLISECONDS,
        "downdelay": _MILLISECONDS,
        "min-links": Option(_number_reader(0, 65535), "0"),
        "arp-interval": _MILLISECONDS,
        "arp-ip-target": Option(_arp_targets, ""),
        # The bounds of the kernel's bond_options.c.
        "num-grat-arp": Option(_number_reader(0, 255), "1"),
        "resend-igmp": Option(_number_reader(0, 255), "1"),
        "packets-per-slave": Option(_number_reader(0, 65535), "1"),
        "lp-interval": Option(_number_reader(1, _INT_MAX), "1"),
        "mac": _MAC,
    },
    "bridge": {
        "stp": Option(_yes_or_no, "no", _NO_YES),
        # Seconds (IEEE 802.1D); with stp, the least is MIN_FORWARD_DELAY.
        "forward-delay": Option(_number_reader(0, 30), "15"),
        "hello-time": Option(_number_reader(1, 10), "2"),
        "max-age": Option(_number_reader(6, 40), "20"),
        "ageing-time": Option(_number_reader(0, 1000000), "300"),
        "priority": Option(_number_reader(0, 65535), "32768"),
        "mac": _MAC,
    },
    "vxlan": {
        "id": Option(_number_reader(1, 16777215)),
        "local": Option(_vxlan_endpoint, ""),
        "remote": Option(_vxlan_endpoint, ""),
        # A VXLAN takes its port from the whole host: none of a DHCP client, which are below 1024.
        "port": Option(_number_reader(1024, 65535)),
        "mac": _MAC,
    },
    "macvlan": {"mode": Option(lambda text: values.word(text, MACVLAN_MODES)), "mac": _MAC},
    "vrf": {"table": Option(lambda text: str(values.vrf_table(text)))},
    "ipoib": {
        "pkey": Option(values.pkey),
        "mode": Option(
            lambda text: values.word(text, values.IPOIB_MODES), words=values.IPOIB_MODES
        ),
    },
    "vlan": {"mac": _MAC},
}


def kernel_defaults(kind: str) -> dict[str, str]:
    """What a new link of this kind has."""
    defaults = {name: option.kernel_default for name, option in OPTIONS.get(kind, {}).items()}
    return {name: default for name, default in defaults.items() if default is not None}


def default_options(kind: str, virtual: Virtual) -> Mapping[str, str]:
    """The options that a virtual link of this kind has unless it requests others."""
    if _is_on(virtual, "arp-interval"):
        # The kernel refuses both ways to check links (bonding.rst, miimon).
        return {}
    return DEFAULTS.get(kind, {})


def own_keys(kind: str) -> tuple[str, ...]:
    """The keys that only a section of this kind has."""
    lower = ("members",) if kind in MEMBERS else ("parent",)
    return (*(lower if kind in KINDS else ()), *OPTIONS.get(kind, {}))


def read_setting(kind: str, name: str, text: str) -> Virtual:
    """Parse the value of one such key; raises UnusableError."""
    if name == "members":
        return Virtual(members=_read_members(text))
    if name == "parent":
        return Virtual(parent=link_reference(text))
    return Virtual(options=((name, OPTIONS[kind][name].read(text)),))


def shown_value(virtual: Virtual, name: str) -> str:
    """The value of such a key, for display; empty if it is not set."""
    if name == "members":
        return ", ".join(map(str, virtual.members))
    return str(virtual.parent or "") if name == "parent" else virtual.option(name)


_NO_VLANS = ": make the bond of the NICs, and the VLAN on the bond"
# A bond of InfiniBand links is possible in one mode only, and is not supported.
_ETHERNET_ONLY = ("bond", "bridge", "macvlan")
_NEEDED = {
    "bond": ("mode", "members"),
    "vxlan": ("id",),
    "macvlan": ("parent",),
    "vrf": ("table",),
    "ipoib": ("parent", "pkey"),
}


def incomplete_reason(
    key: LinkKey, virtual: Optional[Virtual], names: Mapping[LinkKey, str] = {}
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
        shown_names = (_shown_link(lower, names) for lower in unfit)
        is_of_vlans = key.kind == "bond" and any(lower.vlan_id for lower in unfit)
        advice = _NO_VLANS if is_of_vlans else ""
        return f"a {key.kind} cannot use {', '.join(shown_names)}{advice}"
    port = next(filter(is_ipoib, lowers), None) if key.kind in _ETHERNET_ONLY else None
    return no_ethernet(port, f"a {key.kind}") if port else None


def _shown_link(link: LinkKey, names: Mapping[LinkKey, str]) -> str:
    return f'"{names[link]}" ({link})' if link in names else str(link)


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
    if virtual.option("stp") == "yes" and delay and int(delay) < MIN_FORWARD_DELAY:
        return f"with stp, forward-delay is at least {MIN_FORWARD_DELAY}"
    return _bond_contradiction(virtual)


def _bond_contradiction(virtual: Virtual) -> Optional[str]:
    mode = virtual.option("mode")
    for name, modes in MODES_BY_OPTION.items():
        defaults = ("", OPTIONS["bond"][name].kernel_default)
        if mode not in modes and virtual.option(name) not in defaults:
            needed = f"{name} needs mode = {modes[0]}"
            return needed if len(modes) == 1 else f"a bond with mode = {mode} cannot have {name}"
    if _is_on(virtual, "arp-interval") and _is_on(virtual, "miimon"):
        return "a bond cannot have both miimon and arp-interval"
    delay = next(filter(partial(_is_on, virtual), DELAYS), "")
    return f"{delay} needs miimon" if delay and not has_miimon(virtual) else None


def has_miimon(virtual: Virtual) -> bool:
    """Whether a bond checks the links of its members, as its delays require (bond_options.c)."""
    interval = virtual.option("miimon") or default_options("bond", virtual).get("miimon")
    return interval not in (None, "0")


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
    return 70 if ":" in virtual.option("local") + virtual.option("remote") else 50
