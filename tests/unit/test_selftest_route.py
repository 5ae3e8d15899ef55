"""The route of a test: what ICMP errors mean, what counts as a change between tests, and how it is shown."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import socket
import struct
from dataclasses import replace
from ipaddress import ip_address

import pytest
from selftest_pages import large

from neuca_tools.selftest.diagnosis.compare import compare
from neuca_tools.selftest.diagnosis.diagnose import diagnose
from neuca_tools.selftest.evidence import Evidence
from neuca_tools.selftest.evidence.route import Hop, Narrowing, OneWay, Route
from neuca_tools.selftest.measure.probes.hops import Flow, Reply, Target, parse_error, trace_route
from neuca_tools.selftest.readers.documents import evidence_of
from neuca_tools.selftest.report.page import report_page
from neuca_tools.selftest.report.record import report_json
from neuca_tools.selftest.report.text import one_way_words, route_words

NEAR, LEFT, RIGHT, PEER = "172.16.0.2", "10.1.0.2", "10.2.0.2", "10.9.0.2"
ROUTE = Route(
    "dp1",
    (
        Hop(1, (NEAR,), 1e-4, 1500),
        Hop(2, (LEFT, RIGHT), 2e-4, 1500),
        Hop(3),
        Hop(4, (PEER,), 3e-4, 1400),
    ),
    (Narrowing(4, 1400),),
    flows=6,
    reached=True,
)


def error(version, kind, code, info=0, origin=None, address=None):
    """struct sock_extended_err with the address of who sent the ICMP error (linux/errqueue.h)."""
    origins, families = {4: 2, 6: 3}, {4: socket.AF_INET, 6: socket.AF_INET6}
    head = struct.pack(
        "=IBBBBII", 113, origins[version] if origin is None else origin, kind, code, 0, info, 0
    )
    packed = ip_address(address or {4: NEAR, 6: "fd00::2"}[version]).packed
    place = struct.pack("=HH", families[version], 0) + (b"" if version == 4 else bytes(4)) + packed
    return head + place.ljust(28, b"\0")


@pytest.mark.parametrize(
    ("version", "kind", "code", "word"),
    [
        (4, 11, 0, "router"),
        (4, 3, 3, "reached"),
        (4, 3, 4, "large"),
        (4, 3, 13, "refused"),
        (4, 3, 1, "refused"),
        (4, 11, 1, "refused"),
        (6, 3, 0, "router"),
        (6, 1, 4, "reached"),
        (6, 2, 0, "large"),
        (6, 1, 1, "refused"),
    ],
)
def test_what_an_icmp_error_says(version, kind, code, word):
    found = parse_error(version, error(version, kind, code, info=1400), 0.5)
    assert found == Reply(word, {4: NEAR, 6: "fd00::2"}[version], 0.5, 1400)


@pytest.mark.parametrize("version", [4, 6])
def test_an_error_of_this_host_or_a_short_one_says_nothing(version):
    whole = error(version, 3, 4, origin=1)
    assert parse_error(version, whole) is None
    assert [parse_error(version, whole[:size]) for size in range(20)] == [None] * 20


def test_a_flow_cannot_use_a_device_that_is_not_there():
    target = Target(ip_address("127.0.0.1"), ip_address("127.0.0.1"), "none0")
    with pytest.raises(OSError, match="No such device"):
        Flow(target)
    with pytest.raises(OSError, match="No such device"):
        trace_route(target, 1500)


def test_the_peer_itself_is_the_first_hop_where_there_is_no_router():
    """On loopback the closed port responds."""
    local = ip_address("127.0.0.1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    found = trace_route(Target(local, local, "lo", port), 1500)
    assert (found.reached, [hop.addresses for hop in found.hops]) == (True, [("127.0.0.1",)])
    assert found.hops[0].mtu == 1500


def test_the_path_in_words():
    assert route_words(ROUTE) == (
        "4 hops, 1 of them silent, 2 paths at hop 2, MTU 1400 before hop 4 (no router reports it), peer reached"
    )
    assert route_words(Route(hops=(Hop(1, (NEAR,)),), refused=NEAR)) == (
        f"1 hop, refused by {NEAR}, the peer does not respond"
    )


def changes(before, after):
    found = compare([Evidence(route=before)], Evidence(route=after)).changes
    assert {one.where for one in found} <= {"path"}
    assert not any(one.identity for one in found)
    return [(one.field, one.before, one.after) for one in found]


def test_another_router_or_another_mtu_is_a_change():
    other = replace(ROUTE, hops=(ROUTE.hops[0], Hop(2, ("10.7.0.2",), 1.0, 1400), *ROUTE.hops[2:]))
    assert changes(ROUTE, other) == [
        ("hop 2", f"{LEFT} {RIGHT}", "10.7.0.2"),
        ("MTU up to hop 2", "1500", "1400"),
    ]
    assert changes(ROUTE, replace(ROUTE, hops=ROUTE.hops[:3])) == [("number of hops", "4", "3")]


@pytest.mark.parametrize(
    "after",
    [
        ROUTE,
        Route(),
        replace(ROUTE, hops=(ROUTE.hops[0], Hop(2, (RIGHT,), 9.0, None), *ROUTE.hops[2:])),
        replace(ROUTE, hops=(Hop(1), *ROUTE.hops[1:3], Hop(4))),
        replace(ROUTE, hops=ROUTE.hops[:2], reached=False),
    ],
)
def test_what_one_test_missed_is_no_change(after):
    assert changes(ROUTE, after) == []
    assert changes(after, ROUTE) == []


def test_one_way_loss_is_the_share_of_missing_sequence_numbers():
    found = OneWay("forward", 1e6, sent=1005, seen=1000, lost=10, out_of_order=2)
    assert found.loss == 0.01
    assert one_way_words(found) == (
        "1.0% of 1000 lost (by sequence number), 2 out of order, 1005 sent, at 1.00 Mbit/s"
    )
    assert OneWay(lost=0).loss is None
    assert OneWay(seen=10, lost=-1).loss == 0.0


def test_the_report_has_the_hops_and_the_loss():
    evidence = replace(large(), route=ROUTE, one_way=(OneWay("reverse", 1e6, 1000, 1000, 10, 0),))
    assert evidence_of(report_json(evidence, diagnose(evidence)).encode()) == evidence
    content = report_page(evidence, diagnose(evidence))
    assert f"<td>2</td><td>{LEFT}, {RIGHT}</td><td>200 µs</td><td>1500</td>" in content
    assert "<td>3</td><td>no response</td><td></td><td></td>" in content
    assert (
        json.loads(report_json(evidence, diagnose(evidence)))["evidence"]["one_way"][0]["lost"]
        == 10
    )
