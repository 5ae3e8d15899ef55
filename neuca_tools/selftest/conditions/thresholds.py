"""Whether a phase reached what was expected of it."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from typing import Optional

from neuca_tools.selftest.evidence.look import Look

TOGETHER = "tcp-bidir"  # the phase in which both ways carry at once
# Of what is expected: TCP, UDP (facts, section 6; but not 0.95 for many streams: of a line's own 10 Gbit/s these get 9.41 at the
# most, with packets of 1500 bytes).
THROUGHPUT, DATAGRAMS = 0.90, 0.80
# Of each way, where both carry at once, and of what the two carry alone (D28): acknowledgements wait behind the other way's
# data, and with buffers of a round trip two-way TCP leaves a good part unused (Zhang, Shenker and Clark, SIGCOMM 1991; 0.72 in a
# healthy case of tests/machine/faults).
BOTH_WAYS = 0.70


def passed(one: Look) -> Optional[bool]:
    """None: there is nothing to compare with, or nothing was measured."""
    run = one.phase.run
    asked = one.phase.target or (run.target if run else None)
    if one.protocol == "udp":
        wanted, part = asked or None, DATAGRAMS
    else:
        wanted = (
            min(one.evidence.expect, asked)
            if one.evidence.expect and asked
            else one.evidence.expect
        )
        part = BOTH_WAYS if one.phase.name == TOGETHER else THROUGHPUT
    if run is not None and run.error:
        return False
    if one.phase.search:
        return None
    if wanted is None or one.rate is None:
        return (
            True if asked and one.rate and one.rate >= part * asked else None
        )  # as fast as it was allowed to be
    return (_of_each_way(one) or one.rate) >= part * wanted


def _of_each_way(one: Look) -> Optional[float]:
    """Where both carry at once they are judged together, as D28 does: which of the two gets more is chance."""
    flows = one.phase.run.flows if one.phase.run and one.phase.name == TOGETHER else ()
    rates = [flow.rate for flow in flows if flow.rate]
    return sum(rates) / len(rates) if len(rates) > 1 else None
