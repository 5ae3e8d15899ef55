"""neuca-selftest finds what was broken on purpose, and nothing where nothing is: a part of tests/machine/faults.

One of each kind, with the same parameters each time: `make bench-diagnosis` runs all of it, with others each week. `make test` has
shapers, a policer and a healthy path in namespaces (netns/test_netns_selftest_verdicts.py).
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent / "faults"))

from catalogue import cases
from everything import CAUSES, HEALTHY
from harness import stage
from verdicts import verdict

SEED = 1


@pytest.fixture(scope="module")
def rehearsals(tmp_path_factory):
    with stage(tmp_path_factory.mktemp("faults") / "T") as ready:
        yield ready


@pytest.mark.parametrize("image", ["T"])
@pytest.mark.parametrize("name", [*CAUSES, *HEALTHY])
def test_what_was_broken_on_purpose_comes_first_and_nothing_where_nothing_is(
    rehearsals,
    name,
    image,  # noqa: ARG001 - one worker for all
):
    (case,) = cases(SEED, [name])
    found = verdict(case, rehearsals.play(case))
    assert found.right, str(found)
