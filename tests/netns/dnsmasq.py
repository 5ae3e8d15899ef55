"""dnsmasq as DHCPv6 server and router outside of the laboratory's guest; tests/setup.sh unpacks its package."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from unpacked import libraries, program

BASE = """port=0
no-resolv
no-hosts
bind-dynamic
interface={interface}
dhcp-authoritative
enable-ra
dhcp-leasefile={folder}/leases
pid-file={folder}/pid
user=root
group=root
log-facility={folder}/log
log-dhcp
"""


class Dnsmasq:
    """The server on one interface, with more lines of its configuration."""

    def __init__(self, namespace, folder: Path, interface: str = "dp1") -> None:
        self.namespace, self.folder, self.interface = namespace, folder, interface
        self._process = None

    def start(self, *lines: str) -> None:
        conf = self.folder / "conf"
        base = BASE.format(interface=self.interface, folder=self.folder)
        conf.write_text(base + "\n".join(lines) + "\n")
        self._process = subprocess.Popen(
            [
                *self.namespace.enter,
                program("usr/sbin/dnsmasq"),
                "--keep-in-foreground",
                f"--conf-file={conf}",
            ],
            env={**os.environ, **libraries()},
        )

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(60)
            self._process = None
