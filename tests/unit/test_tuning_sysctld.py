"""The administrator's own word on a sysctl, as sysctl.d(5) has it."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from pathlib import Path

import pytest

from neuca_tools.backends.hostfacts import _sysctl_files, existing, read
from neuca_tools.desired.marks import SYSCTL_FILE
from neuca_tools.tuning.choice import Choice
from neuca_tools.tuning.sysctld import OURS, of_command_line, of_tuned, order, parse

RMEM = "net/core/rmem_max"


def said(text, path=RMEM):
    word = parse([("a.conf", text)]).setting(path)
    return word and word.value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("net.core.rmem_max = 7\n", "7"),
        ("net/core/rmem_max=7", "7"),
        ("  -net.core.rmem_max =  7   8 ", "7 8"),
        ("# net.core.rmem_max = 7\n; net.core.rmem_max = 8", None),
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
    word = parse(
        [("10.conf", "net.core.rmem_max = 1"), ("20.conf", "net.core.rmem_max = 2")]
    ).setting(RMEM)
    assert (word.value, word.file) == ("2", "20.conf")


def test_the_order_is_that_of_names_and_a_file_hides_those_of_its_name():
    paths = ["/etc/sysctl.d/50-x.conf", "/run/sysctl.d/90-y.conf", "/usr/lib/sysctl.d/50-x.conf", "/usr/lib/sysctl.d/10-z.conf",
             "/etc/sysctl.conf"]  # fmt: skip
    assert order(paths) == [paths[3], paths[0], paths[1], paths[4]]


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


def host(tmp_path, **files):
    """The settings of a root directory with these files; `__` stands for a slash."""
    for name, text in files.items():
        path = tmp_path / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "etc/sysctl.d").mkdir(parents=True, exist_ok=True)
    return existing(tmp_path / "etc/sysctl.d").setting


BASE = "[main]\nsummary=x\n[sysctl]\nnet.core.rmem_max=1\nnet.core.wmem_max = 2\n"
CHILD = "[main]\ninclude=base\n[sysctl]\nenabled=1\nnet.core.rmem_max=>3\n[cpu]\nnet.x=4\n"


def tuned(tmp_path, active, **more):
    """The files of tuned with two profiles, of which `active` is in use."""
    (tmp_path / "usr/lib/tuned/child").mkdir(parents=True)
    (tmp_path / "usr/lib/tuned/child/tuned.conf").write_text(CHILD)
    (tmp_path / "usr/lib/tuned/base").mkdir()
    (tmp_path / "usr/lib/tuned/base/tuned.conf").write_text(BASE)
    return host(tmp_path, etc__tuned__active_profile=f"{active}\n", **more)


def test_the_active_profile_of_tuned_counts_with_what_it_includes(tmp_path):
    setting = tuned(tmp_path, "child")
    assert (setting(RMEM).value, setting("net/core/wmem_max").value) == ("3", "2")
    assert setting(RMEM).file == f"{tmp_path}/usr/lib/tuned/child/tuned.conf"
    assert setting("net/x") is None


def test_a_file_of_sysctl_d_wins_over_tuned_which_applies_it_again(tmp_path):
    (tmp_path / "etc/sysctl.d").mkdir(parents=True)
    (tmp_path / "etc/sysctl.d/60-cloud.conf").write_text("net.core.rmem_max = 9\n")
    assert tuned(tmp_path, "child")(RMEM).value == "9"


def test_of_several_active_profiles_the_last_wins(tmp_path):
    assert tuned(tmp_path, "child base")(RMEM).value == "1"


@pytest.mark.parametrize("active", ["", "gone", "../../etc", "loop", "base " * 1000])
def test_nothing_in_the_files_of_tuned_makes_the_reader_raise(tmp_path, active):
    (tmp_path / "etc/tuned/loop").mkdir(parents=True)
    (tmp_path / "etc/tuned/loop/tuned.conf").write_text("[main]\ninclude=loop loop\n\xff[\n=\n")
    tuned(tmp_path, active)


def test_the_kernel_command_line_sets_sysctls_too():
    words = of_command_line("/proc/cmdline", "ro sysctl.net.core.rmem_max=7 sysctl.x quiet")
    assert words.setting(RMEM) == ("7", "/proc/cmdline")


def test_a_profile_of_tuned_that_is_no_profile():
    assert of_tuned("x", "\0 = 1\nnonsense\n[sysctl\n=\n").include == ()


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
    found = read(Choice(profiles), tmp_path, directory, changed).facts.words.setting(RMEM)
    assert (found and found.value) == wanted
