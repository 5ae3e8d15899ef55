"""`neuca tune`: sets sysctls, MTUs, queue lengths and device settings as a pass does."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from neuca_tools.agent import mtu_probe
from neuca_tools.agent.release import run
from neuca_tools.apply.decide import Decision
from neuca_tools.apply.host import host
from neuca_tools.apply.result import Result
from neuca_tools.apply.transaction import Purpose
from neuca_tools.config import Config
from neuca_tools.files import locked
from neuca_tools.model import LinkKey, Record
from neuca_tools.plan.link_operations import SetDevice
from neuca_tools.plan.operation import Operation
from neuca_tools.plan.operations import SetMtu, SetTxQueueLen, WriteSysctl
from neuca_tools.state import records, updates
from neuca_tools.state.active_document import Intake
from neuca_tools.tuning.choice import Choice

KINDS = (SetMtu, SetTxQueueLen, SetDevice, WriteSysctl)


@dataclass(frozen=True)
class Tuning(Purpose):
    """`neuca tune`: the settings of a pass but `others`; with `link`, only those of that link."""

    link: Optional[LinkKey] = None
    others: tuple[Operation, ...] = ()

    def operations(self, decision: Decision) -> tuple[Operation, ...]:
        """The settings to change, in the order of a pass."""
        planned = (operation for operation in decision.plan() if isinstance(operation, KINDS))
        settings = [operation for operation in planned if operation not in self.others]
        if self.link is None:
            return tuple(settings)
        return tuple(one for one in settings if one.link and one.link.key == self.link)

    def remember(self, decision: Decision, result: Result, held: object) -> Record:  # noqa: ARG002
        """What was changed; which request is in force stays as it was."""
        resolution, have, world = decision.resolution, decision.have, decision.world
        return updates.forget_restored(decision.record, resolution, have, world)


def tune(
    config: Config, intake: Intake, choice: Optional[Choice], link: Optional[LinkKey] = None
) -> Result:
    """Apply the settings that documents request and profiles want, and nothing else.

    A choice of profiles holds until the next boot. It is saved before anything is set, so that
    every later pass agrees with it. Raises NeucaError.
    """
    config.demand_protection()
    with locked(config.run_directory / "lock", config.command_timeout):
        if choice is not None:
            records.save_choice(config.run_directory, choice)
        with host(config, intake) as handles:
            outcome = run(handles, Tuning(link))
            result = outcome.result
            if not result.failures and mtu_probe.explore(handles, outcome.decision, start=True):
                result += run(handles, Tuning(link)).result
        return result


def untune(config: Config, intake: Intake) -> Result:
    """Drop the choice of profiles, and set what is requested without it. Raises NeucaError.

    What a pass would change with the choice as well, such as manual changes, is left alone.
    """
    with locked(config.run_directory / "lock", config.command_timeout):
        with host(config, intake) as handles:
            others = Tuning().operations(handles.survey())
        records.save_choice(config.run_directory, None)
        with host(config, intake) as handles:
            return run(handles, Tuning(others=others)).result


def what_untune_does(config: Config, intake: Intake) -> tuple[Operation, ...]:
    """The operations of `untune`, without doing them. Raises NeucaError."""
    with host(config, intake) as handles:
        others = Tuning().operations(handles.survey())
    with host(config, intake, config.choice) as handles:
        return Tuning(others=others).operations(handles.survey())
