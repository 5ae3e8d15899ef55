"""What the steps of a test found, in words; and the step "path"."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import replace

from neuca_tools.selftest import amounts
from neuca_tools.selftest.evidence import Evidence, Latency, Reach
from neuca_tools.selftest.measure.probes.hops import Target, trace
from neuca_tools.selftest.report.text import route_words


def reach_words(reach: Reach) -> list[str]:
    """What is known of the neighbour and of pings."""
    words = [f"neighbour {reach.neighbour}"] if reach.neighbour else []
    if reach.ping is not None:
        words.append("ping answered" if reach.ping else "no response to ping")
    return words


def words_of(latency: Latency) -> str:
    """A latency for people, in the units of `amounts.time`."""
    if latency.p50 is None or latency.p99 is None or latency.maximum is None:
        return f"no response to {latency.count} requests" if latency.count else "not measured"
    lost = f", {latency.lost} of {latency.count} lost" if latency.lost else ""
    p50, p99, most = map(amounts.time, (latency.p50, latency.p99, latency.maximum))
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
