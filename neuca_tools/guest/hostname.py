"""Sets the host name of the document, and its line in the hosts file."""

# SPDX-License-Identifier: MIT

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from neuca_tools.backends import systemd
from neuca_tools.errors import ApplyError, ManagerError
from neuca_tools.files import as_apply_error, read_bytes, write_files
from neuca_tools.guest import blocks, version1
from neuca_tools.guest.base import Finding, Guest

FILE = Path("/etc/hostname")  # hostname(5)


def apply_hostname(guest: Guest, file: Path = FILE) -> Iterator[Finding]:
    """Set the host name, unless the document has none.

    A name of the platform is usually set by cloud-init, with or without a domain: then it is left
    alone.
    """
    name, config = guest.document.hostname, guest.config
    if name is None:
        return
    platform, now = guest.document.platform, os.uname().nodename
    if platform and platform.hostname == name and _first_label(now) == _first_label(name):
        yield Finding("ok", f'the host name is "{now}", and the platform calls it "{name}"', "name")
        return
    try:
        suffix = "" if set_hostname(name, file) else ", as it was"
        yield Finding("ok", f'the host name is "{name}"{suffix}', "name")
    except ApplyError as error:
        yield Finding("failed", error.text, "name", needs_retry=True)
    address = str(config.loopback_address)
    lines = hosts_lines(name, address) if config.set_loopback_hostname else []
    blocks.edit_file(config.hosts_file, lines, (version1.HOSTS_BEGIN, version1.HOSTS_END))


def set_hostname(name: str, file: Path = FILE) -> bool:
    """Set the host name now and for the next boot; returns whether it changed. Raises ApplyError.

    Without hostnamed, or if it fails, the name is set and the file written directly.
    """
    if is_set(name, file):
        return False
    with suppress(ManagerError):
        systemd.set_hostname(name)
    if not is_set(name, file):
        write_files({file: f"{name}\n".encode()})
        with as_apply_error(f'set the host name "{name}"'):
            socket.sethostname(name)
    return True


def is_set(name: str, file: Path = FILE) -> bool:
    """Whether the kernel and the file for the next boot have this name. Raises ApplyError."""
    with as_apply_error(f'read "{file}"'):
        kept = read_bytes(file) or b""
    return os.uname().nodename == name and kept.decode("utf-8", "replace").split() == [name]


def hosts_lines(name: str, address: str) -> list[str]:
    """One line of hosts(5): the full name, then its first label as an alias.

    None for localhost, which would lead to an address at which its services do not listen.

    >>> hosts_lines("node0.example.org", "127.255.255.1")
    ['127.255.255.1\\tnode0.example.org node0']
    """
    short = _first_label(name)
    if short.lower() == "localhost":
        return []
    return ["\t".join([address, name if short == name else f"{name} {short}"])]


def _first_label(name: str) -> str:
    return name.partition(".")[0]
