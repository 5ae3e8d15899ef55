"""What cannot be read for lack of a resource is not taken for absent: the pass fails, and nothing changes."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from lab import mac
from test_netns_trial import Trial

PROGRAM = Path(__file__).with_name("unreadable.py")
SYSCTLS = [
    f"net/ipv4/{name}"
    for name in ("tcp_rmem", "tcp_wmem", "tcp_max_syn_backlog", "tcp_mtu_probing")
]
DOCUMENT = f"""[interface {mac(1)}]
addresses = 10.1.0.1/24, fd00:1::1/64
mtu = 1400
sysctl.net.ipv4.conf.{{interface}}.rp_filter = 2
"""


def once_without(lab, end, step="--once"):
    """A pass that cannot open the files whose paths end so."""
    words = [PROGRAM, end, "neucad", step, "--config", lab.config_file]
    return lab.run(sys.executable, *words, check=False)


@pytest.mark.parametrize(
    "end", ["random/boot_id", "ipv6/conf/default/accept_ra", "ipv4/conf/dp1/rp_filter"]
)
def test_a_pass_that_cannot_read_a_value_changes_nothing(lab, end):
    lab.management()
    lab.veth("dp1", 1)
    assert lab.once(DOCUMENT).code == 0
    files = [lab.folder / "state/record.json", *(lab.folder / "sysctl").iterdir()]
    before = {path: path.read_bytes() for path in files}
    done = once_without(lab, end)
    assert done.code == 1
    assert f'{end}": Too many open files' in done.err
    assert {path: path.read_bytes() for path in files if path.exists()} == before
    assert lab.addresses("dp1") == {"10.1.0.1/24", "fd00:1::1/64"}
    assert lab.once(f"[interface {mac(1)}]\naddresses = 10.1.0.1/24\n").code == 0
    assert (lab.link("dp1")["mtu"], lab.sysctl("net/ipv4/conf/dp1/rp_filter")) == (1500, "0")


@pytest.mark.parametrize(
    ("end", "profile"), [("profiles/exogeni.conf", "exogeni"), ("run/tuning.json", "none")]
)
def test_a_profile_that_cannot_be_read_stays_in_force(lab, end, profile):
    lab.management()
    lab.foreign.may_set(*SYSCTLS)
    lab.configure(profile=profile)
    assert lab.once("[interfaces]\n").code == 0
    assert lab.neuca("tune", "apply", "--profile", "exogeni").code == 0
    before = [lab.sysctl(path) for path in SYSCTLS]
    done = once_without(lab, end)
    assert (done.code, done.err.endswith(f'{end}": Too many open files\n')) == (1, True)
    assert [lab.sysctl(path) for path in SYSCTLS] == before


def test_a_killed_trial_that_cannot_be_read_is_not_dropped(lab):
    lab.management()
    lab.veth("dp1", 1)
    assert lab.once(DOCUMENT).code == 0
    (lab.folder / "later").write_text(f"[interface {mac(1)}]\nname = renamed\n")
    trial = Trial(lab, 3600)
    os.kill(trial.pid, signal.SIGKILL)
    trial.end()
    assert once_without(lab, "state/trial.json").code == 1
    assert lab.neuca("apply").code == 0
    record = json.loads((lab.folder / "state/record.json").read_text())
    assert record["nics"][mac(1)]["name"] == "dp1"


def test_names_are_restored_even_if_it_cannot_be_read_whose_state_this_is(lab):
    lab.management()
    lab.veth("dp1", 1)
    assert lab.once(DOCUMENT).code == 0
    lab.ip("link set dp1 down")
    lab.ip("link set dp1 name other")
    done = once_without(lab, "state/machine.json", "--names")
    assert 'state/machine.json": Too many open files' in done.err
    assert lab.link("dp1")
    assert lab.neuca("apply").code == 0
