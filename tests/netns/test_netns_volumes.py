"""`neuca read-drive` and the passes after it: which volumes count, and what is remembered of them."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from lab import mac

from neuca_tools.agent.drives import read_volume

REFUSED = 77
SERVICE = {"source": "ec2", "url": "http://169.254.169.254", "mac": ""}


def volume(lab, name, text, uuid=None):
    place = lab.folder / name / "openstack" / "latest"
    place.mkdir(parents=True)
    (place / "user_data").write_text(text)
    (place / "meta_data.json").write_text(json.dumps({"uuid": uuid} if uuid else {"name": "x"}))
    return lab.folder / name


def machine(lab, **changes):
    """What machine.json has, after these changes."""
    path = lab.folder / "state" / "machine.json"
    data = {**json.loads(path.read_text()), **changes}
    if changes:
        del data["crc32"]
        path.write_text(json.dumps(data))
    return data


@pytest.fixture
def host(lab):
    lab.veth("dp1", 1)
    lab.configure(sources="configdrive, nocloud")
    return lab


TEXT = f"[interface {mac(1)}]\naddresses = 172.16.1.1/24\n"


def test_the_instance_and_the_digest_of_a_volume_that_counted_are_remembered(host):
    place = volume(host, "one", TEXT, "u-1")
    done = host.neuca("read-drive", place)
    assert (done.code, done.out) == (0, f"{place}: config-2\n")
    assert host.once().code == 0
    assert host.addresses("dp1") == {"172.16.1.1/24"}
    found = machine(host)
    assert (found["instances"], found["volume"]) == (
        {"openstack": "u-1"},
        read_volume(place).digest,
    )


def test_a_directory_does_not_count_either_once_a_metadata_service_has_answered(host):
    host.neuca("read-drive", volume(host, "one", TEXT, "u-1"))
    assert host.once().code == 0
    machine(host, origin=SERVICE)
    place = volume(host, "two", TEXT.replace("1.1/", "1.2/"), "u-1")
    done = host.neuca("read-drive", place)
    assert (done.code, done.out) == (REFUSED, "")
    assert done.err == (
        f'volume "{place}" is not used: the metadata service "ec2" has responded for this instance\n'
    )
    assert host.once().code == 4  # stale: what was read before counts no more
    assert host.addresses("dp1") == {"172.16.1.1/24"}
    host.configure(sources=f"configdrive={place}")
    assert host.once().code == 0
    assert host.addresses("dp1") == {"172.16.1.2/24"}


def test_a_device_that_the_kernel_made_itself_is_refused_before_it_is_mounted(host):
    if os.geteuid():
        pytest.skip("a user namespace may not make device nodes")
    devices = [
        one for one in Path("/sys/dev/block").iterdir() if "/virtual/" in os.path.realpath(one)
    ]
    if not devices:
        pytest.skip("the kernel has no block device of its own making here")
    major, minor = map(int, devices[0].name.split(":"))
    node = host.folder / "node"
    os.mknod(node, stat.S_IFBLK | 0o600, os.makedev(major, minor))
    done = host.neuca("read-drive", node)
    assert done.code == REFUSED
    assert done.err.startswith(f'volume "{node}" is not used: it is ')
    name = devices[0].resolve().name
    log = json.loads((host.folder / "run" / "volumes.json").read_text())
    assert f'volume "{node}" is not used: {log["refused"][name]}\n' == done.err
    assert not (host.folder / "run" / "drives").exists()
