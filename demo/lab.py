"""The stage of the demo: a guest's four NICs in this network namespace, and what they are plugged into in a second one.

`private` runs a program in namespaces of its own: network, mounts, processes, host name. All of it ends with that program,
however it dies, and its /run is a file system in memory that ends with it too: there is nothing to clean up.
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
PATIENCE = 20.0  # seconds that anything may take that is waited for
NETLINK_GROUPS = (
    0x1 | 0x10 | 0x40 | 0x100 | 0x400
)  # links, IPv4 and IPv6 addresses and routes: linux/rtnetlink.h

# The other ends of the four cables. The metadata service is behind the management NIC alone.
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
    """Run it as the first process of new namespaces; its exit status."""
    spaces = ("--net", "--mount", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc")
    return subprocess.run(["unshare", *spaces, "--", *command], check=False).returncode


def ip(*words: str, stdin: str = "") -> str:
    """Run `ip`, which has to succeed; its output."""
    done = subprocess.run(["ip", *words], input=stdin, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def build() -> None:
    """Plug the guest in. Its management NIC is configured, as by a cloud's image; its dataplane NICs are as they come."""
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    WORK.mkdir()
    ip("netns", "add", "cloud")
    for number, (name, mac) in enumerate(NICS.items()):
        ip(
            "link",
            "add",
            name,
            "address",
            mac,
            "type",
            "veth",
            "peer",
            f"port{number}",
            "netns",
            "cloud",
        )
    ip("-n", "cloud", "-batch", "-", stdin=CLOUD)
    Path("/proc/sys/net/ipv6/conf/eth0/accept_dad").write_text(
        "0"
    )  # so that its addresses are final at once
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
    """Whether this kernel makes VLANs: try one."""
    command = "link add link eth1 name probe type vlan id 1".split()
    made = subprocess.run(["ip", *command], capture_output=True, check=False).returncode == 0
    if made:
        ip("link", "delete", "probe")
    return made


def settings(name: str) -> dict[str, object]:
    """Everything that can be set on a NIC: its link, addresses and routes, and all of its sysctls."""
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
    except OSError as error:  # stable_secret has none until it is set
        return str(error.strerror)


def device(name: str) -> dict[str, object]:
    """What `ip -json address` says of one interface; nothing where it is not there."""
    found = [one for one in json.loads(ip("-json", "address")) if one["ifname"] == name]
    return found[0] if found else {}


def addresses(name: str) -> set[str]:
    """`172.16.0.1/24`, of both families, without the link-local ones."""
    return {
        f"{one['local']}/{one['prefixlen']}"
        for one in device(name).get("addr_info", ())
        if one["scope"] == "global"
    }


def routes() -> set[str]:
    """`10.20.0.0/16 via 172.16.0.254`, of both families."""
    found = [one for family in ("-4", "-6") for one in json.loads(ip("-json", family, "route"))]
    return {f"{one['dst']} via {one['gateway']}" for one in found if "gateway" in one}


def answers(host: str, source: str) -> bool:
    """Whether a neighbour takes a TCP connection that comes from this address."""
    try:
        with socket.create_connection((host, 80), timeout=PATIENCE / 4, source_address=(source, 0)):
            return True
    except OSError:
        return False


def wait_until(condition: Callable[[], bool]) -> bool:
    """Whether it came true in time. It is looked at again whenever the kernel reports a change, never by the clock."""
    deadline = time.monotonic() + PATIENCE
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as news:
        news.bind((0, NETLINK_GROUPS))
        while not condition():
            if not select.select([news], [], [], max(0.0, deadline - time.monotonic()))[0]:
                return condition()
            with suppress(
                OSError
            ):  # ENOBUFS: more than fits was reported, which is a reason to look, too
                news.recv(1 << 16)
    return True
