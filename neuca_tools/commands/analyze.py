"""`neuca analyze`: where the time of this boot went, from the journal of the agent's units."""

# SPDX-License-Identifier: MIT

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Optional

from neuca_tools.backends.systemd import JournalEntry, journal_entries
from neuca_tools.commands.common import show, terminal_width
from neuca_tools.errors import EXIT_OK, ObserveError
from neuca_tools.model.messages import PASS
from neuca_tools.status.render import WIDTH, table_lines

UNITS = (
    "neuca-names.service",
    "neuca-guest-tools.service",
    "neuca-guest.service",
    "neuca-host-keys.service",
)
# Messages of systemd itself: SD_MESSAGE_UNIT_STARTING, _STARTED and _FAILED (sd-messages.h).
STARTING = "7d4958e842da4a758f6c1cdc7b36dcc5"
STARTED = "39f53479d3a045ac8e11786248231fbf"
UNIT_FAILED = "be02cf6855d2428ba40df7e9d022f03d"


class Event(NamedTuple):
    """A step that ended `at` seconds after the kernel started; `took` is None if not known."""

    at: float
    unit: str
    text: str
    took: Optional[float] = None


def run(arguments: argparse.Namespace) -> int:
    """Print the timeline of this boot. Raises ObserveError without one."""
    events = timeline_of_boot(journal_entries(UNITS))
    show(to_json(events), arguments.json, partial(timeline_text, width=terminal_width()))
    return EXIT_OK


def timeline_of_boot(entries: Iterable[JournalEntry]) -> list[Event]:
    """The starts of units, and the agent's passes, each after the wait for its sources.

    Raises ObserveError if the journal has none of these.
    """
    began: dict[str, float] = {}
    events: list[Event] = []
    for entry in sorted(entries, key=lambda entry: entry.at):
        if entry.message_id == STARTING:
            began[entry.unit] = entry.at
        elif entry.message_id in (STARTED, UNIT_FAILED):
            word = "started" if entry.message_id == STARTED else "failed"
            start = began.pop(entry.unit, None)
            took = None if start is None else entry.at - start
            events.append(Event(entry.at, entry.unit, word, took))
        elif entry.message_id == PASS:
            events += _events_of_pass(entry)
    if not events:
        raise ObserveError(
            "analyze: the journal of this boot has no messages of the agent",
            "it needs systemd, and root or the group systemd-journal",
        )
    return events


def _events_of_pass(entry: JournalEntry) -> Iterator[Event]:
    """The wait for the sources, if they were asked, which ends as the pass begins; the pass."""
    waited, took = _field_number(entry, "SOURCE_SECONDS"), _field_number(entry, "SECONDS")
    if waited:
        yield Event(entry.at - (took or 0.0), entry.unit, "sources were queried", waited)
    changed, failed = (entry.fields.get(f"NEUCA_{name}", "?") for name in ("CHANGED", "FAILED"))
    yield Event(entry.at, entry.unit, f"pass: {changed} changed, {failed} failed", took)


def _field_number(entry: JournalEntry, name: str) -> Optional[float]:
    try:
        return float(entry.fields.get(f"NEUCA_{name}", ""))
    except ValueError:
        return None


def to_json(events: Sequence[Event]) -> dict[str, Any]:
    """`neuca analyze --json`."""
    return {"version": 1, "events": [event._asdict() for event in events]}


def timeline_text(data: Mapping[str, Any], width: int = WIDTH) -> str:
    """`neuca analyze`: a line for each event, in order."""
    rows = [["AT", "TOOK", "UNIT", "EVENT"]]
    rows += [
        [_seconds_text(event["at"]), _seconds_text(event["took"]), event["unit"], event["text"]]
        for event in data["events"]
    ]
    return "\n".join(table_lines(rows, width))


def _seconds_text(number: Optional[float]) -> str:
    return "-" if number is None else f"{number:.3f} s"
