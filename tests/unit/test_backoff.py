"""When a failed part of a pass is tried again, by a clock that is passed in."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from neuca_tools.agent.backoff import LONGEST_BACKOFF, WHOLE_PASS, Backoff

INTERVAL = 10.0  # seconds, poll-interval


def passes(seconds):
    """The times of the passes if NIC "a" fails in each attempt, whose events cause a pass each."""
    backoff, now, times = Backoff(), 0.0, []
    while now < seconds:
        left_out = backoff.left_out(now)
        times.append(now)
        attempted = "a" not in left_out
        backoff.update({"a": 7} if attempted else {}, left_out, now, INTERVAL)
        now = now + 0.5 if attempted else backoff.due()
    return times


def test_a_nic_that_keeps_failing_causes_at_most_twelve_passes_in_ten_minutes():
    assert passes(600.0) == [0.0, 0.5, 20.0, 20.5, 60.0, 60.5, 140.0, 140.5, 300.0, 300.5]


def test_the_intervals_grow_to_ten_minutes():
    times = passes(7200.0)
    assert times[-2] - times[-4] == LONGEST_BACKOFF


def test_each_nic_has_intervals_of_its_own():
    backoff = Backoff()
    for now in (0.0, 20.0, 60.0):
        backoff.update({"a": 7}, {}, now, INTERVAL)
    backoff.update({"b": 8}, backoff.left_out(70.0), 70.0, INTERVAL)
    assert backoff.left_out(70.0) == {"a": 7, "b": 8}
    assert backoff.due() == 90.0
    assert backoff.left_out(90.0) == {"a": 7}
    backoff.update({}, backoff.left_out(90.0), 90.0, INTERVAL)
    assert (backoff.left_out(90.0), backoff.due()) == ({"a": 7}, 140.0)


def test_a_device_that_reappeared_begins_anew():
    backoff = Backoff()
    for now in (0.0, 20.0):
        backoff.update({"a": 7}, {}, now, INTERVAL)
    backoff.update({"a": 9}, {}, 25.0, INTERVAL)
    assert backoff.due() == 45.0


def test_a_pass_that_failed_as_a_whole_leaves_nothing_out():
    backoff = Backoff()
    backoff.update({WHOLE_PASS: 0}, {}, 0.0, INTERVAL)
    assert (bool(backoff), backoff.due(), backoff.left_out(1.0)) == (True, 20.0, {})
    backoff.update({}, {}, 20.0, INTERVAL)
    assert (bool(backoff), backoff.due()) == (False, None)
