"""One fuzz target for each reader of what others write: whatever the bytes, nothing raises past its stage, and no pass fails.

The seeds are in `corpus`, one folder for each target; what ever broke a reader belongs there. `NEUCA_EXAMPLES=20000` searches
for longer than the few seconds of a usual run, with `--hypothesis-profile random` each time elsewhere.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import os
import re

import pytest
from fuzzing import PLATFORM, SEEDS, TARGETS, TREES, held
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from neuca_tools.sources import Session, Surroundings, parse_source
from neuca_tools.state.active_document import fetch_document, keep_document

EXAMPLES = int(os.environ.get("NEUCA_EXAMPLES", "40"))
FUZZ = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

EACH = [
    pytest.param(target, data, id=f"{target}/{name}")
    for target in TARGETS
    for name, data in SEEDS[target].items()
]


@pytest.mark.parametrize(("target", "data"), EACH)
def test_a_seed_breaks_no_reader(target, data):
    held(target, data)


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_meant_for_another_reader_breaks_none(target):
    for data in {data for others in SEEDS.values() for data in others.values()}:
        held(target, data)


# --- mutations of them ----------------------------------------------------------------------------------------------

WORDS = sorted(
    {
        word
        for found in SEEDS.values()
        for data in found.values()
        if len(data) < 8192
        for word in re.findall(rb"[\w.:/-]+|[^\w\s]+", data)
    }
)
VALUES = [
    None,
    True,
    0,
    -1,
    4095,
    10**30,
    1.5,
    "",
    " ",
    "\0",
    "\ud800",
    "x" * 300,
    [],
    {},
    [[]],
    {"": None},
    "10.1.0.5/24",
    "::/0",
    "192.0.2.10",
    "192.0.2.0/24",
    "02:00:00:00:00:01",
    "02:00:00:00:00:02",
    "ff:ff:ff:ff:ff:ff",
    "dhcp",
    "vlan",
    "phy",
]


@st.composite
def spliced(draw, target):
    """A seed with pieces cut out, repeated, and put in from another one or from the words of all."""
    seed = draw(st.sampled_from(sorted(SEEDS[target].values())))
    data = seed[:16384]
    for _ in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(len(data), start + 60)))
        piece = draw(
            st.one_of(
                st.sampled_from(WORDS),
                st.binary(max_size=4),
                st.just(data[start:end] * 2),
                st.just(b""),
            )
        )
        data = data[:start] + piece + data[end:]
    return data


def _places(item, path=()):
    yield path
    for key, child in (
        item.items()
        if isinstance(item, dict)
        else enumerate(item)
        if isinstance(item, list)
        else ()
    ):
        yield from _places(child, (*path, key))


def _changed(item, path, value):
    if not path:
        return value
    copy = dict(item) if isinstance(item, dict) else list(item)
    copy[path[0]] = _changed(item[path[0]], path[1:], value)
    return copy


@st.composite
def regrown(draw, target):
    """The tree of a seed with other values in it, or one branch in place of another; every JSON text is YAML too."""
    whole = draw(st.sampled_from(TREES[target]))
    for _ in range(draw(st.integers(1, 5))):
        places = list(_places(whole))
        source = draw(st.sampled_from(places))
        branch = whole
        for key in source:
            branch = branch[key]
        value = draw(st.one_of(st.sampled_from(VALUES), st.just(branch)))
        whole = _changed(whole, draw(st.sampled_from(places)), value)
        if len(json.dumps(whole)) > 65536:
            break
    return json.dumps(whole).encode()


@pytest.mark.parametrize("target", TARGETS)
@FUZZ
@given(data=st.data())
def test_no_bytes_break_a_reader(target, data):
    held(target, data.draw(spliced(target)))


@pytest.mark.parametrize("target", PLATFORM)
@FUZZ
@given(data=st.data())
def test_no_values_break_a_reader(target, data):
    held(target, data.draw(regrown(target)))


# --- from a source to the document in force -------------------------------------------------------------------------

ANY = st.sampled_from(
    sorted(target for target in TARGETS if target not in ("json", "yaml"))
).flatmap(spliced)


@FUZZ
@given(user_data=ANY, about=ANY, network=ANY, drive=st.booleans())
@example(b"", b"{", b"{", True)
def test_no_seed_and_no_drive_raise_past_the_intake(
    tmp_path_factory, user_data, about, network, drive
):
    """A good document is in force before, and stays in force, or another one takes its place."""
    place = tmp_path_factory.mktemp("place")
    folder = place / "openstack" / "latest" if drive else place
    names = (
        ("user_data", "meta_data.json", "network_data.json")
        if drive
        else ("user-data", "meta-data", "network-config")
    )
    folder.mkdir(parents=True, exist_ok=True)
    spec = [parse_source(f"{'configdrive' if drive else 'nocloud'}={place}")]
    around = Surroundings(place / "run")
    for contents in ((b"[global]\nhost_name = good\n", b"{}", b"{}"), (user_data, about, network)):
        for name, content in zip(names, contents):
            (folder / name).write_bytes(content)
        intake = fetch_document(spec, 5, Session(), place / "state", around)
        keep_document(intake, place / "state", around.run_directory)
        assert intake.document is not None
        assert intake.reason.isprintable()
