"""A bridge or bond that is created again, by a roll-back or with other options, has all that was requested of it and its ports."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from lab import mac

FAILING = Path(__file__).with_name("failing.py")
SETTINGS = "sysctl.net.ipv4.conf.{interface}.rp_filter = 2\ntxqueuelen = 77\n"
ADDRESS = "addresses = 10.5.0.1/24\n"
PORT = {"bridge": "path-cost = 179\nport-priority = 7\n", "bond": "bond-primary = yes\n"}
MADE = {
    "bridge": f"[bridge it]\nmembers = {mac(1)}\nforward-delay = 16\nageing-time = 77\n",
    "bond": f"[bond it]\nmembers = {mac(1)}\nmode = active-backup\nupdelay = 200\n",
}
OTHER = {
    "bridge": MADE["bridge"].replace("ageing-time = 77", "ageing-time = 88"),
    "bond": MADE["bond"].replace("updelay = 200", "updelay = 300"),
}
ITEMS = {
    "bridge": ("forward_delay", "ageing_time", "stp_state"),
    "bond": ("mode", "miimon", "updelay", "primary", "lacp_rate", "arp_validate"),
}
# Whether the later document has the port's settings, the link with other options, and its settings.
LATER = {
    "nothing": (False, False, False),
    "port": (True, False, False),
    "link": (False, True, False),
    "link and settings": (False, True, True),
    "all": (True, True, True),
}


@pytest.fixture(params=MADE)
def host(lab, request):
    lab.kind = request.param
    if lab.ip(f"link add it type {lab.kind}", check=False).code != 0:
        pytest.skip(f"this kernel has no {lab.kind}")
    lab.ip("link del it")
    lab.management()
    lab.veth("dp1", 1)
    lab.foreign.may_make("it")
    lab.first = document(lab, MADE[lab.kind], SETTINGS, ADDRESS)
    return lab


def document(host, *link, port=True):
    """The lines of the port, then these, which may be those of the link."""
    return "".join([f"[interface {mac(1)}]\n", PORT[host.kind] if port else "state = up\n", *link])


def later_document(host, which, more):
    """One of LATER, with another line of the last section."""
    port, link, settings = LATER[which]
    made = OTHER[host.kind] if link else ""
    return document(host, made, SETTINGS if settings else "", more, port=port)


def seen(host):
    """What the kernel has of the bridge or bond, and of its port."""
    link, port = (host.look(f"-d link show dev {name}")[0] for name in ("it", "dp1"))
    options, place = link["linkinfo"]["info_data"], port["linkinfo"].get("info_slave_data", {})
    return {
        **{name: options.get(name) for name in ITEMS[host.kind]},
        "mac": link["address"],
        "queue": link["txqlen"],
        "addresses": host.addresses("it"),
        "rp_filter": host.sysctl("net/ipv4/conf/it/rp_filter"),
        "place": (port["master"], place.get("cost"), place.get("priority")),
    }


def is_in_force(host, before):
    """The link is as it was, and another pass of the same document leaves it alone."""
    assert seen(host) == before
    index = host.index("it")
    assert host.once(host.first).code == 0
    assert (seen(host), host.index("it")) == (before, index)
    assert (host.plan(), host.problems()) == ([], [])


def once(host, which, text):
    """A pass of this document in which an operation fails (see `failing.py`)."""
    host.document(text)
    host.applied = True
    host.foreign.remember()
    words = (FAILING, which, "neucad", "--once", "--config", host.config_file)
    return host.run(sys.executable, *words, check=False)


def fails(host, text):
    done = once(host, "add the address 10.6.0.1", text)
    assert (done.code, "injected: " in done.err) == (1, True), done.err


@pytest.mark.parametrize("later", LATER)
def test_after_an_unconfirmed_trial(host, later):
    assert host.once(host.first).code == 0
    before = seen(host)
    path = host.folder / "later"
    path.write_text(later_document(host, later, ""))
    done = host.neuca("apply", "--try", "1", "--source", f"file:{path}")
    said = "not confirmed: rolled back to the previous configuration"
    assert (done.code, done.out.splitlines()[-1]) == (1, said), done.err
    is_in_force(host, before)


@pytest.mark.parametrize("later", LATER)
def test_after_a_pass_that_failed(host, later):
    assert host.once(host.first).code == 0
    before = seen(host)
    fails(host, later_document(host, later, "addresses = 10.6.0.1/24\n"))
    is_in_force(host, before)


def test_after_a_killed_pass_and_one_that_failed(host):
    assert host.once(host.first).code == 0
    before = seen(host)
    later = later_document(host, "nothing", "addresses = 10.6.0.1/24\n")
    once(host, "kill add the address 10.6.0.1", later)
    assert host.link("it") is None
    fails(host, later)
    is_in_force(host, before)


def test_a_port_of_a_link_that_is_created_anew_gets_its_settings(host):
    assert host.once(document(host, MADE[host.kind], port=False)).code == 0
    for made in (OTHER, MADE):
        assert host.once(document(host, made[host.kind])).code == 0
        found = seen(host)
        desired = {"bridge": (None, "it", 179, 7), "bond": ("dp1", "it", None, None)}
        assert (found.get("primary"), *found["place"]) == desired[host.kind]
        assert (host.plan(), host.problems()) == ([], [])


def test_after_a_trial_that_was_killed(host):
    assert host.once(host.first).code == 0
    before = seen(host)
    path = host.folder / "later"
    path.write_text(later_document(host, "link", ""))
    words = ("neuca", "apply", "--config", host.config_file, "--try", "600", "--source", f"file:{path}")  # fmt: skip
    done = host.run(sys.executable, FAILING, "kill bring it up", *words, check=False)
    assert done.code, done.err
    assert seen(host) != before
    assert host.once().code == 0
    is_in_force(host, before)


def test_a_macvlan_that_moves_to_a_nic_that_fails_is_back_on_its_parent(lab):
    """Meanwhile its parent has become a port, and no port can carry a macvlan."""
    for number in (1, 2, 3):
        lab.veth(f"dp{number}", number)
    lab.foreign.may_make("mv0", "br0")
    first = f"[interface {mac(1)}]\naddresses = 10.17.0.1/16\n[macvlan mv0]\nparent = {mac(3)}\n"
    assert lab.once(first).code == 0
    moved = f"[interface {mac(1)}]\naddresses = 10.6.0.1/16\n[macvlan mv0]\nparent = {mac(1)}\n"
    fails(lab, f"{moved}[bridge br0]\nmembers = {mac(3)}\n")
    links = [lab.link(name) for name in ("mv0", "dp3", "br0")]
    assert (links[0]["link"], links[1].get("master"), links[2]) == ("dp3", None, None)
    assert lab.addresses("dp1") == {"10.17.0.1/16"}
    assert lab.once(first).code == 0
