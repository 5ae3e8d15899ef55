"""The host name through systemd-hostnamed: one call, to a service that is started for it; what it will not do is an error."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
from pathlib import Path

import pytest

from neuca_tools.backends.systemd import HOSTNAMED as NAME
from neuca_tools.backends.systemd import set_hostname
from neuca_tools.errors import ManagerError


def test_the_static_name_is_asked_for_and_nobody_is_asked_for_a_password(private_bus, tmp_path):
    private_bus.play(NAME, [[str(tmp_path / "name"), ""]])
    set_hostname("node0")
    assert (tmp_path / "name").read_text() == "node0 False"


def test_it_is_started_if_it_does_not_run(private_bus, tmp_path):
    script = Path(__file__).with_name("service.py")
    words = json.dumps([[str(tmp_path / "name"), ""]]).replace('"', '\\"')
    (private_bus.services / "hostnamed.service").write_text(
        f"[D-BUS Service]\nName={NAME}\nExec=/bin/sh {tmp_path}/start\n"
    )
    (tmp_path / "start").write_text(
        f'DBUS_SYSTEM_BUS_ADDRESS={private_bus.address} exec /usr/bin/python3 {script} {NAME} "{words}" "[]"\n'
    )
    private_bus.read_services_again()
    set_hostname("node0")
    assert (tmp_path / "name").read_text() == "node0 False"


def test_a_refusal_is_an_error_with_its_words(private_bus, tmp_path):
    private_bus.play(NAME, [[str(tmp_path / "name"), ""]], ["refuse"])
    with pytest.raises(ManagerError) as caught:
        set_hostname("node0")
    assert caught.value.text == 'ask systemd-hostnamed for the host name "node0": no, not now'


@pytest.mark.usefixtures("private_bus")
def test_where_there_is_none_that_is_an_error_at_once():
    with pytest.raises(ManagerError) as caught:
        set_hostname("node0")
    assert caught.value.text.startswith(f'started "{NAME}" on the system bus: ')


def test_without_a_bus_it_is_an_error_at_once(monkeypatch, tmp_path):
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={tmp_path}/none")
    with pytest.raises(ManagerError):
        set_hostname("node0")
