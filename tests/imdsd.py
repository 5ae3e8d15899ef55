"""A server that speaks Varlink as the definition of io.systemd.InstanceMetadata has it, at a UNIX socket.

No real systemd-imdsd: it needs systemd 261 and a cloud that its hardware database knows, and the build machine has
systemd 252. The server therefore answers as that service's interface definition says: method `Get` with the input
`wellKnown` (an enumeration), `interface`, `cache` and others, the output `data` in base64 and `interface`, and its own
errors; it refuses unknown methods and parameters as sd-varlink does.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import base64
import json
import socket
import threading
from contextlib import suppress

INTERFACE = "io.systemd.InstanceMetadata"
WELL_KNOWN = {
    "base", "hostname", "region", "zone", "ipv4_public", "ipv6_public", "ssh_key", "userdata", "userdata_base",
    "userdata_base64",
}  # fmt: skip
INPUTS = {
    "key": str, "wellKnown": str, "interface": int, "refreshUSec": int, "cache": bool, "firewallMark": int,
    "allowInteractiveAuthentication": bool,
}  # fmt: skip


def error(name, **parameters):
    return {"error": name, "parameters": parameters}


def get(parameters, keys):
    """What the method `Get` responds on a platform with these well-known keys (None: listed, not there)."""
    for name, value in parameters.items():
        if name not in INPUTS or type(value) is not INPUTS[name]:
            return error("org.varlink.service.InvalidParameter", parameter=name)
    well_known = parameters.get("wellKnown")
    if well_known not in WELL_KNOWN:
        return error("org.varlink.service.InvalidParameter", parameter="wellKnown")
    if well_known not in keys:
        return error(f"{INTERFACE}.WellKnownKeyUnset")
    if keys[well_known] is None:
        return error(f"{INTERFACE}.KeyNotFound")
    data = base64.b64encode(keys[well_known]).decode()
    return {"parameters": {"data": data, "interface": parameters.get("interface", 1)}}


class Imdsd:
    """The service at a socket. `answer`: bytes that it sends in place of its own, None for silence."""

    def __init__(self, path, keys, answer=b""):
        self.path, self.keys, self.answer, self.calls = path, keys, answer, []
        self.over = threading.Event()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()
        self.thread = threading.Thread(target=self.serve)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.listener.close()

    def serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                self.converse(connection)

    def converse(self, connection):
        received = b""
        while True:
            piece = connection.recv(65536)
            if not piece:
                return
            *messages, received = (received + piece).split(b"\0")
            for message in messages:
                self.respond(connection, json.loads(message))

    def respond(self, connection, call):
        self.calls.append(call)
        if self.answer is None:
            self.over.wait()
        elif self.answer:
            connection.sendall(self.answer)
            connection.shutdown(socket.SHUT_RDWR)
        elif call["method"] != f"{INTERFACE}.Get":
            self.send(
                connection, error("org.varlink.service.MethodNotFound", method=call["method"])
            )
        else:
            self.send(connection, get(call.get("parameters", {}), self.keys))

    def send(self, connection, response):
        connection.sendall(json.dumps(response).encode() + b"\0")
