"""Tell virtual machine, container and bare metal apart, as systemd-detect-virt(1) does."""

# SPDX-License-Identifier: MIT

import re
from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple, Optional

# The files to read, those of systemd-detect-virt(1). An empty file counts as present.
DMI = tuple(
    f"/sys/class/dmi/id/{name}"
    for name in ("product_name", "sys_vendor", "board_vendor", "bios_vendor", "product_version")
)
CONTAINER, DOCKER, PODMAN = "/run/systemd/container", "/.dockerenv", "/run/.containerenv"
INIT, CPUINFO = "/proc/1/environ", "/proc/cpuinfo"
XEN, XEN_DOMAIN = "/sys/hypervisor/type", "/proc/xen/capabilities"
DEVICE_TREE = "/proc/device-tree/hypervisor/compatible"
QEMU_TREE = "/proc/device-tree/fw-cfg"
SIGNS = (*DMI, CONTAINER, DOCKER, PODMAN, INIT, CPUINFO, XEN, XEN_DOMAIN, DEVICE_TREE, QEMU_TREE)

# Names in the firmware of virtual machines: dmi_vendor_table of systemd (src/basic/virt.c).
_VENDORS = {
    "kvm": ("KVM", "OpenStack", "KubeVirt"),
    "amazon": ("Amazon EC2",),
    "qemu": ("QEMU",),
    "vmware": ("VMware", "VMW"),
    "oracle": ("innotek GmbH", "VirtualBox"),
    "xen": ("Xen",),
    "bochs": ("Bochs",),
    "parallels": ("Parallels",),
    "bhyve": ("BHYVE",),
    "microsoft": ("Hyper-V",),
    "apple": ("Apple Virtualization",),
    "google": ("Google Compute Engine",),
}
_CONTAINER_MANAGER = re.compile(r"(?:^|\0)container=([^\0]+)")

Kind = Literal["vm", "bare metal", "container"]


class Environment(NamedTuple):
    """What kind of host this is. `detail` names the hypervisor or container manager, if known."""

    kind: Kind = "bare metal"
    detail: str = ""

    @property
    def text(self) -> str:
        """The kind in words, for messages."""
        words = {"vm": "a virtual machine", "container": "a container"}.get(self.kind, self.kind)
        return f"{words} ({self.detail})" if self.detail else words


def detect_environment(signs: Mapping[str, str]) -> Environment:
    """Judge by the contents of those SIGNS that exist; a container in a VM is a container."""
    container, hypervisor = _container_manager(signs), _hypervisor_name(signs)
    if container:
        return Environment("container", container)
    return Environment("vm", hypervisor) if hypervisor else Environment()


def _container_manager(signs: Mapping[str, str]) -> Optional[str]:
    manager = signs.get(CONTAINER, "").strip()
    if manager:
        return manager
    match = _CONTAINER_MANAGER.search(signs.get(INIT, ""))
    if match:
        return match.group(1)
    if PODMAN in signs:
        return "podman"
    if DOCKER in signs:
        return "docker"
    return None


def _hypervisor_name(signs: Mapping[str, str]) -> Optional[str]:
    if "control_d" in signs.get(XEN_DOMAIN, ""):
        # The privileged domain of Xen drives the hardware itself.
        return None
    flags = re.search(r"^flags\s*:(.*)$", signs.get(CPUINFO, ""), re.MULTILINE)
    if flags:
        return _hypervisor_of_x86(signs, flags.group(1).split())
    vendor = _firmware_vendor(signs)
    if vendor == "amazon" and ".metal" in signs.get(DMI[0], ""):
        return None
    return vendor or _xen_guest(signs) or _other_hypervisor(signs)


def _hypervisor_of_x86(signs: Mapping[str, str], flags: Collection[str]) -> Optional[str]:
    """On x86, the processor reports a hypervisor (CPUID leaf 1, ECX bit 31).

    The firmware of a metal instance of EC2 names Amazon although it has no hypervisor.
    """
    vendor = _firmware_vendor(signs)
    if "hypervisor" in flags:
        return vendor or _xen_guest(signs) or "hypervisor"
    return vendor if vendor != "amazon" else None


def _firmware_vendor(signs: Mapping[str, str]) -> Optional[str]:
    for name, prefixes in _VENDORS.items():
        if any(signs.get(path, "").startswith(prefixes) for path in DMI):
            return name
    return None


def _xen_guest(signs: Mapping[str, str]) -> Optional[str]:
    return "xen" if signs.get(XEN, "").strip() == "xen" else None


def _other_hypervisor(signs: Mapping[str, str]) -> Optional[str]:
    """Detect it on Arm, POWER and RISC-V by the device tree, and user-mode Linux."""
    compatible = signs.get(DEVICE_TREE, "")
    if compatible or QEMU_TREE in signs:
        known = {"linux,kvm": "kvm", "xen": "xen", "vmware": "vmware"}
        return known.get(compatible.strip("\0\n"), "qemu")
    if re.search(r"^vendor_id\s*: User Mode Linux$", signs.get(CPUINFO, ""), re.MULTILINE):
        return "uml"
    return None
