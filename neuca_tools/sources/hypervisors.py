"""Documents that the hypervisor passes without a network: VMware's guestinfo, LXD's socket.

References: cloud-init's manual, "VMware" and "LXD"; open-vm-tools, vmware-rpctool; LXD,
"Communication between instance and host".
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Optional

from neuca_tools.documents.platform import instance, netplan
from neuca_tools.documents.platform.tree import Tree, from_yaml
from neuca_tools.errors import DocumentError, SourceError, UsageError
from neuca_tools.sources.base import BODY_LIMIT, Answer, Deadline, Session, Source, Surroundings

if TYPE_CHECKING:
    import socket

_RPCTOOL = "/usr/bin/vmware-rpctool"
_NO_VALUE = 1  # its exit status if the key is not set
_UNSET = ("", "---")
_BASE64 = frozenset(("base64", "b64"))
_GZIP = frozenset(("gzip+base64", "gz+b64"))
_LXD_SOCKET = Path("/dev/lxd/sock")


class VMware(Source):
    """`vmware`: guestinfo.metadata and guestinfo.userdata, each with an optional `.encoding`."""

    name = "vmware"
    local = False
    program = _RPCTOOL

    def __init__(self, argument: str, _: Surroundings) -> None:
        if argument:
            raise UsageError('"vmware" takes no argument')

    def documents(self, deadline: Deadline, session: Session) -> Answer:
        about = self._value("metadata", deadline)
        data = self._value("userdata", deadline)
        if about is None:
            return Answer(self.name, data, session)
        parts = {instance.NOCLOUD: about}
        network = _network(about)
        if network:
            parts[netplan.NAME] = network
        return Answer(self.name, data, session, parts)

    def metadata(self, path: str, deadline: Deadline, session: Session) -> Answer:  # noqa: ARG002
        raise SourceError(f"vmware has no {path}: only ec2 has paths")

    def _value(self, name: str, deadline: Deadline) -> Optional[bytes]:
        """The decoded value of a key; None if it is not set. Raises SourceError."""
        value = self._read(f"guestinfo.{name}", deadline)
        if value is None:
            return None
        encoding = (self._read(f"guestinfo.{name}.encoding", deadline) or b"").decode(
            "ascii", "replace"
        )
        return _decoded(f"guestinfo.{name}", value, encoding.strip().lower())

    def _read(self, key: str, deadline: Deadline) -> Optional[bytes]:
        import subprocess

        what = f"info-get {key}"
        try:
            done = subprocess.run(
                [self.program, what],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=max(0.1, deadline.remaining()),
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise SourceError(f"{what}: no answer within {deadline.budget:g} s") from None
        except OSError as error:
            raise SourceError(f"{what}: run {self.program}: {error.strerror}") from error
        if done.returncode not in (0, _NO_VALUE):
            raise SourceError(f"{what}: vmware-rpctool ended with status {done.returncode}")
        # The tool appends a newline.
        value = done.stdout[:-1]
        if done.returncode == _NO_VALUE or value.decode("ascii", "replace").strip() in _UNSET:
            return None
        if len(value) > BODY_LIMIT:
            raise SourceError(f"{what}: the value is larger than {BODY_LIMIT} bytes")
        return value


def _decoded(what: str, value: bytes, encoding: str) -> bytes:
    """A value in one of guestinfo's encodings. Raises SourceError."""
    import base64
    import binascii
    import zlib

    if not encoding:
        return value
    if encoding not in _BASE64 | _GZIP:
        raise SourceError(f'{what}: the encoding "{encoding[:40]}" is unknown')
    try:
        data = base64.b64decode(b"".join(value.split()), validate=True)
        if encoding in _BASE64:
            return data
        unpacker = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        unpacked = unpacker.decompress(data, BODY_LIMIT)
    except (binascii.Error, ValueError, zlib.error) as error:
        raise SourceError(f"{what}: it is not {encoding}: {error}") from error
    if not unpacker.eof:
        raise SourceError(f"{what}: it is damaged, or larger than {BODY_LIMIT} bytes")
    return unpacked


def _network(about: bytes) -> bytes:
    """The network configuration inside the metadata, empty if there is none. Raises SourceError."""
    try:
        tree = from_yaml(about, "guestinfo.metadata")
    except DocumentError as error:
        raise SourceError(str(error)) from error
    found: Tree = tree.get("network") if isinstance(tree, dict) else None
    if isinstance(tree, dict) and isinstance(found, str):
        encoding = tree.get("network.encoding")
        words = encoding.lower() if isinstance(encoding, str) else ""
        return _decoded("guestinfo.metadata, network", found.encode("utf-8", "replace"), words)
    return json.dumps(found).encode() if found else b""


class Lxd(Source):
    """`lxd` at /dev/lxd/sock, or `lxd=SOCKET`."""

    def __init__(self, argument: str, _: Surroundings) -> None:
        self.expected = bool(argument)
        self.place = Path(argument) if argument else _LXD_SOCKET
        self.name = f"lxd={argument}" if argument else "lxd"

    def documents(self, deadline: Deadline, session: Session) -> Answer:
        if not self.expected and not self.place.is_socket():
            return Answer(self.name, None, session)
        data = self._get("/1.0/config/cloud-init.user-data", deadline)
        network = self._get("/1.0/config/cloud-init.network-config", deadline)
        if data is None and network is None:
            return Answer(self.name, None, session)
        parts = {instance.NOCLOUD: self._get("/1.0/meta-data", deadline) or b""}
        if network is not None:
            parts[netplan.NAME] = network
        return Answer(self.name, data, session, parts)

    def metadata(self, path: str, deadline: Deadline, session: Session) -> Answer:  # noqa: ARG002
        raise SourceError(f"lxd has no {path}: only ec2 has paths")

    def _get(self, path: str, deadline: Deadline) -> Optional[bytes]:
        """The body at a path; None if there is none. Raises SourceError."""
        from http.client import HTTPConnection, HTTPException

        connection = HTTPConnection("lxd")
        what = f"GET {path} from {self.place}"
        try:
            connection.sock = _connected(self.place, deadline)
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read(BODY_LIMIT + 1)
        except (OSError, HTTPException) as error:
            raise SourceError(f"{what}: {_reason(error)}") from error
        finally:
            connection.close()
        if response.status == 404:
            return None
        if response.status != 200 or len(body) > BODY_LIMIT:
            raise SourceError(f"{what}: HTTP {response.status}, {len(body)} bytes")
        return body


def _connected(place: Path, deadline: Deadline) -> socket.socket:
    import socket

    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        found.settimeout(max(0.1, deadline.remaining()))
        found.connect(os.fspath(place))
    except OSError:
        found.close()
        raise
    return found


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
