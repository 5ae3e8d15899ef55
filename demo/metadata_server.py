"""A metadata service: IMDSv2 on port 80, which serves one file as the user-data of the guest.

It prints `ready` on standard output, then one line for each request that it has answered.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import http.server
import secrets
import socket
import sys
from pathlib import Path

TOKEN = secrets.token_urlsafe(32)
LONGEST = 21600  # maximum lifetime of a token in seconds


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers PUT with a token, and GET with that token with the file or an item of metadata."""

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
        """Log nothing; `_answer` prints each request."""


class Server(http.server.ThreadingHTTPServer):
    """Serves both IPv6 and IPv4."""

    address_family = socket.AF_INET6
    daemon_threads = True

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


if __name__ == "__main__":
    with Server(("::", 80), Handler) as server:
        print("ready", flush=True)
        server.serve_forever()
