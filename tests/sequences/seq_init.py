#!/usr/bin/python3 -B
"""Process 1 of a user-mode Linux guest: mounts, the modules of links, then a command; its output is the console's."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import ctypes
import os
import shlex
import subprocess
import sys
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
MOUNTS = (("proc", "/proc"), ("sysfs", "/sys"), ("tmpfs", "/run"), ("tmpfs", "/mnt"), ("tmpfs", "/tmp"))  # fmt: skip
MODULES = (
    "lib/crc-ccitt", "net/ipv6/ipv6", "net/llc/llc", "net/802/stp", "net/802/garp", "net/802/mrp", "net/8021q/8021q",
    "net/bridge/bridge", "drivers/net/veth", "drivers/net/macvlan", "drivers/net/vrf", "drivers/net/bonding/bonding",
    "net/ipv4/udp_tunnel", "net/ipv6/ip6_udp_tunnel", "drivers/net/vxlan/vxlan")  # fmt: skip
OPTIONS = {"drivers/net/bonding/bonding": b"max_bonds=0"}
FINIT_MODULE = 313  # x86-64
POWER_OFF = 0x4321FEDC  # linux/reboot.h


def insert(folder, name):
    """A module, if the kernel does not have it built in."""
    for path in folder.glob(f"{name}.ko*"):
        with path.open("rb") as file:
            if LIBC.syscall(FINIT_MODULE, file.fileno(), OPTIONS.get(name, b""), 0):
                print(f"{path}: {os.strerror(ctypes.get_errno())}", file=sys.stderr)


def words():
    """The words of the kernel's command line that are ours."""
    parts = (word.partition("=") for word in Path("/proc/cmdline").read_text().split())
    return {name: value for name, _, value in parts if name.startswith("neuca_")}


def main():
    os.environ.update(PATH="/usr/sbin:/usr/bin:/sbin:/bin", HOME="/mnt", TMPDIR="/mnt", LANG="C.UTF-8",
                      PYTHONDONTWRITEBYTECODE="1")  # fmt: skip
    for kind, place in MOUNTS:
        LIBC.mount(kind.encode(), place.encode(), kind.encode(), 0, None)
    given = words()
    for name in MODULES:
        insert(Path(given["neuca_modules"]), name)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=False)
    command = [
        sys.executable,
        "-B",
        str(Path(__file__).with_name("seq_play.py")),
        *given["neuca_words"].split(","),
    ]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, check=False)
    print(f"{shlex.join(command)}: exit code {done.returncode}", flush=True)
    os.sync()
    LIBC.reboot(POWER_OFF)


if __name__ == "__main__":
    main()
