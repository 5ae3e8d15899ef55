"""The times, limits and words that the manual pages and the units state are those of the product."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import pytest

from neuca_tools.agent import backoff, daemon, image_clean, worker
from neuca_tools.agent.boot_names import UDEV_SETTLE_SECONDS
from neuca_tools.apply import host, transaction
from neuca_tools.backends import bus, kinds
from neuca_tools.commands import check, data, look
from neuca_tools.config import files as config_files
from neuca_tools.config import options
from neuca_tools.desired import coverage, dhcp, dhcp_requests, first_nic, management, policy_routing
from neuca_tools.documents import envelope, privacy, stacking
from neuca_tools.documents.neuca import (
    filesystems,
    ini,
    ini_document,
    link_kinds,
    link_settings,
    links,
    routing,
)
from neuca_tools.documents.platform import automatic, dns, tree
from neuca_tools.guest import base, blockdev, outcome, run, supervisor
from neuca_tools.model import provenance, rows
from neuca_tools.selftest.conditions import table
from neuca_tools.selftest.diagnosis import diagnose, findings
from neuca_tools.selftest.measure import live
from neuca_tools.selftest.measure.iperf import phases, plans
from neuca_tools.selftest.report import page as report_page
from neuca_tools.selftest.report import record
from neuca_tools.sources import _AUTO, _LOCAL, race
from neuca_tools.status import judge, render

ROOT = Path(__file__).parents[2]
MIB = 1 << 20

# A page, a text of it, and the numbers in that text.
STATED = [
    ("neucad.8", "waits for udevd for up to 20 seconds", UDEV_SETTLE_SECONDS),
    ("neucad.8", "again whenever the document changes, and 30 seconds after", run.RETRY_SECONDS),
    ("neucad.8", "and grow to at most 10 minutes", backoff.LONGEST_BACKOFF / 60),
    ("neucad.8", "for up to 3.7 seconds, until nothing differs", sum(transaction.VERIFY_DELAYS_SECONDS)),
    ("neucad.8", "The wait ends 6 minutes after boot", management.MANAGEMENT_DHCP_SECONDS / 60),
    ("neucad.8", "are passed over 30 seconds after the boot", first_nic.CARRIER_SECONDS),
    ("neucad.8", "still has no address after 180 seconds", first_nic.LEASE_SECONDS),
    ("neucad.8", "in that network, at most 64 per link", dhcp.MAX_ROUTES),
    ("neucad.8", "would have more than 65536 routes", policy_routing.MAX_ROUTES),
    ("neucad.8", "delays a pass by up to 5 seconds", bus.PASS_SECONDS),
    ("neucad.8", "which is limited to 8 MiB", supervisor.MAX_OUTPUT_BYTES / MIB),
    ("neucad.8", "Let the current pass finish, for up to 10 seconds", worker.PASS_GRACE_SECONDS),
    ("neuca.1", "for at most seconds (default: 300)", look.DEFAULT_WAIT_SECONDS),
    ("neuca-config.5", "UTF-8 text of at most 1 MiB", config_files._MAX_BYTES / MIB),
    ("neuca-config.5", "if the script is still there after 10 seconds", supervisor.SECONDS_BEFORE_SIGKILL),
    ("neuca-user-data.5", "The size limit is 1 MiB", envelope.MAX_BYTES / MIB),
    ("neuca-user-data.5", "or 4 MiB after decompression", envelope.MAX_UNZIPPED_BYTES / MIB),
    ("neuca-user-data.5", "for up to 3 seconds or, without a carrier", host.DUPLICATE_DETECTION_SECONDS),
    ("neuca-user-data.5", "search domains of this link, at most 16.", link_settings.MAX_DNS),
    ("neuca-user-data.5", "is retried every 30 seconds", run.RETRY_SECONDS),
    ("neuca-user-data.5", "A document can have 200,000 lines", ini.MAX_LINES),
    ("neuca-user-data.5", "of 65,536 characters", ini.MAX_LINE),
    ("neuca-user-data.5", "have no limit), 4096 links", ini_document.MAX_LINKS),
    ("neuca-user-data.5", "1024 settings for each link", links.MAX_SETTINGS),
    ("neuca-user-data.5", "16,384 routes", ini_document.MAX_ROUTES),
    ("neuca-user-data.5", "and 1024 users", ini_document.MAX_ROWS),
    ("neuca-platform-data.5", "is larger than 1 MiB", tree.MAX_BYTES / MIB),
    ("neuca-platform-data.5", "nested more than 32 levels deep", tree.MAX_DEPTH),
    ("neuca-platform-data.5", "has more than 50000 items", tree.MAX_ITEMS),
]  # fmt: skip
# The same with numbers in words.
IN_WORDS = [
    ("neucad.8", "the interval grows to at most one minute", daemon.SILENT_POLL_SECONDS, 60),
    ("neuca.1", "a quarter of a second after the previous one", race.SECONDS_BETWEEN_ATTEMPTS, 0.25),
    ("neuca-user-data.5", "During the first minute after the boot", provenance.ROUTER_SECONDS, 60),
]  # fmt: skip
# A unit, its setting, and what goes by it.
UNITS = [
    ("neuca-guest.service", "RestartSec", run.RETRY_SECONDS),
    ("neuca-guest-tools.service", "TimeoutStopSec", image_clean.STOP_SECONDS),
]
# Tables of the product whose words a page lists.
WORDS = {
    "neuca.1": (data.SECTIONS, privacy.SECTIONS, _AUTO, _LOCAL),
    "neuca-config.5": (options._TRUE, options._FALSE, options._LEVELS, options.OBSOLETE,
                       options.PROTECTIVE, options.SECTIONS, base.FEATURES),
    "neuca-user-data.5": (blockdev.SHARED, [*filesystems.KNOWN], kinds._TIMES, kinds.PORT, links._APART,
                          link_kinds._ARP_MODES, link_kinds.MODES_BY_OPTION, link_kinds.MACVLAN_MODES,
                          link_kinds.DEFAULTS, link_kinds._NEEDED, [*link_kinds.OPTIONS], link_settings._QDISCS,
                          link_settings._PRIVATE_DOMAINS, link_settings.WAKE_ON_LAN, routing.RULE_READERS,
                          coverage.PRIVATE, stacking.SINGLE),
    "neuca-platform-data.5": (automatic.KEYS, automatic._BESIDE, dns.KEYS, dhcp_requests._UNUSED, check.TITLES),
    "neuca-status.7": (get_args(rows.ProblemCode), judge.EXIT_CODES, render.COLOR_BY_STATE,
                       outcome._WORST_FIRST, base.STATES),
    "neuca-selftest.1": (table.CAUSES, table.EXPLANATIONS, table.DOUBTS, table.UNREACHABLE, table.UNFINISHED,
                         [*table.SOURCES], diagnose.OF_SEVERAL_PHASES, findings.SAID_BY,
                         phases.STEPS_WITH_UDP, phases.STEPS_IN_ANY_CASE, plans.SLOW, live.SECONDS,
                         record.FINDING_FIELDS, record.COLUMNS, report_page.HEADER),
}  # fmt: skip


def words_of(value):
    """The words in a table, wherever they are in it; not the texts and patterns."""
    if isinstance(value, Mapping):
        return {word for pair in value.items() for word in words_of(pair)}
    if isinstance(value, (tuple, list, set, frozenset)):
        return {word for part in value for word in words_of(part)}
    is_number = value is None or isinstance(value, (int, float))
    return {str(value)} if not is_number and re.fullmatch(r"[\w./:-]+", str(value)) else set()


def page(name):
    """The words of a manual page, without its macros."""
    lines = (ROOT / "docs" / "man" / name).read_text().splitlines()
    return " ".join(" ".join(re.sub(r"^\.[A-Z]\w ", "", line) for line in lines).split())


@pytest.mark.parametrize(("name", "text", "value"), STATED, ids=[row[1] for row in STATED])
def test_a_number_in_a_manual_page_is_that_of_the_product(name, text, value):
    assert text in page(name)
    (number,) = re.findall(r"\d[\d,]*(?:\.\d+)?", text.replace("UTF-8 ", ""))
    assert value == pytest.approx(float(number.replace(",", "")))


@pytest.mark.parametrize(("name", "text", "value", "number"), IN_WORDS)
def test_a_number_in_words_is_that_of_the_product(name, text, value, number):
    assert text in page(name)
    assert value == number


@pytest.mark.parametrize(("unit", "setting", "value"), UNITS)
def test_a_time_of_a_unit_is_that_of_the_product(unit, setting, value):
    lines = (ROOT / "systemd" / unit).read_text().splitlines()
    assert f"{setting}={value:g}" in lines


@pytest.mark.parametrize("name", WORDS)
def test_the_words_of_a_table_are_in_the_manual_page(name):
    text = re.sub(r"\\f[A-Z]", "", page(name)).replace("\\-", "-")
    printed = {word.rstrip(".:") for word in re.findall(r"[\w./:-]+", text)}
    for words in map(words_of, WORDS[name]):
        assert len(words) > 1
        assert words <= printed
