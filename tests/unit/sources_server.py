"""A server of raw bytes on the loopback address, for answers that no proper HTTP server would give."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import dataclass, field


@dataclass
class Request:
    method: str
    path: str
    headers: dict = field(default_factory=dict)

    def __str__(self):
        return f"{self.method} {self.path}"


def http(status, body=b"", *headers):
    """A proper answer."""
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Server:
    """Answers with what `play(request)` returns or yields: bytes, and None for "wait for the end of the test".

    `most`: the number of requests that it answers on one connection. `connections` has the number
    of those that came on each.
    """

    def __init__(self, play, host="127.0.0.1", most=1):
        self.play, self.requests, self.over = play, [], threading.Event()
        self.most, self.connections = most, []
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.listener = socket.create_server((host, 0), family=family)
        self.port = self.listener.getsockname()[1]
        self.url = f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"
        self.threads = [threading.Thread(target=self._accept)]
        self.threads[0].start()

    @property
    def asked(self):
        return [str(request) for request in self.requests]

    def close(self):
        self.over.set()
        self.listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
        for thread in self.threads:
            thread.join()
        self.listener.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while not self.over.is_set():
                connection, _ = self.listener.accept()
                self.threads.append(threading.Thread(target=self._serve, args=(connection,)))
                self.threads[-1].start()

    def _serve(self, connection):
        # The client may hang up at any byte: that is what many of the tests are about.
        self.connections.append(0)
        number = len(self.connections) - 1
        with connection, contextlib.suppress(OSError):
            while self.connections[number] < self.most:
                request = _read(connection)
                self.connections[number] += 1
                self.requests.append(request)
                answer = self.play(request)
                for piece in [answer] if answer is None or isinstance(answer, bytes) else answer:
                    if piece is None or self.over.is_set():
                        self.over.wait()
                        return
                    connection.sendall(piece)

    def slowly(self, data, every=0.02):
        """The bytes one by one; each of them alone would satisfy a plain socket time-out."""
        for position in range(len(data)):
            yield data[position : position + 1]
            self.over.wait(every)


def _read(connection):
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(4096)
        if not more:
            raise ConnectionResetError
        data += more
    first, *rest = data.decode("ascii").split("\r\n\r\n")[0].split("\r\n")
    method, path, _ = first.split(" ")
    return Request(method, path, dict(line.split(": ", 1) for line in rest))
