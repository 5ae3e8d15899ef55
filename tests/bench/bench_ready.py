"""How long a boot waits for the agent where no metadata service answers, beside what a bare Python takes from start to end.

The service is there and never says a word. Nothing is in the state directory, as on a first boot.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import select
import socket
import statistics
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import bench_host as host
from bench_speed import Unmeasured, timed

PATIENCE = 30.0  # seconds


class Ready(NamedTuple):
    """Seconds, medians: to READY=1, and of an interpreter that does nothing."""

    agent: float
    bare: float


def measure(rounds: int, directory: Path) -> Ready:
    """In turns."""
    host.run_ip("link", "set", "lo", "up")  # or nobody would be there to say nothing
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the kernel accepts for it
        config = host.configure(directory, 10)
        source = f"sources = ec2=http://127.0.0.1:{silent.getsockname()[1]}"
        config.write_text(
            config.read_text().replace(f"sources = file:{directory}/document", source)
        )
        times = [
            (_to_ready(config, directory), timed([host.PYTHON, "-c", "pass"], directory))
            for _ in range(4 * rounds + 1)
        ]
    return Ready(
        *(statistics.median(column) for column in zip(*times[1:]))
    )  # the first one compiles


def _to_ready(config: Path, directory: Path) -> float:
    host.forget(directory)
    address = directory / "notify"
    address.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(address))
        began = time.monotonic()
        environment = {**host.environment(directory), "NOTIFY_SOCKET": str(address)}
        with subprocess.Popen([*host.NEUCAD, "--config", str(config)], cwd=directory, env=environment,
                              stderr=subprocess.DEVNULL) as agent:  # fmt: skip
            heard = select.select([manager], [], [], PATIENCE)[0] and manager.recv(4096).decode()
            took = time.monotonic() - began
            agent.kill()
    if not heard or "READY=1" not in heard:
        raise Unmeasured(f"no READY=1 within {PATIENCE:g} s, but {heard!r}")
    return took
