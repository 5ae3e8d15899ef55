"""The skip policy of tests/conftest.py, held against small test runs of its own."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = "pytester"

CONFTEST = Path(__file__).parents[1] / "conftest.py"


@pytest.fixture
def outcome(pytester, monkeypatch):
    """Run one module under the policy, with CI set as told, and return how many of what there were."""

    def run(code: str, ci: str) -> dict:
        monkeypatch.setenv("CI", ci)
        pytester.makeconftest(CONFTEST.read_text())
        pytester.makepyfile(f"import pytest\n{code}")
        # In a process of its own: the outer run's hooks stay out of it.
        return pytester.runpytest_subprocess("-p", "no:cacheprovider").parseoutcomes()

    return run


SKIPS = {
    "a call": 'def test_one(): pytest.skip("REASON")',
    "a mark": '@pytest.mark.skip(reason="REASON")\ndef test_one(): pass',
    "a condition": '@pytest.mark.skipif(True, reason="REASON")\ndef test_one(): pass',
    "a fixture": '@pytest.fixture\ndef it(): pytest.skip("REASON")\ndef test_one(it): pass',
}


@pytest.mark.parametrize("how", SKIPS)
def test_a_skip_fails_under_ci(outcome, how):
    counts = outcome(SKIPS[how].replace("REASON", "I did not feel like it"), ci="true")
    assert "skipped" not in counts
    assert counts.get("failed", 0) + counts.get("errors", 0) == 1


@pytest.mark.parametrize("how", SKIPS)
def test_a_listed_reason_is_a_skip_under_ci_too(outcome, how):
    assert outcome(SKIPS[how].replace("REASON", "this kernel has no 8021q"), ci="true") == {
        "skipped": 1
    }


@pytest.mark.parametrize("how", SKIPS)
def test_a_skip_is_a_skip_elsewhere(outcome, how):
    assert outcome(SKIPS[how].replace("REASON", "I did not feel like it"), ci="") == {"skipped": 1}


def test_a_module_that_skips_itself_fails_under_ci(outcome):
    assert outcome('pytest.importorskip("no_such_module")', ci="true") == {"errors": 1}


def test_a_module_may_skip_itself_for_a_listed_reason(outcome):
    code = 'pytest.skip("this kernel has no 8021q", allow_module_level=True)'
    assert outcome(code, ci="true") == {"skipped": 1}


def test_a_listed_reason_inside_other_words_is_not_listed(outcome):
    code = 'def test_one(): pytest.skip("lazy, and this kernel has no 8021q")'
    assert outcome(code, ci="true") == {"failed": 1}


def test_an_expected_failure_is_not_a_skip(outcome):
    code = '@pytest.mark.xfail(reason="known")\ndef test_one(): assert False'
    assert outcome(code, ci="true") == {"xfailed": 1}
