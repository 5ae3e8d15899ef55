"""D36: socket buffers that were requested and not granted."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.base import FAULT, Hit, fact
from neuca_tools.selftest.conditions.session import Rule
from neuca_tools.selftest.evidence.look import Look


def buffers_not_applied(look: Look) -> Optional[Hit]:
    """iperf3 asked for a socket buffer (-w), and the kernel gave less."""
    run = look.phase.run
    if run is None or not run.buffer:
        return None
    buffers = (
        ("sndbuf_actual", run.sndbuf, "net.core.wmem_max", "sender"),
        ("rcvbuf_actual", run.rcvbuf, "net.core.rmem_max", "receiver"),
    )
    for name, got, setting, end in buffers:
        # The kernel doubles what is asked for (SO_SNDBUF in socket(7)).
        if got is None or got >= 2 * run.buffer:
            continue
        return Hit(
            0.5,
            f"-w requested {amounts.size(run.buffer)}, the kernel granted {amounts.size(got / 2)}",
            (fact("-w", run.buffer), fact(name, got)),
            end=end,
            sysctls={setting: str(int(run.buffer))},
        )
    return None


BUFFERS = (Rule("D36", "buffers not applied", FAULT, buffers_not_applied),)
