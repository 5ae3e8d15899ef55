"""Giving things back: one NIC (`release`), or every setting that was changed (`revert`)."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from . import memory
from . import record as records
from .apply import Result, apply
from .config import Config
from .device_operation import SetDevice
from .documents.stacking import carriers, users
from .errors import NeucaError
from .fileio import locked
from .intake import Intake
from .marks import SYSCTL_FILE
from .model import Document, NetworkState, NicRecord, Owned
from .operation import Operation
from .operations import SetMtu, SetTxQueueLen, WriteFile, WriteSysctl
from .plan import plan
from .reconcile import Host, Survey, host, log_result, writer


def release(config: Config, intake: Intake, mac: str) -> Result:
    """Take away what is ours on one NIC, its VLANs and all that is made of it, then its rule and marks; it is ignored then.

    The plan is that of a complete document that no longer has the NIC. Other members of a bond that goes have their own again.
    """
    with locked(config.run_directory / "lock", config.command_timeout), host(config) as handles:
        requests = handles.survey(
            intake, records.load_record(config.state_directory)
        ).resolution.requests
        gone = {mac, *users((mac,), requests)}
        touched = gone | carriers(gone, requests)
        without = replace(intake, document=_without(intake.document or Document(), gone))
        own = replace(
            config, links=tuple(link for link in config.links if link.key.mac not in gone)
        )
        survey = Host(own, handles.netlink, handles.bus).survey(
            without, records.load_record(config.state_directory)
        )
        if survey.resolution.roles.role(mac) == "management":
            raise NeucaError(
                f'release "{mac}": it is the management NIC, and nothing of ours is on it'
            )
        planned = survey.plan({*touched, ""})
        result = _do(
            handles,
            survey,
            [one for one in planned if one.domain in touched or _goes_back(one, survey)],
        )
        if result.failures:
            return result
        records.save_record(config.state_directory, memory.forget(survey.record, gone))
        after = handles.survey(intake, records.load_record(config.state_directory))
        records.save_record(
            config.state_directory, memory.settle(after.record, after.resolution, after.have)
        )
        return result + _do(
            handles, after, [one for one in after.plan(()) if isinstance(one, WriteFile)]
        )


def _goes_back(operation: Operation, survey: Survey) -> bool:
    """A setting of the whole host that only this NIC asked for."""
    return (
        isinstance(operation, WriteSysctl)
        and survey.record.original_sysctls.get(operation.path) == operation.after
    )


def _without(document: Document, macs: Collection[str]) -> Document:
    beside = document.platform
    beside = beside and replace(
        beside, links=tuple(link for link in beside.links if link.key.mac not in macs)
    )
    return replace(
        document,
        links=tuple(link for link in document.links if link.key.mac not in macs),
        faults=(),
        platform=beside,
    )


def take_back(config: Config, mac: str) -> None:
    """The NIC is no longer ignored. Raises NeucaError for one that was not released."""
    with locked(config.run_directory / "lock", config.command_timeout):
        record = records.load_record(config.state_directory)
        if not record.nics.get(mac, NicRecord()).released:
            raise NeucaError(f'take back "{mac}": it was not released')
        nics = {known: nic for known, nic in record.nics.items() if known != mac}
        records.save_record(config.state_directory, replace(record, nics=nics))


def revert(config: Config, intake: Intake) -> Result:
    """Put back every MTU, txqueuelen and sysctl to what it was before the agent; a new start sets them again."""
    with locked(config.run_directory / "lock", config.command_timeout), host(config) as handles:
        survey = handles.survey(intake, records.load_record(config.state_directory))
        operations = [
            one
            for one in plan(survey.have, _originals(survey, config), Owned())
            if isinstance(one, (SetMtu, SetTxQueueLen, SetDevice, WriteSysctl, WriteFile))
        ]
        result = _do(handles, survey, operations)
        if not result.failures:
            record = replace(
                survey.record, originals={}, original_sysctls={}, declined={}, written={}
            )
            records.save_record(config.state_directory, record)
        return result


def _originals(survey: Survey, config: Config) -> NetworkState:
    links = {
        key: replace(
            survey.have.links[key],
            state=None,
            mtu=original.mtu,
            txqueuelen=original.txqueuelen,
            sysctls=original.sysctls,
            device=original.device,
            addresses=(),
            managers={},
        )
        for key, original in survey.record.originals.items()
        if key in survey.have.links
    }
    files = {str(config.sysctl_directory / SYSCTL_FILE): None}
    return NetworkState(links, sysctls=survey.record.original_sysctls, files=files)


def _do(handles: Host, survey: Survey, operations: Sequence[Operation]) -> Result:
    result = apply(operations, writer(handles, survey))
    log_result(result)
    return result
