"""The clouds with a source of their own: one row for each, from which all lists of clouds follow.

To add one:

- its source, a class in `sources` (`sources.clouds._OneTree` for a service with one document);
- the reader of its document, a row of `documents.platform.clouds`;
- a row here, with the DMI fields that identify it;
- an item in neuca(1), neuca-status(7) and neuca-platform-data(5), a word in both files of
  packaging/completion, and a row in both tables of docs/CLOUDS.md;
- a mock in `tests/cloudmocks.py`, a document in DOCUMENTS of `tests/unit/test_complete_answers.py`,
  and a row in `tests/netns/test_netns_clouds.py`, where the agent reads the mock over HTTP.

`tests/unit/test_clouds.py` and `tests/unit/test_complete_answers.py` fail as long as one but the
last is missing.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from typing import NamedTuple


class Sign(NamedTuple):
    """The value of one DMI field by which a cloud is recognized."""

    field: str
    text: str


class Cloud(NamedTuple):
    """A cloud with a metadata source.

    `kind` names the source, `label` is the name for people, `usage` the syntax of the source.
    `source` is its module and class in `sources`. `signs`: each of them is enough. `also` are the
    kinds of other sources that are asked there.
    """

    kind: str
    label: str
    usage: str
    source: str
    signs: tuple[Sign, ...]
    also: tuple[str, ...] = ()

    @property
    def is_service(self) -> bool:
        """Whether its source is a service with a URL."""
        return "[=URL]" in self.usage


# nova, virt/libvirt/driver.py (_get_guest_config_sysinfo); brands: cloud-init, DataSourceOpenStack.
_NOVA = ("OpenStack Nova", "OpenStack Compute")
_BRANDS = ("OpenTelekomCloud", "SAP CCloud VM", "HUAWEICLOUD", "Samsung Cloud Platform")


def _vendor_sign(text: str) -> tuple[Sign, ...]:
    return (Sign("sys_vendor", text),)


# The signs: AWS, "Detect whether a host is an EC2 instance"; the others: cloud-init,
# tools/ds-identify.
CLOUDS = (
    Cloud(
        "openstack",
        "OpenStack",
        "openstack[=URL]",
        "clouds.OpenStack",
        (
            *(Sign("product_name", text) for text in _NOVA),
            *(Sign("chassis_asset_tag", text) for text in (*_NOVA, *_BRANDS)),
        ),
        ("ec2",),
    ),
    Cloud(
        "ec2",
        "EC2",
        "ec2[=URL]",
        "ec2.Ec2",
        (Sign("sys_vendor", "Amazon EC2"), Sign("chassis_asset_tag", "Amazon EC2")),
    ),
    Cloud(
        "azure",
        "Azure",
        "azure[=URL]",
        "clouds.Azure",
        (Sign("chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77"),),
    ),
    Cloud(
        "oracle",
        "Oracle Cloud",
        "oracle[=URL]",
        "clouds.Oracle",
        (Sign("chassis_asset_tag", "OracleCloud.com"),),
    ),
    Cloud(
        "gce",
        "Google Compute Engine",
        "gce[=URL]",
        "clouds.Gce",
        (Sign("product_name", "Google Compute Engine"), Sign("product_name", "Google")),
    ),
    Cloud("hetzner", "Hetzner Cloud", "hetzner[=URL]", "clouds.Hetzner", _vendor_sign("Hetzner")),
    Cloud(
        "alibaba",
        "Alibaba Cloud",
        "alibaba[=URL]",
        "ec2.Alibaba",
        (Sign("product_name", "Alibaba Cloud ECS"),),
    ),
    Cloud("vultr", "Vultr", "vultr[=URL]", "clouds.Vultr", _vendor_sign("Vultr")),
    Cloud(
        "digitalocean",
        "DigitalOcean",
        "digitalocean[=URL]",
        "clouds.DigitalOcean",
        _vendor_sign("DigitalOcean"),
    ),
    Cloud("vmware", "VMware", "vmware", "hypervisors.VMware", _vendor_sign("VMware, Inc.")),
)
