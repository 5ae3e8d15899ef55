"""The DHCP clients that the agent starts as units of systemd."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import subprocess

import pytest

from neuca_tools.backends.bus import Bus
from neuca_tools.backends.dhcpclients import Clients, Units
from neuca_tools.backends.processes import CLIENT, process_note
from neuca_tools.errors import ManagerError
from neuca_tools.files import write_files

NAME = "org.freedesktop.systemd1"
REQUEST = '{"index": 2}'


def unit(label):
    return f"neuca-dhcp@{label}.service"


@pytest.fixture
def log(tmp_path):
    return tmp_path / "jobs"


def play(private_bus, log, *states, faults=()):
    private_bus.play(NAME, [(str(log), ""), *((unit(one), state) for one, state in states)], faults)


def test_a_client_is_started_as_the_unit_of_its_link(private_bus, tmp_path, log):
    play(private_bus, log)
    with Bus() as bus:
        Clients(tmp_path / "dhcp", tmp_path, Units(bus)).start("bridge-br0", REQUEST)
    assert log.read_text() == f"RestartUnit {unit('bridge-br0')} replace\n"
    assert (tmp_path / "dhcp" / "bridge-br0.json").read_text() == REQUEST


def test_which_clients_run(private_bus, tmp_path, log):
    place = tmp_path / "dhcp"
    play(private_bus, log, ("one", "active"), ("two", "failed"), ("other", "active"))
    place.mkdir()
    for label in ("one", "two", "three"):
        (place / f"{label}.json").write_text(REQUEST)
    with Bus() as bus:
        found = Clients(place, tmp_path, Units(bus)).read("none")
    assert dict(found.requests) == dict.fromkeys(("one", "two", "three"), REQUEST)
    assert found.running == {"one"}


def test_a_client_that_runs_gives_up_its_lease_while_its_unit_stops(private_bus, tmp_path, log):
    place = tmp_path / "dhcp"
    play(private_bus, log, ("one", "deactivating"))
    place.mkdir()
    (place / "one.json").write_text(REQUEST)
    with Bus() as bus:
        Clients(place, tmp_path, Units(bus)).stop("one", releases=True)
    assert log.read_text() == f"StopUnit {unit('one')} replace\n"
    assert [path.name for path in place.iterdir()] == ["one.gone"]


def test_the_files_of_a_client_that_has_ended_are_removed(private_bus, tmp_path, log):
    place = tmp_path / "dhcp"
    play(private_bus, log)
    place.mkdir()
    for name in ("one.gone", "one.conf", "one.7.json", "one.leases"):
        (place / name).write_text(REQUEST)
    with Bus() as bus:
        Clients(place, tmp_path, Units(bus)).stop("one", releases=True)
    assert [path.name for path in place.iterdir()] == ["one.7.json"]


def test_a_refusal_is_an_error(private_bus, tmp_path, log):
    play(private_bus, log, faults=["refuse"])
    with Bus() as bus, pytest.raises(ManagerError) as caught:
        Clients(tmp_path / "dhcp", tmp_path, Units(bus)).start("one", REQUEST)
    assert caught.value.text == f'start "{unit("one")}": no, not now'


@pytest.mark.usefixtures("private_bus")
def test_that_systemd_does_not_answer_does_not_mean_that_a_client_has_ended(tmp_path):
    place = tmp_path / "dhcp"
    place.mkdir()
    (place / "one.json").write_text(REQUEST)
    with Bus() as bus:
        assert Clients(place, tmp_path, Units(bus)).read("none").running == {"one"}


def test_a_pass_waits_for_the_end_of_a_client_whose_unit_stops(private_bus, tmp_path, log):
    """systemd answers at once, and on a slow host the client ends seconds later."""
    place = tmp_path / "dhcp"
    play(private_bus, log)
    place.mkdir()
    (place / "one.json").write_text(REQUEST)
    with subprocess.Popen(["sleep", "0.5"]) as client:
        write_files({place / f"one{CLIENT}": process_note(client.pid)})
        with Bus() as bus:
            Clients(place, tmp_path, Units(bus)).stop("one", releases=True)
        assert client.poll() is not None
    assert list(place.iterdir()) == []
