"""Every option of the configuration: its field, its default, and its reader with the bounds."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Literal, NamedTuple, Optional

from neuca_tools.documents.neuca import values
from neuca_tools.documents.neuca.values import UnusableError
from neuca_tools.documents.privacy import link_kind
from neuca_tools.errors import ConfigError
from neuca_tools.model import OWN, Fault, LinkRequest
from neuca_tools.model.routing import CHOICES
from neuca_tools.sources.base import Surroundings
from neuca_tools.state.store import Place
from neuca_tools.tuning import arithmetic
from neuca_tools.tuning.allowed_sysctls import key_reason
from neuca_tools.tuning.choice import AUTO, NAME, Choice

_LOOPBACK = IPv4Address("127.255.255.1")


class Config(NamedTuple):
    """Every option with its default. Times are in seconds, `rate` is in bit/s.

    MAC addresses are written `fe:16:3e:00:6d:af`. A request in `links` has a state only if a file
    sets one; `documents.stacking.combine` merges these requests over those of a document.
    """

    set_loopback_hostname: bool = True
    loopback_address: IPv4Address = _LOOPBACK
    ignored_macs: frozenset[str] = frozenset()
    state_directory: Path = Path("/var/lib/neuca")
    run_directory: Path = Path("/run/neuca")
    pid_directory: Path = Path("/var/run")
    pid_file: str = "neucad.pid"
    command_timeout: float = 300.0
    hosts_file: Path = Path("/etc/hosts")
    udev_directory: Path = Path("/etc/udev/rules.d")
    udev_substring: str = "neuca-persistent"
    data_udev_priority: int = 10
    mgmt_udev_priority: int = 15
    networkmanager_directory: Path = Path("/etc/NetworkManager/conf.d")
    networkmanager_profiles: Path = Path("/etc/NetworkManager/system-connections")
    networkd_directory: Path = Path("/etc/systemd/network")
    sysctl_directory: Path = Path("/etc/sysctl.d")
    managers: Literal["auto", "none"] = "auto"
    dhcp_client: str = "auto"
    dhcp_helper: Path = Path("/usr/libexec/neuca-guest-tools/dhcp-helper")
    allow_sysctls: frozenset[str] = frozenset()
    log_directory: Path = Path("/var/log/neuca")
    log_file: str = "neuca-agent.log"
    log_level: str = "DEBUG"
    sources: tuple[str, ...] = ("auto",)
    platform: Literal["dmi", "any"] = "dmi"
    poll_interval: float = 10.0
    timeout: float = 10.0
    management_macs: frozenset[str] = frozenset()
    drift: Literal["report", "enforce"] = "report"
    allow_default_route: bool = False
    policy_routing: Literal["auto", "yes", "no"] = "auto"
    links: tuple[LinkRequest, ...] = ()
    profiles: tuple[str, ...] = (AUTO,)
    rate: Optional[int] = None
    rtt: Optional[float] = None
    profile_directory: Path = Path("/etc/neuca/profiles")
    guest_hostname: bool = True
    guest_router: bool = True
    guest_users: bool = True
    guest_login: Optional[str] = None
    guest_storage: bool = True
    guest_scripts: bool = True
    script_timeout: float = 3600.0
    selftest: Mapping[str, str] = {}
    faults: tuple[Fault, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every value was usable."""
        return not any(fault.severity == "error" for fault in self.faults)

    @property
    def link_faults(self) -> tuple[Fault, ...]:
        """The errors in link sections, as those of a document."""
        errors = (fault for fault in self.faults if fault.severity == "error")
        return tuple(fault for fault in errors if link_kind(fault.section))

    def demand_protection(self) -> None:
        """Raise ConfigError if an option that protects is unusable: nothing new is configured."""
        stopping = [fault.text for fault in self.faults if fault.stops]
        if stopping:
            raise ConfigError(f"nothing new is configured until this is corrected: {stopping[0]}")

    @property
    def choice(self) -> Choice:
        """What `[tuning]` selects: profiles, rate in bit/s, round-trip time in seconds."""
        return Choice(self.profiles, self.rate, self.rtt)

    @property
    def state(self) -> Place:
        """Where state files are stored, and where while the state directory is not writable."""
        return Place(self.state_directory, self.run_directory)

    @property
    def surroundings(self) -> Surroundings:
        """What the sources need to know of their environment."""
        return Surroundings(self.run_directory, self.platform == "dmi")

    @property
    def pid_path(self) -> Path:
        return self.pid_directory / self.pid_file

    @property
    def log_path(self) -> Path:
        return self.log_directory / self.log_file


# --- Readers of single values; each raises UnusableError ------------------------------------------

CLIENT = "dhcpcd"
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
TRUTH = {**dict.fromkeys(_TRUE, True), **dict.fromkeys(_FALSE, False)}
# What useradd(8) accepts on both Debian and Fedora. Such a name is never an option or a path, and
# always a single word in a sudoers file.
LOGIN = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_NAME_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_NO_NAME_PART = 'it is not part of a file name: letters, digits, "_", "." and "-" only'
_LEVELS = ("debug", "info", "warning", "error", "critical")


def _read_truth(text: str) -> bool:
    return TRUTH[values.word(text, TRUTH)]


def _read_path(text: str) -> Path:
    if not text.startswith("/") or not text.isprintable():
        raise UnusableError("it is not an absolute path")
    return Path(text)


def _read_client(text: str) -> str:
    """A word, or the path of a program with the name of the client."""
    if text.startswith("/") and text.isprintable() and Path(text).name == CLIENT:
        return text
    return values.word(text, ("auto", "none", CLIENT))


def _file_name(text: str) -> str:
    if not text.isprintable() or text.endswith("/"):
        raise UnusableError("it is not the name of a file")
    return text


def _read_loopback(text: str) -> IPv4Address:
    address = values.host(text)
    if not isinstance(address, IPv4Address) or address not in IPv4Network("127.0.0.0/8"):
        raise UnusableError("it is not in 127.0.0.0/8")
    return address


def _number_reader(low: int, high: int) -> Callable[[str], int]:
    return lambda text: values.integer(text, low, high)


def _seconds_reader(low: float, high: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        match = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,6})?) *s?", text)
        if not match or not low <= float(match[1]) <= high:
            raise UnusableError(f"it is not a number of seconds from {low:g} to {high:g}")
        return float(match[1])

    return read


def _one_of(*words: str) -> Callable[[str], str]:
    return lambda text: values.word(text, words)


def _read_level(text: str) -> str:
    return values.word(text, _LEVELS).upper()


def _host_sysctls(text: str) -> frozenset[str]:
    """Keys of host-wide sysctls that documents may set, without those that change interfaces."""
    keys = frozenset(map(values.sysctl_key, split_list(text)))
    for key in sorted(keys):
        reason = key_reason(key)
        if OWN in key:
            reason = f"{OWN} does not belong in it"
        if reason:
            raise UnusableError(f'"{values.clip(key)}": {reason}')
    return keys


def _pattern_reader(pattern: re.Pattern[str], reason: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if not pattern.fullmatch(text):
            raise UnusableError(reason)
        return text

    return read


def profile_names(text: str) -> tuple[str, ...]:
    """A comma-separated list of profile names; whether they exist is found out later."""
    for name in split_list(text):
        if not NAME.fullmatch(name):
            wrong = f'"{values.clip(name)}" cannot be the name of a profile'
            raise UnusableError(f'{wrong}: letters, digits, "_" and "-" only')
    return split_list(text)


def split_list(text: str) -> tuple[str, ...]:
    """The entries of a comma-separated list, unchecked."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


OPTIONS: Mapping[tuple[str, str], tuple[str, Callable[[str], object]]] = {
    ("runtime", "set-loopback-hostname"): ("set_loopback_hostname", _read_truth),
    ("runtime", "loopback-address"): ("loopback_address", _read_loopback),
    ("runtime", "state-directory"): ("state_directory", _read_path),
    ("runtime", "run-directory"): ("run_directory", _read_path),
    ("runtime", "pid-directory"): ("pid_directory", _read_path),
    ("runtime", "pid-file"): ("pid_file", _file_name),
    ("runtime", "command-timeout"): ("command_timeout", _seconds_reader(1, 86400)),
    ("runtime", "hosts-file"): ("hosts_file", _read_path),
    ("linux", "udev-directory"): ("udev_directory", _read_path),
    ("linux", "udev-substring"): ("udev_substring", _pattern_reader(_NAME_PART, _NO_NAME_PART)),
    ("linux", "data-udev-priority"): ("data_udev_priority", _number_reader(0, 99)),
    ("linux", "mgmt-udev-priority"): ("mgmt_udev_priority", _number_reader(0, 99)),
    ("linux", "networkmanager-directory"): ("networkmanager_directory", _read_path),
    ("linux", "networkmanager-profiles"): ("networkmanager_profiles", _read_path),
    ("linux", "networkd-directory"): ("networkd_directory", _read_path),
    ("linux", "sysctl-directory"): ("sysctl_directory", _read_path),
    ("linux", "managers"): ("managers", _one_of("auto", "none")),
    ("linux", "dhcp-client"): ("dhcp_client", _read_client),
    ("linux", "dhcp-helper"): ("dhcp_helper", _read_path),
    ("linux", "allow-sysctls"): ("allow_sysctls", _host_sysctls),
    ("logging", "log-directory"): ("log_directory", _read_path),
    ("logging", "log-file"): ("log_file", _file_name),
    ("logging", "log-level"): ("log_level", _read_level),
    ("metadata", "sources"): ("sources", split_list),
    ("metadata", "platform"): ("platform", _one_of("dmi", "any")),
    ("metadata", "poll-interval"): ("poll_interval", _seconds_reader(1, 86400)),
    ("metadata", "timeout"): ("timeout", _seconds_reader(0.1, 300)),
    ("tuning", "profile"): ("profiles", profile_names),
    ("tuning", "rate"): ("rate", arithmetic.parse_rate),
    ("tuning", "rtt"): ("rtt", arithmetic.parse_rtt),
    ("tuning", "profile-directory"): ("profile_directory", _read_path),
    ("guest", "hostname"): ("guest_hostname", _read_truth),
    ("guest", "router"): ("guest_router", _read_truth),
    ("guest", "users"): ("guest_users", _read_truth),
    ("guest", "login"): ("guest_login", _pattern_reader(LOGIN, "it is not a login name")),
    ("guest", "storage"): ("guest_storage", _read_truth),
    ("guest", "scripts"): ("guest_scripts", _read_truth),
    ("guest", "script-timeout"): ("script_timeout", _seconds_reader(1, 86400)),
    ("network", "drift"): ("drift", _one_of("report", "enforce")),
    ("network", "allow-default-route"): ("allow_default_route", _read_truth),
    ("network", "policy-routing"): ("policy_routing", _one_of(*CHOICES)),
}
MAC_LISTS = {
    ("runtime", "dataplane-macs-to-ignore"): "ignored_macs",
    ("network", "management-macs"): "management_macs",
}
# Options of version 1.7 that no longer have an effect. They are accepted with any value, and noted:
# an upgrade must not make a script fail over a configuration that worked before.
OBSOLETE = {
    *(("runtime", option) for option in ("pidfile-timeout", "testing")),
    *(("logging", option) for option in ("log-retain", "log-size", "log-file-size")),
}
KNOWN = frozenset({*OPTIONS, *MAC_LISTS, *OBSOLETE})
# Without them, more would be changed or believed than the administrator permits. The default of
# every other option is the most careful value, or protects nothing.
PROTECTIVE = frozenset(
    {
        *MAC_LISTS,
        ("metadata", "sources"),
        *(("guest", option) for option in ("hostname", "router", "users", "storage", "scripts")),
    }
)
RAW_SECTIONS = ("selftest",)
SECTIONS = ("runtime", "linux", "logging", "metadata", "network", "tuning", "guest", *RAW_SECTIONS)
