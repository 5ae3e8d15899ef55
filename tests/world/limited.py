"""What limited the flows of a test, by the kernel of the host that sends: from what `ss` prints of its sockets. Pure.

The player samples it. It is independent of what the self-test sampled itself, and of its rules.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

NUMBER = re.compile(r" (bytes_acked|busy|rwnd_limited|sndbuf_limited):(\d+)")
# For bash: once in a second, until the standard input is closed.
SAMPLER = "while ss -tinOH; read -rt 1; [ $? -gt 128 ]; do :; done"


class Socket(NamedTuple):
    """One line of ss: bytes that were acknowledged, milliseconds of the kernel's clocks, and whether it waited for data to send."""

    name: str
    acked: int
    busy: int
    rwnd_limited: int
    sndbuf_limited: int
    app_limited: bool


class Limits(NamedTuple):
    """Of the flow that carried the most: the shares of the time in which the receiver's window and the send buffer limited it."""

    window: float = 0.0
    buffer: float = 0.0


def limits(text: str) -> Limits:
    """From the output of SAMPLER.

    iperf always has more to send: where a socket has nothing to send although the congestion window has room (app_limited), its
    buffer is too small. The kernel's own clock for that (sndbuf_limited) does not count the short waits of a flow without pacing.
    """
    flows: dict[str, list[Socket]] = {}
    for one in _sockets(text.splitlines()):
        flows.setdefault(one.name, []).append(one)
    if not flows:
        return Limits()
    flow = max(flows.values(), key=lambda samples: samples[-1].acked)
    last, active = flow[-1], [new for old, new in zip(flow, flow[1:]) if new.acked > old.acked]
    starved = sum(one.app_limited for one in active)
    return Limits(
        window=last.rwnd_limited / max(1, last.busy),
        buffer=max(last.sndbuf_limited / max(1, last.busy), starved / max(1, len(active))),
    )


def _sockets(rows: Iterable[str]) -> Iterator[Socket]:
    for row in rows:
        words = row.split()
        if len(words) < 5 or words[0] != "ESTAB":
            continue
        known = {name: int(value) for name, value in NUMBER.findall(row)}
        yield Socket(
            f"{words[3]} {words[4]}",
            known.get("bytes_acked", 0),
            *(known.get(name, 0) for name in ("busy", "rwnd_limited", "sndbuf_limited")),
            " app_limited" in row,
        )
