"""Default routes and rules that other programs have added beside those of the agent."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from lab import mac

SECTION = f"""[interface {mac(1)}]
addresses = 10.1.0.5/24, fd00:1::5/64
gateway = 10.1.0.1, fd00:1::1
"""


@pytest.fixture
def host(lab):
    lab.management()
    lab.veth("dp1", address=mac(1), up=True)
    return lab


def _contested(status):
    return [one["text"] for one in status["problems"] if one["code"] == "contested"]


def _notes(status):
    (nic,) = [one for one in status["interfaces"] if one["mac"] == mac(1)]
    return [note["reason"] for note in nic["notes"] if note["setting"] == "policy-routing"]


@pytest.mark.parametrize("protocol", ["boot", "dhcp"])
@pytest.mark.parametrize("lifetime", ["3600", "forever"])
def test_a_default_route_of_the_images_dhcp_client_is_a_problem(lab, protocol, lifetime):
    lab.management(default_route=False)
    lab.veth("dp1", address=mac(1), up=True)
    lab.ip("route add default via 192.0.2.1 dev mgmt0 metric 100")
    lab.document(f"[interface {mac(1)}]\naddresses = 10.1.0.4/24\n")
    assert lab.once().code == 0
    lab.ip(f"address add 10.1.0.77/24 dev dp1 valid_lft {lifetime} preferred_lft {lifetime}")
    lab.ip(f"route add default via 10.1.0.1 dev dp1 proto {protocol} metric 50")
    lab.once()
    _, status = lab.status()
    (text,) = _contested(status)
    assert "IPv4 default route of another program through dp1 via 10.1.0.1 (metric 50)" in text
    assert ("10.1.0.77/24" in text) == (lifetime == "3600")
    assert status["state"] == "degraded"
    lab.ip("route delete default via 10.1.0.1 dev dp1")
    lab.ip("route add default via 10.1.0.1 dev dp1 metric 200")
    assert _contested(lab.status()[1]) == []


@pytest.mark.parametrize(
    ("rules", "routes", "named"),
    [
        (["pref 5270 lookup 52"], ["default"], "5270: from all lookup 52"),
        (
            [
                "not fwmark 0xca6c pref 5280 lookup 52",
                "lookup main suppress_prefixlength 0 pref 5279",
            ],
            ["default"],
            "5280: not from all fwmark 0xca6c/0xffffffff lookup 52",
        ),
        (["pref 5270 lookup 52"], ["0.0.0.0/1", "128.0.0.0/1"], "5270: from all lookup 52"),
        (["pref 5270 lookup 52"], ["100.64.0.0/10"], ""),
        (["fwmark 0x80000/0xff0000 pref 5210 lookup 52"], ["default"], ""),
        (["pref 5270 lookup 52 suppress_prefixlength 0"], ["default"], ""),
        (["to 198.18.0.0/15 pref 5270 lookup 52"], ["default"], ""),
    ],
)
def test_a_rule_that_shadows_ours_is_a_note(host, rules, routes, named):
    host.ip("tuntap add mode tun name vpn0")
    host.ip("link set vpn0 up")
    for route in routes:
        host.ip(f"route add {route} dev vpn0 table 52")
    for rule in rules:
        host.ip(f"rule add {rule}")
    host.document(SECTION)
    assert host.once().code == 0
    notes = _notes(host.status()[1])
    if not named:
        assert notes == []
        return
    (note,) = notes
    assert note.startswith(f'rule "{named}" of another program comes first: 31000: from 10.1.0.5')
    assert "31200: from 10.1.0.5/32 lookup" in note


def test_a_table_that_sends_packets_on_to_the_next_rule_shadows_nothing(host):
    host.ip("route add throw default table 52")
    host.ip("rule add pref 5270 lookup 52")
    assert host.once(SECTION).code == 0
    assert _notes(host.status()[1]) == []


def test_a_configured_nic_keeps_everything_while_another_device_has_its_mac(host):
    """A virtual function, on a cloud that takes it away and gives it back, before it has a master."""
    host.document(SECTION)
    assert host.once().code == 0
    routing = "ip rule show; ip -6 rule show; ip route show table all dev dp1; ip address show dp1"
    before = host.run("sh", "-c", routing).out
    for name in ("vf0", "zf0"):
        host.veth(name, address=mac(1), up=True)
        host.once()
        assert host.run("sh", "-c", routing).out == before
        _, status = host.status()
        (nic,) = [one for one in status["interfaces"] if one["mac"] == mac(1)]
        assert nic["name"] == "dp1"
        (problem,) = nic["problems"]
        assert problem["code"] == "contested"
        assert problem["text"] == (
            f'another device has the MAC of "dp1" too, and is left alone: {name}'
        )
        host.ip(f"link delete {name}")
    assert host.once().code == 0
    assert host.run("sh", "-c", routing).out == before
