"""The settings of a device as texts write them: one form for each value, an exact reason for each that cannot be used."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest

from neuca_tools.documents import parse
from neuca_tools.documents.neuca.link_settings import ATTRIBUTES, SETTINGS
from neuca_tools.documents.neuca.values import UnusableError
from neuca_tools.model.device_settings import rate_text, rate_value

VALUES = [
    ("qdisc", "FQ  maxrate 2Gbit", "fq maxrate 2gbit"),
    ("qdisc", "fq maxrate 2000mbit", "fq maxrate 2gbit"),
    ("qdisc", "fq maxrate 1.5gbit", "fq maxrate 1500mbit"),
    ("qdisc", "fq", "fq"),
    ("qdisc", "pfifo limit 1000", "pfifo limit 1000"),
    ("qdisc", "noqueue", "noqueue"),
    ("qdisc", "default", "default"),
    ("rings", "tx 512, rx 256", "rx 256 tx 512"),
    ("rings", "rx max", "rx max"),
    ("channels", "combined 4", "combined 4"),
    ("coalesce", "rx-usecs 0 adaptive-rx on", "adaptive-rx on rx-usecs 0"),
    ("pause", "rx on tx off autoneg off", "autoneg off rx on tx off"),
    (
        "offloads",
        "tso off, GRO on,tx-udp_tnl-segmentation off",
        "gro on tso off tx-udp_tnl-segmentation off",
    ),
    ("rps", "3,0-1, 2", "0-3"),
    ("rps", "ALL", "all"),
    ("xps", "0/none / 2-3,7", "0 / none / 2-3,7"),
    ("gro_flush_timeout", " 020000 ", "20000"),
    ("napi_defer_hard_irqs", "2147483647", "2147483647"),
    ("nameservers", "10.0.0.53 10.0.0.54, 10.0.0.53", "10.0.0.53 10.0.0.54"),
    ("search", "Dp.Example.", "dp.example"),
    ("wake-on-lan", "magic, PHY", "phy magic"),
    ("infiniband-mode", "connected", "connected"),
    ("mac", "02:00:00:00:F1:01", "02:00:00:00:f1:01"),
    ("path-cost", "65535", "65535"),
    ("port-priority", "00", "0"),
    ("bond-primary", "yes", "yes"),
]


def test_every_setting_of_a_backend_has_a_value_here():
    assert {key for key, _, _ in VALUES} == SETTINGS.keys() - set(ATTRIBUTES)


@pytest.mark.parametrize(("key", "text", "value"), VALUES)
def test_each_value_has_one_form_which_reads_as_itself(key, text, value):
    assert (SETTINGS[key].parse(text), SETTINGS[key].parse(value)) == (value, value)


@pytest.mark.parametrize(
    ("key", "text", "reason"),
    [
        (
            "qdisc",
            "htb",
            '"htb" is not "fq", "fq_codel", "pfifo", "pfifo_fast", "noqueue" or "default"',
        ),
        ("qdisc", "fq maxrate", 'the qdisc "fq" takes "maxrate" and a value'),
        ("qdisc", "fq limit 5", 'the qdisc "fq" takes "maxrate" and a value'),
        ("qdisc", "noqueue limit 5", 'the qdisc "noqueue" takes no option'),
        ("qdisc", "pfifo limit 0", 'the limit "0" is not a number from 1 to 1000000'),
        ("qdisc", "fq maxrate 2", '"2" is not a rate from 8kbit to 34gbit'),
        ("qdisc", "fq maxrate 40gbit", '"40gbit" is not a rate from 8kbit to 34gbit'),
        ("rings", "rx", '"rx" has no value'),
        ("rings", "rx-jumbo 5", '"rx-jumbo" is not "rx" or "tx"'),
        ("rings", "rx none", 'rx "none" is not a number from 1 to 1048576'),
        ("channels", "combined 0", 'combined "0" is not a number from 1 to 8192'),
        ("coalesce", "adaptive-rx 1", '"1" is not "on" or "off"'),
        ("coalesce", "rx-usecs -1", 'rx-usecs "-1" is not a number from 0 to 1000000'),
        ("pause", "rx yes", '"yes" is not "on" or "off"'),
        ("offloads", "a/b on", '"a/b" is not the name of an offload'),
        ("offloads", " ".join(f"f{number} on" for number in range(65)), "more than 64 offloads"),
        ("rps", "0-9999", 'the CPU "9999" is not a number from 0 to 8191'),
        ("rps", "3-1", 'the CPU "1" is not a number from 3 to 8191'),
        ("xps", "0 / ", 'the CPU "" is not a number from 0 to 8191'),
        (
            "gro_flush_timeout",
            "1000000001",
            'the gro_flush_timeout "1000000001" is not a number from 0 to 1000000000',
        ),
        (
            "napi_defer_hard_irqs",
            "2147483648",
            'the napi_defer_hard_irqs "2147483648" is not a number from 0 to 2147483647',
        ),
    ],
)
def test_what_cannot_be_used_has_its_reason(key, text, reason):
    with pytest.raises(UnusableError) as refused:
        SETTINGS[key].parse(text)
    assert str(refused.value) == reason


def test_a_bad_line_costs_only_itself_and_the_last_of_two_wins():
    found = parse(
        "[interface fe163e006daf]\nrings = rx 100\nrings = rx 256\nqdisc = htb\noffloads = tso off\n"
    )
    (link,) = found.links
    assert link.device == (("rings", "rx 256"), ("offloads", "tso off"))
    assert [fault.line for fault in found.faults if fault.severity == "error"] == [4]
    assert {origin.setting: origin.value for origin in link.origins} == {
        "state": "up", "rings": "rx 256", "offloads": "tso off"}  # fmt: skip


@pytest.mark.parametrize("text", ["8kbit", "1500mbit", "34gbit", "2gbit", "12bit"])
def test_a_rate_is_a_whole_number_of_bytes_a_second(text):
    assert rate_value(text) % 8 == 0
    assert rate_value(rate_text(rate_value(text))) == rate_value(text)
