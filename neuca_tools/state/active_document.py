"""The active document: the one that a source has now, or else the last good one."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, Optional

from neuca_tools.backends import hostid
from neuca_tools.documents import find_document, parse
from neuca_tools.documents.neuca.ini import redact_text
from neuca_tools.errors import ApplyError, DocumentError, IncompleteError, RecordError, SourceError
from neuca_tools.model import Document, machine
from neuca_tools.model.machine import Machine, MetadataService
from neuca_tools.model.rows import StoredDocument
from neuca_tools.sources import Answer, Session, SourceSpec, Surroundings, ask_sources
from neuca_tools.sources import detected_cloud as cloud
from neuca_tools.sources.base import DEFAULT_SURROUNDINGS
from neuca_tools.state import records
from neuca_tools.state.store import NO_ROOM, Where

NOT_ASKED = "no source has responded since the boot"
ANSWER_FIELDS = ("none_for_us", "reason", "refused", "doubted", "platform", "disputed", "seen")
_HYPERVISORS = ("lxd", "vmware")
RIVAL_ANSWER_SECONDS = 1.0  # that other NICs get to contradict the first answer of an instance
NOTHING_STORED = StoredDocument("", "", "", "")

# Imports inside functions: only hosts with a platform's document need its readers, which take 5 ms.


class Intake(NamedTuple):
    """The active document, and what the sources answered.

    `stale`: no source has confirmed the document this time. `none_for_us`: a source has answered
    and has no NEuca document. `unanswered`: no source has answered. `reason` says why the document,
    or a part of it, is stale; `refused` why the source's present document cannot be used at all.
    `doubted` is the digest of a document that removes every NIC: it is accepted if the next look
    finds it again. `instance` is the instance ID that the source gives; `other_machine` says why
    the state is another machine's. `platform` is the cloud that `auto` detected. `origin` is the
    metadata service that answered, `digest` that of its whole answer; `disputed`: a service on
    another NIC answers differently. `seen` is the digest that the daemon's own sources last had.
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
    session: Session = Session()
    instance: str = ""
    other_machine: str = ""
    origin: Optional[MetadataService] = None
    digest: str = ""
    disputed: str = ""
    seen: str = ""

    @property
    def sha256(self) -> str:
        """The digest of a document that a source has confirmed; empty if it is stale."""
        return "" if self.stored is None or self.stale else self.stored.sha256

    @property
    def is_confirmed(self) -> bool:
        """Whether the sources have given this document, and there is nothing to add to that."""
        said = (self.none_for_us, self.reason, self.refused, self.doubted, self.disputed)
        return bool(self.sha256) and not any(said)


def last_good(directory: Where, reason: str = "") -> Intake:
    """The saved document, stale until a source confirms it; none if the copy is damaged."""
    try:
        stored = records.load_document(directory)
        if stored is None:
            return Intake(reason=reason)
        return Intake(_open_document(stored), stored, stale=True, reason=reason)
    except (RecordError, DocumentError) as error:
        return Intake(reason="; ".join(filter(None, (reason, error.text))))


def stored_document(directory: Where) -> Optional[StoredDocument]:
    """The last good document; None without a usable one."""
    with suppress(RecordError):
        return records.load_document(directory)
    return None


def _recorded_machine(directory: Where) -> Machine:
    with suppress(RecordError):
        return records.load_machine(directory)
    return Machine()


def _open_document(stored: StoredDocument, parsed: Optional[Document] = None) -> Document:
    """The document with both parts; `parsed` is its text, parsed before. Raises DocumentError."""
    document = parsed or (parse(stored.text) if stored.text else Document())
    if not stored.platform:
        return document
    from neuca_tools.documents.platform import combined

    of_platform = combined.parse(stored.platform)
    return document._replace(
        hostname=document.hostname or of_platform.hostname,
        items=document.items + of_platform.items,
        faults=document.faults + of_platform.faults,
        platform=of_platform,
    )


def fetch_document(
    specs: Sequence[SourceSpec],
    budget: float,
    session: Session,
    directory: Where,
    surroundings: Surroundings = DEFAULT_SURROUNDINGS,
) -> Intake:
    """Query the sources within `budget` seconds; what has no usable answer stays as it was."""
    if {spec.kind for spec in specs} == {"none"}:
        # An empty document: the configuration is the whole request.
        stored = _document_to_save("", "", "", stored_document(directory) or NOTHING_STORED)
        reason = "the configuration names no source (sources = none)"
        return Intake(Document(), stored, none_for_us=True, reason=reason)
    before = _recorded_machine(directory)
    if before.origin and not machine.is_other_hardware(before, hostid.read_machine()):
        # A metadata service has answered: no volume counts, even if some were read before.
        surroundings = surroundings._replace(volumes=False)
    intake = _ask_sources(
        lambda known: ask_sources(specs, budget, known, surroundings),
        session,
        directory,
        surroundings.run_directory,
    )
    disputed = str(records.load_source_answers(surroundings.run_directory).get("disputed", ""))
    if surroundings.origin is None and intake.origin is not None:
        disputed = _describe_rivals(specs, budget, surroundings, intake.origin, intake.digest)
    return intake._replace(platform=cloud(specs, surroundings), disputed=disputed)


def _describe_rivals(
    specs: Sequence[SourceSpec],
    budget: float,
    surroundings: Surroundings,
    origin: MetadataService,
    own_digest: str,
) -> str:
    """A sentence if a service on another likely NIC answers differently; empty if none does.

    `origin` is the service that has answered first for this instance, `own_digest` the digest of
    its answer.
    """
    names = []
    for outlet in surroundings.outlets if origin.mac else ():
        if outlet.identity == origin.mac or not outlet.is_likely:
            continue
        with suppress(SourceError):
            seconds = min(budget, RIVAL_ANSWER_SECONDS)
            only = surroundings._replace(outlets=(outlet,))
            answer = ask_sources(specs, seconds, Session(), only)
            if answer.origin and not answer.is_empty and answer.digest != own_digest:
                names.append(outlet.name)
    if not names:
        return ""
    return (
        f"the response of another metadata service, through {', '.join(names)}, differs and is"
        f" ignored; the service in use is {origin.source} at {origin.url}"
        f" through the NIC {origin.mac}"
    )


def _ask_sources(
    ask: Callable[[Session], Answer], session: Session, directory: Where, run_directory: Path
) -> Intake:
    answers = records.load_source_answers(run_directory)
    try:
        answer = ask(session)
        intake = _intake_of(answer, directory)
        before, seen = stored_document(directory), str(answers.get("seen", ""))
        is_new = before is not None and intake.sha256 not in ("", seen, before.sha256)
        is_file = answer.source.startswith("file:")
        if not (intake.other_machine or is_new):
            return intake
        if is_file:
            from neuca_tools.sources.files import await_unchanged  # for a new document only

            if not await_unchanged(answer.source):
                return intake
        again = _intake_of(ask(answer.session.without_trees()), directory)
    except SourceError as error:
        is_silent = not isinstance(error, IncompleteError)
        return last_good(directory, error.text)._replace(session=session, unanswered=is_silent)
    if (again.sha256, again.other_machine) != (intake.sha256, intake.other_machine):
        reason = f"{answer.source} gave two different documents in a row"
        return last_good(directory, reason)._replace(session=again.session)
    if is_file:
        return again
    return _unless_empty(again, directory, str(answers.get("doubted", "")))


def _unless_empty(intake: Intake, directory: Where, doubted: str) -> Intake:
    """The intake; a document that removes every NIC is accepted only once it was found twice."""
    before = last_good(directory)
    is_emptied = _has_links(before) and not _has_links(intake)
    if intake.other_machine or not is_emptied or intake.sha256 == doubted:
        return intake
    reason = (
        f"the document of {intake.stored.source if intake.stored else ''} no longer has any NIC:"
        " it is used if the next query confirms it"
    )
    return before._replace(reason=reason, doubted=intake.sha256, session=intake.session)


def _has_links(intake: Intake) -> bool:
    document = intake.document
    return bool(document and (document.links or (document.platform and document.platform.links)))


def _intake_of(answer: Answer, directory: Where) -> Intake:
    """The answer as the active document with its service; an empty one or a web page has none."""
    intake = _document_of(answer, directory)
    speaks = bool(answer.instance or intake.instance) or not (answer.is_empty or intake.refused)
    origin = answer.origin if speaks else None
    return intake._replace(origin=origin, digest=answer.digest)


def _document_of(answer: Answer, directory: Where) -> Intake:
    """The answer as the active document; parts that are missing or unusable stay as they were."""
    usable = _usable_documents(answer)
    instance = answer.instance or usable.instance
    other = machine.renewed_reason(_recorded_machine(directory), instance)
    before = NOTHING_STORED if other else stored_document(directory) or NOTHING_STORED
    usable = _complete_part(answer, usable, before)
    if usable.text is None and usable.platform is None:
        reason = f"{answer.source} now has no NEuca document"
        if usable.refused:
            reason = f"what {answer.source} provides now is refused"
        intake = Intake(reason=reason) if other else last_good(directory, reason)
        intake = intake._replace(none_for_us=not usable.refused)
    else:
        intake = _merge_parts(answer, usable, before)
        if intake.document is None:
            return intake
    return intake._replace(
        refused=usable.refused, session=answer.session, instance=instance, other_machine=other
    )


def _complete_part(answer: Answer, usable: _Usable, before: StoredDocument) -> _Usable:
    """The answer without a platform's document that cannot be all about the guest's NICs.

    Raises IncompleteError unless there is a changed NEuca document beside a lost file: that of a
    service may be another guest's.
    """
    if not usable.platform:
        return usable
    from neuca_tools.documents.platform import combined

    # A file can be lost, but not a key of a hypervisor.
    can_lose = answer.source.partition("=")[0] not in _HYPERVISORS
    last = before.platform if can_lose and before.source == answer.source else ""
    macs = answer.outlet.macs if answer.outlet else ()
    reason = combined.gap(usable.platform, last, None if answer.origin is None else macs)
    if not reason:
        return usable
    text = f"{answer.source}: its answer is incomplete: {reason}"
    if answer.origin is not None or usable.text in (None, before.text):
        raise IncompleteError(text)
    return usable._replace(platform=None, refused=text)


def _merge_parts(answer: Answer, usable: _Usable, before: StoredDocument) -> Intake:
    """The parts of the answer, with missing ones from `before`; `refused` if those are damaged."""
    text, platform = usable.text, usable.platform
    missing = []
    if text is None and before.text:
        missing.append("no NEuca document")
    if platform is None and before.platform:
        missing.append("no network document")
    kept = text or before.text, platform or before.platform
    stored = _document_to_save(answer.source, *kept, before)
    try:
        document = _open_document(stored, usable.parsed if text == stored.text else None)
    except DocumentError as error:
        return Intake(refused=error.text, session=answer.session)
    reason = f"{answer.source} now has {' and '.join(missing)}" if missing else ""
    return Intake(document, stored, reason=reason)


class _Usable(NamedTuple):
    """The NEuca document, also parsed; the platform's and its instance ID; why one is refused."""

    text: Optional[str]
    parsed: Optional[Document]
    platform: Optional[str]
    refused: str
    instance: str


def _usable_documents(answer: Answer) -> _Usable:
    """The documents of the answer, None if absent."""
    text = platform = parsed = None
    instance, refused = "", []
    try:
        if answer.data is not None:
            text = find_document(answer.data)
        if text is not None:
            parsed = parse(text)
    except DocumentError as error:
        text = None
        refused.append(f"document of {answer.source}: {error.text}")
    if answer.unread:
        refused.append(f"document of {answer.source}: {answer.unread}")
    if answer.parts:
        from neuca_tools.documents.platform import combined

        try:
            platform = combined.reduce_documents(answer.parts) or None
            instance = combined.instance_id(platform or "")
        except DocumentError as error:
            refused.append(f"document of {answer.source}: {error.text}")
    return _Usable(text, parsed, platform, "; ".join(refused), instance)


def _document_to_save(
    source: str, text: str, platform: str, before: StoredDocument
) -> StoredDocument:
    """Both documents to save; the digest is that of `text`, a dot, and a part of `platform`'s."""
    parts = [part for part in (text, platform) if part] or [""]
    digests = [sha256(part.encode("utf-8", "surrogatepass")).hexdigest() for part in parts]
    joined = ".".join([*digests[:1], *(digest[:16] for digest in digests[1:])])
    if before.sha256 == joined and before.source == source:
        return before
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return StoredDocument(source, joined, now, text, platform)


def keep_document(intake: Intake, state_directory: Where, run_directory: Path) -> None:
    """Save the document for boots without metadata, a redacted copy, and the sources' answers.

    The redacted copy is for unprivileged users. Files that are up to date are not written. The
    files of the run directory are left out if it takes nothing. Raises ApplyError.
    """
    stored = intake.stored
    if stored is not None:
        records.save_document(state_directory, stored)
    origin, machine_before = intake.origin, _recorded_machine(state_directory)
    known = machine_before.origin
    if origin and (known is None or (known.url, known.mac) != (origin.url, origin.mac)):
        # From now on, only the service that has answered is asked.
        records.save_machine(state_directory, machine_before._replace(origin=origin))
    try:
        if stored is not None:
            copy = stored._replace(text=redact_text(stored.text))
            if stored.platform:
                from neuca_tools.documents.platform import combined

                copy = copy._replace(platform=combined.redacted_text(stored.platform))
            records.save_document(run_directory, copy, 0o644)
        answers = {name: getattr(intake, name) for name in ANSWER_FIELDS}
        records.save_source_answers(run_directory, answers, intake.sha256)
    except ApplyError as error:
        if error.errno not in NO_ROOM:
            raise


def last_confirmed(state_directory: Where, run_directory: Path) -> Intake:
    """The last good document with the sources' last answers; a redacted copy for other users."""
    intake = last_good(state_directory)
    if intake.document is None:
        intake = last_good(run_directory, intake.reason)
    recorded = {"reason": NOT_ASKED} | records.load_source_answers(run_directory)
    fresh = bool(intake.stored and recorded.get("sha256") == intake.stored.sha256)
    texts: dict[str, Any] = {name: str(recorded.get(name, "")) for name in ANSWER_FIELDS}
    if intake.document is None:
        texts["reason"] = intake.reason or texts["reason"]
    answers = {**texts, "none_for_us": bool(recorded.get("none_for_us"))}
    return intake._replace(stale=intake.document is not None and not fresh, **answers)
