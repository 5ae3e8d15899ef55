"""The other side of a self-test, hostile: raw lines to a server, and a server that says whatever a test wants."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading

from metadata import PATIENCE, listener

PORT = 45679
CONNECT = """import socket, sys
with socket.socket(fileno=int(sys.argv[3])) as end:
    made = socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)
    socket.send_fds(end, [b"x"], [made.fileno()])"""


def connection(enter, address, port=PORT):
    """A TCP connection from another network namespace."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        command = [*enter, sys.executable, "-c", CONNECT, address, str(port), str(theirs.fileno())]
        subprocess.run(command, check=True, pass_fds=[theirs.fileno()], timeout=PATIENCE)
        made = socket.socket(fileno=socket.recv_fds(ours, 1, 1)[1][0])
    made.settimeout(PATIENCE)
    return made


def say(enter, address, line, port=PORT):
    """Send bytes after the greeting; what came back until the server closed the connection."""
    with connection(enter, address, port) as made, contextlib.suppress(OSError):
        came = made.recv(65536)
        made.sendall(line)
        made.shutdown(socket.SHUT_WR)
        while piece := made.recv(65536):
            came += piece
    return came


class HostileServer:
    """Says `lines` to everybody who connects, one after each line that comes in, and then nothing more."""

    def __init__(self, enter, address, *lines, port=PORT):
        self.lines, self.heard = lines, []
        self._listening = listener(enter, address, port)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self):
        while True:
            try:
                made, _ = self._listening.accept()
            except OSError:
                return
            made.settimeout(PATIENCE)
            with made, contextlib.suppress(OSError):
                for line in self.lines:
                    made.sendall(line + b"\n")
                    self.heard.append(made.recv(65536))

    def close(self):
        self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join(PATIENCE)
        self._listening.close()
