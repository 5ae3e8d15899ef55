"""Detects the cloud from the firmware, which decides whether link-local addresses are trusted.

Any host on a guest's network can answer at a link-local address (CVE-2024-6174 in cloud-init), but
only the hypervisor writes the guest's DMI tables. OpenStack also serves the paths of EC2.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from neuca_tools.errors import SourceError
from neuca_tools.files import text_of
from neuca_tools.sources.base import Answer, Deadline, Session, Source

UNKNOWN, ANY = "unknown", "any"
KINDS: Mapping[str, frozenset[str]] = {
    "openstack": frozenset({"openstack", "ec2"}),
    "ec2": frozenset({"ec2"}),
    ANY: frozenset({"openstack", "ec2"}),
    UNKNOWN: frozenset(),
}
"""The kinds of sources that may be asked at a link-local address, by cloud."""
# nova, virt/libvirt/driver.py (_get_guest_config_sysinfo); brands: cloud-init, DataSourceOpenStack.
_NOVA = ("OpenStack Nova", "OpenStack Compute")
_BRANDS = ("OpenTelekomCloud", "SAP CCloud VM", "HUAWEICLOUD", "Samsung Cloud Platform")
# AWS, "Detect whether a host is an EC2 instance"; with Xen, the BIOS version ends in .amazon.
_AMAZON = "Amazon EC2"


def recognized(dmi: Path) -> str:
    """`openstack`, `ec2` or `unknown`, from the files in /sys/class/dmi/id."""
    product, asset = text_of(dmi / "product_name"), text_of(dmi / "chassis_asset_tag")
    if product in _NOVA or asset in (*_NOVA, *_BRANDS):
        return "openstack"
    if _AMAZON in (text_of(dmi / "sys_vendor"), asset):
        return "ec2"
    if text_of(dmi / "bios_version").endswith(".amazon"):
        return "ec2"
    return UNKNOWN


class Unknown(Source):
    """Stands for the services that are not asked because the firmware names no cloud.

    It raises SourceError: not asking is not the same as there being no document.
    """

    name = "auto"

    def documents(self, deadline: Deadline, session: Session) -> Answer:  # noqa: ARG002
        raise SourceError(
            "the firmware (DMI) names neither OpenStack nor EC2, "
            "so no link-local address is asked; "
            '"platform = any" in [metadata] asks all the same'
        )

    def metadata(self, path: str, deadline: Deadline, session: Session) -> Answer:  # noqa: ARG002
        return self.documents(deadline, session)
