"""The table of scalar link settings with their parsers; other stages take all they need from it.

Requests, plan, journal, record, roll-back and status follow from a row; docs/HACKING.md lists what
else a new one consists of. Each parser returns the value in a canonical form, so that equal
requests compare as equal, and raises UnusableError. The sysctls of a link have a table of their own
(`tuning.allowed_sysctls`).
"""

# SPDX-License-Identifier: MIT

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from operator import eq
from typing import Literal, NamedTuple, Optional, Union

from neuca_tools.documents.neuca import values
from neuca_tools.documents.neuca.values import UnusableError
from neuca_tools.model.device_settings import rate_text, rate_value

# CONFIG_NR_CPUS of the largest distribution kernels.
MAX_CPUS = 8192
# A bound of our own; no kernel has as many features.
MAX_OFFLOADS = 64
# The option that each qdisc takes; empty for none.
_QDISCS: Mapping[str, str] = {
    "fq": "maxrate",
    "fq_codel": "",
    "pfifo": "limit",
    "pfifo_fast": "",
    "noqueue": "",
    "default": "",
}
# Rates in bit/s; fq stores bytes/s in 32 bits (TCA_FQ_FLOW_MAX_RATE).
_MIN_RATE, _MAX_RATE = 8000, 34_000_000_000
# The qdisc that the kernel chooses (net.core.default_qdisc); "default KIND" for the present one.
DEFAULT_QDISC = "default"
# The qdiscs that can be restored; bfifo is a kernel default of some devices.
_CREATABLE = (*_QDISCS, "bfifo")
# A link without DNS servers, or without search domains.
NO_DNS = "none"
MAX_DNS = 16  # a bound of our own
LONGEST_DOMAIN = 253  # RFC 1035, 2.3.4
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
# Top-level domains for private use (RFC 6762, appendix G; RFC 8375), but "internal".
_PRIVATE_DOMAINS = frozenset(("intranet", "private", "corp", "home", "lan", "openstacklocal"))
METADATA_NAME = "metadata.google.internal"
_SWITCHES = ("on", "off")
_OFFLOAD = r"[a-z0-9][a-z0-9_-]{0,31}"  # ETH_GSTRING_LEN
IPOIB_MODE, PRIMARY = "infiniband-mode", "bond-primary"
# wol_mode_names of the kernel without magicsecure, which needs a password.
WAKE_ON_LAN = ("phy", "ucast", "mcast", "bcast", "arp", "magic", "filter")


def read_qdisc(text: str) -> str:
    """A queueing discipline as tc(8) writes it, with at most one option."""
    kind, *options = text.lower().split()
    values.word(kind, _QDISCS)
    if not options:
        return kind
    option = _QDISCS[kind]
    if not option:
        raise UnusableError(f'the qdisc "{kind}" takes no option')
    if len(options) != 2 or options[0] != option:
        raise UnusableError(f'the qdisc "{kind}" takes "{option}" and a value')
    if kind == "fq":
        return f"{kind} {option} {_read_rate(options[1])}"
    return f"{kind} {option} {values.integer(options[1], 1, 1000000, 'the limit')}"


def _read_rate(text: str) -> str:
    try:
        rate = rate_value(text)
    except ValueError:
        rate = 0
    if not _MIN_RATE <= rate <= _MAX_RATE:
        bounds = f"{rate_text(_MIN_RATE)} to {rate_text(_MAX_RATE)}"
        raise UnusableError(f'"{values.clip(text)}" is not a rate from {bounds}')
    return rate_text(rate)


def _read_pairs(text: str) -> dict[str, str]:
    """Parse `rx 256, tx 512`: alternating names and values; commas are optional."""
    words = text.lower().replace(",", " ").split()
    if len(words) % 2:
        raise UnusableError(f'"{values.clip(words[-1])}" has no value')
    return dict(zip(words[::2], words[1::2]))


def _read_named(readers: Mapping[str, Callable[[str, str], str]], text: str) -> str:
    """Names, each with a value that its reader takes; readers get the name too."""
    pairs = _read_pairs(text)
    for name, value in pairs.items():
        pairs[name] = readers[values.word(name, readers)](name, value)
    return _join_pairs(pairs)


def _number_or_max(least: int, most: int) -> Callable[[str, str], str]:
    """A reader of a number, or of `max`, the maximum of the device."""
    return lambda name, text: (
        text if text == "max" else str(values.integer(text, least, most, name))
    )


def _read_switch(_: str, text: str) -> str:
    return values.word(text, _SWITCHES)


def _read_offloads(text: str) -> str:
    pairs = _read_pairs(text)
    if len(pairs) > MAX_OFFLOADS:
        raise UnusableError(f"more than {MAX_OFFLOADS} offloads")
    for name, value in pairs.items():
        if not re.fullmatch(_OFFLOAD, name):
            raise UnusableError(f'"{values.clip(name)}" is not the name of an offload')
        values.word(value, _SWITCHES)
    return _join_pairs(pairs)


def _join_pairs(pairs: Mapping[str, str]) -> str:
    return " ".join(f"{name} {pairs[name]}" for name in sorted(pairs))


def read_cpus(text: str) -> str:
    """`all`, `none`, or a list of CPUs as in taskset(1); "/" separates the lists of queues."""
    return " / ".join(_cpu_list(part.strip().lower()) for part in text.split("/"))


def _cpu_list(text: str) -> str:
    if text in ("all", "none"):
        return text
    ranges: set[tuple[int, int]] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        low = values.integer(first, 0, MAX_CPUS - 1, "the CPU")
        high = values.integer(last, low, MAX_CPUS - 1, "the CPU") if dash else low
        ranges.add((low, high))
    return _join_ranges(ranges)


def list_cpus(cpu_numbers: Iterable[int]) -> str:
    """CPUs as the kernel lists them: `0-3,8`; `none` for no CPU."""
    return _join_ranges((number, number) for number in cpu_numbers)


def cpu_numbers(cpus: str) -> set[int]:
    """The numbers of the CPUs in such a list."""
    numbers: set[int] = set()
    for part in cpus.split(","):
        if part not in ("", "none"):
            low, _, high = part.partition("-")
            numbers.update(range(int(low), int(high or low) + 1))
    return numbers


def _join_ranges(ranges: Iterable[tuple[int, int]]) -> str:
    """`list_cpus` for ranges, each with its first and last CPU; they may overlap."""
    merged: list[list[int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1][1] = max(high, merged[-1][1])
        else:
            merged.append([low, high])
    return ",".join(f"{low}-{high}" if low != high else str(low) for low, high in merged) or "none"


def _wake_on_lan(text: str) -> str:
    """`off`, or what wakes the machine up, in the order of the kernel."""
    words = text.lower().replace(",", " ").split()
    for name in words:
        values.word(name, (*WAKE_ON_LAN, "off"))
    if not words or (len(words) > 1 and "off" in words):
        raise UnusableError(f'"{values.clip(text)}" is neither "off" nor a wake-up source')
    return " ".join(name for name in (*WAKE_ON_LAN, "off") if name in words)


def read_nameservers(text: str) -> str:
    """DNS servers, separated by commas or spaces."""
    words = text.replace(",", " ").split()
    if not 0 < len(words) <= MAX_DNS:
        raise UnusableError(f"1 to {MAX_DNS} DNS servers are required")
    hosts = [values.host(word) for word in words]
    for host in hosts:
        if host.is_unspecified or host.is_loopback or host.is_multicast:
            raise UnusableError(f'"{host}" cannot be a DNS server')
    return " ".join(dict.fromkeys(map(str, hosts)))


def read_search_domains(text: str) -> str:
    """Search domains, separated by commas or spaces.

    Every name in such a domain is looked up through the link, so a whole top-level domain is
    refused, and so is what the metadata service is in.
    """
    words = text.lower().replace(",", " ").split()
    if not 0 < len(words) <= MAX_DNS:
        raise UnusableError(f"1 to {MAX_DNS} search domains are required")
    return " ".join(dict.fromkeys(map(_search_domain, words)))


def _search_domain(text: str) -> str:
    domain = text.rstrip(".")
    if len(domain) > LONGEST_DOMAIN or not all(map(_LABEL.fullmatch, domain.split("."))):
        raise UnusableError(f'"{values.clip(text)}" is not a domain')
    if "." not in domain and domain not in _PRIVATE_DOMAINS:
        raise UnusableError(f'"{domain}" is a top-level domain')
    if f".{METADATA_NAME}".endswith(f".{domain}"):
        raise UnusableError(f'"{domain}" contains the name of the metadata service')
    return domain


def _is_default(qdisc: str) -> bool:
    return qdisc.startswith(DEFAULT_QDISC)


def _is_same_qdisc(present: str, wanted: str) -> bool:
    """Whether the device has the qdisc already. "default KIND" matches both "default" and KIND."""
    if _is_default(wanted):
        return _is_default(present)
    return present in (wanted, f"{DEFAULT_QDISC} {wanted}")


def _restorable_qdisc(present: str) -> str:
    """The qdisc to restore: the kernel's default in place of one that we cannot create."""
    return present if present.partition(" ")[0] in _CREATABLE else DEFAULT_QDISC


# --- The table ------------------------------------------------------------------------------------

Through = Literal["link", "qdisc", "ethtool", "files", "attribute", "resolved"]
Limits = tuple[int, int]


class Setting(NamedTuple):
    """One row.

    `limits` are the bounds of a single number, as neuca-user-data(5) has them. `through` names what
    observes and sets it: "link" (an attribute of the same name in `LinkRequest`, `Link`, `Device`
    and `OriginalValues`, set by an operation of its own), or one of the backends in
    `apply.device_io`. `named`: the value consists of several named ones (`rx 256 tx 512`), each a
    setting of its own (`rings.rx`). `same` compares the present value with a wanted one, `restored`
    turns an observed value into one that can be set. `late`: this value can be set only after the
    sysctls. `master`: the kind of virtual link that a device is in to have this setting, which ends
    with that.
    """

    key: str
    parse: Callable[[str], Union[int, str]]
    through: Through
    limits: Optional[Limits] = None
    named: bool = False
    same: Callable[[str, str], bool] = eq
    restored: Callable[[str], str] = str
    late: Callable[[str], bool] = lambda _: False
    master: str = ""


def _number_row(key: str, limits: Limits, through: Through = "files", master: str = "") -> Setting:
    """A row for one number. Through files: that of this name in /sys/class/net/NIC."""
    parse = partial(values.integer, low=limits[0], high=limits[1], what=f"the {key}")
    return Setting(key, lambda text: str(parse(text)), through, limits, master=master)


_CHANNELS = dict.fromkeys(("rx", "tx", "combined"), _number_or_max(1, MAX_CPUS))
_RINGS = dict.fromkeys(("rx", "tx"), _number_or_max(1, 1 << 20))
_COALESCE = {
    **dict.fromkeys(
        ("rx-usecs", "rx-frames", "tx-usecs", "tx-frames"),
        lambda name, text: str(values.integer(text, 0, 1000000, name)),
    ),
    **dict.fromkeys(("adaptive-rx", "adaptive-tx"), _read_switch),
}
_PAUSE = dict.fromkeys(("autoneg", "rx", "tx"), _read_switch)
# In the order in which they are set: those that reset queues come first.
_TABLE = (
    Setting("mtu", values.mtu, "link", values.MTU_LIMITS),
    Setting("txqueuelen", values.txqueuelen, "link", values.TXQUEUELEN_LIMITS),
    Setting(IPOIB_MODE, lambda text: values.word(text, values.IPOIB_MODES), "attribute"),
    # Drivers create at most one queue for each CPU.
    Setting("channels", partial(_read_named, _CHANNELS), "ethtool", named=True),
    # A bound of our own, against typos: drivers report their own maximum.
    Setting("rings", partial(_read_named, _RINGS), "ethtool", named=True),
    Setting("coalesce", partial(_read_named, _COALESCE), "ethtool", named=True),
    Setting("pause", partial(_read_named, _PAUSE), "ethtool", named=True),
    Setting("offloads", _read_offloads, "ethtool", named=True),
    Setting(
        "qdisc",
        read_qdisc,
        "qdisc",
        same=_is_same_qdisc,
        restored=_restorable_qdisc,
        late=_is_default,  # it depends on net.core.default_qdisc
    ),
    Setting("rps", read_cpus, "files"),
    Setting("xps", read_cpus, "files"),
    Setting("nameservers", read_nameservers, "resolved"),
    Setting("search", read_search_domains, "resolved"),
    # In ns. The kernel accepts any; the bound of one second is ours, against typos.
    _number_row("gro_flush_timeout", (0, 1_000_000_000)),
    # S32_MAX: the kernel returns ERANGE above (net/core/net-sysfs.c, Linux 6.13).
    _number_row("napi_defer_hard_irqs", (0, 2_147_483_647)),
    Setting("wake-on-lan", _wake_on_lan, "ethtool"),
    Setting("mac", values.mac, "attribute"),
    # The bounds of the kernel (br_private.h).
    _number_row("path-cost", (1, 65535), "attribute", "bridge"),
    _number_row("port-priority", (0, 63), "attribute", "bridge"),
    Setting(PRIMARY, lambda text: values.word(text, ("yes", "no")), "attribute", master="bond"),
)
SETTINGS: Mapping[str, Setting] = {row.key: row for row in _TABLE}
# The settings with an attribute of their own in the types of links.
ATTRIBUTES: tuple[str, ...] = tuple(row.key for row in _TABLE if row.through == "link")


def group_of(setting: str) -> str:
    """The row of a single setting: `rings` for `rings.rx`."""
    return setting.partition(".")[0]


def row_of(setting: str) -> Optional[Setting]:
    """None for a setting that only another version of the agent has; the record may contain it."""
    return SETTINGS.get(group_of(setting))


def place_of(setting: str) -> str:
    """The kind of link in which a member or port has the setting; empty if anywhere."""
    row = row_of(setting)
    return row.master if row else ""


def is_of_place(setting: str) -> bool:
    """Whether it is a setting of the link's place in a bond or bridge, which ends with that."""
    return bool(place_of(setting))


def groups_through(backend: Through, groups: Iterable[str]) -> list[str]:
    """Those of the groups that this backend observes and sets."""
    return [group for group in groups if group in SETTINGS and SETTINGS[group].through == backend]
