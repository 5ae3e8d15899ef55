"""The copy of a document that everybody may read."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from fuzzing import SEEDS
from hypothesis import example, given
from hypothesis import strategies as st
from worlds import LAWS

from neuca_tools.documents import parse, redact_text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        (
            "[global]\nhost_name = x\nrouter=true\nslice_id = 1\n",
            "[global]\nhost_name = x\nrouter = true\n\n",
        ),
        ("# c\n[routes] ; c\n10.0.0.0/8 = down ; c\n", "\n[routes]\n10.0.0.0/8 = down\n"),
        (
            "[scripts]\na = 1\n  2\n[storage]\nb=3\n[users]\nc=yes\n",
            "[scripts]\n\n\n[storage]\n\n[users]\n\n",
        ),
        ("[global]\nhost_name =;x\n", "[global]\nhost_name =;x\n"),
        ("[mine]\na = 1\n", "[redacted]\n\n"),
        ("[global]\r\nHost_Name = x\r\n\r\n", "[global]\nHost_Name = x\n\n"),
        ("[interfaces]\nfe163e006daf = up\nword\n", "[interfaces]\nfe163e006daf = up\n\n"),
        (
            "[interface fe163e006daf]\n  mtu = 9000\n  password = x\n",
            "[interface fe163e006daf]\nmtu = 9000\n\n",
        ),
        (
            "[vlan fe163e006daf.7]\naddresses = 10.0.0.1/24,\n  # c\n\n   10.0.0.2/24\nmtu = 1\n",
            "[vlan fe163e006daf.7]\naddresses = 10.0.0.1/24,\n    10.0.0.2/24\n\n\nmtu = 1\n",
        ),
        ("host_name = x\n[broken\nhost_name = x\n[global] host_name = x\n", "\n\n\n[global]\n"),
    ],
)
def test_redact(text, expected):
    assert redact_text(text) == expected


def test_the_copy_says_the_same_about_the_network():
    text = "[users]\na=yes:ssh-rsa AAAA\n[global]\nhost_name = a/b\n[interfaces]\nfe163e006daf = up:ipv4:10.0.0.1/24:3\nx = up\n"
    full, copy = parse(text), parse(redact_text(text))
    assert (copy.hostname, copy.links, copy.routes, copy.faults) == (
        full.hostname,
        full.links,
        full.routes,
        full.faults,
    )
    assert copy.users == ()


WORDS = [
    "=",
    " ",
    "  ",
    ";",
    " ;",
    "#",
    "[",
    "]",
    "\n",
    "\r",
    "\t",
    "a",
    ",",
    ":",
    "\x85",
    "\u2028",
]
WORDS += ["[global]\n", "[interface fe163e006daf]\n", "[users]\n", "[scripts]\n", "host_name"]
WORDS += ["addresses", "password", "10.0.0.1/24", "[redacted]", "[x", "router"]


@LAWS
@given(st.lists(st.sampled_from(WORDS), max_size=30).map("".join))
@example("[interface fe163e006daf]\naddresses =\n 10.0.0.1/24 ; x\n")  # cut off the second time
@example("[routes]\n" + "k" * 32768 + "=" + "v" * 32767 + "\n")  # too long with a blank more
@example("[routes]\n" + "k" * 40000 + "=\n " + "v" * 40000 + "\n")
@example("[routes]\nk =\n " + "v" * 65535 + "\n")
def test_a_copy_of_the_copy_is_the_copy(text):
    copy = redact_text(text)
    assert redact_text(copy) == copy
    assert copy.count("\n") == text.count("\n")


@pytest.mark.parametrize(
    "text", [seed.decode("utf-8", "replace") for seed in SEEDS["neuca"].values()]
)
def test_a_copy_of_the_copy_of_a_whole_document_is_the_copy(text):
    assert redact_text(redact_text(text)) == redact_text(text)


SECRETS = """[global]
host_name = node
CANARY1 = x
slice_id = CANARY2
[users]
CANARY3 = yes:ssh-rsa CANARY4
[scripts]
run = #!/bin/sh
    CANARY5
  [interfaces]
    CANARY6 = up
[storage]
dev1 = iscsi:10.0.0.1:3260:1:CANARY7:CANARY8:yes
dev1.mutual-chap = CANARY9:CANARY10
[interface fe163e006daf]
password = CANARY11
  CANARY12
mtu = 9000 ; CANARY13
# CANARY14
sysctl.net.ipv6.conf.{interface}.stable_secret = CANARY15
[CANARY16]
[broken CANARY17
"""


def test_nothing_secret_survives():
    assert (
        redact_text(SECRETS).split()
        == (
            "[global] host_name = node [users] [scripts] [storage] [interface fe163e006daf]"
            " mtu = 9000 [redacted]"
        ).split()
    )
