"""The counters of the kernel and of the drivers of this end, and its CPUs.

The names of the counters are documented in `evidence`.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Optional

from neuca_tools.files import text_of
from neuca_tools.selftest.evidence import Cpu
from neuca_tools.selftest.measure.host import kernel

PROC = Path("/proc/net")
# The most bytes that are read from one file below /proc.
MOST_BYTES = 1024 * 1024
# In /proc/net/stat.
TABLES = ("arp_cache", "ndisc_cache", "nf_conntrack")
# Columns that describe the whole table in every line, instead of the events on one CPU.
TABLE_COLUMNS = ("entries", "searched")
BOTH_FAMILIES = {
    "Udp6RcvbufErrors": "Udp.RcvbufErrors",
    "Udp6MemErrors": "Udp.MemErrors",
    "Udp6InDatagrams": "Udp.InDatagrams",
    "Udp6InErrors": "Udp.InErrors",
}
SOFTNET = ("processed", "dropped", "time_squeeze")
# linux/sockios.h.
SIOCETHTOOL = 0x8946
# ETHTOOL_GDRVINFO, ETHTOOL_GSTRINGS, ETHTOOL_GSTATS.
DRIVER_INFO, STRINGS, VALUES = 0x03, 0x1B, 0x1D
# ETH_SS_STATS.
STATISTICS = 1
# ETH_GSTRING_LEN; the size of struct ethtool_drvinfo, and the offset of its n_stats.
NAME_LENGTH, INFO_LENGTH, COUNT_AT = 32, 196, 180
# The most counters of one device; a NIC with hundreds of queues has about that many.
MOST_COUNTERS = 4096


def read_counters(devices: Iterable[str] = ()) -> dict[str, int]:
    """All counters; what this kernel does not have is left out."""
    totals = {
        **parse_pairs(text_of(PROC / "snmp", MOST_BYTES)),
        **parse_pairs(text_of(PROC / "netstat", MOST_BYTES)),
        **parse_softnet(text_of(PROC / "softnet_stat", MOST_BYTES)),
    }
    for name, value in parse_snmp6(text_of(PROC / "snmp6", MOST_BYTES)).items():
        totals[name] = totals.get(name, 0) + value
    for name in TABLES:
        totals.update(parse_table(name, text_of(PROC / "stat" / name, MOST_BYTES)))
    with suppress(OSError):
        for prefix, values in kernel.read_link_counters().items():
            totals.update(_with_prefix(prefix, values))
    for name in devices:
        totals.update(_with_prefix(f"{name}.ethtool", driver_statistics(name)))
    return totals


def read_cpus() -> tuple[Cpu, ...]:
    """The times of each CPU."""
    return parse_cpus(text_of(Path("/proc/stat"), MOST_BYTES))


def _with_prefix(prefix: str, values: Mapping[str, int]) -> dict[str, int]:
    return {f"{prefix}.{name}": value for name, value in values.items()}


# --- Readers, each of the text of one file --------------------------------------------------


def parse_pairs(text: str) -> dict[str, int]:
    """/proc/net/snmp and netstat: a line of names, then one of values with the same first word."""
    counts: dict[str, int] = {}
    lines = [line.split() for line in text.splitlines()]
    for names, values in zip(lines[::2], lines[1::2]):
        if names[:1] == values[:1] and names:
            numbers = zip(names[1:], map(_parse_integer, values[1:]))
            known = {name: number for name, number in numbers if number is not None}
            counts.update(_with_prefix(names[0].rstrip(":"), known))
    return counts


def parse_snmp6(text: str) -> dict[str, int]:
    """/proc/net/snmp6: a name and a value on each line. `Ip6ReasmFails` becomes Ip6.Ip6ReasmFails.

    The UDP errors get the names of those of IPv4, to which they are added.
    """
    counts: dict[str, int] = {}
    for words in map(str.split, text.splitlines()):
        number = _parse_integer(words[1]) if len(words) == 2 else None
        if number is not None:
            name = words[0]
            counts[BOTH_FAMILIES.get(name, f"{_group_of(name)}.{name}")] = number
    return counts


def _group_of(name: str) -> str:
    return next((group for group in ("Ip6", "Udp6") if name.startswith(group)), "Icmp6")


def parse_softnet(text: str) -> dict[str, int]:
    """/proc/net/softnet_stat, hexadecimal: a line for each CPU, whose number is in column 13.

    The first three columns, for each CPU and in total (softnet_seq_show in net/core/net-procfs.c).
    """
    counts = _with_prefix("softnet", dict.fromkeys(SOFTNET, 0)) if text else {}
    for place, words in enumerate(map(str.split, text.splitlines())):
        numbers = [_parse_integer(word, 16) or 0 for word in words]
        if len(numbers) < 3:
            continue
        cpu = numbers[12] if len(numbers) > 12 else place
        for name, value in zip(SOFTNET, numbers):
            counts[f"softnet.{name}"] += value
            counts[f"softnet.{cpu}.{name}"] = value
    return counts


def parse_table(name: str, text: str) -> dict[str, int]:
    """A file in /proc/net/stat, hexadecimal: a line of names, then one line for each CPU.

    The values are totals, except for the columns in TABLE_COLUMNS.
    """
    lines = [line.split() for line in text.splitlines()]
    totals: dict[str, int] = {}
    for words in lines[1:]:
        for column, word in zip(lines[0], words):
            number, before = _parse_integer(word, 16) or 0, totals.get(column, 0)
            totals[column] = max(before, number) if column in TABLE_COLUMNS else before + number
    return _with_prefix("conntrack" if name == "nf_conntrack" else name, totals)


def parse_cpus(text: str) -> tuple[Cpu, ...]:
    """/proc/stat (proc(5)), whose clock ticks become seconds. A column that is missing counts 0."""
    tick = os.sysconf("SC_CLK_TCK")
    processors = []
    for words in map(str.split, text.splitlines()):
        if words and words[0].startswith("cpu") and words[0] != "cpu":
            times = [(_parse_integer(word) or 0) / tick for word in [*words[1:9], *["0"] * 8][:8]]
            user, nice, system, idle, iowait, irq, softirq, steal = times
            processors.append(Cpu(user + nice, system + irq, softirq, idle + iowait, steal))
    return tuple(processors)


def _parse_integer(word: str, base: int = 10) -> Optional[int]:
    try:
        return int(word, base)
    except ValueError:
        return None


# --- A driver's own counters, by ioctl: ethtool netlink lacks them ---------------------------


def driver_statistics(device: str) -> dict[str, int]:
    """All counters by name; none if the driver has none, or the device does not exist."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
            return _read_statistics(asked.fileno(), device)
    except OSError:
        return {}


def _read_statistics(descriptor: int, device: str) -> dict[str, int]:
    information = _query_driver(
        descriptor, device, struct.pack("=I", DRIVER_INFO).ljust(INFO_LENGTH, b"\0")
    )
    count = struct.unpack_from("=I", information, COUNT_AT)[0]
    if not 0 < count <= MOST_COUNTERS:
        return {}
    header = struct.pack("=III", STRINGS, STATISTICS, count)
    strings = _query_driver(descriptor, device, header + bytes(count * NAME_LENGTH))[len(header) :]
    values = _query_driver(descriptor, device, struct.pack("=II", VALUES, count) + bytes(count * 8))
    names = [name.partition(b"\0")[0] for (name,) in struct.iter_unpack(f"{NAME_LENGTH}s", strings)]
    texts = [name.decode("ascii", "replace").strip() for name in names]
    return dict(zip(texts, struct.unpack_from(f"={count}Q", values, 8)))


def _query_driver(descriptor: int, device: str, request: bytes) -> bytes:
    """The kernel writes its answer over the request, through the pointer in struct ifreq."""
    room = ctypes.create_string_buffer(request, len(request))
    name = os.fsencode(device)[:15].ljust(16, b"\0")
    ifreq = name + struct.pack("P", ctypes.addressof(room)) + bytes(16)
    fcntl.ioctl(descriptor, SIOCETHTOOL, ifreq)
    return room.raw
