"""A volume that a co-tenant attaches wants to be the document of an instance that has one already."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
import volumes
from lab import mac

from neuca_tools.agent.drives import read_volume, recorded_volumes
from neuca_tools.model.volumes import refusal_reason

OURS = f"[interface {mac(1)}]\naddresses = 172.16.1.1/24\n"
EVIL = f"[interface {mac(1)}]\naddresses = 172.16.66.66/24\n[scripts]\nbootscript = #!/bin/sh\n"
ID = "/latest/meta-data/instance-id"
LATE = {
    "config-2": volumes.config_drive(EVIL),
    "cidata": volumes.seed(EVIL),
    "the instance's own id": volumes.config_drive(EVIL, "i-ours"),
    "no id": {"openstack/latest/user_data": EVIL},
    "no id in a seed": {"user-data": EVIL, "meta-data": ""},
}


@pytest.fixture
def host(guest):
    """Its metadata service has answered for this instance."""
    guest.management()
    guest.veth("dp1", 1)
    service = guest.service(OURS)
    service.tree = {ID: "i-ours"}
    guest.configure(sources="configdrive, nocloud, ec2", timeout=2)
    assert guest.once().code == 0
    assert guest.addresses("dp1") == {"172.16.1.1/24"}
    return guest, service


@pytest.mark.parametrize("files", LATE.values(), ids=LATE)
def test_a_late_volume_does_not_take_the_place_of_a_service(host, tmp_path, files):
    guest, service = host
    place = volumes.directory(tmp_path / "volume", files)
    guest.neuca("read-drive", place)
    guest.once()
    assert guest.addresses("dp1") == {"172.16.1.1/24"}
    service.mode = "500"  # not while it is out of order either
    guest.once()
    assert guest.addresses("dp1") == {"172.16.1.1/24"}
    service.recover()
    guest.run("rm", "-rf", guest.folder / "run" / "drives")
    assert guest.once().code == 0


def test_a_second_volume_does_not_take_the_place_of_the_first(guest, tmp_path):
    """What `neuca read-drive DEVICE` decides by; a directory is always an administrator's."""
    guest.management()
    guest.veth("dp1", 1)
    guest.configure(sources="configdrive, nocloud")
    first = volumes.directory(tmp_path / "first", volumes.config_drive(OURS, "i-ours"))
    assert guest.neuca("read-drive", first).code == 0
    assert guest.once().code == 0
    known = recorded_volumes(guest.folder / "state", guest.folder / "run")
    for number, files in enumerate((volumes.config_drive(EVIL), volumes.seed(EVIL))):
        late = read_volume(volumes.directory(tmp_path / f"late{number}", files))
        assert refusal_reason(late.instance, late.digest, known)
    again = read_volume(first)
    assert refusal_reason(again.instance, again.digest, known) == ""


HOSTILE = {
    "a link to the shadow file": ("user-data", "/etc/shadow"),
    "a link to a device": ("user-data", "/dev/zero"),
    "a link to itself": ("user-data", "user-data"),
}


@pytest.mark.parametrize(("name", "target"), HOSTILE.values(), ids=HOSTILE)
def test_a_volume_copies_nothing_of_the_host(guest, tmp_path, name, target):
    place = volumes.directory(tmp_path / "volume", {"meta-data": "instance-id: i\n"})
    (place / name).symlink_to(target)
    done = guest.neuca("read-drive", place)
    assert done.code != 0
    assert not list((guest.folder / "run").rglob("user-data"))
