"""The state files: what comes back, what is refused with which words, and what is not written twice."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import os
from ipaddress import ip_interface, ip_network
from pathlib import Path

import pytest
from worlds import Agent, key, mac, machine, nic

from neuca_tools.errors import RecordError
from neuca_tools.model import (
    Hop,
    Incarnation,
    Link,
    LinkKey,
    NetworkState,
    NicRecord,
    OriginalValues,
    OwnedObjects,
    Record,
    WrittenSetting,
)
from neuca_tools.model.links import NONE_IN_FORCE
from neuca_tools.model.rows import StoredDocument
from neuca_tools.state.records import (
    load_document,
    load_journal,
    load_record,
    load_source_answers,
    remove_journal,
    save_document,
    save_journal,
    save_record,
    save_source_answers,
)

RECORDED = Path(__file__).parent / "data" / "state"
TEN, SIX = ip_interface("10.0.0.1/24"), ip_interface("fd00::1/64")
FULL = Record(
    "boot",
    {
        mac(2): NicRecord("eth2", "dataplane", False, "d1", Incarnation("boot", 2)),
        mac(3): NicRecord(released=True),
        mac(4): NicRecord("eth4", "management", doubtful=(6,)),
    },
    OwnedObjects(
        frozenset({(key(2), TEN), (key(2), SIX), (key(2, 7), SIX)}),
        frozenset({key(2, 7), key(3, 4094)}),
    ),
    {
        key(2): OriginalValues(1500, None, {"net/ipv4/conf/{interface}/rp_filter": "0"}),
        key(2, 7): OriginalValues(None, 1000),
    },
    {"net/core/rmem_max": "7"},
    "d0",
)
STORED = StoredDocument("ec2", "00", "2026-11-20T19:00:00Z", "[global]\nhost_name = ü\n")
HINT = "move it away, and restart neucad: it starts afresh without {}"


def test_a_record_comes_back(tmp_path):
    save_record(tmp_path, FULL)
    assert load_record(tmp_path) == FULL


def test_no_record_is_an_empty_one(tmp_path):
    assert load_record(tmp_path) == Record()
    assert load_record(tmp_path / "not" / "there") == Record()


def test_the_record_of_a_real_pass_comes_back(tmp_path):
    text = f"[interface {mac(2)}]\nmtu = 9000\naddresses = 10.0.0.1/24, ::ffff:10.0.0.9/128\n"
    text += f"sysctl.net.core.rmem_max = 3\n[vlan {mac(2)}.7]\n"
    agent = Agent(machine(nic(1), nic(2), mgmt=1), text)
    agent.run()
    save_record(tmp_path, agent.record)
    assert load_record(tmp_path) == agent.record
    agent.record = load_record(tmp_path)
    assert agent.plan() == ()


def test_an_unchanged_record_is_not_written_again(tmp_path):
    save_record(tmp_path, FULL)
    before = (tmp_path / "record.json").stat()
    shuffled = FULL._replace(
        nics=dict(reversed(FULL.nics.items())),
        originals=dict(reversed(FULL.originals.items())),
    )
    save_record(tmp_path, shuffled)
    assert (tmp_path / "record.json").stat().st_ino == before.st_ino


@pytest.mark.parametrize(("content", "why"), [
    (b"{", "it is not JSON: "),
    (b"\xff\xfe", "it is not JSON: "),
    (b"", "it is not JSON: "),
    (b"[]", "it is not of version 1"),
    (b"{}", "it is not of version 1"),
    (b'{"version": 2}', "it is not of version 1"),
    (b'{"version": 1}', "it is not what neucad wrote: "),
    (b'{"version": 1, "owned": 3}', "it is not what neucad wrote: "),
    (b'{"version": 1, "owned": {"addresses": [["x", "nonsense"]], "vlans": []}, "boot_id": "", "nics": {}}',
     "it is not what neucad wrote: "),
    (b'{"version": 1, "owned": {"addresses": [], "vlans": []}, "boot_id": "", "nics": {"x": {"new": 1}}}',
     "it is not what neucad wrote: "),
    (b'{"version": 1, "owned": {"addresses": [], "vlans": []}, "boot_id": "", "nics": {"x": 3}}',
     "it is not what neucad wrote: "),
])  # fmt: skip
def test_a_record_that_cannot_be_used_is_named_with_what_to_do(tmp_path, content, why):
    path = tmp_path / "record.json"
    path.write_bytes(content)
    with pytest.raises(RecordError) as caught:
        load_record(tmp_path)
    assert caught.value.text.startswith(f'read "{path}": {why}')
    assert caught.value.hint == HINT.format("record.json")


@pytest.mark.parametrize(
    "name", ["a\u3000b", "a\x85b", "a\x1bb", "\udcff", "..x", "-n", "%", "ü" * 7]
)
def test_any_name_that_the_kernel_permits_comes_back(tmp_path, name):
    record = Record(nics={mac(1): NicRecord(name=name)})
    save_record(tmp_path, record)
    assert load_record(tmp_path) == record


@pytest.mark.parametrize("content", [b"null", b"false", b"0"])
def test_a_record_that_is_json_and_no_record_is_refused_too(tmp_path, content):
    (tmp_path / "record.json").write_bytes(content)
    if content == b"null":
        assert load_record(tmp_path) == Record()
        return
    with pytest.raises(RecordError):
        load_record(tmp_path)


def test_a_record_that_cannot_be_read_is_no_empty_record(tmp_path):
    (tmp_path / "record.json").mkdir()
    with pytest.raises(RecordError) as caught:
        load_record(tmp_path)
    assert caught.value.text == f'read "{tmp_path}/record.json": Is a directory'


# --- the journal ----------------------------------------------------------------------------------------------------

BEFORE = NetworkState(
    {
        key(2): Link(
            key(2),
            "physical",
            "dataplane",
            "eth2",
            2,
            "up",
            1500,
            1000,
            (TEN, SIX),
            {"net/ipv4/conf/{interface}/x": "1"},
        ),
        key(2, 7): Link(key(2, 7), "vlan", "dataplane", "eth2.7", 9, "down", 1500, 1000),
    }
)


def test_a_journal_comes_back_in_the_same_boot_alone(tmp_path):
    save_journal(tmp_path, BEFORE, "boot")
    assert load_journal(tmp_path, "boot") == BEFORE
    assert load_journal(tmp_path, "another") is None
    remove_journal(tmp_path)
    assert load_journal(tmp_path, "boot") is None
    remove_journal(tmp_path)


def test_nothing_waits_for_the_disk_for_a_journal(tmp_path, monkeypatch):
    """It counts in this boot only. The record counts after a power cut, and is on the disk at once."""
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    save_journal(tmp_path, BEFORE, "boot")
    remove_journal(tmp_path)
    assert synced == []
    save_record(tmp_path, FULL)
    assert len(synced) == 2  # the file, and its name in the directory


def test_a_journal_remembers_neither_managers_nor_routes(tmp_path):
    links = {key(2): BEFORE.links[key(2)]._replace(managers={"networkmanager": "managed"})}
    hop = Hop(ip_network("10.9.0.0/16"), key(2), None, 5)
    save_journal(tmp_path, NetworkState(links, (hop,)), "boot")
    assert load_journal(tmp_path, "boot") == NetworkState({key(2): BEFORE.links[key(2)]})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'{"version": 1}',
        b'{"version": 1, "boot_id": "boot"}',
        b'{"version": 1, "boot_id": "boot", "links": [{}], "hops": [], "sysctls": {}}',
    ],
)
def test_a_journal_that_was_never_finished_is_none(tmp_path, content):
    (tmp_path / "journal.json").write_bytes(content)
    assert load_journal(tmp_path, "boot") is None


# --- the document ---------------------------------------------------------------------------------------------------


def test_the_last_good_document_comes_back_and_only_its_owner_reads_it(tmp_path):
    save_document(tmp_path, STORED)
    assert load_document(tmp_path) == STORED
    assert (tmp_path / "document.json").stat().st_mode & 0o777 == 0o600
    assert load_document(tmp_path / "nowhere") is None


def test_a_document_that_others_could_read_is_closed_again(tmp_path):
    save_document(tmp_path, STORED)
    (tmp_path / "document.json").chmod(0o644)
    save_document(tmp_path, STORED)
    assert (tmp_path / "document.json").stat().st_mode & 0o777 == 0o600


def test_a_redacted_copy_can_be_read_by_all_whatever_the_umask(tmp_path):
    before = os.umask(0o077)
    try:
        save_document(tmp_path, STORED, 0o644)
    finally:
        os.umask(before)
    assert (tmp_path / "document.json").stat().st_mode & 0o777 == 0o644


def test_a_stored_document_without_a_field_is_named(tmp_path):
    path = tmp_path / "document.json"
    path.write_text(json.dumps({"version": 1, "source": "ec2", "sha256": "0", "fetched": "x"}))
    with pytest.raises(RecordError) as caught:
        load_document(tmp_path)
    assert caught.value.text == (f"read \"{path}\": it is not what neucad wrote: 'text' is missing")


def test_what_the_sources_said_comes_back_and_rubbish_says_nothing(tmp_path):
    save_source_answers(
        tmp_path, {"reason": "no response", "none_for_us": False, "refused": ""}, "00"
    )
    assert load_source_answers(tmp_path) == {
        "version": 1,
        "reason": "no response",
        "none_for_us": False,
        "refused": "",
        "sha256": "00",
    }
    for rubbish in ("{", '{"version": 1, "platform": []}', '{"version": 1, "refused": null}'):
        (tmp_path / "last-look.json").write_text(rubbish)
        assert load_source_answers(tmp_path) == {}


@pytest.mark.parametrize("name", ["record.json", "journal.json"])
def test_state_files_of_version_1_are_read_and_written_as_they_are(tmp_path, name):
    """`data/state` was recorded in a pass with a bond, VLANs and settings of every kind.

    Later versions indent it otherwise, and have another checksum, and no routes and sysctls in a
    journal.
    """
    save_record(tmp_path, load_record(RECORDED))
    before = load_journal(RECORDED, "boot-1")
    save_journal(tmp_path, before, "boot-1")
    written, recorded = (json.loads((place / name).read_text()) for place in (tmp_path, RECORDED))
    assert (len(written.pop("crc32")), len(recorded.pop("checksum"))) == (8, 64)
    if name == "journal.json":
        del recorded["hops"], recorded["sysctls"]
    assert written == recorded


def test_a_recorded_file_has_each_kind_of_value():
    record = load_record(RECORDED)
    assert record.nics[mac(4)].incarnation == Incarnation("boot-1", 4, ((7, 6),))
    assert record.nics["bond bond0"].incarnation == Incarnation("boot-1", 5, ((5, 7),))
    assert record.nics[mac(1)].incarnation is None
    assert record.written == {
        WrittenSetting("mtu", key(4)): "9000",
        WrittenSetting("txqueuelen", key(4)): "5000",
        WrittenSetting("mtu", key(4, 7)): "1400",
        WrittenSetting("mtu", LinkKey("bond bond0")): "9000",
        WrittenSetting("txqueuelen", LinkKey("bond bond0", 5)): "500",
        WrittenSetting("net/core/rmem_max"): "8388608",
    }


@pytest.mark.parametrize("text", ["boot-1", "boot-1:x", "boot-1:4 7", "boot-1:4 7=x", ":4"])
def test_an_incarnation_that_neucad_did_not_write_is_named(tmp_path, text):
    save_record(tmp_path, FULL)
    data = json.loads((tmp_path / "record.json").read_text())
    data["nics"][mac(2)]["incarnation"] = text
    del data["crc32"]
    (tmp_path / "record.json").write_text(json.dumps(data))
    with pytest.raises(RecordError) as caught:
        load_record(tmp_path)
    assert f"{text!r} is not an incarnation" in caught.value.text


def test_a_recorded_router_that_is_no_address_makes_the_record_unusable(tmp_path):
    save_record(tmp_path, Record(boot_id="boot", routers={"02:00:00:00:00:01": "somewhere"}))
    with pytest.raises(RecordError, match="somewhere"):
        load_record(tmp_path)


def test_a_setting_that_only_a_later_version_writes_fails_no_pass_after_a_killed_one():
    one = Agent(machine(nic(1)), f"[interface {mac(1)}]\naddresses = 10.0.0.1/24\n")
    one.run()
    later = WrittenSetting("gso_max_size", key(1))
    killed = {mac(1): one.record.nics[mac(1)]._replace(applied=NONE_IN_FORCE)}
    one.record = one.record._replace(nics=killed, written={later: "5"})
    one.run()
    assert one.record.written == {later: "5"}
