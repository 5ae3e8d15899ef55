"""How many public addresses a document may route: the union counts, over several documents too."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from ipaddress import ip_address, ip_interface, ip_network
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel import KERNEL_PROTOCOL, default_route
from worlds import LAWS, Agent, document_texts, kernels, key, mac, machine, nic

from neuca_tools.desired import coverage
from neuca_tools.model import Device
from neuca_tools.model.routing import ROUTE_PROTOCOL, Rule, SeenRule
from neuca_tools.model.topology import METADATA_HOSTS

NIC2 = f"[interface {mac(2)}]\naddresses = 10.0.0.1/24, fd00:2::1/64\n"
MANY = {
    version: (
        f"together, the requested routes and networks cover more public IPv{version} addresses than a"
        f" /{most}, which is the limit, so the widest of them are refused"
    )
    for version, most in ((4, 4), (6, 13))
}


def host():
    """Management NIC 1 with the default route, and NIC 2."""
    return machine(nic(1), nic(2), mgmt=1)


def with_routes(*prefixes, nics=NIC2):
    lines = [f"{to} = {'fd00:2::fe' if ':' in to else '10.0.0.254'}" for to in prefixes]
    return "\n".join([nics, "[routes]", *lines, ""])


def routed(agent):
    return sorted(str(one.to) for one in agent.kernel.routes if one.protocol == ROUTE_PROTOCOL)


def refusals(agent):
    return [one.text for one in agent.survey().resolution.problems]


FOUR = ["16.0.0.0/4", "32.0.0.0/4", "48.0.0.0/4", "64.0.0.0/4"]


@pytest.mark.parametrize(("prefixes", "version"), [
    (["2000::/3"], 6),
    (["2000::/12", "2010::/12"], 6),
    (["2400::/12"], 6),
    (["64.0.0.0/2"], 4),
    (["32.0.0.0/3"], 4),
    (FOUR, 4),
    (FOUR[:2], 4),
    ([f"{number}.0.0.0/8" for number in range(11, 28)], 4),
    ([f"{number}.{half}.0.0/9" for number in range(11, 28) for half in (0, 128)], 4),
])  # fmt: skip
def test_what_would_take_the_default_routes_place_together_is_refused_together(prefixes, version):
    agent = Agent(host(), with_routes(*prefixes))
    agent.run()
    assert routed(agent) == []
    assert refusals(agent) == [f"route to {to}: {MANY[version]}" for to in prefixes]


@pytest.mark.parametrize("prefixes", [
    ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "198.18.0.0/15"],
    ["fd00:100::/24", "fc00::/8", "2001:db8:20::/48", "2001:db8:8000::/33", "3fff::/20"],
    [f"{number}.0.0.0/8" for number in range(11, 27)],
    ["16.0.0.0/4", "20.1.0.0/16", "16.0.0.0/5"],
    ["2400::/13"],
    ["224.0.0.0/4"],
])  # fmt: skip
def test_private_networks_and_the_blocks_of_a_laboratory_are_within_the_limit(prefixes):
    agent = Agent(host(), with_routes(*prefixes))
    agent.run()
    assert (refusals(agent), routed(agent)) == ([], sorted(prefixes))


def test_the_widest_requests_are_refused_and_the_others_are_kept():
    agent = Agent(host(), with_routes("10.0.0.0/8", "11.0.0.0/8", "198.51.0.0/16", *FOUR))
    agent.run()
    assert routed(agent) == ["10.0.0.0/8", "11.0.0.0/8", "198.51.0.0/16"]


@pytest.mark.parametrize("address", ["2001::1/3", "2001:4860::1/8", "32.0.0.1/3", "64.0.0.1/2"])
def test_the_network_of_an_address_counts_like_a_route(address):
    agent = Agent(host(), f"[interface {mac(2)}]\naddresses = {address}\n")
    agent.run()
    reason = MANY[6 if ":" in address else 4]
    assert refusals(agent) == [f"address {address}: {reason}"]
    assert [str(one) for one in agent.kernel.addresses[2] if not one.is_link_local] == []


def test_routes_and_addresses_count_together():
    nics = f"[interface {mac(2)}]\naddresses = 10.0.0.1/24, 16.0.0.1/4\n"
    agent = Agent(host(), with_routes("32.0.0.0/4", nics=nics))
    agent.run()
    assert refusals(agent) == [
        f"address 16.0.0.1/4: {MANY[4]}",
        f"route to 32.0.0.0/4: {MANY[4]}",
    ]


FAULT = f"[interface {mac(3)}]\nmtu = much\n"  # an incomplete document takes nothing away


def test_what_an_incomplete_document_leaves_in_place_counts_too():
    agent = Agent(host(), with_routes("16.0.0.0/4"))
    agent.run()
    for to in FOUR[1:]:
        agent.ask(with_routes(to, nics=NIC2 + FAULT))
        agent.run()
        assert routed(agent) == ["16.0.0.0/4"]
        assert f"route to {to}: {MANY[4]}" in refusals(agent)


def test_without_a_fault_the_later_document_replaces_the_earlier_one():
    agent = Agent(host(), with_routes("16.0.0.0/4"))
    agent.run()
    agent.ask(with_routes("32.0.0.0/4"))
    agent.run()
    assert (routed(agent), refusals(agent)) == (["32.0.0.0/4"], [])


NETWORKS = st.lists(
    st.builds(
        lambda number, length: ip_network((number >> (32 - length) << (32 - length), length)),
        st.integers(0, 2**32 - 1),
        st.integers(2, 12),
    ),
    max_size=30,
)


@LAWS
@given(NETWORKS, NETWORKS, st.randoms())
def test_what_is_granted_does_not_depend_on_the_order_and_is_within_the_limit(
    wanted, there, chance
):
    granted = coverage.shortest_granted(wanted, there)
    shuffled = list(wanted)
    chance.shuffle(shuffled)
    assert coverage.shortest_granted(shuffled, there) == granted
    passed = [one for one in wanted if one.prefixlen >= granted[4]]
    if coverage.count_public(there, 4) <= 2**28:
        assert coverage.count_public([*passed, *there], 4) <= 2**28
    wider = [one for one in wanted if one.prefixlen >= granted[4] - 1]
    assert granted[4] == 2 or coverage.count_public([*wider, *there], 4) > 2**28


@pytest.mark.parametrize(("networks", "count"), [
    ([], 0),
    (["10.0.0.0/8", "192.168.1.0/24"], 0),
    (["11.0.0.0/8", "11.1.0.0/16", "11.0.0.0/9"], 2**24),
    (["10.0.0.0/7"], 2**24),
    (["172.0.0.0/8"], 2**24 - 2**20),
])  # fmt: skip
def test_public_addresses_are_counted_once(networks, count):
    assert coverage.count_public(map(ip_network, networks), 4) == count


def _counted(networks, version):
    """The public addresses of these networks, counted in another way: from boundary to boundary."""
    mine = [one for one in networks if one.version == version and one.prefixlen > 1]
    edges = sorted(
        {
            int(edge)
            for one in (*mine, *coverage.NOT_PUBLIC[version])
            for edge in (one.network_address, int(one.broadcast_address) + 1)
        }
    )
    total = 0
    for low, high in zip(edges, edges[1:]):
        first = ip_address(low) if version == 4 else ip_address(low.to_bytes(16, "big"))
        held = any(first in one for one in mine)
        if held and not any(first in one for one in coverage.NOT_PUBLIC[version]):
            total += high - low
    return total


@LAWS
@given(kernels(), st.lists(document_texts(), min_size=1, max_size=3))
def test_no_documents_get_more_than_the_limit_nor_a_guarded_host_whatever_they_ask(
    kernel, documents
):
    theirs = {(one.to, one.index) for one in kernel.routes}
    agent = Agent(kernel)
    for text in documents:
        agent.ask(text)
        agent.run()
        routes = [one for one in kernel.routes if one.protocol == ROUTE_PROTOCOL]
        asked = [one.to for one in routes]
        asked += [address.network for _, address in agent.record.owned.addresses]
        assert _counted(asked, 4) <= 2**28
        assert _counted(asked, 6) <= 2**115
        now = [
            one for one in kernel.routes if one.protocol not in (ROUTE_PROTOCOL, KERNEL_PROTOCOL)
        ]
        for guarded in METADATA_HOSTS:
            before = [one for one in now if guarded in one.to and (one.to, one.index) in theirs]
            longest = max((one.to.prefixlen for one in before), default=0)
            assert [str(to) for to in asked if guarded in to and to.prefixlen >= longest] == []


@pytest.mark.parametrize(
    ("prefix", "broad"),
    [("16.0.0.0/4", True), ("16.0.0.0/5", False), ("2000::/13", True), ("2000::/14", False), ("172.16.0.0/12", True),
     ("172.16.0.0/13", False)],
)  # fmt: skip
def test_a_prefix_that_reaches_the_limit_or_a_private_block_is_broad(prefix, broad):
    assert coverage.is_broad(ip_network(prefix)) == broad


@pytest.mark.parametrize(("metric", "is_preferred"), [(50, True), (100, False), (150, False)])
def test_a_default_route_that_is_preferred_to_the_management_nics_is_reported(metric, is_preferred):
    agent = Agent(host(), NIC2)
    agent.run()
    default_route(agent.kernel, 2, ip_address("10.0.0.254"), metric=metric)
    problems = [(one.code, one.text) for one in agent.survey().resolution.problems]
    text = (
        "the IPv4 default route of another program through eth2 via 10.0.0.254 (metric"
        f" {metric}) is preferred to that of the management NIC (metric 100)"
    )
    assert problems == [("contested", text)] * is_preferred


# --- What other programs route too ------------------------------------------------------------------------------------


def notes_beside(addresses, text=NIC2, is_later=False):
    """The notes on a host on which Docker has a bridge with these addresses."""
    kernel = host()
    kernel.devices[9] = Device(9, "docker0", "bridge", mac=mac(9), mtu=1500, up=True)
    agent = Agent(kernel, text)
    if is_later:
        agent.run()
    for address in addresses.split():
        kernel.add_address(9, ip_interface(address))
    agent.run()
    assert agent.plan() == ()
    return [(note.text, note.link) for note in agent.survey().resolution.notes]


def test_a_requested_network_that_another_program_routes_too_is_noted():
    text = "addresses: overridden: another program routes {} through docker0 (metric {})"
    assert notes_beside("10.0.0.9/24 fd00:2::9/64") == [
        (text.format("10.0.0.0/24", 0), key(2)),
        (text.format("fd00:2::/64", 256), key(2)),
    ]
    assert notes_beside("10.0.1.9/24") == []
    two_addresses = NIC2.replace("10.0.0.1/24", "10.0.0.1/24, 10.0.0.2/24")
    assert len(notes_beside("10.0.0.9/24", two_addresses)) == 1


def test_of_two_routes_with_one_metric_the_kernel_uses_the_earlier_one():
    """As it lists them: fib_add_ifaddr of net/ipv4/fib_frontend.c appends the route."""
    assert notes_beside("10.0.0.9/24", is_later=True) == []


@pytest.mark.parametrize("routes", ["", "[routes]\n10.42.0.0/16 = 10.0.0.254\n"])
def test_a_link_that_is_to_be_down_has_no_network_for_another_program_to_route(routes):
    text = f"[interface {mac(2)}]\nstate = down\naddresses = 10.0.0.1/24\n{routes}"
    assert notes_beside("10.0.0.9/24 10.42.0.1/16", text) == []


def test_the_link_local_network_of_another_link_is_not_noted():
    text = f"[interface {mac(2)}]\nstate = up\naddresses = fe80::77/64\n"
    assert notes_beside("fe80::9/64", text) == []


def test_a_requested_route_that_another_program_has_with_a_lower_metric_is_noted():
    routes = f"{NIC2}[routes]\n10.42.0.0/16 = 10.0.0.254\n"
    text = "routes: overridden: another program routes 10.42.0.0/16 through docker0 (metric 0)"
    assert notes_beside("10.42.0.1/16", routes) == [(text, key(2))]
    assert notes_beside("10.42.0.1/24", routes) == []


def test_the_tables_that_rules_of_other_programs_look_up_are_shared():
    rules = [SeenRule(Rule(4, 99, 100), 3), SeenRule(Rule(4, 99, 200), ROUTE_PROTOCOL)]
    assert coverage.shared_tables(SimpleNamespace(rules=rules)) == {254, 100}
