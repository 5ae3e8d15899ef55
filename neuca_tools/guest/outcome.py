"""What each feature last said, in a file of the run directory for `neuca status`; and the mark that another run is due.

The mark is a file too: neuca-guest.path starts a run when it appears, and looks for it again when the run has ended, so that a
document which comes meanwhile is never missed.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Optional

from neuca_tools.config import Config
from neuca_tools.errors import (
    EXIT_DEGRADED,
    EXIT_FAILED,
    EXIT_INVALID,
    EXIT_OK,
    EXIT_PENDING,
    ApplyError,
    RecordError,
)
from neuca_tools.files import read_bytes, write_files
from neuca_tools.guest.base import FEATURES, STATES, Finding, State
from neuca_tools.model import Document
from neuca_tools.state.active_document import Intake
from neuca_tools.state.shapes import fit, made
from neuca_tools.state.store import read
from neuca_tools.state.store import save as write
from neuca_tools.status.judge import Status

log = logging.getLogger("neuca")
# The mark; that a run is under way, or was when it died; and the digest of the document that the last one was for.
DUE, BEGUN, RAN = "guest-due", "guest-begun", "guest-ran"
RECORDS = "guest-*.json"  # in the state directory: what a feature has to remember beyond a boot
MOST = 1000  # findings that one feature keeps
_RANK = {
    "failed": EXIT_FAILED,
    "pending": EXIT_PENDING,
    "degraded": EXIT_DEGRADED,
    "ok": EXIT_OK,
}  # the worst first


@dataclass(frozen=True)
class Outcome:
    """What one feature has found. `finished` (RFC 3339, UTC) is empty while it is at work."""

    feature: str
    findings: tuple[Finding, ...] = ()
    finished: str = ""

    @property
    def state(self) -> State:
        states = {finding.state for finding in self.findings} | (
            set() if self.finished else {"pending"}
        )
        return next((state for state in STATES if state in states), "ok")

    @property
    def again(self) -> bool:
        return any(finding.again for finding in self.findings)

    def having(self, finding: Finding) -> Outcome:
        """With one finding more, the last about its subject."""
        others = tuple(
            one for one in self.findings if not finding.subject or one.subject != finding.subject
        )
        return replace(self, findings=(*others, finding)[-MOST:])

    def ended(self) -> Outcome:
        return replace(self, finished=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"))

    def to_json(self) -> dict[str, Any]:
        return {
            "feature": self.feature,
            "state": self.state,
            "finished": self.finished or None,
            "findings": [dict(finding.__dict__) for finding in self.findings],
        }


def file_name(feature: str) -> str:
    return f"guest-{feature}.json"


def files() -> list[str]:
    """The names of all files in the run directory that are about the guest."""
    return [DUE, BEGUN, RAN, *map(file_name, FEATURES)]


def save(directory: Path, outcome: Outcome) -> None:
    """Raises ApplyError."""
    write(directory, file_name(outcome.feature), outcome.to_json(), 0o644)


def forget(directory: Path, feature: str) -> None:
    """It is switched off. Raises ApplyError."""
    write_files({directory / file_name(feature): None})


def load(directory: Path, feature: str) -> Optional[Outcome]:
    """None where it has not run since the boot, is switched off, or left nothing that can be read."""
    with suppress(RecordError, ValueError, TypeError, KeyError):
        data = read(directory, file_name(feature))
        if data is not None:
            findings = tuple(made(Finding, one) for one in data["findings"])
            return Outcome(feature, findings, fit(data["finished"] or "", str, "finished"))
    return None


# --- Whether a run is due -------------------------------------------------------------------------------------------


def ask(config: Config, intake: Intake) -> None:
    """After a pass: have the features run if the document is another one than they last ran for since the boot.

    One that asks nothing of the guest, and none did before, costs nothing. A mark that cannot be made costs only itself.
    """
    document, directory = intake.document, config.run_directory
    if (
        document is None
        or intake.stored is None
        or not (_asks(config, document) or _has_records(config.state_directory))
    ):
        return
    with suppress(OSError):
        if (
            read_bytes(directory / DUE) is not None
            or read_bytes(directory / RAN) == intake.stored.sha256.encode()
        ):
            return  # it is asked for, or done
    try:
        write_files({directory / DUE: b""})
    except ApplyError as error:
        log.warning("%s, ignoring", error.text)


def _asks(config: Config, document: Document) -> bool:
    return any(
        feature.is_on(config) and feature.asked(config, document) for feature in FEATURES.values()
    )


def _has_records(directory: Path) -> bool:
    """Whether a feature has something to take away again: it then keeps a record of it."""
    return any(directory.glob(RECORDS))


def is_due(directory: Path) -> bool:
    return (directory / DUE).exists()


def begin(directory: Path) -> None:
    """A run begins: from now on, a mark is for the next one. Raises ApplyError."""
    write_files({directory / BEGUN: b"", directory / DUE: None})


def has_run(directory: Path) -> bool:
    """Since the boot."""
    return (directory / RAN).exists()


def ran(directory: Path, sha256: str) -> None:
    """A run for this document has ended. Raises ApplyError."""
    write_files({directory / RAN: sha256.encode(), directory / BEGUN: None})


# --- Status ---------------------------------------------------------------------------------------------------------


def with_guest(status: Status, directory: Path) -> Status:
    """The status of the network, and of the guest beside it: the worse of the two is that of the host."""
    found = [outcome for outcome in (load(directory, name) for name in FEATURES) if outcome]
    problems = [
        {"code": finding.state, "text": f"{outcome.feature}: {finding.text}"}
        for outcome in found
        for finding in outcome.findings
        if finding.state in ("failed", "refused")
    ]
    states = [status.data["state"], *_words(found, directory)]
    state = next(word for word in _RANK if word in states)
    data = {
        **status.data,
        "state": state,
        "problems": [*status.data["problems"], *problems],
        "guest": [outcome.to_json() for outcome in found],
    }
    return Status(data, status.exit_code if status.exit_code == EXIT_INVALID else _RANK[state])


def _words(found: Iterable[Outcome], directory: Path) -> list[str]:
    """The states of the guest in the words of the network's. A run that is due, or under way, is pending."""
    words = {"refused": "degraded"}
    waiting = is_due(directory) or (directory / BEGUN).exists()
    return [
        *(words.get(outcome.state, outcome.state) for outcome in found),
        *(["pending"] if waiting else []),
    ]
