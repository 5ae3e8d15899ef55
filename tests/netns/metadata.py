"""A metadata service as EC2 and OpenStack have it: IMDSv2 or version 1, counted, and ill in whatever way a test wants."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PATIENCE = 120.0  # seconds, as in lab.py
LISTEN = """import socket, sys
family, *_, place = socket.getaddrinfo(sys.argv[1], int(sys.argv[2]), type=socket.SOCK_STREAM)[0]
with socket.socket(fileno=int(sys.argv[3])) as end, socket.create_server(place, family=family, backlog=64) as made:
    socket.send_fds(end, [b"x"], [made.fileno()])"""
USER_DATA, TOKEN = "/latest/user-data", "/latest/api/token"


def listener(enter, address, port):
    """A listening socket that belongs to another network namespace: made there, and handed over."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        subprocess.run([*enter, sys.executable, "-c", LISTEN, address, str(port), str(theirs.fileno())], check=True,
                       pass_fds=[theirs.fileno()], timeout=PATIENCE)  # fmt: skip
        descriptors = socket.recv_fds(ours, 1, 1)[1]
    return socket.socket(fileno=descriptors[0])


class Metadata:
    """`mode` is ok, hang, 500, 404, garbage or cut (within the headers); `tokens`: False for a service of version 1.

    `tree`: more paths, without tokens.
    """

    def __init__(self, listening, document):
        self.document, self.mode, self.tokens = document, "ok", True
        self.requests, self.tree = [], {}
        self.strict = None  # a service of `cloudmocks` instead of all this
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._server = ThreadingHTTPServer(
            listening.getsockname(), _handler(self), bind_and_activate=False
        )
        self._server.daemon_threads = True
        self._server.socket.close()
        self._server.socket = listening
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}
        )
        self._thread.start()

    def close(self):
        self._closing.set()
        self._server.shutdown()
        self._thread.join(PATIENCE)
        self._server.server_close()

    def recover(self):
        """From now on it answers; who hangs is let go."""
        self.mode = "ok"
        closing, self._closing = self._closing, threading.Event()
        closing.set()

    def wait_for(self, count, path=USER_DATA):
        """Until so many more requests for the user-data have come."""
        with self._changed:
            target = self.seen(path) + count
            assert self._changed.wait_for(lambda: self.seen(path) >= target, PATIENCE), (
                f"no {count} requests for {path}"
            )

    def seen(self, path=USER_DATA):
        return sum(one.endswith(f" {path}") for one in self.requests)

    def answer(self, method, path, token):
        """The status and the body."""
        with self._changed:
            self.requests.append(f"{method} {path}")
            self._changed.notify_all()
        if self.mode == "hang":
            self._closing.wait()
        if self.mode in ("hang", "500"):
            return 500, b"out of order"
        if path in self.tree:
            found = self.tree[path]
            return 200, found if isinstance(found, bytes) else found.encode()
        if path == TOKEN:
            return (200, b"a-token") if method == "PUT" and self.tokens else (404, b"")
        if self.tokens and token != "a-token":
            return 401, b""
        if path != USER_DATA or self.mode == "404":
            return 404, b""
        return 200, bytes(range(256)) * 16 if self.mode == "garbage" else self.document.encode()


def _handler(service):
    class Handler(BaseHTTPRequestHandler):
        def _serve(self):
            more = ()
            if service.strict:
                status, body, more = service.strict.reply(self.command, self.path, self.headers)
            else:
                status, body = service.answer(
                    self.command, self.path, self.headers.get("X-aws-ec2-metadata-token")
                )
            try:
                if service.mode == "cut":
                    self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Le")
                    return
                self.send_response(status)
                for line in more:
                    self.send_header(*line.split(": ", 1))
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except OSError:
                self.close_connection = True  # who asked is gone

        do_GET = do_PUT = _serve  # noqa: N815 - http.server's names

        def log_message(self, *words):
            """Nothing: a test asks for the requests."""

    return Handler
