"""What cannot be read for lack of a resource is not taken for absent: the pass fails, and nothing changes."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from lab import mac

PROGRAM = Path(__file__).with_name("unreadable.py")
DOCUMENT = f"""[interface {mac(1)}]
addresses = 10.1.0.1/24, fd00:1::1/64
mtu = 1400
sysctl.net.ipv4.conf.{{interface}}.rp_filter = 2
"""


@pytest.mark.parametrize(
    "end", ["random/boot_id", "ipv6/conf/default/accept_ra", "ipv4/conf/dp1/rp_filter"]
)
def test_a_pass_that_cannot_read_a_value_changes_nothing(lab, end):
    lab.management()
    lab.veth("dp1", 1)
    assert lab.once(DOCUMENT).code == 0
    files = [lab.folder / "state/record.json", *(lab.folder / "sysctl").iterdir()]
    before = {path: path.read_bytes() for path in files}
    words = [PROGRAM, end, "neucad", "--once", "--config", lab.config_file]
    done = lab.run(sys.executable, *words, check=False)
    assert done.code == 1
    assert f'{end}": Too many open files' in done.err
    assert {path: path.read_bytes() for path in files if path.exists()} == before
    assert lab.addresses("dp1") == {"10.1.0.1/24", "fd00:1::1/64"}
    assert lab.once(f"[interface {mac(1)}]\naddresses = 10.1.0.1/24\n").code == 0
    assert (lab.link("dp1")["mtu"], lab.sysctl("net/ipv4/conf/dp1/rp_filter")) == (1500, "0")
