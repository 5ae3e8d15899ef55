"""`neuca analyze` and what it reads: message IDs with their catalog, fields, and the timeline of a boot."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import logging
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_status import TWO, small

from neuca_tools.apply.host import log_result
from neuca_tools.backends.systemd import JournalEntry
from neuca_tools.commands import analyze
from neuca_tools.commands.analyze import (
    PASS,
    STARTED,
    STARTING,
    UNIT_FAILED,
    timeline_of_boot,
    timeline_text,
    to_json,
)
from neuca_tools.commands.neuca import main
from neuca_tools.errors import ObserveError
from neuca_tools.model import messages

ROOT = Path(__file__).parents[2]
CATALOG = (ROOT / "packaging" / "neuca.catalog").read_text()
NAMES, AGENT = "neuca-names.service", "neuca-guest-tools.service"
FIELDS = {
    "NEUCA_SECONDS": "0.25",
    "NEUCA_SOURCE_SECONDS": "1.500",
    "NEUCA_CHANGED": "7",
    "NEUCA_FAILED": "0",
}
BOOT = [
    JournalEntry(5.0, AGENT, PASS, FIELDS),
    JournalEntry(2.0, NAMES, STARTING),
    JournalEntry(2.5, NAMES, STARTED),
    JournalEntry(3.0, AGENT, STARTING),
    JournalEntry(3.25, AGENT, STARTED),
    JournalEntry(3.3, AGENT, messages.DONE),
    JournalEntry(6.0, "neuca-guest.service", UNIT_FAILED),
]


def test_the_timeline_of_a_boot():
    assert timeline_text(to_json(timeline_of_boot(BOOT))).splitlines() == [
        "AT       TOOK     UNIT                       EVENT",
        "2.500 s  0.500 s  neuca-names.service        started",
        "3.250 s  0.250 s  neuca-guest-tools.service  started",
        "4.750 s  1.500 s  neuca-guest-tools.service  sources were queried",
        "5.000 s  0.250 s  neuca-guest-tools.service  pass: 7 changed, 0 failed",
        "6.000 s  -        neuca-guest.service        failed",
    ]


def test_the_timeline_fits_the_terminal(monkeypatch, capsys):
    monkeypatch.setattr(analyze, "journal_entries", lambda _: BOOT)
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["analyze"]) == 0
    text = capsys.readouterr().out
    assert text == timeline_text(to_json(timeline_of_boot(BOOT)), 60) + "\n"
    assert max(map(len, text.splitlines())) <= 60


def test_a_pass_with_strange_fields_is_listed_all_the_same():
    strange = JournalEntry(1.0, AGENT, PASS, {"NEUCA_SECONDS": "soon"})
    assert [(one.text, one.took) for one in timeline_of_boot([strange])] == [
        ("pass: ? changed, ? failed", None)
    ]


def test_a_journal_without_messages_is_an_error():
    """A script that expects a timeline gets none."""
    with pytest.raises(ObserveError, match="the journal of this boot has no messages of the agent"):
        timeline_of_boot([])


def test_without_a_journal_the_reason_is_one_line(capsys):
    code = main(["analyze"])
    told = capsys.readouterr()
    assert bool(told.out) == (code == 0)
    assert (told.err == "") == (code == 0)
    assert re.fullmatch(
        r"(neuca: (read the journal|analyze): [^\n]+\n( +it needs [^\n]+\n)?)?", told.err
    )


def test_the_catalog_explains_each_message_and_no_other():
    found = re.findall(r"^-- ([0-9a-f]{32})\nSubject: .+\nDefined-By: ", CATALOG, re.MULTILINE)
    assert sorted(found) == sorted(messages.IDS.values())
    assert len(set(found)) == len(found)
    assert set(re.findall(r"@(\w+)@", CATALOG)) <= set(messages.FIELDS)


def test_each_field_is_documented():
    page = (ROOT / "docs" / "man" / "neucad.8").read_text()
    assert [name for name in messages.FIELDS if name not in page] == []


def test_a_message_about_an_operation_has_its_id_and_fields(caplog):
    agent = small(TWO)
    _, result, _ = agent.run()
    log = logging.getLogger("neuca")
    propagates, log.propagate = log.propagate, True
    try:
        with caplog.at_level("INFO", "neuca"):
            log_result(result)
    finally:
        log.propagate = propagates
    found = {(one.MESSAGE_ID, one.NEUCA_OPERATION, one.NEUCA_INTERFACE) for one in caplog.records}
    assert (messages.DONE, "set-mtu", "eth2") in found


class Journal(logging.StreamHandler):
    """Not a plain stream: it keeps the fields of each message."""


@pytest.mark.parametrize("kind", [logging.StreamHandler, Journal])
def test_the_operations_of_a_pass_are_one_write_unless_their_fields_are_kept(monkeypatch, kind):
    _, result, _ = small(TWO).run()
    written = []
    log = logging.getLogger("neuca")
    monkeypatch.setattr(log, "handlers", [kind(SimpleNamespace(write=written.append, flush=int))])
    monkeypatch.setattr(log, "level", logging.INFO)
    log_result(result)
    texts = [operation.text for operation in result.done]
    assert len(texts) > 1
    plain = ["\n".join(texts)]
    assert [text.rstrip("\n") for text in written] == (texts if kind is Journal else plain)
