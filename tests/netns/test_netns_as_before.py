"""A failure leaves the NIC as before: in each pass from one document to another, each operation fails once."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from failing import INJECTED
from foreign import VOLATILE
from lab import mac
from test_netns_roll_back import once

ONE, TWO = f"[interface {mac(1)}]\n", f"[interface {mac(2)}]\n"
PLAIN = f"{ONE}mtu = 1400\naddresses = 10.1.0.1/24, fd01::1/64\n[routes]\n10.20.0.0/16 = 10.1.0.9\n"
RICH = (
    f"{ONE}mtu = 9000\ntxqueuelen = 700\naddresses = 10.2.0.1/24, fd01::1/48, fd02::1/64\n"
    "sysctl.net.ipv4.conf.{interface}.rp_filter = 2\n"
    "[routes]\n10.20.0.0/16 = 10.2.0.9 metric 5\n10.21.0.0/16 = 10.2.0.9 table 77\n10.50.0.0/16 = down\n"
)
BRIDGE = f"[bridge br0]\nmembers = {mac(1)}, {mac(2)}\naddresses = 10.5.0.1/24\nmtu = 1400\n[routes]\n10.20.0.0/16 = 10.5.0.9\n"
VXLAN = "[vxlan vx0]\nid = 5\nlocal = 10.1.0.1\nremote = 10.1.0.2\naddresses = 10.6.0.1/24\n"
BOND = f"[bond bond0]\nmembers = {mac(1)}, {mac(2)}\nmode = 802.3ad\naddresses = 10.7.0.1/24\n"
VLANS = f"{ONE}mtu = 3000\n[vlan {mac(1)}.7]\naddresses = 10.8.0.1/24\nmtu = 2000\n"
VRF = f"[vrf red]\ntable = 500\nmembers = {mac(1)}\n{ONE}addresses = 10.1.0.1/24\n"
# The kind of link that the kernel needs for it, the document before and the one after.
PASSES = {
    "settings": ("", PLAIN, RICH),
    "settings back": ("", RICH, PLAIN),
    "down": ("", PLAIN, f"{ONE}state = down\naddresses = 10.3.0.1/24\n"),
    "name": ("", PLAIN, f"{ONE}name = data7\naddresses = 10.1.0.1/24, 10.9.0.1/24\n"),
    "names swapped": ("", PLAIN, f"{ONE}name = dp2\n{TWO}name = dp1\n"),
    "gateway": ("", PLAIN, f"{ONE}addresses = 10.1.0.1/24\ngateway = 10.1.0.9\n"),
    "bridge": ("bridge", PLAIN, BRIDGE),
    "bridge away": ("bridge", BRIDGE, PLAIN),
    "vxlan changed": ("vxlan", PLAIN + VXLAN, PLAIN + VXLAN.replace("id = 5", "id = 6")),
    "macvlan": ("macvlan", PLAIN, f"{PLAIN}[macvlan mv0]\nparent = {mac(1)}\naddresses = 10.4.0.1/24\n"),
    "macvlan moves": (
        "macvlan",
        f"{ONE}addresses = 10.1.0.1/24\n{TWO}[macvlan mv0]\nparent = {mac(2)}\n",
        f"{ONE}addresses = 10.2.0.1/24\n[macvlan mv0]\nparent = {mac(1)}\n[bridge br0]\nmembers = {mac(2)}\n",
    ),
    "bond": ("bond", PLAIN, BOND),
    "bond away": ("bond", BOND, RICH),
    "bond changed": ("bond", BOND, BOND.replace("802.3ad", "active-backup")),
    "vlans": ("vlan", PLAIN, VLANS),
    "vlans away": ("vlan", VLANS, PLAIN),
    "vrf": ("vrf", PLAIN, VRF),
    "vrf away": ("vrf", VRF, PLAIN),
}  # fmt: skip
FAST = {"settings": 3, "bridge away": 5}  # every third operation, every fifth
# What fails alone: the rest of the NIC is as requested.
ALONE = (
    "set the sysctl",
    'write "',
    'remove "',
    "add the rule",
    "delete the rule",
    "create VLAN",
    "restore the route",
)
LINK = ("ifname", "address", "mtu", "txqlen", "master", "ifalias", "altnames", "qdisc", "linkinfo")
# It ages, or depends on the moment.
PASSING = ("expires", "valid_life_time", "preferred_life_time", "metrics", "secondary", "tentative")
LIVE = (
    *("info_slave_data", "timer", "root", "bridge_id", "ad_info", "active_slave", "group_address"),
    "fdb_n_learned",
)


def plain(value):
    """A value of `ip -j` as text, without what the kernel changes by itself."""
    if isinstance(value, dict):
        kept = {name: one for name, one in value.items() if not name.endswith(LIVE)}
        return {name: plain(one) for name, one in kept.items() if "timer" not in name}
    return value


def snapshot(lab):
    """The whole host: links, their options, addresses, routes, rules and sysctls."""
    lab.settle()
    facts = [
        f"link {plain({name: link.get(name) for name in LINK})} {'UP' in link['flags']}"
        for link in lab.look("link")
    ]
    facts += [
        f"address {link['ifname']} {_lasting(address)}"
        for link in lab.look("address")
        for address in link.get("addr_info", ())
    ]
    for family in (4, 6):
        facts += [f"route {_lasting(one)}" for one in lab.look(f"-{family} route show table all")]
        facts += [f"rule {one}" for one in lab.look(f"-{family} rule")]
    settings = lab.run("grep", "-rs", "", "/proc/sys/net", check=False).out.splitlines()
    return {*facts, *(line for line in settings if not any(part in line for part in VOLATILE))}


def _lasting(fact):
    return sorted((name, str(one)) for name, one in fact.items() if name not in PASSING)


def prepared(lab, kind):
    """Two NICs that are up, with what another program has set there."""
    lab.foreign.may_make("br0", "bond0", "vx0", "mv0", "red")
    lab.management()
    lab.veth("dp1", 1, up=True)
    lab.veth("dp2", 2, up=True)
    if kind and lab.run("ip", "link", "add", "probe", *_example(kind), check=False).code:
        pytest.skip(f"this kernel has no {kind}")
    lab.run("ip", "link", "del", "probe", check=False)
    lab.ip("address add 10.40.0.7/24 dev dp1")
    lab.ip("address add fd40::7/64 dev dp1 nodad")
    lab.ip("route add 10.50.0.0/16 via 10.40.0.9 dev dp1 proto static metric 77")
    lab.ip("-6 route add fd50::/32 via fd40::9 dev dp1 metric 55 proto 33")
    lab.ip("route add 10.52.0.0/16 via 10.40.0.9 dev dp1 table 400")


def _example(kind):
    more = {"vxlan": "id 9 dstport 4789", "vlan": "id 9", "vrf": "table 9"}.get(kind, "")
    lower = ["link", "dp2"] if kind in ("vlan", "macvlan") else []
    return [*lower, "type", kind, *more.split()]


def check(lab, name, step):
    kind, earlier, later = PASSES[name]
    prepared(lab, kind)
    assert lab.once(earlier).code == 0
    before, number, broken = snapshot(lab), 1, []
    while True:
        lab.document(later)
        done = once(lab, str(number))
        failed = [line for line in done.err.splitlines() if line.startswith(INJECTED)]
        if not failed:
            break
        text = failed[0].removeprefix(INJECTED)
        if text.startswith(ALONE):
            assert lab.once(later).code == 0, text
        elif done.code and (after := snapshot(lab)) != before:
            broken += [f"after {text}"]
            broken += [f"- {fact}" for fact in sorted(before - after)]
            broken += [f"+ {fact}" for fact in sorted(after - before)]
        assert lab.once(earlier).code == 0, text
        before = snapshot(lab)
        number += step
    assert not broken, "\n".join(broken)
    assert number > 1
    assert (done.code, lab.plan()) == (0, [])


@pytest.mark.parametrize("name", FAST)
def test_a_failure_leaves_the_nic_as_before(lab, name):
    check(lab, name, FAST[name])


@pytest.mark.long
@pytest.mark.parametrize("name", PASSES)
def test_a_failure_of_any_operation_leaves_the_nic_as_before(lab, name):
    check(lab, name, 1)
