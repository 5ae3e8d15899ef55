"""The administrator's own word on a sysctl, as sysctl.d(5) has it."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
from pathlib import Path

import pytest

from neuca_tools.backends import hostfacts
from neuca_tools.backends.hostfacts import _sysctl_files, read_tuning_inputs
from neuca_tools.desired.marks import SYSCTL_FILE
from neuca_tools.model import Device, World
from neuca_tools.tuning.choice import Choice
from neuca_tools.tuning.sysctld import OURS, order_files, parse_files

RMEM = "net/core/rmem_max"


def said(text, path=RMEM):
    word = parse_files([("a.conf", text)]).setting(path)
    return word and word.value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("net.core.rmem_max = 7\n", "7"),
        ("net/core/rmem_max=7", "7"),
        ("  -net.core.rmem_max =  7   8 ", "7 8"),
        ("# net.core.rmem_max = 7\n; net.core.rmem_max = 8", None),
        ("# copied\u2028net.core.rmem_max = 7", None),
        ("net.core.rmem_max = 7\nnet.core.rmem_max = 8", "8"),
        ("net.core.* = 9", "9"),
        ("net.core.rmem_max = 7\nnet.core.* = 9", "7"),
        ("net.core.* = 9\n-net.core.rmem_max", None),
        ("net.core.wmem_max = 7\nnonsense\n=\n", None),
    ],
)
def test_what_a_file_says(text, expected):
    assert said(text) == expected


def test_a_vlan_keeps_the_dot_of_its_name():
    assert said("net/ipv4/conf/eth1.7/rp_filter = 2", "net/ipv4/conf/eth1.7/rp_filter") == "2"
    assert said("net.ipv4.conf.eth1/7.rp_filter = 2", "net/ipv4/conf/eth1.7/rp_filter") == "2"


def test_the_last_file_in_order_wins_and_is_named():
    word = parse_files(
        [("10.conf", "net.core.rmem_max = 1"), ("20.conf", "net.core.rmem_max = 2")]
    ).setting(RMEM)
    assert (word.value, word.file) == ("2", "20.conf")


def test_the_order_is_that_of_names_and_a_file_hides_those_of_its_name():
    paths = ["/etc/sysctl.d/50-x.conf", "/run/sysctl.d/90-y.conf", "/usr/lib/sysctl.d/50-x.conf", "/usr/lib/sysctl.d/10-z.conf",
             "/etc/sysctl.conf"]  # fmt: skip
    assert order_files(paths) == [paths[3], paths[0], paths[1], paths[4]]


def test_a_file_of_sysctl_d_hides_not_the_one_that_is_read_last():
    paths = ["/etc/sysctl.d/sysctl.conf", "/usr/lib/sysctl.d/z.conf", "/etc/sysctl.conf"]
    assert order_files(paths) == paths


def test_the_files_of_a_host(tmp_path):
    for name, text in {
        "etc/sysctl.d/50-x.conf": "a=1",
        "usr/lib/sysctl.d/50-x.conf": "a=2",
        "usr/lib/sysctl.d/10-y.conf": "a=3",
        "etc/sysctl.conf": "a=4",
        f"etc/sysctl.d/{SYSCTL_FILE}": "a=5",
        "etc/sysctl.d/README": "a=6",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "run/sysctl.d").mkdir(parents=True)
    (tmp_path / "run/sysctl.d/10-y.conf").symlink_to("/dev/null")  # masks the one in /usr/lib
    found = _sysctl_files(tmp_path / "etc/sysctl.d")
    assert [(Path(path).relative_to(tmp_path).as_posix(), text) for path, text in found] == [
        ("etc/sysctl.d/50-x.conf", "a=1"), ("etc/sysctl.conf", "a=4")]  # fmt: skip
    assert OURS == SYSCTL_FILE


@pytest.mark.parametrize(
    ("profiles", "changed", "wanted"),
    [((), (), None), ((), (RMEM,), "7"), (("dataplane",), (), "7")],
)
def test_the_files_are_read_only_where_a_sysctl_may_be_set(tmp_path, profiles, changed, wanted):
    directory = tmp_path / "etc" / "sysctl.d"
    directory.mkdir(parents=True)
    (directory / "10-own.conf").write_text("net.core.rmem_max = 7\n")
    profile = tmp_path / "dataplane.conf"
    profile.write_text("[sysctl]\nnet.core.rmem_max = 9\n")
    found = read_tuning_inputs(
        Choice(profiles), tmp_path, directory, changed
    ).facts.file_settings.setting(RMEM)
    assert (found and found.value) == wanted


@pytest.mark.parametrize(
    ("sysctl", "modules"),
    [("net.ipv4.tcp_congestion_control = bbr", {"bbr"}), ("net.core.rmem_max = 9", None)],
)
def test_the_modules_of_the_kernel_are_read_for_a_congestion_control(
    tmp_path, monkeypatch, sysctl, modules
):
    monkeypatch.setattr(hostfacts, "MODULES", tmp_path)
    dependencies = tmp_path / os.uname().release / "modules.dep"
    dependencies.parent.mkdir()
    dependencies.write_text("kernel/net/ipv4/tcp_bbr.ko.xz:\nkernel/net/sched/sch_fq.ko:\n")
    (tmp_path / "own.conf").write_text(f"[sysctl]\n{sysctl}\n")
    assert read_tuning_inputs(Choice(("own",)), tmp_path, tmp_path).facts.modules == modules


def test_a_long_file_is_read_to_its_end(tmp_path):
    directory = tmp_path / "etc/sysctl.d"
    directory.mkdir(parents=True)
    filler = "# filler\n" * 200_000
    (directory / "long.conf").write_text(f"{filler}net.core.rmem_max = 7\n")
    assert hostfacts.existing_sysctl_settings(directory).setting(RMEM).value == "7"


def test_what_advertisements_may_set_is_as_a_file_says_or_as_of_a_new_device(tmp_path, monkeypatch):
    monkeypatch.setattr(hostfacts.sysctl, "ROOT", tmp_path / "none")
    directory = tmp_path / "etc/sysctl.d"
    directory.mkdir(parents=True)
    (directory / "own.conf").write_text(
        "net.ipv6.conf.lo.hop_limit = 70\nnet.ipv6.neigh.lo.gc_stale_time = soon\n"
    )
    now = {
        f"net/ipv6/{name}": "9"
        for name in (
            "conf/lo/hop_limit",
            "conf/lo/mtu",
            "neigh/lo/gc_stale_time",
            "neigh/lo/retrans_time_ms",
            "conf/lo/accept_ra",
        )
    }
    world = World(devices={1: Device(1, "lo", mtu=1400)})
    assert hostfacts.values_without_advertisements(world, now, directory) == {
        "net/ipv6/conf/lo/hop_limit": "70",
        "net/ipv6/conf/lo/mtu": "1400",
        "net/ipv6/neigh/lo/gc_stale_time": "60",
        "net/ipv6/neigh/lo/retrans_time_ms": "1000",
    }
