"""Several sources at once, each at every address that it may have: who comes first in the order wins, not who is the fastest.

As in RFC 8305 (Happy Eyeballs) one starts a little after the other, and at once where the one before has failed: where all is
well nobody is asked in vain. Of one source the first address that answers speaks, be it with "there is none". A source further
down counts once each before it has said that there is none, has failed at every address, or has used up the budget. A service on
another NIC is another source: the likelier management NIC wins, however slow it is.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Callable, Optional

from neuca_tools.errors import SourceError
from neuca_tools.model.machine import Outlet
from neuca_tools.sources.base import Answer, Deadline, Session, Source

HEAD_START = 0.25
"""Seconds from one attempt to the next: the Connection Attempt Delay of RFC 8305, section 5."""
Ask = Callable[[Source, Deadline, Session], Answer]


@dataclass
class _Entry:
    """One source: its addresses, how many of them have been asked, which have failed and why, what the first one answered."""

    name: str
    ways: Sequence[Source]
    outlet: Optional[Outlet] = None
    asked: int = 0
    failed: dict[int, str] = field(default_factory=dict)
    answer: Optional[Answer] = None

    @property
    def over(self) -> bool:
        return self.answer is not None or len(self.failed) == len(self.ways)

    def said(self) -> list[str]:
        return (
            ["there is none"] if self.answer else [self.failed[way] for way in sorted(self.failed)]
        )


class Race:
    """One look at these sources. `stop` ends what is still under way, and waits for it."""

    def __init__(
        self, sources: Iterable[Source], ask: Ask, budget: float, session: Session
    ) -> None:
        self._entries = [_Entry(source.name, source.ways(), source.outlet) for source in sources]
        self._ask, self.session = ask, session
        self._running: dict[Future[Answer], tuple[_Entry, int]] = {}
        with ExitStack() as stack:
            receive, send = os.pipe()
            stack.callback(os.close, receive)
            self._pool = stack.enter_context(
                ThreadPoolExecutor(max(1, sum(len(entry.ways) for entry in self._entries)))
            )
            stack.callback(os.close, send)  # first of all: who waits sees it
            self._deadline = Deadline.after(budget, receive)
            self.stop = stack.pop_all().close

    def run(self) -> Optional[Answer]:
        """The answer that counts, its session that of all; None where all have spoken, and none has anything."""
        while not self._winner() and not all(entry.over for entry in self._counting()):
            entry = self._next()
            if entry is not None:
                self._start(entry)
            done, _ = wait(self._running, HEAD_START if entry else None, FIRST_COMPLETED)
            for future in done:
                self._take(*self._running.pop(future), future.result)
        winner = self._winner()
        return winner and replace(winner, session=self.session)

    def said(self) -> list[str]:
        """What each source said, the errors of all its addresses."""
        return [f"{entry.name}: {text}" for entry in self._counting() for text in entry.said()]

    @property
    def failed(self) -> bool:
        """Whether some source has given no answer at all."""
        return any(entry.answer is None for entry in self._counting())

    @property
    def none(self) -> Optional[Answer]:
        """The answer of a service that knows this instance, and has nothing for it."""
        answers = (entry.answer for entry in self._counting())
        return next((answer for answer in answers if answer and answer.instance), None)

    def _counting(self) -> Iterator[_Entry]:
        """The sources in order. Once a service knows this instance, none on another NIC counts."""
        found: Optional[Outlet] = None
        for entry in self._entries:
            if found and entry.outlet not in (None, found):
                continue
            yield entry
            if entry.outlet and entry.over and entry.answer and entry.answer.instance:
                found = entry.outlet

    def _winner(self) -> Optional[Answer]:
        for entry in self._counting():
            if not entry.over:
                return None
            if entry.answer is not None and not entry.answer.empty:
                return entry.answer
        return None

    def _next(self) -> Optional[_Entry]:
        """Whom to ask next; nobody behind a source that has something."""
        for entry in self._counting():
            if entry.answer is not None and not entry.answer.empty:
                return None
            if not entry.over and entry.asked < len(entry.ways):
                return entry
        return None

    def _start(self, entry: _Entry) -> None:
        way, source = entry.asked, entry.ways[entry.asked]
        entry.asked += 1
        if source.local:
            self._take(entry, way, lambda: self._ask(source, self._deadline, self.session))
        else:
            self._running[self._pool.submit(self._ask, source, self._deadline, self.session)] = (
                entry,
                way,
            )

    def _take(self, entry: _Entry, way: int, result: Callable[[], Answer]) -> None:
        try:
            answer = result()
        except SourceError as error:
            entry.failed[way] = str(error)
            return
        self.session = self.session.joined(answer.session)
        entry.answer = entry.answer or replace(answer, origin=entry.ways[way].origin)


def first(
    sources: Sequence[Source], what: str, budget: float, session: Session, ask: Ask
) -> Answer:
    """What the first source has that has anything, all of them within `budget` seconds. Raises SourceError."""
    race = Race(sources, ask, budget, session)
    try:
        answer = race.run()
    finally:
        race.stop()
    if answer is not None:
        return answer
    if race.failed or not sources:
        raise SourceError(
            f"no {what} from any source: {'; '.join(race.said()) or 'there is none to ask'}"
        )
    if race.none is not None:
        return replace(race.none, session=race.session)
    return Answer(sources[-1].name, None, race.session)
