"""Which volumes count: by the device that they are on, and by what is recorded of the instance."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest

from neuca_tools.model.volumes import (
    BlockDevice,
    RecordedInstance,
    device_refusal,
    network_refusal,
    refusal_reason,
)

PCI = ("pci0000:00", "0000:00:04.0")
SCSI = ("host0", "target0:0:0", "0:0:0:0", "block")


def device(name, path, buses, **more):
    return BlockDevice(name, (*path, name), frozenset(buses.split()), **more)


HYPERVISOR = {
    "virtio disk": device("vdb", (*PCI, "virtio1", "block"), "pci virtio"),
    "partition of a virtio disk": device("vdb1", (*PCI, "virtio1", "block", "vdb"), "pci virtio block"),
    "CD-ROM, virtio-scsi": device("sr0", (*PCI, "virtio2", *SCSI), "pci virtio scsi"),
    "CD-ROM, IDE or SATA": device("sr0", (*PCI, "ata1", *SCSI), "pci scsi"),
    "virtio-mmio": device("vda", ("platform", "a003e00.virtio_mmio", "virtio0", "block"), "platform virtio"),
    "Xen": device("xvdb", ("vbd-51728", "block"), "xen"),
    "Hyper-V": device("sr0", ("LNXSYSTM:00", "VMBUS:00", "f8b3781a", *SCSI), "acpi vmbus scsi"),
    "POWER": device("sr0", ("vio", "71000002", *SCSI), "vio scsi"),
    "NVMe": device("nvme0n1p4", (*PCI, "nvme", "nvme0", "nvme0n1"), "pci nvme block"),
    "floppy": device("fd0", ("platform", "floppy.0", "block"), "platform"),
}  # fmt: skip
OTHERS = {
    "loop": (device("loop0", ("virtual", "block"), ""), "it is a loop device"),
    "partition of a loop device": (
        device("loop0p1", ("virtual", "block", "loop0"), "block"),
        "it is a loop device",
    ),
    "device mapper": (device("dm-3", ("virtual", "block"), ""), "it is a device-mapper device"),
    "NBD": (device("nbd0", ("virtual", "block"), ""), "it is a network block device"),
    "Ceph": (device("rbd0", ("rbd", "0", "block"), "rbd"), "it is a network block device"),
    "iSCSI, software": (
        device(
            "sda",
            ("platform", "host2", "session1", *SCSI[1:]),
            "scsi",
            remote_classes=frozenset({"iscsi_session"}),
        ),
        "it is a remote disk (iSCSI)",
    ),
    "iSCSI, adapter": (
        device(
            "sda", (*PCI, *SCSI), "pci scsi", remote_classes=frozenset({"iscsi_session"})
        ),
        "it is a remote disk (iSCSI)",
    ),
    "Fibre Channel": (
        device("sda", (*PCI, *SCSI), "pci scsi", remote_classes=frozenset({"fc_remote_ports"})),
        "it is a remote disk (Fibre Channel)",
    ),
    "NVMe over Fabrics": (
        device("nvme1n1", ("virtual", "nvme-fabrics", "ctl", "nvme1"), "nvme"),
        "it is a remote disk (NVMe over Fabrics)",
    ),
    "USB stick": (
        device("sdb", (*PCI, "usb1", "1-1", "1-1:1.0", *SCSI), "pci usb scsi"),
        "it is a USB device",
    ),
    "memory card": (
        device("mmcblk0p1", ("platform", "mmc_host", "mmc0", "mmc0:1", "block", "mmcblk0"),
               "platform mmc block"),
        "it is a memory card",
    ),
    "FireWire": (
        device("sdb", (*PCI, "fw1", "fw1.0", *SCSI), "pci firewire scsi"),
        "it is a FireWire device",
    ),
    "Thunderbolt": (
        device("nvme2n1", (*PCI, "nvme", "nvme2"), "pci nvme", removable=True),
        "a user can unplug it",
    ),
    "RAID": (
        device("md0", ("virtual", "block"), ""),
        "it is not a disk of the hypervisor or the server",
    ),
    "loopback target": (
        device("sdc", ("pseudo_0", "adapter0", *SCSI), "pseudo scsi"),
        "it is not a disk of the hypervisor or the server",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", HYPERVISOR)
def test_a_disk_of_the_hypervisor_or_the_server_may_have_a_volume(kind):
    assert device_refusal(HYPERVISOR[kind]) == ""


@pytest.mark.parametrize("kind", OTHERS)
def test_a_volume_on_any_other_device_is_refused_with_the_reason(kind):
    found, why = OTHERS[kind]
    assert device_refusal(found) == why


OURS, YOURS = "openstack:u-1", "openstack:u-2"


def test_on_the_first_boot_any_volume_counts():
    assert [refusal_reason(one, "d", RecordedInstance()) for one in (OURS, "nocloud:i", "")] == [
        "",
        "",
        "",
    ]


def test_later_a_volume_counts_that_carries_the_id_of_the_instance():
    known = RecordedInstance(instances=frozenset({OURS, "ec2:i-1"}), booted=True)
    assert refusal_reason(OURS, "d", known) == ""
    assert refusal_reason("nocloud:u-1", "d", known) == (
        'its instance id is "u-1", and that of this instance is "i-1" or "u-1"'
    )
    assert refusal_reason(YOURS, "d", known) == (
        'its instance id is "u-2", and that of this instance is "i-1" or "u-1"'
    )
    assert refusal_reason("", "d", known) == (
        'it has no instance id, and that of this instance is "i-1" or "u-1"'
    )


def test_an_instance_without_an_id_has_a_first_boot_too():
    known = RecordedInstance(booted=True)
    why = "this is not the first boot of the instance"
    assert refusal_reason("", "d", known) == f"it has no instance id, and {why}"
    assert refusal_reason(YOURS, "d", known) == f'its instance id is "u-2", and {why}'


def test_a_volume_without_an_id_counts_as_long_as_it_is_the_same():
    known = RecordedInstance(volumes=frozenset({"d"}), booted=True)
    assert refusal_reason("", "d", known) == ""
    assert refusal_reason("", "e", known) == (
        "it has no instance id, and this is not the first boot of the instance"
    )


def test_of_two_volumes_on_a_first_boot_the_first_one_counts():
    assert refusal_reason("", "e", RecordedInstance(volumes=frozenset({"d"}))) == (
        "it has no instance id, and another volume has been read before it"
    )
    known = RecordedInstance(volumes=frozenset({"d"}), instances=frozenset({OURS}))
    assert refusal_reason(YOURS, "e", known) == (
        'its instance id is "u-2", and that of this instance is "u-1"'
    )


def test_no_volume_counts_once_a_metadata_service_has_answered():
    known = RecordedInstance("openstack", frozenset({OURS}), frozenset({"d"}), booted=True)
    why = 'the metadata service "openstack" has responded for this instance'
    assert network_refusal(known) == why
    assert network_refusal(RecordedInstance()) == ""
    assert [refusal_reason(one, "d", known) for one in (OURS, YOURS, "")] == [why] * 3
