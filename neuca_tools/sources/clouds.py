"""The metadata services that have all NICs in one document: Azure, Oracle Cloud and others.

Whatever is not a complete answer is an error, never an empty answer: these services reply with 404,
410, 429 or 503 while they are not ready or busy.

References: Microsoft, "Azure Instance Metadata Service"; Oracle, "Getting Instance Metadata";
Google, "About VM metadata"; Hetzner, "Server metadata" (Cloud API documentation); Vultr, "Metadata
API"; DigitalOcean, "Droplet Metadata API".
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING, ClassVar, Optional

from neuca_tools.documents.platform import azure, digitalocean, gce, hetzner, oci, vultr
from neuca_tools.errors import SourceError
from neuca_tools.model.machine import instance
from neuca_tools.sources.base import Answer, Deadline, Session
from neuca_tools.sources.service import Service

if TYPE_CHECKING:
    from neuca_tools.sources.http import Response


class _Cloud(Service):
    """A service whose every request carries the same headers."""

    headers: ClassVar[Mapping[str, str]] = {}

    def get(self, path: str, deadline: Deadline) -> bytes:
        """The body at a path. Raises SourceError for every status but 200."""
        return self.respond(path, deadline).body

    def respond(self, path: str, deadline: Deadline) -> Response:
        response = self.request("GET", path, self.headers, deadline)
        if response.status != 200:
            raise SourceError(f"GET {self.url}{path}: HTTP {response.status}")
        return response

    def parsed(self, path: str, body: bytes) -> object:
        """The JSON at a path. Raises SourceError."""
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            raise SourceError(f"GET {self.url}{path}: the response is not JSON") from error

    def unpacked(self, text: object) -> Optional[bytes]:
        """User-data in base64; None if there is none. Raises SourceError."""
        if not isinstance(text, str) or not text:
            return None
        try:
            return base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError) as error:
            raise SourceError(f"the user-data of {self.kind} is not base64") from error


class Azure(_Cloud):
    """`azure`, or `azure=URL`. The service answers the primary NIC only."""

    kind = "azure"
    headers: ClassVar[Mapping[str, str]] = {"Metadata": "true"}
    # The wireserver, which probes the health of load-balanced guests.
    guarded = (ip_address("168.63.129.16"),)
    # The first has user-data; regions and Azure Stack that lack it answer 400.
    versions = ("2021-08-01", "2019-06-01")

    def documents(self, deadline: Deadline, session: Session) -> Answer:
        for version in self.versions:
            path = f"/metadata/instance?api-version={version}"
            response = self.request("GET", path, self.headers, deadline)
            if response.status != 400:
                break
        if response.status != 200:
            raise SourceError(f"GET {self.url}{path}: HTTP {response.status}")
        compute = _mapping(_mapping(self.parsed(path, response.body)).get("compute"))
        data = self.unpacked(compute.get("userData"))
        name = instance(self.kind, str(compute.get("vmId", "")))
        return Answer(self.name, data, session, {azure.NAME: response.body}, name)


class Oracle(_Cloud):
    """`oracle`, or `oracle=URL`: version 2 of the service."""

    kind = "oracle"
    headers: ClassVar[Mapping[str, str]] = {"Authorization": "Bearer Oracle"}

    def documents(self, deadline: Deadline, session: Session) -> Answer:
        about = _mapping(self.parsed(_OCI_INSTANCE, self.get(_OCI_INSTANCE, deadline)))
        nics = self.parsed(_OCI_NICS, self.get(_OCI_NICS, deadline))
        if not isinstance(nics, list):
            raise SourceError(f"GET {self.url}{_OCI_NICS}: the response is not a list")
        data = self.unpacked(_mapping(about.get("metadata")).get("user_data"))
        parts = {oci.NAME: json.dumps({oci.ROOT: nics}).encode()}
        return Answer(
            self.name, data, session, parts, instance(self.kind, str(about.get("id", "")))
        )


class Gce(_Cloud):
    """`gce`, or `gce=URL`. An answer without the service's header is from something else."""

    kind = "gce"
    headers: ClassVar[Mapping[str, str]] = {"Metadata-Flavor": "Google"}

    def documents(self, deadline: Deadline, session: Session) -> Answer:
        response = self.respond(_GCE_TREE, deadline)
        if response.headers.get("metadata-flavor") != "Google":
            raise SourceError(
                f"GET {self.url}{_GCE_TREE}: the response lacks Metadata-Flavor: Google"
            )
        tree = _mapping(self.parsed(_GCE_TREE, response.body))
        attributes = _mapping(tree.get("attributes"))
        data = attributes.get("user-data")
        name = instance(self.kind, str(tree.get("id", "")))
        encoded = attributes.get("user-data-encoding") == "base64"
        text = self.unpacked(data) if encoded else _text(data)
        return Answer(self.name, text, session, {gce.NAME: response.body}, name)


class Hetzner(_Cloud):
    """`hetzner`, or `hetzner=URL`."""

    kind = "hetzner"

    def documents(self, deadline: Deadline, session: Session) -> Answer:
        name = self.get(f"{_HETZNER}/metadata/instance-id", deadline).decode("ascii", "replace")
        networks = self.get(f"{_HETZNER}/metadata/private-networks", deadline)
        data = self._user_data(deadline)
        parts = {hetzner.NAME: networks} if networks.strip() else {}
        return Answer(self.name, data, session, parts, instance(self.kind, name.strip()))

    def _user_data(self, deadline: Deadline) -> Optional[bytes]:
        path = f"{_HETZNER}/userdata"
        response = self.request("GET", path, self.headers, deadline)
        if response.status not in (200, 204, 404):
            raise SourceError(f"GET {self.url}{path}: HTTP {response.status}")
        return response.body or None


class Vultr(_Cloud):
    """`vultr`, or `vultr=URL`. With this header, user-data and start-up scripts are included."""

    kind = "vultr"
    headers: ClassVar[Mapping[str, str]] = {"Metadata-Token": "cloudinit"}

    def documents(self, deadline: Deadline, session: Session) -> Answer:
        body = self.get(_VULTR, deadline)
        tree = _mapping(self.parsed(_VULTR, body))
        name = instance(self.kind, str(tree.get("instance-v2-id", "")))
        return Answer(self.name, _text(tree.get("user-data")), session, {vultr.NAME: body}, name)


class DigitalOcean(_Cloud):
    """`digitalocean`, or `digitalocean=URL`."""

    kind = "digitalocean"

    def documents(self, deadline: Deadline, session: Session) -> Answer:
        body = self.get(_DROPLET, deadline)
        tree = _mapping(self.parsed(_DROPLET, body))
        name = instance(self.kind, str(tree.get("droplet_id", "")))
        parts = {digitalocean.NAME: body}
        return Answer(self.name, _text(tree.get("user_data")), session, parts, name)


_VULTR, _DROPLET = "/v1.json", "/metadata/v1.json"
_OCI_INSTANCE, _OCI_NICS = "/opc/v2/instance/", "/opc/v2/vnics/"
_GCE_TREE = "/computeMetadata/v1/instance/?recursive=true&alt=json"
_HETZNER = "/hetzner/v1"


def _text(value: object) -> Optional[bytes]:
    """User-data as a text; None if there is none."""
    return value.encode("utf-8", "replace") if isinstance(value, str) and value else None


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}
