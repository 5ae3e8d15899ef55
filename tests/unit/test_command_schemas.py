"""The published schemas of the commands: up to date, and true of outputs from many documents and states."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json

import pytest
from command_schemas import SCHEMAS, path, published, validated
from jsonschema import Draft202012Validator
from test_check import INI, NETPLAN, NETWORK_DATA
from test_documents_golden import GOLDEN, NAMES
from test_status import GOOD, PASS, TWO, small, status
from worlds import mac, nic

from neuca_tools.commands.neuca import main
from neuca_tools.documents import find_document, parse
from neuca_tools.documents.platform import combined
from neuca_tools.model import PlatformDocument, Problem
from neuca_tools.model.rows import StoredDocument
from neuca_tools.status import audit, render_json
from neuca_tools.status.judge import Report, with_unsaved

STORED = StoredDocument("ec2", "", "2026-11-20T19:00:00Z", "00")


def again(output):
    """An output as whoever reads it has it."""
    return json.loads(json.dumps(output))


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_published_schema_is_up_to_date(name):
    assert path(name).read_text(encoding="utf-8") == published(name), (
        "run python3 tests/command_schemas.py"
    )
    Draft202012Validator.check_schema(json.loads(published(name)))


TEXTS = [
    TWO,
    TWO + f"[vlan {mac(2)}.7]\n[interface {mac(9)}]\n[interface {mac(1)}]\nmtu = 9\n",
    f"[bond bond0]\nmembers = {mac(2)}, {mac(3)}\nmode = 802.3ad\n[bridge br0]\nmembers = {mac(4)}\n",
    f"[ipoib part1]\nparent = {mac(2)}\npkey = 0x8001\n[interface ec0d9a030015e2c1]\ninfiniband-mode = connected\n",
    f"[vrf red]\ntable = 100\nmembers = {mac(2)}\n[macvlan m0]\nparent = {mac(3)}\n",
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("applied", [False, True])
def test_a_status_is_described(text, applied):
    agent = small(text, nic(3), nic(4))
    if applied:
        agent.run()
    found = status(agent, report=PASS if applied else None)
    survey = agent.survey()
    data = {**found.data, "tuning": audit.to_json(survey.resolution, survey.observed)}
    found = with_unsaved(found._replace(data=data), "no room", survey.plan()[:1])
    validated("status", again(found.data))
    validated("plan", again(render_json.plan_json(survey.plan(), found)))
    failed = Report(
        "2026-11-20T19:00:00Z", 0.1, ("x",), (Problem("failed", "boom"),), rolled_back=True
    )
    validated("report", again(render_json.apply_json(failed, found)))


def test_a_status_without_a_document_is_described():
    found = status(
        small(""), document=GOOD._replace(source="", fetched="", stale=False), report=None
    )
    validated("status", again(found.data))


@pytest.mark.parametrize("name", NAMES)
def test_user_data_is_described(name):
    document = parse(find_document((GOLDEN / f"{name}.ini").read_bytes()))
    validated("user-data", again(render_json.document_json(document, STORED)))


@pytest.mark.parametrize(
    ("name", "text"), [("network-config", NETPLAN), ("network_data.json", NETWORK_DATA)]
)
def test_a_platforms_document_is_described(name, text):
    platform = combined.parse(combined.reduce_documents({name: text.encode()}))
    assert isinstance(platform, PlatformDocument)
    document = parse(TWO)._replace(platform=platform)
    validated("user-data", again(render_json.document_json(document, STORED)))


def test_no_document_is_described():
    validated("user-data", again(render_json.document_json(None, None)))


def test_a_check_is_described(tmp_path, capsys):
    for number, text in enumerate((INI, NETPLAN, NETWORK_DATA, "nonsense")):
        (tmp_path / str(number)).write_text(text)
    main(["check", "--json", *(str(one) for one in sorted(tmp_path.iterdir()))])
    assert len(validated("check", json.loads(capsys.readouterr().out))["files"]) == 4


def test_a_key_that_is_not_published_is_found():
    with pytest.raises(AssertionError, match="Additional properties"):
        validated("check", {"version": 1, "files": [], "more": 1})
