"""The document in force: what a source says now, or the last good one where it says nothing that can be used."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Optional, Sequence

from .documents import find_document, parse
from .documents.redact import redact
from .errors import ApplyError, DocumentError, RecordError, SourceError
from .model import Document
from .record import StoredDocument, load_document, save_document
from .sources import Session, SourceSpec, look


@dataclass(frozen=True)
class Intake:
    """`stale`: no source confirmed it this time. `none_for_us`: a source answered, and has no NEuca document.

    `reason` says why it is stale; `refused` why what the source has now cannot be used at all.
    """

    document: Optional[Document] = None
    stored: Optional[StoredDocument] = None
    stale: bool = False
    none_for_us: bool = False
    reason: str = ""
    refused: str = ""
    session: Session = field(default_factory=Session)

    @property
    def sha256(self) -> str:
        """Of the document that a source has confirmed; empty for a stale one."""
        return self.stored.sha256 if self.stored and not self.stale else ""


def last_good(directory: Path, reason: str = "") -> Intake:
    """The document of before, stale until a source confirms it. A copy that is damaged counts as none: the sources have it."""
    try:
        stored = load_document(directory)
        document = parse(stored.text) if stored else None
    except (RecordError, DocumentError) as error:
        return Intake(reason="; ".join(filter(None, (reason, error.text))))
    return Intake(document, stored if document else None, stale=document is not None, reason=reason)


def fetch(specs: Sequence[SourceSpec], budget: float, session: Session, directory: Path) -> Intake:
    """Ask the sources within `budget` seconds. Without a usable answer the last good document stays in force."""
    try:
        answer = look(specs, budget, session)
    except SourceError as error:
        return replace(last_good(directory, error.text), session=session)
    try:
        text = None if answer.data is None else find_document(answer.data)
        if text is None:
            kept = last_good(directory, f"{answer.source} has no NEuca document now")
            return replace(kept, none_for_us=True, session=answer.session)
        return replace(_taken(answer.source, text, directory), session=answer.session)
    except DocumentError as error:
        kept = last_good(directory, f"what {answer.source} has now is refused")
        return replace(kept, refused=f"document of {answer.source}: {error.text}", session=answer.session)


def _taken(source: str, text: str, directory: Path) -> Intake:
    document = parse(text)
    before = last_good(directory).stored
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    same = before is not None and before.sha256 == sha256 and before.source == source
    return Intake(document, before if same else StoredDocument(source, sha256, now, text))


def keep(intake: Intake, state_directory: Path, run_directory: Path) -> None:
    """Keep the document for boots without metadata, and a redacted copy for users other than root. Raises ApplyError."""
    if intake.stored is None:
        return
    save_document(state_directory, intake.stored)
    save_document(run_directory, replace(intake.stored, text=redact(intake.stored.text)), 0o644)


def readable(state_directory: Path, run_directory: Path) -> Intake:
    """The last good document for whoever asks: whole for root, redacted for others."""
    whole = last_good(state_directory)
    return whole if whole.document else last_good(run_directory)


__all__ = ["ApplyError", "Intake", "fetch", "keep", "last_good", "readable"]
