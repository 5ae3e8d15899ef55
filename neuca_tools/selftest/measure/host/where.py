"""The network namespace to test from: one with a name, or that of a container."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from pathlib import Path

from neuca_tools.errors import SelftestError, UsageError
from neuca_tools.selftest.measure.program import Program

NAMED = Path("/run/netns")  # ip-netns(8)
ENGINES = ("docker", "podman")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


def named(name: str) -> Path:
    """The file of a namespace made by `ip netns add`. Raises UsageError."""
    if not NAME.fullmatch(name):
        raise UsageError(f'--netns "{name}": it is not a valid name of a network namespace')
    return NAMED / name


def of_container(name: str) -> Path:
    """The file of the network namespace of a running docker or podman container.

    No program is needed in the container. Raises UsageError, SelftestError.
    """
    if not NAME.fullmatch(name):
        raise UsageError(f'--container "{name}": it is not a valid name of a container')
    reasons = []
    for engine in ENGINES:
        try:
            program = Program([engine, "inspect", "--format", "{{.State.Pid}}", name])
        except OSError as error:
            reasons.append(f"{engine}: {error.strerror}")
            continue
        said = program.finish()
        process = said.out.strip().decode("ascii", "replace")
        if said.code == 0 and process.isdecimal() and process != "0":
            return Path("/proc") / process / "ns" / "net"
        reason = said.error.decode("utf-8", "replace").strip()[:200]
        reasons.append(f"{engine}: {reason or 'it does not run'}")
    raise SelftestError(f'enter the container "{name}": {"; ".join(reasons)}')
