"""Routes: replaced in place, never deleted and added again; other people's with the same prefix are theirs."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from lab import mac

NICS = f"""[interface {mac(1)}]
addresses = 172.16.0.1/24, fd00:16::1/64
[interface {mac(2)}]
addresses = 172.17.0.1/24, fd00:17::1/64
"""


@pytest.fixture
def routed(lab):
    lab.management()
    lab.veth("dp1", 1)
    lab.veth("dp2", 2)
    return lab


def test_a_route_is_replaced_in_place(routed):
    routed.once(NICS + "[routes]\n10.20.0.0/16 = 172.16.0.254\n2001:db8:20::/48 = fd00:16::fe\n")
    with routed.monitored() as monitor:
        done = routed.once(
            NICS + "[routes]\n10.20.0.0/16 = 172.16.0.253\n2001:db8:20::/48 = fd00:16::fd\n"
        )
        seen = monitor.lines("ROUTE")
    assert done.code == 0, done
    assert [line for line in seen if "Deleted" in line] == []
    assert len(seen) == 2
    assert routed.routes("10.20.0.0/16") == [("172.16.0.253", "dp1", 20, "110")]
    assert routed.routes("2001:db8:20::/48", 6) == [("fd00:16::fd", "dp1", 20, "110")]


def test_a_route_moves_to_another_nic_in_place(routed):
    routed.once(NICS + "[routes]\n10.20.0.0/16 = 172.16.0.254\n2001:db8:20::/48 = fd00:16::fe\n")
    with routed.monitored() as monitor:
        done = routed.once(
            NICS + "[routes]\n10.20.0.0/16 = 172.17.0.254\n2001:db8:20::/48 = fd00:17::fe\n"
        )
        assert [line for line in monitor.lines("ROUTE") if "Deleted" in line] == []
    assert done.code == 0, done
    assert routed.routes("10.20.0.0/16") == [("172.17.0.254", "dp2", 20, "110")]
    assert routed.routes("2001:db8:20::/48", 6) == [("fd00:17::fe", "dp2", 20, "110")]


def test_a_route_that_is_gone_from_the_document_goes(routed):
    routed.once(
        NICS
        + "[routes]\n10.20.0.0/16 = 172.16.0.254\n10.21.0.0/16 = 172.16.0.254\n2001:db8:20::/48 = fd00:16::fe\n"
    )
    assert routed.once(NICS + "[routes]\n10.21.0.0/16 = 172.16.0.254\n").code == 0
    assert (routed.routes("10.20.0.0/16"), routed.routes("2001:db8:20::/48", 6)) == ([], [])
    assert len(routed.routes("10.21.0.0/16")) == 1


def test_the_users_route_with_the_same_prefix_is_left_alone(routed):
    routed.once(NICS)
    routed.ip("route add 10.20.0.0/16 via 172.17.0.99 dev dp2")
    routed.ip("-6 route add 2001:db8:20::/48 via fd00:17::99 dev dp2 metric 5")
    theirs, theirs6 = routed.routes("10.20.0.0/16"), routed.routes("2001:db8:20::/48", 6)
    assert (
        routed.once(
            NICS + "[routes]\n10.20.0.0/16 = 172.16.0.254\n2001:db8:20::/48 = fd00:16::fe\n"
        ).code
        == 0
    )
    ours, ours6 = ("172.16.0.254", "dp1", 20, "110"), ("fd00:16::fe", "dp1", 20, "110")
    assert sorted(routed.routes("10.20.0.0/16")) == sorted([*theirs, ours])
    assert sorted(routed.routes("2001:db8:20::/48", 6)) == sorted([*theirs6, ours6])
    assert routed.once(NICS).code == 0
    assert (routed.routes("10.20.0.0/16"), routed.routes("2001:db8:20::/48", 6)) == (
        theirs,
        theirs6,
    )


def test_the_users_route_with_our_prefix_and_our_metric_is_left_alone(routed):
    routed.once(NICS)
    routed.ip("route add 10.20.0.0/16 via 172.17.0.99 dev dp2 metric 20")
    routed.once(NICS + "[routes]\n10.20.0.0/16 = 172.16.0.254\n")
    assert ("172.17.0.99", "dp2", 20, "boot") in routed.routes("10.20.0.0/16")


@pytest.mark.parametrize("kind", ["blackhole", "throw", "local", "nhid 7"])
def test_a_route_of_another_kind_with_our_prefix_and_our_metric_is_left_alone(routed, kind):
    """The kernel replaces a route of any kind; routing daemons set blackholes with our metric."""
    dev = " dev lo" if kind == "local" else ""
    for family, prefix in ((4, "10.20.0.0/16"), (6, "fd20::/48")):
        if kind == "nhid 7":
            routed.ip(f"-{family} nexthop replace id {family} blackhole")
        words = f"{prefix} nhid {family}" if kind == "nhid 7" else f"{kind} {prefix}"
        for table in ("main", "99"):
            routed.ip(f"-{family} route add {words}{dev} table {table} metric 20 proto bgp")
    for table in ("", " table 99"):
        # The laboratory checks that the routes of others are those from before.
        lines = (f"10.20.0.0/16 = 172.16.0.254{table}", f"fd20::/48 = fd00:16::fe{table}")
        routed.once(NICS + "[routes]\n" + "\n".join(lines))
        reason = "a route of another program has the same prefix and metric (20)"
        assert routed.problems() == [
            ("refused", f"route to {prefix}: {reason}") for prefix in ("10.20.0.0/16", "fd20::/48")
        ]


def test_down_removes_a_route_on_a_dataplane_nic_whoever_set_it(routed):
    routed.once(NICS)
    routed.ip("route add 10.20.0.0/16 via 172.17.0.99 dev dp2")
    routed.ip("-6 route add 2001:db8:20::/48 via fd00:17::99 dev dp2")
    assert routed.once(NICS + "[routes]\n10.20.0.0/16 = down\n2001:db8:20::/48 = down\n").code == 0
    assert (routed.routes("10.20.0.0/16"), routed.routes("2001:db8:20::/48", 6)) == ([], [])


def test_down_removes_no_route_through_the_management_nic_and_no_default_route(routed):
    routed.ip("route add 10.30.0.0/16 via 192.0.2.1 dev mgmt0")
    routed.once(
        NICS
        + "[routes]\n10.30.0.0/16 = down\n0.0.0.0/0 = down\n::/0 = down\n172.16.0.0/24 = down\n"
    )
    assert routed.routes("10.30.0.0/16") == [("192.0.2.1", "mgmt0", 0, "boot")]
    assert routed.problems() == [
        ("refused", "route to 0.0.0.0/0: a default route is never removed"),
        ("refused", "route to ::/0: a default route is never removed"),
        (
            "refused",
            'route to 172.16.0.0/24: it is the network of an address that is requested on "dp1"',
        ),
    ]


def test_a_user_route_is_neither_set_nor_removed(routed):
    routed.once(NICS + "[routes]\n10.20.0.0/16 = user\n")
    assert routed.routes("10.20.0.0/16") == []
    routed.ip("route add 10.20.0.0/16 via 172.17.0.99 dev dp2")
    theirs = routed.routes("10.20.0.0/16")
    assert routed.once(NICS + "[routes]\n10.20.0.0/16 = user\n").code == 0
    assert routed.routes("10.20.0.0/16") == theirs


def test_a_route_that_becomes_the_users_goes_no_more_and_comes_no_more(routed):
    routed.once(NICS + "[routes]\n10.20.0.0/16 = 172.16.0.254\n")
    assert routed.once(NICS + "[routes]\n10.20.0.0/16 = user\n").code == 0
    (shown,) = routed.neuca("show", "desired", "--json").json["routes"]
    assert (shown["to"], shown["via"], shown["state"]) == ("10.20.0.0/16", None, "user")


def test_a_route_through_a_network_that_the_user_set_up(routed):
    routed.once(NICS)
    routed.ip("address add 10.99.0.1/24 dev dp2")
    assert routed.once(NICS + "[routes]\n10.20.0.0/16 = 10.99.0.254\n").code == 0
    assert routed.routes("10.20.0.0/16") == [("10.99.0.254", "dp2", 20, "110")]


def test_a_route_whose_next_hop_is_nowhere_is_refused_and_costs_only_itself(routed):
    done = routed.once(
        NICS
        + "[routes]\n10.20.0.0/16 = 10.99.0.254\n10.21.0.0/16 = 172.16.0.254\n10.22.0.0/16 = 172.16.0.1\n"
    )
    assert done.code == 4
    assert len(routed.routes("10.21.0.0/16")) == 1
    assert routed.problems() == [
        (
            "refused",
            "route to 10.20.0.0/16: the next hop 10.99.0.254 is in no network of a dataplane NIC",
        ),
        ("refused", "route to 10.22.0.0/16: the next hop 172.16.0.1 is this host itself"),
    ]


def test_routes_come_back_when_a_nic_was_down_for_a_moment(routed):
    document = NICS + "[routes]\n10.20.0.0/16 = 172.16.0.254\n2001:db8:20::/48 = fd00:16::fe\n"
    routed.once(document)
    routed.ip("link set dp1 down")
    routed.ip("link set dp1 up")
    assert routed.routes("10.20.0.0/16") == []
    assert routed.once(document).code == 0
    assert len(routed.routes("10.20.0.0/16")) == len(routed.routes("2001:db8:20::/48", 6)) == 1
    assert routed.addresses("dp1") == {"172.16.0.1/24", "fd00:16::1/64"}


def shown(lab, words):
    """What `ip route show` prints of our routes, without what depends on the host."""
    return [
        " ".join(line.split())
        for line in lab.run("ip", *words.split(), "proto", "110").out.splitlines()
    ]


def test_the_same_prefix_on_two_nics_with_different_metrics(routed):
    lines = "10.20.0.0/16 = 172.16.0.254 metric 100\n10.20.0.0/16 = 172.17.0.254 metric 200\n"
    lines += (
        "2001:db8:20::/48 = fd00:16::fe metric 100\n2001:db8:20::/48 = fd00:17::fe metric 200\n"
    )
    assert routed.once(f"{NICS}[routes]\n{lines}").code == 0
    assert [(dev, metric) for _, dev, metric, _ in routed.routes("10.20.0.0/16")] == [
        ("dp1", 100),
        ("dp2", 200),
    ]
    assert [(dev, metric) for _, dev, metric, _ in routed.routes("2001:db8:20::/48", 6)] == [
        ("dp1", 100),
        ("dp2", 200),
    ]


def test_routes_of_every_form(routed):
    lines = f"""10.21.0.0/16 = blackhole
10.22.0.0/16 = unreachable metric 30
10.23.0.0/16 = prohibit
10.24.0.0/16 = interface {mac(1)}
10.25.0.0/16 = 198.51.100.1 on-link interface {mac(2)}
10.26.0.0/16 = 172.16.0.254, 172.17.0.254
10.27.0.0/16 = 172.16.0.254 mtu 1400 advmss 1300 src 172.16.0.1
2001:db8:21::/48 = blackhole
2001:db8:22::/48 = interface {mac(1)}
2001:db8:23::/48 = fe80::9 interface {mac(2)} mtu 1400
2001:db8:24::/48 = fd00:16::fe, fd00:17::fe
"""
    assert routed.once(f"{NICS}[routes]\n{lines}").code == 0
    assert shown(routed, "-4 route show") == [
        "blackhole 10.21.0.0/16 metric 20",
        "unreachable 10.22.0.0/16 metric 30",
        "prohibit 10.23.0.0/16 metric 20",
        "10.24.0.0/16 dev dp1 scope link metric 20",
        "10.25.0.0/16 via 198.51.100.1 dev dp2 metric 20 onlink",
        "10.26.0.0/16 metric 20",
        "nexthop via 172.16.0.254 dev dp1 weight 1",
        "nexthop via 172.17.0.254 dev dp2 weight 1",
        "10.27.0.0/16 via 172.16.0.254 dev dp1 src 172.16.0.1 metric 20 mtu 1400 advmss 1300",
    ]
    assert shown(routed, "-6 route show") == [
        "blackhole 2001:db8:21::/48 dev lo metric 20 pref medium",
        "2001:db8:22::/48 dev dp1 metric 20 pref medium",
        "2001:db8:23::/48 via fe80::9 dev dp2 metric 20 mtu 1400 pref medium",
        "2001:db8:24::/48 metric 20 pref medium",
        "nexthop via fd00:16::fe dev dp1 weight 1",
        "nexthop via fd00:17::fe dev dp2 weight 1",
    ]
    assert routed.plan() == []
    assert routed.once(NICS).code == 0
    assert (shown(routed, "-4 route show"), shown(routed, "-6 route show")) == ([], [])


def test_a_default_route_in_another_table_and_a_foreign_one_with_its_prefix(routed):
    routed.once(NICS)
    routed.ip("route add 10.20.0.0/16 via 172.17.0.99 dev dp2 table 100")
    lines = "0.0.0.0/0 = 172.16.0.254 table 100\n::/0 = fd00:16::fe table 70000\n"
    assert routed.once(f"{NICS}[routes]\n{lines}").code == 0
    assert shown(routed, "-4 route show table 100") == [
        "default via 172.16.0.254 dev dp1 metric 20"
    ]
    assert shown(routed, "-6 route show table 70000") == [
        "default via fd00:16::fe dev dp1 metric 20 pref medium"
    ]
    assert routed.once(NICS).code == 0
    assert len(routed.look("route show table 100")) == 1
