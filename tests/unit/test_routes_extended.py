"""Routes with metric, table, type, several next hops and none: what a document asks for, and what the kernel gets."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from test_routing import THREE, TWO, agent
from worlds import document, mac, nic, route, texts, world

from neuca_tools.desired.resolve import Settings, resolve_state
from neuca_tools.model import Record


def resolved(text, routes=()):
    seen = world(
        nic(1, up=True),
        nic(2, up=True),
        nic(3, up=True),
        addresses={1: "192.0.2.10/24"},
        routes=[route("0.0.0.0/0", 1, "192.0.2.1"), *routes],
    )
    return resolve_state(document(text), Settings(), seen, Record())


def wanted(lines):
    """The routes of a document with the links of TWO and THREE, and its problems."""
    found = resolved(f"{TWO}{THREE}[routes]\n{lines}\n")
    return found.desired.hops, [one.text for one in found.problems]


def test_a_prefix_on_two_links_with_different_metrics_has_two_routes():
    hops, problems = wanted(
        "10.20.0.0/16 = 10.0.0.254 metric 100\n10.20.0.0/16 = 10.0.1.254 metric 200"
    )
    assert problems == []
    assert [(str(hop.link), hop.metric) for hop in hops] == [(mac(2), 100), (mac(3), 200)]


def test_two_routes_of_equal_metric_converge_and_the_second_is_named():
    one = agent(
        f"{TWO}{THREE}[routes]\n10.20.0.0/16 = 10.0.0.254 metric 20\n10.20.0.0/16 = 10.0.1.254\n"
    )
    one.run()
    assert texts(one.plan()) == []
    assert [problem.text for problem in one.survey().resolution.problems] == [
        "route to 10.20.0.0/16: another requested route has the same prefix and metric (20)"
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("10.20.0.0/16 = blackhole", "|blackhole|0|254"),
        ("10.20.0.0/16 = unreachable metric 7", "|unreachable|0|254"),
        ("10.20.0.0/16 = prohibit table 100", "|prohibit|0|100"),
        (f"10.20.0.0/16 = interface {mac(2)}", f"{mac(2)}|unicast|0|254"),
        (f"10.20.0.0/16 = 10.9.9.9 on-link interface {mac(3)}", f"{mac(3)}|unicast|0|254"),
        ("10.20.0.0/16 = 10.0.0.254 mtu 1400 advmss 1300", f"{mac(2)}|unicast|1400|254"),
        (f"2001:db8:1::/48 = fe80::1 interface {mac(2)}", f"{mac(2)}|unicast|0|254"),
        ("0.0.0.0/0 = 10.0.0.254 table 100", f"{mac(2)}|unicast|0|100"),
    ],
)
def test_a_route_has_what_its_line_says(line, expected):
    hops, problems = wanted(line)
    assert problems == []
    (hop,) = hops
    traits = hop.traits
    assert f"{hop.link}|{traits.kind}|{traits.mtu}|{traits.table}" == expected


def test_a_route_with_several_next_hops_uses_the_link_of_each():
    (hop,), problems = wanted("10.20.0.0/16 = 10.0.0.254, 10.0.1.254 metric 5")
    assert problems == []
    assert (str(hop.link), str(hop.via), hop.metric) == (mac(2), "10.0.0.254", 5)
    assert [(str(link), str(via)) for link, via in hop.others] == [(mac(3), "10.0.1.254")]


@pytest.mark.parametrize("vias", ["10.9.0.1, 10.0.1.254", "10.0.1.254, 10.9.0.1"])
def test_each_next_hop_that_only_a_requested_route_leads_to_uses_the_link_of_that_route(vias):
    hops, problems = wanted(f"10.9.0.1/32 = interface {mac(2)}\n10.20.0.0/16 = {vias}")
    assert problems == []
    hop = hops[-1]
    links = {str(via): str(link) for link, via in ((hop.link, hop.via), *hop.others)}
    assert links == {"10.9.0.1": mac(2), "10.0.1.254": mac(3)}
    assert hop.traits.onlink


def test_a_route_keeps_all_of_its_next_hops_on_one_link():
    guest = agent(f"{TWO}[routes]\n10.20.0.0/16 = 10.0.0.252, 10.0.0.253, 10.0.0.254\n")
    guest.run()
    assert texts(guest.plan()) == []
    (route,) = (route for route in guest.survey().world.routes if str(route.to) == "10.20.0.0/16")
    vias = [route.via, *(via for _, via in route.others)]
    assert [str(via) for via in vias] == ["10.0.0.252", "10.0.0.253", "10.0.0.254"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("0.0.0.0/0 = blackhole", "a prefix of length 0 or 1 would replace the default route"),
        ("192.0.2.0/25 = unreachable", "it is inside the management network 192.0.2.0/24"),
        (
            "169.254.169.254/32 = prohibit",
            "it would take over 169.254.169.254, which is reached through the management NIC",
        ),
        (f"10.20.0.0/16 = interface {mac(1)}", f"{mac(1)} cannot be used"),
        (f"10.20.0.0/16 = 192.0.2.1 on-link interface {mac(1)}", f"{mac(1)} cannot be used"),
        (
            "10.20.0.0/16 = 10.0.0.254, 192.0.2.1",
            "the next hop 192.0.2.1 is in no network of a dataplane NIC",
        ),
        (
            "10.20.0.0/16 = 192.0.2.1 on-link",
            "the next hop 192.0.2.1 is in no network of a dataplane NIC",
        ),
    ],
)
def test_a_route_is_refused_for_this_reason(line, reason):
    assert wanted(line) == ((), [f"route to {line.partition(' ')[0]}: {reason}"])


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("10.0.0.254 metric", '"metric" has no value'),
        ("10.0.0.254 metric -1", 'the metric "-1" is not a number from 0 to 4294967295'),
        ("10.0.0.254 table 255", "the table 255 is one of the kernel's own"),
        ("10.0.0.254 table 31001", "the tables 31000 to 31999 are those of policy routing"),
        ("metric 5", "it has neither a next hop nor an interface"),
        (
            "10.0.0.254 via 10.0.0.253",
            (
                'unknown word "via"; known are advmss, interface, metric, mtu, on-link, scope, src,'
                " table, type-of-service"
            ),
        ),
        ("10.0.0.254 metrc 5", 'unknown word "metrc"; did you mean "metric"?'),
        ("10.0.0.254 src fd00::1", 'the source "fd00::1" is not of the family of "10.20.0.0/16"'),
        (
            "10.0.0.254 type-of-service 3",
            'the type of service "3" has bits that IPv4 routing ignores',
        ),
        ("fd00::1", 'the next hop "fd00::1" is not of the family of "10.20.0.0/16"'),
    ],
)
def test_an_unusable_line_says_why(value, reason):
    (fault,) = document(f"[routes]\n10.20.0.0/16 = {value}\n").faults
    assert fault.reason == reason


def test_a_route_of_each_kind_is_set_once_and_removed_with_its_line():
    lines = (
        f"10.20.0.0/16 = 10.0.0.254 metric 100\n10.20.0.0/16 = 10.0.1.254 metric 200\n"
        f"10.21.0.0/16 = blackhole\n10.22.0.0/16 = interface {mac(2)}\n"
        "10.23.0.0/16 = 10.0.0.254, 10.0.1.254\n0.0.0.0/0 = 10.0.0.254 table 100\n"
    )
    one = agent(f"{TWO}{THREE}[routes]\n{lines}")
    _, result, _ = one.run()
    assert result.failures == ()
    assert texts(one.plan()) == []
    assert len([found for found in one.kernel.routes if found.protocol == 110]) == 6
    one.ask(f"{TWO}{THREE}")
    _, result, _ = one.run(start=False)
    assert result.failures == ()
    assert [found for found in one.kernel.routes if found.protocol == 110] == []
