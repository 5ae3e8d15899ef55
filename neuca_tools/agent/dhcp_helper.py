"""The helper of the DHCP clients: their command lines, and what becomes of what they report."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from neuca_tools.backends import dhcplease
from neuca_tools.backends.dhcpclients import (
    GONE,
    LARGEST,
    PATH,
    end,
    forget,
    mark_process,
    noted_process,
    process_note,
)
from neuca_tools.errors import ApplyError, ObserveError
from neuca_tools.files import applying, read_bytes, write_files

FILE = "NEUCA_DHCP"  # the variable with the path of the request
ACCEPTED = ("BOUND", "RENEW", "REBIND", "REBOOT")
LOST = ("EXPIRE", "FAIL", "NAK", "RELEASE")
ENDS = 8.0  # seconds that a client gets to give up its lease
# Nothing is asked of the server that is not used: neither DNS servers nor a host name.
DHCLIENT = """option rfc3442-classless-static-routes code 121 = array of unsigned integer 8;
request subnet-mask, routers, interface-mtu, rfc3442-classless-static-routes;
timeout 60;
retry 30;
"""
DHCPCD = """option subnet_mask, routers, classless_static_routes, interface_mtu
nohook resolv.conf, hostname, timezone, ntp.conf, yp.conf
ipv4only
noipv4ll
nogateway
persistent
"""
# The profile of Debian for dhclient knows the paths of ifupdown and NetworkManager only.
_CONFINED = (Path("/proc/self/attr/apparmor/exec"), Path("/proc/self/attr/exec"))


def become(path: Path, is_plain: bool) -> None:
    """Run the client in place of this process. Raises ApplyError.

    `is_plain`: it is no unit of systemd, and is known by its process.
    """
    if is_plain:
        mark_process(path, os.getpid())
    request = _request(path)
    words = _prepared(path, request)
    write_files({path.with_suffix(".pid"): process_note(os.getpid())})
    _unconfine()
    with applying(f'run "{words[0]}"'):
        os.execve(words[0], words, _environment(path))


def give_up(path: Path) -> None:
    """Have the client tell its server, if the request was withdrawn, and remove what it has set.

    A client that is only started again keeps its lease. Raises ApplyError.
    """
    gone = path.with_suffix(GONE)
    if not gone.exists():
        return
    request = _request(gone)
    words = _prepared(gone, request)
    if _is_dhclient(request):
        _unconfine()
        import subprocess

        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                [*words[:1], "-r", *words[1:]], check=False, timeout=ENDS, env=_environment(gone)
            )
    else:
        _release(gone)
    forget(gone)


def hear(environment: Mapping[str, str]) -> None:
    """What the client reports: a lease, or that it has lost it. Raises ApplyError."""
    path, reason = Path(environment[FILE]), environment.get("reason", "")
    place = path.with_suffix(dhcplease.LEASE)
    if reason in ACCEPTED and path.exists():
        try:
            dhcplease.accept(environment, _request(path), place)
        except ObserveError as error:
            raise ApplyError(error.text) from error
    elif reason in LOST:
        dhcplease.drop(place)


def _request(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_bytes(path, LARGEST) or b"")
    except (OSError, ValueError) as error:
        raise ApplyError(f'read "{path}": {error}') from error
    if not isinstance(found, dict):
        raise ApplyError(f'read "{path}": it has no request')
    return found


def _environment(path: Path) -> dict[str, str]:
    return {"PATH": PATH, FILE: str(path)}


def _is_dhclient(request: Mapping[str, Any]) -> bool:
    return Path(str(request["program"])).name == "dhclient"


def _prepared(path: Path, request: Mapping[str, Any]) -> list[str]:
    """The command line of the client, whose configuration is written. Raises ApplyError."""
    program, interface = str(request["program"]), str(request["interface"])
    conf, name = path.with_suffix(".conf"), str(request["hostname"])
    if _is_dhclient(request):
        sent = f'"{name}"' if name else "gethostname()"
        more = "" if name == "-" else f"send host-name = {sent};\n"
        write_files({conf: (DHCLIENT + more).encode()})
        words = [program, "-4", "-d", "-q", "-cf", str(conf), "-sf", str(request["helper"])]
        words += ["-lf", str(path.with_suffix(".leases")), "-pf", str(path.with_suffix(".pid"))]
        return [*words, "-e", f"{FILE}={path}", interface]
    more = "" if name == "-" else f"hostname {name}\n"
    write_files({conf: (DHCPCD + more).encode()})
    words = [program, "-4", "-B", "-q", "--noconfigure", "-f", str(conf)]
    return [*words, "-c", str(request["helper"]), "-e", f"{FILE}={path}", interface]


def _release(gone: Path) -> None:
    """SIGALRM has dhcpcd release its lease and end (dhcpcd(8), --release)."""
    pid = noted_process(gone.with_suffix(".pid"))
    if pid:
        end(pid, signal.SIGALRM, ENDS)


def _unconfine() -> None:
    """Keep AppArmor from confining the client: its files are where its profile has none."""
    for path in _CONFINED:
        with suppress(OSError):
            path.write_text("exec unconfined")
            return
