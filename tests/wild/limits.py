"""The table of documented limits: where our side may differ from the oracles, and what it has to say about it."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from typing import NamedTuple

LINK = "link"


class Limit(NamedTuple):
    """One row.

    `says` is a part of the warning that the document gets. It excuses differences in `fields`; LINK: the link, or all that is on
    it, is missing on our side. `manual` is a sentence of neuca-platform-data(5), as mandoc prints it, without line ends.
    """

    says: str
    fields: tuple[str, ...]
    manual: str


LIMITS = (
    Limit("a link of Open vSwitch", (LINK, "members"), "Links of Open vSwitch"),
    Limit("a VLAN on a VLAN (QinQ) is not supported", (LINK, "members"), "VLANs on VLANs"),
    Limit(
        "are left to other programs, with everything on top of them",
        (LINK, "members"),
        "Other kinds of links",
    ),
    Limit("it is left to other programs too", (LINK, "members"), "Other kinds of links"),
    Limit("it is left to other programs, as is its NIC", (LINK, "members"), "Other kinds of links"),
    Limit("the loopback interface is left to other programs", (LINK,), "loopback interface"),
    Limit("it matches every NIC", (LINK, "members"), "matches every NIC"),
    Limit("it matches NICs by more than", (LINK, "members"), "matched by driver"),
    Limit(
        "left to the user, with its addresses",
        ("addresses", "routes", "mtu", "ipv6_mtu", "accept_ra", "dhcp4", "dhcp6", "wake", "mac"),
        "activation-mode",
    ),
    Limit(
        "a subnet that is left to the user",
        ("addresses", "routes", "mtu", "ipv6_mtu"),
        "control: manual",
    ),
    Limit("it is in the network of no link", ("routes",), "in the network of no link"),
)
