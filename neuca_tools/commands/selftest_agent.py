"""The agent's plan for this host, as the self-test needs it."""

# SPDX-License-Identifier: MIT

import argparse
from typing import Optional

from neuca_tools.apply.decide import Decision
from neuca_tools.apply.host import open_host
from neuca_tools.backends.namespace import enter_network
from neuca_tools.config import Config
from neuca_tools.desired.resolve import Resolution
from neuca_tools.errors import UsageError
from neuca_tools.model import Address
from neuca_tools.plan.operations import WriteSysctl
from neuca_tools.selftest.measure.host import planned
from neuca_tools.selftest.measure.host.facts import SWAP_SEPARATORS
from neuca_tools.selftest.measure.host.planned import AgentPlan
from neuca_tools.state.active_document import last_confirmed
from neuca_tools.status.report import read_report
from neuca_tools.tuning.layer import CONGESTION

MAX_DIFFERENCES = 50  # differences in a report
# The problems of a document that make a host differ from it.
REPORTED_PROBLEMS = ("absent", "contested", "name", "mtu")


def read_agent_plan(config: Config) -> AgentPlan:
    """Observe the host once, without changing it. Raises ObserveError, RecordError.

    Before the agent's first pass only the reserved devices and the networks are known.
    """
    intake = last_confirmed(config.state, config.run_directory)
    with open_host(config, intake) as host:
        decision = host.survey()
    guard, networks = decision.resolution.roles.guard, _planned_networks(decision)
    reserved = dict.fromkeys(guard.devices, "an ignored NIC")
    reserved.update(dict.fromkeys(guard.management, "the management NIC"))
    if read_report(config.run_directory) is None:
        return AgentPlan(reserved, networks)
    sysctls = desired_sysctls(decision.resolution)
    return AgentPlan(reserved, networks, sysctls, _drift_texts(decision))


def desired_sysctls(resolution: Resolution) -> dict[str, str]:
    """The desired sysctls by their dotted names.

    A congestion control that this kernel does not have is among them, so that the test reports it.
    """
    missing = {
        choice.setting: choice.requested
        for choice in resolution.tuning.values
        if choice.setting == CONGESTION and choice.effect == "unsupported"
    }
    sysctls = {**resolution.desired.sysctls, **missing}
    return {key.translate(SWAP_SEPARATORS): value for key, value in sysctls.items()}


def _drift_texts(decision: Decision) -> tuple[str, ...]:
    """What differs from the plan, except host-wide sysctls, which the test compares itself."""
    problems = decision.resolution.problems
    texts = [problem.text for problem in problems if problem.code in REPORTED_PROBLEMS]
    texts += [
        operation.text
        for operation in decision.plan()
        if not isinstance(operation, WriteSysctl) or operation.link is not None
    ]
    return tuple(dict.fromkeys(texts))[:MAX_DIFFERENCES]


def _planned_networks(decision: Decision) -> tuple[tuple[str, tuple[Address, ...]], ...]:
    present = decision.observed.links
    keys = [key for key in sorted(decision.desired.links) if key in present]
    wanted = [decision.desired.links[key].addresses or present[key].addresses for key in keys]
    return tuple(zip((present[key].name or "" for key in keys), wanted))


def enter_namespace(netns: Optional[str], container: Optional[str]) -> Optional[AgentPlan]:
    """Enter a network namespace, or that of a container, where the agent has no plan.

    None if neither is named. Raises UsageError, SelftestError.
    """
    if netns:
        enter_network(planned.named_namespace(netns))
    elif container:
        enter_network(planned.container_namespace(container))
    else:
        return None
    return AgentPlan()


def outlook_of(arguments: argparse.Namespace, config: Config) -> AgentPlan:
    """The agent's plan for this host; enters --netns or --container, where the plan is empty.

    Raises UsageError, SelftestError, ObserveError, RecordError.
    """
    if arguments.netns and arguments.container:
        raise UsageError("--netns and --container cannot be combined")
    return enter_namespace(arguments.netns, arguments.container) or read_agent_plan(config)
