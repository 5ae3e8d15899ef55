"""The mark of the agent's links is in the kernel: their alias (ip-link(8))."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import shutil

import pytest
from lab import mac

MARK = "neuca-guest-tools"
BRIDGE = f"[bridge br0]\nmembers = {mac(1)}\naddresses = 10.5.0.1/24\n"
VXLAN = "[vxlan vx0]\nid = 5\nlocal = 172.16.1.1\nremote = 172.16.1.2\naddresses = 10.6.0.1/24\n"
PLAIN = f"[interface {mac(2)}]\naddresses = 172.16.1.1/24\n"
BOTH = BRIDGE + VXLAN + PLAIN
MARKED = ["mark br0 as created by neucad", "mark vx0 as created by neucad"]


@pytest.fixture
def host(lab):
    lab.veth("dp1", 1)
    lab.veth("dp2", 2)
    lab.foreign.may_make("br0", "vx0")
    assert lab.once(BOTH).code == 0
    return lab


def aliases(host):
    return [host.link(name).get("ifalias") for name in ("br0", "vx0")]


def test_each_link_of_ours_has_the_mark(host):
    assert aliases(host) == [MARK, MARK]
    assert (host.plan(), host.link("dp1").get("ifalias")) == ([], None)


def test_links_are_known_by_their_mark_without_a_record(host):
    shutil.rmtree(host.folder / "state")
    assert host.once(BOTH).code == 0
    assert host.plan() == []
    assert host.once(PLAIN).code == 0
    assert (host.link("br0"), host.link("vx0"), host.problems()) == (None, None, [])


def test_addresses_are_known_by_their_protocol_without_a_record(host):
    with host.foreign.changing():
        host.ip("address add 10.9.0.1/24 dev dp2")
    shutil.rmtree(host.folder / "state")
    assert host.once(BOTH).code == 0
    assert host.once(f"[interface {mac(2)}]\n").code == 0
    assert host.addresses("dp2") == {"10.9.0.1/24"}


ADDITIONS = {
    "address add 10.8.0.1/24 dev br0": "br0",
    "route add 10.8.0.0/16 via 10.5.0.9": "br0",
    "link set vx0 master theirs": "vx0",
}


@pytest.mark.parametrize("words", ADDITIONS)
def test_a_link_that_somebody_added_something_to_is_left(host, words):
    name = ADDITIONS[words]
    address = host.addresses(name)
    with host.foreign.changing():
        host.ip("link add theirs type bridge")
        host.ip(words)
    host.once(PLAIN)
    texts = [text for code, text in host.problems(name) if code == "refused"]
    assert [text for text in texts if text.startswith("it is no longer requested, but somebody ")]
    assert host.addresses(name) >= address
    assert (host.link({"br0": "vx0", "vx0": "br0"}[name]), host.plan()) == (None, [])


def test_links_of_an_earlier_version_are_marked_in_place(host):
    before = [host.index(name) for name in ("br0", "vx0")]
    for name in ("br0", "vx0"):
        host.run("ip", "link", "set", name, "alias", "")
    assert host.plan() == MARKED
    assert host.once(BOTH).code == 0
    assert aliases(host) == [MARK, MARK]
    assert ([host.index(name) for name in ("br0", "vx0")], host.plan()) == (before, [])


def test_an_alias_of_the_administrator_stays_and_the_link_is_still_ours(host):
    for name in ("br0", "vx0"):
        host.ip(f"link set {name} alias uplink")
    assert host.plan() == []
    assert host.once(BOTH.replace("10.6.0.1", "10.6.0.9")).code == 0
    assert aliases(host) == ["uplink", "uplink"]
    assert host.once(PLAIN).code == 0
    assert (host.link("br0"), host.link("vx0"), host.problems()) == (None, None, [])


def test_a_link_that_another_program_created_under_the_name_is_left_alone(host):
    host.ip("link del br0")
    host.ip("link add br0 type bridge")
    assert host.once(BOTH).code == 4
    assert host.link("br0").get("ifalias") is None
    assert host.once(PLAIN).code == 0
    assert host.link("br0") is not None
