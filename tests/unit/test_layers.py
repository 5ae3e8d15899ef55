"""Who asks for what: the configuration over the NEuca document over the platform's, and which NICs the platform may name."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import math
from dataclasses import replace
from ipaddress import ip_network

import pytest
from platforms import made
from worlds import PLACES, Agent, bare, key, mac, machine, nic, route, world

from neuca_tools.desired.first_nic import LEASE_SECONDS
from neuca_tools.desired.manager_files import wanted_files
from neuca_tools.desired.merge import (
    EARLY_MARK_SECONDS,
    MANAGEMENT_DHCP_SECONDS,
    MANAGEMENT_UNKNOWN,
)
from neuca_tools.desired.resolve import Settings, resolve_state
from neuca_tools.desired.roles import Policy
from neuca_tools.documents import parse
from neuca_tools.documents.neuca.ini import Line
from neuca_tools.documents.neuca.links import Draft, read_section
from neuca_tools.model import (
    Document,
    LinkRequest,
    NetworkState,
    NicRecord,
    PlatformDocument,
    Problem,
    Record,
)
from neuca_tools.state import changes, updates
from neuca_tools.status.judge import DocumentStatus, judge_host

DHCP = "the platform's document has DHCP on it"


def network(*links, more=()):
    """A network_data.json: (number, type, address, other keys)."""
    return {
        "links": [
            {
                "id": f"l{number}",
                "type": "phy",
                "ethernet_mac_address": mac(number),
                "mtu": extra.get("mtu"),
            }
            for number, _, _, extra in links
        ],
        "networks": [
            *(
                {
                    "id": f"n{number}",
                    "link": f"l{number}",
                    "type": kind,
                    "ip_address": address,
                    "netmask": "24",
                    "routes": extra.get("routes", []),
                }
                for number, kind, address, extra in links
            ),
            *more,
        ],
    }


def static(number, **extra):
    return (number, "ipv4", f"10.0.{number}.1", extra)


def dhcp(number, **extra):
    return (number, "ipv4_dhcp", None, extra)


def asking(data, text="", tags=None):
    """A document of both kinds; `tags` by number of NIC."""
    parts = made("network_data.json", json.dumps(data))
    if tags:
        devices = [
            {"type": "nic", "mac": mac(number), "tags": words} for number, words in tags.items()
        ]
        about = made("meta_data.json", json.dumps({"devices": devices}))
        parts = parts._replace(
            management=about.management + parts.management, links=about.links + parts.links
        )
    return (parse(text) if text else Document())._replace(platform=parts)


def local(number, **settings):
    lines = [
        Line(0, f"interface {mac(number)}", name, value, name, source="/etc/neuca/config")
        for name, value in settings.items()
    ]
    draft = Draft(key(number))
    assert read_section(draft, lines) == []
    return draft.finished().request


NICS = [nic(number) for number in (1, 2, 3)]
SEEN = world(*NICS, addresses={1: "192.0.2.10/24"}, routes=[route("0.0.0.0/0", 1, "192.0.2.1")])


def solve(document, *links, seen=SEEN, record=None, policy=None):
    return resolve_state(document, Settings(policy or Policy(), links), seen, record or Record())


def roles(resolution):
    return [resolution.roles.role(mac(number)) for number in (1, 2, 3)]


def asked(resolution, number):
    link = resolution.desired.links.get(key(number))
    return link and (link.mtu, [str(address) for address in link.addresses])


def test_the_platform_s_document_alone_makes_its_other_nics_dataplane():
    found = solve(asking(network(static(1), static(2, mtu=9000))))
    assert roles(found) == ["management", "dataplane", "unlisted"]
    assert asked(found, 2) == (9000, ["10.0.2.1/24"])
    assert (
        found.roles.reasons[mac(2)]
        == "the platform's document names it, and does not indicate a management NIC"
    )
    assert found.problems == ()


def test_the_neuca_document_goes_over_it_and_the_configuration_over_both():
    document = asking(
        network(static(2, mtu=9000), static(3, mtu=8000)),
        f"[interface {mac(2)}]\nmtu = 4000\n[interface {mac(3)}]\naddresses = 10.9.9.9/24\nmtu = 7000\n",
    )
    found = solve(document, local(3, mtu="2000"))
    assert (asked(found, 2), asked(found, 3)) == ((4000, ["10.0.2.1/24"]), (2000, ["10.9.9.9/24"]))
    origins = {origin.setting: origin for origin in found.requests[key(3)].origins}
    assert origins["mtu"].where == f"/etc/neuca/config, [interface {mac(3)}]"
    assert origins["mtu"].overrode == f"7000 from line 5, [interface {mac(3)}]"
    assert origins["addresses"].overrode == "10.0.3.1/24 from network_data.json, networks[1]"


def test_state_user_leaves_nothing_of_what_the_platform_asks():
    found = solve(asking(network(static(2, mtu=9000)), f"[interfaces]\n{bare(2)} = user\n"))
    assert asked(found, 2) == (None, [])


@pytest.mark.parametrize("platform", [False, True])
def test_a_state_of_the_configuration_goes_over_user_with_what_the_platform_asks(platform):
    document = parse(f"[interface {mac(3)}]\nstate = user\nname = red\n")
    if platform:
        document = asking(
            network(static(3, mtu=1400)), f"[interface {mac(3)}]\nstate = user\nname = red\n"
        )
    request = solve(document, local(3, state="up", txqueuelen="500")).requests[key(3)]
    assert (request.state, request.name, request.txqueuelen) == ("up", "red", 500)
    assert (request.mtu, len(request.addresses)) == ((1400, 1) if platform else (None, 0))


def test_what_a_neuca_document_adds_counts_although_the_platform_leaves_the_nic_to_the_user():
    """The configuration has the last word on the state, with and without the platform's `user`."""
    text = f"[interface {mac(3)}]\nmtu = 1300\n"
    below = (LinkRequest(key(3), "user", name="red"),)
    document = parse(text)._replace(platform=PlatformDocument(links=below))
    request = solve(document, local(3, state="up")).requests[key(3)]
    assert (request.state, request.name, request.mtu) == ("up", "red", 1300)
    assert solve(document).requests[key(3)].mtu is None


def test_a_nic_with_dhcp_in_the_platform_s_document_is_dataplane_beside_the_management_nic():
    found = solve(asking(network(dhcp(2), static(3))))
    assert roles(found) == ["management", "dataplane", "dataplane"]
    assert (
        found.roles.reasons[mac(2)]
        == f'{DHCP}, but the management NIC is "eth1": it carries the default route'
    )
    assert found.problems == ()


def test_a_neuca_document_that_names_a_nic_goes_before_dhcp_and_default_routes_of_the_platform():
    default = [{"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "10.0.3.254"}]
    text = f"[interfaces]\n{bare(2)} = up:ipv4:172.16.0.1/24\n{bare(3)} = up\n"
    document = asking(network(dhcp(2), static(3, routes=default)), text)
    found = solve(document)
    assert roles(found) == ["management", "dataplane", "dataplane"]
    assert (asked(found, 2), asked(found, 3)) == (
        (None, ["172.16.0.1/24"]),
        (None, ["10.0.3.1/24"]),
    )
    assert (
        found.roles.reasons[mac(2)]
        == f"a NEuca document or the configuration names it, though {DHCP}"
    )


def test_while_no_management_nic_is_known_a_neuca_document_takes_none_that_the_platform_has_for_it():
    document = asking(
        network(dhcp(2), static(3)), f"[interfaces]\n{bare(2)} = up:ipv4:172.16.0.1/24\n"
    )
    at_first = replace(SEEN, routes=(), metadata_index=0)
    assert roles(solve(document, seen=at_first)) == ["unlisted", "management", "dataplane"]
    assert roles(solve(document, local(2, state="up"), seen=at_first)) == [
        "unlisted",
        "dataplane",
        "dataplane",
    ]
    assert roles(
        solve(document, seen=at_first, record=Record(nics={mac(1): NicRecord(role="management")}))
    ) == ["management", "dataplane", "dataplane"]


def test_a_tag_goes_before_the_neuca_document_and_the_configuration_before_a_tag():
    text = f"[interfaces]\n{bare(2)} = up\n{bare(3)} = up\n"
    document = asking(network(static(2), static(3)), text, {2: ["mgmt"], 3: ["Management"]})
    found = solve(document, local(3, state="up"))
    assert roles(found) == ["management", "management", "dataplane"]
    assert (
        Problem("refused", 'it is on the management NIC: its device tag is "mgmt"', key(2))
        in found.problems
    )


def test_a_tag_names_a_dataplane_nic_that_has_no_network():
    found = solve(asking(network(), tags={2: ["dataplane"]}))
    assert (roles(found), asked(found, 2)) == (["management", "dataplane", "unlisted"], (None, []))


def test_what_is_seen_goes_before_what_a_document_says():
    found = solve(asking(network(dhcp(1))))
    assert found.roles.reasons[mac(1)] == "it carries the default route"
    assert found.roles.choice.by_document_only == frozenset()


def test_management_by_a_document_s_word_is_not_recorded():
    at_first = replace(SEEN, routes=(), metadata_index=0)
    found = solve(asking(network(dhcp(2))), seen=at_first)
    record = updates.remember_nics(Record(nics={mac(2): NicRecord(name="eth2")}), found)
    assert (
        found.roles.choice.by_document_only,
        record.nics[mac(2)].role,
        record.nics[mac(1)].role,
    ) == (
        {mac(2)},
        "",
        "",
    )
    assert roles(solve(asking(network(static(2))), record=record)) == [
        "management",
        "dataplane",
        "unlisted",
    ]


def test_a_name_is_recorded_for_one_nic_and_no_veth_without_a_role_is_recorded():
    devices = (*NICS[:2], NICS[2]._replace(kind="veth"))
    found = solve(
        Document(), seen=replace(SEEN, devices={device.index: device for device in devices})
    )
    former = {mac(8): NicRecord("eth2"), mac(9): NicRecord("eth1", "management")}
    record = updates.remember_nics(Record(nics=former), found)
    assert {number: record.nics[mac(number)].name for number in (1, 2, 8, 9)} == {
        1: "eth1",
        2: "eth2",
        8: "",
        9: "eth1",
    }
    assert mac(3) not in record.nics
    assert mac(3) in updates.remember_nics(Record(nics={mac(3): NicRecord()}), found).nics


def test_an_absent_management_nic_of_the_platform_is_no_shortfall_and_an_absent_dataplane_nic_is_one():
    at_first = replace(SEEN, routes=(), metadata_index=0)
    found = solve(asking(network(dhcp(8), static(9))), seen=at_first)
    assert [problem.link for problem in found.problems if problem.code == "absent"] == [key(9)]
    found = solve(asking(network(static(8), static(9)), tags={8: ["mgmt"]}))
    assert [problem.link for problem in found.problems if problem.code == "absent"] == [key(9)]


def test_an_ignored_nic_stays_ignored():
    found = solve(asking(network(static(2))), policy=Policy(ignored=frozenset({mac(2)})))
    assert (roles(found)[1], found.desired.links) == ("ignored", {})


def hops(resolution):
    return [(str(hop.to), hop.link, str(hop.via)) for hop in resolution.desired.hops]


def test_routes_of_dataplane_nics_alone_are_taken_and_a_neuca_route_goes_before_them():
    ways = [
        {"network": f"10.{number}.0.0", "netmask": "16", "gateway": "10.0.2.254"}
        for number in (50, 51)
    ]
    document = asking(
        network(
            dhcp(1),
            static(2, routes=ways),
            more=[
                {
                    "id": "x",
                    "link": "l1",
                    "type": "ipv4",
                    "ip_address": "10.0.1.1",
                    "netmask": "24",
                    "routes": [{"network": "10.60.0.0", "netmask": "16", "gateway": "10.0.1.254"}],
                }
            ],
        ),
        "[routes]\n10.51.0.0/16 = 10.0.2.9\n",
    )
    up = world(*(one._replace(up=True) for one in NICS), routes=SEEN.routes)
    found = solve(document, seen=up)
    assert hops(found) == [
        ("10.51.0.0/16", key(2), "10.0.2.9"),
        ("10.50.0.0/16", key(2), "10.0.2.254"),
    ]
    assert found.problems == ()


def test_a_link_local_next_hop_goes_through_the_link_that_the_document_says():
    way = [{"network": "fd00:9::", "netmask": "32", "gateway": "fe80::1"}]
    found = solve(asking(network((2, "ipv6", "fd00::1", {"routes": way}))))
    assert hops(found) == [("fd00:9::/32", key(2), "fe80::1")]


@pytest.mark.parametrize("recorded", [False, True])
def test_a_nic_that_is_known_by_its_name_is_the_one_that_keeps_that_name(recorded):
    data = made(
        "network-config",
        "version: 2\nethernets: {eth2: {addresses: [10.0.2.1/24]}, 'e*3': {dhcp4: true}, wl0: {}}\n",
    )
    record = Record(
        nics={mac(2): NicRecord(name="eth3"), mac(3): NicRecord(name="eth2")} if recorded else {}
    )
    nothing = replace(SEEN, routes=(), metadata_index=0)
    found = solve(Document(platform=data), record=record, seen=nothing)
    assert roles(found) == [
        "unlisted",
        *(["management", "dataplane"] if recorded else ["dataplane", "management"]),
    ]
    assert Problem("absent", 'no NIC is named "wl0"') in found.problems


def test_faults_of_the_platform_s_document_keep_what_is_not_sure():
    data = network(static(2), more=[{"id": "y", "link": "l2", "type": "ipv4", "ip_address": "bad"}])
    parts = made("network_data.json", json.dumps(data))
    document = Document(platform=parts, faults=parts.faults)
    assert not solve(document).is_complete
    assert asked(solve(document), 2) == (None, ["10.0.2.1/24"])


def test_a_pass_over_the_platform_s_document_leaves_nothing_to_do_and_the_management_nic_alone():
    agent = Agent(machine(*NICS, mgmt=1))
    agent.document = asking(network(dhcp(1), static(2, mtu=9000), static(3)))
    agent.run()
    assert agent.plan() == ()
    assert "10.0.2.1/24" in map(str, agent.kernel.world().addresses[2])
    assert {one.to for one in agent.kernel.world().routes if one.index == 1} >= {
        ip_network("0.0.0.0/0")
    }


# --- a first boot with a document of this host's own, which is there before DHCP has answered ---

OWN_WORD = "[interfaces]\n" + "".join(
    f"{bare(number)} = up:ipv4:172.16.{number}.1/24\n" for number in (1, 2)
)
ALL_OF_THEM = OWN_WORD + f"{bare(3)} = up\n"
YOUNG = replace(SEEN, routes=(), addresses={}, metadata_index=0, age=20.0)
OLD = replace(YOUNG, age=MANAGEMENT_DHCP_SECONDS)


@pytest.mark.parametrize("text", [OWN_WORD, ALL_OF_THEM])
def test_before_anything_shows_which_nic_is_for_management_no_document_has_one_touched(text):
    found = solve(parse(text), seen=YOUNG)
    assert roles(found) == ["unlisted"] * 3
    assert found.desired.links == {}
    assert Problem("contested", MANAGEMENT_UNKNOWN, key(1)) in found.problems
    assert found.roles.reasons[mac(1)] == MANAGEMENT_UNKNOWN
    status = judge_host("", DocumentStatus("file:/x"), found, NetworkState(), ())
    assert (status.data["state"], status.waits_for_management) == ("pending", True)


def test_once_management_shows_the_document_is_in_force_for_the_other_nics():
    for seen in (replace(SEEN, age=20.0), replace(YOUNG, metadata_index=1)):
        assert roles(solve(parse(OWN_WORD), seen=seen)) == ["management", "dataplane", "unlisted"]
    said = Policy(management=frozenset({mac(1)}))
    assert roles(solve(parse(OWN_WORD), seen=YOUNG, policy=said)) == [
        "management",
        "dataplane",
        "unlisted",
    ]
    by_the_platform = asking(network(dhcp(1)), OWN_WORD)
    assert roles(solve(by_the_platform, seen=YOUNG)) == ["management", "dataplane", "unlisted"]


def test_what_the_configuration_names_and_what_was_dataplane_before_waits_for_nothing():
    assert roles(solve(parse(OWN_WORD), local(2, state="up"), seen=YOUNG)) == [
        "unlisted",
        "dataplane",
        "unlisted",
    ]
    record = Record(nics={mac(2): NicRecord(role="dataplane")})
    assert roles(solve(parse(OWN_WORD), seen=YOUNG, record=record)) == [
        "unlisted",
        "dataplane",
        "unlisted",
    ]


@pytest.mark.parametrize(
    ("seen", "text", "later"),
    [
        (replace(SEEN, age=20.0), OWN_WORD, set()),
        (YOUNG, OWN_WORD, {LEASE_SECONDS, EARLY_MARK_SECONDS, MANAGEMENT_DHCP_SECONDS}),
        (YOUNG, ALL_OF_THEM, {LEASE_SECONDS, MANAGEMENT_DHCP_SECONDS}),
        (OLD, OWN_WORD, set()),
    ],
)
def test_a_decision_says_at_which_ages_of_the_host_it_may_change(seen, text, later):
    seen = replace(seen, later_ages=set())
    solve(parse(text), seen=seen)
    assert seen.later_ages == later


def test_a_host_without_any_management_nic_is_configured_in_the_end():
    assert roles(solve(parse(ALL_OF_THEM), seen=OLD)) == ["dataplane"] * 3
    assert roles(solve(parse(ALL_OF_THEM), seen=replace(OLD, age=math.inf))) == ["dataplane"] * 3


def test_a_document_that_leaves_a_nic_out_is_marked_ahead_at_first_and_given_up_if_that_brings_no_management_nic():
    assert solve(parse(ALL_OF_THEM), seen=YOUNG).roles.marked_early == frozenset()
    assert solve(parse(OWN_WORD), seen=YOUNG).roles.marked_early == {mac(1), mac(2)}
    assert (
        solve(parse(OWN_WORD), seen=replace(YOUNG, age=EARLY_MARK_SECONDS)).roles.marked_early
        == frozenset()
    )
    with_a_container = replace(
        YOUNG, devices={**YOUNG.devices, 9: nic(9, kind="veth", hardware=False)}
    )
    assert solve(parse(ALL_OF_THEM), seen=with_a_container).roles.marked_early == frozenset()


def test_marks_come_ahead_without_a_role_and_go_again_with_word_to_the_managers():
    marked, given_up = (
        wanted_files(solve(parse(OWN_WORD), seen=replace(YOUNG, age=age)), Record(), PLACES, {})
        for age in (20.0, EARLY_MARK_SECONDS)
    )
    assert f"unmanaged-devices+=mac:{mac(1)}".encode() in marked.files["/nm/neuca.conf"]
    assert given_up.files["/nm/neuca.conf"] is None
    assert given_up.manager_by_file["/nm/neuca.conf"] == "networkmanager"
    faulty = solve(parse(OWN_WORD + "nonsense = 1\n"), seen=replace(YOUNG, age=EARLY_MARK_SECONDS))
    assert wanted_files(faulty, Record(), PLACES, {}).files["/nm/neuca.conf"] is None
    record = updates.record_applied(
        updates.remember_nics(Record(), solve(parse(OWN_WORD), seen=YOUNG)),
        solve(parse(OWN_WORD), seen=YOUNG),
        YOUNG,
        scope=None,
        failed=(),
    )
    assert (record.nics[mac(1)].role, record.nics[mac(1)].applied) == ("", "")
    assert mac(2) in changes.changed_scope(record, solve(parse(OWN_WORD), seen=SEEN), SEEN)
