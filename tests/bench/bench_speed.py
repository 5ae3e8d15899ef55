"""How long a pass takes: whole `neucad --once` processes beside `ip -batch` doing the same bare changes.

A round goes through all sizes: neucad on fresh taps, neucad again with nothing to do, `ip -batch` on fresh taps. So whatever
else the machine does falls on all three alike; the medians of the rounds are what counts.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import bench_host as host

KINDS = ("first", "again", "ip")
BARE = {"python3 -c pass": "pass", "python3 -c 'import pyroute2'": "import pyroute2"}


class Unmeasured(Exception):
    """Something could not be measured, and why."""


class Times(NamedTuple):
    """Seconds: neucad's first pass, the same again with nothing to do, and `ip -batch`."""

    first: float
    again: float
    ip: float


def measure(sizes: Sequence[int], rounds: int, directory: Path) -> dict[int, Times]:
    """Medians for each number of taps. Raises Unmeasured where a pass did not do what it should."""
    found: dict[int, list[Times]] = {size: [] for size in sizes}
    _round(sizes[0], directory)  # so that the product is compiled, as an installed one is
    for _ in range(rounds):
        for size in sizes:
            found[size].append(_round(size, directory))
    return {
        size: Times(*(statistics.median(kind) for kind in zip(*rows)))
        for size, rows in found.items()
    }


def bare_interpreter(rounds: int, directory: Path) -> dict[str, float]:
    """Seconds that the interpreter takes for nothing, and for pyroute2: the part that no agent in Python gets below."""
    return {
        name: statistics.median(
            timed([host.PYTHON, "-c", code], directory) for _ in range(2 * rounds + 1)
        )
        for name, code in BARE.items()
    }


def _round(taps: int, directory: Path) -> Times:
    host.forget(directory)
    (directory / "document").write_text(host.document(taps))
    neucad = [*host.NEUCAD, "--once", "--config", str(host.configure(directory, 10))]
    host.make_taps(taps)
    first, changes = timed(neucad, directory), _logged(directory)
    if changes < 4 * taps or not host.as_asked(taps):
        raise Unmeasured(
            f"the first pass over {taps} taps did not do all that was asked; it logged {changes} lines"
        )
    again, changes = timed(neucad, directory), _logged(directory)
    if changes:
        raise Unmeasured(f"the second pass over {taps} taps logged {changes} lines instead of none")
    host.make_taps(taps)
    (directory / "batch").write_text(host.ip_batch(taps))
    bare = timed(["ip", "-batch", str(directory / "batch")], directory)
    if not host.as_asked(taps):
        raise Unmeasured(f"ip -batch over {taps} taps did not do all that was asked")
    return Times(first, again, bare)


def _logged(directory: Path) -> int:
    return len((directory / "log").read_text().splitlines())


def timed(command: Sequence[str], directory: Path) -> float:
    """Seconds from before the process to after its end. Raises Unmeasured where it fails."""
    with (directory / "log").open("w") as log:
        began = time.perf_counter()
        done = subprocess.run(
            command,
            stdout=subprocess.DEVNULL,
            stderr=log,
            cwd=directory,
            env=host.environment(directory),
            check=False,
        )
        took = time.perf_counter() - began
    if done.returncode:
        last = (directory / "log").read_text().strip().rpartition("\n")[2]
        raise Unmeasured(
            f"{' '.join(command[:1])} ended with exit status {done.returncode}: {last}"
        )
    return took
