"""Files that are whole or untouched: crashes, planted links, refused directories; and the lock between processes."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
import fcntl
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest

from neuca_tools import libc
from neuca_tools.agent import image_capture, image_clean
from neuca_tools.backends import dhcpclients, kernel_state, linkwatch, processes, sysctl
from neuca_tools.errors import ApplyError, LockedError, ObserveError, RecordError
from neuca_tools.files import (
    MAX_SINGLE_SYNCS,
    NEW,
    lock_holder,
    locked,
    read_bytes,
    replace_file,
    sync_directory,
    write_files,
)
from neuca_tools.guest import blockdev, blocks, iscsi
from neuca_tools.state.store import read_state

ROOT = Path(__file__).parents[2]


def listing(directory):
    return sorted(path.name for path in directory.iterdir())


def lock_and_release(path):
    with locked(path, 0.0):
        pass


# Calls that open something, with the file that each is given; the daemon makes them for months.
OPENING = [
    (read_bytes, "file"),
    (read_bytes, "pipe"),
    (lambda path: write_files({path: b"x"}), "file"),
    (lambda path: sync_directory(path.parent), "file"),
    (lock_and_release, "file"),
    (lock_and_release, "pipe"),
    (lock_holder, "file"),
    (lock_holder, "pipe"),
    (blocks.read_regular_file, "file"),
    (blocks.read_regular_file, "pipe"),
    (lambda path: sysctl.read_value(f"net/{path.name}"), "file"),
    (lambda path: sysctl.read_value(f"net/{path.name}"), "directory"),
    (lambda path: sysctl.write_value(f"net/{path.name}", "1"), "file"),
    (lambda _: processes.end_process(os.getpid(), 0, 0.0), "file"),
    (lambda path: image_clean.Trace(path, emptied=True).run(), "file"),
    (image_capture._has_flags, "file"),
    (image_capture._has_flags, "directory"),
]


@pytest.mark.parametrize(("call", "name"), OPENING)
def test_a_descriptor_is_closed_again_also_after_an_error(tmp_path, monkeypatch, call, name):
    place = tmp_path / "net"
    place.mkdir()
    (place / "file").write_bytes(b"x")
    (place / "directory").mkdir()
    os.mkfifo(place / "pipe")
    monkeypatch.setattr(sysctl, "ROOT", tmp_path)
    before = sorted(Path("/proc/self/fd").iterdir())
    with suppress(ApplyError, RecordError, ObserveError, OSError):
        call(place / name)
    assert sorted(Path("/proc/self/fd").iterdir()) == before


# --- reading --------------------------------------------------------------------------------------------------------


def test_an_absent_file_is_none_and_an_error_is_not(tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    assert read_bytes(tmp_path / "file") == b"x"
    assert read_bytes(tmp_path / "absent") is None
    assert read_bytes(tmp_path / "file" / "below") is None
    with pytest.raises(IsADirectoryError):
        read_bytes(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="symbolic links"):
        read_bytes(tmp_path / "loop")


def test_a_file_without_a_size_is_read(tmp_path):
    """As all in /proc are; an image capture reads the mounts there."""
    mounts = read_bytes("/proc/self/mountinfo")
    assert b"/" in {line.split()[4] for line in mounts.splitlines()}  # the root is mounted
    assert read_bytes("/proc/self/mountinfo", 9) == mounts[:9]
    (tmp_path / "empty").touch()
    assert read_bytes(tmp_path / "empty") == b""


def test_a_file_without_a_size_takes_no_more_memory_than_it_has():
    """Not that of the largest file: a host that commits no memory in advance would refuse it."""
    tracemalloc.start()
    try:
        content = read_bytes("/proc/self/mountinfo")
        assert tracemalloc.get_traced_memory()[1] < 2 * len(content) + (1 << 20)
    finally:
        tracemalloc.stop()


def kinds_of_file(place):
    """Whatever may be in place of a file, by the error that reading it is."""
    os.mkfifo(place / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place / "socket"))
    (place / "device").symlink_to("/dev/zero")
    (place / "link").symlink_to("fifo")
    return ("fifo", "socket", "device", "link")


def test_what_is_no_regular_file_is_an_error_and_waits_for_nobody(tmp_path):
    for name in kinds_of_file(tmp_path):
        with pytest.raises(OSError, match="not a regular file"):
            read_bytes(tmp_path / name)
    (tmp_path / "masked").symlink_to(os.devnull)  # as sysctl.d(5) has it
    assert read_bytes(tmp_path / "masked") == b""


def test_a_state_file_that_is_no_regular_file_is_a_damaged_one(tmp_path):
    for name in kinds_of_file(tmp_path):
        with pytest.raises(RecordError) as caught:
            read_state(tmp_path, name)
        assert caught.value.text == f'read "{tmp_path / name}": it is not a regular file'


def test_a_lock_that_is_no_regular_file_waits_for_nobody(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for shared in (False, True):
        with pytest.raises(ApplyError) as caught, locked(tmp_path / "fifo", 1, shared=shared):
            pass
        assert caught.value.text == f'lock "{tmp_path / "fifo"}": it is not a regular file'
    with pytest.raises(ApplyError, match="not a regular file"):
        lock_holder(tmp_path / "fifo")


# --- writing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, MAX_SINGLE_SYNCS, MAX_SINGLE_SYNCS + 1, 40])
def test_files_are_written_whole_and_nothing_is_left_beside_them(tmp_path, count):
    files = {tmp_path / "sub" / f"{number}": b"%d" % number for number in range(count)}
    write_files(files)
    assert {path: path.read_bytes() for path in files} == files
    assert len(listing(tmp_path / "sub")) == count


def test_files_are_removed_and_an_absent_one_is_no_error(tmp_path):
    (tmp_path / "old").write_bytes(b"x")
    write_files(
        {
            tmp_path / "old": None,
            tmp_path / "never": None,
            tmp_path / "no" / "directory": None,
            tmp_path / "new": b"y",
        }
    )
    assert listing(tmp_path) == ["new"]
    write_files({})


@pytest.mark.parametrize(("mode", "umask"), [(0o644, 0o077), (0o600, 0o000), (0o644, 0o000)])
def test_the_mode_does_not_depend_on_the_umask(tmp_path, mode, umask):
    before = os.umask(umask)
    try:
        write_files({tmp_path / "file": b"x"}, mode)
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == mode


@pytest.mark.parametrize("has_leftover", [False, True])
def test_nobody_else_can_open_a_file_before_it_has_its_mode(tmp_path, has_leftover):
    if has_leftover:
        (tmp_path / f"file{NEW}").write_bytes(b"of a crash")
    modes, before = [], os.umask(0)
    try:
        replace_file(tmp_path / "file", b"x", lambda new: modes.append(os.fstat(new).st_mode))
    finally:
        os.umask(before)
    assert [stat.S_IMODE(mode) for mode in modes] == [0o600]


def test_a_link_planted_at_the_temporary_name_is_not_written_through(tmp_path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / f"file{NEW}").symlink_to(victim)
    write_files({tmp_path / "file": b"new"})
    assert (victim.read_bytes(), (tmp_path / "file").read_bytes()) == (b"precious", b"new")
    assert not (tmp_path / "file").is_symlink()


def test_a_hard_link_planted_at_the_temporary_name_is_not_written_through(tmp_path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    victim.chmod(0o600)
    os.link(victim, tmp_path / f"file{NEW}")
    write_files({tmp_path / "file": b"new"})
    assert (victim.read_bytes(), victim.stat().st_mode & 0o777) == (b"precious", 0o600)


def test_a_link_at_the_name_itself_is_replaced_and_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / "file").symlink_to(victim)
    write_files({tmp_path / "file": b"new"})
    assert (victim.read_bytes(), (tmp_path / "file").is_symlink()) == (b"precious", False)


def test_another_name_of_the_old_file_keeps_the_old_content(tmp_path):
    (tmp_path / "file").write_bytes(b"old")
    os.link(tmp_path / "file", tmp_path / "backup")
    write_files({tmp_path / "file": b"new"})
    assert (tmp_path / "backup").read_bytes() == b"old"


def test_what_a_crash_left_behind_is_written_over(tmp_path):
    (tmp_path / f"file{NEW}").write_bytes(b"half a li")
    write_files({tmp_path / "file": b"new"})
    assert listing(tmp_path) == ["file"]


def test_a_fifo_at_the_temporary_name_hangs_nobody(tmp_path):
    os.mkfifo(tmp_path / f"file{NEW}")
    write_files({tmp_path / "file": b"new"})
    assert (tmp_path / "file").read_bytes() == b"new"


@pytest.mark.parametrize(
    ("count", "each", "whole"),
    [(1, 2 + 2, 0), (MAX_SINGLE_SYNCS // 2, MAX_SINGLE_SYNCS + 2, 0), (MAX_SINGLE_SYNCS, 0, 2)],
)
def test_many_files_of_several_directories_wait_for_the_disk_twice(
    tmp_path, monkeypatch, count, each, whole
):
    """Before and after they are renamed; of a few, each file and each directory is synced."""
    synced, calls = [], []
    monkeypatch.setattr(os, "fsync", synced.append)
    monkeypatch.setattr(libc, "call", lambda *words: calls.append(words))
    directories = (tmp_path / "one", tmp_path / "two")
    write_files({directory / f"{at}": b"x" for directory in directories for at in range(count)})
    assert (len(synced), len(calls)) == (each, whole)


@pytest.mark.parametrize("count", [1, MAX_SINGLE_SYNCS + 1])
def test_nothing_is_replaced_before_everything_is_on_disk(tmp_path, count):
    """One that cannot be written beside the others: none of them has changed."""
    for number in range(count):
        (tmp_path / f"{number}").write_bytes(b"old")
    (tmp_path / f"z{NEW}").mkdir()
    with pytest.raises(ApplyError):
        write_files(
            {**{tmp_path / f"{number}": b"new" for number in range(count)}, tmp_path / "z": b"x"}
        )
    assert {(tmp_path / f"{number}").read_bytes() for number in range(count)} == {b"old"}


def test_after_a_failure_no_half_written_file_is_left(tmp_path):
    (tmp_path / f"z{NEW}").mkdir()
    with pytest.raises(ApplyError):
        write_files({tmp_path / "a": b"new", tmp_path / "z": b"x"})
    assert listing(tmp_path) == [f"z{NEW}"]


def test_a_replacement_that_fails_is_an_error_and_leaves_the_old_file(tmp_path):
    path = tmp_path / "authorized_keys"
    path.write_text("old")

    def refuse(_):
        raise PermissionError(errno.EPERM, "not the owner")

    with pytest.raises(PermissionError):
        replace_file(path, b"new", refuse)
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {path.name: "old"}


@pytest.mark.parametrize("is_linked", [False, True])
def test_a_device_or_fifo_is_not_replaced(tmp_path, is_linked):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("fifo")
    path = tmp_path / ("link" if is_linked else "fifo")
    with pytest.raises(ApplyError) as caught:
        write_files({path: b"x"})
    assert caught.value.text == f'write "{path}": it exists, and is not a regular file'
    assert listing(tmp_path) == ["fifo", "link"]
    assert path.is_fifo()


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_an_interrupt_leaves_no_temporary_file(tmp_path, monkeypatch, call):
    def interrupted(*_):
        raise KeyboardInterrupt

    (tmp_path / "file").write_bytes(b"before")
    monkeypatch.setattr(os, call, interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_files({tmp_path / "file": b"after"})
    assert listing(tmp_path) == ["file"]
    assert (tmp_path / "file").read_bytes() == b"before"


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_bytes(b"in the way")
    with pytest.raises(ApplyError) as caught:
        write_files({tmp_path / "file" / "below": b"x"})
    assert caught.value.text == f'write "{tmp_path}/file/below": Not a directory'
    assert caught.value.errno == errno.ENOTDIR


def test_a_directory_in_the_way_is_named(tmp_path):
    (tmp_path / "dir").mkdir()
    with pytest.raises(ApplyError) as caught:
        write_files({tmp_path / "dir": b"x"})
    assert caught.value.text == f'write "{tmp_path}/dir": Is a directory'
    with pytest.raises(ApplyError) as caught:
        write_files({tmp_path / "dir": None})
    assert caught.value.text == f'remove "{tmp_path}/dir": Is a directory'


def test_a_read_only_place_is_named_and_left_as_it_was():
    with pytest.raises(ApplyError) as caught:
        write_files({Path("/proc/sys/net/nothing"): b"x"})
    assert caught.value.text.startswith('write "/proc/sys/net/nothing": ')


def test_a_reader_sees_the_old_file_or_the_new_one(tmp_path):
    path, sizes = tmp_path / "file", set()
    write_files({path: b"a" * 100000})
    child = subprocess.Popen([sys.executable, "-c", _WRITER, str(path)], cwd=ROOT)
    while child.poll() is None:
        content = read_bytes(path)
        sizes.add((len(content), content[:1] == content[-1:]))
    assert child.returncode == 0
    assert sizes <= {(100000, True), (200000, True)}


_WRITER = """
import sys
from pathlib import Path
from neuca_tools.files import write_files
for number in range(60):
    write_files({Path(sys.argv[1]): (b"a" * 100000 if number % 2 else b"b" * 200000)})
"""


@pytest.mark.parametrize("suffix", [".rules", ".conf", ".network"])
def test_nobody_reads_the_temporary_file(suffix):
    assert not f"10-x{suffix}{NEW}".endswith((".rules", ".conf", ".network", ".link"))


# --- the lock -------------------------------------------------------------------------------------------------------

_HOLDER = """
import sys
from pathlib import Path
from neuca_tools.files import locked
with locked(Path(sys.argv[1]), 5):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock until its standard input closes."""
    child = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(tmp_path / "run" / "lock")],
        cwd=ROOT,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout.readline() == "held\n"
    yield child
    child.kill()
    child.wait(60)
    child.stdin.close()
    child.stdout.close()


def test_a_lock_that_another_process_holds_is_waited_for_and_then_named(tmp_path, holder):
    began = time.monotonic()
    with pytest.raises(LockedError) as caught, locked(tmp_path / "run" / "lock", 0.2):
        pytest.fail("both hold it")
    assert caught.value.text == f'lock "{tmp_path}/run/lock": another pass has held it for 0.2 s'
    assert 0.15 < time.monotonic() - began < 60
    assert holder.poll() is None


@pytest.mark.usefixtures("holder")
def test_a_wait_that_is_over_before_it_begins_ends_as_any_other(tmp_path, monkeypatch):
    """On a busy host, the process may not run for longer than the wait."""
    set_timer, handler = signal.setitimer, signal.getsignal(signal.SIGALRM)

    def set_and_stall(which, seconds, interval=0.0):
        set_timer(which, seconds, interval)
        if seconds:
            signal.pause()

    monkeypatch.setattr(signal, "setitimer", set_and_stall)
    with pytest.raises(LockedError), locked(tmp_path / "run" / "lock", 0.0):
        pytest.fail("both hold it")
    assert signal.getsignal(signal.SIGALRM) == handler


def test_a_signal_that_comes_just_before_the_wait_does_not_make_it_endless(
    tmp_path, holder, monkeypatch
):
    """Python runs the handler of such a signal only when fcntl(2) returns."""
    install, alarms = signal.signal, []

    def install_without_first(number, handler):
        def handle(*arguments):
            alarms.append(number)
            if len(alarms) > 1:
                handler(*arguments)

        return install(number, handle if callable(handler) else handler)

    monkeypatch.setattr(signal, "signal", install_without_first)
    end = threading.Timer(10.0, holder.kill)  # otherwise, the test would hang
    end.start()
    with pytest.raises(LockedError), locked(tmp_path / "run" / "lock", 0.0):
        pytest.fail("both hold it")
    end.cancel()


def test_a_lock_is_taken_as_soon_as_it_is_free(tmp_path, holder):
    holder.stdin.close()
    with locked(tmp_path / "run" / "lock", 60):
        assert True


def test_a_lock_goes_with_a_process_that_is_killed(tmp_path, holder):
    holder.kill()
    with locked(tmp_path / "run" / "lock", 60):
        assert holder.wait(60) == -signal.SIGKILL


def test_a_lock_can_be_taken_again_after_an_error_inside(tmp_path):
    with pytest.raises(RuntimeError), locked(tmp_path / "lock", 1):
        raise RuntimeError
    with locked(tmp_path / "lock", 1):
        assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600


def test_the_timer_and_the_handler_of_before_come_back(tmp_path):
    before = signal.signal(signal.SIGALRM, signal.SIG_IGN)
    try:
        with locked(tmp_path / "lock", 1):
            assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
            assert signal.getsignal(signal.SIGALRM) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_lock_in_a_place_that_cannot_be_written_is_named():
    with pytest.raises(ApplyError) as caught, locked(Path("/proc/nothing/lock"), 1):
        pytest.fail("held")
    assert caught.value.text == 'lock "/proc/nothing/lock": No such file or directory'


def test_a_lock_that_nobody_holds_has_no_holder(tmp_path):
    assert lock_holder(tmp_path / "lock") == 0
    with locked(tmp_path / "lock", 1):
        pass
    assert lock_holder(tmp_path / "lock") == 0


def test_a_link_planted_where_a_lock_should_be_is_not_followed_to_ask(tmp_path):
    (tmp_path / "lock").symlink_to(tmp_path / "victim")
    with pytest.raises(ApplyError) as caught:
        lock_holder(tmp_path / "lock")
    assert (
        caught.value.text
        == f'find the process that has locked "{tmp_path}/lock": Too many levels of symbolic links'
    )


SWAPPING = """import os, sys
from pathlib import Path
from neuca_tools.files import make_directory

place, victim = map(Path, sys.argv[1:])

def swap(event, words):
    if event == "os.chmod" and words[0] == str(place):
        place.rmdir()
        place.symlink_to(victim)

sys.addaudithook(swap)
make_directory(place)
print(oct(victim.stat().st_mode & 0o777), oct(place.stat().st_mode & 0o777))"""


def test_a_new_directory_that_a_user_replaces_by_a_link_changes_nothing_else(tmp_path):
    """The user owns the directory in which it is made, such as that of a mount point."""
    victim = tmp_path / "victim"
    victim.touch(0o600)
    words = [sys.executable, "-c", SWAPPING, tmp_path / "place", victim]
    out = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert out == "0o600 0o755\n"


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_a_directory_has_the_same_mode_whatever_the_umask(tmp_path, umask):
    before = os.umask(umask)
    try:
        write_files({tmp_path / "a" / "b" / "file": b"x"}, 0o640)
        with locked(tmp_path / "run" / "lock", 1):
            pass
    finally:
        os.umask(before)
    modes = {"a": 0o755, "a/b": 0o755, "a/b/file": 0o640, "run": 0o755, "run/lock": 0o600}
    found = {name: (tmp_path / name).stat().st_mode & 0o7777 for name in modes}
    assert found == modes


TARGET = iscsi.Target("iqn.2026-11.org.example:a", "192.0.2.1", 3260)
SHORT = {
    "leases of dhclient": lambda _: kernel_state._dhclient_leases(),
    "interfaces of udhcpc": lambda _: kernel_state._udhcpc_interfaces(),
    "enabled managers": lambda _: dhcpclients.is_manager_enabled(),
    "a watch of links": lambda _: linkwatch.Watch(),
    "a lock": lambda place: locked(place / "lock", 0.1).__enter__(),
    "partitions of a disk": lambda _: blockdev.partitions_text("sda"),
    "uses of a disk": lambda _: blockdev.in_use("sda"),
    "mounts": lambda _: blockdev.read_mounts("sda"),
    "records of a target": lambda _: iscsi.record_paths(TARGET),
    "session of a target": lambda _: iscsi.find_session(TARGET),
}


@pytest.mark.parametrize("use", SHORT.values(), ids=SHORT)
def test_a_shortage_of_descriptors_is_an_error_of_a_stage(tmp_path, use):
    """An OSError would be a traceback; nothing would be an administrator's address, or an unused disk."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        use(tmp_path)
        reason = "none"
    except (ApplyError, ObserveError) as error:
        reason = error.text
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert reason.endswith(": Too many open files")


def test_a_lock_that_the_file_system_refuses_is_an_error_of_a_stage(tmp_path, monkeypatch):
    """Such as that of NFS without its lock service (fcntl(2))."""

    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "lockf", refuse)
    with pytest.raises(ApplyError, match=f'^lock "{tmp_path}/lock": No locks available$'):
        locked(tmp_path / "lock", 0.1).__enter__()
