"""Sets up the demo: four NICs of a guest in this network namespace, their peers in another one.

`private` runs a program in its own network, mount, PID and UTS namespaces, with a tmpfs on /run.
They end with the program, so there is nothing to clean up.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import select
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Callable

WORK = Path("/run/demo")  # below the private /run
MANAGEMENT, FIRST, SECOND, IGNORED = (
    "fe:16:3e:00:6d:a0",
    "fe:16:3e:00:6d:a1",
    "fe:16:3e:00:6d:a2",
    "fe:16:3e:00:6d:a3",
)
NICS = {"eth0": MANAGEMENT, "eth1": FIRST, "eth2": SECOND, "eth3": IGNORED}
PATIENCE = 20.0  # time-out of each wait in seconds
# Links, IPv4 and IPv6 addresses and routes (linux/rtnetlink.h).
NETLINK_GROUPS = 0x1 | 0x10 | 0x40 | 0x100 | 0x400

# The peers of the four NICs. The metadata service is reachable through the management NIC only.
CLOUD = """
link set lo up
address add 169.254.169.254/32 dev lo
address add 10.20.0.1/32 dev lo
address add 10.0.0.1/24 dev port0
address add 172.16.0.254/24 dev port1
address add fd00:16::fe/64 dev port2 nodad
link set port1 mtu 9000
link set port2 mtu 9000
link set port0 up
link set port1 up
link set port2 up
link set port3 up
"""


def private(*command: str) -> int:
    """Run a command as process 1 of new namespaces and return its exit status."""
    spaces = ("--net", "--mount", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc")
    return subprocess.run(["unshare", *spaces, "--", *command], check=False).returncode


def ip(*words: str, stdin: str = "") -> str:
    """Run `ip` and return its output; exit if it fails."""
    done = subprocess.run(["ip", *words], input=stdin, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def build() -> None:
    """Create the NICs. Only the management NIC is configured, as by a cloud image."""
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    WORK.mkdir()
    ip("netns", "add", "cloud")
    for number, (name, mac) in enumerate(NICS.items()):
        pair = f"link add {name} address {mac} type veth peer port{number} netns cloud"
        ip(*pair.split())
    ip("-n", "cloud", "-batch", "-", stdin=CLOUD)
    # Without duplicate address detection its addresses are final at once.
    Path("/proc/sys/net/ipv6/conf/eth0/accept_dad").write_text("0")
    ip("link", "set", "lo", "up")
    ip("address", "add", "10.0.0.2/24", "dev", "eth0")
    ip("link", "set", "eth0", "up")
    ip("route", "add", "default", "via", "10.0.0.1")
    wait_until(
        lambda: (
            device("eth0")["operstate"] == "UP"
            and "link" in {one["scope"] for one in device("eth0")["addr_info"]}
        )
    )


def has_8021q() -> bool:
    """Whether this kernel can create VLANs, by trying it."""
    command = "link add link eth1 name probe type vlan id 1".split()
    made = subprocess.run(["ip", *command], capture_output=True, check=False).returncode == 0
    if made:
        ip("link", "delete", "probe")
    return made


def settings(name: str) -> dict[str, object]:
    """All settings of a NIC: its link, addresses, routes and sysctls."""
    link = json.loads(ip("-json", "-details", "address", "show", "dev", name))
    routes = [
        json.loads(ip("-json", family, "route", "show", "table", "all", "dev", name))
        for family in ("-4", "-6")
    ]
    sysctls = {
        str(path): _text(path)
        for family in ("ipv4", "ipv6")
        for kind in ("conf", "neigh")
        for path in Path(f"/proc/sys/net/{family}/{kind}/{name}").iterdir()
    }
    return {"link": link, "routes": routes, "sysctls": sysctls}


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        # stable_secret cannot be read until it is set.
        return str(error.strerror)


def device(name: str) -> dict[str, object]:
    """One interface in `ip -json address`; empty if there is none."""
    found = [one for one in json.loads(ip("-json", "address")) if one["ifname"] == name]
    return found[0] if found else {}


def addresses(name: str) -> set[str]:
    """The global addresses of an interface, such as `172.16.0.1/24`."""
    return {
        f"{one['local']}/{one['prefixlen']}"
        for one in device(name).get("addr_info", ())
        if one["scope"] == "global"
    }


def routes() -> set[str]:
    """The routes with a gateway, such as `10.20.0.0/16 via 172.16.0.254`."""
    found = [one for family in ("-4", "-6") for one in json.loads(ip("-json", family, "route"))]
    return {f"{one['dst']} via {one['gateway']}" for one in found if "gateway" in one}


def answers(host: str, source: str) -> bool:
    """Whether a host accepts a TCP connection from this address."""
    try:
        with socket.create_connection((host, 80), timeout=PATIENCE / 4, source_address=(source, 0)):
            return True
    except OSError:
        return False


def wait_until(condition: Callable[[], bool]) -> bool:
    """Wait until a condition holds; False if it does not within PATIENCE.

    It is checked whenever the kernel reports a change.
    """
    deadline = time.monotonic() + PATIENCE
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as news:
        news.bind((0, NETLINK_GROUPS))
        while not condition():
            if not select.select([news], [], [], max(0.0, deadline - time.monotonic()))[0]:
                return condition()
            # ENOBUFS means that messages were lost: check the condition in this case too.
            with suppress(OSError):
                news.recv(1 << 16)
    return True
