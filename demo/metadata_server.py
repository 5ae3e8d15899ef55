"""A metadata service as a cloud has it: IMDSv2 on port 80, which serves one file as the user-data of its one guest.

It says `ready` on standard output, then a line for each request that it has answered.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import http.server
import secrets
import socket
import sys
from pathlib import Path

TOKEN = secrets.token_urlsafe(32)
LONGEST = 21600  # seconds that a token may be asked for


class Handler(http.server.BaseHTTPRequestHandler):
    """A token for a PUT; for a GET with the token, the file or one item of metadata; 401 without it."""

    def do_PUT(self) -> None:
        seconds = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "")
        wanted = (
            self.path == "/latest/api/token" and seconds.isdigit() and 0 < int(seconds) <= LONGEST
        )
        self._answer(200 if wanted else 400, TOKEN if wanted else "")

    def do_GET(self) -> None:
        if self.headers.get("X-aws-ec2-metadata-token") != TOKEN:
            self._answer(401, "")
        elif self.path == "/latest/user-data":
            self._answer(200, Path(sys.argv[1]).read_text())
        elif self.path == "/latest/meta-data/public-ipv4":
            self._answer(200, "203.0.113.7")
        else:
            self._answer(404, "")

    def _answer(self, status: int, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        print(self.command, self.path, status, flush=True)

    def log_message(self, *arguments: object) -> None:
        """Nothing: `_answer` says it."""


class Server(http.server.ThreadingHTTPServer):
    """On IPv6 and IPv4 at once."""

    address_family = socket.AF_INET6
    daemon_threads = True

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


if __name__ == "__main__":
    with Server(("::", 80), Handler) as server:
        print("ready", flush=True)
        server.serve_forever()
