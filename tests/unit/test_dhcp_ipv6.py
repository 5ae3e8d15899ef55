"""DHCPv6 and router advertisements without a network manager: what the clients are told, and what is made of what they hear."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import math
import struct
from ipaddress import IPv6Address, IPv6Interface, IPv6Network, ip_interface

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_dhcp import RA, decided, main_routes, netplan, offered, seen, solve
from test_dhcp_clients import OWN, plain
from test_dhcp_requests import document
from worlds import key, mac

from neuca_tools.agent import autoconfiguration
from neuca_tools.agent.autoconfiguration import MAX_ROUTERS, State
from neuca_tools.backends import advertisements, dhcplease, linkwatch
from neuca_tools.backends.advertisements import Advertisement, Prefix, parse_advertisement
from neuca_tools.backends.dhcplease import FOR_EVER, LeaseContent, TimedAddress
from neuca_tools.commands import dhcp_helper
from neuca_tools.desired import dhcp_files
from neuca_tools.desired.dhcp_clients import NOT_ON_VIRTUAL, UNSERVED
from neuca_tools.errors import ApplyError
from neuca_tools.model import (
    ACCEPT_RA,
    Automatic,
    Document,
    LinkKey,
    LinkRequest,
    PlatformDocument,
)

NIC = dhcp_files.link_label(key(2))
ROUTER = IPv6Address("fe80::1")
NETWORK = IPv6Network("fd00:9::/64")
ADDRESS = IPv6Interface("fd00:9::ff:fe00:2/64")
REQUEST = {"index": 2, "table": 1073741826, "metric": 0, "routes": True, "mtu": True}


# --- what is requested --------------------------------------------------------------------------------


def protocols(found):
    return {
        text: json.loads(request).get("protocol") for text, request in found.desired.clients.items()
    }


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"dhcp4": True}, {NIC: None}),
        ({"dhcp6": True}, {f"{NIC}:dhcp6": "dhcp6", f"{NIC}:ra": "ra"}),
        ({"dhcp6": True, "accept-ra": False}, {f"{NIC}:dhcp6": "dhcp6"}),
        ({"accept-ra": True}, {f"{NIC}:ra": "ra"}),
        ({"dhcp4": True, "accept-ra": True}, {NIC: None, f"{NIC}:ra": "ra"}),
    ],
)
def test_a_link_has_one_client_for_each_protocol(keys, expected):
    found = decided(plain(), netplan(**keys))
    assert protocols(found) == expected


def test_a_kernel_without_ipv6_gets_no_client_for_it():
    """Each would end at once, and be started again and again."""
    found = decided(plain(has_ipv6=False), document("dhcp4 = yes\ndhcp6 = yes"))
    assert found.desired.clients.keys() == {NIC}
    problems = [(one.code, one.text) for one in found.resolution.problems if one.link == key(2)]
    assert problems == [("refused", "DHCPv6 and router advertisements: this kernel has no IPv6")]


def test_where_a_client_hears_routers_the_kernel_does_not():
    for keys in ({"dhcp6": True}, {"accept-ra": True}, {"dhcp4": True, "accept-ra": True}):
        found = decided(plain(accept_ra="1"), netplan(**keys))
        assert found.desired.links[key(2)].sysctls[ACCEPT_RA] == "0"
        assert key(2) in found.resolution.without_advertisements
    look = plain(accept_ra="1", own_clients=type(OWN)(), age=400.0)
    without = decided(look, netplan(**{"accept-ra": True}))
    assert without.desired.links[key(2)].sysctls[ACCEPT_RA] == "0"
    assert [one.text for one in without.resolution.problems if one.link == key(2)] == [UNSERVED]


@pytest.mark.parametrize("manager", [False, True])
@pytest.mark.parametrize("own", [OWN, type(OWN)()])
@pytest.mark.parametrize("keys", [{"dhcp6": True}, {"accept-ra": True}])
def test_what_the_kernel_took_is_reset_unless_a_manager_sets_it(keys, own, manager):
    """Our client sets none of it, and a NIC without a client hears no router any more."""
    paths = {f"net/ipv6/conf/eth2/{name}": "1" for name in ("accept_ra", "hop_limit")}
    more = {"accept_ra": "1", "sysctls": paths, "unadvertised": {[*paths][1]: "64"}}
    found = decided(seen(**more) if manager else plain(own, **more), netplan(**keys))
    sysctls = found.desired.links[key(2)].sysctls
    assert sysctls[ACCEPT_RA] == "0"
    assert sysctls.get(ACCEPT_RA.replace("accept_ra", "hop_limit")) == (None if manager else "64")


def test_advertisements_that_the_platform_requests_are_disregarded_if_a_document_names_the_nic():
    platform = netplan(**{"accept-ra": True}).platform
    asked = document("addresses = 172.16.0.1/24")._replace(platform=platform)
    found = decided(plain(accept_ra="1"), asked)
    assert [one for one in found.resolution.problems if one.link == key(2)] == []
    assert found.desired.links[key(2)].sysctls[ACCEPT_RA] == "0"


@pytest.mark.parametrize("manager", [{}, {"networkmanager": {"eth1": "managed"}}])
def test_a_virtual_link_whose_advertisements_no_client_takes_is_reported(manager):
    """The remedy is a client: the document requests none of the kernel that it could change."""
    platform = PlatformDocument(
        links=(
            LinkRequest(
                LinkKey(mac(2), 7),
                "up",
                sysctls=((ACCEPT_RA, "1"),),
                automatic=Automatic(accept_ra=True),
            ),
        )
    )
    neuca = document("accept-ra = yes", section=f"vlan {mac(2)}.7")
    more = {"accept_ra": "1", "managers": manager, "no_manager_runs": not manager}
    for asked in (Document(platform=platform), neuca):
        for age, expected in ((5.0, []), (400.0, [NOT_ON_VIRTUAL])):
            found = decided(plain(type(OWN)(), age=age, **more), asked)
            assert [one.text for one in found.resolution.problems] == expected
            assert found.desired.links[key(2, 7)].sysctls[ACCEPT_RA] == "0"
    assert decided(plain(age=400.0, **more), neuca).resolution.problems == ()


def test_only_one_client_of_a_link_sets_its_mtu_and_none_sends_a_host_name_over_ipv6():
    found = decided(plain(), document("dhcp4 = yes", "dhcp6 = yes")).desired.clients
    told = {text: json.loads(request) for text, request in found.items()}
    assert {text: one["mtu"] for text, one in told.items()} == {
        NIC: True,
        f"{NIC}:dhcp6": False,
        f"{NIC}:ra": False,
    }
    assert told[f"{NIC}:dhcp6"]["hostname"] == "-"


def test_an_operation_names_the_protocol():
    look = plain()
    first = decided(look, document("dhcp6 = yes"))
    started = [one.text for one in first.plan() if one.kind == "start-dhcp"]
    assert started == ["start the DHCPv6 client of eth2", "start the autoconfiguration of eth2"]
    requests = dict(first.desired.clients)
    own = OWN._replace(requests=requests, running=frozenset(requests))
    again = decided(plain(own), document())
    assert [one.text for one in again.plan() if one.kind == "stop-dhcp"] == [
        f"stop the DHCPv6 client of {mac(2)}, and release its lease",
        f"stop the autoconfiguration of {mac(2)}, and remove its addresses",
    ]


@pytest.mark.parametrize(
    ("to", "lease", "is_used"),
    [
        ("fd00:9::/64", "fd00:9::51/128", True),
        ("2a00:1::/64", "2a00:1::51/128", False),
        ("2a00:1::/64", "2a00:1::51/64", False),
    ],
)
def test_only_a_private_subnet_of_a_leased_address_is_routed_in_main(to, lease, is_used):
    look = seen(offered(to, source=None, protocol=RA), lease=lease)
    assert main_routes(solve(look, dhcp6=True)) == ({(to, None)} if is_used else set())


# --- DHCPv6 -------------------------------------------------------------------------------------------

DHCPCD = {
    "new_dhcp6_ia_na1_ia_addr1": "fd00:9::51",
    "new_dhcp6_ia_na1_ia_addr1_vltime": "600",
    "new_dhcp6_ia_na1_ia_addr1_pltime": "300",
}


def test_a_dhcpv6_lease_as_the_client_reports_it():
    found = dhcplease.read_dhcp6_lease(DHCPCD)
    assert found.addresses == (TimedAddress(IPv6Interface("fd00:9::51/128"), 600, 300),)
    assert (found.routes, found.mtu) == ((), 0)


@pytest.mark.parametrize(
    "address", ["", "x", "::", "::1", "ff02::1", "::ffff:10.0.0.1", "10.0.0.1", "$(reboot)"]
)
def test_an_ipv6_address_that_no_host_can_have_is_no_lease(address):
    assert dhcplease.read_dhcp6_lease({**DHCPCD, "new_dhcp6_ia_na1_ia_addr1": address}) is None


def test_a_lease_without_an_end_has_one_nevertheless_to_be_known_as_a_lease():
    times = [f"new_dhcp6_ia_na1_ia_addr1_{end}" for end in ("vltime", "pltime")]
    ((_, valid, preferred),) = dhcplease.read_dhcp6_lease(
        {**DHCPCD, **dict.fromkeys(times, str(FOR_EVER))}
    ).addresses
    assert valid == preferred == FOR_EVER - 1


def test_link_local_and_platform_addresses_are_refused():
    look = plain()
    for text in ("fd00:ec2::254", "fd00:ec2::253", "fd20:ce::254"):
        reason = f"it would take over {text}, which is reached through the management NIC"
        assert dhcplease.reason_to_refuse(ip_interface(f"{text}/128"), 2, look) == reason
    reason = "it is link-local, which no server may offer (RFC 4862, 5.3)"
    assert dhcplease.reason_to_refuse(ip_interface("fe80::9/128"), 2, look) == reason


@pytest.mark.parametrize(("old", "is_dropped"), [("fd00:9::51", True), ("fd00:9::52", False)])
def test_only_the_end_of_its_own_address_ends_a_lease(tmp_path, old, is_dropped):
    path = tmp_path / f"{NIC}:dhcp6.json"
    path.write_text('{"protocol": "dhcp6", "interface": "none9", "index": 9999}')
    lease = path.with_suffix(".lease")
    lease.write_text(json.dumps({"index": 9999, "address": "fd00:9::51/128", "until": 1}))
    dhcp_helper.process_report(
        {"NEUCA_DHCP": str(path), "reason": "EXPIRE6", "old_dhcp6_ia_na1_ia_addr1": old}
    )
    assert lease.exists() is not is_dropped


def test_what_the_client_for_ipv6_is_told(tmp_path):
    path = tmp_path / f"{NIC}:dhcp6.json"
    told = {"program": "/sbin/dhcpcd", "interface": "eth2", "helper": "/helper", "hostname": "-"}
    words = dhcp_helper._client_command(path, {**told, "protocol": "dhcp6"})
    assert words[:2] == ["/sbin/dhcpcd", "-6"]
    conf = path.with_suffix(".conf").read_text().splitlines()
    assert {"ia_na", "noipv6rs", "duid ll", "nogateway"} <= set(conf)


# --- router advertisements ----------------------------------------------------------------------------


def message(*options, lifetime=1800, flags=0):
    return struct.pack("!BBHBBHII", 134, 0, 0, 64, flags, lifetime, 0, 0) + b"".join(options)


def prefix(network, flags=0xC0, valid=7200, preferred=3600):
    network = IPv6Network(network)
    body = struct.pack("!BBBBIII", 3, 4, network.prefixlen, flags, valid, preferred, 0)
    return body + network.network_address.packed


def test_an_advertisement_is_read():
    data = message(prefix(NETWORK), struct.pack("!BBHI", 5, 1, 0, 1400), flags=0x08)
    expected = Prefix(NETWORK, True, True, 7200, 3600)
    assert parse_advertisement(ROUTER, data) == Advertisement(ROUTER, 1800, 1, 1400, (expected,))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        message()[:-1],
        message(b"\x03\x00"),
        message(b"\x03"),
        message(prefix(NETWORK)[:-1]),
        b"\x85" + message()[1:],
        b"\x86\x01" + message()[2:],
    ],
)
def test_an_invalid_advertisement_is_none(data):
    assert parse_advertisement(ROUTER, data) is None


def test_no_router_has_an_address_that_is_not_link_local():
    assert parse_advertisement(IPv6Address("fd00::1"), message()) is None


@pytest.mark.parametrize(
    "option",
    [
        prefix("fe80::/64"),
        prefix("ff02::/64"),
        prefix("::/0"),
        prefix(NETWORK, valid=1, preferred=2),
        prefix("::/64")[:2] + b"\xff" + prefix("::/64")[3:],
    ],
)
def test_a_prefix_that_no_network_has_does_not_count(option):
    assert parse_advertisement(ROUTER, message(option)).prefixes == ()


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_no_message_breaks_the_reader(data):
    parse_advertisement(ROUTER, data)
    parse_advertisement(ROUTER, message(data))


def said(state, now, request=REQUEST):
    return state.link_settings(mac(2), request, now)


def advertisement(*prefixes, lifetime=1800, router=ROUTER, preference=0):
    return Advertisement(router, lifetime, preference, 1400, prefixes)


USUAL = Prefix(NETWORK, True, True, 10000, 5000)


def test_a_link_has_an_address_in_each_prefix_and_the_routes_in_its_own_table():
    state = State({}, 0.0, 0.0)
    state.hear(advertisement(USUAL), 0.0)
    found = said(state, 100.0)
    assert found.addresses == (TimedAddress(ADDRESS, 9900, 4900),)
    assert (found.mtu, found.family) == (1400, 6)
    assert [(str(one.to), one.via, one.traits.table) for one in found.routes] == [
        ("fd00:9::/64", None, 1073741826),
        ("::/0", ROUTER, 1073741826),
    ]
    assert said(state, 100.0, {**REQUEST, "routes": False}).routes == ()
    assert said(State({}, 0.0, 0.0), 0.0) == LeaseContent((), 0, (), 6)


def test_a_prefix_of_another_length_or_not_for_autoconfiguration_gives_no_address():
    state = State({}, 0.0, 0.0)
    odd = Prefix(IPv6Network("fd00:8::/56"), True, True, 10000, 5000)
    state.hear(advertisement(odd, USUAL._replace(autonomous=False)), 0.0)
    assert said(state, 0.0).addresses == ()


def test_an_address_for_ever_still_gets_a_lifetime():
    """By which the kernel removes it some day, should the agent be gone."""
    state = State({}, 0.0, 0.0)
    state.hear(advertisement(USUAL._replace(valid=FOR_EVER, preferred=FOR_EVER)), 0.0)
    assert said(state, 0.0).addresses == (TimedAddress(ADDRESS, FOR_EVER - 1, FOR_EVER - 1),)


def test_no_router_ends_an_address_at_once():
    """RFC 4862, 5.5.3, e."""
    state = State({}, 0.0, 0.0)
    state.hear(advertisement(USUAL), 0.0)
    state.hear(advertisement(USUAL._replace(valid=0, preferred=0)), 1000.0)
    assert said(state, 1000.0).addresses == (TimedAddress(ADDRESS, 7200, 0),)
    state.hear(advertisement(USUAL._replace(valid=1, preferred=1)), 7200.0)
    assert said(state, 7200.0).addresses[0].valid == 1000
    assert said(state, 8300.0).addresses == ()


def test_what_an_advertisement_does_not_say_stays_as_it_is():
    """RFC 4861, 6.3.4, and RFC 4862, 5.5.3, a: without its flag, a prefix says nothing of this use."""
    state, other = State({}, 0.0, 0.0), IPv6Address("fe80::2")
    state.hear(advertisement(USUAL), 0.0)
    before = said(state, 10.0)
    silent = USUAL._replace(on_link=False, autonomous=False)
    state.hear(Advertisement(other, 0, prefixes=(silent,)), 10.0)
    assert said(state, 10.0) == before
    state.hear(Advertisement(other, 0, prefixes=(USUAL._replace(valid=0, preferred=0),)), 20.0)
    after = said(state, 20.0)
    assert after.addresses == (TimedAddress(ADDRESS, 7200, 0),)
    assert [str(route.to) for route in after.routes] == ["::/0"]


def test_an_address_from_before_a_restart_stays_until_its_end():
    state = State({str(ADDRESS): 5500}, 0.0, 5000.0)
    other = Prefix(IPv6Network("fd00:8::/64"), True, True, 10000, 5000)
    state.hear(advertisement(other), 0.0)
    assert [str(one.address.network) for one in said(state, 10.0).addresses] == [
        "fd00:9::/64",
        "fd00:8::/64",
    ]
    assert len(said(state, 501.0).addresses) == 1


def test_the_preferred_router_is_the_default_router_until_it_ends():
    state, other = State({}, 0.0, 0.0), IPv6Address("fe80::2")
    state.hear(advertisement(), 0.0)
    state.hear(advertisement(router=other, preference=1, lifetime=60), 0.0)
    assert [one.via for one in said(state, 0.0).routes] == [other]
    assert state.next_end() == 60
    assert [one.via for one in said(state, 61.0).routes] == [ROUTER]
    state.hear(advertisement(lifetime=0), 62.0)
    assert said(state, 62.0).routes == ()


def test_of_two_equal_routers_the_first_stays_the_default_router_while_both_advertise():
    state, other = State({}, 0.0, 0.0), IPv6Address("fe80::2")
    for moment, router in enumerate((ROUTER, other, ROUTER, other, ROUTER)):
        state.hear(advertisement(router=router), moment)
        assert [route.via for route in said(state, moment).routes] == [ROUTER]
    state.hear(advertisement(lifetime=0), 5.0)
    assert [route.via for route in said(state, 5.0).routes] == [other]


def test_routers_cannot_fill_the_memory_or_the_link():
    state = State({}, 0.0, 0.0)
    for number in range(100):
        network = IPv6Network(f"fd00:{number:x}::/64")
        router = IPv6Address(f"fe80::{number + 1:x}")
        state.hear(advertisement(USUAL._replace(network=network), router=router), 0.0)
    assert len(said(state, 0.0).addresses) == 16
    assert len(state._routers) == 8
    many = message(*(prefix(f"fd00:{number:x}::/64") for number in range(100)))
    assert len(parse_advertisement(ROUTER, many).prefixes) == advertisements.MAX_PREFIXES


def test_a_link_local_address_counts_once_it_is_no_longer_tentative(tmp_path):
    table = tmp_path / "if_inet6"
    row = "fe80000000000000000000fffe000002 02 40 20 {} eth2\n"
    for flags, expected in (("c0", False), ("88", False), ("80", True)):
        table.write_text(row.format(flags))
        assert linkwatch.has_link_local(2, table) is expected
        assert not linkwatch.has_link_local(3, table)
    assert not linkwatch.has_link_local(2, tmp_path / "none")


# Whether a prefix is on the link and for addresses, and whether the link gets a route to it and an address in it.
PREFIXES = [(True, True), (True, False), (False, True), (False, False)]


@pytest.mark.parametrize(("on_link", "autonomous"), PREFIXES)
def test_a_prefix_gives_only_what_its_flags_say(on_link, autonomous):
    """RFC 4861, 6.3.4, and RFC 4862, 5.5.3."""
    state = State({}, 0.0, 0.0)
    prefix = USUAL._replace(on_link=on_link, autonomous=autonomous)
    state.hear(advertisement(prefix, lifetime=0), 0.0)
    found = said(state, 100.0)
    assert [route.to for route in found.routes if route.via is None] == [NETWORK] * on_link
    assert [address.address for address in found.addresses] == [ADDRESS] * autonomous


# The lifetimes of a router and of its prefix, the flags of the prefix, and when the first of them ends.
ENDS = [
    (1800, 10000, (True, True), 1800.0),
    (1800, 600, (True, False), 600.0),
    (1800, 600, (False, True), 600.0),
    (1800, 600, (False, False), 1800.0),
]


@pytest.mark.parametrize(("router", "valid", "flags", "expected"), ENDS)
def test_the_link_changes_when_the_first_lifetime_ends(router, valid, flags, expected):
    state = State({}, 0.0, 0.0)
    assert state.next_end() == math.inf
    prefix = USUAL._replace(on_link=flags[0], autonomous=flags[1], valid=valid, preferred=valid)
    state.hear(advertisement(prefix, lifetime=router), 0.0)
    assert state.next_end() == expected


def test_what_has_ended_makes_room_for_other_routers():
    state = State({}, 0.0, 0.0)
    for number in range(MAX_ROUTERS):
        state.hear(advertisement(router=IPv6Address(f"fe80::{number + 1}"), lifetime=10), 0.0)
    late = IPv6Address("fe80::ff")
    for now, expected in ((5.0, IPv6Address("fe80::1")), (10.0, late)):
        state.hear(advertisement(router=late), now)
        assert [route.via for route in said(state, now).routes] == [expected]


@pytest.mark.parametrize(("left", "expected"), [(2.5, [2]), (1.0, [1]), (0.5, [])])
def test_an_address_is_set_while_it_has_a_whole_second_left(left, expected):
    """A lifetime of 0 would be refused by the kernel (EINVAL)."""
    state = State({}, 0.0, 0.0)
    state.hear(advertisement(USUAL), 0.0)
    assert [address.valid for address in said(state, USUAL.valid - left).addresses] == expected


class Flood:
    """A link on which a router is heard ten times a second, on a clock of its own; it ends after a minute."""

    def __init__(self):
        self.now, self.solicited, self.silent_until = 1000.0, [], 1010.0

    def monotonic(self):
        return self.now

    def solicit(self):
        self.solicited.append(self.now - 1000)

    def wait(self, seconds):
        self.now += max(0.01, min(seconds, 0.1))
        if self.now > 1060:
            raise OSError("the link is gone")

    def received(self):
        return advertisement(USUAL) if self.now >= self.silent_until else None


def test_a_flood_of_advertisements_changes_the_link_now_and_then(monkeypatch):
    flood, changes = Flood(), []
    monkeypatch.setattr(autoconfiguration.time, "monotonic", flood.monotonic)

    def change():
        changes.append(flood.now)
        raise ApplyError("the kernel refuses it")

    with pytest.raises(OSError, match="the link is gone"):
        autoconfiguration._follow_routers(flood, State({}, 1000.0, 0.0), change)
    assert flood.solicited == pytest.approx([0, 4], abs=0.2)
    assert changes[0] == pytest.approx(1010.0, abs=0.2)
    assert 15 <= len(changes) <= 17
