"""Virtual machine, container or bare metal: the signs of hosts that there are."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest

from neuca_tools.tuning import environment
from neuca_tools.tuning.environment import DMI, Environment, detect_environment

NAME, VENDOR, BOARD, BIOS, VERSION = DMI
METAL_CPU = {environment.CPUINFO: "processor\t: 0\nflags\t\t: fpu vme de\n"}
GUEST_CPU = {environment.CPUINFO: "processor\t: 0\nflags\t\t: fpu vme hypervisor de\n"}
ARM_CPU = {environment.CPUINFO: "processor\t: 0\nFeatures\t: fp asimd\n"}
VM, METAL = "a virtual machine", "bare metal"


@pytest.mark.parametrize(
    ("signs", "expected"),
    [
        ({}, METAL),
        ({**METAL_CPU, VENDOR: "Dell Inc.\n", NAME: "PowerEdge R730\n"}, METAL),
        (GUEST_CPU, f"{VM} (hypervisor)"),
        ({**GUEST_CPU, VENDOR: "QEMU\n"}, f"{VM} (qemu)"),
        ({**GUEST_CPU, NAME: "KVM\n", VENDOR: "Red Hat\n"}, f"{VM} (kvm)"),
        ({**GUEST_CPU, NAME: "OpenStack Nova\n"}, f"{VM} (kvm)"),
        ({**GUEST_CPU, VENDOR: "VMware, Inc.\n"}, f"{VM} (vmware)"),
        ({**GUEST_CPU, NAME: "VirtualBox\n", VENDOR: "innotek GmbH\n"}, f"{VM} (oracle)"),
        ({**GUEST_CPU, VERSION: "Hyper-V UEFI Release v4.0\n"}, f"{VM} (microsoft)"),
        ({**GUEST_CPU, VENDOR: "Amazon EC2\n", NAME: "m5.large\n"}, f"{VM} (amazon)"),
        ({**METAL_CPU, VENDOR: "Amazon EC2\n", NAME: "m5.metal\n"}, METAL),
        ({**ARM_CPU, VENDOR: "Amazon EC2\n", NAME: "m6g.metal\n"}, METAL),
        ({**ARM_CPU, VENDOR: "Amazon EC2\n", NAME: "m6g.large\n"}, f"{VM} (amazon)"),
        ({**ARM_CPU, environment.DEVICE_TREE: "linux,kvm\0"}, f"{VM} (kvm)"),
        ({**ARM_CPU, environment.QEMU_TREE: ""}, f"{VM} (qemu)"),
        (ARM_CPU, METAL),
        ({environment.CPUINFO: "processor\t: 0\nvendor_id\t: User Mode Linux\n"}, f"{VM} (uml)"),
        ({**GUEST_CPU, environment.XEN: "xen\n"}, f"{VM} (xen)"),
        ({**GUEST_CPU, environment.XEN: "xen\n", environment.XEN_DOMAIN: "control_d\n"}, METAL),
        ({**GUEST_CPU, environment.CONTAINER: "systemd-nspawn\n"}, "a container (systemd-nspawn)"),
        ({**METAL_CPU, environment.INIT: "PATH=/bin\0container=lxc\0"}, "a container (lxc)"),
        ({**METAL_CPU, environment.INIT: "no_container=lxc\0"}, METAL),
        ({**METAL_CPU, environment.DOCKER: ""}, "a container (docker)"),
        ({**METAL_CPU, environment.PODMAN: ""}, "a container (podman)"),
    ],
)
def test_what_a_host_is(signs, expected):
    assert detect_environment(signs).text == expected


def test_every_sign_is_looked_for():
    named = {
        value
        for name, value in vars(environment).items()
        if name.isupper() and isinstance(value, str)
    }
    assert {*named, *DMI} == set(environment.SIGNS)
    assert Environment().kind == "bare metal"
