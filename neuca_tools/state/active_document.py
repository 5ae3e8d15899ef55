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
from typing import Callable, Optional

from neuca_tools.backends import hostid
from neuca_tools.documents import find_document, parse
from neuca_tools.documents.platform import combined as platform
from neuca_tools.documents.redact import redact
from neuca_tools.errors import DocumentError, RecordError, SourceError, UsageError
from neuca_tools.model import Document, Host, machine
from neuca_tools.model.machine import Machine, Origin
from neuca_tools.model.stored import StoredDocument
from neuca_tools.sources import Answer, Session, SourceSpec, Surroundings, look, parse_source
from neuca_tools.sources import platform as cloud
from neuca_tools.sources.url import parse_url
from neuca_tools.state.records import (
    load_document,
    load_look,
    load_machine,
    save_document,
    save_look,
    save_machine,
)
from neuca_tools.state.store import Where

LOOK = ("none_for_us", "reason", "refused", "doubted", "platform", "disputed")
CROSS_CHECK = 1.0  # seconds that other NICs get to contradict the first answer of an instance


@dataclass(frozen=True)
class Intake:
    """`stale`: no source confirmed it this time. `none_for_us`: a source answered, and has no NEuca document.

    `reason` says why it, or a part of it, is stale; `refused` why what the source has now cannot be used at all. `doubted` is
    the digest of a document that takes every NIC away: it is believed when the next look finds it again. `instance` is what
    the source says of which instance this is, `other` why that is another machine than the one that the state is about.
    `platform` is what `auto` takes this host for (`sources.platform`); `unanswered`: no source has answered this time.
    `origin` is the metadata service that answered, `said` the digest of its whole answer; `disputed`: what another one, on
    another NIC, answers is not the same.
    """

    document: Optional[Document] = None
    stored: Optional[StoredDocument] = None
    stale: bool = False
    none_for_us: bool = False
    reason: str = ""
    refused: str = ""
    doubted: str = ""
    platform: str = ""
    unanswered: bool = False
    session: Session = field(default_factory=Session)
    instance: str = ""
    other: str = ""
    origin: Optional[Origin] = None
    said: str = ""
    disputed: str = ""

    @property
    def sha256(self) -> str:
        """Of the document that a source has confirmed; empty for a stale one."""
        return self.stored.sha256 if self.stored and not self.stale else ""


def last_good(directory: Where, reason: str = "") -> Intake:
    """The document of before, stale until a source confirms it. A copy that is damaged counts as none: the sources have it."""
    try:
        stored = load_document(directory)
        document = _opened(stored) if stored else None
    except (RecordError, DocumentError) as error:
        return Intake(reason="; ".join(filter(None, (reason, error.text))))
    return Intake(document, stored if document else None, stale=document is not None, reason=reason)


def _stored(directory: Where) -> Optional[StoredDocument]:
    with suppress(RecordError):
        return load_document(directory)
    return None


def _machine(directory: Where) -> Machine:
    with suppress(RecordError):
        return load_machine(directory)
    return Machine()


def _opened(stored: StoredDocument) -> Document:
    """What both texts say. Raises DocumentError."""
    document = parse(stored.text) if stored.text else Document()
    if not stored.platform:
        return document
    beside = platform.parse(stored.platform)
    return replace(
        document,
        hostname=document.hostname or beside.hostname,
        items=document.items + beside.items,
        faults=document.faults + beside.faults,
        platform=beside,
    )


def fetch(
    specs: Sequence[SourceSpec],
    budget: float,
    session: Session,
    directory: Where,
    surroundings: Optional[Surroundings] = None,
) -> Intake:
    """Ask the sources within `budget` seconds. Without a usable answer the last good document stays in force, part by part."""
    around = _without_volumes(surroundings or Surroundings(), directory)
    intake = _fetched(
        lambda known: look(specs, budget, known, around), session, directory, around.run_directory
    )
    disputed = str(load_look(around.run_directory).get("disputed", ""))
    if around.origin is None and intake.origin is not None:
        disputed = _contradiction(specs, budget, around, intake)
    return replace(intake, platform=cloud(specs, around), disputed=disputed)


def _contradiction(
    specs: Sequence[SourceSpec], budget: float, around: Surroundings, intake: Intake
) -> str:
    """What another NIC than the one that was believed has to say, where nothing is known yet of either."""
    origin = intake.origin
    others = tuple(one for one in around.outlets if origin and one.identity != origin.mac)
    if not (origin and origin.mac and others):
        return ""
    said = [
        (one.name, _said(specs, min(budget, CROSS_CHECK), replace(around, outlets=(one,))))
        for one in others
        if one.likely
    ]
    names = ", ".join(name for name, digest in said if digest not in ("", intake.said))
    return (
        f"a metadata service answers through {names} too, and differently: it is ignored; the one"
        f" that counts is {origin.source} at {origin.url} through the NIC {origin.mac}"
        if names
        else ""
    )


def _said(specs: Sequence[SourceSpec], budget: float, around: Surroundings) -> str:
    """The digest of the answer, empty if there is none."""
    try:
        answer = look(specs, budget, Session(), around)
    except SourceError:
        return ""
    return "" if answer.empty or answer.origin is None else _digest(answer)


def _digest(answer: Answer) -> str:
    parts = [answer.data or b"", *(answer.parts[name] for name in sorted(answer.parts))]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def _without_volumes(surroundings: Surroundings, directory: Where) -> Surroundings:
    """Once a metadata service has answered for this instance, volumes count no more, also those that were read before."""
    before = _machine(directory)
    if before.origin is None or machine.elsewhere(before, hostid.look()):
        return surroundings
    return replace(surroundings, volumes=False)


def _fetched(
    ask: Callable[[Session], Answer], session: Session, directory: Where, run_directory: Path
) -> Intake:
    try:
        answer = ask(session)
        intake = _taken(answer, directory)
        if not (intake.other or _differs(intake, directory)) or answer.source.startswith("file:"):
            return intake
        again = _taken(ask(answer.session.doubting()), directory)
    except SourceError as error:
        return replace(last_good(directory, error.text), session=session, unanswered=True)
    if (again.sha256, again.other) != (intake.sha256, intake.other):
        return replace(
            last_good(directory, f"{answer.source} gave two different documents in a row"),
            session=again.session,
        )
    return _believed(again, directory, str(load_look(run_directory).get("doubted", "")))


def _differs(intake: Intake, directory: Where) -> bool:
    before = _stored(directory)
    return before is not None and bool(intake.sha256) and intake.sha256 != before.sha256


def _believed(intake: Intake, directory: Where, doubted: str) -> Intake:
    """A document that takes every NIC away is one that two looks have found."""
    before = last_good(directory)
    if intake.other or not _links(before) or _links(intake) or intake.sha256 == doubted:
        return intake
    reason = f"what {intake.stored.source if intake.stored else ''} has now has no NIC any more: it has to say so twice"
    return replace(before, reason=reason, doubted=intake.sha256, session=intake.session)


def _links(intake: Intake) -> bool:
    document = intake.document
    return document is not None and bool(
        document.links or (document.platform and document.platform.links)
    )


def _taken(answer: Answer, directory: Where) -> Intake:
    """The answer as the document in force, with the service that gave it: an error page has none for us."""
    speaks = bool(answer.instance) or not answer.empty
    origin = answer.origin if speaks else None
    return replace(_document_of(answer, directory), origin=origin, said=_digest(answer))


def _document_of(answer: Answer, directory: Where) -> Intake:
    """The answer as the document in force. A part that it lacks, or that cannot be used, stays as it was."""
    text, beside, refused = _usable(answer)
    instance = answer.instance or platform.instance_id(beside or "")
    other = machine.renewed(_machine(directory), instance)
    before = (None if other else _stored(directory)) or StoredDocument("", "", "", "")
    if text is None and beside is None:
        reason = (
            f"what {answer.source} has now is refused"
            if refused
            else f"{answer.source} has no NEuca document now"
        )
        instead = Intake(reason=reason) if other else last_good(directory, reason)
        return replace(
            instead,
            none_for_us=not refused,
            refused=refused,
            session=answer.session,
            instance=instance,
            other=other,
        )
    kept = ["no NEuca document"] if text is None and before.text else []
    kept += ["no network document"] if beside is None and before.platform else []
    stored = _stamped(answer.source, text or before.text, beside or before.platform, before)
    try:
        document = _opened(stored)
    except DocumentError as error:  # what is kept from before is damaged
        return Intake(refused=error.text, session=answer.session)
    reason = f"{answer.source} has {' and '.join(kept)} now" if kept else ""
    return Intake(
        document,
        stored,
        reason=reason,
        refused=refused,
        session=answer.session,
        instance=instance,
        other=other,
    )


def _usable(answer: Answer) -> tuple[Optional[str], Optional[str], str]:
    """The NEuca text and the platform's, None where there is none, and why one of them cannot be used."""
    text = beside = None
    refused = []
    try:
        text = None if answer.data is None else find_document(answer.data)
        if text is not None:
            parse(text)
    except DocumentError as error:
        text = None
        refused.append(f"document of {answer.source}: {error.text}")
    try:
        beside = platform.reduced(answer.parts) or None
    except DocumentError as error:
        refused.append(f"document of {answer.source}: {error.text}")
    return text, beside, "; ".join(refused)


def _stamped(source: str, text: str, beside: str, before: StoredDocument) -> StoredDocument:
    """The digest is that of the NEuca text, for whoever compares; behind a dot, a piece of that of the platform's."""
    digests = [hashlib.sha256(part.encode()).hexdigest() for part in (text, beside) if part]
    sha256 = ".".join([*digests[:1], *(digest[:16] for digest in digests[1:])])
    if before.sha256 == sha256 and before.source == source:
        return before
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return StoredDocument(source, sha256, now, text, beside)


def keep(intake: Intake, state_directory: Where, run_directory: Path) -> None:
    """Keep the document for boots without metadata, a redacted copy for users other than root, and what the sources said.

    Writes nothing that is there already. Raises ApplyError.
    """
    if intake.stored is not None:
        save_document(state_directory, intake.stored)
        stored = intake.stored
        beside = platform.open_text(stored.platform) if stored.platform else ""
        save_document(
            run_directory, replace(stored, text=redact(stored.text), platform=beside), 0o644
        )
    _pin(intake.origin, state_directory)
    save_look(run_directory, {name: getattr(intake, name) for name in LOOK}, intake.sha256)


def _pin(origin: Optional[Origin], state_directory: Where) -> None:
    """Remember the service that has answered: no other one is asked from now on. Raises ApplyError."""
    known = _machine(state_directory)
    before = known.origin
    if origin and (before is None or (before.url, before.mac) != (origin.url, origin.mac)):
        save_machine(state_directory, replace(known, origin=origin))


def confirmed(state_directory: Where, run_directory: Path) -> Intake:
    """The last good document with what the sources last said of it; a redacted copy for users other than root."""
    whole = last_good(state_directory)
    intake = whole if whole.document else last_good(run_directory)
    said = load_look(run_directory)
    fresh = bool(intake.stored and said.get("sha256") == intake.stored.sha256)
    return replace(
        intake,
        stale=intake.document is not None and not fresh,
        none_for_us=bool(said.get("none_for_us")),
        reason=str(said.get("reason", "no source has answered since the boot")),
        refused=str(said.get("refused", "")),
        doubted=str(said.get("doubted", "")),
        platform=str(said.get("platform", "")),
        disputed=str(said.get("disputed", "")),
    )


def metadata_hosts(sources: Iterable[str]) -> list[Host]:
    """The addresses of the metadata services that the configuration names, beside the well-known ones."""
    hosts = []
    for text in sources:
        with suppress(UsageError, ValueError):
            hosts.append(
                ip_address(parse_url(parse_source(text).argument).address.partition("%")[0])
            )
    return hosts
