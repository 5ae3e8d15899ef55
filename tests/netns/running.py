"""The daemon as a process: started, signalled and ended by its id, its log kept for the test that fails."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import signal
import subprocess

PATIENCE = 120.0  # seconds, as in lab.py


class Daemon:
    """nsenter becomes the daemon, so that the process id is the daemon's own."""

    def __init__(self, command, environment, log):
        self._log = log
        with log.open("ab") as stream:
            self._process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream,
                                             cwd="/")  # fmt: skip
        self.pid = self._process.pid

    @property
    def running(self):
        return self._process.poll() is None

    def log(self):
        return self._log.read_text()

    def signal(self, number):
        self._process.send_signal(number)

    def stop(self):
        """SIGTERM, and the exit code."""
        self._process.terminate()
        return self._process.wait(PATIENCE)

    def close(self):
        if self.running:
            self.signal(signal.SIGKILL)
            self._process.wait(PATIENCE)
