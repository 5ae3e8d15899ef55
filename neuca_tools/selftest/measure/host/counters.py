"""The counters of the kernel of this end, and its CPUs.

`evidence` documents the names of the counters.
"""

# SPDX-License-Identifier: MIT

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Optional

from neuca_tools.files import text_of
from neuca_tools.selftest.evidence import Cpu
from neuca_tools.selftest.measure.host import kernel

PROC = Path("/proc/net")
MAX_BYTES = 1024 * 1024  # that are read from one file below /proc
TABLES = ("arp_cache", "ndisc_cache", "nf_conntrack")  # files in /proc/net/stat
# The column of /proc/net/softnet_stat (softnet_seq_show in net/core/net-procfs.c).
SOFTNET_DROPPED = 1


def read_counters() -> dict[str, int]:
    """All counters by name, without those that this kernel does not have."""
    totals = {
        **parse_pairs(text_of(PROC / "snmp", MAX_BYTES)),
        **parse_pairs(text_of(PROC / "netstat", MAX_BYTES)),
        **parse_softnet(text_of(PROC / "softnet_stat", MAX_BYTES)),
    }
    for name, value in parse_snmp6(text_of(PROC / "snmp6", MAX_BYTES)).items():
        totals[name] = totals.get(name, 0) + value
    for name in TABLES:
        totals.update(parse_table(name, text_of(PROC / "stat" / name, MAX_BYTES)))
    with suppress(OSError):
        for prefix, values in kernel.read_link_counters().items():
            totals.update(_with_prefix(prefix, values))
    return totals


def read_cpus() -> tuple[Cpu, ...]:
    """The times of each CPU since the boot, in seconds."""
    return parse_cpus(text_of(Path("/proc/stat"), MAX_BYTES))


def _with_prefix(prefix: str, values: Mapping[str, int]) -> dict[str, int]:
    return {f"{prefix}.{name}": value for name, value in values.items()}


# --- Readers, each of the text of one file --------------------------------------------------


def parse_pairs(text: str) -> dict[str, int]:
    """Parse /proc/net/snmp or netstat.

    A line of names is followed by one of values with the same first word: `Udp: InErrors` and
    `Udp: 5` become Udp.InErrors.
    """
    counts: dict[str, int] = {}
    lines = [line.split() for line in text.splitlines()]
    for names, values in zip(lines[::2], lines[1::2]):
        if names[:1] == values[:1] and names:
            numbers = zip(names[1:], map(_parse_integer, values[1:]))
            known = {name: number for name, number in numbers if number is not None}
            counts.update(_with_prefix(names[0].rstrip(":"), known))
    return counts


def parse_snmp6(text: str) -> dict[str, int]:
    """Parse /proc/net/snmp6: a name and a value on each line.

    `Ip6ReasmFails` becomes Ip6.Ip6ReasmFails. Those of UDP get the names of IPv4, as a test uses
    one family only; those of ICMP are left out.
    """
    counts: dict[str, int] = {}
    for words in map(str.split, text.splitlines()):
        number = _parse_integer(words[1]) if len(words) == 2 else None
        if number is not None and words[0].startswith("Ip6"):
            counts[f"Ip6.{words[0]}"] = number
        elif number is not None and words[0].startswith("Udp6"):
            counts[f"Udp.{words[0][4:]}"] = number
    return counts


def parse_softnet(text: str) -> dict[str, int]:
    """Parse /proc/net/softnet_stat: a line of hexadecimal numbers for each CPU, added up."""
    rows = [line.split() for line in text.splitlines()]
    counts = [_parse_integer(row[SOFTNET_DROPPED], 16) or 0 for row in rows if len(row) > 1]
    return {"softnet.dropped": sum(counts)} if counts else {}


def parse_table(name: str, text: str) -> dict[str, int]:
    """Parse a file in /proc/net/stat.

    A line of names is followed by a line of hexadecimal numbers for each CPU, which are added up.
    "entries" is the size of the whole table in each of them.
    """
    lines = [line.split() for line in text.splitlines()]
    totals: dict[str, int] = {}
    for words in lines[1:]:
        for column, word in zip(lines[0], words):
            number, before = _parse_integer(word, 16) or 0, totals.get(column, 0)
            totals[column] = number if column == "entries" else before + number
    return _with_prefix("conntrack" if name == "nf_conntrack" else name, totals)


def parse_cpus(text: str) -> tuple[Cpu, ...]:
    """Parse /proc/stat (proc(5)): clock ticks become seconds, a missing column counts as 0.

    The place of a CPU is its number: one that is offline is Cpu().
    """
    tick = os.sysconf("SC_CLK_TCK")
    cpus: dict[int, Cpu] = {}
    for words in map(str.split, text.splitlines()):
        number = _parse_integer(words[0].removeprefix("cpu")) if words else None
        if number is not None and words[0].startswith("cpu"):
            times = [(_parse_integer(word) or 0) / tick for word in [*words[1:9], *["0"] * 8][:8]]
            user, nice, system, idle, iowait, irq, softirq, steal = times
            cpus[number] = Cpu(user + nice, system + irq, softirq, idle + iowait, steal)
    return tuple(cpus.get(number, Cpu()) for number in range(max(cpus, default=-1) + 1))


def _parse_integer(word: str, base: int = 10) -> Optional[int]:
    try:
        return int(word, base)
    except ValueError:
        return None
