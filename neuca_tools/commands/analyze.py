"""`neuca analyze`: where the time of this boot went, from the journal."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import argparse
from collections.abc import Iterable
from functools import partial

from neuca_tools.backends.systemd import journal_entries
from neuca_tools.commands.common import columns, show
from neuca_tools.errors import EXIT_OK, ObserveError
from neuca_tools.status import timeline


def run(arguments: argparse.Namespace) -> int:
    """Print the timeline of this boot. Raises ObserveError without one."""
    events = events_of(timeline.Entry(*entry) for entry in journal_entries(timeline.UNITS))
    text = partial(timeline.render, width=columns())
    show(timeline.to_json(events), arguments.json, text)
    return EXIT_OK


def events_of(entries: Iterable[timeline.Entry]) -> list[timeline.Event]:
    """The timeline. Raises ObserveError if there is nothing on it."""
    events = timeline.timeline(entries)
    if not events:
        raise ObserveError(
            "analyze: the journal of this boot has no messages of the agent",
            "it needs systemd, and root or the group systemd-journal",
        )
    return events
