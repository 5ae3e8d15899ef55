"""The fuzz targets, one for each reader of what others write, and what must hold whatever the bytes are.

`test_fuzz.py` searches with hypothesis in each run of the unit tier, `tests/fuzz/campaign.py` with faster generators
for millions of documents. Both start from the seeds in `corpus`, one folder for each target.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
from ipaddress import ip_address, ip_interface
from pathlib import Path

from worlds import Agent, mac, machine, nic

from neuca_tools.desired.roles import Policy
from neuca_tools.documents import find_document, parse, redact_text
from neuca_tools.documents.platform import combined
from neuca_tools.documents.platform.tree import MAX_DEPTH, from_json, from_yaml
from neuca_tools.documents.privacy import SECRET_WORDS
from neuca_tools.errors import DocumentError
from neuca_tools.model import Document
from neuca_tools.model.topology import METADATA_HOSTS

FOLDER = Path(__file__).parent
MANAGEMENT, IGNORED = 1, 5  # NICs that many seeds name, and that nothing may change
PLATFORM = ("network_data.json", "meta_data.json", "network-config", "meta-data", "EC2 network")
YAML = ("network-config", "meta-data")
GATEWAY = ip_address("192.0.2.1")  # of the management NIC, see worlds.machine


# --- a pass on the model kernel ---------------------------------------------------------------------------


def apply(document):
    """Carry a document out: no operation fails, none is left to do, and only dataplane NICs have changed."""
    assert all(fault.text.isprintable() for fault in document.faults)
    kernel = host()
    before, way_out = protected(kernel), reachability(kernel)
    agent = Agent(kernel, policy=Policy(ignored=frozenset({mac(IGNORED)})))
    agent.document = document
    kernel.written.clear()
    _, result, _ = agent.run()
    assert [failure.text for failure in result.failures] == []
    assert [operation.text for operation in agent.plan()] == []
    assert not {MANAGEMENT, IGNORED} & set(kernel.written)
    assert protected(kernel) == before
    assert reachability(kernel) == way_out
    assert tied(kernel) == []


def host():
    """A management NIC, three dataplane NICs, and one that the configuration tells us to ignore."""
    kernel = machine(*(nic(index, max_mtu=9216) for index in range(1, 6)), mgmt=MANAGEMENT)
    kernel.set_up(IGNORED, True)
    kernel.add_address(IGNORED, ip_interface("198.51.100.5/24"))
    return kernel


def protected(kernel):
    """Everything that can be seen of the two NICs that are not ours: link, addresses, routes."""
    seen = kernel.world()
    return [
        (
            seen.devices[index],
            seen.addresses[index],
            [route for route in seen.routes if route.index == index],
        )
        for index in (MANAGEMENT, IGNORED)
    ]


def reachability(kernel):
    """The NIC through which the management gateway and each metadata service are reached; 0 for none."""
    return [kernel._out(one) for one in (GATEWAY, *METADATA_HOSTS)]


def tied(kernel):
    """Devices that were made on, or put into, a NIC that is not ours."""
    return [
        device.name
        for device in kernel.devices.values()
        if device.lower in (MANAGEMENT, IGNORED)
        or (device.index in (MANAGEMENT, IGNORED) and device.master)
    ]


# --- the targets: each takes any bytes, and gives the document that they are, if they are one ----------------


def neuca(data):
    text = find_document(data)
    if text is None:
        return None
    copy = redact_text(text)
    assert redact_text(copy) == copy
    document, public = parse(text), parse(copy)
    if not any(word in text.lower() for word in SECRET_WORDS):  # a key with one is hidden
        assert (public.links, public.routes) == (document.links, document.routes)
        assert public.hostname == document.hostname
    return document


def of_platform(kind):
    def target(data):
        text = combined.reduce_documents({kind: data})
        if not text:
            return None
        beside = combined.parse(text)
        public = combined.redacted_text(text)
        assert combined.parse(public).links == beside.links
        assert combined.redacted_text(public) == public
        return Document(platform=beside, faults=beside.faults)

    return target


def tree(load):
    def target(data):
        found = load(data, "it")
        json.dumps(found)
        assert depth(found) <= MAX_DEPTH + 1

    return target


def depth(item):
    children = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
    return 1 + max(map(depth, children), default=0)


TARGETS = {
    "neuca": neuca,
    "envelope": neuca,
    "json": tree(from_json),
    "yaml": tree(from_yaml),
    **{kind: of_platform(kind) for kind in PLATFORM},
}


def held(target, data, carry_out=True):
    """Read the bytes and, with `carry_out`, make a pass. Only DocumentError is raised, in one printable line."""
    document, refusal = None, "cannot read it"
    try:
        document = TARGETS[target](data)
    except DocumentError as error:
        refusal = error.text
    assert refusal.startswith("cannot read ")
    assert refusal.isprintable()
    if document is not None and carry_out:
        apply(document)


# --- the seeds ----------------------------------------------------------------------------------------------


def seeds(target):
    found = {
        path.name: path.read_bytes() for path in sorted((FOLDER / "corpus" / target).iterdir())
    }
    more = {
        path.name: path.read_bytes() for path in sorted((FOLDER / "platform").glob(f"*.{target}"))
    }
    golden = (
        {path.name: path.read_bytes() for path in sorted((FOLDER / "golden").glob("*.ini"))}
        if target == "neuca"
        else {}
    )
    return {**golden, **more, **found}


SEEDS = {target: seeds(target) for target in TARGETS}


def trees(target):
    """The seeds of a platform's document that are objects."""
    load = from_yaml if target in YAML else from_json
    found = []
    for data in SEEDS[target].values():
        try:
            found.append(load(data, "it"))
        except DocumentError:
            continue
    return [tree for tree in found if isinstance(tree, dict)]


TREES = {target: trees(target) for target in PLATFORM}
