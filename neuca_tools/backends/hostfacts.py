"""What tuning has to know of this host: the profiles, the signs of a hypervisor, the administrator's sysctl files, the kernel."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Optional

from neuca_tools.backends import sysctl
from neuca_tools.files import read_bytes
from neuca_tools.model import World
from neuca_tools.tuning import environment, sysctld
from neuca_tools.tuning.layer import (
    AVAILABLE,
    CONGESTION,
    PERMITTED,
    Choice,
    Facts,
    Obstacle,
    TuningInputs,
    named,
)
from neuca_tools.tuning.profile import LARGEST, NAME, Profile, parse

SHIPPED = Path(__file__).resolve().parents[1] / "profiles"
MODULES = Path("/lib/modules")
ENOUGH = 64 * 1024  # bytes of a sign: /proc/cpuinfo says the same of each processor
OF_FIRST_NAMESPACE = (
    "net/core/netdev_max_backlog"  # no other network namespace has it (net/core/sysctl_net_core.c)
)


def read(choice: Choice, profile_directory: Path, sysctl_directory: Path) -> TuningInputs:
    """The profiles of this choice, and all of the host that they are judged by."""
    profiles, missing = _profiles(choice, profile_directory)
    paths = {path for profile in profiles for path in profile.sysctls}
    found = {path: sysctl.read(path) for path in (*paths, AVAILABLE, PERMITTED)}
    own = sysctl.read(OF_FIRST_NAMESPACE) is None
    obstacles = {path: _obstacle(path, own) for path in paths}
    facts = Facts(
        environment.detect(_signs()),
        {path: value for path, value in found.items() if value is not None},
        {path: one for path, one in obstacles.items() if one},
        sysctld.parse(_sysctl_files(sysctl_directory)),
        _memory(),
        _modules() if CONGESTION in paths else None,
        own,
    )
    return TuningInputs(tuple(profiles), tuple(missing), facts)


def advertised(world: World) -> frozenset[int]:
    """The devices on which the kernel takes routes from router advertisements because they do not forward."""
    signs = {"accept_ra": "1", "forwarding": "0", "disable_ipv6": "0"}
    return frozenset(
        device.index
        for device in world.devices.values()
        if device.mac
        and all(
            sysctl.read(f"net/ipv6/conf/{device.name}/{key}") == value
            for key, value in signs.items()
        )
    )


def _profiles(choice: Choice, directory: Path) -> tuple[list[Profile], list[str]]:
    """The profiles that can be read, the administrator's own before the shipped ones; and why others cannot."""
    profiles, faults = [], []
    for name in named(choice):
        content = _profile_text(name, directory) if NAME.fullmatch(name) else None
        if content is None:
            faults.append(
                f'profile "{name}": there is no such profile, in "{directory}" or among those shipped'
            )
        elif len(content) > LARGEST:
            faults.append(f'profile "{name}": it is longer than {LARGEST} bytes')
        else:
            profiles.append(parse(name, content.decode("utf-8", "replace")))
    return profiles, faults


def _profile_text(name: str, directory: Path) -> Optional[bytes]:
    for place in (directory, SHIPPED):
        with suppress(OSError):
            content = read_bytes(place / f"{name}.conf")
            if content is not None:
                return content
    return None


def _signs() -> dict[str, str]:
    return {path: text for path in environment.SIGNS for text in [_sign(path)] if text is not None}


def _sign(path: str) -> Optional[str]:
    """None where there is none, or where only root may read it."""
    try:
        with Path(path).open("rb") as stream:
            return stream.read(ENOUGH).decode("utf-8", "replace")
    except IsADirectoryError:
        return ""
    except OSError:
        return None


def _obstacle(path: str, own_namespace: bool) -> Optional[Obstacle]:
    """Why this sysctl cannot be written here, whoever tries."""
    file = sysctl.ROOT / path
    try:
        writable = file.stat().st_mode & 0o200 and not os.statvfs(file).f_flag & os.ST_RDONLY
    except OSError:
        if own_namespace:
            return Obstacle(
                "not applicable", "only the first network namespace, that of the host, has it"
            )
        return Obstacle("unsupported", "this kernel has no such setting")
    return (
        None
        if writable
        else Obstacle("not applicable", "it is read-only here: only the host can set it")
    )


def _sysctl_files(directory: Path) -> list[tuple[str, str]]:
    """Every file of sysctl.d(5) that counts but our own, in its order. Where the agent's directory is moved, all are."""
    root = directory.parent.parent
    directories = [directory, *(root / place for place in sysctld.DIRECTORIES[1:])]
    paths = [str(path) for place in directories for path in _listed(place)]
    return [
        (path, text)
        for path in sysctld.order([*paths, str(root / sysctld.LAST)])
        for text in [_sign(path)]
        if text
    ]


def _listed(directory: Path) -> Iterable[Path]:
    try:
        return sorted(
            path
            for path in directory.iterdir()
            if path.suffix == ".conf" and path.name != sysctld.OURS
        )
    except OSError:
        return []


def _memory() -> int:
    """Bytes; 0 if not known."""
    lines = (_sign("/proc/meminfo") or "").splitlines()
    kibibytes = next((line.split()[1] for line in lines if line.startswith("MemTotal:")), "0")
    return int(kibibytes) * 1024


def open_files(choice: Choice) -> list[str]:
    """What a switch in user space lacks for many peers: ovs-vswitchd opens a file for each port and processor (IBM Research)."""
    if "many-peers" not in choice.profiles:
        return []
    pids = [
        pid
        for pid in _listing("/proc")
        if pid.isdecimal() and (_sign(f"/proc/{pid}/comm") or "") == "ovs-vswitchd\n"
    ]
    ports = len(_listing("/sys/class/net"))
    needed = ports * (os.cpu_count() or 1)
    limits = {pid: (_sign(f"/proc/{pid}/limits") or "") for pid in pids}
    found = {
        pid: int(words[3])
        for pid, text in limits.items()
        for words in map(str.split, text.splitlines())
        if words[:3] == ["Max", "open", "files"] and words[3].isdecimal()
    }
    return [
        f"ovs-vswitchd ({pid}) may open {most} files, and {ports} ports on {os.cpu_count()} processors need {needed}: "
        "raise LimitNOFILE= of its service"
        for pid, most in found.items()
        if most < needed
    ]


def _listing(directory: str) -> list[str]:
    try:
        return [path.name for path in Path(directory).iterdir()]
    except OSError:
        return []


def _modules() -> Optional[frozenset[str]]:
    """The congestion control algorithms that are modules of this kernel, built in or not; None if that cannot be read."""
    place = MODULES / os.uname().release
    lists = [
        content
        for name in ("modules.dep", "modules.builtin")
        for content in [_whole(place / name)]
        if content
    ]
    if not lists:
        return None
    names = (
        line.partition(":")[0].rpartition("/")[2].partition(".ko")[0]
        for text in lists
        for line in text.splitlines()
    )
    return frozenset(name[len("tcp_") :] for name in names if name.startswith("tcp_"))


def _whole(path: Path) -> str:
    with suppress(OSError):
        return (read_bytes(path) or b"").decode("utf-8", "replace")
    return ""
