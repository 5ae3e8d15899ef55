"""Block devices as sysfs shows them: trees like those of real kernels, one directory or link for each device."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from pathlib import Path

import pytest

from neuca_tools.backends.blockdev import read_device, read_device_by_number
from neuca_tools.errors import SourceError
from neuca_tools.model.volumes import device_refusal

ATA = "pci0000:00/0000:00:01.1/ata1/host0/target0:0:0/0:0:0:0"
USB = "pci0000:00/0000:00:1d.0/usb1/1-1/1-1:1.0/host3/target3:0:0/3:0:0:0"
ISCSI = "platform/host2/session1/target2:0:0/2:0:0:1"
NVME = "pci0000:00/0000:00:05.0"


class Sysfs:
    """A sysfs of a test's own."""

    def __init__(self, root):
        self.root, self.devices = root, root / "devices"
        (root / "dev/block").mkdir(parents=True)
        self.devices.mkdir()

    def device(self, path, subsystem="", **attributes):
        place = self.devices / path
        place.mkdir(parents=True, exist_ok=True)
        if subsystem:
            (place / "subsystem").symlink_to(f"/sys/bus/{subsystem}")
        for name, text in attributes.items():
            (place / name).write_text(f"{text}\n")

    def disk(self, path, number="8:0"):
        self.device(path, "block", removable="1")
        (self.root / "dev/block" / number).symlink_to(self.devices / path)
        return read_device_by_number(number, self.root)


@pytest.fixture
def sysfs(tmp_path):
    return Sysfs(tmp_path)


def scsi(sysfs, path, bus):
    parts = path.split("/")
    for length in range(2, len(parts) + 1):
        subsystem = {"0": "pci", "h": "scsi", "t": "scsi", "1": bus, "u": bus}.get(
            parts[length - 1][0], ""
        )
        sysfs.device("/".join(parts[:length]), subsystem)


def test_a_cd_rom_drive_of_the_hypervisor_is_no_removable_device(sysfs):
    scsi(sysfs, ATA, "pci")
    found = sysfs.disk(f"{ATA}/block/sr0")
    assert (found.name, found.removable, device_refusal(found)) == ("sr0", False, "")
    assert found.path == (*ATA.split("/"), "block", "sr0")
    assert found.buses == {"pci", "scsi"}


def test_a_usb_stick_is_known_by_its_bus_and_so_is_a_partition_of_it(sysfs):
    scsi(sysfs, USB, "usb")
    assert device_refusal(sysfs.disk(f"{USB}/block/sdb")) == "it is a USB device"
    assert device_refusal(sysfs.disk(f"{USB}/block/sdb/sdb1", "8:17")) == "it is a USB device"


def test_an_iscsi_disk_is_known_by_its_session(sysfs):
    scsi(sysfs, ISCSI, "scsi")
    sysfs.device("platform/host2/session1/iscsi_session/session1")
    assert device_refusal(sysfs.disk(f"{ISCSI}/block/sdb")) == "it is a remote disk (iSCSI)"


def test_what_a_user_can_unplug_says_so_itself(sysfs):
    sysfs.device("pci0000:00/0000:05:00.0", "pci", removable="removable")
    found = sysfs.disk("pci0000:00/0000:05:00.0/nvme/nvme1/nvme1n1", "259:1")
    assert device_refusal(found) == "a user can unplug it"


@pytest.mark.parametrize(
    ("controllers", "why"),
    [
        ([f"{NVME}/nvme/nvme0"], ""),
        (
            [f"{NVME}/nvme/nvme0", "virtual/nvme-fabrics/ctl/nvme1"],
            "it is a remote disk (NVMe over Fabrics)",
        ),
        ([], "it is not a disk of the hypervisor or the server"),
    ],
)
def test_an_nvme_namespace_with_multipath_is_where_its_controllers_are(sysfs, controllers, why):
    sysfs.device(NVME, "pci")
    place = "virtual/nvme-subsystem/nvme-subsys0"
    sysfs.device(place, "nvme-subsystem")
    for path in controllers:
        sysfs.device(path, "nvme")
        (sysfs.devices / place / Path(path).name).symlink_to(sysfs.devices / path)
    assert device_refusal(sysfs.disk(f"{place}/nvme0n1", "259:0")) == why


def test_a_device_that_is_not_there_or_no_block_device_is_an_error(sysfs):
    with pytest.raises(SourceError) as caught:
        read_device_by_number("9:9", sysfs.root)
    assert caught.value.text == (
        f"find block device 9:9 in sysfs: [Errno 2] No such file or directory: "
        f"'{sysfs.root}/dev/block/9:9'"
    )
    with pytest.raises(SourceError) as caught:
        read_device(Path("/dev/null"))
    assert caught.value.text == "it is not a block device"
    with pytest.raises(SourceError) as caught:
        read_device(Path("/dev/nonesuch"))
    assert caught.value.text == "it cannot be inspected: No such file or directory"


def test_the_disks_of_this_host_can_all_be_looked_at():
    for path in Path("/sys/dev/block").iterdir():
        found = read_device_by_number(path.name)
        assert found.path[-1] == found.name
