"""The step "path": the routers on the way to the peer, the MTU at each, and other ways."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import replace

from neuca_tools.selftest.evidence import Evidence
from neuca_tools.selftest.measure.probes.hops import Target, trace
from neuca_tools.selftest.report.text import route_words


def path_step(evidence: Evidence, target: Target, mtu: int) -> tuple[Evidence, str, str]:
    """The evidence with the route, the verdict, and the text; `mtu` is that of the device."""
    target = target._replace(rtt=evidence.idle.p50 or 0.0)
    try:
        route = trace(target, mtu, evidence.path_mtu.forward)
    except OSError as error:
        return evidence, "unknown", f"cannot be measured: {error.strerror}"
    verdict = "pass" if route.reached else "unknown"
    return replace(evidence, route=route), verdict, route_words(route)
