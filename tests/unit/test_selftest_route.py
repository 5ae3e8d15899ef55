"""The route of a test: what tracepath prints, what counts as a change between tests, and how it is shown."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from ipaddress import ip_address

import pytest
from selftest_pages import large

from neuca_tools.selftest.diagnosis.compare import compare
from neuca_tools.selftest.diagnosis.diagnose import diagnose
from neuca_tools.selftest.evidence import Evidence
from neuca_tools.selftest.evidence.route import Hop, OneWay, Route
from neuca_tools.selftest.measure import program
from neuca_tools.selftest.measure.probes import tracepath
from neuca_tools.selftest.measure.probes.tracepath import parse_route
from neuca_tools.selftest.readers.documents import evidence_of
from neuca_tools.selftest.report.page import report_page
from neuca_tools.selftest.report.record import report_json
from neuca_tools.selftest.report.text import one_way_words, route_words

NEAR, LEFT, RIGHT, PEER = "172.16.0.2", "10.1.0.2", "10.2.0.2", "10.9.0.2"
ROUTE = Route(
    (
        Hop(1, (NEAR,), 1e-4, 1500),
        Hop(2, (LEFT, RIGHT), 2e-4, 1500),
        Hop(3),
        Hop(4, (PEER,), 3e-4, 1400),
    ),
    reached=True,
)


OUTPUT = """\
 1?: [LOCALHOST]                      pmtu 1500
 1:  172.16.0.2                                            0.067ms
 1:  172.16.0.2                                            0.100ms
 2:  10.1.0.2                                              0.150ms asymm  3
 2:  10.2.0.2                                              0.200ms asymm  3
 3:  no reply
 4:  10.8.0.2                                              0.240ms pmtu 1400
 4:  10.9.0.2                                              0.300ms reached
     Resume: pmtu 1400 hops 4 back 4
"""


def test_what_tracepath_prints():
    assert parse_route(OUTPUT, ip_address(PEER)) == ROUTE


@pytest.mark.parametrize(
    ("output", "route"),
    [
        ("", Route(reached=False)),
        # Of IPv6, and ended before the third router answered or another line was complete.
        (
            " 1?: [LOCALHOST]    0.025ms pmtu 1500\n 1:  fd00:1::2    0.058ms\n 2:  no reply\n 3:",
            Route((Hop(1, ("fd00:1::2",), 5.8e-05, 1500),), reached=False),
        ),
        # A router that rejects what it should pass on.
        (
            " 1:  10.1.0.2      0.059ms !H\n     Resume: pmtu 1400 ",
            Route((Hop(1, (LEFT,), 5.9e-05),), False),
        ),
        ("     Too many hops: pmtu 1500\n", Route(reached=False)),
        # Of this host or a firewall before the peer, and of a peer that sends data back.
        (" 1:  send failed\n     Resume: pmtu 65535 \n", Route(reached=False)),
        (" 1?: [LOCALHOST]    !A\n", Route(reached=False)),
        (" 1?: reply received 8)\n", Route(reached=False)),
        (" 1:  10.1.0.2  0.100ms reached\n", Route((Hop(1, (LEFT,), 1e-4),), False)),
        (" 1:  10.9.0.2  0.100ms reached\n", Route((Hop(1, (PEER,), 1e-4),), True)),
    ],
)
def test_what_tracepath_prints_of_a_path_that_ends(output, route):
    assert parse_route(output, ip_address(PEER)) == route


def test_a_missing_tracepath_is_said(tmp_path, monkeypatch):
    (tmp_path / "stdbuf").symlink_to(shutil.which("stdbuf"))
    monkeypatch.setattr(program, "PATH", str(tmp_path))
    monkeypatch.setattr(tracepath, "confine_process", lambda: None)
    with pytest.raises(FileNotFoundError, match="tracepath is not installed"):
        tracepath.trace_route(ip_address("127.0.0.1"))


def test_the_path_in_words():
    assert route_words(ROUTE) == ("4 hops, 1 of them silent, MTU 1400 from hop 4 on, peer reached")
    assert route_words(Route((Hop(1, (NEAR,)),))) == "1 hop, the peer does not respond"


def changes(before, after):
    found = compare([Evidence(route=before)], Evidence(route=after)).changes
    assert {one.where for one in found} <= {"path"}
    assert not any(one.identity for one in found)
    return [(one.field, one.before, one.after) for one in found]


def test_another_router_or_another_mtu_is_a_change():
    other = replace(
        ROUTE,
        hops=(
            ROUTE.hops[0],
            Hop(2, ("10.7.0.2",), 1.0, 1400),
            *ROUTE.hops[2:3],
            Hop(4, (PEER,), mtu=1300),
        ),
    )
    assert changes(ROUTE, other) == [
        ("hop 2", f"{LEFT} {RIGHT}", "10.7.0.2"),
        ("MTU", "1400", "1300"),
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
