"""OpenStack's metadata service: user-data, meta_data.json and network_data.json.

Reference: nova, "Metadata" (user guide) and api/metadata/handler.py. No tokens, no ETags.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Optional

from neuca_tools.documents.platform.instance import OPENSTACK
from neuca_tools.documents.platform.openstack import NAME
from neuca_tools.errors import IncompleteError, SourceError
from neuca_tools.sources.base import Answer, Deadline, Session
from neuca_tools.sources.service import Service
from neuca_tools.sources.url import Url

_IPV6 = "fe80::a9fe:a9fe"  # neutron, "Metadata service"; link-local, so it needs an interface
_NO_OPENSTACK = (401, 404)  # EC2 requires a token for every path, existing or not


class OpenStack(Service):
    """`openstack` at the link-local addresses, or `openstack=URL`."""

    kind = "openstack"

    def other_urls(self) -> Iterable[Url]:
        return [Url(_IPV6)]

    def documents(self, deadline: Deadline, session: Session) -> Answer:
        """The documents; none without meta_data.json. The other two are optional."""
        about = self._get(OPENSTACK, deadline, _NO_OPENSTACK)
        if about is None:
            return Answer(self.name, None, session)
        # Another service may answer every path alike.
        if not about.lstrip().startswith(b"{"):
            raise SourceError(
                f"GET {self.url}/openstack/latest/{OPENSTACK}: the response is not a JSON object"
            )
        parts = {OPENSTACK: about}
        network = self._get(NAME, deadline)
        if network is not None:
            parts[NAME] = network
        elif NAME in (self._get("", deadline) or b"").decode("utf-8", "replace").split():
            raise IncompleteError(
                f"GET {self.url}/openstack/latest/{NAME}: HTTP 404, but the service lists it"
            )
        return Answer(self.name, self._get("user_data", deadline), session, parts)

    def _get(self, name: str, deadline: Deadline, none: Sequence[int] = (404,)) -> Optional[bytes]:
        return self.get(f"/openstack/latest/{name}", deadline, none).content
