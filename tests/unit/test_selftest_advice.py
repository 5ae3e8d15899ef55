"""Advice: nothing is left to fill in, no value is lowered, and no rate is promised that was not measured."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from selftest_runs import PUBLISHED, diagnose, flow_of, receiver, tcp
from test_selftest_conditions import CASES, SIGNATURES, counted
from test_selftest_faults import DATA

from neuca_tools.selftest.conditions.base import Hit
from neuca_tools.selftest.diagnosis.advice import never_lower
from neuca_tools.selftest.diagnosis.diagnose import PhaseResult
from neuca_tools.selftest.evidence import Evidence, Host, Link, PathMtu
from neuca_tools.selftest.evidence.run import Connection
from neuca_tools.selftest.readers.documents import evidence_of
from neuca_tools.selftest.report.text import phase_words, report_text

EVERY = {
    **CASES,
    **{name: case[0] for name, case in SIGNATURES.items()},
    **{name: evidence_of(content) for name, content in PUBLISHED.items()},
    **{path.stem: evidence_of(path.read_bytes()) for path in sorted(DATA.iterdir())},
}
# What people have to fill in: words in capitals that are no names, "<…>" and "…".
NAMES = frozenset(
    "ARP BBR CPU CPUs CUBIC ECMP GID ICMP IP MAC MSS MTU ND NIC RDMA SO_RCVBUF SO_SNDBUF TCP UDP VLAN".split()
)
PLACEHOLDER = re.compile(r"\b[A-Z_]{2,}\b|\b[A-Z]\b|<\w+>|…|\.\.\.")


def placeholders(advice: str) -> set[str]:
    words = re.sub(r"(?<![\w-])-+\w+|\d+[KMG]\b", "", advice)  # options and amounts
    return set(PLACEHOLDER.findall(words)) - NAMES


@pytest.mark.parametrize("name", EVERY)
def test_nothing_is_left_to_fill_in(name):
    for finding in diagnose(EVERY[name]).findings:
        assert placeholders(finding.advice) == set(), finding.advice
        assert placeholders(re.sub(r"D\d\d", "", finding.tell or "")) == set()


@pytest.mark.parametrize(
    "advice", ["ethtool -K DEV tso on", "fq maxrate RATE", "rx MAX", "-L x combined N", "ping …"]
)
def test_what_is_left_to_fill_in_is_seen(advice):
    assert placeholders(advice)


# --- Values that hosts have already ------------------------------------------------------------------------------------

RMEM = "net.ipv4.tcp_rmem"


def advised(present: str | None) -> tuple[dict[str, str], str]:
    host = Host(sysctls={} if present is None else {RMEM: present})
    hit = never_lower(Hit(1.0, "", sysctls={RMEM: "4096 131072 8388608"}), [host])
    return dict(hit.sysctls), hit.advice


@pytest.mark.parametrize(
    ("present", "value"),
    [
        ("4096\t131072\t6291456", "4096 131072 8388608"),
        ("4096 262144 6291456", "4096 262144 8388608"),  # each number by itself
        ("8192 131072 6291456", "8192 131072 8388608"),
        ("odd", "4096 131072 8388608"),
    ],
)
def test_a_value_is_only_raised(present, value):
    assert advised(present) == ({RMEM: value}, "")


def test_a_value_that_is_larger_already_is_not_advised():
    sysctls, advice = advised("4096 131072 33554432")
    assert sysctls == {}
    assert advice == (
        "net.ipv4.tcp_rmem: already as large as this needs; look for a program that sets its own "
        "buffer (SO_RCVBUF, SO_SNDBUF, -w), and for memory pressure (tcp_mem)"
    )


def test_a_value_that_is_not_known_may_be_larger():
    assert advised(None) == ({RMEM: "4096 131072 8388608"}, "keep values that are already larger")


def test_of_two_hosts_neither_is_lowered():
    hosts = [
        Host(sysctls={RMEM: value}) for value in ("4096 131072 16777216", "4096 131072 6291456")
    ]
    hit = never_lower(Hit(1.0, "", sysctls={RMEM: "4096 131072 8388608"}), hosts)
    assert hit.sysctls == {RMEM: "4096 131072 16777216"}


def test_a_range_of_ports_is_widened_at_both_ends():
    name = "net.ipv4.ip_local_port_range"
    hit = Hit(1.0, "", sysctls={name: "1024 65535"})
    assert never_lower(hit, [Host(sysctls={name: "32768 60999"})]).sysctls == {name: "1024 65535"}
    assert never_lower(hit, [Host(sysctls={name: "1000 65535"})]).sysctls == {}


def test_the_window_of_a_host_with_large_buffers_is_not_lowered():
    """The flow is limited by its window, though tcp_rmem allows more: a program has set its buffer."""
    evidence = tcp(
        flow_of(250e6, rwnd=0.8, snd_wnd=3_144_960, snd_cwnd=4000, unacked=2172, rtt=100_000),
        receiver(recv_q=0, rcvbuf=6_291_456),
        peer=Host(sysctls={RMEM: "4096 131072 268435456"}),
    )
    finding = diagnose(evidence).limit
    assert (finding.id, dict(finding.sysctls)) == ("D01", {})
    assert finding.advice.startswith("net.ipv4.tcp_rmem: already as large as this needs")


# --- Commands with the names of this test -----------------------------------------------------------------------------


def test_a_ring_is_advised_in_its_largest_size_where_that_is_known():
    evidence = EVERY["D11"]
    assert diagnose(evidence).findings[0].advice == (
        "a larger receive ring, if ethtool -g eth1 shows one (ethtool -G, which resets the link on "
        "many drivers); spread its interrupts over CPUs"
    )
    known = replace(evidence, peer=Host(links=(Link("eth1", rings={"rx": 512, "rx_max": 4096}),)))
    assert diagnose(known).findings[0].advice.startswith("ethtool -G eth1 rx 4096, ")


def test_the_route_is_that_to_this_peer():
    evidence = replace(EVERY["D29"], address="172.16.0.2")
    assert diagnose(evidence).findings[0].advice == (
        "check the route (ip route get 172.16.0.2), and make it leave through eth1, with the "
        "source address of that device"
    )


def test_a_policer_is_advised_with_a_rate_and_the_device():
    evidence = replace(EVERY["D17"], local=Host(planned="eth1"))
    assert diagnose(evidence).findings[0].advice == (
        "ask for a shaper; on the sender, iperf3 --fq-rate 91865K, or tc qdisc replace dev eth1 "
        "root fq maxrate 91865kbit"
    )


@pytest.mark.parametrize(
    ("mtu", "datagram", "remote", "advice"),
    [
        (1500, 1460, "192.0.2.9", "more streams"),
        (1500, 512, "192.0.2.9", "larger datagrams (-l 1472), more streams"),
        (9000, 1460, "192.0.2.9", "larger datagrams (-l 8972), more streams"),
        (9000, 1460, "2001:db8::9", "larger datagrams (-l 8952), more streams"),
        (9000, 8948, "192.0.2.9", "more streams"),
    ],
)
def test_larger_datagrams_are_advised_if_the_path_carries_them_whole(mtu, datagram, remote, advice):
    (phase,) = EVERY["D20"].phases
    run = replace(phase.run, datagram=datagram, connections=(Connection("", 1, remote, 5201),))
    evidence = Evidence(
        phases=(replace(phase, run=run),), local=Host(links=(Link("eth1", mtu=mtu),))
    )
    finding = diagnose(evidence).limit
    assert (finding.id, finding.advice.partition(" (-P)")[0]) == ("D20", advice)


def test_fragments_are_avoided_with_datagrams_of_the_size_of_the_path():
    evidence = replace(EVERY["D15"], path_mtu=PathMtu(9000, 9000))
    assert "iperf3 -l 8972" in diagnose(evidence).limit.advice


@pytest.mark.parametrize(
    ("forward", "backward", "words"),
    [
        (1400, 1500, "on this host: "),
        (1500, 1400, "on the peer: "),
        (1400, 1400, "on both hosts: "),
    ],
)
def test_the_host_that_sends_the_packets_that_vanish_is_to_probe(forward, backward, words):
    link = Host(links=(Link("eth1", mtu=1500),))
    mtus = PathMtu(forward, backward, False)
    evidence = Evidence(local=link, peer=link, path_mtu=mtus, address="2001:db8::9")
    fix = report_text(diagnose(evidence)).partition("\nFIX")[2].strip()
    assert fix.startswith(f"{words}sysctl -w net.ipv4.tcp_mtu_probing=1; ")
    assert 'ICMP "packet too big"' in fix


def test_one_of_something_is_singular():
    retransmit = PhaseResult("tcp", "forward", "tcp", 1e9, None, 1, None)
    assert phase_words(retransmit) == "1.00 Gbit/s, 1 retransmit"
    texts = [finding.text for finding in diagnose(counted(softnet__dropped=1)).findings]
    assert "the receiver's backlog queue overflowed: 1 packet" in texts


def test_only_buffers_that_are_large_enough_raise_the_question_of_other_buffers():
    probing = {"net.ipv4.tcp_mtu_probing": "1"}
    evidence = tcp(
        flow_of(300e3, backoff=3, rtt=1000, min_rtt=900, snd_cwnd=1, unacked=1),
        local=Host(links=(Link("eth1", mtu=9000),), sysctls=probing),
        peer=Host(sysctls=probing),
        path_mtu=PathMtu(1500, 9000, False),
    )
    assert diagnose(evidence).findings[0].advice == (
        "net.ipv4.tcp_mtu_probing: already as large as this needs; set the MTU of the path, or let "
        'ICMP "fragmentation needed" through'
    )
