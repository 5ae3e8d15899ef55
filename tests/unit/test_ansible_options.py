"""What the Ansible collection writes: its options are those of the product, and no value becomes another option."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import importlib.util
from pathlib import Path

import ansible_options
import pytest

from neuca_tools.config import Config, load_config
from neuca_tools.config.options import MAC_LISTS, OPTIONS
from neuca_tools.documents.privacy import LINK_KINDS
from neuca_tools.errors import EXIT_INVALID
from neuca_tools.status.judge import EXIT_CODES

ROOT = Path(__file__).parents[2]


def _module(path: Path):
    loaded = importlib.util.spec_from_file_location(f"collection_{path.stem}", path)
    module = importlib.util.module_from_spec(loaded)
    loaded.loader.exec_module(module)
    return module


neuca = _module(ROOT / "ansible" / "plugins" / "module_utils" / "neuca.py")


def test_the_argument_specification_is_current():
    assert ansible_options.SPECIFICATION.read_text() == ansible_options.specification()


def test_the_documentation_of_the_options_is_current():
    assert ansible_options.DOCUMENTATION.read_text() == ansible_options.documentation()


def test_every_exit_code_of_a_state_comes_with_data():
    assert set(neuca.SHOWN) == {*EXIT_CODES.values(), EXIT_INVALID}


def test_every_option_of_the_product_is_there():
    written = ansible_options.options()
    assert {(section, name) for section in written for name in written[section]} >= {
        *OPTIONS,
        *MAC_LISTS,
    }


def test_booleans_of_a_link_are_the_words_of_a_document():
    settings = {"dhcp4": True, "accept-ra": False}
    text = neuca.configuration({}, [{"section": "bridge br0", "settings": settings}])
    assert text.endswith("\n[bridge br0]\ndhcp4 = yes\naccept-ra = no\n")


def test_an_option_that_takes_a_path_or_a_name_has_no_fixed_choices():
    linux = ansible_options.options()["linux"]
    assert linux["dhcp-client"] == {"type": "str"}
    assert linux["managers"]["choices"] == ["auto", "none"]


def test_options_that_are_written_are_read_back(tmp_path):
    options = {
        "network": {
            "management_macs": ["fe:16:3e:00:6d:ae", "fe:16:3e:00:6d:b0"],
            "allow_default_route": True,
            "drift": None,
        },
        "metadata": {"timeout": 0.1, "poll_interval": 86400.0, "sources": ["none"]},
        "linux": {"data_udev_priority": 12},
        "logging": None,
    }
    settings = {"addresses": ["172.16.0.1/24", "fd00::1/64"], "mtu": 9000}
    nic = {"section": "interface fe:16:3e:00:6d:af", "settings": settings}
    text = neuca.configuration(options, [nic])
    assert text == (
        "# Written by Ansible (neuca.guest.config), which replaces the whole file.\n"
        "\n[linux]\ndata-udev-priority = 12\n"
        "\n[metadata]\npoll-interval = 86400\nsources = none\ntimeout = 0.1\n"
        "\n[network]\nallow-default-route = true\n"
        "management-macs = fe:16:3e:00:6d:ae, fe:16:3e:00:6d:b0\n"
        "\n[interface fe:16:3e:00:6d:af]\naddresses = 172.16.0.1/24, fd00::1/64\nmtu = 9000\n"
    )
    (tmp_path / "config").write_text(text)
    config = load_config(tmp_path / "config")
    assert config.faults == ()
    assert (config.timeout, config.poll_interval, config.allow_default_route) == (
        0.1,
        86400.0,
        True,
    )
    assert config.management_macs == {"fe:16:3e:00:6d:ae", "fe:16:3e:00:6d:b0"}
    assert [link.mtu for link in config.links] == [9000]


def test_an_empty_list_overrides_an_earlier_file(tmp_path):
    (tmp_path / "config.d").mkdir()
    (tmp_path / "config").write_text("[network]\nmanagement-macs = fe:16:3e:00:6d:ae\n")
    text = neuca.configuration({"network": {"management_macs": []}}, [])
    (tmp_path / "config.d" / "50-ansible.conf").write_text(text)
    assert load_config(tmp_path / "config").management_macs == frozenset()


@pytest.mark.parametrize(
    "value",
    ["info\n[network]\nallow-default-route = true", "info\r", "info ; comment", "; info", "#", "a\x1b[2J", "\x85"],
)  # fmt: skip
def test_a_value_that_would_be_more_than_a_value_is_refused(value):
    with pytest.raises(
        neuca.UnusableError,
        match=r'"log-level" has a value that a configuration file cannot hold',
    ):
        neuca.configuration({"logging": {"log_level": value}}, [])


@pytest.mark.parametrize("kind", LINK_KINDS)
def test_a_section_of_each_kind_of_link_is_written(kind):
    assert f"[{kind} x]" in neuca.configuration({}, [{"section": f"{kind} x", "settings": {}}])


@pytest.mark.parametrize(
    "section", ["runtime", "interface a]\n[x", "interface", "interface  a", "x a"]
)
def test_a_section_that_is_not_of_a_link_is_refused(section):
    with pytest.raises(neuca.UnusableError, match="is not the section of a link"):
        neuca.configuration({}, [{"section": section, "settings": {}}])


@pytest.mark.parametrize("name", ["", "a b", "a=b", "[x]", "#a", "a\nb", ";a"])
def test_a_name_that_would_be_more_than_a_name_is_refused(name):
    link = {"section": "interface fe:16:3e:00:6d:af", "settings": {name: "1"}}
    with pytest.raises(neuca.UnusableError, match="is not the name of an option"):
        neuca.configuration({}, [link])


def test_a_value_that_is_a_structure_is_refused():
    link = {"section": "interface fe:16:3e:00:6d:af", "settings": {"mtu": {"a": 1}}}
    with pytest.raises(neuca.UnusableError, match="a value is dict, not text, a number or a list"):
        neuca.configuration({}, [link])


@pytest.mark.parametrize("where", [*OPTIONS, *MAC_LISTS], ids=" ".join)
def test_every_default_can_be_written(where, tmp_path):
    section, option = where
    name = OPTIONS[where][0] if where in OPTIONS else MAC_LISTS[where]
    value = getattr(Config(), name)
    if isinstance(value, (tuple, frozenset)):
        value = list(value)
    elif value is not None and not isinstance(value, (bool, int, float)):
        value = str(value)
    (tmp_path / "config").write_text(
        neuca.configuration({section: {option.replace("-", "_"): value}}, [])
    )
    config = load_config(tmp_path / "config")
    assert (config.faults, getattr(config, name)) == ((), getattr(Config(), name))
