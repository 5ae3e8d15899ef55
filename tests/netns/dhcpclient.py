"""dhcpcd in the guest of the laboratory, as the agent starts them; tests/setup.sh unpacks its package."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
from pathlib import Path

from lab import PATIENCE, ROOT
from unpacked import program

PLACE = "usr/sbin/dhcpcd"
# dhcpcd keeps its own files in directories that are compiled in.
WRAPPER = """#!/bin/sh
exec unshare --mount --propagation private sh -ec '
mount -t tmpfs tmpfs /run; mount -t tmpfs tmpfs /var/lib; {before}exec "$0" "$@"' {program} "$@"
"""
HELPER = """#!/bin/sh
PYTHONPATH={root} exec {python} -c 'import sys
from neuca_tools.commands.dhcp_helper import main
sys.exit(main())' "$@"
"""


class Clients:
    """What the agent of a laboratory runs as its DHCP clients; all of them end with `stop`."""

    def __init__(self, lab) -> None:
        self.lab = lab
        self.folder = lab.folder / "run" / "dhcp"
        self.program = lab.folder / "bin" / "dhcpcd"
        self.helper = lab.folder / "bin" / "dhcp-helper"
        self._script(self.helper, HELPER.format(root=ROOT, python=sys.executable))
        self.precede("")

    def precede(self, commands: str) -> None:
        """Have the client run these commands first, with the files that it sees."""
        path = program(PLACE)
        self._script(self.program, WRAPPER.format(program=path, before=commands))

    def _script(self, path: Path, text: str) -> None:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def options(self) -> str:
        return f"[linux]\ndhcp-client = {self.program}\ndhcp-helper = {self.helper}\n"

    def pid(self, label: str) -> int:
        """The process that the agent has started, 0 for none."""
        with contextlib.suppress(FileNotFoundError):
            return int((self.folder / f"{label}.process").read_text().split()[0])
        return 0

    def alive(self, label: str) -> bool:
        stat = Path(f"/proc/{self.pid(label)}/stat")
        return self.pid(label) > 0 and stat.exists() and stat.read_text().split(")")[-1][1] != "Z"

    def lease(self, label: str) -> dict:
        with contextlib.suppress(FileNotFoundError):
            return json.loads((self.folder / f"{label}.lease").read_text())
        return {}

    def reporting(self, label: str) -> bool:
        """Whether the client is telling its helper something."""
        pid = self.pid(label)
        return Path(f"/proc/{pid}/task/{pid}/children").read_text() != ""

    def report(self, label: str, reason: str, **lease: object) -> None:
        """Tell the helper what dhcpcd would (dhcpcd-run-hooks(8)); `lease` has its variables without "new_" or "old_"."""
        which = "old" if reason == "EXPIRE" else "new"
        given = [f"{which}_{name}={value}" for name, value in lease.items()]
        given += [f"reason={reason}", f"NEUCA_DHCP={self.folder}/{label}.json"]
        assert self.lab.run("env", *given, self.helper) == (0, "", "")

    def written(self, label: str) -> int:
        """When the lease was last written, as its time; a client writes it for each answer of its server."""
        return (self.folder / f"{label}.lease").stat().st_mtime_ns

    def end(self, label: str, number: int = signal.SIGKILL) -> None:
        """What a crash does to one. The agent may have started the next one when this returns."""
        handle = os.pidfd_open(self.pid(label))
        signal.pidfd_send_signal(handle, number)
        ended, _, _ = select.select([handle], [], [], PATIENCE)
        os.close(handle)
        assert ended, "the client has not ended"

    def stop(self) -> None:
        if not self.folder.exists():
            return
        for path in self.folder.glob("*.process"):
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                os.kill(int(path.read_text().split()[0]), signal.SIGKILL)
