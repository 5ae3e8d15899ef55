"""One look at one end: the kernel's counters, its CPUs, and the sockets of the test. The names are those of `evidence`."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Optional

from neuca_tools.selftest.evidence import Cpu, Sample, Socket
from neuca_tools.selftest.measure.host import kernel, tcp_info
from neuca_tools.selftest.measure.iperf import driver

PROC = Path("/proc/net")
LARGEST = 1024 * 1024  # bytes of one file below /proc
TABLES = ("arp_cache", "ndisc_cache", "nf_conntrack")  # /proc/net/stat
LEVELS = (
    "entries",
    "searched",
)  # what is a level of the whole table there, and not a count of one CPU
BOTH_FAMILIES = {
    "Udp6RcvbufErrors": "Udp.RcvbufErrors",
    "Udp6MemErrors": "Udp.MemErrors",
    "Udp6InDatagrams": "Udp.InDatagrams",
    "Udp6InErrors": "Udp.InErrors",
}
HARDWARE = Path("/sys/class/infiniband")


def sample(
    version: int, local_port: int = 0, remote_port: int = 0, devices: Iterable[str] = ()
) -> Sample:
    """A look now. `devices` are asked for their drivers' own counters too; no port: no socket is looked at."""
    sockets: tuple[Socket, ...] = ()
    if local_port or remote_port:
        with suppress(OSError):  # a kernel without inet_diag: everything else is known all the same
            sockets = tcp_info.sockets(version, local_port, remote_port)
    return Sample(time.monotonic(), sockets, cpus(_read(Path("/proc/stat"))), counters(devices))


def counters(devices: Iterable[str] = ()) -> dict[str, int]:
    """Everything that counts, under the names of `evidence`; what this kernel does not have is left out."""
    found = {
        **pairs(_read(PROC / "snmp")),
        **pairs(_read(PROC / "netstat")),
        **softnet(_read(PROC / "softnet_stat")),
    }
    for name, value in six(_read(PROC / "snmp6")).items():
        found[name] = found.get(name, 0) + value
    for name in TABLES:
        found.update(table(name, _read(PROC / "stat" / name)))
    with suppress(OSError):
        known = kernel.devices()
        found.update(
            {
                f"{one.name}.{name}": value
                for one in known.values()
                for name, value in one.counters.items()
            }
        )
        found.update(
            {
                f"{known[index].name}.qdisc.{name}": value
                for index, values in kernel.queues().items()
                if index in known
                for name, value in values.items()
            }
        )
    for device in devices:
        found.update(
            {f"{device}.ethtool.{name}": value for name, value in driver.statistics(device).items()}
        )
    return found


def thinned(samples: Sequence[Sample]) -> tuple[Sample, ...]:
    """The same without what did not change since the first: a counter that did not grow is no evidence, and takes room."""
    first = samples[0].counters if samples else {}
    return tuple(samples[:1]) + tuple(
        replace(
            one,
            counters={
                name: value for name, value in one.counters.items() if first.get(name) != value
            },
        )
        for one in samples[1:]
    )


# --- Readers: each takes the text of one file -----------------------------------------------------------------------------


def pairs(text: str) -> dict[str, int]:
    """/proc/net/snmp and netstat: a line of names, then a line of values with the same first word."""
    found: dict[str, int] = {}
    lines = [line.split() for line in text.splitlines()]
    for names, values in zip(lines[::2], lines[1::2]):
        if names[:1] == values[:1] and names:
            group = names[0].rstrip(":")
            found.update(
                {
                    f"{group}.{name}": number
                    for name, value in zip(names[1:], values[1:])
                    for number in [_whole(value)]
                    if number is not None
                }
            )
    return found


def six(text: str) -> dict[str, int]:
    """/proc/net/snmp6: `Ip6ReasmFails` is Ip6.Ip6ReasmFails here; UDP's errors count with those of IPv4."""
    found: dict[str, int] = {}
    for words in map(str.split, text.splitlines()):
        number = _whole(words[1]) if len(words) == 2 else None
        if number is not None:
            group = (
                "Ip6"
                if words[0].startswith("Ip6")
                else "Udp6"
                if words[0].startswith("Udp6")
                else "Icmp6"
            )
            found[BOTH_FAMILIES.get(words[0], f"{group}.{words[0]}")] = number
    return found


def softnet(text: str) -> dict[str, int]:
    """/proc/net/softnet_stat, hexadecimal: processed, dropped, time_squeeze; column 13 is the CPU (net/core/net-procfs.c)."""
    found = (
        {f"softnet.{name}": 0 for name in ("processed", "dropped", "time_squeeze")} if text else {}
    )
    for place, words in enumerate(map(str.split, text.splitlines())):
        numbers = [_whole(word, 16) or 0 for word in words]
        if len(numbers) < 3:
            continue
        cpu = numbers[12] if len(numbers) > 12 else place
        for name, value in zip(("processed", "dropped", "time_squeeze"), numbers):
            found[f"softnet.{name}"] += value
            found[f"softnet.{cpu}.{name}"] = value
    return found


def table(name: str, text: str) -> dict[str, int]:
    """/proc/net/stat/arp_cache and its kin, hexadecimal: a line of names, then one line for each CPU. `entries` is no sum."""
    lines = [line.split() for line in text.splitlines()]
    found: dict[str, int] = {}
    for words in lines[1:]:
        for column, word in zip(lines[0], words):
            number = _whole(word, 16) or 0
            found[column] = (
                max(found.get(column, 0), number)
                if column in LEVELS
                else found.get(column, 0) + number
            )
    prefix = "conntrack" if name == "nf_conntrack" else name
    return {f"{prefix}.{column}": value for column, value in found.items()}


def cpus(text: str) -> tuple[Cpu, ...]:
    """/proc/stat (proc(5)): user, nice, system, idle, iowait, irq, softirq, steal, in clock ticks."""
    tick = os.sysconf("SC_CLK_TCK")
    found = []
    for words in map(str.split, text.splitlines()):
        if words and words[0].startswith("cpu") and words[0] != "cpu":
            times = [(_whole(word) or 0) / tick for word in words[1:9]] + [0.0] * 8
            found.append(
                Cpu(
                    times[0] + times[1],
                    times[2] + times[5],
                    times[6],
                    times[3] + times[4],
                    times[7],
                )
            )
    return tuple(found)


def rdma(device: str) -> Mapping[str, int]:
    """The hardware counters of an RDMA device's first port."""
    place = HARDWARE / device / "ports" / "1" / "hw_counters"
    with suppress(OSError):
        return {
            f"{device}.{path.name}": number
            for path in sorted(place.iterdir())
            for number in [_whole(_read(path).strip())]
            if number is not None
        }
    return {}


def _whole(word: str, base: int = 10) -> Optional[int]:
    try:
        return int(word, base)
    except ValueError:
        return None


def _read(path: Path) -> str:
    """Empty where there is no such file: what is not known is left out."""
    try:
        with path.open("rb") as stream:
            return stream.read(LARGEST).decode("utf-8", "replace")
    except OSError:
        return ""
