"""Virtual links that a roll-back, or a trial that nobody confirmed, has created again are still the agent's."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from lab import ABSENT, mac

LINKS = {
    "bridge": f"[bridge br0]\nmembers = {mac(1)}\naddresses = 10.5.0.1/24\n",
    "vxlan": "[vxlan vx0]\nid = 5\nlocal = 172.16.1.1\nremote = 172.16.1.2\naddresses = 10.5.0.1/24\n",
}
NAMES = {"bridge": "br0", "vxlan": "vx0"}
NIC = f"[interface {mac(1)}]\naddresses = 172.16.1.1/24\n"
PLAIN = f"{NIC}mtu = 1400\n"
# The kernel refuses the source address, which is not a local one, after the link was deleted.
FAILS = f"{PLAIN}[routes]\n10.77.0.0/24 = 172.16.1.9 src {ABSENT}\n"


@pytest.fixture(params=LINKS)
def host(lab, request):
    lab.veth("dp1", 1)
    lab.kind = request.param
    lab.foreign.may_make(NAMES[lab.kind])
    lab.first = LINKS[lab.kind] + (NIC if lab.kind == "vxlan" else "")
    assert lab.once(lab.first).code == 0
    return lab


def check(host):
    """The link has its address and belongs to the agent, which deletes it on request."""
    name = NAMES[host.kind]
    assert host.addresses(name) == {"10.5.0.1/24"}
    assert host.once(host.first).code == 0
    assert host.plan() == []
    assert host.once(PLAIN).code == 0
    assert (host.link(name), host.problems()) == (None, [])


def test_after_a_roll_back_that_creates_a_link_again_it_is_known(host):
    assert host.once(FAILS).code == 1
    check(host)


def test_after_a_trial_that_nobody_confirmed_it_is_known(host):
    later = host.folder / "later"
    later.write_text(PLAIN)
    assert host.neuca("apply", "--try", "1", "--source", f"file:{later}").code == 1
    check(host)
