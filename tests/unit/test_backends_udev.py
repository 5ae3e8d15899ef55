"""Whether a udevd is ours, and what its events become, compared with the real library in a namespace of its own."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import itertools
import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from neuca_tools.backends import udev
from neuca_tools.errors import ObserveError

HERE = {"lo": 1, "eth0": 2}
UNSHARE = ["unshare", "--user", "--map-root-user", "--net"]


@pytest.mark.parametrize(
    ("control", "own", "first", "sysfs", "ours", "expected"),
    [
        (True, "net:[1]", "net:[1]", HERE, HERE, True),
        (True, "net:[1]", "", HERE, HERE, True),
        (True, "", "", HERE, HERE, True),
        (False, "net:[1]", "net:[1]", HERE, HERE, False),
        (True, "net:[2]", "net:[1]", HERE, HERE, False),
        (True, "net:[1]", "", HERE, {"lo": 1}, False),
        (True, "net:[1]", "", HERE, {"lo": 1, "eth0": 3}, False),
        (True, "net:[1]", "net:[1]", {}, HERE, False),
    ],
    ids=[
        "ours",
        "process 1 hidden",
        "nothing readable",
        "no udevd",
        "another namespace",
        "foreign sysfs",
        "foreign index",
        "no sysfs",
    ],
)
def test_a_udevd_serves_this_namespace(
    monkeypatch, tmp_path, control, own, first, sysfs, ours, expected
):
    show(monkeypatch, tmp_path, sysfs, control, ours)
    monkeypatch.setattr(udev, "_network_namespace", {"self": own, "1": first}.get)
    assert udev.serves_this_namespace() is expected


def show(monkeypatch, tmp_path, interfaces, control=True, ours=HERE):
    """A sysfs, a /run and the interfaces of this namespace as they would be."""
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "bonding_masters").write_text("")
    for name, index in interfaces.items():
        (tmp_path / "net" / name).mkdir()
        (tmp_path / "net" / name / "ifindex").write_text(f"{index}\n")
    if control:
        (tmp_path / "control").touch()
    monkeypatch.setattr(udev, "_SYSFS", tmp_path / "net")
    monkeypatch.setattr(udev, "_CONTROL", tmp_path / "control")
    monkeypatch.setattr(udev, "index_by_interface", lambda: ours)


def test_here_reads_sysfs_and_passes_over_what_is_no_interface(monkeypatch, tmp_path):
    show(monkeypatch, tmp_path, HERE)
    assert udev.serves_this_namespace()


def test_an_interface_that_came_since_does_not_make_it_another_namespace(monkeypatch, tmp_path):
    show(monkeypatch, tmp_path, HERE)
    readings = iter([{"lo": 1}, HERE])
    monkeypatch.setattr(udev, "index_by_interface", lambda: next(readings))
    assert udev.serves_this_namespace()


@pytest.mark.parametrize("ours", [HERE, {"lo": 1, "eth0": 3}, {"lo": 1}], ids=str)
def test_interfaces_that_come_and_go_all_the_time_do_not_change_whose_udevd_it_is(
    monkeypatch, tmp_path, ours
):
    show(monkeypatch, tmp_path, HERE)
    numbers = itertools.count(7)

    def with_new_one(interfaces):
        number = next(numbers)
        return {**interfaces, f"veth{number}": number}

    monkeypatch.setattr(udev, "index_by_interface", lambda: with_new_one(ours))
    monkeypatch.setattr(udev, "_interfaces_in_sysfs", lambda: with_new_one(HERE))
    assert udev.serves_this_namespace() is (ours == HERE)


def test_without_udevd_nothing_else_is_looked_at(monkeypatch, tmp_path):
    show(monkeypatch, tmp_path, HERE, control=False)
    monkeypatch.setattr(udev, "_interfaces_in_sysfs", lambda: pytest.fail("sysfs was read"))
    assert not udev.serves_this_namespace()


def test_in_a_new_namespace_the_hosts_udevd_is_not_ours(tmp_path):
    (tmp_path / "control").touch()
    script = (
        "import pathlib; from neuca_tools.backends import udev; "
        f"udev._CONTROL = pathlib.Path({str(tmp_path / 'control')!r}); "
        "print(udev.serves_this_namespace())"
    )
    # With the host's sysfs. Where the host has no interface but lo either, process 1 must be seen to tell them apart.
    if len(socket.if_nameindex()) == 1 and not udev._network_namespace("1"):
        pytest.skip("this host has no interface but lo and hides the namespace of process 1")
    assert in_a_namespace("-c", script) == "False\n"


def in_a_namespace(*words):
    if (
        not shutil.which("unshare")
        or subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("user namespaces are not permitted here")
    root = Path(__file__).parents[2]
    return subprocess.run(
        [*UNSHARE, sys.executable, *words],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
        env={"PYTHONPATH": str(root), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
    ).stdout


def told_in_a_namespace():
    return json.loads(in_a_namespace(str(Path(__file__).with_name("udev_burst.py"))))


def test_events_are_drained_and_an_overflow_is_told():
    pytest.importorskip("pyudev", reason="the Python module pyudev is not installed")
    # sd_device_monitor_new(3): without udevd, libudev takes this for a container that is not to see the host's events.
    mounts = Path("/proc/self/mounts").read_text()
    if not Path("/run/udev/control").exists() and " /dev devtmpfs " not in mounts:
        pytest.skip("no udevd runs and /dev is no devtmpfs: libudev listens to nothing here")
    assert told_in_a_namespace() == {
        "quiet": [],
        "one": [["add", "lo"]],
        "others": [],
        "burst": True,
        "after": [],
        "fresh": [["add", "lo"]],
    }


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("I:6815424\nE:ID_NET_DRIVER=virtio_net\nG:systemd\nV:1\n", True),
        ("", True),
        ("I:6815424\nE:ID_RENAMING=1\n", False),
        ("I:6815424\nE:ID_PROCESSING=1\n", False),
        (None, False),
    ],
)
def test_an_interface_is_initialised_once_udevd_has_a_file_of_it(
    monkeypatch, tmp_path, content, expected
):
    monkeypatch.setattr(udev, "_DATA", tmp_path)
    if content is not None:
        (tmp_path / "n1").write_text(content)
    assert udev.is_initialised(socket.if_nametoindex("lo")) is expected


def test_an_interface_that_is_not_there_is_not_initialised(monkeypatch, tmp_path):
    monkeypatch.setattr(udev, "_DATA", tmp_path)
    (tmp_path / f"n{2**31 - 1}").write_text("I:1\n")
    assert not udev.is_initialised(2**31 - 1)


def test_without_pyudev_the_error_says_so(monkeypatch, tmp_path):
    (tmp_path / udev.VOLUME_TAG).mkdir()
    monkeypatch.setattr(udev, "_TAGS", tmp_path)
    monkeypatch.setitem(sys.modules, "pyudev", None)
    with pytest.raises(ObserveError) as caught:
        udev.volume_numbers()
    assert caught.value.text.startswith(
        'asked udev for volumes: the Python module "pyudev" cannot be imported: '
    )
    with pytest.raises(ObserveError) as caught:
        udev.Monitor()
    assert caught.value.text.startswith(
        'listened for the events of udev: the Python module "pyudev" cannot be imported: '
    )
