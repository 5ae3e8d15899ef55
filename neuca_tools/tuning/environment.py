"""Virtual machine, container or bare metal, by the signs that systemd-detect-virt(1) reads."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Optional

# Where the signs are. A file that is there but empty is a sign too.
DMI = tuple(
    f"/sys/class/dmi/id/{name}"
    for name in ("product_name", "sys_vendor", "board_vendor", "bios_vendor", "product_version")
)
CONTAINER, DOCKER, PODMAN = "/run/systemd/container", "/.dockerenv", "/run/.containerenv"
INIT, OPENVZ, OPENVZ_HOST, RELEASE = (
    "/proc/1/environ",
    "/proc/vz",
    "/proc/bc",
    "/proc/sys/kernel/osrelease",
)
CPUINFO, XEN, XEN_DOMAIN = "/proc/cpuinfo", "/sys/hypervisor/type", "/proc/xen/capabilities"
DEVICE_TREE, QEMU_TREE, SYSINFO = (
    "/proc/device-tree/hypervisor/compatible",
    "/proc/device-tree/fw-cfg",
    "/proc/sysinfo",
)
SIGNS = (
    *DMI,
    CONTAINER,
    DOCKER,
    PODMAN,
    INIT,
    OPENVZ,
    OPENVZ_HOST,
    RELEASE,
    CPUINFO,
    XEN,
    XEN_DOMAIN,
    DEVICE_TREE,
    QEMU_TREE,
    SYSINFO,
)

# What the firmware of a virtual machine says of itself: dmi_vendor_table of systemd (src/basic/virt.c).
_VENDORS = (
    ("KVM", "kvm"),
    ("OpenStack", "kvm"),
    ("KubeVirt", "kvm"),
    ("Amazon EC2", "amazon"),
    ("QEMU", "qemu"),
    ("VMware", "vmware"),
    ("VMW", "vmware"),
    ("innotek GmbH", "oracle"),
    ("VirtualBox", "oracle"),
    ("Xen", "xen"),
    ("Bochs", "bochs"),
    ("Parallels", "parallels"),
    ("BHYVE", "bhyve"),
    ("Hyper-V", "microsoft"),
    ("Apple Virtualization", "apple"),
    ("Google Compute Engine", "google"),
)
_CONTAINER_MANAGER = re.compile(r"(?:^|\0)container=([^\0]+)")

Kind = Literal["vm", "bare metal", "container"]


@dataclass(frozen=True)
class Environment:
    """What this host is. `detail` names the hypervisor or container manager where it is known."""

    kind: Kind = "bare metal"
    detail: str = ""

    @property
    def text(self) -> str:
        words = {"vm": "a virtual machine", "container": "a container", "bare metal": "bare metal"}[
            self.kind
        ]
        return f"{words} ({self.detail})" if self.detail else words


def detect(signs: Mapping[str, str]) -> Environment:
    """Judge by the files of SIGNS that are there, with their content. A container in a virtual machine is a container."""
    container = _container(signs)
    if container:
        return Environment("container", container)
    hypervisor = _hypervisor(signs)
    return Environment("vm", hypervisor) if hypervisor else Environment()


def _container(signs: Mapping[str, str]) -> Optional[str]:
    if OPENVZ in signs and OPENVZ_HOST not in signs:
        return "openvz"
    if "microsoft" in signs.get(RELEASE, "").lower():
        return "wsl"
    manager = signs.get(CONTAINER, "").strip()
    found = _CONTAINER_MANAGER.search(signs.get(INIT, ""))
    if manager or found:
        return manager or (found.group(1) if found else "")
    return "podman" if PODMAN in signs else "docker" if DOCKER in signs else None


def _hypervisor(signs: Mapping[str, str]) -> Optional[str]:
    if "control_d" in signs.get(XEN_DOMAIN, ""):
        return None  # the privileged domain of Xen drives the hardware itself
    vendor = _vendor(signs)
    cpu = signs.get(CPUINFO, "")
    flags = re.search(r"^flags\s*:(.*)$", cpu, re.MULTILINE)
    if flags:  # x86: the processor says it (CPUID leaf 1, ECX bit 31); metal instances of EC2 have a vendor, and no hypervisor
        found = "hypervisor" in flags.group(1).split()
        return (
            (vendor or _xen(signs) or "hypervisor")
            if found or (vendor and vendor != "amazon")
            else None
        )
    if vendor == "amazon" and ".metal" in signs.get(DMI[0], ""):
        return None
    return vendor or _xen(signs) or _elsewhere(signs)


def _vendor(signs: Mapping[str, str]) -> Optional[str]:
    texts = [signs.get(path, "") for path in DMI]
    return next(
        (name for prefix, name in _VENDORS if any(text.startswith(prefix) for text in texts)), None
    )


def _xen(signs: Mapping[str, str]) -> Optional[str]:
    return "xen" if signs.get(XEN, "").strip() == "xen" else None


def _elsewhere(signs: Mapping[str, str]) -> Optional[str]:
    """Arm, POWER and RISC-V by their device tree, s390 by its system information, user-mode Linux by its processor."""
    compatible = signs.get(DEVICE_TREE, "")
    if compatible or QEMU_TREE in signs:
        return {"linux,kvm": "kvm", "xen": "xen", "vmware": "vmware"}.get(
            compatible.strip("\0\n"), "qemu"
        )
    if "VM00 Control Program" in signs.get(SYSINFO, ""):
        return "kvm" if "KVM" in signs[SYSINFO] else "zvm"
    return (
        "uml"
        if re.search(r"^vendor_id\s*: User Mode Linux$", signs.get(CPUINFO, ""), re.MULTILINE)
        else None
    )
