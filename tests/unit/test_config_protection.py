"""Options that protect: what is misspelled, misplaced or unusable stops new configuration."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest

from neuca_tools.config import load_config
from neuca_tools.errors import ConfigError

MAC, OTHER = "02:00:00:00:00:01", "02:00:00:00:00:02"
MANAGEMENT = "did you mean [network] management-macs?"
EITHER = "did you mean [runtime] dataplane-macs-to-ignore or [network] management-macs?"
IGNORED = "did you mean [runtime] dataplane-macs-to-ignore?"


@pytest.fixture
def config(tmp_path):
    def write(text):
        (tmp_path / "config").write_text(text)
        return load_config(tmp_path / "config")

    return write


@pytest.mark.parametrize(
    ("text", "line", "meant"),
    [
        (f"[runtime]\nmanagement-macs = {MAC}", 2, MANAGEMENT),
        (f"[network]\n\nmanagment-mac = {MAC}", 3, MANAGEMENT),
        (f"[network]\nmanagement_macs = {MAC}", 2, MANAGEMENT),
        (f"[network]\nmanagement-macs {MAC}", 2, MANAGEMENT),
        ("[network]\nmanagement-macs 020000000001", 2, MANAGEMENT),
        ("[runtime]\nstate-directory = /x\n\ndataplane-macs-to-ignore", 4, IGNORED),
        (f"[runtime\ndataplane-macs-to-ignore = {MAC}", 2, IGNORED),
        (f"[runtime]\nnics-not-to-touch: {MAC}, {OTHER}", 2, EITHER),
        (f"management-macs = {MAC}\n[network]", 1, MANAGEMENT),
        (f"[netwrk]\nmanagement-macs = {MAC}", 2, MANAGEMENT),
        (f"[selftest]\nmanagement-macs = {MAC}", 2, MANAGEMENT),
        (f"[interface {MAC}]\nmanagement-macs = {MAC}", 2, MANAGEMENT),
        (f"[network]\ndataplane-macs-to-ignore: {MAC}", 2, IGNORED),
        (f"[runtime]\ndataplane-mac-to-ignor = {MAC}", 2, IGNORED),
        ("[metadata]\nsource = none", 2, "did you mean [metadata] sources?"),
        ("[runtime]\nsources = none", 2, "did you mean [metadata] sources?"),
        ("[guest]\nscript = no", 2, "did you mean [guest] scripts?"),
        ("[global]\nusers = no", 2, "did you mean [guest] users?"),
        ("[network]\nmanagers = none", 2, "did you mean [linux] managers?"),
        ("[guest] users = no", 1, "did you mean [guest] users?"),
        (f"[network] management-macs={MAC}", 1, MANAGEMENT),
    ],
)
def test_a_misspelled_or_misplaced_one_stops_and_says_what_was_meant(config, text, line, meant):
    faults = [fault for fault in config(text).faults if fault.stops]
    assert [fault.severity for fault in faults] == ["error"]
    assert f"line {line}: " in faults[0].text
    assert faults[0].text.endswith(meant)
    with pytest.raises(ConfigError, match="nothing new is configured until this is corrected"):
        config(text).demand_protection()


@pytest.mark.parametrize(
    "text",
    [
        f"[network]\nmanagement-macs = {MAC}, zz",
        "[runtime]\ndataplane-macs-to-ignore = 02:00",
        f"[network]\nmanagement-macs = {MAC}\nmanagement-macs = {OTHER}",
        f"[network]\nmanagement-macs = {MAC}\n  [runtime]\nmanagement-macs = {OTHER}",
        f"[network]\nmanagement-macs = {MAC}\n[ network]\nmanagement-macs = {OTHER}",
        f"[network]\ndrift = report\n  management-macs = {MAC}\ndrift = enforce",
        "[metadata]\nsources = nowhere",
        "[guest]\nscripts = nein",
        "[linux]\nmanagers = nnoe",
    ],
)
def test_an_unusable_or_repeated_value_stops(config, text):
    with pytest.raises(ConfigError, match="nothing new"):
        config(text).demand_protection()


@pytest.mark.parametrize(
    "text",
    [
        f"[network]\nmanagement-macs = {MAC}\n[runtime]\ndataplane-macs-to-ignore = {OTHER}",
        "[runtime]\nstate-dir = /x\ncolour = red\ntimeout = 3",
        "[selftest]\npeers = 192.0.2.1\nrouter = x\nhostname = y",
        f"[interface {MAC}]\nmtu = x\nrouters = 3",
        "[network]\nallow-default-route = perhaps",
        "[metadata]\npoll-interval = 0",
        "[guest]\nscript-timeot = 5",
        "[guest]\n# copied\u2028users = no\nusers = yes",
    ],
)
def test_what_protects_nothing_does_not_stop(config, text):
    config(text).demand_protection()


# Without them, more is changed or believed than the administrator permits (neuca-config(5)).
PROTECTIVE = [
    ("linux", "managers", "none"),
    ("metadata", "sources", "none"),
    ("guest", "hostname", "no"),
    ("guest", "router", "no"),
    ("guest", "users", "no"),
    ("guest", "storage", "no"),
    ("guest", "scripts", "no"),
]


@pytest.mark.parametrize(("section", "option", "value"), PROTECTIVE)
def test_each_of_them_stops_if_its_last_letter_is_left_out_or_it_is_repeated(config, section, option, value):  # fmt: skip
    config(f"[{section}]\n{option} = {value}\n").demand_protection()
    for lines in (f"{option[:-1]} = {value}\n", f"{option} = {value}\n" * 2):
        with pytest.raises(ConfigError, match="nothing new"):
            config(f"[{section}]\n{lines}").demand_protection()


def test_a_later_file_may_set_a_list_again(config, tmp_path):
    (tmp_path / "config.d").mkdir()
    (tmp_path / "config.d" / "a.conf").write_text(f"[network]\nmanagement-macs = {OTHER}\n")
    loaded = config(f"[network]\nmanagement-macs = {MAC}\n")
    loaded.demand_protection()
    assert loaded.management_macs == {OTHER}


def test_a_colon_separates_option_and_value_as_in_version_1_7(config):
    loaded = config(f"[runtime]\ndataplane-macs-to-ignore: {MAC}, {OTHER} ; two\npid-file : x\n")
    assert (loaded.ignored_macs, loaded.pid_file, loaded.faults) == ({MAC, OTHER}, "x", ())


def test_an_indented_option_that_protects_is_not_lost_in_the_value_above(config):
    loaded = config(f"[network]\ndrift = report\n  management-macs: {MAC}")
    text = "it is indented, so it is part of the value above; " + MANAGEMENT
    assert [fault.text.partition(": ")[2] for fault in loaded.faults if fault.stops] == [
        f'"management-macs": {text}'
    ]
    with pytest.raises(ConfigError, match="nothing new"):
        loaded.demand_protection()


def test_remarks_are_comments_as_in_version_1_7(config):
    loaded = config(f"[runtime]\nrem data = plane\nREM\ndataplane-macs-to-ignore = {MAC}")
    assert (loaded.ignored_macs, loaded.faults) == ({MAC}, ())
