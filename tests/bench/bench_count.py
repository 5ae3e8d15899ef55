"""Counts the instructions of passes and of `ip -batch`, in a guest: run there, in namespaces of its own.

The guest's clock counts instructions, one for each nanosecond (see bench_boot), and the kernel accounts a process for all that it
ran, in user space and in the kernel, so its processor time is a number of instructions. What other threads of the kernel do
because of it is left out. Prints one line of JSON for each size.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import bench_host as host
from bench_speed import cost


def main() -> None:
    directory, kind, sizes = Path(sys.argv[1]), sys.argv[2], list(map(int, sys.argv[3:]))
    measure = {"links": links, "addresses": addresses}[kind]
    measure(4, directory)  # compiles the modules
    for size in sizes:
        print(json.dumps({kind: size, **measure(size, directory)}), flush=True)


def links(taps: int, directory: Path) -> dict[str, float]:
    """Millions of instructions for so many taps: the first pass, the next one, and `ip -batch`."""
    host.make_taps(taps)
    found = passes(host.document(taps), directory)
    assert host.as_asked(taps)
    host.make_taps(taps)
    (directory / "batch").write_text(host.ip_batch(taps))
    found["ip"] = counted(["ip", "-batch", str(directory / "batch")], directory)
    assert host.as_asked(taps)
    return found


def addresses(count: int, directory: Path) -> dict[str, float]:
    """The same for so many addresses on each of two taps."""
    host.make_taps(2)
    own = [
        [f"10.{tap}.{number >> 8}.{number & 255}/32" for number in range(1, count + 1)]
        for tap in range(2)
    ]
    sections = (
        f"[interface {host.mac(tap)}]\naddresses = {', '.join(own[tap])}\n" for tap in range(2)
    )
    found = passes("".join(sections), directory)
    assert host.run_ip("-oneline", "-4", "address").count(" inet ") == 2 * count
    host.make_taps(2)
    lines = (f"address add {one} dev tap{tap}\n" for tap in range(2) for one in own[tap])
    (directory / "batch").write_text("".join(lines))
    found["ip"] = counted(["ip", "-batch", str(directory / "batch")], directory)
    return found


def passes(document: str, directory: Path) -> dict[str, float]:
    host.forget(directory)
    (directory / "document").write_text(document)
    neucad = [*host.NEUCAD, "--once", "--config", str(host.configure(directory, 10))]
    found = {"first": counted(neucad, directory), "again": counted(neucad, directory)}
    assert not (directory / "log").read_text(), "the second pass has changed something"
    return found


def counted(command: Sequence[str], directory: Path) -> float:
    """Millions of instructions that the process executes, with its children."""
    return round(1000 * cost(command, directory).processor, 3)


if __name__ == "__main__":
    main()
