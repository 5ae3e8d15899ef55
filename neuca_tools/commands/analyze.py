"""`neuca analyze`: where the time of this boot went, from the journal."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import argparse
from functools import partial

from neuca_tools.backends.systemd import journal_entries
from neuca_tools.commands.common import columns, show
from neuca_tools.errors import EXIT_OK
from neuca_tools.status import timeline


def run(arguments: argparse.Namespace) -> int:
    """Print the timeline of this boot. Raises ObserveError without a journal."""
    entries = [timeline.Entry(*entry) for entry in journal_entries(timeline.UNITS)]
    text = partial(timeline.render, width=columns())
    show(timeline.to_json(timeline.timeline(entries)), arguments.json, text)
    return EXIT_OK
