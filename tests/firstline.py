"""The first line that a server of the self-test prints about itself."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from typing import TextIO

NO_FILTER = "iperf3 will accept any host, not its client alone: BPF: Operation not permitted"


def first_line(printed: TextIO) -> str:
    """Without the notice of a host that cannot filter.

    In a user namespace, or a container without capabilities, the kernel takes no BPF program.
    """
    line = printed.readline()
    return printed.readline() if NO_FILTER in line else line
