"""The documents of a volume, copied for the daemon: no others, none from outside, and only if it counts."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from sources_volumes import DRIVE, SEED, fill

from neuca_tools.agent import drives
from neuca_tools.agent.drives import (
    Volume,
    copy_directory,
    digest_in_force,
    lines_of,
    read_volume,
    recorded_volumes,
    store_volume,
    unreported_lines,
)
from neuca_tools.backends import hostid
from neuca_tools.errors import ApplyError, RecordError, SourceError
from neuca_tools.model.machine import Machine, MetadataService
from neuca_tools.model.volumes import RecordedInstance, refusal_reason
from neuca_tools.sources import Session, Surroundings, ask_sources, parse_source
from neuca_tools.sources.files import CONFIG_DRIVE
from neuca_tools.state.records import save_machine


def copy(volume, run):
    """As root has it done for a directory. The kind of the volume."""
    kind, why = copy_directory(volume, run / "state", run)
    assert why == ""
    return kind


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
        ask_sources([parse_source("configdrive")], 5, Session(), Surroundings(run)).data
        == DRIVE["openstack/latest/user_data"]
    )


def test_the_documents_of_a_seed_are_copied(tmp_path):
    assert (
        copy(fill(tmp_path / "volume", {**SEED, "vendor-data": b"x"}), tmp_path / "run") == "cidata"
    )
    assert copied(tmp_path / "run") == {f"cidata/{name}": data for name, data in SEED.items()}


def test_only_versions_that_a_source_reads_are_copied(tmp_path):
    files = {**DRIVE, "openstack/\x1b[31m/meta_data.json": b"{}", "openstack/x/user_data": b""}
    copy(fill(tmp_path / "volume", files), tmp_path / "run")
    assert copied(tmp_path / "run") == {f"config-2/{name}": data for name, data in DRIVE.items()}


def test_another_volume_takes_the_place_of_the_one_before(tmp_path):
    copy(fill(tmp_path / "one", SEED), tmp_path / "run")
    other = {"user-data": b"other", "meta-data": b""}
    copy(fill(tmp_path / "two", other), tmp_path / "run")
    assert copied(tmp_path / "run") == {f"cidata/{name}": data for name, data in other.items()}


def test_a_volume_without_documents_is_refused_and_takes_nothing_away(tmp_path):
    copy(fill(tmp_path / "one", SEED), tmp_path / "run")
    assert (
        reason(fill(tmp_path / "two", {"x": b""}), tmp_path / "run")
        == "it contains neither a config drive nor a NoCloud seed"
    )
    assert len(copied(tmp_path / "run")) == 3


@pytest.mark.parametrize("missing", ["user-data", "meta-data"])
def test_a_seed_that_the_source_would_take_for_none_is_refused(missing, tmp_path):
    files = {name: data for name, data in SEED.items() if name != missing}
    said = reason(fill(tmp_path / "one", files), tmp_path / "run")
    assert said == "its NoCloud seed has no user-data or no meta-data"


def test_a_link_that_leads_out_of_the_volume_is_refused(tmp_path):
    volume = fill(tmp_path / "volume", {"meta-data": b""})
    (tmp_path / "secret").write_bytes(b"x")
    (volume / "user-data").symlink_to(tmp_path / "secret")
    assert reason(volume, tmp_path / "run") == '"user-data" points outside the volume'


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


# A program that holds the lock of a file until its input ends.
HOLD = """
import fcntl, sys
with open(sys.argv[1], "r+") as file:
    fcntl.lockf(file, fcntl.LOCK_EX)
    print("held", flush=True)
    sys.stdin.read()
"""


def test_two_volumes_are_not_copied_at_once(tmp_path, monkeypatch):
    volume = fill(tmp_path / "volume", SEED)
    monkeypatch.setattr(drives, "COPY_LOCK_SECONDS", 0.1)
    copy(volume, tmp_path / "run")
    command = (sys.executable, "-c", HOLD, tmp_path / "run" / "drives.lock")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(ApplyError):
            copy(volume, tmp_path / "run")
        holder.stdin.close()
    assert copy(volume, tmp_path / "run") == "cidata"


# --- what a volume is, and what is recorded -------------------------------------------------------------------------

UUID = "9b0a5c4e-8f5a-4b6e-9d4a-000000000001"


def drive(tmp_path, name, **versions):
    """A config drive with a meta_data.json of this text in each version; `_` stands for `-`."""
    files = {
        f"openstack/{version.strip('v').replace('_', '-')}/meta_data.json": text.encode()
        for version, text in versions.items()
    }
    return read_volume(fill(tmp_path / name, files))


def seed(tmp_path, name, about):
    return read_volume(
        fill(tmp_path / name, {"user-data": b"[global]\n", "meta-data": about.encode()})
    )


def test_the_id_of_a_volume_is_in_the_document_that_its_source_reads(tmp_path):
    old, new = '{"uuid": "u-old"}', '{"uuid": "u-new"}'
    assert drive(tmp_path, "a", v2018_08_27=old, latest=new).instance == "openstack:u-new"
    assert drive(tmp_path, "b", v2012_08_10=old, v2018_08_27=new).instance == "openstack:u-new"
    assert drive(tmp_path, "c", v2012_08_10=old, latest="{").instance == ""
    assert drive(tmp_path, "d", latest="{}").instance == ""
    assert seed(tmp_path, "e", "instance-id: i-1\n").instance == "nocloud:i-1"
    assert seed(tmp_path, "f", "").instance == ""
    assert seed(tmp_path, "g", "a: [").instance == ""
    assert read_volume(fill(tmp_path / "h", {"user-data": b"x"})).instance == ""


def test_the_digest_is_that_of_all_documents_with_their_names(tmp_path):
    one, same = seed(tmp_path, "a", "x: y\n"), seed(tmp_path, "b", "x: y\n")
    assert one.digest == same.digest
    swapped = {"user-data": b"x: y\n", "meta-data": b"[global]\n"}
    assert read_volume(fill(tmp_path / "c", swapped)).digest != one.digest


@pytest.fixture
def host(tmp_path, monkeypatch):
    """The state and the run directory of a host with this UUID in its firmware."""
    (tmp_path / "uuid").write_text(UUID)
    monkeypatch.setattr(hostid, "UUIDS", (tmp_path / "uuid",))
    return tmp_path / "state", tmp_path / "run"


def test_nothing_is_recorded_on_a_first_boot_and_then_what_was_read(tmp_path, host):
    assert recorded_volumes(*host) == RecordedInstance()
    save_machine(host[0], hostid.read_machine())
    assert recorded_volumes(*host) == RecordedInstance()
    volume = drive(tmp_path, "volume", latest='{"uuid": "u-1"}')
    store_volume(volume, host[1])
    assert recorded_volumes(*host) == RecordedInstance(
        "", frozenset({"openstack:u-1"}), frozenset({volume.digest})
    )


def test_a_version_that_only_the_last_volume_had_does_not_hide_those_of_the_next(tmp_path):
    name, around = "openstack/{}/meta_data.json", Surroundings(run_directory=tmp_path)
    for version in ("latest", "2018-08-27"):
        metadata = f'{{"uuid": "u-1", "hostname": "{version}"}}'.encode()
        store_volume(Volume(CONFIG_DRIVE, {name.format(version): metadata}), tmp_path)
        answer = ask_sources([parse_source("configdrive")], 5.0, Session(), around)
        assert list((answer.parts or {}).values()) == [metadata]


def test_of_later_boots_the_instance_the_document_and_the_metadata_service_are_known(host):
    state = host[0]
    before = Machine(
        hostid.read_machine().machine_id, hostid.read_machine().uuid, {"ec2": "i-1"}, volume="d"
    )
    save_machine(state, before)
    (state / "document.json").write_text("{}")
    assert recorded_volumes(*host) == RecordedInstance(
        "", frozenset({"ec2:i-1"}), frozenset({"d"}), booted=True
    )
    save_machine(state, Machine(origin=MetadataService("ec2", "http://169.254.169.254")))
    assert recorded_volumes(*host).network == "ec2"


def test_a_disk_that_was_copied_to_other_hardware_has_a_first_boot(tmp_path, host):
    origin = MetadataService("openstack", "http://169.254.169.254")
    save_machine(
        host[0], Machine("", hostid.read_machine().uuid, {"openstack": "u-1"}, origin=origin)
    )
    (host[0] / "document.json").write_text("{}")
    assert recorded_volumes(*host).network == "openstack"
    (tmp_path / "uuid").write_text(UUID.replace("1", "2"))
    assert recorded_volumes(*host) == RecordedInstance()


def test_a_record_that_is_damaged_is_no_first_boot(host):
    host[0].mkdir()
    (host[0] / "machine.json").write_text("{")
    with pytest.raises(RecordError):
        recorded_volumes(*host)


def test_a_volume_without_an_id_is_known_again_by_its_digest(tmp_path, host):
    volume = seed(tmp_path, "volume", "")
    store_volume(volume, host[1])
    assert digest_in_force("nocloud", host[1]) == volume.digest
    assert [digest_in_force(one, host[1]) for one in ("configdrive", "nocloud=/x", "ec2")] == [
        ""
    ] * 3
    save_machine(host[0], Machine(volume=volume.digest))
    (host[0] / "document.json").write_text("{}")
    shutil.rmtree(host[1] / "drives")  # a boot
    assert refusal_reason(volume.instance, volume.digest, recorded_volumes(*host)) == ""
    other = seed(tmp_path, "other", "a: b\n")
    assert refusal_reason(other.instance, other.digest, recorded_volumes(*host)) != ""


def test_not_even_a_directory_counts_where_a_metadata_service_has_answered(tmp_path, host):
    save_machine(host[0], Machine(origin=MetadataService("ec2", "http://169.254.169.254")))
    kind, why = copy_directory(fill(tmp_path / "volume", SEED), *host)
    assert (kind, why) == ("cidata", 'the metadata service "ec2" has responded for this instance')
    assert copied(host[1]) == {}


def test_a_volume_that_is_refused_has_a_line_that_is_reported_once(host):
    """The devices are this machine's own, of which those that the kernel makes are no disks."""
    devices = [
        path for path in Path("/sys/dev/block").iterdir() if "/virtual/" in os.path.realpath(path)
    ]
    numbers = [path.name for path in devices]
    lines = lines_of([*numbers, "999:999"], host[1])
    for path in devices:
        named = f'volume "{path.resolve().name}" is not used: it is '
        assert [line for line in lines if line.startswith(named)] != []
    assert len(lines) == len(numbers)
    assert unreported_lines(lines, host[1]) == lines
    assert unreported_lines(lines, host[1]) == []
    assert unreported_lines([], host[1]) == []
    assert unreported_lines(lines[:1], host[1]) == lines[:1]
    (host[1] / "volumes.json").write_text("{")
    assert unreported_lines(lines, host[1]) == lines
