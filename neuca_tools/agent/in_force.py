"""The document in force, which passes, `neuca apply` and trials change by one rule.

It is read under the lock of passes, because what was read before may be out of date by then. A poll
of the daemon replaces it only if the document of its own sources has changed since the last poll.
So the next poll neither undoes what an administrator has applied from elsewhere, nor applies a
document whose trial was not confirmed.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Optional

from neuca_tools.config import Config
from neuca_tools.errors import ApplyError
from neuca_tools.files import locked
from neuca_tools.state.active_document import Intake, last_good, stored_document
from neuca_tools.state.records import load_source_answers, save_source_answers


@contextmanager
def document_in_force(
    config: Config,
    read: Callable[[], Intake],
    *,
    from_own_sources: bool,
    even_if_seen: bool,
    lock_seconds: Optional[float] = None,
    at_start: Optional[tuple[str, str]] = None,
) -> Iterator[Intake]:
    """Hold the lock of passes, and yield the document to be in force.

    `read` is called without the lock, because it may take long, and again with it if the document
    in force has changed meanwhile. The lock is waited for `lock_seconds`, by default
    `command-timeout`. For the other arguments see `decide_document`. `at_start` are the `digests`
    when the daemon started: if they still hold, a document of the own sources that was not applied
    is applied, unless the run directory is full: then they have to change. Raises NeucaError.
    """
    before = digests(config)
    latest = read()
    seconds = config.command_timeout if lock_seconds is None else lock_seconds
    with locked(config.pass_lock, seconds):
        now = digests(config)
        if now != before:
            latest = read()
        if now == at_start and from_own_sources and latest.sha256 not in ("", now[0]):
            with suppress(ApplyError):
                note_seen(config, "")
        yield decide_document(
            config, latest, from_own_sources=from_own_sources, even_if_seen=even_if_seen
        )


def decide_document(
    config: Config, latest: Intake, *, from_own_sources: bool, even_if_seen: bool
) -> Intake:
    """The document to be in force, now that `latest` was read; to be called with the lock held.

    The active document stays if `latest` is what the daemon's own sources had already when they
    were last considered, unless it is to be applied `even_if_seen`. With `from_own_sources`,
    `latest` is what these sources have now, and is noted as such in the result (`Intake.seen`).
    """
    before = last_seen_digest(config)
    intake = latest._replace(seen=(from_own_sources and latest.sha256) or before)
    is_to_apply = latest.sha256 and (even_if_seen or latest.sha256 != before)
    if latest.stored is None or latest.other_machine or is_to_apply:
        return intake
    active = last_good(config.state)
    if active.stored is None or active.stored.sha256 == latest.stored.sha256:
        return intake
    reason = _unapplied_reason(latest)
    return intake._replace(document=active.document, stored=active.stored, reason=reason)


def _unapplied_reason(latest: Intake) -> str:
    """Why the document that the sources have is not in force."""
    if not latest.sha256:
        return latest.reason
    reason = "the configuration requests no document (sources = none)"
    if latest.stored and latest.stored.source:
        reason = f"{latest.stored.source} has another document"
    remedy = "until it changes or neucad starts: neuca apply applies it"
    return f"{reason}, which is not applied {remedy}"


def last_seen_digest(config: Config) -> str:
    """The digest of what the own sources had last; at first, that of the active document."""
    return str(load_source_answers(config.run_directory).get("seen", "")) or _active_digest(config)


def note_seen(config: Config, sha256: str) -> None:
    """Save this digest as that of what the own sources have now. Raises ApplyError."""
    answers = load_source_answers(config.run_directory)
    if answers.get("seen", "") != sha256:
        sha256_confirmed = str(answers.get("sha256", ""))
        save_source_answers(config.run_directory, {**answers, "seen": sha256}, sha256_confirmed)


def digests(config: Config) -> tuple[str, str]:
    """Those of the active document, and of what the own sources had last."""
    return _active_digest(config), last_seen_digest(config)


def _active_digest(config: Config) -> str:
    stored = stored_document(config.state)
    return stored.sha256 if stored else ""
