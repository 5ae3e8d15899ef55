"""What a manager had put on a NIC before a document made it ours: only that goes, and all of it is told."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_interface, ip_network

import pytest
from worlds import PLACES, document, key, mac, nic, route, texts, world

from neuca_tools.apply.decide import Observation, Policies, decide_pass
from neuca_tools.desired.resolve import Settings
from neuca_tools.desired.roles import Roles
from neuca_tools.model import Hop, NicRecord, OwnedObjects, Record
from neuca_tools.plan.plan import plan_operations
from neuca_tools.state import changes, leftovers, updates

MANAGED = {"networkd": {"eth1": "managed", "eth2": "managed", "eth3": "unmanaged"}}
LEASE, HAND, SIX = (
    ip_interface("10.99.2.16/24"),
    ip_interface("10.1.0.1/24"),
    ip_interface("fd00:99::5/64"),
)
ASKED = f"[interface {mac(2)}]\naddresses = 172.16.0.1/24\n"


def seen(*routes, leased=(LEASE, SIX)):
    """The management NIC 1 has the metadata route and a default route of its own; NIC 2 has what DHCP and a hand gave it."""
    default = route("0.0.0.0/0", 1, "192.0.2.1", 1024, 16)
    one = world(
        nic(1),
        nic(2),
        addresses={1: "192.0.2.10/24", 2: f"{LEASE} {HAND} {SIX}"},
        routes=(default, *routes),
        metadata=1,
    )
    return replace(one, leased_addresses=frozenset((2, address) for address in leased))


def survey(here, record, text=ASKED, words=MANAGED, silent=()):
    """What a decision says about leftovers."""
    here = replace(here, managers=words, silent_managers=dict.fromkeys(silent, "no response"))
    policies = Policies(Settings(), PLACES)
    decision = decide_pass(Observation(here), document(text), policies, record)
    resolution = decision.resolution
    return resolution, decision.record, decision.observed, decision.difference.owned


def test_leases_and_routes_of_dhcp_go_and_what_a_hand_set_stays():
    by_hand = (
        route("10.50.0.0/16", 2, "10.1.0.9", protocol=3),
        route("10.51.0.0/16", 2, "10.1.0.9", protocol=4),
    )
    here = seen(
        route("0.0.0.0/0", 2, "10.99.2.2", 1024, 16),
        route("10.99.2.2/32", 2, None, 1024, 16),
        *by_hand,
    )
    resolution, record, observed, owned = survey(here, Record())
    assert [text for text in texts(plan_operations(observed, resolution.desired, owned)) if "delete" in text] == [
        "delete the route to 0.0.0.0/0 via 10.99.2.2 on eth2",
        "delete the route to 10.99.2.2/32 on eth2",
        "delete the address 10.99.2.16/24 from eth2",
        "delete the address fd00:99::5/64 from eth2",
    ]  # fmt: skip
    assert {*leftovers.describe_leftovers(record, observed, here)} == {
        "systemd-networkd had added the address 10.99.2.16/24 to eth2 before a document named it",
        "systemd-networkd had added the address fd00:99::5/64 to eth2 before a document named it",
        "systemd-networkd had added the route to 0.0.0.0/0 via 10.99.2.2 to eth2 before a document named it",
        "systemd-networkd had added the route to 10.99.2.2/32 to eth2 before a document named it",
    }


@pytest.mark.parametrize(("nic_record", "words"), [
    (NicRecord(role="dataplane"), MANAGED), (NicRecord(), {"networkd": {"eth2": "unmanaged"}}), (NicRecord(), {})])  # fmt: skip
def test_a_nic_that_was_ours_before_or_that_nobody_holds_keeps_its_leases(nic_record, words):
    here = seen(route("10.99.2.2/32", 2, None, 1024, 16))
    resolution, record, observed, owned = survey(
        here, Record(nics={mac(2): nic_record}), words=words
    )
    assert [
        text
        for text in texts(plan_operations(observed, resolution.desired, owned))
        if "delete" in text
    ] == []
    assert [*leftovers.describe_leftovers(record, observed, here)] == []


def test_a_pass_that_dies_between_the_mark_and_the_removal_leaves_word_of_it():
    here = seen()
    resolution, record, _, _ = survey(here, Record())
    record = updates.remember_nics(record, resolution)
    assert (record.nics[mac(2)].role, record.nics[mac(2)].leaving) == ("dataplane", "networkd")
    _, _, _, owned = survey(here, record, words={"networkd": {"eth2": "unmanaged"}})
    assert {address for _, address in owned.addresses} == {LEASE, SIX}


def test_the_manager_has_left_once_it_lets_go_and_nothing_of_it_is_there():
    leaving = Record(nics={mac(2): NicRecord(role="dataplane", leaving="networkd")})
    empty = replace(seen(leased=()), addresses={2: (HAND,)})
    gone = {"networkd": {"eth2": "unmanaged"}}
    for here, words, after in (
        (seen(), gone, "networkd"),
        (empty, MANAGED, "networkd"),
        (empty, gone, ""),
    ):
        _, record, observed, _ = survey(here, leaving, words=words)
        assert leftovers.without_settled(record, observed, here).nics[mac(2)].leaving == after


def test_a_link_local_address_that_a_manager_may_have_set_keeps_its_routes():
    """Its network is the only one of the link; that it counts as leased is a guess."""
    own = ip_interface("169.254.10.1/30")
    routes = route("169.254.10.0/30", 2, None, 0, 2), route("10.50.0.0/16", 2, "169.254.10.2")
    here = replace(seen(*routes, leased=()), endless_leases=frozenset([(2, own)]))
    here = replace(here, addresses={**here.addresses, 2: (own,)})
    record = Record(nics={mac(2): NicRecord(role="dataplane", leaving="networkd")})
    gone = {"networkd": {"eth2": "unmanaged"}}
    _, record, observed, owned = survey(here, record, f"[interface {mac(2)}]\n", words=gone)
    assert ([hop for hop in observed.hops if hop.left_over], owned.addresses) == ([], frozenset())
    assert leftovers.without_settled(record, observed, here).nics[mac(2)].leaving == ""


@pytest.mark.parametrize("family", [4, 6])
def test_the_last_default_route_of_a_family_and_its_addresses_stay_and_are_reported(family):
    """The management NIC has lost its own; this one is a dataplane NIC by its record."""
    four, six = (
        route("0.0.0.0/0", 2, "10.99.2.2", 1024, 16),
        route("::/0", 2, "fd00:99::1", 1024, 9),
    )
    mine = {
        4: route("::/0", 1, "fd00::1", 1024, 9),
        6: route("0.0.0.0/0", 1, "192.0.2.1", 1024, 16),
    }[family]
    here = replace(seen(), routes=(mine, four, six))
    leaving = Record(nics={mac(2): NicRecord(role="dataplane", leaving="networkd")})
    resolution, record, observed, owned = survey(
        here, leaving, words={"networkd": {"eth2": "unmanaged"}}
    )
    gone = {
        4: [
            "delete the route to ::/0 via fd00:99::1 on eth2",
            f"delete the address {SIX} from eth2",
        ],
        6: [
            "delete the route to 0.0.0.0/0 via 10.99.2.2 on eth2",
            f"delete the address {LEASE} from eth2",
        ],
    }
    assert [
        text
        for text in texts(plan_operations(observed, resolution.desired, owned))
        if "delete" in text
    ] == gone[family]
    sentence = "what systemd-networkd had added to eth2 before a document named it is kept:"
    sentence += " it has the only IPv{} default route of this host"
    assert list(leftovers.describe_kept(record, observed, here, resolution.roles)) == [
        sentence.format(family)
    ]
    assert leftovers.without_settled(record, observed, here).nics[mac(2)].leaving == "networkd"


SILENT = {"networkd": dict.fromkeys(("eth1", "eth2"), "unknown")}
TOLD = "make networkd reload its configuration"


def test_a_manager_that_does_not_answer_is_not_taken_for_one_that_holds_nothing():
    """A first boot: what it puts there after the first pass goes too, and it is told of the marks until it has heard."""
    empty = replace(seen(leased=()), addresses={2: (HAND,)})
    resolution, record, observed, _ = survey(empty, Record(), words=SILENT, silent=SILENT)
    record = leftovers.without_settled(
        updates.remember_nics(record, resolution), observed, empty, SILENT
    )
    assert (record.nics[mac(2)].role, record.nics[mac(2)].leaving, record.nics[mac(2)].unheard) == (
        "dataplane",
        "networkd",
        True,
    )
    resolution, record, observed, owned = survey(seen(), record, words=SILENT, silent=SILENT)
    assert TOLD in texts(plan_operations(observed, resolution.desired, owned))
    record = leftovers.without_settled(record, observed, seen(), SILENT)
    record = updates.record_applied(record, resolution, seen(), scope=None, failed=())
    assert mac(2) in changes.changed_scope(record, resolution, seen())
    resolution, record, observed, owned = survey(seen(), record)
    done = texts(plan_operations(observed, resolution.desired, owned, scope={mac(2)}))
    assert [text for text in done if "delete" in text or text == TOLD] == [
        TOLD,
        f"delete the address {LEASE} from eth2",
        f"delete the address {SIX} from eth2",
    ]


def test_once_every_manager_has_answered_nothing_is_said_again():
    unheard = Record(nics={mac(2): NicRecord(role="dataplane", leaving="networkd", unheard=True)})
    empty, gone = (
        replace(seen(leased=()), addresses={2: (HAND,)}),
        {"networkd": {"eth2": "unmanaged"}},
    )
    for words, after in ((gone, ("", False)), (MANAGED, ("networkd", False))):
        resolution, record, observed, owned = survey(empty, unheard, words=words)
        nic_record = leftovers.without_settled(record, observed, empty).nics[mac(2)]
        assert (nic_record.leaving, nic_record.unheard) == after
        resolution, _, observed, owned = survey(
            empty, record._replace(nics={mac(2): nic_record}), words=words
        )
        assert TOLD not in texts(plan_operations(observed, resolution.desired, owned))


def test_an_asked_address_that_is_only_leased_is_set_for_good():
    text = f"[interface {mac(2)}]\naddresses = {LEASE}\n"
    resolution, _, observed, owned = survey(seen(), Record(), text)
    assert "add the address 10.99.2.16/24 to eth2" in texts(
        plan_operations(observed, resolution.desired, owned)
    )
    assert "delete the address 10.99.2.16/24 from eth2" not in texts(
        plan_operations(observed, resolution.desired, owned)
    )


def test_addresses_of_a_vlan_are_nobodys_leftovers():
    record = Record(nics={mac(2): NicRecord(leaving="networkd")})
    assert [*leftovers.describe_leftovers(record, found_nothing(), seen())] == []


def found_nothing():
    _, _, observed, _ = survey(seen(), Record(), words={})
    child = observed.links[key(2)]._replace(key=key(2, 7))
    return observed._replace(
        links={key(2, 7): child}, hops=(Hop(ip_network("10.0.0.0/8"), key(2, 7)),)
    )


def test_nothing_is_removable_but_what_is_ours_where_nobody_leaves():
    _, _, observed, _ = survey(seen(), Record(), words={})
    assert (
        leftovers.removable_things(OwnedObjects(), Record(), observed, seen(), Roles())
        == OwnedObjects()
    )


@pytest.mark.parametrize(
    ("heard", "unheard"), [((), True), (("networkmanager",), True), (SILENT, False)]
)
def test_a_silent_manager_that_read_its_files_again_need_not_be_told_once_more(heard, unheard):
    record = Record(nics={mac(2): NicRecord(role="dataplane", leaving="networkd", unheard=True)})
    _, record, observed, _ = survey(seen(), record, words=SILENT, silent=SILENT)
    found = leftovers.without_settled(record, observed, seen(), SILENT, heard).nics[mac(2)]
    assert (found.leaving, found.unheard) == ("networkd", unheard)
