"""The full diagnosis of one path of a mesh: what `neuca-selftest run` finds, as a Row."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_address

from neuca_tools.errors import NeucaError
from neuca_tools.selftest.conditions.base import INFO
from neuca_tools.selftest.diagnosis.diagnose import Diagnosis, diagnose
from neuca_tools.selftest.measure.host.planned import AgentPlan
from neuca_tools.selftest.measure.iperf.plans import PLANS, Options
from neuca_tools.selftest.measure.mesh.pair import await_server
from neuca_tools.selftest.measure.session import PeerTest
from neuca_tools.selftest.mesh.model import MOST_DIAGNOSIS, MOST_TEXT, MeshPlan, Row

# The latency, the path MTU and TCP from the sender of the finding, of which both ends are sampled.
PLAN = replace(PLANS["quick"], steps=PLANS["quick"].steps - {"tcp-reverse"})


def diagnosed(plan: MeshPlan, row: Row, agent: AgentPlan, secret: bytes) -> Row:
    """The row with the texts of the diagnosis, or with the reason why there is none."""
    address = next(host.address for host in plan.hosts if host.name == row.server)
    options: Options = replace(
        PLAN, port=plan.port, rate=plan.rate, expect=plan.expect, secret=secret
    )
    try:
        await_server(ip_address(address), plan, agent, secret)
        found = diagnose(PeerTest(ip_address(address), options, agent, lambda _: None).run())
    except (NeucaError, OSError) as error:
        return replace(row, error="failed", text=str(error)[:MOST_TEXT])
    rate = next((phase.steady or phase.rate for phase in found.phases), None)
    return replace(row, rate_out=rate, diagnosis=tuple(_texts(found))[:MOST_DIAGNOSIS])


def _texts(found: Diagnosis) -> Iterator[str]:
    """The findings, the most important first; why there is no explanation, if there is none."""
    for one in found.findings:
        if one.severity != INFO:
            yield f"{one.title}: {one.text}"[:MOST_TEXT]
    if found.unknown:
        yield found.unknown[:MOST_TEXT]
