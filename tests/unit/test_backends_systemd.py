"""What systemd is told, over a real socket, and when the journal is written to."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
import os
import socket
import struct
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from uuid import UUID

import pytest

from neuca_tools.backends import systemd
from neuca_tools.errors import ObserveError
from neuca_tools.model import messages


@pytest.fixture
def listener():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.settimeout(5)
        yield sock


def test_a_state_arrives_whole(listener, tmp_path, monkeypatch):
    listener.bind(str(tmp_path / "notify"))
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    systemd.notify("READY=1\nSTATUS=3 NICs as asked – ok")
    assert listener.recv(4096).decode() == "READY=1\nSTATUS=3 NICs as asked – ok"


def test_a_state_arrives_at_an_abstract_socket(listener, monkeypatch):
    listener.bind(f"\0neuca-test-{os.getpid()}")
    monkeypatch.setenv("NOTIFY_SOCKET", f"@neuca-test-{os.getpid()}")
    systemd.notify("WATCHDOG=1")
    assert listener.recv(4096) == b"WATCHDOG=1"


@pytest.mark.parametrize("where", ["", "vsock:2:1", "/nonexistent/notify"])
def test_without_a_socket_nothing_happens(where, monkeypatch):
    monkeypatch.setenv("NOTIFY_SOCKET", where)
    systemd.notify("READY=1")


@pytest.mark.parametrize(
    ("usec", "pid", "seconds"),
    [
        ("30000000", "self", 30.0),
        ("1500000", "", 1.5),
        ("30000000", "1", None),
        ("", "", None),
        ("0", "", None),
        ("-5", "", None),
        ("soon", "", None),
    ],
)
def test_the_watchdog_is_asked_for_in_seconds(usec, pid, seconds, monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", usec)
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()) if pid == "self" else pid)
    assert systemd.watchdog_interval() == seconds


def test_no_watchdog_without_its_variables(monkeypatch):
    monkeypatch.delenv("WATCHDOG_USEC", raising=False)
    assert systemd.watchdog_interval() is None


SCRIPT = """
import os, sys
status = os.fstat(2)
if sys.argv[1] == "journal":
    os.environ["JOURNAL_STREAM"] = f"{status.st_dev}:{status.st_ino}"
from neuca_tools.backends import systemd
if sys.argv[1] == "missing":
    sys.modules["systemd"] = None
    os.environ["JOURNAL_STREAM"] = f"{status.st_dev}:{status.st_ino}"
    os.environ["NOTIFY_SOCKET"] = "/nowhere"
    systemd.notify("READY=1")
    from neuca_tools.commands.logs import to_journal
    import logging
    to_journal("INFO")
    logging.getLogger("neuca").info("a line")
print(type(systemd.journal_handler()).__name__)
"""


@pytest.mark.parametrize(
    ("stream", "handler", "error"),
    [
        ("journal", "JournalHandler", ""),
        ("inherited", "NoneType", ""),
        ("missing", "NoneType", "a line\n"),
    ],
)
def test_the_journal_is_written_to_where_standard_error_is_its_stream(stream, handler, error):
    """Without python3-systemd, standard error takes the lines there."""
    root = Path(__file__).parents[2]
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, stream],
        check=True,
        text=True,
        capture_output=True,
        cwd=root,
        env={"PYTHONPATH": str(root), "JOURNAL_STREAM": "8:1"},
    )
    assert (run.stdout, run.stderr) == (f"{handler}\n", error)


# --- The journal ----------------------------------------------------------------------------------

# With a /run of its own, the process is journald too.
LOGGER = """
import logging, os, pathlib, socket, sys
from neuca_tools.backends import systemd
from neuca_tools.errors import ObserveError
from neuca_tools.model import messages
place = pathlib.Path("/run/systemd/journal")
place.mkdir(parents=True)
status = os.fstat(2)
os.environ["JOURNAL_STREAM"] = f"{status.st_dev}:{status.st_ino}"
log = logging.Logger("neuca", "DEBUG")
log.addHandler(systemd.journal_handler())
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
    if sys.argv[1] != "None":
        journal.bind(str(place / "socket"))
    given = messages.message_fields(messages.DONE, operation="rename", interface="eth1")
    try:
        raise ValueError("why")
    except ValueError:
        getattr(log, sys.argv[1], log.info)(eval(sys.argv[2]), "x", extra=given)
    entry, rights, *_ = socket.recv_fds(journal, 1 << 20, 1)
    for descriptor in rights:
        with os.fdopen(descriptor, "rb") as memory:
            memory.seek(0)
            entry += memory.read()
    sys.stdout.buffer.write(entry)
"""
UNSHARE = ["unshare", "--user", "--map-root-user", "--mount"]


def fields_of(entry: bytes) -> dict[str, str]:
    """As systemd-journald reads an entry: it ignores fields whose names are not in upper case."""
    found = {}
    while entry:
        line, _, entry = entry.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            (length,) = struct.unpack("<Q", entry[:8])
            value, entry = entry[8 : 8 + length], entry[8 + length + 1 :]
        if name.isupper():
            assert name not in found
            found[name.decode()] = value.decode()
    return found


def logged(method, text='"set %s"'):
    """The fields of the line that the agent's handler sends."""
    pytest.importorskip("systemd.journal", reason="python3-systemd is not installed")
    if subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("user namespaces are not permitted here")
    code = 'mount -t tmpfs none /run && exec "$@"'
    command = [*UNSHARE, "sh", "-c", code, "sh", sys.executable, "-c", LOGGER, method, text]
    run = subprocess.run(command, check=True, capture_output=True, cwd=Path(__file__).parents[2])
    assert run.stderr == b""
    return fields_of(run.stdout)


@pytest.mark.parametrize(
    ("method", "priority"),
    [("debug", "7"), ("info", "6"), ("warning", "4"), ("error", "3"), ("critical", "2")],
)
def test_a_line_has_its_priority_its_place_and_the_fields_that_it_is_given(method, priority):
    found = logged(method)
    assert (found["MESSAGE"], found["PRIORITY"]) == ("set x", priority)
    assert (found["SYSLOG_IDENTIFIER"], found["LOGGER"]) == ("neucad", "neuca")
    assert (found["CODE_FILE"], found["CODE_FUNC"]) == ("<string>", "<module>")
    given = messages.message_fields(messages.DONE, operation="rename", interface="eth1")
    assert found.items() >= given.items()


def test_a_value_of_several_lines_is_whole():
    assert logged("error", r"'a\nMESSAGE=%s\n'")["MESSAGE"] == "a\nMESSAGE=x\n"


def test_an_exception_is_in_the_message():
    found = logged("exception")
    assert found["MESSAGE"].startswith("set x\nTraceback ")
    assert found["MESSAGE"].endswith("ValueError: why")


def test_what_no_datagram_holds_arrives_as_a_file():
    assert logged("info", '"%s" + "long " * 200_000')["MESSAGE"] == "x" + "long " * 200_000


class Journal:
    """In the place of systemd.journal.Reader: the messages that it has, and what it was asked for."""

    def __init__(self, *messages, error=None):
        self.messages, self.error, self.asked = messages, error, []

    def __call__(self):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.asked.append("close")

    def __getattr__(self, name):
        return lambda **fields: self.asked.append((name, *fields.items()))

    def __iter__(self):
        if self.error:
            raise OSError(self.error, os.strerror(self.error))
        return iter(self.messages)


def test_the_messages_from_and_about_the_units_in_this_boot_are_read(monkeypatch):
    at = SimpleNamespace(timestamp=timedelta(seconds=7.5))
    about = {
        "UNIT": "a.service",
        "_SYSTEMD_UNIT": "init.scope",
        "MESSAGE_ID": UUID(int=5),
        "NEUCA_LINK": "x",
        "PRIORITY": 6,
    }
    journal = Journal(
        {"__MONOTONIC_TIMESTAMP": at, **about},
        {"__MONOTONIC_TIMESTAMP": at, "_SYSTEMD_UNIT": "b.service"},
    )
    monkeypatch.setitem(sys.modules, "systemd.journal", SimpleNamespace(Reader=journal))
    units = ["a.service", "b.service"]
    assert systemd.journal_entries(units) == [
        systemd.JournalEntry(7.5, "a.service", UUID(int=5).hex, {"NEUCA_LINK": "x"}),
        systemd.JournalEntry(7.5, "b.service", ""),
    ]
    of_units, about_units = (
        [("this_boot",), *(("add_match", (field, unit)) for unit in units)]
        for field in ("_SYSTEMD_UNIT", "UNIT")
    )
    assert journal.asked == [*of_units, ("add_disjunction",), *about_units, "close"]


def test_a_journal_that_cannot_be_read_is_an_error_and_not_empty(monkeypatch):
    for reader, reason in (
        (Journal(error=errno.EIO), "Input/output error"),
        (None, "python3-systemd is not installed"),
    ):
        monkeypatch.setitem(
            sys.modules, "systemd.journal", reader and SimpleNamespace(Reader=reader)
        )
        with pytest.raises(ObserveError, match=f"^read the journal: {reason}$"):
            systemd.journal_entries(["a.service"])
