"""NetworkManager itself in the guest of the laboratory, on a bus of its own, and the agent run where it can reach both.

It is not installed on the machine, whose NICs it would take over: `setup.sh` unpacks its package into the cache.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

from unpacked import libraries, program

# A veth has no permanent MAC address, so that `mac:` in the agent's conf.d file does not match it. In its place NICs are
# unmanaged by this, which D-Bus overrules as it does the udev property. Read-only, /sys tells that there is no udev.
BASE = """[main]
plugins=keyfile
dns=none
rc-manager=unmanaged
no-auto-default=*
[keyfile]
unmanaged-devices=interface-name:mgmt0
[device-base]
match-device=interface-name:dp*
managed=0
[logging]
level=INFO
"""
BUS = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>session</type><listen>unix:path={0}</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy>
</busconfig>"""
SCRIPT = """umount /sys 2> /dev/null || true
mount -t sysfs -o ro sysfs /sys
mount -t tmpfs tmpfs /run
mkdir -p /run/NetworkManager
mount --bind "$3" /run/NetworkManager
mount -t tmpfs tmpfs /var/lib
mkdir -p /var/lib/NetworkManager /run/empty "$2"
exec "$0" --no-daemon --config="$4" --config-dir="$1" --system-config-dir=/run/empty --intern-config=/run/intern
"""
# What tells the agent that the network of this host is its own: udevd's socket, and that process 1 is in it.
AGENT = """mount -t tmpfs tmpfs /run
mkdir -p /run/udev /run/NetworkManager
: > /run/udev/control
mount --bind "$0" /run/NetworkManager
exec "$@"
"""
PROGRAM = "usr/sbin/NetworkManager"
RUN = "unshare --mount --propagation private sh -ec".split()
RUN_AGENT = "unshare --mount --propagation private --pid --fork --mount-proc sh -ec".split()


class NetworkManager:
    """The daemon; `profiles` is where the agent puts its profiles and NetworkManager reads them."""

    def __init__(self, lab, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        self.profiles, self.conf, self.run = (
            lab.folder / "profiles.nm",
            lab.folder / "nm",
            folder / "run",
        )
        for place in (folder, self.profiles, self.conf, self.run):
            place.mkdir(parents=True, exist_ok=True)
        (folder / "base.conf").write_text(BASE + f"[keyfile]\npath={self.profiles}\n")
        self.socket = folder / "bus"
        (folder / "bus.conf").write_text(BUS.format(self.socket))
        self._bus = subprocess.Popen(
            ["dbus-daemon", f"--config-file={folder / 'bus.conf'}", "--nofork", "--print-address"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._bus.stdout.readline()
        lab.environment["DBUS_SYSTEM_BUS_ADDRESS"] = f"unix:path={self.socket}"
        self._process = None

    def start(self) -> None:
        words = [
            SCRIPT,
            program(PROGRAM),
            self.conf,
            self.profiles,
            self.run,
            self.folder / "base.conf",
        ]
        self._process = subprocess.Popen(
            [*self.lab.guest.enter, *RUN, *map(str, words)],
            stdout=(self.folder / "log").open("a"),
            stderr=subprocess.STDOUT,
            env={**self.lab.environment, **libraries()},
        )
        self.lab.wait("NetworkManager", lambda: "dp1" in self.devices(), 60)

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

    def freeze(self, frozen=True) -> None:
        """From now on it answers nobody, as on a host that is too busy."""
        self._process.send_signal(signal.SIGSTOP if frozen else signal.SIGCONT)

    def say(self, *words, check=False):
        """`nmcli`, as its user types it."""
        found = [f"{name}={value}" for name, value in libraries().items()]
        return self.lab.run("env", *found, program("usr/bin/nmcli"), *words, check=check).out

    def devices(self) -> dict:
        """The state of each device, and the profile that it uses."""
        lines = self.say("-t", "-f", "DEVICE,STATE,CONNECTION", "device").splitlines()
        return {name: tuple(rest) for name, *rest in (line.split(":") for line in lines)}

    def agent(self, *arguments, module="neucad"):
        """The agent as on a host whose udev and managers are its own."""
        self.lab.applied = True
        self.lab.foreign.remember()
        prefix = [*RUN_AGENT, AGENT, str(self.run)]
        return self.lab.command(module, *arguments, prefix=prefix)

    def daemon(self):
        """The daemon on a host whose udev and managers are its own; it ends when it is killed."""
        return self.lab.start(
            *RUN_AGENT[:-2], "--kill-child", *RUN_AGENT[-2:], AGENT, str(self.run)
        )

    def once(self):
        return self.agent("--once", "--config", self.lab.config_file)

    def status(self):
        done = self.agent("status", "--config", self.lab.config_file, "--json", module="neuca")
        return json.loads(done.out)
