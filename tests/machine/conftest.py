"""Guests for a test, two at the most at one time; what they said is kept and printed when the test fails."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("guest", "steps")

import images  # noqa: E402 - once its assertions are readable
from guest import Guest, nics  # noqa: E402

MADE = pytest.StashKey[list]()
FAILED = pytest.StashKey[bool]()


def pytest_configure(config):
    config.addinivalue_line("markers", "long: takes minutes; `make test-machine-all` alone runs it")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """A failed test's guests are still there: ask them what they have to say, and put it under the report."""
    report = (yield).get_result()
    if call.when == "call" and report.failed:
        item.stash[FAILED] = True
        for guest in item.stash.get(MADE, []):
            report.sections += list(guest.evidence().items())


@pytest.fixture
def guests(request, tmp_path):
    """A function that makes a guest of an image's name; all of them end with the test."""
    made = request.node.stash[MADE] = []

    def make(name, cards=None, *, packaged=True, **options):
        one = Guest(images.image(name, packaged), tmp_path / f"{len(made)}-{name}", cards or nics(3), **options)
        made.append(one)
        return one

    yield make
    for one in made:
        one.close()
        if not request.node.stash.get(FAILED, False):
            one.forget()
