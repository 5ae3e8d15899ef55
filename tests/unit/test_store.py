"""The reader of all state files, and where they are kept while the state directory takes nothing."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
import json
from dataclasses import dataclass
from functools import partial
from typing import Optional

import pytest

from neuca_tools.errors import ApplyError, RecordError
from neuca_tools.files import write_files
from neuca_tools.guest import outcome, scripts, storage, users
from neuca_tools.model import Record
from neuca_tools.model.shapes import ShapeError, Shapes
from neuca_tools.state import store
from neuca_tools.state.records import (
    load_choice,
    load_document,
    load_journal,
    load_machine,
    load_record,
    load_source_answers,
    remove_journal,
    save_record,
)
from neuca_tools.state.store import (
    StateDirectories,
    content_of,
    read_state,
    save_state,
    save_unsaved_files,
    save_unsaved_reason,
    unsaved_reason,
)
from neuca_tools.status.report import read_report

DEEP = b"[" * 100000 + b"]" * 100000
SAID = {"boot_id": "b", "nics": {}}
BAD = {
    "deeply nested": (DEEP, "it is nested too deeply"),
    "never closed": (b"[" * 100000, "it is nested too deeply"),
    "a huge number": (b'{"version": ' + b"1" * 1000 + b"}", "it is not of version 1"),
    "a huge float": (b'{"version": 1e999}', "it is not of version 1"),
    "not a number": (b'{"version": NaN}', "it is not of version 1"),
    "zeros": (b"\0" * 100, "it is not JSON: Expecting value: line 1 column 1 (char 0)"),
    "a later version": (b'{"version": 2}', "it is not of version 1"),
    "true for a version": (b'{"version": true}', "it is not of version 1"),
    "too large": (b" " * (16 * 1024 * 1024 + 1), "it is larger than 16 MiB"),
    "another file's": (content_of("journal.json", SAID), "its checksum does not match its content"),
    "a flipped bit": (
        content_of("record.json", SAID).replace(b'"b"', b'"c"'),
        "its checksum does not match its content",
    ),
}
CASES = [pytest.param(*case, id=name) for name, case in BAD.items()]


@pytest.mark.parametrize(("content", "why"), CASES)
def test_a_file_that_cannot_be_used_is_named_in_one_line(tmp_path, content, why):
    (tmp_path / "record.json").write_bytes(content)
    with pytest.raises(RecordError) as caught:
        load_record(tmp_path)
    assert caught.value.text == f'read "{tmp_path}/record.json": {why}'


@pytest.mark.parametrize("content", [case[0] for case in BAD.values()], ids=BAD)
def test_no_other_reader_of_a_state_file_raises_anything_but_its_own_error(tmp_path, content):
    """Those whose files may be damaged without harm say that there is nothing."""
    for name in (
        "journal",
        "document",
        "machine",
        "last-look",
        "last-pass",
        "tuning",
        "guest-users",
    ):
        (tmp_path / f"{name}.json").write_bytes(content)
    (tmp_path / "mark.json").write_bytes(content)
    for load in (load_document, load_machine):
        with pytest.raises(RecordError):
            load(tmp_path)
    assert load_journal(tmp_path, "b") is None
    assert (load_source_answers(tmp_path), load_choice(tmp_path), read_report(tmp_path)) == (
        {},
        None,
        None,
    )
    assert outcome.load_outcome(tmp_path, "users") is None
    assert scripts._read_mark(tmp_path / "mark.json") == {"started": "an unknown time"}


WRONG = [
    {"boot_id": 3},
    {"applied": None},
    {"nics": []},
    {"nics": {"02:00:00:00:00:01": {"name": "../../etc"}}},
    {"nics": {"02:00:00:00:00:01": {"name": "a" * 16}}},
    {"nics": {"02:00:00:00:00:01": {"role": "owner"}}},
    {"nics": {"02:00:00:00:00:01": {"released": 1}}},
    {"nics": {"02:00:00:00:00:01.7": {}}},
    {"originals": {"02:00:00:00:00:01": {"mtu": "1500"}}},
    {"originals": {"02:00:00:00:00:01": {"sysctls": {"net/../../etc/shadow": "1"}}}},
    {"original_sysctls": {"/etc/shadow": "1"}},
    {"declined": {"02:00:00:00:00:01": {"mtu": ["1", "never", "it is so"]}}},
    {"retry": [1]},
    {"ground": ["10.0.0.1/24"]},
]


@pytest.mark.parametrize("wrong", WRONG, ids=map(json.dumps, WRONG))
def test_a_record_with_another_type_or_a_path_that_leads_elsewhere_is_refused(tmp_path, wrong):
    save_record(tmp_path, Record("b"))
    data = json.loads((tmp_path / "record.json").read_text())
    del data["crc32"]
    (tmp_path / "record.json").write_text(json.dumps(data))
    assert load_record(tmp_path) == Record("b")
    (tmp_path / "record.json").write_text(json.dumps({**data, **wrong}))
    with pytest.raises(RecordError) as caught:
        load_record(tmp_path)
    assert caught.value.text.startswith(
        f'read "{tmp_path}/record.json": it is not what neucad wrote: '
    )
    assert caught.value.text.isprintable()


def test_what_the_guest_has_to_remember_is_read_by_the_same_reader(tmp_path):
    class Config:
        state_directory = tmp_path

    for name, ask in ((users.RECORD, users.recorded_logins), (storage.RECORD, storage.own_files)):
        (tmp_path / name).write_bytes(DEEP)
        with pytest.raises(Exception, match="it is not what neucad wrote"):
            ask(Config)


# --- without room ---------------------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path):
    """A state directory that cannot be written: a mount in a namespace would be another test's (netns)."""
    return StateDirectories(tmp_path / "state", tmp_path / "run")


def test_an_unsaved_copy_counts_for_more_until_it_is_saved(place):
    save_state(place, "record.json", {"boot_id": "old"}, 0o644)
    save_state(place.spare, "record.json", {"boot_id": "new"}, 0o600)
    save_unsaved_reason(place, "no room")
    assert read_state(place, "record.json")["boot_id"] == "new"
    assert unsaved_reason(place) == "no room"
    assert save_unsaved_files(place)
    assert (unsaved_reason(place), list(place.spare.iterdir())) == ("", [])
    assert json.loads((place.directory / "record.json").read_text())["boot_id"] == "new"
    assert (place.directory / "record.json").stat().st_mode & 0o777 == 0o600


def test_what_a_full_disk_does_not_take_is_kept_in_the_run_directory(place, monkeypatch):
    save_state(place, "record.json", {"boot_id": "old"}, 0o600)
    save_state(place, "journal.json", {"boot_id": "old"}, 0o600)

    def refuse(path, content, mode, sync=True):
        if path.parent == place.directory:
            raise ApplyError(f'write "{path}": No space left on device', errno.ENOSPC)
        write(path, content, mode, sync)

    write = store._write
    with monkeypatch.context() as full:
        full.setattr(store, "_write", refuse)
        for boot_id in ("new", "newest"):
            save_state(place, "record.json", {"boot_id": boot_id}, 0o600)
            assert read_state(place, "record.json")["boot_id"] == boot_id
        store.remove_state(place, "journal.json")
        assert read_state(place, "journal.json") is None
        assert unsaved_reason(place).endswith("No space left on device")
    assert json.loads((place.directory / "record.json").read_text())["boot_id"] == "old"
    save_state(place, "record.json", {"boot_id": "last"}, 0o600)
    assert read_state(place, "record.json")["boot_id"] == "last"
    assert save_unsaved_files(place)
    assert [path.name for path in place.directory.iterdir()] == ["record.json"]
    assert read_state(place, "record.json")["boot_id"] == "last"


def test_a_file_that_was_to_be_removed_is_gone_at_once_and_removed_later(place):
    save_state(place, "journal.json", {"boot_id": "b"}, 0o644)
    write_files({place.spare / "journal.json": b"null\n"})
    assert read_state(place, "journal.json") is None
    assert save_unsaved_files(place)
    assert not (place.directory / "journal.json").exists()


def test_what_an_interrupted_write_left_in_the_spare_directory_goes(place):
    write_files({place.spare / "record.json": content_of("record.json", SAID)})
    (place.spare / "journal.json.neuca-new").write_bytes(b"{")
    assert save_unsaved_files(place)
    assert list(place.spare.iterdir()) == []
    assert read_state(place, "record.json")["boot_id"] == "b"


def test_a_copy_that_is_damaged_takes_no_good_files_place(place):
    save_state(place, "record.json", SAID, 0o644)
    write_files({place.spare / "record.json": b"{"})
    before = (place.directory / "record.json").read_bytes()
    with pytest.raises(RecordError) as caught:
        save_unsaved_files(place)
    assert caught.value.text.startswith(f'read "{place.spare}/record.json": it is not JSON: ')
    assert (place.directory / "record.json").read_bytes() == before


def test_any_other_error_is_one(place, tmp_path):
    """A file where the directory should be is for somebody to look at."""
    (tmp_path / "state").write_text("")
    with pytest.raises(Exception, match="Not a directory"):
        save_state(place, "record.json", SAID, 0o644)
    assert unsaved_reason(place) == ""


@dataclass(frozen=True)
class Inner:
    number: int


@dataclass(frozen=True)
class Outer:
    inner: Optional[Inner] = None
    names: tuple[str, ...] = ()


def test_a_dataclass_in_another_is_checked_too():
    read = Shapes({}).read
    assert read(Outer, {"inner": {"number": 1}, "names": ["a"]}) == Outer(Inner(1), ("a",))
    assert read(Outer, {"inner": None}) == Outer()
    for wrong in ({"inner": {"number": "1"}}, {"inner": {"x": 1}}, {"inner": 1}, {"names": "a"}):
        with pytest.raises(ShapeError):
            read(Outer, wrong)


@pytest.mark.parametrize("names", [("x" * 300, "run"), ("state", "x" * 300)])
@pytest.mark.parametrize("change", [partial(save_record, record=Record()), remove_journal])
def test_a_file_that_cannot_be_looked_up_is_an_error_of_a_step(tmp_path, names, change):
    with pytest.raises(ApplyError, match=r": File name too long$"):
        change(StateDirectories(*(tmp_path / name for name in names)))
