"""The state file of a trial: what a boot in the middle of it needs, and what status says of it."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Optional

from neuca_tools.backends import hostid, processes
from neuca_tools.config import Config
from neuca_tools.errors import RecordError
from neuca_tools.model import UNRECORDED, Record
from neuca_tools.model.links import NONE_IN_FORCE
from neuca_tools.state import records, store
from neuca_tools.state.active_document import Intake
from neuca_tools.state.records import Trial

if TYPE_CHECKING:
    from neuca_tools.apply.decide import Decision


def save_trial(
    config: Config, intake: Intake, seconds: float, record: Record, decision: Decision
) -> None:
    """Save the trial of this process, with the record from before it. Raises ApplyError."""
    trial = Trial(
        boot_id=hostid.boot_id(),
        pid=os.getpid(),
        process=processes.process_note(os.getpid()).decode(),
        until=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds)),
        source=intake.stored.source if intake.stored else "",
        record=record,
        names={mac: device.name for mac, device in decision.resolution.roles.nics.items()},
        changed=tuple(sorted(decision.unapplied_scope())),
    )
    records.save_trial(config.state, trial)


def remove_trial(config: Config) -> None:
    """Raises ApplyError."""
    store.remove_state(config.state, records.TRIAL)


def restore_record(config: Config, record: Record) -> None:
    """Save this record, empty if there was none, as the agent's. Raises ApplyError."""
    if record == Record():
        store.remove_state(config.state, records.RECORD)
    else:
        records.save_record(config.state, record)


def recover_from_trial(config: Config) -> bool:
    """After a trial that did not end: restore the record from before (`next_record`).

    Raises ApplyError, ObserveError. Returns whether another boot was in the middle of a trial.
    """
    interrupted = stored_trial(config)
    if not interrupted:
        return False
    if interrupted.boot_id != hostid.boot_id():
        restore_record(config, interrupted.record)
        remove_trial(config)
        return True
    if not is_running(interrupted):
        with suppress(RecordError):  # which the pass reports
            records.save_record(config.state, next_record(config))
    return False


def change_earlier_record(config: Config, change: Callable[[Record], Record]) -> None:
    """Change the record from before a trial that was killed, to be called with the lock held.

    What a command changes in the record outlasts a boot before the next pass. Raises ApplyError.
    """
    interrupted = stored_trial(config)
    if interrupted:
        changed = interrupted._replace(record=change(interrupted.record))
        records.save_trial(config.state, changed)


def next_record(config: Config) -> Record:
    """The record with which the next pass in this boot begins. Raises RecordError.

    What a trial that was killed did is still there and ours. Only the names are those from before
    it, and the NICs that it changed have no request in force: the pass returns to theirs.
    """
    record, interrupted = records.load_record(config.state), stored_trial(config)
    if interrupted is None or interrupted.boot_id != hostid.boot_id() or is_running(interrupted):
        return record
    earlier, changed = interrupted.record.nics, interrupted.changed
    nics = {
        mac: nic._replace(
            name=earlier.get(mac, UNRECORDED).name or interrupted.names.get(mac, nic.name),
            applied=NONE_IN_FORCE if mac in changed else nic.applied,
        )
        for mac, nic in record.nics.items()
    }
    applied = NONE_IN_FORCE if "" in changed else record.applied
    return record._replace(nics=nics, applied=applied)


def stored_trial(config: Config) -> Optional[Trial]:
    """The trial in progress, or one that was interrupted; None without a usable file of one."""
    with suppress(RecordError):
        return records.load_trial(config.state)
    return None


def is_running(trial: Optional[Trial]) -> bool:
    """Whether the process of a trial still runs; a zombie does not, nor another with its ID."""
    return trial is not None and bool(processes.running_pid(trial.process))


def lock_seconds(config: Config) -> float:
    """How long to wait for the lock of passes: not at all for a trial, which holds it for long."""
    return 0.0 if is_running(stored_trial(config)) else config.command_timeout


def trial_note(config: Config) -> Optional[str]:
    """A line for status while a trial runs, or after its process was killed; else None."""
    present = stored_trial(config)
    if present is None:
        return None
    if not is_running(present):
        return "a trial was interrupted: the next pass returns to the earlier document"
    subject = "the configuration without a document"
    if present.source:
        subject = f"the document of {present.source}"
    return f"{subject} is on trial until {present.until}: neuca confirm keeps it"
