"""Which link a route goes through, and why one is refused: exact reasons, both families, NICs that come and go."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from ipaddress import IPv4Network, ip_address, ip_interface, ip_network

import pytest
from worlds import PLACES, Agent, document, key, mac, machine, nic, route, texts, vlan, world

from neuca_tools.apply.decide import Observation, Policies, decide_pass
from neuca_tools.desired.resolve import Settings, resolve_state
from neuca_tools.model import Problem, Record, Route
from neuca_tools.model.routing import Traits

TWO = f"[interface {mac(2)}]\naddresses = 10.0.0.1/24, fd00:2::1/64\n"
THREE = f"[interface {mac(3)}]\naddresses = 10.0.1.1/24\n"


def hops(text, *devices, **more):
    """(prefix, link, next hop) for each, and the problems."""
    devices = {
        one.index: one for one in (nic(1, up=True), nic(2, up=True), nic(3, up=True), *devices)
    }.values()
    addresses = {1: "192.0.2.10/24", **more.pop("addresses", {})}
    seen = world(*devices, addresses=addresses, routes=[route("0.0.0.0/0", 1, "192.0.2.1")], **more)
    found = resolve_state(document(text), Settings(), seen, Record())
    return [(str(hop.to), str(hop.link), str(hop.via), hop.metric) for hop in found.desired.hops], [
        one.text for one in found.problems
    ]


@pytest.mark.parametrize(
    ("line", "link"),
    [
        ("10.20.0.0/16 = 10.0.0.254", mac(2)),
        ("10.20.0.0/16 = 10.0.1.254", mac(3)),
        ("2001:db8:20::/48 = fd00:2::fe", mac(2)),
        ("0.0.0.0/4 = 10.0.1.254", mac(3)),
    ],
)
def test_a_route_goes_through_the_link_in_whose_network_its_next_hop_is(line, link):
    to, _, via = line.partition(" = ")
    assert hops(f"{TWO}{THREE}[routes]\n{line}\n") == ([(to, link, via, 20)], [])


def test_the_longest_network_wins_and_the_first_key_among_equals():
    wide = f"[interface {mac(3)}]\naddresses = 10.0.3.1/16\n[vlan {mac(3)}.7]\naddresses = 10.0.0.9/24\n"
    assert hops(f"{TWO}{wide}[routes]\n10.20.0.0/16 = 10.0.0.254\n")[0] == [
        ("10.20.0.0/16", mac(2), "10.0.0.254", 20)
    ]
    assert hops(f"{wide}[routes]\n10.20.0.0/16 = 10.0.0.254\n")[0] == [
        ("10.20.0.0/16", f"{mac(3)}.7", "10.0.0.254", 20)
    ]


def test_a_network_that_the_user_gave_a_nic_serves_where_none_is_asked_for():
    text = f"[interfaces]\n{mac(2)} = up\n{mac(3)} = user\n[routes]\n10.20.0.0/16 = 10.7.0.9\n10.30.0.0/16 = 10.8.0.9\n"
    found, problems = hops(text, addresses={2: "10.7.0.1/24", 3: "10.8.0.1/24"})
    assert [(to, link) for to, link, *_ in found] == [
        ("10.20.0.0/16", mac(2)),
        ("10.30.0.0/16", mac(3)),
    ]
    assert problems == []


def test_a_network_that_is_asked_for_goes_before_one_that_is_found():
    text = f"{TWO}[interfaces]\n{mac(3)} = up\n[routes]\n10.20.0.0/16 = 10.0.0.254\n"
    assert hops(text, addresses={3: "10.0.0.128/25"})[0][0][1] == mac(2)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("10.20.0.0/16 = 10.9.9.9", "the next hop 10.9.9.9 is in no network of a dataplane NIC"),
        ("10.20.0.0/16 = 192.0.2.1", "the next hop 192.0.2.1 is in no network of a dataplane NIC"),
        ("10.20.0.0/16 = 10.0.0.1", "the next hop 10.0.0.1 is this host itself"),
        (
            "2001:db8:20::/48 = fe80::1",
            "the next hop fe80::1 is link-local, which does not say through which interface",
        ),
        (
            "0.0.0.0/0 = 10.0.0.254",
            "a prefix of length 0 or 1 would replace the default route",
        ),
        (
            "128.0.0.0/1 = 10.0.0.254",
            "a prefix of length 0 or 1 would replace the default route",
        ),
        ("192.0.2.0/25 = 10.0.0.254", "it is inside the management network 192.0.2.0/24"),
        ("192.0.2.0/24 = 10.0.0.254", "it is the management network 192.0.2.0/24"),
        (
            "169.254.169.254/32 = 10.0.0.254",
            "it would take over 169.254.169.254, which is reached through the management NIC",
        ),
        ("10.0.0.0/24 = down", 'it is the network of an address that is requested on "eth2"'),
        ("0.0.0.0/0 = down", "a default route is never removed"),
        ("::/0 = down", "a default route is never removed"),
    ],
)
def test_a_route_is_refused_for_this_reason(line, reason):
    assert hops(f"{TWO}[routes]\n{line}\n") == (
        [],
        [f"route to {line.partition(' ')[0]}: {reason}"],
    )


def test_a_refused_route_costs_only_itself():
    found, problems = hops(f"{TWO}[routes]\n10.20.0.0/16 = 10.9.9.9\n10.30.0.0/16 = 10.0.0.254\n")
    assert ([to for to, *_ in found], len(problems)) == (["10.30.0.0/16"], 1)


@pytest.mark.parametrize(
    ("to", "via", "source", "is_local"),
    [
        ("10.20.0.0/16", "10.0.0.254", "10.77.0.5", False),
        ("10.20.0.0/16", "10.0.0.254", "10.1.0.5", True),
        ("fd00:20::/32", "fd00::254", "fd00:77::5", False),
        ("fd00:20::/32", "fd00::254", "fe80::3", False),
        ("fd00:20::/32", "blackhole", "fd00:77::5", True),
        ("10.20.0.0/16", "blackhole", "10.77.0.5", True),
    ],
)
def test_a_route_whose_source_is_no_address_of_the_host_waits_and_costs_only_itself(
    to, via, source, is_local
):
    """The kernel answers EINVAL, for which the NIC would be rolled back."""
    text = f"[interface {mac(2)}]\naddresses = 10.0.0.1/24, fd00::1/64\n[interface {mac(3)}]\naddresses = 10.1.0.5/24\n"
    agent = Agent(
        machine(nic(1), nic(2), nic(3), mgmt=1), f"{text}[routes]\n{to} = {via} src {source}\n"
    )
    _, result, _ = agent.run()
    reason = f"route to {to}: the source {source} is not an address of this host yet"
    problems = [problem.text for problem in agent.survey().resolution.problems]
    assert problems == ([] if is_local else [reason])
    assert (result.failures, agent.plan()) == ((), ())
    assert any(str(route.to) == to for route in agent.kernel.routes) == is_local
    if not is_local and not source.startswith("fe80"):
        agent.kernel.add_address(3, ip_interface(source))
        agent.run(start=False)
        assert [str(route.to) for route in agent.kernel.routes if str(route.to) == to] == [to]


@pytest.mark.parametrize(
    ("to", "table", "source", "count"),
    [
        ("10.77.0.0/24", 255, "10.77.0.5", 1),
        ("0.0.0.0/0", 100, "10.77.0.5", 0),  # of a transparent proxy
        ("fd00:77::/64", 255, "fd00:77::5", 0),
    ],
)
def test_a_local_route_makes_sources_of_ipv4_as_in_the_kernel(to, table, source, count):
    local = Route(ip_network(to), 0, traits=Traits(table, "local"))
    via = "10.20.0.0/16 = 10.0.0.254" if count or table == 100 else "fd00:20::/32 = fd00:2::fe"
    text = f"{TWO}[routes]\n{via} src {source}\n"
    found, problems = hops(text, other_routes=(local,))
    assert (len(found), len(problems)) == (count, 1 - count)


def test_the_next_hop_on_a_nic_that_is_asked_to_be_down():
    text = f"[interfaces]\n{mac(2)} = down:ipv4:10.0.0.1/24\n[routes]\n10.20.0.0/16 = 10.0.0.254\n"
    assert hops(text)[1] == [
        'route to 10.20.0.0/16: the next hop 10.0.0.254 is on "eth2", which is requested to be down'
    ]


@pytest.mark.parametrize("state", ["user", "up"])
def test_the_next_hop_on_a_nic_that_its_user_has_down(state):
    """The kernel answers ENETDOWN: such a route is a reason, and no failure that costs the NIC all else."""
    text = f"[interfaces]\n{mac(2)} = {state}\n[routes]\n10.20.0.0/16 = 10.7.0.9\n"
    found, problems = hops(text, nic(2, up=False), addresses={2: "10.7.0.1/24"})
    assert (len(found), len(problems)) == ((1, 0) if state == "up" else (0, 1))


def test_the_next_hop_on_a_vlan_of_a_nic_that_is_asked_to_be_down():
    text = f"[interfaces]\n{mac(2)} = down\n[vlan {mac(2)}.7]\naddresses = 10.0.0.1/24\n[routes]\n10.20.0.0/16 = 10.0.0.254\n"
    for up in (True, False):
        assert hops(text, nic(2, up=up))[0] == []


def test_the_next_hop_in_a_network_of_a_nic_that_is_not_there():
    found, problems = hops(
        f"[interface {mac(9)}]\naddresses = 10.9.0.1/24\n[routes]\n10.20.0.0/16 = 10.9.0.254\n"
    )
    assert (found, problems[1:]) == (
        [],
        [f"route to 10.20.0.0/16: the next hop 10.9.0.254 is on {mac(9)}, which cannot be used"],
    )


def test_a_next_hop_in_an_address_of_another_family_does_not_match():
    assert (
        hops(
            f"[interface {mac(2)}]\naddresses = ::ffff:10.0.0.1/120\n[routes]\n10.20.0.0/16 = 10.0.0.254\n"
        )[0]
        == []
    )


def test_a_route_to_the_network_of_its_own_next_hop_is_no_trap():
    text = f"{TWO}[routes]\n10.0.0.0/24 = 10.0.0.254\n"
    agent = Agent(machine(nic(1), nic(2), mgmt=1), text)
    _, result, _ = agent.run()
    assert (result.failures, texts(agent.plan())) == ((), [])


# --- what happens to them -------------------------------------------------------------------------------------------


def agent(text, *more):
    return Agent(machine(nic(1), nic(2), nic(3), *more, mgmt=1), text)


def our_routes(one):
    return [
        (str(found.to), found.index, str(found.via))
        for found in one.kernel.routes
        if found.protocol == 110
    ]


ROUTE = "[routes]\n10.20.0.0/16 = 10.0.0.254\n"


def test_a_changed_next_hop_is_replaced_in_place():
    one = agent(TWO + ROUTE)
    one.run()
    one.ask(TWO + ROUTE.replace(".254", ".253"))
    assert texts(one.plan(one.survey().changed())) == [
        "replace the route to 10.20.0.0/16 via 10.0.0.254 on eth2 with via 10.0.0.253 on eth2"
    ]
    one.run(start=False)
    assert our_routes(one) == [("10.20.0.0/16", 2, "10.0.0.253")]


def test_a_route_moves_with_its_network_from_one_nic_to_another():
    one = agent(TWO + THREE + ROUTE)
    one.run()
    one.ask(
        f"[interface {mac(2)}]\naddresses = 10.0.9.1/24\n[interface {mac(3)}]\naddresses = 10.0.0.1/24\n"
        + ROUTE
    )
    operations, result, _ = one.run(start=False)
    assert result.failures == ()
    assert (
        "replace the route to 10.20.0.0/16 via 10.0.0.254 on eth2 with via 10.0.0.254 on eth3"
        in texts(operations)
    )
    assert our_routes(one) == [("10.20.0.0/16", 3, "10.0.0.254")]
    assert texts(one.plan()) == []


def test_a_route_that_is_no_longer_asked_for_goes_and_a_foreign_one_stays():
    one = agent(TWO + ROUTE)
    one.run()
    via = one.survey().desired.hops[0].via
    one.kernel.replace_route(Route(ip_network("10.99.0.0/16"), 2, via, 5, 4))
    one.ask(TWO)
    assert texts(one.plan(one.survey().changed())) == [
        "delete the route to 10.20.0.0/16 via 10.0.0.254 on eth2"
    ]
    one.run(start=False)
    assert [str(found.to) for found in one.kernel.routes if found.protocol == 4] == ["10.99.0.0/16"]


def test_a_foreign_route_with_our_metric_is_not_replaced():
    """The kernel replaces by prefix and metric, whoever's route it is."""
    one = agent(TWO + ROUTE)
    one.kernel.set_up(3, True)
    one.kernel.addresses[3] = list(one.survey().desired.links[key(2)].addresses)[:1]
    one.kernel.routes.append(route("10.20.0.0/16", 3, "10.0.0.99", 20, 4))
    one.run()
    assert [str(found.via) for found in one.kernel.routes if found.protocol == 4] == ["10.0.0.99"]


def test_a_banned_prefix_loses_its_routes_on_dataplane_nics_alone():
    one = agent(f"{TWO}[routes]\n10.20.0.0/16 = down\n")
    for index in (2, 3):
        one.kernel.routes.append(route("10.20.0.0/16", index, "10.0.0.9", index, 4))
    one.kernel.routes.append(route("10.20.0.0/16", 1, "192.0.2.9", 50, 4))
    assert [text for text in texts(one.plan()) if "route" in text] == [
        "delete the route to 10.20.0.0/16 via 10.0.0.9 on eth2"
    ]


def test_a_banned_prefix_takes_no_connected_network():
    one = agent(f"[interfaces]\n{mac(2)} = up\n[routes]\n10.7.0.0/24 = down\n")
    one.kernel.routes.append(route("10.7.0.0/24", 2, None, 0, 2))
    assert [text for text in texts(one.plan()) if "route" in text] == []


def test_a_route_through_a_vlan_goes_with_the_vlan():
    text = f"[vlan {mac(2)}.7]\naddresses = 10.0.0.1/24\n"
    one = agent(text + ROUTE)
    one.run()
    assert our_routes(one) == [("10.20.0.0/16", max(one.kernel.devices), "10.0.0.254")]
    one.ask("[interfaces]\n")
    assert texts(one.plan(one.survey().changed())) == ["delete the VLAN eth2.7"]
    one.run(start=False)
    assert our_routes(one) == []


def test_a_refused_route_names_no_link():
    found = resolve_state(
        document(f"{TWO}[routes]\n0.0.0.0/0 = 10.0.0.254\n"),
        Settings(),
        world(nic(2), vlan(5, 2, 7)),
        Record(),
    )
    assert found.problems == (
        Problem(
            "refused",
            "route to 0.0.0.0/0: a prefix of length 0 or 1 would replace the default route",
        ),
    )


VIA = ip_address("192.0.2.1")


class Counted(IPv4Network):
    """A prefix that counts how often it is looked up."""

    lookups = 0

    def __hash__(self):
        Counted.lookups += 1
        return super().__hash__()


def test_a_decision_looks_up_a_foreign_route_for_no_route_that_is_not_requested():
    # A BGP router has 200,000 and more.
    foreign = [Route(Counted((number << 8, 24)), 1, VIA, protocol=186) for number in range(2000)]
    devices = (nic(1, up=True), nic(2, up=True))
    seen = world(
        *devices,
        addresses={1: "192.0.2.10/24"},
        routes=[route("0.0.0.0/0", 1, "192.0.2.1"), *foreign],
    )
    decide_pass(Observation(seen), document(TWO), Policies(Settings(), PLACES), Record())
    assert Counted.lookups <= 5 * len(foreign)


@pytest.mark.parametrize(
    ("addresses", "line", "problem"),
    [
        ("", "10.20.0.0/16 = 10.9.0.1", ("pending", '"eth2" has no lease yet that leads to 10.9.0.1')),
        ("10.8.0.7/24", "10.20.0.0/16 = 10.9.0.1", ("refused", "the next hop 10.9.0.1 is in no network of a dataplane NIC")),
        ("", "2001:db8:20::/48 = fd00:9::1", ("refused", "the next hop fd00:9::1 is in no network of a dataplane NIC")),
        ("", "10.20.0.0/16 = 192.0.2.1", ("refused", "the next hop 192.0.2.1 is in no network of a dataplane NIC")),
    ],
    ids=["no lease", "a lease elsewhere", "not requested", "management"],
)  # fmt: skip
def test_a_route_whose_next_hop_a_lease_may_still_lead_to_is_pending(addresses, line, problem):
    text = f"[interface {mac(2)}]\ndhcp4 = yes\n[routes]\n{line}\n"
    seen = world(
        nic(1, up=True),
        nic(2, up=True),
        addresses={1: "192.0.2.10/24", 2: addresses},
        routes=[route("0.0.0.0/0", 1, "192.0.2.1")],
    )
    resolution = resolve_state(document(text), Settings(), seen, Record())
    code, reason = problem
    to = line.partition(" = ")[0]
    assert resolution.problems == (Problem(code, f"route to {to}: {reason}"),)


def test_an_incomplete_document_has_no_route_through_an_address_that_it_removes():
    agent = Agent(machine(nic(1), nic(2), mgmt=1), TWO)
    agent.run()
    agent.ask(
        f"[interfaces]\n{mac(2)} = up\n{mac(9)} = bogus\n[routes]\n10.20.0.0/16 = 10.0.0.254\n"
    )
    operations, result, _ = agent.run(start=False)
    assert [failure.text for failure in result.failures] == []
    assert texts(operations) == [
        "delete the address 10.0.0.1/24 from eth2",
        "delete the address fd00:2::1/64 from eth2",
    ]
    problems = [problem.text for problem in agent.survey().resolution.problems]
    assert "route to 10.20.0.0/16: the next hop 10.0.0.254 is in no network of a dataplane NIC" in (
        problems
    )


def test_a_route_with_another_metric_is_set_before_the_old_one_is_deleted():
    agent = Agent(machine(nic(1), nic(2), mgmt=1), f"{TWO}[routes]\n10.20.0.0/16 = 10.0.0.254\n")
    agent.run()
    agent.ask(f"{TWO}[routes]\n10.20.0.0/16 = 10.0.0.254 metric 10\n")
    assert texts(agent.run(start=False)[0]) == [
        "route 10.20.0.0/16 via 10.0.0.254 on eth2 with metric 10",
        "delete the route to 10.20.0.0/16 via 10.0.0.254 on eth2",
    ]
    assert texts(agent.plan()) == []


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("10.20.0.0/16 = 10.0.0.255", "the next hop 10.0.0.255 is a broadcast address"),
        ("10.20.0.0/16 = 10.0.0.9 scope link", "a route of scope link cannot have a next hop"),
        ("10.20.0.0/16 = 10.0.0.9 scope host", "a route of scope host cannot have a next hop"),
        ("2001:db8:20::/48 = fd00:2::9 type-of-service 4", "an IPv6 route cannot have a type of service"),
        ("2001:db8:20::/48 = fd00:2::9, fd00:2::9", "a next hop is listed twice"),
        ("10.20.0.0/16 = 10.0.0.9 src 0.0.0.0", "0.0.0.0 cannot be a source address"),
        ("2001:db8:20::/48 = fd00:2::9 src ff02::1", "ff02::1 cannot be a source address"),
    ],
)  # fmt: skip
def test_what_no_kernel_accepts_is_refused_and_does_not_cost_the_nic(line, reason):
    to = line.partition(" = ")[0]
    assert hops(f"{TWO}[routes]\n{line}\n") == ([], [f"route to {to}: {reason}"])


def test_the_same_next_hop_twice_has_a_double_share_of_ipv4():
    (hop,), problems = hops(f"{TWO}[routes]\n10.20.0.0/16 = 10.0.0.9, 10.0.0.9\n")
    assert (hop[0], problems) == ("10.20.0.0/16", [])
