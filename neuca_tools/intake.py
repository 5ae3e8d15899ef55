"""The document in force: what a source says now, or the last good one where it says nothing that can be used."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from ipaddress import ip_address
from pathlib import Path
from typing import Optional

from .documents import find_document, parse
from .documents.redact import redact
from .errors import DocumentError, RecordError, SourceError, UsageError
from .model import Document, Host, StoredDocument
from .record import load_document, load_look, save_document, save_look
from .sources import Session, SourceSpec, look, parse_source
from .sources.url import parse_url

LOOK = ("none_for_us", "reason", "refused")


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


def _stored(directory: Path) -> Optional[StoredDocument]:
    with suppress(RecordError):
        return load_document(directory)
    return None


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
    before = _stored(directory)
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    same = before is not None and before.sha256 == sha256 and before.source == source
    return Intake(document, before if same else StoredDocument(source, sha256, now, text))


def keep(intake: Intake, state_directory: Path, run_directory: Path) -> None:
    """Keep the document for boots without metadata, a redacted copy for users other than root, and what the sources said.

    Writes nothing that is there already. Raises ApplyError.
    """
    if intake.stored is not None:
        save_document(state_directory, intake.stored)
        save_document(run_directory, replace(intake.stored, text=redact(intake.stored.text)), 0o644)
    save_look(run_directory, {name: getattr(intake, name) for name in LOOK}, intake.sha256)


def confirmed(state_directory: Path, run_directory: Path) -> Intake:
    """The last good document with what the sources last said of it; a redacted copy for users other than root."""
    whole = last_good(state_directory)
    intake = whole if whole.document else last_good(run_directory)
    said = load_look(run_directory)
    fresh = bool(intake.stored and said.get("sha256") == intake.stored.sha256)
    return replace(intake, stale=intake.document is not None and not fresh, none_for_us=bool(said.get("none_for_us")),
                   reason=str(said.get("reason", "no source has answered since the boot")), refused=str(said.get("refused", "")))


def metadata_hosts(sources: Iterable[str]) -> list[Host]:
    """The addresses of the metadata services that the configuration names, beside the well-known ones."""
    hosts = []
    for text in sources:
        with suppress(UsageError, ValueError):
            hosts.append(ip_address(parse_url(parse_source(text).argument).address.partition("%")[0]))
    return hosts
