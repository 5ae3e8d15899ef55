"""One network, configured in a guest by each program that a user may choose for it: the files, the command, what is counted.

The guest's clock counts instructions, one for each nanosecond (see bench_boot). Each program and number of VLANs has a guest of
its own. A measurement begins with NICs that are down and without addresses, and with the program's files in place; the rules that
the other programs' packages have for udev are masked. The first one in a guest is cold: the program has not run since the boot, and
nothing of the disk is in memory. Those after it are warm. The time of each change is that of the kernel's message about it.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

import images
from bench_boot import COUNTED, Unmeasured, changed
from bench_host import address
from guest import MANAGEMENT, Guest, mac, nics
from steps import bare

NICS = 4
LATER = 5  # seconds of the guest, in which what a program puts off still counts
READY = "ready"  # the name of the saved state
LIMIT = 7200.0  # seconds of this machine, for one step; the bound of a measurement is one of the guest's clock
PROFILES = "/etc/NetworkManager/system-connections"
Files = dict[str, str]  # path to text
UP = {"UP", "LOWER_UP"}
# The network of the lab is nobody's business here.
PREPARE = f"""set -e
ip link set eth0 up
ip address add 169.254.169.16/24 dev eth0
ip route add default via 169.254.169.2
chmod -x /etc/NetworkManager/dispatcher.d/cloud-init*
mkdir -p /etc/neuca/config.d /etc/NetworkManager/conf.d /etc/cloud/cloud.cfg.d
printf '[metadata]\\nsources = file:/root/document\\n[network]\\nmanagement-macs = {MANAGEMENT}\\n' > /etc/neuca/config.d/bench.conf
printf '[main]\\nno-auto-default=*\\n[keyfile]\\nunmanaged-devices=interface-name:eth0\\n' > /etc/NetworkManager/conf.d/bench.conf
printf 'datasource_list: [NoCloud]\\nsystem_info: {{network: {{renderers: [netplan]}}}}\\n' > /etc/cloud/cloud.cfg.d/95_bench.cfg
sync
echo 3 > /proc/sys/vm/drop_caches
"""
CLEAN = f"""systemctl stop NetworkManager.service systemd-networkd.socket systemd-networkd.service 2>&1
ip -br link show type vlan | sed 's/[@ ].*//; s/^/link delete /' | ip -batch -
for number in $(seq {NICS}); do ip address flush dev eth$number; ip link set eth$number down; done
rm -rf /etc/systemd/network /run/systemd/network /run/systemd/netif /etc/netplan /run/network /etc/network/interfaces*
rm -rf {PROFILES} /run/NetworkManager /var/lib/NetworkManager /etc/NetworkManager/conf.d/*neuca*
rm -rf /var/lib/cloud /run/cloud-init /var/lib/neuca /run/neuca /etc/udev/rules.d /run/udev/rules.d /root/document
mkdir -p /run/network /run/systemd/network /etc/netplan /etc/udev/rules.d /run/udev/rules.d
for package in OTHERS; do
    for rules in $(dpkg -L $package | grep '/udev/rules.d/.*rules$'); do ln -s /dev/null /run/udev/rules.d/${{rules##*/}}; done
done
systemctl daemon-reload; udevadm control --reload; udevadm settle; sync"""
# NetworkManager wants its profiles for root alone; networkd reads its files as another user.
WRITE = f"""python3 -c 'import json, pathlib, sys
for path, text in json.load(sys.stdin).items():
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(path).write_text(text)'
chmod --quiet 0600 {PROFILES}/*; sync; sleep 2"""
# What is not modified leaves memory: the next program reads itself from the disk.
CHILL = "echo 3 > /proc/sys/vm/drop_caches; sleep 1"
# The first stamp only has the commands in it loaded. `timeout` ends a command at the bound, but not what it has started.
# `ip` warns that its dump was interrupted if links appear meanwhile: it asks again a second later.
MEASURE = """began=$(stat -c %s /run/lab-monitor)
stamp() { echo "$EPOCHREALTIME $(cut -d ' ' -f 1 /proc/uptime) $(sed -n '1s/^cpu *//p' /proc/stat)"; }
stamp; stamp
timeout --kill-after=5 BOUND COMMAND > /run/said 2>&1
stamp
while [ "$SECONDS" -lt BOUND ]; do
    [ "$(ip -4 -oneline address show up 2>/dev/null | grep -c ' eth[1-9]')" -lt WANTED ] || break
    sleep 1
done
sleep LATER
stamp
tail -c +$((began + 1)) /run/lab-monitor"""
_LINK = re.compile(r"\[(\S+)\] (Deleted )?\d+: ([^:@\s]+)(?:@\S+)?: <([A-Z_,-]*)>")
_ADDRESS = re.compile(r"\[(\S+)\] (Deleted )?\d+: (\S+)\s+inet (\S+)")


class Link(NamedTuple):
    """One NIC, or a VLAN on it, and its address."""

    name: str
    address: str
    number: int  # of its NIC
    vlan: int = 0

    @property
    def parent(self) -> str:
        return f"eth{self.number}"


class Cost(NamedTuple):
    """Seconds of the guest's clock: until the command has returned and everything is there, and the processor's, of the guest."""

    time: float
    processor: float


class Peer(NamedTuple):
    """A program: its package, its files for a network, and the command that configures it."""

    title: str
    packages: tuple[str, ...]
    files: Callable[[list[Link]], Files]
    command: str


def network(vlans: int) -> list[Link]:
    """NICs, and VLANs spread over them, each with a static address in a network of its own."""
    links = [Link(f"eth{number}", address(number), number) for number in range(1, NICS + 1)]
    for vlan in range(100, 100 + vlans):
        number = 1 + vlan % NICS
        links.append(Link(f"eth{number}.{vlan}", address(vlan), number, vlan))
    return links


def _document(links: list[Link]) -> Files:
    lines = ["[interfaces]"]
    lines += [f"{bare(mac(one.number))} = up:ipv4:{one.address}" for one in links if not one.vlan]
    for one in filter(lambda one: one.vlan, links):
        lines += [f"[vlan {bare(mac(one.number))}.{one.vlan}]", f"addresses = {one.address}"]
    return {"/root/document": "\n".join(lines) + "\n"}


def _networkd(links: list[Link]) -> Files:
    files = {}
    for one in links:
        stem = f"/etc/systemd/network/50-{one.name}"
        lines = [f"[Match]\nName={one.name}\n[Network]\nAddress={one.address}"]
        lines += ["LinkLocalAddressing=no", "IPv6AcceptRA=no"]
        if one.vlan:
            device = f"[NetDev]\nName={one.name}\nKind=vlan\n[VLAN]\nId={one.vlan}\n"
            files[f"{stem}.netdev"] = device
        else:
            upper = (other for other in links if other.vlan and other.number == one.number)
            lines += [f"VLAN={other.name}" for other in upper]
        files[f"{stem}.network"] = "\n".join(lines) + "\n"
    return files


def _keyfiles(links: list[Link]) -> Files:
    def text(one: Link) -> str:
        kind, vlan = "ethernet", ""
        if one.vlan:
            kind, vlan = "vlan", f"[vlan]\nid={one.vlan}\nparent={one.parent}\n"
        head = f"[connection]\nid={one.name}\ntype={kind}\ninterface-name={one.name}\n{vlan}"
        return f"{head}[ipv4]\nmethod=manual\naddress1={one.address}\n[ipv6]\nmethod=disabled\n"

    return {f"{PROFILES}/{one.name}.nmconnection": text(one) for one in links}


def _version_2(links: list[Link]) -> dict[str, object]:
    """The format that netplan and cloud-init share."""
    ethernets, vlans = {}, {}
    for one in links:
        text = {"addresses": [one.address], "accept-ra": False, "link-local": []}
        if one.vlan:
            vlans[one.name] = {"id": one.vlan, "link": one.parent, **text}
        else:
            ethernets[one.name] = text
    return {"version": 2, "ethernets": ethernets, "vlans": vlans}


def _netplan(links: list[Link]) -> Files:
    return {"/etc/netplan/50-bench.yaml": json.dumps({"network": _version_2(links)})}


def _seed(links: list[Link]) -> Files:
    seed = "/var/lib/cloud/seed/nocloud"
    network = {f"{seed}/network-config": json.dumps(_version_2(links))}
    return {**network, f"{seed}/meta-data": "instance-id: bench\n", f"{seed}/user-data": ""}


def _interfaces(links: list[Link]) -> Files:
    form = "auto {0.name}\niface {0.name} inet static\naddress {0.address}\n"
    return {"/etc/network/interfaces": "".join(map(form.format, links))}


PEERS = (
    Peer("neucad", ("neuca-guest-tools",), _document, "neucad --once"),
    Peer("systemd-networkd", ("systemd",), _networkd, "systemctl start systemd-networkd.service"),
    Peer(
        "NetworkManager", ("network-manager",), _keyfiles, "systemctl start NetworkManager.service"
    ),
    Peer("netplan", ("netplan.io",), _netplan, "netplan apply"),
    Peer("ifupdown", ("ifupdown",), _interfaces, "ifup -a"),
    Peer(
        "cloud-init",
        ("cloud-init", "netplan.io"),
        _seed,
        "sh -c 'cloud-init init --local && netplan apply'",
    ),
)


def prepare(cache: Path) -> Path:
    """The disk of a guest with all of these programs, booted, in which none has run; made if the cache has none."""
    image = images.image("P")
    ready = cache / f"{image.folder.name}.qcow2"
    if not ready.exists():
        with tempfile.TemporaryDirectory(prefix="neuca-bench-peers-", dir="/var/tmp") as folder:
            one = Guest(
                changed(image, image.recipe.arguments, COUNTED), Path(folder) / "guest", nics(NICS)
            )
            try:
                one.boot(LIMIT)
                one.check("systemctl is-system-running --wait || true", LIMIT)
                one.check(PREPARE, LIMIT)
                one.save(READY)
            finally:
                one.close()  # QEMU would outlive us
            shutil.move(one.disk, ready)
    return ready


def guest(ready: Path, folder: Path) -> Guest:
    """One more guest in the state that was saved."""
    image = images.image("P")
    one = Guest(
        changed(image, image.recipe.arguments, (*COUNTED, "-loadvm", READY)), folder, nics(NICS)
    )
    shutil.copy(ready, one.disk)
    one.power_on()
    return one


def version(guest: Guest, peer: Peer) -> str:
    return guest.check(f"dpkg-query -W -f '${{Version}}' {peer.packages[0]}")


def measure(guest: Guest, peer: Peer, links: list[Link], bound: int, cold: bool) -> Cost:
    """Configure the links with this program alone, within `bound` seconds of the guest.

    Raises Unmeasured if they are not all as requested by then.
    """
    others = {name for other in PEERS for name in other.packages} - {*peer.packages, "systemd"}
    guest.check(CLEAN.replace("OTHERS", " ".join(sorted(others))), LIMIT)
    guest.check(WRITE, LIMIT, json.dumps(peer.files(links)).encode())
    if cold:
        guest.check(CHILL, LIMIT)
    script = MEASURE.replace("COMMAND", peer.command).replace("WANTED", str(len(links)))
    said = guest.check(script.replace("LATER", str(LATER)).replace("BOUND", str(bound)), LIMIT)
    wrong = _wrong(links, json.loads(guest.check("ip -j -d address", LIMIT)))
    if wrong:
        reason = (
            f"{len(wrong)} of {len(links)} links are not there after {bound} s, such as {wrong[0]}"
        )
        raise Unmeasured(f"{reason}\n{guest.check('tail -n 20 /run/said')}")
    return _cost(links, said)


def _wrong(links: list[Link], found: list[dict]) -> list[str]:
    """The links that are not there, not up, on another NIC, or without their address, by name."""
    known = {one["ifname"]: one for one in found}

    def fits(link: Link) -> bool:
        one = known.get(link.name, {})
        place = one.get("link"), one.get("linkinfo", {}).get("info_data", {}).get("id")
        given = {f"{each['local']}/{each['prefixlen']}" for each in one.get("addr_info", ())}
        wanted = (link.parent, link.vlan) if link.vlan else (None, None)
        return set(one.get("flags", ())) >= UP and link.address in given and place == wanted

    return [link.name for link in links if not fits(link)]


def _cost(links: list[Link], said: str) -> Cost:
    began, returned, ended = (list(map(float, line.split())) for line in said.splitlines()[1:4])
    # From the third on: user, nice, system, idle and iowait, in hundredths of a second; the last two are exact.
    idle = sum(ended[5:7]) - sum(began[5:7])
    there = max(returned[0], _complete(links, said))
    return Cost(there - began[0], ended[1] - began[1] - idle / 100)


def _complete(links: list[Link], said: str) -> float:
    """When the last link came up or got its address, in seconds since the epoch. Raises Unmeasured if messages were lost."""
    missing = {(one.name, what) for one in links for what in ("up", one.address)}
    wanted, last = frozenset(missing), 0.0
    for line in said.splitlines():
        link, addressed = _LINK.match(line), _ADDRESS.match(line)
        if not (link or addressed):
            continue
        when, gone, name, what = (link or addressed).groups()
        present = not gone and (addressed or set(what.split(",")) >= UP)
        thing = (name, "up" if link else what)
        if present and thing in missing:
            missing.discard(thing)
            last = datetime.fromisoformat(when).replace(tzinfo=timezone.utc).timestamp()
        elif not present and thing in wanted:
            missing.add(thing)
    if missing:
        raise Unmeasured(f"no message of the kernel about {sorted(missing)[:5]}")
    return last
