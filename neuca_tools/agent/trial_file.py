"""The state file of a trial: what a boot in the middle of it needs, and what status says of it."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from neuca_tools.backends import hostid
from neuca_tools.config import Config
from neuca_tools.errors import RecordError
from neuca_tools.state import store
from neuca_tools.state.active_document import Intake
from neuca_tools.state.records import RECORD, TRIAL
from neuca_tools.typed import Any, Optional


def save(config: Config, intake: Intake, seconds: float, record: Mapping[str, Any]) -> None:
    """Save the trial of this process, with the record from before it. Raises ApplyError."""
    data = {
        "boot_id": hostid.boot_id(),
        "pid": os.getpid(),
        "until": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds)),
        "source": intake.stored.source if intake.stored else "",
        "record": _plain(record),
    }
    store.save(config.state, TRIAL, data, 0o644)


def remove(config: Config) -> None:
    """Raises ApplyError."""
    store.remove(config.state, TRIAL)


def _plain(data: Mapping[str, Any]) -> dict[str, Any]:
    """A state file without what `store.save` adds to it."""
    return {key: value for key, value in data.items() if key not in ("version", store.CHECKSUM)}


def restore_record(config: Config, record: Mapping[str, Any]) -> None:
    """Save this record, empty if there was none, as the agent's. Raises ApplyError."""
    if record:
        store.save(config.state, RECORD, _plain(record), 0o644)
    else:
        store.remove(config.state, RECORD)


def recover(config: Config) -> bool:
    """After a boot in the middle of a trial: restore the record from before. Raises ApplyError.

    Returns whether it was restored.
    """
    interrupted = found(config)
    if not interrupted or interrupted.get("boot_id") == hostid.boot_id():
        return False
    restore_record(config, interrupted.get("record") or {})
    remove(config)
    return True


def found(config: Config) -> dict[str, Any]:
    """The trial in progress, or one that was interrupted; empty if there is none."""
    with suppress(RecordError):
        return store.read(config.state, TRIAL) or {}
    return {}


def is_running(trial: Mapping[str, Any]) -> bool:
    """Whether the process of a trial still runs; a zombie, which nobody waits for, does not."""
    try:
        state = Path(f"/proc/{trial.get('pid')}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")


def note(config: Config) -> Optional[str]:
    """A line for status while a trial runs, or after its process was killed; else None."""
    present = found(config)
    if not present:
        return None
    if not is_running(present):
        return "a trial was interrupted: the next pass returns to the earlier document"
    source, until = present.get("source"), present.get("until")
    return f"the document of {source} is on trial until {until}: neuca confirm keeps it"
