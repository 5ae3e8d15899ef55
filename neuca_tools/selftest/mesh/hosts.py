"""The list of hosts as people write it: on each line a name, an address, and labels."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from neuca_tools.errors import SelftestError, UsageError
from neuca_tools.selftest.mesh.model import MOST_HOSTS, MeshHost, check_host


def read_hosts(text: str) -> tuple[MeshHost, ...]:
    """The hosts in a text such as "node1 172.16.0.1 rack=r1", one on each line.

    Empty lines and what follows a # are ignored. Raises UsageError with the number of the line.
    """
    found: list[MeshHost] = []
    names: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        host = _host(words, number)
        for key in (f'the name "{host.name}"', f"the address {host.address}"):
            if key in names:
                raise _wrong(number, f"{key} is on line {names[key]} too")
            names[key] = number
        found.append(host)
        if len(found) > MOST_HOSTS:
            raise _wrong(number, f"there are more than {MOST_HOSTS} hosts")
    if len(found) < 2:
        raise UsageError("read the hosts: a mesh needs at least two, as NAME ADDRESS on each line")
    return tuple(found)


def _host(words: list[str], number: int) -> MeshHost:
    if len(words) < 2:
        raise _wrong(number, "it is not NAME ADDRESS [LABEL=VALUE …]")
    labels = dict(word.partition("=")[::2] for word in words[2:])
    host = MeshHost(words[0], words[1], labels)
    try:
        check_host(host)
    except SelftestError as error:
        raise _wrong(number, error.text.partition(": ")[2]) from None
    return host


def _wrong(number: int, reason: str) -> UsageError:
    return UsageError(f"read the hosts, line {number}: {reason}")
