"""The attacker's host on a dataplane link at a first boot: every sign that it can leave, in every state of the real service.

Nothing that it leaves on its NIC makes its service believed or moves a role.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib

import pytest
from boots import STATES, Boot
from signs import SIGNS


def rows():
    """Three states for each sign, in turn, so that all occur with each kind of sign; a third of the signs is not `long`."""
    step = 7  # has no divisor in common with the number of the states
    for number, sign in enumerate(SIGNS):
        for turn in range(3):
            state = STATES[(number * step + turn * 13) % len(STATES)]
            marks = [pytest.mark.long] * bool(turn or number % 3)
            yield pytest.param(sign, state, id=f"{sign}; {', '.join(state)}", marks=marks)


@pytest.fixture
def boot(guest, attackers):
    with contextlib.ExitStack() as stack:
        yield lambda state: Boot(guest, attackers, stack, state)


@pytest.mark.parametrize("sign, state", rows())
def test_no_sign_of_a_stranger_makes_it_the_metadata_service(boot, sign, state):
    made = boot(state)
    SIGNS[sign].make(made.guest, made.evil)
    made.check_held()
