"""Which cloud the firmware says that this machine is of: only then is a link-local answer worth anything.

Whoever shares a network with a guest can answer at a link-local address (CVE-2024-6174, of cloud-init), but not write into
its DMI tables, which the hypervisor makes. OpenStack serves EC2's paths too.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from neuca_tools.errors import SourceError
from neuca_tools.sources.base import Answer, Deadline, Session, Source

UNKNOWN, ANY = "unknown", "any"
KINDS: Mapping[str, frozenset[str]] = {
    "openstack": frozenset({"openstack", "ec2"}),
    "ec2": frozenset({"ec2"}),
    ANY: frozenset({"openstack", "ec2"}),
    UNKNOWN: frozenset(),
}
"""The kinds of sources of each platform that are asked at a link-local address."""
# nova, virt/libvirt/driver.py (_get_guest_config_sysinfo) and, for those that brand it, cloud-init's DataSourceOpenStack.
_NOVA = ("OpenStack Nova", "OpenStack Compute")
_BRANDS = ("OpenTelekomCloud", "SAP CCloud VM", "HUAWEICLOUD", "Samsung Cloud Platform")
_AMAZON = "Amazon EC2"  # AWS, "Detect whether a host is an EC2 instance": of a Nitro instance; Xen has .amazon in its version


def recognized(dmi: Path) -> str:
    """`openstack`, `ec2`, or `unknown`, by the files of /sys/class/dmi/id."""
    product, asset = _field(dmi, "product_name"), _field(dmi, "chassis_asset_tag")
    if product in _NOVA or asset in (*_NOVA, *_BRANDS):
        return "openstack"
    if _AMAZON in (_field(dmi, "sys_vendor"), asset) or _field(dmi, "bios_version").endswith(
        ".amazon"
    ):
        return "ec2"
    return UNKNOWN


def _field(dmi: Path, name: str) -> str:
    try:
        return (dmi / name).read_text(errors="replace").strip()
    except OSError:  # a machine without DMI
        return ""


class Unknown(Source):
    """In place of the sources that are not asked where the firmware names no cloud, which is not the same as "there is none"."""

    name = "auto"

    def documents(self, deadline: Deadline, session: Session) -> Answer:  # noqa: ARG002 (a protocol)
        raise SourceError(
            "the firmware (DMI) names neither OpenStack nor EC2, so no link-local address is asked; "
            '"platform = any" in [metadata] asks all the same'
        )

    def metadata(self, path: str, deadline: Deadline, session: Session) -> Answer:  # noqa: ARG002 (a protocol)
        return self.documents(deadline, session)
