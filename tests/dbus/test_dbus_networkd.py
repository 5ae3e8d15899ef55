"""systemd-networkd over a real bus: its words for a link, absent, hung, refusing."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest

from neuca_tools.backends.bus import Bus
from neuca_tools.backends.networkd import Networkd
from neuca_tools.errors import ManagerError

NAME = "org.freedesktop.network1"


@pytest.mark.parametrize(("state", "word"), [
    ("unmanaged", "unmanaged"), ("configured", "managed"), ("configuring", "managed"), ("failed", "managed"),
    ("pending", "unknown"), ("initialized", "unknown"), ("linger", "unknown"), ("something new", "unknown")])
def test_what_its_states_mean(private_bus, state, word):
    private_bus.play(NAME, [("eth1", state)])
    with Bus() as bus:
        assert Networkd(bus).words(["eth1"]) == ({"eth1": word}, "")


def test_a_link_that_goes_away_in_between_costs_only_itself(private_bus):
    private_bus.play(NAME, [("ghost", "configured"), ("eth1", "unmanaged")])
    with Bus() as bus:
        assert Networkd(bus).states() == {"ghost": "unknown", "eth1": "unmanaged"}


@pytest.mark.usefixtures("private_bus")
def test_absent():
    with Bus() as bus:
        assert Networkd(bus).words(["eth1"]) == ({"eth1": "absent"}, "")
        with pytest.raises(ManagerError) as caught:
            Networkd(bus).reload()
    assert caught.value.text == "asked systemd-networkd to read its files again: systemd-networkd is not running"


def test_hung(private_bus):
    private_bus.freeze(private_bus.play(NAME, [("eth1", "configured")]))
    with Bus() as bus:
        assert Networkd(bus).words(["eth1"]) == (
            {"eth1": "unknown"}, "asked systemd-networkd for its links: no answer within 1 s")


def test_its_files_are_read_again_or_the_refusal_told(private_bus):
    service = private_bus.play(NAME)
    with Bus() as bus:
        Networkd(bus).reload()
    service.kill()
    service.wait()
    private_bus.play(NAME, faults=["refuse"])
    with Bus() as bus, pytest.raises(ManagerError) as caught:
        Networkd(bus).reload()
    assert caught.value.text == "asked systemd-networkd to read its files again: no, not now"
