"""Which sysctls of the whole host a document may set, and within which bounds."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from pathlib import Path

import pytest
from worlds import document, key, mac, nic, route, world

from neuca_tools.desired.resolve import Settings, resolve_state
from neuca_tools.model import LinkRequest, Record
from neuca_tools.tuning.allowed_sysctls import ALLOWED, HOST_WIDE, Words, key_reason, value_reason
from neuca_tools.tuning.profile import parse_profile

PROFILES = Path(__file__).parents[2] / "neuca_tools" / "profiles"
SOCKET = "less than 64 KiB stalls every socket of the host"
NEIGHBOURS = "less than the kernel's default leaves neighbors unreachable (arp(7))"


@pytest.mark.parametrize(("path", "value", "reason"), [
    ("net/ipv4/ip_default_ttl", "1", HOST_WIDE),
    ("net/ipv4/tcp_mem", "1 1 1", HOST_WIDE),
    ("net/ipv4/icmp_echo_ignore_all", "1", HOST_WIDE),
    ("net/ipv6/bindv6only", "1", HOST_WIDE),
    ("net/ipv4/neigh/default/base_reachable_time_ms", "1", HOST_WIDE),
    (
        "net/ipv4/tcp_rmem", "1 1 1",
        '"1" is not a number from 4096 to 1048576: a socket needs a page (ip-sysctl.rst)',
    ),
    (
        "net/ipv4/tcp_rmem", "4096 131072 1",
        '"1" is not a number from 65536 to 2147483647: a socket needs a page (ip-sysctl.rst)',
    ),
    ("net/ipv4/tcp_rmem", "4096", "numbers needed: 3, found: 1"),
    ("net/ipv4/tcp_rmem", "", "numbers needed: 3, found: 0"),
    ("net/core/rmem_max", "1 2", "numbers needed: 1, found: 2"),
    ("net/core/rmem_max", "-1", f'"-1" is not a number from 65536 to 2147483647: {SOCKET}'),
    ("net/core/rmem_max", "0x0", f'"0x0" is not a number from 65536 to 2147483647: {SOCKET}'),
    ("net/core/rmem_max", "٦٥٥٣٦", f'"٦٥٥٣٦" is not a number from 65536 to 2147483647: {SOCKET}'),
    (
        "net/ipv4/neigh/default/gc_thresh3", "0",
        f'"0" is not a number from 1024 to 1048576: {NEIGHBOURS}',
    ),
    (
        "net/netfilter/nf_conntrack_max", "1",
        '"1" is not a number from 65536 to 16777216: a full table drops every packet',
    ),
    (
        "net/core/default_qdisc", "noqueue",
        '"noqueue" is not one of fq, fq_codel, fq_pie, pfifo_fast, sfq, cake',
    ),
    ("net/core/rmem_max", "065536", f'"065536" is not a number from 65536 to 2147483647: {SOCKET}'),
    (
        "net/ipv4/neigh/default/gc_thresh3", "01024",
        f'"01024" is not a number from 1024 to 1048576: {NEIGHBOURS}',
    ),
    ("net/core/rmem_max", "0200000", None),
    ("net/core/rmem_max", "0x10000", None),
    ("net/core/rmem_max", "16777216", None),
    ("net/ipv4/tcp_rmem", "4096 131072 6291456", None),
    ("net/ipv4/neigh/default/gc_thresh3", "4096", None),
    ("net/ipv4/tcp_congestion_control", "bbr", None),
])  # fmt: skip
def test_a_value_for_the_whole_host_is_refused_for_this_reason(path, value, reason):
    assert value_reason(path, value) == reason


def test_no_key_of_the_list_is_one_that_is_refused_anyway():
    assert {key: key_reason(key) for key in ALLOWED if key_reason(key)} == {}


@pytest.mark.parametrize("name", sorted(path.stem for path in PROFILES.glob("*.conf")))
def test_a_document_may_ask_for_what_a_shipped_profile_sets(name):
    found = parse_profile(name, (PROFILES / f"{name}.conf").read_text())
    values = {
        path: value.replace("{buffer}", "6553600").replace("- -", "4096 131072")
        for path, value in found.sysctls.items()
    }
    assert {path: value_reason(path, value) for path, value in values.items()} == dict.fromkeys(
        values
    )


def test_bounds_are_in_order():
    rules = {path: rule for path, rule in ALLOWED.items() if not isinstance(rule, Words)}
    assert [path for path, rule in rules.items() if any(a > b for a, b in rule.bounds)] == []


def wanted(line, **more):
    """The host's sysctls and the problems of a document with this line."""
    seen = world(
        nic(1, up=True),
        nic(2),
        addresses={1: "192.0.2.10/24"},
        routes=[route("0.0.0.0/0", 1, "192.0.2.1")],
    )
    text = f"[interface {mac(2)}]\nsysctl.{line}\n"
    found = resolve_state(document(text), Settings(**more), seen, Record())
    return dict(found.desired.sysctls), [problem.text for problem in found.problems]


TTL = "net/ipv4/ip_default_ttl"


def test_an_unlisted_key_is_refused_unless_the_administrator_permits_it():
    assert wanted("net.ipv4.ip_default_ttl = 1") == (
        {},
        [f"sysctl net.ipv4.ip_default_ttl: {HOST_WIDE}"],
    )
    permitted = frozenset({TTL})
    assert wanted("net.ipv4.ip_default_ttl = 1", allow_sysctls=permitted) == ({TTL: "1"}, [])


def test_what_the_configuration_itself_asks_for_needs_no_permission():
    own = LinkRequest(key(2), sysctls=((TTL, "32"),))
    assert wanted("net.ipv4.ip_default_ttl = 1", links=(own,)) == ({TTL: "32"}, [])


def test_permission_does_not_extend_to_every_interface():
    path = "net/ipv4/conf/all/rp_filter"
    assert wanted("net.ipv4.conf.all.rp_filter = 1", allow_sysctls=frozenset({path})) == (
        {},
        ['sysctl net.ipv4.conf.all.rp_filter: it would change "all", not this interface alone'],
    )
