"""Detects the cloud from the firmware, which decides whether link-local addresses are trusted.

Any host on a guest's network can answer at a link-local address (CVE-2024-6174 in cloud-init), but
only the hypervisor writes the guest's DMI tables. OpenStack also serves the paths of EC2.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from neuca_tools.errors import SourceError
from neuca_tools.files import text_of
from neuca_tools.sources.base import Answer, Deadline, Session, Source

UNKNOWN, ANY = "unknown", "any"
_SERVICES = ("ec2", "azure", "oracle", "gce", "hetzner", "alibaba")
KINDS: Mapping[str, frozenset[str]] = {
    "openstack": frozenset({"openstack", "ec2"}),
    **{kind: frozenset({kind}) for kind in (*_SERVICES, "vmware")},
    ANY: frozenset({"openstack", "ec2"}),
    UNKNOWN: frozenset(),
}
"""The kinds of sources that may be asked at a well-known address, by cloud."""


class _Sign(NamedTuple):
    """The value of one DMI field by which a cloud is recognized."""

    cloud: str
    field: str
    text: str


# nova, virt/libvirt/driver.py (_get_guest_config_sysinfo); brands: cloud-init, DataSourceOpenStack.
_NOVA = ("OpenStack Nova", "OpenStack Compute")
_BRANDS = ("OpenTelekomCloud", "SAP CCloud VM", "HUAWEICLOUD", "Samsung Cloud Platform")
# AWS, "Detect whether a host is an EC2 instance"; the others: cloud-init, tools/ds-identify.
_SIGNS = (
    *(_Sign("openstack", "product_name", text) for text in _NOVA),
    *(_Sign("openstack", "chassis_asset_tag", text) for text in (*_NOVA, *_BRANDS)),
    _Sign("ec2", "sys_vendor", "Amazon EC2"),
    _Sign("ec2", "chassis_asset_tag", "Amazon EC2"),
    _Sign("azure", "chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77"),
    _Sign("oracle", "chassis_asset_tag", "OracleCloud.com"),
    _Sign("gce", "product_name", "Google Compute Engine"),
    _Sign("gce", "product_name", "Google"),
    _Sign("hetzner", "sys_vendor", "Hetzner"),
    _Sign("alibaba", "product_name", "Alibaba Cloud ECS"),
    _Sign("vmware", "sys_vendor", "VMware, Inc."),
)


def recognized(dmi: Path) -> str:
    """A key of KINDS, `unknown` if nothing is recognized, from the files in /sys/class/dmi/id."""
    for sign in _SIGNS:
        if text_of(dmi / sign.field) == sign.text:
            return sign.cloud
    # Xen instances of EC2 (AWS, "Detect whether a host is an EC2 instance").
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
            "the firmware (DMI) names no supported cloud, "
            "so no well-known address is queried; "
            'set "platform = any" in [metadata] to query them anyway'
        )

    def metadata(self, path: str, deadline: Deadline, session: Session) -> Answer:  # noqa: ARG002
        return self.documents(deadline, session)
