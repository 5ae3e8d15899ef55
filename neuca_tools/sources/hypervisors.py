"""Documents that the hypervisor passes without a network: VMware's guestinfo, LXD's socket.

References: cloud-init's manual, "VMware" and "LXD"; open-vm-tools, vmware-rpctool; LXD and Incus,
"Communication between instance and host".
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import base64
import json
import os
import select
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Optional

from neuca_tools.documents.envelope import gunzip
from neuca_tools.documents.neuca.values import clip
from neuca_tools.documents.platform import instance, netplan
from neuca_tools.documents.platform.tree import REPEATED, from_yaml
from neuca_tools.errors import DocumentError, SourceError, SourceTimeoutError, UsageError
from neuca_tools.sources.base import BODY_LIMIT, Answer, Deadline, Session, Source, Surroundings

if TYPE_CHECKING:
    from neuca_tools.sources.http import Response

_RPCTOOL = "/usr/bin/vmware-rpctool"
# The error for a key that is not set; the exit status is the same for every failure.
_NO_VALUE = b"No value found"
# Values that count as none. cloud-init overwrites documents that it redacts with `---`, an empty
# YAML document (DataSourceVMware.py, GUESTINFO_EMPTY_YAML_VAL).
_UNSET = ("", "---")
_BASE64 = frozenset(("base64", "b64"))
_GZIP = frozenset(("gzip+base64", "gz+b64"))


class VMware(Source):
    """`vmware`: guestinfo.metadata and guestinfo.userdata, each with an optional `.encoding`."""

    name = "vmware"
    local = False
    program = _RPCTOOL

    def __init__(self, argument: str, _: Surroundings) -> None:
        if argument:
            raise UsageError('"vmware" takes no argument')

    def documents(self, deadline: Deadline, session: Session) -> Answer:
        metadata = self._decoded_value("metadata", deadline)
        data = self._decoded_value("userdata", deadline)
        if metadata is None:
            return Answer(self.name, data, session)
        parts = {instance.NOCLOUD: metadata}
        network = _network_configuration(metadata)
        if network:
            parts[netplan.NAME] = network
        return Answer(self.name, data, session, parts)

    def _decoded_value(self, name: str, deadline: Deadline) -> Optional[bytes]:
        """The decoded value of a key; None if it is not set. Raises SourceError."""
        value = self._read(f"guestinfo.{name}", deadline)
        if value is None:
            return None
        encoding = self._read(f"guestinfo.{name}.encoding", deadline) or b""
        word = encoding.decode("ascii", "replace").strip().lower()
        return _decode_value(f"guestinfo.{name}", value, word)

    def _read(self, key: str, deadline: Deadline) -> Optional[bytes]:
        what = f"info-get {key}"
        try:
            status, output, message = _run_command([self.program, what], deadline)
        except OSError as error:
            raise SourceError(f"{what}: run {self.program}: {error.strerror}") from error
        except SourceError as error:
            raise type(error)(f"{what}: {error}") from None
        if status and _NO_VALUE not in message:
            reason = clip(message.decode("ascii", "replace"))
            ending = f"vmware-rpctool ended with status {status}"
            raise SourceError(": ".join(filter(None, (what, ending, reason))))
        value = output[:-1]  # the tool appends a newline
        is_unset = status or value.decode("ascii", "replace").strip() in _UNSET
        return None if is_unset else value


def _run_command(command: list[str], deadline: Deadline) -> tuple[int, bytes, bytes]:
    """The exit status, standard output and standard error of a command.

    It is killed at the deadline. Raises OSError, SourceTimeoutError, and SourceError if it prints
    more than BODY_LIMIT bytes and a newline.
    """
    # Imported for VMware only, which saves 2 ms elsewhere.
    from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired

    with Popen(command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            output = _read_pipe(process.stdout.fileno(), deadline)
            message = _read_pipe(process.stderr.fileno(), deadline)
            return process.wait(max(0.0, deadline.remaining())), output, message
        except (TimeoutExpired, TimeoutError):
            text = f"no response within {deadline.budget:g} s"
            raise SourceTimeoutError(text) from None
        finally:
            process.kill()


def _read_pipe(pipe: int, deadline: Deadline) -> bytes:
    """Everything up to the end of file. Raises TimeoutError and SourceError."""
    data = b""
    while len(data) <= BODY_LIMIT + 1:
        if not deadline.wait(pipe, select.POLLIN):
            raise TimeoutError
        piece = os.read(pipe, 65536)
        if not piece:
            return data
        data += piece
    raise SourceError(f"the value is larger than {BODY_LIMIT} bytes")


def _decode_value(what: str, value: bytes, encoding: str) -> bytes:
    """A value in one of guestinfo's encodings. Raises SourceError."""
    if not encoding:
        return value
    if encoding not in _BASE64 | _GZIP:
        raise SourceError(f'{what}: the encoding "{encoding[:40]}" is unknown')
    try:
        data = base64.b64decode(b"".join(value.split()), validate=True)
        if encoding in _BASE64:
            return data
        unpacked = gunzip(data, BODY_LIMIT)
    except ValueError as error:
        raise SourceError(f"{what}: it is not {encoding}: {error}") from error
    if len(unpacked) > BODY_LIMIT:
        raise SourceError(f"{what}: it is larger than {BODY_LIMIT} bytes")
    return unpacked


def _network_configuration(metadata: bytes) -> bytes:
    """The network configuration inside the metadata, empty if there is none. Raises SourceError."""
    try:
        tree = from_yaml(metadata, "guestinfo.metadata")
    except DocumentError as error:
        raise SourceError(str(error)) from error
    if not isinstance(tree, dict) or "network" not in tree:
        return b""
    network = tree["network"]
    if network and isinstance(network, str):
        encoding = tree.get("network.encoding")
        name = encoding.lower() if isinstance(encoding, str) else ""
        value = network.encode("utf-8", "replace")
        return _decode_value("guestinfo.metadata, network", value, name)
    return json.dumps({key: tree[key] for key in ("network", REPEATED) if key in tree}).encode()


class Lxd(Source):
    """`lxd`: the socket of LXD or of Incus; or `lxd=SOCKET`, which must exist."""

    local = False
    sockets: tuple[Path, ...] = (Path("/dev/lxd/sock"), Path("/dev/incus/sock"))

    def __init__(self, argument: str, _: Surroundings) -> None:
        self.must_exist, self.name = bool(argument), "lxd"
        if argument:
            self.sockets, self.name = (Path(argument),), f"lxd={argument}"

    def documents(self, deadline: Deadline, session: Session) -> Answer:
        place = next(filter(Path.is_socket, self.sockets), None)
        if place is None and not self.must_exist:
            return Answer(self.name, None, session)
        # Files are read without http.client, which takes 19 ms.
        from neuca_tools.sources.http import Connection

        with closing(Connection(place or self.sockets[0])) as connection:
            get = partial(connection.get, deadline=deadline)
            data, network = (_lxd_value(get, name) for name in ("user-data", "network-config"))
            if data is None and network is None:
                return Answer(self.name, None, session)
            parts = {instance.NOCLOUD: get("/1.0/meta-data", absent=()).body}
        if network is not None:
            parts[netplan.NAME] = network
        return Answer(self.name, data, session, parts)


def _lxd_value(get: Callable[[str], Response], name: str) -> Optional[bytes]:
    """The value of `cloud-init.NAME` or of `user.NAME`, its older name; None if neither is set."""
    values = (get(f"/1.0/config/{prefix}.{name}").content for prefix in ("cloud-init", "user"))
    return next((value for value in values if value is not None), None)
