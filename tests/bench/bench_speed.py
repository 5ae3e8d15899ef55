"""How long a pass takes: whole `neucad --once` processes beside `ip -batch` doing the same bare changes.

A round goes through all sizes: neucad on fresh taps, neucad again with nothing to do, `ip -batch` on fresh taps. So whatever
else the machine does falls on all three alike; the medians of the rounds are what counts.

Most of what the kernel does for `up` is to clear the memory of the queues (240 KB for each tap with 10,000 packets). On a virtual
machine that returns free pages to its host, that takes five times as long for pages that were returned, which happens two seconds
after they were freed: `ip -batch`, which begins at once, would find those of the last run, and neucad, which first reads and
decides, would not. So each begins when that is over.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import resource
import statistics
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import bench_host as host

SETTLED = 5.0  # seconds: what was freed is given back by then (PAGE_REPORTING delays it by 2 s, mm/page_reporting.c)
LIBRARY = "python3 -c 'import pyroute2'"
BARE = {"python3 -c pass": "pass", LIBRARY: "import pyroute2"}


class Unmeasured(Exception):
    """Something could not be measured, and why."""


class Cost(NamedTuple):
    """Seconds of a whole process: by the clock, and of the processors, in user space and in the kernel."""

    time: float
    processor: float


class Times(NamedTuple):
    """Seconds: neucad's first pass, the same again with nothing to do, and `ip -batch`."""

    first: float
    again: float
    ip: float


def measure(
    sizes: Sequence[int], rounds: int, directory: Path
) -> tuple[dict[int, Times], dict[int, Times]]:
    """Medians for each number of taps: by the clock, and of the processors.

    Raises Unmeasured where a pass did not do what it should.
    """
    found: dict[int, list[list[Cost]]] = {size: [] for size in sizes}
    _round(sizes[0], directory)  # so that the product is compiled, as an installed one is
    for _ in range(rounds):
        for size in sizes:
            found[size].append(_round(size, directory))
    return _medians(found, 0), _medians(found, 1)


def _medians(found: dict[int, list[list[Cost]]], which: int) -> dict[int, Times]:
    return {
        size: Times(*(statistics.median(one[which] for one in kind) for kind in zip(*rows)))
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


def commands(taps: int, rounds: int, directory: Path) -> dict[str, float]:
    """Seconds, medians in turns: a pass with nothing to do and `neuca status` over these taps, and a bare interpreter."""
    _round(taps, directory)
    config = str(host.configure(directory, 10))
    timed([*host.NEUCAD, "--once", "--config", config], directory)
    kinds = {
        "neucad --once": [*host.NEUCAD, "--once", "--config", config],
        "neuca status": [*host.NEUCA, "status", "--config", config],
        "python3 -c pass": [host.PYTHON, "-c", "pass"],
    }
    timed(kinds["neuca status"], directory)  # compiles what it alone needs
    times = {name: [] for name in kinds}
    for _ in range(4 * rounds + 1):
        for name, command in kinds.items():
            times[name].append(timed(command, directory))
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def _round(taps: int, directory: Path) -> list[Cost]:
    host.forget(directory)
    (directory / "document").write_text(host.document(taps))
    neucad = [*host.NEUCAD, "--once", "--config", str(host.configure(directory, 10))]
    _fresh(taps)
    first, changes = cost(neucad, directory), _logged(directory)
    if changes < 4 * taps or not host.as_asked(taps):
        raise Unmeasured(
            f"the first pass over {taps} taps did not do all that was asked; it logged {changes} lines"
        )
    again, changes = cost(neucad, directory), _logged(directory)
    if changes:
        raise Unmeasured(f"the second pass over {taps} taps logged {changes} lines instead of none")
    _fresh(taps)
    (directory / "batch").write_text(host.ip_batch(taps))
    bare = cost(["ip", "-batch", str(directory / "batch")], directory)
    if not host.as_asked(taps):
        raise Unmeasured(f"ip -batch over {taps} taps did not do all that was asked")
    return [first, again, bare]


def _fresh(taps: int) -> None:
    host.make_taps(taps)
    time.sleep(SETTLED)


def _logged(directory: Path) -> int:
    return len((directory / "log").read_text().splitlines())


def cost(command: Sequence[str], directory: Path) -> Cost:
    """What the process and its children take. Raises Unmeasured where it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = timed(command, directory)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    user, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    return Cost(took, user + system)


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
