"""What systemd is told, over a real socket, and when the journal is written to."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import logging
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from neuca_tools.backends import systemd
from neuca_tools.backends.journal import JournalHandler
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
print(type(systemd.journal_handler()).__name__, "systemd" in sys.modules)
"""


@pytest.mark.parametrize(
    ("stream", "handler"), [("journal", "JournalHandler"), ("inherited", "NoneType")]
)
def test_the_journal_is_written_to_where_standard_error_is_its_stream(stream, handler):
    root = Path(__file__).parents[2]
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, stream],
        check=True,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=root,
        env={"PYTHONPATH": str(root), "JOURNAL_STREAM": "8:1"},
    )
    assert run.stdout == f"{handler} False\n"


# --- The journal's protocol -----------------------------------------------------------------------


def fields_of(entry: bytes) -> dict[str, str]:
    """As systemd-journald reads an entry."""
    found = {}
    while entry:
        line, _, entry = entry.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            (length,) = struct.unpack("<Q", entry[:8])
            value, entry = entry[8 : 8 + length], entry[8 + length + 1 :]
        found[name.decode()] = value.decode()
    return found


@pytest.fixture
def journal(tmp_path):
    """What a logger of its own writes, entry by entry."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "journal"))
        logger = logging.Logger("neuca", "DEBUG")  # noqa: LOG001 - not the one of the agent
        logger.addHandler(JournalHandler(str(tmp_path / "journal")))

        def read(method, *words, **more):
            getattr(logger, method)(*words, **more)
            entry, rights, *_ = socket.recv_fds(listening, 1 << 20, 1)
            for descriptor in rights:
                with os.fdopen(descriptor, "rb") as memory:
                    memory.seek(0)
                    entry += memory.read()
            return fields_of(entry)

        yield read


@pytest.mark.parametrize(
    ("method", "priority"),
    [("debug", "7"), ("info", "6"), ("warning", "4"), ("error", "3"), ("critical", "2")],
)
def test_a_line_has_its_priority_and_its_place(journal, method, priority):
    found = journal(method, "set %s", "x")
    assert (found["MESSAGE"], found["PRIORITY"]) == ("set x", priority)
    assert (found["SYSLOG_IDENTIFIER"], found["LOGGER"]) == ("neucad", "neuca")
    assert found["CODE_FILE"] == __file__


def test_a_line_has_the_fields_that_it_is_given(journal):
    given = messages.fields(messages.DONE, operation="rename", interface="eth1")
    found = journal("info", "x", extra=given)
    assert found.items() >= given.items()


def test_a_value_of_several_lines_is_whole(journal):
    assert journal("error", "a\nMESSAGE=b\n")["MESSAGE"] == "a\nMESSAGE=b\n"


def test_an_exception_is_in_the_message(journal):
    try:
        raise ValueError("why")
    except ValueError:
        found = journal("exception", "a bug")
    assert found["MESSAGE"].startswith("a bug\nTraceback ")
    assert found["MESSAGE"].endswith("ValueError: why")


def test_what_no_datagram_holds_arrives_as_a_file(journal):
    text = "long " * 200_000
    assert journal("info", text)["MESSAGE"] == text


def test_without_a_journal_the_line_is_reported_and_nothing_fails(tmp_path, capsys):
    logger = logging.Logger("neuca")  # noqa: LOG001 - not the one of the agent
    logger.addHandler(JournalHandler(str(tmp_path / "nowhere")))
    logger.error("x")
    assert "FileNotFoundError" in capsys.readouterr().err
