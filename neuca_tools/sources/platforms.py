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
from neuca_tools.model.clouds import CLOUDS
from neuca_tools.sources.base import Answer, Deadline, Session, Source

UNKNOWN, ANY = "unknown", "any"
KINDS: Mapping[str, frozenset[str]] = {
    **{cloud.kind: frozenset((cloud.kind, *cloud.also)) for cloud in CLOUDS},
    ANY: frozenset({"openstack", "ec2"}),
    UNKNOWN: frozenset(),
}
"""The kinds of sources that may be asked at a well-known address, by cloud."""


def recognized(dmi: Path) -> str:
    """A key of KINDS, `unknown` if nothing is recognized, from the files in /sys/class/dmi/id."""
    for cloud in CLOUDS:
        if any(text_of(dmi / sign.field) == sign.text for sign in cloud.signs):
            return cloud.kind
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
