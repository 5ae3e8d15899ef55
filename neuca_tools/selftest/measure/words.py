"""What the steps of a test found, in words; and the step "path"."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import replace

from neuca_tools.selftest import amounts
from neuca_tools.selftest.evidence import Evidence, Latency, Reach
from neuca_tools.selftest.measure.probes.hops import Target, trace
from neuca_tools.selftest.report.text import route_words


def reach_words(found: Reach) -> list[str]:
    """What is known of the neighbour and of pings."""
    words = [f"neighbour {found.neighbour}"] if found.neighbour else []
    if found.ping is not None:
        words.append("ping answered" if found.ping else "no response to ping")
    return words


def words_of(found: Latency) -> str:
    """A latency for people, in the units of `amounts.time`."""
    if found.p50 is None or found.p99 is None or found.maximum is None:
        return f"no response to {found.count} requests" if found.count else "not measured"
    lost = f", {found.lost} of {found.count} lost" if found.lost else ""
    p50, p99, most = map(amounts.time, (found.p50, found.p99, found.maximum))
    return f"p50 {p50}, p99 {p99}, max {most}{lost}"


def path_step(evidence: Evidence, target: Target, mtu: int) -> tuple[Evidence, str, str]:
    """The evidence with the route, the verdict, and the text; `mtu` is that of the device."""
    target = target._replace(rtt=evidence.idle.p50 or 0.0)
    try:
        route = trace(target, mtu, evidence.path_mtu.forward)
    except OSError as error:
        return evidence, "unknown", f"cannot be measured: {error.strerror}"
    verdict = "pass" if route.reached else "unknown"
    return replace(evidence, route=route), verdict, route_words(route)
