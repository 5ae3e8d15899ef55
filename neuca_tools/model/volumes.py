"""Whether a config drive or NoCloud volume is accepted, by its device and the instance ID on it."""

# SPDX-License-Identifier: MIT

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

SOURCES = ("configdrive", "nocloud")  # that read a volume
# Directories that the kernel adds to a device in the path of a remote disk: scsi_transport_iscsi,
# scsi_transport_fc, and the host adapter of SRP (drivers/infiniband/ulp/srp).
REMOTE_CLASSES: Mapping[str, str] = {
    "iscsi_session": "iSCSI",
    "fc_remote_ports": "Fibre Channel",
    "infiniband": "SRP",
}
# Names of the kernel: drivers/block, drivers/md, drivers/nvme/host/fabrics.c.
REFUSED_NAMES = (
    (re.compile(r"loop\d+"), "it is a loop device"),
    (re.compile(r"dm-\d+"), "it is a device-mapper device"),
    (re.compile(r"(?:nbd|rbd|drbd)\d+"), "it is a network block device"),
    (re.compile(r"nvme-fabrics"), "it is a remote disk (NVMe over Fabrics)"),
)
REFUSED_BUSES = {
    "usb": "it is a USB device",
    "firewire": "it is a FireWire device",
    "mmc": "it is a memory card",
    "memstick": "it is a memory card",
}
# Where hypervisors and servers attach disks: virtio, PCI (IDE, AHCI, NVMe and SCSI adapters), Xen,
# Hyper-V, POWER's and s390's own, and what is soldered to an ARM board.
TRUSTED_BUSES = frozenset({"virtio", "pci", "xen", "vmbus", "vio", "ccw", "platform"})


class BlockDevice(NamedTuple):
    """What sysfs shows of a block device.

    `path`: the components of its path below /sys/devices; of an NVMe namespace that several
    controllers may serve, those of all its controllers too. `buses`: the subsystems of all devices
    on that path. `remote_classes`: which of REMOTE_CLASSES are on it. `removable`: a user can
    unplug one of these devices (Documentation/ABI/testing/sysfs-devices-removable).
    """

    name: str
    path: tuple[str, ...] = ()
    buses: frozenset[str] = frozenset()
    remote_classes: frozenset[str] = frozenset()
    removable: bool = False


class VolumeLog(NamedTuple):
    """Why volumes were refused since the boot, by device. `reported`: the lines logged already."""

    refused: Mapping[str, str] = {}
    reported: tuple[str, ...] = ()


class RecordedInstance(NamedTuple):
    """What is recorded of this instance; empty on its first boot.

    `network` is the metadata service that has responded for it. `instances` are its IDs, each with
    the kind of its platform (`openstack:ID`). `volumes` are digests of the volumes that were
    accepted. `booted`: a document is stored from an earlier boot.
    """

    network: str = ""
    instances: frozenset[str] = frozenset()
    volumes: frozenset[str] = frozenset()
    booted: bool = False


def device_refusal(device: BlockDevice) -> str:
    """Why every volume on this device is refused; empty if it is not.

    The `removable` attribute of a disk is not used: a virtual CD-ROM drive has it too.
    """
    reasons = [
        *(why for name, why in REFUSED_NAMES if any(map(name.fullmatch, device.path))),
        *(
            f"it is a remote disk ({REMOTE_CLASSES[name]})"
            for name in sorted(device.remote_classes)
        ),
        *(REFUSED_BUSES[bus] for bus in sorted(device.buses & REFUSED_BUSES.keys())),
    ]
    if reasons:
        return reasons[0]
    if device.removable:
        return "a user can unplug it"
    is_trusted = device.buses & TRUSTED_BUSES
    return "" if is_trusted else "it is not a disk of the hypervisor or the server"


def network_refusal(known: RecordedInstance) -> str:
    """Why no volume is accepted any more; empty if one may be."""
    if not known.network:
        return ""
    return f'the metadata service "{known.network}" has responded for this instance'


def refusal_reason(instance: str, digest: str, known: RecordedInstance) -> str:
    """Why a volume is refused; empty if it is accepted.

    `instance` is the instance ID on it (`openstack:ID`, empty for none). A volume is accepted on
    the first boot, with an ID of this instance, or with the digest of an accepted volume.
    """
    why = network_refusal(known)
    first_boot = not (known.instances or known.volumes or known.booted)
    if why or first_boot or instance in known.instances or digest in known.volumes:
        return why
    name = _quoted_names({instance})
    carried = f"its instance id is {name}" if instance else "it has no instance id"
    if known.instances:
        return f"{carried}, and that of this instance is {_quoted_names(known.instances)}"
    if known.booted:
        return f"{carried}, and this is not the first boot of the instance"
    return f"{carried}, and another volume has been read before it"


def _quoted_names(instances: Collection[str]) -> str:
    names = sorted({instance.partition(":")[2] for instance in instances})
    return " or ".join(f'"{name}"' for name in names)
