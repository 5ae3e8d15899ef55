"""What both halves of the bench share: namespaces of their own, tap devices with fixed MACs, and a configuration for them.

The taps, and all that is done to them, end with the namespaces. The files lie on a real file system (/var/tmp), since syncing
them is a part of the cost; the directory is removed in the end.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
PYTHON = "/usr/bin/python3"
NEUCAD = [
    PYTHON,
    "-c",
    "import sys; from neuca_tools.commands.neucad import main; sys.exit(main())",
]  # as pip's script does
NEUCA = [PYTHON, "-c", "import sys; from neuca_tools.commands.neuca import main; sys.exit(main())"]
GROUP = "7"  # any: so that `ip` removes all taps in one request
MTU, QUEUE = 9000, 10000  # what a fast dataplane asks for; a tap has 1500 and 1000


def private(*command: str) -> int:
    """Run it as the first process of new namespaces; its exit status."""
    spaces = ("--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
    return subprocess.run(["unshare", *spaces, "--", *command], check=False).returncode


def mac(number: int) -> str:
    return f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}"


def address(number: int) -> str:
    """A network of its own for each."""
    return f"10.{number // 250}.{number % 250}.1/24"


def document(taps: int, mtu: int = MTU) -> str:
    """Address, MTU, txqueuelen and up for each."""
    bare = {number: mac(number).replace(":", "") for number in range(taps)}
    lines = ["[interfaces]", *(f"{bare[number]} = up:ipv4:{address(number)}" for number in bare)]
    return (
        "\n".join(
            [
                *lines,
                *(
                    f"[interface {name}]\nmtu = {mtu}\ntxqueuelen = {QUEUE}"
                    for name in bare.values()
                ),
            ]
        )
        + "\n"
    )


def ip_batch(taps: int) -> str:
    """The same for `ip -batch`, and no more."""
    return "".join(
        f"address add {address(number)} dev tap{number}\nlink set dev tap{number} mtu {MTU}\n"
        f"link set dev tap{number} txqueuelen {QUEUE}\nlink set dev tap{number} up\n"
        for number in range(taps)
    )


def run_ip(*words: str, stdin: str = "") -> str:
    return subprocess.run(
        ["ip", *words], input=stdin, text=True, check=True, capture_output=True
    ).stdout


def make_taps(taps: int) -> None:
    """In the place of those that are there."""
    run_ip("link", "delete", "group", GROUP) if run_ip("link", "show", "group", GROUP) else None
    run_ip(
        "-batch",
        "-",
        stdin="".join(
            f"tuntap add dev tap{number} mode tap\nlink set dev tap{number} address {mac(number)} "
            f"group {GROUP}\n"
            for number in range(taps)
        ),
    )


def as_asked(taps: int) -> bool:
    """Whether every tap has its address, MTU, txqueuelen, and is up."""
    found = {one["ifname"]: one for one in json.loads(run_ip("-json", "address"))}
    return all(
        _settings(found[f"tap{number}"]) == (MTU, QUEUE, True, {address(number)})
        for number in range(taps)
    )


def _settings(tap: dict) -> tuple:
    addresses = {
        f"{one['local']}/{one['prefixlen']}" for one in tap["addr_info"] if one["family"] == "inet"
    }
    return tap["mtu"], tap["txqlen"], "UP" in tap["flags"], addresses


def forget(directory: Path) -> None:
    """Move everything that neucad has written out of the way, so that the next pass is a first one.

    Nothing is deleted: ext4 does not reuse an inode soon after that, and searches for others, which no first boot has to do.
    """
    (directory / "old").mkdir(exist_ok=True)
    old = Path(tempfile.mkdtemp(dir=directory / "old"))
    for name in ("state", "run", "udev", "networkmanager", "networkd", "sysctl"):
        if (directory / name).exists():
            (directory / name).rename(old / name)


def configure(directory: Path, poll_interval: int) -> Path:
    """A configuration file with every directory moved."""
    file = directory / "config"
    file.write_text(f"""\
[runtime]
state-directory = {directory}/state
run-directory = {directory}/run
pid-directory = {directory}/run
hosts-file = {directory}/hosts
[linux]
managers = none
udev-directory = {directory}/udev
networkmanager-directory = {directory}/networkmanager
networkd-directory = {directory}/networkd
sysctl-directory = {directory}/sysctl
[logging]
log-directory = {directory}/log
log-level = info
[tuning]
profile = none
[metadata]
sources = file:{directory}/document
poll-interval = {poll_interval}
""")
    return file


def environment(directory: Path) -> dict[str, str]:
    """The checkout in the place of an installed package, its compiled files apart from it."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "HOME")}
    return {**kept, "PYTHONPATH": str(CHECKOUT), "PYTHONPYCACHEPREFIX": str(directory / "cache")}
