"""What systemd is told, over a real socket, and when the journal is written to."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from neuca_tools.backends import systemd


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
if sys.argv[2] == "no library":
    sys.modules["systemd"] = None
from neuca_tools.backends import systemd
print(type(systemd.journal_handler()).__name__)
"""


@pytest.mark.parametrize(
    ("stream", "library", "handler"),
    [
        ("journal", "library", "JournalHandler"),
        ("journal", "no library", "NoneType"),
        ("inherited", "library", "NoneType"),
    ],
)
def test_the_journal_is_written_to_where_standard_error_is_its_stream(stream, library, handler):
    if library == "library":
        pytest.importorskip("systemd.journal", reason="the Python module systemd is not installed")
    root = Path(__file__).parents[2]
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, stream, library],
        check=True,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=root,
        env={"PYTHONPATH": str(root), "JOURNAL_STREAM": "8:1"},
    )
    assert run.stdout == f"{handler}\n"
