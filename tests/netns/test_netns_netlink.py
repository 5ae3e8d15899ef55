"""What the agent asks of the kernel through pyroute2: every change, with the pyroute2 of this interpreter."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import struct
import sys
from importlib.metadata import version

import compared
import pytest
from pyroute2 import Ethtool
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg

CODE = """import json, time
from ipaddress import ip_address, ip_interface, ip_network
from neuca_tools.backends.netlink import Netlink
from neuca_tools.errors import ApplyError
from neuca_tools.model import Route
from neuca_tools.model.routing import Rule, Traits
start = time.monotonic()
with Netlink() as kernel:
    try:
        kernel.{call}
        result = None
    except ApplyError as error:
        result = [error.text, error.errno, time.monotonic() - start]
print(json.dumps(result))
"""

FOR_EVER = 0xFFFFFFFF  # INFINITY_LIFE_TIME


@pytest.fixture
def guest(lab):
    """A guest with the NIC dp1."""
    lab.veth("dp1", 1)
    return lab


def change(guest, call):
    """Make one change. Returns the error as text, number and seconds; None if it was made."""
    with guest.foreign.changing():
        return json.loads(guest.run(sys.executable, "-B", "-c", CODE.replace("{call}", call)).out)


# --- Links ----------------------------------------------------------------------------------------


def test_the_attributes_of_a_link_are_set_in_one_request_or_one_by_one(guest):
    index = guest.index("dp1")
    assert change(guest, f"set_attributes({index}, {{'mtu': 1400, 'txqueuelen': 500}})") is None
    link = guest.link("dp1")
    assert (link["mtu"], link["txqlen"]) == (1400, 500)
    assert change(guest, f"set_attributes({index}, {{'mtu': 1300}})") is None
    assert change(guest, f"set_attributes({index}, {{'txqueuelen': 700}})") is None
    link = guest.link("dp1")
    assert (link["mtu"], link["txqlen"]) == (1300, 700)
    for up in (True, False):
        assert change(guest, f"set_up({index}, {up})") is None
        assert ("UP" in guest.link("dp1")["flags"]) == up


def test_a_refusal_has_the_errno_and_the_words_of_the_kernel(guest):
    text, number, _ = change(guest, f"set_attributes({guest.index('dp1')}, {{'mtu': 10}})")
    assert (text, number) == ("Invalid argument (mtu less than device minimum)", 22)
    text, number, _ = change(guest, "set_attributes(999, {'mtu': 1400})")
    assert (text, number) == ("No such device", 19)


def test_a_busy_device_is_refused_at_once(guest):
    """pyroute2 0.7.2 to 0.8.1 repeat such a request for 9 s."""
    guest.foreign.may_make("br7", "mv1")
    guest.ip("link add br7 type bridge")
    guest.ip("link set dp1 master br7")
    index = guest.index("dp1")
    text, number, seconds = change(
        guest, f"create_link('macvlan', 'mv1', {index}, {{'mode': 'bridge'}}, None)"
    )
    assert (text, number) == ("Device or resource busy", 16)
    assert seconds < 5


def test_links_are_created_renamed_joined_and_deleted(guest):
    guest.foreign.may_make("br7", "br8", "vx7", "mv7")
    index = guest.index("dp1")
    options = {"stp": "no", "forward-delay": "0", "mac": "02:00:00:00:f7:01"}
    assert change(guest, f"create_link('bridge', 'br7', 0, {options}, 1400)") is None
    options = {"id": "5", "local": "192.0.2.9", "port": "4789"}
    assert change(guest, f"create_link('vxlan', 'vx7', {index}, {options}, None)") is None
    assert (
        change(guest, f"create_link('macvlan', 'mv7', {index}, {{'mode': 'vepa'}}, None)") is None
    )
    bridge, vxlan, macvlan = map(guest.link, ("br7", "vx7", "mv7"))
    assert (bridge["mtu"], bridge["address"]) == (1400, "02:00:00:00:f7:01")
    data = vxlan["linkinfo"]["info_data"]
    assert (data["id"], data["local"], data["port"], data["link"]) == (5, "192.0.2.9", 4789, "dp1")
    assert (macvlan["link"], macvlan["linkinfo"]["info_data"]["mode"]) == ("dp1", "vepa")
    assert change(guest, f"set_master({guest.index('vx7')}, {guest.index('br7')})") is None
    assert guest.link("vx7")["master"] == "br7"
    assert change(guest, f"set_master({guest.index('vx7')}, 0)") is None
    assert "master" not in guest.link("vx7")
    guest.ip("link property add dev br7 altname br8 altname br9")
    bridge = guest.index("br7")
    assert change(guest, f"rename({bridge}, 'br8')") is None
    assert guest.link("br8")["altnames"] == ["br9"]
    assert change(guest, f"drop_altname({bridge}, 'br9')") is None
    assert "altnames" not in guest.link("br8")
    for name in ("br8", "vx7", "mv7"):
        assert change(guest, f"delete_link({guest.index(name)})") is None
        assert guest.link(name) is None
    assert change(guest, "delete_link(999)") is None


def test_the_mode_of_link_local_addresses_is_set(guest):
    assert change(guest, f"set_address_generation({guest.index('dp1')}, 1)") is None
    assert guest.link("dp1")["inet6_addr_gen_mode"] == "none"


def test_a_mac_is_set(guest):
    assert change(guest, f"set_attribute({guest.index('dp1')}, 'mac', '02:00:00:00:F7:01')") is None
    assert guest.link("dp1")["address"] == "02:00:00:00:f7:01"


def test_the_settings_of_a_port_are_set_where_it_is_one(guest):
    index = guest.index("dp1")
    text, number, _ = change(guest, f"set_attribute({index}, 'path-cost', '7')")
    assert (text, number) == ("Operation not supported", 95)
    guest.foreign.may_make("br7")
    guest.ip("link add br7 type bridge")
    guest.ip("link set dp1 master br7")
    for name, value in (("path-cost", 70000), ("path-cost", 7), ("port-priority", 9)):
        call = f"set_attribute({index}, '{name}', '{value}')"
        expected = None if value < 65536 else ["Numerical result out of range", 34]
        found = change(guest, call)
        assert (found and found[:2]) == expected
    data = guest.link("dp1")["linkinfo"]["info_slave_data"]
    assert (data["cost"], data["priority"]) == (7, 9)


def test_only_a_member_of_a_bond_can_be_its_primary_one(guest):
    text, number, _ = change(guest, f"set_attribute({guest.index('dp1')}, 'bond-primary', 'yes')")
    assert (text, number) == ("it is in no bond", 95)


# --- Addresses ------------------------------------------------------------------------------------


def addresses(guest):
    """The addresses of dp1 that are not link-local, with their lifetimes, flags and broadcast."""
    (link,) = json.loads(guest.run("ip", "-json", "address", "show", "dev", "dp1").out)
    return {
        f"{one['local']}/{one['prefixlen']}": (
            one["preferred_life_time"],
            one["valid_life_time"],
            {flag for flag in ("nodad", "noprefixroute", "dynamic") if one.get(flag)},
            one.get("broadcast"),
        )
        for one in link["addr_info"]
        if one["scope"] == "global"
    }


def call(method, guest, address, *more):
    words = ", ".join(map(str, (guest.index("dp1"), f"ip_interface('{address}')", *more)))
    return change(guest, f"{method}({words})")


@pytest.mark.parametrize(
    ("address", "bare", "flags", "broadcast"),
    [
        ("192.0.2.1/24", False, set(), "192.0.2.255"),
        ("192.0.2.1/24", True, {"noprefixroute"}, "192.0.2.255"),
        ("192.0.2.1/31", False, set(), None),
        ("192.0.2.1/32", False, set(), None),
        ("2001:db8::1/64", False, set(), None),
        ("2001:db8::1/64", True, {"noprefixroute"}, None),
    ],
)
def test_an_address_is_added_permanently_with_its_flags(guest, address, bare, flags, broadcast):
    for _ in range(2):
        assert call("add_address", guest, address, bare) is None
        assert addresses(guest) == {address: (FOR_EVER, FOR_EVER, flags, broadcast)}
    for _ in range(2):
        assert call("delete_address", guest, address) is None
        assert addresses(guest) == {}


@pytest.mark.parametrize("address", ["192.0.2.1/24", "2001:db8::1/64"])
def test_a_lease_has_lifetimes_until_the_address_is_added_permanently(guest, address):
    """pyroute2 0.7.2 to 0.8.1 drop lifetimes that are passed as `preferred_lft` and `valid_lft`."""
    for valid, preferred in ((2000, 1000), (4000, 3000)):
        assert call("lease_address", guest, address, valid, preferred) is None
        ((left, until, flags, _),) = addresses(guest).values()
        assert preferred - 60 < left <= preferred
        assert valid - 60 < until <= valid
        assert flags == {"noprefixroute", "dynamic"}
    assert call("lease_address", guest, address, FOR_EVER, FOR_EVER) is None
    ((left, until, _, _),) = addresses(guest).values()
    assert (left, until) == (FOR_EVER, FOR_EVER)
    assert call("lease_address", guest, address, 2000, 1000) is None
    assert call("add_address", guest, address) is None
    ((left, until, _, _),) = addresses(guest).values()
    assert (left, until) == (FOR_EVER, FOR_EVER)


def test_an_address_of_a_device_that_is_gone_needs_no_deletion(guest):
    assert change(guest, "delete_address(999, ip_interface('192.0.2.1/24'))") is None
    text, number, _ = change(guest, "add_address(999, ip_interface('192.0.2.1/24'))")
    assert number == 19
    assert text.startswith("No such device")


# --- Routes ---------------------------------------------------------------------------------------

ROUTES = {
    "0.0.0.0/0 through a gateway": (
        "'0.0.0.0/0'), {0}, ip_address('192.0.2.1'), 50",
        "default via 192.0.2.1 dev dp1 metric 50",
    ),
    "of a link, with another table": (
        "'198.51.100.0/24'), {0}, None, 0, traits=Traits(70000)",
        "198.51.100.0/24 dev dp1 table 70000 scope link",
    ),
    "with all that a document can say": (
        (
            "'198.51.100.0/24'), {0}, ip_address('203.0.113.1'), 7, traits=Traits(100, onlink=True,"
            " mtu=1400, advmss=1300, source=ip_address('192.0.2.9'), tos=4)"
        ),
        (
            "198.51.100.0/24 tos 0x04 via 203.0.113.1 dev dp1 table 100"
            " src 192.0.2.9 metric 7 onlink mtu 1400 advmss 1300"
        ),
    ),
    "nowhere": (
        "'198.51.100.0/24'), 0, None, 7, traits=Traits(100, 'blackhole')",
        "blackhole 198.51.100.0/24 table 100 metric 7",
    ),
    "through several gateways": (
        (
            "'198.51.100.0/24'), {0}, ip_address('192.0.2.1'), 7, others=(({0},"
            " ip_address('192.0.2.2')),)"
        ),
        (
            "198.51.100.0/24 metric 7"
            " nexthop via 192.0.2.1 dev dp1 weight 1 nexthop via 192.0.2.2 dev dp1 weight 1"
        ),
    ),
    "::/0 through a gateway": (
        "'::/0'), {0}, ip_address('2001:db8::1'), 1024",
        "default via 2001:db8::1 dev dp1 metric 1024 pref medium",
    ),
    "of IPv6 with a source": (
        (
            "'2001:db8:5::/48'), {0}, None, 77, traits=Traits(100, mtu=1300,"
            " source=ip_address('2001:db8::9'))"
        ),
        ("2001:db8:5::/48 dev dp1 table 100 src 2001:db8::9 metric 77 mtu 1300 pref medium"),
    ),
    "of IPv6 nowhere": (
        "'2001:db8:5::/48'), 0, None, 77, traits=Traits(254, 'unreachable')",
        "unreachable 2001:db8:5::/48 dev lo metric 77 pref medium",
    ),
}


@pytest.fixture
def connected(guest):
    """dp1 has networks of both families."""
    guest.ip("link set dp1 up")
    for address in ("192.0.2.9/24", "2001:db8::9/64 nodad"):
        guest.ip(f"address add {address} dev dp1")
    return guest


def shown(guest, *words, what="route"):
    lines = [guest.run("ip", family, what, *words).out for family in ("-4", "-6")]
    return " ".join(" ".join(lines).split())


@pytest.mark.parametrize("name", ROUTES)
def test_a_route_is_set_again_and_deleted_exactly(connected, name):
    words, text = ROUTES[name]
    route = f"Route(ip_network({words.format(connected.index('dp1'))}, protocol=110)"
    prefix = text.split()[1] if text.startswith(("blackhole", "unreach")) else text.split()[0]
    # A foreign one to the same network.
    family = "-6" if "::" in words.partition(",")[0] else "-4"
    connected.ip(f"{family} route add {prefix} dev dp1 metric 4000 table 90 proto 99")
    before = shown(connected, "show", "table", "all", "proto", "99")
    for _ in range(2):
        assert change(connected, f"replace_route({route})") is None
        assert shown(connected, "show", "table", "all", "proto", "110") == text
    for _ in range(2):
        assert change(connected, f"delete_route({route})") is None
        assert shown(connected, "show", "table", "all", "proto", "110") == ""
    assert shown(connected, "show", "table", "all", "proto", "99") == before


def test_a_route_without_a_way_to_its_gateway_is_refused_in_the_words_of_the_kernel(connected):
    route = f"Route(ip_network('198.51.100.0/24'), {connected.index('dp1')}, ip_address('203.0.113.1'), 7)"
    text, number, _ = change(connected, f"replace_route({route})")
    assert (text, number) == ("Network is unreachable (Nexthop has invalid gateway)", 101)


# --- Rules ----------------------------------------------------------------------------------------

PLAIN = "Rule(4, 1000, 100, '10.1.0.0/16')"
FULL = "Rule(4, 1000, 70000, '10.1.0.0/16', '10.2.0.0/16', 5, 0xff, 8, 0)"
TEXTS = {
    PLAIN: "1000: from 10.1.0.0/16 lookup 100 proto 110",
    FULL: "1000: from 10.1.0.0/16 to 10.2.0.0/16 tos 0x08 fwmark 0x5/0xff lookup 70000"
    " suppress_prefixlength 0 proto 110",
    "Rule(4, 1001, 100, '', '10.3.0.0/16')": "1001: from all to 10.3.0.0/16 lookup 100 proto 110",
    "Rule(4, 1001, 100, '', '', 0, 0xff)": "1001: from all fwmark 0/0xff lookup 100 proto 110",
    "Rule(6, 1001, 100, '2001:db8::/32')": "1001: from 2001:db8::/32 lookup 100 proto 110",
}


def rules(guest):
    """The rules that the kernel did not make itself."""
    texts = [guest.run("ip", family, "-N", "-d", "rule").out for family in ("-4", "-6")]
    lines = (" ".join(line.split()) for text in texts for line in text.splitlines())
    return [line.replace(" unicast", "") for line in lines if not line.endswith("proto 2")]


@pytest.mark.parametrize("rule", TEXTS)
def test_a_rule_is_added_once_and_deleted_exactly(guest, rule):
    """An equal one of another protocol stays."""
    family = "-6" if "::" in rule else "-4"
    priority, _, words = TEXTS[rule].removesuffix("proto 110").partition(": ")
    words = words.replace("lookup", "table")
    guest.ip(f"{family} rule add pref {priority} {words} protocol 99")
    foreign = rules(guest)
    for _ in range(2):
        assert change(guest, f"add_rule({rule})") is None
        assert sorted(rules(guest)) == sorted([*foreign, TEXTS[rule]])
    for _ in range(2):
        assert change(guest, f"delete_rule({rule})") is None
        assert rules(guest) == foreign


def test_a_rule_is_added_beside_one_with_further_selectors(guest):
    """The kernel says of it that it exists (fib_rule_compare in net/ipv4/fib_rules.c)."""
    narrow = "Rule(4, 1000, 100, '10.1.0.0/16', '10.2.0.0/16')"
    text = "1000: from 10.1.0.0/16 to 10.2.0.0/16 lookup 100 proto 110"
    for _ in range(2):
        for rule in (narrow, PLAIN):
            assert change(guest, f"add_rule({rule})") is None
        assert rules(guest) == [text, TEXTS[PLAIN]]
    assert change(guest, f"delete_rule({narrow})") is None
    assert rules(guest) == [TEXTS[PLAIN]]


# --- What a look reads ----------------------------------------------------------------------------

KINDS = {
    "bridge": "br7 type bridge priority 9",
    "vxlan": "vx7 type vxlan id 5 dev dp1 dstport 4789 local 192.0.2.9 remote 192.0.2.8",
    "vxlan of IPv6": "vx8 type vxlan id 6 dev dp1 dstport 4790 local 2001:db8::9",
    "macvlan": "mv7 link dp1 type macvlan mode bridge",
    "veth": "ve7 type veth peer name ve8",
    "dummy": "du7 type dummy",
    "vlan": "dp1.7 link dp1 type vlan id 7",
    "bond": "bo7 type bond mode active-backup arp_interval 500 arp_ip_target 192.0.2.1,192.0.2.2",
    "vrf": "vr7 type vrf table 77",
    "ipvlan": "iv7 link ve7 type ipvlan",
    "gre": "gr7 type gretap remote 192.0.2.7 local 192.0.2.9",
}


def test_a_look_reads_what_pyroute2_reads_of_links_of_every_kind(connected):
    connected.foreign.may_make(*(text.split()[0] for text in KINDS.values()), "ve8", "tu7", "ta7")
    made = [
        kind
        for kind, text in KINDS.items()
        if connected.ip(f"link add {text}", check=False).code == 0
    ]
    assert {"bridge", "vxlan", "macvlan", "veth"} <= set(made)
    for words in ("tu7 mode tun", "ta7 mode tap"):
        connected.ip(f"tuntap add {words}")
    connected.ip("link set ve7 master br7")
    connected.ip("link property add dev dp1 altname alt7 altname alt8")
    if "bond" in made:
        connected.ip("link set ta7 master bo7")
    connected.ip("address add 192.0.2.77 peer 192.0.2.78 dev dp1 valid_lft 900 preferred_lft 900")
    connected.ip("address add 198.51.100.1/24 dev ta7 noprefixroute")
    for route in (
        "203.0.113.0/24 nexthop via 192.0.2.1 nexthop via 192.0.2.2",
        "203.0.113.0/24 via 192.0.2.1 table 700 metric 9 proto 99",
        "203.0.113.128/25 via 192.0.2.1 table 70000 proto 110",
        "2001:db8:7::/48 via 2001:db8::1 table 700",
    ):
        connected.ip(f"route add {route}")
    for rule in (
        "from 192.0.2.0/24 fwmark 4/0xff table 70000 pref 9",
        "to 198.51.100.0/24 table 9",
    ):
        connected.ip(f"rule add {rule} suppress_prefixlength 0 protocol 99")
    count = len(json.loads(connected.run("ip", "-json", "link").out))
    assert connected.run(sys.executable, compared.__file__).out == f"{count}\n"


# --- What pyroute2 lacks --------------------------------------------------------------------------


def test_pyroute2_has_no_parameters_for_two_qdiscs_that_documents_set(guest):
    code = (
        "from pyroute2 import IPRoute; from pyroute2.netlink.rtnl.tcmsg import plugins as known\n"
        f"IPRoute().tc('replace', 'bfifo', {guest.index('dp1')}, parent=0xffffffff, limit=5000)\n"
        "print('fq' in known)"
    )
    with guest.foreign.changing():
        assert guest.run(sys.executable, "-c", code).out == "False\n"
    assert "limit 5000b" not in guest.run("tc", "qdisc", "show", "dev", "dp1").out


def test_pyroute2_sets_neither_pause_nor_wake_on_lan():
    assert {name for name in dir(Ethtool) if "pause" in name or name == "set_wol"} == set()


def test_pyroute2_before_0_9_does_not_know_the_protocol_of_an_address():
    known = "IFA_PROTO" in {row[0] for row in ifaddrmsg.nla_map if isinstance(row[0], str)} | {
        row[1] for row in ifaddrmsg.nla_map
    }
    release = tuple(map(int, version("pyroute2").split(".")[:2]))
    assert known == (release >= (0, 9))


def test_pyroute2_loses_what_it_does_not_know_of_a_route():
    """What another program has set is sent back whole (`backends.raw_requests`)."""
    unknown = struct.pack("=HH4s", 8, 60, b"abcd")
    body = struct.pack("=BBBBBBBBI", 2, 24, 0, 0, 254, 4, 0, 1, 0) + unknown
    seen = rtmsg(struct.pack("=IHHII", 16 + len(body), 24, 0, 1, 0) + body)
    seen.decode()
    again = rtmsg()
    for name in ("family", "dst_len", "table", "proto", "type"):
        again[name] = seen[name]
    again["attrs"] = [tuple(attribute)[:2] for attribute in seen["attrs"]]
    again.encode()
    assert b"abcd" not in bytes(again.data)


OVERFLOWING_WATCH = """import json, socket, subprocess
from neuca_tools.backends.linkwatch import LinkWatch
index = socket.if_nametoindex("dp2")
with LinkWatch() as watch:
    watch._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    for mtu in ("1401", "1402", "1403", "1404"):
        subprocess.run(["ip", "link", "set", "dp1", "mtu", mtu], check=True)
    subprocess.run(["ip", "link", "del", "dp2"], check=True)
    subprocess.run(["ip", "link", "add", "new", "type", "bridge"], check=True)
    seen = watch.drain() == {0, socket.if_nametoindex("new")}
    print(json.dumps([seen, index in watch.take_gone(), watch.take_gone()]))
"""


def test_a_device_that_comes_or_goes_among_lost_messages_is_reported(guest):
    """As of any other new NIC, the daemon lets udev name it first."""
    guest.veth("dp2", 2)
    with guest.foreign.changing():
        out = guest.run(sys.executable, "-B", "-c", OVERFLOWING_WATCH).out
    assert json.loads(out) == [True, True, []]


EVENTS_OF_NEW_LINKS = """import json, pathlib, socket, subprocess, sys
from neuca_tools.agent.daemon import Daemon
from neuca_tools.config import Config
config = Config()._replace(managers="none", sources=(), state_directory=pathlib.Path(sys.argv[1]))
daemon = Daemon(config, config.state_directory / "none", print)
def is_planned_after(*commands):
    daemon._forget_events()
    subprocess.run(["ip", "link", "add", "ours", "type", "bridge"], check=True)
    new_link = socket.if_nametoindex("ours")
    for command in commands:
        subprocess.run(["ip", *command.split()], check=True)
    daemon._discard_events([new_link])
    subprocess.run(["ip", "link", "del", "ours"])
    planned = daemon._plans.events is not None
    daemon._link_events()
    return planned
daemon._waits_for_document = False
print(json.dumps([
    is_planned_after(),
    is_planned_after("link set ours mtu 1400", "address add 192.0.2.1/24 dev ours"),
    is_planned_after("link add other type bridge"),
    is_planned_after("link del other"),
    is_planned_after("link del ours", "link add ours type bridge"),
]))
"""


def test_links_that_a_pass_has_created_are_no_reason_for_another_pass(guest, tmp_path):
    with guest.foreign.changing():
        out = guest.run(sys.executable, "-B", "-c", EVENTS_OF_NEW_LINKS, tmp_path).out
    assert json.loads(out) == [False, False, True, True, True]


EVENTS_DURING_A_PASS = """import json, pathlib, subprocess, sys
from neuca_tools.agent.daemon import Daemon
from neuca_tools.agent.worker import JobResult
from neuca_tools.config import Config
config = Config()._replace(managers="none", sources=(), state_directory=pathlib.Path(sys.argv[1]))
daemon = Daemon(config, config.state_directory / "none", print)
daemon._waits_for_document = False
result = JobResult(made_pass=True, completed_pass=True, sha256="0")
subprocess.run(["ip", "link", "set", "dp1", "up"], check=True)
def is_planned_after(words, **fields):
    daemon._remember(result)
    daemon._links.drain()
    daemon._forget_events()
    daemon._links.begin_job()
    subprocess.run(["ip", *words.split()], check=True)
    daemon._remember(result._replace(**fields))
    subprocess.run(["ip", "-4", "address", "flush", "dev", "dp1"], check=True)
    return daemon._plans.events is not None
keeps = {"has_routing_to_keep": True}
print(json.dumps([
    is_planned_after("address add 192.0.2.1/24 dev dp1", **keeps),
    is_planned_after("address add 192.0.2.1/24 dev dp1", waits_for_address=True),
    is_planned_after("rule add from 192.0.2.1 table 7", **keeps),
    is_planned_after("route add 203.0.113.0/24 dev dp1 proto dhcp", **keeps),
    is_planned_after("link set dp1 mtu 1400", watches_all_links=True),
    is_planned_after("address add 192.0.2.1/24 dev dp1"),
    is_planned_after("route add 203.0.113.0/24 dev dp1 proto static", **keeps),
    is_planned_after("link add other type bridge", failed={"a": 7}),
    is_planned_after("address add 192.0.2.1/24 dev dp1", failed={"a": 7}, **keeps),
    is_planned_after("link set dp1 mtu 1300", failed={"a": 7}, watches_all_links=True),
    is_planned_after("link del other", failed={"*": 0}),
    is_planned_after("link set dp1 mtu 1400", failed={"*": 0}, watches_all_links=True),
]))
"""


def test_what_changes_after_a_pass_has_observed_the_host_is_a_reason_for_another_pass(
    guest, tmp_path
):
    """A pass tells at its end only what it watches: a lease may come meanwhile."""
    with guest.foreign.changing():
        out = guest.run(sys.executable, "-B", "-c", EVENTS_DURING_A_PASS, tmp_path).out
    assert json.loads(out) == [True] * 5 + [False] * 2 + [True] * 4 + [False]
