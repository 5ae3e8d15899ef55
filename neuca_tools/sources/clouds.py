"""The metadata services that have all NICs in one document: OpenStack, Azure and others.

Whatever is not a complete answer is an error, never an empty answer: these services reply with 404,
410, 429 or 503 while they are not ready or busy.

References: nova, "Metadata" (user guide) and api/metadata/handler.py; Microsoft, "Azure Instance
Metadata Service"; Oracle, "Getting Instance Metadata"; Google, "About VM metadata"; Hetzner,
"Server metadata" (Cloud API documentation); Vultr, "Metadata API"; DigitalOcean, "Droplet Metadata
API".
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import ClassVar, Optional

from neuca_tools.documents.platform import clouds, instance, openstack
from neuca_tools.errors import IncompleteError, SourceError
from neuca_tools.model.machine import instance_text
from neuca_tools.sources.base import Answer, Deadline, Session, Url
from neuca_tools.sources.service import Service

_NO_OPENSTACK = (401, 404)  # EC2 requires a token for every path, existing or not


class _Cloud(Service):
    """A service whose documents are JSON, with user-data that may be in base64."""

    def parsed(self, path: str, body: bytes) -> object:
        """The JSON at a path. Raises SourceError."""
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            raise SourceError(f"GET {self.url}{path}: the response is not JSON") from error

    def tree(self, path: str, body: bytes) -> Mapping[str, object]:
        """The JSON object at a path; empty if it is not an object. Raises SourceError."""
        return _mapping_or_empty(self.parsed(path, body))

    def answer(
        self, data: Optional[bytes], session: Session, parts: Mapping[str, bytes], identity: object
    ) -> Answer:
        """The answer with the instance ID, which is a text or a number."""
        text = str(identity) if isinstance(identity, (str, int)) else ""
        return Answer(self.name, data, session, parts, instance_text(self.kind, text))

    def decode_user_data(self, text: object) -> Optional[bytes]:
        """User-data in base64, which may have lines; None if there is none. Raises SourceError."""
        if not isinstance(text, str) or not text:
            return None
        try:
            return base64.b64decode("".join(text.split()), validate=True)
        except ValueError as error:
            raise SourceError(f"the user-data of {self.kind} is not base64") from error


class OpenStack(Service):
    """`openstack` at the link-local addresses, or `openstack=URL`."""

    kind = "openstack"
    # neutron, "Metadata service"; link-local, so it needs an interface
    other_urls = (Url("fe80::a9fe:a9fe"),)

    def documents(self, deadline: Deadline, session: Session) -> Answer:
        """The documents; none without meta_data.json. The other two are optional."""
        metadata = self._get(instance.OPENSTACK, deadline, _NO_OPENSTACK)
        if metadata is None:
            return Answer(self.name, None, session)
        what = f"GET {self.url}/openstack/latest/"
        # Another service may answer every path alike.
        if not metadata.lstrip(b"\xef\xbb\xbf\t\n\r ").startswith(b"{"):  # a BOM, blanks
            raise SourceError(f"{what}{instance.OPENSTACK}: the response is not a JSON object")
        if b'"uuid"' not in metadata:
            raise IncompleteError(f"{what}{instance.OPENSTACK}: the response has no uuid")
        parts = {instance.OPENSTACK: metadata}
        network = self._get(openstack.NAME, deadline)
        if network is not None:
            parts[openstack.NAME] = network
        elif openstack.NAME in (self._get("", deadline) or b"").decode("utf-8", "replace").split():
            raise IncompleteError(f"{what}{openstack.NAME}: HTTP 404, but the service lists it")
        return Answer(self.name, self._get("user_data", deadline), session, parts)

    def _get(self, name: str, deadline: Deadline, none: Sequence[int] = (404,)) -> Optional[bytes]:
        return self.get(f"/openstack/latest/{name}", deadline, none).content


class Azure(_Cloud):
    """`azure`, or `azure=URL`. The service answers the primary NIC only."""

    kind = "azure"
    headers: ClassVar[Mapping[str, str]] = {"Metadata": "true"}
    # The wireserver, which probes the health of load-balanced guests.
    guarded = (ip_address("168.63.129.16"),)

    def documents(self, deadline: Deadline, session: Session) -> Answer:
        path = _AZURE
        response = self.get(path, deadline, absent=(400,))
        if response.status == 400:
            path = _AZURE_BEFORE
            response = self.get(path, deadline)
        compute = _mapping_or_empty(self.tree(path, response.body).get("compute"))
        data = self.decode_user_data(compute.get("userData"))
        return self.answer(data, session, {clouds.AZURE: response.body}, compute.get("vmId"))


class Oracle(_Cloud):
    """`oracle`, or `oracle=URL`: version 2 of the service."""

    kind = "oracle"
    other_urls = (Url("fd00:c1::a9fe:a9fe"),)  # cloud-init, DataSourceOracle.py
    headers: ClassVar[Mapping[str, str]] = {"Authorization": "Bearer Oracle"}

    def documents(self, deadline: Deadline, session: Session) -> Answer:
        metadata = self.tree(_OCI_INSTANCE, self.get(_OCI_INSTANCE, deadline).body)
        nics = self.parsed(_OCI_NICS, self.get(_OCI_NICS, deadline).body)
        if not isinstance(nics, list):
            raise SourceError(f"GET {self.url}{_OCI_NICS}: the response is not a list")
        data = self.decode_user_data(_mapping_or_empty(metadata.get("metadata")).get("user_data"))
        parts = {clouds.OCI: json.dumps({clouds.OCI_ROOT: nics}).encode()}
        return self.answer(data, session, parts, metadata.get("id"))


class Gce(_Cloud):
    """`gce`, or `gce=URL`. An answer without the service's header is from something else."""

    kind = "gce"
    other_urls = (Url("fd20:ce::254"),)
    headers: ClassVar[Mapping[str, str]] = {"Metadata-Flavor": "Google"}

    def documents(self, deadline: Deadline, session: Session) -> Answer:
        response = self.get(_GCE_TREE, deadline)
        if response.headers.get("metadata-flavor") != "Google":
            what = f"GET {self.url}{_GCE_TREE}"
            raise SourceError(f"{what}: the response lacks Metadata-Flavor: Google")
        tree = self.tree(_GCE_TREE, response.body)
        attributes = _mapping_or_empty(tree.get("attributes"))
        data = attributes.get("user-data")
        encoded = attributes.get("user-data-encoding") == "base64"
        text = self.decode_user_data(data) if encoded else _user_data_text(data)
        return self.answer(text, session, {clouds.GCE: response.body}, tree.get("id"))


class Hetzner(_Cloud):
    """`hetzner`, or `hetzner=URL`."""

    kind = "hetzner"

    def documents(self, deadline: Deadline, session: Session) -> Answer:
        instance_id = self.get(f"{_HETZNER}/metadata/instance-id", deadline).body
        networks = self.get(f"{_HETZNER}/metadata/private-networks", deadline).body
        data = self.get(f"{_HETZNER}/userdata", deadline, absent=(204, 404)).body or None
        parts = {clouds.HETZNER: networks} if networks.strip() else {}
        return self.answer(data, session, parts, instance_id.decode("ascii", "replace").strip())


class _OneTree(_Cloud):
    """A service with everything in one JSON document.

    `path` is its place, `part` its name; `id_key` and `data_key` are the keys of the instance ID
    and the user-data.
    """

    path = part = id_key = data_key = ""

    def documents(self, deadline: Deadline, session: Session) -> Answer:
        body = self.get(self.path, deadline).body
        tree = self.tree(self.path, body)
        data = _user_data_text(tree.get(self.data_key))
        return self.answer(data, session, {self.part: body}, tree.get(self.id_key))


class Vultr(_OneTree):
    """`vultr`, or `vultr=URL`. With this header, user-data and start-up scripts are included."""

    kind = "vultr"
    headers: ClassVar[Mapping[str, str]] = {"Metadata-Token": "cloudinit"}
    path, part = "/v1.json", clouds.VULTR
    id_key, data_key = "instance-v2-id", "user-data"


class DigitalOcean(_OneTree):
    """`digitalocean`, or `digitalocean=URL`."""

    kind = "digitalocean"
    path, part = "/metadata/v1.json", clouds.DIGITALOCEAN
    id_key, data_key = "droplet_id", "user_data"


# The first has user-data; regions and Azure Stack that lack it answer 400.
_AZURE, _AZURE_BEFORE = (
    f"/metadata/instance?api-version={version}" for version in ("2021-08-01", "2019-06-01")
)
_OCI_INSTANCE, _OCI_NICS = "/opc/v2/instance/", "/opc/v2/vnics/"
_GCE_TREE = "/computeMetadata/v1/instance/?recursive=true&alt=json"
_HETZNER = "/hetzner/v1"


def _user_data_text(value: object) -> Optional[bytes]:
    return value.encode("utf-8", "replace") if isinstance(value, str) and value else None


def _mapping_or_empty(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}
