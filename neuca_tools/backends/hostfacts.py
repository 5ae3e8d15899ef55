"""Reads the facts for tuning: profiles, hypervisor, sysctl.d files and kernel."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from itertools import chain
from pathlib import Path
from typing import Optional, TypeVar

from neuca_tools.backends import sysctl
from neuca_tools.documents.neuca.values import UnusableError
from neuca_tools.files import raise_shortage, read_bytes, readable_paths, text_of
from neuca_tools.model import ADVERTISED, IPV6_MTU, OWN, World
from neuca_tools.model.provenance import ROUTER_SECONDS, is_advertised
from neuca_tools.tuning import environment, layer, sysctld
from neuca_tools.tuning.choice import NAME, Choice
from neuca_tools.tuning.profile import MAX_PROFILE_BYTES, Profile, parse_profile

SHIPPED = Path(__file__).resolve().parents[1] / "profiles"
MODULES = Path("/lib/modules")
MAX_FACT_BYTES = 64 * 1024  # /proc/cpuinfo repeats itself for each processor
# Exists only in the initial network namespace (net/core/sysctl_net_core.c).
OF_FIRST_NAMESPACE = "net/core/netdev_max_backlog"
_Value = TypeVar("_Value")


def read_tuning_inputs(
    choice: Choice, profile_directory: Path, sysctl_directory: Path, changed: Collection[str] = ()
) -> layer.TuningInputs:
    """The profiles of this choice and the facts about the host that decide what applies.

    `changed`: sysctls that may have to be restored. What else sets sysctls is read if there are
    any of them, or any in the profiles.
    """
    profiles, missing = _read_profiles(choice, profile_directory)
    paths = {path for profile in profiles for path in profile.sysctls}
    sysctls = {path: sysctl.read_value(path) for path in (*paths, layer.AVAILABLE, layer.PERMITTED)}
    own = sysctl.read_value(OF_FIRST_NAMESPACE) is None
    facts = layer.Facts(
        environment.detect_environment(
            _known({path: _beginning_of(path) for path in environment.SIGNS})
        ),
        _known(sysctls),
        _known({path: _obstacle_to_write(path, own) for path in paths}),
        existing_sysctl_settings(sysctl_directory) if paths or changed else sysctld.Settings(),
        _memory_bytes(),
        _congestion_modules() if layer.CONGESTION in paths else None,
        own,
    )
    return layer.TuningInputs(tuple(profiles), tuple(missing), facts)


def devices_with_advertised_routes(world: World) -> frozenset[int]:
    """The indexes of the devices on which the kernel takes routes from router advertisements."""
    # It takes them only while a device does not forward. Shortly after the boot, the first
    # advertisement may still be missing, so all such devices count.
    signs = {"accept_ra": "1", "forwarding": "0", "disable_ipv6": "0"}
    learned = {route.index for route in world.routes if is_advertised(route, world)}
    return frozenset(
        device.index
        for device in world.devices.values()
        if device.mac
        and (device.index in learned or not world.is_aged(ROUTER_SECONDS))
        and all(
            sysctl.read_value(f"net/ipv6/conf/{device.name}/{key}") == value
            for key, value in signs.items()
        )
    )


def _read_profiles(choice: Choice, directory: Path) -> tuple[list[Profile], list[str]]:
    """The profiles, an administrator's in place of a shipped one, and why others are unusable."""
    profiles, faults = [], []
    for name in dict.fromkeys(choice.profiles):
        try:
            profiles.append(parse_profile(name, _profile_text(name, directory)))
        except UnusableError as reason:
            faults.append(f'profile "{name}": {reason}')
    return profiles, faults


def _profile_text(name: str, directory: Path) -> str:
    """The text of a profile. Raises UnusableError, and ObserveError for a shortage."""
    for file in (place / f"{name}.conf" for place in (directory, SHIPPED) if NAME.fullmatch(name)):
        try:
            content = read_bytes(file)
        except OSError as error:
            raise_shortage(error, file)
            raise UnusableError(f'cannot read "{file}": {error.strerror}') from None
        if content is not None and len(content) > MAX_PROFILE_BYTES:
            raise UnusableError(f"it is longer than {MAX_PROFILE_BYTES} bytes")
        if content is not None:
            return content.decode("utf-8-sig", "replace")
    # After a mistake only; that saves 1 ms.
    from neuca_tools.documents.spelling import closest_word, with_suggestion

    names = {path.stem for path in chain(directory.glob("*.conf"), SHIPPED.glob("*.conf"))}
    text = f'there is no such profile in "{directory}" or among the profiles of the package'
    raise UnusableError(with_suggestion(text, closest_word(name, names)))


def _known(values: Mapping[str, Optional[_Value]]) -> dict[str, _Value]:
    return {path: value for path, value in values.items() if value is not None}


def _beginning_of(path: str) -> Optional[str]:
    """The beginning of a file, empty for a directory; None if absent or unreadable."""
    try:
        with Path(path).open("rb") as stream:
            return stream.read(MAX_FACT_BYTES).decode("utf-8", "replace")
    except IsADirectoryError:
        return ""
    except OSError as error:
        raise_shortage(error, path)
        return None


def _obstacle_to_write(path: str, own_namespace: bool) -> Optional[layer.Obstacle]:
    """Why this sysctl cannot be written here, not even by root; None if it can."""
    file, reason = sysctl.ROOT / path, "it is read-only here: only the host can set it"
    try:
        if file.stat().st_mode & 0o200 and not os.statvfs(file).f_flag & os.ST_RDONLY:
            return None
    except OSError:
        if not own_namespace:
            return layer.Obstacle("unsupported", "this kernel has no such setting")
        reason = "this network namespace has no such setting; that of the host may have it"
    return layer.Obstacle("not applicable", reason)


def values_without_advertisements(
    world: World, sysctls: Mapping[str, str], sysctl_directory: Path
) -> dict[str, str]:
    """The value that each of `sysctls` that advertisements may set has without one.

    It is what a file of the administrator sets, else that of a new device or, for the MTU of IPv6,
    that of the device.
    """
    values = {path: value for path, value in _new_values(world).items() if path in sysctls}
    if values.items() <= sysctls.items():
        return values
    files = existing_sysctl_settings(sysctl_directory)
    for path in values:
        setting = files.setting(path)
        if setting and setting.value.isdecimal():
            values[path] = setting.value
    return values


def _new_values(world: World) -> dict[str, str]:
    """The values that each device had for these sysctls if it were new."""
    default_by_key = {
        key: sysctl.read_value(key.replace(OWN, "default")) or ADVERTISED[key] for key in ADVERTISED
    }
    return {
        key.replace(OWN, device.name): value
        for device in world.devices.values()
        for key, value in {**default_by_key, IPV6_MTU: str(device.mtu)}.items()
    }


def existing_sysctl_settings(sysctl_directory: Path) -> sysctld.Settings:
    """The settings that the files of sysctl.d(5) make."""
    return sysctld.parse_files(_sysctl_files(sysctl_directory))


def _sysctl_files(directory: Path) -> list[tuple[str, str]]:
    """Path and text of each file that sysctl.d(5) applies, in order, without our own."""
    # The other directories are relative to this one, which tests move.
    root = directory.parent.parent
    directories = [directory, *(root / place for place in sysctld.DIRECTORIES[1:])]
    every = chain.from_iterable(readable_paths(place, "*.conf") for place in directories)
    paths = [str(path) for path in every if path.name != sysctld.OURS]
    ordered = sysctld.order_files([*paths, str(root / sysctld.LAST)])
    texts = ((path, text_of(Path(path))) for path in ordered)
    return [(path, text) for path, text in texts if text]


def _memory_bytes() -> int:
    """The size of the main memory in bytes, 0 if not known."""
    lines = text_of(Path("/proc/meminfo")).splitlines()
    kibibytes = next((line.split()[1] for line in lines if line.startswith("MemTotal:")), "0")
    return int(kibibytes) * 1024


def _congestion_modules() -> Optional[frozenset[str]]:
    """The congestion control algorithms, as modules or built in; None if unknown."""
    place = MODULES / os.uname().release
    files = (place / "modules.dep", place / "modules.builtin")
    lines = [line for file in files for line in text_of(file).splitlines()]
    if not lines:
        return None
    matches = (re.match(r"(?:[^:]*/)?tcp_([^/:]*?)\.ko", line) for line in lines)
    return frozenset(match[1] for match in matches if match)
