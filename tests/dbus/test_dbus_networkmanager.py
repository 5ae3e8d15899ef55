"""NetworkManager over a real bus: managed, unmanaged, absent, hung, late, refusing; and never started by us."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import signal
import time

import pytest

from neuca_tools.backends.bus import ANSWER_SECONDS, Bus
from neuca_tools.backends.networkmanagers import NetworkManager
from neuca_tools.errors import ManagerError

NAME = "org.freedesktop.NetworkManager"
ACTIVATED, UNMANAGED = 100, 10


def property_of(bus, interface):
    """What the service itself says of Device.Managed, asked with the library alone."""
    import dbus

    connection = dbus.bus.BusConnection(bus.address)
    device = connection.get_object(NAME, f"/org/freedesktop/NetworkManager/Devices/{interface}")
    managed = device.Get(
        "org.freedesktop.NetworkManager.Device", "Managed", dbus_interface=dbus.PROPERTIES_IFACE
    )
    connection.close()
    return bool(managed)


def test_every_real_device_is_managed_or_not(private_bus):
    private_bus.play(NAME, [("eth0", ACTIVATED), ("eth1", UNMANAGED), ("placeholder", ACTIVATED)])
    with Bus() as bus:
        assert not NetworkManager(bus).absent()
        assert NetworkManager(bus).states() == {"eth0": "managed", "eth1": "unmanaged"}
        assert NetworkManager(bus).words(["eth0", "eth1", "eth9"]) == (
            {"eth0": "managed", "eth1": "unmanaged", "eth9": "unknown"},
            "",
        )


def test_only_the_named_devices_are_unmanaged(private_bus):
    private_bus.play(NAME, [("eth0", ACTIVATED), ("eth1", ACTIVATED), ("eth2", UNMANAGED)])
    with Bus() as bus:
        NetworkManager(bus).unmanage(["eth1", "eth2", "eth9"])
        assert NetworkManager(bus).states() == {
            "eth0": "managed",
            "eth1": "unmanaged",
            "eth2": "unmanaged",
        }
    assert property_of(private_bus, "eth0")
    assert not property_of(private_bus, "eth1")


def test_a_device_that_cannot_be_unmanaged_is_named_and_does_not_stop_the_others(private_bus):
    private_bus.play(NAME, [("ghost0", ACTIVATED), ("eth1", ACTIVATED)], ["ghosts"])
    with Bus() as bus:
        with pytest.raises(
            ManagerError, match=r'^set Managed of "ghost0" to false in NetworkManager: '
        ) as caught:
            NetworkManager(bus).unmanage(["ghost0", "eth1"])
        assert "eth1" not in caught.value.text
    assert not property_of(private_bus, "eth1")


def test_the_configuration_is_read_again(private_bus):
    private_bus.play(NAME)
    with Bus() as bus:
        NetworkManager(bus).reload_configuration()


def test_an_error_that_is_answered_is_told_on_one_line(private_bus):
    private_bus.play(NAME, faults=["refuse"])
    with Bus() as bus, pytest.raises(ManagerError) as caught:
        NetworkManager(bus).reload_configuration()
    assert caught.value.text == "asked NetworkManager to reload its configuration: no, not now"


def test_absent_is_no_error_and_nothing_is_started(private_bus, tmp_path):
    marker = tmp_path / "started"
    (private_bus.services / f"{NAME}.service").write_text(
        f"[D-BUS Service]\nName={NAME}\nExec=/bin/sh -c 'touch {marker}; exit 1'\n"
    )
    private_bus.read_services_again()
    with Bus() as bus:
        manager = NetworkManager(bus)
        assert manager.absent()
        assert manager.words(["eth1"]) == ({"eth1": "absent"}, "")
        for act in (
            manager.states,
            manager.reload_configuration,
            lambda: manager.unmanage(["eth1"]),
        ):
            with pytest.raises(ManagerError, match=r": NetworkManager is not running$"):
                act()
    assert not marker.exists()
    private_bus.start_service(NAME)
    assert marker.exists(), (
        "the service could not have been started at all: this test shows nothing"
    )


def test_no_bus_is_absent(monkeypatch, tmp_path):
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={tmp_path}/none")
    with Bus() as bus:
        assert NetworkManager(bus).words(["eth1"]) == ({"eth1": "absent"}, "")


def test_a_socket_that_nobody_listens_on_is_absent(private_bus):
    private_bus.daemon.kill()
    private_bus.daemon.wait()
    with Bus() as bus:
        assert NetworkManager(bus).words(["eth1"]) == ({"eth1": "absent"}, "")


def test_a_hung_service_costs_one_second_in_all(private_bus):
    private_bus.freeze(private_bus.play(NAME, [("eth1", ACTIVATED)]))
    started = time.monotonic()
    with Bus() as bus:
        manager = NetworkManager(bus)
        assert not manager.absent()
        assert manager.words(["eth1"]) == (
            {"eth1": "unknown"},
            "asked NetworkManager for its devices: no response within 1 s",
        )
        with pytest.raises(
            ManagerError, match=r"^asked NetworkManager to reload its configuration: not tried "
        ):
            manager.reload_configuration()
        with pytest.raises(
            ManagerError,
            match=r"^asked NetworkManager for its devices: not tried again in this pass",
        ):
            manager.unmanage(["eth1"])
    assert time.monotonic() - started >= ANSWER_SECONDS


def test_a_hung_bus_costs_one_second_in_all(private_bus):
    private_bus.freeze(private_bus.daemon)
    started = time.monotonic()
    with Bus() as bus:
        words, reason = NetworkManager(bus).words(["eth1"])
        assert words == {"eth1": "unknown"}
        assert reason == f'looked for "{NAME}" on the system bus: no response within 1 s'
        words, reason = NetworkManager(bus).words(["eth1"])
        assert words == {"eth1": "unknown"}
        assert reason == (
            f'looked for "{NAME}" on the system bus: not tried again in this pass, because it did not respond in time'
        )
    assert time.monotonic() - started >= ANSWER_SECONDS


def test_a_service_that_wakes_up_is_seen_by_the_next_pass(private_bus):
    service = private_bus.play(NAME, [("eth1", UNMANAGED)])
    private_bus.freeze(service)
    with Bus() as bus:
        assert NetworkManager(bus).words(["eth1"])[0] == {"eth1": "unknown"}
    service.send_signal(signal.SIGCONT)
    with Bus() as bus:
        assert NetworkManager(bus).words(["eth1"]) == ({"eth1": "unmanaged"}, "")


def test_a_service_that_comes_late_is_seen_by_the_next_pass(private_bus):
    with Bus() as bus:
        assert NetworkManager(bus).absent()
    private_bus.play(NAME, [("eth1", ACTIVATED)])
    with Bus() as bus:
        assert NetworkManager(bus).words(["eth1"]) == ({"eth1": "managed"}, "")


def test_a_service_that_dies_in_the_middle_is_an_error_and_costs_no_second(private_bus):
    service = private_bus.play(NAME, [("eth1", ACTIVATED)])
    with Bus() as bus:
        manager = NetworkManager(bus)
        assert not manager.absent()
        service.kill()
        service.wait()
        words, reason = manager.words(["eth1"])
        assert words == {"eth1": "unknown"}
        assert "no response within" not in reason


def test_many_devices_are_one_question(private_bus):
    private_bus.play(NAME, [(f"eth{number}", UNMANAGED) for number in range(200)])
    with Bus() as bus:
        asked = []
        call = bus.call
        bus.call = lambda *words, **how: asked.append(words[0]) or call(*words, **how)
        assert len(NetworkManager(bus).states()) == 200
        looked = 'looked for "org.freedesktop.NetworkManager" on the system bus'
        assert asked == [looked, looked, "asked NetworkManager for its devices"]  # first, Hello
