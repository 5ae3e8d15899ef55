"""Inside the guest: how many of so many neighbours answer.

Usage: neighbours.py SERVER-NAMESPACE COUNT
"""

# SPDX-License-Identifier: MIT

import select
import socket
import subprocess
import sys

PORT = 7007
SERVER = f"""import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
    server.bind(("0.0.0.0", {PORT}))
    print("ready", flush=True)
    while True:
        data, address = server.recvfrom(64)
        server.sendto(data, address)
"""


def address(number):
    """Of the neighbour with this number: 10.1.0.1 and so on."""
    return f"10.1.{number // 250}.{number % 250 + 1}"


def ask_all(client, count):
    """The numbers that came back. All are asked within seconds: what is older may make room in a full table."""
    answered = set()
    for number in range(count):
        client.sendto(str(number).encode(), (address(number), PORT))
        if select.select([client], [], [], 0.002)[0]:
            answered.add(client.recv(64))
    while select.select([client], [], [], 1.0)[0]:
        answered.add(client.recv(64))
    return answered


def main():
    command = ["ip", "netns", "exec", sys.argv[1], sys.executable, "-c", SERVER]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        server.stdout.readline()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            print(len(ask_all(client, int(sys.argv[2]))))
        server.kill()


if __name__ == "__main__":
    main()
