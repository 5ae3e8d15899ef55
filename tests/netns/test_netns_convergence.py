"""What a document changes of virtual links: the host is that of the new document alone."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from lab import mac

NICS = (
    f"[interface {mac(1)}]\naddresses = 172.16.1.1/24\n[interface {mac(2)}]\n[interface {mac(3)}]\n"
)
BRIDGE = f"[bridge br0]\nmembers = {mac(2)}, {mac(3)}\naddresses = 10.5.0.1/24\n"
BOND = (
    f"[bond bond0]\nmode = active-backup\nmembers = {mac(2)}, {mac(3)}\naddresses = 10.5.0.1/24\n"
)
VXLAN = "[vxlan vx0]\nid = 5\nlocal = 172.16.1.1\naddresses = 10.6.0.1/24\n"
VLAN = f"[vlan {mac(1)}.5]\naddresses = 10.7.0.1/24\n"
MACVLAN = f"[macvlan mv0]\nparent = {mac(1)}\naddresses = 10.7.0.1/24\n"
VRF = f"[vrf blue]\nmembers = {mac(2)}\ntable = 100\n"
COMMON = "mtu = 1400\ntxqueuelen = 555\nsysctl.net.ipv4.conf.{interface}.rp_filter = 2\n"
SECTIONS = {
    "br0": BRIDGE,
    "bond0": BOND,
    "vx0": VXLAN,
    "dp1.5": VLAN,
    "mv0": MACVLAN,
    "blue": VRF,
}
KINDS = {"br0": "bridge", "bond0": "bond", "vx0": "vxlan", "dp1.5": "vlan", "mv0": "macvlan", "blue": "vrf"}  # fmt: skip
BRIDGE_OPTIONS = "stp = yes\nforward-delay = 4\nhello-time = 3\nmax-age = 10\nageing-time = 100\npriority = 100\n"
BOND_OPTIONS = (
    "updelay = 200\ndowndelay = 300\nmin-links = 1\nxmit-hash-policy = layer3+4\nnum-grat-arp = 3\n"
)
OPTIONS = {"br0": BRIDGE_OPTIONS, "bond0": BOND_OPTIONS, "vx0": "remote = 172.16.1.9\n"}


def host_with(lab, kind):
    for number in (1, 2, 3):
        lab.veth(f"dp{number}", number)
    lab.foreign.may_make(*SECTIONS)
    probe = lab.run("ip", "link", "add", "probe", "link", "dp1", "type", kind,
                    *{"vlan": ["id", "9"], "vrf": ["table", "9"], "vxlan": ["id", "9", "dstport", "9"]}.get(kind, []),
                    check=False)  # fmt: skip
    if "Unknown device type" in probe.err:
        pytest.skip(f"this kernel has no {kind}")
    lab.run("ip", "link", "del", "probe", check=False)
    return lab


def state(lab, name):
    link = lab.link(name)
    options = dict(link["linkinfo"].get("info_data", {}))
    for clock in [option for option in options if "timer" in option]:
        del options[clock]
    return {
        "mtu": link["mtu"],
        "queue": link["txqlen"],
        "options": {key: options.get(key) for key in sorted(options)},
        "rp_filter": lab.sysctl(f"net/ipv4/conf/{name}/rp_filter"),
    }


@pytest.mark.parametrize("name", SECTIONS)
@pytest.mark.parametrize("when", ["created", "changed"])
def test_settings_that_are_no_longer_requested_are_restored(lab, name, when):
    host = host_with(lab, KINDS[name])
    alone = NICS + SECTIONS[name]
    if when == "changed":
        assert host.once(alone).code == 0
        alone_state = state(host, name)
    assert host.once(alone + COMMON).code == 0
    index = host.index(name)
    assert (state(host, name)["mtu"], state(host, name)["queue"]) == (1400, 555)
    assert host.once(alone).code == 0
    assert (host.plan(), host.index(name)) == ([], index)
    after = state(host, name)
    if when == "created":
        host.ip(f"link del {name}")
        assert host.once(alone.replace("10.", "10.1")).code == 0
        alone_state = state(host, name)
    assert after == alone_state


@pytest.mark.parametrize("name", OPTIONS)
def test_options_that_are_no_longer_requested_are_those_of_the_kernel(lab, name):
    host = host_with(lab, KINDS[name])
    alone = NICS + SECTIONS[name]
    assert host.once(alone).code == 0
    before = state(host, name)
    assert host.once(alone + OPTIONS[name]).code == 0
    assert state(host, name) != before
    assert host.plan() == []
    assert host.once(alone).code == 0
    assert (state(host, name), host.plan(), host.problems()) == (before, [], [])


@pytest.mark.parametrize("name", ["br0", "bond0"])
def test_the_first_member_leaves_without_an_interruption(lab, name):
    host = host_with(lab, KINDS[name])
    assert host.once(NICS + SECTIONS[name]).code == 0
    index, address = host.index(name), host.link(name)["address"]
    with host.foreign.changing():
        host.ip(f"address add 10.9.0.1/24 dev {name}")
    assert host.once(NICS + SECTIONS[name].replace(f"{mac(2)}, ", "")).code == 0
    assert (host.index(name), host.link(name)["address"]) == (index, address)
    assert host.addresses(name) == {"10.5.0.1/24", "10.9.0.1/24"}
    assert "master" not in host.link("dp2")
    assert (host.plan(), host.problems()) == ([], [])


REFUSED = {
    "br0": f"[bridge br0]\nmembers = {mac(2)}, {mac(3)}\nstp = yes\nforward-delay = 1\n",
    "taken": f"[bridge taken]\nmembers = {mac(2)}, {mac(3)}\n",
    "bond0": f"[bond bond0]\nmode = 802.3ad\nmembers = {mac(2)}, {mac(3)}\narp-interval = 100\n",
    "blue": f"[vrf blue]\nmembers = {mac(2)}, {mac(3)}\n",
}


@pytest.mark.parametrize("name", REFUSED)
def test_the_members_of_a_link_that_is_refused_keep_what_they_have(lab, name):
    host = host_with(lab, "bridge")
    host.ip("link add taken type bridge")
    settings = (
        "addresses = 10.5.{0}.1/24\nmtu = 1400\nsysctl.net.ipv4.conf.{{interface}}.rp_filter = 2\n"
    )
    nics = "".join(f"[interface {mac(one)}]\n" + settings.format(one) for one in (2, 3))
    assert host.once(nics).code == 0
    before = [state_of_nic(host, nic) for nic in ("dp2", "dp3")]
    assert host.once(REFUSED[name]).code == 4
    assert [state_of_nic(host, nic) for nic in ("dp2", "dp3")] == before
    assert host.plan() == []
    assert host.once("[global]\n").code == 0
    assert host.addresses("dp2") | host.addresses("dp3") == set()


def state_of_nic(lab, name):
    link = lab.link(name)
    path = f"net/ipv4/conf/{name}/rp_filter"
    return (
        lab.addresses(name),
        link["mtu"],
        "UP" in link["flags"],
        link.get("master"),
        lab.sysctl(path),
    )


@pytest.mark.parametrize("name", ["br0"])
def test_the_members_of_a_bridge_stay_in_it_when_it_is_refused(lab, name):
    host = host_with(lab, KINDS[name])
    assert host.once(NICS + BRIDGE).code == 0
    before = [state_of_nic(host, nic) for nic in ("dp2", "dp3", name)]
    assert host.once(NICS + BRIDGE + "stp = yes\nforward-delay = 1\n").code == 4
    assert [state_of_nic(host, nic) for nic in ("dp2", "dp3", name)] == before


def test_the_original_mtu_is_known_after_a_time_in_a_bond(lab):
    host = host_with(lab, "bond")
    assert host.once(f"[interface {mac(2)}]\nmtu = 1400\n").code == 0
    assert host.once(BOND).code == 0
    assert host.once(BOND).code == 0
    assert host.once("[global]\n").code == 0
    assert (host.link("dp2")["mtu"], host.link("bond0"), host.plan()) == (1500, None, [])


@pytest.mark.parametrize("name", ["br0", "bond0"])
def test_the_request_of_one_member_leaves_manual_changes_of_another_alone(lab, name):
    host = host_with(lab, KINDS[name])
    assert host.once(NICS + SECTIONS[name]).code == 0
    changed = NICS.replace(f"[interface {mac(2)}]\n", f"[interface {mac(2)}]\ntxqueuelen = 555\n")
    host.start()
    log = host.folder / "daemon.log"
    host.wait("the first pass", lambda: log.exists() and "pass: " in log.read_text())
    host.settle()
    with host.foreign.changing():
        host.ip("link set dp3 nomaster")
        host.ip("link set dp3 up")
    host.settle()
    host.document(changed + SECTIONS[name])
    host.wait("the pass", lambda: log.read_text().count("pass: ") == 2)
    assert host.link("dp2")["txqlen"] == 555
    assert ("master" in host.link("dp3"), host.link("dp2")["master"]) == (False, name)
    assert host.once(changed + SECTIONS[name]).code == 0
    assert host.link("dp3")["master"] == name


def test_a_port_that_is_no_longer_named_leaves_although_the_others_are_absent(lab):
    host = host_with(lab, "bridge")
    host.management()
    bridge = "[bridge br0]\nmembers = {}\naddresses = 10.5.0.1/24\n"
    assert host.once(bridge.format(f"{mac(2)}, {mac(8)}")).code == 4
    assert host.once(bridge.format(f"{mac(8)}, {mac(9)}")).code == 4
    assert (host.link("dp2").get("master"), host.addresses("br0")) == (None, {"10.5.0.1/24"})
    assert host.plan() == []
    host.veth("dp8", 8)
    assert host.once().code == 4
    assert host.link("dp8")["master"] == "br0"
