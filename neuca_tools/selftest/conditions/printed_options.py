"""D04, D06, D36: what the options of iperf asked for; the first two by its own figures alone."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.base import BELOW_BLOCKS, MEDIUM, Hit, fact
from neuca_tools.selftest.conditions.printed import BLOCK, tcp_printed
from neuca_tools.selftest.conditions.thresholds import EXCEEDED, TOGETHER
from neuca_tools.selftest.evidence.look import Look
from neuca_tools.selftest.evidence.printed import Printed

# iperf3 -b sends at least one block (-l) for each tick of 100 ms (esnet/iperf issues 439, 1052).
TICKS, MANY = 10, 4  # in a second; seconds


def whole_blocks(look: Look) -> Optional[Hit]:
    """iperf3 sends whole blocks: a lower rate than one block for each tick cannot be requested."""
    one = tcp_printed(look)
    if _is_one_block(look):
        return _one_block_hit(look)
    is_alone = look.phase.name != TOGETHER
    if one is not None and is_alone and not look.asked and _is_one_block_a_tick(one):
        return _unstated_blocks(one)
    if one is None or not look.asked or one.rate < EXCEEDED * look.asked:
        return None
    return Hit(
        0.9,
        f"-b requested {amounts.rate(look.asked)}, and iperf3 sent {amounts.rate(one.rate)}: it "
        "sends whole blocks, one for each tick of its timer at least",
        (fact("-b", round(look.asked)), fact("rate, bit/s", round(one.rate))),
        "smaller blocks (-l 1K), or pacing by the kernel (--fq-rate)",
        "tool",
        confidence=MEDIUM,
        title=BELOW_BLOCKS,
    )


def _is_one_block(look: Look) -> bool:
    """Whether one block is more than -b allows for the whole run, so that no other was sent."""
    flow = look.flow
    if look.protocol != "tcp" or not look.asked or flow is None or len(flow.intervals) < MANY:
        return False
    sizes, last = [one.bytes or 0.0 for one in flow.intervals], flow.intervals[-1]
    return 0 < sum(sizes) <= BLOCK and not any(sizes[1:]) and look.asked * last.end / 8 < BLOCK


def _one_block_hit(look: Look) -> Hit:
    return Hit(
        0.9,
        f"-b requested {amounts.rate(look.asked or 0)}: the first block (128 KiB) is more than "
        "that for the whole run, so that iperf3 sent nothing else",
        (fact("-b", round(look.asked or 0)),),
        "smaller blocks (-l 1K), or a higher rate",
        "tool",
        confidence=MEDIUM,
        title=BELOW_BLOCKS,
    )


def _is_one_block_a_tick(one: Printed) -> bool:
    """Whether each second has just the blocks of an old iperf3's timer; links have no such rate."""
    sizes = {round((each.bytes or 0.0) / BLOCK, 1) for each in one.late if each.seconds > 0.9}
    return len(one.late) >= MANY and sizes == {TICKS} and (one.retransmits or 0) <= len(one.every)


def _unstated_blocks(one: Printed) -> Hit:
    return Hit(
        0.85,
        f"every second carries {TICKS} blocks of 128 KiB: iperf3 sends one for each tick of its "
        "timer if -b asks for less than that, and nothing limits",
        (fact("rate, bit/s", round(one.rate)),),
        "if -b was given: smaller blocks (-l 1K), or pacing by the kernel (--fq-rate)",
        "tool",
        confidence=MEDIUM,
        title=BELOW_BLOCKS,
    )


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
