"""systemd-resolved itself in a namespace of the laboratory, on a bus of its own.

It is not installed on the machine, whose names it would take over: tests/setup.sh unpacks its package.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from unpacked import libraries, program

PROGRAM = "usr/lib/systemd/systemd-resolved"
# With the number of nobody: the bus takes no connection of a user that the machine does not have.
USER = "systemd-resolve:x:65534:"
BUS = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:path={0}/bus</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/>
    <allow own="*"/><allow user="*"/>
  </policy>
</busconfig>
"""
# Its user need not exist on the machine; it has a /run of its own.
SCRIPT = """cp /etc/passwd /etc/group "$1"
echo "${2}65534::/:/usr/sbin/nologin" >> "$1/passwd"
echo "$2" >> "$1/group"
mount --bind "$1/passwd" /etc/passwd
mount --bind "$1/group" /etc/group
umount /sys 2> /dev/null || true
mount -t sysfs -o ro sysfs /sys
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/resolve /run/systemd/netif/links /run/systemd/resolved.conf.d
cp "$1/host.conf" /run/systemd/resolved.conf.d
chown -R 65534:65534 /run/systemd/resolve
exec "$0"
"""


class Resolved:
    """The daemon in a namespace, with its bus at `address`; `host.conf` in `folder` configures it."""

    def __init__(self, namespace, folder: Path) -> None:
        folder.mkdir()
        (folder / "bus.conf").write_text(BUS.format(folder))
        self.namespace, self.folder = namespace, folder
        self.address = f"unix:path={folder}/bus"
        (folder / "host.conf").touch()
        self._bus = subprocess.Popen(
            ["dbus-daemon", f"--config-file={folder}/bus.conf", "--nofork", "--print-address=1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._bus.stdout.readline()
        # The daemon is another user then.
        (folder / "bus").chmod(0o777)
        for place in (folder, *folder.parents):
            if place.stat().st_uid == os.geteuid() and place != Path("/"):
                place.chmod(place.stat().st_mode | 0o011)
        self._process = None

    def start(self) -> None:
        words = [*self.namespace.enter, "unshare", "--mount", "--propagation", "private"]
        self._process = subprocess.Popen(
            [*words, "sh", "-ec", SCRIPT, program(PROGRAM), self.folder, USER],
            stderr=(self.folder / "log").open("w"),
            env={**os.environ, **libraries(), "DBUS_SYSTEM_BUS_ADDRESS": self.address},
        )

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(60)
            self._process = None

    def close(self) -> None:
        self.stop()
        self._bus.terminate()
        self._bus.wait(60)
        self._bus.stdout.close()
