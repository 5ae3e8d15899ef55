"""Profiles as files: what those shipped say, how one's own is read, and what raising a value means."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import LAWS

from neuca_tools.backends.hostfacts import SHIPPED, read_tuning_inputs
from neuca_tools.documents.neuca.values import UnusableError
from neuca_tools.model import OWN
from neuca_tools.tuning import arithmetic
from neuca_tools.tuning.choice import Choice
from neuca_tools.tuning.profile import Profile, parse_profile, raised_value
from neuca_tools.tuning.sysctl_values import is_same_sysctl

# Appendix A of "Lies, damn lies, and iperf".
APPENDIX_A = """\
net.core.rmem_max = 16777216
net.core.wmem_max = 16777216
net.core.rmem_default = 16777216
net.core.wmem_default = 16777216
net.ipv4.tcp_rmem = 4096 87380 16777216
net.ipv4.tcp_wmem = 4096 65536 16777216
net.core.netdev_max_backlog = 30000
net.ipv4.tcp_congestion_control = htcp
net.ipv4.tcp_mtu_probing = 1
"""
NAMES = ("auto", "bdp", "exogeni", "low-latency", "many-peers", "none")


def shipped(name):
    return parse_profile(name, (SHIPPED / f"{name}.conf").read_text())


def test_these_profiles_are_shipped():
    assert tuple(sorted(path.stem for path in SHIPPED.iterdir())) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_profile_can_be_read_whole_and_lowers_nothing(name):
    profile = shipped(name)
    assert (profile.faults, profile.needs_path) == ((), name == "bdp")


def test_exogeni_has_the_nine_sysctls_of_the_article_word_for_word():
    assert APPENDIX_A in (SHIPPED / "exogeni.conf").read_text()
    profile = shipped("exogeni")
    assert (len(profile.sysctls), profile.mtu, profile.txqueuelen) == (9, 9000, 10000)


def test_auto_sets_only_what_the_manual_page_has_a_measurement_for():
    page = (Path(__file__).parents[2] / "docs" / "man" / "neuca-profile.5").read_text()
    table = page.partition(".Ss What auto sets")[2].partition(".Ss ")[0]
    profile = shipped("auto")
    documented = set(re.findall(r"^\.It Ql (net\.\S+)", table, re.MULTILINE))
    assert documented == {path.replace("/", ".") for path in profile.sysctls}
    assert (profile.mtu, profile.txqueuelen) == (None, None)
    assert len(re.findall(r"make bench-tuning", table)) == 1


def test_many_peers_has_the_neighbour_tables_of_both_families():
    sysctls = shipped("many-peers").sysctls
    assert [sysctls[f"net/{family}/neigh/default/gc_thresh3"] for family in ("ipv4", "ipv6")] == [
        "4096",
        "4096",
    ]
    assert sysctls["net/core/netdev_max_backlog"] == "10000"


def test_none_asks_for_nothing():
    assert (shipped("none").sysctls, shipped("none").mtu) == ({}, None)


def test_a_profile_of_ones_own():
    profile = parse_profile(
        "site",
        "; mine\u2028mtu = 1\n[Sysctl]\nnet/core/rmem_max=7\n[link]\nMTU = 9200\n",
    )
    assert (profile.sysctls, profile.mtu, profile.txqueuelen) == (
        {"net/core/rmem_max": "7"},
        9200,
        None,
    )
    assert profile.faults == ()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("[sysctl]\nnonsense", '"nonsense" is not a setting here'),
        ("[sysctl]\nkernel.panic = 1", 'the sysctl key "kernel.panic" is not below "net."'),
        (
            "[sysctl]\nnet.ipv4.conf.all.rp_filter = 1",
            'sysctl "net.ipv4.conf.all.rp_filter": it would change "all", not this interface alone',
        ),
        (
            "[sysctl]\nnet.ipv4.ip_forward = 1",
            'sysctl "net.ipv4.ip_forward": it changes every interface; use router in [global]',
        ),
        (
            "[sysctl]\nnet.ipv4.conf.{interface}.rp_filter = 1",
            f'sysctl "net.ipv4.conf.{OWN}.rp_filter": settings of one interface belong in its own section of the configuration',
        ),
        (
            "[sysctl]\nnet.core.rmem_max =",
            '"" is not a value; comments have lines of their own',
        ),
        (
            "[sysctl]\nnet.core.rmem_max = 300000 # bytes",
            '"300000 # bytes" is not a value; comments have lines of their own',
        ),
        (
            "[sysctl]\nnet.core.rmem_max = 300000; bytes",
            '"300000; bytes" is not a value; comments have lines of their own',
        ),
        ("[link]\nmtu = 9", 'the MTU "9" is not a number from 68 to 65535'),
        ("[link]\nrings = 9", '"rings" is not a setting here'),
        ("[profile]\nexact = yes", '"exact" is not a setting here'),
    ],
)
def test_a_line_that_cannot_be_used_costs_only_itself(line, reason):
    profile = parse_profile("site", f"{line}\n[sysctl]\nnet.core.wmem_max = 1\n")
    assert profile.faults == (f'profile "site", line 2: {reason}, ignoring it',)
    assert profile.sysctls == {"net/core/wmem_max": "1"}


def read_profiles(directory, *names):
    inputs = read_tuning_inputs(Choice(names), directory, directory)
    return inputs.profiles, inputs.missing


def test_a_profile_may_begin_with_a_byte_order_mark(tmp_path):
    (tmp_path / "site.conf").write_bytes(b"\xef\xbb\xbf[link]\r\nmtu = 9200\r\n")
    assert read_profiles(tmp_path, "site") == ((Profile("site", mtu=9200),), ())


def test_one_that_cannot_be_read_is_not_replaced_by_that_of_the_package(tmp_path):
    file = tmp_path / "auto.conf"
    file.mkdir()
    assert read_profiles(tmp_path, "auto", "none") == (
        (Profile("none"),),
        (f'profile "auto": cannot read "{file}": Is a directory',),
    )


@given(st.text(max_size=400))
@LAWS
def test_no_text_makes_the_reader_raise(text):
    assert parse_profile("site", text).name == "site"


NUMBERS = st.lists(st.integers(0, 2**31), min_size=1, max_size=4)


@given(NUMBERS, NUMBERS)
@LAWS
def test_no_number_is_lowered_and_raising_twice_changes_nothing(before, asked):
    asked = (asked * 4)[: len(before)]
    base, wanted = " ".join(map(str, before)), " ".join(map(str, asked))
    once = raised_value(base, wanted)
    assert all(
        new >= old and new >= least
        for new, old, least in zip(map(int, once.split()), before, asked)
    )
    assert is_same_sysctl("net/x", raised_value(once, wanted), once)


@pytest.mark.parametrize(
    ("base", "asked", "expected"),
    [
        ("6 5 4", "1 9 -", "6 9 4"),
        ("cubic", "htcp", "htcp"),
        (None, "5", "5"),
        ("1 2", "5", "5"),
        ("4096 16384", "0x800 0x8000", "4096 0x8000"),
        ("15", "-1", "15"),
        ("8", "07", "8"),
    ],
)
def test_raising(base, asked, expected):
    assert raised_value(base, asked) == expected


# --- arithmetic: the table of "Tuning knowledge", 3.1 ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "rtt", "expected"),
    [
        (6291456, 0.1, "252 Mbit/s"),
        (16777216, 0.05, "1.3 Gbit/s"),
        (16777216, 0.1, "671 Mbit/s"),
        (2**26, 0.01, "27 Gbit/s"),
    ],
)
def test_what_a_buffer_allows(size, rtt, expected):
    assert arithmetic.rate_text(arithmetic.allowed_rate(size, rtt)) == expected


def test_the_buffer_of_a_path_is_bounded_by_memory_and_by_the_kernel():
    assert arithmetic.needed_size(10e9, 0.1) == 2 * 1.25 * 125e6
    assert arithmetic.buffer_size(1e9, 0.1) == 31250000
    assert arithmetic.allowed_rate(arithmetic.buffer_size(1e9, 0.1), 0.1) == 1.25e9
    assert arithmetic.buffer_size(1e9, 0.1, memory=256 * 2**20) == 16 * 2**20
    assert arithmetic.buffer_size(1e12, 10) == 2**31 - 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [("10G", 10**10), ("10Gbit", 10**10), ("2.5 gbit/s", 25 * 10**8), ("64k", 64000)],
)
def test_a_rate(text, expected):
    assert arithmetic.parse_rate(text) == expected


@pytest.mark.parametrize(
    "text", ["", "10", "10GB", "64kbps", "-1G", "1e9", "0G", "99999T", "10 Gbit 5"]
)
def test_what_is_no_rate(text):
    with pytest.raises(UnusableError, match="is not a rate such as"):
        arithmetic.parse_rate(text)


@pytest.mark.parametrize(
    ("text", "expected"), [("50ms", 0.05), ("100 us", 0.0001), ("0.2s", 0.2), ("50MS", 0.05)]
)
def test_a_round_trip_time(text, expected):
    assert arithmetic.parse_rtt(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "50", "50m", "0s", "101s", "-1ms", "5 ns"])
def test_what_is_no_round_trip_time(text):
    with pytest.raises(UnusableError, match="is not a round-trip time such as"):
        arithmetic.parse_rtt(text)
