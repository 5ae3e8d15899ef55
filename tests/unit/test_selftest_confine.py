"""What a confined program is left with, whoever starts it."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
import os

import pytest

from neuca_tools.selftest.measure.program import LIMITS, Program, confine_process

LOOK = "cat /proc/self/status; ulimit -c; ulimit -n; echo x > /tmp/confined; ls /tmp; ls -A /var"


def said(confine):
    ended = Program(["sh", "-c", LOOK], confine).end(10)
    assert ended.code == 0, ended
    return ended.out.decode()


def test_a_confined_program_has_no_capability_and_gets_none_back():
    found = said(confine_process())
    assert "NoNewPrivs:\t1" in found
    for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert f"{name}:\t{'0' * 16}\n" in found
    assert f"\n{min(LIMITS.values())}\n" in found


def test_of_root_it_is_nobody_in_a_file_system_that_is_empty_where_it_matters():
    found = said(confine_process())
    if os.geteuid() == 0:
        assert "Uid:\t65534\t65534\t65534\t65534\n" in found
        assert found.endswith("\nconfined\n")  # of /tmp that is all, and of /var nothing
    else:
        assert f"Uid:\t{os.geteuid()}\t" in found


def test_a_program_that_cannot_be_confined_is_not_started():
    unwritable = os.open(os.devnull, os.O_RDONLY)
    with pytest.raises(OSError, match="it cannot be confined"):
        Program(["true"], confine_process(unwritable))
    os.close(unwritable)


def test_a_program_that_nobody_could_wait_for_does_not_stay_behind(monkeypatch):
    """Linux before 5.3 and some sandboxes have no pidfd_open(2)."""

    started = []

    def refuse(process):
        started.append(process)
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(os, "pidfd_open", refuse)
    with pytest.raises(OSError, match="Function not implemented"):
        Program(["sleep", "60"])
    with pytest.raises(ChildProcessError):
        os.waitpid(*started, os.WNOHANG)
