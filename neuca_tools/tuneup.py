"""`neuca tune`: the part of a pass that sets sysctls, MTUs, queues and devices, for the profiles of now or for others."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import replace
from typing import Optional

from . import memory, probing
from . import record as records
from .apply import Failure, Result, apply
from .backends.linkwatch import Watch
from .config import Config
from .decide import Decision
from .device_operation import SetDevice
from .fileio import locked
from .handback import revert
from .intake import Intake
from .model import LinkKey
from .operation import Operation
from .operations import SetMtu, SetTxQueueLen, WriteSysctl
from .reconcile import PATIENCE, Host, host, log_result, writer
from .tuning.layer import Choice

KINDS = (SetMtu, SetTxQueueLen, SetDevice, WriteSysctl)


def operations(survey: Decision, link: Optional[LinkKey] = None) -> tuple[Operation, ...]:
    """What tuning has to do, in the order of a pass; with `link` for it alone."""
    return tuple(
        one
        for one in survey.plan()
        if isinstance(one, KINDS)
        and (link is None or (one.link is not None and one.link.key == link))
    )


def tune(
    config: Config, intake: Intake, choice: Optional[Choice], link: Optional[LinkKey] = None
) -> Result:
    """Set what is asked for and what the profiles want, and nothing else. A choice holds until the next boot.

    It is kept before anything is written, so that every pass from then on agrees with it. Raises NeucaError.
    """
    with locked(config.run_directory / "lock", config.command_timeout):
        if choice is not None:
            records.save_choice(config.run_directory, choice)
        with host(config) as handles:
            result, after = _round(handles, intake, link)
            if not result.failures and probing.explore(
                config,
                after.resolution,
                after.have,
                after.record,
                writer(handles, after),
                start=True,
            ):
                result += _round(handles, intake, link)[0]
        return result


def _round(handles: Host, intake: Intake, link: Optional[LinkKey]) -> tuple[Result, Decision]:
    """Plan, remember, apply, verify, remember; and what the host was like at the end."""
    directory = handles.config.state
    with Watch() as watch:
        survey = handles.survey(intake, records.load_record(directory))
        todo = operations(survey, link)
        record = memory.intend(survey.record, todo)
        records.save_record(directory, record)
        result = apply(todo, writer(handles, survey))
        log_result(result)
        record, failed = (
            memory.decline(record, result.declined),
            {failure.operation.target for failure in result.failures},
        )
        for patience in PATIENCE:
            if patience:
                watch.wait(patience)
            after = handles.survey(intake, record)
            left = [one for one in operations(after, link) if one.target not in failed]
            if not left:
                break
    lost = Result(
        (),
        tuple(Failure(one, "done, but it is not so: another program put it back") for one in left),
    )
    log_result(lost)
    record = memory.settle(record, after.resolution, after.have, after.world)
    records.save_record(directory, record)
    return result + lost, replace(after, record=record)


def untune(config: Config, intake: Intake) -> Result:
    """Put back what was changed, and forget what `tune` was told. Raises NeucaError."""
    result = revert(config, intake)
    with locked(config.run_directory / "lock", config.command_timeout):
        records.save_choice(config.run_directory, None)
    return result
