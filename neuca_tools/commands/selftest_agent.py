"""The agent's plan for this host, as the self-test's `AgentPlan`."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Optional

from neuca_tools.apply.decide import Decision
from neuca_tools.apply.host import host
from neuca_tools.config import Config
from neuca_tools.desired.resolve import Resolution
from neuca_tools.model import Address
from neuca_tools.plan.operation import Operation
from neuca_tools.plan.operations import WriteSysctl
from neuca_tools.selftest.measure.host.facts import SWAP
from neuca_tools.state.active_document import confirmed
from neuca_tools.status.report import read_report
from neuca_tools.tuning.layer import CONGESTION

# The longest list of differences that a report carries.
MOST = 50
# The problems of a document that make a host differ from it.
REPORTED_PROBLEMS = ("absent", "contested", "name", "mtu")


@dataclass(frozen=True)
class Outlook:
    """An `AgentPlan`. Without arguments: that of a host, or a network namespace, without an agent."""

    reserved: Mapping[int, str] = field(default_factory=dict)
    networks: tuple[tuple[str, tuple[Address, ...]], ...] = ()
    sysctls: Mapping[str, str] = field(default_factory=dict)
    drift: Optional[tuple[str, ...]] = None


def outlook(config: Config) -> Outlook:
    """Observe the host once, without changing it. Raises ObserveError, RecordError.

    Before the agent's first pass only the reserved devices and the networks are known.
    """
    intake = confirmed(config.state, config.run_directory)
    with host(config, intake) as handles:
        decision = handles.survey()
    reserved, networks = _reserved(decision), _networks(decision)
    if read_report(config.run_directory) is None:
        return Outlook(reserved, networks)
    return Outlook(reserved, networks, wanted(decision.resolution), _drift(decision))


def wanted(resolution: Resolution) -> dict[str, str]:
    """The desired sysctls by their dotted names.

    A congestion control that this kernel does not have is among them, so that the test reports it.
    """
    missing = {
        one.setting: one.asked
        for one in resolution.tuning.values
        if one.setting == CONGESTION and one.effect == "unsupported"
    }
    sysctls = {**resolution.want.sysctls, **missing}
    return {key.translate(SWAP): value for key, value in sysctls.items()}


def _drift(decision: Decision) -> tuple[str, ...]:
    """What differs from the plan. The test itself compares the host-wide sysctls with `wanted`."""
    problems = [one.text for one in decision.resolution.problems if one.code in REPORTED_PROBLEMS]
    operations = [one.text for one in decision.plan() if not _is_host_wide_sysctl(one)]
    return tuple(dict.fromkeys([*problems, *operations]))[:MOST]


def _is_host_wide_sysctl(operation: Operation) -> bool:
    return isinstance(operation, WriteSysctl) and operation.link is None


def _reserved(decision: Decision) -> dict[int, str]:
    roles = decision.resolution.roles
    ignored = dict.fromkeys(roles.protected, "an ignored NIC")
    return {**ignored, **dict.fromkeys(roles.management, "the management NIC")}


def _networks(decision: Decision) -> tuple[tuple[str, tuple[Address, ...]], ...]:
    present = decision.have.links
    found = []
    for key in sorted(decision.want.links):
        if key in present:
            link = present[key]
            addresses = decision.want.links[link.key].addresses or link.addresses
            found.append((link.name or "", addresses))
    return tuple(found)
