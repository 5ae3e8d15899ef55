"""What the daemon costs while it has nothing to do: memory, wake-ups, file descriptors; and whether passes make it grow.

It reports each pass to NOTIFY_SOCKET as to systemd, which is how the bench knows that one is over. Memory is that of
/proc/PID/status and smaps_rollup; wake-ups are the voluntary context switches of /proc/PID/status over some seconds.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import re
import select
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import bench_host as host
from bench_speed import Unmeasured

NICS = 4
SELDOM, OFTEN = 86400, 1  # seconds between polls
WINDOW = 10  # seconds to count wake-ups in
MOMENT = 0.5  # seconds
EARLY = 20  # passes after which memory is taken for settled
PATIENCE = 30.0  # seconds for one pass


@dataclass
class Idle:
    """Memory in KiB. `growth` is of the exact resident size, from `EARLY` passes on, for each 100 of them."""

    rss: int = 0
    pss: int = 0
    growth: float = 0.0
    passes: int = 0
    wakeups: int = 0
    wakeups_a_poll: float = 0.0
    descriptors: int = 0
    descriptors_after: int = 0


class Daemon:
    """A neucad that runs, and what /proc says of it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._news = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        (directory / "notify").unlink(missing_ok=True)  # the one before it had its own
        self._news.bind(str(directory / "notify"))
        environment = {**host.environment(directory), "NOTIFY_SOCKET": str(directory / "notify")}
        with (directory / "log").open("w") as log:
            command = [*host.NEUCAD, "--config", str(directory / "config")]
            self._process = subprocess.Popen(command, cwd=directory, stderr=log, env=environment)
        self._proc = Path("/proc") / str(self._process.pid)

    def wait_for_pass(self, words: str = "STATUS=ok") -> None:
        """Until it reports the end of a pass."""
        deadline = time.monotonic() + PATIENCE
        while select.select([self._news], [], [], max(0.0, deadline - time.monotonic()))[0]:
            if words in self._news.recv(4096).decode():
                return
        raise Unmeasured(
            f"no pass within {PATIENCE:g} s; the log ends: {(self.directory / 'log').read_text()[-300:]}"
        )

    def reload(self) -> None:
        """SIGHUP: have it read its configuration and its document, and make a pass."""
        self._process.send_signal(signal.SIGHUP)
        self.wait_for_pass()

    def wakeups(self) -> int:
        """Within the next seconds, in which it has nothing to report. It gets a moment to fall asleep first."""
        while select.select([self._news], [], [], MOMENT)[0]:
            self._news.recv(
                4096
            )  # what it still says of the start: that a source has confirmed the document
        before = self._switches()
        self._silence(WINDOW)
        return self._switches() - before

    def _silence(self, seconds: float) -> None:
        if select.select([self._news], [], [], seconds)[0]:
            raise Unmeasured(f"a pass that nobody asked for: {self._news.recv(4096).decode()}")

    def memory(self) -> tuple[int, int, int]:
        """VmRSS, the exact resident size, and the proportional share (PSS), in KiB."""
        rollup = (self._proc / "smaps_rollup").read_text()
        return self._status("VmRSS"), _number("Rss", rollup), _number("Pss", rollup)

    def descriptors(self) -> int:
        return len(os.listdir(self._proc / "fd"))  # noqa: PTH208 - only their number

    def stop(self) -> None:
        self._process.terminate()
        if self._process.wait(PATIENCE) != 0:
            raise Unmeasured("neucad did not stop with exit status 0")

    def _switches(self) -> int:
        return self._status("voluntary_ctxt_switches")

    def _status(self, name: str) -> int:
        return _number(name, (self._proc / "status").read_text())


def measure(passes: int, directory: Path) -> Idle:
    """Raises Unmeasured."""
    host.forget(directory)
    host.make_taps(NICS)
    host.configure(directory, SELDOM)
    (directory / "document").write_text(host.document(NICS))
    daemon, idle = Daemon(directory), Idle(passes=passes)
    daemon.wait_for_pass()
    idle.wakeups = daemon.wakeups()
    idle.rss, _, idle.pss = daemon.memory()
    idle.descriptors = daemon.descriptors()
    sizes = [
        daemon.memory()[1],
        *(_resident_after_pass(daemon, number) for number in range(passes)),
    ]
    settled = min(EARLY, passes // 2)
    idle.growth = (sizes[-1] - sizes[settled]) * 100 / max(1, passes - settled)
    idle.wakeups += daemon.wakeups()
    idle.descriptors_after = daemon.descriptors()
    host.configure(directory, OFTEN)
    daemon.reload()
    idle.wakeups_a_poll = daemon.wakeups() * OFTEN / WINDOW
    daemon.stop()
    return idle


def _resident_after_pass(daemon: Daemon, number: int) -> int:
    """KiB, after one pass more, made because a NIC has come or gone; SIGHUP would read the configuration, too."""
    host.run_ip("tuntap", "del" if number % 2 else "add", "dev", "passer-by", "mode", "tap")
    daemon.wait_for_pass()
    return daemon.memory()[1]


def _number(name: str, text: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+)", text, re.MULTILINE)
    if found is None:
        raise Unmeasured(f"this kernel does not say {name} of a process")
    return int(found[1])
