"""The state file of a trial: what a boot in the middle of it needs, and what status says of it."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Optional

from neuca_tools.backends import hostid, processes
from neuca_tools.config import Config
from neuca_tools.errors import RecordError
from neuca_tools.model.links import NONE_IN_FORCE
from neuca_tools.state import store
from neuca_tools.state.active_document import Intake
from neuca_tools.state.records import RECORD, TRIAL, load_record, save_record

if TYPE_CHECKING:
    from neuca_tools.apply.decide import Decision


def save_trial(
    config: Config, intake: Intake, seconds: float, record: Mapping[str, Any], decision: Decision
) -> None:
    """Save the trial of this process, with the record from before it. Raises ApplyError."""
    data = {
        "boot_id": hostid.boot_id(),
        "pid": os.getpid(),
        "process": processes.process_note(os.getpid()).decode(),
        "until": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds)),
        "source": intake.stored.source if intake.stored else "",
        "record": record,
        "names": {mac: device.name for mac, device in decision.resolution.roles.nics.items()},
        "changed": sorted(decision.unapplied_scope()),
    }
    store.save_state(config.state, TRIAL, data, 0o644)


def remove_trial(config: Config) -> None:
    """Raises ApplyError."""
    store.remove_state(config.state, TRIAL)


def restore_record(config: Config, record: Mapping[str, Any]) -> None:
    """Save this record, empty if there was none, as the agent's. Raises ApplyError."""
    if record:
        store.save_state(config.state, RECORD, record, 0o644)
    else:
        store.remove_state(config.state, RECORD)


def recover_from_trial(config: Config) -> bool:
    """After a trial that did not end: restore the record from before.

    Raises ApplyError, ObserveError.

    In the same boot, what the trial did is still there and ours. Only the names are restored then,
    and the NICs that it changed have no request in force: the next pass returns to theirs. Returns
    whether another boot was in the middle of a trial.
    """
    interrupted = stored_trial(config)
    if not interrupted:
        return False
    is_of_this_boot = interrupted.get("boot_id") == hostid.boot_id()
    if is_of_this_boot and is_running(interrupted):
        return False
    if is_of_this_boot:
        _disown_changes(config, interrupted)
    else:
        restore_record(config, interrupted.get("record") or {})
        remove_trial(config)
    return not is_of_this_boot


def _disown_changes(config: Config, interrupted: Mapping[str, Any]) -> None:
    """Give the recorded NICs their earlier names, and no request to those that were changed."""
    with suppress(RecordError):  # which the pass reports
        record = load_record(config.state)
        earlier = (interrupted.get("record") or {}).get("nics", {})
        names, changed = interrupted.get("names", {}), interrupted.get("changed", ())
        nics = {
            mac: nic._replace(
                name=earlier.get(mac, {}).get("name") or names.get(mac, nic.name),
                applied=NONE_IN_FORCE if mac in changed else nic.applied,
            )
            for mac, nic in record.nics.items()
        }
        applied = NONE_IN_FORCE if "" in changed else record.applied
        save_record(config.state, record._replace(nics=nics, applied=applied))


def stored_trial(config: Config) -> dict[str, Any]:
    """The trial in progress, or one that was interrupted; empty if there is none."""
    with suppress(RecordError):
        return store.read_state(config.state, TRIAL) or {}
    return {}


def is_running(trial: Mapping[str, Any]) -> bool:
    """Whether the process of a trial still runs; a zombie does not, nor another with its ID."""
    return bool(processes.running_pid(str(trial.get("process", ""))))


def trial_note(config: Config) -> Optional[str]:
    """A line for status while a trial runs, or after its process was killed; else None."""
    present = stored_trial(config)
    if not present:
        return None
    if not is_running(present):
        return "a trial was interrupted: the next pass returns to the earlier document"
    source, until = present.get("source"), present.get("until")
    subject = f"the document of {source}" if source else "the configuration without a document"
    return f"{subject} is on trial until {until}: neuca confirm keeps it"
