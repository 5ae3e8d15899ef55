"""Guests for a test, two at the most at one time; what they said is kept and printed when the test fails."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

# For the host that attacks guests as well.
sys.path += [str(Path(__file__).parents[1] / tier) for tier in ("attack", "netns")]
pytest.register_assert_rewrite("guest", "steps", "hostile", "attacker", "lab", "metadata")

import images  # noqa: E402 - once its assertions are readable
from guest import Guest, nics  # noqa: E402
from steps import prepare  # noqa: E402

FAILURES = images.CACHE.with_name("failed-guests")
MADE = pytest.StashKey[list]()
FAILED = pytest.StashKey[bool]()


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "chosen: of the guests' tests, one that `make test` runs too"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """A boot takes an emulated processor a minute: of these tests `make test` runs the chosen."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and not item.get_closest_marker("chosen"):
            item.add_marker(pytest.mark.long)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """A failed test's guests are still there: ask them what they have to say, and put it under the report."""
    report = (yield).get_result()
    if call.when == "call" and report.failed:
        item.stash[FAILED] = True
        kept = FAILURES / re.sub(r"[^A-Za-z0-9]+", "-", item.name)
        shutil.rmtree(kept, ignore_errors=True)
        for guest in item.stash.get(MADE, []):
            report.sections += list(guest.evidence(kept / guest.folder.name).items())


@pytest.fixture
def guests(request, tmp_path):
    """A function that makes a guest of an image's name; all of them end with the test."""
    made = request.node.stash[MADE] = []

    def make(name, cards=None, *, packaged=True, of=None, after=None, files=(), **options):
        """`of`: another image than that of the name. `after`: what `prepared` gave; its disk is the base of this guest's.

        `files`: on the disk from the first boot on.
        """
        if after:
            image, disk = after.image, after.disk
        else:
            image, disk = of or images.image(name, packaged), None
        if files:
            image = images.planted(image, tmp_path / f"{len(made)}-planted", files)
        one = Guest(image, tmp_path / f"{len(made)}-{name}", cards or nics(3), disk=disk, **options)
        made.append(one)
        return one

    yield make
    for one in made:
        one.close()
        if not request.node.stash.get(FAILED, False):
            one.forget()


@pytest.fixture(scope="session")
def prepared(tmp_path_factory):
    """A function: of an image's name, a disk that has met the document; made once, for whoever asks first."""
    ready = {}

    def get(name):
        if name not in ready:
            try:
                ready[name] = prepare(name, tmp_path_factory.mktemp("prepared") / name)
            except Exception as error:  # noqa: BLE001 - it is raised again, for each test that would wait for it in vain
                ready[name] = error
        if isinstance(ready[name], Exception):
            raise ready[name]
        return ready[name]

    return get
