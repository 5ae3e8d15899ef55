"""The documents of a volume, copied for the daemon: no others, none from outside, in place of those of before."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

import pytest
from sources_volumes import DRIVE, SEED, fill

from neuca_tools.drives import copy
from neuca_tools.errors import ApplyError, SourceError
from neuca_tools.fileio import locked
from neuca_tools.sources import Session, Surroundings, look, parse_source


def copied(run):
    return {
        str(path.relative_to(run / "drives")): path.read_bytes()
        for path in (run / "drives").rglob("*")
        if path.is_file()
    }


def reason(volume, run):
    with pytest.raises(SourceError) as caught:
        copy(volume, run)
    return caught.value.text


def test_the_documents_of_a_config_drive_are_copied_for_root_alone(tmp_path):
    volume, run = (
        fill(tmp_path / "volume", {**DRIVE, "openstack/content/0000": b"x", "other": b"y"}),
        tmp_path / "run",
    )
    assert copy(volume, run) == "config-2"
    assert copied(run) == {f"config-2/{name}": data for name, data in DRIVE.items()}
    assert {
        path.stat().st_mode & 0o777 for path in (run / "drives").rglob("*") if path.is_file()
    } == {0o600}
    assert (
        look([parse_source("configdrive")], 5, Session(), Surroundings(run)).data
        == DRIVE["openstack/latest/user_data"]
    )


def test_the_documents_of_a_seed_are_copied(tmp_path):
    assert (
        copy(fill(tmp_path / "volume", {**SEED, "vendor-data": b"x"}), tmp_path / "run") == "cidata"
    )
    assert copied(tmp_path / "run") == {f"cidata/{name}": data for name, data in SEED.items()}


def test_another_volume_takes_the_place_of_the_one_before(tmp_path):
    copy(fill(tmp_path / "one", SEED), tmp_path / "run")
    other = {"user-data": b"other", "meta-data": b""}
    copy(fill(tmp_path / "two", other), tmp_path / "run")
    assert copied(tmp_path / "run") == {f"cidata/{name}": data for name, data in other.items()}


def test_a_volume_without_documents_is_refused_and_takes_nothing_away(tmp_path):
    copy(fill(tmp_path / "one", SEED), tmp_path / "run")
    assert (
        reason(fill(tmp_path / "two", {"x": b""}), tmp_path / "run")
        == "it holds neither a config drive nor a NoCloud seed"
    )
    assert len(copied(tmp_path / "run")) == 3


def test_a_link_that_leads_out_of_the_volume_is_refused(tmp_path):
    volume = fill(tmp_path / "volume", {"meta-data": b""})
    (tmp_path / "secret").write_bytes(b"x")
    (volume / "user-data").symlink_to(tmp_path / "secret")
    assert reason(volume, tmp_path / "run") == '"user-data" leads out of the volume'


def test_a_file_that_is_too_large_is_refused(tmp_path):
    volume = fill(tmp_path / "volume", {**SEED, "user-data": b"x" * 1048577})
    assert reason(volume, tmp_path / "run") == '"user-data" is larger than 1048576 bytes'


NOBODY = 65534


@contextlib.contextmanager
def unreadable(path):
    """Without the capability to read what belongs to others, as of the unit before: then `path` is nobody's to look into."""
    path.chmod(0)
    root = os.geteuid() == 0
    try:
        if root:
            os.seteuid(NOBODY)
        yield
    finally:
        if root:
            os.seteuid(0)
        path.chmod(0o700)


@pytest.mark.parametrize(("files", "name"), [
    (DRIVE, "openstack"), (DRIVE, "openstack/latest"), (DRIVE, "openstack/latest/user_data"), (SEED, "user-data")])  # fmt: skip
def test_what_may_not_be_read_is_not_taken_for_absent(files, name):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        volume = fill(Path(folder) / "volume", files)
        for path in (volume, *volume.rglob("*")):
            path.chmod(0o755)
        with unreadable(volume / name):
            assert (
                reason(volume, Path(folder) / "run")
                == f'"{name}" cannot be read: Permission denied'
            )


def test_a_link_to_itself_is_refused(tmp_path):
    volume = fill(tmp_path / "volume", {"meta-data": b""})
    (volume / "user-data").symlink_to("user-data")
    assert (
        reason(volume, tmp_path / "run") == '"/" cannot be read: Too many levels of symbolic links'
    )


def test_two_volumes_are_not_copied_at_once(tmp_path, monkeypatch):
    volume = fill(tmp_path / "volume", SEED)
    monkeypatch.setattr("neuca_tools.drives._PATIENCE", 0.1)
    copy(volume, tmp_path / "run")
    held = os.fork()
    if held == 0:
        with contextlib.suppress(BaseException), locked(tmp_path / "run" / "drives.lock", 1):
            (tmp_path / "held").touch()
            os.kill(os.getpid(), 19)
        os._exit(0)
    os.waitpid(held, os.WUNTRACED)
    try:
        with pytest.raises(ApplyError):
            copy(volume, tmp_path / "run")
    finally:
        os.kill(held, 9)
        os.waitpid(held, 0)
    assert copy(volume, tmp_path / "run") == "cidata"
