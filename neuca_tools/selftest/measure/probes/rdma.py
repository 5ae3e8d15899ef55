"""RDMA: the device and GID that belong to the path to the peer, and its measurement.

It is measured with ibv_rc_pingpong and ib_write_bw. Neither finds the device by itself: they take
the first one, and over Ethernet no GID. They exchange their parameters by TCP over IPv4, because
ib_write_bw before 23.07 supports nothing else and ibv_rc_pingpong listens on the first address that
getaddrinfo(3) returns.

Read from sysfs: state, link_layer, gids, and the network device of each GID
(Documentation/ABI/stable/sysfs-class-infiniband in the kernel).
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv6Address
from pathlib import Path
from typing import Optional, Union

from neuca_tools.model import Host as Address
from neuca_tools.selftest.evidence import Rdma
from neuca_tools.selftest.measure.helper.channel import ChannelError
from neuca_tools.selftest.measure.host.kernel import text_of
from neuca_tools.selftest.measure.program import PATH, Ended, Program

CLASS = Path("/sys/class/infiniband")
# The largest number of GIDs of one port that are read.
MOST_GIDS = 256
# Bytes of a message of ibv_rc_pingpong (its default), and their number: an emulated guest needs
# 30 ms for each.
SIZE, TIMES = 4096, 200
# Seconds of ib_write_bw. From 4 on it fails if what is in flight takes longer than a quarter of it.
SECONDS = 3
# Writes of 64 KiB in flight: 100 Gbit/s over 80 us. With perftest's default of 128, a slow path
# completes none within SECONDS.
DEPTH = 16
PINGPONG, WRITE = "ibv_rc_pingpong", "ib_write_bw"
PROGRAMS = (PINGPONG, WRITE)
# Debian's names.
PACKAGES = {PINGPONG: "ibverbs-utils", WRITE: "perftest"}
# Seconds that a program may take beyond its test.
GRACE = 20.0
# bit/s in the MiB/s that ib_write_bw prints with two decimals.
MIB = 8 * 2**20
RATES = {
    PINGPONG: (re.compile(rb"= +([\d.]+) Mbit/sec"), 1e6),
    WRITE: (re.compile(rb"^\s*\d+\s+\d+\s+[\d.]+\s+([\d.]+)\s+[\d.]+\s*$", re.MULTILINE), MIB),
}
ROUND_TRIP = re.compile(rb"= +([\d.]+) usec/iter")


@dataclass(frozen=True)
class Gid:
    """An entry of a port's table: its index, address, network device and type ("RoCE v2")."""

    index: int
    value: IPv6Address
    netdev: str
    kind: str

    def is_of(self, address: Address) -> bool:
        return address in (self.value, self.value.ipv4_mapped)


@dataclass(frozen=True)
class Port:
    """One port of an RDMA device. `netdevs`: the network devices of the whole device."""

    device: str
    number: int
    state: str
    link_layer: str
    gids: tuple[Gid, ...]
    netdevs: tuple[str, ...]

    @property
    def all_netdevs(self) -> set[str]:
        """With those that its GIDs belong to, such as VLANs."""
        return {*self.netdevs, *(gid.netdev for gid in self.gids)}


@dataclass(frozen=True)
class RdmaChoice:
    """The RDMA port that a test uses.

    `index` is None for InfiniBand, which finds the peer by its LID. `gid` is empty if the port has
    none for the source address.
    """

    device: str
    port: int
    state: str
    index: Optional[int]
    gid: str

    @property
    def usable(self) -> bool:
        return self.state == "ACTIVE" and bool(self.gid)


def choose(ports: Sequence[Port], path: Sequence[str], source: Address) -> Union[RdmaChoice, str]:
    """The port for packets from `source` that leave through the devices `path`.

    RoCE v2 is preferred to v1, and then the lowest GID index. Returns a text, the reason, if RDMA
    is not applicable on this path.
    """
    if not ports:
        return "this host has no RDMA device"
    candidates = [port for port in ports if port.all_netdevs & set(path)]
    if not candidates:
        return f"no RDMA device of this host belongs to {path[0]}"
    fits = list(_with_gids(candidates, path, source))
    if fits:
        port, gid = min(fits, key=lambda fit: (fit[1].kind != "RoCE v2", fit[1].index))
        return RdmaChoice(port.device, port.number, port.state, gid.index, _text(gid.value))
    port, gid_text = candidates[0], ""
    if port.link_layer == "InfiniBand" and port.gids:
        gid_text = _text(port.gids[0].value)
    return RdmaChoice(port.device, port.number, port.state, None, gid_text)


def _with_gids(
    ports: Sequence[Port], path: Sequence[str], source: Address
) -> Iterator[tuple[Port, Gid]]:
    """Each GID of the source address on a device of the path, with its port."""
    for port in ports:
        for gid in port.gids:
            if gid.netdev in path and gid.is_of(source):
                yield port, gid


def _text(gid: IPv6Address) -> str:
    """As Python 3.13 and later write it, whatever the version."""
    if gid.ipv4_mapped:
        return f"::ffff:{gid.ipv4_mapped}"
    return str(gid)


def ports(place: Path = CLASS) -> list[Port]:
    """Every port of every RDMA device; empty if the kernel has no RDMA."""
    found: list[Port] = []
    for device in _inside(place):
        numbered = [port for port in _inside(device / "ports") if port.name.isdecimal()]
        found += map(_port, numbered)
    return found


def _port(port: Path) -> Port:
    device = port.parent.parent
    return Port(
        device=device.name,
        number=int(port.name),
        state=text_of(port / "state").rpartition(" ")[2],
        link_layer=text_of(port / "link_layer"),
        gids=tuple(_gids(port)),
        netdevs=tuple(one.name for one in _inside(device / "device" / "net")),
    )


def _gids(port: Path) -> Iterator[Gid]:
    indexes = sorted(int(one.name) for one in _inside(port / "gids") if one.name.isdecimal())
    for index in indexes[:MOST_GIDS]:
        try:
            value = IPv6Address(text_of(port / "gids" / str(index)))
        except ValueError:
            continue
        if int(value):
            netdev, kind = (port / "gid_attrs" / name / str(index) for name in ("ndevs", "types"))
            yield Gid(index, value, text_of(netdev), text_of(kind))


def _inside(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def command(
    program: str, choice: RdmaChoice, port: int, peer: Optional[Address] = None
) -> list[str]:
    """The command line of the client, or of the server if there is no `peer`.

    `port` is the TCP port over which the two exchange their parameters.
    """
    if program == PINGPONG:
        sizes, gid_option = ["-s", str(SIZE), "-n", str(TIMES)], "-g"
    else:
        sizes, gid_option = ["-D", str(SECONDS), "-t", str(DEPTH), "-F"], "-x"
    words = [program, "-d", choice.device, "-i", str(choice.port), "-p", str(port), *sizes]
    if choice.index is not None:
        words += [gid_option, str(choice.index)]
    if peer:
        words.append(str(peer))
    return words


def rate(program: str, output: bytes) -> Optional[float]:
    """The rate in bit/s that the client printed; None if it printed none."""
    return _last(*RATES[program], output)


def hindrance(peer: Address) -> str:
    """Why the programs cannot measure this peer from here; empty if they can."""
    if peer.version == 6:
        return f"{PINGPONG} and {WRITE} support only IPv4"
    return missing()


def missing() -> str:
    """Which packages with the programs are not installed; empty if all are."""
    packages = [package for name, package in PACKAGES.items() if not shutil.which(name, path=PATH)]
    if not packages:
        return ""
    word = "packages" if len(packages) > 1 else "package"
    return f"this needs the {word} {' and '.join(packages)}"


def measure(
    choice: RdmaChoice,
    port: int,
    peer: Address,
    begin: Callable[[str], str],
    finish: Callable[[], object],
) -> Union[Rdma, str]:
    """Run both programs, one after the other. Returns a text if the peer does not support them.

    `begin` starts the server of a program at the peer. It returns why that is not applicable there,
    or an empty string, and raises ChannelError if it fails. `finish` ends the server.
    """
    found = Rdma(choice.device, choice.state, choice.gid)
    for name in PROGRAMS:
        try:
            inapplicable = begin(name)
        except ChannelError as error:
            return replace(found, error=str(error))
        if inapplicable:
            return inapplicable
        try:
            ended = Program(command(name, choice, port, peer)).finish(SECONDS + GRACE)
        finally:
            finish()
        reached = rate(name, ended.out)
        if ended.code != 0 or reached is None:
            return replace(found, error=f"{name}: {_reason(ended)}")
        if not reached:
            return replace(found, error=f"{name}: nothing arrived in its time")
        found = replace(found, rate=reached, round_trip=found.round_trip or round_trip(ended.out))
    return found


def _reason(ended: Ended) -> str:
    if ended.late:
        return "it did not end in time"
    text = ended.error and ended.error + b"\n" + ended.out
    lines = [line.strip() for line in text.decode("utf-8", "replace").splitlines()]
    return next((line[:200] for line in lines if line), f"it ended with {ended.code}")


def round_trip(output: bytes) -> Optional[float]:
    """The round trip in seconds that ibv_rc_pingpong printed; None if it printed none."""
    return _last(ROUND_TRIP, 1e-6, output)


def _last(form: re.Pattern[bytes], unit: float, output: bytes) -> Optional[float]:
    """The last number of this form, times its unit."""
    found = form.findall(output)
    if not found:
        return None
    return float(found[-1]) * unit
