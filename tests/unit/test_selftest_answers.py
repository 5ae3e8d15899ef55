"""What a peer that knows the secret says: wrong types, sizes and names get no further."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from test_fuzz import FUZZ

from neuca_tools.selftest.evidence import Host, Link
from neuca_tools.selftest.measure.helper.answers import host_of, observations_of, token_of
from neuca_tools.selftest.measure.helper.channel import ChannelError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner),
    max_leaves=10,
)
FIELDS = st.sampled_from(["token", "host", "samples", "error"])


@FUZZ
@given(answer=st.dictionaries(FIELDS, JSON), host=st.dictionaries(st.text(max_size=10), JSON))
@example(answer={"token": "\ud800"}, host={"route_mtu": 10**400})
def test_no_answer_raises_anything_but_a_reason(answer, host):
    for read in (
        lambda: token_of(answer),
        lambda: host_of(answer, "hello"),
        lambda: host_of({"host": host}, "host"),
        lambda: observations_of(answer),
    ):
        with contextlib.suppress(ChannelError):
            read()


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ({"route_mtu": 2**64}, "evidence.peer.route_mtu is out of range"),
        ({"route_mtu": -(2**64)}, "evidence.peer.route_mtu is out of range"),
        (
            {"links": [{"name": "a", "speed": 1e300}]},
            "evidence.peer.links[0].speed is out of range",
        ),
        ({"name": "x" * 2049}, "evidence.peer.name is longer than 2048 characters"),
        (
            {"sysctls": {"x" * 2049: "1"}},
            "evidence.peer.sysctls is longer than 2048 characters",
        ),
        ({"links": [{"name": "a"}] * 4097}, "it has too many links"),
        ([], "read the evidence: evidence.peer is '[]', and should be an object"),
    ],
)
def test_what_refuses_an_answer(host, reason):
    with pytest.raises(ChannelError) as raised:
        host_of({"host": host}, "hello")
    assert raised.value.text == f"the peer's response to hello: {reason}"


def test_not_a_number_is_none():
    with pytest.raises(ChannelError) as raised:
        host_of({"host": json.loads('{"links": [{"name": "a", "speed": NaN}]}')}, "hello")
    assert raised.value.text == (
        "the peer's response to hello: evidence.peer.links[0].speed is out of range"
    )


@pytest.mark.parametrize("token", [None, 7, "", "00" * 15, "00" * 17, "0g" * 16, "\ud800" * 32])
def test_a_token_that_is_none(token):
    with pytest.raises(ChannelError) as raised:
        token_of({"token": token})
    assert raised.value.text == "the peer's response to hello: its token is not of 16 bytes"


def test_a_name_that_is_more_than_a_name_is_left_out():
    """An advice is a line to copy: `ip link set NAME mtu 1450`."""
    found = host_of(
        {
            "host": {
                "links": [
                    {"name": "eth0;reboot"},
                    {"name": "$(reboot)"},
                    {"name": "eth0.100", "parent": "`reboot`"},
                ],
                "path": ["eth0 && reboot", "eth0.100"],
                "planned": "eth0|sh",
                "sysctls": {"net.core.rmem_max": "1", "a;b": "1", "net.core.wmem_max": "1;reboot"},
                "wanted": {"net.ipv4.tcp_rmem": "4096\t131072 6291456", "a": "$(reboot)"},
            }
        },
        "hello",
    )
    assert found == Host(
        links=(Link("eth0.100"),),
        path=("eth0.100",),
        sysctls={"net.core.rmem_max": "1"},
        wanted={"net.ipv4.tcp_rmem": "4096\t131072 6291456"},
    )
