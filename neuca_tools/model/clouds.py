"""The clouds with a source of their own: one row for each, from which all lists of clouds follow.

To add one:

- its source, a class in `sources` (`sources.clouds._OneTree` for a service with one document), and
  its addresses that are not link-local in `model.topology.PLATFORM_HOSTS`;
- the reader of its document, with helpers of `documents.platform.nics`, and its row of FORMATS in
  `documents.platform.clouds`, with a test in `tests/unit/test_clouds.py`;
- a row here, with the DMI fields that identify it;
- an item in neuca(1), neuca-status(7) and neuca-platform-data(5), a word in both files of
  packaging/completion, and a row in the first and the last table of docs/CLOUDS.md;
- a mock in `tests/cloudmocks.py`, a document in DOCUMENTS of `tests/unit/test_complete_answers.py`
  and in READERS of `tests/unit/test_documents_kept_keys.py`, and a row in
  `tests/netns/test_netns_clouds.py`, where the agent reads the mock over HTTP.

`tests/unit/test_clouds.py` and the other two in `tests/unit` fail as long as anything is missing
but the tests of the reader and in namespaces.
"""

# SPDX-License-Identifier: MIT

from typing import NamedTuple


class Sign(NamedTuple):
    """The value of one DMI field by which a cloud is recognized."""

    field: str
    text: str


class Cloud(NamedTuple):
    """A cloud with a metadata source.

    `kind` names the source, `label` is the name for people. `source` is its module and class in
    `sources`. `signs`: each of them is enough. `also` are the kinds of other sources that are asked
    there. `is_service`: the source is a service with a URL.
    """

    kind: str
    label: str
    source: str
    signs: tuple[Sign, ...]
    also: tuple[str, ...] = ()
    is_service: bool = True

    @property
    def usage(self) -> str:
        """The syntax of the source."""
        return f"{self.kind}[=URL]" if self.is_service else self.kind


# nova, virt/libvirt/driver.py (_get_guest_config_sysinfo); brands: cloud-init, DataSourceOpenStack.
_NOVA = ("OpenStack Nova", "OpenStack Compute")
_BRANDS = ("OpenTelekomCloud", "SAP CCloud VM", "HUAWEICLOUD", "Samsung Cloud Platform")


_PRODUCT, _VENDOR, _TAG = "product_name", "sys_vendor", "chassis_asset_tag"


def _signs(field: str, *texts: str) -> tuple[Sign, ...]:
    return tuple(Sign(field, text) for text in texts)


_SIGNS_OF_NOVA = (*_signs(_PRODUCT, *_NOVA), *_signs(_TAG, *_NOVA, *_BRANDS))
# The signs: AWS, "Detect whether a host is an EC2 instance"; the others: cloud-init,
# tools/ds-identify.
CLOUDS = (
    Cloud("openstack", "OpenStack", "clouds.OpenStack", _SIGNS_OF_NOVA, also=("ec2",)),
    Cloud("ec2", "EC2", "ec2.Ec2", (*_signs(_VENDOR, "Amazon EC2"), *_signs(_TAG, "Amazon EC2"))),
    Cloud("azure", "Azure", "clouds.Azure", _signs(_TAG, "7783-7084-3265-9085-8269-3286-77")),
    Cloud("oracle", "Oracle Cloud", "clouds.Oracle", _signs(_TAG, "OracleCloud.com")),
    Cloud(
        "gce",
        "Google Compute Engine",
        "clouds.Gce",
        _signs(_PRODUCT, "Google Compute Engine", "Google"),
    ),
    Cloud("hetzner", "Hetzner Cloud", "clouds.Hetzner", _signs(_VENDOR, "Hetzner")),
    Cloud("alibaba", "Alibaba Cloud", "ec2.Alibaba", _signs(_PRODUCT, "Alibaba Cloud ECS")),
    Cloud("vultr", "Vultr", "clouds.Vultr", _signs(_VENDOR, "Vultr")),
    Cloud("digitalocean", "DigitalOcean", "clouds.DigitalOcean", _signs(_VENDOR, "DigitalOcean")),
    Cloud(
        "vmware", "VMware", "hypervisors.VMware", _signs(_VENDOR, "VMware, Inc."), is_service=False
    ),
)
