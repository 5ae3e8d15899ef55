"""Which NIC metadata comes from: on a first boot, once a service has answered, and when its NIC is another one."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import sys

import compared
import frames
import pytest
from lab import MANAGEMENT_MAC, SERVICE, mac

OURS = f"[interface {mac(1)}]\naddresses = 172.16.1.1/24\n"
EVIL = f"[interface {mac(1)}]\naddresses = 172.16.66.66/24\n"
URL = f"http://{SERVICE}"
PREFIX = "2001:db8:66::/64"


def origin(lab):
    return json.loads((lab.folder / "state" / "machine.json").read_text())["origin"]


@pytest.fixture
def first_boot(guest, attackers):
    """No record; the service is behind mgmt0, the attacker behind eth7, which nothing names yet."""
    guest.management()
    evil = attackers().on_dataplane("eth7", 7, up=True)
    evil.own("10.66.0.1/24").impersonate(EVIL)
    guest.veth("dp1", 1)
    guest.service(OURS)
    guest.configure(sources="ec2", timeout=5)
    return guest, evil


def test_an_advertised_default_route_does_not_bring_a_first_document(first_boot):
    guest, evil = first_boot
    evil.advertise(frames.prefix_information(PREFIX))
    evil.delivered()
    guest.ip("route add 169.254.0.0/16 dev eth7")  # as zeroconf has it
    guest.metadata.mode = "500"
    assert guest.once().code == 3
    assert evil.asked() == []
    assert origin(guest) is None
    guest.metadata.mode = "ok"
    done = guest.once()
    assert (done.code, guest.problems()) == (0, [])
    assert origin(guest) == {
        "source": "ec2",
        "url": URL,
        "mac": MANAGEMENT_MAC,
        "others": [mac(1), mac(7)],
    }
    guest.ip("route del 169.254.0.0/16 dev eth7")


def test_a_second_answer_that_differs_is_a_fault_and_not_the_document(first_boot):
    """Two NICs are asked only if the administrator names both."""
    guest, _ = first_boot
    guest.ip("address add 10.66.0.2/24 dev eth7")
    guest.ip("route add default via 10.66.0.1 dev eth7 metric 900 proto dhcp")
    both = f"[network]\nmanagement-macs = {MANAGEMENT_MAC}, {mac(7)}\n"
    guest.configure(both, sources="ec2", timeout=5)
    assert guest.once().code == 4
    assert guest.addresses("dp1") == {"172.16.1.1/24"}
    text = (
        "the response of another metadata service, through eth7, differs and is ignored;"
        f" the service in use is ec2 at {URL} through the NIC {MANAGEMENT_MAC}"
    )
    assert guest.problems() == [("contested", text)]


def test_the_nic_that_has_answered_stays_the_only_one(first_boot):
    guest, evil = first_boot
    assert guest.once().code == 0
    guest.ip("route del default dev mgmt0")
    guest.ip("address add 10.66.0.2/24 dev eth7")
    guest.ip("route add default via 10.66.0.1 dev eth7 proto dhcp")
    guest.metadata.mode = "500"
    assert guest.once().code == 4
    assert evil.asked() == []
    guest.metadata.mode = "ok"
    assert guest.once().code == 0


def test_a_damaged_record_of_the_machine_opens_no_door(first_boot):
    """Which service has answered for this instance is unknown then, which is not the same as none."""
    guest, evil = first_boot
    assert guest.once().code == 0
    place = guest.folder / "state" / "machine.json"
    whole = place.read_text()
    guest.ip("route del default dev mgmt0")
    guest.ip("address add 10.66.0.2/24 dev eth7")
    guest.ip("route add default via 10.66.0.1 dev eth7 proto dhcp")
    guest.metadata.mode = "500"
    for damage in (whole.replace(MANAGEMENT_MAC, mac(7)), whole[:40], ""):
        place.write_text(damage)
        done = guest.once()
        assert (done.code, evil.asked(), place.read_text()) == (4, [], damage)
        assert f'read "{place}": ' in done.err
        assert guest.addresses("dp1") == {"172.16.1.1/24"}
        assert any(str(place) in note for note in guest.status()[1]["notes"])
    place.write_text(whole)
    guest.metadata.mode = "ok"
    assert guest.once().code == 0


def test_while_its_nic_is_gone_no_other_known_one_is_asked(first_boot):
    guest, evil = first_boot
    guest.ip("address add 10.66.0.2/24 dev eth7")
    guest.ip("route add default via 10.66.0.1 dev eth7 metric 900 proto dhcp")
    guest.once()
    before = len(evil.asked())
    guest.ip("link del mgmt0")
    done = guest.once()
    assert len(evil.asked()) == before
    assert (
        f"only {URL} through the NIC {MANAGEMENT_MAC} is queried, which responded for this"
        " instance, and that NIC is absent" in done.err
    )
    assert guest.addresses("dp1") == {"172.16.1.1/24"}


def test_a_nic_that_was_not_there_before_takes_the_place_of_one_that_is_gone(first_boot):
    guest, evil = first_boot
    guest.once()
    guest.ip("link del mgmt0")
    evil.run("ip link set eth0 down")
    guest.veth("mgmt9", 9, up=True, foreign=True)
    for address in ("192.0.2.1/24", f"{SERVICE}/32"):
        guest.run("ip", "address", "add", address, "dev", "mgmt9", where=guest.outside)
    guest.ip("address add 192.0.2.10/24 dev mgmt9")
    guest.ip("route add default via 192.0.2.1 dev mgmt9")
    assert guest.once().code == 0
    assert origin(guest)["mac"] == mac(9)


def test_management_macs_names_another_nic_for_the_metadata(first_boot):
    guest, evil = first_boot
    assert guest.once().code == 0
    asked = len(evil.asked())
    guest.ip("route add default via 10.66.0.1 dev eth7 metric 900 onlink")
    guest.configure(f"[network]\nmanagement-macs = {mac(7)}\n", "ec2", timeout=2)
    evil.services[0].document = OURS
    assert guest.once().code == 0
    assert len(evil.asked()) > asked
    assert origin(guest)["mac"] == mac(7)
    guest.applied = False  # this service ends before the laws are checked


# --- what advertisements leave on a NIC -----------------------------------------------------------------------------


@pytest.fixture
def advertised(guest, attackers):
    """The attacker has given dp1 a route and addresses before any document names it."""
    guest.management()
    evil = attackers().on_dataplane("dp1", 1, up=True)
    options = (frames.prefix_information(PREFIX), frames.route_information("2001:db8:77::/48"))

    def is_taken():
        # As routers do, again and again: the first one may find the NIC not ready.
        evil.advertise(*options)
        has_route = any(one[1] == "dp1" for one in guest.routes("default", 6))
        return has_route and guest.addresses("dp1")

    guest.wait("the route and an address", is_taken)
    return guest


def advertised_on_dp1(guest):
    return [
        one["dst"]
        for one in guest.look("-6 route show dev dp1")
        if one["dst"] not in ("fe80::/64", "ff00::/8")
    ]


def test_a_nic_that_becomes_dataplane_loses_what_was_advertised(advertised):
    guest = advertised
    guest.document(OURS)
    plan = guest.plan()
    assert 'set the sysctl net.ipv6.conf.dp1.accept_ra from "1" to "0"' in plan
    assert guest.once().code == 0
    assert guest.addresses("dp1") == {"172.16.1.1/24"}
    assert advertised_on_dp1(guest) == []
    assert guest.role(mac(1)) == "dataplane"
    assert guest.neuca("release", "dp1").code == 0
    assert guest.sysctl("net/ipv6/conf/dp1/accept_ra") == "1"


def test_what_the_configuration_asks_for_is_accepted(advertised):
    guest = advertised
    guest.configure(f"[interface {mac(1)}]\nsysctl.net.ipv6.conf.{{interface}}.accept_ra = 1")
    assert guest.once(OURS).code == 0
    assert len(guest.addresses("dp1")) == 2
    assert advertised_on_dp1(guest) == [PREFIX, "default"]


def test_an_address_by_hand_and_its_network_stay(advertised):
    guest = advertised
    guest.ip("address add 2001:db8:5::1/64 dev dp1 nodad")
    assert guest.once(OURS).code == 0
    assert guest.addresses("dp1") == {"172.16.1.1/24", "2001:db8:5::1/64"}
    assert advertised_on_dp1(guest) == ["2001:db8:5::/64"]


def test_a_link_that_is_made_of_a_dataplane_nic_takes_no_advertisement_either(advertised):
    guest = advertised
    guest.foreign.may_make("br7")
    bridge = f"[interface {mac(1)}]\n[bridge br7]\nmembers = {mac(1)}\naddresses = 172.16.7.1/24\n"
    done = guest.once(bridge)
    assert (done.code, done.err) == (0, done.err)
    assert guest.sysctl("net/ipv6/conf/br7/accept_ra") == "0"


def test_the_compact_reader_sees_what_pyroute2_sees(advertised):
    guest = advertised
    guest.ip("link add br0 type bridge")
    guest.veth("m1", 8)
    guest.ip("link set m1 master br0")
    guest.ip("link add vx0 type vxlan id 5 dev dp1 dstport 4789")
    guest.ip("route add 198.51.100.0/24 nexthop via 192.0.2.1 nexthop via 192.0.2.2")
    guest.ip("address add 192.0.2.77 peer 192.0.2.78 dev mgmt0 valid_lft 900 preferred_lft 900")
    assert guest.run(sys.executable, compared.__file__).out == "6\n"


def test_no_route_from_a_dataplane_network_makes_its_nic_the_management_nic(guest, attackers):
    """A first boot with a config drive: the attacker has given eth7 routes before mgmt0 has its own."""
    guest.management(default_route=False)
    evil = attackers().on_dataplane("eth7", 7, up=True)
    evil.own("10.66.0.1/24").impersonate(EVIL)
    evil.advertise(frames.prefix_information(PREFIX))
    evil.delivered()
    guest.ip("address add 10.66.0.2/24 dev eth7")
    guest.ip("route add default via 10.66.0.1 dev eth7 metric 50 proto dhcp")
    macs = {"m": MANAGEMENT_MAC, "d": mac(7)}
    links = [{"id": name, "type": "phy", "ethernet_mac_address": macs[name]} for name in macs]
    static = {"link": "d", "type": "ipv4", "ip_address": "10.7.0.9", "netmask": "255.255.255.0"}
    place = guest.folder / "drive" / "openstack" / "latest"
    place.mkdir(parents=True)
    (place / "meta_data.json").write_text(json.dumps({"uuid": "i"}))
    networks = [{"id": "n0", "link": "m", "type": "ipv4_dhcp"}, {"id": "n1", **static}]
    (place / "network_data.json").write_text(json.dumps({"links": links, "networks": networks}))
    guest.configure(sources=f"configdrive={guest.folder / 'drive'}")
    ours = "route add default via 192.0.2.1 dev mgmt0 metric 900"
    # Once mgmt0 has a default route, that of eth7 takes its traffic away, which is reported.
    for words, code in (("", 0), (ours, 4), ("", 4)):
        if words:
            guest.ip(words)
        assert guest.once().code == code
        assert (guest.role(MANAGEMENT_MAC), guest.role(mac(7))) == ("management", "dataplane")
        assert "10.7.0.9/24" in guest.addresses("eth7")
    assert evil.asked() == []
