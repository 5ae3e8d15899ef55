"""A NIC that failed, and a trial that nobody confirmed, are as before; what is not is the first line of the status."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import sys
from pathlib import Path

from lab import mac

FAILING = Path(__file__).with_name("failing.py")
EARLIER = f"""[interface {mac(1)}]
mtu = 1400
txqueuelen = 500
addresses = 10.1.0.1/24
"""
# The kernel refuses the source address, which no device has, once everything else has been done.
FAILS = f"""[interface {mac(1)}]
mtu = 9000
txqueuelen = 900
addresses = 10.2.0.1/24
[routes]
10.77.0.0/24 = 10.2.0.9 src 9.9.9.9
"""
STUCK = "could not be rolled back: set the MTU of dp1 from 9000 to 1400: injected failure"


def failing(lab, which, program, *words):
    """The program, in which an operation fails (see `failing.py`)."""
    lab.applied = True
    lab.foreign.remember()
    return lab.run(sys.executable, FAILING, which, program, *words, check=False)


def once(lab, which):
    """`neucad --once`, in which an operation fails."""
    return failing(lab, which, "neucad", "--once", "--config", lab.config_file)


def is_as_before_but_for_the_mtu(lab):
    link = lab.link("dp1")
    return (link["mtu"], link["txqlen"], lab.addresses("dp1")) == (9000, 500, {"10.1.0.1/24"})


def test_if_a_step_of_a_roll_back_fails_the_others_are_done_and_the_status_begins_with_it(lab):
    lab.veth("dp1", 1)
    assert lab.once(EARLIER).code == 0
    lab.document(FAILS)
    assert once(lab, "set the MTU of dp1 from 9000").code == 1
    assert is_as_before_but_for_the_mtu(lab)
    code, data = lab.status()
    assert (code, data["state"]) == (1, "failed")
    assert lab.problems("dp1")[0] == ("failed", STUCK)
    first, second = lab.neuca("status").out.splitlines()[:2]
    assert (first, second.split(":")[0]) == (f"failed: {STUCK}", "failed")
    assert lab.once(EARLIER).code == 0
    assert lab.neuca("status").out.startswith("ok: ")


def test_a_trial_that_cannot_be_rolled_back_completely_says_what_is_not_as_before(lab):
    lab.veth("dp1", 1)
    assert lab.once(EARLIER).code == 0
    later = lab.folder / "later"
    later.write_text(FAILS.partition("[routes]")[0])
    words = ("apply", "--config", lab.config_file, "--try", "1", "--source", f"file:{later}")
    done = failing(lab, "set the MTU of dp1 from 9000", "neuca", *words)
    assert done.code == 1
    said = "not confirmed, and not everything could be rolled back: see neuca status"
    assert done.out.splitlines()[-1] == said
    assert is_as_before_but_for_the_mtu(lab)
    assert lab.neuca("status").out.splitlines()[0] == f"failed: {STUCK}"
    assert lab.once().code == 0
