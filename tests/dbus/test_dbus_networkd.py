"""systemd-networkd over a real bus: its words for a link, absent, hung, refusing."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import signal
import socket
import time
from types import SimpleNamespace

import pytest

from neuca_tools.backends import bus as bus_module
from neuca_tools.backends.bus import Bus
from neuca_tools.backends.networkmanagers import Networkd, NetworkManager
from neuca_tools.errors import ManagerError

NAME = "org.freedesktop.network1"


@pytest.mark.parametrize(
    ("state", "word"),
    [
        ("unmanaged", "unmanaged"),
        ("configured", "managed"),
        ("configuring", "managed"),
        ("failed", "managed"),
        ("pending", "unknown"),
        ("initialized", "unknown"),
        ("linger", "unknown"),
        ("something new", "unknown"),
    ],
)
def test_what_its_states_mean(private_bus, state, word):
    private_bus.play(NAME, [("eth1", state)])
    with Bus() as bus:
        assert Networkd(bus).words(["eth1"]) == ({"eth1": word}, "")


def test_all_links_are_read_at_once(private_bus):
    private_bus.play(NAME, [("eth0", "configured"), ("eth1", "unmanaged")])
    with Bus() as bus:
        assert Networkd(bus).states() == {"eth0": "managed", "eth1": "unmanaged"}


def test_a_malformed_response_is_an_error(private_bus):
    private_bus.play(NAME, [("eth1", "configured")], faults=["malformed"])
    with Bus() as bus:
        assert Networkd(bus).words(["eth1"]) == (
            {"eth1": "unknown"},
            "asked systemd-networkd for its links: the response is malformed",
        )


@pytest.mark.usefixtures("private_bus")
def test_absent():
    with Bus() as bus:
        assert Networkd(bus).words(["eth1"]) == ({"eth1": "absent"}, "")
        with pytest.raises(ManagerError) as caught:
            Networkd(bus).reload()
    assert (
        caught.value.text
        == "asked systemd-networkd to reload its files: systemd-networkd is not running"
    )


@pytest.mark.parametrize("version", [0, 1])
def test_one_that_runs_and_is_not_on_the_bus_yet_may_have_read_its_files_before(
    private_bus, monkeypatch, tmp_path, version
):
    monkeypatch.setattr(
        "neuca_tools.backends.networkmanagers.CGROUPS", (tmp_path / "unified", tmp_path)
    )
    ((tmp_path / "unified", tmp_path)[version] / "system.slice" / "systemd-networkd.service").mkdir(
        parents=True
    )
    with Bus() as bus:
        assert Networkd(bus).words(["eth1"]) == (
            {"eth1": "unknown"},
            "systemd-networkd runs, but is not on the system bus yet",
        )
    private_bus.play(NAME, [("eth1", "unmanaged")])
    with Bus() as bus:
        assert Networkd(bus).words(["eth1"]) == ({"eth1": "unmanaged"}, "")


def test_one_that_runs_where_there_is_no_bus_at_all_cannot_be_told(monkeypatch, tmp_path):
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={tmp_path}/none")
    monkeypatch.setattr("neuca_tools.backends.networkmanagers.CGROUPS", (tmp_path,))
    (tmp_path / "system.slice" / "systemd-networkd.service").mkdir(parents=True)
    with Bus() as bus:
        assert Networkd(bus).words(["eth1"]) == ({"eth1": "absent"}, "")


def test_one_that_runs_while_the_bus_is_away_is_not_absent(monkeypatch, tmp_path):
    """It may have been stopped, or not started yet: systemd has made its socket. The manager cannot be asked."""
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={tmp_path}/bus")
    with socket.socket(socket.AF_UNIX) as stopped:
        stopped.bind(str(tmp_path / "bus"))
    monkeypatch.setattr("neuca_tools.backends.networkmanagers.CGROUPS", (tmp_path,))
    (tmp_path / "system.slice" / "systemd-networkd.service").mkdir(parents=True)
    with Bus() as bus:
        assert Networkd(bus).words(["eth1"]) == (
            {"eth1": "unknown"},
            "systemd-networkd runs, but is not on the system bus yet",
        )
        assert NetworkManager(bus).words(["eth1"]) == ({"eth1": "absent"}, "")


def test_hung(private_bus):
    private_bus.freeze(private_bus.play(NAME, [("eth1", "configured")]))
    with Bus() as bus:
        assert Networkd(bus).words(["eth1"]) == (
            {"eth1": "unknown"},
            "asked systemd-networkd for its links: no response within 1 s",
        )


def test_its_files_are_read_again_or_the_refusal_told(private_bus):
    service = private_bus.play(NAME)
    with Bus() as bus:
        Networkd(bus).reload()
    service.kill()
    service.wait()
    private_bus.play(NAME, faults=["refuse"])
    with Bus() as bus, pytest.raises(ManagerError) as caught:
        Networkd(bus).reload()
    assert caught.value.text == "asked systemd-networkd to reload its files: no, not now"


def test_a_reload_may_take_longer_than_a_query(private_bus):
    private_bus.play(NAME, faults=["slow"])
    with Bus(answer_seconds=1.0, pass_seconds=120.0) as bus:
        Networkd(bus).reload()


def test_a_service_that_did_not_respond_is_asked_again_after_the_wait_of_a_trial(
    private_bus, monkeypatch
):
    service = private_bus.play(NAME, [["eth1", "configured"]])
    clock = SimpleNamespace(monotonic=time.monotonic)
    monkeypatch.setattr(bus_module, "time", clock)
    with Bus() as bus:
        private_bus.freeze(service)
        assert Networkd(bus).words(["eth1"])[0] == {"eth1": "unknown"}
        assert "not tried again in this pass" in Networkd(bus).words(["eth1"])[1]
        service.send_signal(signal.SIGCONT)
        clock.monotonic = lambda: time.monotonic() + 60
        assert Networkd(bus).words(["eth1"]) == ({"eth1": "managed"}, "")


def test_time_that_a_pass_spends_elsewhere_is_not_that_of_a_service(private_bus, monkeypatch):
    """A trial waits for its confirmation with the connection open, and then rolls back."""
    private_bus.play(NAME, [["eth1", "configured"]])
    clock = SimpleNamespace(monotonic=time.monotonic)
    monkeypatch.setattr(bus_module, "time", clock)
    with Bus() as bus:
        assert Networkd(bus).words(["eth1"]) == ({"eth1": "managed"}, "")
        clock.monotonic = lambda: time.monotonic() + 60
        assert Networkd(bus).words(["eth1"]) == ({"eth1": "managed"}, "")
