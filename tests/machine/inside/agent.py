"""The lab's hand inside a guest: it runs what comes in over the virtio port, and answers on TCP port 7777 with the boot's id.

A request is one line of JSON, {"id", "command", "input", "timeout"}; so is its answer, {"id", "code", "output"}, input and
output in base64. What is no such line is passed over: a frame that a reboot cut in two costs itself. Part of the image's
recipe, and of no package.
"""

# SPDX-License-Identifier: MIT

import base64
import json
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

PORT = "neuca.lab"
LONGEST = 8 << 20  # bytes of output
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
writing = threading.Lock()


def device():
    """The virtio port's device file; its driver may load after this program."""
    while True:
        for name in Path("/sys/class/virtio-ports").glob("*/name"):
            path = Path("/dev", name.parent.name)
            if name.read_text().strip() == PORT and path.exists():
                return path
        time.sleep(0.1)


def send(port, **message):
    data = json.dumps(message).encode() + b"\n"
    with writing:
        while data:
            data = data[os.write(port, data) :]


def serve(port, request):
    """Run one command. Its output goes to a file: a child that it leaves behind keeps nobody waiting."""
    with tempfile.TemporaryFile(dir="/run") as output:
        process = subprocess.Popen(
            ["/bin/bash", "-c", request["command"]],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd="/root",
        )
        try:
            process.communicate(
                base64.b64decode(request.get("input", "")), timeout=request["timeout"]
            )
            code = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            code = 124
        output.seek(0)
        send(
            port,
            id=request["id"],
            code=code,
            output=base64.b64encode(output.read(LONGEST)).decode(),
        )


def answer_on_the_network():
    with socket.create_server(("0.0.0.0", 7777)) as listener:
        while True:
            connection = listener.accept()[0]
            with connection:
                connection.sendall(BOOT_ID.read_bytes())


def main():
    os.environ["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    os.environ["HOME"] = "/root"
    threading.Thread(target=answer_on_the_network, daemon=True).start()
    port = os.open(device(), os.O_RDWR)
    send(port, hello=BOOT_ID.read_text().strip())
    with os.fdopen(os.dup(port), "rb") as requests:
        for line in requests:
            try:
                request = json.loads(line)
            except ValueError:
                continue
            threading.Thread(target=serve, args=(port, request), daemon=True).start()


if __name__ == "__main__":
    main()
