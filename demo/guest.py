"""Runs neucad with its configuration, and the metadata service that serves its document."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Optional

import lab
from lab import WORK

CHECKOUT = Path(__file__).resolve().parents[1]
LOG = WORK / "neucad.log"
RULES = WORK / "etc/udev/rules.d"

# All directories to which neucad writes are inside of WORK, not the host's own.
CONFIGURATION = f"""\
[runtime]
dataplane-macs-to-ignore = {lab.IGNORED}
state-directory = {WORK}/state
run-directory = {WORK}/run
pid-directory = {WORK}
hosts-file = {WORK}/etc/hosts
[linux]
managers = none
udev-directory = {RULES}
networkmanager-directory = {WORK}/etc/NetworkManager/conf.d
networkd-directory = {WORK}/etc/systemd/network
sysctl-directory = {WORK}/etc/sysctl.d
[logging]
log-directory = {WORK}/log
log-level = info
[metadata]
sources = ec2
poll-interval = 1
[tuning]
profile = none
"""

DOCUMENT = """\
[interfaces]
fe163e006da1 = up:ipv4:172.16.0.1/24
fe163e006da2 = up:ipv6:fd00:16::1/64
fe163e006da3 = up:ipv4:172.16.3.1/24

[interface fe163e006da1]
mtu = 9000
txqueuelen = 10000

[routes]
10.20.0.0/16 = 172.16.0.254
"""
VLAN = """
[vlan fe163e006da1.1445]
addresses = 10.14.45.1/24
mtu = 8000
"""
CHANGES = (
    ("172.16.0.1/24", "172.16.0.2/24"),
    ("[routes]\n", "[interface fe163e006da2]\nmtu = 4000\n\n[routes]\n"),
)

# Like the scripts that pip writes for the entry points of setup.cfg.
LAUNCHER = """\
#!/usr/bin/python3
import sys
from neuca_tools.commands.{0} import main
sys.exit(main())
"""


class Guest:
    """Puts `neuca` and `neucad` of the checkout on the PATH, and starts the metadata service."""

    def __init__(self, vlan: bool) -> None:
        self.publish(DOCUMENT + (VLAN if vlan else ""))
        (WORK / "config").write_text(CONFIGURATION)
        (WORK / "bin").mkdir()
        for program in ("neuca", "neucad"):
            launcher = WORK / "bin" / program
            launcher.write_text(LAUNCHER.format(program))
            launcher.chmod(0o755)
        os.environ.update(
            PATH=f"{WORK}/bin:{os.environ['PATH']}",
            PYTHONPATH=str(CHECKOUT),
            PYTHONPYCACHEPREFIX=f"{WORK}/cache",
        )
        server = [
            sys.executable,
            "-B",
            str(CHECKOUT / "demo/metadata_server.py"),
            str(WORK / "user-data"),
        ]
        self._server = subprocess.Popen(
            ["ip", "netns", "exec", "cloud", *server], stdout=subprocess.PIPE, bufsize=0
        )
        if self._server.stdout is None or self._server.stdout.readline() != b"ready\n":
            sys.exit("the metadata service did not start")
        self._requests = self._server.stdout
        self._neucad: Optional[subprocess.Popen[bytes]] = None

    def publish(self, document: str) -> None:
        """Have the metadata service serve this document from now on."""
        self.document = document
        (WORK / "user-data.new").write_text(document)
        (WORK / "user-data.new").rename(WORK / "user-data")

    def start_neucad(self) -> None:
        with LOG.open("wb") as log:
            self._neucad = subprocess.Popen(["neucad", "--config", "config"], cwd=WORK, stderr=log)

    def stop_neucad(self) -> int:
        """Stop neucad and return its exit status, -1 if it was not started."""
        if self._neucad is None:
            return -1
        self._neucad.terminate()
        return self._neucad.wait(lab.PATIENCE)

    def wait_for_polls(self, number: int) -> None:
        """Wait until neucad has requested the document this many more times."""
        os.set_blocking(self._requests.fileno(), False)
        self._requests.readall()
        os.set_blocking(self._requests.fileno(), True)
        while number:
            line = self._requests.readline()
            if not line:
                sys.exit("the metadata service has ended")
            number -= line == b"GET /latest/user-data 200\n"
