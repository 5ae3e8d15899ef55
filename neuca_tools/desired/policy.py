"""What the configuration and the platform's document say about the roles of NICs."""

# SPDX-License-Identifier: MIT

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


class PlatformClaims(NamedTuple):
    """What the platform's document says about management, unless the configuration overrides it.

    `listed` are its NICs, `vlans` its VLANs. `marked_as_management` maps the NICs that it marks as
    management NICs to the reason. `gateway_candidates` has one mapping of NICs to reasons for each
    link that may be the management link because it has DHCP, a default route or the route to the
    metadata service.
    """

    listed: frozenset[str] = frozenset()
    marked_as_management: Mapping[str, str] = {}
    gateway_candidates: tuple[Mapping[str, str], ...] = ()
    vlans: frozenset[LinkKey] = frozenset()


NOTHING = PlatformClaims()
