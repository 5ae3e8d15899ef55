"""Asks several sources concurrently; the first in order wins, not the fastest.

As in RFC 8305 (Happy Eyeballs), attempts start one after another with a short delay, or at once if
the previous one failed, so that usually only one source is asked. For a source with several
addresses, the first answer is used, even if it is that there is no document. The answer of a source
is used once every source before it has none or has failed at all addresses. A service on another
NIC is another source: the likelier management NIC wins, however slow it is.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Optional, Union

from neuca_tools.errors import IncompleteError, SourceError
from neuca_tools.model.machine import Outlet
from neuca_tools.sources.base import Answer, Deadline, Session, Source

SECONDS_BETWEEN_ATTEMPTS = 0.25  # the Connection Attempt Delay of RFC 8305, section 5
Ask = Callable[[Source, Deadline, Session], Answer]


@dataclass
class _Entry:
    """A source at each of its addresses (`ways`): how many were asked, and the first answer."""

    name: str
    ways: Sequence[Source]
    outlet: Optional[Outlet]
    ways_asked: int = 0
    error_by_way: dict[int, str] = field(default_factory=dict)
    answer: Optional[Answer] = None

    @property
    def is_over(self) -> bool:
        return self.answer is not None or len(self.error_by_way) == len(self.ways)

    def results(self) -> list[str]:
        if self.answer:
            return ["none"]
        return [self.error_by_way[way] for way in sorted(self.error_by_way)]


_Outcome = tuple[_Entry, int, Union[Answer, BaseException]]


class Race:
    """One look at these sources, each asked in a thread unless it is local."""

    def __init__(self, sources: Iterable[Source], ask: Ask, session: Session) -> None:
        self._entries = [_Entry(source.name, source.ways(), source.outlet) for source in sources]
        self._ask, self._session = ask, session
        self._is_incomplete = False  # a source has responded, but not with all that it has
        self.threads: list[Thread] = []
        self._running = 0
        self._outcomes = SimpleQueue[_Outcome]()

    def run(self, what: str, deadline: Deadline) -> Answer:
        """The first document (`what`) in order, with the session of all sources.

        If no source has one, the answer of a service that knows this instance, else an empty one.
        Raises SourceError if there is no document and a source gave no answer.
        """
        while not self._winning_answer() and not all(
            entry.is_over for entry in self._relevant_entries()
        ):
            entry = self._next_entry()
            if entry is not None:
                self._start_request(entry, deadline)
            if self._running:
                self._wait(SECONDS_BETWEEN_ATTEMPTS if entry else None)
        answer = self._winning_answer() or self._empty_answer(what)
        return answer._replace(session=self._session)

    def _empty_answer(self, what: str) -> Answer:
        """The answer if no source has a document. Raises SourceError if one gave no answer."""
        entries = list(self._relevant_entries())
        answers = [entry.answer for entry in entries if entry.answer]
        if not entries or len(answers) < len(entries):
            raise self._error(what)
        known = (answer for answer in answers if answer.instance)
        return next(known, Answer(self._entries[-1].name, None))

    def _error(self, what: str) -> SourceError:
        """The result of each source, with the errors of all its addresses."""
        entries = self._relevant_entries()
        results = [f"{entry.name}: {text}" for entry in entries for text in entry.results()]
        text = f"no {what} from any source: {'; '.join(results) or 'there is no source'}"
        names = dict.fromkeys(entry.outlet.name for entry in self._entries if entry.outlet)
        if names:
            text += f"; no NIC other than {', '.join(names)} is queried"
        return IncompleteError(text) if self._is_incomplete else SourceError(text)

    def _wait(self, seconds: Optional[float]) -> None:
        """Wait until one of the running requests ends; without `seconds`, as long as it takes."""
        try:
            entry, way, outcome = self._outcomes.get(timeout=seconds)
        except Empty:
            return
        self._running -= 1
        self._record(entry, way, outcome)

    def _relevant_entries(self) -> Iterator[_Entry]:
        """The sources in order; once a service knows this instance, only those on its NIC."""
        known_outlet: Optional[Outlet] = None
        for entry in self._entries:
            if known_outlet and entry.outlet not in (None, known_outlet):
                continue
            yield entry
            if entry.outlet and entry.is_over and entry.answer and entry.answer.instance:
                known_outlet = entry.outlet

    def _winning_answer(self) -> Optional[Answer]:
        for entry in self._relevant_entries():
            if not entry.is_over:
                return None
            if entry.answer is not None and not entry.answer.is_empty:
                return entry.answer
        return None

    def _next_entry(self) -> Optional[_Entry]:
        """The source to ask next; none after one that is known to have a document is needed."""
        for entry in self._relevant_entries():
            if entry.answer is not None and not entry.answer.is_empty:
                return None
            if not entry.is_over and entry.ways_asked < len(entry.ways):
                return entry
        return None

    def _start_request(self, entry: _Entry, deadline: Deadline) -> None:
        way, source, session = entry.ways_asked, entry.ways[entry.ways_asked], self._session
        entry.ways_asked += 1

        def ask() -> Union[Answer, BaseException]:
            try:
                return self._ask(source, deadline, session)
            except BaseException as error:  # noqa: BLE001 - `_record` raises it in the main thread
                return error
            finally:
                source.close()

        if source.local:
            self._record(entry, way, ask())
            return
        thread = Thread(target=lambda: self._outcomes.put((entry, way, ask())))
        thread.start()
        self.threads.append(thread)
        self._running += 1

    def _record(self, entry: _Entry, way: int, outcome: Union[Answer, BaseException]) -> None:
        if isinstance(outcome, SourceError):
            entry.error_by_way[way] = str(outcome)
            self._is_incomplete |= isinstance(outcome, IncompleteError)
            return
        if isinstance(outcome, BaseException):
            raise outcome
        self._session = self._session.joined(outcome.session)
        source = entry.ways[way]
        entry.answer = entry.answer or outcome._replace(origin=source.origin, outlet=source.outlet)


def first_answer(
    sources: Sequence[Source], what: str, budget: float, session: Session, ask: Ask
) -> Answer:
    """The first document in order, within `budget` seconds. Raises SourceError."""
    race = Race(sources, ask, session)
    receive, send = os.pipe()
    try:
        return race.run(what, Deadline.after(budget, receive))
    finally:
        os.close(send)  # the other end becomes readable, which cancels pending requests
        for thread in race.threads:
            thread.join()
        os.close(receive)
