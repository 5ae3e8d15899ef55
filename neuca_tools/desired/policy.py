"""What the configuration and the platform's document say about the roles of NICs."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from neuca_tools.model import LinkKey


class Policy(NamedTuple):
    """The administrator's settings on roles: MACs to ignore, and MACs that are always management.

    `origin` is the NIC through which a metadata service has answered for this instance, if one has.
    """

    ignored: frozenset[str] = frozenset()
    management: frozenset[str] = frozenset()
    origin: str = ""


class Said(NamedTuple):
    """What the platform's document says about management, unless the configuration overrides it.

    `described` are the NICs that it lists. `named` maps the NICs that it marks as management NICs
    to the reason. `gateways` has one mapping of NICs to reasons for each link that may be the
    management link because it has DHCP, a default route or the route to the metadata service.
    `vlans` are the VLANs that it lists.
    """

    described: frozenset[str] = frozenset()
    named: Mapping[str, str] = {}
    gateways: tuple[Mapping[str, str], ...] = ()
    vlans: frozenset[LinkKey] = frozenset()


NOTHING = Said()
