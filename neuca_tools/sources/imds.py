"""`imds`: the user-data from systemd's metadata service (systemd 261 and later), over Varlink.

By default, that service asks on every NIC with an address and takes the first response. Here, it
is told to use the interface of a possible management NIC, and not to use its cache, which is kept
by interface name: the name may have belonged to another NIC.

References: systemd-imdsd@.service(8); the interface `io.systemd.InstanceMetadata`, as `varlinkctl
introspect` prints it; varlink.org, "Service": a message is a JSON object followed by a NUL byte.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import Any, Optional

from neuca_tools.errors import SourceError, SourceTimeoutError, UsageError
from neuca_tools.model.machine import Outlet
from neuca_tools.sources.base import BODY_LIMIT, Answer, Deadline, Session, Source, Surroundings

_SOCKET = "/run/systemd/io.systemd.InstanceMetadata"
_INTERFACE = "io.systemd.InstanceMetadata"
# The errors that mean that the platform has no such data; any other may be a failure.
_ABSENT = (f"{_INTERFACE}.KeyNotFound", f"{_INTERFACE}.WellKnownKeyUnset")
_MAX_NICS = 4  # on which the service is told to ask, one after the other


class Imds(Source):
    """`imds`, or `imds=SOCKET`; `outlet` is the NIC on which the service is told to ask."""

    local = False

    def __init__(self, argument: str, surroundings: Surroundings) -> None:
        if not argument.isprintable():
            raise UsageError('a path of printable characters must follow "imds="')
        self.name = f"imds={argument}" if argument else "imds"
        self.path = Path(argument or _SOCKET)
        self.surroundings = surroundings
        self.outlet: Optional[Outlet] = None

    def through_each(self) -> Sequence[Imds]:
        # User-data does not prove which instance it is for, so the NIC has to be trusted.
        outlets = (outlet for outlet in self.surroundings.outlets if outlet.is_likely)
        vouched = [outlet for outlet in outlets if outlet.is_vouched][:_MAX_NICS]
        # Without any, the request fails with the reason.
        return [self._at_outlet(outlet) for outlet in vouched] or [self]

    def _at_outlet(self, outlet: Outlet) -> Imds:
        other = copy(self)
        other.outlet = outlet
        return other

    def documents(self, deadline: Deadline, session: Session) -> Answer:
        if self.outlet is None:
            raise SourceError(self.surroundings.blocked)
        data = self._get("userdata", self.outlet, deadline)
        if data is None:
            # The key of a platform whose service encodes user-data (Azure).
            data = _from_base64(self._get("userdata_base64", self.outlet, deadline) or b"")
        return Answer(self.name, data or None, session)

    def _get(self, key: str, outlet: Outlet, deadline: Deadline) -> Optional[bytes]:
        """The value of a well-known key, None if the platform has none. Raises SourceError."""
        what = f"{key} from {self.path} through {outlet.name}"
        try:
            index = socket.if_nametoindex(outlet.name)
            request = {"wellKnown": key, "interface": index, "cache": False}
            return _value_in(_call_method(self.path, f"{_INTERFACE}.Get", request, deadline), index)
        except socket.timeout:
            text = f"{what}: no complete response within {deadline.budget:g} s"
            raise SourceTimeoutError(text) from None
        except OSError as error:
            raise SourceError(f"{what}: {error.strerror or error}") from error
        except SourceError as error:
            raise SourceError(f"{what}: {error}") from None


def _call_method(path: Path, method: str, parameters: dict[str, Any], deadline: Deadline) -> Any:  # noqa: ANN401 - JSON
    """The response to a call. Raises OSError, socket.timeout and SourceError."""
    # Sources in files are read without http.client, which takes 19 ms.
    from neuca_tools.sources.http import BoundedSocket

    call = json.dumps({"method": method, "parameters": parameters})
    connection = BoundedSocket(path)
    try:
        stream = connection.start(deadline)
        connection.sendall(call.encode() + b"\0")
        message = b""
        while b"\0" not in message:
            piece = stream.read1()
            if not piece:
                raise SourceError("the connection was closed without a complete response")
            message += piece
    finally:
        connection.close_stream()
    with suppress(ValueError, RecursionError):
        return json.loads(message[: message.index(b"\0")])
    raise SourceError("the response is not JSON")


def _value_in(response: Any, index: int) -> Optional[bytes]:  # noqa: ANN401 - JSON
    """The data in a response through interface `index`, None if absent. Raises SourceError."""
    fields = response if isinstance(response, dict) else {}
    if fields.get("error") in _ABSENT:
        return None
    if "error" in fields:
        raise SourceError(f"it failed with {str(fields['error'])[:100]}")
    parameters = fields.get("parameters")
    if not isinstance(parameters, dict):
        parameters = {}
    data = parameters.get("data")
    if not isinstance(data, str):
        raise SourceError("the response has no data")
    if parameters.get("interface", index) != index:
        raise SourceError("the response came through another interface")
    value = _from_base64(data.encode("utf-8", "replace"))
    if len(value) > BODY_LIMIT:
        raise SourceError(f"the data is larger than {BODY_LIMIT} bytes")
    return value


def _from_base64(text: bytes) -> bytes:
    try:
        return base64.b64decode(b"".join(text.split()), validate=True)
    except ValueError as error:
        raise SourceError(f"the data is not base64: {error}") from error
