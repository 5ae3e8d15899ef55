"""What is asked of a device against what it has: maxima, words that stand for numbers, what was declined, the queue's length."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
import re
import socket
from itertools import chain
from pathlib import Path
from typing import get_args

import pytest
from worlds import key

from neuca_tools.apply import device_io
from neuca_tools.backends import ethtool
from neuca_tools.desired.device_settings import DeviceResolver, is_same, restorable_values, to_do
from neuca_tools.documents.neuca.link_settings import SETTINGS, Through, groups_through
from neuca_tools.model.device_settings import Declined, DeviceSettings

CPUS = DeviceSettings({"rps": "none"}, {"rps": "0-3", "rps.queues": "2"})


def wish(asked, has=None, declined=()):
    made = DeviceResolver(key(2), asked, has, dict(declined))
    made.resolve()
    return made.wanted, [(note.setting, note.effect, note.reason) for note in made.notes]


RINGS = DeviceSettings(
    {"rings.rx": "256"}, {"rings.rx": "1024"}, {"pause": "the driver has no pause"}
)


@pytest.mark.parametrize(
    ("asked", "wanted", "reasons"),
    [
        ({"rings.rx": "512"}, {"rings.rx": "512"}, []),
        ({"rings.rx": "max"}, {"rings.rx": "1024"}, []),
        (
            {"rings.rx": "2048"},
            {"rings.rx": "1024"},
            ["2048 requested, but the device supports at most 1024, which is set"],
        ),
        ({"rings.tx": "512"}, {}, ["the driver has no such setting"]),
        ({"pause.rx": "on"}, {}, ["the driver has no pause"]),
    ],
)
def test_what_the_driver_has(asked, wanted, reasons):
    (setting,) = asked
    assert wish(asked, RINGS) == (
        wanted,
        [(setting, "not applicable", reason) for reason in reasons],
    )


def test_what_is_fixed_as_it_is_asked_is_as_asked():
    has = DeviceSettings({"offloads.lro": "off"}, {}, {"offloads.lro": "it is fixed by the driver"})
    assert wish({"offloads.lro": "off"}, has) == ({"offloads.lro": "off"}, [])
    assert wish({"offloads.lro": "on"}, has) == (
        {},
        [("offloads.lro", "not applicable", "it is fixed by the driver")],
    )


@pytest.mark.parametrize(
    ("asked", "wanted", "reasons"),
    [
        ("all", "0-3", []),
        ("none", "none", []),
        ("0 / 1-2", "0 / 1-2", []),
        ("1 / 1", "1", []),
        ("all / none", "0-3 / none", []),
        ("0 / 1 / 2", None, ["3 lists of CPUs, but 2 queues"]),
        ("2-5", None, ["there is no CPU 4: the CPUs are 0-3"]),
    ],
)
def test_cpus_of_queues(asked, wanted, reasons):
    assert wish({"rps": asked}, CPUS) == (
        {"rps": wanted} if wanted else {},
        [("rps", "not applicable", one) for one in reasons],
    )


def test_what_was_declined_is_not_asked_for_again_but_another_value_is():
    declined = {"rings.rx": Declined("512", "not applicable", "Operation not supported")}
    note = ("rings.rx", "not applicable", '"512" was tried: Operation not supported')
    assert wish({"rings.rx": "512"}, RINGS, declined) == ({}, [note])
    assert wish({"rings.rx": "128"}, RINGS, declined) == ({"rings.rx": "128"}, [])


def test_of_a_link_that_is_not_there_yet_only_the_qdisc_is_known():
    assert wish({"qdisc": "fq", "rings.rx": "max", "offloads.tso": "off"}) == ({"qdisc": "fq"}, [])


@pytest.mark.parametrize(
    ("found", "wanted", "equal"),
    [
        ("default fq_codel", "fq_codel", True),
        ("fq_codel", "fq_codel", True),
        ("fq_codel", "default", False),
        ("default noop", "default", True),
        ("default", "default noqueue", True),
        ("fq maxrate 2gbit", "fq", False),
        (None, "fq", False),
    ],
)
def test_a_qdisc_of_the_kernels_own_choice_is_what_it_is_and_is_the_default(found, wanted, equal):
    assert is_same("qdisc", found, wanted) is equal


def test_each_group_of_settings_is_read_by_one_backend_and_an_unknown_one_by_none():
    groups = (*SETTINGS, "unknown")
    by_backend = {backend: groups_through(backend, groups) for backend in get_args(Through)}
    assert sorted(chain(*by_backend.values())) == sorted(SETTINGS)
    assert by_backend["qdisc"] == ["qdisc"]


def test_groups_are_set_whole_and_what_resets_queues_comes_first():
    wanted = {
        "rps": "0",
        "rings.tx": "9",
        "rings.rx": "8",
        "channels.rx": "2",
        "qdisc": "fq",
        "offloads.tso": "off",
    }
    found = {"rings.rx": "8", "rings.tx": "1", "offloads.tso": "off"}
    assert list(to_do(found, wanted)) == [
        ("channels", {}, {"channels.rx": "2"}),
        ("rings", {"rings.tx": "1"}, {"rings.tx": "9"}),
        ("qdisc", {}, {"qdisc": "fq"}),
        ("rps", {}, {"rps": "0"}),
    ]


def test_a_qdisc_that_cannot_be_made_again_goes_back_to_the_kernels_choice():
    assert restorable_values({"qdisc": "htb", "rings.rx": "1"}) == {
        "qdisc": "default",
        "rings.rx": "1",
    }
    assert restorable_values({"qdisc": "default mixed"}) == {"qdisc": "default mixed"}
    assert restorable_values({"qdisc": "pfifo limit 5"}) == {"qdisc": "pfifo limit 5"}


@pytest.mark.parametrize(
    ("asked", "found", "kind", "length", "qdisc", "reason"),
    [
        ({}, {}, "fq_codel", 10000, None, 'the qdisc is "fq_codel", which has a limit of its own'),
        ({}, {}, "noqueue", 10000, None, 'the qdisc is "noqueue", which has no queue'),
        (
            {},
            {"qdisc": "default fq_codel"},
            "mq",
            10000,
            None,
            'the qdisc is "fq_codel", which has a limit of its own',
        ),
        (
            {"qdisc": "fq maxrate 1gbit"},
            {},
            "mq",
            9,
            "fq maxrate 1gbit",
            'the qdisc is "fq", which has a limit of its own',
        ),
        ({}, {}, "pfifo_fast", 10000, None, None),
        ({}, {"qdisc": "pfifo limit 1000"}, "pfifo", 10000, "pfifo limit 10000", None),
        ({"qdisc": "pfifo"}, {}, "noqueue", None, "pfifo limit 500", None),
        ({"qdisc": "pfifo"}, {}, "noqueue", 10000, "pfifo limit 10000", None),
        ({"qdisc": "pfifo limit 7"}, {}, "noqueue", 10000, "pfifo limit 7", None),
    ],
)
def test_the_length_of_the_transmit_queue(asked, found, kind, length, qdisc, reason):
    made = DeviceResolver(key(2), asked, DeviceSettings(found), {})
    made.resolve()
    made.queue(length, length is not None, kind, 500)
    assert (made.wanted.get("qdisc"), [note.reason for note in made.notes]) == (
        qdisc,
        [reason] if reason else [],
    )


def test_a_pfifo_on_a_link_without_a_length_has_the_kernels():
    made = DeviceResolver(key(2), {"qdisc": "pfifo"}, None, {})
    made.resolve()
    made.queue(None, False, "noqueue", 0)
    assert made.wanted == {"qdisc": "pfifo limit 1000"}


def test_a_setting_that_the_kernel_lacks_is_unsupported():
    reason = "this kernel has no gro_flush_timeout"
    has = DeviceSettings(
        missing={"gro_flush_timeout": reason}, unsupported=frozenset({"gro_flush_timeout"})
    )
    assert wish({"gro_flush_timeout": "20000"}, has) == (
        {},
        [("gro_flush_timeout", "unsupported", reason)],
    )


def test_a_shortage_of_descriptors_is_no_device_without_settings(monkeypatch):
    def exhausted(*_):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket, "socket", exhausted)
    assert device_io._ethtool_settings(1, ()) == DeviceSettings()
    with pytest.raises(OSError, match="Too many open files"):
        device_io._ethtool_settings(1, ["pause"])


HEADERS = sorted(Path("/usr/include/linux").glob("ethtool_netlink*.h"))


@pytest.mark.skipif(not HEADERS, reason="the kernel's headers are not installed")
@pytest.mark.parametrize(
    ("group", "names"),
    [
        ("rings", "RX/RX_MAX TX/TX_MAX"),
        ("channels", "RX_COUNT/RX_MAX TX_COUNT/TX_MAX COMBINED_COUNT/COMBINED_MAX"),
        (
            "coalesce",
            "RX_USECS RX_MAX_FRAMES TX_USECS TX_MAX_FRAMES USE_ADAPTIVE_RX USE_ADAPTIVE_TX",
        ),
        ("pause", "AUTONEG RX TX"),
    ],
)
def test_a_group_has_the_numbers_of_the_kernels_headers(group, names):
    text = re.sub(r"(?s)/\*.*?\*/", "", "".join(header.read_text() for header in HEADERS))
    numbers = {}
    for values in re.findall(r"(?s)enum \w*\s*\{(.*?)\}", text):
        numbers.update((name, n) for n, name in enumerate(re.findall(r"(?m)^\s*(\w+),", values)))
    expected = []
    for name in names.split():
        value, _, maximum = (f"ETHTOOL_A_{group.upper()}_{word}" for word in name.partition("/"))
        is_switch = group == "pause" or name.startswith("USE_")
        expected.append((numbers[value], numbers.get(maximum, 0), is_switch))
    assert ethtool.GET[group] == numbers[f"ETHTOOL_MSG_{group.upper()}_GET"]
    assert list(map(tuple, ethtool.FIELDS[group].values())) == expected
