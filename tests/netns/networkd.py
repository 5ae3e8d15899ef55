"""systemd-networkd itself in a namespace of the laboratory: the DHCP server outside, or the client in the guest."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

PROGRAM = Path("/lib/systemd/systemd-networkd")
# Read-only, /sys tells it that there is no udev to wait for; Ubuntu's still waits for a record of
# each link, so there are empty ones. It has a /run of its own, and no bus.
SCRIPT = """umount /sys 2> /dev/null || true
mount -t sysfs -o ro sysfs /sys
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/network /run/systemd/netif/links /run/systemd/netif/leases /run/systemd/netif/lldp
mkdir -p /run/udev/data
for index in 1 2 3 4 5 6 7 8 9; do : > "/run/udev/data/n$index"; done
chown -R systemd-network:systemd-network /run/systemd/netif
mount --bind "$1" /run/systemd/network
exec "$0"
"""


class Networkd:
    """The daemon with the files of one directory."""

    def __init__(self, namespace, folder: Path) -> None:
        self.namespace, self.files = namespace, folder / "files"
        self.files.mkdir(parents=True)
        self._process = None

    def write(self, name: str, text: str) -> None:
        (self.files / name).write_text(text)

    def start(self) -> None:
        words = [
            *self.namespace.enter,
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-ec",
        ]
        self._process = subprocess.Popen(
            [*words, SCRIPT, PROGRAM, self.files],
            stderr=(self.files.parent / "log").open("w"),
            env={**os.environ, "SYSTEMD_LOG_LEVEL": "err"},
        )

    def stop(self, restart: bool = False) -> None:
        """End it, as systemd does; with `restart` as before another start (RestartKillSignal= of its unit)."""
        if self._process is not None:
            self._process.send_signal(signal.SIGUSR2 if restart else signal.SIGTERM)
            self._process.wait(60)
            self._process = None

    def kill(self) -> None:
        """Nothing is said of it on the network."""
        self._process.kill()
        self._process.wait(60)
        self._process = None

    def restart(self) -> None:
        self.stop(restart=True)
        self.start()
