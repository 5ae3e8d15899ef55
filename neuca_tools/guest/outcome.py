"""The findings of each feature, for `neuca status`; and the mark that a run is due.

The mark is a file: neuca-guest.path starts a run when it appears, and checks for it again when the
run has ended, so that a document that arrives meanwhile is not missed.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Optional

from neuca_tools.config import Config
from neuca_tools.errors import EXIT_INVALID, ApplyError, ObserveError, RecordError
from neuca_tools.files import matching_paths, read_bytes, write_files
from neuca_tools.guest.base import FEATURES, STATES, Finding, State, utc_now
from neuca_tools.model.shapes import Shapes
from neuca_tools.state.active_document import Intake
from neuca_tools.state.store import file_exists, read_state, save_state
from neuca_tools.status.judge import EXIT_CODES, Status

log = logging.getLogger("neuca")
_KEYS = {"needs_retry": "again"}  # in JSON
_SHAPES = Shapes({}, key_by_field=_KEYS)

# The mark that a run is due; the mark that one has begun and not ended; and the SHA-256 of the
# document of the last run.
DUE, BEGUN, RAN = "guest-due", "guest-begun", "guest-ran"
NOT_RUN = "requests for the host itself have not been carried out yet; neucad --guest does that"
RECORDS = "guest-*.json"  # in the state directory: what a feature has to remember beyond a boot
MAX_FINDINGS = 4096  # that one feature keeps: 3 for each of 1024 users, 1 for each one withdrawn
_WORST_FIRST = ("failed", "pending", "degraded", "ok")  # the states of a host


class Outcome(NamedTuple):
    """The findings of one feature. `finished` (RFC 3339, UTC) is empty while the feature runs."""

    feature: str
    findings: tuple[Finding, ...] = ()
    finished: str = ""

    @property
    def state(self) -> State:
        states = {finding.state for finding in self.findings}
        if not self.finished:
            states.add("pending")
        return next((state for state in STATES if state in states), "ok")

    @property
    def needs_retry(self) -> bool:
        return any(finding.needs_retry for finding in self.findings)

    def with_finding(self, finding: Finding) -> Outcome:
        """With this finding added, in place of any other about the same subject."""
        subject = finding.subject
        others = (other for other in self.findings if not subject or other.subject != subject)
        return self._replace(findings=(*others, finding)[-MAX_FINDINGS:])

    def ended(self) -> Outcome:
        return self._replace(finished=utc_now())

    def to_json(self) -> dict[str, Any]:
        return {
            "feature": self.feature,
            "state": self.state,
            "finished": self.finished or None,
            "findings": [
                {_KEYS.get(name, name): value for name, value in finding._asdict().items()}
                for finding in self.findings
            ],
        }


def file_name(feature: str) -> str:
    return f"guest-{feature}.json"


def file_names() -> list[str]:
    """The names of all files in the run directory that are about the guest."""
    return [DUE, BEGUN, RAN, *map(file_name, FEATURES)]


def save_outcome(directory: Path, outcome: Outcome) -> None:
    """Raises ApplyError."""
    save_state(directory, file_name(outcome.feature), outcome.to_json(), 0o644)


def load_outcome(directory: Path, feature: str) -> Optional[Outcome]:
    """The last findings; None if it has not run since the boot, or if they are unreadable."""
    with suppress(RecordError, ValueError, TypeError, KeyError):
        data = read_state(directory, file_name(feature))
        if data is not None:
            findings = _SHAPES.reader(tuple[Finding, ...])(data["findings"])
            return Outcome(feature, findings, _SHAPES.read(str, data["finished"] or ""))
    return None


# --- Whether a run is due -------------------------------------------------------------------------


def request_run(config: Config, intake: Intake) -> None:
    """Request a run for the guest if the document is not the one of the last run since the boot.

    To be called after each pass. Nothing is requested for a document that asks nothing of the
    guest, if none did before. If the request cannot be written, that is logged.
    """
    document, stored, directory = intake.document, intake.stored, config.run_directory
    if document is None or stored is None:
        return
    # What a feature has recorded is removed once it is no longer requested.
    features = (feature for feature in FEATURES.values() if feature.is_on(config))
    is_asked = any(feature.is_requested(config, document) for feature in features)
    try:
        has_work = is_asked or matching_paths(config.state_directory, RECORDS)
        if has_work and not _is_run_requested(directory, stored.sha256):
            write_files({directory / DUE: b""})
    except (ApplyError, ObserveError) as error:
        log.warning("%s, ignoring", error.text)


def _is_run_requested(directory: Path, sha256: str) -> bool:
    """Whether a run is requested, or the last one has ended and was for this document."""
    with suppress(OSError):
        if read_bytes(directory / DUE) is not None:
            return True
        has_begun = read_bytes(directory / BEGUN) is not None
        return not has_begun and read_bytes(directory / RAN) == sha256.encode()
    return False


def is_due(directory: Path) -> bool:
    return file_exists(directory / DUE)


def begin_run(directory: Path) -> None:
    """A run begins: from now on, a mark is for the next one. Raises ApplyError."""
    write_files({directory / BEGUN: b"", directory / DUE: None})


def has_run(directory: Path) -> bool:
    """Whether a run has ended since the boot."""
    return file_exists(directory / RAN)


def end_run(directory: Path, sha256: str) -> None:
    """A run for this document has ended. Raises ApplyError."""
    write_files({directory / RAN: sha256.encode(), directory / BEGUN: None})


# --- Status ---------------------------------------------------------------------------------------


def with_guest(status: Status, directory: Path) -> Status:
    """The status with that of the guest added; the worse of both is the state of the host."""
    outcomes = list(filter(None, (load_outcome(directory, name) for name in FEATURES)))
    states = {"degraded" if outcome.state == "refused" else outcome.state for outcome in outcomes}
    notes = [*status.data["notes"]]
    if is_due(directory) or file_exists(directory / BEGUN):
        states.add("pending")
        notes.append(NOT_RUN)
    state = min(states | {status.data["state"]}, key=_WORST_FIRST.index)
    data = {
        **status.data,
        "state": state,
        "problems": [*status.data["problems"], *_problems_of(outcomes)],
        "notes": notes,
        "guest": [outcome.to_json() for outcome in outcomes],
    }
    if status.exit_code == EXIT_INVALID:
        return status._replace(data=data)
    return status._replace(data=data, exit_code=EXIT_CODES[state])


def _problems_of(outcomes: Iterable[Outcome]) -> list[dict[str, str]]:
    return [
        {"code": finding.state, "text": f"{outcome.feature}: {finding.text}"}
        for outcome in outcomes
        for finding in outcome.findings
        if finding.state in ("failed", "refused")
    ]
