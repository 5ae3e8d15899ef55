"""Every option of the configuration: its field, its default, and its reader with the bounds."""

# SPDX-License-Identifier: MIT

import re
from collections.abc import Callable, Mapping
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any, Literal, NamedTuple, Optional

from neuca_tools.documents.neuca import values
from neuca_tools.documents.neuca.values import UnusableError
from neuca_tools.documents.privacy import link_kind
from neuca_tools.errors import ConfigError
from neuca_tools.model import OWN, Fault, LinkRequest
from neuca_tools.model.routing import CHOICES
from neuca_tools.sources.base import Surroundings
from neuca_tools.state.store import StateDirectories
from neuca_tools.tuning import arithmetic
from neuca_tools.tuning.allowed_sysctls import key_reason
from neuca_tools.tuning.choice import AUTO, NAME, Choice

# --- Readers of single values; each raises UnusableError ------------------------------------------

CLIENT = "dhcpcd"
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
TRUTH = {**dict.fromkeys(_TRUE, True), **dict.fromkeys(_FALSE, False)}
# What useradd(8) accepts on both Debian and Fedora. Such a name is never an option or a path, and
# always a single word in a sudoers file.
LOGIN = r"[a-z_][a-z0-9_-]{0,31}"
_NAME_PART = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}"
_PASTED = re.compile(r"""["'`<>&\u2018-\u201f]|\s#""")
_LEVELS = ("debug", "info", "warning", "error", "critical")


def _read_truth(text: str) -> bool:
    return TRUTH[values.word(text, TRUTH)]


def _read_path(text: str) -> Path:
    if not text.startswith("/") or not text.isprintable():
        raise UnusableError("it is not an absolute path")
    _refuse_pasted(text)
    return Path(text)


def _refuse_pasted(text: str) -> None:
    """Raise UnusableError for the name of a file with what was pasted with it."""
    if _PASTED.search(text):
        raise UnusableError("it has a quotation mark, markup or a comment")


def _read_client(text: str) -> str:
    """A word, or the path of a program with the name of the client."""
    if text.startswith("/") and text.isprintable() and Path(text).name == CLIENT:
        return text
    try:
        return values.word(text, ("auto", "none", CLIENT))
    except UnusableError as reason:
        raise UnusableError(f"{reason}, nor the path of {CLIENT}", reason.unknown) from None


def _file_name(text: str) -> str:
    if not text.isprintable() or text.endswith("/"):
        raise UnusableError("it is not the name of a file")
    _refuse_pasted(text)
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
        reason = f"{OWN} does not belong in it" if OWN in key else key_reason(key)
        if reason:
            raise UnusableError(f'"{values.clip(key)}": {reason}')
    return keys


def _read_name_part(text: str) -> str:
    if not re.fullmatch(_NAME_PART, text):
        raise UnusableError('it is not part of a file name: letters, digits, "_", "." and "-" only')
    return text


def _read_login(text: str) -> str:
    if not re.fullmatch(LOGIN, text):
        raise UnusableError("it is not a login name")
    return text


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


# --- The options ----------------------------------------------------------------------------------


_DECLARED: list[tuple[str, Callable[[str], object], str]] = []


def _option(
    section: str, read: Callable[[str], object], default: Optional[str], name: str = ""
) -> Any:  # noqa: ANN401 - what `read` returns
    """Declare the option of a field, and return the field's default.

    `default` is text as in a file; None: not set. The option has the name of the field, without
    the section, unless it has another `name`.
    """
    _DECLARED.append((section, read, name))
    return None if default is None else read(default)


class Config(NamedTuple):
    """Every option with its default, in the order of `_DECLARED`, then what `config.load` fills in.

    `platform`: `auto` in `sources` stands for the services that the firmware names (`dmi`), or for
    OpenStack and EC2 (`any`). Times are in seconds, `rate` is in bit/s. MAC addresses are written
    `fe:16:3e:00:6d:af`. A request in `links` has a state only if a file sets one;
    `documents.stacking.merge_layers` merges these requests over those of a document.
    """

    set_loopback_hostname: bool = _option("runtime", _read_truth, "yes")
    loopback_address: IPv4Address = _option("runtime", _read_loopback, "127.255.255.1")
    state_directory: Path = _option("runtime", _read_path, "/var/lib/neuca")
    run_directory: Path = _option("runtime", _read_path, "/run/neuca")
    pid_directory: Path = _option("runtime", _read_path, "/var/run")
    pid_file: str = _option("runtime", _file_name, "neucad.pid")
    command_timeout: float = _option("runtime", _seconds_reader(1, 86400), "300")
    hosts_file: Path = _option("runtime", _read_path, "/etc/hosts")
    udev_directory: Path = _option("linux", _read_path, "/etc/udev/rules.d")
    udev_substring: str = _option("linux", _read_name_part, "neuca-persistent")
    data_udev_priority: int = _option("linux", _number_reader(0, 99), "10")
    mgmt_udev_priority: int = _option("linux", _number_reader(0, 99), "15")
    networkmanager_directory: Path = _option("linux", _read_path, "/etc/NetworkManager/conf.d")
    networkmanager_profiles: Path = _option(
        "linux", _read_path, "/etc/NetworkManager/system-connections"
    )
    networkd_directory: Path = _option("linux", _read_path, "/etc/systemd/network")
    sysctl_directory: Path = _option("linux", _read_path, "/etc/sysctl.d")
    managers: Literal["auto", "none"] = _option("linux", _one_of("auto", "none"), "auto")
    dhcp_client: str = _option("linux", _read_client, "auto")
    dhcp_helper: Path = _option("linux", _read_path, "/usr/libexec/neuca-guest-tools/dhcp-helper")
    allow_sysctls: frozenset[str] = _option("linux", _host_sysctls, "")
    log_directory: Path = _option("logging", _read_path, "/var/log/neuca")
    log_file: str = _option("logging", _file_name, "neuca-agent.log")
    log_level: str = _option("logging", _read_level, "debug")
    sources: tuple[str, ...] = _option("metadata", split_list, "auto")
    platform: Literal["dmi", "any"] = _option("metadata", _one_of("dmi", "any"), "dmi")
    poll_interval: float = _option("metadata", _seconds_reader(1, 86400), "10")
    timeout: float = _option("metadata", _seconds_reader(0.1, 300), "10")
    profiles: tuple[str, ...] = _option("tuning", profile_names, AUTO, "profile")
    rate: Optional[int] = _option("tuning", arithmetic.parse_rate, None)
    rtt: Optional[float] = _option("tuning", arithmetic.parse_rtt, None)
    profile_directory: Path = _option("tuning", _read_path, "/etc/neuca/profiles")
    guest_hostname: bool = _option("guest", _read_truth, "yes")
    guest_router: bool = _option("guest", _read_truth, "yes")
    guest_users: bool = _option("guest", _read_truth, "yes")
    guest_login: Optional[str] = _option("guest", _read_login, None)
    guest_storage: bool = _option("guest", _read_truth, "yes")
    guest_scripts: bool = _option("guest", _read_truth, "yes")
    script_timeout: float = _option("guest", _seconds_reader(1, 86400), "3600")
    drift: Literal["report", "enforce"] = _option("network", _one_of("report", "enforce"), "report")
    allow_default_route: bool = _option("network", _read_truth, "no")
    policy_routing: Literal["auto", "yes", "no"] = _option("network", _one_of(*CHOICES), "auto")
    ignored_macs: frozenset[str] = frozenset()
    management_macs: frozenset[str] = frozenset()
    links: tuple[LinkRequest, ...] = ()
    selftest: Mapping[str, str] = {}
    faults: tuple[Fault, ...] = ()

    @property
    def is_complete(self) -> bool:
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
    def state(self) -> StateDirectories:
        """Where state files are stored, and where while the state directory is not writable."""
        return StateDirectories(self.state_directory, self.run_directory)

    @property
    def surroundings(self) -> Surroundings:
        """What the sources need to know of their environment."""
        return Surroundings(self.run_directory, self.platform == "dmi")

    @property
    def pass_lock(self) -> Path:
        """The file that a pass, and whatever else changes the network, holds a lock on."""
        return self.run_directory / "lock"

    @property
    def daemon_lock(self) -> Path:
        """The file that the daemon holds a lock on, and leaves when it ends."""
        return self.run_directory / "neucad.lock"

    @property
    def pid_path(self) -> Path:
        return self.pid_directory / self.pid_file

    @property
    def log_path(self) -> Path:
        return self.log_directory / self.log_file


OPTIONS: Mapping[tuple[str, str], tuple[str, Callable[[str], object]]] = {
    (section, name or field.removeprefix(f"{section}_").replace("_", "-")): (field, read)
    for field, (section, read, name) in zip(Config._fields, _DECLARED)
}
"""The field and the reader of each option, by section and name."""
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
# every other option is the most careful value, or changes nothing beyond the requests. A DHCP
# client that an earlier version knew must not stop an upgrade.
PROTECTIVE = {
    *MAC_LISTS,
    ("linux", "managers"),
    ("metadata", "sources"),
    *(("guest", option) for option in ("hostname", "router", "users", "storage", "scripts")),
}
RAW_SECTIONS = ("selftest",)
SECTIONS = ("runtime", "linux", "logging", "metadata", "network", "tuning", "guest", *RAW_SECTIONS)
