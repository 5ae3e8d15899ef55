"""The copy of a document that everybody may read."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest

from neuca_tools.documents import parse, redact


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
    assert redact(text) == expected


def test_the_copy_says_the_same_about_the_network():
    text = "[users]\na=yes:ssh-rsa AAAA\n[global]\nhost_name = a/b\n[interfaces]\nfe163e006daf = up:ipv4:10.0.0.1/24:3\nx = up\n"
    full, copy = parse(text), parse(redact(text))
    assert (copy.hostname, copy.links, copy.routes, copy.faults) == (
        full.hostname,
        full.links,
        full.routes,
        full.faults,
    )
    assert copy.users == ()
