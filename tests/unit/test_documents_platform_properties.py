"""Laws for every platform document, good or bad: nothing raises but DocumentError, faults are printable, texts are stable."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json

from hypothesis import example, given, settings
from hypothesis import strategies as st
from platforms import KINDS, SAMPLES

from neuca_tools.documents.platform import combined
from neuca_tools.errors import DocumentError

WORDS = sorted(
    {
        word
        for _, data in SAMPLES.values()
        for word in data.decode().replace('"', " ").replace(",", " ").split()
    }
)
KEYS = sorted(
    key
    for kind in combined._KINDS
    for key in (
        "id",
        "type",
        "link",
        "links",
        "networks",
        "routes",
        "network",
        "version",
        "ethernets",
        "vlans",
        "match",
        "macaddress",
        "addresses",
        "to",
        "via",
        "macs",
        "mac",
        "config",
        "subnets",
        "name",
        "devices",
        "tags",
        "meta",
        "vlan_link",
        "vlan_id",
    )
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(WORDS),
)
trees = st.recursive(scalars, lambda inner: st.one_of(
    st.lists(inner, max_size=4),
    st.dictionaries(st.one_of(st.sampled_from(KEYS), st.text(max_size=4)), inner, max_size=6)), max_leaves=40)  # fmt: skip


@st.composite
def mutated(draw):
    """A sample with some bytes cut out and some put in."""
    _, data = draw(st.sampled_from(sorted(SAMPLES.items())))[1]
    for _ in range(draw(st.integers(0, 6))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(len(data), start + 30)))
        piece = draw(
            st.one_of(st.sampled_from(WORDS).map(str.encode), st.binary(max_size=6), st.just(b""))
        )
        data = data[:start] + piece + data[end:]
    return data


documents = st.one_of(
    mutated(),
    trees.map(lambda tree: json.dumps(tree).encode()),
    st.binary(max_size=200),
    st.text().map(lambda text: text.encode("utf-8", "replace")),
)


def refused_or(function, beginning):
    try:
        return function()
    except DocumentError as error:
        text = error.text
    assert text.startswith(beginning)
    return None


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(KINDS), documents)
@example("meta-data", b'a: "\\UFFFFFFFF"')
@example("network-config", b'"\\ud800": 1')
@example(
    "EC2 network",
    b'{"macs": {"02:00:00:00:00:02": {"subnet-ipv4-cidr-block": "10.0.1.24"}}}',
)
@example(
    "network_data.json",
    b'{"links": [{"id": "\\ud800", "type": "phy", "ethernet_mac_address": "\\ud800"}]}',
)
def test_no_document_raises_anything_but_its_own_error(kind, data):
    text = refused_or(lambda: combined.reduce_documents({kind: data}), f"cannot read {kind}: ")
    if not text:
        return
    document = combined.parse(text)
    assert all(fault.text.isprintable() and fault.line == 0 for fault in document.faults)
    assert all(hint.reason for hint in document.management)
    copy = combined.parse(combined.redacted_text(text))
    assert (copy.links, copy.routes, copy.management) == (
        document.links,
        document.routes,
        document.management,
    )


@settings(max_examples=100, deadline=None)
@given(st.text())
def test_a_kept_text_that_was_damaged_is_refused_or_read(text):
    refused_or(lambda: combined.parse(text), "cannot read the platform's document: ")
