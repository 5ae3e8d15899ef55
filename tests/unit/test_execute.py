"""Carrying out operations: which ones are carried out together, and which of them fail together."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from worlds import key

from neuca_tools.apply.execute import GuardedWriter, apply
from neuca_tools.files import MAX_SINGLE_SYNCS
from neuca_tools.model import World
from neuca_tools.plan.link_operations import SetDevice
from neuca_tools.plan.operation import Target
from neuca_tools.plan.operations import WriteFile


class Files(GuardedWriter):
    """A writer of files that keeps how many it was given at once."""

    def __init__(self):
        super().__init__(netlink=None, managers=None, allowed=())
        self.batches = []

    def write_files(self, files):
        self.batches.append(len(files))
        super().write_files(files)


def files_in(*directories):
    return [WriteFile(f"{directory}/{name}", b"x") for directory in directories for name in "ab"]


def test_files_of_several_directories_are_written_together(tmp_path):
    writer, planned = Files(), files_in(tmp_path / "one", tmp_path / "two", tmp_path / "three")
    assert len(planned) > MAX_SINGLE_SYNCS
    result = apply(planned, writer)
    assert result.done == tuple(planned)
    assert writer.batches == [len(planned)]


def test_a_directory_that_cannot_be_written_fails_by_itself(tmp_path):
    (tmp_path / "two").write_bytes(b"in the way")
    writer, planned = Files(), files_in(tmp_path / "one", tmp_path / "two", tmp_path / "three")
    result = apply(planned, writer)
    reason = f'write "{tmp_path}/two/a": Not a directory'
    assert [(one.operation, one.reason) for one in result.failures] == [
        (operation, reason) for operation in planned[2:4]
    ]
    assert result.done == (*planned[:2], *planned[4:])
    assert writer.batches == [6, 2, 2, 2]
    assert sorted(path.name for path in tmp_path.glob("*/*")) == ["a", "a", "b", "b"]


class Unplugged:
    """Netlink of a host whose NIC has been unplugged since the plan was made."""

    def name_of(self, _):
        return ""

    def look(self, _):
        return World({})


def test_a_port_setting_of_a_nic_that_is_gone_fails():
    setting = SetDevice(Target(key(2), "eth2", 2), "path-cost", {}, {"path-cost": "5"})
    result = apply([setting], GuardedWriter(Unplugged(), None, {2}))
    assert [(failure.operation, failure.reason) for failure in result.failures] == [
        (setting, "No such device")
    ]
