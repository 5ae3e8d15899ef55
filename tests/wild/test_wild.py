"""What our side understands of a document is what cloud-init and netplan understand, or a documented limit.

`NEUCA_WILD=200 NEUCA_SEED=7` make more documents, from another seed.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import large
import normal
import oracles
import pytest
import yaml
from documents import written
from generate import UNKNOWN, Generator
from limits import LIMITS, LINK

MANUAL = Path(__file__).parents[2] / "docs/man/neuca-platform-data.5"
KINDS = ("netplan", "version_1", "openstack")
SEED = int(os.environ.get("NEUCA_SEED", "1"))
DOCUMENTS = int(os.environ.get("NEUCA_WILD", "40"))
# Lines of Python for one document. A processor of 2015 runs some 6 million in a second of processor time; YAML and JSON are parsed
# in C, and the size of a document is limited.
MAX_LINES = 4_000_000
# The same for one of the largest size, which has thousands of links.
MAX_LINES_OF_LARGEST = 12_000_000


class Judged:
    """Whatever our side and the oracle make of documents; `used` counts the limits that were needed."""

    def __init__(self, documents, folder):
        documents = list(documents)
        (folder / "ours").mkdir()
        self.ours = oracles.ours([(kind, text) for _, kind, text in documents], folder / "ours")
        self.oracle = expected(documents, folder)
        self.names = [name for name, _, _ in documents]
        self.texts = [text for _, _, text in documents]
        self.used = Counter()
        self.rejected = [name for name, form in zip(self.names, self.oracle) if form is None]

    def wrong(self):
        """Each disagreement that no limit excuses."""
        found = []
        for name, text, shown, form in zip(self.names, self.texts, self.ours, self.oracle):
            if form is not None:
                found += [f"{name}: {line}\n{text}" for line in self._compare(shown, *form)]
        return found

    def _compare(self, shown, form, loose):
        if shown["document"] is None:
            yield f"refused: {shown['err']}"
            return
        said = [fault["text"] for fault in shown["document"]["faults"]]
        ours = normal.of_ours(shown["document"])
        for key in normal.management(shown["document"]) & form.keys():
            # A management link is not configured, so its metrics and its MAC address are not kept.
            ours[key].mac = form[key].mac
            form[key].routes = {entry[:2] for entry in form[key].routes}
            ours[key].routes = {entry[:2] for entry in ours[key].routes}
        attached = {entry for one in ours.values() for entry in one.routes}
        for key in sorted(ours.keys() - form.keys()):
            # cloud-init has no entry for a NIC that is only named as the lower device of a VLAN.
            if not any(other.endswith(f" on {key}") for other in form):
                yield f"{key} is only on our side"
        for key in sorted(form.keys() - ours.keys()):
            if not self._excused(LINK, said):
                yield f"{key} is not on our side: {said}"
        for key in sorted(form.keys() & ours.keys()):
            yield from self._fields(key, ours[key], form[key], loose, said)
        if loose - attached and not self._excused("routes", said):
            yield f"routes {loose - attached} are not on our side: {said}"

    def _fields(self, key, ours, form, loose, said):
        if form.dhcp6:
            # cloud-init lets advertisements announce DHCPv6; our side keeps both in one setting.
            ours.accept_ra = form.accept_ra
        ours.routes = {entry for entry in ours.routes if entry not in loose}
        for name, theirs in asdict(form).items():
            own = getattr(ours, name)
            if theirs is not None and own != theirs and not self._excused(name, said):
                yield f"{key}: {name}: ours {own}, theirs {theirs}: {said}"

    def _excused(self, name, said):
        rows = [
            row for row in LIMITS if name in row.fields and any(row.says in text for text in said)
        ]
        self.used.update(rows)
        return bool(rows)


def expected(documents, folder):
    """What the oracle understands: (links, routes of no link), or None for a document that it rejects."""
    version_2 = [
        number for number, (_, kind, text) in enumerate(documents) if is_netplan(kind, text)
    ]
    files = oracles.netplan([documents[number][2] for number in version_2], folder)
    answers = dict(zip(version_2, files))
    left = [
        number for number in range(len(documents)) if "error" in answers.get(number, {"error": ""})
    ]
    states = dict(zip(left, oracles.cloud_init(documents[number][1:] for number in left)))
    found = []
    for number in range(len(documents)):
        if number not in states:
            found.append((normal.of_netplan(answers[number]), set()))
        elif "error" in states[number]:
            found.append(None)
        else:
            links, loose = normal.of_cloud_init(states[number])
            if number in answers:
                # Of version 2, cloud-init uses the IDs of links as names.
                links = {key: replace(form, name=None) for key, form in links.items()}
            found.append((links, loose))
    return found


def is_netplan(kind, text):
    if kind != "network-config":
        return False
    tree = yaml.safe_load(text)
    return str((tree.get("network") or tree)["version"]) == "2"


def generated(kind, seed, count, unknown=False):
    made = Generator(f"{kind} {seed}", unknown)
    return [(f"{kind} {number} of seed {seed}", *getattr(made, kind)()) for number in range(count)]


def test_the_written_documents_mean_what_the_oracles_make_of_them(tmp_path):
    judged = Judged(written(), tmp_path)
    assert judged.wrong() == []
    assert len(judged.rejected) < len(judged.names) / 10, judged.rejected
    assert [limit.says for limit in LIMITS if limit not in judged.used] == []


@pytest.mark.parametrize("kind", KINDS)
def test_generated_documents_mean_what_the_oracles_make_of_them(kind, tmp_path):
    judged = Judged(generated(kind, SEED, DOCUMENTS), tmp_path)
    assert judged.wrong() == []
    assert len(judged.rejected) < DOCUMENTS / 4, judged.rejected


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 22))
@pytest.mark.parametrize("kind", KINDS)
def test_many_generated_documents_mean_what_the_oracles_make_of_them(kind, seed, tmp_path):
    assert Judged(generated(kind, seed, 200), tmp_path).wrong() == []


@pytest.mark.parametrize("kind", KINDS)
def test_no_unknown_key_is_dropped_without_a_word(kind, tmp_path):
    documents = generated(kind, SEED, DOCUMENTS, unknown=True)
    for shown, document in zip(oracles.ours([one[1:] for one in documents], tmp_path), documents):
        assert shown["document"] is not None, shown["err"]
        platform = shown["document"]["platform"]
        said = [fault["text"] for fault in shown["document"]["faults"] if UNKNOWN in fault["text"]]
        assert len(said) == len(platform["links"]), (document, said)


def test_no_document_takes_long(tmp_path):
    documents = [(kind, text) for _, kind, text in written()]
    documents += [one[1:] for kind in KINDS for one in generated(kind, SEED, 5)]
    assert [
        one["lines"] for one in oracles.ours(documents, tmp_path, True) if one["lines"] > MAX_LINES
    ] == []


@pytest.mark.long
@pytest.mark.parametrize("name", large.DOCUMENTS)
def test_no_document_of_the_largest_size_takes_long(name, tmp_path):
    (shown,) = oracles.ours([large.document(name)], tmp_path, True)
    assert shown["document"] is not None, shown["err"]
    assert shown["lines"] < MAX_LINES_OF_LARGEST


def test_every_limit_is_in_the_manual():
    text = subprocess.run(
        ["mandoc", "-T", "utf8", MANUAL], capture_output=True, text=True, check=True
    ).stdout
    plain = re.sub(r"\s+", " ", re.sub(".\b", "", text))
    assert [limit.manual for limit in LIMITS if limit.manual not in plain] == []
