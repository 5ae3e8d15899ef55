"""`ip monitor` in a namespace: every change that the kernel reports, up to a mark that shows that all has been read."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import itertools
import os
import select
import subprocess
import time

PATIENCE = 120.0  # seconds, as in lab.py
MARKS = itertools.count(1)


class Monitor:
    """Ready once it has reported a mark of ours: a blackhole route, which nobody else has."""

    def __init__(self, enter):
        self._enter = enter
        self._seen = []
        self._rest = b""
        self._process = subprocess.Popen([*enter, "ip", "-o", "monitor", "label", "all"],
                                         stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)  # fmt: skip
        self._descriptor = self._process.stdout.fileno()
        self._mark()
        self._seen.clear()

    def close(self):
        self._process.kill()
        self._process.wait(PATIENCE)
        self._process.stdout.close()

    def lines(self, kind=""):
        """All that has changed so far, or all of one kind (`ADDR`, `ROUTE`). Neighbours come and go by themselves."""
        self._mark()
        seen = [
            line
            for line in self._seen
            if "[NEIGH]" not in line and "blackhole 198.51.100." not in line
        ]
        return [line for line in seen if not kind or f"[{kind}]" in line]

    def stir(self, seconds):
        """Until something changes, at most so long."""
        if select.select([self._descriptor], [], [], seconds)[0]:
            self._read()

    def count(self):
        """How many changes were seen so far."""
        return len(self._seen)

    def _mark(self):
        """A monitor that has just been started may miss the first ones."""
        deadline = time.monotonic() + PATIENCE
        while True:
            prefix = f"198.51.100.{next(MARKS) % 256}"
            for verb in ("add", "del"):
                subprocess.run([*self._enter, "ip", "route", verb, "blackhole", prefix], check=True)
            until = time.monotonic() + 0.2
            while time.monotonic() < until:
                self.stir(0.05)
                if any("Deleted" in line and prefix in line for line in self._seen):
                    return
            assert time.monotonic() < deadline, "ip monitor says nothing"

    def _read(self):
        whole, _, self._rest = (self._rest + os.read(self._descriptor, 65536)).rpartition(b"\n")
        self._seen += [line.decode() for line in whole.split(b"\n") if line.strip()]
