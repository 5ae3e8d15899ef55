"""The platforms' documents of `tests/unit/platform`, each written for these tests; the end of a name says what it is."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from pathlib import Path

from neuca_tools.documents.platform import combined

FOLDER = Path(__file__).parent / "platform"
KINDS = ("network_data.json", "meta_data.json", "network-config", "meta-data", "EC2 network")
SAMPLES = {
    path.name: (next(kind for kind in KINDS if path.name.endswith(f".{kind}")), path.read_bytes())
    for path in sorted(FOLDER.iterdir())
}


def read(name):
    """What a sample asks."""
    kind, data = SAMPLES[name]
    return combined.parse(combined.reduce_documents({kind: data}))


def made(kind, data):
    """What these bytes ask."""
    return combined.parse(
        combined.reduce_documents({kind: data if isinstance(data, bytes) else data.encode()})
    )


def links(document):
    """What each link is asked, in short."""
    return {
        str(one.key): (one.state, one.name, one.mtu, [str(address) for address in one.addresses])
        for one in document.links
    }


def routes(document):
    return [(str(one.to), str(one.via), str(one.link)) for one in document.routes]


def hints(document):
    return {hint.mac: hint.reason for hint in document.management}


def faults(document):
    return [f"{fault.severity}: {fault.text}" for fault in document.faults]


def virtual(document, name):
    """What a bond or its like is made of."""
    return next(one.virtual for one in document.links if str(one.key) == name)
