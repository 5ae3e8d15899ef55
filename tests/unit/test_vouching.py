"""An answer through a NIC for which nothing vouches is used only if the firmware states its instance."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
from ipaddress import ip_address, ip_network

import pytest
from worlds import mac, nic, route, world

from neuca_tools.desired import outlets
from neuca_tools.desired.outlets import is_overruled, likely_outlets
from neuca_tools.desired.policy import Policy
from neuca_tools.desired.roles import assign_roles
from neuca_tools.errors import SourceError
from neuca_tools.model import NicRecord, Record, Route
from neuca_tools.model.machine import MetadataService, Outlet
from neuca_tools.model.provenance import RTPROT_DHCP, RTPROT_KERNEL
from neuca_tools.sources import Answer, Session, SourceSpec, Surroundings, fetch_path
from neuca_tools.sources.base import Deadline
from neuca_tools.sources.nocloud import NoCloud
from neuca_tools.sources.vouching import require_vouched

UUID = "7c2a0c1e-54d1-4f5b-9d39-3a0a0a6f2b11"
SWAPPED = "1e0c2a7c-d154-5b4f-9d39-3a0a0a6f2b11"  # the same, as Azure's service has it (cloud-init does so too)
PLACEHOLDER = "03000200-0400-0500-0006-000700080009"  # of boards whose vendor has set none
EC2 = "i-0123456789abcdef0"
OPENSTACK = {"meta_data.json": json.dumps({"uuid": UUID}).encode()}


class Through:
    """A source that answered through an outlet."""

    def __init__(self, is_vouched):
        self.outlet = Outlet("eth3", "02:00:00:00:00:03", is_vouched=is_vouched)


def around(folder, **fields):
    for name, text in fields.items():
        (folder / name).write_text(text + "\n")
    return Surroundings(dmi=folder)


@pytest.mark.parametrize(
    ("answer", "fields"),
    [
        (Answer("openstack", b"", parts=OPENSTACK), {"product_uuid": UUID}),
        (Answer("openstack", b"", parts=OPENSTACK), {"product_uuid": UUID.upper()}),
        (Answer("azure", b"", instance=f"azure:{SWAPPED}"), {"product_uuid": UUID}),
        (Answer("ec2", b"", instance=f"ec2:{EC2}"), {"board_asset_tag": EC2}),
    ],
    ids=["openstack", "upper case", "azure", "ec2"],
)
def test_an_answer_with_the_identity_that_the_firmware_states_is_used(tmp_path, answer, fields):
    assert require_vouched(answer, Through(False), around(tmp_path, **fields)) is answer


@pytest.mark.parametrize(
    ("instance", "fields"),
    [
        (f"openstack:{UUID}", {}),
        (f"openstack:{UUID}", {"product_uuid": ""}),
        (f"openstack:{UUID}", {"product_uuid": UUID.replace("7", "8")}),
        ("ec2:i-0abc", {"board_asset_tag": "i-0abc"}),  # could be guessed
        ("hetzner:123456", {"product_uuid": "123456", "product_serial": "123456"}),
        (f"openstack:{PLACEHOLDER}", {"product_uuid": PLACEHOLDER}),
        ("", {"product_uuid": ""}),
    ],
    ids=["no firmware", "empty", "another", "short", "a number", "a placeholder", "no identity"],
)
def test_any_other_answer_is_refused_with_the_command_that_vouches(tmp_path, instance, fields):
    answer = Answer("any", b"#!/bin/sh\n", instance=instance)
    with pytest.raises(SourceError, match="run: neuca trust eth3"):
        require_vouched(answer, Through(False), around(tmp_path, **fields))


def test_a_nic_that_is_vouched_for_needs_no_identity_and_no_document_none_either(tmp_path):
    answer, nothing = Answer("ec2", b"text"), Answer("ec2", None)
    assert require_vouched(answer, Through(True), around(tmp_path)) is answer
    assert require_vouched(nothing, Through(False), around(tmp_path)) is nothing


FIRST, OTHER = "02:00:00:00:00:01", "02:00:00:00:00:02"


def outlets_of(**more):
    """The outlets of a guest whose first NIC has no address; the second has one, with these routes."""
    nics = [nic(1, up=True, carrier=True), nic(2, up=True, carrier=True)]
    seen = world(*nics, addresses={2: "10.0.2.9/24"}, **more)
    roles = assign_roles(seen, set(), Policy(), Record())
    return likely_outlets(seen, roles, Policy(), Record())


def test_only_a_nic_that_nothing_shows_is_not_vouched_for():
    (outlet,) = outlets_of()
    assert (outlet.identity, outlet.is_likely, outlet.is_vouched) == (OTHER, True, False)
    (outlet,) = outlets_of(routes=[route("0.0.0.0/0", 2, "10.0.2.1")])
    assert (outlet.identity, outlet.is_likely, outlet.is_vouched) == (OTHER, True, True)


def test_a_url_of_an_administrator_may_lead_through_a_route_of_an_administrator():
    nics = [nic(number, up=True, carrier=True) for number in (1, 2)]
    ways = [
        route("198.51.100.0/24", 2, "10.0.2.1"),
        route("10.0.2.0/24", 2, protocol=RTPROT_KERNEL),
        route("203.0.113.0/24", 2, "10.0.2.1", protocol=RTPROT_DHCP),
    ]
    seen = world(*nics, addresses={1: "10.0.1.9/24", 2: "10.0.2.9/24"}, routes=ways)
    found = likely_outlets(seen, assign_roles(seen, set(), Policy(), Record()), Policy(), Record())
    assert [(one.identity, one.is_likely, one.is_vouched) for one in found] == [
        (FIRST, True, True),
        (OTHER, False, True),
    ]
    assert found[1].networks == (ip_network("198.51.100.0/24"), ip_network("10.0.2.0/24"))


def test_neither_a_seed_nor_an_item_is_requested_through_a_nic_that_is_not_vouched_for(tmp_path):
    """Neither says which instance it is for."""
    everywhere = (ip_network("0.0.0.0/0"),)
    around = Surroundings(
        tmp_path, dmi=tmp_path, outlets=(Outlet("eth3", OTHER, everywhere, is_vouched=False),)
    )
    with pytest.raises(SourceError, match="no NIC that may be for management has a route to it"):
        fetch_path(SourceSpec("ec2"), "/latest/meta-data/public-ipv4", 1, Session(), around)
    seed = NoCloud("", around)
    with pytest.raises(SourceError, match="no NIC that may be for management has a route to it"):
        seed._fetched("http://192.0.2.1/", Deadline.after(1))


@pytest.mark.parametrize(
    ("doubt", "expected"), [((), [OTHER]), ((4,), [FIRST])], ids=["firm", "doubtful"]
)
def test_a_record_with_a_doubt_does_not_outrank_the_nic_that_is_believed(doubt, expected):
    """The first NIC by the bus and another one with the same networks, which a record names."""
    nics = [nic(number, up=True, carrier=True) for number in (1, 2)]
    seen = world(*nics, addresses={1: "10.0.1.9/24", 2: "10.0.2.9/24"})
    record = Record(nics={OTHER: NicRecord(role="management", doubtful=doubt)})
    roles = assign_roles(seen, set(), Policy(), record)
    likely = [
        outlet.identity
        for outlet in likely_outlets(seen, roles, Policy(), record)
        if outlet.is_likely
    ]
    assert likely == expected


# Where the service answered, then the NICs that the configuration has for management, ignores and configures itself,
# and whether the service may no longer be asked there.
OVERRULED = [
    (mac(2), [], [], [], False),
    (mac(2), [mac(2)], [], [], False),
    (mac(2), [mac(2)], [], [mac(2)], False),
    (mac(2), [mac(3)], [], [], True),
    (mac(2), [], [mac(2)], [], True),
    (mac(2), [], [mac(3)], [], False),
    (mac(2), [], [], [mac(2)], True),
    (mac(2), [], [], [mac(3)], False),
    (f"{mac(2)}.7", [mac(2)], [], [], False),
    (f"{mac(2)}.7", [mac(3)], [], [], True),
    (f"{mac(2)}.7", [], [mac(2)], [], True),
    (f"{mac(2)}.7", [], [], [mac(2)], True),
    ("", [mac(3)], [mac(2)], [mac(2)], False),
]


@pytest.mark.parametrize(("where", "management", "ignored", "configured", "expected"), OVERRULED)
def test_the_configuration_rules_out_a_nic_on_which_the_service_has_answered(
    where, management, ignored, configured, expected
):
    origin = MetadataService("ec2", "http://169.254.169.254", where)
    policy = Policy(frozenset(ignored), frozenset(management))
    assert is_overruled(origin, policy, configured) is expected


# Routes that administrators have set; the rank of their interface, and its metric.
RANKS = [
    ([], outlets.ROUTED, 0),
    ([("10.0.0.0/8", "10.0.2.1")], outlets.ROUTED, 0),
    ([("0.0.0.0/0", "10.0.2.1", 70), ("0.0.0.0/0", "10.0.2.2", 50)], outlets.DEFAULT_ROUTE, 50),
    ([("::/0", "fe80::1", 50)], outlets.HOST_ROUTE, 0),
    ([("169.254.169.254/32", None)], outlets.HOST_ROUTE, 0),
    ([("169.254.0.0/16", "10.0.2.1")], outlets.HOST_ROUTE, 0),
    ([("169.254.0.0/16", None)], outlets.ROUTED, 0),
    ([("169.254.169.0/30", "10.0.2.1")], outlets.ROUTED, 0),
]


@pytest.mark.parametrize(("routes", "rank", "metric"), RANKS)
def test_a_route_to_the_service_itself_ranks_after_a_default_route(routes, rank, metric):
    found = [
        Route(ip_network(to), 2, via and ip_address(via), *metrics) for to, via, *metrics in routes
    ]
    assert outlets._rank_by_routes(found) == (rank, metric)
