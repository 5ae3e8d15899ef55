"""A guest's metadata service: real HTTP on a loopback port, which `relay.py` makes the guest's http://169.254.169.254/."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

USER_DATA, TOKEN = "/latest/user-data", "/latest/api/token"
OPENSTACK = "/openstack/"
PATIENCE = 300.0  # seconds


class Cloud:
    """`document`: None for no user-data; `mode` is ok, off (the connection is closed at once), hang, 404, 500, garbage or cut."""

    def __init__(self, document):
        self.document, self.mode = document, "ok"
        self.files = {}  # path to text of what others than our agent ask for, with no token
        self.strict = None  # a service of `cloudmocks` instead of all this
        self.requests = []
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )
        self._thread.start()

    def close(self):
        self._closing.set()
        self._server.shutdown()
        self._thread.join(PATIENCE)
        self._server.server_close()

    def seen(self):
        """How often the user-data was asked for."""
        return sum(request == f"GET {USER_DATA}" for request in self.requests)

    def wait_for(self, count, patience=PATIENCE):
        """Until so many more requests for the user-data have come."""
        with self._changed:
            target = self.seen() + count
            assert self._changed.wait_for(lambda: self.seen() >= target, patience), (
                f"no {count} requests for the user-data"
            )

    def answer(self, method, path, token):
        """Status, body and the length that is announced."""
        with self._changed:
            self.requests.append(f"{method} {path}")
            self._changed.notify_all()
        if self.mode == "hang":
            self._closing.wait()
        status, body = self._content(method, path, token)
        if self.mode == "garbage" and path == USER_DATA:
            status, body = 200, bytes(range(256)) * 16
        return (
            (status, body[: len(body) // 2], len(body))
            if self.mode == "cut"
            else (status, body, len(body))
        )

    def _content(self, method, path, token):
        if self.mode in ("404", "500"):
            return int(self.mode), b"out of order"
        if path == TOKEN:
            return (200, b"a-token") if method == "PUT" else (405, b"")
        if path in self.files:
            return 200, self.files[path].encode()
        if path.startswith(OPENSTACK) and any(place.startswith(OPENSTACK) for place in self.files):
            return 404, b""  # such a service has no tokens
        if token != "a-token":
            return 401, b""
        found = path == USER_DATA and self.document is not None
        return (200, self.document.encode()) if found else (404, b"")


def _handler(cloud):
    class Handler(BaseHTTPRequestHandler):
        def _serve(self):
            self.close_connection = True
            if cloud.mode == "off":
                return
            more = ()
            if cloud.strict:
                cloud.requests.append(f"{self.command} {self.path}")
                status, body, more = cloud.strict.reply(self.command, self.path, self.headers)
                length = len(body)
            else:
                status, body, length = cloud.answer(
                    self.command, self.path, self.headers.get("X-aws-ec2-metadata-token")
                )
            try:
                self.send_response(status)
                for line in more:
                    self.send_header(*line.split(": ", 1))
                self.send_header("Content-Length", str(length))
                self.end_headers()
                self.wfile.write(body)
            except OSError:
                pass  # who asked is gone

        do_GET = do_PUT = _serve  # noqa: N815 - http.server's names

        def log_message(self, *words):
            """Nothing: a test asks for the requests."""

    return Handler
