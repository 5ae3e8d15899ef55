"""RDMA: the device and the GID that belong to the way to the peer, and what measures it: ibv_rc_pingpong and ib_write_bw.

Neither of them finds them by itself: they take the first device, and over Ethernet no GID at all. They tell each other who they
are by TCP over IPv4: ib_write_bw before 23.07 knows nothing else, ibv_rc_pingpong listens at what getaddrinfo(3) has first.
What is read is sysfs (Documentation/ABI/stable/sysfs-class-infiniband of the kernel): state, link_layer, gids, and which netdev a
GID is of.
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
from neuca_tools.selftest.measure.program import PATH, Ended, Program

CLASS = Path("/sys/class/infiniband")
MOST_GIDS = 256  # of one port
SIZE, TIMES = (
    4096,
    200,
)  # bytes (its own), and how often, of ibv_rc_pingpong: emulated guests need 30 ms for each
SECONDS = 3  # of ib_write_bw; from 4 on it fails where all that it has under way is not sent in a quarter of them
DEPTH = 16  # writes of 64 KiB under way: 100 Gbit/s over 80 us. A slow path ends none of 128, perftest's own, in the time
PINGPONG, WRITE = "ibv_rc_pingpong", "ib_write_bw"
PROGRAMS = (PINGPONG, WRITE)
PACKAGES = {PINGPONG: "ibverbs-utils", WRITE: "perftest"}  # of Debian
GRACE = 20.0  # seconds beyond those of the test itself
MIB = 8 * 2**20  # bit/s of a MiB/s, which has two decimals
RATES = {
    PINGPONG: (re.compile(rb"= +([\d.]+) Mbit/sec"), 1e6),
    WRITE: (re.compile(rb"^\s*\d+\s+\d+\s+[\d.]+\s+([\d.]+)\s+[\d.]+\s*$", re.MULTILINE), MIB),
}
ROUND_TRIP = re.compile(rb"= +([\d.]+) usec/iter")


@dataclass(frozen=True)
class Gid:
    """One entry of a port's table: its index, its address, its network device and its type ("RoCE v2")."""

    index: int
    value: IPv6Address
    netdev: str
    kind: str


@dataclass(frozen=True)
class Port:
    """One port of an RDMA device. `netdevs`: those of the whole device."""

    device: str
    number: int
    state: str
    link_layer: str
    gids: tuple[Gid, ...]
    netdevs: tuple[str, ...]


@dataclass(frozen=True)
class RdmaChoice:
    """What a test uses. No `index`: InfiniBand, which finds the peer by its LID; an empty `gid`: there is none that fits."""

    device: str
    port: int
    state: str
    index: Optional[int]
    gid: str


def choose(ports: Sequence[Port], path: Sequence[str], source: Address) -> Union[RdmaChoice, str]:
    """For packets from `source` that leave through the devices `path`; a text, why RDMA is not applicable here."""
    if not ports:
        return "this host has no RDMA device"
    mine = [
        port for port in ports if {*port.netdevs, *(gid.netdev for gid in port.gids)} & set(path)
    ]
    if not mine:
        return f"no RDMA device of this host belongs to {path[0]}"
    fits = [
        (gid.kind != "RoCE v2", gid.index, port, gid)
        for port in mine
        for gid in port.gids
        if gid.netdev in path and (gid.value == source or gid.value.ipv4_mapped == source)
    ]
    if fits:
        _, _, port, gid = min(fits, key=lambda one: one[:2])
        return RdmaChoice(port.device, port.number, port.state, gid.index, _text(gid.value))
    port = mine[0]
    if port.link_layer == "InfiniBand" and port.gids:
        return RdmaChoice(port.device, port.number, port.state, None, _text(port.gids[0].value))
    return RdmaChoice(port.device, port.number, port.state, None, "")


def _text(gid: IPv6Address) -> str:
    return (
        f"::ffff:{gid.ipv4_mapped}" if gid.ipv4_mapped else str(gid)
    )  # as every Python from 3.13 on writes it


def ports(place: Path = CLASS) -> list[Port]:
    """Every port of every RDMA device; none where the kernel has none."""
    return [
        _port(port)
        for device in _inside(place)
        for port in _inside(device / "ports")
        if port.name.isdecimal()
    ]


def _port(port: Path) -> Port:
    device = port.parent.parent
    netdevs = tuple(one.name for one in _inside(device / "device" / "net"))
    return Port(
        device.name,
        int(port.name),
        _word(port / "state").rpartition(" ")[2],
        _word(port / "link_layer"),
        tuple(_gids(port)),
        netdevs,
    )


def _gids(port: Path) -> Iterator[Gid]:
    indexes = sorted(int(one.name) for one in _inside(port / "gids") if one.name.isdecimal())
    for index in indexes[:MOST_GIDS]:
        try:
            value = IPv6Address(_word(port / "gids" / str(index)))
        except ValueError:
            continue
        if int(value):
            attributes = port / "gid_attrs"
            yield Gid(
                index,
                value,
                _word(attributes / "ndevs" / str(index)),
                _word(attributes / "types" / str(index)),
            )


def _inside(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _word(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return stream.read(100).decode("ascii", "replace").strip()
    except OSError:  # the attributes of an entry without a GID cannot be read (EINVAL)
        return ""


def command(
    program: str, choice: RdmaChoice, port: int, peer: Optional[Address] = None
) -> list[str]:
    """Of the client, or without a peer of the server. Both find each other by TCP at `port`."""
    words = [program, "-d", choice.device, "-i", str(choice.port), "-p", str(port)]
    if program == PINGPONG:
        words += [
            "-s",
            str(SIZE),
            "-n",
            str(TIMES),
            *(["-g", str(choice.index)] if choice.index is not None else []),
        ]
    else:
        words += [
            "-D",
            str(SECONDS),
            "-t",
            str(DEPTH),
            "-F",
            *(["-x", str(choice.index)] if choice.index is not None else []),
        ]
    return words + ([str(peer)] if peer else [])


def rate(program: str, said: bytes) -> Optional[float]:
    """In bit/s, of what the client has said."""
    form, unit = RATES[program]
    found = form.findall(said)
    return float(found[-1]) * unit if found else None


def hindrance(peer: Address) -> str:
    """Why the programs cannot be run here; empty where they can."""
    return f"{PINGPONG} and {WRITE} meet over IPv4 alone" if peer.version == 6 else missing()


def missing() -> str:
    """Which packages this needs whose programs are not installed here; empty for none."""
    lacking = [
        package for name, package in PACKAGES.items() if shutil.which(name, path=PATH) is None
    ]
    return (
        f"this needs the package{'s' if len(lacking) > 1 else ''} {' and '.join(lacking)}"
        if lacking
        else ""
    )


def measure(
    choice: RdmaChoice,
    port: int,
    peer: Address,
    begin: Callable[[str], str],
    finish: Callable[[], object],
) -> Union[Rdma, str]:
    """Both programs, one after the other; a text, why the other end cannot take part.

    `begin` starts a program's server there; it says why it cannot be started where nothing is wrong, else raises ChannelError.
    """
    found = Rdma(choice.device, choice.state, choice.gid)
    for name in PROGRAMS:
        try:
            lacking = begin(name)
        except ChannelError as error:
            return replace(found, error=str(error))
        if lacking:
            return lacking
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
    said = [
        line.strip()
        for line in (ended.error + ended.out).decode("utf-8", "replace").splitlines()
        if line.strip()
    ]
    return (
        "it did not end in time"
        if ended.late
        else said[0][:200]
        if ended.error and said
        else f"it ended with {ended.code}"
    )


def round_trip(said: bytes) -> Optional[float]:
    """In seconds, of ibv_rc_pingpong."""
    found = ROUND_TRIP.findall(said)
    return float(found[-1]) / 1e6 if found else None
