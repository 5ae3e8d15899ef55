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
from contextlib import ExitStack
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Optional, Union

from neuca_tools.errors import IncompleteError, SourceError
from neuca_tools.model.machine import Outlet
from neuca_tools.sources.base import Answer, Deadline, Session, Source

SECONDS_BETWEEN_ATTEMPTS = 0.25
"""Seconds from one attempt to the next: the Connection Attempt Delay of RFC 8305, section 5."""
Ask = Callable[[Source, Deadline, Session], Answer]


@dataclass
class _Entry:
    """One source: at each of its addresses (`ways`), how many were asked, and what they said.

    `failed` has the errors by the index of the way, `answer` is the first answer.
    """

    name: str
    ways: Sequence[Source]
    outlet: Optional[Outlet] = None
    asked: int = 0
    failed: dict[int, str] = field(default_factory=dict)
    answer: Optional[Answer] = None

    @property
    def over(self) -> bool:
        return self.answer is not None or len(self.failed) == len(self.ways)

    def results(self) -> list[str]:
        if self.answer:
            return ["none"]
        return [self.failed[way] for way in sorted(self.failed)]


_Outcome = tuple[_Entry, int, Union[Answer, BaseException]]


class Race:
    """One look at these sources. `stop` cancels pending requests and waits for them to end.

    `is_incomplete`: a source has responded, but not with all that it has (IncompleteError).
    """

    def __init__(
        self, sources: Iterable[Source], ask: Ask, budget: float, session: Session
    ) -> None:
        self._entries = [_Entry(source.name, source.ways(), source.outlet) for source in sources]
        self._ask, self.session = ask, session
        self.is_incomplete = False
        self._threads: list[Thread] = []
        self._running = 0
        self._outcomes: Optional[SimpleQueue[_Outcome]] = None
        with ExitStack() as stack:
            receive, send = os.pipe()
            stack.callback(os.close, receive)
            stack.callback(self._join_threads)
            # Closed first: the other end becomes readable, which cancels pending requests.
            stack.callback(os.close, send)
            self._deadline = Deadline.after(budget, receive)
            self.stop = stack.pop_all().close

    def _join_threads(self) -> None:
        for thread in self._threads:
            thread.join()

    def run(self) -> Optional[Answer]:
        """The winning answer, with the session of all sources; None if no source has a document."""
        while not self._winning_answer() and not all(
            entry.over for entry in self._relevant_entries()
        ):
            entry = self._next_entry()
            if entry is not None:
                self._start_request(entry)
            if self._running:
                self._wait(SECONDS_BETWEEN_ATTEMPTS if entry else None)
        winner = self._winning_answer()
        return winner and winner._replace(session=self.session)

    def _wait(self, seconds: Optional[float]) -> None:
        """Wait until one of the running requests ends; without `seconds`, as long as it takes."""
        try:
            entry, way, outcome = self._outcome_queue().get(timeout=seconds)
        except Empty:
            return
        self._running -= 1
        self._take(entry, way, outcome)

    def results(self) -> list[str]:
        """The result of each source, with the errors of all its addresses."""
        return [
            f"{entry.name}: {text}"
            for entry in self._relevant_entries()
            for text in entry.results()
        ]

    @property
    def asked_through(self) -> str:
        """Which interfaces the requests went through; empty if none was needed."""
        names = dict.fromkeys(entry.outlet.name for entry in self._entries if entry.outlet)
        if not names:
            return ""
        return f"; no other NIC than {', '.join(names)} is asked"

    @property
    def failed(self) -> bool:
        """Whether some source gave no answer."""
        return any(entry.answer is None for entry in self._relevant_entries())

    @property
    def empty_answer(self) -> Optional[Answer]:
        """The answer of a service that knows this instance but has no document for it."""
        answers = (entry.answer for entry in self._relevant_entries())
        return next((answer for answer in answers if answer and answer.instance), None)

    def _relevant_entries(self) -> Iterator[_Entry]:
        """The sources in order; once a service knows this instance, only those on its NIC."""
        known_outlet: Optional[Outlet] = None
        for entry in self._entries:
            if known_outlet and entry.outlet not in (None, known_outlet):
                continue
            yield entry
            if entry.outlet and entry.over and entry.answer and entry.answer.instance:
                known_outlet = entry.outlet

    def _winning_answer(self) -> Optional[Answer]:
        for entry in self._relevant_entries():
            if not entry.over:
                return None
            if entry.answer is not None and not entry.answer.empty:
                return entry.answer
        return None

    def _next_entry(self) -> Optional[_Entry]:
        """The source to ask next; none after one that is known to have a document is needed."""
        for entry in self._relevant_entries():
            if entry.answer is not None and not entry.answer.empty:
                return None
            if not entry.over and entry.asked < len(entry.ways):
                return entry
        return None

    def _start_request(self, entry: _Entry) -> None:
        way, source = entry.asked, entry.ways[entry.asked]
        entry.asked += 1
        if source.local:
            self._take(entry, way, self._ask_source(source, self.session))
            return
        queue, session = self._outcome_queue(), self.session
        thread = Thread(target=lambda: queue.put((entry, way, self._ask_source(source, session))))
        thread.start()
        self._threads.append(thread)
        self._running += 1

    def _outcome_queue(self) -> SimpleQueue[_Outcome]:
        """Where threads leave what they got. Files are read without threads."""
        if self._outcomes is None:
            self._outcomes = SimpleQueue()
        return self._outcomes

    def _ask_source(self, source: Source, session: Session) -> Union[Answer, BaseException]:
        try:
            return self._ask(source, self._deadline, session)
        except BaseException as error:  # noqa: BLE001 - `_take` raises it in the main thread
            return error
        finally:
            source.close()

    def _take(self, entry: _Entry, way: int, outcome: Union[Answer, BaseException]) -> None:
        if isinstance(outcome, SourceError):
            entry.failed[way] = str(outcome)
            self.is_incomplete |= isinstance(outcome, IncompleteError)
            return
        if isinstance(outcome, BaseException):
            raise outcome
        self.session = self.session.joined(outcome.session)
        source = entry.ways[way]
        entry.answer = entry.answer or outcome._replace(origin=source.origin, outlet=source.outlet)


def first_answer(
    sources: Sequence[Source], what: str, budget: float, session: Session, ask: Ask
) -> Answer:
    """The first document in order, within `budget` seconds. Raises SourceError."""
    race = Race(sources, ask, budget, session)
    try:
        answer = race.run()
    finally:
        race.stop()
    if answer is not None:
        return answer
    if race.failed or not sources:
        kind = IncompleteError if race.is_incomplete else SourceError
        results = "; ".join(race.results()) or "there is no source"
        raise kind(f"no {what} from any source: {results}{race.asked_through}")
    if race.empty_answer is not None:
        return race.empty_answer._replace(session=race.session)
    return Answer(sources[-1].name, None, race.session)
