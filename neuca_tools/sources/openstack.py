"""OpenStack's metadata service: the user-data, and what OpenStack itself says of the guest and its network.

Reference: nova, "Metadata" (user guide) and api/metadata/handler.py. It has no tokens and no ETag.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterable
from typing import Optional

from neuca_tools.documents.platform.instance import OPENSTACK
from neuca_tools.documents.platform.openstack import NAME
from neuca_tools.errors import SourceError
from neuca_tools.sources.base import Answer, Deadline, Session
from neuca_tools.sources.service import Service
from neuca_tools.sources.url import Url

_IPV6 = "fe80::a9fe:a9fe"  # neutron, "Metadata service": on each link, so it needs an interface
_NO_OPENSTACK = (401, 404)  # EC2 wants a token for every path, also for those that it does not have


class OpenStack(Service):
    """`openstack` at the link-local addresses, or `openstack=URL`."""

    kind = "openstack"

    def other_urls(self) -> Iterable[Url]:
        return [Url(_IPV6)]

    def documents(self, deadline: Deadline, session: Session) -> Answer:
        """Without meta_data.json this is no OpenStack; the other two may be missing."""
        about = self._get(OPENSTACK, deadline, _NO_OPENSTACK)
        if about is None:
            return Answer(self.name, None, session)
        if not about.lstrip().startswith(b"{"):  # a service that answers every path alike
            raise SourceError(
                f"GET {self.url}/openstack/latest/{OPENSTACK}: the answer is no JSON object"
            )
        network = self._get(NAME, deadline)
        parts = {OPENSTACK: about, **({} if network is None else {NAME: network})}
        return Answer(self.name, self._get("user_data", deadline), session, parts)

    def metadata(self, path: str, deadline: Deadline, session: Session) -> Answer:  # noqa: ARG002 (a protocol)
        raise SourceError(f"OpenStack has no {path}: ask ec2")

    def _get(
        self, name: str, deadline: Deadline, none: tuple[int, ...] = (404,)
    ) -> Optional[bytes]:
        path = f"/openstack/latest/{name}"
        response = self.request("GET", path, {}, deadline)
        if response.status not in (200, *none):
            raise SourceError(f"GET {self.url}{path}: HTTP {response.status}")
        return response.body if response.status == 200 else None
