"""A private system bus for each test, and real processes on it that play NetworkManager and systemd-networkd."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

READY_WITHIN = 120  # seconds
CONFIG = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:path={folder}/bus</listen>
  <servicedir>{folder}/services</servicedir>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/>
  </policy>
</busconfig>
"""


def read_line(stream, process):
    """The first line that a process writes: its word that it is ready."""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        deadline = time.monotonic() + READY_WITHIN
        if not selector.select(deadline - time.monotonic()):
            pytest.fail(f"{process.args} was not ready within {READY_WITHIN} s")
    return stream.readline().decode()


class PrivateBus:
    """A dbus-daemon of our own, and what was started on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = f"unix:path={folder}/bus"
        self.services = folder / "services"
        self.services.mkdir()
        (folder / "bus.conf").write_text(CONFIG.format(folder=folder))
        self.processes = []
        daemon = self._run(
            "dbus-daemon", f"--config-file={folder}/bus.conf", "--nofork", "--print-address=1"
        )
        read_line(daemon.stdout, daemon)
        self.daemon = daemon

    def play(self, name, devices=(), faults=()):
        """Start `service.py` as the owner of a name; returns when it owns it.

        It runs with the distribution's Python, which has dbusmock and PyGObject, whatever Python the tests run with.
        """
        script = Path(__file__).with_name("service.py")
        process = self._run(
            "/usr/bin/python3",
            str(script),
            name,
            json.dumps(list(devices)),
            json.dumps(list(faults)),
        )
        assert read_line(process.stdout, process) == "ready\n"
        return process

    def read_services_again(self):
        self._daemon("ReloadConfig")

    def start_service(self, name):
        """Have the daemon start a service that then never takes its name."""
        import dbus

        with contextlib.suppress(dbus.exceptions.DBusException):
            self._daemon("StartServiceByName", name, dbus.UInt32(0))

    def _daemon(self, method, *words):
        import dbus

        connection = dbus.bus.BusConnection(self.address)
        getattr(connection.get_object("org.freedesktop.DBus", "/org/freedesktop/DBus"), method)(
            *words
        )
        connection.close()

    @staticmethod
    def freeze(process):
        """Stop a process and wait until it stands."""
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)

    def stop(self):
        for process in reversed(self.processes):
            process.kill()
            process.wait()
            process.stdout.close()

    def _run(self, *words):
        environment = {**os.environ, "DBUS_SYSTEM_BUS_ADDRESS": self.address}
        process = subprocess.Popen(words, stdout=subprocess.PIPE, env=environment)
        self.processes.append(process)
        return process


@pytest.fixture
def private_bus(tmp_path, monkeypatch):
    pytest.importorskip("dbus", reason="the Python module dbus is not installed")
    if not shutil.which("dbus-daemon"):
        pytest.skip("dbus-daemon is not installed")
    bus = PrivateBus(tmp_path)
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", bus.address)
    yield bus
    bus.stop()
