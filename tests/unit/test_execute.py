"""Carrying out operations: which ones are carried out together, and which of them fail together."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import time

import pytest
from worlds import key

from neuca_tools.apply.execute import GuardedWriter, apply
from neuca_tools.backends import raw_requests, wire
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


LIFETIMES = [(50, [(50, 150)]), (150, [(0, 50)]), (300, [])]


@pytest.mark.parametrize(("elapsed", "expected"), LIFETIMES)
def test_an_address_is_restored_with_what_is_left_of_its_lifetimes(monkeypatch, elapsed, expected):
    """It was seen with 100 seconds in which it is preferred, and 200 in which it is valid."""
    sent = []
    monkeypatch.setattr(raw_requests, "_send_request", lambda *request: sent.append(request[-1]))
    lifetimes = raw_requests._CACHE.pack(100, 200, 0, 0)
    message = raw_requests.ADDRESS.pack(2, 24, 0, 0, 2)
    message += wire.encode_attribute(raw_requests._LIFETIMES, lifetimes)
    writer = GuardedWriter(netlink=None, managers=None, allowed={2})
    writer.restore_address(2, message, time.monotonic() - elapsed)
    left = [raw_requests._CACHE.unpack(value)[:2] for body in sent
            for kind, value in wire.parse_attributes(body[raw_requests.ADDRESS.size :])
            if kind == raw_requests._LIFETIMES]  # fmt: skip
    # Two requests: without duplicate address detection, and without the flag for it.
    assert [pytest.approx(pair, abs=2) for pair in left] == expected * 2
