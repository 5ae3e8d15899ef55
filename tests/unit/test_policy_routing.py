"""Policy routing without packets: who gets rules, which table, what is never done; rules that documents ask for."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
import json
from dataclasses import replace
from ipaddress import ip_address, ip_interface, ip_network

import pytest
from kernel import refuse
from test_documents_growth import steps
from worlds import Agent, document, key, mac, machine, nic, route, texts, world

from neuca_tools.agent.pass_report import Pass, failed_parts
from neuca_tools.apply.transaction import Transaction
from neuca_tools.desired.policy_routing import Siblings
from neuca_tools.desired.resolve import Settings, resolve_state
from neuca_tools.desired.roles import Policy
from neuca_tools.documents.platform import combined, ec2, netplan, openstack
from neuca_tools.documents.platform.parts import Part
from neuca_tools.model import Document, Record, Route
from neuca_tools.model.routing import NicRouting, Rule, SeenRule, Traits
from neuca_tools.state import records, updates
from neuca_tools.status import render_json

ONE = (
    f"[interface {mac(2)}]\naddresses = 10.0.0.5/24, fd00:2::5/64\ngateway = 10.0.0.1, fd00:2::1\n"
)
TWO = f"[interface {mac(3)}]\naddresses = 10.1.0.5/24\ngateway = 10.1.0.1\n"
PLAIN = f"[interface {mac(2)}]\naddresses = 10.0.0.5/24\n"


def seen(routes=(), rules=(), tables=(), **more):
    return world(
        nic(1, up=True),
        nic(2, up=True),
        nic(3, up=True),
        addresses={1: "192.0.2.10/24"},
        routes=[route("0.0.0.0/0", 1, "192.0.2.1"), *routes],
        rules=tuple(rules),
        other_routes=tuple(tables),
        **more,
    )


def resolved(text, around=None, record=None, **settings):
    asked = document(text) if isinstance(text, str) else text
    return resolve_state(asked, Settings(**settings), around or seen(), record or Record())


def rules_of(found):
    return sorted(rule.text for rule in found.desired.rules)


def table_of(found, number):
    return [
        (str(hop.to), str(hop.via or ""), str(hop.traits.source or ""))
        for hop in found.desired.hops
        if hop.traits.table == number
    ]


THREE_RULES = [
    "31000: from 10.1.0.5/32 lookup 31001 suppress_prefixlength 0",
    "31100: from 10.1.0.5/32 lookup main suppress_prefixlength 0",
    "31200: from 10.1.0.5/32 lookup 31001",
]


def test_an_address_has_three_rules_and_its_nic_a_table():
    found = resolved(TWO)
    assert (rules_of(found), found.problems, found.tables) == (THREE_RULES, (), {key(3): 31001})
    assert table_of(found, 31001) == [
        ("10.1.0.0/24", "", "10.1.0.5"),
        ("192.0.2.0/24", "10.1.0.1", ""),
        ("0.0.0.0/0", "10.1.0.1", ""),
    ]


def test_the_networks_of_other_nics_are_reached_through_the_own_gateway():
    found = resolved(ONE + TWO)
    assert ("10.1.0.0/24", "10.0.0.1", "") in table_of(found, 31001)
    assert ("10.0.0.0/24", "10.1.0.1", "") in table_of(found, 31002)
    assert ("::/0", "fd00:2::1", "") in table_of(found, 31001)


def test_a_gateway_outside_of_all_networks_is_reached_directly():
    text = f"[interface {mac(2)}]\naddresses = 10.0.0.5/32\ngateway = 10.0.0.1\n"
    assert table_of(resolved(text), 31001)[:2] == [
        ("10.0.0.1/32", "", ""),
        ("192.0.2.0/24", "10.0.0.1", ""),
    ]


def test_the_subnet_of_another_nic_with_a_single_address_is_reached_through_the_own_gateway():
    nics = [
        {"mac": mac(number), "ip": f"10.{number}.0.5", "gateway": f"10.{number}.0.1"}
        for number in (1, 2, 3)
    ]
    tree = {"networkInterfaces": [{**one, "subnetmask": "255.255.240.0"} for one in nics]}
    text = combined.reduce_documents({"GCE instance": json.dumps(tree).encode()})
    found = resolved(Document(platform=combined.parse(text)))
    ways = {31001: ("10.2.0.1", "10.3.0.0/20"), 31002: ("10.3.0.1", "10.2.0.0/20")}
    for table, (gateway, other) in ways.items():
        networks = (other, "192.0.2.0/24", "0.0.0.0/0")
        through = [(network, gateway, "") for network in networks]
        assert table_of(found, table) == [(f"{gateway}/32", "", ""), *through]
    subnets = [("10.2.0.0/20", "10.2.0.1", ""), ("10.3.0.0/20", "10.3.0.1", "")]
    assert table_of(found, 254) == subnets


def test_the_address_of_azures_probes_is_answered_through_the_nic():
    around = seen(routes=[route("168.63.129.16/32", 1, "192.0.2.1")])
    assert ("168.63.129.16/32", "10.1.0.1", "") in table_of(resolved(TWO, around), 31001)


@pytest.mark.parametrize(
    ("text", "choice", "rules"),
    [
        (PLAIN, "auto", 0),
        (PLAIN, "yes", 0),
        (f"{PLAIN}gateway = 10.0.0.1\n", "auto", 3),
        (f"{PLAIN}gateway = 10.0.0.1\n", "no", 0),
        (f"{PLAIN}gateway = 10.0.0.1\npolicy-routing = no\n", "auto", 0),
        (f"{PLAIN}gateway = 10.0.0.1\npolicy-routing = no\n", "yes", 3),
        (f"{PLAIN}policy-routing = yes\n", "auto", 0),
        (f"{PLAIN}gateway = 10.0.0.1\nstate = down\n", "auto", 0),
        (f"{PLAIN}gateway = fd00::1\n", "auto", 0),
    ],
)
def test_who_gets_rules(text, choice, rules):
    assert len(resolved(text, policy_routing=choice).desired.rules) == rules


def test_the_section_of_the_configuration_goes_before_its_option():
    asked = f"{PLAIN}gateway = 10.0.0.1\n"
    own = document(f"[interface {mac(2)}]\npolicy-routing = yes\n").links
    assert len(resolved(asked, policy_routing="no", links=own).desired.rules) == 3
    own = document(f"[interface {mac(2)}]\npolicy-routing = no\n").links
    assert len(resolved(asked, policy_routing="yes", links=own).desired.rules) == 0


def test_an_announced_router_is_the_gateway_for_ipv6():
    around = seen(routes=[route("::/0", 2, "fe80::1", 1024, 9)])
    text = f"[interface {mac(2)}]\naddresses = fd00:2::5/64\npolicy-routing = yes\n"
    assert table_of(resolved(text, around), 31001)[-1] == ("::/0", "fe80::1", "")


IPV6_ALONE = f"[interface {mac(2)}]\naddresses = fd00:2::5/64\npolicy-routing = yes\n"


def test_a_router_is_known_by_its_entry_among_the_neighbours_and_then_from_the_record():
    """With accept_ra = 0, its default route is gone."""
    one, other = ip_address("fe80::1"), ip_address("fe80::2")
    around = seen(routers={2: (one, other)})
    found = resolved(IPV6_ALONE, around)
    assert table_of(found, 31001)[-1] == ("::/0", "fe80::1", "")
    record = updates.remember_tables(Record(), found)
    assert record.routers == {key(2): one}
    for neighbours, router in (((), "fe80::1"), ((other, one), "fe80::1"), ((other,), "fe80::2")):
        again = resolved(IPV6_ALONE, seen(routers={2: neighbours}), record)
        assert table_of(again, 31001)[-1] == ("::/0", router, "")
    named = IPV6_ALONE.replace("policy", "gateway = fe80::9\npolicy")
    assert table_of(resolved(named, around, record), 31001)[-1] == ("::/0", "fe80::9", "")


def test_without_an_ipv6_router_a_note_says_so():
    found = resolved(TWO.replace("addresses = ", "addresses = fd00:3::5/64, "))
    assert [(note.link, note.reason) for note in found.notes] == [
        (key(3), "its IPv6 gateway is not known: no router has advertised itself on this link yet")
    ]


@pytest.mark.parametrize("gateway", ["169.254.0.1", "169.254.1.1", "10.255.0.1"])
def test_a_link_local_gateway_of_ipv4_gets_a_route_like_any_other(gateway):
    text = f"[interface {mac(2)}]\naddresses = 10.7.0.9/32\npolicy-routing = yes\ngateway = {gateway}\n"
    assert table_of(resolved(text), 31001)[0] == (f"{gateway}/32", "", "")


# --- tables ---------------------------------------------------------------------------------------


def foreign(number, index=1, protocol=4):
    return Route(ip_network("10.99.0.0/16"), index, None, 0, protocol, traits=Traits(number))


def test_a_table_that_somebody_else_uses_is_left_to_them():
    around = seen(
        tables=[foreign(31001)], rules=[SeenRule(Rule(4, 100, 31002, "172.16.0.0/12"), 3)]
    )
    assert resolved(TWO, around).tables == {key(3): 31003}


def test_a_nic_keeps_its_table_whatever_the_order_and_whoever_adds_to_it():
    record = Record(tables={key(3): 31007})
    assert resolved(ONE + TWO, record=record).tables == {key(2): 31001, key(3): 31007}
    around = seen(tables=[foreign(31007), foreign(31007, 3, 110)])
    assert resolved(TWO, around, record).tables == {key(3): 31007}
    around = seen(tables=[foreign(31007)])
    assert resolved(TWO, around, record).tables == {key(3): 31001}


def test_a_table_can_be_chosen():
    assert resolved(f"{TWO}table = 100\n").tables == {key(3): 100}


def test_the_table_is_recorded_before_anything_is_done():
    one = Agent(machine(nic(1), nic(2), nic(3), mgmt=1), TWO)
    assert one.survey().record.tables == {key(3): 31001}
    _, result, _ = one.run()
    assert (result.failures, one.record.tables) == ((), {key(3): 31001})


# --- what is never done -----------------------------------------------------------------------------


def test_a_rule_of_somebody_else_about_an_address_is_left_in_force():
    around = seen(rules=[SeenRule(Rule(4, 10001, 10001, "10.1.0.5/32"), 3)])
    found = resolved(TWO, around)
    assert (rules_of(found), table_of(found, 31001)) == ([], [])
    assert [note.text for note in found.notes] == [
        "policy-routing: overridden: rule 10001 of another program selects 10.1.0.5"
    ]


SOME = [
    Rule(4, 99, 9, "10.1.0.0/24", mark=1, mask=1),
    Rule(4, 99, 9, "10.1.0.0/24", to="10.9.0.0/16"),
]


@pytest.mark.parametrize("rule", [*SOME, Rule(4, 99, 9, "10.1.0.0/24", mask=1)])
@pytest.mark.parametrize("priority", [99, 32765])
@pytest.mark.parametrize("plain", [True, False])  # an input interface, a protocol, ...
def test_a_rule_of_somebody_else_for_some_packets_takes_those_alone(rule, priority, plain):
    found = resolved(TWO, seen(rules=[SeenRule(rule._replace(priority=priority), 3, plain)]))
    leaves_rest = priority == 99 and (rule in SOME or not plain)
    assert rules_of(found) == (THREE_RULES if leaves_rest else [])
    assert len(found.notes) == (not leaves_rest)


@pytest.mark.parametrize(
    ("rule", "count"),
    [
        (Rule(4, 5270, 52), 3),
        (Rule(4, 31150, 52), 1),  # between the second of the three and the last
        (Rule(4, 31200, 52), 0),
        (Rule(6, 5270, 52), 0),
    ],
)
def test_a_rule_of_somebody_else_comes_before_those_of_its_family_that_follow(rule, count):
    everywhere = Traits(table=52)
    tables = [replace(route(to, 1), traits=everywhere) for to in ("0.0.0.0/0", "::/0")]
    found = resolved(TWO, seen(rules=[SeenRule(rule, 3)], tables=tables))
    assert rules_of(found) == THREE_RULES
    texts = [note.text.partition("comes first: ")[2] for note in found.notes]
    assert [text.split("; ") for text in texts if text] == ([THREE_RULES[-count:]] if count else [])


def test_no_rule_is_about_an_address_of_the_management_nic():
    text = f"[interface {mac(3)}]\naddresses = 192.0.2.10/24\ngateway = 192.0.2.1\n"
    found = resolved(text)
    assert rules_of(found) == []
    assert [problem.text for problem in found.problems] == [
        "address 192.0.2.10/24: it is an address of the management NIC"
    ]


def test_the_address_of_the_management_gateway_is_refused():
    text = f"[interface {mac(3)}]\naddresses = 192.0.2.1/24\ngateway = 192.0.2.2\n"
    assert [problem.text for problem in resolved(text).problems] == [
        "address 192.0.2.1/24: it would take over 192.0.2.1, which is reached through the management NIC"
    ]


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        (
            "from = 192.0.2.10\ntable = 100",
            "it selects 192.0.2.10, which is an address of the management NIC",
        ),
        (
            "from = 0.0.0.0/0\ntable = 100",
            "it has neither from nor mark, so it could select traffic of the management NIC",
        ),
        (
            "from = 0.0.0.0/32\ntable = 100",
            "it selects packets whose source address is not chosen yet",
        ),
        (
            "from = 0.0.0.0/8\ntable = 100",
            "it selects packets whose source address is not chosen yet",
        ),
        (
            "from = ::/128\ntable = 100",
            "it selects packets whose source address is not chosen yet",
        ),
        ("from = 192.0.2.128/25\ntable = 100", "it overlaps the management network 192.0.2.0/24"),
        (
            "to = 10.9.0.0/16\ntable = 100",
            "it has neither from nor mark, so it could select traffic of the management NIC",
        ),
        (
            "mark = 1\nto = 10.9.0.0/16\ntable = main",
            "without from, its table must be one of the document's own, which 254 is not",
        ),
    ],
)
def test_a_rule_is_refused_for_this_reason(keys, reason):
    found = resolved(f"{PLAIN}[rule x]\n{keys}\n")
    assert found.desired.rules == {}
    assert {problem.text.partition(": ")[2].partition(": ")[2] for problem in found.problems} == {
        reason
    }


def test_every_address_is_no_selector_as_in_what_the_kernel_reports():
    asked = document("[rule x]\nfrom = 10.9.0.0/16\nto = 0.0.0.0/0\ntable = 100\n")
    assert [request.rule.text for request in asked.rules] == ["30900: from 10.9.0.0/16 lookup 100"]


@pytest.mark.parametrize("address", ["192.0.2.77/32", "192.0.2.77/25"])
def test_an_address_of_the_management_network_needs_that_network_and_its_gateway(address):
    for gateway in ("10.1.0.1", "192.0.2.1"):
        text = f"[interface {mac(3)}]\naddresses = {address}\ngateway = {gateway}\n"
        assert [problem.text for problem in resolved(text).problems] == [
            f"address {address}: it is inside the management network 192.0.2.0/24"
        ]


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ("from = 10.0.0.5", "a rule without a table, ignoring the rule"),
        ("priority = 0\ntable = 100", None),
        ("priority = 32766\ntable = 100", None),
        ("mark = 0\ntable = 100", '"0" selects packets without a mark, ignoring the rule'),
        ("mark = 0x10/0xf\ntable = 100", '"0x10/0xf" selects packets without a mark, ignoring the rule'),
        ("mark = 3/1\ntable = 100", '"3/1" is a mark with bits outside its mask, ignoring the rule'),
        ("from = 10.0.0.5\nto = fd00::/64\ntable = 100", "from and to are not of the same family, ignoring the rule"),
        ("mark = 1_0\ntable = 100", '"1_0" is not a mark, ignoring the rule'),
        ("mark = +5\ntable = 100", '"+5" is not a mark, ignoring the rule'),
        ("mark = 0x_f\ntable = 100", '"0x_f" is not a mark, ignoring the rule'),
        ("mark = \u0665\ntable = 100", '"\u0665" is not a mark, ignoring the rule'),
        ("table = 255", "the table 255 is one of the kernel's own, ignoring the rule"),
        ("oif = eth0", None),
    ],
)  # fmt: skip
def test_a_section_that_cannot_be_a_rule_says_why(keys, reason):
    asked = document(f"[rule x]\n{keys}\n")
    assert asked.rules == ()
    assert len(asked.faults) == 1
    assert reason in (None, asked.faults[0].reason)


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("gateway = 10.1.0.1, 10.1.0.2", "two gateways of the same family"),
        ("table = 254", "the main table cannot be that of one link"),
    ],
)
def test_the_routing_of_a_nic_that_cannot_be_says_why(key, reason):
    (fault,) = document(f"[interface {mac(3)}]\naddresses = 10.1.0.5/24\n{key}\n").faults
    assert (fault.severity, fault.reason.partition(", ")[0]) == ("error", reason)


def test_rules_without_our_protocol_are_never_removed():
    kernel = machine(nic(1), nic(2), nic(3), mgmt=1)
    one = Agent(kernel, TWO)
    one.run()
    theirs = SeenRule(Rule(4, 31000, 31001, "10.1.0.5/32"), 0)
    around = kernel.world
    kernel.world = lambda: replace(around(), rules=(*around().rules, theirs))
    one.ask(PLAIN)
    assert [text for text in texts(one.plan()) if "delete the rule" in text] == [
        f"delete the rule {text}" for text in reversed(THREE_RULES)
    ]


def test_rules_are_added_last_and_removed_first_and_kept_by_every_pass():
    one = Agent(machine(nic(1), nic(2), nic(3), mgmt=1), TWO)
    operations, result, _ = one.run()
    assert result.failures == ()
    assert texts(operations)[-7:] == [
        "add the address 10.1.0.5/24 to eth3",
        "route 10.1.0.0/24 on eth3 in table 31001",
        "route 192.0.2.0/24 via 10.1.0.1 on eth3 in table 31001",
        "route 0.0.0.0/0 via 10.1.0.1 on eth3 in table 31001",
        *(f"add the rule {text}" for text in THREE_RULES),
    ]
    assert texts(one.plan()) == []
    one.kernel.rules.clear()
    one.run(start=False)
    assert len(one.kernel.rules) == 3
    one.kernel.set_up(3, False)
    _, result, _ = one.run(start=False)
    assert result.failures == ()
    one.ask(PLAIN)
    operations, result, _ = one.run()
    assert (result.failures, one.kernel.rules) == ((), [])
    found = texts(operations)
    assert found.index(f"delete the rule {THREE_RULES[2]}") < found.index(
        f"delete the rule {THREE_RULES[0]}"
    )


@pytest.mark.parametrize(
    ("gateway", "tables", "problems"),
    [
        ("gateway = 10.1.0.1\n", [254, 31002], 0),
        ("gateway = fd00:3::1\n", [254], 1),  # no rule of IPv4 leads to its table
        ("", [254], 1),
        ("table = 50\ngateway = 10.1.0.1\n", [254, 50], 0),
    ],
)
def test_a_second_route_with_the_same_prefix_and_metric_is_in_the_table_of_its_nic(
    gateway, tables, problems
):
    three = f"[interface {mac(3)}]\naddresses = 10.1.0.5/24, fd00:3::5/64\n{gateway}"
    routes = "[routes]\n10.70.0.0/16 = 10.0.0.9 metric 20\n10.70.0.0/16 = 10.1.0.9\n"
    found = resolved(ONE + three + routes)
    hops = [hop for hop in found.desired.hops if str(hop.to) == "10.70.0.0/16"]
    assert [hop.traits.table for hop in hops] == tables
    assert {str(hop.via) for hop in hops[1:]} <= {"10.1.0.9"}
    assert [problem.code for problem in found.problems] == ["refused"] * problems


def test_the_table_of_a_nic_has_one_route_with_a_prefix_and_metric_and_the_rest_is_refused():
    """Otherwise one replaces the other, and the pass of the NIC fails again and again."""
    three = f"[interface {mac(3)}]\naddresses = 10.1.0.5/24\ngateway = 10.1.0.1\ntable = 50\n"
    vias = ["10.0.0.9", "10.1.0.8", "10.1.0.9 metric 1", "10.1.0.8 metric 2"]
    lines = [f"10.70.0.0/16 = {via}\n" for via in vias]
    lines += [f"10.80.0.0/16 = {via}\n" for via in ("10.0.0.9", "10.1.0.8 table 50", vias[2])]
    agent = Agent(machine(nic(1), nic(2), nic(3), mgmt=1), "")
    asked = document(f"{ONE}{three}[routes]\n{''.join(lines)}")
    agent.document = asked._replace(routes=tuple(r._replace(metric=20) for r in asked.routes))
    _, result, _ = agent.run()
    assert (result.failures, agent.plan()) == ((), ())
    reason = "another requested route has the same prefix and metric (20)"
    refused = [problem.text for problem in agent.survey().resolution.problems]
    assert refused == [f"route to {to}: {reason}" for to in ("10.70.0.0/16", "10.80.0.0/16")]


@pytest.mark.parametrize("gateway", ["gateway = 10.0.0.1, fd00:2::1\n", ""])
@pytest.mark.parametrize("drift", ["no IPv4 address", "another IPv4 network", "no IPv6"])
def test_a_pass_sets_no_route_that_a_manual_change_makes_impossible(drift, gateway):
    routes = "10.70.0.0/16 = 10.0.0.9 table 77\nfd70::/32 = fd00:2::9 table 77\n"
    text = f"[interface {mac(2)}]\naddresses = 10.0.0.5/24, fd00:2::5/64\nmtu = 9000\n{gateway}"
    one = Agent(machine(nic(1), nic(2), nic(3), mgmt=1), f"{text}[routes]\n{routes}")
    assert one.run()[1].failures == ()
    kernel, version = one.kernel, 6 if drift == "no IPv6" else 4
    if drift == "no IPv6":
        kernel.set_mtu(2, 1200)
    else:
        kernel.delete_address(2, ip_interface("10.0.0.5/24"))
    if drift == "another IPv4 network":
        kernel.add_address(2, ip_interface("10.9.0.5/24"))
    kernel.routes = [found for found in kernel.routes if found.traits.table not in (77, 31001)]
    operations, result, _ = one.run(start=False)
    assert result.failures == ()
    assert {new.hop.to.version for new in operations} == {4, 6} - {version}
    assert one.run()[1].failures == ()
    assert texts(one.plan()) == []


def test_a_route_to_an_on_link_next_hop_needs_no_network():
    via = f"10.0.0.9 interface {mac(2)} on-link table 77"
    text = f"[interface {mac(2)}]\naddresses = 10.0.0.5/24\n[routes]\n10.70.0.0/16 = {via}\n"
    one = Agent(machine(nic(1), nic(2), mgmt=1), text)
    one.run()
    one.kernel.delete_address(2, ip_interface("10.0.0.5/24"))
    one.kernel.routes = [found for found in one.kernel.routes if found.traits.table != 77]
    operations, result, _ = one.run(start=False)
    assert [str(new.hop.to) for new in operations] == ["10.70.0.0/16"]
    assert result.failures == ()


def test_routes_of_a_table_wait_for_a_nic_that_is_not_retried():
    """Each attempt changes routes, which is a reason for the next pass (`linkwatch`)."""
    one = Agent(machine(nic(1), nic(2), nic(3), mgmt=1), TWO)
    one.run()
    one.kernel.routes = [found for found in one.kernel.routes if found.traits.table != 31001]
    one.kernel.replace_route = lambda _: refuse(errno.ENOBUFS, "No buffer space available")
    decision = one.survey()
    outcome = Transaction(one, Pass(decision.changed()), decision).run()
    failed = failed_parts(outcome, decision, ())
    assert failed == {mac(3): 3}
    assert Pass(decision.changed(failed), failed).operations(decision) == ()


# --- the platforms' documents -----------------------------------------------------------------------


def read(reader, tree):
    return Document(platform=reader.read(Part(tree, "document")))


def test_the_first_address_of_an_ec2_subnet_is_the_gateway():
    leaves = {"device-number": "1", "local-ipv4s": "10.0.0.5\n10.0.0.6", "subnet-ipv4-cidr-block": "10.0.0.0/24"}  # fmt: skip
    tree = {"mac": mac(1), "macs": {mac(1): {"device-number": "0"}, mac(2): leaves}}
    found = resolved(read(ec2, tree))
    assert len(found.desired.rules) == 6
    assert table_of(found, 31001)[-1] == ("0.0.0.0/0", "10.0.0.1", "")


def test_the_gateway_of_an_openstack_network_is_kept():
    tree = {
        "links": [{"id": "a", "type": "phy", "ethernet_mac_address": mac(2)}],
        "networks": [
            {"link": "a", "type": "ipv4", "ip_address": "10.0.0.5", "netmask": "255.255.255.0",
             "gateway": "10.0.0.1"}
        ],
    }  # fmt: skip
    (link,) = openstack.read(Part(tree, "network_data.json")).links
    assert (list(map(str, link.routing.gateways)), link.routing.implied) == (["10.0.0.1"], True)


def test_netplan_gets_exactly_the_rules_and_tables_that_it_asks_for():
    tree = {
        "version": "2",
        "ethernets": {
            "dp": {
                "match": {"macaddress": mac(2)},
                "addresses": ["10.0.0.5/24"],
                "routes": [
                    {"to": "default", "via": "10.0.0.1", "table": "100", "metric": "50"},
                    {"to": "10.7.0.0/16", "type": "blackhole"},
                    {"to": "10.8.0.0/16", "scope": "link"},
                    {"to": "10.9.0.0/16", "via": "10.66.0.1", "on-link": "true", "mtu": "1400"},
                ],
                "routing-policy": [
                    {"from": "10.0.0.5", "table": "100", "priority": "50"},
                    {"from": "10.0.0.5", "to": "10.3.0.0/16", "table": "100"},
                    {"to": "10.3.0.0/16", "table": "100"},
                ],
            }
        },
    }
    asked = read(netplan, tree)
    assert [fault.text for fault in asked.platform.faults] == []
    assert asked.platform.links[0].routing == NicRouting()
    found = resolved(asked)
    assert rules_of(found) == [
        "30900: from 10.0.0.5/32 to 10.3.0.0/16 lookup 100",
        "50: from 10.0.0.5/32 lookup 100",
    ]
    assert [problem.text for problem in found.problems] == [
        (
            "rule 30900: from all to 10.3.0.0/16 lookup 100: it has neither from nor mark, so it could"
            " select traffic of the management NIC"
        )
    ]
    assert [
        (str(hop.to), str(hop.via), hop.metric, hop.traits.kind, hop.traits.table)
        for hop in found.desired.hops
    ] == [
        ("0.0.0.0/0", "10.0.0.1", 50, "unicast", 100),
        ("10.7.0.0/16", "None", 20, "blackhole", 254),
        ("10.8.0.0/16", "None", 20, "unicast", 254),
        ("10.9.0.0/16", "10.66.0.1", 20, "unicast", 254),
    ]


@pytest.mark.parametrize("match", [{"macaddress": mac(2)}, {"name": "eth2"}, None])
def test_the_rules_of_netplan_are_those_of_the_nic_however_it_is_named(match):
    rule = [{"from": "10.0.0.5", "table": 100}]
    ethernet = {"addresses": ["10.0.0.5/24"], "routing-policy": rule}
    found = resolved(
        of_netplan({"dp": {"match": match, **ethernet}} if match else {"eth2": ethernet})
    )
    assert rules_of(found) == ["30900: from 10.0.0.5/32 lookup 100"]
    assert found.problems == ()


def test_no_rule_of_netplan_is_about_a_nic_that_is_not_for_the_dataplane():
    rule = [{"from": "10.0.0.5", "table": 100}]
    ignored = {"match": {"macaddress": mac(2)}, "routing-policy": rule}
    asked = of_netplan({"eth1": {"dhcp4": True, "routing-policy": rule}, "dp": ignored})
    assert rules_of(resolved(asked, policy=Policy(frozenset({mac(2)})))) == []


def test_a_rule_of_netplan_that_is_about_management_is_refused():
    rules = [{"from": one, "table": 100} for one in ("192.0.2.10", "0.0.0.0/0", "192.0.0.0/8")]
    found = resolved(of_netplan({"eth2": {"routing-policy": [*rules, {"from": "10.0.0.5/32"}]}}))
    assert rules_of(found) == []
    assert {problem.code for problem in found.problems} == {"refused"}


@pytest.mark.parametrize(
    ("addresses", "gateway", "routed"),
    [
        (["10.7.0.5/32"], "169.254.0.1", True),
        (["2001:db8::5/128"], "fe80::1", True),
        (["10.7.0.5/32", "2001:db8::5/64"], "10.255.0.1", True),
        (["10.7.0.5/24"], "10.7.0.1", False),
    ],
)
def test_a_netplan_nic_without_a_network_answers_through_its_on_link_gateway(
    addresses, gateway, routed
):
    way = {"to": "default" if "." in gateway else "::/0", "via": gateway, "on-link": True}
    nic_ = {"match": {"macaddress": mac(2)}, "addresses": addresses, "routes": [way]}
    other = {"match": {"macaddress": mac(1)}, "dhcp4": True}
    platform = of_netplan({"a": nic_, "b": other}).platform
    routing = platform.links[0].routing
    assert (routing.implied, list(map(str, routing.gateways))) == (routed, [gateway])
    assert platform.faults == ()


@pytest.mark.parametrize(
    ("addresses", "gateways", "source"),
    [
        (("203.0.113.7/32", "2001:db8::5/64"), ("203.0.113.254", "fe80::1"), "203.0.113.7/32"),
        (("10.7.0.5/24", "2001:db8::5/128"), ("10.7.0.1", "fe80::1"), "2001:db8::5/128"),
    ],
)
def test_single_addresses_of_one_family_leave_through_the_gateway_of_their_nic(
    addresses, gateways, source
):
    ways = [{"to": to, "via": via} for to, via in zip(("0.0.0.0/0", "::/0"), gateways)]
    nic_ = {"match": {"macaddress": mac(2)}, "addresses": addresses, "routes": ways}
    other = {"match": {"macaddress": mac(1)}, "dhcp4": True}
    found = resolved(of_netplan({"a": nic_, "b": other}))
    assert found.problems == ()
    assert {rule.source for rule in found.desired.rules} >= {source}


def test_a_next_hop_that_a_link_scoped_route_covers_is_on_that_link():
    ways = [{"to": "203.0.113.1/32", "scope": "link"}, {"to": "10.60.0.0/16", "via": "203.0.113.1"}]
    nic_ = {"match": {"macaddress": mac(2)}, "addresses": ["203.0.113.9/32"], "routes": ways}
    found = resolve_state(of_netplan({"a": nic_}), Settings(), seen(), Record())
    hops = {
        str(hop.to): (str(hop.via), str(hop.link), hop.traits.onlink) for hop in found.desired.hops
    }
    assert found.problems == ()
    assert hops["10.60.0.0/16"] == ("203.0.113.1", mac(2), True)
    assert len(rules_of(found)) == 3
    assert all(" 203.0.113.9/32 " in f" {text} " for text in rules_of(found))


@pytest.mark.parametrize(
    ("address", "hops", "gateways"),
    [
        ("10.0.0.5/32", ["203.0.113.1", "203.0.113.1"], ["203.0.113.1"]),
        ("10.0.0.5/32", ["203.0.113.1", "203.0.113.2"], []),
        ("10.0.0.5/24", ["10.0.0.1", "10.0.0.1"], []),
        ("10.0.0.5/32", [], []),
    ],
)
def test_a_single_address_responds_through_the_only_next_hop_of_its_link(address, hops, gateways):
    ways = [
        {"to": f"10.{number}.0.0/16", "via": hop, "on-link": True}
        for number, hop in enumerate(hops, 60)
    ]
    nic_ = {"match": {"macaddress": mac(2)}, "addresses": [address], "routes": ways}
    (link,) = of_netplan({"a": nic_}).platform.links
    assert list(map(str, link.routing.gateways)) == gateways


@pytest.mark.parametrize("gateway", ["169.254.1.1", "10.99.0.1"])
def test_a_route_through_the_on_link_gateway_of_a_single_address_is_set(gateway):
    """Neither OpenStack's document nor version 1 of network-config can say that it is on link."""
    ways = [
        {"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": gateway},
        {"network": "10.77.0.0", "netmask": "255.255.0.0", "gateway": gateway},
    ]
    address = {"ip_address": "10.2.0.5", "netmask": "255.255.255.255", "routes": ways}
    tree = {
        "links": [{"id": "l", "type": "phy", "ethernet_mac_address": mac(2)}],
        "networks": [{"link": "l", "type": "ipv4", **address}],
    }
    around = world(
        nic(1, up=True),
        nic(2, up=True),
        addresses={1: "192.0.2.10/24"},
        routes=[route("0.0.0.0/0", 1, "192.0.2.1", protocol=4)],
    )
    found = resolved(read(openstack, tree), around, Record(), policy=Policy(management={mac(1)}))
    assert found.problems == ()
    hops = {str(hop.to): (str(hop.via), hop.traits.onlink) for hop in found.desired.hops}
    assert hops["10.77.0.0/16"] == (gateway, True)


def of_netplan(ethernets):
    """As a source has it: with the other documents of a seed."""
    data = json.dumps({"version": 2, "ethernets": ethernets}).encode()
    text = combined.reduce_documents({"network-config": data, "meta-data": b"local-hostname: a\n"})
    return Document(platform=combined.parse(text))


# --- what is shown ----------------------------------------------------------------------------------


def test_explain_has_the_gateway_and_the_table():
    one = Agent(machine(nic(1), nic(2), nic(3), mgmt=1), TWO)
    one.run()
    decision = one.survey()
    data = render_json.explain_link(
        key(3), decision.resolution, decision.observed, decision.record, decision.world
    )
    rows = {
        row["setting"]: (row["desired"], row["current"], row["origin"]) for row in data["settings"]
    }
    assert rows["gateway"] == ("10.1.0.1", None, f"line 3, [interface {mac(3)}]")
    assert rows["table"] == ("31001", 31001, "")
    shown = render_json.observed_json(decision.world)
    assert [one["rule"] for one in shown["rules"]] == THREE_RULES
    assert {one["table"] for one in shown["routes"] if one["protocol"] == 110} == {31001}
    assert render_json.desired_json(decision.resolution)["rules"] == THREE_RULES


def test_equal_rules_of_both_families_are_told_apart():
    rules = tuple(SeenRule(Rule(family, 0, 255), 2) for family in (4, 6))
    assert render_json.observed_json(seen(rules=rules))["rules"] == [
        {"family": family, "rule": "0: from all lookup 255", "protocol": 2}
        for family in ("ipv4", "ipv6")
    ]


# --- limits -----------------------------------------------------------------------------------------


def test_a_nic_without_a_known_gateway_says_so():
    found = resolved(f"{PLAIN}policy-routing = yes\n")
    assert [note.text for note in found.notes] == [
        "policy-routing: not applicable: its gateway is not known"
    ]


def test_the_table_of_a_nic_that_is_gone_is_used_again_last_of_all():
    gone = {key(100 + number % 100, number): 31001 + number for number in range(999)}
    assert resolved(TWO, record=Record(tables=gone)).tables == {key(3): 31001}
    gone.popitem()
    assert resolved(TWO, record=Record(tables=gone)).tables == {key(3): 31999}


def many(count, pattern="10.{0}.{1}"):
    """As many VLANs with gateways, in networks of their own."""
    networks = [pattern.format(number >> 8, number & 255) for number in range(1, count + 1)]
    return "".join(
        f"[vlan {mac(2)}.{number}]\naddresses = {network}.5/24\ngateway = {network}.1\n"
        for number, network in enumerate(networks, 1)
    )


def test_all_of_nine_hundred_links_with_gateways_are_routed():
    found = resolved(many(900))
    assert len(found.tables) == 900
    assert [note for note in found.notes if note.setting == "policy-routing"] == []
    assert len(found.desired.hops) < 30000


def test_too_many_routes_are_refused_for_all_links_alike():
    found = resolved(many(300, "10.{1}.{0}"))
    reason = "the tables of all links together would have more than 65536 routes"
    notes = [note.reason for note in found.notes if note.setting == "policy-routing"]
    assert (found.tables, notes) == ({}, [reason] * 300)
    assert [hop for hop in found.desired.hops if hop.traits.table >= 31000] == []
    assert found.desired.rules == {}


@pytest.mark.parametrize(
    ("networks", "own", "gateway", "others"),
    [
        (["10.0.0.0/24", "10.0.9.0/24"], "10.0.0.0/24", "10.0.0.1", ["10.0.9.0/24"]),
        # The own network is in the prefix, and has a more specific route.
        (["10.0.0.0/24", "10.0.1.0/24"], "10.0.0.0/24", "10.0.0.1", ["10.0.0.0/23"]),
        (
            ["10.0.0.0/24", "10.0.2.0/24", "10.0.3.0/24"],
            "10.0.0.0/24",
            "10.0.0.1",
            ["10.0.2.0/23"],
        ),
        # A wider network of another NIC, and a narrower one.
        (["10.0.0.0/24", "10.0.0.0/16"], "10.0.0.0/24", "10.0.9.1", []),
        (["10.0.0.0/16", "10.0.5.0/24"], "10.0.0.0/16", "10.0.0.1", ["10.0.5.0/24"]),
        # Together, the others are what the own one is.
        (
            ["10.0.0.0/23", "10.0.0.0/24", "10.0.1.0/24"],
            "10.0.0.0/23",
            "10.1.0.1",
            ["10.0.0.0/24", "10.0.1.0/24"],
        ),
        # Another network in the own one, with the gateway and without it.
        (
            ["10.0.0.0/23", "10.0.0.0/24", "10.0.2.0/23"],
            "10.0.0.0/23",
            "10.0.0.1",
            ["10.0.2.0/23"],
        ),
        (
            ["10.0.0.0/23", "10.0.1.0/24", "10.0.2.0/23"],
            "10.0.0.0/23",
            "10.0.0.1",
            ["10.0.0.0/22", "10.0.1.0/24"],
        ),
        # The gateway is in the network of another NIC.
        (["10.0.0.0/24", "10.0.0.0/25"], "10.0.0.0/24", "10.0.0.1", []),
        (["10.0.0.0/24", "10.0.1.0/24"], "10.0.0.0/24", "10.0.1.1", []),
    ],
)
def test_the_networks_of_the_others_are_joined(networks, own, gateway, others):
    every = Siblings(map(ip_network, networks))
    found = every.of({ip_network(own)}, ip_address(gateway))
    assert list(map(str, found)) == others


def test_the_second_and_third_nic_of_an_openstack_guest_are_routed():
    """Three networks whose subnets have a gateway, which is the default of Neutron."""
    numbers = (1, 2, 3)
    tree = {
        "links": [
            {"id": f"l{one}", "type": "phy", "ethernet_mac_address": mac(one)} for one in numbers
        ],
        "networks": [
            {"link": f"l{one}", "type": "ipv4", "ip_address": f"10.{one}.0.5", "netmask": "255.255.255.0",
             "gateway": f"10.{one}.0.1"} for one in numbers
        ],
    }  # fmt: skip
    around = world(
        *(nic(one, up=True) for one in numbers),
        addresses={1: "10.1.0.5/24"},
        routes=[route("0.0.0.0/0", 1, "10.1.0.1", 100, 16)],
        metadata=1,
    )
    found = resolved(read(openstack, tree), around)
    assert found.tables == {key(2): 31001, key(3): 31002}
    assert {rule.source for rule in found.desired.rules} == {"10.2.0.5/32", "10.3.0.5/32"}
    assert [problem.text for problem in found.problems] == []


def test_a_gateway_that_is_this_host_itself_is_not_used():
    found = resolved(f"{PLAIN}gateway = 10.0.0.5\n")
    assert (found.desired.hops, found.desired.rules) == ((), {})
    assert [note.reason for note in found.notes] == ["the gateway 10.0.0.5 is this host itself"]


@pytest.mark.parametrize("vrf", ["", "vrf = blue\n[vrf blue]\ntable = 77\n"])
def test_a_link_local_gateway_may_be_an_address_of_another_link(vrf):
    """docker0 and the bridges of LXD have fe80::1, as has the router of many clouds."""
    text = f"[interface {mac(2)}]\naddresses = fd00:2::5/64\ngateway = fe80::1\n{vrf}"
    bridge = resolved(text, replace(seen(), addresses={3: (ip_interface("fe80::1/64"),)}))
    assert [str(hop.via) for hop in bridge.desired.hops if not hop.to.prefixlen] == ["fe80::1"]
    assert bridge.notes == ()
    own = resolved(text, replace(seen(), addresses={2: (ip_interface("fe80::1/64"),)}))
    assert [note.reason for note in own.notes] == ["the gateway fe80::1 is this host itself"]


def test_a_link_local_next_hop_may_be_an_address_of_another_link():
    text = f"[interface {mac(2)}]\naddresses = fd00:2::5/64\n[routes]\n"
    text += f"fd00:9::/48 = fe80::1 interface {mac(2)}\n"
    bridge = resolved(text, replace(seen(), addresses={3: (ip_interface("fe80::1/64"),)}))
    assert ([str(hop.to) for hop in bridge.desired.hops], bridge.problems) == (["fd00:9::/48"], ())
    own = resolved(text, replace(seen(), addresses={2: (ip_interface("fe80::1/64"),)}))
    assert [problem.text for problem in own.problems] == [
        "route to fd00:9::/48: the next hop fe80::1 is this host itself"
    ]


# --- an address in the management network -----------------------------------------------------------

NEAR = f"[interface {mac(2)}]\naddresses = 192.0.2.77/24\ngateway = 192.0.2.1\n"


def leads_to(kernel, prefix):
    """The devices that the main table has a route to this prefix through."""
    return [one.index for one in kernel.routes if str(one.to) == prefix and one.traits.table == 254]


@pytest.mark.parametrize("start", [True, False])
def test_a_management_address_that_comes_late_does_not_stay_behind_a_dataplane_nic(start):
    """The address was set while nothing showed that its network is the management network."""
    kernel = machine(nic(1), nic(2))
    kernel.set_up(1, True)
    one = Agent(kernel, NEAR, Policy(management=frozenset({mac(1)})))
    one.run()
    kernel.add_address(1, ip_interface("192.0.2.10/24"))
    assert leads_to(kernel, "192.0.2.0/24") == [2, 1]
    _, result, undone = one.run(start)
    assert (result.failures, undone, leads_to(kernel, "192.0.2.0/24")) == ((), None, [1])
    assert texts(one.plan()) == []
    assert ip_interface("192.0.2.77/24") in kernel.addresses[2]
    one.ask(f"[interface {mac(2)}]\nstate = up\n")
    one.run()
    assert ip_interface("192.0.2.77/24") not in kernel.addresses[2]


def test_an_address_that_somebody_else_has_in_the_management_network_keeps_its_route():
    one = Agent(machine(nic(1), nic(2), mgmt=1), NEAR)
    one.kernel.set_up(2, True)
    one.kernel.add_address(2, ip_interface("192.0.2.88/24"))
    one.run()
    assert leads_to(one.kernel, "192.0.2.0/24") == [1, 2]


def test_a_roll_back_sets_an_address_in_the_management_network_without_a_route_again(tmp_path):
    one = Agent(machine(nic(1), nic(2), mgmt=1), NEAR)
    one.run()
    one.ask(f"[interface {mac(2)}]\nstate = up\nmtu = 9000\n")
    one.kernel.set_mtu = lambda *_: None  # another program puts it back
    _, _, undone = one.run()
    assert "add the address 192.0.2.77/24 to eth2" in texts(undone.done)
    assert leads_to(one.kernel, "192.0.2.0/24") == [1]
    records.save_journal(tmp_path, one.survey().observed, "boot-1")
    assert records.load_journal(tmp_path, "boot-1").links[key(2)].bare


# --- tables that collide ----------------------------------------------------------------------------


def settled(one):
    """What is left after one pass, with its failures."""
    _, result, undone = one.run()
    return texts(one.plan()), [failure.text for failure in result.failures], undone


DONE = ([], [], None)


def three_nics(text, **more):
    return Agent(machine(nic(1), nic(2), nic(3), mgmt=1), text, **more)


def test_of_two_links_with_one_table_only_the_first_gets_it():
    one = three_nics(f"{ONE}table = 100\n{TWO}table = 100\n")
    assert settled(one) == DONE
    found = one.survey().resolution
    assert found.tables == {key(2): 100}
    assert [note.text for note in found.notes] == [
        "policy-routing: not applicable: the table 100 is that of another link"
    ]


@pytest.mark.parametrize("numbers", [(31001, 31001), (31002, 31001)])
def test_two_links_recorded_with_one_table_get_one_each(numbers):
    one = three_nics(ONE + TWO)
    one.record = one.record._replace(tables=dict(zip((key(2), key(3)), numbers)))
    assert settled(one) == DONE
    assert sorted(one.record.tables.values()) == [31001, 31002]


def test_the_record_has_each_table_once():
    gone = {key(100 + number % 100, number): 31001 + number for number in range(999)}
    one = three_nics(TWO)
    one.record = one.record._replace(tables=gone)
    one.run()
    assert (len(one.record.tables), one.record.tables[key(3)]) == (999, 31001)


def test_a_route_of_the_document_takes_the_place_of_the_one_in_the_table_of_the_nic():
    one = three_nics(f"{ONE}table = 100\n[routes]\n0.0.0.0/0 = 10.0.0.254 table 100\n")
    assert settled(one) == DONE
    assert ("0.0.0.0/0", "10.0.0.254", "") in table_of(one.survey().resolution, 100)
    assert ("0.0.0.0/0", "10.0.0.1", "") not in table_of(one.survey().resolution, 100)


def test_a_foreign_route_in_a_requested_table_is_never_replaced():
    theirs = replace(
        route("0.0.0.0/0", 3, "10.1.0.9", 20), traits=Traits(100, source=None, onlink=True)
    )
    one = three_nics(f"{ONE}table = 100\n")
    one.kernel.set_up(3, True)
    one.kernel.routes.append(theirs)
    assert settled(one) == DONE
    assert theirs in one.kernel.routes
    found = one.survey().resolution
    assert [rule.family for rule in found.desired.rules] == [6, 6, 6]
    assert [note.text for note in found.notes] == [
        "policy-routing: not applicable: another program has the same routes in table 100"
    ]


# --- ignored NICs, and what is left behind ----------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("gateway = 10.9.9.1\n", "10.9.9.9 is an address of an ignored NIC too"),
        (
            "[rule x]\nfrom = 10.9.9.9\ntable = 100\n",
            "it selects 10.9.9.9, which is an address of an ignored NIC",
        ),
    ],
)
def test_no_rule_is_about_an_address_that_an_ignored_nic_has_too(more, said):
    one = three_nics(
        f"[interface {mac(2)}]\naddresses = 10.9.9.9/32\n{more}", policy=Policy({mac(3)})
    )
    one.kernel.set_up(3, True)
    one.kernel.add_address(3, ip_interface("10.9.9.9/24"))
    found = one.survey().resolution
    assert rules_of(found) == []
    told = [*(note.reason for note in found.notes), *(one.text for one in found.problems)]
    assert [text for text in told if text.endswith(said)]


def test_routes_without_an_address_go_with_the_request_for_their_nic():
    text = (
        f"[interface {mac(2)}]\nstate = up\n[routes]\n10.7.0.0/16 = interface {mac(2)}\n"
        f"10.8.0.0/16 = 10.66.0.1 interface {mac(2)} on-link table 100\n"
    )
    for after in (f"[interface {mac(3)}]\nstate = up\n", "[global]\nhost_name = Node0\n"):
        one = three_nics(text)
        assert settled(one) == DONE
        one.ask(after)
        one.run(start=False)
        assert [route for route in one.kernel.routes if route.protocol == 110] == []


def test_a_nic_that_appears_in_the_middle_of_a_pass_gets_its_route_in_the_tables_of_others():
    one = three_nics(ONE + TWO)
    del one.kernel.devices[3]
    usual, survey = one.decide, one.survey()

    def plugged(record, earlier=None):
        one.kernel.devices.setdefault(3, nic(3))
        return usual(record, earlier)

    one.survey = lambda: survey
    one.decide = plugged
    operations, result, undone = one.run()
    assert ("route 10.1.0.0/24 via 10.0.0.1 on eth2 in table 31001" in texts(operations)) is False
    assert "route 10.1.0.0/24 via 10.0.0.1 on eth2 in table 31001" in texts(result.done)
    assert (result.failures, undone, texts(usual(one.record).plan())) == ((), None, [])


# --- what it costs ----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [250])
def test_addresses_beside_foreign_rules_cost_their_sum_and_not_their_product(number):
    def judged(size):
        rules = [
            SeenRule(Rule(4, 100 + one, 7000 + one, f"172.16.{one}.0/24"), 3) for one in range(size)
        ]
        addresses = ", ".join(f"10.0.{one}.5/24" for one in range(size))
        asked = document(f"[interface {mac(2)}]\naddresses = {addresses}\ngateway = 10.0.0.1\n")
        return lambda: resolve_state(asked, Settings(), seen(rules=rules), Record())

    judged(1)()
    short, long = (steps(judged(size)) for size in (number // 5, number))
    assert long < short * 5 * 1.5


def assert_linear(make, size=200):
    """Five times as much of something costs at most about five times as much."""
    make(1)()
    short, long = (steps(make(one)) for one in (size // 5, size))
    assert long < short * 5 * 1.5


def test_routes_through_absent_networks_cost_their_sum():
    def planned(size):
        addresses = ", ".join(f"10.0.{one}.5/24" for one in range(size))
        routes = "".join(f"20.0.{one}.0/24 = 10.0.{one}.9 table 77\n" for one in range(size))
        text = f"[interface {mac(2)}]\naddresses = {addresses}\n[routes]\n{routes}"
        agent = Agent(machine(nic(1), nic(2), mgmt=1), text)
        agent.run()
        agent.kernel.addresses[2] = []
        agent.kernel.routes = [route for route in agent.kernel.routes if route.index != 2]
        decision = agent.survey()
        assert decision.plan(decision.changed()) == ()
        return lambda: decision.plan(decision.changed())

    assert_linear(planned)


def test_rules_beside_many_management_addresses_cost_their_sum():
    def judged(size):
        rules = "".join(
            f"[rule r{one}]\nfrom = 172.16.{one}.1\ntable = 100\n" for one in range(size)
        )
        own = " ".join(f"192.0.2.{one + 1}/24" for one in range(size))
        around = world(
            nic(1, up=True),
            nic(2, up=True),
            addresses={1: own},
            routes=[route("0.0.0.0/0", 1, "192.0.2.254")],
        )
        asked = document(PLAIN + rules)
        return lambda: resolve_state(asked, Settings(), around, Record())

    assert_linear(judged)


def test_remembered_routes_beside_many_foreign_routes_cost_their_sum():
    def judged(size):
        known = [f"10.66.{one}.1/32" for one in range(size)]
        around = seen(routes=[route(one, 1, "192.0.2.1") for one in known])
        record = Record(management_networks=tuple(known))
        return lambda: resolve_state(document(PLAIN), Settings(), around, record)

    assert_linear(judged)


def test_new_routes_in_a_full_table_cost_their_sum():
    def planned(size):
        old = [
            replace(route(f"10.66.{one}.0/24", 2, "10.0.0.1", 20, 110), traits=Traits(100))
            for one in range(size)
        ]
        text = "[routes]\n" + "".join(
            f"10.67.{one}.0/24 = 10.0.0.1 table 100\n" for one in range(size)
        )
        one = three_nics(PLAIN + text)
        one.kernel.set_up(2, True)
        one.kernel.add_address(2, ip_interface("10.0.0.5/24"))
        one.kernel.routes += old
        survey = one.survey()
        return survey.plan

    assert_linear(planned)


# --- marks of other programs ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mark", "free"),
    [
        ("0x10/0xf0", False),
        ("0x10", False),
        ("0x210/0xff0", False),
        ("0x1/0xf", False),
        ("0x20/0xf0", True),
        ("51820", False),
        ("51821", True),
    ],
)
def test_a_rule_about_marks_that_another_program_s_rules_select_is_refused(mark, free):
    """Their packets, such as those of a tunnel over the management NIC, would be led elsewhere."""
    theirs = [
        SeenRule(Rule(4, 100, 200, mark=0x10, mask=0xF0), 3),
        SeenRule(Rule(4, 101, 201, mark=51820, mask=2**32 - 1), 3, plain=False),
    ]
    text = (
        f"{PLAIN}[routes]\n0.0.0.0/0 = 10.0.0.1 table 100\n[rule x]\nmark = {mark}\ntable = 100\n"
    )
    found = resolved(text, seen(rules=theirs))
    reasons = {problem.text.rpartition(": ")[2] for problem in found.problems}
    told = "a rule of another program selects packets with this mark"
    assert (len(found.desired.rules), reasons) == ((2, set()) if free else (0, {told}))


def test_of_two_rules_with_one_priority_and_table_the_wider_one_is_enough():
    lines = ("from = 10.0.0.5", "to = 10.3.0.0/16", "mark = 1")
    text = "".join(
        f"[rule r{number}]\n" + "\n".join(lines[: number + 1]) + "\ntable = 100\n"
        for number in range(3)
    )
    assert rules_of(resolved(PLAIN + text)) == ["30900: from 10.0.0.5/32 lookup 100"]
    apart = "[rule x]\nfrom = 10.0.0.5\nto = 10.3.0.0/16\ntable = 100\npriority = 7\n"
    assert len(rules_of(resolved(PLAIN + text + apart))) == 2
